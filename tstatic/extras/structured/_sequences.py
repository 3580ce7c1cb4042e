"""Sequences of different lengths: where their rows stand, and their order by time step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.checks import INDICES, check_dtype, check_index, check_rank
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta

Array = np.ndarray[Any, Any]


# --------------------------------------------------------------------------------------------------------- shape rules
def check_form(length: Meta | None, offsets: Meta | None, arg: str, length_arg: str) -> None:
    """Refuses a value that nothing divides into sequences.

    Args:
        length: The lengths of padded sequences.
        offsets: The row offsets of sequences one after the other.
        arg: The name of the value.
        length_arg: The name of the argument for lengths.

    Raises:
        ProgramError: Unless one of the two is given.
    """
    if length is None and offsets is None:
        raise ProgramError(
            f"nothing says where the sequences of '{arg}' end",
            expected=f"a variable with lod_level=1, or a padded one and '{length_arg}'",
            received=f"'{arg}' with lod_level=0, and no '{length_arg}'",
            fix=f"declare the data with lod_level=1, or pass {length_arg}=lengths",
        )


def count_of(x: Meta, length: Meta | None, offsets: Meta | None, axis: int = 0) -> int:
    """Returns the number of sequences, -1 if unknown: with lengths the size of the batch axis, else that of the offsets less 1.

    Raises:
        ShapeError, DTypeError: If lengths or offsets are not a vector of integers, or do not fit the batch.
    """
    if length is None:
        assert offsets is not None
        check_dtype(offsets, INDICES, "Offsets")
        check_rank(offsets, 1, "Offsets")
        return UNKNOWN if offsets.shape[0] == UNKNOWN else offsets.shape[0] - 1
    check_dtype(length, INDICES, "Length")
    batch = x.shape[axis]
    check_fit(
        length.numel in (UNKNOWN, batch) or batch == UNKNOWN, (x, length), ("X", "Length"),
        "there must be one length for each sequence", f"{batch} lengths", "pass lengths of shape [batch]",
    )  # fmt: skip
    return batch if batch != UNKNOWN else length.numel


# ---------------------------------------------------------------------------------------------------------- at run time
def starts_and_lengths(
    x: Array, length: Array | None, offsets: Array | None, what: str = "Length", time_first: bool = False
) -> tuple[Array, Array]:
    """Returns the position of the first row of each sequence, and its number of rows, among the rows that ``x`` flattens to.

    Args:
        x: Rows ``[total, ...]`` with offsets; ``[batch, steps, ...]``, or time first, with lengths.
        length: ``[batch]`` or ``[batch, 1]``.
        offsets: ``[sequences + 1]``; not read if there are lengths.
        what: The name of ``length`` for a message.
        time_first: Whether padded steps are the first axis; rows of a sequence then stand a batch apart.

    Raises:
        IndexRangeError: If a length is negative or more than the steps.
        ShapeError: If the offsets do not rise from 0 to the number of rows.
    """
    if length is None:
        assert offsets is not None
        offsets = offsets.astype(np.int64)
        if offsets.size == 0 or offsets[0] != 0 or offsets[-1] != len(x) or (np.diff(offsets) < 0).any():
            raise ShapeError(
                "the offsets of sequences do not fit the rows",
                expected=f"numbers that rise from 0 to {len(x)}, the number of rows",
                received=f"{offsets.tolist()}"[:200],
                fix=f"give set_lod offsets, not lengths; the last one is {len(x)}",
            )
        return offsets[:-1], np.diff(offsets)
    batch, steps = (x.shape[1], x.shape[0]) if time_first else x.shape[:2]
    lengths = length.reshape(-1).astype(np.int64)
    check_index(lengths, steps + 1, what, fix=f"pass lengths of at most {steps}, the number of padded steps")
    return np.arange(batch) * (1 if time_first else steps), lengths


class TimeMajor:
    """The rows of all sequences, ordered by time step and, within a step, from the longest sequence to the shortest.

    Those that go on to the next step are then the first of each step, so that a recurrence works on slices. Nothing is padded.

    Args:
        starts: Position of the first row of each sequence.
        lengths: Rows of each sequence.
        stride: How far apart the rows of a sequence stand.

    Attributes:
        order: ``[sequences]``: their numbers, from the longest to the shortest.
        active: ``[steps]``: how many sequences have that step.
        bounds: ``[steps + 1]``: where the rows of a step begin.
        rank: ``[rows]``: the position of each row's sequence in ``order``.
        index: ``[rows]``: the position of each row.
        count: The number of sequences that are not empty.
        last: ``[count]``: which row is the last of each sequence, in ``order``.
    """

    def __init__(self, starts: Array, lengths: Array, stride: int = 1) -> None:
        self.order = np.argsort(-lengths, kind="stable")
        ordered = lengths[self.order]
        steps = np.arange(int(ordered[0]) if len(ordered) else 0)
        self.active = np.searchsorted(-ordered, -steps)
        self.bounds = np.concatenate(([0], np.cumsum(self.active)))
        step = np.repeat(steps, self.active)
        self.rank = np.arange(len(step)) - self.bounds[step]
        self.index = starts[self.order][self.rank] + step * stride
        self.count = int(self.active[0]) if len(steps) else 0
        self.last = self.bounds[ordered[: self.count] - 1] + np.arange(self.count)

    @property
    def steps(self) -> int:
        """The length of the longest sequence."""
        return len(self.active)

    def rows(self, step: int) -> slice:
        """Returns where the rows of a step stand."""
        return slice(int(self.bounds[step]), int(self.bounds[step + 1]))

    def before(self, step: int) -> slice:
        """Returns where the rows one step earlier of the same sequences stand."""
        start = int(self.bounds[step - 1])
        return slice(start, start + int(self.active[step]))

    @property
    def previous(self) -> Array:
        """For each row from the second step on, which row is that of the step before."""
        first = self.bounds[1] if self.steps else 0
        step = np.repeat(np.arange(1, max(self.steps, 1)), self.active[1:])
        return np.asarray(self.bounds[step - 1] + self.rank[first:])

    def sums(self, values: Array) -> Array:
        """Returns the sum of one value per row over each sequence, by its number."""
        sums = np.zeros(len(self.order))
        sums[self.order] = np.bincount(self.rank, values, len(self.order))
        return sums
