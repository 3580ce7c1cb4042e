"""What the op definitions of random ops share: checks, tiles, and test shapes."""

from __future__ import annotations

import math
from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.opdef import Attr
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.types import DType, float32

SHAPE = {"shape": Attr((), "ints"), "dtype": float32, "seed": 0}
"""Attributes of an op that makes random numbers from nothing."""

# 7 and 131 leave a block of four unfinished.
SHAPES = ((3, 4), (), (0,), (7,), (2, 1, 5), (131,))

# Philox makes four words at once; tiles that begin at a multiple of four draw the numbers of the whole.
DRAWN = Split(ELEMENTS, FIRST, multiple=4)
"""Elements are drawn in blocks of four."""
DRAWN_LIKE = Split(ELEMENTS, None, FIRST, multiple=4)
"""Of the input only the shape is read."""


def in_order(op: str, low: float, high: float) -> None:
    """Refuses an empty or unbounded range.

    Raises:
        ProgramError: Names both ends.
    """
    if not (low <= high and math.isfinite(low) and math.isfinite(high)):
        raise ProgramError(
            f"'{op}' needs a range whose ends are finite and in order",
            expected="min <= max",
            received=f"min={low}, max={high}",
            fix="exchange min and max" if low > high else "pass finite numbers",
            op=op,
        )


def to_dtype(torch: Any, tensor: Any, dtype: DType) -> Any:
    """Converts a tensor to a dtype of ours."""
    return tensor.to(getattr(torch, dtype.name))
