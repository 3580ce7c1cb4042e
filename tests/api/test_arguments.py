"""Arguments that do nothing say why, where their function is defined."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.arguments import callables, declarations, is_hook, unread
from tstatic.ir.respell import parameters_of
from tstatic.no_effect import declared, no_effect


def test_public_functions_read_their_parameters_or_say_why_not() -> None:
    found = list(callables())
    assert len(found) > 800
    wrong = [
        f"{path}: {name}"
        for path, function, owner in found
        if not is_hook(function)
        for name in unread(function) - set(declarations(owner))
    ]
    assert wrong == [], "nothing reads these: implement them, or declare them with @no_effect"


def test_a_planted_parameter_is_found() -> None:
    def dead(x: int, factor: int = 2, *rest: int, limit: int = 3, **more: int) -> int:
        limit = x
        return x + limit

    def nested(x: int, y: int) -> Any:
        return lambda: x

    def raises(x: int) -> None:
        raise NotImplementedError

    def scaled(x: int, factor: int = 2) -> int:
        return x * factor

    @parameters_of(scaled)
    def passes(factor: int, **given: int) -> int:
        return len(given)

    assert unread(passes) == {"factor"}
    assert unread(dead) == {"factor", "rest", "more"}
    assert unread(nested) == {"y"}
    assert unread(raises) == set()


def test_a_declaration_stands_with_its_function_and_in_its_docstring() -> None:
    @no_effect(level="there is one level")
    def function(x: int, level: int = 0) -> int:
        """Returns ``x``."""
        return x

    class Base:
        """A base."""

        @no_effect(size="all are alike")
        def __init__(self, size: int = 0) -> None:
            pass

    class Derived(Base):
        """Has no constructor of its own."""

    assert declared(function) == {"level": "there is one level"}
    assert function.__doc__ == "Returns ``x``.\n\nAccepted without effect:\n    level: there is one level."
    assert declarations(Derived) == {"size": "all are alike"}
    with pytest.raises(AssertionError, match="gone"):
        no_effect(gone="there is no such argument")(function)
