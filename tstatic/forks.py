"""Makes a fork wait until no thread computes: a child would find the locks of libraries taken for ever."""

from __future__ import annotations

import _imp
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, TypeVar
from weakref import WeakSet

from tstatic.locks import rlock
from tstatic.logs import warn_once
from tstatic.shield import shield

__all__ = ["Away", "Computing", "away", "computing", "taken_by_forks"]

T = TypeVar("T")
L = TypeVar("L")

PATIENCE = 30.0
"""Seconds that a fork waits for running computations; then it goes ahead, because they may wait for the thread that forks."""

_PAUSE = 0.001
"""Seconds between two looks whether a fork has returned."""


class Computing:
    """Marks what one thread computes (``with``, may be nested): a fork waits for its end, and its beginning for the end of a fork.

    One lock per thread, which only a fork contends for: threads that compute at the same time share nothing.
    """

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        # Any: the methods that Condition needs are not declared.
        self.lock: Any = threading.RLock()

    def __enter__(self) -> None:
        if _forking and not self.lock._is_owned():
            # A fork that waits for this lock would lose it again and again to a thread that runs short steps.
            _pass_gate()
        try:
            self.lock.acquire()
        except BaseException:
            # Raised by a signal's handler, before or after the lock was taken.
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.lock._is_owned():
            self.lock.release()


_mine = threading.local()
_all: WeakSet[Computing] = WeakSet()
_gate = rlock()
"""Held by a fork, and while a thread computes for the first time."""
_forking = False
"""Whether a fork waits, or is under way."""
_last: list[Any] = []
"""Locks that a fork takes when nothing computes any more."""


def taken_by_forks(lock: L) -> L:
    """Makes a fork wait for a lock, too, and returns the lock.

    For what threads do with a library's settings, inside of a computation or not: unlike :class:`Computing` it does not wait for a
    fork before it begins. A step waits for the threads that help it, and a fork for the step.
    """
    _last.append(lock)
    return lock


def _pass_gate() -> None:
    """Waits for the end of a fork."""
    # Ctrl-C inside of the callback in which Python forgets a lock of a module leaves the lock of imports with this thread. A fork
    # needs that lock, so a thread that has it would wait here for ever. While Python itself uses it, no step begins.
    with contextlib.suppress(RuntimeError):
        while True:
            _imp.release_lock()
    with _gate:
        pass


def computing() -> Computing:
    """Returns the mark of this thread."""
    try:
        found: Computing = _mine.computing
    except AttributeError:
        found = Computing()
        if _forking:
            _pass_gate()
        with _gate:
            _all.add(found)
            _mine.computing = found
    return found


class Away:
    """Marks, inside of a computation, what may wait for other threads or fork (``with``): users' functions, collectives."""

    __slots__ = ("_lock", "_state")

    def __enter__(self) -> None:
        self._lock = computing().lock
        self._state = self._lock._release_save() if self._lock._is_owned() else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state is not None:
            # Waits for a fork at most; a signal's handler runs afterwards.
            self._lock._acquire_restore(self._state)


def away(function: Callable[..., T], *args: Any) -> T:
    """Calls a function that may wait for other threads, or fork."""
    with Away():
        return function(*args)


# ----------------------------------------------------------------------------------------------------------------- hooks
def _before() -> None:
    """Waits for what other threads compute, and keeps them from computing on."""
    global _forking
    _mine.held = []
    if threading.get_ident() == threading.main_thread().ident:
        # Python drops the exceptions of this function, a handler's among them.
        shield.__enter__()
        _mine.shielded = True
    deadline = time.monotonic() + PATIENCE
    if not _gate.acquire(timeout=PATIENCE):
        return
    _mine.held.append(_gate)
    _forking = True
    late = 0
    for one in list(_all):
        if one.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _mine.held.append(one.lock)
        else:
            late += 1
    for lock in _last:
        if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _mine.held.append(lock)
    if late:
        warn_once(
            "fork",
            f"a fork did not wait any longer for the steps of {late} thread{'s' * (late > 1)}, which have run for more than "
            f"{PATIENCE:g} s: a product of matrices in the child may hang; start the child with the 'spawn' method",
        )


def _release() -> list[int]:
    """Lets other threads compute again; returns the numbers of the signals that came meanwhile."""
    global _forking
    held = _mine.__dict__.pop("held", [])
    if held:
        _forking = False
    for lock in reversed(held):
        lock.release()
    return shield.leave() if _mine.__dict__.pop("shielded", False) else []


def _is_inside(thread: int, code: CodeType) -> bool:
    """Returns whether a thread runs a function now."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _after_in_parent() -> None:
    main, numbers = threading.get_ident(), _release()
    if numbers:

        def send() -> None:
            # What a handler raises before the fork has returned is dropped.
            while _is_inside(main, _after_in_parent.__code__):
                time.sleep(_PAUSE)
            for number in numbers:
                signal.pthread_kill(main, number)

        threading.Thread(target=send, name="tstatic-signals", daemon=True).start()


def _after_in_child() -> None:
    _release()  # the signals are the parent's
    for one in list(_all):
        if not one.lock._is_owned():
            one.lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
