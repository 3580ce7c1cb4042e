"""The tolerance rule, its k, and the float64 program."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tstatic as paddle
from tstatic import static
from tstatic.ir.types import dtype_of
from tstatic.testing.magnitudes import SUFFIX, made_values, magnitudes, nudge, perturbable
from tstatic.testing.runner import Trial
from tstatic.testing.tolerance import check, float64_program, ulp, ulps_of, units

F32 = np.float32


# ----------------------------------------------------------------------------------------------------------------- rule
@given(st.floats(1e-30, 1e30) | st.sampled_from([1.0, 2.0, 0.5, 3.0]))
def test_ulp_is_numpys_spacing(x: float) -> None:
    value = np.array(F32(x), np.float64)
    assert ulp(value, "float32") == np.spacing(F32(x))
    assert ulp(value, "float64") == np.spacing(np.float64(value))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_ulp_of_low_precision_is_the_distance_to_the_next_number(dtype: str) -> None:
    kind = dtype_of(dtype).np
    values = np.array([1.0, 1.5, 3.0, 0.1, 60.0, 2.0**-14], kind)
    nearest = np.array([np.nextafter(v, np.array(np.inf, kind), dtype=kind) for v in values]) if dtype == "float16" else (
        (values.view(np.uint16) + 1).view(ml_dtypes.bfloat16)
    )  # fmt: skip
    assert np.array_equal(ulp(values.astype(np.float64), dtype), nearest.astype(np.float64) - values.astype(np.float64))


def test_ulp_near_zero_is_the_smallest_number() -> None:
    assert ulp(np.array([0.0]), "float16") == 2.0**-24
    assert ulp(np.array([np.inf]), "float16") == 0


def one(value: float, dtype: object = F32) -> np.ndarray:
    return np.array([value], dtype)


def test_equal_results_pass_without_any_allowance() -> None:
    assert check(one(1.0, float), one(1.1), one(1.1)) is None


@pytest.mark.parametrize("overflow", [np.inf, -np.inf, np.nan])
def test_what_no_longer_overflows_passes_near_its_value_in_float64(overflow: float) -> None:
    assert check(one(1.0, float), one(overflow), one(1.0)) is None
    assert check(one(1.0, float), one(overflow), one(1.5), spread=0.4) is None
    far = check(one(1.0, float), one(overflow), one(1.7), spread=0.4)
    assert far is not None
    assert far.reason == ("nan" if np.isnan(overflow) else "infinity")
    # The other way round, or without a finite value in float64, it is a difference.
    assert check(one(1.0, float), one(1.0), one(overflow)) is not None
    assert check(one(overflow, float), one(overflow), one(1.0)) is not None


def test_the_fused_error_may_be_half_again_the_unfused_one() -> None:
    assert check(one(1.0, float), one(1.1), one(1.14)) is None
    found = check(one(1.0, float), one(1.1), one(1.16))
    assert found is not None
    assert found.reason == "value"
    assert found.index == (0,)
    assert found.allowed == pytest.approx(0.15, rel=1e-5)
    assert "error 0.16" in str(found)


def test_a_result_nearer_to_float64_passes() -> None:
    assert check(one(1.0, float), one(1.1), one(0.91)) is None


def test_k_counts_units_of_the_dtype() -> None:
    unit = float(np.spacing(F32(1.0)))
    assert check(one(1.0, float), one(1.0), one(1.0 + 2 * unit), k=2) is None
    assert check(one(1.0, float), one(1.0), one(1.0 + 2 * unit), k=1) is not None
    assert check(one(1.0, float), one(1.0), one(1.0 + 2 * unit), spread=1.4 * unit) is None


def test_nan_and_infinity_stand_where_they_stood() -> None:
    assert check(one(math.nan, float), one(math.nan), one(math.nan)) is None
    found = check(one(math.nan, float), one(math.nan), one(0.0))
    assert found is not None
    assert found.reason == "nan"
    found = check(one(1.0, float), one(1.0), one(math.nan), k=64)
    assert found is not None
    assert found.reason == "nan"
    found = check(one(math.inf, float), one(math.inf), one(-math.inf))
    assert found is not None
    assert found.reason == "infinity"
    # float16 overflows where float64 does not: positions still have to match.
    found = check(one(1e6, float), one(math.inf, np.float16), one(6e4, np.float16))
    assert found is not None
    assert found.reason == "infinity"
    assert check(one(math.inf, float), one(1.0), one(1.0)) is None


def test_whole_numbers_and_truth_values_are_equal() -> None:
    assert check(one(1, int), one(1, int), one(1, int)) is None
    found = check(np.array([1, 2]), np.array([1, 2]), np.array([1, 3]), k=64)
    assert found is not None
    assert (found.reason, found.index) == ("exact", (1,))


def test_shape_and_dtype_are_the_same() -> None:
    for fused, reason in ((np.zeros(2, F32), "shape"), (np.zeros(1, float), "dtype")):
        found = check(np.zeros(1), np.zeros(1, F32), fused)
        assert found is not None
        assert found.reason == reason
        assert reason in str(found)


def test_the_worst_element_is_named() -> None:
    y = np.ones((2, 3))
    fused = y.astype(F32)
    fused[1, 2] = 3
    fused[0, 1] = 2
    found = check(y, y.astype(F32), fused)
    assert found is not None
    assert (found.index, found.count) == ((1, 2), 2)


# -------------------------------------------------------------------------------------------------------------------- k
def net(dtype: str = "float32") -> static.Program:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [8, 16], dtype)
        y = static.data("y", [16, 4], dtype)
        paddle.nn.functional.relu(x)
        paddle.reshape(x, [16, 8])
        paddle.add(x, x)
        paddle.sqrt(x)
        paddle.tanh(x)
        paddle.nn.functional.gelu(x)
        paddle.nn.functional.gelu(x, approximate=True)
        paddle.sum(x, axis=1)
        paddle.nn.functional.softmax(x)
        paddle.matmul(x, y)
        paddle.greater_than(x, x)
        paddle.gather(x, static.data("i", [3], "int64"))
    return main


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", [0, 0, 1, 2, 4, 4, 8, 2 + 4, 8 + 4, 4 + 4, 0, 0]),
        ("float64", [0, 0, 1, 2, 4, 4, 4, 2 + 4, 8 + 4, 4 + 4, 0, 0]),
        ("bfloat16", [0, 0, 1, 1, 1, 1, 1, 1 + 1, 2, 2, 0, 0]),
    ],
)
def test_k_of_each_group(dtype: str, expected: list[float]) -> None:
    assert [units(op) for op in net(dtype).global_block().ops] == expected


def test_k_of_optimizer_updates_and_gradients() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [4, 3])
        w = static.create_parameter([3], "float32", name="w")
        loss = paddle.mean(paddle.tanh(x * w))
        paddle.optimizer.Adam().minimize(loss)
    found = {op.type: units(op) for op in main.global_block().ops}
    assert found["adam"] == 32
    # The parameter's gradient sums four rows.
    assert found["elementwise_mul_grad"] >= 2 + math.log2(4)


def test_k_of_a_value_adds_up_what_it_depends_on() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [4])
        a = paddle.tanh(x)
        b = paddle.add(a, x)
        c = paddle.sqrt(x)
    found = ulps_of(main, [a.name, b.name, c.name, x.name])
    assert [found[v.name] for v in (a, b, c, x)] == [4, 5, 2, 0]


def test_k_is_at_most_64_and_0_where_nothing_was_rewritten() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        y = static.data("x", [4])
        for _ in range(30):
            y = paddle.tanh(y)
    assert ulps_of(main, [y.name]) == {y.name: 64}
    assert ulps_of(main, [y.name], main.clone()) == {y.name: 0}
    other = main.clone()
    other.global_block().ops[3].type = "sigmoid"
    assert ulps_of(main, [y.name], other) == {y.name: 4}


# ----------------------------------------------------------------------------------------------------------------- wide
def test_the_float64_program_computes_in_float64() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [3], "float16")
        y = paddle.exp(paddle.cast(x, "bfloat16")) + paddle.full([3], 0.1, "bfloat16")
    wide = float64_program(main)
    values = np.array([0.1, 0.2, 0.3], np.float16)
    (found,) = static.Executor("cpu").run(wide, feed={"x": values.astype(float)}, fetch_list=[y.name])
    assert found.dtype == np.float64
    assert np.allclose(found, np.exp(values.astype(float)) + 0.1, rtol=1e-15)
    assert y.dtype == "bfloat16"


def test_the_float64_program_keeps_constants_that_are_bytes() -> None:
    main = static.Program()
    table = np.linspace(0, 1, 200).astype(F32)
    with static.program_guard(main, static.Program()):
        y = paddle.assign(table) * 1.0
    (found,) = static.Executor("cpu").run(float64_program(main), fetch_list=[y.name])
    assert np.array_equal(found, table.astype(float))


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_a_nudge_moves_each_element_by_one_unit(seed: int) -> None:
    array = np.array([1.0, -3.0, 0.0, 1e-3], np.float16)
    moved = nudge(array, np.random.default_rng(seed))
    assert np.array_equal(np.abs(moved - array.astype(float)), ulp(array.astype(float), "float16") * (array != 0))
    whole = np.array([1, 2])
    assert np.array_equal(nudge(whole, np.random.default_rng(seed)), whole)


# --------------------------------------------------------------------------------------------------------------- spread
def cancelling() -> tuple[static.Program, str]:
    """The sum over ``tanh(x) - tanh(y)``, which cancels where x and y are nearly equal."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, y = (static.data(n, [64]) for n in "xy")
        out = paddle.sum(paddle.subtract(paddle.tanh(x), paddle.tanh(y)))
    return main, out.name


def test_the_spread_grows_with_the_condition_of_a_sum() -> None:
    main, out = cancelling()
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 2, 64).astype(F32)
    magnitudes = np.tanh(x.astype(float))
    spreads = {}
    for name, y in (("cancels", x[::-1].copy()), ("adds up", -x)):
        trial = Trial(main, {}, [out])
        ((y64,), _), ((spread,), _) = trial.reference({"x": x, "y": y}, 0, 16)
        spreads[name] = float(spread) / float(np.spacing(F32(max(abs(float(y64)), 1e-30))))
    # 128 terms, each moved by about half a unit of its own: many units of a sum near 0, hardly one of a large sum.
    assert spreads["adds up"] < 8
    assert spreads["cancels"] > 1e3 * spreads["adds up"]
    assert float(np.abs(magnitudes).sum()) > 30


def test_inner_values_move_each_for_itself() -> None:
    main, out = cancelling()
    names = list(made_values(main))
    assert [main.global_block().var(n).shape for n in names] == [(64,), (64,), (64,), ()]
    assert list(made_values(main).values()) == [True, True, True, False]
    wide = perturbable(main)
    zeros = {f"{n}{SUFFIX}": np.zeros(64 if k < 3 else ()) for k, n in enumerate(names)}
    feed = {"x": np.full(64, 0.5), "y": np.full(64, 0.25), **zeros}
    exe = static.Executor("cpu")
    (still,) = exe.run(wide, feed=feed, fetch_list=[out])
    feed[f"{names[0]}{SUFFIX}"] = np.full(64, 1e-3)
    (moved,) = exe.run(wide, feed=feed, fetch_list=[out])
    assert float(still) == pytest.approx(64 * (math.tanh(0.5) - math.tanh(0.25)), rel=1e-12)
    assert float(moved - still) == pytest.approx(64e-3, rel=1e-9)


def test_terms_are_those_of_expressions_and_of_broadcast_sums() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, b = static.data("x", [2, 3]), static.data("b", [3])
        b.stop_gradient = False
        y = paddle.subtract(x, b)
        (grad,) = static.gradients([y], [b], [static.data("d", [2, 3])])
    d = np.array([[1.0, -2.0, 3.0], [-1.0, 2.0, 3.0]])
    values = {"x": np.full((2, 3), 2.0), "b": np.ones(3), "d": d, y.name: np.ones((2, 3)), grad.name: -d.sum(0)}
    found = magnitudes(main, values)
    assert found[y.name].tolist() == [[3.0] * 3] * 2
    assert found[grad.name] == pytest.approx([2, 4, 6], rel=1e-6)


def test_terms_along_rows_are_summed_and_the_largest_is_taken() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [2, 2])
        x.stop_gradient = False
        y = paddle.nn.functional.softmax(x)
        norm = paddle.nn.functional.layer_norm(x, [2], None, None)
        (grad,) = static.gradients([norm], [x], [static.data("seed", [2, 2])])
    assert grad is not None
    given = {"x": np.array([[1.0, 1.0], [-3.0, 5.0]]), "seed": np.array([[1.0, 0.5], [2.0, 2.0]])}
    wide = float64_program(main)
    names = [v for v in made_values(main) if "softmax" not in v] + [y.name]
    found = static.Executor(paddle.CPUPlace()).run(wide, feed=given, fetch_list=names)
    values = given | dict(zip(names, found, strict=True))
    sizes = magnitudes(wide, values)
    assert (sizes[y.name] >= values[y.name]).all()  # an exponent's own rounding counts, too
    assert (sizes[norm.name][0] > 100).all()  # 1 - 1, divided by the root of epsilon
    assert (values[norm.name][0] == 0).all()
    assert (np.abs(values[grad.name][1]) < 1e-12).all()  # the seed's mean is the seed
    assert (sizes[grad.name][1] > 0.9).all()  # 2 - 2 over a deviation of 4


def test_what_a_mask_hides_does_not_widen_a_softmax() -> None:
    """The error of a row's largest score is its own; with that of the mask, wrong gradients of 1e-2 passed."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [2, 3])
        y = paddle.nn.functional.softmax(x)
    given = {"x": np.array([[1.0, 2.0, -1e4], [-1e4, -3.0, -1e4]])}
    (value,) = static.Executor(paddle.CPUPlace()).run(float64_program(main), feed=given, fetch_list=[y.name])
    sizes = magnitudes(main, given | {y.name: value})
    assert (sizes[y.name] <= 10 * value).all()


def test_what_reads_a_product_counts_its_terms() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        a, b = static.data("a", [1, 2]), static.data("b", [2, 1])
        product = paddle.matmul(a, b)
        doubled = product * 2.0
        weight = paddle.nn.functional.softmax(doubled)
        after = weight + 1.0
    given = {"a": np.array([[3.0, -3.0]]), "b": np.array([[1.0], [1.0]])}
    names = [v.name for v in (product, doubled, weight, after)]
    found = static.Executor(paddle.CPUPlace()).run(float64_program(main), feed=given, fetch_list=names)
    sizes = magnitudes(main, given | dict(zip(names, found, strict=True)))
    assert found[0].item() == 0
    first, second, third, last = (sizes[n].item() for n in names)
    assert (first, second) == (6, 12)
    assert third == pytest.approx(12 + 12, abs=3)  # exp(12 - 12): of each 12
    assert last == pytest.approx(1 + 1)  # what a softmax makes is no product


def test_a_kernel_may_round_inside_a_norm_of_two_numbers() -> None:
    """Where all that is left of a gradient is what did not cancel inside one op, no value between two ops tells."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [1, 2])
        x.stop_gradient = False
        y = paddle.nn.functional.layer_norm(x, [2], static.data("w", [2]), None)
        (grad,) = static.gradients([y], [x], [static.data("seed", [1, 2])])
    assert grad is not None
    feeds = {
        "x": np.array([[-0.27615625, 0.7208468]], np.float32),
        "w": np.array([-0.48549184, 1.9671124], np.float32),
        "seed": np.array([[1.0381644, 0.8432709]], np.float32),
    }
    y64, spread = Trial(main, {}, [grad.name]).reference(feeds, 0, 16)
    assert np.abs(y64[0][0]).max() < 1e-4
    assert spread[0][0].max() > 3e-7  # some units in the last place of the terms, which are near 1


def test_the_reference_runs_without_any_fusion() -> None:
    # Batch norm, add and relu are fused by default.
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [4, 3, 2, 2])
        y = paddle.nn.functional.relu(static.nn.batch_norm(x) + x)
    trial = Trial(main, {}, [y.name])
    with pytest.raises(paddle.errors.FeedError):
        trial.reference({"x": np.ones((4, 3, 2, 2), F32)}, 0)
    for compiled in next(iter(trial._references.values())):
        explained = compiled.explain(fetch_list=[y.name])
        assert not explained.applied


def test_k_follows_what_earlier_steps_rewrote() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        w = static.create_parameter([3], "float32", name="w")
        y = paddle.tanh(w)
        paddle.optimizer.SGD(0.1).minimize(paddle.mean(y))
    other = main.clone()
    for op in other.global_block().ops:
        if op.type == "sgd":
            op.inputs = {**op.inputs, "Grad": op.inputs["Param"]}
    assert ulps_of(main, [y.name], other) == {y.name: 0}
    assert ulps_of(main, [y.name], other, again=True) == {y.name: 32}
