"""Assigns offsets in one arena by lifetimes: best fit over a list of free intervals, in order of time."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIGN = 256
"""Every buffer begins at a multiple of 256 bytes and is padded to one: what CUDA's own allocations have."""


def aligned(nbytes: int) -> int:
    """Returns the bytes that a buffer takes in the arena."""
    return -(-max(nbytes, 1) // ALIGN) * ALIGN


@dataclass(slots=True)
class Lifetime:
    """A buffer: its size, and the first and last step that access it."""

    name: str
    nbytes: int
    first: int
    last: int


_bytes_of, _first_of, _last_of = (operator.attrgetter(name) for name in ("nbytes", "first", "last"))


class _FreeList:
    """Free intervals of the arena, found by size (best fit) and merged with their neighbours."""

    def __init__(self) -> None:
        self.by_size: list[tuple[int, int]] = []
        self.by_start: dict[int, int] = {}
        self.by_end: dict[int, int] = {}
        self.top = 0

    def take(self, size: int) -> int:
        # The smallest interval that fits; of equal ones the first in memory, as no start is below 0.
        at = bisect.bisect_left(self.by_size, (size, -1))
        if at == len(self.by_size):
            # Nothing fits: grow the arena, starting at the free interval at its end if there is one.
            start = self.by_end.get(self.top)
            if start is not None:
                self._remove(start, self.top - start)
            else:
                start = self.top
            self.top = start + size
            return start
        length, start = self.by_size[at]
        self._remove(start, length)
        # The rest stays free, at the upper end.
        if length > size:
            self._add(start + size, length - size)
        return start

    def give(self, start: int, size: int) -> None:
        end = start + size
        # Intervals are found by both ends, so that merging takes no search.
        after = self.by_start.get(end)
        if after is not None:
            self._remove(end, after)
            size += after
        before = self.by_end.get(start)
        if before is not None:
            self._remove(before, start - before)
            size += start - before
            start = before
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        bisect.insort(self.by_size, (size, start))
        self.by_start[start] = size
        self.by_end[start + size] = start

    def _remove(self, start: int, size: int) -> None:
        del self.by_size[bisect.bisect_left(self.by_size, (size, start))]
        del self.by_start[start]
        del self.by_end[start + size]


def place(lifetimes: Sequence[Lifetime], reuse: bool = True) -> tuple[Mapping[str, int], int]:
    """Assigns offsets.

    Args:
        lifetimes: Buffers, in any order.
        reuse: Whether a later buffer may use the memory of a dead one.

    Returns:
        Name -> offset in bytes, and the arena's size in bytes.
    """
    offsets: dict[str, int] = {}
    if not reuse:
        top = 0
        for b in lifetimes:
            offsets[b.name] = top
            top += aligned(b.nbytes)
        return offsets, top
    free = _FreeList()
    sizes = {b.name: -(-b.nbytes // ALIGN) * ALIGN or ALIGN for b in lifetimes}
    # Of buffers that begin together the largest first: small ones fit into what it leaves. Sorting twice keeps that order and
    # calls no function of Python.
    starts = sorted(lifetimes, key=_bytes_of, reverse=True)
    starts.sort(key=_first_of)
    ends = sorted(lifetimes, key=_last_of)
    done = 0
    for b in starts:
        # A buffer that ends with the step that begins this one is still read by it: only earlier ones are free.
        while ends[done].last < b.first:
            ended = ends[done].name
            free.give(offsets[ended], sizes[ended])
            done += 1
        offsets[b.name] = free.take(sizes[b.name])
    return offsets, free.top


def join(
    lifetimes: Sequence[Lifetime], runs: Sequence[Sequence[tuple[str, int]]]
) -> tuple[list[Lifetime], dict[str, int]]:
    """Joins each run of buffers into one contiguous buffer.

    Args:
        lifetimes: Buffers.
        runs: Names and the bytes that each takes, in order; a name is in one run at most.

    Returns:
        The buffers, and name -> offset in its run. A run's buffer has the name of its first buffer, and lives as long as any
        of them.
    """
    known = {b.name: b for b in lifetimes}
    within: dict[str, int] = {}
    whole: dict[str, Lifetime] = {}
    for run in runs:
        parts = [known[name] for name, _ in run]
        top = 0
        for name, nbytes in run:
            within[name] = top
            top += nbytes
        # One buffer: it lives from the first access of any member to the last of any.
        whole[run[0][0]] = Lifetime(run[0][0], top, min(b.first for b in parts), max(b.last for b in parts))
    return [whole.get(b.name, b) for b in lifetimes if b.name in whole or b.name not in within], within
