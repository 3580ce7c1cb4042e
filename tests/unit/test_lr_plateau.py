"""ReduceOnPlateau: its rule, what was seen in Paddle, odd metrics."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.optimizer import lr

METRICS = st.lists(st.sampled_from([0.1, 0.2, 0.5, 0.50001, 1.0, 1.5, -0.5, -2.0]), max_size=25)


def plateau(metrics: list[float], mode: str, patience: int, cooldown: int, threshold: float) -> list[float]:
    """The rule of ReduceOnPlateau(1.0, factor=0.5, threshold_mode='abs', min_lr=0.1), written down directly."""
    rate, best, bad, cool, done = 1.0, None, 0, 0, []
    sign = 1 if mode == "min" else -1
    for metric in metrics:
        if cool:
            cool -= 1
        elif best is None or sign * metric < sign * best - threshold:
            best, bad = metric, 0
        else:
            bad += 1
            if bad > patience:
                bad, cool, rate = 0, cooldown, max(rate / 2, 0.1)
        done.append(rate)
    return done


@given(METRICS, st.sampled_from(["min", "max", "MAX"]), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 0.1]))
def test_reduce_on_plateau_follows_its_rule(
    metrics: list[float], mode: str, patience: int, cooldown: int, threshold: float
) -> None:
    def make() -> lr.ReduceOnPlateau:
        return lr.ReduceOnPlateau(
            *(1.0, mode, 0.5, patience, threshold, "abs"), cooldown=cooldown, min_lr=0.1, epsilon=0.0
        )

    scheduler, expected = make(), plateau(metrics, mode.lower(), patience, cooldown, threshold)
    assert (scheduler(), scheduler.last_epoch) == (1.0, 0)
    for i, metric in enumerate(metrics):
        scheduler.step(metric)
        assert scheduler() == scheduler.get_lr() == expected[i]
        assert scheduler.last_epoch == i + 1
        # A reload between any two steps does not show.
        restored = make()
        restored.set_state_dict(json.loads(json.dumps(scheduler.state_dict(), allow_nan=False)))
        assert vars(restored) | {"keys": None} == vars(scheduler) | {"keys": None}
        scheduler = restored


def test_reduce_on_plateau_as_seen_in_paddle() -> None:
    def run(metrics: list[float], **arguments: Any) -> list[tuple[float, float | None, int, int]]:
        scheduler, done = lr.ReduceOnPlateau(1.0, factor=0.5, **arguments), []
        for metric in metrics:
            scheduler.step(metric)
            done.append((scheduler(), scheduler.best, scheduler.num_bad_epochs, scheduler.cooldown_counter))
        return done

    # The improvement to 0.4 falls into the cooldown and is not looked at.
    assert run([1.0, 1.0, 0.5, 0.4, 0.6, 0.6, 0.6], patience=0, cooldown=2, threshold=0.0) == [
        *((1.0, 1.0, 0, 0), (0.5, 1.0, 0, 2), (0.5, 1.0, 0, 1), (0.5, 1.0, 0, 0), (0.5, 0.6, 0, 0)),
        *((0.25, 0.6, 0, 2), (0.25, 0.6, 0, 1)),
    ]
    # 'rel' with a negative best: the margin of -1 is -0.1, so the limit is -0.9 and -1.05 is better.
    assert [rate for rate, *_ in run([-1, -1.05, -0.5, -2], patience=0, threshold=0.1)] == [1.0, 1.0, 0.5, 0.5]


def test_reduce_on_plateau_stops_at_epsilon_and_at_the_least_rate() -> None:
    scheduler = lr.ReduceOnPlateau(1.0, patience=0, epsilon=1e-2)
    for _ in range(8):
        scheduler.step(1.0)
    assert scheduler() == pytest.approx(0.01)
    scheduler = lr.ReduceOnPlateau(1.0, patience=0, min_lr=0.3)
    for _ in range(8):
        scheduler.step(1.0)
    assert scheduler() == 0.3


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_no_number_never_becomes_the_best(mode: str, odd: float) -> None:
    scheduler = lr.ReduceOnPlateau(1.0, mode, factor=0.5, patience=1)
    scheduler.step(odd)
    assert (scheduler.best, scheduler.num_bad_epochs) == (None, 1)
    scheduler.step(3.0)
    assert (scheduler.best, scheduler.num_bad_epochs) == (3.0, 0)
    scheduler.step(odd)
    scheduler.step(odd)
    assert (scheduler(), scheduler.best) == (0.5, 3.0)


def test_reduce_on_plateau_takes_fetched_values_and_an_epoch() -> None:
    scheduler = lr.ReduceOnPlateau(1.0, patience=0)
    for value in (3, 2.5, np.float32(2), np.array(1.5), np.array([1.0]), np.array([[0.5]], dtype="float32")):
        scheduler.step(value)
    assert scheduler.best == 0.5
    assert type(scheduler.best) is float
    scheduler.step(0.25, epoch=20)
    assert scheduler.last_epoch == 20
    before = scheduler.state_dict()
    with pytest.raises(ProgramError, match="mean"):
        scheduler.step(np.ones(2))
    with pytest.raises(ProgramError, match="epoch"):
        scheduler.step(1.0, epoch=-1)
    for wrong in ("1", None, True, [1.0], 1j):
        with pytest.raises(ProgramTypeError, match="metrics"):
            scheduler.step(wrong)
    assert scheduler.state_dict() == before
