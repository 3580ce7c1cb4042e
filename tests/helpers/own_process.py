"""Runs code in a process of its own in which BLAS has several threads: pytest's own processes keep to one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_alone(code: str, *args: str, timeout: float = 280.0, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs ``python -c``.

    Args:
        code: The script.
        args: Its arguments.
        timeout: Seconds that only bound a hang.
        variables: Environment variables.
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONWARNINGS": "ignore",
        "OPENBLAS_NUM_THREADS": "4",
        **variables,
    }
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.pop(name, None)
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)
