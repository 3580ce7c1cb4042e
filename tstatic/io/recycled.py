"""Memory of batches that is used again when a batch is gone: fresh pages cost more than what is written to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.io.shared import Bytes, Lease
from tstatic.locks import lock

LARGE = 1 << 17
"""Arrays from so many bytes on are recycled: the allocator itself keeps smaller ones."""
MOST_FREE = 4
"""Blocks that wait to be used again."""
MOST_BYTES = 64 << 20
"""Of all blocks, in use or not; beyond that, memory goes back to the system."""


class Recycled:
    """Makes the arrays of a loader's batches, epoch after epoch; several threads may ask."""

    def __init__(self) -> None:
        self._blocks: dict[int, Bytes] = {}
        self._free: list[int] = []
        self._freed: deque[int] = deque()
        self._made = 0
        self._lock = lock()

    def empty(self, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        """Returns an array of any content, as ``np.empty`` does; its memory may have been another's before."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if size < LARGE or kind.hasobject:
            return np.empty(shape, kind)
        with self._lock:
            found = self._block(size)
        if found is None:
            return np.empty(shape, kind)
        number, block = found
        memory: Bytes = np.asarray(Lease(block, number, self._freed))
        array: NDArray[Any] = memory[:size].view(kind).reshape(shape)
        return array

    def _block(self, size: int) -> tuple[int, Bytes] | None:
        """Returns a block of at least so many bytes, or ``None`` if there are too many."""
        while self._freed:
            self._free.append(self._freed.popleft())
        for number in self._free:
            block = self._blocks[number]
            if block.size >= size and block.size <= 2 * size:
                self._free.remove(number)
                return number, block
        while len(self._free) >= MOST_FREE:
            del self._blocks[self._free.pop(0)]
        if sum(block.size for block in self._blocks.values()) + size > MOST_BYTES:
            return None
        self._made += 1
        self._blocks[self._made] = np.empty(size, np.uint8)
        return self._made, self._blocks[self._made]
