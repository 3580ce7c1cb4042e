"""A rank that fails is named by all the others, and nobody is left behind."""

from __future__ import annotations

import random
import signal

import pytest

from tests.comm import soak
from tests.comm.pool import SLACK, Pool, Trial
from tests.helpers.patience import pace
from tests.helpers.seed import SEED

pytestmark = pytest.mark.torch

SECOND = f"{pace():g}"
"""A second on a quiet machine, as a flag."""


def _named(trial: Trial, rank: int) -> tuple[int, str]:
    return tuple(next(line for line in trial.said(rank) if line[0] == "error")[3:])


@pytest.mark.parametrize("fault", soak.FAULTS, ids=lambda fault: fault.name)
def test_survivors_name_the_rank_that_failed_in_time(pool: Pool, fault: soak.Fault) -> None:
    result = soak.run(pool, random.Random(fault.name), SLACK, fault)
    assert result["broken"] == [], result


@pytest.mark.slow
def test_trials_at_random(pool: Pool) -> None:
    """``make proof`` tries 200."""
    rng = random.Random(SEED)
    for fault in rng.sample(soak.FAULTS, 6):
        result = soak.run(pool, rng, SLACK, fault)
        assert result["broken"] == [], result


def test_the_soak_sees_a_wrong_name(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = soak.Fault("kill", "stopped", (1,))
    broken = soak.run(pool, random.Random(1), SLACK, fault)["broken"]
    assert any("instead of 'stopped'" in one for one in broken)
    assert any("ended with -9" in one for one in broken)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_survivors_that_are_in_no_collective_are_ended(pool: Pool, number: int) -> None:
    flags = {"FLAGS_step_timeout_s": SECOND, "FLAGS_failure_grace_s": "0.5"}
    with pool.trial("absorbed", 3, flags) as trial:
        for rank in range(3):
            trial.until(rank, 1, 10.0 * SLACK)
        trial.send(2, number)
        codes = trial.wait((pace() + 2 + 0.5 + 2) * SLACK, [0, 1])
        assert [codes[0], codes[1]] == [1, 1]
        for rank in (0, 1):
            assert f"rank {rank} of 3: rank 2 " in trial.err(rank)
            assert "did not notice within 0.5 s and is ended" in trial.err(rank)


def test_a_rank_that_dies_while_the_group_is_made_is_named(pool: Pool) -> None:
    with pool.trial("stillborn", 3, {"FLAGS_failure_grace_s": "0.5"}) as trial:
        assert trial.wait(10.0 * SLACK) == {0: 1, 1: 7, 2: 1}
        for rank in (0, 2):
            assert f"tstatic: rank {rank} of 3: rank 1 died" in trial.err(rank)


def test_a_stopped_rank_that_goes_on_learns_that_it_was_given_up(pool: Pool) -> None:
    with pool.trial("train", 2, {"FLAGS_step_timeout_s": SECOND}, fault="stop", at=2, victims=[1]) as trial:
        assert trial.wait(10.0 * SLACK, [0])[0] == 1
        assert _named(trial, 0) == (1, "stopped")
        trial.send(1, signal.SIGCONT)
        assert trial.wait(10.0 * SLACK)[1] == 1
        assert "rank 1 of 2, which is this one, gave no sign of life" in trial.err(1)


def test_ranks_that_were_all_suspended_go_on(pool: Pool) -> None:
    flags = {"FLAGS_step_timeout_s": SECOND}
    with pool.trial("train", 2, flags, fault="", at=-1, victims=[], steps=100, pause=0.01) as trial:
        for rank in range(2):
            trial.until(rank, 1, 10.0 * SLACK)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for rank in range(2):
                trial.send(rank, number)
            if number == signal.SIGSTOP:
                with pytest.raises(TimeoutError):
                    trial.wait(1.5 * pace())  # longer than the step may take
        assert trial.wait(60.0 * SLACK) == {0: 0, 1: 0}
        assert trial.err(0) + trial.err(1) == ""


@pytest.mark.parametrize(("fault", "code"), [("kill", -9), ("stop", 1)])
def test_python_ends_by_itself_after_a_failure(pool: Pool, fault: str, code: int) -> None:
    flags = {"FLAGS_step_timeout_s": SECOND}
    arguments = {"fault": fault, "at": 2, "victims": [1], "count": 300_000}
    with pool.trial("train", 2, flags, whole_exit=True, **arguments) as trial:
        assert trial.wait(20.0 * SLACK, [0])[0] == 1
        assert "terminate called" not in trial.err(0)
        if fault == "stop":
            trial.send(1, signal.SIGCONT)
        assert trial.wait(20.0 * SLACK)[1] == code


def test_a_clean_end_is_silent_and_waits_for_nobody(pool: Pool) -> None:
    arguments = {"fault": "", "at": -1, "victims": [], "steps": 10}
    with pool.trial("train", 3, whole_exit=True, **arguments) as trial:
        assert trial.wait(20.0 * SLACK) == {0: 0, 1: 0, 2: 0}
        for rank in range(3):
            assert trial.err(rank) == ""
            assert trial.said(rank)[-1] == ["done", 10]


def test_the_first_to_end_does_not_alarm_one_that_works_on_alone(pool: Pool) -> None:
    with pool.trial("lingers", 2, {"FLAGS_failure_grace_s": "0.1"}) as trial:
        assert trial.wait(20.0 * SLACK) == {0: 0, 1: 0}
        assert trial.err(0) + trial.err(1) == ""
        assert trial.said(1) == ["worked on alone"]
