"""Which inputs of an op hold positions (rows of a table, class numbers) or chances, and what these must stay within."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tstatic.errors import FeedError, IndexRangeError
from tstatic.ir.attrs import Slot
from tstatic.ir.checks import check_index
from tstatic.ir.ref import Calls, pick

Sizes = int | tuple[int, ...] | None
"""What positions stay below: one size, one for each column of the last axis, or ``None`` where nothing is a position."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the values of one array must stay within.

    Attributes:
        low, high: The smallest and the largest value: one of each or, if ``columns``, one for each column of the last axis.
        columns: Whether the columns of the last axis have limits of their own.
        ignored: A value that is allowed wherever it lies.
        what: What the values are called in messages.
        fix: What to do about others.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]
    columns: bool
    ignored: int | None
    what: str
    fix: str

    def allows(self, value: int) -> bool:
        """Returns whether a value is within the limits of every column."""
        return max(self.low) <= value <= min(self.high)

    def allowing(self, dtype: np.dtype[Any]) -> Limits | None:
        """Returns limits with at least one value of this type within them, for devices that clip to limits.

        Itself, or, where there is nothing that positions could point to, what allows the ignored value alone; ``None`` where no
        value is allowed.
        """
        if max(self.low) <= min(self.high):
            return self
        ignored = self.ignored
        if ignored is None or not np.iinfo(dtype).min <= ignored <= np.iinfo(dtype).max:
            return None
        return replace(self, low=(ignored,), high=(ignored,))

    def check(self, values: np.ndarray[Any, Any]) -> None:
        """Refuses an array with another value.

        Raises:
            IndexRangeError: Says which is the first.
            FeedError: The same, of chances.
        """
        if values.dtype.kind not in "iu":
            self._check_chances(values)
        elif self.ignored is not None:
            self._check_classes(values, self.ignored)
        elif not self.columns:
            check_index(values, self.high[0] + 1, self.what, self.low[0], fix=self.fix)
        else:
            for low, high, column in zip(self.low, self.high, np.moveaxis(values, -1, 0), strict=True):
                check_index(column, high + 1, self.what, low, fix=self.fix)

    def _check_chances(self, values: np.ndarray[Any, Any]) -> None:
        # float32 holds every value of 16 bits, which numpy compares in software.
        wide = values.astype(np.float32) if values.dtype.itemsize == 2 else values
        (low,), (high,) = self.low, self.high
        # NaN compares false, so it is found as well.
        if not wide.size or (wide.min() >= low and wide.max() <= high):
            return
        raise FeedError(
            f"{self.what} holds a number that is not a probability",
            expected=f"numbers from {low} to {high}",
            received=float(wide[~((wide >= low) & (wide <= high))][0]),
            fix=self.fix,
        )

    def _check_classes(self, values: np.ndarray[Any, Any], ignored: int) -> None:
        (low,), (high,) = self.low, self.high
        # Two reductions in the usual case; only where they fail does the ignored value matter.
        if not values.size or (int(values.min()) >= low and int(values.max()) <= high):
            return
        wrong = values[((values < low) | (values > high)) & (values != ignored)]
        if wrong.size:
            raise IndexRangeError(
                f"{self.what} holds a class number that is out of range",
                expected=f"integers from {low} to {high}, or {ignored} for rows to be ignored",
                received=int(wrong.reshape(-1)[0]),
                fix=self.fix,
            )


@dataclass(frozen=True, slots=True)
class Index:
    """An input whose values are positions. Every device checks them before the op reads anything with them.

    Attributes:
        slot: The input's slot.
        size: ``(*inputs, **attrs) -> what the positions stay below``, from shapes and attributes alone (:data:`Sizes`).
        least: The smallest position.
        from_end: Whether negative positions count from the end.
        ignore: Name of an attribute whose value is allowed, too.
        name: What messages call the values; by default the slot's name.
        fix: What to do about a bad one; ``{size}`` is replaced by the size.
        some: Whether other values (lengths) say which of the positions are read. Then the reference itself checks those, and
            torch's devices run it.
        chances: Whether the values are probabilities, floats from 0 to 1, instead of positions; the size is then 2.
    """

    slot: str
    size: Callable[..., Sizes]
    least: int = 0
    from_end: bool = False
    ignore: str = ""
    name: str = ""
    fix: str = ""
    some: bool = False
    chances: bool = False

    def limits(self, ins: Sequence[Any], attrs: Mapping[str, Any]) -> Limits | None:
        """Returns the limits for inputs (anything with a shape) and attributes; ``None`` where nothing is a position."""
        found = self.size(*ins, **pick(self.size, attrs))
        if found is None:
            return None
        columns = isinstance(found, tuple)
        sizes = found if isinstance(found, tuple) else (found,)
        # Position -size is the first entry, counted from the end.
        low = tuple(-size if self.from_end else self.least for size in sizes)
        ignored = int(attrs[self.ignore]) if self.ignore else None
        fix = self.fix.format(size=", ".join(map(str, sizes)))
        return Limits(low, tuple(size - 1 for size in sizes), columns, ignored, self.name or self.slot, fix)


class Stating(Protocol):
    """What states positions: an op definition."""

    @property
    def inputs(self) -> Sequence[Slot]:
        """The input slots."""

    @property
    def indices(self) -> Sequence[Index]:
        """The statements."""


def limited(
    definition: Stating, ins: Sequence[Any], attrs: Mapping[str, Any]
) -> Iterator[tuple[int, int | None, Any, Limits]]:
    """Yields the inputs of an op that hold positions, with their limits.

    Args:
        definition: The op.
        ins: Arrays (lists of them, ``None``) per slot.
        attrs: Complete attributes.

    Yields:
        The slot's position, the place in a list (else ``None``), the array, and the limits of its values.
    """
    for statement in definition.indices:
        # Values decide which of these are positions at all: the op checks them itself.
        if statement.some:
            continue
        at = next(i for i, slot in enumerate(definition.inputs) if slot.name == statement.slot)
        given = ins[at]
        if given is None:
            continue
        limits = statement.limits(ins, attrs)
        if limits is None:
            continue
        arrays = list(enumerate(given)) if isinstance(given, list) else [(None, given)]
        yield from ((at, place, array, limits) for place, array in arrays if array is not None)


def index_checks(definition: Stating, ins: Sequence[Any], attrs: Mapping[str, Any]) -> Calls:
    """Returns the calls that check an op's positions, in arrays of the host."""
    if not definition.indices:
        return []
    return [(limits.check, (array,)) for _, _, array, limits in limited(definition, ins, attrs)]
