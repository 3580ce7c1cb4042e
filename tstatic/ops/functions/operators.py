"""Python's operators on Variables: which ops they build."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import emit
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import float32
from tstatic.ops.base.mixed import cast_to, fit, in_common_dtype, is_of_fluid, number_of
from tstatic.ops.base.shapes import emit_one


def _emit(type: str, inputs: dict[str, Any], attrs: dict[str, Any] | None = None) -> Variable:
    # Results of operators are named tmp_0, tmp_1, ...
    return emit_one(type, inputs, attrs, prefix="tmp")


def _binary(type: str, symbol: str, x: Variable, other: Any, reverse: bool = False) -> Any:
    # Paddle 2.6 widens the operands of these three; before, and for all others, the left one's float type counts.
    wider = symbol in ("+", "-", "*") and not is_of_fluid(x)
    pair = in_common_dtype(x, other, symbol, "tmp", wider)
    if pair is None:
        # Python then asks the other operand, and raises its own TypeError if that does not answer.
        return NotImplemented
    a, b = pair[::-1] if reverse else pair
    # True division of integers gives float32, as in Paddle.
    if type == "elementwise_div" and not a.dtype.is_inexact:
        a, b = cast_to(a, float32, "tmp"), cast_to(b, float32, "tmp")
    if type == "elementwise_mul" and a.dtype.name == "bool":
        type = "logical_and"
    return _emit(type, {"X": a, "Y": b})


def _scaled(x: Variable, number: float, scale: float, bias: float) -> Variable:
    # Adding 0 makes a number of True and False.
    return _emit("scale", {"X": fit(x, number, "tmp")}, {"scale": scale + 0, "bias": bias + 0})


@export("Variable.__add__", "Variable.__radd__")
def add(x: Variable, other: Any) -> Any:
    """Returns ``x + other``: a ``scale`` op for a number, else ``elementwise_add``."""
    number = number_of(other)
    return _binary("elementwise_add", "+", x, other) if number is None else _scaled(x, number, 1, number)


@export("Variable.__sub__")
def sub(x: Variable, other: Any) -> Any:
    """Returns ``x - other``: a ``scale`` op for a number, else ``elementwise_sub``."""
    number = number_of(other)
    return _binary("elementwise_sub", "-", x, other) if number is None else _scaled(x, number, 1, -number)


@export("Variable.__rsub__")
def rsub(x: Variable, other: Any) -> Any:
    """Returns ``other - x``: a ``scale`` op for a number, else ``elementwise_sub``."""
    number = number_of(other)
    return _binary("elementwise_sub", "-", x, other, True) if number is None else _scaled(x, number, -1, number)


@export("Variable.__mul__", "Variable.__rmul__")
def mul(x: Variable, other: Any) -> Any:
    """Returns ``x * other``: a ``scale`` op for a number, else ``elementwise_mul``."""
    number = number_of(other)
    return _binary("elementwise_mul", "*", x, other) if number is None else _scaled(x, number, number, 0)


@export("Variable.__truediv__", "Variable.__div__")
def truediv(x: Variable, other: Any) -> Any:
    """Returns ``x / other``: a ``scale`` op for a number, else ``elementwise_div``; integers become float32."""
    number = number_of(other)
    # Division by 0 stays a division: 1 / 0 as a factor would be an error of Python, and 0 times infinity NaN.
    if number is None or number == 0:
        return _binary("elementwise_div", "/", x, other)
    return _scaled(x if x.dtype.is_inexact else cast_to(x, float32, "tmp"), number, 1.0 / number, 0)


@export("Variable.__rtruediv__", "Variable.__rdiv__")
def rtruediv(x: Variable, other: Any) -> Any:
    """Returns ``other / x`` (``elementwise_div``); integers become float32."""
    return _binary("elementwise_div", "/", x if x.dtype.is_inexact else cast_to(x, float32, "tmp"), other, True)


@export("Variable.__floordiv__")
def floordiv(x: Variable, other: Any) -> Any:
    """Returns ``x // other``, rounded down (``elementwise_floordiv``)."""
    return _binary("elementwise_floordiv", "//", x, other)


@export("Variable.__rfloordiv__")
def rfloordiv(x: Variable, other: Any) -> Any:
    """Returns ``other // x``, rounded down (``elementwise_floordiv``)."""
    return _binary("elementwise_floordiv", "//", x, other, True)


@export("Variable.__mod__")
def mod(x: Variable, other: Any) -> Any:
    """Returns ``x % other``, with the sign of ``other`` (``elementwise_mod``)."""
    return _binary("elementwise_mod", "%", x, other)


@export("Variable.__rmod__")
def rmod(x: Variable, other: Any) -> Any:
    """Returns ``other % x``, with the sign of ``x`` (``elementwise_mod``)."""
    return _binary("elementwise_mod", "%", x, other, True)


@export("Variable.__pow__")
def pow(x: Variable, other: Any) -> Any:
    """Returns ``x ** other`` (``elementwise_pow``)."""
    return _binary("elementwise_pow", "**", x, other)


@export("Variable.__rpow__")
def rpow(x: Variable, other: Any) -> Any:
    """Returns ``other ** x`` (``elementwise_pow``)."""
    return _binary("elementwise_pow", "**", x, other, True)


@export("Variable.__neg__", op="scale")
def negative(x: Variable) -> Variable:
    """Returns ``-x``: a ``scale`` op."""
    return _emit("scale", {"X": x}, {"scale": -1})


@export("Variable.__eq__")
def eq(x: Variable, other: Any) -> Any:
    """Returns ``x == other`` for each pair (``equal``)."""
    return _binary("equal", "==", x, other)


@export("Variable.__ne__")
def ne(x: Variable, other: Any) -> Any:
    """Returns ``x != other`` for each pair (``not_equal``)."""
    return _binary("not_equal", "!=", x, other)


@export("Variable.__lt__")
def lt(x: Variable, other: Any) -> Any:
    """Returns ``x < other`` for each pair (``less_than``)."""
    return _binary("less_than", "<", x, other)


@export("Variable.__le__")
def le(x: Variable, other: Any) -> Any:
    """Returns ``x <= other`` for each pair (``less_equal``)."""
    return _binary("less_equal", "<=", x, other)


@export("Variable.__gt__")
def gt(x: Variable, other: Any) -> Any:
    """Returns ``x > other`` for each pair (``greater_than``)."""
    return _binary("greater_than", ">", x, other)


@export("Variable.__ge__")
def ge(x: Variable, other: Any) -> Any:
    """Returns ``x >= other`` for each pair (``greater_equal``)."""
    return _binary("greater_equal", ">=", x, other)


def _bitwise(type: str, symbol: str, x: Variable, other: Any) -> Any:
    pair = in_common_dtype(x, other, symbol)
    return NotImplemented if pair is None else emit(type, {"X": pair[0], "Y": pair[1]})


@export("Variable.__and__", "Variable.__rand__")
def and_(x: Variable, other: Any) -> Any:
    """Returns ``x & other`` of bools or integers (``bitwise_and``)."""
    return _bitwise("bitwise_and", "&", x, other)


@export("Variable.__or__", "Variable.__ror__")
def or_(x: Variable, other: Any) -> Any:
    """Returns ``x | other`` of bools or integers (``bitwise_or``)."""
    return _bitwise("bitwise_or", "|", x, other)


@export("Variable.__xor__", "Variable.__rxor__")
def xor(x: Variable, other: Any) -> Any:
    """Returns ``x ^ other`` of bools or integers (``bitwise_xor``)."""
    return _bitwise("bitwise_xor", "^", x, other)


@export("Variable.__invert__", op="bitwise_not")
def invert(x: Variable) -> Variable:
    """Returns ``~x`` of bools or integers (``bitwise_not``)."""
    return emit_one("bitwise_not", {"X": x})
