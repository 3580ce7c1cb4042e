"""Matrix products of any ranks as ready ``np.matmul`` calls, their gradients, and how both are cut into tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tstatic.ir.checks import ANY_RANK, check_dtype, check_rank, check_same_dtype
from tstatic.ir.evaluate import meta_of
from tstatic.ir.opdef import WHOLE, Cost, Tile
from tstatic.ir.ref import Calls
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.split import PRODUCTS, equal, tiles
from tstatic.ir.types import UNKNOWN, Meta, Shape, broadcast_shapes
from tstatic.ops.base.call_ref import float_scratch
from tstatic.ops.base.shapes import spread_axes, view_of
from tstatic.ops.base.sum import sum_calls, sum_scratch

NUMBERS = ("float32", "float64", "float16", "bfloat16", "int32", "int64")


# -------------------------------------------------------------------------------------------------------------- shapes
def same_dtype(x: Meta, y: Meta, names: tuple[str, str] = ("X", "Y")) -> None:
    """Refuses operands that differ in dtype, or cannot be multiplied.

    Raises:
        DTypeError: Names the dtypes.
    """
    for name, meta in zip(names, (x, y), strict=True):
        check_dtype(meta, NUMBERS, name)
    check_same_dtype((x, y), names)


def product_shape(x: Meta, y: Meta, trans_x: bool = False, trans_y: bool = False) -> Shape:
    """Returns the shape of ``x @ y`` by torch's rules: ``trans_x`` and ``trans_y`` do nothing to an operand of rank 1.

    Raises:
        ShapeError: If an operand has rank 0, the inner sizes differ or the batch sizes do not broadcast.
    """
    for name, operand in (("X", x), ("Y", y)):
        layout = "a vector, a matrix or a batch of matrices"
        check_rank(operand, range(1, ANY_RANK), name, layout=layout, fix=f"use multiply, or reshape {name}")
    rows, inner_x = _matrix(x.shape, trans_x, first=True)
    inner_y, columns = _matrix(y.shape, trans_y, first=False)
    check_fit(
        inner_x == inner_y or UNKNOWN in (inner_x, inner_y), (x, y),
        ("X" + " (to be transposed)" * trans_x, "Y" + " (to be transposed)" * trans_y),
        f"X{' transposed' * trans_x} has {inner_x} columns, Y{' transposed' * trans_y} has {inner_y} rows",
        "as many columns as rows: they are summed over", "transpose or reshape one operand",
    )  # fmt: skip
    # The batch broadcasts, the matrices do not.
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return (*batch, *([rows] if x.rank > 1 else []), *([columns] if y.rank > 1 else []))


def _matrix(shape: Shape, transposed: bool, first: bool) -> tuple[int, int]:
    # A vector is a row on the left and a column on the right.
    if len(shape) == 1:
        return (1, shape[0]) if first else (shape[0], 1)
    return (shape[-1], shape[-2]) if transposed else (shape[-2], shape[-1])


def product_cost(x: Meta, y: Meta, out: Meta, trans_x: bool = False) -> Cost:
    """Counts two operations per multiply-add."""
    inner = x.shape[-2] if trans_x and x.rank > 1 else x.shape[-1]
    return Cost(2.0 * out.numel * inner, float(x.nbytes + y.nbytes + out.nbytes))


# --------------------------------------------------------------------------------------------------------------- calls
def swap(x: Any) -> Any:
    """Exchanges the last two axes, as a view."""
    return x.swapaxes(-1, -2)


NARROW, SKINNY = 16, 1e6
"""OpenBLAS has a kernel for products of up to 1e6 multiply-adds on processors with AVX-512. On results of at most 16 columns it is
1.4 to 2 times as fast as the general one, so larger ones are made of several: 128x1024 @ 1024x10 in 44 us, not 66; with AVX2, where
there is no such kernel, in 66, not 63. On wider results it is up to three times slower: 128x768 @ 768x3072 in 14.9 ms, not 4.4."""


def multiply(a: Any, b: Any, out: Any) -> Calls:
    """Returns calls for ``out = a @ b`` with operands of rank 2 or more.

    A batch of matrices times one matrix is a single taller matrix: BLAS packs the second operand once.
    """
    # Axes of size 1 in front only broadcast; without them the batch is one taller matrix.
    while b.ndim > 2 and b.shape[0] == 1 and b.ndim <= out.ndim:
        b = b[0]
    if b.ndim == 2 and a.ndim > 2 and a.size and out.size:
        tall, result = view_of(a, (-1, a.shape[-1])), view_of(out, (-1, out.shape[-1]))
        if tall is not None and result is not None and len(tall) == len(result):
            a, out = tall, result
    # Not of a batch, whose matrices are a call of BLAS each.
    if a.ndim == 2 and b.ndim == 2 and out.shape[1] <= NARROW:
        # Rows are cut so that each part is at most SKINNY multiply-adds.
        count = math.ceil(a.size * out.shape[1] / SKINNY)
        if 1 < count <= 16:
            length = -(-len(a) // count)
            return [(np.matmul, (a[i : i + length], b, out[i : i + length])) for i in range(0, len(a), length)]
    return [(np.matmul, (a, b, out))]


def product_calls(x: Any, y: Any, out: Any, trans_x: bool, trans_y: bool) -> Calls:
    """Returns calls for ``out = op(x) @ op(y)``."""
    if y.ndim == 1:
        # numpy adds the axis itself, but not to `out`; here both are views.
        y, out = y[:, None], out[..., None]
        trans_y = False
    if x.ndim == 1:
        x, out = x[None, :], out[..., None, :]
        trans_x = False
    return multiply(swap(x) if trans_x else x, swap(y) if trans_y else y, out)


def _collapses(x: Sequence[int], y: Sequence[int], trans_x: bool) -> bool:
    """Returns whether the gradient of ``y`` is one product over all rows of the batch."""
    # Of a transposed batch the rows are not one axis in memory, so there is no single matrix.
    return len(y) <= 2 and (len(x) <= 2 or not trans_x)


def gradient_scratch_metas(
    ins: Sequence[Any], outs: Sequence[Any], *, trans_x: bool = False, trans_y: bool = False
) -> tuple[Meta, ...]:
    """Returns buffers of :func:`gradient_calls`: the gradients of operands that were broadcast, before they are added up."""
    x, y, dout = ins
    dx, dy = outs
    needs: tuple[Meta, ...] = ()
    one_x, one_y = (x or dx).rank == 1, (y or dy).rank == 1
    # The batch of the gradient is what is left without the matrices' own axes.
    batch = dout.shape[: dout.rank - (not one_x) - (not one_y)]
    if dx is not None and dx.shape[:-2] != batch:
        full = float_scratch(dx, (*batch, *(dx.shape if not one_x else (1, *dx.shape))[-2:]))
        needs += (full, *sum_scratch(full, spread_axes(full.shape, dx.shape if not one_x else (1, *dx.shape))))
    if dy is not None and dy.shape[:-2] != batch and not _collapses((x or dx).shape, dy.shape, trans_x):
        full = float_scratch(dy, (*batch, *(dy.shape if not one_y else (*dy.shape, 1))[-2:]))
        needs += (full, *sum_scratch(full, spread_axes(full.shape, dy.shape if not one_y else (*dy.shape, 1))))
    return needs


def gradient_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, trans_x: bool = False, trans_y: bool = False
) -> Calls:
    """Returns calls for the gradients of ``op(x) @ op(y)``: ``dx = dout @ op(y)^T`` and ``dy = op(x)^T @ dout``.

    Only ``y`` is read for ``dx`` and only ``x`` for ``dy``, so a tile may leave the other one out.
    """
    x, y, dout = ins
    dx, dy = outs
    if (y if y is not None else dy).ndim == 1:
        y, dy, dout, trans_y = _matrix_view(y, 1), _matrix_view(dy, 1), dout[..., None], False
    if (x if x is not None else dx).ndim == 1:
        x, dx, dout, trans_x = _matrix_view(x, 0), _matrix_view(dx, 0), dout[..., None, :], False
    batch = dout.shape[:-2]
    calls: Calls = []
    buffers = list(scratch)
    if dx is not None:
        # Transposed operands are passed as views: BLAS reads either order, and nothing is copied.
        right = y if trans_y else swap(y)
        # Of a transposed operand the gradient is the transposed product, (a @ b)^T = b^T @ a^T: views alone.
        a, b = (swap(right), swap(dout)) if trans_x else (dout, right)
        calls += _reduced(a, b, dx, batch, buffers)
    if dy is not None:
        # One product instead of one per matrix and a sum of them: it also rounds once.
        if dy.ndim == 2 and dy.shape[:-2] != batch and not trans_x:
            calls += _collapsed(x, dout, dy, trans_y)
        else:
            left = x if trans_x else swap(x)
            a, b = (swap(dout), swap(left)) if trans_y else (left, dout)
            calls += _reduced(a, b, dy, batch, buffers)
    return calls


def _matrix_view(vector: Any, axis: int) -> Any:
    return None if vector is None else np.expand_dims(vector, axis)


def _reduced(a: Any, b: Any, out: Any, batch: Shape, buffers: list[Any]) -> Calls:
    """Returns calls for ``out = a @ b``, added up over the axes of the batch along which the operand was broadcast."""
    if out.shape[:-2] == batch:
        return multiply(a, b, out)
    full = buffers.pop(0)
    axes = spread_axes(full.shape, out.shape)
    count = len(sum_scratch(meta_of(full), axes))
    partial = [buffers.pop(0) for _ in range(count)]
    return [*multiply(a, b, full), *sum_calls(full, axes, out, partial)]


def _collapsed(x: Any, dout: Any, dy: Any, trans_y: bool) -> Calls:
    """Returns calls for the gradient of one matrix that a whole batch was multiplied with: a product over all their rows."""
    tall, grads = (
        view_of(x, (-1, x.shape[-1])) if x.size else None,
        view_of(dout, (-1, dout.shape[-1])) if dout.size else None,
    )
    if tall is None or grads is None or len(tall) != len(grads):
        return [(_collapsed_copy, (x, dout, dy, trans_y))]
    return multiply(grads.T, tall, dy) if trans_y else multiply(tall.T, grads, dy)


def _collapsed_copy(x: Any, dout: Any, dy: Any, trans_y: bool) -> None:
    """Does the same for strides that need copies, and for batches that ``x`` broadcasts to."""
    # One call at run time: the copies need memory that no plan has reserved.
    rows = math.prod(dout.shape[:-1])
    tall = np.broadcast_to(x, (*dout.shape[:-1], x.shape[-1])).reshape(rows, x.shape[-1])
    grads = dout.reshape(rows, dout.shape[-1])
    np.matmul(grads.T, tall, dy) if trans_y else np.matmul(tall.T, grads, dy)


# -------------------------------------------------------------------------------------------------------------- tiles
def tile_count(flops: float) -> int:
    """Returns the number of tiles of a product; it depends on the work alone, so that results do not depend on the threads."""
    # Steps at 4, 320, 512 and 4,096 MFLOP: powers of two, so that two, four or eight threads end together.
    if flops < PRODUCTS.size:
        return 1
    if flops < 80 * PRODUCTS.size:
        return 2
    if flops < 128 * PRODUCTS.size:
        return 4
    return 8 if flops < 1024 * PRODUCTS.size else 16


class SplitAxis(NamedTuple):
    """One way to cut ``out = a @ b``.

    Attributes:
        weight: How many rows, columns or matrices there are; the heaviest is taken, what is packed twice is then small.
        out: The axis of the result that is cut.
        a, b: The axis of each operand that goes with it, or ``WHOLE``.
        align: Tiles are multiples of this: BLAS works on 16 columns at a time.
    """

    weight: int
    out: int
    a: Any
    b: Any
    align: int = 16


def cut(
    out: Meta, flops: float, candidates: Sequence[SplitAxis], slots: Callable[[Any, Any, Any], Sequence[Any]]
) -> list[Tile]:
    """Returns the tiles of a product, perhaps a single one.

    Args:
        out: The result.
        flops: Its operations.
        candidates: The axes along which it may be cut.
        slots: The entries of all slots from those of ``a``, ``b`` and ``out``.
    """
    count = tile_count(flops)
    # The operand that is not cut is packed by every tile: the longest axis makes that the smaller one.
    best = max(candidates, key=lambda w: w.weight)
    # A tile of 16 rows or columns fills a cache line of float32.
    parts = equal(out.shape[best.out], count, best.align) if count > 1 and out.shape[best.out] > 1 else []
    if len(parts) < 2:
        return [tuple(slots(WHOLE, WHOLE, WHOLE))]
    return tiles(parts, *slots(best.a, best.b, best.out)) or []


def _batch_axis(target: Meta, out: Meta, a: Meta, b: Meta) -> list[SplitAxis]:
    """Returns the longest axis of the batch that ``target`` has whole, if it gives at least four tiles."""
    shapes = [(1,) * (out.rank - m.rank) + m.shape for m in (target, a, b)]
    # Fewer than four matrices would leave threads without work; rows and columns are cut then.
    axes = [i for i in range(out.rank - 2) if out.shape[i] >= 4 and shapes[0][i] == out.shape[i]]
    if not axes:
        return []
    axis = max(axes, key=lambda i: out.shape[i])
    first, second = (axis - out.rank if s[axis] > 1 else WHOLE for s in shapes[1:])
    return [SplitAxis(out.numel, axis - out.rank, first, second, 1)]


def split_product(x: Meta, y: Meta, out: Meta, trans_x: bool = False, trans_y: bool = False) -> list[Tile] | None:
    """Cuts ``op(x) @ op(y)`` over the batch, or over rows or columns of the result."""
    # Products with a vector are bound by memory and stay whole.
    if x.rank < 2 or y.rank < 2 or out.numel <= 0:
        return None
    candidates = [SplitAxis(out.shape[-1], -1, WHOLE, -2 if trans_y else -1)]
    # NOTE: the first of equal weights is taken, so the order of the candidates is part of the result's bits.
    if y.rank > 2:
        candidates += _batch_axis(out, out, x, y)
    elif out.rank > 2:
        candidates += [SplitAxis(out.numel // out.shape[-1], 0, 0, WHOLE, 1)] if out.shape[0] >= 4 else []
    else:
        candidates += [SplitAxis(out.shape[0], 0, -1 if trans_x else 0, WHOLE)]
    found = cut(out, product_cost(x, y, out, trans_x).flops, candidates, lambda *slots: slots)
    return found if len(found) > 1 else None


def split_gradient(
    x: Meta, y: Meta, dout: Meta, dx: Meta | None, dy: Meta | None, trans_x: bool = False, trans_y: bool = False
) -> list[Tile] | None:
    """Cuts the gradients: separate tiles for each of the two."""
    if x.rank < 2 or y.rank < 2 or dout.numel <= 0:
        return None
    flops = product_cost(x, y, dout, trans_x).flops
    # Judged together: two small products in a row are worth two threads.
    if tile_count(flops * ((dx is not None) + (dy is not None))) == 1:
        return None
    inner = x.shape[-2] if trans_x else x.shape[-1]
    found: list[Tile] = []
    if dx is not None:
        candidates = [SplitAxis(inner, -2 if trans_x else -1, WHOLE, -1 if trans_y else -2)]
        if y.rank > 2:
            candidates += _batch_axis(dx, dout, dout, y)
        elif x.rank > 2:
            candidates += [SplitAxis(dout.numel // dout.shape[-1], 0, 0, WHOLE, 1)] if x.shape[0] >= 4 else []
        else:
            candidates += [SplitAxis(dout.shape[0], -1 if trans_x else 0, 0, WHOLE)]
        found += cut(dx, flops, candidates, lambda a, b, out: (None, b, a, out, None))
    if dy is not None:
        candidates = [SplitAxis(dout.shape[-1], -2 if trans_y else -1, WHOLE, -1)]
        if y.rank > 2:
            candidates += _batch_axis(dy, dout, x, dout)
        else:
            candidates += [SplitAxis(inner, -1 if trans_y else -2, -2 if trans_x else -1, WHOLE)]
        found += cut(dy, flops, candidates, lambda a, b, out: (a, None, b, None, out))
    return found if len(found) > 1 else None
