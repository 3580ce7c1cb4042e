"""Learning-rate schedulers: the signatures and the rates are Paddle's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.test_lr import inverse, rates
from tstatic.optimizer import lr
from tstatic.optimizer.lr import LRScheduler

# Seen in Paddle 2.6.2, six digits.
PADDLE: dict[str, tuple[Callable[[], LRScheduler], list[float]]] = {
    "noam": (lambda: lr.NoamDecay(64, 4), [0, 0.015625, 0.03125, 0.046875, 0.0625, 0.0559017, 0.051031]),
    "polynomial cycle": (
        lambda: lr.PolynomialDecay(0.5, 4, 0.01, 1.0, True),
        [0.5, 0.3775, 0.255, 0.1325, 0.01, 0.19375, 0.1325, 0.07125, 0.01, 0.1325],
    ),
    "cosine": (lambda: lr.CosineAnnealingDecay(0.5, 4, 0.1), [0.5, 0.441421, 0.3, 0.158579, 0.1, 0.158579, 0.3]),
    "restarts": (
        lambda: lr.CosineAnnealingWarmRestarts(0.5, 3, 2, 0.1),
        [0.5, 0.4, 0.2, 0.5, 0.473205, 0.4, 0.3, 0.2, 0.126795, 0.5, 0.493185],
    ),
    "one cycle": (
        lambda: lr.OneCycleLR(1.0, 15, three_phase=True),
        [
            *(0.04, 0.220725, 0.62681, 0.952465, 0.952465, 0.62681, 0.220725, 0.04, 0.0380243, 0.0324886, 0.0244893),
            *(0.0156107, 0.00761138, 0.00207567, 0.0001),
        ],
    ),
    "one cycle, linear": (
        lambda: lr.OneCycleLR(1.0, 15, anneal_strategy="linear", phase_pct=0.35),
        [0.04, 0.265882, 0.491765, 0.717647, 0.943529, 0.923085, 0.820531, 0.717977, 0.615423, 0.512869],
    ),
    "one cycle of no rise": (lambda: lr.OneCycleLR(1.0, 10, phase_pct=0.0), [0.9755307]),
    "one cycle of one step": (lambda: lr.OneCycleLR(1.0, 1), [0.0001]),
    "cyclic exp_range": (
        lambda: lr.CyclicLR(0.1, 1.0, 2, 3, mode="exp_range", exp_gamma=0.9),
        [0.1, 0.505, 0.829, 0.5374, 0.29683, 0.1, 0.339148, 0.530467, 0.35828, 0.216226],
    ),
    "cyclic by function": (
        lambda: lr.CyclicLR(0.1, 1.0, 2, 3, scale_fn=lambda x: 0.5**x, scale_mode="iterations"),
        [0.1, 0.325, 0.325, 0.175, 0.11875, 0.1, 0.107031, 0.107031, 0.102344],
    ),
    "multiplicative": (
        lambda: lr.MultiplicativeDecay(0.5, inverse),
        [0.5, 0.25, 0.0833333, 0.0208333, 0.00416667, 0.000694444],
    ),
    "warm-up, then cosine": (
        lambda: lr.LinearWarmup(lr.CosineAnnealingDecay(0.5, 3), 4, 0.0, 0.5),
        [0, 0.125, 0.25, 0.375, 0.5, 0.375, 0.125, 0, 0.125, 0.375, 0.5],
    ),
}


@pytest.mark.parametrize(("make", "seen"), PADDLE.values(), ids=PADDLE.keys())
def test_the_rates_are_paddles(make: Callable[[], LRScheduler], seen: list[float]) -> None:
    assert rates(make(), len(seen)) == pytest.approx(seen, rel=1e-5, abs=1e-12)


def test_the_signatures_are_paddles() -> None:
    def arguments(name: str) -> list[tuple[str, Any]]:
        parameters = list(inspect.signature(getattr(lr, name)).parameters.values())
        return [(p.name, p.default) for p in parameters if p.name not in ("last_epoch", "verbose")]

    none = inspect.Parameter.empty
    expected: dict[str, list[tuple[str, Any]]] = {
        "LRScheduler": [("learning_rate", 0.1)],
        "NoamDecay": [("d_model", none), ("warmup_steps", none), ("learning_rate", 1.0)],
        "PiecewiseDecay": [("boundaries", none), ("values", none)],
        "NaturalExpDecay": [("learning_rate", none), ("gamma", none)],
        "InverseTimeDecay": [("learning_rate", none), ("gamma", none)],
        "PolynomialDecay": [
            *(("learning_rate", none), ("decay_steps", none), ("end_lr", 1e-4), ("power", 1.0), ("cycle", False))
        ],
        "LinearWarmup": [("learning_rate", none), ("warmup_steps", none), ("start_lr", none), ("end_lr", none)],
        "ExponentialDecay": [("learning_rate", none), ("gamma", none)],
        "MultiStepDecay": [("learning_rate", none), ("milestones", none), ("gamma", 0.1)],
        "StepDecay": [("learning_rate", none), ("step_size", none), ("gamma", 0.1)],
        "LambdaDecay": [("learning_rate", none), ("lr_lambda", none)],
        "MultiplicativeDecay": [("learning_rate", none), ("lr_lambda", none)],
        "ReduceOnPlateau": [
            *(("learning_rate", none), ("mode", "min"), ("factor", 0.1), ("patience", 10), ("threshold", 1e-4)),
            *(("threshold_mode", "rel"), ("cooldown", 0), ("min_lr", 0), ("epsilon", 1e-8)),
        ],
        "CosineAnnealingDecay": [("learning_rate", none), ("T_max", none), ("eta_min", 0)],
        "CosineAnnealingWarmRestarts": [("learning_rate", none), ("T_0", none), ("T_mult", 1), ("eta_min", 0)],
        "OneCycleLR": [
            *(("max_learning_rate", none), ("total_steps", none), ("divide_factor", 25.0)),
            *(("end_learning_rate", 1e-4), ("phase_pct", 0.3), ("anneal_strategy", "cos"), ("three_phase", False)),
        ],
        "CyclicLR": [
            *(("base_learning_rate", none), ("max_learning_rate", none), ("step_size_up", none)),
            *(("step_size_down", None), ("mode", "triangular"), ("exp_gamma", 1.0), ("scale_fn", None)),
            ("scale_mode", "cycle"),
        ],
        "LinearLR": [("learning_rate", none), ("total_steps", none), ("start_factor", 1 / 3), ("end_factor", 1.0)],
    }
    assert {name: arguments(name) for name in lr.__all__} == expected
    for name in lr.__all__:
        last_two = list(inspect.signature(getattr(lr, name)).parameters)[-2:]
        assert last_two == (["epsilon", "verbose"] if name == "ReduceOnPlateau" else ["last_epoch", "verbose"])
