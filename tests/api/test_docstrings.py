"""Every public name says what it is, and functions name their arguments as they are called."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.api import arguments, surface
from tstatic.no_effect import no_effect

SHARED = {id(value): (path, value) for path, value in reversed(list(surface.walk()))}
DOCUMENTED = {
    path: value for path, value in reversed(SHARED.values()) if inspect.isroutine(value) or inspect.isclass(value)
}


def own_doc(value: Any) -> str:
    """The docstring that the object itself has; one inherited from a base class does not count."""
    return (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""


def stated_arguments(doc: str) -> list[str]:
    """Names in the ``Args:`` part of a Google-style docstring."""
    part = re.search(r"^\s*Args:\n(.*?)(?:\n\s*\n|\Z)", doc, re.MULTILINE | re.DOTALL)
    if part is None:
        return []
    rows = part[1].splitlines()
    indent = len(rows[0]) - len(rows[0].lstrip())
    heads = [row.strip().partition(":")[0] for row in rows if len(row) - len(row.lstrip()) == indent and ":" in row]
    return [re.sub(r"[*\s]|\(.*?\)", "", name) for head in heads for name in head.split(",")]


def test_public_names_are_documented() -> None:
    assert len(DOCUMENTED) > 500
    short = [path for path, value in DOCUMENTED.items() if len(own_doc(value).split()) < 3]
    assert short == [], "these need a docstring that says what they do"


def test_documented_arguments_exist() -> None:
    wrong = []
    for path, value in DOCUMENTED.items():
        stated = stated_arguments(own_doc(value))
        parameters = inspect.signature(value).parameters if stated else {}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            wrong += [f"{path}: {name}" for name in stated if name not in parameters]
    assert wrong == [], "these arguments are documented but do not exist"


def undocumented_arguments(value: Any, docs: Mapping[str, Sequence[str]]) -> list[str]:
    """Parameters, of two or more, that neither the docstring has nor those in ``docs`` (name -> docstrings) that it refers to.

    It has a name in its ``Args:`` part, in double backticks outside of the example, or among the arguments without effect.
    ``name`` is about the result; no user writes the name of a ``**`` parameter.
    """
    if isinstance(value, type) and issubclass(value, BaseException) and not inspect.isfunction(value.__init__):
        return []  # Python's own constructor of exceptions
    if isinstance(value, type) and issubclass(value, enum.Enum):
        return []  # nobody makes further members
    given = inspect.signature(value).parameters.values()
    needed = [p.name for p in given if p.kind is not p.VAR_KEYWORD and p.name not in ("self", "cls", "name")]
    todo, read, found = [own_doc(value)], set[str](), set(arguments.declarations(value))
    while todo:
        doc = todo.pop()
        text = re.sub(r"^\s*Example:\n(.*?)(?:\n\s*\n(?=\s*\w+.*:\n)|\Z)", "", doc, flags=re.MULTILINE | re.DOTALL)
        found |= {
            *stated_arguments(doc),
            *(w for code in re.findall("``(.+?)``", text) for w in re.findall(r"\w+", code)),
        }
        named = {name.rpartition(".")[2] for name in re.findall(r":(?:func|class|meth):`~?(.+?)`", text)} - read
        read |= named
        todo += [text for name in sorted(named) for text in docs.get(name, ())]
    return [name for name in needed if name not in found] if len(needed) > 1 else []


def test_arguments_are_documented() -> None:
    public = {**{path: function for path, function, _ in arguments.callables()}, **DOCUMENTED}  # methods, too
    assert len(public) > len(DOCUMENTED) + 200
    docs: dict[str, list[str]] = {}
    for path, value in public.items():
        docs.setdefault(path.rpartition(".")[2], []).append(own_doc(value))
    # What only raises an error has no arguments to explain.
    raises = {
        path for path, value in public.items() if getattr(value, "__annotations__", {}).get("return") == "NoReturn"
    }
    missing = {
        path: undocumented_arguments(value, docs)
        for path, value in public.items()
        if path not in raises and not (inspect.isfunction(value) and arguments.is_hook(value))
    }
    assert {path: names for path, names in missing.items() if names} == {}, "these arguments are not documented"


def test_public_modules_are_documented() -> None:
    assert [m.__name__ for m in surface.modules() if len((m.__doc__ or "").split()) < 3] == []


def test_the_oracle_sees_a_wrong_argument() -> None:
    text = "Does.\n\n    Args:\n        x, y: Two.\n            More: of it.\n        *axes: One.\n\n    Returns:\n        z: "
    assert stated_arguments(text) == [
        "x", "y", "axes",
    ]  # fmt: skip
    assert own_doc(type("Derived", (ValueError,), {})) == ""


def test_the_oracle_sees_an_argument_that_is_left_out() -> None:
    def planted(x: int, axis: int, kept: int = 0, name: str | None = None) -> None: ...

    docs = {"flip": ["", "Args:\n    axis: Which."], "turn": ["See :func:`flip`."], "far": ["See :class:`absent`."]}
    for text, missing in (
        ("Reverses.", ["x", "axis", "kept"]),
        ("Reverses ``x`` along ``axis``; kept is a word.", ["kept"]),
        ("Reverses ``x[axis]`` where ``kept`` is 0.", []),
        ("Reverses.\n\n    Args:\n        x, kept: Two.", ["axis"]),
        ("Calls :func:`nn.flip` of ``x`` and ``kept``.", []),
        ("Calls :func:`turn` of ``x`` and ``kept``.", []),
        ("Calls :func:`far` of ``x`` and ``kept``.", ["axis"]),
        ("Reverses ``x``.\n\n    Example:\n        >>> ``axis``\n\n    Returns:\n        ``kept``.", ["axis"]),
        ("Reverses.\n\n    Returns:\n        kept: ``x``.", ["axis", "kept"]),
    ):
        planted.__doc__ = text
        assert undocumented_arguments(planted, docs) == missing, text
    planted.__doc__ = "Reverses ``x`` and ``axis``."
    assert undocumented_arguments(no_effect(kept="never read")(planted), docs) == []
    assert undocumented_arguments(lambda x, name=None: x, docs) == [], "one argument needs no list"
