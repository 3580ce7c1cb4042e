"""Writes a scheduler's learning rate into the scope before a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from tstatic.devices import owner_of
from tstatic.ir.program import Program
from tstatic.runtime.scope import Scope

_NOTHING: AbstractContextManager[None] = contextlib.nullcontext()


def scheduled(program: Program, scope: Scope) -> AbstractContextManager[None]:
    """Writes the scheduler's current value; if the block raises, restores the previous one."""
    return _NOTHING if program.lr_scheduler is None else _scheduled(program, scope)


@contextlib.contextmanager
def _scheduled(program: Program, scope: Scope) -> Iterator[None]:
    held = scope.everywhere(program.lr_var.name) if program.lr_var is not None else []
    if not held:
        yield
        return
    old = [owner_of(array).to_host(array) for array in held]
    # Read before anything is written: a scheduler that raises leaves the old rate in place.
    value = program.lr_scheduler()
    for array in held:
        owner_of(array).fill(array, value)
    try:
        yield
    # Also after Ctrl-C: a step that was not made must not have changed the scope.
    except BaseException:
        for array, before in zip(held, old, strict=True):
            owner_of(array).from_host(array, before)
        raise
