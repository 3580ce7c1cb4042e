"""Learning-rate schedulers: wrong arguments are refused by name, and numpy's numbers are taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.test_lr import rates
from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.optimizer import lr

# Wrong arguments: every case names the argument; TypeErrors on the left, ValueErrors on the right.

NUMBER: list[Any] = ["a", None, True, [0.1], 1j]
WHOLE: list[Any] = [*NUMBER, 3.0]
WRONG: list[tuple[Callable[[Any], object], str, list[Any], list[Any]]] = [
    (lambda v: lr.StepDecay(v, 3), "learning_rate", NUMBER, [-0.1, math.nan, math.inf]),
    (lambda v: lr.StepDecay(0.1, v), "step_size", WHOLE, [0, -3]),
    (lambda v: lr.StepDecay(0.1, 3, v), "gamma", NUMBER, [1.0, -0.1, math.nan]),
    (lambda v: lr.StepDecay(0.1, 3, last_epoch=v), "last_epoch", WHOLE, [-2]),
    (lambda v: lr.MultiStepDecay(0.1, v), "milestones", [3, "23", None, [1, "2"]], [[3, 2], [3, 3], [-1, 2]]),
    (lambda v: lr.MultiStepDecay(0.1, [1], v), "gamma", NUMBER, [1.0, -0.1]),
    (lambda v: lr.PiecewiseDecay(v, [1.0, 0.5]), "boundaries", [3, None, ["1"]], [[], [2, 1], [1, 1]]),
    (lambda v: lr.PiecewiseDecay([2], v), "values", [3, None, ["1", 2]], [[1.0], [1, 2, 3], [], [1.0, -1.0]]),
    (lambda v: lr.NaturalExpDecay(0.1, v), "gamma", NUMBER, [0.0, -1.0]),
    (lambda v: lr.InverseTimeDecay(0.1, v), "gamma", NUMBER, [-1.0]),
    (lambda v: lr.ExponentialDecay(0.1, v), "gamma", NUMBER, [0.0, 1.0, 1.5, -1.0]),
    (lambda v: lr.PolynomialDecay(0.1, v), "decay_steps", WHOLE, [0, -1]),
    (lambda v: lr.PolynomialDecay(0.1, 3, v), "end_lr", NUMBER, [-1.0]),
    (lambda v: lr.PolynomialDecay(0.1, 3, power=v), "power", NUMBER, [0.0, -1.0]),
    (lambda v: lr.NoamDecay(v, 4), "d_model", NUMBER, [0, -1]),
    (lambda v: lr.NoamDecay(64, v), "warmup_steps", NUMBER, [0, -1]),
    (lambda v: lr.LinearWarmup(v, 3, 0.0, 0.1), "learning_rate", [*NUMBER, lr.ReduceOnPlateau(0.1)], [-1.0]),
    (lambda v: lr.LinearWarmup(0.1, v, 0.0, 0.1), "warmup_steps", WHOLE, [0, -1]),
    (lambda v: lr.LinearWarmup(0.1, 3, v, 0.1), "start_lr", NUMBER, [-1.0]),
    (lambda v: lr.LinearWarmup(0.1, 3, 0.1, v), "end_lr", NUMBER, [0.1, 0.05]),
    (lambda v: lr.LambdaDecay(0.1, v), "lr_lambda", [3, None, "f"], []),
    (lambda v: lr.LambdaDecay(0.1, lambda e: v), "lr_lambda", NUMBER, [math.nan, math.inf]),
    (lambda v: lr.MultiplicativeDecay(0.1, v), "lr_lambda", [3, None, "f"], []),
    (lambda v: lr.MultiplicativeDecay(0.1, lambda e: v).step(), "lr_lambda", NUMBER, [math.nan]),
    (lambda v: lr.LinearLR(0.1, v), "total_steps", WHOLE, [0]),
    (lambda v: lr.LinearLR(0.1, 3, v), "start_factor", NUMBER, [0.0, 1.5]),
    (lambda v: lr.LinearLR(0.1, 3, 0.5, v), "end_factor", NUMBER, [-0.1, 1.5]),
    (lambda v: lr.CosineAnnealingDecay(0.1, v), "T_max", WHOLE, [0, -1]),
    (lambda v: lr.CosineAnnealingDecay(0.1, 3, v), "eta_min", NUMBER, [-1.0, math.nan]),
    (lambda v: lr.CosineAnnealingWarmRestarts(0.1, v), "T_0", WHOLE, [0, -1]),
    (lambda v: lr.CosineAnnealingWarmRestarts(0.1, 3, v), "T_mult", [*NUMBER, 1.5], [0, -1]),
    (lambda v: lr.CosineAnnealingWarmRestarts(0.1, 3, 1, v), "eta_min", NUMBER, [-1.0]),
    (lambda v: lr.CosineAnnealingWarmRestarts(v, 3), "learning_rate", NUMBER, [-1.0]),
    (lambda v: lr.OneCycleLR(v, 10), "max_learning_rate", NUMBER, [-1.0]),
    (lambda v: lr.OneCycleLR(1.0, v), "total_steps", WHOLE, [0]),
    (lambda v: lr.OneCycleLR(1.0, 10, v), "divide_factor", NUMBER, [0.0, -5.0]),
    (lambda v: lr.OneCycleLR(1.0, 10, end_learning_rate=v), "end_learning_rate", NUMBER, [-1.0]),
    (lambda v: lr.OneCycleLR(1.0, 10, phase_pct=v), "phase_pct", NUMBER, [-0.1, 1.5]),
    (lambda v: lr.OneCycleLR(1.0, 10, phase_pct=v, three_phase=True), "phase_pct", NUMBER, [0.5]),
    (lambda v: lr.OneCycleLR(1.0, 10, anneal_strategy=v), "anneal_strategy", [3, None], ["cosine"]),
    (lambda v: lr.CyclicLR(v, 1.0, 4), "learning_rate", NUMBER, [-1.0]),
    (lambda v: lr.CyclicLR(0.1, v, 4), "max_learning_rate", NUMBER, [-1.0]),
    (lambda v: lr.CyclicLR(0.1, 1.0, v), "step_size_up", WHOLE, [0]),
    (lambda v: lr.CyclicLR(0.1, 1.0, 4, v), "step_size_down", ["a", True, 3.0], [0]),
    (lambda v: lr.CyclicLR(0.1, 1.0, 4, mode=v), "mode", [3, None], ["square"]),
    (lambda v: lr.CyclicLR(0.1, 1.0, 4, exp_gamma=v), "exp_gamma", NUMBER, [-1.0]),
    (lambda v: lr.CyclicLR(0.1, 1.0, 4, scale_fn=v), "scale_fn", [3, "f"], []),
    (lambda v: lr.CyclicLR(0.1, 1.0, 4, scale_mode=v), "scale_mode", [3, None], ["epochs"]),
    (lambda v: lr.ReduceOnPlateau(v), "learning_rate", NUMBER, [-1.0]),
    (lambda v: lr.ReduceOnPlateau(0.1, v), "mode", [3, None], ["down"]),
    (lambda v: lr.ReduceOnPlateau(0.1, factor=v), "factor", NUMBER, [1.0, -1.0]),
    (lambda v: lr.ReduceOnPlateau(0.1, patience=v), "patience", WHOLE, [-1]),
    (lambda v: lr.ReduceOnPlateau(0.1, threshold=v), "threshold", NUMBER, [-1.0]),
    (lambda v: lr.ReduceOnPlateau(0.1, threshold_mode=v), "threshold_mode", [3, None], ["relative"]),
    (lambda v: lr.ReduceOnPlateau(0.1, cooldown=v), "cooldown", WHOLE, [-1]),
    (lambda v: lr.ReduceOnPlateau(0.1, min_lr=v), "min_lr", NUMBER, [-1.0]),
    (lambda v: lr.ReduceOnPlateau(0.1, epsilon=v), "epsilon", NUMBER, [-1.0]),
]
CASES = [
    *((make, name, value, TypeError) for make, name, wrong, _ in WRONG for value in wrong),
    *((make, name, value, ValueError) for make, name, _, outside in WRONG for value in outside),
]


@pytest.mark.parametrize(("make", "name", "value", "kind"), CASES)
def test_a_wrong_argument_is_named(make: Callable[[Any], object], name: str, value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"'{name}") as caught:
        make(value)
    error = caught.value
    assert isinstance(error, ProgramError)
    assert isinstance(error, ProgramTypeError) is (kind is TypeError)
    assert error.expected
    assert error.received
    assert error.fix
    assert len(str(error)) >= 20


def test_numpy_numbers_are_numbers() -> None:
    scheduler = lr.MultiStepDecay(np.float32(0.5), np.array([2, 5]), np.float64(0.1), last_epoch=int(np.int64(-1)))  # type: ignore[arg-type]
    assert rates(scheduler, 8) == rates(lr.MultiStepDecay(0.5, [2, 5], 0.1), 8)
    assert scheduler.milestones == [2, 5]
    assert lr.StepDecay(0.5, np.int64(3)).step_size == 3  # type: ignore[arg-type]
    assert rates(lr.LambdaDecay(0.5, lambda e: np.array([0.5])), 1) == [0.25]  # type: ignore[arg-type,return-value]
