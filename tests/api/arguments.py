"""Parameters of what is public that nothing reads, and those that say so."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.api import surface
from tests.ops.effects import loaded
from tstatic.ir.respell import BODY
from tstatic.no_effect import declared


def callables() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Yields the name, the function and where its declarations are, for functions, constructors and public methods.

    A constructor that several classes share is each class's own: it may declare arguments for one and not for another.
    """
    seen: set[tuple[int, int]] = set()
    for path, value in surface.walk():
        if not (inspect.isroutine(value) or inspect.isclass(value)):
            continue
        for name, function, owner in _parts(path, value):
            code = getattr(inspect.unwrap(function), "__code__", None)
            key = (id(code), id(owner))
            if code is not None and key not in seen and "/tstatic/" in code.co_filename:
                seen.add(key)
                yield name, inspect.unwrap(function), owner


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any, Any]]:
    if not inspect.isclass(value):
        yield path, value, value
        return
    members = {name: member for base in reversed(value.__mro__) for name, member in vars(base).items()}
    for name, member in members.items():
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if inspect.isfunction(inner) and (not name.startswith("_") or name in ("__init__", "__call__")):
            yield (path if name == "__init__" else f"{path}.{name}"), inner, value if name == "__init__" else inner


def unread(function: Callable[..., Any]) -> set[str]:
    """Parameters that the function's code never loads; none where it always raises."""
    code = vars(function).get(BODY, function).__code__
    if not any(op.opname.startswith("RETURN") for op in dis.get_instructions(code)):
        return set()
    if inspect.signature(function).return_annotation in ("NoReturn", "Never"):
        return set()
    # Those of the code itself: a signature that is set on it is that of what it passes its arguments on to.
    parameters = list(inspect.getargs(code)[0]) + [name for name in inspect.getargs(code)[1:] if name]
    first = parameters[:1] if parameters[:1] in (["self"], ["cls"]) else []
    return set(parameters) - set(first) - loaded(vars(function).get(BODY, function))


def is_hook(function: Callable[..., Any]) -> bool:
    """Whether training loops call it: its parameters are their protocol, which the class of callbacks documents."""
    return function.__module__ == "tstatic.io.callbacks" and function.__name__.startswith("on_")


def declarations(owner: Any) -> Mapping[str, str]:
    """What a function, or a class for its constructor, declares to be without effect; subclasses inherit it."""
    if not inspect.isclass(owner):
        return declared(owner)
    found: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        found |= {**declared(base), **declared(base.__init__)}
    parameters = inspect.signature(owner).parameters
    return {name: why for name, why in found.items() if name in parameters}
