"""Events of a recording as tables of text, and as a trace that browsers show."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tstatic.runtime.trace import Recorder, TraceEvent
from tstatic.where import show

UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}


@dataclass
class Row:
    """The executions of one kind: of an op type, of one op, or of a RecordEvent.

    Attributes:
        times: Nanoseconds of each execution, over all its tiles and threads.
    """

    name: str
    times: list[int] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.times)

    @property
    def average(self) -> float:
        return self.total / len(self.times)


def rows_of(events: Iterable[TraceEvent], name: Callable[[TraceEvent], str]) -> dict[str, Row]:
    """Returns a row per name; the tiles of an op in one run are one execution.

    Args:
        events: Of one kind.
        name: Says which row an event belongs to.
    """
    executions: dict[tuple[Any, ...], int] = {}
    for number, event in enumerate(events):
        # An event without an op is an execution of its own.
        key = (name(event), id(event.op), event.run) if event.op is not None else (name(event), None, number)
        executions[key] = executions.get(key, 0) + event.end - event.start
    found: dict[str, Row] = {}
    for (row, *_), took in executions.items():
        found.setdefault(row, Row(row)).times.append(took)
    return found


ORDER: Mapping[str, Callable[[Row], float]] = {
    "total": lambda row: -row.total,
    "ave": lambda row: -row.average,
    "max": lambda row: -max(row.times),
    "min": lambda row: min(row.times),
    "calls": lambda row: -len(row.times),
}
"""How rows can be sorted: key -> what ascends."""


def place(event: TraceEvent) -> str:
    """Returns an op's type, with the user's line that made it and the shapes that were recorded."""
    text = f"{event.name} at {show(event.op.where)}" if event.op is not None else event.name
    return f"{text} {[list(m.shape) for m in event.metas]}" if event.metas else text


def table(title: str, rows: Iterable[Row], details: Mapping[str, Sequence[Row]], unit: str) -> list[str]:
    """Returns the lines of a table.

    Args:
        title: Above it.
        rows: In order.
        details: Name of a row -> rows to show below it.
        unit: Key of ``UNITS``.
    """
    rows = list(rows)
    whole = sum(row.total for row in rows) or 1
    lines = [(row, "") for row in rows]
    lines = [
        (one, indent)
        for row, _ in lines
        for one, indent in ((row, ""), *((d, "  ") for d in details.get(row.name, ())))
    ]
    width = max([len("Name"), *(len(indent + row.name) for row, indent in lines)])
    head = f"{'Name':<{width}}  {'Calls':>7}  {'Total':>11}  {'Avg':>11}  {'Max':>11}  {'Min':>11}  {'Ratio (%)':>9}"
    scale = UNITS[unit]
    body = [
        f"{indent + row.name:<{width}}  {len(row.times):>7}  "
        + "".join(f"{v / scale:>11.4f}  " for v in (row.total, row.average, max(row.times), min(row.times)))
        + f"{100 * row.total / whole:>9.2f}"
        for row, indent in lines
    ]
    return [f" {title} ".center(len(head), "-"), f"Time unit: {unit}", head, "-" * len(head), *body, ""]


def overview(recorder: Recorder, unit: str) -> list[str]:
    """Returns a table of how long runs, compilations and operators took; operators that ran side by side count once."""
    kinds = {
        "step": "ProfileStep",
        "run": "Executor.run",
        "compile": "Compile",
        "op": "Operator",
        "user": "UserDefined",
    }
    found = {kind: merged([e for e in recorder.events if e.kind == kind]) for kind in kinds}
    begun = [e.start for e in recorder.events]
    whole = max((e.end for e in recorder.events), default=0) - min(begun, default=0)
    head = f"{'Event Type':<14}  {'Calls':>7}  {'Time':>11}  {'Ratio (%)':>9}"
    lines = [" Overview Summary ".center(len(head), "-"), f"Time unit: {unit}", head, "-" * len(head)]
    for kind, name in kinds.items():
        rows = rows_of([e for e in recorder.events if e.kind == kind], lambda e: e.name)
        if rows:
            calls = sum(len(row.times) for row in rows.values())
            share = 100 * found[kind] / (whole or 1)
            lines.append(f"{name:<14}  {calls:>7}  {found[kind] / UNITS[unit]:>11.4f}  {share:>9.2f}")
    return [*lines, ""]


def merged(events: Sequence[TraceEvent]) -> int:
    """Returns the nanoseconds in which at least one of the events was going on."""
    total, last = 0, 0
    for event in sorted(events, key=lambda e: e.start):
        total += max(0, event.end - max(event.start, last))
        last = max(last, event.end)
    return total


def operators(events: Sequence[TraceEvent], order: str, detail: bool, unit: str, title: str) -> list[str]:
    """Returns the table of operators, by type, and below each its places in the user's script.

    Args:
        events: Of operators.
        order: Key of ``ORDER``.
        detail: Whether the places are shown.
        unit: Key of ``UNITS``.
        title: Above it.
    """
    rows = sorted(rows_of(events, lambda e: e.name).values(), key=ORDER[order])
    details: dict[str, list[Row]] = {}
    if detail:
        types = {place(event): event.name for event in events}
        for row in sorted(rows_of(events, place).values(), key=ORDER[order]):
            details.setdefault(types[row.name], []).append(row)
    return table(title, rows, details, unit)


def memory(recorder: Recorder) -> list[str]:
    """Returns how many bytes temporaries held after runs."""
    sizes = [size for _, size in recorder.held]
    text = f"temporaries after a run: {min(sizes):,} to {max(sizes):,} bytes"
    return [" Memory Summary ".center(len(text), "-"), text, ""]


def save(recorder: Recorder, path: Path) -> None:
    """Writes the events as a Chrome trace: ``chrome://tracing`` and https://ui.perfetto.dev show it.

    Args:
        recorder: What was recorded.
        path: The file; its folder exists.
    """
    process = os.getpid()
    rows: list[dict[str, Any]] = []
    for event in recorder.events:
        args: dict[str, Any] = {}
        if event.op is not None:
            args["at"] = show(event.op.where)
            args["outputs"] = [*event.op.writes()]
        if event.metas:
            args["inputs"] = [f"{m.dtype.name}{[*m.shape]}" for m in event.metas]
        rows.append(
            {
                "name": event.name, "cat": event.kind, "ph": "X", "pid": process, "tid": event.thread,
                "ts": event.start / 1e3, "dur": (event.end - event.start) / 1e3, "args": args,
            }
        )  # fmt: skip
    for when, size in recorder.held:
        rows.append({"name": "temporaries", "ph": "C", "pid": process, "ts": when / 1e3, "args": {"bytes": size}})
    path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": rows}), encoding="utf-8")
