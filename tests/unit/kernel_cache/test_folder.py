"""Where the cache lies, and whose folder is trusted."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.kernel_cache.entries import kernel
from tstatic.errors import TstaticError
from tstatic.fusion.engine import cache
from tstatic.version import __version__


def test_folders_are_made_for_the_user_alone(base: Path) -> None:
    old = os.umask(0)
    try:
        own = cache.folder()
        path = cache.store(kernel(1), "k")
    finally:
        os.umask(old)
    assert own == base / f"kernels-{__version__}-py{sys.version_info.major}.{sys.version_info.minor}"
    assert [stat.st_mode & 0o777 for stat in (base.stat(), own.stat(), path.stat())] == [0o700, 0o700, 0o600]


def test_where_the_folder_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TSTATIC_CACHE_DIR", "here")
    assert cache.folder().parent == tmp_path / "here"
    monkeypatch.setenv("TSTATIC_CACHE_DIR", "~/there")
    assert cache.folder().parent == tmp_path / "home" / "there"
    monkeypatch.setitem(sys.modules, "platformdirs", None)  # as if it were not installed
    monkeypatch.setenv("TSTATIC_CACHE_DIR", "")
    assert cache.folder().parent == tmp_path / "tmp" / f"tstatic-{os.geteuid()}"
    monkeypatch.delenv("TSTATIC_CACHE_DIR")
    assert cache.folder().parent == tmp_path / "tmp" / f"tstatic-{os.geteuid()}"


def test_without_the_variable_it_is_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("platformdirs")
    monkeypatch.delenv("TSTATIC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder().parent == tmp_path / "xdg" / "tstatic"


def assert_refused(base: Path, warnings: Callable[[], list[str]], *words: str) -> None:
    """Kernels load, from a folder of this process, with one warning that says why; the refused folder gains no file."""
    before = sorted(base.rglob("*"))
    private = cache.folder()
    assert private.parent == base.parent / "tmp"
    assert private.stat().st_mode & 0o777 == 0o700
    for value in (1, 2):
        module = cache.load(kernel(value), "k")
        assert module.value() == value
        assert Path(module.__file__ or "").parent == private == cache.folder()
    assert sorted(base.rglob("*")) == before
    assert len(warnings()) == 1
    assert all(word in warnings()[0] for word in (*words, "TSTATIC_CACHE_DIR", str(private)))


@pytest.mark.parametrize("which", ["base", "own"])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_refused(
    which: str, mode: int, base: Path, warnings: Callable[[], list[str]]
) -> None:
    folder = {"base": base, "own": cache.folder()}[which]
    folder.chmod(mode)
    assert_refused(base, warnings, "others can write", str(folder), f"{mode:04o}", "chmod")


def test_a_shared_base_is_used_when_it_is_sticky(base: Path, warnings: Callable[[], list[str]]) -> None:
    own = cache.folder()
    base.chmod(0o1777)
    assert cache.folder() == own
    own.chmod(0o1777)  # not the folder itself: there others could add entries
    assert_refused(base, warnings, "others can write", str(own))


def test_a_folder_of_somebody_else_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    cache.folder()
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    private = cache.folder()
    assert private.parent == base.parent / "tmp"
    assert private == cache.folder()
    assert len(warnings()) == 1
    assert f"belongs to user {me}, not to you" in warnings()[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("which", ["base", "own"])
def test_a_folder_given_to_another_user_is_refused(which: str, base: Path, warnings: Callable[[], list[str]]) -> None:
    folder = {"base": base, "own": cache.folder()}[which]
    os.chown(folder, 12345, -1)
    assert_refused(base, warnings, str(folder), "belongs to user 12345")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_entry_of_another_user_is_replaced(warnings: Callable[[], list[str]]) -> None:
    path = cache.store(kernel(1), "k")
    os.chown(path, 12345, -1)
    assert cache.load(kernel(1), "k").value() == 1
    assert path.stat().st_uid == os.geteuid()
    assert len(warnings()) == 1


@pytest.mark.parametrize("kind", ["file", "link to nothing", "link to a folder", "loop"])
def test_something_else_in_the_folders_place_is_refused(
    kind: str, base: Path, tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    own = cache.folder()
    own.rmdir()
    elsewhere = tmp_path / "cache" / "elsewhere"
    if kind == "file":
        own.write_text("mine")
    elif kind == "loop":
        own.symlink_to(own)
    else:
        own.symlink_to(elsewhere)
        if kind == "link to a folder":
            elsewhere.mkdir(0o700)
    assert_refused(base, warnings, str(own))


def test_a_file_in_the_bases_place_is_refused(base: Path, warnings: Callable[[], list[str]]) -> None:
    base.write_text("mine")
    assert_refused(base, warnings, str(base))


def test_a_folder_that_cannot_be_written_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    own = cache.folder()
    # access() and not chmod: root may write everywhere, except on a disk mounted read-only, which this stands for.
    monkeypatch.setattr(os, "access", lambda path, mode, **more: Path(path) != own)
    assert_refused(base, warnings, "cannot be written")


def test_a_cache_emptied_meanwhile_is_made_again(base: Path, warnings: Callable[[], list[str]]) -> None:
    cache.load(kernel(1), "k")
    shutil.rmtree(base)
    assert cache.load(kernel(2), "k").value() == 2
    assert Path(cache.store(kernel(1), "k")).is_relative_to(base)
    assert warnings() == []


def test_a_folder_that_disappears_during_each_write(
    base: Path, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    real, calls = tempfile.mkstemp, [0]

    def vanish(**more: Any) -> tuple[int, str]:
        calls[0] += 1
        if calls[0] < 3:
            shutil.rmtree(more["dir"])
        return real(**more)

    monkeypatch.setattr(tempfile, "mkstemp", vanish)
    assert cache.store(kernel(1), "k").is_relative_to(base)
    assert warnings() == []
    calls[:] = [-1000]
    with pytest.raises(TstaticError, match="could not be written"):
        cache.store(kernel(2), "k")
    assert cache.load(kernel(2), "k").value() == 2
    assert len(warnings()) == 1
