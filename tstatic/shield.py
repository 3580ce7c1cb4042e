"""Defers signals while a block runs, so that no handler's exception breaks it off."""

from __future__ import annotations

import importlib
import signal
import threading
from typing import Any

__all__ = ["Shield", "shield"]

# The C functions themselves: the wrappers in `signal` spend 10 microseconds on enumerations, twice a step.
_signal = importlib.import_module("_signal")
_set_handler: Any = _signal.signal
_handler_of: Any = _signal.getsignal
_UNCATCHABLE = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}
_NUMBERS = tuple(int(n) for n in signal.valid_signals() if n not in _UNCATCHABLE)


class _StandIn:
    """Replaces a handler: queues its signals while the shield is up, and calls it otherwise."""

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
    """Defers all signals that have a Python handler until the block ends.

    There is one instance, because Python runs handlers in the main thread only; in other threads it has no effect.
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
        # Reading 60 handlers takes 2 microseconds; usually one of them, that of Ctrl-C, is a function.
        handlers = list(map(_handler_of, _NUMBERS))
        if handlers != self._seen:
            self._look_at(handlers)
        try:
            self.up = 1
            for one in self._stand_ins:
                _set_handler(one.number, one)
        except BaseException:
            # Raised by a handler that was not replaced yet.
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
            # A stand-in stays behind if an exception interrupts the loop that restores handlers.
            while isinstance(handler, _StandIn):
                handler = handler.handler
            if callable(handler):
                found.append(_StandIn(number, handler))
        self._stand_ins = tuple(found)
        self._seen = handlers

    def _lower(self) -> None:
        try:
            self._restore()
        finally:
            if self.waiting:
                self._deliver()

    def _restore(self) -> None:
        # First: if an exception interrupts the next lines, a stand-in that stays behind calls its handler at once.
        self.up = 0
        for one in self._stand_ins:
            if _handler_of(one.number) is one:
                _set_handler(one.number, one.handler)

    def forget(self) -> None:
        """Lowers, in a forked child, a shield that another thread of the parent had raised."""
        self.waiting.clear()
        if self.up:
            self._lower()

    def leave(self) -> list[int]:
        """Ends a block as :meth:`__exit__` does, but calls no handlers.

        Returns:
            The numbers of the signals that waited; none where an outer block still defers them.
        """
        if self.up > 1:
            self.up -= 1
            return []
        self._restore()
        numbers = [number for _, number, _ in self.waiting]
        self.waiting.clear()
        return numbers

    def _deliver(self) -> None:
        handler, number, frame = self.waiting.pop(0)
        try:
            handler(number, frame)
        finally:
            # The next handler is called even if this one raises.
            if self.waiting:
                self._deliver()


shield = Shield()
"""``with shield:`` defers signals: a block runs completely or not at all."""
