"""A mapping of arrays as references on the host see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import numpy as np

from tstatic.devices.base import ArraysByName
from tstatic.devices.step import HostArray


class SeenArrays(MutableMapping[str, Any]):
    """Arrays by value, as references on the host see them; what they add becomes the device's.

    Args:
        arrays: The device's arrays.
        inside: Returns what the references see of a value.
        there: Returns an array of the host as one of the device's.
    """

    def __init__(self, arrays: ArraysByName, inside: Callable[[Any], Any], there: Callable[[HostArray], Any]) -> None:
        self._arrays, self._inside, self._there = arrays, inside, there

    def __getitem__(self, name: str) -> Any:
        return self._inside(self._arrays[name])

    def __setitem__(self, name: str, value: Any) -> None:
        self._arrays[name] = self._there(value) if isinstance(value, np.ndarray) else value

    def __delitem__(self, name: str) -> None:
        del self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


__all__ = ["SeenArrays"]
