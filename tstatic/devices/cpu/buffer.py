"""Allocates memory whose pages can be released while its address stays, so that plans stay bound to it."""

from __future__ import annotations

import math
import mmap
import sys
from typing import Any

import numpy as np

from tstatic.errors import DeviceError
from tstatic.logs import get_logger
from tstatic.shortage import out_of_memory

_log = get_logger("memory")

_HUGE = 4 << 20
"""Buffers of at least this many bytes use huge pages, as numpy's arrays do: its own limit, so that both cost the same faults."""


# Python names it from 3.13 on.
_NO_RESERVE: int = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def _anonymous(nbytes: int, purpose: str, flags: int = 0) -> mmap.mmap:
    """Returns memory of the system.

    Raises:
        OutOfMemoryError: If it has none.
    """
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags)
        return mmap.mmap(-1, nbytes)
    except (OSError, OverflowError, ValueError, MemoryError) as error:  # too large for now, or for any machine
        raise out_of_memory(purpose, nbytes) from error


def addresses_only(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Returns an array whose addresses the system knows but keeps no memory for, however large it is, until it is written to."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < _HUGE:
        return np.empty(shape, dtype)
    return (
        np.frombuffer(_anonymous(nbytes, f"an array of shape {list(shape)}", _NO_RESERVE), np.uint8)
        .view(dtype)
        .reshape(shape)
    )


class Buffer:
    """Zeroed bytes from the system.

    Args:
        nbytes: Number of bytes.
        purpose: Their purpose, for the ``memory`` log and for errors.

    Attributes:
        array: The bytes, aligned to a page.

    Raises:
        OutOfMemoryError: If the system has no more.
    """

    def __init__(self, nbytes: int, purpose: str = "a buffer") -> None:
        self._purpose = purpose
        # Private: shared mappings get no huge pages, and keep their pages when asked to release them.
        self._map = _anonymous(max(nbytes, 1), purpose)
        if nbytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.array: np.ndarray[Any, Any] = np.frombuffer(self._map, np.uint8)[:nbytes]
        self._held = False

    def touch(self) -> None:
        """Records that the memory is in use."""
        if not self._held:
            self._held = True
            _log.debug("allocated %d bytes for %s", self.array.nbytes, self._purpose)

    @property
    def can_release(self) -> bool:
        """Whether this system can release the pages of a mapping that stays."""
        return hasattr(mmap, "MADV_DONTNEED")

    def release(self, keep: int = 0) -> None:
        """Releases the pages, but not those of the first ``keep`` bytes; the next touch finds zeros at the same address."""
        # The mapping stays, and with it every address that plans are
        # bound to; the kernel gives zeroed pages on the next touch.
        start = -(-keep // mmap.PAGESIZE) * mmap.PAGESIZE
        if start < len(self._map):
            self._map.madvise(mmap.MADV_DONTNEED, start)
        if not keep:
            self.forget()

    def forget(self) -> None:
        """Records that the memory is no longer in use: its pages are released, or its owner drops it."""
        if self._held:
            self._held = False
            _log.debug("freed %d bytes of %s", self.array.nbytes, self._purpose)

    @property
    def held_bytes(self) -> int:
        """The bytes that may be resident now."""
        return self.array.nbytes if self._held else 0


class ForeignBuffer(Buffer):
    """The bytes of an array that another library allocated, which live until they are forgotten."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        super().__init__(0, "memory of another library")
        self.array = array.reshape(-1).view(np.uint8)
        self._held = True

    @property
    def can_release(self) -> bool:
        """The pages are those of the other library."""
        return False

    def forget(self) -> None:
        """Lets go of the array."""
        super().forget()
        self.array = self.array[:0].copy()


def cannot_adopt(array: Any, why: str) -> DeviceError:
    """Returns the error of :meth:`tstatic.devices.base.Device.adopt`."""
    return DeviceError(
        f"memory of another library cannot be used: {why}",
        expected="a writable array in the device's memory, contiguous in C order, with __dlpack__",
        received=type(array).__name__,
        fix="pass a contiguous copy on the device",
    )
