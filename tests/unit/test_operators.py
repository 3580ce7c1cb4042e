"""Operators on Variables: which ops they build, what they are named, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tstatic.errors import DTypeError, ProgramTypeError, ShapeError
from tstatic.ir.declare import data, default_main_program
from tstatic.ir.export import PUBLIC_API

DTYPES = {"x": "float32", "y": "float32", "d": "float64", "h": "float16", "i": "int64", "j": "int32", "b": "bool",
          "g": "bfloat16", "u": "uint8", "v": "int8"}  # fmt: skip


def build(text: str) -> tuple[Any, list[Any]]:
    """Evaluates an expression over variables of each dtype; returns it and the ops that it built."""
    names = {n: data(n, [None, 3], t) for n, t in DTYPES.items()}
    result = eval(text, {"np": np, **names})
    return result, default_main_program().global_block().ops


# Op lists as Paddle 2.6 builds them.
@pytest.mark.parametrize(
    ("text", "ops", "dtype"),
    [
        ("x + 1", "scale", "float32"),
        ("1 - x", "scale", "float32"),
        ("x * 2", "scale", "float32"),
        ("x / 3.0", "scale", "float32"),
        ("-x", "scale", "float32"),
        ("-i", "scale", "int64"),
        ("x * np.float32(2)", "scale", "float32"),
        ("np.float64(2) * x", "scale", "float32"),
        ("x + True", "scale", "float32"),
        ("3 / x", "fill_constant elementwise_div", "float32"),
        ("x / 0", "fill_constant elementwise_div", "float32"),
        ("x ** 2", "fill_constant elementwise_pow", "float32"),
        ("2 ** x", "fill_constant elementwise_pow", "float32"),
        ("x // 2", "fill_constant elementwise_floordiv", "float32"),
        ("2 // x", "fill_constant elementwise_floordiv", "float32"),
        ("x % 2", "fill_constant elementwise_mod", "float32"),
        ("2 % i", "fill_constant elementwise_mod", "int64"),
        ("x + y", "elementwise_add", "float32"),
        ("x - y", "elementwise_sub", "float32"),
        ("x * y", "elementwise_mul", "float32"),
        ("x / y", "elementwise_div", "float32"),
        ("x % y", "elementwise_mod", "float32"),
        ("i + 1", "scale", "int64"),
        ("i + 1.5", "cast scale", "float32"),
        ("i / 2", "cast scale", "float32"),
        ("i // 2", "fill_constant elementwise_floordiv", "int64"),
        ("2.0 / i", "cast fill_constant elementwise_div", "float32"),
        ("i / i", "cast cast elementwise_div", "float32"),
        ("b + 1", "cast scale", "int64"),
        ("x + d", "cast elementwise_add", "float64"),
        ("h * x", "cast elementwise_mul", "float32"),
        ("i + j", "cast elementwise_add", "int64"),
        ("x > 0", "fill_constant greater_than", "bool"),
        ("i < 1.5", "cast fill_constant less_than", "bool"),
        ("0 >= x", "fill_constant less_equal", "bool"),
        ("x == y", "equal", "bool"),
        ("x != 1", "fill_constant not_equal", "bool"),
        ("~b", "bitwise_not", "bool"),
        ("b & b", "bitwise_and", "bool"),
        ("i | 3", "fill_constant bitwise_or", "int64"),
        ("b ^ b", "bitwise_xor", "bool"),
        ("abs(x)", "abs", "float32"),
        ("x + np.ones(3)", "assign_value elementwise_add", "float32"),
        ("np.ones([2, 3], 'float32') - x", "assign_value elementwise_sub", "float32"),
        ("x * [1, 2, 3]", "assign_value elementwise_mul", "float32"),
        ("i + np.arange(3)", "assign_value elementwise_add", "int64"),
        ("x + i", "cast elementwise_add", "float32"),
        ("i - d", "cast elementwise_sub", "float64"),
        ("h % i", "cast elementwise_mod", "float16"),
        ("x * (x > 0)", "fill_constant greater_than cast elementwise_mul", "float32"),
        ("b / x", "cast elementwise_div", "float32"),
        ("i == x", "cast equal", "bool"),
        ("b < j", "cast less_than", "bool"),
        ("j + b", "cast elementwise_add", "int32"),
        ("b * b", "logical_and", "bool"),
        ("i + np.ones(3, 'float16')", "cast assign_value elementwise_add", "float16"),
        ("i * [0.5, 1, 2]", "cast assign_value elementwise_mul", "float32"),
    ],
)
def test_ops_of(text: str, ops: str, dtype: str) -> None:
    result, built = build(text)
    assert " ".join(op.type for op in built) == ops
    assert result.dtype == dtype
    assert result.shape == (-1, 3) or result.shape == (2, 3)


def test_results_are_named_tmp() -> None:
    result, _ = build("(x + 1) * y")
    assert result.name == "tmp_1"


@pytest.mark.parametrize(
    ("text", "scale", "bias"), [("x - 1.5", 1, -1.5), ("1.5 - x", -1, 1.5), ("x / 4", 0.25, 0), ("x * True", 1, 0)]
)
def test_attributes_of_scale(text: str, scale: float, bias: float) -> None:
    _, (op,) = build(text)
    assert (op.attr("scale"), op.attr("bias"), op.attr("bias_after_scale")) == (scale, bias, True)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("h + g", "paddle.cast(g, 'float32')"),
        ("u - v", "paddle.cast(v, 'int64')"),
        ("x & i", "logical_and"),
        ("x & x", "logical_and"),
        ("b + b", "paddle.cast"),
    ],
)
def test_dtypes_that_do_not_meet_are_refused_with_the_cast_to_use(text: str, fix: str) -> None:
    with pytest.raises(DTypeError) as caught:
        build(text)
    assert fix in str(caught.value)
    assert "test_operators.py" in str(caught.value) or caught.value.where is not None


@pytest.mark.parametrize("text", ["x + 'a'", "x < None", "x - {}", "x * object()"])
def test_python_decides_about_other_objects(text: str) -> None:
    with pytest.raises(TypeError):
        build(text)


def test_equality_with_other_objects_is_false() -> None:
    assert build("x == None")[0] is False
    assert build("x != 'a'")[0] is True
    assert default_main_program().global_block().ops == []


def test_shapes_that_do_not_meet() -> None:
    with pytest.raises(ShapeError, match="broadcast"):
        build("x + np.ones([2, 4])")


# ------------------------------------------------------------------------------------------------------------ functions
UNARY = sorted(
    name
    for name, entry in PUBLIC_API.items()
    if name.startswith(("tensor.", "nn.functional.", "fluid.layers."))
    and entry.function.__module__.rpartition(".")[2] in ("unary", "activation", "activation_piecewise")
    and not name.endswith((".pow", ".pow_", ".prelu"))
)


@pytest.mark.parametrize("name", UNARY)
def test_function_of_one_value(name: str) -> None:
    out = PUBLIC_API[name].function(data("x", [None, 3]))
    op = default_main_program().global_block().ops[-1]
    assert out.shape == (-1, 3)
    assert op.output("Out") == [out.name]
    assert PUBLIC_API[name].op in ("", op.type)
    with pytest.raises(ProgramTypeError, match=r"must be Variable"):
        PUBLIC_API[name].function([1.0, 2.0])


@pytest.mark.parametrize(
    ("name", "arguments", "ops"),
    [
        ("tensor.add", "x, y", "elementwise_add"),
        ("tensor.add", "x, 2", "fill_constant elementwise_add"),
        ("tensor.divide", "x, y", "elementwise_div"),
        ("tensor.floor_divide", "i, i", "elementwise_floordiv"),
        ("tensor.mod", "i, i", "elementwise_mod"),
        ("tensor.pow", "x, 2.0", "pow"),
        ("tensor.pow", "x, y", "elementwise_pow"),
        ("fluid.layers.pow", "x, factor=3.0", "pow"),
        ("tensor.maximum", "x, y", "elementwise_max"),
        ("tensor.fmin", "x, y", "elementwise_fmin"),
        ("tensor.atan2", "x, y", "atan2"),
        ("tensor.lerp", "x, y, 0.5", "fill_constant lerp"),
        ("fluid.layers.elementwise_add", "x, y, axis=0, act='relu'", "elementwise_add relu"),
        ("fluid.layers.scale", "x, 2.0, act='tanh'", "scale tanh"),
        ("tensor.scale", "x, s, 1.0", "elementwise_mul scale"),
        ("tensor.scale", "x, s, 1.0, False", "scale elementwise_mul"),
        ("tensor.clip", "x, 0, 1", "clip"),
        ("tensor.clip", "i, 2", "clip"),
        ("tensor.clip", "x, s, 1.0", "elementwise_max fill_constant elementwise_min"),
        ("tensor.cast", "x, 'int64'", "cast"),
        ("Variable.astype", "x, 'float64'", "cast"),
        ("tensor.assign", "x", "assign"),
        ("tensor.assign", "np.ones(3)", "assign_value"),
        ("tensor.assign", "[1], s", "assign_value"),
        ("tensor.add_n", "[x, y, x]", "sum"),
        ("fluid.layers.sums", "[x, y]", "sum"),
        ("tensor.where", "b, x, y", "where"),
        ("tensor.where", "b, x, 0.0", "fill_constant where"),
        ("tensor.less_than", "x, y", "less_than"),
        ("fluid.layers.less_than", "x, y, cond=b", "less_than"),
        ("tensor.logical_or", "b, b, out=b", "logical_or"),
        ("fluid.layers.has_nan", "x", "isnan_v2 reduce_any reshape2"),
        ("tensor.isclose", "x, y, equal_nan=True", "isclose"),
        ("tensor.allclose", "x, y", "allclose"),
        ("tensor.equal_all", "x, y", "equal_all"),
        ("tensor.is_empty", "x", "is_empty"),
        ("tensor.exp", "i", "cast exp"),
        ("tensor.increment", "i", "increment"),
        ("nn.functional.prelu", "x, s", "prelu"),
        ("tensor.frac", "x", "trunc elementwise_sub"),
    ],
)
def test_function(name: str, arguments: str, ops: str) -> None:
    names: dict[str, Any] = {n: data(n, [None, 3], t) for n, t in DTYPES.items()}
    names["s"] = data("s", [1])
    eval(f"f({arguments})", {"f": PUBLIC_API[name].function, "np": np, **names})
    assert " ".join(op.type for op in default_main_program().global_block().ops) == ops


def test_an_unknown_activation_is_named() -> None:
    with pytest.raises(LookupError, match="nosuch"):
        PUBLIC_API["fluid.layers.elementwise_add"].function(data("x", [2]), data("y", [2]), act="nosuch")


def test_increment_writes_to_its_input() -> None:
    x = data("x", [1], "int64")
    assert PUBLIC_API["tensor.increment"].function(x, 2) is x
    assert default_main_program().global_block().ops[-1].output("Out") == ["x"]


def test_a_fraction_as_an_attribute_beside_integers_is_refused() -> None:
    x = data("i", [2], "int64")
    with pytest.raises(DTypeError, match="float32"):
        x.block.append_op(type="scale", inputs={"X": x}, outputs={"Out": x}, attrs={"scale": 2.5})
