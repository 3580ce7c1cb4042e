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
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from tstatic.progress import Progress

ROOT = Path(__file__).parents[1]

WAITING = {"asyncio", "concurrent", "multiprocessing", "select", "signal", "socket", "threading", "time"}
"""Modules by which a test waits for something or reads a clock; ``subprocess`` counts where there is a time-out or ``Popen``."""

INTERPRETED = "tests/interpret/"


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
        self.output.seek(0)
        return self.output.read().decode(errors="replace")


@cache
def _waits(path: Path) -> bool:
    """Returns whether a module of the tests waits or reads a clock, itself or through another module of the tests."""
    names: set[str] = set()
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    if any(name.partition(".")[0] in WAITING for name in names):
        return True
    if "subprocess" in names and ("timeout" in text or "Popen" in text):
        return True
    files = (ROOT / (name.replace(".", "/") + ".py") for name in names if name.startswith("tests."))
    return any(_waits(file) for file in files if file.is_file() and file != path)


def waiting_files() -> list[str]:
    """Returns the test files that wait or read a clock, apart from those that compile kernels (hours of processor time)."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(f.relative_to(ROOT)) for f in files if "kernels" not in f.parts and _waits(f)]


def start(file: str, markers: str, more: list[str]) -> Run:
    """Starts pytest for one file; a hang ends after an hour, since a busy machine makes everything slow."""
    output = tempfile.TemporaryFile()  # noqa: SIM115  (closed when the run has ended)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--timeout", "3600"]
    backend = {"TSTATIC_CPU_BACKEND": "interpret"} if file.startswith(INTERPRETED) else {}
    process = subprocess.Popen(
        [*command, "-m", markers, *more, file],
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
    parser.add_argument("files", nargs="*", help="files of tests; by default all that wait or read a clock")
    given, more = parser.parse_known_args()
    files = given.files or waiting_files()
    left = files * given.times
    random.Random(given.seed).shuffle(left)
    total, failed, begin = len(left), Counter[str](), time.monotonic()
    print(f"{len(files)} files, {given.times} times each, at a load of {given.load}", flush=True)
    running: list[Run] = []
    with _loops(max(given.load - given.at_once, 0)), Progress("files of tests", total) as progress:
        while left or running:
            while left and len(running) < given.at_once:
                running.append(start(left.pop(), given.markers, more))
            time.sleep(0.2)
            for run in [one for one in running if one.process.poll() is not None]:
                running.remove(run)
                progress.advance()
                # 5: every test of the file is left out by the markers or the machine.
                if run.process.returncode not in (0, 5):
                    failed[run.file] += 1
                    print(f"\n-- {run.file} (exit code {run.process.returncode})\n{run.text()[-6000:]}", flush=True)
                run.output.close()
    for file, count in sorted(failed.items()):
        print(f"{count:3} of {given.times} runs failed: {file}")
    seconds = time.monotonic() - begin
    print(f"{total} runs in {seconds:.0f} s, {sum(failed.values())} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
