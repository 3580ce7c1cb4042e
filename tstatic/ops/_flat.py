"""Arrays of any dtype and strides as cache-sized flat parts in the type that is computed in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tstatic.tuned._common import BLOCK

Array = np.ndarray[Any, Any]


def flat_parts(x: Array) -> Iterator[tuple[slice, Array]]:
    """Positions in C order and the elements there: views where the array allows it, else small float copies."""
    wide = np.float32 if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x.dtype
    flat = x.reshape(-1) if x.flags.c_contiguous else x.flat
    for at in range(0, x.size, BLOCK):
        part = slice(at, min(at + BLOCK, x.size))
        yield part, np.asarray(flat[part], wide)


def store(out: Array, part: slice, values: Array) -> None:
    """Writes flat values to positions in C order, rounded to the array's type."""
    if out.flags.c_contiguous:
        np.copyto(out.reshape(-1)[part], values, casting="unsafe")
    else:
        out.flat[part] = values.astype(out.dtype)
