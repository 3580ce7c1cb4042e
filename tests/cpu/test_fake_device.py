"""The fake device: memory that the host cannot touch, work that runs late and out of order, and the CPU's numbers all the same."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from numpy.lib.array_utils import byte_bounds

import tstatic as paddle
from tests.cpu.test_seeds import ALL, OWN, _changed_imports, _with_cpu
from tests.helpers.drawn import PLAIN
from tests.helpers.patience import HANG, pace
from tests.helpers.soak import SOAK, shards
from tests.parallel.golden import ROWS, Training, net, strategy
from tests.parallel.test_equality import EVERY_FUSION, Nets, batch_of
from tests.parallel.test_faults import through
from tests.parallel.test_golden import CASES
from tstatic import devices, static, testing
from tstatic.comm import group
from tstatic.comm.transport import host as host_transport
from tstatic.comm.transport.gloo_transport import GlooTransport
from tstatic.devices import queued
from tstatic.devices.base import QueuedWorkError
from tstatic.devices.cpu import device as cpu_device
from tstatic.devices.fake import DEVICE, FakeArray, FakeDevice
from tstatic.devices.fake.clock import FakeEvent
from tstatic.devices.graphs import LateGraph
from tstatic.devices.step import Region
from tstatic.errors import DeviceError, IndexRangeError
from tstatic.ir import declare, split
from tstatic.ir.types import Meta, dtype_of, float32
from tstatic.runtime import replica_threads, scope
from tstatic.runtime.replica_threads import ReplicaThreads
from tstatic.testing.runner import trial_of_recipe

PROGRAMS = 2000 if SOAK else 100

pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="compares the CPU with the fake device"
)


@contextlib.contextmanager
def fake(number: int = 0) -> Iterator[FakeDevice]:
    """Runs CPU places on the fake device, in the order that a number draws."""
    DEVICE.reseed(number)
    with devices.use("fake"):
        yield DEVICE


def same_bits(a: Any, b: Any) -> None:
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()


# --------------------------------------------------------------------------------------------------------- the same bits
@pytest.mark.parametrize("shard", shards(4, 1))
def test_random_programs_give_the_same_bits(shard: int) -> None:
    kinds: dict[str, Any] = [{}, {"backward": True}, {"optimizer": True}, {"special": True}][shard]

    @seed(7000 + shard)
    @settings(max_examples=PROGRAMS // 4, **PLAIN)
    @given(recipe=testing.programs(max_ops=12, **kinds))
    def run(recipe: testing.Recipe) -> None:
        trial, feeds = trial_of_recipe(recipe)
        plain = trial.run(trial.program, feeds, trial.state)
        with fake(shard):
            late = trial.run(trial.program, feeds, trial.state)
        for a, b in zip(plain, late, strict=True):
            same_bits(a, b)

    run()


def numbers(training: Training, feed: Any, steps: int) -> list[Any]:
    fetched = [value for _ in range(steps) for value in training.step(feed, ["w@GRAD", "w"])]
    return [*fetched, *(training.value(name, replica) for name in ("w", "b") for replica in (0, 1))]


@pytest.mark.parametrize("name", CASES)
def test_golden_numbers_of_two_places_are_the_same_bits(name: str) -> None:
    rows, switches, steps, *_ = CASES[name]
    feed = {"X": ROWS[:rows]} if isinstance(rows, int) else [{"X": ROWS[a:b]} for a, b in rows]
    plain = numbers(Training(net(), build=strategy(**switches)), feed, steps)
    with fake(1):
        same_bits(plain, numbers(Training(net(), build=strategy(**switches)), feed, steps))


@pytest.mark.parametrize("reduce", [False, True], ids=["AllReduce", "Reduce"])
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_data_parallel_training_gives_the_same_bits(optimizer: str, reduce: bool) -> None:
    switches: dict[str, Any] = dict.fromkeys(EVERY_FUSION, True)
    if reduce:
        switches["reduce_strategy"] = static.BuildStrategy.ReduceStrategy.Reduce
    sizes = [3, 4, 5]
    found = []
    for where in (contextlib.nullcontext(), fake(2)):
        with where:
            trained = Nets(optimizer, "global", norm=True)
            values = trained.together(batch_of(sum(sizes), 1), sizes, 3, strategy(**switches))
            found.append([trained.losses, *(values[n] for n in sorted(values))])
    same_bits(*found)


def values_after(code: str, name: str) -> list[Any]:
    """What a sample leaves in the global scope, where entropy is a fixed seed."""
    declare.reset_default_programs()
    scope.reset_global_scope()
    paddle.seed(5)
    np.random.seed(0)  # samples draw their feeds from it
    exec(compile(code, name, "exec"), {"__name__": "sample"})
    return list(state(static.global_scope()).values())


def samples() -> list[tuple[str, str]]:
    return [*OWN.items(), *((s.name, s.code) for s in ALL)]


@pytest.mark.parametrize(("name", "code"), samples(), ids=[name for name, _ in samples()])
def test_samples_leave_the_same_bits(name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPU_NUM", "2")
    code = _changed_imports(_with_cpu(code))
    plain = values_after(code, name)
    with fake(3):
        late = values_after(code, name)
    assert bool(plain) == (".run(" in code), "a sample that runs a program keeps something"
    same_bits(plain, late)


# ------------------------------------------------------------------------------------------------------ out of the reach
def array_of(values: Sequence[float]) -> FakeArray:
    made = DEVICE.empty((len(values),), np.dtype(np.float32))
    DEVICE.from_host(made, np.array(values, np.float32))
    return made


@pytest.mark.parametrize(
    "touch",
    [
        np.asarray, lambda a: np.add(a, 1), lambda a: a[0], lambda a: a.__setitem__(0, 1), float, list, len, bool,
        lambda a: np.copyto(np.zeros(2), a), np.sum,
    ],
    ids=["asarray", "add", "read", "write", "float", "list", "len", "bool", "copyto", "sum"],
)  # fmt: skip
def test_the_host_cannot_touch_the_memory(touch: Callable[[Any], Any]) -> None:
    with pytest.raises(DeviceError, match="the host touched memory of a device"):
        touch(array_of([1, 2]))


def test_pinned_memory_is_the_hosts_and_foreign_memory_is_not() -> None:
    meta = Meta((2,), float32)
    assert isinstance(DEVICE.view(DEVICE.allocate(8, "pinned"), 0, meta), np.ndarray)
    for kind in ("device", "foreign"):
        assert isinstance(DEVICE.view(DEVICE.allocate(8, kind), 0, meta), FakeArray)


def training() -> tuple[static.Program, static.Program, Any]:
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("x", [None, 4])
        h = static.nn.batch_norm(static.nn.fc(x, 5, activation="tanh"))
        loss = paddle.mean(paddle.square(static.nn.fc(h, 2)))
        paddle.optimizer.Adam(0.1).minimize(loss)
    main.random_seed = startup.random_seed = 3
    return main, startup, loss


FEED = {"x": np.arange(12, dtype=np.float32).reshape(3, 4) / 7}


def state(where: static.Scope) -> dict[str, Any]:
    """The values of a scope, by name."""
    found = {n: where.find_var(n) for n in sorted(where.local_var_names())}
    return {n: np.array(v.get_tensor()) for n, v in found.items() if v is not None and v.get_tensor()._is_initialized()}


def test_values_are_set_saved_and_loaded_through_the_device(tmp_path: Path) -> None:
    main, startup, loss = training()
    with fake():
        exe = static.Executor("cpu")
        exe.run(startup)
        exe.run(main, feed=FEED, fetch_list=[loss])
        held = static.global_scope()
        weight = main.all_parameters()[0]
        assert all(isinstance(held.array(n), FakeArray) for n in held.local_var_names())
        tensor = held.find_var(weight.name).get_tensor()  # type: ignore[union-attr]
        storage = tensor.array
        tensor.set(np.full(weight.shape, 0.5, np.float32))
        assert tensor.array is storage, "it is written through"
        static.save(main, str(tmp_path / "saved"))
        (first,) = exe.run(main, feed=FEED, fetch_list=[loss])
        before = state(held)
        static.load(main, str(tmp_path / "saved"))
        assert np.array_equal(np.array(tensor), np.full(weight.shape, 0.5, np.float32))
        (again,) = exe.run(main, feed=FEED, fetch_list=[loss])
        assert first == again
        after = state(held)
        assert all(before[n].tobytes() == after[n].tobytes() for n in before)


def test_a_scope_can_go_from_one_device_to_another_and_back() -> None:
    main, startup, loss = training()

    def run(kinds: str) -> list[Any]:
        held, exe = static.Scope(), static.Executor("cpu")
        exe.run(startup, scope=held)
        losses = []
        for kind in kinds:
            with fake() if kind == "f" else contextlib.nullcontext():
                losses += exe.run(main, feed=FEED, fetch_list=[loss], scope=held)
        return [*losses, *state(held).values()]

    same_bits(run("cccccc"), run("cfcffc"))


def test_an_error_of_late_work_names_the_operator_and_leaves_the_state() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        ids = static.data("ids", [None], "int64")
        loss = paddle.mean(static.nn.embedding(ids, [4, 3]))
        paddle.optimizer.SGD(0.1).minimize(loss)
    with fake():
        exe = static.Executor("cpu")
        exe.run(startup)
        good = {"ids": np.array([1, 2])}
        exe.run(main, feed=good, fetch_list=[loss])
        before = state(static.global_scope())
        with pytest.raises(IndexRangeError, match="embedding") as caught:
            exe.run(main, feed={"ids": np.array([1, 9])}, fetch_list=[loss])
        assert "test_fake_device.py" in str(caught.value)
        after = state(static.global_scope())
        assert all(before[n].tobytes() == after[n].tobytes() for n in before)
        exe.run(main, feed=good, fetch_list=[loss])


# ---------------------------------------------------------------------------------------------------------- collectives
LARGE = host_transport._UNDIVIDED + 3
COLLECTIVES: dict[str, tuple[int, Callable[[group.Communicator, Any, Any], None]]] = {
    "small sum": (5, lambda c, xs, out: c.all_reduce(xs)),
    "large sum": (LARGE, lambda c, xs, out: c.all_reduce(xs)),
    "sums of owners": (5, lambda c, xs, out: c.reduce(xs, [0, 1])),
    "broadcast": (5, lambda c, xs, out: c.broadcast(xs, [0, 1])),
    "gather": (5, lambda c, xs, out: c.all_gather(xs[0], out)),
}


class Doubled:
    """A group of two processes that hold the same values."""

    rank = 0
    size = 2

    def __init__(self) -> None:
        self.moved: list[np.ndarray[Any, Any]] = []

    def all_reduce(self, arrays: Sequence[np.ndarray[Any, Any]], block: int = 0) -> None:
        self.moved += arrays
        for a in arrays:
            a *= 2

    def all_gather(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.moved.append(array)
        return np.stack([array, array])

    def agree(self, label: str, note: Any = None) -> list[Any]:
        """All are there, and note nothing."""
        return [note]


def collected(
    name: str, device: Any, outer: Doubled | None = None, left_out: int = -1, flipped: bool = False
) -> tuple[list[Any], int]:
    """What each of two replicas has after a collective whose arrays are made before and overwritten after it, and its waits.

    The second replica arrives last; ``flipped``: the host awaits its work first.
    """
    count, run = COLLECTIVES[name]
    together = group.Group(2, None if outer is None else GlooTransport(outer))
    made: list[Any] = [None, None]
    waits = [0]
    right = group.Collective._wait

    def some(self: group.Collective, events: Sequence[Any]) -> None:
        others = [e for e in events if e is not self.ready and e is not self.done]
        first, waits[0] = waits[0], waits[0] + len(others)
        right(self, [e for i, e in enumerate(others, first) if i != left_out])

    def task(replica: int) -> None:
        communicator, stream, event = together.communicator(replica, device), device.stream(), device.event()
        xs = [device.empty((count,), np.dtype(np.float32)) for _ in range(2)]
        out = device.empty((together.world, count), np.dtype(np.float32))
        for i, x in enumerate(xs):
            device.from_host(x, np.arange(count, dtype=np.float32) * (replica + 2) + i, stream)
        kept = [device.empty(x.shape, x.dtype) for x in (*xs, out)]
        device.fill(out, 0, stream)
        device.record(event, stream)
        device.wait(event, communicator.stream)
        while replica == 1 and 0 not in together.waiting:
            time.sleep(0)  # the order of arrival decides who does the work
        run(communicator, xs, out)
        for there, x in zip(kept, (*xs, out), strict=True):
            device.copy(there, x, communicator.stream)
            device.fill(x, 99, communicator.stream)
        made[replica] = communicator.stream, kept

    threads = ReplicaThreads(2, together)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group.Collective, "_wait", some)
        try:
            threads.run([partial(task, r) for r in range(2)], 30.0)
        finally:
            threads.close()
    results = {r: [device.to_host(a, made[r][0]) for a in made[r][1]] for r in ((1, 0) if flipped else (0, 1))}
    return [*results[0], *results[1]], waits[0]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_give_the_cpus_bits_and_need_each_of_their_waits(name: str) -> None:
    plain, count = collected(name, devices.HOST)
    assert any(np.any(a) for a in plain)
    for number in range(10):
        same_bits(plain, collected(name, FakeDevice(number))[0])
    assert count >= 2
    for wait in range(count):
        found = (collected(name, FakeDevice(n), left_out=wait, flipped=bool(n % 2))[0] for n in range(40))
        assert any(any(a.tobytes() != b.tobytes() for a, b in zip(plain, late, strict=True)) for late in found), wait


@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name != "broadcast"])
def test_values_for_other_processes_pass_through_pinned_memory(name: str) -> None:
    plain, _ = collected(name, devices.HOST, Doubled())
    for number in range(5):
        outer = Doubled()
        same_bits(plain, collected(name, FakeDevice(number), outer)[0])
        assert outer.moved
        assert all(isinstance(a, np.ndarray) for a in outer.moved)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_short_floats_round_once_on_the_device(dtype: str) -> None:
    values = [np.float32([1, 0.001, 2048]), np.float32([0.0004, 0.001, 1]), np.float32([0.0004, 0.001, 1])]
    short = [v.astype(dtype_of(dtype).np) for v in values]
    expected = (short[0].astype(np.float32) + short[1].astype(np.float32) + short[2].astype(np.float32)).astype(
        short[0].dtype
    )
    device, together = FakeDevice(), group.Group(3)
    there = [device.upload(v) for v in short]
    threads = ReplicaThreads(3, together)
    try:
        threads.run([partial(together.communicator(r, device).all_reduce, [there[r]]) for r in range(3)], 30.0)
    finally:
        threads.close()
    for array in there:
        assert device.to_host(array).tobytes() == expected.tobytes()


def test_late_arithmetic_gives_no_warnings_that_would_look_like_failures() -> None:
    device, together = FakeDevice(), group.Group(2)
    there = [device.upload(np.float32([v, 3e38])) for v in (np.inf, -np.inf)]
    threads = ReplicaThreads(2, together)
    try:
        threads.run([partial(together.communicator(r, device).all_reduce, [there[r]]) for r in range(2)], 30.0)
    finally:
        threads.close()
    for array in there:  # outside an executor's run, which switches numpy's warnings off
        assert np.array_equal(device.to_host(array), np.float32([np.nan, np.inf]), equal_nan=True)


@pytest.mark.parametrize("replica", [0, 1])
def test_late_work_that_fails_in_one_replica_names_that_replica_and_leaves_the_state(replica: int) -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        ids = static.data("ids", [None], "int64")
        loss = paddle.mean(static.nn.embedding(ids, [4, 3]))
        paddle.optimizer.SGD(0.1).minimize(loss)
    with fake(replica):
        exe = static.Executor("cpu")
        exe.run(startup)
        both = static.CompiledProgram(main).with_data_parallel(loss.name, places=["cpu", "cpu"])
        good = {"ids": np.array([1, 2])}
        exe.run(both, feed=good, fetch_list=[loss])
        before = state(static.global_scope())
        bad = np.array([1, 2])
        bad[replica] = 9
        with pytest.raises(IndexRangeError, match="lookup_table") as caught:
            exe.run(both, feed={"ids": bad}, fetch_list=[loss])
        assert caught.value.replica == f"{replica} of 2"
        after = state(static.global_scope())
        assert all(before[n].tobytes() == after[n].tobytes() for n in before)
        exe.run(both, feed=good, fetch_list=[loss])


@pytest.mark.parametrize(
    ("at", "hanging", "slow"),
    [("before the loss", 1, 0), ("beside the loss", 1, 2), ("beside the loss", 2, 0), ("after the collectives", 2, 0)],
)
def test_late_work_that_hangs_names_its_replica_and_not_one_that_is_slow(
    at: str, hanging: int, slow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread may run the work of any replica, so all of them may wait for the one that hangs."""
    release, armed, times = threading.Event(), threading.Event(), pace()

    def wait(x: Any) -> Any:
        if armed.is_set():
            release.wait({hanging: HANG, slow: 0.15 * times}.get(int(np.array(x).flat[0]), 0.0))
        return np.array(x)

    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("X", [None, 3])
        h = through(main, x, wait, None) if at == "before the loss" else x
        loss = paddle.mean(paddle.square(static.nn.fc(h, 3)))
        if at == "beside the loss":
            loss = loss + 0.0 * paddle.mean(through(main, x, wait, None))
        paddle.optimizer.SGD(0.1).minimize(loss)
        if at == "after the collectives":
            through(main, x, wait, None)
    feed = {"X": np.repeat(np.arange(3, dtype=np.float32), 6).reshape(6, 3)}
    monkeypatch.setattr(replica_threads, "GRACE", 0.4 * times)
    with fake(hanging), static.scope_guard(static.Scope()):
        exe = static.Executor("cpu")
        exe.run(startup)
        parts = static.CompiledProgram(main).with_data_parallel(loss.name, places=["cpu"] * 3)
        exe.run(parts, feed=feed, fetch_list=[loss])
        armed.set()
        paddle.set_flags({"FLAGS_step_timeout_s": 0.05 * times})
        try:
            with pytest.raises(DeviceError, match=f"replica {hanging} of 3 did not finish") as caught:
                exe.run(parts, feed=feed, fetch_list=[loss])
            assert f"replica {hanging} still in operator 'py_func'" in str(caught.value)
            with pytest.raises(DeviceError, match=f"replica {hanging} never came back"):
                exe.run(parts, feed=feed, fetch_list=[loss])
        finally:
            paddle.set_flags({"FLAGS_step_timeout_s": 60.0})
            release.set()


def test_synchronised_batch_norm_gives_the_same_bits() -> None:
    found = []
    for where in (contextlib.nullcontext(), fake(4)):
        with where:
            trained = Nets("momentum", "global", norm=True)
            values = trained.together(batch_of(9, 1), [2, 7], 2, strategy(sync_batch_norm=True))
            found.append([trained.losses, *(values[n] for n in sorted(values))])
    same_bits(*found)


def test_rows_of_tables_that_places_exchange_give_the_same_bits() -> None:
    """As many rows as the replicas looked up together, and updates of that size, written in place."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        startup.random_seed = 3
        ids = static.data("ids", [None, 2], "int64")
        found = static.nn.embedding(ids, [2**13, 8], is_sparse=True)
        loss = paddle.mean(paddle.tanh(static.nn.fc(found, 2)))
        paddle.optimizer.Adam(0.1, lazy_mode=True, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.1)).minimize(loss)
    feed = [{"ids": np.array(rows)} for rows in ([[5, 9], [7, 5]], [[9, 3]])]
    results = []
    for where in (contextlib.nullcontext(), fake(7)):
        with where, static.scope_guard(static.Scope()):
            exe = static.Executor("cpu")
            exe.run(startup)
            both = static.CompiledProgram(main).with_data_parallel(loss.name, places=["cpu", "cpu"])
            values = [exe.run(both, feed=feed, fetch_list=[loss])[0] for _ in range(2)]
            results.append([*values, *state(static.global_scope()).values()])
            assert both.explain().collectives.tables == 1  # type: ignore[union-attr]
    same_bits(*results)


def test_synchronised_batch_norm_of_rows_chosen_by_value_gives_the_same_bits() -> None:
    """Its sizes are known only when its input has been computed."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x, keep = static.data("x", [None, 3]), static.data("keep", [None], "int64")
        rows = paddle.gather(x, paddle.reshape(paddle.nonzero(keep), [-1]))
        loss = paddle.mean(paddle.square(static.nn.batch_norm(rows)))
        paddle.optimizer.SGD(0.1).minimize(loss)
    feed = {"x": np.arange(18, dtype=np.float32).reshape(6, 3) ** 2, "keep": np.array([1, 0, 1, 1, 1, 1])}
    found = []
    for where in (contextlib.nullcontext(), fake(6)):
        with where, static.scope_guard(static.Scope()):
            exe = static.Executor("cpu")
            exe.run(startup)
            build = strategy(sync_batch_norm=True)
            both = static.CompiledProgram(main, build).with_data_parallel(loss.name, places=["cpu", "cpu"])
            values = [exe.run(both, feed=feed, fetch_list=[loss])[0] for _ in range(2)]
            found.append([*values, *state(static.global_scope()).values()])
    same_bits(*found)


# ---------------------------------------------------------------------------------------------------------- a whole step
def test_the_commit_waits_for_the_updates_of_every_stream_and_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    main, startup, loss = training()

    def run(number: int, left_out: int) -> list[Any]:
        schedule, streams = queued.QueuedDevice.schedule, []

        def noted(self: FakeDevice, steps: Any, region: Region) -> Any:
            streams[:] = region.streams
            return schedule(self, steps, region)

        def some(self: LateGraph) -> None:
            for event, stream in zip(self._joined, self._others, strict=True):
                if streams.index(stream) != left_out:
                    self._device.record(event, stream)
                    self._device.wait(event, self._first)

        with contextlib.ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(queued.QueuedDevice, "schedule", noted)
            patch.setattr(LateGraph, "_join", some)
            paddle.set_flags({"FLAGS_cuda_graph": "off"})  # a capture would refuse it
            device = stack.enter_context(fake(number)) if number >= 0 else None
            stack.enter_context(static.scope_guard(static.Scope()))
            exe = static.Executor("cpu")
            exe.run(startup)
            waited: list[Any] = []
            if device is not None:
                for name in ("synchronize", "finish"):
                    right = getattr(device, name)
                    patch.setattr(device, name, lambda *given, right=right: (waited.append(given), right(*given))[1])
            values = []
            for _ in range(3):
                waited.clear()
                values += exe.run(main, feed=FEED, fetch_list=[loss])
            if device is not None:
                assert len(waited) == 1
                assert isinstance(waited[0][0], FakeEvent)
            return [*values, *state(static.global_scope()).values()]

    plain = run(-1, -1)
    assert all(a.tobytes() == b.tobytes() for n in range(5) for a, b in zip(plain, run(n, -1), strict=True))
    for stream in range(2, 2 + FakeDevice.compute_streams):
        late = (run(number, stream) for number in range(20))
        assert any(any(a.tobytes() != b.tobytes() for a, b in zip(plain, one, strict=True)) for one in late), stream


def test_feeds_are_staged_in_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    main, fetches = branches()
    kinds: list[str] = []
    right = FakeDevice.allocate

    def allocate(self: FakeDevice, nbytes: int, kind: Any = "device", purpose: str = "memory") -> Any:
        kinds.append(kind)
        return right(self, nbytes, kind, purpose)

    monkeypatch.setattr(FakeDevice, "allocate", allocate)
    with fake():
        exe = static.Executor("cpu")
        for _ in range(2):
            exe.run(main, feed=FEED, fetch_list=fetches)
    assert kinds.count("pinned") == 2, "once per plan, and once for what it fetches"


def test_the_log_of_steps_has_the_time_on_the_device(caplog: pytest.LogCaptureFixture) -> None:
    main, fetches = branches()
    caplog.set_level("DEBUG", logger="tstatic.executor")
    with fake():
        static.Executor("cpu").run(main, feed=FEED, fetch_list=fetches)
    (line,) = (r.getMessage() for r in caplog.records if r.name == "tstatic.executor")
    found = re.search(r"in ([\d.]+) ms, of which ([\d.]+) ms on the device", line)
    assert found
    assert float(found[2]) > 0, "virtual: it may be more than what the host took"


# ---------------------------------------------------------------------------------------------------------------- order
def branches() -> tuple[static.Program, list[Any]]:
    """Three branches, so that steps of several streams need each other."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [3, 4])
        a, b = paddle.exp(x), paddle.tanh(x)
        c = paddle.sin(a)
        d = paddle.add(b, c)
        e = paddle.multiply(d, paddle.cos(a))
    return main, [d, e]


def test_every_wait_that_is_left_out_is_found_by_some_order(monkeypatch: pytest.MonkeyPatch) -> None:
    main, fetches = branches()
    plain = static.Executor("cpu").run(main, feed=FEED, fetch_list=fetches)
    right, counts = queued.waits, []

    def run(number: int, left_out: int | None) -> bool:
        def some(steps: Sequence[queued.Queued]) -> list[list[int]]:
            found = right(steps)
            flat = [(i, j) for i, js in enumerate(found) for j in js]
            counts.append(len(flat))
            gone = flat[left_out] if left_out is not None and left_out < len(flat) else None
            return [[j for j in js if (i, j) != gone] for i, js in enumerate(found)]

        monkeypatch.setattr(queued, "waits", some)
        with fake(number):
            late = static.Executor("cpu").run(main, feed=FEED, fetch_list=fetches)
        return all(a.tobytes() == b.tobytes() for a, b in zip(plain, late, strict=True))

    assert all(run(number, None) for number in range(20))
    assert counts[0] >= 3
    for wait in range(counts[0]):
        assert not all(run(number, wait) for number in range(20)), f"wait {wait} may be left out"


@pytest.mark.parametrize("switch", ["enable_sequential_execution", "sequential_run", "fix_op_run_order"])
def test_under_switches_of_order_each_step_waits_for_the_one_before(
    switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, fetches = branches()
    right, found = queued.waits, []
    monkeypatch.setattr(queued, "waits", lambda steps: found.append(right(steps)) or found[-1])
    with fake():
        static.Executor("cpu").run(
            static.CompiledProgram(main, build_strategy=strategy(**{switch: True})), feed=FEED, fetch_list=fetches
        )
    waits, between_graphs, *_ = found
    assert between_graphs == [[]]
    assert [max(js) for js in waits[1:]] == list(range(len(waits) - 1)), "each has another stream than the one before"


def test_streams_keep_their_own_order_and_no_other() -> None:
    orders = set()
    for number in range(20):
        device = FakeDevice(number)
        ran: list[str] = []
        streams = [device.stream(), device.stream()]
        for i in range(3):
            for name, stream in zip("ab", streams, strict=True):
                device._put(stream, partial(ran.append, f"{name}{i}"))
        assert ran == [], "nothing runs before it is waited for"
        device.synchronize(streams)
        assert [r for r in ran if r[0] == "a"] == ["a0", "a1", "a2"]
        assert [r for r in ran if r[0] == "b"] == ["b0", "b1", "b2"]
        orders.add(tuple(ran))
    assert len(orders) > 5


def test_what_waits_for_an_event_comes_after_it() -> None:
    for number in range(20):
        device = FakeDevice(number)
        ran: list[int] = []
        first, second = device.stream(), device.stream()
        start, stop = device.event(), device.event()
        device.wait(stop, second)  # never recorded: nothing to wait for
        device._put(first, partial(ran.append, 1))
        device.record(start, first)
        device.wait(start, second)
        device._put(second, partial(ran.append, 2))
        device.record(stop, second)
        device.synchronize([second])
        assert ran == [1, 2]
        assert device.elapsed(start, stop) >= 0


def test_what_nobody_waits_for_may_stay_where_it_is() -> None:
    left = 0
    for number in range(20):
        device = FakeDevice(number)
        ran: list[int] = []
        device._put(device.stream(), partial(ran.append, 1))
        device.to_host(device.empty((1,), np.dtype(np.float32)), device.stream())
        left += not ran
    assert left == 20


def test_a_graph_is_captured_without_running_and_replayed_as_often_as_asked() -> None:
    device = FakeDevice()
    streams = [device.stream(), device.stream()]
    total = device.upload(np.zeros(1, np.float32))
    one = device.upload(np.ones(1, np.float32))
    event = device.event()
    calls: list[Any] = [
        (device._put, (streams[0], lambda: np.add(total._inside, one._inside, out=total._inside))),
        (device.record, (event, streams[0])),
        (device.wait, (event, streams[1])),
        (device._put, (streams[1], lambda: np.add(total._inside, total._inside, out=total._inside))),
    ]
    graph = device.capture(calls, streams)
    assert device.to_host(total) == 0
    for wanted in (2, 6, 14):
        device.replay(graph)
        assert device.to_host(total, streams[1]) == wanted


@pytest.mark.parametrize("method", ["synchronize", "to_host"])
def test_a_captured_region_cannot_wait_for_the_device(method: str) -> None:
    device = FakeDevice()
    streams = [device.stream()]
    call: Any = (
        (device.synchronize, (streams,)) if method == "synchronize" else (device.to_host, (array_of([1]), streams[0]))
    )
    graph = device.capture([call], streams)
    device.replay(graph)
    with pytest.raises(QueuedWorkError) as raised:
        device.replay(graph)
    assert "the host waited for the device while a graph is captured" in str(raised.value.__cause__)


def test_copies_take_the_hosts_values_as_they_are_when_asked() -> None:
    stream = DEVICE.stream()
    there, source = array_of([0, 0]), np.array([1, 2], np.float32)
    DEVICE.from_host(there, source, stream)
    source[:] = 9
    assert DEVICE.to_host(there, stream).tolist() == [1, 2]
    DEVICE.fill(there, 3, stream)
    back = DEVICE.to_host(there, stream)
    back[:] = 7
    assert DEVICE.to_host(there, stream).tolist() == [3, 3]


def test_counts_of_what_is_not_finite_lie_on_the_device() -> None:
    counts = DEVICE.check_finite([array_of([1, np.nan, np.inf]), array_of([0])], DEVICE.stream())
    assert isinstance(counts, FakeArray)
    assert DEVICE.to_host(counts).tolist() == [2, 0]


STEPS = st.lists(
    st.tuples(st.integers(0, 3), *[st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=2)] * 2, st.booleans()),
    max_size=14,
)  # fmt: skip


@settings(max_examples=300 if not SOAK else 20_000)
@given(drawn=STEPS)
def test_waits_order_all_that_touches_the_same_memory_and_nothing_twice(drawn: list[Any]) -> None:
    streams = [DEVICE.stream() for _ in range(4)]
    steps = []
    for number, reads, writes, known in drawn:
        spans = [[(low, low + size) for low, size in side if size] for side in (reads, writes)]
        steps.append(queued.Queued(None, streams[number], [], *(spans if known or len(steps) % 5 else (None, None))))
    found = queued.waits(steps)

    def before(waits: list[list[int]]) -> list[set[int]]:
        """Per step all that is done when it begins."""
        done: list[set[int]] = []
        for i, step in enumerate(steps):
            direct = [j for j in range(i) if steps[j].stream is step.stream] + waits[i]
            done.append({*direct, *(k for j in direct for k in done[j])})
        return done

    def overlap(a: Any, b: Any) -> bool:
        return any(x[0] < y[1] and y[0] < x[1] for x in a for y in b)

    done = before(found)
    for i, b in enumerate(steps):
        for j, a in enumerate(steps[:i]):
            unknown = a.reads is None or b.reads is None
            if unknown or overlap(a.writes, [*b.reads, *b.writes]) or overlap(a.reads, b.writes):  # type: ignore[misc]
                assert j in done[i], (j, i)
    for i, needed in enumerate(found):
        for j in needed:
            fewer = [[k for k in ks if (n, k) != (i, j)] for n, ks in enumerate(found)]
            assert j not in before(fewer)[i], "another wait, or a stream's own order, implies it"


def test_a_value_whose_branch_decides_its_size_needs_no_memory_of_the_plan() -> None:
    x = static.data("x", [2, 3])
    x.stop_gradient = False
    chosen = static.nn.cond(paddle.max(x) > 0, lambda: paddle.concat([x, x]), lambda: x * 2)
    loss = paddle.mean(paddle.square(chosen))
    (slope,) = static.gradients([loss], [x])
    feed = {"x": np.arange(6, dtype="float32").reshape(2, 3)}
    wanted = static.Executor(paddle.CPUPlace()).run(feed=feed, fetch_list=[chosen, slope])
    with fake():
        found = static.Executor(paddle.CPUPlace()).run(feed=feed, fetch_list=[chosen, slope])
    assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted]


def test_a_single_position_is_checked() -> None:
    x, at = static.data("x", [3, 2]), static.data("at", [], "int64")
    row = paddle.gather(x, at)
    exe, values = static.Executor(paddle.CPUPlace()), np.arange(6, dtype="float32").reshape(3, 2)
    with fake():
        (found,) = exe.run(feed={"x": values, "at": np.array(2)}, fetch_list=[row])
        assert found.reshape(-1).tolist() == [4.0, 5.0]
        with pytest.raises(IndexRangeError):
            exe.run(feed={"x": values, "at": np.array(3)}, fetch_list=[row])


def test_a_plan_may_have_more_memory_than_the_machine() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        loss = paddle.mean(static.nn.embedding(static.data("ids", [None], "int64"), [8, 64]))
    with fake():
        report = static.CompiledProgram(main).memory_report({"ids": (1 << 29,)}, [loss])
    assert report.peak_bytes > 1 << 37, "128 GiB of rows"


def test_partial_sums_of_references_lie_in_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles sum into arrays of their own, which are added up when all are done; updates that ask a word do so, too."""
    with static.program_guard(static.Program(), static.Program()):
        x, y = static.data("x", [40, 64]), static.data("y", [40, 1], "int64")
        hidden = static.nn.layer_norm(x * static.create_parameter([64], "float32", name="w"))
        loss = paddle.mean(paddle.nn.functional.cross_entropy(static.nn.fc(hidden, 4), y))
        paddle.optimizer.Lamb(0.1).minimize(loss)
        main, startup = static.default_main_program(), static.default_startup_program()
    parts: list[Any] = []
    add, allocate = cpu_device._add_up, FakeDevice.allocate
    monkeypatch.setattr(cpu_device, "_add_up", lambda given, out: [parts.append(given), add(given, out)])
    arenas: list[Any] = []

    def noted(self: FakeDevice, nbytes: int, kind: Any = "device", purpose: str = "memory") -> Any:
        memory = allocate(self, nbytes, kind, purpose)
        arenas.extend([memory] if purpose == "an arena of temporaries" else [])
        return memory

    monkeypatch.setattr(FakeDevice, "allocate", noted)
    feed = {"x": np.ones((40, 64), np.float32), "y": np.zeros((40, 1), np.int64)}
    with fake(), split.tile_size(64):
        place, exe = static.Scope(), static.Executor()
        exe.run(startup, scope=place)
        arenas.clear()
        exe.run(main, feed=feed, fetch_list=[loss], scope=place)
    low, high = byte_bounds(arenas[0]._buffer.array)
    assert len(parts) > 1
    assert all(len(one) > 1 for one in parts)
    spans = sorted(byte_bounds(one) for found in parts for one in found)
    assert low <= spans[0][0]
    assert max(end for _, end in spans) <= high


def test_what_no_graph_holds_is_explained() -> None:
    main, _, loss = training()
    compiled = static.CompiledProgram(main).with_data_parallel(loss.name, places=[paddle.CPUPlace()] * 2)
    with fake(0):
        explained = compiled.explain([loss], verbose=True)
    assert {(one.op.type, one.reason) for one in explained.outside_graphs} == {
        (one.op.type, "it waits for other replicas") for one in explained.outside_graphs
    }
    assert {one.op.type for one in explained.outside_graphs} <= {"c_allreduce_sum", "c_sum"}
    assert explained.outside_graphs
    assert "is in no graph of this device: it waits for other replicas" in str(explained)
    assert explained.to_dict()["outside_graphs"][0]["reason"] == "it waits for other replicas"
    assert compiled.explain([loss]).outside_graphs == (), "the CPU has no graphs"
