"""Writes many variables of a scope at once: all of them, or none."""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Mapping
from typing import Any

from tstatic.devices import Array, owner_of
from tstatic.runtime.scope import Scope, ScopeVar


def assign(scope: Scope, values: Mapping[str, Array], runs: Mapping[int, tuple[int, int]] | None = None) -> None:
    """Writes all values, or none if an exception interrupts the call, including Ctrl-C and what a signal handler raises.

    A value of the variable's shape and dtype is copied into its storage; any other array becomes its new storage.

    Args:
        scope: Where the variables are, or in a parent of it; new ones are made here.
        values: Arrays by name; the caller must not use them afterwards.
        runs: Run counts by program, written at the same point.
    """
    with scope.lock:
        scope.in_flight.settle()
        steps: list[tuple[Any, ...]] = [
            (operator.setitem, scope.runs, uid, count) for uid, count in (runs or {}).items()
        ]
        for name, array in values.items():
            found = scope.find_var(name)
            old = None if found is None else found.get_tensor().array
            if found is None:
                var = ScopeVar(name, scope)
                var.get_tensor().hold(array)
                steps.append((operator.setitem, scope._vars, name, var))
            elif old is not None and old.shape == array.shape and old.dtype == array.dtype:
                found.scope.bump_version()
                function, args = owner_of(old).assigning(old, array)
                steps.append((function, *args))
            else:
                # Before the write: plans bound to the old storage must bind anew if the new one is installed.
                found.scope._layout_changed()
                steps.append((setattr, found.get_tensor(), "_array", array))
                steps.append((setattr, found.get_tensor(), "flat", None))
            if found is not None:
                # A variable that was half written is complete again.
                steps.append((found.scope.torn.pop, found.get_tensor(), None))
        # One call that runs C functions only: Python handles signals, and exceptions from other threads, only between its own
        # instructions, so before the first of these writes or after the last.
        deque(itertools.starmap(operator.call, steps), maxlen=0)


__all__ = ["assign"]
