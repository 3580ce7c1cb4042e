"""Learning-rate schedulers: closed forms, values seen in Paddle, jumps, and state."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstatic.errors import NotFoundError, ProgramError, ProgramTypeError, UnsupportedError
from tstatic.optimizer import lr
from tstatic.optimizer.lr import LRScheduler

Make = Callable[..., LRScheduler]
Rate = Callable[[int], float]


def shrink(e: float) -> float:
    return float(0.9**e)


def inverse(e: float) -> float:
    return 1 / (e + 1)


def cosine(start: float, end: float, done: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * done)) / 2


def restarts(e: int, first: int, times: int) -> float:
    period = first
    while e >= period:
        e, period = e - period, period * times
    return cosine(0.5, 0.1, e / period)


def cyclic(e: int, up: int, down: int, scale: Callable[[int, int], float]) -> float:
    total = up + down
    x = e % total
    return 0.1 + 0.9 * (x / up if x <= up else (total - x) / down) * scale(e // total + 1, e)


def polynomial(e: int, steps: int, power: float) -> float:
    return float(0.49 * (1 - min(e, steps) / steps) ** power + 0.01)


def one_cycle(e: int) -> float:
    return cosine(0.04, 1.0, e / 3.5) if e <= 3.5 else cosine(1.0, 1e-4, (e - 3.5) / 10.5)


# name -> how to make it, and the rate of epoch e in closed form. OneCycleLR has 15 steps, so 0 <= e < 15 is compared.
SCHEDULES: dict[str, tuple[Make, Rate]] = {
    "noam": (
        lambda **k: lr.NoamDecay(64, 4, 2.0, **k),
        lambda e: 2.0 * 64**-0.5 * min(e**-0.5, e * 4**-1.5) if e else 0.0,
    ),
    "piecewise": (
        lambda **k: lr.PiecewiseDecay([2, 5], [1.0, 0.5, 0.1], **k),
        lambda e: 1.0 if e < 2 else 0.5 if e < 5 else 0.1,
    ),
    "natural exp": (lambda **k: lr.NaturalExpDecay(0.5, 0.1, **k), lambda e: 0.5 * math.exp(-0.1 * e)),
    "inverse time": (lambda **k: lr.InverseTimeDecay(0.5, 0.1, **k), lambda e: 0.5 / (1 + 0.1 * e)),
    "polynomial": (lambda **k: lr.PolynomialDecay(0.5, 4, 0.01, 2.0, **k), lambda e: polynomial(e, 4, 2.0)),
    "polynomial cycle": (
        lambda **k: lr.PolynomialDecay(0.5, 4, 0.01, 1.0, True, **k),
        lambda e: polynomial(e, 4 * max(1, math.ceil(e / 4)), 1.0),
    ),
    "exponential": (lambda **k: lr.ExponentialDecay(0.5, 0.9, **k), lambda e: 0.5 * 0.9**e),
    "multi step": (
        lambda **k: lr.MultiStepDecay(0.5, [2, 5], **k),
        lambda e: 0.5 * 0.1 ** ((e >= 2) + (e >= 5)),
    ),
    "step": (lambda **k: lr.StepDecay(0.5, 3, **k), lambda e: 0.5 * 0.1 ** (e // 3)),
    "lambda": (lambda **k: lr.LambdaDecay(0.5, shrink, **k), lambda e: 0.5 * 0.9**e),
    "multiplicative": (
        lambda **k: lr.MultiplicativeDecay(0.5, inverse, **k),
        lambda e: 0.5 / math.factorial(e + 1),
    ),
    "cosine": (lambda **k: lr.CosineAnnealingDecay(0.5, 4, 0.1, **k), lambda e: cosine(0.5, 0.1, e / 4)),
    "restarts": (
        lambda **k: lr.CosineAnnealingWarmRestarts(0.5, 3, 2, 0.1, **k),
        lambda e: restarts(e, 3, 2),
    ),
    "equal restarts": (
        lambda **k: lr.CosineAnnealingWarmRestarts(0.5, 3, eta_min=0.1, **k),
        lambda e: restarts(e, 3, 1),
    ),
    "one cycle": (lambda **k: lr.OneCycleLR(1.0, 15, **k), one_cycle),
    "cyclic": (lambda **k: lr.CyclicLR(0.1, 1.0, 3, **k), lambda e: cyclic(e, 3, 3, lambda cycle, e: 1)),
    "cyclic triangular2": (
        lambda **k: lr.CyclicLR(0.1, 1.0, 2, 3, mode="triangular2", **k),
        lambda e: cyclic(e, 2, 3, lambda cycle, e: 0.5 ** (cycle - 1)),
    ),
    "cyclic exp_range": (
        lambda **k: lr.CyclicLR(0.1, 1.0, 2, 3, mode="exp_range", exp_gamma=0.9, **k),
        lambda e: cyclic(e, 2, 3, lambda cycle, e: 0.9**e),
    ),
    "cyclic by function": (
        lambda **k: lr.CyclicLR(0.1, 1.0, 2, 3, scale_fn=inverse, scale_mode="iterations", **k),
        lambda e: cyclic(e, 2, 3, lambda cycle, e: 1 / (e + 1)),
    ),
    "linear": (lambda **k: lr.LinearLR(0.5, 5, **k), lambda e: 0.5 * (1 / 3 + 2 / 3 * min(e, 5) / 5)),
    "linear down": (lambda **k: lr.LinearLR(0.5, 5, 1.0, 0.25, **k), lambda e: 0.5 * (1 - 0.75 * min(e, 5) / 5)),
    "warm-up": (
        lambda **k: lr.LinearWarmup(0.5, 4, 0.1, 0.3, **k),
        lambda e: 0.1 + 0.2 * e / 4 if e < 4 else 0.5,
    ),
    "warm-up, then steps": (
        lambda **k: lr.LinearWarmup(lr.StepDecay(0.5, 3), 4, 0.0, 0.5, **k),
        lambda e: 0.5 * e / 4 if e < 4 else 0.5 * 0.1 ** ((e - 4) // 3),
    ),
    "warm-up, then cosine": (
        lambda **k: lr.LinearWarmup(lr.CosineAnnealingDecay(0.5, 3), 4, 0.0, 0.5, **k),
        lambda e: 0.5 * e / 4 if e < 4 else cosine(0.5, 0.0, (e - 4) / 3),
    ),
    "warm-up, then restarts": (
        lambda **k: lr.LinearWarmup(lr.CosineAnnealingWarmRestarts(0.5, 3, 2, 0.1), 2, 0.0, 0.5, **k),
        lambda e: 0.5 * e / 2 if e < 2 else restarts(e - 2, 3, 2),
    ),
}
LENGTH = 15
every_schedule = pytest.mark.parametrize(("make", "rate"), SCHEDULES.values(), ids=SCHEDULES.keys())


def rates(scheduler: LRScheduler, count: int) -> list[float]:
    """The rates of ``count`` epochs, the current one first."""
    done = [scheduler()]
    for _ in range(count - 1):
        scheduler.step()
        done.append(scheduler())
    return done


def close(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_the_table_has_every_scheduler() -> None:
    made = {type(make()).__name__ for make, _ in SCHEDULES.values()} | {"LRScheduler", "ReduceOnPlateau"}
    assert made == set(lr.__all__)


@every_schedule
def test_stepping_follows_the_closed_form(make: Make, rate: Rate) -> None:
    scheduler = make()
    assert scheduler.last_epoch == 0
    assert rates(scheduler, LENGTH) == close([rate(e) for e in range(LENGTH)])
    assert scheduler.last_epoch == LENGTH - 1
    assert scheduler.last_lr == scheduler() == scheduler.get_lr()
    assert type(scheduler.last_lr) is float


@every_schedule
@given(epochs=st.lists(st.none() | st.integers(0, LENGTH - 1), max_size=8))
def test_jumping_gives_the_rate_of_the_epoch(make: Make, rate: Rate, epochs: list[int | None]) -> None:
    scheduler, at = make(), 0
    for epoch in epochs:
        if epoch is None and at == LENGTH - 1:
            continue
        scheduler.step() if epoch is None else scheduler.step(epoch)
        at = at + 1 if epoch is None else epoch
        assert scheduler.last_epoch == at
        assert scheduler() == close(rate(at))


@every_schedule
@pytest.mark.parametrize("last", [-1, 0, 4, 9])
def test_last_epoch_starts_in_the_middle(make: Make, rate: Rate, last: int) -> None:
    scheduler = make(last_epoch=last)
    assert scheduler.last_epoch == last + 1
    assert rates(scheduler, 5) == close([rate(e) for e in range(last + 1, last + 6)])


@every_schedule
@pytest.mark.parametrize("after", [0, 3, 4, 8])
def test_a_saved_state_goes_on_as_if_nothing_had_happened(make: Make, rate: Rate, after: int) -> None:
    scheduler = make()
    rates(scheduler, after + 1)
    text = json.dumps(scheduler.state_dict(), allow_nan=False)
    restored = make()
    rates(restored, 3)
    restored.set_state_dict(json.loads(text))
    assert restored.last_epoch == scheduler.last_epoch
    assert restored() == scheduler()
    assert rates(restored, LENGTH - after) == rates(scheduler, LENGTH - after)
    with_old_name = make()
    with_old_name.set_dict(json.loads(text))
    assert with_old_name() == json.loads(text)["last_lr"]


@every_schedule
def test_a_pickled_scheduler_goes_on(make: Make, rate: Rate) -> None:
    scheduler = make()
    rates(scheduler, 4)
    restored = pickle.loads(pickle.dumps(scheduler))
    assert rates(restored, 8) == rates(scheduler, 8)


@every_schedule
def test_an_impossible_epoch_changes_nothing(make: Make, rate: Rate) -> None:
    scheduler = make()
    rates(scheduler, 6)
    before = scheduler.state_dict()
    for epoch in (-1, math.nan, math.inf, 10**400):
        with pytest.raises(ProgramError, match="epoch"):
            scheduler.step(epoch)
    for wrong in ("3", True, [3], 1j):
        with pytest.raises(ProgramTypeError, match="epoch"):
            scheduler.step(wrong)  # type: ignore[arg-type]
    assert scheduler.state_dict() == before
    assert rates(scheduler, 4) == close([rate(e) for e in range(5, 9)])


@every_schedule
def test_a_state_that_does_not_fit_changes_nothing(make: Make, rate: Rate) -> None:
    scheduler = make()
    rates(scheduler, 6)
    before = scheduler.state_dict()
    for key in before:
        if key.startswith("T_"):
            continue  # these two may be left out
        with pytest.raises(NotFoundError, match=key):
            scheduler.set_state_dict({name: value for name, value in before.items() if name != key})
        with pytest.raises(ProgramTypeError, match="state_dict"):
            scheduler.set_state_dict({**before, key: "7"})
    with pytest.raises(ProgramError, match="last_epoch"):
        scheduler.set_state_dict({**before, "last_epoch": -1})
    with pytest.raises(ProgramError, match="last_lr"):
        scheduler.set_state_dict({**before, "last_lr": math.nan})
    with pytest.raises(ProgramTypeError, match="state_dict"):
        scheduler.set_state_dict([1, 2])  # type: ignore[arg-type]
    assert scheduler.state_dict() == before


@every_schedule
def test_entries_that_are_not_used_are_said(make: Make, rate: Rate) -> None:
    scheduler = make()
    state = {**scheduler.state_dict(), "momentum": 3}
    with pytest.warns(UserWarning, match="does not use .*momentum"):
        scheduler.set_state_dict(state)


@every_schedule
def test_a_warning_that_is_an_error_changes_nothing(make: Make, rate: Rate) -> None:
    scheduler = make()
    rates(scheduler, 6)
    before, other = scheduler.state_dict(), make().state_dict()
    unused = [{**other, "momentum": 3}]
    if "LinearWarmup_LR" in other:
        unused.append({**other, "LinearWarmup_LR": {**other["LinearWarmup_LR"], "momentum": 3}})
    for state in unused:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="momentum"):
                scheduler.set_state_dict(state)
        assert scheduler.state_dict() == before


def test_the_warning_points_at_the_users_line() -> None:
    scheduler = lr.LinearWarmup(lr.StepDecay(0.5, 2), 3, 0.0, 0.5)
    state = scheduler.state_dict()
    state["LinearWarmup_LR"] = {**state["LinearWarmup_LR"], "momentum": 3}
    with pytest.warns(UserWarning, match="StepDecay does not use .*momentum") as said:
        scheduler.set_dict(state)
    assert [Path(w.filename).name for w in said] == ["test_lr.py"]


# The base class, and what has more than a formula


class Halving(LRScheduler):
    """A user's own scheduler, with something more to save."""

    def __init__(self, learning_rate: float, size: int, last_epoch: int = -1, verbose: bool = False) -> None:
        self.size = size
        self.count: Any = np.float32(0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        return np.float64(self.base_lr * 0.5 ** (self.last_epoch // self.size))

    def state_keys(self) -> None:
        self.keys = ["last_epoch", "last_lr", "count"]


def test_users_subclass_the_base() -> None:
    scheduler = Halving(1.0, 2)
    assert rates(scheduler, 5) == [1.0, 1.0, 0.5, 0.5, 0.25]
    assert type(scheduler.last_lr) is float
    scheduler.count = np.array([7])
    state = json.loads(json.dumps(scheduler.state_dict()))
    assert state == {"last_epoch": 4, "last_lr": 0.25, "count": 7}
    restored = Halving(1.0, 2)
    restored.set_state_dict(state)
    assert restored.count == 7
    assert rates(lr.LinearWarmup(Halving(1.0, 2), 2, 0.0, 1.0), 6) == [0.0, 0.5, 1.0, 1.0, 0.5, 0.5]
    with pytest.raises(NotImplementedError, match="override get_lr") as caught:
        LRScheduler(0.1)
    assert isinstance(caught.value, UnsupportedError)


def test_a_failing_function_leaves_the_scheduler_as_it_was() -> None:
    def f(e: float) -> float:
        if e == 3:
            raise KeyError("no rate for epoch 3")
        return math.inf if e == 4 else 1.0

    for scheduler in (lr.LambdaDecay(0.5, f), lr.MultiplicativeDecay(0.5, f)):
        rates(scheduler, 3)
        before = scheduler.state_dict()
        with pytest.raises(KeyError):
            scheduler.step()
        assert scheduler.state_dict() == before
    scheduler = lr.LambdaDecay(0.5, f)
    with pytest.raises(ProgramError, match=r"lr_lambda\(epoch\)"):
        scheduler.step(4)
    assert (scheduler.last_epoch, scheduler()) == (0, 0.5)


def test_multiplicative_decay_calls_its_function_once_a_step() -> None:
    calls: list[int] = []

    def f(e: int) -> float:
        calls.append(e)
        return 0.99

    rates(lr.MultiplicativeDecay(1.0, f), 50)
    assert calls == list(range(1, 50))


def test_verbose_writes_a_line_for_every_rate(capsys: pytest.CaptureFixture[str]) -> None:
    rates(lr.StepDecay(0.5, 1, 0.5, verbose=True), 3)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"epoch {e}: StepDecay sets learning rate {0.5 ** (e + 1)}" for e in range(3)]
    rates(lr.StepDecay(0.5, 1), 3)
    assert not capsys.readouterr().out
    rates(lr.CosineAnnealingWarmRestarts(0.5, 2, verbose=True), 3)
    assert len(capsys.readouterr().out.splitlines()) == 3
    scheduler = lr.ReduceOnPlateau(1.0, patience=0, verbose=True)
    scheduler.step(1.0)
    scheduler.step(2.0)
    assert capsys.readouterr().out == "epoch 2: ReduceOnPlateau sets learning rate 0.1\n"


def test_warm_restarts_keep_the_fraction_of_an_epoch() -> None:
    scheduler = lr.CosineAnnealingWarmRestarts(0.5, 3, 2, 0.1)
    seen = []
    for epoch in (0.5, None, 2.5, None, 4.25, None, 9, 8.5, None, None):
        scheduler.step(epoch)
        seen.append((scheduler.last_epoch, scheduler.T_cur, scheduler.T_i))
        assert scheduler() == close(cosine(0.5, 0.1, scheduler.T_cur / scheduler.T_i))
    assert seen == [
        *((0, 0.5, 3), (1, 1.5, 3), (2, 2.5, 3), (3, 0.5, 6), (4, 1.25, 6), (5, 2.25, 6)),
        *((9, 0, 12), (8, 5.5, 6), (9, 0.5, 12), (10, 1.5, 12)),
    ]
    restored = lr.CosineAnnealingWarmRestarts(0.5, 3, 2, 0.1)
    restored.set_state_dict(json.loads(json.dumps(scheduler.state_dict())))
    assert rates(restored, 20) == rates(scheduler, 20)
    # A state of Paddle's has two entries only.
    restored.set_state_dict({"last_epoch": 4, "last_lr": 0.4})
    assert (restored.last_epoch, restored.T_cur, restored.T_i) == (4, 1, 6)
    for wrong in ({"T_i": 0}, {"T_i": 2.5}, {"T_cur": -1}):
        with pytest.raises(ProgramError, match="T_"):
            restored.set_state_dict({**scheduler.state_dict(), **wrong})


def test_one_cycle_ends() -> None:
    scheduler = lr.OneCycleLR(1.0, 10, anneal_strategy="linear")
    assert rates(scheduler, 11)[-2:] == [1e-4, 1e-4]
    with pytest.raises(ValueError, match="beyond the end") as caught:
        scheduler.step()
    assert isinstance(caught.value, ProgramError)
    assert (scheduler.last_epoch, scheduler()) == (10, 1e-4)
    # A rise of no length is over at once.
    assert rates(lr.OneCycleLR(1.0, 10, phase_pct=0.1), 10)[0] == 1.0


def test_the_warm_up_moves_the_scheduler_that_it_wraps() -> None:
    inner = lr.StepDecay(0.5, 2)
    scheduler = lr.LinearWarmup(inner, 3, 0.0, 0.5)
    rates(scheduler, 8)
    assert scheduler.last_epoch == 7
    assert inner.last_epoch == 4
    assert scheduler.state_dict()["LinearWarmup_LR"] == inner.state_dict()
    twice = lr.LinearWarmup(lr.LinearWarmup(0.8, 2, 0.2, 0.8), 2, 0.0, 0.2)
    assert rates(twice, 6) == close([0.0, 0.1, 0.2, 0.5, 0.8, 0.8])
