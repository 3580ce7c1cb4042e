"""Every described call answers as Paddle 2.6.2 did, but for what docs/paddle_differences.md lists.

A fixed sample runs in `make test`; `make parity` records anew and sets TSTATIC_PARITY=all, which runs every call.
"""

from __future__ import annotations

import copy
import json
import os
import zlib
from collections import Counter
from typing import Any

import pytest

import tstatic
from tests.parity import compare, generate, record, runner

EVERYTHING = os.environ.get("TSTATIC_PARITY") == "all"
SHARE = 3
"""One call in three runs in `make test`."""

FEW = 40
"""A row whose pattern names at most this many calls has all of them run, so that a stale one is seen in `make test`."""


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """The records of Paddle 2.6.2 and, behind it, of what Paddle 1.8.5 answers to calls of `paddle.fluid`."""
    first, fluid = record.load(), record.load(record.FLUID)
    return {**first, **{key: [*first[key], *fluid[key]] for key in ("calls", "answers")}}


@pytest.fixture(scope="module")
def listed() -> list[compare.Row]:
    return compare.rows(compare.PAGE.read_text())


def checked(calls: list[dict[str, Any]], listed: list[compare.Row]) -> tuple[set[str], list[compare.Row]]:
    """The identifiers of the calls to run, and the rows that they can show to be stale."""
    every = {c["id"] for c in calls}
    if EVERYTHING:
        return every, listed
    chosen = {name for name in every if zlib.crc32(name.encode()) % SHARE == 0}
    narrow = []
    for row in listed:
        named = {name for name in every if compare.matches(name, row.calls)}
        if len(named) <= FEW:
            narrow.append(row)
            chosen |= named
    return chosen, narrow


@pytest.fixture(scope="module")
def judged(recorded: dict[str, Any], listed: list[compare.Row]) -> tuple[list[compare.Difference], list[compare.Row]]:
    """The differences that no row lists, and the stale rows."""
    chosen, rows = checked(recorded["calls"], listed)
    found: list[compare.Difference] = []
    for call, answer in zip(recorded["calls"], recorded["answers"], strict=True):
        if call["id"] in chosen:
            found += compare.compare(call, answer, runner.answer(tstatic, call))
    unlisted, stale = compare.judge(found, listed)
    return unlisted, [row for row in stale if row in rows]


@pytest.mark.slow
@pytest.mark.numpy_device(
    "the list of differences is of the references; test_torch_device.py has that of torch", not_on=("torch",)
)
def test_answers_are_those_of_paddle(judged: tuple[list[compare.Difference], list[compare.Row]]) -> None:
    unlisted, _ = judged
    shown = "\n".join(map(str, unlisted[:60]))
    assert not unlisted, f"{len(unlisted)} differences that docs/paddle_differences.md does not list:\n{shown}"


@pytest.mark.slow
@pytest.mark.numpy_device(
    "the list of differences is of the references; test_torch_device.py has that of torch", not_on=("torch",)
)
def test_no_listed_difference_is_gone(judged: tuple[list[compare.Difference], list[compare.Row]]) -> None:
    _, stale = judged
    assert not stale, "rows of docs/paddle_differences.md that no call shows any more: " + "; ".join(map(str, stale))


def test_the_page_gives_every_row_a_reason_and_none_twice(listed: list[compare.Row]) -> None:
    assert listed
    assert [row for row in listed if len(row.why) < 20] == []
    assert not [k for k, n in Counter((r.calls, r.aspect) for r in listed).items() if n > 1]


def test_every_public_function_has_samples() -> None:
    missing = generate.without_samples()
    assert not missing, f"give tests/parity/samples.py legal calls of {missing}"


def test_calls_on_record_are_those_that_are_described(recorded: dict[str, Any]) -> None:
    """Guards the record against samples that were changed and not recorded anew."""
    described = {json.dumps(call) for call in [*generate.calls(), *generate.fluid_calls()]}
    held = {json.dumps(call) for call in recorded["calls"]}
    assert described == held, "make parity records Paddle's answers to the calls that are described now"


def test_enough_is_recorded(recorded: dict[str, Any]) -> None:
    kinds = Counter(c["path"] for c in recorded["calls"])
    calls = {k: n for k, n in kinds.items() if k not in ("training", "network", "schedule")}
    optimizers = {c["choice"][0] for c in recorded["calls"] if c["path"] == "training"}
    schedules = {c["name"] for c in recorded["calls"] if c["path"] == "schedule"}
    assert sum(calls.values()) >= 1300
    assert len(calls) + len(optimizers) + len(schedules) >= 400
    assert kinds["training"] >= 400
    assert kinds["network"] >= 14
    assert recorded["versions"]["paddle"] == "2.6.2"
    assert record.RECORDED.stat().st_size <= 2 * 2**20


@pytest.mark.skipif(not EVERYTHING, reason="fluid is compared by make parity")
def test_fluid_names_answer_as_paddle_2_4(listed: list[compare.Row]) -> None:
    python = record.ROOT / ".venv-paddle24" / "bin" / "python"
    if not python.exists():
        pytest.skip(
            "Paddle 2.4.2, the last with paddle.fluid, needs Python 3.10 in .venv-paddle24, and neither is here"
        )
    calls = generate.same_in_fluid()
    theirs = record.answers(str(python), "paddle", calls)
    found = [d for c, a in zip(calls, theirs, strict=True) for d in compare.compare(c, a, runner.answer(tstatic, c))]
    assert not compare.judge(found, listed)[0]


# ------------------------------------------------------------------------------------------------------- planted faults
def _planted(part: str, number: int, value: Any) -> Any:
    def plant(answer: dict[str, Any]) -> None:
        answer["fixed"][part][0][number] = value(answer["fixed"][part][0][number])

    return plant


FAULTS = {
    "value": _planted("outs", 2, lambda v: [v[0] * 1.0002, *v[1:]]),
    "shape": _planted("outs", 1, lambda s: [*s, 1]),
    "dtype": _planted("outs", 0, lambda _: "float64"),
    "gradient": _planted("grads", 2, lambda v: [*v[:-1], v[-1] + 0.001]),
    "declared shape": _planted("declared", 0, lambda s: [-1, *s[1:]]),
    "declared dtype": _planted("declared", 1, lambda _: "float64"),
    "stop_gradient of float32: False, here True": _planted("declared", 2, lambda stopped: not stopped),
    "error: none, here run": lambda answer: answer["fixed"].update(raised="run"),
    "gradient error: none, here gradients": lambda answer: answer["fixed"].update(gradient_raised="gradients"),
    "count": lambda answer: answer["fixed"]["outs"].pop(),
}


@pytest.mark.parametrize("aspect", FAULTS)
def test_a_planted_wrong_answer_is_seen(recorded: dict[str, Any], aspect: str) -> None:
    by_name = {c["id"]: (c, a) for c, a in zip(recorded["calls"], recorded["answers"], strict=True)}
    call, answer = by_name["nn.Linear(3, 4)(f32[2,3])"]
    wrong = copy.deepcopy(answer)
    FAULTS[aspect](wrong)
    assert compare.compare(call, answer, answer) == []
    assert aspect in {d.aspect for d in compare.compare(call, answer, wrong)}


def test_a_function_that_computes_something_else_is_seen(
    recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = tstatic.nn.functional.softplus
    monkeypatch.setattr(tstatic.nn.functional, "softplus", lambda x, *args: right(x, *args) * 1.0001)
    by_name = {c["id"]: (c, a) for c, a in zip(recorded["calls"], recorded["answers"], strict=True)}
    call, answer = by_name["nn.functional.softplus(f32[2,3])"]
    assert {d.aspect for d in compare.compare(call, answer, runner.answer(tstatic, call))} == {"value", "gradient"}


def test_a_large_array_is_compared_by_position() -> None:
    array = runner.ramp([40, 40], "float32", -1.0, 1.0, 0)
    moved = array.copy()
    moved[3, 4], moved[4, 3] = array[4, 3], array[3, 4]
    assert compare.close(runner.packed(array), runner.packed(array))
    assert not compare.close(runner.packed(array), runner.packed(moved))


def test_a_row_without_a_difference_is_stale() -> None:
    row = compare.Row("tanh(f32[2,3])", "value", "no longer so")
    seen = compare.Difference("tanh(f32[2,3])", False, "value", "")
    other = compare.Difference("sinh(f32[2,3])", False, "value", "")
    assert compare.judge([seen], [row]) == ([], [])
    assert compare.judge([other], [row]) == ([other], [row])
