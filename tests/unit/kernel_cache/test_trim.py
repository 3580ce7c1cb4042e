"""Trimming: what was used longest ago goes, and nothing that is not of the cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.kernel_cache.entries import age, kernel
from tstatic.fusion.engine import cache


def test_trim_removes_what_was_used_longest_ago() -> None:
    paths = [cache.store(kernel(value, 100), "k") for value in range(6)]
    size = paths[0].stat().st_size
    for hours, path in zip((7, 2, 9, 3, 0.5, 0.9), paths, strict=True):
        age(path, hours)
    assert cache.trim(6 * size) == 0
    assert cache.trim(4 * size) == 2 * size
    assert [path.exists() for path in paths] == [False, True, False, True, True, True]
    assert cache.trim(0) == 2 * size  # the last two are younger than an hour
    assert [path.exists() for path in paths] == [False, False, False, False, True, True]


def test_trim_sees_all_versions_and_nothing_else(base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = cache.folder()
    monkeypatch.setattr(cache, "__version__", "0.0.1")
    other = cache.store(kernel(1), "k")
    leftover = other.with_name("stage-abcd1234.tmp")
    leftover.write_text("half")
    fresh = own / "stage-abcd1235.tmp"
    fresh.write_text("being written")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (base / "kernels-link-py3.11").symlink_to(elsewhere)
    entry = other.name
    mine = [base / entry, base / "notes" / entry, own / "notes.py", own / "stage-notes.tmp", elsewhere / entry]
    mine += [own / ("x" * 41 + entry), own / f"sub-{entry}", own / "deep" / entry]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("precious")
    link = own / f"link_{'0' * 64}.py"
    link.symlink_to(elsewhere / entry)
    os.utime(link, (1, 1), follow_symlinks=False)
    for path in (other, leftover, *mine):
        age(path, 50)
    monkeypatch.undo()
    monkeypatch.setenv("TSTATIC_CACHE_DIR", str(base))
    assert cache.trim(0) == len(kernel(1)) + 4
    assert [path.exists() for path in (other, leftover, fresh)] == [False, False, True]
    assert all(path.read_text() == "precious" for path in mine)
    assert link.is_symlink()


def test_trim_leaves_what_was_used_since_it_was_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [cache.store(kernel(value), "k") for value in range(3)]
    for path in paths:
        age(path, 5)
    real = cache._files

    def listed(base: Path) -> Any:
        found = real(base)
        os.utime(paths[0])  # another process uses one, and removes one
        paths[1].unlink()
        return found

    monkeypatch.setattr(cache, "_files", listed)
    assert cache.trim(0) == len(kernel(2))
    assert [path.exists() for path in paths] == [True, False, False]


def test_trim_runs_once_a_process_after_a_store(
    monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    calls: list[int] = []

    def counted(*limit: int) -> int:
        calls.append(1)
        raise PermissionError("a fault of trimming is none of storing")

    monkeypatch.setattr(cache, "trim", counted)
    for value in range(3):
        cache.load(kernel(value), "k")
        cache.store(kernel(value), "k")
    assert len(calls) == 1
    assert warnings() == []


def test_the_first_store_trims(monkeypatch: pytest.MonkeyPatch) -> None:
    old = cache.store(kernel(1), "k")
    leftover = old.with_name("stage-abcd1234.tmp")
    leftover.write_text("half")
    age(old, 2)
    age(leftover, 2)
    cache._reset_for_tests()
    cache.store(kernel(2), "k")
    assert old.exists()  # far below the limit
    assert not leftover.exists()


def test_a_kernel_that_is_found_removes_nothing() -> None:
    """Reading trimmed as well, so a process that only used the cache removed files from it."""
    path = cache.store(kernel(1), "k")
    leftover = path.with_name("stage-abcd1234.tmp")
    leftover.write_text("half")
    age(leftover, 2)
    cache._reset_for_tests()
    cache.load(kernel(1), "k")
    assert leftover.exists()
    cache.load(kernel(2), "k")
    assert not leftover.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_trim_leaves_files_of_other_users() -> None:
    path = cache.store(kernel(1), "k")
    leftover = path.with_name("stage-abcd1234.tmp")
    leftover.write_text("half")
    for one in (path, leftover):
        os.chown(one, 12345, 12345)
        age(one, 50)
    assert cache.trim(0) == 0
    assert cache.clear() == 0
    assert path.exists()
    assert leftover.exists()


def test_trim_leaves_a_folder_of_this_process_alone(base: Path) -> None:
    base.mkdir()
    base.chmod(0o777)
    path = cache.store(kernel(1), "k")
    beside = base.parent / "tmp" / "kernels-0.0.1-py3.11" / path.name
    beside.parent.mkdir()
    beside.write_text("not of this cache")
    age(path, 50)
    age(beside, 50)
    assert cache.trim(0) == 0
    assert path.exists()
    assert beside.exists()
