"""First contact with the libraries of a GPU machine: it starts, says what is missing, and compiles its kernels."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.bench.scripts import run
from tests.helpers.patience import HANG
from tests.kernels import environments

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """What a run by the second environment, which has no torch, writes."""
    python = environments.second()
    folder = tmp_path_factory.mktemp("contact")
    pack = folder / "pack.npz"
    run("gpu/pack.py", str(pack), "--tiny", "--only", "relu,residual")
    kept = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TSTATIC_CPU_BACKEND", "PYTHONPATH")}
    command = [python, "-W", "error", "bench/gpu/contact.py", str(folder), "--pack", str(pack), "--dry-run"]
    done = subprocess.run(command, cwd=environments.ROOT, env=kept, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2, done.stderr
    return [json.loads(text) for text in (folder / "contact.jsonl").read_text().splitlines()]


def test_all_kernels_compile_without_torch(lines: Lines) -> None:
    [start] = [line for line in lines if line["what"] == "start"]
    [compiled] = [line for line in lines if line["what"] == "compile"]
    assert start["libraries"]["triton"].startswith("3.6.")
    assert compiled["compiled"] == compiled["launches"] >= 8, compiled
    assert (compiled["failed"], compiled["died"], compiled["late"]) == ({}, [], [])
    [error] = [line for line in lines if line["what"] == "error"]
    assert error["error"] == "ModuleNotFoundError: No module named 'torch'"
    assert lines[-1]["what"] == "end"


def test_the_versions_are_those_of_gpu_machines(lines: Lines) -> None:
    python, numpy = lines[0]["python"], lines[0]["libraries"]["numpy"]
    if not python.startswith("3.12."):
        pytest.skip(f"no Python 3.12 was found: it ran with {python} and numpy {numpy}")
    assert numpy.startswith("2.5.")
