"""Ctrl-C waits while state is written."""

from __future__ import annotations

import contextlib
import importlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

# The C function below signal.signal: its wrapper spends 10 microseconds on enumerations, twice a step.
_set_handler: Callable[..., Any] = importlib.import_module("_signal").signal


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Holds back Ctrl-C while state is written, so that a step is done or not done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[Any] = []
    old = _set_handler(signal.SIGINT, lambda *args: pending.append(args))
    try:
        yield
    finally:
        _set_handler(signal.SIGINT, old)
        if pending and callable(old):
            old(*pending[-1])
