"""Runs code in a process of its own in which BLAS has several threads: pytest's own processes keep to one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers import child

ROOT = Path(__file__).parents[2]


def run_alone(code: str, *args: str, timeout: float = 280.0, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs ``python -c``.

    Args:
        code: The script.
        args: Its arguments.
        timeout: Seconds that only bound a hang.
        variables: Environment variables.
    """
    settings = {"PYTHONWARNINGS": "ignore", "OPENBLAS_NUM_THREADS": "4", **variables}
    environment = child.environment(without=("OMP_NUM_THREADS", "MKL_NUM_THREADS"), **settings)
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)
