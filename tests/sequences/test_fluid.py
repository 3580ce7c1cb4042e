"""Sequence layers give what Paddle 1.8.5 gives: values, LoD and gradients (recorded by ``record.py``)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.sequences import cases
from tstatic import fluid

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))


def test_every_case_is_recorded() -> None:
    assert RECORDED["version"] == "1.8.5"
    assert sorted(RECORDED["cases"]) == sorted(cases.CASES)


@pytest.mark.parametrize("name", cases.CASES)
def test_results_and_gradients_are_those_of_paddle(name: str) -> None:
    found, recorded = cases.run(fluid, name), RECORDED["cases"][name]
    for mine, theirs in zip(found["results"], recorded["results"], strict=True):
        np.testing.assert_allclose(mine["values"], theirs["values"], rtol=2e-5, atol=2e-6)
        assert mine["lod"] == theirs["lod"]
    assert sorted(found["gradients"]) == sorted(recorded["gradients"])
    for key, gradient in recorded["gradients"].items():
        np.testing.assert_allclose(found["gradients"][key], gradient, rtol=1e-4, atol=1e-5, err_msg=key)
