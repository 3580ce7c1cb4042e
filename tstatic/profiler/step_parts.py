"""Divides the time of steps into parts: waiting for data, compiling, forward, backward, update, collectives, and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tstatic.ir.operator import OpRole
from tstatic.profiler.tables import merged
from tstatic.records import Record

FORWARD, BACKWARD, UPDATE, COLLECTIVES = "forward", "backward", "update", "collectives"
DATA, COMPILE, QUEUE, BIND = "waiting for data", "compiling", "queueing work", "the profiler's binding"
RUNTIME, WAITING, SCRIPT = "feeds, fetches, runtime", "feeds, fetches, waiting for the device", "the script itself"
GAPS = "copies, waits, gaps"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the steps' time. Work that is done side by side counts once, for the part that stands first.

    Attributes:
        name: What the time went to.
        total: Nanoseconds in all steps.
        device: The device on whose clock that was measured; empty for the host's.
    """

    name: str
    total: int
    device: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """Where the steps went.

    Attributes:
        count: Number of steps: those of a Profiler, or runs of an Executor where there are none.
        total: Nanoseconds of all steps.
        parts: What these are divided into; they add up to the total.
        runs: Device -> nanoseconds of its runs, between first and last event, if its work is queued.
        device_parts: What these are divided into; they add up for each device.
    """

    count: int
    total: int
    parts: tuple[Part, ...]
    runs: dict[str, int]
    device_parts: tuple[Part, ...]


def part_of(event: Record) -> str:
    """Returns which part of a step an op's record belongs to."""
    assert event.op is not None
    if event.op.definition.collective:
        return COLLECTIVES
    if event.update or event.op.role & (OpRole.Optimize | OpRole.LRSched):
        return UPDATE
    return BACKWARD if event.op.role & OpRole.Backward else FORWARD


def steps_of(events: Sequence[Record]) -> Steps:
    """Divides the time of the recorded steps.

    Args:
        events: All records.
    """
    steps = [e for e in events if e.kind == "step"]
    runs = [e for e in events if e.kind == "run"]
    if steps:
        total = sum(e.length for e in steps)
    else:
        around = [e for e in events if e.thread]
        total = max((e.end for e in around), default=0) - min((e.start for e in around), default=0)
    on_host = [e for e in events if e.kind == "op" and not e.queue]
    queued = [e for e in events if e.kind == "queue"]
    groups: list[tuple[str, list[Record]]] = [
        (COMPILE, [e for e in events if e.kind == "compile"]),
        (BIND, [e for e in events if e.kind == "bind"]),
        (DATA, [e for e in events if e.kind == "data"]),
        *_by_part(on_host),
        (QUEUE, queued),
        (WAITING if queued else RUNTIME, runs),
    ]
    parts = [Part(name, length) for name, length in _exclusive(groups)]
    parts.append(Part(SCRIPT, max(0, total - sum(part.total for part in parts))))
    whole: dict[str, int] = {}
    on_device: list[Part] = []
    for device in dict.fromkeys(e.device for e in events if e.kind == "device"):
        of = [e for e in events if e.device == device]
        whole[device] = sum(e.length for e in of if e.kind == "device")
        # Run by run: clocks of devices may say that one run began before another had ended.
        numbers = {e.run for e in of if e.kind == "device"}
        sums: dict[str, int] = {}
        for number in numbers:
            ops = [e for e in of if e.kind == "op" and e.queue and e.run == number]
            for name, length in _exclusive(_by_part(ops)):
                sums[name] = sums.get(name, 0) + length
        on_device += [Part(name, length, device) for name, length in sums.items()]
        on_device.append(Part(GAPS, max(0, whole[device] - sum(sums.values())), device))
    return Steps(
        len(steps) or len(runs), total, tuple(p for p in parts if p.total), whole,
        tuple(p for p in on_device if p.total),
    )  # fmt: skip


def _by_part(ops: Iterable[Record]) -> list[tuple[str, list[Record]]]:
    found: dict[str, list[Record]] = {name: [] for name in (FORWARD, BACKWARD, UPDATE, COLLECTIVES)}
    for event in ops:
        found[part_of(event)].append(event)
    return list(found.items())


def _exclusive(groups: Iterable[tuple[str, list[Record]]]) -> list[tuple[str, int]]:
    """Returns for each group the nanoseconds in which it was going on and none before it was."""
    covered: list[Record] = []
    before = 0
    found: list[tuple[str, int]] = []
    for name, events in groups:
        covered += events
        now = merged(covered)
        found.append((name, now - before))
        before = now
    return found
