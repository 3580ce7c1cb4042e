"""Says where the time of a plan's first step went, to whoever asks for the log topic ``compile``."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

from tstatic.logs import get_logger

__all__ = ["Timeline", "kernels", "part", "start"]

_log = get_logger("compile")


class Timeline:
    """The parts of one first step, in the order in which they began."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.parts: list[tuple[float, float, str]] = []
        self.batches: list[Any] = []

    def tell(self, program: object) -> None:
        """Logs the parts: when each began, how long it took, and what it was; what no part names is the first run itself."""
        _mine.current = None
        now = time.perf_counter()
        rows = [*self.parts]
        for batch in self.batches:
            waited = f"; {batch.waited:.3f} s were waited for them" if batch.jobs else ""
            rows.append((batch.began, batch.ended or now, f"kernels beside it: {batch}{waited}"))
        last = max((end for _, end, _ in self.parts), default=self.begun)
        rows.append((last, now, "first launch, and the wait for its results"))
        _log.debug("the first step of %r took %.3f s", program, now - self.begun)
        for begun, ended, what in sorted(rows):
            _log.debug("  at %7.3f s for %7.3f s: %s", begun - self.begun, ended - begun, what)


class _Mine(threading.local):
    current: Timeline | None = None


_mine = _Mine()


def start() -> Timeline | None:
    """Begins the time line of a first step in this thread; ``None`` if nobody asks for it."""
    _mine.current = Timeline() if _log.isEnabledFor(logging.DEBUG) else None
    return _mine.current


@contextlib.contextmanager
def part(what: str) -> Iterator[None]:
    """Notes how long a block takes, or, as a decorator, a function, if this thread makes a first step that somebody asks for."""
    line, begun = _mine.current, time.perf_counter()
    yield
    if line is not None:
        line.parts.append((begun, time.perf_counter(), what))


def kernels(batch: Any) -> None:
    """Notes kernels that other processes compile meanwhile."""
    if _mine.current is not None and batch is not None:
        _mine.current.batches.append(batch)
