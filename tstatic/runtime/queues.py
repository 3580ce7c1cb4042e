"""Orders steps on several streams by events, so that any order that the streams allow gives the same numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.devices.base import Device, Stream
from tstatic.fusion.codegen.kernel import RNG
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import Call

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Queued:
    """The work that one step puts into a stream.

    Attributes:
        op: The step's op; ``None`` for copies of feeds.
        stream: The stream that runs its work.
        calls: The calls that put the work there.
        reads, writes: The memory that it accesses; ``None`` if that is not known, or if the step prints or calls Python and
            so must keep the program's order.
    """

    op: FrozenOp | None
    stream: Stream
    calls: Sequence[Call]
    reads: Spans | None
    writes: Spans | None


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
    read = [*op.contents(), *([RNG] if op.body and RNG in arrays else [])]
    if any(isinstance(arrays[v], list) for v in (*read, *op.writes())):
        return None, None
    return [device.span(arrays[v]) for v in read], [device.span(arrays[v]) for v in op.writes()]


def is_hosted(step: Queued) -> bool:
    """Returns whether a step needs the host when it runs, so that it cannot be part of a graph."""
    return step.op is not None and step.op.definition.collective


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
            *((device.wait, (events[j], step.stream)) for j in needed[i]),
            *step.calls,
            *([(device.record, (events[i], step.stream))] if i in events else []),
        ]
        for i, step in enumerate(steps)
    ]
