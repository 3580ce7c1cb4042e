"""Schedules steps on devices whose work runs late: streams that events order, and graphs of what no step interrupts.

Any order that the streams allow gives the same numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tstatic.devices.base import Device, Graph
from tstatic.devices.graphs import CapturingDevice, GraphBlocks, LateGraph
from tstatic.devices.region_log import RegionLog
from tstatic.devices.step import BlockMemory, ReadyStep, Region, Schedule, Spans, Stream
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import Call


@dataclass(frozen=True, slots=True)
class Queued:
    """The work that one step puts into a stream.

    Attributes:
        op: The step's op; ``None`` for copies of feeds.
        stream: The stream that runs its work.
        calls: The calls that put the work there.
        reads, writes: The memory that it accesses; ``None`` if that is not known, or if the step prints or calls Python and
            so must keep the program's order.
        split: Why it cannot be part of a graph; empty if it can.
    """

    op: FrozenOp | None
    stream: Stream
    calls: Sequence[Call]
    reads: Spans | None
    writes: Spans | None
    split: str = ""


def accesses(
    device: Device, op: FrozenOp, arrays: Mapping[str, Any], sequential: bool
) -> tuple[Spans | None, Spans | None]:
    """Returns the memory that an op reads and writes; ``None`` for both if it is not known, or if the op must run in order."""
    definition = op.definition
    known = all(value in arrays for value in (*op.reads(), *op.writes()))
    # An op that raises for bad positions only, which are checked before it, may run beside others.
    ordered = definition.effects and not definition.collective and not definition.indices
    if not known or sequential or definition.objects or ordered or op.sub_blocks:
        return None, None
    if any(isinstance(arrays[v], list) for v in (*op.contents(), *op.writes())):
        return None, None
    return [device.span(arrays[v]) for v in op.contents()], [device.span(arrays[v]) for v in op.writes()]


class _Touched:
    """The memory that earlier steps accessed and that a later step may have to wait for."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, bool, int]] = []
        """First byte, byte after the last, whether it was written, step."""
        # No step with unknown accesses so far.
        self._barrier = -1

    def conflicts(self, step: Queued, last: Collection[int]) -> set[int]:
        """Returns the steps that must be done first: one of the two writes memory that the other accesses.

        Args:
            step: The new one.
            last: The last step of each stream.
        """
        if step.reads is None or step.writes is None:
            return set(last)
        # A step with unknown accesses waits for all before it, and all after it wait for it.
        found = {self._barrier} if self._barrier >= 0 else set()
        for low, high in step.reads:
            found.update(i for a, b, written, i in self._spans if written and a < high and low < b)
        for low, high in step.writes:
            found.update(i for a, b, _, i in self._spans if a < high and low < b)
        return found

    def add(self, index: int, step: Queued) -> None:
        """Records a step. Accesses that it overwrites completely are dropped: waiting for this step implies waiting for them."""
        if step.reads is None or step.writes is None:
            self._spans, self._barrier = [], index
            return
        for low, high in step.writes:
            # Keeps the list short: each new step is compared with all spans, and arenas are written over and over.
            self._spans = [s for s in self._spans if s[0] < low or s[1] > high]
        self._spans += [(low, high, False, index) for low, high in step.reads]
        self._spans += [(low, high, True, index) for low, high in step.writes]


def waits(steps: Sequence[Queued]) -> list[list[int]]:
    """Returns, for each step, the earlier steps in other streams that it has to wait for.

    Waits that a stream's own order, or another wait, implies are left out.
    """
    found: list[list[int]] = []
    reached: list[dict[int, int]] = []
    """Per step and stream: the last step of the stream that is done when the step begins, or the step itself."""
    last: dict[int, int] = {}
    touched = _Touched()
    for i, step in enumerate(steps):
        mine = id(step.stream)
        before = dict(reached[last[mine]]) if mine in last else {}
        needed: list[int] = []
        # Latest first: a wait for it often implies those for earlier steps, through what it had reached.
        for j in sorted(touched.conflicts(step, last.values()), reverse=True):
            if before.get(id(steps[j].stream), -1) < j and steps[j].stream is not step.stream:
                needed.append(j)
                for stream, at in reached[j].items():
                    before[stream] = max(before.get(stream, -1), at)
        # The step counts as reached by those behind it in its stream, which runs in order.
        before[mine] = i
        last[mine] = i
        touched.add(i, step)
        reached.append(before)
        found.append(needed)
    return found


def in_order(device: Device, steps: Sequence[Queued]) -> list[list[Call]]:
    """Returns the calls of each step, with the events that order them."""
    needed = waits(steps)
    # An event only for steps that another stream waits for, however many wait.
    events = {j: device.event() for js in needed for j in js}
    return [
        [
            # The wait first, the record last: an event that is recorded before the calls lets other streams read what these still
            # write.
            *((device.wait, (events[j], step.stream)) for j in needed[i]),
            *step.calls,
            *([(device.record, (events[i], step.stream))] if i in events else []),
        ]
        for i, step in enumerate(steps)
    ]


def _together(spans: Sequence[Spans | None]) -> Spans | None:
    """Returns the memory of several steps, in as few spans as there may be; ``None`` if that of one is not known."""
    found: list[tuple[int, int]] = []
    for span in sorted({span for one in spans if one is not None for span in one}):
        if found and span[0] <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], span[1])
        else:
            found.append(span)
    return None if any(one is None for one in spans) else found


def _blocks_of(device: Device, ops: Sequence[FrozenOp], arrays: Mapping[str, Any]) -> GraphBlocks:
    """Returns the foreign blocks that some ops read, and those that they write first."""
    read: dict[int, BlockMemory] = {}
    written: dict[int, BlockMemory] = {}
    for op in ops:
        for found, values in ((read, op.contents()), (written, op.writes())):
            for value in values:
                block = device.block_memory(arrays[value]) if value in arrays else None
                if block is not None and id(block) not in read and id(block) not in written:
                    found[id(block)] = block
    return GraphBlocks(tuple(read.values()), tuple(written.values()))


def joining(device: Device, stream: Stream, first: Stream) -> list[Call]:
    """Returns calls that make the first stream wait for the work in another one."""
    event = device.event()
    # In this order: a wait refers to the last recording, and before the first there is nothing to wait for.
    return [(device.record, (event, stream)), (device.wait, (event, first))]


class QueuedSchedule(Schedule):
    """Calls that put work into streams: graphs, and between them the steps that need the host.

    Args:
        device: The device.
        steps: The steps, in the program's order.
        region: What they share.

    Attributes:
        graphs: The graphs that it replays.
    """

    def __init__(self, device: QueuedDevice, steps: Sequence[Queued], region: Region) -> None:
        super().__init__()
        self._device, self._steps, self._region = device, steps, region
        self.graphs: list[LateGraph] = []
        last = next(step.op for step in reversed(steps) if step.op is not None)
        first, *others = region.streams
        # A graph is one piece of work of the first stream, which launches it.
        units: list[Queued] = []
        for split, group in itertools.groupby(steps, key=lambda one: region.searched or bool(one.split)):
            part = list(group)
            units += part if split or not any(one.calls for one in part) else [self._graph(part)]
        self.unbroken = len(units) <= 1
        # Errors of queued work carry their own op; those of calls that are not part of a graph have the op of the step.
        for unit, calls in zip(units, in_order(device, units), strict=True):
            self.add(calls, unit.op or last)
        # Behind all steps the first stream waits for the others; a graph has done so itself.
        used = {unit.stream for unit in units}
        for stream in others:
            if stream in used:
                self.add(joining(device, stream, first), last)
        self.add(region.behind, last)

    def free(self) -> None:
        for graph in self.graphs:
            graph.free()

    @property
    def is_launch(self) -> bool:
        return len(self.calls) == len(self.graphs) == 1 and self.graphs[0].captured

    def _graph(self, part: Sequence[Queued]) -> Queued:
        """Returns the work of steps that nothing interrupts."""
        device, region = self._device, self._region
        first = region.streams[0]
        calls: list[Call] = []
        ops: list[FrozenOp | None] = []
        # What has no work of its own is the point at which the graph begins: its streams part there.
        working = [step for step in part if step.calls]
        for step, ordered in zip(working, in_order(device, working), strict=True):
            calls += ordered
            ops += [step.op] * len(ordered)
        streams = list(dict.fromkeys((first, *(step.stream for step in working))))
        named = dict.fromkeys(v for step in part if step.op is not None for v in (*step.op.reads(), *step.op.writes()))
        arrays = {v: region.arrays[v] for v in named if v in region.arrays and device.holds(region.arrays[v])}
        blocks = _blocks_of(device, [step.op for step in part if step.op is not None], region.arrays)
        graph = LateGraph(device, calls, ops, streams, region.graphs, arrays, blocks)
        self.graphs.append(graph)
        reads, writes = (_together([getattr(step, side) for step in part]) for side in ("reads", "writes"))
        op = next((step.op for step in reversed(part) if step.op is not None), None)
        return Queued(op, first, [(device.replay, (graph,))], reads, writes)

    def timed(self, log: RegionLog) -> Schedule:
        """Returns the calls between events, without the graphs that they are otherwise replayed as: inside, nothing is timed."""
        device = self._device
        steps = [
            one if one.op is None else replace(one, calls=device.timed(one.op, one.calls, one.stream, log))
            for one in self._steps
        ]
        return QueuedSchedule(device, steps, replace(self._region, searched=True))


class QueuedDevice(CapturingDevice):
    """A device whose work runs after the call that queues it."""

    deferred = True

    def splits(self, op: FrozenOp, sized: bool = True) -> str:
        definition = op.definition
        if definition.collective:
            return "it waits for other replicas"
        if not sized:
            return "its size depends on values"
        if op.sub_blocks:
            return "the host runs its body step by step"
        if definition.objects or (definition.effects and not definition.indices):
            return "it prints, calls Python, or works on Python objects"
        return self.host_reason(op)

    def capture(self, calls: Sequence[Call], streams: Sequence[Stream]) -> LateGraph:
        return LateGraph(self, calls, [None] * len(calls), streams)

    def replay(self, graph: Graph) -> None:
        assert isinstance(graph, LateGraph)
        graph.replay()

    def schedule(self, steps: Sequence[ReadyStep], region: Region) -> Schedule:
        queued = []
        for step in steps:
            if step.op is None or step.work is None:
                queued.append(Queued(None, step.stream, [*step.before], step.reads, step.writes, step.split))
                continue
            work = step.work
            split = step.split or work.on_host
            reads, writes = accesses(self, step.op, region.arrays, region.ordered)
            if reads is None or writes is None or step.reads is None or step.writes is None:
                reads = writes = None
            else:
                reads, writes = [*reads, *step.reads], [*writes, *step.writes]
            # Checks put good positions in the place of bad ones, so they come before the tiles; sums of partial results need all
            # tiles.
            calls = [*step.before, *work.calls(region.workspaces[0]), *step.after]
            queued.append(Queued(step.op, step.stream, calls, reads, writes, split))
        return QueuedSchedule(self, queued, region)
