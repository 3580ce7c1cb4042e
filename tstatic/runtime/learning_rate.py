"""Writes the learning rates of a program into the scope before a run, or in the order of the device's work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from tstatic.devices import Device, owner_of
from tstatic.devices.step import Stream
from tstatic.ir.learning_rate import SetRate
from tstatic.ir.program import Program
from tstatic.runtime.feed import StagedFeeds
from tstatic.runtime.scope import Scope

# One for all runs: it holds nothing, and a step makes no call for it.
_NOTHING: AbstractContextManager[None] = contextlib.nullcontext()


Rates = Sequence[tuple[str, float]]
"""Variables that hold learning rates, and what a run writes into them."""


def due_rates(program: Program) -> Rates:
    """Returns the learning rates of a program that its next run writes: those of schedulers, and what ``set_lr`` gave."""
    found: list[tuple[str, float]] = []
    for name, rate in program.learning_rates.items():
        # Most optimizers have a rate that nobody changes: of those, a step makes no call.
        value = rate.value if isinstance(rate, SetRate) else None if rate is None else rate()
        if value is not None:
            found.append((name, value))
    return found


def written(rates: Rates, scope: Scope) -> AbstractContextManager[None]:
    """Writes learning rates, wherever the scope's values are; if the block raises, restores the previous ones."""
    return _written(rates, scope) if rates else _NOTHING


@contextlib.contextmanager
def _written(rates: Rates, scope: Scope) -> Iterator[None]:
    held = [(array, value) for name, value in rates for array in scope.everywhere(name)]
    old = [owner_of(array).to_host(array) for array, _ in held]
    for array, value in held:
        owner_of(array).fill(array, value)
    try:
        yield
    # Also after Ctrl-C: a step that was not made must not have changed the scope.
    except BaseException:
        for (array, _), before in zip(held, old, strict=True):
            owner_of(array).from_host(array, before)
        raise


class LateRates:
    """Learning rates on a device whose work runs late: they are written in the order of its work, and the host waits for nothing.

    Args:
        device: The device.
        scope: The scope of the variables.
        stream: The stream of the copies.
        names: The variables.
        slots: How many steps may be in flight, each with a slot of its own.
    """

    def __init__(self, device: Device, scope: Scope, stream: Stream, names: Sequence[str], slots: int) -> None:
        self._device, self._scope, self._stream = device, scope, stream
        self._names, self._layout = list(names), scope.layout
        # A variable that no startup program has made is missed by the run itself, which says so.
        found = [(name, array) for name in names if (array := scope.array(name)) is not None and device.holds(array)]
        self._arrays = [array for _, array in found]
        self._staged = StagedFeeds(device, found, stream)
        self._before = [[device.empty(a.shape, a.dtype) for a in self._arrays] for _ in range(slots)]

    def fit(self, rates: Rates) -> bool:
        """Returns whether they are of these variables, whose storage is still the same."""
        return self._layout == self._scope.layout and [name for name, _ in rates] == self._names

    def write(self, rates: Rates, slot: int) -> None:
        """Queues the copies of the rates, and before them those of what they replace."""
        for array, before in zip(self._arrays, self._before[slot], strict=True):
            self._device.copy(before, array, self._stream)
        self._staged.send(dict(rates), slot)

    def take_back(self, slot: int, later: int | None = None) -> None:
        """Queues copies that undo what a step wrote that was not made.

        Args:
            slot: The step's.
            later: The slot of the step behind it, which has written its own rate: what it replaced is then another value.
        """
        to = self._arrays if later is None else self._before[later]
        for array, before in zip(to, self._before[slot], strict=True):
            self._device.copy(array, before, self._stream)

    def free(self) -> None:
        """Frees the pinned memory."""
        self._staged.free()
