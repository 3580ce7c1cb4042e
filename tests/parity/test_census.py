"""Every public function has a recorded call and a recorded gradient, or a reason that says why it has none."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.parity import attributes, census, reasons, record

GIVEN = (1090, 250)
"""Least number of optional parameters that recorded calls of Paddle 2.6.2 and of 1.8.5 give another value; it may only rise."""


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    return [record.load(), record.load(record.FLUID)]


@pytest.fixture(scope="module")
def taken(recorded: list[dict[str, Any]]) -> census.Census:
    return census.take(recorded)


def test_every_public_function_has_a_recorded_call_or_a_reason(taken: census.Census) -> None:
    missing = taken.uncalled - reasons.NO_CALL.keys()
    assert not missing, (
        f"record calls of {sorted(missing)} (samples, then make parity), or say in reasons.NO_CALL why not"
    )


def test_every_function_with_a_gradient_has_a_recorded_one_or_a_reason(taken: census.Census) -> None:
    missing = taken.ungraded.keys() - reasons.NO_GRADIENT.keys()
    shown = {path: taken.ungraded[path] for path in sorted(missing)}
    assert not missing, f"record calls of which Paddle has a gradient, or say in reasons.NO_GRADIENT why none: {shown}"


def test_no_reason_is_stale(taken: census.Census) -> None:
    public = census.public()
    assert reasons.NO_CALL.keys() - taken.uncalled == set(), "recorded by now, or no public function any more"
    assert reasons.NO_GRADIENT.keys() - taken.ungraded.keys() == set(), "recorded by now, or without such an operator"
    assert reasons.ELSEWHERE.keys() - public.keys() == set(), "no public function any more"
    modules = {f"{path.rpartition('.')[0]}." for path in census.every()}
    stale = [start for start in reasons.OTHER_MODULES if not any(module.startswith(start) for module in modules)]
    assert stale == [], "no public module starts so any more"


def test_records_of_other_folders_hold_what_is_said(taken: census.Census) -> None:
    assert {path: why for path in reasons.ELSEWHERE if (why := census.pointed_at(path))} == {}


@pytest.mark.parametrize("table", ["OTHER_MODULES", "NO_CALL", "NO_GRADIENT"])
def test_a_reason_is_one(table: str) -> None:
    poor = {path: why for path, why in getattr(reasons, table).items() if len(why) < 15 or "sampled" in why}
    assert poor == {}


def test_a_lost_gradient_is_seen(recorded: list[dict[str, Any]]) -> None:
    """A planted hole: without its recorded gradients, a function stands among those that need a reason."""
    wrong = copy.copy(recorded[0])
    wrong["answers"] = [
        {kind: {k: v for k, v in part.items() if k != "grads"} for kind, part in answer.items()}
        if call["path"] == "nn.functional.softplus"
        else answer
        for call, answer in zip(wrong["calls"], wrong["answers"], strict=True)
    ]
    known = census.facts([wrong])[id(attributes.find("nn.functional.softplus"))]
    assert not known.gradient
    assert census.makes_gradient(known.calls) == "softplus"


def test_parameters_that_were_given_stay_given(recorded: list[dict[str, Any]]) -> None:
    counts = tuple(sum(map(len, attributes.coverage(one["calls"], one["answers"])[0].values())) for one in recorded)
    assert all(now >= least for now, least in zip(counts, GIVEN, strict=True)), f"{counts}, and it was {GIVEN}"
