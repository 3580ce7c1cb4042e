"""Raising out of a signal's handler, as Ctrl-C does, at a moment of choice."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any


class Break(BaseException):
    """What the handler raises."""


def interrupt(work: Callable[[], Any], seconds: float) -> bool:
    """Runs ``work``, into which a handler raises after a while; whether it did. Python runs it at the next instruction."""
    armed = [True]

    def late(*args: Any) -> None:
        if armed:
            armed.clear()
            raise Break

    old = signal.signal(signal.SIGALRM, late)
    broken = True
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        work()
        armed.clear()
        broken = False
    except Break:
        pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)
    return broken
