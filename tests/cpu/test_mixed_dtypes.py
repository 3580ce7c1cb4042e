"""Operators and functions on operands of different dtypes: the results of numpy in the dtype that they meet in."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.run_function import run_function
from tstatic import fluid
from tstatic.errors import DTypeError

VALUES: dict[str, list[float]] = {
    "bool": [1, 0, 1, 1],
    "int32": [5, -7, 2, 3],
    "int64": [3, 2, -4, 1],
    "float16": [1.5, 2.5, -0.5, 1],
    "float32": [1.5, -2.5, 0.5, 3],
    "float64": [0.25, -1.5, 3, 1],
}
MEET = {
    ("bool", "int32"): "int32",
    ("bool", "float32"): "float32",
    ("int32", "int64"): "int64",
    ("int64", "float16"): "float16",
    ("int64", "float32"): "float32",
    ("int32", "float64"): "float64",
}
PAIRS = [pair for a, b in MEET for pair in ((a, b), (b, a))]
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("add", "sub", "mul", "mod", "eq", "ne", "lt", "le", "gt", "ge")
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (paddle.add, np.add),
    "subtract": (paddle.subtract, np.subtract),
    "multiply": (paddle.multiply, np.multiply),
    "maximum": (paddle.maximum, np.maximum),
    "fmin": (paddle.fmin, np.fmin),
    "equal": (paddle.equal, np.equal),
    "less_than": (paddle.less_than, np.less),
    "fluid.add": (fluid.layers.elementwise_add, np.add),
    "fluid.less_than": (fluid.layers.less_than, np.less),
}


def value(dtype: str, turned: bool = False) -> Any:
    array = np.array(VALUES[dtype], dtype)
    return array[::-1].copy() if turned else array


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_operands_of_two_dtypes_meet_in_one(a: str, b: str) -> None:
    dtype = MEET.get((a, b)) or MEET[b, a]
    # No zeros on the right: remainders of them are NaN, or an error.
    x, y = value(a), value(b) if b != "bool" else np.ones(4, bool)

    def build(x: Any, y: Any) -> list[Any]:
        by_operator = [f(x, y) for f in OPERATORS.values()]
        return [*by_operator, *(f(x, y) for f, _ in FUNCTIONS.values()), x / y]

    *found, quotient = run_function(build, {"x": x, "y": y})
    p, q = x.astype(dtype), y.astype(dtype)
    for name, got, wanted in zip(
        [*OPERATORS, *FUNCTIONS], found, [f(p, q) for f in (*OPERATORS.values(), *(n for _, n in FUNCTIONS.values()))],
        strict=True,
    ):  # fmt: skip
        assert got.dtype == wanted.dtype, name
        np.testing.assert_array_equal(got, wanted, err_msg=name)
    wide = dtype if dtype.startswith("float") else "float32"
    same(quotient, p.astype(wide) / q.astype(wide))


FLOATS = [("float32", "float64"), ("float64", "float32")]
WIDENING = ("add", "sub", "mul")


def operators_of(x: Any, y: Any) -> dict[str, Any]:
    named = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "lt", "ge")
    return {name: getattr(operator, name)(x, y) for name in named}


@pytest.mark.parametrize("of_fluid", [True, False])
@pytest.mark.parametrize(("a", "b"), FLOATS)
def test_two_float_types_meet_as_in_paddle(a: str, b: str, of_fluid: bool) -> None:
    """Guards programs whose float64 counter made float64 of everything: the left type counts in 1.8.5 and 2.4.2.

    In 2.6.2, which has no ``fluid``, ``+``, ``-`` and ``*`` widen, and all other operators keep the left type.
    """
    x, y = np.array([0.1, 2.5, 3.0], a), np.array([0.1, 1.5, 3.0], b)

    def build(x: Any, y: Any) -> list[Any]:
        if of_fluid:
            fluid.layers.data("label", [1])
        return [*operators_of(x, y).values()]

    found = dict(zip(operators_of(x, y), run_function(build, {"x": x, "y": y}), strict=True))
    for name, got in found.items():
        meet = "float64" if name in WIDENING and not of_fluid else a
        wanted = getattr(operator, name)(x.astype(meet), y.astype(meet))
        assert got.dtype == wanted.dtype, name
        np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=name)


def test_fluid_under_as_paddle_keeps_the_left_type_and_other_programs_widen(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, all programs fetch arrays that convert, whatever built them: that mark must not be taken for fluid's."""
    monkeypatch.setattr(paddle.static.Program, "fetches_convert", True)
    for declare, wanted in ((paddle.static.data, "float64"), (fluid.data, "float32")):
        with paddle.static.program_guard(paddle.static.Program()):
            total = declare("x", [2], "float32") + declare("y", [2], "float64")
            assert total.dtype == wanted
            assert total.block.program.clone().global_block().var(total.name).dtype == wanted


@pytest.mark.parametrize(("a", "b"), FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_two_float_types_give_the_left_one(name: str, a: str, b: str) -> None:
    """Paddle declares it so in all versions: ``paddle.add(float32, float64)`` is float32."""
    function, oracle = FUNCTIONS[name]
    x, y = np.array([0.1, 2.5, 3.0], a), np.array([0.1, 1.5, 3.0], b)
    (found,) = run_function(lambda x, y: [function(x, y)], {"x": x, "y": y})
    wanted = oracle(x, y.astype(a))
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_what_is_joined_or_added_up_has_one_type() -> None:
    """All three Paddles refuse these while the program is built."""
    x, y = paddle.static.data("x", [2]), paddle.static.data("y", [2], "float64")
    for build in (lambda: paddle.concat([x, y]), lambda: paddle.add_n([x, y]), lambda: fluid.layers.sums([x, y])):
        with pytest.raises(DTypeError):
            build()
    assert paddle.where(x > 0, x, y).dtype == "float32"


def test_the_gradient_reaches_the_float_beside_a_mask_or_integers() -> None:
    x, i = value("float64"), value("int64")
    out, dx = run_function(lambda x, i: x * (x > 0) * i, {"x": x, "i": i}, grads=True)
    same(out, x * (x > 0) * i)
    np.testing.assert_allclose(dx, np.cos(np.arange(4)) * (x > 0) * i, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_divide_of_integers_leaves_the_fraction_out_and_atan2_gives_float64(dtype: str) -> None:
    x, y = (np.array(v, dtype) for v in ([7, -7, 7, -7, 6, 0, -6], [2, 2, -2, -2, 3, 5, 3]))
    quotient, angle, by_number = run_function(
        lambda x, y: (paddle.divide(x, y), paddle.atan2(x, y), paddle.divide(x, 2)), {"x": x, "y": y}
    )
    same(quotient, np.trunc(x / y).astype(dtype))
    same(by_number, np.trunc(x / 2).astype(dtype))
    same(angle, np.arctan2(x.astype(np.float64), y.astype(np.float64)))


def test_a_product_of_truth_values_is_their_conjunction() -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    for found in run_function(lambda x, y: (x * y, paddle.multiply(x, y)), {"x": x, "y": y}):
        same(found, x & y)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_attributes_beside_integers_lose_their_fractions(dtype: str) -> None:
    x = np.array([7, -7, -9, 0, 1], dtype)
    cases: list[tuple[Callable[[Any], Any], Any]] = [
        (lambda x: paddle.scale(x, 0.5), x * 0),
        (lambda x: paddle.scale(x, 2.7, 1.9), x * 2 + 1),
        (lambda x: paddle.scale(x, 2.7, -1.9, bias_after_scale=False), (x - 1) * 2),
        (lambda x: paddle.clip(x, min=0.5), np.maximum(x, 0)),
        (lambda x: paddle.clip(x, -2.7, 2.7), np.clip(x, -2, 2)),
        (lambda x: paddle.clip(x, max=-1.5), np.minimum(x, -1)),
        (lambda x: fluid.layers.clip(x, float("-inf"), 2.5), np.minimum(x, 2)),
    ]
    results = run_function(lambda x: [build(x) for build, _ in cases], {"x": x})
    for found, (_, wanted) in zip(results, cases, strict=True):
        same(found, wanted.astype(dtype))


def test_a_fraction_beside_an_integer_operand_is_kept() -> None:
    x = value("int64")
    total, equal, power = run_function(
        lambda x: (paddle.add(x, 0.5), paddle.equal(x, 2.5), x**0.5 == x**0.5), {"x": np.abs(x)}
    )
    same(total, np.abs(x).astype(np.float32) + np.float32(0.5))
    assert not equal.any()
    assert power.all()


def test_where_takes_operands_of_two_dtypes_and_keeps_fractions() -> None:
    m, i, x = np.array([True, False, True, False]), value("int64"), value("float32")
    mixed, fraction, whole, floats, bools = run_function(
        lambda m, i, x: (
            paddle.where(m, i, x),
            paddle.where(m, i, 0.5),
            paddle.where(m, 1, 0),
            paddle.where(m, 1.0, 0),
            paddle.where(m, False, True),
        ),
        {"m": m, "i": i, "x": x},
    )
    same(mixed, np.where(m, i.astype(np.float32), x))
    same(fraction, np.where(m, i, 0.5).astype(np.float32))
    same(whole, np.where(m, 1, 0))
    same(floats, np.where(m, 1.0, 0.0))
    same(bools, ~m)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_pow_of_integers_leaves_the_fraction_of_the_exponent_out(dtype: str) -> None:
    x = np.array([5, -7, 2], dtype)
    powers = (0.5, 1.5, 2, 2.0, 0)
    results = run_function(lambda x: [paddle.pow(x, p) for p in powers], {"x": x})
    for found, power in zip(results, powers, strict=True):
        same(found, x ** int(power))
    (mixed,) = run_function(lambda x, y: paddle.pow(x, y), {"x": x, "y": np.array([0.5, 2.0, -1.0])})
    same(mixed, x.astype(np.float64) ** np.array([0.5, 2.0, -1.0]))


def test_a_fraction_as_a_power_beside_integers_is_refused_in_the_operator_itself() -> None:
    def raw(x: Any) -> Any:
        x.block.append_op(type="pow", inputs={"X": x}, outputs={"Out": x}, attrs={"factor": 0.5})

    with pytest.raises(DTypeError, match="whole number"):
        run_function(raw, {"x": value("int64")})


def test_dtypes_and_shapes_of_constants_and_products_are_those_of_paddle() -> None:
    product, wide, short, number, fraction, truth, array = run_function(
        lambda i: (
            paddle.prod(i), paddle.prod(i, dtype="int64"), paddle.prod(paddle.cast(i, "bool")),
            paddle.assign(3), paddle.assign(2.5), paddle.assign(True), paddle.assign(np.array(3.0, np.float32)),
        ),
        {"i": value("int32")},
    )  # fmt: skip
    same(product, np.int32(-210))
    same(wide, np.int64(-210))
    same(short, np.int64(1))
    same(number, np.array([3]))
    same(fraction, np.array([2.5], np.float32))
    same(truth, np.array([True]))
    same(array, np.array(3.0, np.float32))
