"""Writes the learning rates of a program into the scope before a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from tstatic.devices import owner_of
from tstatic.ir.learning_rate import SetRate
from tstatic.ir.program import Program
from tstatic.runtime.scope import Scope

# One for all runs: it holds nothing, and a step makes no call for it.
_NOTHING: AbstractContextManager[None] = contextlib.nullcontext()


def scheduled(program: Program, scope: Scope) -> AbstractContextManager[None]:
    """Writes the current values of the program's learning rates; if the block raises, restores the previous ones."""
    rates: list[tuple[str, float]] = []
    for name, rate in program.learning_rates.items():
        # Most optimizers have a rate that nobody changes: of those, a step makes no call.
        value = rate.value if isinstance(rate, SetRate) else None if rate is None else rate()
        if value is not None:
            rates.append((name, value))
    # Read before anything is written: a scheduler that raises leaves the old rates in place.
    return _written(rates, scope) if rates else _NOTHING


@contextlib.contextmanager
def _written(rates: list[tuple[str, float]], scope: Scope) -> Iterator[None]:
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
