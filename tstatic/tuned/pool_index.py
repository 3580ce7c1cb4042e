"""Maximum pooling that says where each maximum stands, and the gradient that goes there; channels first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tstatic.tuned._common import Array, Buffer, flat
from tstatic.tuned.pool import Bounds, _taps, _windows


def max_pool2d_index(x: Array, out: Array, mask: Array, rows: Bounds, columns: Bounds) -> None:
    """Writes ``row * width + column`` of each window's first maximum (of its last NaN if there is one), -1 without values.

    Args:
        x: ``[n, c, h, w]``.
        out: ``[n, c, oh, ow]``: the maxima.
        mask: ``[n, c, oh, ow]`` integers, written.
        rows, columns: Bounds of the windows.
    """
    if out.size == 0:
        return
    without = [[i for i, (start, stop) in enumerate(bounds) if start == stop] for bounds in (rows, columns)]
    mask[:, :, without[0]] = -1
    mask[:, :, :, without[1]] = -1
    taps = _taps(rows, columns)
    if taps is None:
        _by_window(x, mask, rows, columns)
        return
    width = x.shape[3]
    places = [np.add.outer(np.arange(x.shape[2])[h] * width, np.arange(width)[w]) for _, (h, w) in taps]
    # Backwards, so that the first maximum is written last and needs no second mask.
    for ((oh, ow), (h, w)), place in zip(reversed(taps), reversed(places), strict=True):
        here = x[:, :, h, w] == out[:, :, oh, ow]
        np.copyto(mask[:, :, oh, ow], place, where=here, casting="unsafe")
    if np.isnan(out).any():
        for ((oh, ow), (h, w)), place in zip(taps, places, strict=True):
            np.copyto(mask[:, :, oh, ow], place, where=np.isnan(x[:, :, h, w]), casting="unsafe")


def _by_window(x: Array, mask: Array, rows: Bounds, columns: Bounds) -> None:
    width = x.shape[3]
    for i, j, h, w in _windows(rows, columns):
        values = x[:, :, h, w].reshape(*x.shape[:2], -1)
        chosen = values.argmax(-1)
        is_nan = np.isnan(values)
        if is_nan.any():
            last = values.shape[-1] - 1 - is_nan[..., ::-1].argmax(-1)
            chosen = np.where(is_nan.any(-1), last, chosen)
        span = w.stop - w.start
        mask[:, :, i, j] = (h.start + chosen // span) * width + w.start + chosen % span


def max_pool2d_index_grad_scratch(shape: Sequence[int]) -> tuple[Buffer, ...]:
    """Scratch buffer of :func:`max_pool2d_index_grad` for incoming gradients of ``shape``: flat places."""
    return (((math.prod(shape),), np.dtype(np.int64)),)


def max_pool2d_index_grad(mask: Array, dout: Array, dx: Array, scratch: Sequence[Array]) -> None:
    """Adds each gradient to the place that its window's maximum came from, in order.

    Args:
        mask: ``[n, c, oh, ow]`` places inside an image; -1: none.
        dout: ``[n, c, oh, ow]``.
        dx: ``[n, c, h, w]``, written.
        scratch: Buffer from :func:`max_pool2d_index_grad_scratch`.
    """
    dx.fill(0)
    if dout.size == 0:
        return
    target = dx if dx.flags.c_contiguous else np.zeros(dx.shape, dx.dtype)
    n, c, h, w = dx.shape
    places = flat(scratch[0], (n * c, mask.shape[2] * mask.shape[3]))
    np.copyto(places.reshape(mask.shape), mask)
    taken = places >= 0
    np.add(places, np.arange(n * c)[:, None] * (h * w), out=places)
    if taken.all():
        np.add.at(target.reshape(-1), places.reshape(-1), dout.reshape(-1))
    else:
        np.add.at(target.reshape(-1), places[taken], dout.reshape(places.shape)[taken])
    if target is not dx:
        np.copyto(dx, target)
