"""Public functions, classes and methods take Paddle's arguments: the names, the order and the defaults of the era of their path.

Names below ``fluid`` have the order of Paddle 1.8.5, the others that of 2.6.2; what 2.4.2 has beside it is taken by keyword.
`make parity` asks the Paddles that are installed; otherwise the records are used.
"""

from __future__ import annotations

import fnmatch
import inspect
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

import tstatic
from tests.api import surface
from tests.parity import record, signatures
from tests.parity.chosen_signatures import CHOSEN
from tests.parity.installed import parameters_of
from tests.parity.signature_rules import differences
from tstatic.aliases import public_of
from tstatic.unsupported import advice

EVERYTHING = os.environ.get("TSTATIC_PARITY") == "all"
VERSIONS = {True: ("1.8.5", "2.4.2"), False: ("2.6.2", "2.4.2")}
"""Whether a path is below ``fluid`` -> the versions that count, the one that decides the order first."""


def _public(path: str) -> Any:
    value: Any = tstatic
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def paddles() -> dict[str, list[signatures.Parameters]]:
    """Returns path below ``paddle`` -> its parameters, version by version."""
    found: dict[str, list[signatures.Parameters]] = {}
    for old, versions in VERSIONS.items():
        for version in versions:
            for module, listed in signatures.load()[version].items():
                if module.partition(".")[0] != "fluid" if old else module.partition(".")[0] == "fluid":
                    continue
                for name, theirs in listed.items():
                    if theirs is not None and name != "__all__":
                        found.setdefault(f"{module}.{name}".lstrip("."), []).append(theirs)
    return found


@cache
def _taken(path: str) -> signatures.Parameters | None:
    """Returns the parameters here; ``None`` for what is not there, or is no function of the package."""
    owner, _, name = path.rpartition(".")
    value = _public(path)
    if value is None or not callable(value) or advice(path):
        return None
    inside = _public(owner) if owner else tstatic
    if not inspect.isclass(inside) and name not in _names(owner):
        return None  # what a module imports for its own use
    try:
        found = parameters_of(value)
    except (TypeError, ValueError):
        return None
    plain = not isinstance(inspect.getattr_static(inside, name, None), staticmethod | classmethod)
    return found[1:] if inspect.isclass(inside) and plain and not inspect.isclass(value) else found


@cache
def _names(module: str) -> frozenset[str]:
    where = _public(module) if module else tstatic
    return frozenset(surface.names(where)) if inspect.ismodule(where) else frozenset()


@cache
def compared() -> dict[str, list[str]]:
    """Returns path -> differences, for every name that Paddle and tstatic have."""
    found: dict[str, list[str]] = {}
    known: dict[str, list[str]] = {}
    for path, theirs in paddles().items():
        ours = _taken(path)
        if ours is not None:
            key = repr((theirs, ours))
            if key not in known:
                known[key] = list(dict.fromkeys(differences(theirs, ours)))
            found[path] = known[key]
    return found


def _chosen(path: str, difference: str) -> Iterator[int]:
    for i, (paths, kinds, _) in enumerate(CHOSEN):
        if any(fnmatch.fnmatchcase(path, one) for one in paths.split()) and fnmatch.fnmatchcase(difference, kinds):
            yield i


def test_arguments_are_those_of_paddle() -> None:
    wrong, used = [], set()
    for path, found in compared().items():
        for difference in found:
            rows = list(_chosen(path, difference))
            used.update(rows)
            if not rows:
                wrong.append(f"{path}: {difference}")
    assert wrong == []
    assert [CHOSEN[i] for i in range(len(CHOSEN)) if i not in used] == [], "these are Paddle's by now"


def test_enough_is_compared() -> None:
    paths = compared()
    assert len(paths) > 5000
    for prefix in (
        "fluid.layers.",
        "fluid.optimizer.",
        "nn.functional.",
        "static.Executor.",
        "fluid.Program.",
        "vision.",
    ):
        assert sum(path.startswith(prefix) for path in paths) > 4, prefix


def test_every_public_module_that_paddle_has_is_compared() -> None:
    """Modules that only tstatic has are named here; a new one is compared, or joins them."""
    own = {"errors", "fluid.contrib.mixed_precision.bf16", "text.datasets"}
    ours = {public_of(module.__name__).partition(".")[2] for module in surface.modules()}
    assert ours - set(signatures.MODULES) - own == set()
    recorded = {module for version in signatures.load().values() for module in version}
    assert set(signatures.MODULES) - recorded == set(), "no Paddle has these"


def test_planted_differences_are_found() -> None:
    theirs = [["x"], ["axis", "-1"], ["name", "None"]]

    def differs(theirs: signatures.Parameters, ours: signatures.Parameters, *later: signatures.Parameters) -> bool:
        return list(differences([theirs, *later], ours)) != []

    assert not differs(theirs, [["x"], ["axis", "-1"], ["name", "None"], ["more", "0"]])
    assert not differs([["p", "2.0"]], [["p", "2"]])
    assert differs(theirs, [["x"], ["axis", "0"], ["name", "None"]])
    assert differs(theirs, [["x"], ["name", "None"], ["axis", "-1"]])
    assert differs(theirs, [["x"], ["axis", "-1"]])
    assert differs(theirs, [*theirs, ["more"]])
    assert not differs([["*inputs"]], [["*args"], ["**kwargs"]])
    # A later version's order gives way to the first one's, its keywords do not.
    later = [["x"], ["beta", "1.0"], ["name", "None"]]
    assert not differs([["x"], ["name", "None"]], [["x"], ["name", "None"], ["beta", "1.0"]], later)
    assert differs([["x"], ["name", "None"]], [["x"], ["name", "None"]], later)
    assert differs([["x"]], [["x"], ["name", "None"], ["beta", "1.0"]], later), "it goes on where the first one ends"


@pytest.mark.parametrize("name", ["gather_nd", "Print"])
def test_a_lost_keyword_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"fluid.layers.{name}"
    theirs = paddles()[path]
    ours = _taken(path)
    assert ours is not None
    assert list(differences(theirs, ours)) == []
    assert list(differences(theirs, ours[1:])) != []


@pytest.mark.skipif(not EVERYTHING, reason="Paddle itself is asked by make parity")
@pytest.mark.parametrize("environment", [record.PADDLE, record.PADDLE_FLUID], ids=lambda path: path.parts[-3])
def test_the_record_is_what_paddle_has(environment: Any) -> None:
    version, found = signatures.ask(str(environment))
    assert found == signatures.load()[version]
