"""What does not match is never run, and a disk that fails costs a warning and nothing else."""

from __future__ import annotations

import errno
import importlib.util
import inspect
import linecache
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.kernel_cache.entries import is_whole, kernel, staged
from tstatic.errors import TstaticError
from tstatic.fusion.engine import cache


# ------------------------------------------------------------------------------------------------------------ wrong bytes
def flip(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ dice.randrange(1, 256)]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped": flip,
    "truncated": lambda data, dice: data[: dice.randrange(len(data))],
    "longer": lambda data, dice: data + dice.randbytes(dice.randrange(1, 50)),
    "other": lambda data, dice: kernel(666).encode(),
    "zeros": lambda data, dice: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_wrong_bytes_are_not_run_and_written_again(damage: str, warnings: Callable[[], list[str]]) -> None:
    dice = random.Random(damage)
    for value in range(40):
        path = cache.store(kernel(value), "k")
        path.write_bytes(DAMAGE[damage](path.read_bytes(), dice))
        assert not is_whole(path)
        assert cache.load(kernel(value), "k").value() == value
        assert is_whole(path)
        assert len(warnings()) == value + 1
        assert str(path) in warnings()[-1]
        cache.store(kernel(value), "k")
    assert len(warnings()) == 40


def test_bytes_changed_between_store_and_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last moment: the file was compared and found right, then it changes under the import."""
    real = importlib.util.spec_from_loader

    def swap(name: str, loader: Any) -> Any:
        Path(loader.path).write_text(kernel(666))
        return real(name, loader)

    monkeypatch.setattr(importlib.util, "spec_from_loader", swap)
    module = cache.load(kernel(2), "k")
    assert module.value() == 2
    assert "return 2" in inspect.getsource(module.value)


def test_a_disk_that_never_holds_what_is_written(
    monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    real = os.replace

    def rot(source: str, target: str) -> None:
        real(source, target)
        Path(target).write_text(kernel(666))

    monkeypatch.setattr(os, "replace", rot)
    module = cache.load(kernel(2), "k")
    assert module.value() == 2
    assert "return 2" in inspect.getsource(module.value)
    assert sum("memory only" in message for message in warnings()) == 1
    assert cache.load(kernel(3), "k").value() == 3
    assert sum("memory only" in message for message in warnings()) == 1


@pytest.mark.parametrize("kind", ["link", "broken link", "pipe"])
def test_an_entry_that_is_no_plain_file_is_replaced(
    kind: str, tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    text = "" if kind == "pipe" else kernel(1)  # a pipe seems empty
    path = cache.store(text, "k")
    path.unlink()
    outside = tmp_path / "outside.py"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(outside)
    if kind == "link":
        outside.write_text(text)  # even with the right bytes: what a link shows can change at any time
    cache.load(text, "k")
    assert path.is_file()
    assert not path.is_symlink()
    assert outside.exists() == (kind == "link")
    assert len(warnings()) == 1


def test_a_folder_in_an_entrys_place(warnings: Callable[[], list[str]]) -> None:
    path = cache.store(kernel(1), "k")
    path.unlink()
    path.mkdir()
    assert cache.load(kernel(1), "k").value() == 1
    assert path.is_dir()
    assert len(warnings()) == 2  # the entry, then the folder that cannot be written


# -------------------------------------------------------------------------------------------------------------- disk full
def fail_below(monkeypatch: pytest.MonkeyPatch, function: str, below: Path, code: int = errno.ENOSPC) -> None:
    """Makes a function of ``os`` fail for files below a folder; ``write`` takes a few bytes first, as a full disk does."""
    real = getattr(os, function)

    def failing(target: Any, *more: Any, **named: Any) -> Any:
        where = Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else Path(target)
        if not where.is_relative_to(below):
            return real(target, *more, **named)
        if function == "write" and len(more[0]) > 10:
            return real(target, more[0][:10])
        raise OSError(code, os.strerror(code), str(where))

    monkeypatch.setattr(os, function, failing)


FAULTS = [("write", errno.ENOSPC), ("fsync", errno.ENOSPC), ("fsync", errno.EIO), ("replace", errno.EDQUOT)]


@pytest.mark.parametrize(("function", "code"), FAULTS)
def test_a_full_disk_means_a_folder_of_this_process(
    function: str, code: int, base: Path, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    kept = cache.store(kernel(0), "k")
    fail_below(monkeypatch, function, base)
    path = cache.store(kernel(1), "k")
    assert path.parent.parent == base.parent / "tmp"
    assert is_whole(path)
    assert cache.load(kernel(2), "k").value() == 2
    assert staged(base.parent) == []
    assert list(base.rglob("*.py")) == [kept]
    assert len(warnings()) == 1
    assert os.strerror(errno.ENOSPC) in warnings()[0]


@pytest.mark.parametrize(("function", "code"), FAULTS)
def test_no_disk_at_all_means_memory(
    function: str, code: int, base: Path, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    fail_below(monkeypatch, function, base.parent, code)
    for value in (1, 2):
        module = cache.load(kernel(value), "k")
        assert module.value() == value
        assert inspect.getsource(module.value) == f"def value():\n    # as generated\n    return {value}\n"
        linecache.checkcache()
        assert f"return {value}" in inspect.getsource(module.value)
    assert len(warnings()) == 2
    assert "not used" in warnings()[0]
    assert "memory only" in warnings()[1]
    with pytest.raises(TstaticError, match=re.escape(os.strerror(code))):
        cache.store(kernel(3), "k")
    assert staged(base.parent) == []


def test_no_folder_for_temporary_files_either(
    base: Path, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    base.write_text("no folder")
    monkeypatch.setattr(tempfile, "tempdir", str(base.parent / "missing"))
    assert cache.load(kernel(1), "k").value() == 1
    with pytest.raises(TstaticError, match="could not be written"):
        cache.store(kernel(1), "k")
    assert len(warnings()) == 1


def test_a_write_in_pieces_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:7]))
    assert is_whole(cache.store(kernel(1, 100), "k"))


def test_an_interrupt_leaves_no_staged_file(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.store(kernel(1), "k")
    assert list(cache.folder().iterdir()) == []


# ------------------------------------------------------------------------------------------------------------------- meta
def test_a_cache_that_trusts_its_files_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: without the comparison, what lies in the file is what is found there."""
    path = cache.store(kernel(1), "k")
    path.write_text(kernel(666))
    monkeypatch.setattr(cache, "_state", lambda path, data: "right")
    monkeypatch.setattr(cache, "_import", lambda path, data, name: _import_file(path))
    assert cache.load(kernel(1), "k").value() == 666


def _import_file(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("trusted", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["trusted"] = module
    spec.loader.exec_module(module)
    return module
