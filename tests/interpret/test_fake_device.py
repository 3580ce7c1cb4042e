"""Generated kernels on memory that the host cannot touch, late and in any order that events allow: the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.fusion_programs import CASES, Case, build, run
from tests.parallel.golden import strategy
from tstatic import devices, static
from tstatic.devices.fake import FakeArray, FakeDevice
from tstatic.errors import IndexRangeError

SWITCHES = {"fuse_elewise_add_act_ops": True, "enable_auto_fusion": True, "fuse_all_optimizer_ops": True}


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    device = FakeDevice(generated=True)
    monkeypatch.setitem(devices.DEVICES, "late", device)
    return device


@pytest.mark.parametrize("case", CASES[::3], ids=lambda c: c.name)
def test_fused_programs_give_the_bits_of_the_interpreter(case: Case, late: FakeDevice) -> None:
    built = build(case)
    plain, compiled = run(built, **SWITCHES)
    with devices.use("late"):
        values, again = run(built, **SWITCHES)
    assert compiled.plan.kernels.keys() == again.plan.kernels.keys()
    for a, b in zip(plain, values, strict=True):
        assert a.tobytes() == b.tobytes()


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
