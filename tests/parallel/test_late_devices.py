"""Several places of a device whose work runs late: how often a step waits and visits the host, and what a failure leaves."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu import first_gpu
from tests.helpers.patience import pace
from tstatic import devices, flags, nn, static
from tstatic.devices.base import Device
from tstatic.devices.fake import FakeDevice
from tstatic.errors import DeviceError, IndexRangeError
from tstatic.optimizer.gradient_merge import GradientMergeOptimizer
from tstatic.places import CPUPlace, CUDAPlace

Build = Callable[[Any], None]
ROWS = 4


def _update(loss: Any, rule: Any = None) -> None:
    (rule or paddle.optimizer.AdamW(0.01)).minimize(loss)


def _clipped(loss: Any) -> None:
    _update(loss, paddle.optimizer.AdamW(0.01, grad_clip=nn.ClipGradByGlobalNorm(0.1)))


def _mixed(loss: Any) -> None:
    _update(loss, static.amp.decorate(paddle.optimizer.Momentum(0.01), init_loss_scaling=8.0))


def _by_rows(loss: Any) -> None:
    _update(loss, paddle.optimizer.Adam(0.01, lazy_mode=True, grad_clip=nn.ClipGradByGlobalNorm(0.1)))


def _merged(loss: Any) -> None:
    _update(loss, GradientMergeOptimizer(paddle.optimizer.AdamW(0.01), 2))


KINDS: dict[str, tuple[Build, dict[str, Any]]] = {
    "plain": (_update, {}),
    "clip": (_clipped, {}),
    "amp": (_mixed, {}),
    "merge": (_merged, {}),
    "sync_batch_norm": (_update, {"sync_batch_norm": True}),
    "table": (_by_rows, {}),
    "owners": (_clipped, {"reduce_strategy": static.BuildStrategy.ReduceStrategy.Reduce}),
    "merging owners": (_merged, {"reduce_strategy": static.BuildStrategy.ReduceStrategy.Reduce}),
}


class Net:
    """A net with a convolution, a batch norm, labels, and an update, on so many places (or a list of them).

    Args:
        kind: One of :data:`KINDS`.
        place: The place.
        count: How many of them.
        of, part: How many processes there are, and which of them this is.
        **more: Properties of the BuildStrategy.
    """

    def __init__(self, kind: str, place: Any, count: int, of: int = 1, part: int = 0, **more: Any) -> None:
        build, switches = KINDS[kind]
        self.count = count
        every = place if isinstance(place, list) else [place] * count
        with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
            paddle.seed(3)
            x, y = static.data("x", [None, 2, 6, 6]), static.data("y", [None, 1], "int64")
            h = nn.functional.relu(static.nn.batch_norm(static.nn.conv2d(x, 4, 3)))
            h = static.nn.fc(static.nn.fc(h, 24, activation="tanh"), 5)
            if kind == "table":
                # So large that its gradient is summed as the rows that the places look up.
                h += paddle.reshape(static.nn.embedding(y, [20_000, 5], is_sparse=True), [-1, 5])
            loss = self.loss = paddle.mean(nn.functional.cross_entropy(h, y))
            build(loss)
            self.main = static.default_main_program()
            self.scope, self.exe = static.Scope(), static.Executor(every[0])
            with static.scope_guard(self.scope):
                self.exe.run(static.default_startup_program())
            strategy = static.BuildStrategy()
            for name, value in (switches | more).items():
                setattr(strategy, name, value)
            program = static.CompiledProgram(self.main)
            self.program = program.with_data_parallel(loss.name, build_strategy=strategy, places=every)
        draw = np.random.RandomState(0)
        whole = {
            "x": draw.rand(ROWS * count * of, 2, 6, 6).astype("float32"),
            "y": draw.randint(0, 5, (ROWS * count * of, 1)),
        }
        self.feed = {name: rows[ROWS * count * part :][: ROWS * count] for name, rows in whole.items()}

    def step(self, feed: dict[str, Any] | None = None) -> Any:
        return self.exe.run(self.program, feed=feed or self.feed, fetch_list=[self.loss], scope=self.scope)[0]

    def values(self) -> list[list[bytes]]:
        """The trained parameters of each replica; running statistics are its own unless they are synchronised."""
        names = [one.name for one in self.main.all_parameters() if one.trainable]
        scopes = [self.scope.replica(r) for r in range(self.count)]
        return [[np.array(one.var(name).get_tensor()).tobytes() for name in names] for one in scopes]


@contextlib.contextmanager
def backend(name: str) -> Iterator[tuple[Device, Any]]:
    if name == "fake":
        with devices.use("fake") as device:
            yield device, CPUPlace()
    else:
        with first_gpu() as gpu:
            yield gpu, CUDAPlace(0)


@contextlib.contextmanager
def visits(device: Device) -> Iterator[Counter[str]]:
    """Counts how often the host waits for a device, and the bytes that pass between them beside feeds and fetches."""
    found: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("synchronize", "finish", "to_host", "from_host"):
            real = getattr(device, name)

            def counted(*args: Any, name: str = name, real: Any = real, **more: Any) -> Any:
                if name in ("synchronize", "finish"):
                    found["waits"] += 1
                else:
                    found["bytes"] += args[0].nbytes
                return real(*args, **more)

            patch.setattr(device, name, counted)
        yield found


@pytest.mark.torch
# How places take turns is drawn on the late-running device; what stands in for a GPU runs all at once, however many there are.
@pytest.mark.parametrize(("name", "count"), [("fake", 2), ("fake", 4), ("fake", 8), ("gpu", 2), ("gpu", 4)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_waits_once_on_each_place_and_moves_nothing_through_the_host(name: str, kind: str, count: int) -> None:
    with backend(name) as (device, place):
        net = Net(kind, place, count)
        for _ in range(3):  # the third captures what it can
            net.step()
        with visits(device) as found:
            net.step()
    assert found == {"waits": count}


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["fake", "gpu"])
def test_replicas_stay_equal_and_learn_as_on_the_cpu(name: str, kind: str) -> None:
    plain = Net(kind, CPUPlace(), 2)
    told = [plain.step() for _ in range(4)]
    with backend(name) as (_, place):
        net = Net(kind, place, 2)
        found = [net.step() for _ in range(4)]
        first, second = net.values()
    assert first == second
    np.testing.assert_allclose(found, told, rtol=3e-5 if kind != "amp" else 2e-2)


class _Planted:
    """Makes the work of the ``at``-th op that a replica's thread queues fail when it runs.

    Sums are counted apart: the last replica to arrive at one adds for all, so that their number is another in each step.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.replica, self.at, self.seen, self.sums = -1, -1, 0, False
        self.op: Any = None
        put = FakeDevice._put

        def planted(device: FakeDevice, stream: Any, run: Any, op: Any = None, *rest: Any, **named: Any) -> None:
            mine = threading.current_thread().name == f"tstatic-replica-{self.replica}"
            if mine and op is not None and (op.definition.type == "c_sum") == self.sums:
                self.seen += 1
                if self.seen == self.at + 1:
                    self.op = op
                    run = self._fail
            put(device, stream, run, op, *rest, **named)

        patch.setattr(FakeDevice, "_put", planted)

    @staticmethod
    def _fail() -> None:
        raise ArithmeticError("deliberate")

    def arm(self, replica: int, at: int, sums: bool = False) -> None:
        self.replica, self.at, self.seen, self.sums, self.op = replica, at, 0, sums, None


def _settled(kind: str) -> Net:
    """A net whose graphs are captured, so that a planted fault is that of one launch."""
    net = Net(kind, CPUPlace(), 3)
    for _ in range(3):
        net.step()
    return net


@pytest.mark.parametrize("kind", ["clip", "owners"])
@pytest.mark.parametrize("replica", range(3) if os.environ.get("TSTATIC_SOAK") else [1])
def test_whatever_op_fails_names_its_replica_and_changes_no_replica(
    replica: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An op of the update excepted: what it wrote is torn, and no run uses it."""
    _fail_each(_Planted(monkeypatch), replica, kind, sums=False)


def test_a_sum_that_fails_changes_no_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_each(_Planted(monkeypatch), 1, "clip", sums=True)


def _fail_each(planted: _Planted, replica: int, kind: str, sums: bool) -> None:
    with devices.use("fake"):
        net = _settled(kind)
        before = net.values()
        torn, at = 0, 0
        while True:
            planted.arm(replica, at, sums)
            try:
                net.step()
            except DeviceError as raised:
                told = str(raised)
                assert "while it wrote parameters" in told
                assert planted.op.type == "adamw"
                torn += 1
                planted.arm(-1, -1)
                with pytest.raises(DeviceError, match="half written"):
                    net.step()
                net = _settled(kind)
            except ArithmeticError as raised:
                told = "\n".join(raised.__notes__)
                assert planted.op.type != "adamw"
                if not sums:
                    assert f"replica {replica} of 3" in told
                assert net.values() == before, planted.op.type
            else:
                break
            at += 1
            planted.arm(-1, -1)
            net.values()
        assert planted.op is None, "no op is left that could fail"
        assert sums or at > 20
        assert sums or torn
    planted.arm(-1, -1)


@pytest.mark.torch
@pytest.mark.parametrize(("name", "replica"), [("fake", 0), ("fake", 1), ("fake", 2), ("gpu", 1)])
@pytest.mark.parametrize("kind", ["clip", "owners", "table"])
def test_a_position_that_one_replica_is_fed_is_refused_on_all(name: str, kind: str, replica: int) -> None:
    with backend(name) as (_, place):
        net, like = Net(kind, place, 3), Net(kind, place, 3)
        net.step()
        like.step()
        before = net.values()
        bad = {key: np.array(value) for key, value in net.feed.items()}
        bad["y"][ROWS * replica + 1] = 5 if kind != "table" else 20_000
        for _ in range(2):
            with pytest.raises(IndexRangeError, match=f"replica {replica} of 3|replica: {replica}") as caught:
                net.step(bad)
            assert "it changed no variable" in str(caught.value)
        assert net.values() == before
        assert np.array_equal(net.step(), like.step()), "the count of runs is as if the refused ones had not been"
        assert net.values() == like.values()


def test_a_collective_that_never_ends_is_given_up_and_a_new_executor_works(monkeypatch: pytest.MonkeyPatch) -> None:
    release, armed = threading.Event(), threading.Event()
    put = FakeDevice._put

    def hanging(device: FakeDevice, stream: Any, run: Any, op: Any = None, *rest: Any, **named: Any) -> None:
        hangs = armed.is_set() and op is not None and op.definition.type == "c_sum"
        put(device, stream, (lambda: (release.wait(), run())) if hangs else run, op, *rest, **named)

    monkeypatch.setattr(FakeDevice, "_put", hanging)
    before = flags.get_flags("FLAGS_step_timeout_s")
    with devices.use("fake"):
        net = Net("plain", CPUPlace(), 2)
        for _ in range(3):
            net.step()
        flags.set_flags({"FLAGS_step_timeout_s": 1.0 * pace()})
        try:
            armed.set()
            start = time.monotonic()
            with pytest.raises(DeviceError, match="did not finish its step within"):
                net.step()
            assert time.monotonic() - start < (pace() + 2.0) * 3.0 * pace()
            armed.clear()
            with pytest.raises(DeviceError, match="never came back"):
                net.step()
        finally:
            flags.set_flags(before)
            armed.clear()
            release.set()
        again = Net("plain", CPUPlace(), 2)
        again.step()
        first, second = again.values()
        assert first == second
