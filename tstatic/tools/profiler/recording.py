"""``tstatic.profiler.profile``: records the statements of a ``with``, and says where their time went."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tstatic import records
from tstatic.display import html_table, preformatted, size
from tstatic.errors import ProgramError
from tstatic.formats.report_files import write_report
from tstatic.ir.checks import check_type
from tstatic.ir.opdef import export
from tstatic.records import Machine, Record, Recorder
from tstatic.tools.profiler import chrome_trace
from tstatic.tools.profiler.step_parts import Steps, steps_of
from tstatic.tools.profiler.tables import ORDER, Row, rows_of
from tstatic.where import show


def begin_recording(shapes: bool = False, memory: bool = False, ops: bool = True, kernels: bool = False) -> Recorder:
    """Makes all sessions record from now on.

    Args:
        shapes: Keep the shapes of the ops' inputs.
        memory: Note how many bytes temporaries hold after each run.
        ops: Record single ops, not only runs.
        kernels: Ask torch's profiler for the kernels of a GPU.

    Raises:
        ProgramError: If they do already.
    """
    if records.recorder is not None:
        raise ProgramError(
            "another profiler records already",
            expected="one recording at a time",
            received="a second one",
            fix="stop the first profiler before this one starts",
        )
    records.recorder = Recorder(shapes, memory, ops, kernels)
    return records.recorder


def end_recording() -> Recorder | None:
    """Ends the recording, and returns it with all that devices still had; ``None`` if nothing is recorded."""
    recorder, records.recorder = records.recorder, None
    if recorder is not None:
        recorder.finish()
    return recorder


class Profile:
    """What a recording says: tables by operator, kernel and line, the parts of a step, and a trace.

    ``print`` shows the tables.

    Attributes:
        recorder: The records.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._machines: dict[str, Machine] = {}

    @property
    def events(self) -> list[Record]:
        """All records, in the order in which they began."""
        return self.recorder.events

    @property
    def machines(self) -> dict[str, Machine]:
        """Name of a device -> the bandwidth that shares refer to; that of a CPU is measured when it is first asked for."""
        for name, find in self.recorder.machines.items():
            if name not in self._machines:
                self._machines[name] = find()
        return self._machines

    @property
    def ops(self) -> list[Record]:
        """The records of operators."""
        return [event for event in self.events if event.kind == "op"]

    def by_op(self) -> list[Row]:
        """Returns a row per operator type, the longest first."""
        return _sorted(self.ops, lambda e: e.name)

    def by_line(self) -> list[Row]:
        """Returns a row per line of the user's script, the longest first; an execution is one of an operator of the line."""
        return _sorted(self.ops, lambda e: show(e.op.where) if e.op is not None else "unknown")

    def by_place(self) -> list[Row]:
        """Returns a row per operator type and line, the longest first; a row's ``label`` is the type alone."""
        rows = _sorted(self.ops, lambda e: f"{e.name}\n{show(e.op.where) if e.op is not None else 'unknown'}")
        for row in rows:
            row.label, _, row.name = row.name.partition("\n")
        return rows

    def by_kernel(self) -> list[Row]:
        """Returns a row per kernel, the longest first: those that torch's profiler saw, else the generated ones."""
        seen = [event for event in self.events if event.kind == "kernel"]
        return _sorted(seen or [e for e in self.ops if e.kernel], lambda e: e.name if seen else e.kernel)

    def steps(self) -> Steps:
        """Returns where the steps went."""
        return steps_of(self.events)

    # ------------------------------------------------------------------------------------------------------------- views
    def table(self, top: int = 10) -> str:
        """Returns the tables as text.

        Args:
            top: How many rows of each table to show.
        """
        steps = self.steps()
        lines = [self._headline(steps), ""]
        lines += _text(("where a step goes", "ms a step", "share"), self._parts(steps))
        for title, rows in self._tables():
            if rows:
                lines += ["", *_text((title, *COLUMNS), self._cells(rows[:top]))]
                lines += [f"... and {len(rows) - top} more"] * (len(rows) > top)
        for name, machine in self.machines.items():
            text = f"{name}: {machine.told()}"
            lines += ["", text] if name == next(iter(self.machines)) else [text]
        return "\n".join(lines)

    def _headline(self, steps: Steps) -> str:
        each = steps.total / max(steps.count, 1) / 1e6
        return f"{steps.count} step{'s' * (steps.count != 1)} in {steps.total / 1e6:.3f} ms, {each:.3f} ms each"

    def _tables(self) -> Iterator[tuple[str, list[Row]]]:
        yield "operator", self.by_op()
        yield "line", self.by_line()
        yield "kernel", self.by_kernel()

    def _parts(self, steps: Steps) -> list[tuple[str, ...]]:
        count = max(steps.count, 1)
        cells: list[tuple[str, ...]] = [
            (part.name, f"{part.total / count / 1e6:.3f}", _percent(part.total, steps.total)) for part in steps.parts
        ]
        for device, total in steps.runs.items():
            cells.append((f"on {device}:", f"{total / count / 1e6:.3f}", ""))
            cells += [
                (f"  {part.name}", f"{part.total / count / 1e6:.3f}", _percent(part.total, total))
                for part in steps.device_parts
                if part.device == device
            ]
        for one in steps.exchanges:
            cells.append(
                (f"collectives of {one.place}:", f"{one.total / count / 1e6:.3f}", _percent(one.total, one.runs))
            )
            for name, time in (("exposed", one.exposed), ("hidden", one.hidden)):
                cells.append((f"  {name}", f"{time / count / 1e6:.3f}", _percent(time, one.runs)))
        return cells

    def _cells(self, rows: Sequence[Row]) -> list[tuple[str, ...]]:
        whole = sum(event.length for event in self.ops)
        return [
            (
                row.name, str(row.calls), f"{row.total / 1e6:.3f}", f"{row.average / 1e3:.1f}", _percent(row.total, whole),
                size(row.nbytes) if row.nbytes else "", self._bandwidth_share(row),
            )
            for row in rows
        ]  # fmt: skip

    def _bandwidth_share(self, row: Row) -> str:
        share = row.share_of(self.machines.get(row.device))
        return "" if share is None else f"{100 * share:.1f} %"

    def to_dict(self) -> dict[str, Any]:
        """Returns the tables as plain data: nanoseconds, bytes, and shares from 0 to 1."""
        steps = self.steps()
        whole = sum(event.length for event in self.ops) or 1

        def plain(row: Row) -> dict[str, Any]:
            return {
                "name": row.name, "calls": row.calls, "total_ns": row.total, "share": row.total / whole, "bytes": row.nbytes,
                "bandwidth_share": row.share_of(self.machines.get(row.device)),
            }  # fmt: skip

        return {
            "steps": steps.count,
            "total_ns": steps.total,
            "parts": [{"part": p.name, "total_ns": p.total} for p in steps.parts],
            "devices": [
                {
                    "device": device, "total_ns": total,
                    "parts": [{"part": p.name, "total_ns": p.total} for p in steps.device_parts if p.device == device],
                }
                for device, total in steps.runs.items()
            ],
            "collectives": [
                {"place": e.place, "device": e.device, "runs_ns": e.runs, "exposed_ns": e.exposed, "hidden_ns": e.hidden}
                for e in steps.exchanges
            ],
            "operators": [plain(row) for row in self.by_op()],
            "lines": [plain(row) for row in self.by_line()],
            "kernels": [plain(row) for row in self.by_kernel()],
            "machines": {name: machine._asdict() for name, machine in self.machines.items()},
        }  # fmt: skip

    def save_json(self, path: str | os.PathLike[str]) -> None:
        """Writes :meth:`to_dict` to a file.

        Args:
            path: The file.

        Raises:
            ReportError: If it cannot be written (an ``OSError``).
        """
        write_report(path, json.dumps(self.to_dict(), indent=1) + "\n", "the recording")

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for https://ui.perfetto.dev or ``chrome://tracing``.

        Args:
            path: The file.

        Raises:
            ReportError: If it cannot be written (an ``OSError``).
        """
        chrome_trace.save(self.recorder, Path(path))

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        found = self.steps()
        slowest = next(iter(self.by_op()), None)
        most = f", most in {slowest.name}" if slowest is not None else ""
        return f"<Profile: {self._headline(found)}, {len(self.ops)} records of operators{most}>"

    def _repr_html_(self) -> str:
        steps = self.steps()
        parts = [preformatted(self._headline(steps))]
        parts.append(html_table("Where a step goes", ("part", "ms a step", "share"), self._parts(steps)))
        parts += [
            html_table(f"By {title}", (title, *COLUMNS), self._cells(rows[:20]))
            for title, rows in self._tables()
            if rows
        ]
        return "".join(parts)


COLUMNS = ("calls", "total ms", "average us", "share", "bytes", "bandwidth")


@export("profiler.profile")
@contextmanager
def profile(
    *,
    ops: bool = True,
    shapes: bool = False,
    memory: bool = False,
    kernels: bool = False,
    trace: str | os.PathLike[str] | None = None,
) -> Iterator[Profile]:
    """Records the statements of a ``with``, and says where their time went.

    Args:
        ops: Record single operators. ``False`` records runs alone, and leaves graphs of a GPU as they are.
        shapes: Keep the shapes of the operators' inputs, for the trace.
        memory: Note how many bytes temporaries hold after each run, for the trace.
        kernels: Have torch's profiler record the single kernels of a GPU, which costs more than 3 % of short steps. Without it,
            or where it sees no GPU, a generated kernel has the time of its operator, from events in a run without a graph.
        trace: A file to which a trace for Perfetto is written at the end.

    Returns:
        A :class:`Profile`, complete once the ``with`` has ended.

    Raises:
        ProgramError: If another recording is going on.

    Example:
        >>> y = paddle.tanh(static.data("x", [4, 8]))
        >>> exe = static.Executor()
        >>> with paddle.profiler.profile() as found:
        ...     for _ in range(3):
        ...         _ = exe.run(feed={"x": np.ones((4, 8), "float32")}, fetch_list=[y])
        >>> [(row.name, row.calls, row.nbytes) for row in found.by_op()]
        [('tanh', 3, 768)]
    """
    if trace is not None:
        check_type(trace, (str, os.PathLike), "trace", "profile")
    found = Profile(begin_recording(shapes, memory, ops, kernels))
    try:
        yield found
    finally:
        if records.recorder is found.recorder:
            end_recording()
        if trace is not None:
            found.save_trace(trace)


def _sorted(events: Sequence[Record], name: Callable[[Record], str]) -> list[Row]:
    return sorted(rows_of(events, name).values(), key=ORDER["total"])


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def _text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a table whose first column is flush left, and the others flush right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        row[0].ljust(widths[0])
        + "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in (head, *rows)
    ]
    return [lines[0].rstrip(), "-" * len(lines[0]), *(line.rstrip() for line in lines[1:])]
