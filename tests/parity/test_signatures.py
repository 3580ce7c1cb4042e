"""Public functions and layers take Paddle's arguments: the same names in the same order with the same defaults.

Further arguments may follow behind them, with defaults. `make parity` asks the installed Paddle; otherwise the record is used.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from typing import Any

import pytest

import tstatic
from tests.parity import record, signatures
from tstatic.unsupported import declined

EVERYTHING = os.environ.get("TSTATIC_PARITY") == "all"

CHOSEN = {
    "nn.initializer.Normal": "the third argument is the seed, as in fluid.initializer.Normal, which is the same class",
    "nn.initializer.TruncatedNormal": "the third argument is the seed, as in fluid.initializer.TruncatedNormal",
    "nn.initializer.Uniform": "the third argument is the seed, as in fluid.initializer.Uniform",
}
"""Names whose arguments differ on purpose, and why."""


def _public(path: str) -> Any:
    value: Any = tstatic
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def _default(text: str) -> object:
    """Returns the default that a text stands for, or the text: 2 and 2.0 are the same."""
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
    return list(value) if isinstance(value, tuple | list) else value


def _normal(given: signatures.Parameters) -> list[tuple[object, ...]]:
    return [(name, *map(_default, default)) for name, *default in given]


def differs(theirs: signatures.Parameters, ours: signatures.Parameters) -> bool:
    """Whether a call that is right for Paddle could mean something else, or nothing, here."""
    if any(name.startswith("*") and not name.startswith("**") for name, *_ in ours):
        # Passed on, as in Paddle: what is taken is not said here.
        return not any(name.startswith("*") for name, *_ in theirs)
    wanted = [p for p in _normal(theirs) if not str(p[0]).startswith("*")]
    own = [p for p in _normal(ours) if not str(p[0]).startswith("*")]
    more = own[len(wanted) :]
    return own[: len(wanted)] != wanted or any(len(p) == 1 for p in more)


def _compared() -> Iterator[tuple[str, signatures.Parameters, Any]]:
    for module, listed in signatures.load().items():
        for name, theirs in listed.items():
            path = f"{module}.{name}"
            value = _public(path)
            if value is not None and not declined(path):
                yield path, theirs, value


def test_arguments_are_those_of_paddle() -> None:
    wrong, stale = [], set(CHOSEN)
    for path, theirs, value in _compared():
        ours = signatures.parameters_of(value)[path.endswith(".forward") :]
        if differs(theirs, ours):
            stale.discard(path)
            if path not in CHOSEN:
                wrong.append(f"{path}: Paddle has {theirs}, here {ours}")
    assert wrong == []
    assert stale == set(), "these are Paddle's by now"


def test_enough_is_compared() -> None:
    assert len(list(_compared())) > 400


def test_planted_differences_are_found() -> None:
    theirs = [["x"], ["axis", "-1"], ["name", "None"]]
    assert not differs(theirs, [["x"], ["axis", "-1"], ["name", "None"], ["more", "0"]])
    assert not differs([["p", "2.0"]], [["p", "2"]])
    assert differs(theirs, [["x"], ["axis", "0"], ["name", "None"]])
    assert differs(theirs, [["x"], ["name", "None"], ["axis", "-1"]])
    assert differs(theirs, [["x"], ["axis", "-1"]])
    assert differs(theirs, [*theirs, ["more"]])
    assert differs(theirs, [["*inputs"], ["**named"]])
    assert not differs([["*inputs"]], [["*args"], ["**kwargs"]])


@pytest.mark.skipif(not EVERYTHING, reason="Paddle itself is asked by make parity")
def test_the_record_is_what_paddle_has() -> None:
    assert signatures.ask(str(record.PADDLE)) == signatures.load()
