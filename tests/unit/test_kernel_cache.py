"""The disk cache of generated kernels: what does not match is never run, whatever happens to the folder."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import inspect
import linecache
import logging
import os
import py_compile
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tstatic.errors import TstaticError
from tstatic.fusion import cache
from tstatic.version import __version__

ROOT = Path(__file__).parents[2]
HOSTILE = [
    "../x",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a\0b",
    "x" * 10_000,
    "a\nb",
    "ядро",
    "İ" * 40,
    "\udc80",
    "a/../../b",
    "A-B c.py",
]


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache and an empty folder for temporary files, in a process that has loaded nothing."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TSTATIC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    cache._reset_for_tests()
    yield tmp_path / "cache"
    cache._reset_for_tests()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "tstatic.kernels")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "tstatic.kernels"]


def kernel(value: int, size: int = 0) -> str:
    return f'"""Kernel {value}."""\n\n\ndef value():\n    # as generated\n    return {value}\n' + "# fill\n" * size


def staged(base: Path) -> list[Path]:
    return [path for path in base.rglob("*") if path.name.startswith("stage-")]


def age(path: Path, hours: float) -> None:
    then = time.time() - 3600 * hours
    os.utime(path, (then, then))


def is_whole(path: Path) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == path.stem[-64:]


# -------------------------------------------------------------------------------------------------------- store and load
def test_an_entry_is_named_by_its_text_and_loads(base: Path) -> None:
    text = kernel(7)
    path = cache.store(text, "add_relu")
    assert path == cache.folder() / f"add_relu_{hashlib.sha256(text.encode()).hexdigest()}.py"
    assert path.read_text() == text
    module = cache.load(text, "add_relu")
    assert module.value() == 7
    assert module.__file__ == str(path)
    assert re.fullmatch(r"tstatic_kernels\.add_relu_[0-9a-f]{12}", module.__name__)
    assert sys.modules[module.__name__] is module
    assert cache.load(text, "add_relu") is module
    assert staged(base) == []


def test_what_is_loaded_is_not_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = cache.load(kernel(1), "k")
    monkeypatch.setattr(cache, "_place", None)
    assert cache.load(kernel(1), "k") is module


def test_the_next_process_keeps_the_file_and_marks_it_used() -> None:
    path = cache.store(kernel(1), "k")
    age(path, 5)
    before = path.stat()
    cache._reset_for_tests()
    cache.load(kernel(1), "k")
    after = path.stat()
    assert after.st_ino == before.st_ino
    assert after.st_mtime > before.st_mtime + 3600


def test_source_is_what_was_loaded_whatever_becomes_of_the_file() -> None:
    module = cache.load(kernel(3), "k")
    wanted = "def value():\n    # as generated\n    return 3\n"
    path = Path(module.__file__ or "")
    assert inspect.getsource(module.value) == wanted
    path.write_text("def value():\n    return 'other'\n")
    assert inspect.getsource(module.value) == wanted
    path.unlink()
    assert inspect.getsource(module.value) == wanted
    linecache.clearcache()  # then the loader is asked
    assert inspect.getsource(module.value) == wanted


def test_source_can_be_read_during_the_import() -> None:
    """As Triton's decorator does."""
    text = "import inspect\n\ndef keep(f):\n    f.src = inspect.getsource(f)\n    return f\n\n@keep\ndef value():\n    return 1\n"
    assert cache.load(text, "k").value.src == "@keep\ndef value():\n    return 1\n"


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\x0c\n"])
def test_source_has_the_lines_of_python(newline: str) -> None:
    text = f"a = 1{newline}b = 'x\u2028y'{newline}def value():{newline}    return b{newline}"
    module = cache.load(text, "k")
    assert module.value() == "x\u2028y"
    assert inspect.getsource(module.value).splitlines()[0].strip() == "def value():"


def test_a_text_that_is_no_utf8_means_the_same() -> None:
    module = cache.load("# /home/\udcff/train.py:3\ndef value():\n    return '\udcff'\n", "k")
    assert module.value() == "\udcff"


def test_a_module_that_raises_leaves_nothing_and_raises_again(base: Path) -> None:
    before = set(sys.modules)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            cache.load("1 / 0\n", "bad")
    assert set(sys.modules) == before
    with pytest.raises(SyntaxError):
        cache.load("def\n", "bad")


def test_a_planted_pyc_is_never_run_and_none_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    text = kernel(5)
    path = cache.store(text, "k")
    evil = path.with_name("evil.py")
    evil.write_text(kernel(666))
    planted = Path(importlib.util.cache_from_source(str(path)))
    # UNCHECKED_HASH is what the ordinary loader runs without a look at the source: seen to work, then not to.
    py_compile.compile(str(evil), str(planted), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    spec = importlib.util.spec_from_file_location("poisoned", path)
    assert spec is not None
    assert spec.loader is not None
    poisoned = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(poisoned)
    assert poisoned.value() == 666
    assert cache.load(text, "k").value() == 5
    shutil.rmtree(planted.parent)
    cache._reset_for_tests()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert cache.load(text, "k").value() == 5
    assert sorted(cache.folder().iterdir()) == sorted([path, evil])


def test_threads_get_one_module() -> None:
    start = threading.Barrier(8)
    found: list[Any] = []

    def work() -> None:
        start.wait()
        for value in range(20):
            found.append((value, cache.load(kernel(value), "k")))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 160
    assert all(module.value() == value and sys.modules[module.__name__] is module for value, module in found)
    assert len({module for _, module in found}) == 20


# ---------------------------------------------------------------------------------------------------------------- names
def assert_inside(path: Path, base: Path) -> None:
    assert path.parent == cache.folder()
    assert re.fullmatch(r"[a-z0-9_]{1,40}_[0-9a-f]{64}\.py", path.name)
    assert path.is_file()
    assert path.resolve().is_relative_to(base.resolve())


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_stay_in_the_folder(name: str, base: Path) -> None:
    assert_inside(cache.store(kernel(1), name), base)
    assert cache.load(kernel(1), name).value() == 1
    assert {path.name for path in base.parent.iterdir()} == {"cache", "tmp"}
    assert list((base.parent / "tmp").iterdir()) == []


@given(st.text(st.characters(exclude_categories=())))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_stays_in_the_folder(base: Path, name: str) -> None:
    assert_inside(cache.store(kernel(1), name), base)


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


# ------------------------------------------------------------------------------------------------------------- the folder
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


# ---------------------------------------------------------------------------------------------------------- two versions
def test_two_versions_side_by_side(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cache.store(kernel(1), "k")
    monkeypatch.setattr(cache, "__version__", "9.9.9+local/../x")
    second = cache.store(kernel(1), "k")
    assert first.name == second.name
    assert first.parent.parent == second.parent.parent == base
    assert first.parent != second.parent
    first.write_bytes(b"x")
    cache._reset_for_tests()
    assert cache.load(kernel(1), "k").value() == 1
    assert first.read_bytes() == b"x"  # each keeps to its own


# ------------------------------------------------------------------------------------------------------------------- trim
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


# -------------------------------------------------------------------------------------------------------------- processes
RACE = r"""
import inspect, multiprocessing, os, random, sys
from pathlib import Path
from tstatic.fusion import cache

RANKS, ROUNDS = 16, int(sys.argv[1])


def work(rank, start, done):
    dice = random.Random(rank)
    for round in range(ROUNDS):
        text = f"def value():\n    return {round}\n" + "# fill\n" * random.Random(round).randrange(3000)
        start.wait(120)
        if rank == 0 and round % 2:  # somebody spoils the entry while the others write and read it
            path = cache.folder() / (cache._stem(text.encode(), "k") + ".py")
            for _ in range(3):
                path.write_bytes(dice.choice([b"", text.encode()[:-1], text.encode().replace(b"return", b"retorn")]))
        module = cache.load(text, "k")
        assert module.value() == round, "a wrong kernel"
        assert inspect.getsource(module.value) == f"def value():\n    return {round}\n", "a wrong source"
        if dice.random() < 0.1:
            cache.trim(0)
        done.wait(120)
        if rank == 0 and round % 2 == 0:  # nobody spoiled it: it is there, and right
            assert Path(module.__file__).read_bytes() == text.encode(), "a wrong file"
    os._exit(0)  # a failed assert leaves by the other way, with 1


context = multiprocessing.get_context("fork")
start, done = context.Barrier(RANKS), context.Barrier(RANKS)
ranks = [context.Process(target=work, args=(rank, start, done)) for rank in range(RANKS)]
for rank in ranks:
    rank.start()
for rank in ranks:
    rank.join()
print("exit codes", *(rank.exitcode for rank in ranks))
"""


def run(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": tempfile.gettempdir()}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_sixteen_processes_race_for_each_key(rounds: int, base: Path) -> None:
    done = run(RACE, rounds)
    assert done.stdout == "exit codes" + " 0" * 16 + "\n", done.stderr
    assert "memory only" not in done.stderr
    assert "is not used:" not in done.stderr
    entries = list(base.rglob("*.py"))
    assert len(entries) == rounds
    # What was spoiled last, after everybody had loaded, is found by the next who asks.
    assert sum(is_whole(path) for path in entries) >= rounds // 2
    assert staged(base) == []


KILLED = r"""
import itertools, os, signal, sys
from tstatic.fusion import cache

print("ready", flush=True)
sys.stdin.readline()
point, value = sys.argv[1], int(sys.argv[2])


def die(*more):
    os.kill(os.getpid(), signal.SIGKILL)


real_write, real_replace = os.write, os.replace
if point == "write":
    os.write = lambda handle, data: (real_write(handle, data[: len(data) // 2]), die())
elif point == "fsync":
    os.fsync = die
elif point == "replace":
    os.replace = die
elif point == "renamed":
    os.replace = lambda *names: (real_replace(*names), die())
for value in itertools.count(value):
    cache.store(f"def value():\n    return {value}\n" + "# fill\n" * 20000, "k")
"""


def assert_recovers(base: Path, leftovers: int) -> None:
    """Every entry is whole, and what the dead left goes once it is an hour old."""
    own = cache.folder()
    assert all(is_whole(path) for path in own.glob("*.py"))
    assert len(staged(base)) == leftovers
    assert cache.trim() == 0
    assert len(staged(base)) == leftovers
    for path in staged(base):
        age(path, 1.1)
    cache.trim()
    assert staged(base) == []


@pytest.mark.parametrize("point", ["write", "fsync", "replace", "renamed"])
def test_a_writer_killed_at_each_step(point: str, base: Path, warnings: Callable[[], list[str]]) -> None:
    command = [sys.executable, "-c", KILLED, point, "0"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, input=b"\n", capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert len(list(base.rglob("*.py"))) == (point == "renamed")
    assert_recovers(base, leftovers=point != "renamed")
    assert cache.load("def value():\n    return 0\n" + "# fill\n" * 20000, "k").value() == 0
    assert warnings() == []


@pytest.mark.parametrize("kills", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_writers_killed_at_random_moments(kills: int, base: Path, warnings: Callable[[], list[str]]) -> None:
    """A forked child writes; it is killed within about ten writes. Forked in a script, where there is one thread."""
    script = r"""
import os, random, signal, sys, time
from tstatic.fusion import cache
dice = random.Random(1)
for kill in range(int(sys.argv[1])):
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        for value in range(10**6):
            cache.store(f"def value():\n    return {value}\n# {kill}\n" + "# fill\n" * 20000, "k")
            os.write(tell, b".")
    os.read(told, 1)
    time.sleep(dice.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(told)
    os.close(tell)
"""
    done = run(script, kills)
    assert done.returncode == 0, done.stderr
    assert len(list(base.rglob("*.py"))) >= kills
    assert_recovers(base, leftovers=len(staged(base)))
    assert cache.load(kernel(0), "k").value() == 0
    assert warnings() == []


def test_a_forked_child_goes_on(base: Path) -> None:
    """It has its parent's modules, loads more, and its end takes nothing from its parent, private folder included."""
    script = r"""
import os, sys
from tstatic.fusion import cache
text = "def value():\n    return {}\n".format
first = cache.load(text(1), "k")
private = cache.folder()
child = os.fork()
assert cache.load(text(1), "k") is first
assert cache.load(text(2 if child else 3), "k").value() in (2, 3)
assert cache.folder() == private
if not child:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert len(list(private.glob("*.py"))) == 3
print(private)
"""
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == base
    base.chmod(0o777)
    done = run(script)
    assert done.returncode == 0, done.stderr
    private = Path(done.stdout.strip())
    assert private.parent == base.parent / "tmp"
    assert not private.exists()  # gone with the parent


def test_a_child_that_outlives_its_parents_private_folder(base: Path) -> None:
    base.mkdir()
    base.chmod(0o777)
    first = cache.folder()
    cache.load(kernel(1), "k")
    shutil.rmtree(first)  # as the parent's end does
    assert cache.load(kernel(1), "k").value() == 1
    assert cache.load(kernel(2), "k").value() == 2
    assert cache.folder() != first
    assert cache.folder().is_dir()


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
