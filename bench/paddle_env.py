"""Makes `.venv-paddle`, the environment that the bench runs Paddle 2.6.2 in: `python bench/paddle_env.py`.

Paddle 2.6.2 needs numpy 1 and Python 3.11 at most, so it cannot share an environment with tstatic.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = ("paddlepaddle==2.6.2", "numpy<2", "setuptools<81")
TARGET = Path(__file__).resolve().parent.parent / ".venv-paddle"


def interpreter() -> str | None:
    """A Python 3.11, if this machine has one."""
    names = [sys.executable] if sys.version_info[:2] == (3, 11) else []
    check = "import sys, venv; sys.exit(sys.version_info[:2] != (3, 11))"
    for name in [*names, "python3.11"]:
        path = shutil.which(name)
        # A version manager's shim may exist and fail.
        if path and subprocess.run([path, "-c", check], capture_output=True).returncode == 0:
            return path
    return None


def main() -> int:
    """Creates the environment and installs Paddle; returns the exit code."""
    python = interpreter()
    if python is None:
        print("Paddle 2.6.2 needs Python 3.11, and none was found; install it, then run this again", file=sys.stderr)
        return 1
    subprocess.run([python, "-m", "venv", "--clear", str(TARGET)], check=True)
    pip = [str(TARGET / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", *PACKAGES], check=True)
    subprocess.run(
        [str(TARGET / "bin" / "python"), "-c", "import paddle; print('Paddle', paddle.__version__)"], check=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
