"""Compares trajectories with the recorded ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


@cache
def _all() -> Any:
    return json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))


def recorded(version: str) -> Any:
    """Returns what a version of Paddle did."""
    return _all()[version]


def assert_follows(
    found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], rtol: float = 2e-5, atol: float = 5e-6
) -> None:
    """Each step has the recorded values."""
    assert len(found) == len(wanted)
    for step, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert mine.keys() == theirs.keys()
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol, atol, err_msg=f"step {step}, {name}")
