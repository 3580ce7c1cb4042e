"""Sums up records by operator, line or kernel, and writes them as tables of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tstatic.display import size
from tstatic.records import Machine, Record, Recorder
from tstatic.where import show

UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}


@dataclass
class Row:
    """The executions of one kind: of an op type, of one op, of a kernel, of a line, or of a RecordEvent.

    Attributes:
        name: What the row is about.
        times: Nanoseconds of each execution, over all its tiles and threads.
        nbytes: Bytes of memory that all executions together read and wrote; 0 where that is not known.
        device: Name of the device.
        label: What stands in the first column of a table, if not the name.
    """

    name: str
    times: list[int] = field(default_factory=list)
    nbytes: int = 0
    device: str = ""
    label: str = ""

    @property
    def calls(self) -> int:
        """Number of executions."""
        return len(self.times)

    @property
    def total(self) -> int:
        """Nanoseconds of all executions."""
        return sum(self.times)

    @property
    def average(self) -> float:
        """Mean nanoseconds of an execution."""
        return self.total / len(self.times)

    @property
    def bandwidth(self) -> float:
        """Bytes per second that were read and written; 0 where that is not known."""
        return 1e9 * self.nbytes / self.total if self.total else 0.0

    def share_of(self, machine: Machine | None) -> float | None:
        """Returns which part of the machine's bandwidth that is: 1 for all of it; ``None`` where either is not known."""
        known = machine is not None and machine.bandwidth and self.nbytes
        return self.bandwidth / machine.bandwidth if machine is not None and known else None


def rows_of(events: Iterable[Record], name: Callable[[Record], str]) -> dict[str, Row]:
    """Returns a row per name; the tiles of an op in one run are one execution.

    Args:
        events: Of one kind.
        name: Says which row an event belongs to.
    """
    executions: dict[tuple[Any, ...], int] = {}
    found: dict[str, Row] = {}
    for number, event in enumerate(events):
        called = name(event)
        # An event without an op is an execution of its own.
        key = (called, id(event.op), event.run) if event.op is not None else (called, None, number)
        executions[key] = executions.get(key, 0) + event.length
        row = found.setdefault(called, Row(called, device=event.device))
        row.nbytes += event.nbytes
    for (called, *_), took in executions.items():
        found[called].times.append(took)
    return found


ORDER: Mapping[str, Callable[[Row], float]] = {
    "total": lambda row: -row.total,
    "ave": lambda row: -row.average,
    "max": lambda row: -max(row.times),
    "min": lambda row: min(row.times),
    "calls": lambda row: -len(row.times),
}
"""How rows can be sorted: key -> what ascends."""


def place(event: Record) -> str:
    """Returns an op's type, with the user's line that made it and the shapes that were recorded."""
    text = f"{event.name} at {show(event.op.where)}" if event.op is not None else event.name
    return f"{text} {[list(m.shape) for m in event.metas]}" if event.metas else text


def table(
    title: str,
    rows: Iterable[Row],
    details: Mapping[str, Sequence[Row]],
    unit: str,
    machines: Mapping[str, Machine] | None = None,
) -> list[str]:
    """Returns the lines of a table.

    Args:
        title: Above it.
        rows: In order.
        details: Name of a row -> rows to show below it.
        unit: Key of ``UNITS``.
        machines: Name of a device -> what its bandwidth is; adds columns for bytes and their share of it.
    """
    rows = list(rows)
    whole = sum(row.total for row in rows) or 1
    lines = [
        (one, indent) for row in rows for one, indent in ((row, ""), *((d, "  ") for d in details.get(row.name, ())))
    ]
    width = max([len("Name"), *(len(indent + row.name) for row, indent in lines)])
    head = f"{'Name':<{width}}  {'Calls':>7}  {'Total':>11}  {'Avg':>11}  {'Max':>11}  {'Min':>11}  {'Ratio (%)':>9}"
    head += f"  {'Bytes':>10}  {'Bandwidth (%)':>13}" * (machines is not None)
    scale = UNITS[unit]
    body = []
    for row, indent in lines:
        times = "".join(f"{v / scale:>11.4f}  " for v in (row.total, row.average, max(row.times), min(row.times)))
        text = f"{indent + row.name:<{width}}  {row.calls:>7}  {times}{100 * row.total / whole:>9.2f}"
        if machines is not None:
            share = row.share_of(machines.get(row.device))
            text += f"  {size(row.nbytes) if row.nbytes else '':>10}  "
            text += f"{'' if share is None else f'{100 * share:.1f}':>13}"
        body.append(text.rstrip())
    return [f" {title} ".center(len(head), "-"), f"Time unit: {unit}", head, "-" * len(head), *body, ""]


KINDS = {
    "step": "ProfileStep",
    "run": "Executor.run",
    "data": "DataLoader",
    "load": "Batches made",
    "compile": "Compile",
    "bind": "Profiler's own",
    "queue": "Queueing",
    "device": "Runs on device",
    "op": "Operator",
    "kernel": "Kernel",
    "user": "UserDefined",
}
"""Kind of a record -> what the overview calls it."""


def overview(recorder: Recorder, unit: str) -> list[str]:
    """Returns a table of how long runs, compilations and operators took; operators that ran side by side count once."""
    found = {kind: merged([e for e in recorder.events if e.kind == kind]) for kind in KINDS}
    host = [e for e in recorder.events if e.thread]
    whole = max((e.end for e in host), default=0) - min((e.start for e in host), default=0)
    head = f"{'Event Type':<14}  {'Calls':>7}  {'Time':>11}  {'Ratio (%)':>9}"
    lines = [" Overview Summary ".center(len(head), "-"), f"Time unit: {unit}", head, "-" * len(head)]
    for kind, name in KINDS.items():
        rows = rows_of([e for e in recorder.events if e.kind == kind], lambda e: e.name)
        if rows:
            calls = sum(row.calls for row in rows.values())
            share = 100 * found[kind] / (whole or 1)
            lines.append(f"{name:<14}  {calls:>7}  {found[kind] / UNITS[unit]:>11.4f}  {share:>9.2f}")
    return [*lines, ""]


def merged(events: Iterable[Record]) -> int:
    """Returns the nanoseconds in which at least one of the events was going on."""
    total, last = 0, -(1 << 62)
    for event in sorted(events, key=lambda e: e.start):
        total += max(0, event.end - max(event.start, last))
        last = max(last, event.end)
    return total


def operators(
    events: Sequence[Record],
    order: str,
    detail: bool,
    unit: str,
    title: str,
    machines: Mapping[str, Machine] | None = None,
) -> list[str]:
    """Returns the table of operators, by type, and below each its places in the user's script.

    Args:
        events: Of operators.
        order: Key of ``ORDER``.
        detail: Whether the places are shown.
        unit: Key of ``UNITS``.
        title: Above it.
        machines: As of :func:`table`.
    """
    rows = sorted(rows_of(events, lambda e: e.name).values(), key=ORDER[order])
    details: dict[str, list[Row]] = {}
    if detail:
        types = {place(event): event.name for event in events}
        for row in sorted(rows_of(events, place).values(), key=ORDER[order]):
            details.setdefault(types[row.name], []).append(row)
    return table(title, rows, details, unit, machines)


def memory(recorder: Recorder) -> list[str]:
    """Returns how many bytes temporaries held after runs."""
    sizes = [held for _, held in recorder.held]
    text = f"temporaries after a run: {min(sizes):,} to {max(sizes):,} bytes"
    return [" Memory Summary ".center(len(text), "-"), text, ""]
