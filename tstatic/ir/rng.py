"""Which random numbers an op draws: the key that a random op's ``ref`` and ``lower`` get as ``rng``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# 2**32 divided by the golden ratio, and odd: multiples by small numbers lie far apart (Knuth's multiplicative hashing).
_MIX = 0x9E3779B9
# The lower 32 bits, as Philox works on words of that size.
_WORD = 0xFFFFFFFF


@dataclass(slots=True)
class RngKey:
    """Everything that decides an op's random numbers; equal keys give equal numbers on every device.

    The executor makes one key for each random op of a plan and writes ``run`` (and, inside a loop, ``iteration``)
    before the op runs. An op's own attribute ``seed`` replaces ``seed`` here when it is not 0.

    Attributes:
        seed: The program's ``random_seed``, else that of ``paddle.seed``, else entropy; 64 bits of it count.
        place: Index of the place (replica) that runs the op.
        position: The op's number in the program, see :func:`op_position`; kept by clone and by every rewrite.
        run: How often the program has run in this scope; 31 bits of it count. For a captured device graph it may be a
            0-d int64 tensor.
        iteration: Trip of the innermost loop around the op, 24 bits of it count.
        start: Number of the first element to draw: 0, but for a tile of an op whose work is cut.
    """

    seed: int
    place: int = 0
    position: int = 0
    run: Any = 0
    iteration: Any = 0
    start: int = 0

    def tile(self, start: int) -> RngPiece:
        """Returns the key of a tile of the op's work: the same numbers, from element ``start`` on."""
        return RngPiece(self, self.start + start)

    def part(self, part: tuple[slice, ...], shape: tuple[int, ...]) -> RngPiece:
        """Returns the key of the tile that writes this part of an output of that shape (see :func:`piece_start`)."""
        return self.tile(piece_start(part, shape))

    def at(self, position: int) -> RngPiece:
        """Returns the key of the op with this number, for an op that runs as part of a fused one."""
        return RngPiece(self, self.start, position)


def kernel_numbers(seed: int, run: int, place: int) -> np.ndarray[Any, Any]:
    """Returns what kernels that draw read of a step, int64 of [2]: the seed; the run count and the place's part of the key."""
    words = [seed & _WORD, (seed >> 32) & _WORD, run & _WORD, place * _MIX & _WORD]
    # Little-endian, as GPUs are: kernels take the words apart again.
    return np.array(words, "<u4").view("<i8")


class RngPiece:
    """A key that starts at another element, or is another op's, and follows its whole key's ``run`` and ``iteration``."""

    __slots__ = ("position", "start", "whole")

    def __init__(self, whole: RngKey, start: int, position: int | None = None) -> None:
        self.whole = whole
        self.start = start
        self.position = whole.position if position is None else position

    @property
    def seed(self) -> int:
        return self.whole.seed

    @property
    def place(self) -> int:
        return self.whole.place

    @property
    def run(self) -> Any:
        return self.whole.run

    @property
    def iteration(self) -> Any:
        return self.whole.iteration

    def tile(self, start: int) -> RngPiece:
        return RngPiece(self.whole, self.start + start, self.position)


def op_position(block: int, position: int) -> int:
    """Returns the number of an op in its program, from its block and its position there when it was built.

    In block 0 it is the position itself; ops of other blocks (loop bodies, branches) get numbers of their own.
    """
    return (position + block * _MIX) & _WORD


def piece_start(part: tuple[slice, ...], shape: tuple[int, ...]) -> int:
    """Returns the flat index of the first element of a part of an array, for :meth:`RngKey.tile`.

    The part must be one run of elements in C order: whole along every axis but the first one that is longer than 1.
    """
    start, stride = 0, 1
    for axis in range(len(shape) - 1, -1, -1):
        if axis < len(part):
            start += (part[axis].start or 0) * stride
        stride *= shape[axis]
    return start
