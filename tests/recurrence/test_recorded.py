"""Programs give what fluid 1.8.5 and Paddle 2.6.2 gave: parameters' names and shapes, results, and all gradients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic
from tests.recurrence import described, described_2x
from tstatic import fluid


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))["programs"]
    return found


RECORDED, RECORDED_2X = recorded("recorded.json"), recorded("recorded_2x.json")


@pytest.mark.parametrize("name", sorted(described.programs(fluid)))
def test_results_are_those_of_fluid(name: str) -> None:
    mine, theirs = described.run(fluid, name), RECORDED[name]
    assert mine["parameters"] == theirs["parameters"]
    for a, b in zip(mine["results"], theirs["results"], strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)
    assert sorted(mine["gradients"]) == sorted(theirs["gradients"])
    for key, value in theirs["gradients"].items():
        np.testing.assert_allclose(mine["gradients"][key], value, rtol=2e-4, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("name", described_2x.NAMES)
def test_layers_are_those_of_paddle(name: str) -> None:
    mine, theirs = described_2x.run(tstatic, name), RECORDED_2X[name]
    assert mine["state"] == theirs["state"]
    for key in ("results", "gradients"):
        for a, b in zip(mine[key], theirs[key], strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)
