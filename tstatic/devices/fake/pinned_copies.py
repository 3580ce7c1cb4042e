"""Watches the pinned memory of copies that the fake device has queued: the host must leave it alone until they have run."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tstatic.devices.step import HostArray
from tstatic.errors import DeviceError
from tstatic.locks import lock


class PinnedCopies:
    """The copies from and to pinned memory that are queued and have not run."""

    def __init__(self) -> None:
        # Of those that are dropped with their stream nothing is left.
        self._queued: weakref.WeakSet[_Copy] = weakref.WeakSet()
        self._lock = lock()

    def queued(self, run: Callable[[], None], reads: HostArray | None, writes: HostArray | None) -> Callable[[], None]:
        """Returns the work of a copy that is queued now; it raises if the memory that it reads changed before it ran.

        Args:
            run: The copy.
            reads: The pinned memory that it reads.
            writes: The pinned memory that it writes: until then the host finds NaN there, or numbers that are as unlikely. Not
                if a copy that is queued before reads it: the two are in an order, and the host has no part in it.
        """
        with self._lock:
            made = _Copy(self, run, reads, writes)
            waiting = [one for one in self._queued if one.touches(made)]
            if reads is not None and not any(one.writes is not None for one in waiting):
                made.sent = reads.tobytes()
            if writes is not None and not waiting:
                # All bits set.
                writes.reshape(-1).view(np.uint8)[...] = 0xFF
            self._queued.add(made)
        return made

    def ran(self, copy: _Copy) -> None:
        """Forgets a copy."""
        with self._lock:
            self._queued.discard(copy)


class _Copy:
    """One copy.

    Attributes:
        sent: What it reads, if the host alone could have changed that.
    """

    def __init__(
        self, all_of: PinnedCopies, run: Callable[[], None], reads: HostArray | None, writes: HostArray | None
    ) -> None:
        self._all, self._run = all_of, run
        self.reads, self.writes = reads, writes
        self.sent: bytes | None = None
        self._bounds = [byte_bounds(one) for one in (reads, writes) if one is not None]

    def touches(self, other: _Copy) -> bool:
        """Returns whether both access one place."""
        return any(a < d and c < b for a, b in self._bounds for c, d in other._bounds)

    def __call__(self) -> None:
        self._all.ran(self)
        if self.sent is not None and self.reads is not None and self.reads.tobytes() != self.sent:
            raise DeviceError(
                "pinned memory was written while a copy from it was in flight",
                expected="the host to wait for the copy before it writes there again",
                received=f"other values in a slot of {self.reads.dtype.name}{list(self.reads.shape)} than when the copy was queued",
                fix="wait for the stream of the copy, or write another slot",
            )
        self._run()


__all__ = ["PinnedCopies"]
