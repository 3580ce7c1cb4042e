"""What the ops of one input share: their ``infer`` and the body of their public functions."""

from __future__ import annotations

from typing import Any

from tstatic.errors import DTypeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, bool_

FLOATS = ("float16", "bfloat16", "float32", "float64")
NUMBERS = (*FLOATS, "int8", "int16", "int32", "int64", "uint8")


def infer_float(x: Meta, *others: Any) -> Meta:
    """``infer`` of an op on floats: the result is like the first input.

    Raises:
        DTypeError: If the input holds no floats.
    """
    if not x.dtype.is_float:
        raise DTypeError(
            "this operator takes float values only",
            expected=", ".join(FLOATS),
            received=f"X of dtype {x.dtype.name}",
            fix="convert it first: paddle.cast(x, 'float32')",
        )
    return x


def infer_number(x: Meta, *others: Any) -> Meta:
    """``infer`` of an op on floats or integers: the result is like the first input.

    Raises:
        DTypeError: If the input holds truth values.
    """
    if x.dtype.name == "bool":
        raise DTypeError(
            "this operator takes numbers, not truth values",
            expected=", ".join(NUMBERS),
            received="X of dtype bool",
            fix="convert it first: paddle.cast(x, 'int64') or paddle.cast(x, 'float32')",
        )
    return x


def to_bool(x: Meta, *others: Any) -> Meta:
    """``infer`` of a test on each element."""
    return x.with_dtype(bool_)


def unary(
    type: str, x: Any, attrs: dict[str, Any] | None = None, *, name: str | None = None, prefix: str | None = None
) -> Variable:
    """Appends an op of one input ``X`` and one output ``Out``; ``prefix`` names the result when the layer has another name."""
    out: Variable = emit(type, {"X": check_variable(x, "x", prefix or type)}, attrs, name=name, prefix=prefix)
    return out


def float_unary(type: str, x: Any, *, name: str | None = None) -> Variable:
    """Like :func:`unary`; integers are converted to float32 first, as Paddle does for exponentials and logarithms."""
    if check_variable(x, "x", type).dtype.is_integer:
        x = emit("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": "float32"})
    return unary(type, x, name=name)
