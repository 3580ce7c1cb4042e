"""Writes records as a Chrome trace, which ``chrome://tracing`` and https://ui.perfetto.dev show."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tstatic.formats.report_files import write_report
from tstatic.records import Record, Recorder
from tstatic.where import show

DEVICE = 1
"""Added to the process id: streams of devices are shown as another process, below the host's threads."""


def trace_of(recorder: Recorder) -> dict[str, Any]:
    """Returns the trace as plain data: a row per thread and per stream of a device, and a counter of bytes.

    Args:
        recorder: What was recorded.
    """
    process = os.getpid()
    streams = sorted({e.queue for e in recorder.events if e.queue})
    rows: list[dict[str, Any]] = [_named("process_name", process, 0, "host")]
    for thread in dict.fromkeys(e.thread for e in recorder.events if not e.queue):
        rows.append(_named("thread_name", process, thread, recorder.threads.get(thread, f"thread {thread}")))
    if streams:
        rows.append(_named("process_name", process + DEVICE, 0, "devices"))
        rows += [_named("thread_name", process + DEVICE, number, name) for number, name in enumerate(streams, 1)]
    number_of = {name: number for number, name in enumerate(streams, 1)}
    rows += [_slice(event, process, number_of) for event in recorder.events]
    for when, held in recorder.held:
        rows.append({"name": "temporaries", "ph": "C", "pid": process, "ts": when / 1e3, "args": {"bytes": held}})
    return {"displayTimeUnit": "ms", "traceEvents": rows}


def save(recorder: Recorder, path: Path) -> None:
    """Writes the trace.

    Args:
        recorder: What was recorded.
        path: The file; its folder exists.

    Raises:
        ReportError: If it cannot be written.
    """
    write_report(path, json.dumps(trace_of(recorder)), "the trace")


def category(event: Record) -> str:
    """Returns the kind of a record, which traces are filtered by; that of a collective is ``"collective"``."""
    return "collective" if event.op is not None and event.op.definition.collective else event.kind


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _slice(event: Record, process: int, streams: dict[str, int]) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if event.op is not None:
        args["at"] = show(event.op.where)
        args["outputs"] = [*event.op.writes()]
        args["run"] = event.run
    if event.kernel:
        args["kernel"] = event.kernel
    if event.nbytes:
        args["bytes"] = event.nbytes
    if event.metas:
        args["inputs"] = [f"{m.dtype.name}{[*m.shape]}" for m in event.metas]
    where = (process + DEVICE, streams[event.queue]) if event.queue else (process, event.thread)
    return {
        "name": event.name, "cat": category(event), "ph": "X", "pid": where[0], "tid": where[1],
        "ts": event.start / 1e3, "dur": event.length / 1e3, "args": args,
    }  # fmt: skip
