"""The tables of ``Profiler.summary``, each under the name of its view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tstatic.records import Record, Recorder
from tstatic.tools.profiler import tables
from tstatic.tools.profiler.recording import Profile
from tstatic.tools.profiler.step_parts import exchanges_of


@dataclass(frozen=True, slots=True)
class _Request:
    """What every table is made of."""

    profile: Profile
    order: str
    detail: bool
    by_thread: bool
    unit: str

    @property
    def recorder(self) -> Recorder:
        return self.profile.recorder

    def ms(self, nanoseconds: float) -> str:
        return f"{nanoseconds / tables.UNITS[self.unit]:.4f}"


def summary(
    recorder: Recorder, views: Sequence[str], asked: bool, order: str, detail: bool, by_thread: bool, unit: str
) -> list[str]:
    """Returns the lines of some tables.

    Args:
        recorder: What was recorded.
        views: Names of ``SummaryView``.
        asked: Say why a table is empty, instead of leaving it out.
        order: Key of ``tables.ORDER``.
        detail: Show below each operator type its places in the script.
        by_thread: A table of operators for each thread.
        unit: Key of ``tables.UNITS``.
    """
    request = _Request(Profile(recorder), order, detail, by_thread, unit)
    lines: list[str] = []
    for name, (make, empty) in _VIEWS.items():
        if name in views:
            found = make(request)
            lines += found or ([f"{name}: {empty}"] if asked else [])
    return lines


def _device(request: _Request) -> list[str]:
    steps = request.profile.steps()
    if not steps.total:
        return []
    ops = [e for e in request.profile.ops if not e.queue]
    busy = [("CPU", tables.merged(ops))] if ops else []
    busy += list(steps.runs.items())
    cells = [(name, request.ms(time), f"{100 * time / steps.total:.2f}") for name, time in busy]
    return _small("Device Summary", ("Device", "Busy", "Of the steps (%)"), cells, request.unit) if cells else []


def _overview(request: _Request) -> list[str]:
    return tables.overview(request.recorder, request.unit) if request.recorder.events else []


def _model(request: _Request) -> list[str]:
    steps = request.profile.steps()
    cells = [(p.name, request.ms(p.total), f"{100 * p.total / steps.total:.2f}") for p in steps.parts]
    cells += [
        (f"{p.device}: {p.name}", request.ms(p.total), f"{100 * p.total / steps.runs[p.device]:.2f}")
        for p in steps.device_parts
    ]
    return _small("Model Summary", ("Part", "Time", "Ratio (%)"), cells, request.unit) if request.profile.ops else []


def _distributed(request: _Request) -> list[str]:
    cells: list[tuple[str, str, str]] = []
    for one in exchanges_of(request.profile.ops):
        of = f" of {one.place}" if one.place else ""
        cells += [
            (f"Communication{of}", request.ms(one.total), ""),
            (f"Computation{of}", request.ms(one.computing), ""),
            (f"Overlap{of}", request.ms(one.hidden), f"{100 * one.hidden / one.total:.2f}"),
        ]
    if not cells:
        return []
    return _small("Distributed Summary", ("Name", "Time", "Of communication (%)"), cells, request.unit)


def _kernels(request: _Request) -> list[str]:
    rows = sorted(request.profile.by_kernel(), key=tables.ORDER[request.order])
    return tables.table("Kernel Summary", rows, {}, request.unit, request.profile.machines) if rows else []


def _operators(request: _Request) -> list[str]:
    ops = request.profile.ops
    parts: list[tuple[str, list[Record]]] = [("", ops)]
    if request.by_thread:
        names = dict.fromkeys((e.thread, e.queue) for e in ops)
        parts = [
            (f", thread {queue or thread}", [e for e in ops if (e.thread, e.queue) == (thread, queue)])
            for thread, queue in names
        ]
    return [
        line
        for name, part in parts
        if part
        for line in tables.operators(
            part, request.order, request.detail, request.unit, f"Operator Summary{name}", request.profile.machines
        )
    ]


def _memory(request: _Request) -> list[str]:
    return tables.memory(request.recorder) if request.recorder.held else []


def _own(request: _Request) -> list[str]:
    own = [event for event in request.recorder.events if event.kind == "user"]
    rows = sorted(tables.rows_of(own, lambda e: e.name).values(), key=tables.ORDER[request.order])
    return tables.table("UserDefined Summary", rows, {}, request.unit) if rows else []


def _small(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], unit: str) -> list[str]:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        row[0].ljust(widths[0]) + "".join("  " + cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))
        for row in (head, *rows)
    ]
    return [
        f" {title} ".center(len(lines[0]), "-"),
        f"Time unit: {unit}",
        lines[0],
        "-" * len(lines[0]),
        *lines[1:],
        "",
    ]


_NO_OPS = "no operator was recorded"
_VIEWS: Mapping[str, tuple[Callable[[_Request], list[str]], str]] = {
    "DeviceView": (_device, _NO_OPS),
    "OverView": (_overview, "nothing was recorded"),
    "ModelView": (_model, _NO_OPS),
    "DistributedView": (_distributed, "no collective was recorded"),
    "KernelView": (_kernels, "no generated kernel ran; on a CPU fused operators run as those that they replace"),
    "OperatorView": (_operators, _NO_OPS),
    "MemoryView": (_memory, "ask for it with Profiler(profile_memory=True)"),
    "MemoryManipulationView": (
        lambda request: [],
        "copies and fills are not recorded one by one; ModelView has them in sum",
    ),
    "UDFView": (_own, "there was no RecordEvent"),
}
"""Name of a view -> what makes its table, and why that may be empty."""
