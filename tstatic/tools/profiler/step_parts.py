"""Divides the time of steps into parts, such as forward and collectives, and that of collectives into exposed and hidden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tstatic.ir.operator import OpRole
from tstatic.records import Record
from tstatic.tools.profiler.tables import merged

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
class Exchange:
    """The collectives of one place, in all steps.

    Attributes:
        place: The place, as the names of its streams begin; empty for the host's threads, which are taken together.
        device: Its device.
        runs: Nanoseconds of the place's runs, between first and last event; 0 for the host.
        exposed: Nanoseconds in which a collective was going on, and nothing else of this place was.
        hidden: Nanoseconds in which a collective and other work of this place were going on.
        computing: Nanoseconds in which other work was going on.
    """

    place: str
    device: str
    runs: int
    exposed: int
    hidden: int
    computing: int

    @property
    def total(self) -> int:
        """Nanoseconds in which a collective was going on."""
        return self.exposed + self.hidden


@dataclass(frozen=True, slots=True)
class Steps:
    """Where the steps went.

    Attributes:
        count: Number of steps: those of a Profiler, or runs of an Executor where there are none.
        total: Nanoseconds of all steps.
        parts: What these are divided into; they add up to the total.
        runs: Device -> nanoseconds of its runs, between first and last event, if its work is queued.
        device_parts: What these are divided into; they add up for each device.
        exchanges: For each place whose work is queued, how much of its collectives was hidden; without any, none.
    """

    count: int
    total: int
    parts: tuple[Part, ...]
    runs: dict[str, int]
    device_parts: tuple[Part, ...]
    exchanges: tuple[Exchange, ...]


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
        tuple(p for p in on_device if p.total), tuple(e for e in exchanges_of(events) if e.place),
    )  # fmt: skip


def exchanges_of(events: Iterable[Record]) -> list[Exchange]:
    """Divides the time of each place's collectives; a place without any is left out.

    What other places do hides nothing: this place's step waits all the same.

    Args:
        events: All records.
    """
    of_place: dict[str, list[Record]] = {}
    for event in events:
        if event.kind in ("op", "device"):
            of_place.setdefault(event.queue.rpartition(": ")[0], []).append(event)
    found = []
    for place, mine in sorted(of_place.items()):
        # Run by run, as above.
        of_run: dict[int, list[Record]] = {}
        for event in mine:
            if event.kind == "op":
                of_run.setdefault(event.run if place else 0, []).append(event)
        times = [_overlap(ops) for ops in of_run.values()]
        if any(together for together, _, _ in times):
            together, computing, hidden = (sum(column) for column in zip(*times, strict=True))
            runs = sum(event.length for event in mine if event.kind == "device")
            found.append(Exchange(place, mine[0].device, runs, together - hidden, hidden, computing))
    return found


def _overlap(ops: Iterable[Record]) -> tuple[int, int, int]:
    """Returns the nanoseconds in which collectives were going on, other work was, and both were."""
    shared: list[Record] = []
    others: list[Record] = []
    for event in ops:
        (shared if part_of(event) == COLLECTIVES else others).append(event)
    together, computing = merged(shared), merged(others)
    return together, computing, together + computing - merged([*shared, *others])


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
