"""What keeps full collections of a run of tests short, and scripts of forked processes free of imports."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers import collector, warm


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, list[str]]]:
    """A collector for which every full collection is an expensive one, and what it set aside."""
    aside: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: aside.append("all"))
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(collector, "EXPENSIVE", -1.0)
    made = collector.Collector()
    yield made, aside
    if made._watch in gc.callbacks:
        gc.callbacks.remove(made._watch)


def of(file: str) -> Any:
    return SimpleNamespace(path=Path(file))


def test_what_an_expensive_collection_left_is_set_aside_behind_its_file(watching: tuple[Any, list[str]]) -> None:
    made, aside = watching
    made.pytest_runtest_teardown(of("a"), of("b"))
    assert aside == [], "there was no collection"
    gc.collect()
    made.pytest_runtest_teardown(of("a"), of("a"))
    assert aside == [], "what the file's fixtures hold may be looked for"
    made.pytest_runtest_teardown(of("a"), of("b"))
    made.pytest_runtest_teardown(of("b"), of("c"))
    assert aside == ["all"]
    made.pytest_sessionfinish()
    assert made._watch not in gc.callbacks


def test_cheap_collections_set_nothing_aside(watching: tuple[Any, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    made, aside = watching
    gc.collect(0)  # not a full one
    monkeypatch.setattr(collector, "EXPENSIVE", 3600.0)
    gc.collect()
    made.pytest_runtest_teardown(of("a"), of("b"))
    assert aside == []


def test_a_script_of_the_warm_server_finds_all_imported_and_tears_down_its_own(tmp_path: Path) -> None:
    text = """
import sys, weakref
for name in ("tstatic.ops.functions.composed", "tstatic.distributed.fleet", "tstatic.tools.cli.looking"):
    assert name in sys.modules, name
assert not [one for one in weakref.finalize._registry if one.atexit]
class Mine:
    pass
kept = Mine()
weakref.finalize(kept, print, "torn down")
"""
    done = warm.run_text(text, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "torn down\n"), done.stderr
