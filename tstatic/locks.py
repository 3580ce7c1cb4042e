"""Locks that a forked child finds free, because the threads that held them stayed in the parent, a property, and a parser."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload
from weakref import WeakSet

__all__ = ["cached_property", "lock", "parse_expression", "parse_module", "rlock"]

T = TypeVar("T")

_made: WeakSet[Any] = WeakSet()


def lock() -> threading.Lock:
    """Makes a lock; in a forked child nobody holds it, whoever did in the parent.

    It guards short sections that do not fork.
    """
    made = threading.Lock()
    _made.add(made)
    return made


def rlock() -> threading.RLock:
    """Makes a lock that its holder may take again; in a forked child only the forking thread can still hold it."""
    made = threading.RLock()
    _made.add(made)
    return made


# Until 3.13, CPython counts the depth of the tree that it makes in one place for all threads: if the collector lets another thread
# parse in between, both fail ("AST constructor recursion depth mismatch").
_parsing = rlock()


def parse_module(text: str) -> ast.Module:
    """Returns the tree of a module's text, as :func:`ast.parse` does, in one thread at a time."""
    with _parsing:
        return ast.parse(text)


def parse_expression(text: str) -> ast.Expression:
    """Returns the tree of an expression's text, as :func:`ast.parse` does, in one thread at a time."""
    with _parsing:
        return ast.parse(text, mode="eval")


class cached_property(Generic[T]):  # noqa: N801 - takes the place of functools'
    """A property that is computed once; threads that are there first at the same time may each compute it.

    functools' own has a lock before Python 3.12, one for all objects of a class. A child that is forked while another thread
    computes the property would wait for it for ever.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self._name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, obj: None, cls: type | None = None) -> Self: ...
    @overload
    def __get__(self, obj: object, cls: type | None = None) -> T: ...
    def __get__(self, obj: object | None, cls: type | None = None) -> Self | T:
        if obj is None:
            return self
        # All threads get the value that was stored first.
        found: T = vars(obj).setdefault(self._name, self._function(obj))
        return found


def _free() -> None:
    for one in list(_made):
        # A Python function that a step calls may fork: its own step goes on in the child and gives the lock back.
        if not getattr(one, "_is_owned", bool)():
            one._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
