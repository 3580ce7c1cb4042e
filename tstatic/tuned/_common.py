"""Types and small helpers that the numpy kernels share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Buffer = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype of a scratch buffer that a kernel asks its caller for."""

BLOCK = 1 << 18
"""Elements per block of a chain of ufuncs.

One ufunc then takes 10 us or more, so that threads seldom wait for each other at the interpreter's lock: Adam on two
threads gains 1.7 times, with blocks of 32,768 values 1.3 times. On one thread both are equally fast.
"""


@lru_cache(maxsize=256)
def ones(count: int, dtype: np.dtype[Any]) -> Array:
    """Returns a read-only vector of ones: ``matrix @ ones`` sums rows at 0.05 ns a value, ``.sum`` at 0.2."""
    vector = np.ones(count, dtype)
    # All callers share it.
    vector.setflags(write=False)
    return vector


def flat(buffer: Array, shape: tuple[int, ...]) -> Array:
    """Returns the first elements of a one-dimensional buffer as an array of ``shape``."""
    count = 1
    for size in shape:
        count *= size
    return buffer[:count].reshape(shape)


def buffers(dtype: np.dtype[Any], *counts: int) -> tuple[Buffer, ...]:
    """Returns one-dimensional scratch buffers of ``dtype``."""
    return tuple(((count,), dtype) for count in counts)


def make(needs: Sequence[Buffer]) -> tuple[Array, ...]:
    """Allocates scratch buffers; for tests and for callers outside a plan."""
    return tuple(np.empty(shape, dtype) for shape, dtype in needs)


def block_rows(length: int) -> int:
    """Returns how many rows of ``length`` values a block has that stays in cache with its results."""
    return max(1, 2 * BLOCK // max(1, length))


def blocks(count: int, size: int) -> Iterator[slice]:
    """Yields the ranges of ``size`` items that make up ``count``; the last may be shorter."""
    return (slice(i, min(i + size, count)) for i in range(0, count, size))


def contiguous(array: Array) -> Array:
    """Returns ``array`` itself, or a C-contiguous copy (the slow path for odd strides)."""
    return array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(array.shape)


def by_rows(target: Array, source: Array) -> tuple[Array, Array]:
    """Returns views for a copy between arrays of the same shape and dtype: short contiguous rows as one element each.

    numpy takes 5 ns to begin an inner loop, half the time of copying rows of 16 or 32 values.
    """
    row = target.shape[-1] * target.itemsize
    # A row as one item of up to 512 bytes: 0.20 ns a value in rows of 16, value by value 0.39; 0.12 and 0.20 in rows of 32.
    # Longer rows hide the 5 ns, and rows without gaps on both sides are one run already.
    lies = target.ndim > 1 and target.size and target.strides[-1] == source.strides[-1] == target.itemsize
    if lies and row <= 512 and not target.strides[-2] == source.strides[-2] == row:
        item = f"V{row}"
        return target.view(item), source.view(item)
    return target, source


def copy_rows(target: Array, source: Array) -> None:
    """Copies an array of the same shape and dtype, rows as :func:`by_rows` views them."""
    np.copyto(*by_rows(target, source))
