"""Brings fetched values to the host on a device whose work runs late: all of them before the one wait of a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tstatic.devices import Array, Device
from tstatic.devices.base import ALIGNED, Memory
from tstatic.devices.step import Stream
from tstatic.ir.recording import Call
from tstatic.ir.types import Meta, dtype_of

MOST_PINNED = 64 << 20
"""Bytes of fetched values that are pinned for a plan at most: a bound on pages that the system cannot move, not a measurement.
Larger values are copied to pages that it can move, with a wait for each."""


def pinned_slots(device: Device, arrays: Sequence[Array], purpose: str) -> tuple[Memory, list[np.ndarray[Any, Any]]]:
    """Returns pinned memory with room for each of a device's arrays, and that room as arrays of the host."""
    metas = [Meta(a.shape, dtype_of(a.dtype)) for a in arrays]
    offsets = list(itertools.accumulate((-(-m.nbytes // ALIGNED) * ALIGNED for m in metas), initial=0))
    memory = device.allocate(offsets.pop(), "pinned", purpose)
    memory.touch()
    return memory, [device.view(memory, at, m) for at, m in zip(offsets, metas, strict=True)]


class StagedFetches:
    """Pinned memory for the values that a plan fetches; copies into it are queued like any work.

    Args:
        device: The device.
        arrays: The values, in the device's memory.
        stream: The stream of the copies.

    Attributes:
        fits: Whether they are few enough; otherwise nothing is pinned.
    """

    def __init__(self, device: Device, arrays: Iterable[Array], stream: Stream) -> None:
        self._device = device
        self._arrays = list(arrays)
        self._memory: Memory | None = None
        self._slots: list[np.ndarray[Any, Any]] = []
        self._copies: list[Call] = []
        self.fits = sum(a.nbytes for a in self._arrays) <= MOST_PINNED
        if self.fits and self._arrays:
            self._memory, self._slots = pinned_slots(device, self._arrays, "fetched values")
            self._copies = [device.copying(s, a, stream) for s, a in zip(self._slots, self._arrays, strict=True)]

    def send(self) -> None:
        """Queues the copies."""
        for function, args in self._copies:
            function(*args)

    def take(self, places: Sequence[np.ndarray[Any, Any]]) -> None:
        """Copies to the places what arrived; the stream must have been waited for."""
        for place, slot in zip(places, self._slots, strict=True):
            np.copyto(place, slot)

    def free(self) -> None:
        """Frees the pinned memory."""
        if self._memory is not None:
            self._device.free(self._memory)
        self._memory, self._slots, self._copies = None, [], []
