"""Chains steps that are cut into matching tiles: they run tile by tile, not step by step.

After a convolution of images 0 to 7, the activation and the pooling of the same images find their input in the cache, and
the helpers are woken once for all three. A task is a list of tiles, in program order, that one thread runs; tiles of
different tasks have no memory in common (compared by address), so the results are those of running step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.devices.cpu.pool import Pool, TileFailed
from tstatic.devices.step import BoundStep, Span, Workspace
from tstatic.ir.recording import Call

MOST = 256
"""Most tasks of a chain: all pairs of addresses are compared while binding."""

MOST_STEPS = 32
"""Most steps in a chain: each new step is compared with all of them, and binding a long program must stay linear."""

FEW_PAIRS = 1024
"""Pairs of addresses up to which Python compares them one by one: 36 pairs take it 8 us and numpy 48, 900 pairs 58 and 143."""

Spans = list[tuple[int, int, int]]
"""``(first byte, byte after the last, task)``."""
Ends = list[tuple[int, Any]]
"""``(number of calls up to here, op)``."""


def _overlaps(found: Spans, new: Spans) -> set[tuple[int, int]]:
    """Returns the pairs of tasks of two lists that overlap in memory."""
    if not found or not new:
        return set()
    if len(found) * len(new) <= FEW_PAIRS:
        return {(i, j) for low, high, i in found for start, stop, j in new if low < stop and start < high}
    a, b = np.array(found), np.array(new)
    overlap = (a[:, None, 0] < b[None, :, 1]) & (b[None, :, 0] < a[:, None, 1])
    return {(int(a[i, 2]), int(b[j, 2])) for i, j in zip(*np.nonzero(overlap), strict=True)}


def _groups(pairs: set[tuple[int, int]], count: int, tiles: int) -> list[int]:
    """Returns the group of each of ``count`` tasks, then ``tiles`` tiles, if ``pairs`` must be together; numbered in order."""
    root = list(range(count + tiles))

    def find(i: int) -> int:
        while root[i] != i:
            # Path halving: chains of up to 256 tasks stay flat.
            root[i] = root[root[i]]
            i = root[i]
        return i

    for task, tile in pairs:
        low, high = sorted((find(task), find(count + tile)))
        root[high] = low
    roots = [find(i) for i in range(count + tiles)]
    number = {r: i for i, r in enumerate(dict.fromkeys(roots))}
    return [number[r] for r in roots]


class TileChain:
    """Holds consecutive steps that run together; starts with a single step.

    Args:
        work: The first step.
        owner: The op to name when the step fails.
        threads: Number of threads; decides which steps are worth chaining, never what they compute.
    """

    def __init__(self, work: BoundStep, owner: Any, threads: int) -> None:
        self.works: list[tuple[BoundStep, Any]] = [(work, owner)]
        self.tasks: list[list[tuple[int, int]]] = [[(0, i)] for i in range(len(work.tile_binders))]
        """Per task: (index of the work, index of its tile)."""
        # At least two tasks a thread, so that an uneven pair of tasks does not leave a core idle.
        self._least = max(4, 2 * threads)
        # Addresses are found for a second step: most steps of small nets have one tile, and stay alone.
        self._noted = False
        self._reads: Spans = []
        self._writes: Spans = []
        self._after: list[Span] = list(work.after_spans)

    def _note(self, spans: Sequence[tuple[Sequence[Span], Sequence[Span]]], tasks: Sequence[int]) -> None:
        for task, (reads, writes) in zip(tasks, spans, strict=True):
            self._reads.extend((*span, task) for span in reads)
            self._writes.extend((*span, task) for span in writes)

    def add(self, work: BoundStep, owner: Any) -> bool:
        """Adds a step, unless it needs several tasks to be done, or the sums after them.

        Returns:
            Whether it was added; if not, nothing changed.
        """
        count, tiles = len(self.tasks), len(work.tile_binders)
        # One task beside one tile is nothing to run side by side.
        if max(count, tiles) < 2 or count + tiles > MOST or len(self.works) >= MOST_STEPS:
            return False
        own = self.works[0][0].spans
        if own is None or work.spans is None:
            return False
        if not self._noted:
            self._note(own, range(len(own)))
            self._noted = True
        reads = [(*span, i) for i, (r, _) in enumerate(work.spans) for span in r]
        writes = [(*span, i) for i, (_, w) in enumerate(work.spans) for span in w]
        # Sums of partial results run after the whole chain, so nothing in it may read or overwrite them.
        if _overlaps([(*span, 0) for span in self._after], reads + writes):
            return False
        # Read after write, write after write, and write after read: the last two as arena slots are used again.
        pairs = _overlaps(self._writes, reads + writes) | _overlaps(self._reads, writes)
        groups = _groups(pairs, count, tiles)
        # Neither the new step nor the tasks that it merges may lose parallelism: enough groups must remain for all threads.
        needed = {task for task, _ in pairs}
        for size, left in ((tiles, set(groups[count:])), (len(needed), {groups[task] for task in needed})):
            if len(left) < min(size, self._least):
                return False
        tasks: list[list[tuple[int, int]]] = [[] for _ in range(1 + max(groups))]
        for task, content in enumerate(self.tasks):
            tasks[groups[task]].extend(content)
        for tile in range(tiles):
            tasks[groups[count + tile]].append((len(self.works), tile))
        for content in tasks:
            # Restores program order: the steps of two merged tasks may alternate.
            content.sort()
        self.tasks = tasks
        self.works.append((work, owner))
        self._reads = [(a, b, groups[i]) for a, b, i in self._reads]
        self._writes = [(a, b, groups[i]) for a, b, i in self._writes]
        self._note(work.spans, groups[count:])
        self._after.extend(work.after_spans)
        return True

    def bind_workspaces(self, workspaces: Sequence[Workspace], pool: Pool | None) -> tuple[list[Call], list[Any]]:
        """Returns the calls in order and, for error messages, the op behind each call or tile (:func:`find_failed_op`)."""
        if len(self.works) == 1 and len(self.tasks) == 1:
            work, owner = self.works[0]
            alone = work.calls(workspaces[0])
            return alone, [owner] * len(alone)
        calls: list[Call] = []
        op_of_call: list[Any] = []
        bound: list[list[list[Call]]] = []
        ends: list[Ends] = []
        # Bound per thread where threads share the work: scratch memory
        # differs. Otherwise the calls join the step's own list.
        shared = pool is not None and len(self.tasks) > 1
        for workspace in workspaces if shared else workspaces[:1]:
            # All steps of a chain use one workspace: a task runs its tiles
            # one after another, and scratch does not outlive a tile.
            ready = [work.bind_workspace(workspace) for work, _ in self.works]
            bound.append([[call for w, p in task for call in ready[w][p]] for task in self.tasks])
            if not ends:
                for task in self.tasks:
                    total = 0
                    ends.append([(total := total + len(ready[w][p]), self.works[w][1]) for w, p in task])
        if shared:
            assert pool is not None
            calls.append((pool.run, (bound,)))
            op_of_call.append(ends)
        else:
            for task_calls, task_ends in zip(bound[0], ends, strict=True):
                calls.extend(task_calls)
                start = 0
                for end, owner in task_ends:
                    op_of_call.extend([owner] * (end - start))
                    start = end
        for work, owner in self.works:
            calls.extend(work.after)
            op_of_call.extend([owner] * len(work.after))
        return calls, op_of_call


def find_failed_op(error: Exception, owner: Any) -> tuple[BaseException, Any]:
    """Returns the error that a call raised, and the op of the step that raised it."""
    if isinstance(error, TileFailed):
        assert error.__cause__ is not None
        # Calls are counted within the task; its ends say up to which call each op reaches.
        return error.__cause__, next(o for end, o in owner[error.tile] if error.done < end)
    return error, owner


def chain_steps(works: Iterable[tuple[BoundStep, Any]], threads: int, no_chaining: bool = False) -> Iterator[TileChain]:
    """Chains consecutive steps where possible, unless ``no_chaining``."""
    chain: TileChain | None = None
    for work, owner in works:
        if chain is not None and not no_chaining and chain.add(work, owner):
            continue
        if chain is not None:
            yield chain
        chain = TileChain(work, owner, threads)
    if chain is not None:
        yield chain
