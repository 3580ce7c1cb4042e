"""Locks that a forked child finds free: the threads that held them stayed in the parent."""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

__all__ = ["lock", "rlock"]

_made: WeakSet[Any] = WeakSet()


def lock() -> threading.Lock:
    """Makes a lock; in a forked child nobody holds it, whoever did in the parent.

    It guards short sections that do not fork.
    """
    made = threading.Lock()
    _made.add(made)
    return made


def rlock() -> threading.RLock:
    """Makes a lock that its holder may take again; in a forked child only the forking thread can still hold it."""
    made = threading.RLock()
    _made.add(made)
    return made


def _free() -> None:
    for one in list(_made):
        # A Python function that a step calls may fork: its own step goes on in the child and gives the lock back.
        if not getattr(one, "_is_owned", bool)():
            one._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
