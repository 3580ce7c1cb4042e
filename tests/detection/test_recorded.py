"""Detection layers, sampled losses and layers with gradients of their own, against what Paddle 1.8.5 and 2.6.2 answered."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic
from tests.detection import programs
from tstatic import fluid

SHAPES_DIFFER = {"ctr_metric_bundle": "Paddle gives two of the sums the shape [1, 1]"}


@cache
def recorded(which: str) -> dict[str, Any]:
    return json.loads(Path(__file__).with_name(f"{which}.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def compare(name: str, mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    for kind in ("results", "gradients"):
        assert len(mine[kind]) == len(theirs[kind]), f"{kind}: {len(mine[kind])} instead of {len(theirs[kind])}"
        for i, (a, b) in enumerate(zip(mine[kind], theirs[kind], strict=True)):
            # Paddle's arrays without elements have lost their shape.
            if name not in SHAPES_DIFFER and b["values"]:
                assert (a["shape"], a["dtype"]) == (b["shape"], b["dtype"]), f"{kind}[{i}]"
            np.testing.assert_allclose(a["values"], b["values"], rtol=2e-5, atol=2e-6, err_msg=f"{kind}[{i}]")


@pytest.mark.parametrize("name", programs.FLUID)
def test_layers_of_1x(name: str) -> None:
    mine = programs.run(name, fluid, None)
    compare(name, mine, recorded("fluid")[name])
    assert mine["lods"] == recorded("fluid")[name]["lods"]


@pytest.mark.parametrize("name", programs.PADDLE)
def test_functions_of_2x(name: str) -> None:
    compare(name, programs.run(name, None, tstatic), recorded("paddle")[name])
