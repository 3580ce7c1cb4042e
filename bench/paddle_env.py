"""Makes environments with Paddle itself, beside which tests and bench run: `python bench/paddle_env.py [paddle] [fluid]`.

`paddle` (the default) is Paddle 2.6.2 in `.venv-paddle`: it needs numpy 1 and Python 3.11 at most, so it cannot share an
environment with tstatic. `fluid` is Paddle 1.8.5 in `.venv-fluid`, on Python 3.7: the last release with `paddle.fluid` that
PyPI still has; the numbers of 1.x programs are recorded from it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = {
    "paddle": (".venv-paddle", (3, 11), ("paddlepaddle==2.6.2", "numpy<2", "setuptools<81")),
    "fluid": (".venv-fluid", (3, 7), ("paddlepaddle==1.8.5", "numpy<1.20", "protobuf<3.21")),
}
"""Argument -> folder, Python and packages."""


def interpreter(version: tuple[int, int]) -> str | None:
    """Returns a Python of this version, if the machine has one."""
    name = "python{}.{}".format(*version)
    names = [sys.executable] if sys.version_info[:2] == version else []
    check = f"import sys, venv; sys.exit(sys.version_info[:2] != {version})"
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for candidate in [*names, name, *map(str, managed.glob("{}.{}.*/bin/python".format(*version)))]:
        path = shutil.which(candidate)
        # A version manager's shim may exist and fail.
        if path and subprocess.run([path, "-c", check], capture_output=True).returncode == 0:
            return path
    return None


def make(kind: str) -> int:
    """Creates an environment and installs its Paddle; returns the exit code."""
    folder, version, packages = ENVIRONMENTS[kind]
    python = interpreter(version)
    if python is None:
        wanted = "{}.{}".format(*version)
        print(
            f"{packages[0]} needs Python {wanted}, and none was found; install it, then run this again", file=sys.stderr
        )
        return 1
    subprocess.run([python, "-m", "venv", "--clear", str(ROOT / folder)], check=True)
    own = str(ROOT / folder / "bin" / "python")
    subprocess.run([own, "-m", "pip", "--disable-pip-version-check", "install", "-q", *packages], check=True)
    subprocess.run([own, "-c", "import paddle; print('Paddle', paddle.__version__)"], check=True)
    return 0


def main(kinds: list[str]) -> int:
    """Makes the environments named; returns the exit code."""
    if unknown := sorted(set(kinds) - ENVIRONMENTS.keys()):
        print(f"no such environment: {', '.join(unknown)}; there are {', '.join(ENVIRONMENTS)}", file=sys.stderr)
        return 2
    return max(make(kind) for kind in kinds or ["paddle"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
