"""Where gradients differ from Paddle's, or Paddle has none, those of tstatic are the slopes of its values."""

from __future__ import annotations

import os
import zlib
from typing import Any

import pytest

import tstatic
from tests.parity import compare, record, runner, slopes

EVERYTHING = os.environ.get("TSTATIC_PARITY") == "all"
SHARE = 3
"""One call in three in `make test`."""

NOT_SMOOTH = {
    "*special*": "values at poles, kinks and infinity",
    "cast(f32[2,3], 'float16')": "half precision is rounded: a staircase",
    "cdist(*p=inf)": "elements tie for the largest: a kink",
    "nn.SpectralNorm(*": "each run moves the vectors of the iteration, which are not differentiated",
    "static.nn.spectral_norm(*, ?)": "each run moves the vectors of the iteration, which are not differentiated",
    "static.nn.spectral_norm(*, 0.1)": "each run moves the vectors of the iteration, which are not differentiated",
    "linalg.svd(*, True)": "the vectors beyond the rank are any basis: not differentiated",
    "linalg.lu*": "a known defect: no gradient",
    "put_along_axis(*'mul'*": "a known defect: no gradient",
    "fluid.layers.mish(f32[2,3], 1.0)": "above the threshold the slope of softplus is approximated, as in Paddle 2",
}
"""Calls whose gradient is no slope, and why."""


def differing(recorded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls that a row of the page lets have other gradients than Paddle, and that do."""
    found = []
    rows = [row for row in compare.rows(compare.PAGE.read_text()) if "gradient" in row.aspect]
    for one in recorded:
        for call, answer in zip(one["calls"], one["answers"], strict=True):
            if call["path"] in ("training", "network", "schedule") or "compare" in call or "raised" in answer["fixed"]:
                continue
            chosen = EVERYTHING or zlib.crc32(call["id"].encode()) % SHARE == 0
            if not chosen or not any(compare.matches(call["id"], row.calls) for row in rows if row.calls != "*"):
                continue
            if any(compare.matches(call["id"], pattern) for pattern in NOT_SMOOTH):
                continue
            differences = compare.compare(call, answer, runner.answer(tstatic, call))
            if any(d.aspect.startswith("gradient") and not d.unknown for d in differences):
                found.append(call)
    return found


@pytest.mark.slow
@pytest.mark.numpy_device(
    "the references are differentiated; torch's kernels are compared with them", not_on=("torch",)
)
def test_gradients_that_differ_from_paddles_are_slopes() -> None:
    """Guards gradients for which no number of Paddle can be compared."""
    calls = differing([record.load(), record.load(record.FLUID)])
    far = {call["id"]: distances for call in calls if (distances := slopes.far(tstatic, call))}
    assert len(calls) >= 25
    assert far == {}


def test_spectral_norm_is_a_slope_once_its_iteration_has_settled() -> None:
    """Guards the gradient of `static.nn.spectral_norm`, which differs from Paddle's, and both numbers on the page."""
    recorded = record.load()
    by_name = {c["id"]: (c, a) for c, a in zip(recorded["calls"], recorded["answers"], strict=True)}
    call, answer = by_name["static.nn.spectral_norm(f32[3,4], 0, 20)"]
    assert slopes.far(tstatic, call) == {}
    numbers = [
        ", ".join(f"{value:.4f}" for value in side["fixed"]["grads"][0][2][:3])
        for side in (answer, runner.answer(tstatic, call))
    ]
    assert f"begins with {numbers[0]} in Paddle, with {numbers[1]} here" in compare.PAGE.read_text()


def test_weights_of_classes_send_no_part_of_a_gradient_to_soft_labels() -> None:
    """Guards labels that do not stop gradients: the loss has none by them, and the factor alone sent them a wrong one."""
    by_name = {call["id"]: call for call in record.load()["calls"]}
    assert (
        slopes.far(tstatic, by_name["nn.functional.cross_entropy(f32[3,4], f32[3,4], f32[4], soft_label=True)"]) == {}
    )


def test_a_gradient_that_is_no_slope_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: a function of which a part of the gradient is stopped."""
    monkeypatch.setattr(tstatic.nn.functional, "softplus", lambda x: x.detach() * x)
    call = {"path": "nn.functional.softplus", "kwargs": {}}
    feed = {"feed": {"shape": [2, 3], "dtype": "float32", "low": 0.5, "high": 2.0, "seed": 0}}
    assert slopes.far(tstatic, {**call, "args": [feed]}).keys() == {0}
