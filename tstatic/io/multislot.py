"""MultiSlot text: a line is a sample, and each of its slots is a count and as many values (``2 7 8 1 0 3 .5 1.5 .25``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.io.errors import DataError
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.runtime.scope import LoDTensor, tensor_of

Line = tuple[str, int, bytes]
"""A file's path, the number of a line of its (from 1), and the line."""
_DTYPES = ("int64", "int32", "float32")
_DIGITS = 12
"""Of a count: no line has so many values."""


@dataclass(frozen=True)
class Slot:
    """How the values of one variable stand in a line.

    Attributes:
        name: The variable's name.
        dtype: Their dtype.
        shape: The sizes of a sample; one may be unknown.
        ragged: Whether samples may have any number of values (``lod_level`` 1).
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    ragged: bool

    @staticmethod
    def of(var: Variable) -> Slot:
        """Returns the slot of a variable.

        Raises:
            DataError: If no MultiSlot text can hold its values (a ``ValueError``).
        """
        wrong = ""
        if var.dtype.name not in _DTYPES:
            wrong = "only supports dtype=float32, dtype=int64 and dtype=int32"
        elif var.lod_level > 1:
            wrong = "only supports lod_level 0 and 1"
        elif not var.lod_level and var.shape[1:].count(UNKNOWN) > 1:
            wrong = "needs sizes of which at most one is unknown"
        if wrong:
            raise DataError(
                f"Currently, a dataset of files {wrong}",
                expected="a variable of int64, int32 or float32, with a shape such as [None, 3]",
                received=f"{var.dtype.name}{list(var.shape)} with lod_level {var.lod_level}",
                fix="change static.data, or cast in the program",
                var=var.name,
            )
        return Slot(var.name, np.dtype(var.dtype.np), tuple(var.shape[1:]), var.lod_level == 1)

    @property
    def count(self) -> int | None:
        """The number of values of each sample, or ``None`` if it is unknown."""
        return None if self.ragged or UNKNOWN in self.shape else math.prod(self.shape)

    def tensor(self, column: Column) -> LoDTensor:
        """Returns a batch as a tensor: ``[rows, *shape]``, or ``[values, 1]`` with row offsets for a ragged slot.

        Raises:
            DataError: If samples that need one size have different ones.
        """
        if self.ragged:
            tensor = tensor_of(column.values[:, None])
            tensor.set_lod([[0, *np.cumsum(column.lengths).tolist()]])
            return tensor
        if len(set(column.lengths.tolist())) > 1:
            raise DataError(
                f"samples of one batch have different numbers of values for '{self.name}'",
                expected=f"equally many, for the shape {[UNKNOWN, *self.shape]}",
                received=sorted(set(column.lengths.tolist())),
                fix="declare the variable with lod_level=1, or pad the values in pipe_command",
                var=self.name,
            )
        return tensor_of(column.values.reshape(len(column.lengths), *self.shape))


@dataclass(frozen=True)
class Column:
    """The values of one slot in several samples.

    Attributes:
        values: All of them, one sample after another.
        lengths: How many each sample has.
    """

    values: NDArray[Any]
    lengths: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> Column:
        """Returns the samples of these numbers, in their order."""
        lengths = self.lengths[rows]
        starts = (np.cumsum(self.lengths) - self.lengths)[rows]
        shift = starts - (np.cumsum(lengths) - lengths)
        return Column(self.values[np.repeat(shift, lengths) + np.arange(lengths.sum())], lengths)

    @staticmethod
    def joined(parts: Sequence[Column]) -> Column:
        """Returns the samples of several columns, of which there is at least one."""
        return Column(np.concatenate([p.values for p in parts]), np.concatenate([p.lengths for p in parts]))


def parse(lines: Iterable[Line], slots: Sequence[Slot]) -> list[Column]:
    """Returns the columns of some lines; what follows the last slot of a line is ignored, as in Paddle.

    Raises:
        DataError: If a line does not fit the slots; it names file and line (a ``ValueError``).
    """
    words: list[list[bytes]] = [[] for _ in slots]
    lengths: list[list[int]] = [[] for _ in slots]
    places: list[tuple[str, int]] = []
    for path, number, line in lines:
        found = line.split()
        places.append((path, number))
        at = 0
        for i, slot in enumerate(slots):
            head = found[at] if at < len(found) else b""
            count = int(head) if head.isdigit() and len(head) <= _DIGITS else 0
            values = found[at + 1 : at + 1 + count]
            # Python reads 1_0 as 10; C, and so Paddle, does not.
            wrong = b"_" in line and any(b"_" in word for word in values)
            if wrong or not count or len(values) < count or slot.count not in (None, count):
                wanted = "a count of at least 1" if slot.count is None else f"the count {slot.count}"
                raise _bad_line(path, number, slot, f"{wanted}, then as many values", b" ".join(found[at : at + 8]))
            words[i] += values
            lengths[i].append(count)
            at += 1 + count
    return [
        Column(_numbers(slot, words[i], lengths[i], places), np.array(lengths[i], np.int64))
        for i, slot in enumerate(slots)
    ]


def _numbers(slot: Slot, words: list[bytes], lengths: list[int], places: list[tuple[str, int]]) -> NDArray[Any]:
    number: Any = _float if slot.dtype.kind == "f" else int
    try:
        # Beyond the range of float32 it is infinite, as in C.
        with np.errstate(over="ignore"):
            return np.fromiter(map(number, words), slot.dtype, len(words))
    except (ValueError, OverflowError):
        for row, end in enumerate(np.cumsum(lengths).tolist()):
            mine = words[end - lengths[row] : end]
            try:
                np.fromiter(map(number, mine), slot.dtype, len(mine))
            except (ValueError, OverflowError):
                text = f"{lengths[row]} values of {slot.dtype}"
                raise _bad_line(*places[row], slot, text, b" ".join(mine[:8])) from None
        raise


def _float(word: bytes) -> float:
    """Reads a number as C does: ``1e3``, ``.5``, ``inf``, ``NaN``, and ``0x1.8p3``."""
    try:
        return float(word)
    except ValueError:
        if b"x" not in word.lower():
            raise
        return float.fromhex(word.decode("ascii"))


def _bad_line(path: str, number: int, slot: Slot, expected: str, received: bytes) -> DataError:
    return DataError(
        f"line {number} of {path} does not fit slot '{slot.name}'",
        expected=expected,
        received=repr(received[:200].decode(errors="replace")) if received else "the end of the line",
        fix="the slots of a line are the variables of use_var, in their order; look at what pipe_command prints",
        var=slot.name,
    )
