"""Arguments that are accepted and do nothing: each is declared where its function is defined, with the reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

ATTRIBUTE = "__no_effect__"
PLACE = "the executor's place decides where values live"
LIBRARY = "the device chooses the kernel, and results do not depend on it"
PRINTS = "there is nothing that cannot be printed"
NO_NAME = "an initializer makes no variable of its own"
ONE_GROUP = "all processes are one group"
IN_PLACE = "the plan decides which values share memory"


def no_effect(**reasons: str) -> Callable[[F], F]:
    """Declares arguments that a function, method or class takes and does not use.

    The reasons are appended to the docstring and listed in ``docs/api.md``. A test finds arguments without effect that are
    not declared, and declared ones that have an effect.

    Example:
        >>> @no_effect(use_cudnn=LIBRARY)
        ... def pool(x, use_cudnn=True):
        ...     '''Pools.'''
    """

    def declare(function: F) -> F:
        parameters = inspect.signature(function).parameters
        unknown = [n for n in reasons if n not in parameters]
        assert not unknown or any(p.kind is p.VAR_KEYWORD for p in parameters.values()), f"no such arguments: {unknown}"
        lines = "\n".join(f"    {name}: {why}." for name, why in reasons.items())
        # A class is declared by its own dictionary: what a base class says is about that one's arguments.
        declared = {**_own(function), **reasons}
        doc = f"{inspect.cleandoc(function.__doc__ or '')}\n\nAccepted without effect:\n{lines}"
        inner = function if inspect.isclass(function) else inspect.unwrap(function)
        for one in (function, inner):
            setattr(one, ATTRIBUTE, declared)
            one.__doc__ = doc
        return function

    return declare


def _own(function: Any) -> Mapping[str, str]:
    found: Mapping[str, str] = getattr(function, "__dict__", {}).get(ATTRIBUTE, {})
    return found


def declared(function: Any) -> Mapping[str, str]:
    """Returns the arguments that a function or class declares to be without effect, with the reasons."""
    return _own(inspect.unwrap(function)) if not inspect.isclass(function) else _own(function)
