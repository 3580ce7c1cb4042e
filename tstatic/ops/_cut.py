"""Cuts arrays into tiles of fixed size along their first axis, for the ``split`` of op definitions."""

from __future__ import annotations

import math

from tstatic.ir.types import Meta, Shape

TILE = 1 << 16
"""Elements per tile: about 100 microseconds of work where an element costs 1.5 ns."""

Part = tuple[slice, ...]


def cut_rows(shape: Shape, size: int = TILE, multiple: int = 1) -> list[Part] | None:
    """Parts of about ``size`` elements that each are one run in C order; ``None`` when there would be only one.

    Args:
        shape: Known sizes.
        size: Elements per part.
        multiple: Each part but the last holds a multiple of so many elements.
    """
    total = math.prod(shape)
    if total <= size + size // 2:
        return None
    axis = next(i for i, n in enumerate(shape) if n > 1)
    inner = math.prod(shape[axis + 1 :])
    step = multiple // math.gcd(inner, multiple)
    rows = max(1, size // inner // step) * step
    if rows >= shape[axis]:
        return None
    lead = (slice(None),) * axis
    return [(*lead, slice(i, min(i + rows, shape[axis]))) for i in range(0, shape[axis], rows)]


def cut_alike(*metas: Meta | None, size: int = TILE, multiple: int = 1) -> list[tuple[Part | None, ...]] | None:
    """Tiles of an op whose arrays all have one shape; an absent array stays absent."""
    shape = next(m.shape for m in metas if m is not None)
    parts = cut_rows(shape, size, multiple)
    return None if parts is None else [tuple(None if m is None else p for m in metas) for p in parts]
