"""Ends a rank: tells the others why, and makes sure that its process ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType

from tstatic.comm.liveness import Monitor
from tstatic.errors import RankFailedError, RankNumericsError, TstaticError
from tstatic.where import is_library, is_own, show

_PATIENCE = 0.3, 1.2
"""Seconds that a process asked to end waits for an accusation, and then for the verdict: launchers end all ranks as soon
as they see one die, and this rank's output should name the one that did."""


def describe(error: BaseException) -> str:
    """Returns the text with which other ranks report an error: its class, first line, operator and the user's line."""
    line = next(iter(str(error).strip().splitlines()), "")
    op = where = None
    if isinstance(error, TstaticError):
        line, op, where = error.what, error.op, error.where
    if where is None:
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if not (is_own(f.filename) or is_library(f.filename))
        ]
        where = show((frames[-1].filename, frames[-1].lineno or 0)) if frames else None
    about = f" in operator '{op}'" if op else ""
    return f"raised {type(error).__name__}{line and f': {line}'}{about}" + (f", at {where}" if where else "")


def guard(monitor: Monitor, close: Callable[[], bool]) -> None:
    """Installs handlers that tell the other ranks if this process ends by an error or by SIGTERM, and that make it end.

    Args:
        monitor: The monitor of this process.
        close: Leaves the group; returns whether no thread is left that would keep Python from ending.
    """
    atexit.register(_leave, close)
    before = sys.excepthook

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # A RankFailedError is about another rank, or all ranks raise it: the others know.
        if not isinstance(error, RankFailedError | RankNumericsError):
            monitor.fail("raised", describe(error))
            # Bounded: a rank whose peers do not read must end all the same.
            monitor.flush(1.0)
        before(kind, error, trace)

    sys.excepthook = uncaught
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        pid = os.getpid()

        def asked_to_end(number: int, frame: FrameType | None) -> None:
            if os.getpid() == pid:
                start = time.monotonic()
                while monitor.verdict is None and time.monotonic() < start + _PATIENCE[monitor.accused]:
                    # In a signal handler: it can only look again, seldom enough to leave the core to other threads.
                    time.sleep(0.01)
                # Behind the wait: told earlier, this rank would be the first to fail, and the one that died the second.
                monitor.fail("ended", "was ended by SIGTERM")
                monitor.flush(0.5)
            # The default and the signal once more: the exit status then says which one ended the process, as launchers expect.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        signal.signal(signal.SIGTERM, asked_to_end)


def _leave(close: Callable[[], bool]) -> None:
    if close():
        return
    # A thread of gloo is inside a call that cannot be ended, and Python would wait for it.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            # By hand, as `os._exit` leaves out all that Python does at its end.
            stream.flush()
    os._exit(1)


__all__ = ["describe", "guard"]
