"""Tells when an exception that Python drops has left its lock of all imports held."""

from __future__ import annotations

import _imp
from typing import Any

CALLBACK = "importlib._bootstrap", "_get_module_lock.<locals>.cb"
"""What removes a module's lock when nobody has it any more. It takes the lock of all imports, and its ``try`` begins one
instruction later: Ctrl-C between the two is dropped, as in all callbacks of weak references, and the lock stays held."""


def is_left_held(unraisable: Any) -> bool:
    """Returns whether what ``sys.unraisablehook`` is told of has left the lock with this thread, so that all others wait."""
    function = unraisable.object
    if (getattr(function, "__module__", ""), getattr(function, "__qualname__", "")) != CALLBACK:
        return False
    try:
        _imp.release_lock()
    except RuntimeError:
        return False  # another thread's, or nobody's
    _imp.acquire_lock()
    return True


__all__ = ["is_left_held"]
