"""How much tests try: what fits a commit, or what ``make proof`` asks for."""

from __future__ import annotations

import os
from typing import Any

import pytest

SOAK = "TSTATIC_SOAK" in os.environ
"""Whether tests try as much as ``make proof`` asks for."""


def shards(count: int, short: int) -> list[Any]:
    """Returns the numbers of the shards of a proof as parameters: all but the first ``short`` are slow tests."""
    return [pytest.param(n, marks=pytest.mark.slow if n >= short else ()) for n in range(count)]
