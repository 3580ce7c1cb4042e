"""Pooling over any number of axes: maxima and averages of shifted slices; channels first (or any view that looks like it).

Windows are given by their bounds per axis (:func:`pool_bounds`, :func:`adaptive_bounds`), already clipped to the input,
so that padding is never stored and never wins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from tstatic.tuned import pool_pairs
from tstatic.tuned._common import BLOCK, Array, Buffer, block_rows, blocks, flat

Bounds = tuple[tuple[int, int], ...]
"""``(start, stop)`` of each window along one axis."""
Axes = tuple[Bounds, ...]
"""Bounds of the windows along each spatial axis."""
_Slices = tuple[slice, ...]
_Tap = tuple[_Slices, _Slices]
_WHOLE = slice(None)


@lru_cache(maxsize=256)
def pool_bounds(size: int, kernel: int, stride: int, before: int, out: int) -> Bounds:
    """Returns the bounds of ``out`` sliding windows, clipped to ``[0, size)``; a window wholly in the padding is empty."""
    starts = [i * stride - before for i in range(out)]
    return tuple((min(max(s, 0), size), max(min(s + kernel, size), min(max(s, 0), size))) for s in starts)


@lru_cache(maxsize=256)
def adaptive_bounds(size: int, out: int) -> Bounds:
    """Returns the bounds of ``out`` adaptive windows: ``floor(i * size / out)`` to ``ceil((i + 1) * size / out)``."""
    return tuple((i * size // out, -(-(i + 1) * size // out)) for i in range(out))


# Python loops over windows: they run once per shape.
@lru_cache(maxsize=256)
def _axis_taps(bounds: Bounds) -> tuple[tuple[slice, slice], ...] | None:
    """Returns, per offset inside the window, which outputs have it and which inputs it is; ``None`` if windows are irregular.

    Windows count as regular when their unclipped starts form an arithmetic series.
    """
    full = max((stop - start for start, stop in bounds), default=0)
    if full == 0:
        return None
    # Clipped windows hide where they began, so the stride is read off two that are whole.
    inner = [i for i, (start, stop) in enumerate(bounds) if stop - start == full]
    if len(inner) > 1:
        stride = bounds[inner[1]][0] - bounds[inner[0]][0]
    elif len(bounds) == 1:
        stride = 1
    else:
        return None
    first = bounds[inner[0]][0] - inner[0] * stride
    if stride <= 0:
        return None
    taps = []
    for offset in range(full):
        has = [i for i, (start, stop) in enumerate(bounds) if start <= first + i * stride + offset < stop]
        # A slice can name the outputs only if they follow each other.
        if has and has != list(range(has[0], has[-1] + 1)):
            return None
        if has:
            begin = first + has[0] * stride + offset
            source = slice(begin, begin + (len(has) - 1) * stride + 1, stride)
            taps.append((slice(has[0], has[-1] + 1), source))
    # Irregular windows may pass so far and still leave out values.
    covered = sum(t[0].stop - t[0].start for t in taps)
    return tuple(taps) if covered == sum(stop - start for start, stop in bounds) else None


@lru_cache(maxsize=256)
def _taps(axes: Axes) -> tuple[_Tap, ...] | None:
    """Returns all taps in row-major order, as slices of the output and of the input; ``None`` where windows are fewer."""
    by_axis = [taps for bounds in axes if (taps := _axis_taps(bounds)) is not None]
    # One call per tap or one per window, whichever are fewer: a global pooling is one window.
    if len(by_axis) < len(axes) or math.prod(map(len, by_axis)) > math.prod(map(len, axes)):
        return None
    every = (_WHOLE, _WHOLE)
    return tuple(
        ((*every, *(place for place, _ in tap)), (*every, *(source for _, source in tap)))
        for tap in itertools.product(*by_axis)
    )


def _covers_once(size: int, bounds: Bounds) -> bool:
    """Returns whether the windows touch each other and leave nothing out."""
    edges = [0, *(stop for _, stop in bounds)]
    return edges[-1] == size and all(start == edge for (start, _), edge in zip(bounds, edges, strict=False))


def _full(taps: Sequence[_Tap], shape: Sequence[int]) -> bool:
    return all(s.stop - s.start == size for place, _ in taps for s, size in zip(place[2:], shape[2:], strict=True))


def _windows(axes: Axes) -> Iterator[tuple[tuple[slice | int, ...], _Slices]]:
    """Yields the place of each window that is not empty, in the output, and the slices of it, in the input."""
    for place in itertools.product(*(range(len(bounds)) for bounds in axes)):
        window = [bounds[i] for bounds, i in zip(axes, place, strict=True)]
        if all(stop > start for start, stop in window):
            yield (_WHOLE, _WHOLE, *place), (_WHOLE, _WHOLE, *itertools.starmap(slice, window))


def _reduce(x: Array, out: Array, axes: Axes, ufunc: np.ufunc, start: float, counts: Array | None = None) -> None:
    """Reduces every window by ``ufunc`` from ``start`` on, and divides the results by ``counts`` if there are any.

    Shifted slices of the input are combined tap by tap: windows of 3 x 3 with stride 2 take 4.5 ns an output, a reduction
    over a view of all windows 110.
    """
    taps = _taps(axes)
    if taps is None:
        out.fill(start)
        spatial = tuple(range(2, x.ndim))
        for place, window in _windows(axes):
            ufunc.reduce(x[window], axis=spatial, out=out[place])
        if counts is not None:
            np.divide(out, counts, out)
        return
    # Where every window has all its values, a copy of the first tap replaces filling the output and one pass over it.
    full = _full(taps, out.shape)
    # Block by block, so that the output stays in cache from the first tap to the division.
    for block in blocks(len(x), block_rows(math.prod(x.shape[1:]))):
        source, target = x[block], out[block]
        if full:
            np.copyto(target, source[taps[0][1]])
        else:
            target.fill(start)
        for place, window in taps[1:] if full else taps:
            part = target[place]
            ufunc(part, source[window], out=part)
        if counts is not None:
            np.divide(target, counts, target)


# -------------------------------------------------------------------------------------------------------------- maximum
def _pair_images(x_shape: Sequence[int], out_shape: Sequence[int], dtype: np.dtype[np.floating]) -> int:
    """Returns the images per block of windows of 2 x 2 side by side; 0 where :mod:`pool_pairs` cannot be used."""
    if dtype.itemsize != 4 or len(x_shape) != 4 or not pool_pairs.are_pairs(x_shape, out_shape):
        return 0
    return min(x_shape[0], max(1, BLOCK // max(1, math.prod(x_shape[1:]))))


def _once(x: Array, axes: Axes) -> bool:
    return all(map(_covers_once, x.shape[2:], axes))


def max_pool_scratch(
    x_shape: Sequence[int], out_shape: Sequence[int], dtype: np.dtype[np.floating]
) -> tuple[Buffer, ...]:
    """Returns the scratch buffers of :func:`max_pool`: upper and lower rows of windows of 2 x 2."""
    half = ((_pair_images(x_shape, out_shape, dtype) * 2 * math.prod(out_shape[1:]),), dtype)
    return half, half


def max_pool(x: Array, out: Array, axes: Axes, scratch: Sequence[Array] = ()) -> None:
    """Computes ``out[n, c, i, ...] = max(x[n, c, window i, ...])``; NaN wins; an empty window gives minus infinity.

    Args:
        x: ``[n, c, sizes...]``.
        out: ``[n, c, windows...]``, written.
        axes: Bounds of the windows along each spatial axis.
        scratch: Buffers from :func:`max_pool_scratch`; without them 2 x 2 windows take a third longer.
    """
    if out.size == 0:
        return
    taps = _taps(axes)
    images = _pair_images(x.shape, out.shape, x.dtype)
    if taps and len(taps) == 4 and images and scratch and _once(x, axes) and pool_pairs.fits(x, out):
        for block in blocks(len(x), images):
            pool_pairs.maximum(x[block], out[block], scratch)
        return
    least = -np.inf if out.dtype.kind == "f" else np.iinfo(out.dtype).min
    _reduce(x, out, axes, np.maximum, least)


def max_pool_grad_scratch(
    x_shape: Sequence[int], out_shape: Sequence[int], dtype: np.dtype[np.floating]
) -> tuple[Buffer, ...]:
    """Returns the scratch buffers of :func:`max_pool_grad`: two masks, the mask as bits, a product."""
    count = min(out_shape[0], block_rows(math.prod(x_shape[1:]))) * math.prod(out_shape[1:])
    # The kernel for pairs works on masks of the input's size.
    count = max(count, _pair_images(x_shape, out_shape, dtype) * math.prod(x_shape[1:]))
    flags = ((count,), np.dtype(np.bool_))
    return flags, flags, ((count,), np.dtype(f"i{dtype.itemsize}")), ((count,), dtype)


def max_pool_grad(x: Array, out: Array, dout: Array, dx: Array, axes: Axes, scratch: Sequence[Array]) -> None:
    """Computes the gradient of :func:`max_pool`: ``dout`` goes to the first maximum of its window (to the last NaN if there is
    one).

    Masks select by a bitwise *and*, so that an infinite ``dout`` leaves zeros elsewhere and no mask costs a branch.

    Args:
        x: ``[n, c, sizes...]``; ``out``, ``dout``: ``[n, c, windows...]``; ``dx``: as ``x``, written.
        axes: Bounds of the windows along each spatial axis.
        scratch: Buffers from :func:`max_pool_grad_scratch`.
    """
    taps = _taps(axes)
    if taps is None or out.size == 0:
        dx.fill(0)
        if out.size:
            _max_grad_by_window(x, dout, dx, axes)
        return
    once = _once(x, axes) and _full(taps, out.shape)
    images = _pair_images(x.shape, out.shape, dx.dtype)
    if images and len(taps) == 4 and once and pool_pairs.fits(x, out, dout, dx):
        for block in blocks(len(x), images):
            # A NaN equals nothing, so masks would lose its gradient; the test costs 0.1 ns an output.
            if np.isnan(out[block], out=flat(scratch[0], out[block].shape)).any():
                _max_grad_by_window(x[block], dout[block], dx[block], axes)
            else:
                pool_pairs.maximum_grad(x[block], out[block], dout[block], dx[block], scratch)
        return
    bits = np.dtype(f"i{dx.dtype.itemsize}")
    for block in blocks(len(x), block_rows(math.prod(x.shape[1:]))):
        best, source, target = out[block], x[block], dx[block]
        mask, taken, selector, product = (flat(b, best.shape) for b in scratch)
        gradient = dout[block]
        # Windows that neither overlap nor leave gaps write each input exactly once, so nothing is cleared or added.
        if not once:
            target.fill(0)
        # Its bits are read as integers of the same size.
        if gradient.dtype != dx.dtype or not gradient.flags.aligned:
            gradient = gradient.astype(dx.dtype)
        if np.isnan(best, out=mask).any():
            _max_grad_by_window(source, gradient, target, axes)
            continue
        taken.fill(False)
        for tap, window in taps:
            here, seen, select = mask[tap], taken[tap], selector[tap]
            np.equal(source[window], best[tap], out=here)
            # The first maximum wins: a tap counts only where no earlier one was taken.
            np.greater(here, seen, out=here)
            np.logical_or(seen, here, out=seen)
            # True is the byte 1; minus that, widened, has all bits set.
            np.negative(here.view(np.int8), out=here.view(np.int8))
            np.copyto(select, here.view(np.int8))
            # 0.3 ns a value; a copy with ``where=`` branches on the mask and takes 2.
            place = target[window]
            given = gradient[tap].view(bits)
            if once:
                np.bitwise_and(select, given, out=place.view(bits))
            else:
                term = product[tap]
                np.bitwise_and(select, given, out=term.view(bits))
                np.add(place, term, out=place)


def _max_grad_by_window(x: Array, dout: Array, dx: Array, axes: Axes) -> None:
    """Takes the slow path: irregular windows, few windows, or NaN. Clears ``dx`` first."""
    dx.fill(0)
    image, channel = np.ogrid[: x.shape[0], : x.shape[1]]
    # Within one window every image and channel has one place, so ``+=`` on fancy indices loses nothing.
    for place, chosen in _places_by_window(x, axes):
        dx[image, channel, *chosen] += dout[place]


def _places_by_window(x: Array, axes: Axes) -> Iterator[tuple[tuple[slice | int, ...], list[Array]]]:
    """Yields, per window, its place in the output and the index, along each axis, of its first maximum, or of its last NaN."""
    for place, window in _windows(axes):
        part = x[window]
        values = part.reshape(*x.shape[:2], -1)
        # ``argmax`` stops at the first NaN, where the last one is meant.
        chosen = values.argmax(-1)
        is_nan = np.isnan(values)
        if is_nan.any():
            last = values.shape[-1] - 1 - is_nan[..., ::-1].argmax(-1)
            chosen = np.where(is_nan.any(-1), last, chosen)
        inside = np.unravel_index(chosen, part.shape[2:])
        yield place, [s.start + i for s, i in zip(window[2:], inside, strict=True)]


# ---------------------------------------------------------------------------------------------------- places of maxima
def max_pool_index(x: Array, out: Array, mask: Array, axes: Axes) -> None:
    """Writes the place of each window's first maximum (of its last NaN if there is one), -1 without values.

    The place is the position in the image or volume as one row: ``row * width + column`` of an image.

    Args:
        x: ``[n, c, sizes...]``.
        out: ``[n, c, windows...]``: the maxima.
        mask: Integers of the same shape, written.
        axes: Bounds of the windows along each spatial axis.
    """
    if out.size == 0:
        return
    # A window wholly in the padding has no place.
    for axis, bounds in enumerate(axes):
        without = [i for i, (start, stop) in enumerate(bounds) if start == stop]
        mask[(_WHOLE,) * (axis + 2) + (without,)] = -1
    taps, sizes = _taps(axes), x.shape[2:]
    if taps is None:
        for place, chosen in _places_by_window(x, axes):
            mask[place] = np.ravel_multi_index(tuple(chosen), sizes)
        return
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    # Backwards, so that the first maximum is written last and needs no second mask.
    for place, window in reversed(taps):
        np.copyto(mask[place], numbers[window[2:]], where=x[window] == out[place], casting="unsafe")
    # NaN equals nothing above; forwards here, so that the last one stands.
    if np.isnan(out).any():
        for place, window in taps:
            np.copyto(mask[place], numbers[window[2:]], where=np.isnan(x[window]), casting="unsafe")


def max_pool_index_grad_scratch(shape: Sequence[int]) -> tuple[Buffer, ...]:
    """Returns the scratch buffer of :func:`max_pool_index_grad` for incoming gradients of ``shape``: flat places."""
    return (((math.prod(shape),), np.dtype(np.int64)),)


def max_pool_index_grad(mask: Array, dout: Array, dx: Array, scratch: Sequence[Array]) -> None:
    """Adds each gradient to the place that its window's maximum came from, in order.

    Args:
        mask: ``[n, c, windows...]`` places inside an image or volume; -1: none.
        dout: ``[n, c, windows...]``.
        dx: ``[n, c, sizes...]``, written.
        scratch: Buffer from :func:`max_pool_index_grad_scratch`.
    """
    dx.fill(0)
    if dout.size == 0:
        return
    target = dx if dx.flags.c_contiguous else np.zeros(dx.shape, dx.dtype)
    n, c, *sizes = dx.shape
    places = flat(scratch[0], (n * c, math.prod(mask.shape[2:])))
    np.copyto(places.reshape(mask.shape), mask)
    taken = places >= 0
    # Places inside an image become places in the whole array, so that one call adds them all, in order.
    np.add(places, np.arange(n * c)[:, None] * math.prod(sizes), out=places)
    # Without the copies that indexing by a mask makes, where every window has a place.
    if taken.all():
        np.add.at(target.reshape(-1), places.reshape(-1), dout.reshape(-1))
    else:
        np.add.at(target.reshape(-1), places[taken], dout.reshape(places.shape)[taken])
    if target is not dx:
        np.copyto(dx, target)


# -------------------------------------------------------------------------------------------------------------- average
Extents = tuple[tuple[int, ...], ...]
"""What averages divide by, as factors of each axis."""


@lru_cache(maxsize=256)
def padded_extents(size: int, kernel: int, stride: int, before: int, after: int, out: int) -> tuple[int, ...]:
    """Returns the length of each window along one axis with the padding counted: the divisors of an average that is not exclusive.

    A window that ``ceil_mode`` lets stick out beyond the padding counts only up to there.
    """
    return tuple(max(0, min(i * stride - before + kernel, size + after) - (i * stride - before)) for i in range(out))


def _outer_product(factors: Extents) -> Array:
    """Returns the products of one number of each axis, ``[axis 0, axis 1, ...]``."""
    found = np.ones((), np.int64)
    for one in factors:
        found = np.multiply.outer(found, one)
    return found


@lru_cache(maxsize=64)
def _divisors(axes: Axes, extents: Extents | None, dtype: np.dtype[np.floating]) -> Array:
    """Returns what each window's sum is divided by, ``[windows...]``: at least 1."""
    if extents is None:
        extents = tuple(tuple(b - a for a, b in bounds) for bounds in axes)
    # A window wholly in the padding has the sum 0; divided by 1 it stays 0.
    counts: Array = np.maximum(_outer_product(extents), 1).astype(dtype)
    counts.setflags(write=False)
    return counts


def avg_pool(x: Array, out: Array, axes: Axes, extents: Extents | None = None) -> None:
    """Computes ``out[n, c, i, ...] = sum(x[n, c, window i, ...]) / divisor``.

    Args:
        x: ``[n, c, sizes...]``.
        out: ``[n, c, windows...]``, written.
        axes: Bounds of the windows along each spatial axis.
        extents: Divisors by axis (:func:`padded_extents`); without them a window's sum is divided by the
            number of values inside the input (``exclusive``).
    """
    if out.size == 0:
        return
    _reduce(x, out, axes, np.add, 0, _divisors(axes, extents, out.dtype))


def avg_pool_grad_scratch(
    x_shape: Sequence[int], out_shape: Sequence[int], dtype: np.dtype[np.floating]
) -> tuple[Buffer, ...]:
    """Returns the scratch buffer of :func:`avg_pool_grad`: the divided gradient."""
    return (((min(out_shape[0], block_rows(math.prod(x_shape[1:]))) * math.prod(out_shape[1:]),), dtype),)


def avg_pool_grad(dout: Array, dx: Array, axes: Axes, scratch: Sequence[Array], extents: Extents | None = None) -> None:
    """Computes the gradient of :func:`avg_pool`: every value of a window gets ``dout / divisor``.

    Args:
        dout: ``[n, c, windows...]``; ``dx``: ``[n, c, sizes...]``, written.
        axes, extents: As in :func:`avg_pool`.
        scratch: Buffers from :func:`avg_pool_grad_scratch`.
    """
    if dout.size == 0:
        dx.fill(0)
        return
    counts = _divisors(axes, extents, dx.dtype)
    taps = _taps(axes)
    once = _once(dx, axes)
    for block in blocks(len(dx), block_rows(math.prod(dx.shape[1:]))):
        target = dx[block]
        share = flat(scratch[0], (len(target), *dout.shape[1:]))
        # The few gradients are divided, not the many places that they are added to.
        np.divide(dout[block], counts, share)
        if taps is not None and once and _full(taps, dout.shape):
            for _, window in taps:
                np.copyto(target[window], share)
            continue
        target.fill(0)
        if taps is not None:
            for tap, window in taps:
                place = target[window]
                np.add(place, share[tap], place)
            continue
        for at, window in _windows(axes):
            place = target[window]
            np.add(place, share[at][(..., *(None,) * len(axes))], place)
