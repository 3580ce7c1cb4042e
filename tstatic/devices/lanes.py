"""Lanes: steps that are cut alike run part by part, not step by step.

After a convolution of images 0 to 7, the activation and the pooling of the same images find their input in the cache, and
the helpers are woken once for all three. A lane is a list of pieces, in program order, that one thread runs; pieces of
different lanes touch nothing in common (compared by address), so the results are those of running step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.devices.cpu import Span, Work, Workspace
from tstatic.devices.pool import Call, PieceFailed, Pool

MOST = 256
"""Lanes at most: comparing addresses costs time while binding."""

MOST_STEPS = 32
"""Steps that run together at most: each new one is compared with all of them, and binding a long program must stay linear."""

Spans = list[tuple[int, int, int]]
"""``(first byte, byte after the last, lane)``."""
Ends = list[tuple[int, Any]]
"""``(number of calls up to here, owner)``."""


def _overlaps(found: Spans, new: Spans) -> set[tuple[int, int]]:
    """Which lanes of two lists overlap in memory."""
    if not found or not new:
        return set()
    a, b = np.array(found), np.array(new)
    overlap = (a[:, None, 0] < b[None, :, 1]) & (b[None, :, 0] < a[:, None, 1])
    return {(int(a[i, 2]), int(b[j, 2])) for i, j in zip(*np.nonzero(overlap), strict=True)}


def _groups(pairs: set[tuple[int, int]], count: int, pieces: int) -> list[int]:
    """The group of each of ``count`` lanes and then ``pieces`` pieces when pairs must be together, numbered in order."""
    root = list(range(count + pieces))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for lane, piece in pairs:
        low, high = sorted((find(lane), find(count + piece)))
        root[high] = low
    roots = [find(i) for i in range(count + pieces)]
    number = {r: i for i, r in enumerate(dict.fromkeys(roots))}
    return [number[r] for r in roots]


class Lanes:
    """Consecutive steps that run together; a single step at first.

    Args:
        work: The first step.
        owner: Whom to name when it fails.
        threads: Number of threads; decides which steps are worth joining, never what they compute.
    """

    def __init__(self, work: Work, owner: Any, threads: int) -> None:
        self.works: list[tuple[Work, Any]] = [(work, owner)]
        self.lanes: list[list[tuple[int, int]]] = [[(0, i)] for i in range(len(work.makers))]
        """Per lane: (index of the work, index of its piece)."""
        self._least = max(4, 2 * threads)
        self._closed = work.spans is None
        self._reads: Spans = []
        self._writes: Spans = []
        self._after: list[Span] = list(work.after_spans)
        if work.spans is not None:
            self._note(work.spans, range(len(work.spans)))

    def _note(self, spans: Sequence[tuple[Sequence[Span], Sequence[Span]]], lanes: Sequence[int]) -> None:
        for lane, (reads, writes) in zip(lanes, spans, strict=True):
            self._reads.extend((*span, lane) for span in reads)
            self._writes.extend((*span, lane) for span in writes)

    def add(self, work: Work, owner: Any) -> bool:
        """Joins a step, unless it needs several lanes to be done, or what is added up after them.

        Returns:
            Whether it was joined; if not, nothing changed.
        """
        if self._closed or work.spans is None or len(self.works) >= MOST_STEPS:
            return False
        count, pieces = len(self.lanes), len(work.spans)
        if max(count, pieces) < 2 or count + pieces > MOST:
            return False
        reads = [(*span, i) for i, (r, _) in enumerate(work.spans) for span in r]
        writes = [(*span, i) for i, (_, w) in enumerate(work.spans) for span in w]
        if _overlaps([(*span, 0) for span in self._after], reads + writes):
            return False
        pairs = _overlaps(self._writes, reads + writes) | _overlaps(self._reads, writes)
        groups = _groups(pairs, count, pieces)
        # Neither the new step nor the lanes that it needs may lose what lets several threads work.
        needed = {lane for lane, _ in pairs}
        for size, left in ((pieces, set(groups[count:])), (len(needed), {groups[lane] for lane in needed})):
            if len(left) < min(size, self._least):
                return False
        lanes: list[list[tuple[int, int]]] = [[] for _ in range(1 + max(groups))]
        for lane, content in enumerate(self.lanes):
            lanes[groups[lane]].extend(content)
        for piece in range(pieces):
            lanes[groups[count + piece]].append((len(self.works), piece))
        for joined in lanes:
            # Program order within: of two lanes that became one, the second's first step may come before the first's last.
            joined.sort()
        self.lanes = lanes
        self.works.append((work, owner))
        self._reads = [(a, b, groups[i]) for a, b, i in self._reads]
        self._writes = [(a, b, groups[i]) for a, b, i in self._writes]
        self._note(work.spans, groups[count:])
        self._after.extend(work.after_spans)
        return True

    def bind(self, workspaces: Sequence[Workspace], pool: Pool | None) -> tuple[list[Call], list[Any]]:
        """Ready calls, and for each its owner, or for the pool's call the owners of all its pieces (:func:`blame`)."""
        calls: list[Call] = []
        owners: list[Any] = []
        bound: list[list[list[Call]]] = []
        ends: list[Ends] = []
        shared = pool is not None and len(self.lanes) > 1
        for workspace in workspaces if shared else workspaces[:1]:
            ready = [work.bind(workspace) for work, _ in self.works]
            bound.append([[call for w, p in lane for call in ready[w][p]] for lane in self.lanes])
            if not ends:
                for lane in self.lanes:
                    total = 0
                    ends.append([(total := total + len(ready[w][p]), self.works[w][1]) for w, p in lane])
        if shared:
            assert pool is not None
            calls.append((pool.run, (bound,)))
            owners.append(ends)
        else:
            for lane_calls, lane_ends in zip(bound[0], ends, strict=True):
                calls.extend(lane_calls)
                start = 0
                for end, owner in lane_ends:
                    owners.extend([owner] * (end - start))
                    start = end
        for work, owner in self.works:
            calls.extend(work.after)
            owners.extend([owner] * len(work.after))
        return calls, owners


def blame(error: Exception, owner: Any) -> tuple[BaseException, Any]:
    """The error that a call raised and the owner of the step that raised it."""
    if isinstance(error, PieceFailed):
        assert error.__cause__ is not None
        return error.__cause__, next(o for end, o in owner[error.piece] if error.done < end)
    return error, owner


def joined(works: Iterable[tuple[Work, Any]], threads: int, apart: bool = False) -> Iterator[Lanes]:
    """Joins consecutive steps where that is possible, unless they are to be kept apart."""
    lanes: Lanes | None = None
    for work, owner in works:
        if lanes is not None and not apart and lanes.add(work, owner):
            continue
        if lanes is not None:
            yield lanes
        lanes = Lanes(work, owner, threads)
    if lanes is not None:
        yield lanes
