"""Checks the levels of a tensor's row offsets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramTypeError, shown


def levels_of(given: Any, arg: str, function: str) -> list[list[int]]:
    """Returns lists of ints from sequences or arrays of whole numbers."""
    whole = isinstance(given, Sequence | np.ndarray) and all(
        isinstance(level, Sequence | np.ndarray) and all(isinstance(n, int | np.integer) for n in level)
        for level in given
    )
    if not whole:
        raise ProgramTypeError(
            f"'{arg}' of {function} has levels of whole numbers",
            expected="a list with a list of ints for each level, such as [[0, 2, 5]]",
            received=shown(given),
            fix="pass one list for each level",
            op=function,
            var=arg,
        )
    return [[int(n) for n in level] for level in given]


def divides(lod: Sequence[Sequence[int]], rows: int) -> bool:
    """Returns whether each level holds offsets from 0, rising, to the number of what it divides."""
    ends = [len(level) - 1 for level in lod[1:]] + [rows]
    # Without levels there is an end, but nothing to compare with it.
    return all(
        len(level) > 0 and level[0] == 0 and level[-1] == end and all(a <= b for a, b in itertools.pairwise(level))
        for level, end in zip(lod, ends, strict=False)
    )


__all__ = ["divides", "levels_of"]
