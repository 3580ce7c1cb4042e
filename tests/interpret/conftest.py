"""Kernels in Triton's interpreter, which patches its language once."""

from __future__ import annotations

import os

from tests.helpers.quick_interpreter import interpret_quickly


def pytest_collection_finish() -> None:
    """Before the first test, also of other folders, and not on import: ``bench/gpu/ring.py`` compiles what these tests launch."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        interpret_quickly()
