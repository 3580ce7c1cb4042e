"""Generated kernels on memory that the host cannot touch, late and in any order that events allow: the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.fusion_programs import CASES, Case, build, run
from tests.parallel.golden import strategy
from tstatic import devices, static
from tstatic.devices import interpret
from tstatic.devices.fake import FakeArray, FakeDevice
from tstatic.errors import IndexRangeError
from tstatic.ir import declare
from tstatic.runtime import binding

SWITCHES = {"fuse_elewise_add_act_ops": True, "enable_auto_fusion": True, "fuse_all_optimizer_ops": True}


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    device = FakeDevice(generated=True)
    monkeypatch.setitem(devices.DEVICES, "late", device)
    return device


@pytest.mark.numpy_device("compares the interpreter with the fake device", not_on=("torch",))
@pytest.mark.parametrize("case", CASES[::3], ids=lambda c: c.name)
def test_fused_programs_give_the_bits_of_the_interpreter(case: Case, late: FakeDevice) -> None:
    built = build(case)
    plain, compiled = run(built, **SWITCHES)
    with devices.use("late"):
        values, again = run(built, **SWITCHES)
    assert compiled.plan.kernels.keys() == again.plan.kernels.keys()
    for a, b in zip(plain, values, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.numpy_device("compares the interpreter with the fake device", not_on=("torch",))
def test_tables_of_addresses_point_into_the_device(late: FakeDevice) -> None:
    """The fused update finds parameters and moments through such a table."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        loss = paddle.mean(paddle.square(static.nn.fc(static.nn.fc(static.data("x", [None, 4]), 5), 2)))
        paddle.optimizer.Adam(0.1).minimize(loss)
    main.random_seed = startup.random_seed = 5
    feed = {"x": np.arange(12, dtype=np.float32).reshape(3, 4) / 7}

    def trained() -> list[Any]:
        compiled, scope, exe = (
            static.CompiledProgram(main, strategy(**SWITCHES)),
            static.Scope(),
            static.Executor("cpu"),
        )
        exe.run(startup, scope=scope)
        values = [exe.run(compiled, feed=feed, fetch_list=[loss], scope=scope)[0] for _ in range(3)]
        assert any(found.calls.tables for found in compiled.plan.kernels.values())
        held.extend(scope.array(n) for n in scope.local_var_names())
        return [*values, *(np.array(scope.find_var(n).get_tensor()) for n in sorted(scope.local_var_names()))]  # type: ignore[union-attr]

    held: list[Any] = []
    plain = trained()
    held.clear()
    with devices.use("late"):
        found = trained()
    assert all(isinstance(a, FakeArray) for a in held)
    for a, b in zip(plain, found, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", ["interpret", "late"])
def test_a_bad_label_of_a_kernel_is_told_and_changes_no_variable(name: str, late: FakeDevice) -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x, y = static.data("x", [3, 4]), static.data("y", [3, 1], "int64")
        scores = static.nn.fc(x, 5) * 2.0
        loss = paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(scores, y))
        paddle.optimizer.Adam(0.1).minimize(loss)
    good = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "y": np.array([[1], [4], [-100]])}
    with devices.use(name):
        compiled, scope, exe = (
            static.CompiledProgram(main, strategy(**SWITCHES, build_cinn_pass=True)), static.Scope(), static.Executor("cpu")
        )  # fmt: skip
        exe.run(startup, scope=scope)
        exe.run(compiled, feed=good, fetch_list=[loss], scope=scope)
        kernels = [op.type for step in compiled.plan.steps if step.how == "kernel" for op in step.op.body]
        assert "softmax_with_cross_entropy" in kernels
        before = [np.array(scope.find_var(n).get_tensor()).tobytes() for n in sorted(scope.local_var_names())]  # type: ignore[union-attr]
        with pytest.raises(IndexRangeError, match="integers from 0 to 4, or -100") as raised:
            exe.run(compiled, feed={**good, "y": np.array([[1], [5], [0]])}, fetch_list=[loss], scope=scope)
        after = [np.array(scope.find_var(n).get_tensor()).tobytes() for n in sorted(scope.local_var_names())]  # type: ignore[union-attr]
        assert before == after
        assert np.isfinite(exe.run(compiled, feed=good, fetch_list=[loss], scope=scope)[0])
    assert raised.value.op == "softmax_with_cross_entropy"
    assert raised.value.received == 5
    assert (raised.value.noticed is None) is (name == "interpret")
    assert "test_fake_device.py" in str(raised.value)


@pytest.mark.parametrize("name", ["interpret", "late"])
def test_labels_that_the_program_computes_are_told_too(name: str, late: FakeDevice) -> None:
    """The ops that compute them would join the kernel that reads them, which can only mask."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x, y = static.data("x", [3, 4]), static.data("y", [3, 1], "int64")
        loss = paddle.mean(paddle.nn.functional.softmax_with_cross_entropy(static.nn.fc(x, 5) * 2.0, y * 2 - 1))
        paddle.optimizer.Adam(0.1).minimize(loss)
    feed = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "y": np.array([[1], [2], [3]])}
    with devices.use(name):
        compiled, scope, exe = (
            static.CompiledProgram(main, strategy(**SWITCHES, build_cinn_pass=True)), static.Scope(), static.Executor("cpu")
        )  # fmt: skip
        exe.run(startup, scope=scope)
        with pytest.raises(IndexRangeError, match="integers from 0 to 4, or -100") as raised:
            exe.run(compiled, feed=feed, fetch_list=[loss], scope=scope)
        assert raised.value.received == 5
        assert raised.value.op == "softmax_with_cross_entropy"
        kernels = [op.type for step in compiled.plan.steps if step.how == "kernel" for op in step.op.body]
        assert "softmax_with_cross_entropy" in kernels
        assert "POSITION" in {r.code for r in compiled.explain(fetch_list=[loss]).refused}


class Net:
    """A net with fused updates and every kind of state: parameters, moments, powers, running statistics, a loss scale."""

    def __init__(self, amp: bool) -> None:
        declare.reset_default_programs()
        paddle.seed(5)
        self.scope, self.exe = static.Scope(), static.Executor("cpu")
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), paddle.utils.unique_name.guard():
            ids, label = static.data("ids", [3, 2], "int64"), static.data("y", [3, 1], "int64")
            h = static.nn.batch_norm(static.nn.fc(static.nn.embedding(ids, [4, 3]), 6))
            self.loss = paddle.mean(paddle.nn.functional.cross_entropy(static.nn.fc(h, 4), label))
            optimizer = paddle.optimizer.Adam(0.1)
            if amp:
                optimizer = static.amp.decorate(optimizer, init_loss_scaling=8.0, use_dynamic_loss_scaling=True)
            optimizer.minimize(self.loss)
        self.names = [v.name for v in main.list_vars() if v.persistable]
        self.compiled = static.CompiledProgram(main, strategy(**SWITCHES))
        self.exe.run(startup, scope=self.scope)

    def run(self, ids: list[int], labels: list[int], fetch: bool = True) -> list[Any]:
        feed = {"ids": np.array(ids).reshape(3, 2), "y": np.array(labels).reshape(3, 1)}
        return self.exe.run(self.compiled, feed=feed, fetch_list=[self.loss] if fetch else [], scope=self.scope)

    def state(self) -> dict[str, bytes]:
        return {n: np.array(self.scope.find_var(n).get_tensor()).tobytes() for n in self.names}  # type: ignore[union-attr]

    def stays(self, ids: list[int], labels: list[int]) -> bool:
        """Whether a run on bad positions raises and leaves all variables as they were."""
        before = self.state()
        with pytest.raises(IndexRangeError) as raised:
            self.run(ids, labels)
        assert raised.value.op in ("lookup_table_v2", "softmax_with_cross_entropy")
        assert "test_fake_device.py" in str(raised.value)
        assert "run 2" in str(raised.value.noticed)
        return self.state() == before


IDS, LABELS = [1, 2, 3, 0, 2, 2], [0, 3, 1]
BAD = [([1, 2, 3, 9, 2, 2], LABELS), (IDS, [0, 4, 1])]


@pytest.mark.parametrize("amp", [False, True])
def test_kernels_of_updates_ask_the_device_whether_a_position_is_bad(
    amp: bool, late: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[Any] = []
    with devices.use("late"):
        plain, met = Net(amp), Net(amp)
        for net in (plain, met):
            net.run(IDS, LABELS)
        assert any(step.region == "update" and step.how == "kernel" for step in met.compiled.plan.steps)
        assert all(met.stays(*bad) for bad in BAD)
        for net in (plain, met):
            # Behind a refused run the next one waits for what that left in its streams.
            net.run(IDS, LABELS)
        for name in ("synchronize", "finish"):
            right = getattr(late, name)
            monkeypatch.setattr(late, name, lambda *given, right=right: [waits.append(given), right(*given)])
        for net in (plain, met):
            waits.clear()
            net.run(IDS, LABELS, fetch=False)
            assert len(waits) == 1, "the host waits for the end of the step only"
        assert met.state() == plain.state()


@pytest.mark.parametrize("seed", range(3))
def test_kernels_of_updates_that_ask_nothing_are_found(
    seed: int, late: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    late.reseed(seed)
    shared = binding.add_shared
    monkeypatch.setattr(binding, "add_shared", lambda found, known, device, stopped: shared(found, known, device, None))
    with devices.use("late"):
        net = Net(amp=False)
        net.run(IDS, LABELS)
        assert not any(net.stays(*bad) for bad in BAD)


@pytest.mark.parametrize("name", ["interpret", "late"])
def test_copies_that_kernels_read_lie_in_the_arena(
    name: str, late: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transpose and a slice are views with gaps; kernels take flat memory."""
    main = static.Program()
    with static.program_guard(main):
        x = static.data("x", [6, 8])
        turned, part = paddle.transpose(x * 2.0, [1, 0]), x[:, 2:5]
        outs = [paddle.tanh(turned + 1.0) * 3.0, paddle.exp(part) - 1.0]
    feed = {"x": np.arange(48, dtype=np.float32).reshape(6, 8) / 50}
    device = late if name == "late" else interpret.DEVICE
    made: list[Any] = []
    monkeypatch.setattr(device, "empty", lambda shape, dtype: made.append(shape))
    with devices.use(name):
        compiled = static.CompiledProgram(main, strategy(**SWITCHES))
        found = static.Executor("cpu").run(compiled, feed=feed, fetch_list=outs)
    plan = compiled.plan
    assert not made
    assert len(plan.gapped) == 2
    assert sum(size >= 18 * 4 for _, size in plan.scratch.values()) >= 2
    np.testing.assert_allclose(found[0], np.tanh(feed["x"].T * 2 + 1) * 3, rtol=1e-5)
    np.testing.assert_allclose(found[1], np.exp(feed["x"][:, 2:5]) - 1, rtol=1e-5)
