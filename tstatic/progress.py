"""Progress of work that may take long, with the time that is left: a line on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TextIO, TypeVar

__all__ = ["Progress", "duration", "tracked"]

T = TypeVar("T")
AFTER = 2.0
"""Seconds that pass before anything is shown: most work is done by then."""
EVERY = 0.2
"""Seconds between two updates of a line on a terminal."""
QUIET = 60.0
"""Seconds between two lines where there is no terminal: enough to see in a log that the work goes on."""
MOST_LABEL = 40
_RANKS = ("RANK", "SLURM_PROCID", "PADDLE_TRAINER_ID")
"""Where a launcher says which process this is; only the first one shows progress."""


def duration(seconds: float) -> str:
    """Returns seconds as ``0.4 s``, ``12 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def wanted() -> bool:
    """Returns whether this process shows progress: ``TSTATIC_PROGRESS=0`` turns it off, ranks above 0 never do."""
    if os.environ.get("TSTATIC_PROGRESS", "1") in ("0", "off", "false"):
        return False
    return next((os.environ[name] for name in _RANKS if os.environ.get(name)), "0") == "0"


class Progress:
    """Shows how far a piece of work is, on standard error.

    On a terminal it is one line, from two seconds on, which goes away when the work is done. Elsewhere (a file, a CI log) it is one
    plain line a minute, and one at the end of work that took so long.

    Args:
        what: What is done, such as ``compiling kernels``.
        total: Number of parts.
        stream: Where it is shown; standard error if ``None``.
        clock: Seconds, for tests.

    Example:
        >>> from tstatic.progress import Progress
        >>> with Progress("checking", 3) as progress:
        ...     for name in ("a", "b", "c"):
        ...         progress.advance(name)
        >>> progress.done
        3
    """

    def __init__(
        self, what: str, total: int, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self._stream = stream
        self._clock = clock
        self._begun = self._shown = clock()
        self._wide = 0
        self._lines = 0
        self._wanted = wanted()

    def advance(self, label: str = "", count: int = 1) -> None:
        """Says that ``count`` more parts are done; ``label`` names the last one."""
        self.done += count
        if not self._wanted:
            return
        now = self._clock()
        stream = self._stream or sys.stderr
        if _is_terminal(stream):
            if now - self._begun >= AFTER and now - self._shown >= EVERY:
                self._shown = now
                self._draw(stream, self._text(now, label))
        elif now - self._shown >= QUIET:
            self._shown = now
            self._lines += 1
            print(self._text(now, label), file=stream, flush=True)

    def _text(self, now: float, label: str) -> str:
        spent = now - self._begun
        text = f"{self.what} {self.done}/{self.total}"
        if 0 < self.done < self.total:
            text += f", {duration(spent * (self.total - self.done) / self.done)} left"
        # Names come from users; a control byte would move the cursor.
        plain = "".join(c if c.isprintable() else "?" for c in label[:MOST_LABEL])
        return f"{text} ({plain})" if plain else text

    def _draw(self, stream: TextIO, text: str) -> None:
        stream.write(f"\r{text}{' ' * max(0, self._wide - len(text))}")
        stream.flush()
        self._wide = len(text)

    def close(self) -> None:
        """Takes the line off the terminal; elsewhere says how long the work took, if it was worth a line before."""
        stream = self._stream or sys.stderr
        if self._wide:
            stream.write(f"\r{' ' * self._wide}\r")
            stream.flush()
            self._wide = 0
        elif self._lines:
            took = duration(self._clock() - self._begun)
            print(f"{self.what}: {self.done} of {self.total} in {took}", file=stream, flush=True)
            self._lines = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # a replaced or closed stream
        return False


def tracked(what: str, items: Iterable[T], total: int, label: Callable[[T], str] = lambda _: "") -> Iterator[T]:
    """Yields items, and shows how many are done: each counts when the next one is asked for."""
    with Progress(what, total) as progress:
        for item in items:
            yield item
            progress.advance(label(item))
