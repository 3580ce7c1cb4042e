"""Row offsets as arrays: the sequence of each row, sums over sequences, shape rules, and domains for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.checks import ANY_RANK, check_dtype, check_rank
from tstatic.ir.opdef import ValueRange
from tstatic.ir.types import UNKNOWN, Meta

Array = np.ndarray[Any, Any]

OFFSETS = ValueRange(dtype="int64", offsets="X.0")
"""Where tests sample the offsets of ``X``."""


# ---------------------------------------------------------------------------------------------------------- shape rules
def check_sequences(x: Meta, offsets: Meta, slot: str = "X") -> None:
    """Checks that a value has rows, and that its offsets are a vector of int64.

    Raises:
        ShapeError, DTypeError: If not.
    """
    check_rank(x, range(1, ANY_RANK), slot)
    check_rank(offsets, 1, f"{slot}@LOD")
    check_dtype(offsets, ("int64",), f"{slot}@LOD")


def count_of(offsets: Meta) -> int:
    """Returns the number of sequences; -1 if it is not known."""
    return UNKNOWN if offsets.shape[0] == UNKNOWN else offsets.shape[0] - 1


# --------------------------------------------------------------------------------------------------------------- arrays
def lengths_of(offsets: Array) -> Array:
    """Returns the length of each sequence."""
    lengths: Array = np.diff(offsets)
    return lengths


def owners(offsets: Array) -> Array:
    """Returns for each row the number of its sequence."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def positions(offsets: Array) -> Array:
    """Returns for each row its place in its sequence, from 0."""
    found: Array = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
    return found


def fold(ufunc: np.ufunc, x: Array, offsets: Array, out: Array) -> Array:
    """Folds the rows of each sequence into one row of ``out``; returns which sequences have rows, the others are not written."""
    filled = lengths_of(offsets) > 0
    # `reduceat` folds up to the next start, so it is given those of sequences with rows only.
    if filled.all():
        if len(filled):
            ufunc.reduceat(x, offsets[:-1], axis=0, out=out)
    elif filled.any():
        out[filled] = ufunc.reduceat(x, offsets[:-1][filled], axis=0)
    return filled


def offsets_from(lengths: Array) -> Array:
    """Returns the offsets of sequences of given lengths."""
    made = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=made[1:])
    return made


def spans(starts: Array, lengths: Array) -> Array:
    """Returns the positions ``start, start + 1, ...``, as many as ``lengths`` says, of all pairs one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    found: Array = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return found


def column(array: Array, rank: int) -> Array:
    """Returns a vector with further axes of size 1, so that it goes with the rows of a value of that rank."""
    return array.reshape(-1, *(1,) * (rank - 1))


# --------------------------------------------------------------------------------------------------------------- oracle
def each(torch: Any, x: Any, offsets: Any) -> list[Any]:
    """Returns the sequences of a torch tensor, as views."""
    return list(torch.split(x, (offsets[1:] - offsets[:-1]).tolist()))
