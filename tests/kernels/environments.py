"""Interpreters that have a triton to compile with: this one, and the environment with the version that GPU stacks bring."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VARIABLE = "TSTATIC_TRITON36_PYTHON"

ALL = os.environ.get("TSTATIC_KERNELS") == "all"
"""Every kernel for every chip, disassembled: takes hours (``make proof-kernels``)."""


def pinned() -> str:
    """This interpreter; a test that asks for it is skipped where triton is not installed."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    return sys.executable


def second() -> str:
    """The interpreter of the environment that ``constraints-device.txt`` describes, else the test is skipped."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else ROOT / ".venv-triton36" / "bin" / "python"
    if named and not path.exists():
        pytest.fail(f"{VARIABLE} names no file: {named}")
    if not path.exists():
        pytest.skip(f"no environment with triton 3.6.0 (make triton36, or set {VARIABLE})")
    return str(path)


def python(which: str) -> str:
    """The interpreter by the version's word: "pinned" or "3.6"."""
    return {"pinned": pinned, "3.6": second}[which]()


def triton(which: str) -> str:
    """The version of an interpreter's triton."""
    asked = "import importlib.metadata; print(importlib.metadata.version('triton'))"
    return subprocess.run([python(which), "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
