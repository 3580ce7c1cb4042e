"""Public signatures are those of the frozen file."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.api import regenerate, surface


@pytest.fixture(scope="module")
def current() -> dict[Path, str]:
    """The texts as they have to be now."""
    return regenerate.wanted()


def test_files_are_current(current: dict[Path, str]) -> None:
    for path, text in current.items():
        frozen = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        changes = list(difflib.unified_diff(frozen, text.splitlines(), str(path), "now", lineterm="", n=0))
        assert changes == [], "the public API changed: if that is meant, run `make api` and commit what it writes"


def test_a_change_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface, "lines", lambda: ["tstatic.something(x)"])
    assert regenerate.stale() == [regenerate.SIGNATURES]


def test_the_file_holds_no_addresses_and_every_root(current: dict[Path, str]) -> None:
    text = current[regenerate.SIGNATURES]
    assert " at 0x" not in text
    assert "<class" not in text
    for root in (*surface.ROOTS, "tstatic.fluid", "tstatic.fluid.layers", "tstatic.fluid.io", "Variable"):
        assert f"\n{root}." in "\n" + text, root


def test_the_form_of_the_lines(current: dict[Path, str]) -> None:
    lines = current[regenerate.SIGNATURES].splitlines()
    assert "tstatic.tanh(x, name=None)" in lines
    assert "tstatic.nn.functional.tanh = tstatic.tanh" in lines
    assert "tstatic.float32 DType" in lines
    assert "tstatic.static.Executor class(place=None)" in lines
    assert "tstatic.static.Executor.close(self)" in lines
    assert "Variable.__add__(x, other)" in lines
    assert len(lines) == len(set(lines))
