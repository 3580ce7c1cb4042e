"""Reading images between their pixels: rows of channels, gathered with weights; and the gradients of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from tstatic.ops.base.indexing import add_rows

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 15
"""Elements that are read at once, so that they stay in the cache."""


def as_rows(x: Array) -> Array:
    """Returns ``[n, c, ...]`` as ``[n * pixels, c]``."""
    n, c = x.shape[:2]
    return np.ascontiguousarray(x.reshape(n, c, math.prod(x.shape[2:])).transpose(0, 2, 1)).reshape(-1, c)


def store_rows(rows: Array, out: Array) -> None:
    """Writes ``[n * pixels, c]`` to ``[n, c, ...]``."""
    n, c = out.shape[:2]
    np.copyto(out, rows.reshape(n, math.prod(out.shape[2:]), c).transpose(0, 2, 1).reshape(out.shape))


class Reading:
    """Places between pixels, each with the pixels around it and their weights; what lies outside counts as 0.

    Args:
        places: For each axis of the image, in its order, where the points lie: ``[points]``, in pixels.
        sizes: The image's sizes along these axes.
        first: The row of each point's image's first pixel: a number, or ``[points]``.
        nearest: Read the nearest pixel alone.
    """

    def __init__(self, places: Sequence[Array], sizes: Sequence[int], first: Any = 0, nearest: bool = False) -> None:
        self.points = places[0].shape[0]
        strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        # Per axis: pairs of a row offset, a weight, and the weight's slope along the place.
        axes: list[list[tuple[Array, Array, Array | None]]] = []
        for place, size, stride in zip(places, sizes, strides, strict=True):
            kind = place.dtype
            # rint rounds a half to the even pixel, as torch's nearest does.
            below = np.rint(place) if nearest else np.floor(place)
            part = place - below
            pixels = [(below, None)] if nearest else [(below, False), (below + 1, True)]
            axes.append([])
            for pixel, above in pixels:
                # A comparison, since NaN is on neither side and gets weight 0.
                seen = ((pixel >= 0) & (pixel <= size - 1)).astype(kind)
                # Outside of the image, and where a place is NaN, any pixel is read, with weight 0.
                index = np.where(seen > 0, pixel, 0).astype(np.int64) * stride
                if above is None:
                    axes[-1].append((index, seen, None))
                elif above:
                    axes[-1].append((index, seen * part, seen))
                else:
                    axes[-1].append((index, seen * (1 - part), -seen))
        self.axes = len(axes)
        self.corners: list[tuple[Array, Array, list[Array]]] = []
        # Two neighbours along each axis: 4 corners in an image, 8 in a volume.
        for corner in product(*axes):
            index = corner[0][0] + first
            for other, _, _ in corner[1:]:
                index = index + other
            slopes = []
            for axis, (_, _, slope) in enumerate(corner):
                if slope is not None:
                    slopes.append(math.prod([w for i, (_, w, _) in enumerate(corner) if i != axis], start=slope))
            self.corners.append((index, math.prod([w for _, w, _ in corner[1:]], start=corner[0][1]), slopes))

    def read(self, rows: Array) -> Array:
        """Returns ``[points, c]`` from ``rows`` ``[pixels, c]``."""
        c = rows.shape[1]
        out = np.empty((self.points, c), rows.dtype)
        step = max(1, _BLOCK // max(c, 1))
        taken = np.empty((min(step, self.points), c), rows.dtype)
        for start in range(0, self.points if c else 0, step):
            block = out[start : start + step]
            other = taken[: len(block)]
            for i, (index, weight, _) in enumerate(self.corners):
                target = other if i else block
                # Indices are in range; any mode but "raise" writes straight to the target.
                np.take(rows, index[start : start + step], axis=0, out=target, mode="clip")
                target *= weight[start : start + step, None]
                if i:
                    block += other
        return out

    def spread(self, grads: Array, rows: Array) -> None:
        """Adds the gradients ``[points, c]`` of what was read to those of the pixels, ``rows`` ``[pixels, c]``."""
        for index, weight, _ in self.corners:
            # `add_rows`: several points read one pixel.
            add_rows(rows, index, grads * weight[:, None])

    def slopes(self, rows: Array, grads: Array) -> list[Array]:
        """Returns, for each axis, the gradient along the places: ``[points]``; zeros where the nearest pixel is read."""
        found = [np.zeros(self.points, grads.dtype) for _ in range(self.axes)]
        c = rows.shape[1]
        step = max(1, _BLOCK // max(c, 1))
        for start in range(0, self.points, step):
            part = slice(start, start + step)
            for index, _, slopes in self.corners:
                if slopes:
                    along = np.einsum("pc,pc->p", rows[index[part]], grads[part])
                    for total, slope in zip(found, slopes, strict=True):
                        total[part] += along * slope[part]
        return found


def torch_read(torch: Any, x: Any, ys: Any, xs: Any) -> Any:
    """Returns what a torch tensor ``[b, c, h, w]`` holds at places ``[b, points]``, 0 outside: ``[b, c, points]``."""
    b, c, h, w = x.shape
    flat = x.reshape(b, c, h * w)
    # Detached: gradients reach the places through the weights; floor is constant between pixels.
    y0, x0 = ys.detach().floor(), xs.detach().floor()
    total = x.new_zeros(b, c, ys.shape[1])
    for dy, dx in product((0, 1), repeat=2):
        row, column = y0 + dy, x0 + dx
        weight = (1 - (ys - row).abs()) * (1 - (xs - column).abs())
        seen = (row >= 0) & (row < h) & (column >= 0) & (column < w)
        index = torch.where(seen, row * w + column, 0).long()
        picked = flat.gather(2, index[:, None].expand(b, c, -1))
        total = total + picked * torch.where(seen, weight, 0)[:, None]
    return total
