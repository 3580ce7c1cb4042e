"""The base class of the learning-rate schedulers, and the checks of their arguments."""

from __future__ import annotations

import math
import numbers
import reprlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

from tstatic.errors import NotFoundError, ProgramError, ProgramTypeError, UnsupportedError

__all__ = ["LRScheduler"]


class LRScheduler:
    """A learning rate that changes with the epoch (or step) number, which ``step()`` counts.

    A subclass states ``get_lr()``, which reads ``self.last_epoch`` and ``self.base_lr``; it may name further attributes
    to save by setting ``self.keys`` in ``state_keys()``. Rates are Python floats, epochs count from 0.

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

    def __init__(self, learning_rate: float = 0.1, last_epoch: int = -1, verbose: bool = False) -> None:
        self._start(learning_rate, last_epoch, verbose)
        self.step()

    def _start(self, learning_rate: float, last_epoch: int, verbose: bool) -> None:
        self.base_lr = self._number("learning_rate", learning_rate, least=0.0)
        self.last_lr = self.base_lr
        self.last_epoch = self._whole("last_epoch", last_epoch, least=-1)
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
        """Goes on to the next epoch, or to ``epoch``, and computes its rate.

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
        """Takes over what ``state_dict()`` returned; the scheduler's arguments are not part of it.

        Raises:
            ProgramTypeError: ``state_dict`` is not a dict, or its epoch or rate is not a number.
            ProgramError: Its epoch is negative, or its rate is not finite.
            NotFoundError: An entry is missing. In all these cases the scheduler is unchanged.

        Warns:
            UserWarning: ``state_dict`` has entries that this scheduler does not use.
        """
        self.state_keys()
        state = self._entries(state_dict, self.keys)
        unused = sorted(set(state_dict) - set(self.keys))
        self.__dict__.update(state)
        if unused:
            warnings.warn(
                f"{type(self).__name__} does not use these entries of the state: {', '.join(unused)}; "
                "was it saved by another kind of scheduler?",
                stacklevel=2,
            )

    # Paddle's older name. It looks the method up, so that overriding set_state_dict is enough.
    def set_dict(self, state_dict: dict[str, Any]) -> None:
        """Does what ``set_state_dict`` does."""
        self.set_state_dict(state_dict)

    def _entries(self, state_dict: dict[str, Any], keys: list[str]) -> dict[str, Any]:
        """Returns the entries ``keys`` of ``state_dict``, checked; raises before anything was changed."""
        if not isinstance(state_dict, dict):
            raise self._wrong(ProgramTypeError, "state_dict", state_dict, "dict", "give what state_dict() returned")
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
        return state

    # The checks of arguments. Bounds: least and most are inside the range, above and below are not.

    def _number(
        self,
        name: str,
        value: object,
        *,
        least: float | None = None,
        above: float | None = None,
        most: float | None = None,
        below: float | None = None,
    ) -> float:
        """Returns a finite real number within bounds as a Python float."""
        bounds = _bounds(least, above, most, below)
        plain = _plain(value)
        if isinstance(plain, bool) or not isinstance(plain, numbers.Real):
            raise self._wrong(ProgramTypeError, name, value, f"a number{bounds}", "give a float")
        try:
            number = float(plain)
        except OverflowError:  # an int beyond the floats
            number = math.inf
        inside = (
            math.isfinite(number)
            and (least is None or number >= least)
            and (above is None or number > above)
            and (most is None or number <= most)
            and (below is None or number < below)
        )
        if not inside:
            raise self._wrong(ProgramError, name, value, f"a finite number{bounds}", "give a number in this range")
        return number

    def _whole(self, name: str, value: object, *, least: int) -> int:
        """Returns a whole number that is at least ``least`` as a Python int."""
        plain = _plain(value)
        if isinstance(plain, bool) or not isinstance(plain, numbers.Integral):
            raise self._wrong(ProgramTypeError, name, value, f"an int >= {least}", "give an int")
        if plain < least:
            raise self._wrong(ProgramError, name, value, f"an int >= {least}", "give an int in this range")
        return int(plain)

    def _epoch(self, value: object, name: str = "epoch") -> int | float:
        """Returns an epoch, as an int where it is whole."""
        epoch = self._number(name, value, least=0.0)
        return int(epoch) if epoch.is_integer() else epoch

    def _sequence(self, name: str, values: object) -> list[Any]:
        """Returns the elements of a list, a tuple or an array of one dimension."""
        given = values.tolist() if callable(getattr(values, "tolist", None)) else values  # type: ignore[attr-defined]
        if not isinstance(given, list | tuple):
            raise self._wrong(ProgramTypeError, name, values, "a list or tuple of numbers", "give a list")
        return list(given)

    def _increasing(self, name: str, values: object, *, least_count: int = 0) -> list[int | float]:
        """Returns strictly increasing epochs."""
        epochs = [self._epoch(value, f"{name}[{i}]") for i, value in enumerate(self._sequence(name, values))]
        if len(epochs) < least_count:
            raise self._wrong(
                ProgramError, name, values, f"{least_count} epoch or more", "give the epochs of the changes"
            )
        if epochs != sorted(set(epochs)):
            fix = "sort them and drop repeated ones"
            raise self._wrong(ProgramError, name, values, "strictly increasing epochs", fix)
        return epochs

    def _function(self, name: str, value: object) -> Callable[[Any], float]:
        if not callable(value):
            raise self._wrong(ProgramTypeError, name, value, "a function of one number", "give a function or a lambda")
        return value

    def _choice(self, name: str, value: object, choices: tuple[str, ...]) -> str:
        expected = f"one of {', '.join(map(repr, choices))}"
        if not isinstance(value, str):
            raise self._wrong(ProgramTypeError, name, value, expected, "give one of these")
        if value not in choices:
            raise self._wrong(ProgramError, name, value, expected, "give one of these")
        return value

    def _wrong(self, cls: type[ProgramError], name: str, value: object, expected: str, fix: str) -> ProgramError:
        kind = "is of the wrong type" if issubclass(cls, TypeError) else "cannot be used"
        return cls(
            f"{type(self).__name__}: the value of '{name}' {kind}",
            expected=expected,
            received=f"{reprlib.repr(value)} ({type(value).__name__})",
            fix=fix,
        )


def _bounds(least: float | None, above: float | None, most: float | None, below: float | None) -> str:
    pairs = ((">=", least), (">", above), ("<=", most), ("<", below))
    parts = [f"{sign} {bound:g}" for sign, bound in pairs if bound is not None]
    return f" {' and '.join(parts)}" if parts else ""


def _plain(value: Any) -> Any:
    """Returns a numpy scalar or an array of one element as the Python number that it holds, anything else as it is."""
    if not callable(getattr(value, "item", None)):
        return value
    # Arrays, numpy scalars and tensors alike have a shape and item().
    return value.item() if math.prod(getattr(value, "shape", (0,))) == 1 else value
