"""What the op definitions of random ops share: checks, tiles, and test shapes."""

from __future__ import annotations

import math
from typing import Any

from tstatic.errors import DTypeError, ProgramError
from tstatic.ir.declare import default_dtype
from tstatic.ir.opdef import Attr
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.types import DType, dtype_of, float32

SHAPE = {"shape": Attr((), "ints"), "dtype": float32, "seed": 0}
"""Attributes of an op that makes random numbers from nothing."""

BATCH = {"input_dim_idx": 0, "output_dim_idx": 0}
"""Attributes of an op that takes one size from another value."""

SHAPES = ((3, 4), (), (0,), (7,), (2, 1, 5), (131,))
FLOATS = ("float32", "float64", "float16", "bfloat16")

DRAWN = Split(ELEMENTS, FIRST, multiple=4)
"""Elements are drawn in blocks of four."""
DRAWN_LIKE = Split(ELEMENTS, None, FIRST, multiple=4)
"""The input only lends its shape."""


def float_only(op: str, dtype: DType) -> None:
    """Checks that the op draws numbers of a float dtype.

    Raises:
        DTypeError: If it draws others; the message names the op.
    """
    if not dtype.is_float:
        raise DTypeError(
            f"'{op}' draws floating-point numbers",
            expected="float16, bfloat16, float32 or float64",
            received=dtype.name,
            fix="draw floats and cast them, or use paddle.randint for whole numbers",
            op=op,
        )


def in_order(op: str, low: float, high: float, names: tuple[str, str] = ("min", "max")) -> None:
    """Refuses an empty or unbounded range.

    Raises:
        ProgramError: Names both ends.
    """
    if not (low <= high and math.isfinite(low) and math.isfinite(high)):
        raise ProgramError(
            f"'{op}' needs a range whose ends are finite and in order",
            expected=f"{names[0]} <= {names[1]}",
            received=f"{names[0]}={low}, {names[1]}={high}",
            fix=f"exchange {names[0]} and {names[1]}" if low > high else "pass finite numbers",
            op=op,
        )


def not_negative(op: str, name: str, value: float) -> None:
    """Refuses a negative spread.

    Raises:
        ProgramError: Names the attribute.
    """
    if not 0 <= value < math.inf:
        raise ProgramError(
            f"'{name}' of '{op}' must be a finite number that is not negative",
            expected=f"{name} >= 0",
            received=value,
            fix=f"pass the absolute value as {name}",
            op=op,
        )


def to_dtype(torch: Any, tensor: Any, dtype: DType) -> Any:
    """A tensor converted to a dtype of ours."""
    return tensor.to(getattr(torch, dtype.name))


def float_type(dtype: Any) -> DType:
    """The dtype that an argument names; the default dtype for ``None``."""
    return default_dtype() if dtype is None else dtype_of(dtype)
