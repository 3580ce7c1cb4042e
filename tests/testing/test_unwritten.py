"""An element that a kernel or an operator leaves unwritten is found by every check, whatever the memory held before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers import fusion_programs
from tstatic import flags, static, testing
from tstatic.cli import running
from tstatic.devices.cpu.device import CpuDevice
from tstatic.ir.frozen import FrozenOp

FLAG = "FLAGS_init_allocated_mem"
ON, OFF = static.BuildStrategy(), static.BuildStrategy()
ON.enable_auto_fusion = True
for _one in (ON, OFF):
    # Each value has a place of its own: a result in the place of another value would show that one.
    _one.enable_inplace = _one.memory_optimize = False


def _but_last(place: Any, made: Any) -> None:
    place.reshape(-1)[:-1] = made.reshape(-1)[:-1]


def leave_last_unwritten(patch: pytest.MonkeyPatch, type: str, fused_only: bool = False) -> list[str]:
    """Makes operators of a type leave the last element of their result as it is; returns a list that grows with each of them.

    Args:
        patch: Undoes it.
        type: The type of the operators.
        fused_only: Only in programs under a strategy with ``enable_auto_fusion``, as in the kernel of a fusion. (CPU places run
            what a fusion replaces.)
    """
    hits: list[str] = []
    bind, run = CpuDevice.bind, static.Executor.run
    active = [not fused_only]

    def faulty(self: Any, op: FrozenOp, ins: Sequence[Any], outs: Sequence[Any], *rest: Any) -> Any:
        if op.type != type or not active[0]:
            return bind(self, op, ins, outs, *rest)
        hits.append(op.type)
        place, *others = outs
        made = np.empty_like(place)
        work = bind(self, op, ins, [made, *others], *rest)
        work.after.append((_but_last, (place, made)))
        work.spans = None
        return work

    def running_one(self: Any, program: Any = None, *args: Any, **given: Any) -> Any:
        if fused_only:
            active[0] = isinstance(program, static.CompiledProgram) and bool(program.build_strategy.enable_auto_fusion)
        return run(self, program, *args, **given)

    patch.setattr(CpuDevice, "bind", faulty)
    patch.setattr(static.Executor, "run", running_one)
    return hits


def zeros_by_relu() -> tuple[static.Program, Any]:
    """A program whose result is zero, which fresh memory holds by itself."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        y = paddle.nn.functional.relu(static.data("x", [None, 4]) * 2.0 - 1.0)
    return main, y


FEED = {"x": np.full((2, 4), -3.0, "float32")}


# --------------------------------------------------------------------------------------------------------- public checks
@pytest.mark.numpy_device("it plants a fault in numpy's references", not_on=("torch", "fake"))
def test_assert_equivalent_finds_what_a_fused_operator_leaves_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    main, y = zeros_by_relu()
    testing.assert_equivalent(main, ON, feeds=FEED, fetch_list=[y])
    hits = leave_last_unwritten(monkeypatch, "relu", fused_only=True)
    with pytest.raises(testing.EquivalenceError) as caught:
        testing.assert_equivalent(main, ON, feeds=FEED, fetch_list=[y], shrink=False)
    assert hits
    assert caught.value.difference is not None
    assert caught.value.difference.index == (1, 3)


@pytest.mark.numpy_device("it plants a fault in numpy's references", not_on=("torch", "fake"))
def test_assert_equivalent_finds_what_both_sides_leave_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    main, y = zeros_by_relu()
    hits = leave_last_unwritten(monkeypatch, "relu")
    with pytest.raises(testing.EquivalenceError):
        testing.assert_equivalent(main, ON, feeds=FEED, fetch_list=[y], shrink=False)
    assert "relu" in hits


@pytest.mark.numpy_device("it plants a fault in numpy's references", not_on=("torch", "fake"))
def test_assert_equivalent_finds_whole_numbers_left_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        y = paddle.abs(static.data("x", [None, 4], "int64"))
    feed = {"x": np.zeros((2, 4), "int64")}
    testing.assert_equivalent(main, ON, feeds=feed, fetch_list=[y])
    leave_last_unwritten(monkeypatch, "abs")
    with pytest.raises(testing.EquivalenceError):
        testing.assert_equivalent(main, ON, feeds=feed, fetch_list=[y], shrink=False)


@pytest.mark.numpy_device("it plants a fault in numpy's references", not_on=("torch", "fake"))
def test_check_grads_finds_what_a_gradient_leaves_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    x = {"x": np.full((2, 4), -3.0, "float32")}
    assert testing.check_grads(paddle.nn.functional.relu, x, order=1)
    hits = leave_last_unwritten(monkeypatch, "relu_grad")
    with pytest.raises(testing.GradientError):
        testing.check_grads(paddle.nn.functional.relu, x, order=1)
    assert hits


@pytest.mark.numpy_device("it plants a fault in numpy's references", not_on=("torch", "fake"))
def test_check_grads_finds_what_the_operator_itself_leaves_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    x = {"x": np.full((2, 4), -3.0, "float32")}
    leave_last_unwritten(monkeypatch, "relu")
    with pytest.raises(testing.GradientError):
        testing.check_grads(paddle.nn.functional.relu, x, order=1)


@pytest.mark.numpy_device("it plants a fault in numpy's references", not_on=("torch", "fake"))
def test_the_command_verify_finds_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None, 4])
        # Fetched, so that the result, which is zero for any feed, cannot take its place.
        below = -paddle.abs(x)
        y = paddle.nn.functional.relu(below)
        static.save_inference_model(str(tmp_path / "m"), [x], [below, y], static.Executor("cpu"), program=main)
    assert running.verify(str(tmp_path / "m"), examples=2).data["equal"]
    hits = leave_last_unwritten(monkeypatch, "relu", fused_only=True)
    assert not running.verify(str(tmp_path / "m"), examples=2).data["equal"]
    assert hits


# -------------------------------------------------------------------------------------------------- one Executor for both
def _fused_and_unfused(main: static.Program, y: Any) -> list[Any]:
    exe = static.Executor("cpu")
    return [
        exe.run(p, feed=FEED, fetch_list=[y])[0]
        for p in (static.CompiledProgram(main, OFF), static.CompiledProgram(main, ON))
    ]


@pytest.mark.numpy_device("it plants a fault in numpy's references", not_on=("torch", "fake"))
def test_strategies_of_one_executor_can_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    main, y = zeros_by_relu()
    hits = leave_last_unwritten(monkeypatch, "relu", fused_only=True)
    paddle.set_flags({FLAG: False})
    unfused, fused = _fused_and_unfused(main, y)
    assert np.array_equal(unfused, fused), "the memory of the unfused run hides the fault"
    paddle.set_flags({FLAG: True})
    unfused, fused = _fused_and_unfused(main, y)
    assert hits
    assert np.array_equal(unfused, np.zeros((2, 4)))
    assert np.isnan(fused[1, 3])
    assert np.array_equal(fused.reshape(-1)[:-1], np.zeros(7))


@pytest.mark.numpy_device("it plants a fault in numpy's references", not_on=("torch", "fake"))
def test_every_run_of_a_plan_starts_from_filled_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    main, y = zeros_by_relu()
    exe, plain = static.Executor("cpu"), static.CompiledProgram(main, OFF)
    paddle.set_flags({FLAG: True})
    assert np.array_equal(exe.run(plain, feed=FEED, fetch_list=[y])[0], np.zeros((2, 4)))
    leave_last_unwritten(monkeypatch, "relu")
    larger = {n: np.repeat(a, 3, 0) for n, a in FEED.items()}
    for feed in (larger, larger, {n: a[:1] for n, a in FEED.items()}):
        found = exe.run(plain, feed=feed, fetch_list=[y])[0].reshape(-1)
        assert np.isnan(found[-1])
        assert not found[:-1].any()


@pytest.mark.numpy_device("it plants a fault in numpy's references", not_on=("torch", "fake"))
@pytest.mark.parametrize("place", ["sized", "while"])
def test_memory_outside_the_arena_is_filled_too(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Sections whose sizes depend on values, and the bodies of control flow, have memory of their own."""
    paddle.set_flags({FLAG: True})
    x = static.data("x", [None, 4])
    if place == "sized":
        y = paddle.nn.functional.relu(paddle.gather_nd(x, paddle.nonzero(paddle.sum(x, axis=1) < 0.0)))
    else:
        y = static.nn.cond(paddle.sum(x) < 0.0, lambda: paddle.nn.functional.relu(x), lambda: x)
    exe = static.Executor("cpu")
    feed = {"x": FEED["x"]}
    assert not exe.run(feed=feed, fetch_list=[y])[0].any()
    leave_last_unwritten(monkeypatch, "relu")
    exe = static.Executor("cpu")
    found = exe.run(feed=feed, fetch_list=[y])[0].reshape(-1)
    if place == "sized":
        assert np.isnan(found[-1])
    assert not found[:-1].any()


# ------------------------------------------------------------------------------------------------- checks of these tests
def test_programs_of_tests_run_in_filled_memory() -> None:
    assert flags.flag(FLAG)


@pytest.mark.numpy_device("it plants a fault in numpy's references", not_on=("torch", "fake"))
def test_helpers_that_compare_strategies_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    main, y = zeros_by_relu()
    built = fusion_programs.Built(main, static.Program(), FEED, [y.name])
    switches = {"enable_auto_fusion": True, "enable_inplace": False, "memory_optimize": False}
    (right,), _ = fusion_programs.run(built, **switches)
    assert np.array_equal(right, np.zeros((2, 4)))
    leave_last_unwritten(monkeypatch, "relu", fused_only=True)
    (found,), _ = fusion_programs.run(built, **switches)
    assert np.isnan(found[1, 3])
