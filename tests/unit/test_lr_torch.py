"""Learning-rate schedulers against torch, where it has the same rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.test_lr import inverse, rates
from tstatic.optimizer import lr
from tstatic.optimizer.lr import LRScheduler

pytestmark = pytest.mark.torch


def torch_rates(make: Callable[[Any, Any], Any], base: float, count: int) -> list[float]:
    """The rates of torch's scheduler: make(torch.optim.lr_scheduler, optimizer)."""
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base)
    with warnings.catch_warnings():
        # torch warns of its own deprecations; the values are what is compared.
        warnings.simplefilter("ignore")
        scheduler = make(torch.optim.lr_scheduler, optimizer)
        done = [optimizer.param_groups[0]["lr"]]
        for _ in range(count - 1):
            optimizer.step()
            scheduler.step()
            done.append(optimizer.param_groups[0]["lr"])
    return done


TORCH: dict[str, tuple[Callable[[Any, Any], Any], Callable[[], LRScheduler]]] = {
    "step": (lambda t, o: t.StepLR(o, 4, 0.3), lambda: lr.StepDecay(0.5, 4, 0.3)),
    "multi step": (lambda t, o: t.MultiStepLR(o, [3, 7, 8], 0.3), lambda: lr.MultiStepDecay(0.5, [3, 7, 8], 0.3)),
    "exponential": (lambda t, o: t.ExponentialLR(o, 0.8), lambda: lr.ExponentialDecay(0.5, 0.8)),
    "cosine": (
        lambda t, o: t.CosineAnnealingLR(o, 7, 0.05),
        lambda: lr.CosineAnnealingDecay(0.5, 7, 0.05),
    ),
    "restarts": (
        lambda t, o: t.CosineAnnealingWarmRestarts(o, 4, 3, 0.05),
        lambda: lr.CosineAnnealingWarmRestarts(0.5, 4, 3, 0.05),
    ),
    "lambda": (lambda t, o: t.LambdaLR(o, inverse), lambda: lr.LambdaDecay(0.5, inverse)),
    "multiplicative": (lambda t, o: t.MultiplicativeLR(o, inverse), lambda: lr.MultiplicativeDecay(0.5, inverse)),
    "linear": (lambda t, o: t.LinearLR(o, 0.25, 0.9, 6), lambda: lr.LinearLR(0.5, 6, 0.25, 0.9)),
    "polynomial": (lambda t, o: t.PolynomialLR(o, 9, 1.7), lambda: lr.PolynomialDecay(0.5, 9, 0.0, 1.7)),
    "one cycle": (
        lambda t, o: t.OneCycleLR(o, 0.5, 30, pct_start=0.25, div_factor=10, final_div_factor=50),
        lambda: lr.OneCycleLR(0.5, 30, 10, 0.5 / 10 / 50, 0.25),
    ),
    "one cycle, three phases": (
        lambda t, o: t.OneCycleLR(o, 0.5, 30, pct_start=0.4, three_phase=True, anneal_strategy="linear"),
        lambda: lr.OneCycleLR(0.5, 30, 25, 0.5 / 25 / 1e4, 0.4, "linear", True),
    ),
    "cyclic triangular": (
        lambda t, o: t.CyclicLR(o, 0.1, 0.5, 4, 6, "triangular", cycle_momentum=False),
        lambda: lr.CyclicLR(0.1, 0.5, 4, 6, "triangular"),
    ),
    "cyclic triangular2": (
        lambda t, o: t.CyclicLR(o, 0.1, 0.5, 4, 6, "triangular2", cycle_momentum=False),
        lambda: lr.CyclicLR(0.1, 0.5, 4, 6, "triangular2"),
    ),
    "cyclic exp_range": (
        lambda t, o: t.CyclicLR(o, 0.1, 0.5, 4, 6, "exp_range", 0.9, cycle_momentum=False),
        lambda: lr.CyclicLR(0.1, 0.5, 4, 6, "exp_range", 0.9),
    ),
}


@pytest.mark.parametrize(("theirs", "ours"), TORCH.values(), ids=TORCH.keys())
def test_the_rates_are_torchs(theirs: Callable[[Any, Any], Any], ours: Callable[[], LRScheduler]) -> None:
    expected = torch_rates(theirs, 0.5, 30)
    assert len(set(expected)) > 3
    # torch goes from rate to rate, so its rounding errors add up.
    assert rates(ours(), 30) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("patience", [0, 2])
def test_reduce_on_plateau_is_torchs(mode: str, threshold_mode: str, patience: int) -> None:
    torch = pytest.importorskip("torch")
    # torch looks at the metric during a cooldown too, so there is none here.
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode, 0.3, patience, 0.05, threshold_mode, min_lr=0.01
    )
    ours = lr.ReduceOnPlateau(0.5, mode, 0.3, patience, 0.05, threshold_mode, min_lr=0.01)
    seen = set()
    for metric in np.random.default_rng(3).normal(2.0, 1.0, 60).cumsum().tolist():
        value = 10 - metric if mode == "max" else metric
        theirs.step(value)
        ours.step(value)
        assert ours() == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        seen.add(ours())
    assert len(seen) > 2
