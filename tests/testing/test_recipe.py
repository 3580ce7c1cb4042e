"""Recipes build what they say, and their scripts run as they stand."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from tests.testing import faults
from tstatic import static, testing
from tstatic.ir.opdef import ValueRange
from tstatic.ir.types import DTYPES
from tstatic.testing import Input, Recipe, Step
from tstatic.testing.runner import everything_on
from tstatic.testing.script import MOST_LINES

TWO = Recipe(
    (Input("x", (2, 3)), Input("b", (3,), seed=1)),
    (
        Step.of("elementwise_add", {"X": "x", "Y": "b"}, {"Out": "s"}),
        Step.of("leaky_relu", {"X": "s"}, {"Out": "y"}, {"alpha": 0.1}),
    ),
    ("y",),
    ("x",),
)


# -------------------------------------------------------------------------------------------------------------- samples
def test_samples_depend_on_their_arguments_alone() -> None:
    assert np.array_equal(testing.sample((3, 4), seed=5), testing.sample((3, 4), seed=5))
    assert not np.array_equal(testing.sample((3, 4), seed=5), testing.sample((3, 4), seed=6))


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_samples_have_the_dtype_and_stay_in_bounds(dtype: str) -> None:
    array = testing.sample((200,), dtype, 0.0, 2.0)
    assert DTYPES[dtype] == array.dtype
    for part in (array.real, array.imag) if DTYPES[dtype].is_complex else (array,):
        assert (part >= np.zeros(1, part.dtype)).all()
        assert part.astype(np.float64).max() <= 2.0


def test_samples_avoid_points_and_sum_to_one() -> None:
    assert np.abs(testing.sample((500,), low=-0.05, high=0.05, avoid=(0.0,))).min() >= 0.01
    whole = testing.sample((500,), low=0.0, high=3.0, avoid="int")
    assert np.abs(whole - np.round(whole)).min() >= 0.0099
    assert np.allclose(testing.sample((4, 5), rows=True).sum(-1), 1.0)


def test_samples_with_nan_hold_some() -> None:
    array = testing.sample((4, 5), "bfloat16", seed=2, nan=True).astype(np.float32)
    assert 5 <= np.isnan(array).sum() < 12
    assert np.isnan(testing.sample((), nan=True))
    assert not np.isnan(testing.sample((3,), "int64", nan=True)).any()


# ---------------------------------------------------------------------------------------------------------------- build
def test_a_recipe_builds_programs_feeds_and_fetches() -> None:
    main, startup, feeds, fetches = TWO.build()
    assert [op.type for op in main.global_block().ops][:2] == ["elementwise_add", "leaky_relu"]
    assert not startup.global_block().ops
    assert fetches == ["y", "x@GRAD"]
    y, gradient = static.Executor("cpu").run(main, feed=feeds, fetch_list=fetches)
    s = feeds["x"] + feeds["b"]
    assert np.allclose(y, np.where(s > 0, s, 0.1 * s))
    assert np.allclose(gradient, np.where(s > 0, 1, 0.1) * feeds["y_bar"])


def test_an_optimizer_trains_the_parameters() -> None:
    recipe = Recipe(
        (Input("x", (2, 3)), Input("w", (3,), parameter=True)),
        (Step.of("elementwise_mul", {"X": "x", "Y": "w"}, {"Out": "y"}),),
        ("y",),
        optimizer="SGD",
        runs=2,
    )
    main, startup, feeds, fetches = recipe.build()
    exe, scope = static.Executor("cpu"), static.Scope()
    exe.run(startup, scope=scope)
    before = np.array(scope.find_var("w").get_tensor())
    assert np.array_equal(before, recipe.inputs[1].array())
    exe.run(main, feed=feeds, fetch_list=fetches, scope=scope)
    expected = before - 0.01 * (feeds["x"] * feeds["y_weights"]).sum(0) / 6
    assert np.allclose(np.array(scope.find_var("w").get_tensor()), expected)


def test_pruning_keeps_what_a_value_needs() -> None:
    steps = (*TWO.steps, Step.of("tanh", {"X": "b"}, {"Out": "z"}))
    recipe = Recipe(TWO.inputs, steps, ("y", "z"))
    assert recipe.pruned(["z"]) == Recipe((TWO.inputs[1],), (steps[2],), ("z",))


def test_given_values_are_used() -> None:
    one = Input("x", (2, 2), "bfloat16", given=((1.0, 2.0), (3.0, 4.0)))
    assert one.array().tolist() == [[1, 2], [3, 4]]
    assert Input("i", (3,), "int64", ValueRange(0, 5, dtype="int64")).array().max() < 5


# --------------------------------------------------------------------------------------------------------------- script
def test_a_script_uses_public_functions() -> None:
    script = TWO.to_script(static.BuildStrategy())
    assert "s = paddle.add(x, b)" in script
    assert "y = F.leaky_relu(s, 0.1)" in script
    exec(script, {})


def test_a_script_without_a_strategy_prints(capsys: pytest.CaptureFixture[str]) -> None:
    exec(TWO.to_script(), {})
    assert "[[" in capsys.readouterr().out


# Not shrunk: a script that fails is readable as it is.
QUICK = {"phases": [Phase.generate], "deadline": None}


@settings(max_examples=15, **QUICK)
@given(testing.programs(max_ops=25))
def test_every_script_runs_and_is_short(recipe: Recipe) -> None:
    run_script(recipe)


@settings(max_examples=6, **QUICK)
@given(testing.programs(max_ops=8, optimizer=True))
def test_every_training_script_runs(recipe: Recipe) -> None:
    run_script(recipe)


@settings(max_examples=6, **QUICK)
@given(testing.programs(max_ops=8, backward=True))
def test_every_script_with_gradients_runs(recipe: Recipe) -> None:
    run_script(recipe)


def run_script(recipe: Recipe) -> None:
    script = recipe.to_script(everything_on())
    assert len(script.splitlines()) <= MOST_LINES
    exec(script, {})


def test_a_script_computes_what_the_recipe_computes(capsys: pytest.CaptureFixture[str]) -> None:
    main, _, feeds, fetches = TWO.build()
    values = static.Executor("cpu").run(main, feed=feeds, fetch_list=fetches)
    exec(TWO.to_script(), {})
    printed = re.findall(r"-?\d+\.\d*(?:e-?\d+)?", capsys.readouterr().out)
    assert np.allclose([float(p) for p in printed], np.concatenate([v.ravel() for v in values]), atol=1e-6)


def test_a_script_shows_the_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(
        (Input("x", (4,)), Input("y", (4,), seed=1)),
        (
            Step.of("elementwise_sub", {"X": "x", "Y": "y"}, {"Out": "d"}),
            Step.of("tanh", {"X": "d"}, {"Out": "t"}),
        ),
        ("t",),
    )
    strategy = static.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    script = recipe.to_script(strategy)
    exec(script, {})
    faults.plant(monkeypatch, faults.swapped_operands)
    with pytest.raises(testing.EquivalenceError, match=r"'tanh_\d+\.tmp_0' differs"):
        exec(script, {})


def test_an_op_without_a_public_function_is_appended_by_the_helper() -> None:
    step = Step.of("elementwise_max", {"X": "x", "Y": "y"}, {"Out": "z"}, {"axis": 0})
    script = Recipe((Input("x", (3, 2)), Input("y", (3,))), (step,), ("z",)).to_script()
    assert "z, = op('elementwise_max', {'X': [x], 'Y': [y]}, {'Out': 1}, {'axis': 0})" in script
    exec(script, {})


def test_a_function_that_writes_into_its_argument_is_not_used() -> None:
    script = Recipe(
        (Input("x", (3,)),), (Step.of("increment", {"X": "x"}, {"Out": "y"}, {"step": 2.0}),), ("y",)
    ).to_script()
    assert "paddle.increment" not in script


def test_what_is_kept_clipped_and_nan_stands_in_the_script() -> None:
    recipe = Recipe(
        (Input("w", (3,), parameter=True), Input("x", (3,), seed=1, nan=True)),
        (
            Step.of("elementwise_mul", {"X": "w", "Y": "x"}, {"Out": "s"}),
            Step.of("tanh", {"X": "s"}, {"Out": "y"}),
        ),
        ("y",), optimizer="SGD", runs=2, clip=0.5, kept=("s",),
    )  # fmt: skip
    built = recipe.build()
    assert built.main.global_block().var("s").persistable
    assert "squared_l2_norm" in [op.type for op in built.main.global_block().ops]
    script = recipe.to_script(everything_on())
    for part in ("s.persistable = True", "grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5)", "np.nan", "steps=2"):
        assert part in script, part
    exec(script, {})
    testing.assert_equivalent(recipe)
