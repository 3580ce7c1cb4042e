"""Storing and loading kernels: an entry is its text, whatever its name and whoever else stores it."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import linecache
import py_compile
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.kernel_cache.entries import age, kernel, staged
from tstatic.fusion.engine import cache

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
    assert after.st_atime > before.st_atime + 3600
    assert after.st_mtime_ns == before.st_mtime_ns, "reading leaves a file as it was written"
    assert [info.st_mtime for _, info in cache.entries()] == [after.st_atime], "the command shows when it was used"


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
