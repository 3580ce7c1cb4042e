"""Every public name says what it is, and functions name their arguments as they are called."""

from __future__ import annotations

import inspect
import re
from typing import Any

from tests.api import surface

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


def test_public_modules_are_documented() -> None:
    assert [m.__name__ for m in surface.modules() if len((m.__doc__ or "").split()) < 3] == []


def test_the_oracle_sees_a_wrong_argument() -> None:
    text = "Does.\n\n    Args:\n        x, y: Two.\n            More: of it.\n        *axes: One.\n\n    Returns:\n        z: "
    assert stated_arguments(text) == [
        "x", "y", "axes",
    ]  # fmt: skip
    assert own_doc(type("Derived", (ValueError,), {})) == ""
