"""Python's operators on Variables: which ops they build, and how numbers, arrays and dtypes meet."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from tstatic.errors import DTypeError
from tstatic.ir.arrays import plain
from tstatic.ir.build import as_variable, emit
from tstatic.ir.opdef import spelled
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, float32, int64
from tstatic.ir.where import show, user_line


def _emit(type: str, inputs: dict[str, Any], attrs: dict[str, Any] | None = None) -> Variable:
    # Results of operators are named tmp_0, tmp_1, ...
    out: Variable = emit(type, inputs, attrs, prefix="tmp")
    return out


def _cast(x: Variable, dtype: DType) -> Variable:
    return x if x.dtype is dtype else _emit("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": dtype})


def _number(value: Any) -> bool | int | float | None:
    """The Python number of a scalar, ``None`` for anything else."""
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else None


def _constant(value: Any, dtype: DType) -> Variable:
    attrs = {"shape": (), "dtype": dtype, "value": value}
    return _emit("fill_constant", {}, attrs)


def _fit(x: Variable, number: bool | int | float) -> Variable:
    """The Variable as a number takes it: integers and bools become float32 beside a fraction, bools int64 beside an int."""
    if x.dtype.is_float:
        return x
    if isinstance(number, float):
        return _cast(x, float32)
    return _cast(x, int64) if x.dtype.name == "bool" and not isinstance(number, bool) else x


def _array(x: Variable, value: Any, symbol: str) -> Variable | None:
    """An array or list as a constant of the Variable's dtype; ``None`` if it is something else."""
    if not isinstance(value, np.ndarray | list | tuple):
        return None
    array = plain(value, "the operand", symbol)
    if array.dtype.kind not in "biufV":
        return None
    if array.dtype.kind in "fV" and not x.dtype.is_float:
        raise _refuse(
            symbol, x.dtype.name, f"an array of dtype {array.dtype}", x.name, f"paddle.cast({x.name}, 'float32')"
        )
    return as_variable(array, dtype=x.dtype)


def _refuse(symbol: str, left: str, right: str, names: str, fix: str) -> DTypeError:
    return DTypeError(
        f"operands of '{symbol}' are of different kinds",
        expected="two operands of one dtype",
        received=f"{left} {symbol} {right}",
        fix=f"convert one of them: {fix}",
        op=symbol,
        var=names,
        where=show(user_line()),
    )


def _unify(x: Variable, y: Variable, symbol: str) -> tuple[Variable, Variable]:
    """Two Variables in one dtype: the wider of two floats or of two integers; a float and an integer are refused.

    Raises:
        DTypeError: Names the cast to use.
    """
    a, b = x.dtype, y.dtype
    if a is b:
        return x, y
    same_kind = (a.is_float and b.is_float) or (a.is_integer and b.is_integer)
    if same_kind and a.itemsize != b.itemsize:
        wide = a if a.itemsize > b.itemsize else b
        return _cast(x, wide), _cast(y, wide)
    float_first = a.is_float or (a.is_integer and b.name == "bool")
    to_change, kept = (y, a) if float_first else (x, b)
    if same_kind:
        kept = float32 if a.is_float else int64
    raise _refuse(symbol, a.name, b.name, f"{x.name}, {y.name}", f"paddle.cast({to_change.name}, '{kept.name}')")


def _meet(x: Variable, other: Any, symbol: str) -> tuple[Variable, Variable] | None:
    """Both operands as Variables of one dtype; ``None`` if Python should try something else."""
    if isinstance(other, Variable):
        return _unify(x, other, symbol)
    number = _number(other)
    if number is not None:
        x = _fit(x, number)
        return x, _constant(number, x.dtype)
    array = _array(x, other, symbol)
    return None if array is None else (x, array)


def _binary(type: str, symbol: str, x: Variable, other: Any, reverse: bool = False) -> Any:
    pair = _meet(x, other, symbol)
    if pair is None:
        return NotImplemented
    a, b = pair[::-1] if reverse else pair
    if type == "elementwise_div" and not a.dtype.is_float:
        a, b = _cast(a, float32), _cast(b, float32)
    return _emit(type, {"X": a, "Y": b})


def _scaled(x: Variable, number: float, scale: float, bias: float) -> Variable:
    # Adding 0 makes a number of True and False.
    return _emit("scale", {"X": _fit(x, number)}, {"scale": scale + 0, "bias": bias + 0})


@spelled("Variable.__add__", "Variable.__radd__")
def add(x: Variable, other: Any) -> Any:
    """``x + other``: a ``scale`` op for a number, else ``elementwise_add``."""
    number = _number(other)
    return _binary("elementwise_add", "+", x, other) if number is None else _scaled(x, number, 1, number)


@spelled("Variable.__sub__")
def sub(x: Variable, other: Any) -> Any:
    """``x - other``: a ``scale`` op for a number, else ``elementwise_sub``."""
    number = _number(other)
    return _binary("elementwise_sub", "-", x, other) if number is None else _scaled(x, number, 1, -number)


@spelled("Variable.__rsub__")
def rsub(x: Variable, other: Any) -> Any:
    """``other - x``: a ``scale`` op for a number, else ``elementwise_sub``."""
    number = _number(other)
    return _binary("elementwise_sub", "-", x, other, True) if number is None else _scaled(x, number, -1, number)


@spelled("Variable.__mul__", "Variable.__rmul__")
def mul(x: Variable, other: Any) -> Any:
    """``x * other``: a ``scale`` op for a number, else ``elementwise_mul``."""
    number = _number(other)
    return _binary("elementwise_mul", "*", x, other) if number is None else _scaled(x, number, number, 0)


@spelled("Variable.__truediv__", "Variable.__div__")
def truediv(x: Variable, other: Any) -> Any:
    """``x / other``: a ``scale`` op for a number, else ``elementwise_div``; integers become float32."""
    number = _number(other)
    if number is None or number == 0:
        return _binary("elementwise_div", "/", x, other)
    return _scaled(x if x.dtype.is_float else _cast(x, float32), number, 1.0 / number, 0)


@spelled("Variable.__rtruediv__", "Variable.__rdiv__")
def rtruediv(x: Variable, other: Any) -> Any:
    """``other / x`` (``elementwise_div``); integers become float32."""
    return _binary("elementwise_div", "/", x if x.dtype.is_float else _cast(x, float32), other, True)


@spelled("Variable.__floordiv__")
def floordiv(x: Variable, other: Any) -> Any:
    """``x // other``, rounded down (``elementwise_floordiv``)."""
    return _binary("elementwise_floordiv", "//", x, other)


@spelled("Variable.__rfloordiv__")
def rfloordiv(x: Variable, other: Any) -> Any:
    """``other // x``, rounded down (``elementwise_floordiv``)."""
    return _binary("elementwise_floordiv", "//", x, other, True)


@spelled("Variable.__mod__")
def mod(x: Variable, other: Any) -> Any:
    """``x % other``, with the sign of ``other`` (``elementwise_mod``)."""
    return _binary("elementwise_mod", "%", x, other)


@spelled("Variable.__rmod__")
def rmod(x: Variable, other: Any) -> Any:
    """``other % x``, with the sign of ``x`` (``elementwise_mod``)."""
    return _binary("elementwise_mod", "%", x, other, True)


@spelled("Variable.__pow__")
def pow(x: Variable, other: Any) -> Any:
    """``x ** other`` (``elementwise_pow``)."""
    return _binary("elementwise_pow", "**", x, other)


@spelled("Variable.__rpow__")
def rpow(x: Variable, other: Any) -> Any:
    """``other ** x`` (``elementwise_pow``)."""
    return _binary("elementwise_pow", "**", x, other, True)


@spelled("Variable.__neg__", op="scale")
def negative(x: Variable) -> Variable:
    """``-x``: a ``scale`` op."""
    return _emit("scale", {"X": x}, {"scale": -1})


@spelled("Variable.__eq__")
def eq(x: Variable, other: Any) -> Any:
    """``x == other`` for each pair (``equal``)."""
    return _binary("equal", "==", x, other)


@spelled("Variable.__ne__")
def ne(x: Variable, other: Any) -> Any:
    """``x != other`` for each pair (``not_equal``)."""
    return _binary("not_equal", "!=", x, other)


@spelled("Variable.__lt__")
def lt(x: Variable, other: Any) -> Any:
    """``x < other`` for each pair (``less_than``)."""
    return _binary("less_than", "<", x, other)


@spelled("Variable.__le__")
def le(x: Variable, other: Any) -> Any:
    """``x <= other`` for each pair (``less_equal``)."""
    return _binary("less_equal", "<=", x, other)


@spelled("Variable.__gt__")
def gt(x: Variable, other: Any) -> Any:
    """``x > other`` for each pair (``greater_than``)."""
    return _binary("greater_than", ">", x, other)


@spelled("Variable.__ge__")
def ge(x: Variable, other: Any) -> Any:
    """``x >= other`` for each pair (``greater_equal``)."""
    return _binary("greater_equal", ">=", x, other)


def _bitwise(type: str, symbol: str, x: Variable, other: Any) -> Any:
    pair = _meet(x, other, symbol)
    return NotImplemented if pair is None else emit(type, {"X": pair[0], "Y": pair[1]})


@spelled("Variable.__and__", "Variable.__rand__")
def and_(x: Variable, other: Any) -> Any:
    """``x & other`` of bools or integers (``bitwise_and``)."""
    return _bitwise("bitwise_and", "&", x, other)


@spelled("Variable.__or__", "Variable.__ror__")
def or_(x: Variable, other: Any) -> Any:
    """``x | other`` of bools or integers (``bitwise_or``)."""
    return _bitwise("bitwise_or", "|", x, other)


@spelled("Variable.__xor__", "Variable.__rxor__")
def xor(x: Variable, other: Any) -> Any:
    """``x ^ other`` of bools or integers (``bitwise_xor``)."""
    return _bitwise("bitwise_xor", "^", x, other)


@spelled("Variable.__invert__", op="bitwise_not")
def invert(x: Variable) -> Variable:
    """``~x`` of bools or integers (``bitwise_not``)."""
    out: Variable = emit("bitwise_not", {"X": x})
    return out
