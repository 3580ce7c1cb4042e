"""Lets a bench measure what users would get: numpy chooses its kernels by itself, whatever this machine's environment says."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

CHOOSING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Variables by which OpenBLAS takes the kernels of another processor, or other blocks: a step takes up to 2.2 times as long."""


def plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment without them, for a process that measures."""
    return {name: value for name, value in environment.items() if name not in CHOOSING}


def restart() -> None:
    """Starts this process again without them, if they are set: OpenBLAS reads them when numpy is imported."""
    if any(name in os.environ for name in CHOOSING):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], plain(os.environ))
