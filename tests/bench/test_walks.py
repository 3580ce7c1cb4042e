"""The record of walks: what is a walk, and what is counted of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.scripts import script

walks: Any = script("walks")


@pytest.fixture(autouse=True)
def _no_profile() -> Iterator[None]:
    before = sys.getprofile()
    yield
    threading.setprofile(None)  # type: ignore[arg-type]
    sys.setprofile(before)


def _made(folder: Path) -> Any:
    """Functions in two files of a package: ``door`` calls ``inner`` twice and then ``work``."""
    (folder / "comm").mkdir()
    names: dict[str, Any] = {}
    for name, text in {
        "comm/door.py": "def door():\n    inner()\n    inner()\n    return work()\n",
        "inner.py": "def inner():\n    return 1\ndef work():\n    return inner()\n",
    }.items():
        exec(compile(text, str(folder / name), "exec"), names)
    return names


def test_a_walk_begins_at_its_door_and_ends_before_its_work(tmp_path: Path) -> None:
    names = _made(tmp_path)
    seen = walks.Recorder(f"{tmp_path}/", "comm/", "work")
    names["inner"]()
    names["door"]()
    seen.active = True
    names["inner"]()
    names["door"]()
    seen.active = False
    assert seen.walks == [["comm/door.py:door", "inner.py:inner", "inner.py:inner"]]
    found = walks.counted(seen.walks[0])
    assert (found["calls"], found["files"], found["packages"]) == (3, ["comm/door.py", "inner.py"], [".", "comm"])


def test_without_an_end_a_walk_ends_with_its_door_and_other_threads_have_their_own(tmp_path: Path) -> None:
    names = _made(tmp_path)
    seen = walks.Recorder(f"{tmp_path}/", "comm/")
    seen.active = True
    thread = threading.Thread(target=names["door"])
    thread.start()
    thread.join()
    names["door"]()
    names["work"]()
    seen.active = False
    walk = ["comm/door.py:door", "inner.py:inner", "inner.py:inner", "inner.py:work", "inner.py:inner"]
    assert seen.walks == [walk, walk]


def test_the_page_has_both_counts_and_the_files_that_came(tmp_path: Path) -> None:
    old, new = walks.counted(["a/x.py:f", "a/x.py:g"]), walks.counted(["a/x.py:f", "b/y.py:h", "b/y.py:h"])
    text = walks.page({"date": "d", "old": "1", "commit": "2", "rows": [{"title": "a feed", "old": old, "new": new}]})
    assert "| a feed | 2 to 3 | 1 to 2 | 1 to 2 |" in text
    assert "- a feed: gone none; came `b/y.py`" in text
    assert "3. `b/y.py:h`" in text
