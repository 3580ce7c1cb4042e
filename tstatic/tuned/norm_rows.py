"""Batch normalisation of rows with one column per channel: channels last, and plain feature matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tstatic.tuned._common import Array, Buffer, block_rows, blocks, flat, ones

# Rows shorter than this are taken several at a time: an inner loop of a ufunc costs about 10 ns to begin.
_WIDE = 512


def _height(rows: int, channels: int) -> int:
    """Returns the rows per block."""
    return max(1, min(rows, block_rows(channels)))


def _together(channels: int) -> int:
    return max(1, _WIDE // max(1, channels))


def batch_norm_rows_scratch(rows: int, channels: int, dtype: np.dtype[np.floating]) -> tuple[Buffer, ...]:
    """Returns the scratch buffers of these kernels: a block, four repeated rows, four sums."""
    block = _height(rows, channels) * channels
    repeated = 4 * _together(channels) * channels
    return ((block,), dtype), ((repeated,), dtype), ((4 * channels,), dtype)


def _blocks(rows: int, channels: int) -> Iterator[slice]:
    return blocks(rows, _height(rows, channels))


class _Repeated:
    """Rows of parameters, repeated so that a ufunc's inner loop runs over several rows of data."""

    def __init__(self, channels: int, buffer: Array) -> None:
        self.channels, self.times = channels, _together(channels)
        self.rows = flat(buffer, (4, self.times, channels))

    def put(self, index: int, row: Array) -> None:
        # Broadcast over the repetitions.
        np.copyto(self.rows[index], row)

    def each(self, arrays: Sequence[Array]) -> Iterator[tuple[Array, ...]]:
        """Yields data in groups of as many rows as were repeated, then what is left row by row.

        Each item ends with the parameter rows that fit it, in the order of :meth:`put`.
        """
        count = len(arrays[0])
        # Rows can be joined only where nothing lies between them.
        whole = count - count % self.times if all(a.flags.c_contiguous for a in arrays) else 0
        if whole:
            yield *(a[:whole].reshape(-1, self.times * self.channels) for a in arrays), self.rows.reshape(4, -1)
        if whole < count:
            yield *(a[whole:] for a in arrays), self.rows[:, 0]


def _add_columns(matrix: Array, total: Array, buffer: Array) -> None:
    """``total += matrix.sum(0)``."""
    # A product with ones is faster than `add.reduce` (ops/base/sum.py has the numbers).
    np.matmul(ones(len(matrix), matrix.dtype), matrix, out=buffer)
    np.add(total, buffer, total)


def batch_norm_rows(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    y: Array,
    mean: Array,
    variance: Array,
    inverse: Array,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    """``y = (x - mean) * inverse * scale + bias`` by column, with the columns' own mean and biased variance.

    Args:
        x: ``[rows, c]``, at least one row.
        scale, bias: ``[c]`` or ``None``.
        y: ``[rows, c]``, written; may be ``x``.
        mean, variance, inverse: ``[c]``, written; ``inverse = 1 / sqrt(variance + epsilon)``.
        epsilon: Added to the variance.
        scratch: Buffers from :func:`batch_norm_rows_scratch`.
    """
    rows, channels = x.shape
    count, part = np.asarray(rows, x.dtype), scratch[2][:channels]
    repeated = _Repeated(channels, scratch[1])
    # Two passes, the mean first: one pass with sums of squares would cancel where the mean is large.
    mean.fill(0)
    for block in _blocks(rows, channels):
        _add_columns(x[block], mean, part)
    np.divide(mean, count, mean)
    repeated.put(0, mean)
    variance.fill(0)
    for block in _blocks(rows, channels):
        centered = flat(scratch[0], x[block].shape)
        for source, target, row in repeated.each((x[block], centered)):
            np.subtract(source, row[0], target)
            np.multiply(target, target, target)
        _add_columns(centered, variance, part)
    np.divide(variance, count, variance)
    np.add(variance, np.asarray(epsilon, x.dtype), inverse)
    np.sqrt(inverse, inverse)
    np.reciprocal(inverse, inverse)
    repeated.put(1, inverse if scale is None else np.multiply(inverse, scale, part))
    if bias is not None:
        repeated.put(2, bias)
    for block in _blocks(rows, channels):
        for source, target, row in repeated.each((x[block], y[block])):
            np.subtract(source, row[0], target)
            np.multiply(target, row[1], target)
            if bias is not None:
                np.add(target, row[2], target)


def batch_norm_rows_grad(
    x: Array,
    scale: Array | None,
    mean: Array,
    inverse: Array,
    dy: Array,
    dx: Array | None,
    dscale: Array | None,
    dbias: Array | None,
    scratch: Sequence[Array],
    global_statistics: bool = False,
) -> None:
    """Computes the gradients of :func:`batch_norm_rows`; formulas as in ``batch_norm_grad``.

    Args:
        x, dy: ``[rows, c]``, at least one row.
        scale: ``[c]`` or ``None``.
        mean, inverse: ``[c]``: the statistics that the forward pass used.
        dx: ``[rows, c]``, written unless ``None``; may be ``dy``.
        dscale, dbias: ``[c]``, written unless ``None``.
        scratch: Buffers from :func:`batch_norm_rows_scratch`.
        global_statistics: The statistics did not depend on ``x``.
    """
    rows, channels = x.shape
    given, along, factor, part = flat(scratch[2], (4, channels))
    repeated = _Repeated(channels, scratch[1])
    repeated.put(0, mean)
    if dscale is not None or dbias is not None or not global_statistics:
        # Blocks add to them in order.
        given.fill(0)
        along.fill(0)
        for block in _blocks(rows, channels):
            gradient = dy[block]
            _add_columns(gradient, given, part)
            product = flat(scratch[0], gradient.shape)
            for source, slope, target, row in repeated.each((x[block], gradient, product)):
                np.subtract(source, row[0], target)
                np.multiply(target, slope, target)
            _add_columns(product, along, part)
        np.multiply(along, inverse, along)
    if dbias is not None:
        np.copyto(dbias, given)
    if dscale is not None:
        np.copyto(dscale, along)
    if dx is None:
        return
    np.multiply(inverse, 1 if scale is None else scale, factor)
    repeated.put(1, factor)
    if global_statistics:
        for block in _blocks(rows, channels):
            for slope, target, row in repeated.each((dy[block], dx[block])):
                np.multiply(slope, row[1], target)
        return
    count = np.asarray(rows, x.dtype)
    np.multiply(along, inverse, along)
    for index, row in ((2, np.divide(along, count, along)), (3, np.divide(given, count, given))):
        repeated.put(index, row)
    for block in _blocks(rows, channels):
        # Recomputed from x: keeping the normalised rows of the first pass would take a buffer of the size of x.
        work = flat(scratch[0], x[block].shape)
        for source, slope, target, kept, row in repeated.each((x[block], dy[block], dx[block], work)):
            np.subtract(source, row[0], kept)
            np.multiply(kept, row[2], kept)
            np.add(kept, row[3], kept)
            np.subtract(slope, kept, target)
            np.multiply(target, row[1], target)
