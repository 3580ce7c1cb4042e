"""Arithmetic on boxes ``(left, top, right, bottom)``, for numpy and torch alike; ``xp`` is one of the two modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tstatic.ir.checks import Shaped, check_dtype, check_rank, check_size
from tstatic.ir.ref import pick

Array = np.ndarray[Any, Any]
FLOATS = ("float32", "float64")


def check_boxes(x: Shaped, slot: str, ranks: int | tuple[int, ...] = 2, function: str = "") -> None:
    """Refuses anything but boxes: floats whose last axis has four numbers."""
    check_dtype(x, FLOATS, slot, function)
    check_rank(x, ranks, slot, function, layout="[..., 4]")
    check_size(x, -1, 4, slot, function, why="left, top, right and bottom")


def overlaps(xp: Any, a: Any, b: Any, one: float = 0.0) -> Any:
    """Returns intersection over union of boxes that broadcast; 0 where the union is empty.

    Args:
        xp: numpy or torch.
        a, b: ``[..., 4]``.
        one: Added to widths and heights: 1 for boxes in whole pixels, whose ends both count.
    """

    def sides(low: Any, high: Any) -> Any:
        return high - low + one

    def positive(x: Any) -> Any:
        return xp.maximum(x, xp.zeros_like(x))

    wide = positive(sides(xp.maximum(a[..., 0], b[..., 0]), xp.minimum(a[..., 2], b[..., 2])))
    high = positive(sides(xp.maximum(a[..., 1], b[..., 1]), xp.minimum(a[..., 3], b[..., 3])))
    both = wide * high
    either = sides(a[..., 0], a[..., 2]) * sides(a[..., 1], a[..., 3]) + sides(b[..., 0], b[..., 2]) * sides(
        b[..., 1], b[..., 3]
    )
    union = either - both
    empty = union == 0
    return xp.where(empty, xp.zeros_like(both), both / xp.where(empty, xp.ones_like(union), union))


def area(boxes: Array, one: float = 0.0) -> Array:
    """Returns the areas of boxes; 0 for one whose sides are the wrong way round."""
    wide, high = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    return np.asarray(np.where((wide < 0) | (high < 0), 0.0, (wide + one) * (high + one)))


def shared(a: Array, b: Array, one: float) -> Array:
    """Returns intersection over union as suppression counts it: 0 for boxes that do not touch, or have no area.

    Args:
        a, b: ``[..., 4]`` that broadcast.
        one: As of :func:`overlaps`; it does not make boxes touch.
    """
    wide = np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0])
    high = np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1])
    both = np.where((wide < 0) | (high < 0), 0.0, (wide + one) * (high + one))
    union = area(a, one) + area(b, one) - both
    return np.asarray(np.divide(both, union, out=np.zeros_like(both), where=union > 0))


def suppressed(boxes: Array, threshold: float, eta: float = 1.0, one: float = 0.0, most: int = -1) -> Array:
    """Returns which of boxes, best first, are kept: those that overlap none before them by more than a threshold.

    Args:
        boxes: ``[n, 4]``, from the highest score to the lowest.
        threshold: The overlap.
        eta: After each box that is kept, a threshold above one half is multiplied by it.
        one: As of :func:`shared`.
        most: Stop after so many; negative: never.
    """
    kept: list[int] = []
    limit = threshold
    if eta >= 1.0:
        # A constant threshold: each box that is kept strikes out those behind it, all at once.
        left = np.ones(len(boxes), bool)
        for i in range(len(boxes)):
            if left[i]:
                kept.append(i)
                if len(kept) == most:
                    break
                left[i + 1 :] &= ~(shared(boxes[i], boxes[i + 1 :], one) > limit)
        return np.array(kept, np.int64)
    for i in range(len(boxes)):
        if len(kept) == most:
            break
        if not (shared(boxes[i], boxes[kept], one) > limit).any():
            kept.append(i)
            if limit > 0.5:
                limit *= eta
    return np.array(kept, np.int64)


def by_score(scores: Array, most: int = -1) -> Array:
    """Returns positions from the highest score to the lowest, ties in their order; at most so many unless negative."""
    order = np.argsort(-scores, kind="stable")
    return order[:most] if most >= 0 else order


def on_host(function: Callable[..., list[Any]], outputs: int) -> Callable[..., Any]:
    """Returns the lowering of an op that chooses among boxes: the reference itself, on copies in the host's memory.

    Args:
        function: The reference, which returns its results.
        outputs: How many output slots it has.
    """

    def lower(torch: Any, *tensors: Any, **attrs: Any) -> Any:
        device = next(t.device for t in tensors if t is not None)
        arrays = [None if t is None else t.cpu().numpy() for t in tensors]
        found = function(*arrays, *(None,) * outputs, **pick(function, attrs))

        def tensor(value: Any) -> Any:
            if isinstance(value, list):
                return [tensor(v) for v in value]
            return torch.from_numpy(np.ascontiguousarray(value)).to(device)

        return tuple(tensor(value) for value in found)

    return lower
