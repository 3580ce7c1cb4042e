"""Makes small tables of numbers, which forms compute on the host from sizes and attributes, and keeps them on the device."""

from __future__ import annotations

from typing import Any

import numpy as np


class Tables:
    """The tables of one bound op: copied to the device when they are asked for first, and there as long as the op is bound.

    A form that takes the keyword ``tables`` gets it, and calls it where it would call ``torch.tensor`` with numbers of the host,
    for which the host waits in every run. It must not write to what it gets.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Any] = {}

    def __call__(self, torch: Any, values: Any, dtype: Any, device: Any) -> Any:
        """Returns a tensor of numbers: a sequence, which may be nested, or an array."""
        array = np.asarray(values)
        key = array.dtype.str, array.shape, array.tobytes(), dtype
        if key not in self._made:
            self._made[key] = fresh(torch, array, dtype, device)
        return self._made[key]

    def made(self) -> list[Any]:
        """Returns all of them."""
        return [*self._made.values()]


def fresh(torch: Any, values: Any, dtype: Any, device: Any) -> Any:
    """Returns a new tensor of numbers, for forms that nobody has bound; what :class:`Tables` keeps is made by it, too."""
    made = torch.from_numpy(np.array(values)).to(dtype)
    # From pinned memory, whose allocator waits for the copy before it gives it to others: so the host does not.
    return made.pin_memory().to(device, non_blocking=True) if torch.device(device).type == "cuda" else made.to(device)
