"""Copies of a device's arrays in the memory of the host, for steps that only the host can run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

import numpy as np

from tstatic.devices.base import ArraysByName, Device
from tstatic.devices.step import HostArray, Stream
from tstatic.devices.torch.device import TorchArray, shaped


class HostCopies:
    """Copies of a step's arrays in the memory of the host; values that share memory there share it here."""

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device = device
        self._stream = stream
        self._made: dict[tuple[Any, ...], HostArray] = {}
        self._fetched: list[tuple[TorchArray, HostArray]] = []
        self._stored: list[tuple[TorchArray, HostArray]] = []

    def of(self, value: Any, read: bool) -> Any:
        """Returns the copies of a slot, which are read before the step or written back after it."""
        if isinstance(value, list):
            return type(value)(self.of(one, read) for one in value)  # a tensor array stays one
        if not isinstance(value, TorchArray):
            return value
        # By address: an update in place has its input and its result in one memory, and must have them in one copy.
        key = (value.tensor.data_ptr(), value.shape, value.dtype, value.tensor.stride())
        if key not in self._made:
            self._made[key] = np.empty(value.shape, value.dtype)
        (self._fetched if read else self._stored).append((value, self._made[key]))
        return self._made[key]

    def fetch(self) -> None:
        """Copies from the device."""
        for array, copy in self._fetched:
            np.copyto(copy, self._device.to_host(array, self._stream))

    def store(self) -> None:
        """Copies to the device."""
        for array, copy in self._stored:
            self._device.from_host(array, copy, self._stream)


class HostValues(MutableMapping[str, Any]):
    """A mapping of arrays as copies on the host; those that were read may have been written, and go back.

    Args:
        device: The device.
        arrays: The arrays by value.
        stream: The stream that has the work behind which they are copied.
        only_shape: Values of which only the shape is read: a block may have lost its memory by then.
    """

    def __init__(
        self, device: Device, arrays: ArraysByName, stream: Stream, only_shape: frozenset[str] = frozenset()
    ) -> None:
        self._device = device
        self._arrays = arrays
        self._only_shape = only_shape
        self._stream = stream
        self._copies: dict[str, HostArray] = {}

    def __getitem__(self, name: str) -> Any:
        value = self._arrays[name]
        if not isinstance(value, TorchArray):
            return value
        if name in self._only_shape:
            return shaped(value)
        if name not in self._copies:
            self._copies[name] = self._device.to_host(value, self._stream)
        return self._copies[name]

    def __setitem__(self, name: str, value: Any) -> None:
        # The old copy would be written back over the new value (`store`).
        self._copies.pop(name, None)
        self._arrays[name] = self._device.upload(value) if isinstance(value, np.ndarray) else value

    def __delitem__(self, name: str) -> None:
        self._copies.pop(name, None)
        del self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def store(self, written: Iterable[str]) -> None:
        """Copies what an op wrote in place back to the device."""
        for name in written:
            if name in self._copies:
                self._device.from_host(self._arrays[name], self._copies[name], self._stream)


__all__ = ["HostCopies", "HostValues"]
