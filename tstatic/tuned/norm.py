"""Layer and batch normalisation, forward and backward: two-pass variances, in blocks that stay in cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tstatic.tuned._common import BLOCK, Array, Buffer, block_rows, blocks, flat, ones


# ----------------------------------------------------------------------------------------------------------- layer norm
def layer_norm_scratch(rows: int, length: int, dtype: np.dtype[np.floating]) -> tuple[Buffer, ...]:
    """Returns the scratch buffers of both layer-norm kernels: two blocks, three values per row of a block."""
    size = min(rows, block_rows(length))
    return ((size * length,), dtype), ((size * length,), dtype), ((3 * size,), dtype)


def layer_norm(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    y: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    """``y = (x - mean) / sqrt(variance + epsilon) * scale + bias`` by row, with the biased variance.

    Args:
        x: ``[rows, length]``; any part of the rows may be given.
        scale, bias: ``[length]`` or ``None``.
        y: ``[rows, length]``, written; may be ``x``.
        mean, variance: ``[rows]``, written.
        epsilon: Added to the variance.
        scratch: Buffers from :func:`layer_norm_scratch`.
    """
    rows, length = x.shape
    # As numpy: the mean of nothing is NaN.
    if length == 0:
        mean.fill(np.nan)
        variance.fill(np.nan)
        return
    vector = ones(length, x.dtype)
    eps, count = np.asarray(epsilon, x.dtype), np.asarray(length, x.dtype)
    for block in blocks(rows, block_rows(length)):
        source, target, center, spread = x[block], y[block], mean[block], variance[block]
        inverse = scratch[2][: len(source)]
        # A product with ones sums rows faster than `add.reduce` (ops/reduce/_sum.py has the numbers).
        np.matmul(source, vector, out=center)
        np.divide(center, count, center)
        np.subtract(source, center[:, None], target)
        # Of differences from the mean: sums of squares less the squared mean would cancel where the mean is large.
        np.vecdot(target, target, out=spread)
        np.divide(spread, count, spread)
        np.add(spread, eps, inverse)
        np.sqrt(inverse, inverse)
        np.reciprocal(inverse, inverse)
        np.multiply(target, inverse[:, None], target)
        if scale is not None:
            np.multiply(target, scale, target)
        if bias is not None:
            np.add(target, bias, target)


def layer_norm_grad(
    x: Array,
    scale: Array | None,
    mean: Array,
    variance: Array,
    dy: Array,
    dx: Array | None,
    dscale: Array | None,
    dbias: Array | None,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    """Computes the gradients of :func:`layer_norm`; ``dscale`` and ``dbias`` are summed over the rows given (a partial sum for a
    part).

    With ``h = (x - mean) * r``, ``r = 1 / sqrt(variance + epsilon)`` and ``g = dy * scale``:
    ``dx = r * (g - mean(g) - h * mean(g * h))``, ``dscale = sum(dy * h)``, ``dbias = sum(dy)``.

    Args:
        x, dy: ``[rows, length]``.
        scale: ``[length]`` or ``None``.
        mean, variance: ``[rows]``.
        dx: ``[rows, length]``, written unless ``None``; may be ``dy``.
        dscale, dbias: ``[length]``, written unless ``None``.
        epsilon: As in the forward pass.
        scratch: Buffers from :func:`layer_norm_scratch`.
    """
    rows, length = x.shape
    for total in (dscale, dbias):
        if total is not None:
            total.fill(0)
    if x.size == 0:
        return
    vector = ones(length, x.dtype)
    eps, count = np.asarray(epsilon, x.dtype), np.asarray(length, x.dtype)
    for block in blocks(rows, block_rows(length)):
        gradient = dy[block]
        size = len(gradient)
        hat, work = flat(scratch[0], gradient.shape), flat(scratch[1], gradient.shape)
        inverse, first, second = (scratch[2][k * size : (k + 1) * size] for k in range(3))
        np.add(variance[block], eps, inverse)
        np.sqrt(inverse, inverse)
        np.reciprocal(inverse, inverse)
        # Without its factor r, which is cheaper to apply to the sums than to the block.
        np.subtract(x[block], mean[block][:, None], hat)
        if not inverse.all():
            # Of a variance that overflows: the normalised row is 0, which the sums over hat would pass over, infinite.
            np.multiply(hat, inverse[:, None], hat, where=(inverse == 0)[:, None])
        if dbias is not None:
            np.add(dbias, np.matmul(ones(size, x.dtype), gradient), dbias)
        np.multiply(gradient, hat, work)
        if dscale is not None:
            np.add(dscale, np.matmul(inverse, work), dscale)
        if dx is None:
            continue
        target = dx[block]
        if scale is None:
            np.matmul(work, vector, out=second)
            np.matmul(gradient, vector, out=first)
        else:
            # sum(dy * h * scale) and sum(dy * scale) are products with the scale itself: no further pass over the
            # block.
            np.matmul(work, scale, out=second)
            np.matmul(gradient, scale, out=first)
        np.divide(second, count, second)
        np.divide(first, count, first)
        np.multiply(second, inverse, second)
        np.multiply(second, inverse, second)
        np.multiply(hat, second[:, None], hat)
        np.add(hat, first[:, None], hat)
        scaled = gradient if scale is None else np.multiply(gradient, scale, work)
        np.subtract(scaled, hat, target)
        np.multiply(target, inverse[:, None], target)


# ----------------------------------------------------------------------------------------------------------- batch norm
def _channels(shape: Sequence[int]) -> int:
    """Returns the channels per block: many, as images lie a power of two apart and few channels of each would share cache sets."""
    return max(1, 4 * BLOCK // max(1, shape[0] * shape[2]))


_SHORT_RUN = 1 << 11
"""Values of an image in a block up to which the passes between the first and the last are over a buffer of their own."""


def batch_norm_scratch(shape: Sequence[int], dtype: np.dtype[np.floating]) -> tuple[Buffer, ...]:
    """Returns the scratch buffers of the batch-norm kernels for ``[n, c, values]``.

    One block, sums by image and channel with three values per channel, and one image of a block.
    """
    size = min(shape[1], _channels(shape))
    image = ((size * shape[2],), dtype)
    return ((shape[0] * size * shape[2],), dtype), ((2 * shape[0] * size + 3 * size,), dtype), image


def _spread(by_channel: Array, values: int, buffer: Array) -> Array:
    """Returns one value per channel, repeated for a whole image.

    A ufunc then runs over an image's channels in one inner loop (0.13 ns a value, broadcasting takes 0.2 to 0.4).
    """
    image = flat(buffer, (len(by_channel), values))
    np.copyto(image, by_channel[:, None])
    return image


def batch_norm(
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
    """Normalises by channel with the batch's own statistics: ``y = (x - mean) * inverse * scale + bias`` by channel.

    Channels are independent, so work is cut along them and no partial sums arise. Statistics are the biased variance
    and ``inverse = 1 / sqrt(variance + epsilon)``.

    Args:
        x: ``[n, c, values]``; channels last is a transposed view.
        scale, bias: ``[c]`` or ``None``.
        y: ``[n, c, values]``, written; may be ``x``.
        mean, variance, inverse: ``[c]``, written.
        epsilon: Added to the variance.
        scratch: Buffers from :func:`batch_norm_scratch`.
    """
    if x.size == 0:
        mean.fill(np.nan)
        variance.fill(np.nan)
        inverse.fill(np.nan)
        return
    n, c, values = x.shape
    vector, count = ones(values, x.dtype), np.asarray(n * values, x.dtype)
    eps = np.asarray(epsilon, x.dtype)
    for block in blocks(c, _channels(x.shape)):
        source, target = x[:, block], y[:, block]
        center, spread, factor = mean[block], variance[block], inverse[block]
        sums = flat(scratch[1], source.shape[:2])
        np.matmul(source, vector, out=sums)
        np.add.reduce(sums, axis=0, out=center)
        np.divide(center, count, center)
        # Passes over short runs of the result take up to twice the time of those over a buffer without gaps.
        work = flat(scratch[0], source.shape) if source.shape[1] * values <= _SHORT_RUN else target
        np.subtract(source, _spread(center, values, scratch[2]), work)
        np.vecdot(work, work, out=sums)
        np.add.reduce(sums, axis=0, out=spread)
        np.divide(spread, count, spread)
        np.add(spread, eps, factor)
        np.sqrt(factor, factor)
        np.reciprocal(factor, factor)
        # Behind the sums by image.
        behind = scratch[1][sums.size : sums.size + factor.size]
        slope = factor if scale is None else np.multiply(factor, scale[block], behind)
        np.multiply(work, _spread(slope, values, scratch[2]), target if bias is None else work)
        if bias is not None:
            np.add(work, _spread(bias[block], values, scratch[2]), target)


def batch_norm_inference(
    x: Array, scale: Array | None, bias: Array | None, mean: Array, variance: Array, y: Array, epsilon: float
) -> None:
    """Normalises by channel with given statistics: ``y = (x - mean) / sqrt(variance + epsilon) * scale + bias``.

    Args:
        x: ``[n, c, values]``, or any part of it.
        scale, bias: ``[c]`` or ``None``.
        mean, variance: ``[c]``.
        y: ``[n, c, values]``, written; may be ``x``.
        epsilon: Added to the variance.
    """
    factor = 1 / np.sqrt(variance + np.asarray(epsilon, x.dtype))
    if scale is not None:
        factor = factor * scale
    for block in blocks(len(x), block_rows(math.prod(x.shape[1:]))):
        target = y[block]
        np.subtract(x[block], mean[:, None], target)
        np.multiply(target, factor[:, None], target)
        if bias is not None:
            np.add(target, bias[:, None], target)


def batch_norm_grad(
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
    """Computes the gradients of :func:`batch_norm`, by channel.

    With ``m`` values per channel, ``h = (x - mean) * inverse``, ``dbias = sum(dy)`` and ``dscale = sum(dy * h)``:
    ``dx = scale * inverse * (dy - dbias / m - h * dscale / m)``; with given statistics ``dx = scale * inverse * dy``.

    Args:
        x, dy: ``[n, c, values]``.
        scale: ``[c]`` or ``None``.
        mean, inverse: ``[c]``: the statistics that the forward pass used.
        dx: ``[n, c, values]``, written unless ``None``; may be ``dy``.
        dscale, dbias: ``[c]``, written unless ``None``.
        scratch: Buffers from :func:`batch_norm_scratch`.
        global_statistics: The statistics did not depend on ``x``.
    """
    n, c, values = x.shape
    if x.size == 0:
        for total in (dscale, dbias):
            if total is not None:
                total.fill(0)
        return
    vector, count = ones(values, x.dtype), np.asarray(n * values, x.dtype)
    for block in blocks(c, _channels(x.shape)):
        gradient = dy[:, block]
        size = gradient.shape[1]
        hat = flat(scratch[0], gradient.shape)
        sums, products = (flat(scratch[1][k * n * size :], (n, size)) for k in range(2))
        # Behind the sums by image: three values per channel of this block.
        rest = scratch[1][2 * n * size :]
        given, along, factor = (rest[k * size : (k + 1) * size] for k in range(3))
        np.multiply(inverse[block], 1 if scale is None else scale[block], factor)
        wants = dscale is not None or dbias is not None or not global_statistics
        if wants:
            np.matmul(gradient, vector, out=sums)
            np.add.reduce(sums, axis=0, out=given)
            np.subtract(x[:, block], _spread(mean[block], values, scratch[2]), hat)
            # Without the factor `inverse`, which is cheaper to apply to the sums than to the block.
            np.vecdot(gradient, hat, out=products)
            np.add.reduce(products, axis=0, out=along)
            np.multiply(along, inverse[block], along)
        if dbias is not None:
            np.copyto(dbias[block], given)
        if dscale is not None:
            np.copyto(dscale[block], along)
        if dx is None:
            continue
        target = dx[:, block]
        if global_statistics:
            np.multiply(gradient, _spread(factor, values, scratch[2]), target)
            continue
        # dx = factor (dy - mean(dy) - hat inverse^2 mean(dy hat)): both means are sums divided here.
        np.divide(given, count, given)
        np.divide(along, count, along)
        np.multiply(along, inverse[block], along)
        np.multiply(hat, _spread(along, values, scratch[2]), hat)
        np.add(hat, _spread(given, values, scratch[2]), hat)
        work = hat if size * values <= _SHORT_RUN else target
        np.subtract(gradient, hat, work)
        np.multiply(work, _spread(factor, values, scratch[2]), target)
