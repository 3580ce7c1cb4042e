"""Signals wait while state is written; what cannot wait leaves the state torn, which later runs refuse to use."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import Any

from tstatic.errors import DeviceError, ForkedProcessError
from tstatic.runtime.scope import Scope

# The C functions below those of the module: their wrappers spend 10 microseconds on enumerations, twice a step.
_signal = importlib.import_module("_signal")
_set_handler: Any = _signal.signal
_handler_of: Any = _signal.getsignal
_UNCATCHABLE = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}
_NUMBERS = tuple(int(n) for n in signal.valid_signals() if n not in _UNCATCHABLE)


PATIENCE = 10.0
"""Seconds that replicas have to end the update that they are in when a step is broken off."""


class _StandIn:
    """Takes a handler's place: keeps its signals while the shield is up, and calls it where none is."""

    __slots__ = ("handler", "number")

    def __init__(self, number: int, handler: Any) -> None:
        self.number = number
        self.handler = handler

    def __call__(self, number: int, frame: Any) -> None:
        if shield.up:
            shield.waiting.append((self.handler, number, frame))
        else:
            self.handler(number, frame)


class Shield:
    """Holds back all signals that have a Python handler; they are handled when the block ends.

    There is one, because Python runs handlers in the main thread alone: in another thread the block is just run.
    """

    def __init__(self) -> None:
        self.up = 0
        self.waiting: list[tuple[Any, int, Any]] = []
        self._seen: list[Any] = []
        self._stand_ins: tuple[_StandIn, ...] = ()

    def __enter__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        if self.up:
            self.up += 1
            return
        # Asking for 60 handlers takes 2 microseconds; most often one of them, that of Ctrl-C, is a function.
        handlers = list(map(_handler_of, _NUMBERS))
        if handlers != self._seen:
            self._look_at(handlers)
        try:
            self.up = 1
            for one in self._stand_ins:
                _set_handler(one.number, one)
        except BaseException:
            # Raised by a handler whose turn had not come.
            self._lower()
            raise

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        if self.up > 1:
            self.up -= 1
            return
        self._lower()

    def _look_at(self, handlers: list[Any]) -> None:
        found = []
        for number, handler in zip(_NUMBERS, handlers, strict=True):
            while isinstance(handler, _StandIn):  # left behind when an exception broke off what puts handlers back
                handler = handler.handler
            if callable(handler):
                found.append(_StandIn(number, handler))
        self._stand_ins = tuple(found)
        self._seen = handlers

    def _lower(self) -> None:
        # Down first: a stand-in that stays because the next lines are broken off calls its handler as if it were not there.
        self.up = 0
        try:
            for one in self._stand_ins:
                if _handler_of(one.number) is one:
                    _set_handler(one.number, one.handler)
        finally:
            if self.waiting:
                self._deliver()

    def forget(self) -> None:
        """Takes down, in a forked child, what another thread of the parent had put up."""
        self.waiting.clear()
        if self.up:
            self._lower()

    def _deliver(self) -> None:
        handler, number, frame = self.waiting.pop(0)
        try:
            handler(number, frame)
        finally:
            # A handler that raises does not swallow the next one's signal.
            if self.waiting:
                self._deliver()


shield = Shield()
"""``with shield:`` makes a block done or not done, as far as signals go."""


class Writing:
    """Writes state inside the block, all or nothing as far as signals go.

    An exception that comes through all the same (raised by an operator, or put into this thread from outside) leaves the
    variables *torn*: :func:`check_whole` refuses to use them until all of each was written again.

    Args:
        scope: Where the variables are, or in a parent of it.
        names: The variables that the block writes completely.
        what: What is being done, for the error: ``a step``, ``a load``.
    """

    __slots__ = ("names", "scope", "what")

    def __init__(self, scope: Scope, names: Collection[str], what: str) -> None:
        self.scope = scope
        self.names = names
        self.what = what

    def __enter__(self) -> None:
        # First: an exception that keeps `__exit__` from running leaves this note.
        _open[threading.get_ident()] = self
        try:
            shield.__enter__()
        except BaseException:
            # From a handler: nothing is written yet.
            _open.pop(threading.get_ident(), None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self.tear(f"{self.what} that {type(error).__name__} broke off")
            elif self.scope.torn:
                self.scope._mend(self.names)
            _open.pop(threading.get_ident(), None)
        finally:
            shield.__exit__()

    def tear(self, reason: str) -> None:
        """Notes that the variables may be half written."""
        self.scope._tear(self.names, reason)


_open: dict[int, Writing] = {}
"""Per thread what it is writing now."""


def still_writing(scopes: Collection[Scope]) -> list[Writing]:
    """What threads are writing to these scopes now."""
    return [writing for writing in list(_open.values()) if writing.scope in scopes]


@contextlib.contextmanager
def left_whole(scopes: Collection[Scope]) -> Iterator[None]:
    """When a parallel step is broken off, waits until no replica writes to its scope; what one goes on writing is torn."""
    try:
        yield
    except BaseException as error:
        deadline = time.monotonic() + PATIENCE
        with shield:
            while (left := still_writing(scopes)) and time.monotonic() < deadline:
                time.sleep(0.001)
            for writing in left:
                writing.tear(f"a step that {type(error).__name__} broke off")
        raise


def check_whole(scope: Scope, names: Collection[str], use: str) -> None:
    """Refuses variables that were left half written.

    Args:
        scope: Where they are.
        names: What is going to be read.
        use: What for, as the subject of a sentence: ``this run``, ``static.save``.

    Raises:
        DeviceError: If one of them is torn.
        ForkedProcessError: If one of them was copied by a fork while a thread of the parent wrote it.
    """
    left = _open.pop(threading.get_ident(), None)
    if left is not None:
        left.tear(f"{left.what} that was broken off")
    if not scope.torn:
        return
    torn = [(name, reason) for name in names if (reason := scope._torn_by(name))]
    if torn:
        name, reason = torn[0]
        more = f" and {len(torn) - 1} more" if len(torn) > 1 else ""
        kind = ForkedProcessError if reason.endswith(_FORKED) else DeviceError
        raise kind(
            f"{use} would use values that are half written: '{name}'{more}",
            expected="values that one step, load or startup program wrote completely",
            received=f"what is left of {reason}",
            fix="load the last good checkpoint (static.load, set_state_dict), or run the startup program again",
            var=name,
        )


_FORKED = "of a thread of the parent process, in the middle of which this process was forked"


def _after_fork() -> None:
    mine = threading.get_ident()
    if mine not in _open:
        shield.forget()
    for ident, writing in list(_open.items()):
        if ident != mine:
            writing.tear(f"{writing.what} {_FORKED}")
            del _open[ident]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
