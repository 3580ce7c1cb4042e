"""How operands of different dtypes, numbers and arrays meet in one dtype."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from tstatic.errors import DTypeError
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, dtype_of, float32, float64, int64, plain
from tstatic.ops.base.shapes import emit_one


def cast_to(x: Variable, dtype: DType, prefix: str | None = None) -> Variable:
    """Returns ``x`` as another dtype; itself if it has it."""
    if x.dtype is dtype:
        return x
    return emit_one("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": dtype}, prefix=prefix)


def number_of(value: Any) -> bool | int | float | None:
    """Returns the Python number of a scalar, ``None`` for anything else."""
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else None


def fit(x: Variable, number: bool | int | float, prefix: str | None = None) -> Variable:
    """Converts a Variable as a number needs it: integers and bools to float32 beside a fraction, bools to int64 beside an int."""
    if x.dtype.is_inexact:
        return x
    if isinstance(number, float):
        return cast_to(x, float32, prefix)
    return cast_to(x, int64, prefix) if x.dtype.name == "bool" and not isinstance(number, bool) else x


def common_dtype(a: DType, b: DType) -> DType | None:
    """Returns the dtype that two dtypes meet in; ``None`` if there is none.

    A float beside an integer or a bool stays, an integer beside a bool, too; of two floats or integers the wider wins. Beside
    a complex type a float64 counts as complex128, whatever else as complex64.
    Floats and integers of equal width (float16 and bfloat16, int8 and uint8) do not meet.
    """
    if a is b:
        return a
    if a.is_complex or b.is_complex:
        return max(a.complex, b.complex, key=lambda d: d.itemsize)
    # Kind before width: an int64 beside a float32 becomes float32.
    ranks = [2 * d.is_float + d.is_integer for d in (a, b)]
    if ranks[0] != ranks[1]:
        return a if ranks[0] > ranks[1] else b
    if a.itemsize == b.itemsize:
        return None
    return a if a.itemsize > b.itemsize else b


def is_of_fluid(x: Variable) -> bool:
    """Returns whether functions of ``fluid`` built a Variable's program; running under ``as_paddle`` is not enough."""
    return bool(vars(x.block.program).get("fetches_convert"))


def unify(
    x: Variable, y: Variable, function: str, prefix: str | None = None, wider: bool = False
) -> tuple[Variable, Variable]:
    """Returns two Variables in one dtype, see :func:`common_dtype`; of two floats the left one's, as Paddle declares it.

    Args:
        x, y: The operands.
        function: For messages.
        prefix: Names what is cast.
        wider: Whether two floats meet in the wider one.

    Raises:
        DTypeError: If there is no common dtype; it names the cast to use.
    """
    dtype = common_dtype(x.dtype, y.dtype)
    if dtype is not None and not wider and x.dtype.is_float and y.dtype.is_float:
        dtype = x.dtype
    if dtype is None:
        raise DTypeError(
            f"operands of '{function}' are of different kinds, and neither is wider",
            expected="two operands of one dtype",
            received=f"{x.dtype.name} and {y.dtype.name}",
            fix=f"convert one of them: paddle.cast({y.name}, '{(float32 if x.dtype.is_float else int64).name}')",
            op=function,
            var=f"{x.name}, {y.name}",
        )
    return cast_to(x, dtype, prefix), cast_to(y, dtype, prefix)


def in_common_dtype(
    x: Variable, other: Any, function: str, prefix: str | None = None, wider: bool = False
) -> tuple[Variable, Variable] | None:
    """Returns both operands as Variables of one dtype.

    ``None`` if the other is not a Variable, a number, or a list or an array of numbers.
    """
    if isinstance(other, Variable):
        return unify(x, other, function, prefix, wider)
    number = number_of(other)
    if number is not None:
        x = fit(x, number, prefix)
        constant: Variable = emit("fill_constant", {}, {"shape": (), "dtype": x.dtype, "value": number}, prefix=prefix)
        return x, constant
    if not isinstance(other, np.ndarray | list | tuple | complex | np.complexfloating):
        return None
    array = plain(other, "the operand", function)
    if array.dtype.kind not in "biufcV":
        return None
    if array.dtype.kind == "c" and not x.dtype.is_complex:
        # Of a list or a number the parts are as wide as those of the other operand.
        x = cast_to(x, dtype_of(array.dtype) if isinstance(other, np.ndarray) and other.ndim else x.dtype.complex)
    elif array.dtype.kind in "fV" and not x.dtype.is_inexact:
        # Fractions in a list are float32, as a single one is.
        wanted = dtype_of(array.dtype)
        x = cast_to(x, float32 if wanted is float64 and not isinstance(other, np.ndarray) else wanted, prefix)
    return x, as_variable(array, dtype=x.dtype)


def operands(x: Any, y: Any, function: str) -> tuple[Variable, Variable]:
    """Returns two operands, at least one of them a Variable, as Variables of one dtype.

    Raises:
        ProgramTypeError: If neither is a Variable, or the other is not a number, a list or an array.
        DTypeError: If the dtypes have no common one.
    """
    swap = isinstance(y, Variable) and not isinstance(x, Variable)
    pair = in_common_dtype(y, x, function) if swap else in_common_dtype(check_variable(x, "x", function), y, function)
    if pair is None:
        # Refused there, with what it is.
        return check_variable(x, "x", function), check_variable(y, "y", function)
    return (pair[1], pair[0]) if swap else pair


def whole_quotient(x: Variable, y: Variable, name: str | None) -> Variable:
    """Returns the quotient of integers (or bools, as int64) without its fraction."""
    a, b = (cast_to(v, int64) if v.dtype.name == "bool" else v for v in (x, y))
    zero = as_variable(0, dtype=a.dtype)
    # Rounded down, and one more where the quotient is negative and has a fraction.
    rest = emit("not_equal", {"X": emit("elementwise_mod", {"X": a, "Y": b}), "Y": zero})
    below = [emit("less_than", {"X": v, "Y": zero}) for v in (a, b)]
    short = emit("logical_and", {"X": rest, "Y": emit("not_equal", {"X": below[0], "Y": below[1]})})
    down = emit("elementwise_floordiv", {"X": a, "Y": b})
    return emit_one("elementwise_add", {"X": down, "Y": cast_to(short, a.dtype)}, name=name)
