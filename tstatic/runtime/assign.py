"""Writing several values of a scope at one point."""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from tstatic.devices import owner_of
from tstatic.runtime.scope import Scope, ScopeVar

Array = np.ndarray[Any, Any]


def assign(scope: Scope, values: Mapping[str, Array], runs: Mapping[int, tuple[int, int]] | None = None) -> None:
    """Writes all values, or none if an exception comes in between, be it Ctrl-C or what a signal handler raises.

    A value of the variable's shape and dtype goes to its storage; any other becomes its storage.

    Args:
        scope: Where the variables are, or in a parent of it; new ones are made here.
        values: Arrays by name that nobody else holds.
        runs: Run counts by program, written at the same point.
    """
    with scope.lock:
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
                # Plans that are bound to the old storage look for the new one, should it come.
                found.scope._layout_changed()
                steps.append((setattr, found.get_tensor(), "_array", array))
                steps.append((setattr, found.get_tensor(), "flat", None))
            if found is not None:
                # What was left half written is whole now.
                steps.append((found.scope.torn.pop, found.get_tensor(), None))
        # One call of functions that are all written in C: Python handles signals, and exceptions from other threads, between
        # its own instructions only, so before the first of these writes or after the last.
        deque(itertools.starmap(operator.call, steps), maxlen=0)
