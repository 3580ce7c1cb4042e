"""Learning-rate schedulers that follow a formula of the epoch and do not come back up."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence

from tstatic.errors import ProgramError
from tstatic.optimizer.lr_base import LRScheduler

__all__ = [
    "ExponentialDecay",
    "InverseTimeDecay",
    "LambdaDecay",
    "LinearLR",
    "MultiStepDecay",
    "MultiplicativeDecay",
    "NaturalExpDecay",
    "NoamDecay",
    "PiecewiseDecay",
    "PolynomialDecay",
    "StepDecay",
]

# Below, e is the current epoch, last_epoch. All arguments that the classes do not explain are those of LRScheduler.


class NoamDecay(LRScheduler):
    """``learning_rate * d_model**-0.5 * min(e**-0.5, e * warmup_steps**-1.5)``, and 0 at epoch 0.

    Source: Vaswani et al., Attention Is All You Need (2017), section 5.3.

    Args:
        d_model: Width of the model, > 0.
        warmup_steps: Number of steps over which the rate rises, > 0.

    Example:
        >>> rate = paddle.optimizer.lr.NoamDecay(d_model=4, warmup_steps=4)
        >>> rates = []
        >>> for _ in range(7):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [0.0, 0.0625, 0.125, 0.1875, 0.25, 0.2236, 0.2041]
    """

    def __init__(
        self,
        d_model: float,
        warmup_steps: float,
        learning_rate: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.d_model = self._number("d_model", d_model, above=0.0)
        self.warmup_steps = self._number("warmup_steps", warmup_steps, above=0.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        if self.last_epoch == 0:
            return 0.0
        rise = self.last_epoch * self.warmup_steps**-1.5
        return float(self.base_lr * self.d_model**-0.5 * min(self.last_epoch**-0.5, rise))


class PiecewiseDecay(LRScheduler):
    """``values[i]`` while ``e < boundaries[i]``, and the last value from the last boundary on.

    Args:
        boundaries: Strictly increasing epochs, one or more.
        values: The rates, one more than there are boundaries.

    Example:
        >>> rate = paddle.optimizer.lr.PiecewiseDecay(boundaries=[2, 4], values=[1.0, 0.5, 0.1])
        >>> rates = []
        >>> for _ in range(5):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 1.0, 0.5, 0.5, 0.1]
    """

    def __init__(
        self, boundaries: Sequence[float], values: Sequence[float], last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.boundaries = self._increasing("boundaries", boundaries, least_count=1)
        self.values = [
            self._number(f"values[{i}]", value, least=0.0) for i, value in enumerate(self._sequence("values", values))
        ]
        if len(self.values) != len(self.boundaries) + 1:
            expected = f"{len(self.boundaries) + 1} rates, one more than there are boundaries"
            raise self._wrong(ProgramError, "values", values, expected, "give one rate for each stretch")
        super().__init__(self.values[0], last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        return self.values[bisect.bisect_right(self.boundaries, self.last_epoch)]


class NaturalExpDecay(LRScheduler):
    """``learning_rate * exp(-gamma * e)``.

    Args:
        gamma: Speed of the decay, > 0.

    Example:
        >>> rate = paddle.optimizer.lr.NaturalExpDecay(1.0, gamma=0.5)
        >>> rates = []
        >>> for _ in range(4):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 0.6065, 0.3679, 0.2231]
    """

    def __init__(self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False) -> None:
        self.gamma = self._number("gamma", gamma, above=0.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        return self.base_lr * math.exp(-self.gamma * self.last_epoch)


class InverseTimeDecay(LRScheduler):
    """``learning_rate / (1 + gamma * e)``.

    Args:
        gamma: Speed of the decay, >= 0.

    Example:
        >>> rate = paddle.optimizer.lr.InverseTimeDecay(1.0, gamma=0.5)
        >>> rates = []
        >>> for _ in range(4):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 0.6667, 0.5, 0.4]
    """

    def __init__(self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False) -> None:
        self.gamma = self._number("gamma", gamma, least=0.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        return self.base_lr / (1 + self.gamma * self.last_epoch)


class PolynomialDecay(LRScheduler):
    """``(learning_rate - end_lr) * (1 - min(e, N) / N)**power + end_lr`` with ``N = decay_steps``.

    With ``cycle`` the rate jumps up after it has reached ``end_lr``: N is then the smallest multiple of ``decay_steps``
    that is not below e.

    Args:
        decay_steps: Number of epochs to reach ``end_lr``, > 0.
        end_lr: The last rate, >= 0.
        power: Exponent, > 0.
        cycle: True starts again with a longer decay each time.

    Example:
        >>> rate = paddle.optimizer.lr.PolynomialDecay(1.0, decay_steps=4, end_lr=0.0)
        >>> rates = []
        >>> for _ in range(6):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """

    def __init__(
        self,
        learning_rate: float,
        decay_steps: int,
        end_lr: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.decay_steps = self._whole("decay_steps", decay_steps, least=1)
        self.end_lr = self._number("end_lr", end_lr, least=0.0)
        self.power = self._number("power", power, above=0.0)
        self.cycle = bool(cycle)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        steps = self.decay_steps
        if self.cycle:
            steps *= max(1, math.ceil(self.last_epoch / self.decay_steps))
        done = min(self.last_epoch, steps) / steps
        return float((self.base_lr - self.end_lr) * (1 - done) ** self.power + self.end_lr)


class ExponentialDecay(LRScheduler):
    """``learning_rate * gamma**e``.

    Args:
        gamma: Factor of each epoch, 0 < gamma < 1.

    Example:
        >>> rate = paddle.optimizer.lr.ExponentialDecay(1.0, gamma=0.5)
        >>> rates = []
        >>> for _ in range(4):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False) -> None:
        self.gamma = self._number("gamma", gamma, above=0.0, below=1.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        return float(self.base_lr * self.gamma**self.last_epoch)


class MultiStepDecay(LRScheduler):
    """``learning_rate * gamma**k``, where k counts the milestones that are <= e.

    Args:
        milestones: Strictly increasing epochs.
        gamma: Factor at each milestone, 0 <= gamma < 1.

    Example:
        >>> rate = paddle.optimizer.lr.MultiStepDecay(1.0, milestones=[2, 4], gamma=0.1)
        >>> rates = []
        >>> for _ in range(5):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 1.0, 0.1, 0.1, 0.01]
    """

    def __init__(
        self,
        learning_rate: float,
        milestones: Sequence[float],
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.milestones = self._increasing("milestones", milestones)
        self.gamma = self._number("gamma", gamma, least=0.0, below=1.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        return float(self.base_lr * self.gamma ** bisect.bisect_right(self.milestones, self.last_epoch))


class StepDecay(LRScheduler):
    """``learning_rate * gamma**floor(e / step_size)``.

    Args:
        step_size: Number of epochs between two decays, > 0.
        gamma: Factor of each decay, 0 <= gamma < 1.

    Example:
        >>> rate = paddle.optimizer.lr.StepDecay(1.0, step_size=2, gamma=0.1)
        >>> rates = []
        >>> for _ in range(5):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 1.0, 0.1, 0.1, 0.01]
    """

    def __init__(
        self, learning_rate: float, step_size: int, gamma: float = 0.1, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.step_size = self._whole("step_size", step_size, least=1)
        self.gamma = self._number("gamma", gamma, least=0.0, below=1.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        return float(self.base_lr * self.gamma ** (self.last_epoch // self.step_size))


class LambdaDecay(LRScheduler):
    """``learning_rate * lr_lambda(e)``.

    Args:
        lr_lambda: Function of the epoch that returns the factor; it is not part of ``state_dict()``.

    Example:
        >>> rate = paddle.optimizer.lr.LambdaDecay(1.0, lambda epoch: 0.9**epoch)
        >>> rates = []
        >>> for _ in range(4):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 0.9, 0.81, 0.729]
    """

    def __init__(
        self, learning_rate: float, lr_lambda: Callable[[float], float], last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.lr_lambda = self._function("lr_lambda", lr_lambda)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        return self.base_lr * self._number("lr_lambda(epoch)", self.lr_lambda(self.last_epoch))


class MultiplicativeDecay(LRScheduler):
    """``learning_rate * lr_lambda(1) * lr_lambda(2) * ... * lr_lambda(e)``.

    Args:
        lr_lambda: Function of the epoch that returns its factor; it is not part of ``state_dict()``.

    Example:
        >>> rate = paddle.optimizer.lr.MultiplicativeDecay(1.0, lambda epoch: 0.5)
        >>> rates = []
        >>> for _ in range(4):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(
        self, learning_rate: float, lr_lambda: Callable[[int], float], last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.lr_lambda = self._function("lr_lambda", lr_lambda)
        # The product up to an epoch, so that a step costs one call and not e calls.
        self._product = (0, 1.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        epoch = int(self.last_epoch)
        done, product = self._product if self._product[0] <= epoch else (0, 1.0)
        for e in range(done + 1, epoch + 1):
            product *= self._number("lr_lambda(epoch)", self.lr_lambda(e))
        self._product = (epoch, product)
        return self.base_lr * product


class LinearLR(LRScheduler):
    """``learning_rate * f``, where f goes in a straight line from ``start_factor`` to ``end_factor`` and stays there.

    Args:
        total_steps: Number of epochs to reach ``end_factor``, > 0.
        start_factor: 0 < start_factor <= 1.
        end_factor: 0 <= end_factor <= 1.

    Example:
        >>> rate = paddle.optimizer.lr.LinearLR(1.0, total_steps=4, start_factor=0.5)
        >>> rates = []
        >>> for _ in range(6):
        ...     rates.append(round(rate(), 4))
        ...     rate.step()
        >>> rates
        [0.5, 0.625, 0.75, 0.875, 1.0, 1.0]
    """

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.total_steps = self._whole("total_steps", total_steps, least=1)
        self.start_factor = self._number("start_factor", start_factor, above=0.0, most=1.0)
        self.end_factor = self._number("end_factor", end_factor, least=0.0, most=1.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        done = min(self.last_epoch, self.total_steps) / self.total_steps
        return self.base_lr * (self.start_factor * (1 - done) + self.end_factor * done)
