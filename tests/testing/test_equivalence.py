"""``assert_equivalent`` accepts equal programs and catches planted faults with a short script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

import tstatic as paddle
from tests.testing import faults
from tstatic import static, testing
from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.testing import Recipe
from tstatic.testing.runner import baseline_of, everything_on
from tstatic.testing.script import MOST_LINES

ON = static.BuildStrategy()
ON.fuse_elewise_add_act_ops = True


def net(optimizer: Any = None) -> tuple[static.Program, static.Program]:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 16])
        label = static.data("label", [None, 1], "int64")
        h = static.nn.fc(x, size=8, activation="relu")
        g = h * paddle.nn.functional.sigmoid(static.nn.fc(x, size=8))
        logits = static.nn.fc(paddle.tanh(g - h), size=4)
        loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, label))
        if optimizer is not None:
            optimizer.minimize(loss)
    return main, startup


# ----------------------------------------------------------------------------------------------------------- strategies
def test_the_baseline_rewrites_nothing_and_means_the_same() -> None:
    strategy = everything_on()
    strategy.gradient_scale_strategy = static.BuildStrategy.GradientScaleStrategy.One
    plain = baseline_of(strategy)
    assert strategy.fuse_elewise_add_act_ops
    assert strategy.enable_auto_fusion
    assert not plain.fuse_elewise_add_act_ops
    assert not plain.enable_inplace
    assert plain.memory_optimize is False
    assert plain.gradient_scale_strategy is static.BuildStrategy.GradientScaleStrategy.One


# -------------------------------------------------------------------------------------------------------------- passing
def test_a_program_of_the_user_passes() -> None:
    main, startup = net(paddle.optimizer.Adam(learning_rate=0.01))
    text, version = str(main), main.version
    testing.assert_equivalent(main, [ON, everything_on()], startup=startup, steps=3, examples=4)
    assert (str(main), main.version) == (text, version)
    assert not static.global_scope().local_var_names()


def test_values_of_the_global_scope_are_the_start() -> None:
    main, startup = net()
    with pytest.raises(ProgramError, match="has no start value"):
        testing.assert_equivalent(main, ON)
    static.Executor("cpu").run(startup)
    testing.assert_equivalent(main, ON, examples=2)


def test_feeds_fetches_and_defaults() -> None:
    main, startup = net()
    feeds = [testing.sample_feeds(main, s) for s in range(2)]
    testing.assert_equivalent(main, feeds=feeds, fetch_list=["fc_0.tmp_1"], startup=startup)
    testing.assert_equivalent(main, ON, feeds=feeds[0], startup=startup)


@settings(max_examples=25, deadline=None, phases=[Phase.generate])
@given(testing.programs(max_ops=15))
def test_drawn_programs_pass(recipe: Recipe) -> None:
    testing.assert_equivalent(recipe, [ON, everything_on()])


@settings(max_examples=8, deadline=None, phases=[Phase.generate])
@given(testing.programs(max_ops=10, backward=True))
def test_drawn_gradients_pass(recipe: Recipe) -> None:
    testing.assert_equivalent(recipe)


def test_wrong_arguments_are_named() -> None:
    main, startup = net()
    with pytest.raises(ProgramTypeError, match="'strategies' in assert_equivalent must be"):
        testing.assert_equivalent(main, [True], startup=startup)  # type: ignore[list-item]
    with pytest.raises(ProgramTypeError, match="compares a Program"):
        testing.assert_equivalent(static.CompiledProgram(main), ON)  # type: ignore[arg-type]


def test_an_error_of_the_program_itself_is_raised_as_it_is() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        paddle.gather(static.data("x", [3]), static.data("i", [1], "int64"))
    feeds = {"x": np.zeros(3, "float32"), "i": np.array([9])}
    with pytest.raises(paddle.errors.TstaticError, match="gather"):
        testing.assert_equivalent(main, ON, feeds=feeds)


# ------------------------------------------------------------------------------------------------------- planted faults
@pytest.mark.parametrize(
    ("fault", "focus", "most"),
    [
        (faults.swapped_operands, ("elementwise_sub", "tanh"), 2),
        (faults.lost_bias, ("scale", "relu"), 2),
        (faults.half_precision, ("reduce_sum",), 1),
        (faults.second_reader, ("relu", "elementwise_mul"), 4),
        (faults.overflow, ("scale", "elementwise_add"), 2),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_a_planted_fault_is_found_and_shrunk(
    monkeypatch: pytest.MonkeyPatch, fault: faults.Mutate, focus: tuple[str, ...], most: int
) -> None:
    hits = faults.plant(monkeypatch, fault)
    # Hypothesis makes one of them small first, which takes hundreds of runs; the others are left to the package alone.
    phases = [Phase.generate, Phase.shrink] if fault is faults.half_precision else [Phase.generate]

    @settings(max_examples=200, deadline=None, database=None, derandomize=True, phases=phases)
    @given(testing.programs(max_ops=5, dtypes=("float32",), families=("unary", "binary"), focus=focus))
    def find(recipe: Recipe) -> None:
        testing.assert_equivalent(recipe, ON)

    with pytest.raises(testing.EquivalenceError) as caught:
        find()
    assert hits
    error = caught.value
    assert error.variable
    assert error.difference is not None
    assert error.strategy == ON
    assert not error.baseline.fuse_elewise_add_act_ops
    assert f"'{error.variable}' differs" in str(error)
    assert "fuse_elewise_add_act_ops=True" in str(error)
    assert error.script in str(error)
    assert len(error.script.splitlines()) <= MOST_LINES
    assert f"({most} ops)" in str(error) or any(f"({n} ops)" in str(error) for n in range(1, most))
    # The script shows the fault where it is planted, and passes where it is not.
    with pytest.raises(testing.EquivalenceError):
        exec(error.script, {})
    monkeypatch.undo()
    exec(error.script, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "type"),
    [(faults.swapped_operands, "tanh"), (faults.gradient_of_other_branch, "elementwise_mul_grad")],
    ids=["forward", "backward"],
)
def test_a_fault_in_a_program_of_the_user_is_cut_out(
    monkeypatch: pytest.MonkeyPatch, fault: faults.Mutate, type: str
) -> None:
    main, startup = net(paddle.optimizer.Momentum(learning_rate=0.1))
    faults.plant(monkeypatch, fault)
    with pytest.raises(testing.EquivalenceError) as caught:
        testing.assert_equivalent(main, ON, startup=startup, steps=3, examples=2)
    script = caught.value.script
    assert type in script
    assert len(script.splitlines()) <= MOST_LINES
    assert "fc(" not in script
    with pytest.raises(testing.EquivalenceError):
        exec(script, {})
    monkeypatch.undo()
    exec(script, {})


def test_a_lost_nan_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        y = paddle.nn.functional.relu(paddle.log(static.data("x", [3])))
    feeds = {"x": np.array([1.0, -1.0, 5.0], "float32")}
    faults.plant(monkeypatch, faults.nan_dropped)
    with pytest.raises(testing.EquivalenceError) as caught:
        testing.assert_equivalent(main, ON, feeds=feeds)
    assert caught.value.variable == y.name
    assert caught.value.difference is not None
    assert (caught.value.difference.reason, caught.value.difference.index) == ("nan", (1,))
    with pytest.raises(testing.EquivalenceError):
        exec(caught.value.script, {})


def test_a_parameter_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(program: static.Program) -> bool:
        found = [op for op in program.global_block().ops if op.type == "sgd"]
        for op in found:
            op.inputs = {**op.inputs, "Grad": op.inputs["Param"]}
        return bool(found)

    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        loss = paddle.mean(static.data("x", [None, 2]) * static.create_parameter([2], "float32", name="w"))
        paddle.optimizer.SGD(0.1).minimize(loss)
    faults.plant(monkeypatch, twice)
    with pytest.raises(testing.EquivalenceError) as caught:
        testing.assert_equivalent(main, ON, startup=startup, fetch_list=[loss], examples=1)
    assert caught.value.variable == "w"


def test_a_run_that_fails_under_a_strategy_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_it(program: static.Program) -> bool:
        for op in program.global_block().ops:
            if op.type == "tanh":
                op.inputs = {"X": ("nowhere",)}
        return True

    main, startup = net()
    faults.plant(monkeypatch, break_it)
    with pytest.raises(testing.EquivalenceError, match="fails under a strategy") as caught:
        testing.assert_equivalent(main, ON, startup=startup, examples=1)
    assert caught.value.__cause__ is not None
    assert caught.value.difference is None


def test_control_flow_is_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = static.data("x", [3]), static.data("y", [3])
        z = paddle.tanh(x - y)
        static.nn.cond(paddle.sum(z) > 0, lambda: z + 1, lambda: z - 1)
    testing.assert_equivalent(main, ON, examples=3)
    faults.plant(monkeypatch, faults.swapped_operands)
    with pytest.raises(testing.EquivalenceError, match="it has control flow") as caught:
        testing.assert_equivalent(main, ON, examples=3)
    assert len(caught.value.script.splitlines()) <= MOST_LINES


def test_the_package_is_not_imported_with_tstatic() -> None:
    code = "import sys, tstatic; assert not [m for m in sys.modules if m.startswith(('tstatic.testing', 'hypothesis'))]"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_comparing_needs_no_hypothesis() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; from tstatic import testing; testing.check_grads"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_it_says_how_much_it_compared(caplog: pytest.LogCaptureFixture) -> None:
    y = paddle.exp(static.data("x", [None, 4]) * 2.0 + 1.0)
    main = static.default_main_program()
    made = testing.assert_equivalent(main, [static.BuildStrategy(), everything_on()], fetch_list=[y], examples=3)
    assert (made.feeds, made.strategies, made.fusions, made.kernels) == (3, 2, 1, 0)
    said = [r.message for r in caplog.records if "no generated kernel ran" in r.message]
    assert len(said) == 1
    assert "TSTATIC_CPU_BACKEND=interpret" in said[0]
    testing.assert_equivalent(main, fetch_list=[y], examples=1)
    assert len([r for r in caplog.records if "no generated kernel ran" in r.message]) == 1, "once"
    nothing = testing.assert_equivalent(main, static.BuildStrategy(), fetch_list=[y], examples=1)
    assert (nothing.fusions, nothing.kernels) == (0, 0)
