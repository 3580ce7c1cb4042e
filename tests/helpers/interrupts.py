"""Raising out of a signal's handler, as Ctrl-C does, at a moment of choice."""

from __future__ import annotations

import random
import signal
import time
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


def interrupts(work: Callable[[], Any], check: Callable[[], Any], wanted: int) -> None:
    """Breaks ``work`` off ``wanted`` times, at moments drawn from its length, and checks after each try."""
    start = time.perf_counter()
    work()
    span = time.perf_counter() - start
    rng, broken = random.Random(0), 0
    for _ in range(50 * wanted):
        broken += interrupt(work, span * rng.random())
        check()
        if broken == wanted:
            return
    raise AssertionError(f"only {broken} of {wanted} signals came in time")
