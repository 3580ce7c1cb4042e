"""Order along an axis with NaN above all numbers and equal elements in their old order, as torch has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.opdef import GradContext, OpSpec, Tile
from tstatic.ir.types import Meta, normalize_axis
from tstatic.ops.shape._shapes import Array, cut_together

# Rows longer than this are first narrowed down when only few of their elements are asked for.
_LONG = 512


def order(x: Array, axis: int, *, descending: bool) -> Array:
    """Indices that sort along an axis, stable in both directions."""
    if not descending:
        return np.asarray(np.argsort(_sortable(x), axis=axis, kind="stable"))
    # Backwards twice: equal elements keep their order, and NaN, which sorts last, comes first.
    back = tuple(slice(None, None, -1) if i == axis else slice(None) for i in range(x.ndim))
    found = np.argsort(_sortable(x)[back], axis=axis, kind="stable")[back]
    return np.asarray(x.shape[axis] - 1 - found)


def _sortable(x: Array) -> Array:
    # ml_dtypes has no fast sort of its own; widening keeps the order.
    return x.astype(np.float32) if x.dtype.name == "bfloat16" else x


def first(x: Array, axis: int, k: int, *, largest: bool) -> Array:
    """Indices of the ``k`` first elements of the sorted order along an axis."""
    size = x.shape[axis]
    if k == 1 and largest and x.size:
        return np.asarray(np.argmax(_sortable(x), axis=axis, keepdims=True))
    if size <= _LONG or k * 8 > size:
        return order(x, axis, descending=largest)[
            tuple(slice(0, k) if i == axis else slice(None) for i in range(x.ndim))
        ]
    rows = np.ascontiguousarray(np.moveaxis(_sortable(x), axis, -1)).reshape(-1, size)
    found = np.empty((rows.shape[0], k), np.int64)
    for row, result in zip(rows, found, strict=True):
        # Elements on the wrong side of the k-th one cannot be among the first; NaN compares false and stays.
        if largest:
            candidates = np.flatnonzero(~(row < np.partition(row, size - k)[size - k]))
        else:
            candidates = np.flatnonzero(~(row > np.partition(row, k - 1)[k - 1]))
        result[:] = candidates[order(row[candidates], 0, descending=largest)[:k]]
    shape = np.moveaxis(x, axis, -1).shape[:-1]
    return np.moveaxis(found.reshape(*shape, k), -1, axis)


def put(dx: Array, indices: Array, dout: Array, axis: int) -> None:
    """Zeros with ``dout`` at positions that differ within each row: the gradient of a selection by order."""
    dx.fill(0)
    if indices.size:
        np.put_along_axis(dx, indices, dout, axis)


def torch_put(torch: Any, x: Any, indices: Any, dout: Any, axis: int) -> Any:
    """The same with torch."""
    return torch.zeros(tuple(x.shape), dtype=dout.dtype, device=dout.device).scatter(axis, indices, dout)


def split_rows(count: int, x: Meta, axis: int) -> list[Tile] | None:
    """Tiles along an axis that is not sorted."""
    return cut_together(count, x.shape, (normalize_axis(axis, x.rank),)) if x.rank else None


def check_k(k: int, x: Meta, axis: int) -> int:
    """Returns the positive axis.

    Raises:
        ShapeError: If the axis has fewer than ``k`` elements, or ``k`` is not positive.
    """
    at = normalize_axis(axis, x.rank)
    size = x.shape[at] if x.rank else 1
    if k < 1 or (size >= 0 and k > size):
        raise ShapeError(
            f"k is out of range for axis {at}",
            expected=f"k from 1 to {size}" if size >= 0 else "k of at least 1",
            received=k,
            fix="choose a smaller k" if k > 1 else "choose a positive k",
        )
    return at


def with_size(x: Meta, axis: int, size: int | None) -> Meta:
    """The metadata with another size along an axis, or without it."""
    middle: Sequence[int] = () if size is None else (size,)
    return x.with_shape((*x.shape[:axis], *middle, *x.shape[axis + 1 :])) if x.rank else x


def grad_is_gather(ctx: GradContext) -> list[OpSpec]:
    """Gradient of the gradient of a selection by order: the new gradient read at the same positions."""
    wanted = ctx.in_grads.get(ctx.inputs["Out@GRAD"][0])
    arriving = ctx.out_grads.get(ctx.outputs["X@GRAD"][0])
    if wanted is None or arriving is None:
        return []
    inputs = {"Input": [arriving], "Index": ctx.inputs["Indices"]}
    return [OpSpec("take_along_axis", inputs, {"Result": [wanted]}, {"Axis": ctx.attrs["axis"]})]
