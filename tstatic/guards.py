"""Provides defaults that a ``with`` block replaces in its own thread only: programs, scope, names, marks."""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Any, Generic, TypeVar

__all__ = ["Guarded"]

T = TypeVar("T")


class _Block(Generic[T]):
    """A ``with`` block with its value, and the object to which the value applies."""

    __slots__ = ("_guarded", "of", "value")

    def __init__(self, guarded: Guarded[T], value: T, of: Any) -> None:
        self._guarded = guarded
        self.value = value
        self.of = of

    def __enter__(self) -> None:
        stack = self._guarded._blocks
        try:
            stack.set((*stack.get(), self))
        except BaseException:
            # An interrupt: the block is not entered, so nobody would leave it.
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # This block, wherever it lies: one in a generator may end after blocks around it, or in another thread.
        stack = self._guarded._blocks
        stack.set(tuple(block for block in stack.get() if block is not self))


class Guarded(Generic[T]):
    """Holds a value that all threads share, except those inside a block of :meth:`inside`.

    Args:
        name: For debuggers.
        shared: What threads outside any block have; new threads are outside.
    """

    def __init__(self, name: str, shared: T) -> None:
        self.shared = shared
        self._blocks: ContextVar[tuple[_Block[T], ...]] = ContextVar(name, default=())

    def get(self, of: Any = None) -> T:
        """Returns the value of this thread's innermost block for ``of``, or else the shared one."""
        for block in reversed(self._blocks.get()):
            if block.of is of:
                return block.value
        return self.shared

    def is_inside(self) -> bool:
        """Returns whether this thread is inside of a block."""
        return bool(self._blocks.get())

    def inside(self, value: T, of: Any = None) -> _Block[T]:
        """Returns a block in which this thread has another value; it can be entered once."""
        return _Block(self, value, of)

    def switch(self, value: T) -> T:
        """Replaces the value of this thread's innermost block, or else the shared one; returns the old value."""
        blocks = self._blocks.get()
        if blocks:
            old, blocks[-1].value = blocks[-1].value, value
        else:
            old, self.shared = self.shared, value
        return old
