"""Steps on several streams: what waits for what, so that any order that the streams allow gives the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tstatic.devices.base import Device, Stream
from tstatic.devices.pool import Call
from tstatic.ir.frozen import FrozenOp

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Queued:
    """What one step puts into a stream.

    Attributes:
        op: The step's op; ``None`` for copies of feeds.
        stream: Where its work goes.
        calls: What puts it there.
        reads, writes: The memory that it touches; ``None`` where that is not known, and for what prints or calls Python,
            whose order is the program's.
    """

    op: FrozenOp | None
    stream: Stream
    calls: Sequence[Call]
    reads: Spans | None
    writes: Spans | None


def _overlap(a: Spans, b: Spans) -> bool:
    return any(x[0] < y[1] and y[0] < x[1] for x in a for y in b)


def _conflict(first: Queued, second: Queued) -> bool:
    """Whether the second must come after the first: one writes what the other touches."""
    if first.reads is None or first.writes is None or second.reads is None or second.writes is None:
        return True
    return (
        _overlap(first.writes, second.reads)
        or _overlap(first.reads, second.writes)
        or _overlap(first.writes, second.writes)
    )


def waits(steps: Sequence[Queued]) -> list[list[int]]:
    """For each step the earlier ones in other streams that it has to wait for.

    None is named that a stream's own order, or another wait, implies.
    """
    found: list[list[int]] = []
    reached: list[dict[int, int]] = []
    """Per step and stream: the last of its steps that is done when the step begins, or is the step itself."""
    last: dict[int, int] = {}
    for i, step in enumerate(steps):
        mine = id(step.stream)
        before = dict(reached[last[mine]]) if mine in last else {}
        needed: list[int] = []
        for j in range(i - 1, -1, -1):
            other = id(steps[j].stream)
            if other != mine and before.get(other, -1) < j and _conflict(steps[j], step):
                needed.append(j)
                for stream, at in reached[j].items():
                    before[stream] = max(before.get(stream, -1), at)
        before[mine] = i
        last[mine] = i
        reached.append(before)
        found.append(needed)
    return found


def in_order(device: Device, steps: Sequence[Queued]) -> list[Call]:
    """The steps' calls with the events between them."""
    needed = waits(steps)
    events = {j: device.event() for js in needed for j in js}
    calls: list[Call] = []
    for i, step in enumerate(steps):
        calls += [(device.wait, (events[j], step.stream)) for j in needed[i]]
        calls += step.calls
        if i in events:
            calls.append((device.record, (events[i], step.stream)))
    return calls
