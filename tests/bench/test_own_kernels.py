"""Figures are those that users would get: benches measure with the kernels that numpy chooses by itself."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.source import ROOT

BENCH = ROOT / "bench"
_spec = importlib.util.spec_from_file_location("own_kernels", BENCH / "own_kernels.py")
assert _spec is not None
assert _spec.loader is not None
own_kernels = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(own_kernels)

MEASURES = (
    "commits", "convolutions", "cpu", "gpu/brief", "gpu/brief_worker", "loader", "passes", "profiling", "recurrence",
    "same_twice", "sizes",
)  # fmt: skip
"""Benches whose times depend on numpy's matrix products."""
SCRIPT = """
import os, sys
sys.path.insert(0, {folder!r})
from own_kernels import restart
restart()
print({names!r} & os.environ.keys(), sys.argv[1:], os.environ["KEPT"])
"""


@pytest.mark.parametrize("name", own_kernels.CHOOSING)
def test_a_bench_starts_again_without_what_chooses_kernels(name: str, tmp_path: Path) -> None:
    script = tmp_path / "measure.py"
    script.write_text(SCRIPT.format(folder=str(BENCH), names={*own_kernels.CHOOSING}))
    done = subprocess.run(
        [sys.executable, str(script), "--rounds", "3"],
        env=own_kernels.plain(os.environ) | {name: "Haswell", "KEPT": "yes"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "set() ['--rounds', '3'] yes\n"


@pytest.mark.parametrize("name", MEASURES)
def test_every_bench_that_measures_does(name: str) -> None:
    tree = ast.parse((BENCH / f"{name}.py").read_text(encoding="utf-8"))
    main = tree.body[-1]
    assert isinstance(main, ast.If), "the script's own block stands last"
    assert ast.unparse(main.body[0]) == "restart()"


def test_workers_and_make_start_processes_without_them() -> None:
    assert "env=plain(os.environ)" in (BENCH / "workers.py").read_text(encoding="utf-8")
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "-m tstatic bench" in line)
    assert f"env -u {' -u '.join(own_kernels.CHOOSING)}" in line
