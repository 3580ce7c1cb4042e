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

from tests.helpers.patience import HANG

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


HIDE = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Absent())
"""


def hidden(folder: Path, *names: str) -> dict[str, str]:
    """Environment in which these packages cannot be imported, as where they are not installed."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HIDE.format(names=names))
    return {"PYTHONPATH": str(folder)}


def run(path: str, *arguments: str, code: int | None = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of ``bench/`` in a process of its own and looks at its exit code."""
    kept = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TSTATIC_CPU_BACKEND")}
    done = subprocess.run(
        [sys.executable, str(BENCH / path), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=kept | {"CPU_NUM": "1"} | environment,
        timeout=HANG,
    )
    assert code is None or done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
