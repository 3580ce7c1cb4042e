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


def room(device: Device, array: Array, on_device: bool) -> Array:
    """Returns memory of the caller's own for a fetched value: the device's, or the host's."""
    make = device.empty if on_device else np.empty
    return make(array.shape, array.dtype)


def copied(device: Device, value: Any, stream: Stream) -> Array:
    """Returns a copy of an array, of the device or of the host, in memory of the device."""
    if isinstance(value, np.ndarray):
        return device.upload(value.copy())
    made = device.empty(value.shape, value.dtype)
    device.copy(made, value, stream)
    return made


def pinned_slots(device: Device, arrays: Sequence[Array], purpose: str) -> tuple[Memory, list[np.ndarray[Any, Any]]]:
    """Returns pinned memory with room for each of a device's arrays, and that room as arrays of the host."""
    metas = [Meta(a.shape, dtype_of(a.dtype)) for a in arrays]
    offsets = list(itertools.accumulate((-(-m.nbytes // ALIGNED) * ALIGNED for m in metas), initial=0))
    memory = device.allocate(offsets.pop(), "pinned", purpose)
    memory.touch()
    return memory, [device.view(memory, at, m) for at, m in zip(offsets, metas, strict=True)]


class StagedFetches:
    """A ring of pinned memory for the values that a plan fetches; copies into it are queued like any work.

    Args:
        device: The device.
        arrays: The values, in the device's memory.
        stream: The stream of the copies.

    Attributes:
        fits: Whether they are few enough; otherwise nothing is pinned.
    """

    def __init__(self, device: Device, arrays: Iterable[Array], stream: Stream) -> None:
        self._device, self._stream = device, stream
        self._arrays = list(arrays)
        self._memory: list[Memory] = []
        self._slots: list[list[tuple[np.ndarray[Any, Any], Call]]] = []
        self.fits = sum(a.nbytes for a in self._arrays) <= MOST_PINNED
        if self.fits:
            self._add_slot()

    def _add_slot(self) -> None:
        if not self._arrays:
            self._slots.append([])
            return
        memory, slots = pinned_slots(self._device, self._arrays, "fetched values")
        self._memory.append(memory)
        copying = self._device.copying
        self._slots.append([(s, copying(s, a, self._stream)) for s, a in zip(slots, self._arrays, strict=True)])

    def send(self, slot: int = 0) -> None:
        """Queues the copies into a slot, whose earlier values were taken."""
        while len(self._slots) <= slot:
            self._add_slot()
        for _, (function, args) in self._slots[slot]:
            function(*args)

    def take(self, places: Sequence[np.ndarray[Any, Any]], slot: int = 0) -> None:
        """Copies to the places what arrived in a slot; its copies must have been waited for."""
        for place, (staged, _) in zip(places, self._slots[slot], strict=True):
            np.copyto(place, staged)

    def free(self) -> None:
        """Frees the pinned memory."""
        self._slots, self._arrays = [], []
        for memory in self._memory:
            self._device.free(memory)
        self._memory = []
