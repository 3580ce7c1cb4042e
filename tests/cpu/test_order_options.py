"""Switches about order and accumulation: what they change in the plan, and that they change no bit of the results."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.ir.frozen import freeze, verify
from tstatic.passes import addto

FEED = {"x": np.linspace(-1, 1, 60, dtype=np.float32).reshape(20, 3)}


def program() -> tuple[static.Program, static.Program, Any]:
    """A value with five uses, so that its gradient has as many parts."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        paddle.seed(1)
        x = static.data("x", [None, 3], "float32")
        h = static.nn.fc(x, 8)
        uses = [f(h) for f in (paddle.tanh, paddle.sin, paddle.cos, paddle.exp, paddle.square)]
        loss = paddle.mean(uses[0] * uses[1] + uses[2] * uses[3] + uses[4])
        paddle.optimizer.Adam(0.01).minimize(loss)
    return main, startup, loss


def run(**switches: Any) -> tuple[list[np.ndarray[Any, Any]], static.CompiledProgram, int]:
    main, startup, loss = program()
    strategy = static.BuildStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    scope, exe = static.Scope(), static.Executor(paddle.CPUPlace())
    exe.run(startup, scope=scope)
    compiled = static.CompiledProgram(main, build_strategy=strategy)
    losses = [exe.run(compiled, feed=FEED, fetch_list=[loss], scope=scope)[0] for _ in range(3)]
    names = sorted(n for n in scope.local_var_names() if n.startswith("fc"))
    values = [np.array(scope.find_var(n).get_tensor()) for n in names]  # type: ignore[union-attr]
    return [*losses, *values], compiled, compiled.memory_report({"x": (20, 3)}, scope=scope).peak_bytes


PLAIN, PLAIN_PLAN, PLAIN_PEAK = run()


def same(values: list[np.ndarray[Any, Any]]) -> None:
    for a, b in zip(values, PLAIN, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("switch", ["enable_sequential_execution", "sequential_run", "fix_op_run_order"])
def test_steps_in_order_wait_for_each_other(switch: str) -> None:
    values, compiled, _ = run(**{switch: True})
    same(values)
    lines = str(compiled.plan).splitlines()
    assert "sequential=True" in lines[0]
    steps = [line.split() for line in lines if line.split()[0].isdigit()]
    for before, step in itertools.pairwise(steps):
        assert before[0] in step[4].split(",")
    plain = [line.split() for line in str(PLAIN_PLAN.plan).splitlines() if line.split()[0].isdigit()]
    assert any(a[0] not in b[4].split(",") for a, b in itertools.pairwise(plain))


def test_an_event_follows_every_step() -> None:
    values, compiled, _ = run(remove_unnecessary_lock=False)
    same(values)
    steps = [line for line in str(compiled.plan).splitlines() if line.split()[0].isdigit()]
    assert all(f"event {i};" in line for i, line in enumerate(steps))
    assert "event 0;" not in str(PLAIN_PLAN.plan)


def test_gradients_are_added_as_they_come() -> None:
    values, compiled, peak = run(enable_addto=True)
    same(values)
    types = [step.op.type for step in compiled.plan.steps]
    assert "sum" not in types
    assert "sum" in [step.op.type for step in PLAIN_PLAN.plan.steps]
    assert peak <= PLAIN_PEAK


def test_a_gradient_is_free_once_it_is_added() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [64, 64], "float32")
        x.stop_gradient = False
        losses = [paddle.mean(paddle.scale(x, float(k))) for k in range(1, 9)]
        (grad,) = static.gradients(losses, [x])
    peaks = []
    for wanted in (False, True):
        strategy = static.BuildStrategy()
        strategy.enable_addto = wanted
        report = static.CompiledProgram(main, build_strategy=strategy).memory_report({"x": (64, 64)}, [grad])
        peaks.append(report.peak_bytes)
    assert peaks[0] - peaks[1] >= 5 * 64 * 64 * 4


def test_gradients_may_be_listed_in_another_order_than_the_one_they_are_made_in() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [3], "float32")
        x.stop_gradient = False
        (grad,) = static.gradients([paddle.tanh(x) + paddle.sin(x) + paddle.exp(x) + paddle.square(x)], [x])
    frozen = freeze(main, ["x"], [grad.name])
    (total,) = (op for op in frozen.ops if op.type == "sum")
    (parts,) = total.inputs
    assert isinstance(parts, tuple)
    for order in itertools.permutations(parts):
        ops = tuple(replace(op, inputs=(order,)) if op is total else op for op in frozen.ops)
        added = addto.addto(frozen.edit(ops=ops))
        verify(added, "addto")
        pairs = [op.inputs for op in added.ops if op.type == "elementwise_add" and op.inputs[1] in parts]
        assert [one for _, one in pairs] == list(order[1:])
        assert pairs[0][0] == order[0]


def test_sixteen_bit_gradients_are_still_rounded_once() -> None:
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("x", [4, 3], "float16")
        x.stop_gradient = False
        out = paddle.tanh(x) + paddle.sin(x) + paddle.exp(x)
        (grad,) = static.gradients([out], [x])
    strategy = static.BuildStrategy()
    strategy.enable_addto = True
    compiled = static.CompiledProgram(main, build_strategy=strategy)
    feed = {"x": FEED["x"].reshape(-1)[:12].reshape(4, 3).astype(np.float16)}
    exe = static.Executor(paddle.CPUPlace())
    got = exe.run(compiled, feed=feed, fetch_list=[grad])[0]
    np.testing.assert_array_equal(got, exe.run(main, feed=feed, fetch_list=[grad])[0])
    assert "sum" in [step.op.type for step in compiled.plan.steps]
