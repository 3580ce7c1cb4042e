"""The learning-rate schedulers: all names of Paddle's ``optimizer.lr``, with the two that wrap or watch something."""

from __future__ import annotations

import math
from typing import Any

from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.optimizer.lr_base import LRScheduler
from tstatic.optimizer.lr_cycle import CosineAnnealingDecay, CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from tstatic.optimizer.lr_decay import (
    ExponentialDecay,
    InverseTimeDecay,
    LambdaDecay,
    LinearLR,
    MultiplicativeDecay,
    MultiStepDecay,
    NaturalExpDecay,
    NoamDecay,
    PiecewiseDecay,
    PolynomialDecay,
    StepDecay,
)

__all__ = [
    "CosineAnnealingDecay",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LRScheduler",
    "LambdaDecay",
    "LinearLR",
    "LinearWarmup",
    "MultiStepDecay",
    "MultiplicativeDecay",
    "NaturalExpDecay",
    "NoamDecay",
    "OneCycleLR",
    "PiecewiseDecay",
    "PolynomialDecay",
    "ReduceOnPlateau",
    "StepDecay",
]


class LinearWarmup(LRScheduler):
    """Goes in a straight line from ``start_lr`` to ``end_lr``, then is ``learning_rate``.

    ``start_lr + (end_lr - start_lr) * e / warmup_steps`` while ``e < warmup_steps``. Afterwards a scheduler that was
    given as ``learning_rate`` counts its epochs from the end of the warm-up, and is stepped by this one only.

    Args:
        learning_rate: A number >= 0, or any scheduler but ``ReduceOnPlateau`` (which has to be given a metric).
        warmup_steps: Number of epochs of the warm-up, > 0.
        start_lr: The first rate, >= 0.
        end_lr: The rate that the warm-up leads to, > ``start_lr``.
        last_epoch: See ``LRScheduler``.
        verbose: See ``LRScheduler``.

    Example:
        >>> rate = paddle.optimizer.lr.LinearWarmup(1.0, warmup_steps=4, start_lr=0.0, end_lr=1.0)
        >>> rates = []
        >>> for _ in range(6):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """

    def __init__(
        self,
        learning_rate: float | LRScheduler,
        warmup_steps: int,
        start_lr: float,
        end_lr: float,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if isinstance(learning_rate, ReduceOnPlateau):
            expected, fix = "a number, or a scheduler that needs no metric", "warm up to a number instead"
            raise self._wrong(ProgramTypeError, "learning_rate", learning_rate, expected, fix)
        self.learning_rate: float | LRScheduler = (
            learning_rate
            if isinstance(learning_rate, LRScheduler)
            else self._number("learning_rate", learning_rate, least=0.0)
        )
        self.warmup_steps = self._whole("warmup_steps", warmup_steps, least=1)
        self.start_lr = self._number("start_lr", start_lr, least=0.0)
        self.end_lr = self._number("end_lr", end_lr, above=self.start_lr)
        super().__init__(self.start_lr, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch; after the warm-up this moves the wrapped scheduler there."""
        if self.last_epoch < self.warmup_steps:
            return self.start_lr + (self.end_lr - self.start_lr) * self.last_epoch / self.warmup_steps
        if not isinstance(self.learning_rate, LRScheduler):
            return self.learning_rate
        self.learning_rate.step(self.last_epoch - self.warmup_steps)
        return self.learning_rate()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, with that of a wrapped scheduler under ``LinearWarmup_LR``."""
        state = super().state_dict()
        if isinstance(self.learning_rate, LRScheduler):
            state["LinearWarmup_LR"] = self.learning_rate.state_dict()
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a saved state, with that of the wrapped scheduler; if it does not fit, nothing is changed."""
        if not isinstance(self.learning_rate, LRScheduler):
            super().set_state_dict(state_dict)
            return
        self.state_keys()
        entries = self._entries(state_dict, [*self.keys, "LinearWarmup_LR"])
        self.learning_rate.set_state_dict(entries["LinearWarmup_LR"])
        super().set_state_dict({key: value for key, value in state_dict.items() if key != "LinearWarmup_LR"})


class ReduceOnPlateau(LRScheduler):
    """Multiplies the rate by ``factor`` when a metric has not improved for more than ``patience`` epochs.

    An epoch is better if its metric is below ``best - best * threshold`` (``'rel'``) or ``best - threshold``
    (``'abs'``), and above with a plus sign for ``mode='max'``. NaN and the infinities are never better.

    Args:
        learning_rate: The first rate, >= 0.
        mode: ``'min'`` if the metric should fall, ``'max'`` if it should rise.
        factor: 0 <= factor < 1.
        patience: Number of epochs without improvement that are let pass, >= 0.
        threshold: The least change that counts, >= 0.
        threshold_mode: ``'rel'`` or ``'abs'``.
        cooldown: Number of epochs after a reduction in which the metric is not looked at, >= 0.
        min_lr: The rate never falls below it, >= 0.
        epsilon: A reduction by no more than this is left out, >= 0.
        verbose: True writes a line to stdout at every reduction.

    Example:
        >>> rate = paddle.optimizer.lr.ReduceOnPlateau(1.0, factor=0.1, patience=1)
        >>> rates = []
        >>> for loss in (5.0, 4.0, 4.0, 4.0, 4.0):
        ...     rate.step(loss)
        ...     rates.append(round(rate(), 4))
        >>> rates
        [1.0, 1.0, 1.0, 0.1, 0.1]
    """

    def __init__(
        self,
        learning_rate: float,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0,
        epsilon: float = 1e-8,
        verbose: bool = False,
    ) -> None:
        self.mode = self._choice("mode", mode.lower() if isinstance(mode, str) else mode, ("min", "max"))
        self.factor = self._number("factor", factor, least=0.0, below=1.0)
        self.patience = self._whole("patience", patience, least=0)
        self.threshold = self._number("threshold", threshold, least=0.0)
        lower = threshold_mode.lower() if isinstance(threshold_mode, str) else threshold_mode
        self.threshold_mode = self._choice("threshold_mode", lower, ("rel", "abs"))
        self.cooldown = self._whole("cooldown", cooldown, least=0)
        self.min_lr = self._number("min_lr", min_lr, least=0.0)
        self.epsilon = self._number("epsilon", epsilon, least=0.0)
        self.cooldown_counter = 0
        self.best: float | None = None
        self.num_bad_epochs = 0
        self._start(learning_rate, 0, verbose)

    def state_keys(self) -> None:
        """Saves the best metric and the two counters too."""
        self.keys = ["cooldown_counter", "best", "num_bad_epochs", "last_epoch", "last_lr"]

    def get_lr(self) -> float:
        """Returns the current rate."""
        return self.last_lr

    def step(self, metrics: Any, epoch: float | None = None) -> None:  # type: ignore[override]
        """Looks at the metric of an epoch and reduces the rate if it is time.

        Args:
            metrics: A number, or an array or tensor of one element.
            epoch: The epoch that it belongs to, >= 0; None is the one after ``last_epoch``.

        Raises:
            ProgramTypeError: ``metrics`` is not a number.
            ProgramError: ``metrics`` has not exactly one element, or ``epoch`` is negative. The scheduler is unchanged.
        """
        metric = self._metric(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else self._epoch(epoch)
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            return
        if self._is_better(metric):
            self.best = metric
            self.num_bad_epochs = 0
            return
        self.num_bad_epochs += 1
        if self.num_bad_epochs <= self.patience:
            return
        self.cooldown_counter = self.cooldown
        self.num_bad_epochs = 0
        reduced = max(self.last_lr * self.factor, self.min_lr)
        if self.last_lr - reduced > self.epsilon:
            self.last_lr = reduced
            self._report()

    def _metric(self, metrics: Any) -> float:
        value = metrics
        if callable(getattr(metrics, "item", None)):
            if math.prod(metrics.shape) != 1:
                fix = "reduce it to one number first, for instance with mean()"
                raise self._wrong(ProgramError, "metrics", metrics, "one number", fix)
            value = metrics.item()
        if isinstance(value, bool) or not isinstance(value, int | float):
            expected, fix = "a number, or an array of one element", "give the fetched loss or metric"
            raise self._wrong(ProgramTypeError, "metrics", metrics, expected, fix)
        return float(value)

    def _is_better(self, metric: float) -> bool:
        if not math.isfinite(metric):
            return False
        if self.best is None:
            return True
        margin = self.best * self.threshold if self.threshold_mode == "rel" else self.threshold
        return metric < self.best - margin if self.mode == "min" else metric > self.best + margin
