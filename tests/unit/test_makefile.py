"""`make test` runs both rings whatever the first one says, and fails if either did."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PYTEST = """#!/bin/sh
echo "ring of ${TSTATIC_CPU_BACKEND:-numpy}"
[ "$TSTATIC_CPU_BACKEND" = interpret ] && exit $SECOND
exit $FIRST
"""
"""Stands in for the interpreter of the environment, which would run pytest."""


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("first", "second", "passes"),
    [
        (0, 0, True),
        (1, 0, False),
        (0, 1, False),
        (1, 1, False),
        (2, 5, False),
        (0, 5, True),
        (5, 0, True),
        (5, 5, False),
    ],
)
def test_the_second_ring_runs_whatever_the_first_says(tmp_path: Path, first: int, second: int, passes: bool) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text(PYTEST)
    (venv / "bin" / "python").chmod(0o755)
    for mark in (".made", ".demo", ".dev"):
        (venv / mark).touch()
    environ = {k: v for k, v in os.environ.items() if k not in ("TSTATIC_CPU_BACKEND", "MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(
        ["make", "test", f"VENV={venv}"],
        cwd=ROOT,
        env=environ | {"FIRST": str(first), "SECOND": str(second)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("ring of numpy") == 1
    assert done.stdout.count("ring of interpret") == 1
    assert (done.returncode == 0) is passes, done.stdout + done.stderr
