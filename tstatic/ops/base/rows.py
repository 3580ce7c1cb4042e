"""Values as matrices whose rows run along one axis, for kernels that work on ``[rows, length]``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.ir.ref import Calls
from tstatic.ir.types import Meta, dtype_of, normalize_axis
from tstatic.ops.base.shapes import view_of
from tstatic.tuned.softmax import rows_scratch


def row_axis(rank: int, axis: int) -> int:
    """Returns the positive axis; a value of rank 0 is one row of one element."""
    return normalize_axis(axis, rank) if rank else 0


def rows_scratch_metas(x: Meta, axis: int, arrays: int) -> tuple[Meta, ...]:
    """Returns the scratch of :func:`by_rows`: the kernel's own, and for an axis that is not the last a buffer per array."""
    at = row_axis(x.rank, axis)
    length = x.shape[at] if x.rank else 1
    # Rows of no elements need no room.
    rows = x.numel // length if length else 0
    own = tuple(Meta(shape, dtype_of(dtype)) for shape, dtype in rows_scratch(rows, length, x.dtype.np))
    if at >= x.rank - 1:
        return own
    return (*own, *[Meta((rows, length), x.dtype)] * arrays)


def by_rows(
    ins: Sequence[Any], outs: Sequence[Any], axis: int, scratch: Sequence[Any], call: Callable[..., Calls]
) -> Calls:
    """Returns the calls of a kernel on matrices, with copies before and after where an array cannot be viewed as one.

    Args:
        ins: Arrays of the full shape that are read; ``None`` stays.
        outs: Arrays of the full shape that are written; ``None`` stays.
        axis: The axis that rows run along.
        scratch: Buffers of :func:`rows_scratch_metas`.
        call: ``(matrices of ins, matrices of outs, the kernel's scratch) -> Calls``.
    """
    buffers = iter(scratch[2:])
    before: Calls = []
    after: Calls = []

    def matrix(array: Any, written: bool) -> Any:
        if array is None:
            return None
        at = row_axis(array.ndim, axis)
        length = array.shape[at] if array.ndim else 1
        rows = array.size // length if length else math.prod(array.shape[:at] + array.shape[at + 1 :])
        last = at >= array.ndim - 1
        # Kernels take rows that lie in one piece, so any other axis is moved to the end by a copy.
        view = view_of(array, (rows, length)) if last else None
        if view is not None:
            return view
        # Odd strides of the last axis are not foreseen by the plan; their buffer is made here, once per plan.
        buffer = np.empty((rows, length), array.dtype) if last else next(buffers)
        moved = array if last else np.moveaxis(array, at, -1)
        shaped = buffer.reshape(moved.shape)
        (after if written else before).append((np.copyto, (moved, shaped) if written else (shaped, moved)))
        return buffer

    read = [matrix(a, False) for a in ins]
    written = [matrix(a, True) for a in outs]
    return [*before, *call(read, written, scratch[:2]), *after]


def vector(array: Any) -> tuple[Any, Calls, Calls]:
    """Returns one value per row as a vector, with the copies to make before (it is read) or after (it is written)."""
    view = view_of(array, (array.size,))
    if view is not None:
        return view, [], []
    buffer = np.empty((array.size,), array.dtype)
    shaped = buffer.reshape(array.shape)
    return buffer, [(np.copyto, (shaped, array))], [(np.copyto, (array, shaped))]
