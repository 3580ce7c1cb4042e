"""Runs the tests that wait or measure time on a machine that is busy, many times, and says which of them need a quiet one.

``python -m tests.busy --load 20 --times 20`` keeps twenty processes running: files of tests, each as a run of pytest of its own,
and loops that do nothing while there are fewer. It prints a line per failed run and one at the end, and exits with 1 if any failed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from tests.helpers import source
from tstatic.progress import Progress

ROOT = Path(__file__).parents[1]

WAITING = {"asyncio", "concurrent", "multiprocessing", "select", "signal", "socket", "threading", "time"}
"""Modules by which a test waits for something or reads a clock; so do ``subprocess.Popen`` and what `LIMITS` names."""

LIMITS = re.compile(r"timeout|TIMEOUT|SECONDS|num_workers")
"""Names of arguments and constants that limit a wait, and of workers that are waited for."""

AT_ONCE = {"Lock", "RLock", "current_thread", "get_ident", "local", "main_thread"}
"""What these modules offer that neither waits for another to act nor reads a clock."""

INTERPRETED = "tests/interpret/"

SHOWN = 6000
"""Characters of the beginning and of the end of what a failed run printed."""


@dataclass
class Run:
    """One run of a file of tests.

    Attributes:
        file: The file, relative to the checkout.
        process: The process of pytest.
        output: What it prints.
    """

    file: str
    process: subprocess.Popen[bytes]
    output: IO[bytes]

    def text(self) -> str:
        """Returns what it printed, without the middle of what is long: a crash says at the beginning where it was."""
        self.output.seek(0)
        text = self.output.read().decode(errors="replace")
        return text if len(text) <= 2 * SHOWN else f"{text[:SHOWN]}\n...\n{text[-SHOWN:]}"


@dataclass(frozen=True)
class _Module:
    """The names of a module of the tests.

    Attributes:
        path: Its file.
        defined: The statements that bind each name at the top level.
        imported: The module and the name in it that each imported name stands for; the latter is empty for the module itself.
    """

    path: Path
    defined: Mapping[str, tuple[ast.stmt, ...]]
    imported: Mapping[str, tuple[str, str]]


@cache
def _module(path: Path) -> _Module:
    defined: defaultdict[str, tuple[ast.stmt, ...]] = defaultdict(tuple)
    imported: dict[str, tuple[str, str]] = {}
    for statement in source.tree(path).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            defined[statement.name] += (statement,)
        else:
            stored = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            for name in stored:
                defined[name] += (statement,)
    for node in ast.walk(source.tree(path)):
        if isinstance(node, ast.Import):
            imported.update({a.asname or a.name.partition(".")[0]: (a.name, "") for a in node.names})
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.update({a.asname or a.name: (node.module, a.name) for a in node.names})
    return _Module(path, defined, imported)


def _waits_itself(module: _Module, node: ast.AST) -> bool:
    """Returns whether one node waits or reads a clock, by itself."""
    if isinstance(node, ast.keyword):
        return bool(node.arg and LIMITS.fullmatch(node.arg))
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(LIMITS.fullmatch(node.value))
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        origin, name = module.imported.get(node.value.id, ("", ""))[0], node.attr
    elif isinstance(node, ast.Name):
        origin, name = module.imported.get(node.id, ("", ""))
    else:
        return False
    if origin == "subprocess":
        return name == "Popen"
    return origin.partition(".")[0] in WAITING and name not in {"", *AT_ONCE}


@cache
def _uses(path: Path, name: str) -> tuple[bool, frozenset[tuple[Path, str]]]:
    """Returns whether a definition waits by itself, and which definitions of the tests it uses: fixtures are its parameters."""
    module, waits, names = _module(path), False, set[str]()
    for node in (node for statement in module.defined.get(name, ()) for node in ast.walk(statement)):
        waits = waits or _waits_itself(module, node)
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # pytest.mark.usefixtures("name")
            names.add(node.value)
    return waits, frozenset(found for used in names for found in _found(module, used))


def _found(module: _Module, name: str) -> Iterator[tuple[Path, str]]:
    """Yields where a name is defined that a module of the tests uses: in itself, an imported one, or a conftest above it."""
    if name in module.defined:
        yield module.path, name
        return
    first, _, attribute = name.partition(".")
    origin, inner = module.imported.get(first, ("", ""))
    if not origin:
        folders = [folder for folder in module.path.parents if folder.is_relative_to(ROOT / "tests")]
        conftests = (folder / "conftest.py" for folder in folders)
        yield from ((path, name) for path in conftests if path.is_file() and name in _module(path).defined)
    for dotted, wanted in ((origin, inner), (f"{origin}.{inner}" if inner else origin, attribute)):
        path = ROOT / (dotted.replace(".", "/") + ".py")
        if dotted.startswith("tests.") and wanted and path.is_file():
            yield path, wanted


def _waits(path: Path, name: str) -> bool:
    """Returns whether a definition waits or reads a clock, itself or through others of the tests."""
    seen, left = {(path, name)}, [(path, name)]
    while left:
        waits, used = _uses(*left.pop())
        if waits:
            return True
        left += used - seen
        seen |= used
    return False


def waiting_tests() -> dict[str, list[str]]:
    """Returns the tests that wait or read a clock by their file, apart from those that compile kernels (hours of processor time).

    All tests of a file that does so itself belong to them, and of other files those that use a helper or a fixture that does.
    """
    found = {}
    for path in source.files("tests"):
        if path.name.startswith("test_") and "kernels" not in path.parts:
            module = _module(path)
            itself = any(_waits_itself(module, node) for node in ast.walk(source.tree(path)))
            tests = [name for name in module.defined if name.startswith(("test", "Test"))]
            if waiting := [name for name in tests if itself or _waits(path, name)]:
                found[str(path.relative_to(ROOT))] = waiting
    return found


def start(file: str, tests: Sequence[str], markers: str, more: list[str]) -> Run:
    """Starts pytest for tests of one file, or for all of it if none is named.

    A hang ends after an hour, since a busy machine makes everything slow.
    """
    output = tempfile.TemporaryFile()  # noqa: SIM115  (closed when the run has ended)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--timeout", "3600"]
    backend = {"TSTATIC_CPU_BACKEND": "interpret"} if file.startswith(INTERPRETED) else {}
    process = subprocess.Popen(
        [*command, "-m", markers, *more, *([f"{file}::{test}" for test in tests] or [file])],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **backend},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    return Run(file, process, output)


@contextlib.contextmanager
def _loops(count: int) -> Iterator[None]:
    """Processes that compute until the block ends."""
    made = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in made:
            one.kill()
            one.wait()


def main() -> int:
    """Runs the files and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--load", type=int, default=20, help="processes that are runnable at any time")
    parser.add_argument("--times", type=int, default=1, help="runs of each file")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--markers", default="not slow", help="as pytest's -m")
    parser.add_argument("--at-once", type=int, default=10, help="files at one time; the rest of the load are loops")
    parser.add_argument("files", nargs="*", help="files of tests; by default all tests that wait or read a clock")
    given, more = parser.parse_known_args()
    waiting = dict.fromkeys(given.files, ()) or waiting_tests()
    files = list(waiting)
    left = files * given.times
    random.Random(given.seed).shuffle(left)
    total, failed, begin = len(left), Counter[str](), time.monotonic()
    print(f"{len(files)} files, {given.times} times each, at a load of {given.load}", flush=True)
    running: list[Run] = []
    with _loops(max(given.load - given.at_once, 0)), Progress("files of tests", total) as progress:
        while left or running:
            while left and len(running) < given.at_once:
                running.append(start(file := left.pop(), waiting[file], given.markers, more))
            time.sleep(0.2)
            for run in [one for one in running if one.process.poll() is not None]:
                running.remove(run)
                progress.advance()
                # 5: every test of the file is left out by the markers or the machine.
                if run.process.returncode not in (0, 5):
                    failed[run.file] += 1
                    print(f"\n-- {run.file} (exit code {run.process.returncode})\n{run.text()}", flush=True)
                run.output.close()
    for file, count in sorted(failed.items()):
        print(f"{count:3} of {given.times} runs failed: {file}")
    seconds = time.monotonic() - begin
    print(f"{total} runs in {seconds:.0f} s, {sum(failed.values())} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
