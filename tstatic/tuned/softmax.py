"""Softmax, log-softmax and softmax with cross entropy over rows, in blocks that stay in cache.

Rows are ``[..., length]`` reshaped to ``[rows, length]`` by the caller; another axis is moved last by a view. Row sums
are products with a vector of ones (0.05 ns a value); rows may be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tstatic.tuned._common import Array, Buffer, block_rows, blocks, flat, ones

SHORT = 24
"""Rows up to this length are reduced column by column: a reduction starts anew for each row, at 45 ns a row."""

LARGE = 60.0
"""Exponentials of numbers up to this do not overflow, nor does their sum. If the sum of each row is at least 0.5 besides,
nothing that counts underflows, and the maximum need not be subtracted: 0.8 ns an element instead of 1.5."""


def rows_scratch(rows: int, length: int, dtype: np.dtype[np.floating]) -> tuple[Buffer, ...]:
    """Returns the scratch buffers of every kernel here: one block of values, and three values per row of a block."""
    size = min(rows, block_rows(length))
    return ((size * length,), dtype), ((3 * size,), dtype)


def _row_blocks(first: Array, *others: Array | None) -> Iterator[list[Any]]:
    """Yields the same rows of all arrays, block by block; ``None`` stays, and arrays without elements have no blocks."""
    if first.size:
        for block in blocks(len(first), block_rows(first.shape[1])):
            yield [None if a is None else a[block] for a in (first, *others)]


def _columns(scratch: Sequence[Array], rows: int) -> tuple[Array, Array, Array]:
    """Returns three vectors with one value per row."""
    part = scratch[1]
    return part[:rows], part[rows : 2 * rows], part[2 * rows : 3 * rows]


@lru_cache(maxsize=64)
def _starts(rows: int, length: int) -> Array:
    """Returns where each row begins in a contiguous block."""
    offsets = np.arange(0, rows * length, length, dtype=np.intp)
    offsets.setflags(write=False)
    return offsets


def _peaks(x: Array, peak: Array) -> None:
    """Writes the largest value of each row."""
    if x.shape[1] <= SHORT:
        # Rows of 16: 0.7 ns a value, a reduction along them 3.1.
        np.copyto(peak, x[:, 0])
        for column in range(1, x.shape[1]):
            np.maximum(peak, x[:, column], out=peak)
    elif x.flags.c_contiguous:
        # Two thirds of the time of ``reduce`` over an axis, which sets up each row anew.
        np.maximum.reduceat(x.reshape(-1), _starts(*x.shape), out=peak)
    else:
        np.maximum.reduce(x, axis=1, out=peak)


def _shifted(x: Array, out: Array, peak: Array) -> None:
    """Computes ``out = x - max(x)`` by row; a NaN makes its whole row NaN."""
    _peaks(x, peak)
    np.subtract(x, peak[:, None], out)


def _sum(x: Array, out: Array) -> None:
    """Writes row sums; rows with strides of their own take the slow path inside ``matmul``."""
    np.matmul(x, ones(x.shape[1], x.dtype), out=out)


def softmax(x: Array, out: Array, scratch: Sequence[Array]) -> None:
    """Computes ``out = exp(x - max(x)) / sum(exp(x - max(x)))`` by row.

    Args:
        x: ``[rows, length]``.
        out: ``[rows, length]``, written; may be ``x``.
        scratch: Buffers from :func:`rows_scratch`.
    """
    for source, target in _row_blocks(x, out):
        peak, total, _ = _columns(scratch, len(target))
        # Not into ``out``, which may be ``x``: the exponentials may have to be taken once more.
        powers = flat(scratch[0], target.shape)
        # One reduction over the whole block costs 0.05 ns a value, the exponentials 0.44. A NaN compares false and takes the
        # safe path.
        if np.maximum.reduce(source, axis=None) <= LARGE:
            np.exp(source, powers)
            _sum(powers, total)
            # A smaller sum may have lost terms to underflow that shifted ones keep.
            if np.minimum.reduce(total) >= 0.5:
                np.divide(powers, total[:, None], target)
                continue
        _shifted(source, powers, peak)
        np.exp(powers, powers)
        _sum(powers, total)
        np.divide(powers, total[:, None], target)


def softmax_grad(out: Array, dout: Array, dx: Array, scratch: Sequence[Array]) -> None:
    """Computes ``dx = out * (dout - sum(dout * out))`` by row.

    Args:
        out: The softmax, ``[rows, length]``.
        dout: Its gradient.
        dx: ``[rows, length]``, written; may be ``dout``.
        scratch: Buffers from :func:`rows_scratch`.
    """
    for y, dy, target in _row_blocks(out, dout, dx):
        dot, _, _ = _columns(scratch, len(y))
        # A dot product costs 0.1 ns a value in long rows, where it saves writing the products (0.18), but 0.8 in rows of 16
        # (0.24 by way of the products), because it is called anew for each.
        if y.shape[1] <= SHORT:
            product = flat(scratch[0], y.shape)
            np.multiply(y, dy, product)
            _sum(product, dot)
        else:
            np.vecdot(y, dy, out=dot)
        np.subtract(dy, dot[:, None], target)
        np.multiply(target, y, target)


def log_softmax(x: Array, out: Array, scratch: Sequence[Array]) -> None:
    """Computes ``out = x - max(x) - log(sum(exp(x - max(x))))`` by row.

    Args:
        x: ``[rows, length]``.
        out: ``[rows, length]``, written; may be ``x``.
        scratch: Buffers from :func:`rows_scratch`.
    """
    for source, target in _row_blocks(x, out):
        peak, total, _ = _columns(scratch, len(target))
        _shifted(source, target, peak)
        # The shifted values stay in ``out``, since the logarithm of the sum is subtracted from them.
        powers = flat(scratch[0], target.shape)
        np.exp(target, powers)
        _sum(powers, total)
        np.log(total, total)
        np.subtract(target, total[:, None], target)


def log_softmax_grad(out: Array, dout: Array, dx: Array, scratch: Sequence[Array]) -> None:
    """Computes ``dx = dout - exp(out) * sum(dout)`` by row.

    Args:
        out: The log-softmax, ``[rows, length]``.
        dout: Its gradient.
        dx: ``[rows, length]``, written; may be ``dout``.
        scratch: Buffers from :func:`rows_scratch`.
    """
    for y, dy, target in _row_blocks(out, dout, dx):
        total, _, _ = _columns(scratch, len(dy))
        _sum(dy, total)
        # ``dx`` may be ``dout``, which is read once more at the end.
        powers = flat(scratch[0], dy.shape)
        np.exp(y, powers)
        np.multiply(powers, total[:, None], powers)
        np.subtract(dy, powers, target)


def cross_entropy(
    logits: Array, label: Array, out: Array | None, loss: Array, ignore: int, scratch: Sequence[Array]
) -> None:
    """Computes the softmax and its cross entropy with class numbers: ``loss = log(sum(exp(x - max))) - (x[label] - max)`` by row.

    Args:
        logits: ``[rows, length]``.
        label: Class numbers in ``[0, length)``, ``[rows]``, any integer type; a row whose label is ``ignore`` has
            loss 0. Another number outside the range gives loss NaN.
        out: The softmax, ``[rows, length]``, written unless ``None``.
        loss: ``[rows]``, written.
        ignore: The label to be ignored.
        scratch: Buffers from :func:`rows_scratch`.
    """
    length = logits.shape[1]
    if length == 0:
        loss.fill(0)
        return
    for x, classes, kept, place in _row_blocks(logits, label, out, loss):
        peak, total, picked = _columns(scratch, len(x))
        target = flat(scratch[0], x.shape) if kept is None else kept
        _shifted(x, target, peak)
        # Classes out of range are clipped to read something, 25 ns a row in all; what they read is replaced below.
        index = np.clip(classes, 0, length - 1).astype(np.intp)
        # Before the exponentials overwrite the shifted logits: no buffer is needed beside the softmax itself.
        picked[:] = target[np.arange(len(x)), index]
        np.exp(target, target)
        _sum(target, total)
        if kept is not None:
            np.divide(target, total[:, None], target)
        # The loss from the sum, not from the softmax, whose logarithm is minus infinity where it underflows to 0.
        np.log(total, total)
        np.subtract(total, picked, out=place)
        place[(classes < 0) | (classes >= length)] = np.nan
        place[classes == ignore] = 0


def cross_entropy_grad(
    out: Array, label: Array, dloss: Array, dlogits: Array, ignore: int, scratch: Sequence[Array]
) -> None:
    """Computes ``dlogits = (softmax - onehot(label)) * dloss`` by row, 0 in ignored rows.

    Args:
        out: The softmax, ``[rows, length]``.
        label, ignore: As in :func:`cross_entropy`.
        dloss: ``[rows]``.
        dlogits: ``[rows, length]``, written; may be ``out``.
        scratch: Buffers from :func:`rows_scratch`.
    """
    length = out.shape[1]
    for y, classes, dy, target in _row_blocks(out, label, dloss, dlogits):
        weight, _, _ = _columns(scratch, len(target))
        np.copyto(weight, dy)
        ignored = classes == ignore
        weight[ignored] = 0
        # The one-hot matrix is never made: one pass over the rows, then one value in each.
        np.multiply(y, weight[:, None], target)
        row = np.flatnonzero(~ignored & (classes >= 0) & (classes < length))
        target[row, classes[row]] -= weight[row]
        # A softmax that is NaN, times the weight 0, is NaN still.
        if ignored.any():
            target[ignored] = 0


def soft_cross_entropy(logits: Array, label: Array, out: Array | None, loss: Array, scratch: Sequence[Array]) -> None:
    """Computes the softmax and its cross entropy with a distribution: ``loss = -sum(label * log_softmax(logits))`` by row.

    Args:
        logits, label: ``[rows, length]``.
        out: The softmax, ``[rows, length]``, written unless ``None``.
        loss: ``[rows]``, written.
        scratch: Buffers from :func:`rows_scratch`.
    """
    if logits.shape[1] == 0:
        loss.fill(0)
        return
    for x, weights, kept, place in _row_blocks(logits, label, out, loss):
        peak, total, dot = _columns(scratch, len(x))
        target = flat(scratch[0], x.shape) if kept is None else kept
        _shifted(x, target, peak)
        np.vecdot(target, weights, out=dot)
        np.exp(target, target)
        _sum(target, total)
        if kept is not None:
            np.divide(target, total[:, None], target)
        # sum(label) * log(total) - sum(label * (x - max)): the logits need not be kept.
        np.log(total, total)
        _sum(weights, peak)
        np.multiply(total, peak, total)
        np.subtract(total, dot, place)


def soft_cross_entropy_grad(out: Array, label: Array, dloss: Array, dlogits: Array, scratch: Sequence[Array]) -> None:
    """Computes ``dlogits = (softmax * sum(label) - label) * dloss`` by row.

    Args:
        out: The softmax, ``[rows, length]``.
        label: ``[rows, length]``.
        dloss: ``[rows]``.
        dlogits: ``[rows, length]``, written; may be ``out``.
        scratch: Buffers from :func:`rows_scratch`.
    """
    for y, weights, dy, target in _row_blocks(out, label, dloss, dlogits):
        total, _, _ = _columns(scratch, len(target))
        _sum(weights, total)
        np.multiply(y, total[:, None], target)
        np.subtract(target, weights, target)
        np.multiply(target, dy[:, None], target)
