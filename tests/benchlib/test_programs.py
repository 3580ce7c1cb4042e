"""Rows of users' programs: training steps, branches, values that are drawn, and results that are compared with their state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.benchlib.fakes import FakeTimer
from tstatic import static
from tstatic.benchlib.cases import Case
from tstatic.benchlib.measure import Setting
from tstatic.benchlib.peers import Competitor, executed, peer
from tstatic.benchlib.programs import case_of, fingerprint, note, row_of_program
from tstatic.benchlib.rows import Row
from tstatic.benchlib.suite import Suite
from tstatic.benchlib.timers import Timer
from tstatic.errors import ProgramError
from tstatic.static.strategy import BuildStrategy
from tstatic.testing.runner import everything_on

pytestmark = pytest.mark.numpy_device("looks at results of the references")


def training() -> tuple[static.Program, static.Program, Any]:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x, label = static.data("x", [None, 6]), static.data("label", [None, 1], "int64")
        hidden = paddle.nn.functional.gelu(static.nn.fc(x, 8))
        loss = paddle.mean(paddle.nn.functional.cross_entropy(static.nn.fc(hidden, 4), label))
        paddle.optimizer.Adam(0.01).minimize(loss)
    return main, startup, loss


def started(startup: static.Program) -> static.Scope:
    scope = static.Scope()
    static.Executor().run(startup, scope=scope)
    return scope


def measured(row: Row, *names: str) -> dict[str, Any]:
    suite = Suite(FakeTimer(), list(names), Setting(repeats=12, seconds=1e-9))  # type: ignore[arg-type]
    peers: dict[str, Any] = suite.run([row])["rows"][0]["peers"]
    return peers


@pytest.mark.torch
def test_a_training_step_is_measured_with_every_peer() -> None:
    main, startup, loss = training()
    scope = started(startup)
    weight = main.all_parameters()[0].name
    before = np.array(scope.find_var(weight).get_tensor())
    row, drawn = row_of_program("train.py", main, {"x": (5, 6), "label": (5, 1)}, [loss.name], scope)
    assert drawn == []
    assert row.name == "train.py x [5, 6], label [5, 1] float32 fwd_bwd"
    found = measured(row, "tstatic", "unfused", "numpy", "torch")
    assert {name: one["state"] for name, one in found.items()} == dict.fromkeys(found, "ok"), found
    assert np.array_equal(before, np.array(scope.find_var(weight).get_tensor())), "the user's state is as it was"
    assert main.random_seed == 0


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda case, made: [made[0] * 1.01, *made[1:]], "mean_"),
        (lambda case, made: [made[0], *before(case)], "fc_0."),
    ],
    ids=["loss", "no update"],
)
def test_a_peer_whose_loss_or_updates_are_wrong_has_no_time(spoil: Any, said: str) -> None:
    """What a step writes is compared, too: a step that never updates its parameters would be the fastest."""

    @peer("spoiled", usual=False)
    def spoiled(case: Case, timer: Timer, sets: int) -> Competitor:
        right = executed(BuildStrategy(), case, timer, sets)
        return Competitor(right.runs, lambda: spoil(case, right.results()))

    main, startup, loss = training()
    row, _ = row_of_program("train.py", main, {"x": (5, 6), "label": (5, 1)}, [loss.name], started(startup))
    found = measured(row, "tstatic", "spoiled")
    assert found["spoiled"]["state"] == "wrong"
    assert said in found["spoiled"]["detail"]
    assert "seconds" not in found["spoiled"]
    assert found["tstatic"]["state"] == "ok"


def before(case: Case) -> list[Any]:
    """The state as a step finds it."""
    return [case.state[name] for name in case.written]


def test_a_program_with_branches_has_references_and_peers_without_a_form_are_missing() -> None:
    x = static.data("x", [None, 4])
    total = static.nn.cond(paddle.mean(x) > 0.0, lambda: paddle.exp(x), lambda: x * 3.0)
    row, _ = row_of_program("branches", static.default_main_program(), {"x": (3, 4)}, [total.name])
    assert row.direction == "fwd"
    found = measured(row, "tstatic", "unfused", "numpy", "torch")
    assert {name: one["state"] for name, one in found.items()} == {
        "tstatic": "ok", "unfused": "ok", "numpy": "missing", "torch": "missing"
    }  # fmt: skip
    assert "branches or loops" in found["numpy"]["detail"]


def test_variables_without_values_get_drawn_ones_and_it_is_said() -> None:
    main, _, loss = training()
    row, drawn = row_of_program("prog.json", main, {"x": (5, 6), "label": (5, 1)}, [loss.name])
    assert {p.name for p in main.all_parameters()} <= set(drawn)
    assert note(drawn, "prog.json").startswith(f"prog.json has no values for {drawn[0]}, ")
    assert note([], "prog.json") == ""
    assert measured(row, "tstatic", "unfused")["tstatic"]["state"] == "ok"


def test_random_numbers_are_those_of_the_first_run() -> None:
    x = static.data("x", [None, 40])
    y = paddle.nn.functional.dropout(x, 0.5)
    row, _ = row_of_program("drop", static.default_main_program(), {"x": (8, 40)}, [y.name])
    found = measured(row, "tstatic", "unfused", "numpy", "torch")
    assert {name: one["state"] for name, one in found.items()} == {
        "tstatic": "ok", "unfused": "ok", "numpy": "ok", "torch": "missing"
    }  # fmt: skip


def test_without_fetches_all_results_are_compared() -> None:
    x = static.data("x", [None, 4])
    first, second = paddle.exp(x), paddle.tanh(x)
    row, _ = row_of_program("two", static.default_main_program(), {"x": (3, 4)})
    assert case_of(row).fetches == [first.name, second.name]


def test_what_one_place_cannot_run_is_refused() -> None:
    with pytest.raises(ProgramError, match="'empty' has no operators to measure"):
        row_of_program("empty", static.Program(), {})
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [4])
        paddle.distributed.all_reduce(x)
    with pytest.raises(ProgramError, match="exchanges values with other places"):
        row_of_program("reduced", main, {"x": (4,)})


def test_other_operators_are_another_source() -> None:
    x = static.data("x", [None, 4])
    y = paddle.exp(x)
    first, _ = row_of_program("p", static.default_main_program(), {"x": (3, 4)}, [y.name])
    again, _ = row_of_program("p", static.default_main_program(), {"x": (3, 4)}, [y.name])
    assert fingerprint(first) == fingerprint(again)
    paddle.tanh(y)
    other, _ = row_of_program("p", static.default_main_program(), {"x": (3, 4)}, [y.name])
    assert fingerprint(other) != fingerprint(first)


def test_the_tolerance_is_that_of_strategies() -> None:
    """A difference of one rounding passes, and one of a thousandth does not, in the loss and in what is written."""
    main, startup, loss = training()
    row, _ = row_of_program("train.py", main, {"x": (5, 6), "label": (5, 1)}, [loss.name], started(startup))
    case = case_of(row)
    made = executed(everything_on(), case, FakeTimer(), 1).results()  # type: ignore[arg-type]
    assert case.difference(made) == ""
    assert case.difference([np.nextafter(made[0], np.float32(9), dtype=np.float32), *made[1:]]) == ""
    for number, name in enumerate(case.compared):
        if made[number].dtype.kind == "f" and np.any(made[number]):
            wrong = [*made]
            wrong[number] = (made[number] * 1.001).astype(made[number].dtype)
            assert case.difference(wrong).startswith(f"{name} "), name
