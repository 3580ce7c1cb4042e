"""Rows by index: what gather and scatter ops share, and adding rows into a table in an order that depends on the indices alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.checks import ANY_RANK, INTEGERS, check_dtype, check_rank, check_size
from tstatic.ir.opdef import WHOLE, Tile
from tstatic.ir.split import COLUMNS, equal, tiles
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.shapes import Array


# --------------------------------------------------------------------------------------------------------------- checks
def check_positions(index: Meta, arg: str) -> None:
    """Refuses what does not name entries along an axis: integers of shape ``[n]``, ``[n, 1]`` or ``[]``.

    Raises:
        DTypeError, ShapeError: Say what was expected.
    """
    fix = "flatten the index, or use paddle.gather_nd, paddle.scatter_nd_add or paddle.take_along_axis"
    check_dtype(index, INTEGERS, arg)
    check_rank(index, (0, 1, 2), arg, layout="positions of shape [], [n] or [n, 1]", fix=fix)
    if index.rank == 2:
        check_size(index, 1, 1, arg, why="positions of shape [n, 1]", fix=fix)


def check_coordinates(x: Meta, index: Meta) -> int:
    """Returns how many axes of ``x`` the coordinates in the last axis of an index are for.

    Raises:
        DTypeError, ShapeError: If that is not known, or ``x`` has fewer axes.
    """
    check_dtype(index, INTEGERS, "Index")
    check_rank(index, range(1, ANY_RANK), "Index")
    depth = index.shape[-1]
    if depth == UNKNOWN or depth > x.rank:
        raise ShapeError(
            "the last axis of Index holds coordinates, one for each of the first axes of X, and its size must be known",
            expected=f"a last size of at most {x.rank}",
            received=f"Index of shape {list(index.shape)} for X of shape {list(x.shape)}",
            fix="check the last axis of the index",
        )
    return depth


# -------------------------------------------------------------------------------------------------- reading by position
def take(x: Array, index: Array, axis: int, out: Array) -> None:
    """Computes ``out = x[..., index, ...]`` along an axis; ``index`` is checked already and has one dimension."""
    if out.size == 0:
        return
    if x.flags.c_contiguous and out.flags.c_contiguous:
        # "clip", because "raise" would go through a buffer.
        np.take(x, index, axis=axis, out=out, mode="clip")
    else:
        np.copyto(out, np.take(x, index, axis=axis))


def take_nd(x: Array, index: Array, out: Array) -> None:
    """Computes ``out[i] = x[index[i]]``: the last axis of ``index`` holds coordinates, negative ones from the end."""
    depth = index.shape[-1]
    flat = flat_index(x.shape, index)
    if out.size == 0:
        return
    if out.flags.c_contiguous and x.flags.c_contiguous:
        # np.take writes straight to the target, where indexing by arrays makes a copy first.
        rest = x.shape[depth:]
        np.take(x.reshape(-1, *rest), flat, axis=0, out=out.reshape(-1, *rest), mode="clip")
    else:
        # Without a flat view of x each axis is indexed by its own coordinates, none of which is negative any more.
        places = np.unravel_index(flat, x.shape[:depth]) if depth else ()
        np.copyto(out, x[tuple(p.reshape(index.shape[:-1]) for p in places)] if depth else x)


def flat_index(shape: Sequence[int], index: Array) -> Array:
    """Returns row numbers from coordinates.

    Args:
        shape: Shape of the value that is indexed.
        index: ``[..., k]`` coordinates into its first ``k`` axes, negative ones from the end.
    """
    flat = np.zeros(math.prod(index.shape[:-1]), np.int64)
    for size, column in zip(shape, np.moveaxis(index, -1, 0), strict=False):
        line = column.reshape(-1)
        # Horner's scheme: what the axes before this one select moves on by whole rows of it.
        flat *= size
        flat += line
        if line.size and int(line.min()) < 0:
            flat += np.where(line < 0, size, 0)
    return flat


def add_nd(out: Array, index: Array, rows: Array, *, fresh: bool = False) -> None:
    """Computes ``out[index[i]] += rows[i]`` where the last axis of ``index`` holds coordinates."""
    flat = flat_index(out.shape, index)
    _add_to(out, (-1, *out.shape[index.shape[-1] :]), flat, rows, fresh)


def _add_to(out: Array, shape: Sequence[int], flat: Array, rows: Array, fresh: bool) -> None:
    """Adds rows to an array read in another shape, through a copy where its strides forbid that."""
    if rows.size == 0 or out.size == 0:
        return
    # Adding by flat index needs a view in another shape, which other strides do not have.
    table = out if out.flags.c_contiguous else out.copy(order="C")
    add_rows(table.reshape(shape), flat, rows.reshape(shape), fresh=fresh)
    if table is not out:
        np.copyto(out, table)


def split_columns(x: Meta, index: Meta, dout: Meta, dx: Meta, axis: int) -> list[Tile] | None:
    """Cuts a gather's gradient along axis 0 into ranges of the columns.

    Every tile sorts the indices again, which costs less than a buffer of the table's size for each range of rows.
    """
    if axis != 0 or x.rank < 2 or index.rank != 1 or x.numel == 0:
        return None
    # At least 64 columns, 256 bytes of float32. Of 8,192 rows of 768 into a table of 50,304, tiles of 64 columns took 98 ms of
    # processor time together, of 32 columns 134, of 256 columns 51; without tiles it was 31.
    # The table is cleared, the rows are read and added.
    width, work = x.shape[1], dx.numel + 2 * dout.numel
    count = min(width // min(64, COLUMNS.size), COLUMNS.count(work))
    return tiles(equal(width, count), 1, WHOLE, 1, 1) if count > 1 else None


def torch_add(torch: Any, shape: Sequence[int], axis: int, index: Any, rows: Any) -> Any:
    """Adds rows by index to zeros of ``shape``, in float32 at least."""
    wide = torch_wide(rows)
    zeros = torch.zeros(tuple(shape), dtype=wide.dtype, device=rows.device)
    return zeros.index_add(axis, index.to(torch.int64), wide).to(rows.dtype)


def positions(shape: Sequence[int], index: Array, axis: int) -> Array:
    """Returns flat positions, in a value of ``shape``, that an index along an axis points to."""
    flat = np.zeros(index.shape, np.int64)
    stride = 1
    # Strides of C order grow from the last axis on; beside the axis every entry keeps its own coordinate.
    for d in range(len(shape) - 1, -1, -1):
        line = index if d == axis else np.arange(index.shape[d]).reshape((-1, *[1] * (len(shape) - 1 - d)))
        flat += line * stride
        stride *= shape[d]
    return flat.reshape(-1)


def add_flat(out: Array, flat: Array, values: Array, *, fresh: bool = False) -> None:
    """Adds values at flat positions; equal ones add up in order."""
    _add_to(out, (-1,), flat, values, fresh)


# --------------------------------------------------------------------------------------------------------- overwriting
def stays(index: Array, size: int) -> Array:
    """Returns which entries are the last of their position: of several values for one position the last one stays."""
    order = np.arange(index.shape[0])
    # Positions that nothing points to are never read, so they need no start value.
    last = np.empty(size, np.int64)
    last[index] = order
    return np.asarray(last[index] == order)


def torch_last(torch: Any, index: Any, size: int) -> Any:
    """Returns for each position the number of the value that stays, or -1.

    The same on every device, unlike a plain scatter, which writes equal positions in any order.
    """
    order = torch.arange(index.numel(), device=index.device)
    last = torch.full((size,), -1, dtype=torch.int64, device=index.device)
    return last.scatter_reduce(0, index, order, "amax")


def torch_stays(torch: Any, index: Any, size: int) -> Any:
    """Does what :func:`stays` does, with torch."""
    return torch_last(torch, index, size)[index] == torch.arange(index.numel(), device=index.device)


# ---------------------------------------------------------------------------------------------------------- adding rows

# Elements moved at once, so that a block of rows stays in the L2 cache.
_BLOCK = 1 << 16
# Below this number of elements ``np.add.at`` beats a sort.
_SMALL = 1 << 12
# Indices that occur at most this often are added one occurrence at a time, all of them together.
_ROUNDS = 4
# From this width on a sum of slices beats ``np.add.reduceat`` (which costs about 5 ns per segment and column).
_WIDE = 128


def add_rows(out: Array, index: Array, rows: Array, *, fresh: bool = False, of: int = 0) -> None:
    """Adds ``rows[k]`` to ``out[index[k]]`` for every ``k``; an index may occur many times.

    The result depends on the values alone: rows of one index are added in their order (for narrow
    rows in float64, rounded once). 2,048 rows of 256 into a table of 30,000 take 0.4 ms where ``np.add.at`` takes 4.6.

    Args:
        out: ``[n, ...]``, float32 or float64 (any type for small inputs); low-precision callers pass a float32 buffer.
        index: ``[m]`` integers in ``[0, n)``; the caller has checked them.
        rows: ``[m, ...]`` with the trailing sizes of ``out``.
        fresh: ``out`` holds zeros only, so nothing needs to be read.
        of: ``out`` holds some rows of a table of so many: the sums then have the bits that the whole table would have.
    """
    m, n = index.shape[0], of or out.shape[0]
    if rows.size == 0:
        return
    width = rows.size // m
    plain = rows.size <= _SMALL or out.dtype.kind != "f" or out.dtype.itemsize < 4
    # bincount makes all sums of the table, which pays while that is not much larger than the rows.
    if not plain and width <= 16 and n * width <= 4 * rows.size:
        _count(out, index, rows, width)
        return
    if plain or width <= 2:
        np.add.at(out, index, rows)
        return
    # Stable, so that rows of one index are added in their order.
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    new = np.empty(m, bool)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    counts = np.diff(starts, append=m)
    heavy = counts > _ROUNDS
    light = ~heavy
    _rounds(out, rows, order, ordered, starts[light], counts[light], fresh)
    if heavy.any():
        _segments(out, rows, order, ordered, starts[heavy], counts[heavy], width)


def _count(out: Array, index: Array, rows: Array, width: int) -> None:
    """Adds narrow rows: numpy's bincount sums in float64, one pass and no sort."""
    n = out.shape[0]
    flat = index if width == 1 else (index[:, None] * width + np.arange(width)).reshape(-1)
    sums = np.bincount(flat, weights=rows.reshape(-1), minlength=n * width)
    np.add(out, sums.reshape(out.shape), out=out, casting="same_kind")


def _rounds(out: Array, rows: Array, order: Array, ordered: Array, starts: Array, counts: Array, fresh: bool) -> None:
    """Adds the first, then the second, ... occurrence of every rare index: within a round all indices differ."""
    step = max(1, _BLOCK * rows.shape[0] // rows.size)
    for k in range(int(counts.max(initial=0))):
        at = starts[counts > k] + k
        for low in range(0, at.shape[0], step):
            here = at[low : low + step]
            target = ordered[here]
            block = rows[order[here]]
            # 0 + -0 is 0: adding a zero keeps the sign that a sum into zeros has.
            block += 0 if fresh and k == 0 else out[target]
            out[target] = block


def _segments(out: Array, rows: Array, order: Array, ordered: Array, starts: Array, counts: Array, width: int) -> None:
    """Sums all rows of each frequent index, then adds the sum."""
    if width >= _WIDE:
        step = max(_ROUNDS, _BLOCK // width)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            # A view: += writes to the table. Blocks bound the copies that indexing makes.
            target = out[ordered[start]]
            for low in range(start, start + count, step):
                target += rows[order[low : min(low + step, start + count)]].sum(axis=0)
        return
    # reduceat adds up neighbours: the rows of each frequent index are gathered one after the other first.
    first = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(first, counts)
    picked = order[np.repeat(starts, counts) + within]
    target = ordered[starts]
    out[target] += np.add.reduceat(rows[picked], first, axis=0)


def torch_groups(torch: Any, index: Any) -> tuple[Any, Any, Any]:
    """Returns a vector of whole numbers in order, where each stood, and the number of its group of equals, from 0; asks no host."""
    ordered, order = index.sort(stable=True)
    number = torch.cat([torch.zeros_like(index[:1]), (ordered[1:] != ordered[:-1]).cumsum(0)])
    return ordered, order, number
