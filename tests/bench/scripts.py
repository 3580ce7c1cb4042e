"""Imports the scripts of ``bench/``, which find each other by their folder, and runs them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"


@contextmanager
def _paths() -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = [str(BENCH), str(BENCH / "gpu")]
    try:
        yield
    finally:
        sys.path[:] = before


def script(name: str) -> ModuleType:
    """A script as a module; the path is left as it was."""
    with _paths():
        return importlib.import_module(name)


def run(path: str, *arguments: str, code: int | None = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of ``bench/`` in a process of its own and looks at its exit code."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TSTATIC_CPU_BACKEND")}
    done = subprocess.run(
        [sys.executable, str(BENCH / path), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=kept | {"CPU_NUM": "1"} | environment,
        timeout=240,
    )
    assert code is None or done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
