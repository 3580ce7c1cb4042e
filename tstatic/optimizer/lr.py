"""All names of ``optimizer.lr``, and the schedulers that rise and fall, wrap another one, or watch a metric."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.ir.checks import check_type
from tstatic.ir.export import notes_signatures
from tstatic.optimizer.lr_decay import (
    ExponentialDecay,
    InverseTimeDecay,
    LambdaDecay,
    LinearLR,
    LRScheduler,
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


@notes_signatures()
class LinearWarmup(LRScheduler):
    """Goes in a straight line from ``start_lr`` to ``end_lr``, then is ``learning_rate``.

    ``start_lr + (end_lr - start_lr) * e / warmup_steps`` while ``e < warmup_steps``. Afterwards a scheduler that was
    given as ``learning_rate`` counts its epochs from the end of the warm-up, and is stepped by this one only.

    Args:
        learning_rate: A number >= 0, or any scheduler but ``ReduceOnPlateau`` (which has to be given a metric).
        warmup_steps: Number of epochs of the warm-up, > 0.
        start_lr: The first rate, >= 0.
        end_lr: The rate that the warm-up leads to, > ``start_lr``.
        last_epoch, verbose: As in :class:`LRScheduler`.

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
        self.warmup_steps = self._int("warmup_steps", warmup_steps, least=1)
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
        """Restores a saved state, with that of the wrapped scheduler; if it does not fit, nothing is changed."""
        if not isinstance(self.learning_rate, LRScheduler):
            super().set_state_dict(state_dict)
            return
        self.state_keys()
        entries = self._entries(state_dict, [*self.keys, "LinearWarmup_LR"])
        # The wrapped scheduler is the last that can refuse.
        self.learning_rate.set_state_dict(entries.pop("LinearWarmup_LR"))
        self.__dict__.update(entries)


@notes_signatures()
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
        self.patience = self._int("patience", patience, least=0)
        self.threshold = self._number("threshold", threshold, least=0.0)
        lower = threshold_mode.lower() if isinstance(threshold_mode, str) else threshold_mode
        self.threshold_mode = self._choice("threshold_mode", lower, ("rel", "abs"))
        self.cooldown = self._int("cooldown", cooldown, least=0)
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
        expected, fix = "a number, or an array of one element", "give the fetched loss or metric"
        return float(check_type(value, (int, float), "metrics", type(self).__name__, expected=expected, fix=fix))

    def _is_better(self, metric: float) -> bool:
        if not math.isfinite(metric):
            return False
        if self.best is None:
            return True
        margin = self.best * self.threshold if self.threshold_mode == "rel" else self.threshold
        return metric < self.best - margin if self.mode == "min" else metric > self.best + margin


def _cosine(start: float, end: float, done: float) -> float:
    """Returns the value between ``start`` (done = 0) and ``end`` (done = 1) on half a cosine wave."""
    # Weights of both ends, and not start plus a difference: the ends are exact.
    left = (1 + math.cos(math.pi * done)) / 2
    return start * left + end * (1 - left)


def _line(start: float, end: float, done: float) -> float:
    """Returns the value between ``start`` (done = 0) and ``end`` (done = 1) on a straight line."""
    return start * (1 - done) + end * done


@notes_signatures()
class CosineAnnealingDecay(LRScheduler):
    """``eta_min + (learning_rate - eta_min) * (1 + cos(pi * e / T_max)) / 2``; after ``T_max`` the rate rises again.

    Source: Loshchilov and Hutter, SGDR (2017), without its restarts.

    Args:
        T_max: Number of epochs of half a period, > 0.
        eta_min: The smallest rate, >= 0.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

    Example:
        >>> rate = paddle.optimizer.lr.CosineAnnealingDecay(1.0, T_max=4)
        >>> rates = []
        >>> for _ in range(6):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 0.8536, 0.5, 0.1464, 0.0, 0.1464]
    """

    def __init__(
        self, learning_rate: float, T_max: int, eta_min: float = 0, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.T_max = self._int("T_max", T_max, least=1)
        self.eta_min = self._number("eta_min", eta_min, least=0.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        return _cosine(self.base_lr, self.eta_min, self.last_epoch / self.T_max)


@notes_signatures()
class CosineAnnealingWarmRestarts(LRScheduler):
    """``eta_min + (learning_rate - eta_min) * (1 + cos(pi * T_cur / T_i)) / 2``, starting again after ``T_i`` epochs.

    ``T_cur`` counts the epochs since the last restart. Source: Loshchilov and Hutter, SGDR (2017), equation 5.

    Args:
        T_0: Number of epochs of the first period, > 0.
        T_mult: How many times longer each period is than the one before, >= 1.
        eta_min: The smallest rate, >= 0.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

    Example:
        >>> rate = paddle.optimizer.lr.CosineAnnealingWarmRestarts(1.0, T_0=3)
        >>> rates = []
        >>> for _ in range(6):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 0.75, 0.25, 1.0, 0.75, 0.25]
    """

    T_cur: int | float
    T_i: int

    def __init__(
        self,
        learning_rate: float,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.T_0 = self._int("T_0", T_0, least=1)
        self.T_mult = self._int("T_mult", T_mult, least=1)
        self.eta_min = self._number("eta_min", eta_min, least=0.0)
        self._start(learning_rate, last_epoch, verbose)
        self._go_to(self.last_epoch + 1)
        self._report()

    def get_lr(self) -> float:
        """Returns the rate ``T_cur`` epochs into a period of ``T_i``."""
        return _cosine(self.base_lr, self.eta_min, self.T_cur / self.T_i)

    def step(self, epoch: float | None = None) -> None:
        """Goes on by one epoch, or to ``epoch``, which may be a fraction (batches done / batches of an epoch).

        Afterwards ``last_epoch`` is the whole number below; the fraction stays in ``T_cur`` and later steps keep it.

        Raises:
            ProgramError: ``epoch`` is negative; the scheduler is unchanged.
        """
        if epoch is not None:
            self._go_to(self._epoch(epoch))
        elif self.T_cur + 1 < self.T_i:
            self._set(self.last_epoch + 1, self.T_cur + 1, self.T_i)
        else:
            self._set(self.last_epoch + 1, self.T_cur + 1 - self.T_i, self.T_i * self.T_mult)
        self._report()

    def state_keys(self) -> None:
        """Saves the position within the period too: ``last_epoch`` does not hold a fraction."""
        self.keys = ["last_epoch", "last_lr", "T_cur", "T_i"]

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a saved state; one without ``T_cur`` and ``T_i`` (Paddle's) is assumed to be at a whole epoch."""
        if isinstance(state_dict, dict) and "last_epoch" in state_dict and not {"T_cur", "T_i"} <= state_dict.keys():
            period, into = self._place(self._epoch(state_dict["last_epoch"], "state_dict['last_epoch']"))
            state_dict = {**state_dict, "T_cur": into, "T_i": period}
        super().set_state_dict(state_dict)

    def _entries(self, state_dict: dict[str, Any], keys: list[str]) -> dict[str, Any]:
        state = super()._entries(state_dict, keys)
        state["T_i"] = self._int("state_dict['T_i']", state["T_i"], least=1)
        state["T_cur"] = self._epoch(state["T_cur"], "state_dict['T_cur']")
        return state

    def _place(self, epoch: int | float) -> tuple[int, int | float]:
        """Returns the length of the period that ``epoch`` lies in, and the epochs since its start."""
        if self.T_mult == 1:
            return self.T_0, epoch % self.T_0
        period, start = self.T_0, 0
        while epoch >= start + period:
            start += period
            period *= self.T_mult
        return period, epoch - start

    def _go_to(self, epoch: int | float) -> None:
        period, into = self._place(epoch)
        self._set(math.floor(epoch), into, period)

    def _set(self, epoch: int | float, into: int | float, period: int) -> None:
        self.last_epoch, self.T_cur, self.T_i = epoch, into, period
        self.last_lr = self.get_lr()


@notes_signatures()
class OneCycleLR(LRScheduler):
    """Rises from ``max / divide_factor`` to ``max``, then falls to ``end_learning_rate``, over ``total_steps`` steps.

    With n = ``total_steps`` the rise ends at step ``phase_pct * n - 1`` and the fall at step n - 1. With
    ``three_phase`` the rate falls back to its start by step ``2 * phase_pct * n - 2`` and only then to the end. Step n,
    the one after the schedule, keeps the last rate. Source: Smith and Topin, Super-Convergence (2018).

    Args:
        max_learning_rate: The peak, >= 0.
        total_steps: Number of steps of the whole schedule, > 0.
        divide_factor: The start is the peak divided by this, > 0.
        end_learning_rate: The last rate, >= 0.
        phase_pct: Share of the steps that the rise takes, 0 <= phase_pct <= 1; with ``three_phase`` < 0.5.
        anneal_strategy: ``'cos'`` or ``'linear'``.
        three_phase: True falls in two phases.
        last_epoch, verbose: As in :class:`LRScheduler`.

    Example:
        >>> rate = paddle.optimizer.lr.OneCycleLR(1.0, total_steps=5)
        >>> rates = []
        >>> for _ in range(5):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [0.04, 0.9505, 0.6113, 0.1883, 0.0001]
    """

    def __init__(
        self,
        max_learning_rate: float,
        total_steps: int,
        divide_factor: float = 25.0,
        end_learning_rate: float = 0.0001,
        phase_pct: float = 0.3,
        anneal_strategy: str = "cos",
        three_phase: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        peak = self._number("max_learning_rate", max_learning_rate, least=0.0)
        self.total_steps = self._int("total_steps", total_steps, least=1)
        start = peak / self._number("divide_factor", divide_factor, above=0.0)
        end = self._number("end_learning_rate", end_learning_rate, least=0.0)
        self.three_phase = bool(three_phase)
        if self.three_phase:
            share = self._number("phase_pct", phase_pct, least=0.0, below=0.5)
        else:
            share = self._number("phase_pct", phase_pct, least=0.0, most=1.0)
        self.anneal_strategy = self._choice("anneal_strategy", anneal_strategy, ("cos", "linear"))
        last = self.total_steps - 1
        rise = share * self.total_steps
        # Where each phase ends, and the rate there; phase i starts where phase i - 1 ends.
        if self.three_phase:
            self._ends: list[tuple[float, float]] = [(0, start), (rise - 1, peak), (2 * rise - 2, start), (last, end)]
        else:
            self._ends = [(0, start), (rise - 1, peak), (last, end)]
        super().__init__(start, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current step.

        Raises:
            ProgramError: The step lies beyond ``total_steps``.
        """
        step = self.last_epoch
        if step > self.total_steps:
            raise ProgramError(
                "OneCycleLR was stepped beyond the end of its schedule",
                expected=f"at most total_steps = {self.total_steps} steps",
                received=f"step {step}",
                fix="give total_steps the number of steps that are trained (epochs * batches of an epoch)",
            )
        step = min(step, self.total_steps - 1)
        last = len(self._ends) - 1
        phase = next((i for i in range(1, last) if step <= self._ends[i][0]), last)
        (begin, before), (end, after) = self._ends[phase - 1], self._ends[phase]
        # A phase without length is over as soon as it begins.
        done = 1.0 if end == begin else (step - begin) / (end - begin)
        return (_cosine if self.anneal_strategy == "cos" else _line)(before, after, done)


@notes_signatures()
class CyclicLR(LRScheduler):
    """Goes up and down between two rates in straight lines; the height of each cycle may shrink.

    ``base + (max - base) * height * scale``, where height goes from 0 to 1 in ``step_size_up`` steps and back in
    ``step_size_down``. Source: Smith, Cyclical Learning Rates for Training Neural Networks (2017).

    Args:
        base_learning_rate: The lower rate, >= 0.
        max_learning_rate: The upper rate, >= 0.
        step_size_up: Number of steps up, > 0.
        step_size_down: Number of steps down, > 0; None is ``step_size_up``.
        mode: The scale: ``'triangular'`` is 1, ``'triangular2'`` halves it each cycle, ``'exp_range'`` is
            ``exp_gamma**e``. Not used when ``scale_fn`` is given.
        exp_gamma: For ``'exp_range'``.
        scale_fn: Function that returns the scale; it is not part of ``state_dict()``.
        scale_mode: Whether ``scale_fn`` is given the ``'cycle'``, from 1, or the ``'iterations'``, from 0.
        last_epoch, verbose: As in :class:`LRScheduler`.

    Example:
        >>> rate = paddle.optimizer.lr.CyclicLR(0.1, 0.5, step_size_up=2)
        >>> rates = []
        >>> for _ in range(6):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [0.1, 0.3, 0.5, 0.3, 0.1, 0.3]
    """

    def __init__(
        self,
        base_learning_rate: float,
        max_learning_rate: float,
        step_size_up: int,
        step_size_down: int | None = None,
        mode: str = "triangular",
        exp_gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.max_lr = self._number("max_learning_rate", max_learning_rate, least=0.0)
        self.step_size_up = self._int("step_size_up", step_size_up, least=1)
        down = self.step_size_up if step_size_down is None else step_size_down
        self.step_size_down = self._int("step_size_down", down, least=1)
        self.gamma = self._number("exp_gamma", exp_gamma, least=0.0)
        self.scale_mode = self._choice("scale_mode", scale_mode, ("cycle", "iterations"))
        if scale_fn is None:
            self.mode = self._choice("mode", mode, ("triangular", "triangular2", "exp_range"))
            self.scale_mode = "iterations" if self.mode == "exp_range" else "cycle"
            # Bound methods and not lambdas, so that the scheduler can be pickled.
            self.scale_fn: Callable[[Any], float] = getattr(self, f"_{self.mode}")
        else:
            self.mode = mode
            self.scale_fn = self._function("scale_fn", scale_fn)
        super().__init__(base_learning_rate, last_epoch, verbose)

    def _triangular(self, cycle: float) -> float:
        return 1.0

    def _triangular2(self, cycle: float) -> float:
        return float(0.5 ** (cycle - 1))

    def _exp_range(self, step: float) -> float:
        return float(self.gamma**step)

    def get_lr(self) -> float:
        """Returns the rate of the current step."""
        up, down = self.step_size_up, self.step_size_down
        cycle, into = divmod(self.last_epoch, up + down)
        height = into / up if into <= up else (up + down - into) / down
        scale = self.scale_fn(cycle + 1 if self.scale_mode == "cycle" else self.last_epoch)
        return self.base_lr + (self.max_lr - self.base_lr) * height * self._number("scale_fn(x)", scale)
