"""``LRScheduler``, and the schedulers that follow a formula of the epoch and never rise again."""

from __future__ import annotations

import bisect
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tstatic.errors import NotFoundError, ProgramError, UnsupportedError, shown
from tstatic.ir.checks import check_callable, check_choice, check_int, check_not_empty, check_number, check_type
from tstatic.ir.export import notes_signatures
from tstatic.logs import warn_user
from tstatic.optimizer.decay_formulas import exponential, inverse_time, natural_exponential, noam, polynomial

__all__ = [
    "ExponentialDecay", "InverseTimeDecay", "LRScheduler", "LambdaDecay", "LinearLR", "MultiStepDecay", "MultiplicativeDecay",
    "NaturalExpDecay", "NoamDecay", "PiecewiseDecay", "PolynomialDecay", "StepDecay",
]  # fmt: skip


@notes_signatures()
class LRScheduler:
    """A learning rate that changes with the epoch (or step) number, which ``step()`` counts.

    A subclass states ``get_lr()``, which reads ``self.last_epoch`` and ``self.base_lr``; it may name further attributes
    to save by setting ``self.keys`` in ``state_keys()``. Rates are Python floats, epochs count from 0. The formulas of the
    subclasses call the current epoch e.

    Args:
        learning_rate: The rate that the schedule starts from, finite and >= 0.
        last_epoch: The epoch that was done last; the first rate is that of the epoch after it. -1 starts anew.
        verbose: True writes a line to stdout at every step.

    Raises:
        ProgramTypeError: An argument is of the wrong type (a ``TypeError``).
        ProgramError: An argument is out of range (a ``ValueError``).

    Attributes:
        base_lr: ``learning_rate`` as a float.
        last_lr: The rate of the current epoch.
        last_epoch: The current epoch.

    Example:
        >>> class Halving(paddle.optimizer.lr.LRScheduler):
        ...     def get_lr(self):
        ...         return self.base_lr * 0.5**self.last_epoch
        >>> rate = Halving(learning_rate=1.0)
        >>> rate.step()
        >>> rate(), rate.last_epoch
        (0.5, 1)
    """

    base_lr: float
    last_lr: float
    last_epoch: int | float
    verbose: bool
    keys: list[str]

    _is_restored = True

    def __init__(self, learning_rate: float = 0.1, last_epoch: int = -1, verbose: bool = False) -> None:
        self._start(learning_rate, last_epoch, verbose)
        self.step()

    def _start(self, learning_rate: float, last_epoch: int, verbose: bool) -> None:
        self.base_lr = self._number("learning_rate", learning_rate, least=0.0)
        self.last_lr = self.base_lr
        self.last_epoch = self._int("last_epoch", last_epoch, least=-1)
        self.verbose = bool(verbose)
        # The name of the variable that an optimizer feeds the rate to; the optimizer sets it.
        self._var_name: str | None = None

    def __call__(self) -> float:
        """Returns the rate of the current epoch."""
        return self.last_lr

    def get_lr(self) -> float:
        """Returns the rate of epoch ``self.last_epoch``; a subclass must state it.

        Raises:
            UnsupportedError: The subclass does not (a ``NotImplementedError``).
        """
        raise UnsupportedError(
            f"{type(self).__name__} does not say how the learning rate changes",
            fix="override get_lr() to return the rate of epoch self.last_epoch",
        )

    def step(self, epoch: float | None = None) -> None:
        """Advances to the next epoch, or to ``epoch``, and computes its rate.

        Args:
            epoch: The epoch to go to, >= 0; None is the one after ``last_epoch``.

        Raises:
            ProgramError: ``epoch`` is negative, or the rate is not a finite number; the scheduler is unchanged.
        """
        before = self.last_epoch
        self.last_epoch = before + 1 if epoch is None else self._epoch(epoch)
        try:
            self.last_lr = self._number("get_lr()", self.get_lr())
        except BaseException:
            self.last_epoch = before
            raise
        self._report()

    def _report(self) -> None:
        if self.verbose:
            sys.stdout.write(f"epoch {self.last_epoch}: {type(self).__name__} sets learning rate {self.last_lr}\n")

    def state_keys(self) -> None:
        """Sets ``self.keys``, the names of the attributes that ``state_dict()`` saves."""
        self.keys = ["last_epoch", "last_lr"]

    def state_dict(self) -> dict[str, Any]:
        """Returns the saved attributes as plain Python values, which JSON can hold."""
        self.state_keys()
        return {key: _plain(getattr(self, key)) for key in self.keys if hasattr(self, key)}

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what ``state_dict()`` returned; the scheduler's arguments are not part of it.

        Raises:
            ProgramTypeError: ``state_dict`` is not a dict, or its epoch or rate is not a number.
            ProgramError: Its epoch is negative, or its rate is not finite.
            NotFoundError: An entry is missing. In all these cases the scheduler is unchanged.

        Warns:
            UserWarning: ``state_dict`` has entries that this scheduler does not use.
        """
        self.state_keys()
        self.__dict__.update(self._entries(state_dict, self.keys))

    # Paddle's older name. It looks the method up, so that overriding set_state_dict is enough.
    def set_dict(self, state_dict: dict[str, Any]) -> None:
        """Does what ``set_state_dict`` does."""
        self.set_state_dict(state_dict)

    def _entries(self, state_dict: dict[str, Any], keys: list[str]) -> dict[str, Any]:
        """Returns the entries ``keys`` of ``state_dict``, checked; warns of others. Changes nothing, so that it may raise."""
        check_type(state_dict, dict, "state_dict", type(self).__name__, fix="give what state_dict() returned")
        missing = [key for key in keys if key not in state_dict]
        if missing:
            raise NotFoundError(
                f"the state given to {type(self).__name__} lacks {', '.join(map(repr, missing))}",
                expected=f"a dict with {', '.join(map(repr, keys))}",
                received=f"a dict with {', '.join(map(repr, state_dict)) or 'no entry'}",
                fix=f"give what {type(self).__name__}.state_dict() returned",
            )
        state = {key: _plain(state_dict[key]) for key in keys}
        if "last_epoch" in state:
            state["last_epoch"] = self._epoch(state["last_epoch"], "state_dict['last_epoch']")
        if "last_lr" in state:
            state["last_lr"] = self._number("state_dict['last_lr']", state["last_lr"])
        if unused := sorted(set(state_dict) - set(keys)):
            warn_user(
                f"{type(self).__name__} does not use these entries of the state: {', '.join(unused)}; "
                "was it saved by another kind of scheduler?"
            )
        return state

    # Checks of arguments; bounds as in check_number.
    def _number(self, name: str, value: object, **bounds: Any) -> float:
        return check_number(_plain(value), name, type(self).__name__, **bounds)

    def _int(self, name: str, value: object, *, least: int) -> int:
        return check_int(_plain(value), name, type(self).__name__, least, error=ProgramError)

    def _epoch(self, value: object, name: str = "epoch") -> int | float:
        """Returns an epoch, as an int where it is whole."""
        epoch = self._number(name, value, least=0.0)
        return int(epoch) if epoch.is_integer() else epoch

    def _sequence(self, name: str, values: Any) -> list[Any]:
        """Returns the elements of a list, a tuple or an array of one dimension."""
        given = values.tolist() if callable(getattr(values, "tolist", None)) else values
        return list(check_type(given, (list, tuple), name, type(self).__name__, expected="a list or tuple of numbers"))

    def _increasing(self, name: str, values: object) -> list[int | float]:
        """Returns strictly increasing epochs."""
        epochs = [self._epoch(value, f"{name}[{i}]") for i, value in enumerate(self._sequence(name, values))]
        if epochs != sorted(set(epochs)):
            fix = "sort them and drop repeated ones"
            raise self._wrong(ProgramError, name, values, "strictly increasing epochs", fix)
        return epochs

    def _function(self, name: str, value: object) -> Callable[[Any], float]:
        return check_callable(value, name, type(self).__name__, "a function of one number")

    def _choice(self, name: str, value: object, choices: tuple[str, ...]) -> str:
        return check_choice(check_type(value, str, name, type(self).__name__), choices, name, type(self).__name__)

    def _wrong(self, cls: type[ProgramError], name: str, value: object, expected: str, fix: str) -> ProgramError:
        kind = "is of the wrong type" if issubclass(cls, TypeError) else "cannot be used"
        what = f"{type(self).__name__}: the value of '{name}' {kind}"
        return cls(what, expected=expected, received=shown(value), fix=fix, op=type(self).__name__, var=name)


def _plain(value: Any) -> Any:
    """Returns a numpy scalar or an array of one element as the Python number that it holds, anything else as it is."""
    if not callable(getattr(value, "item", None)):
        return value
    # Arrays, numpy scalars and tensors alike have a shape and item().
    return value.item() if math.prod(getattr(value, "shape", (0,))) == 1 else value


@notes_signatures()
class NoamDecay(LRScheduler):
    """``learning_rate * d_model**-0.5 * min(e**-0.5, e * warmup_steps**-1.5)``, and 0 at epoch 0.

    Source: Vaswani et al., Attention Is All You Need (2017), section 5.3.

    Args:
        d_model: Width of the model, > 0.
        warmup_steps: Number of steps over which the rate rises, > 0.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

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
        return float(noam(self.base_lr, self.d_model, self.warmup_steps, self.last_epoch, min))


@notes_signatures()
class PiecewiseDecay(LRScheduler):
    """``values[i]`` while ``e < boundaries[i]``, and the last value from the last boundary on.

    Args:
        boundaries: Strictly increasing epochs, one or more.
        values: The rates, one more than there are boundaries.
        last_epoch, verbose: As in :class:`LRScheduler`.

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
        self.boundaries = self._increasing("boundaries", boundaries)
        check_not_empty(self.boundaries, "boundaries", type(self).__name__, of="epoch", error=ProgramError)
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


@notes_signatures()
class NaturalExpDecay(LRScheduler):
    """``learning_rate * exp(-gamma * e)``.

    Args:
        gamma: Speed of the decay, > 0.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

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
        return float(natural_exponential(self.base_lr, self.gamma, self.last_epoch, math.exp))


@notes_signatures()
class InverseTimeDecay(LRScheduler):
    """``learning_rate / (1 + gamma * e)``.

    Args:
        gamma: Speed of the decay, >= 0.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

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
        return float(inverse_time(self.base_lr, self.gamma, self.last_epoch))


@notes_signatures()
class PolynomialDecay(LRScheduler):
    """``(learning_rate - end_lr) * (1 - min(e, N) / N)**power + end_lr`` with ``N = decay_steps``.

    With ``cycle`` the rate jumps up after it has reached ``end_lr``: N is then the smallest multiple of ``decay_steps``
    that is not below e.

    Args:
        decay_steps: Number of epochs to reach ``end_lr``, > 0.
        end_lr: The last rate, >= 0.
        power: Exponent, > 0.
        cycle: True starts again with a longer decay each time.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

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
        self.decay_steps = self._int("decay_steps", decay_steps, least=1)
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
        return float(polynomial(self.base_lr, self.end_lr, self.power, done))


@notes_signatures()
class ExponentialDecay(LRScheduler):
    """``learning_rate * gamma**e``.

    Args:
        gamma: Factor of each epoch, 0 < gamma < 1.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

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
        return float(exponential(self.base_lr, self.gamma, self.last_epoch))


@notes_signatures()
class MultiStepDecay(LRScheduler):
    """``learning_rate * gamma**k``, where k counts the milestones that are <= e.

    Args:
        milestones: Strictly increasing epochs.
        gamma: Factor at each milestone, 0 <= gamma < 1.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

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
        return float(exponential(self.base_lr, self.gamma, bisect.bisect_right(self.milestones, self.last_epoch)))


@notes_signatures()
class StepDecay(LRScheduler):
    """``learning_rate * gamma**floor(e / step_size)``.

    Args:
        step_size: Number of epochs between two decays, > 0.
        gamma: Factor of each decay, 0 <= gamma < 1.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

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
        self.step_size = self._int("step_size", step_size, least=1)
        self.gamma = self._number("gamma", gamma, least=0.0, below=1.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        return float(exponential(self.base_lr, self.gamma, self.last_epoch // self.step_size))


@notes_signatures()
class LambdaDecay(LRScheduler):
    """``learning_rate * lr_lambda(e)``.

    Args:
        lr_lambda: Function of the epoch that returns the factor; it is not part of ``state_dict()``.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

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


MOST_FACTORS = 1_000_000
"""How many epochs one step of a MultiplicativeDecay may go on."""


@notes_signatures()
class MultiplicativeDecay(LRScheduler):
    """``learning_rate * lr_lambda(1) * lr_lambda(2) * ... * lr_lambda(e)``.

    Args:
        lr_lambda: Function of the epoch that returns its factor; it is not part of ``state_dict()``.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

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
        if epoch - done > MOST_FACTORS:
            raise ProgramError(
                "MultiplicativeDecay calls lr_lambda once for every epoch up to the given one",
                expected=f"at most {MOST_FACTORS} epochs more than before",
                received=f"{epoch - done} more",
                fix="step to nearer epochs, or state the factor as a function of the epoch in LambdaDecay",
                op="MultiplicativeDecay",
            )
        for e in range(done + 1, epoch + 1):
            product *= self._number("lr_lambda(epoch)", self.lr_lambda(e))
        self._product = (epoch, product)
        return self.base_lr * product


@notes_signatures()
class LinearLR(LRScheduler):
    """``learning_rate * f``, where f goes in a straight line from ``start_factor`` to ``end_factor`` and stays there.

    Args:
        total_steps: Number of epochs to reach ``end_factor``, > 0.
        start_factor: 0 < start_factor <= 1.
        end_factor: 0 <= end_factor <= 1.
        learning_rate, last_epoch, verbose: As in :class:`LRScheduler`.

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
        self, learning_rate: float, total_steps: int, start_factor: float = 1.0 / 3, end_factor: float = 1.0,
        last_epoch: int = -1, verbose: bool = False,
    ) -> None:  # fmt: skip
        self.total_steps = self._int("total_steps", total_steps, least=1)
        self.start_factor = self._number("start_factor", start_factor, above=0.0, most=1.0)
        self.end_factor = self._number("end_factor", end_factor, least=0.0, most=1.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Returns the rate of the current epoch."""
        done = min(self.last_epoch, self.total_steps) / self.total_steps
        return self.base_lr * (self.start_factor * (1 - done) + self.end_factor * done)
