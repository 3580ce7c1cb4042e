"""Recordings in Paddle's own format: a message for each thread's events, as a tree of what ran within what."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from tstatic.errors import CheckpointError, LoadLimitError, reason
from tstatic.formats import paddle_proto
from tstatic.formats.report_files import write_report
from tstatic.ir.budget import budget_of_program
from tstatic.ir.checks import check_type
from tstatic.ir.opdef import export
from tstatic.records import Record, Recorder
from tstatic.regular import read_bytes

VERSION = "1.0.2"
_END = (1 << 64) - 1
"""Where the root of a thread's events ends."""


class TracerEventType(IntEnum):
    """Kinds of events, with Paddle's numbers."""

    Operator = 0
    Dataloader = 1
    ProfileStep = 2
    CudaRuntime = 3
    Kernel = 4
    Memcpy = 5
    Memset = 6
    UserDefined = 7
    OperatorInner = 8
    Forward = 9
    Backward = 10
    Optimization = 11
    Communication = 12
    PythonOp = 13
    PythonUserDefined = 14


_TYPES = {
    "op": TracerEventType.Operator, "step": TracerEventType.ProfileStep, "user": TracerEventType.PythonUserDefined,
    "run": TracerEventType.UserDefined, "compile": TracerEventType.UserDefined, "queue": TracerEventType.UserDefined,
    "device": TracerEventType.UserDefined, "bind": TracerEventType.UserDefined,
    "data": TracerEventType.Dataloader, "load": TracerEventType.Dataloader,
    "kernel": TracerEventType.Kernel,
}  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- messages
@dataclass(slots=True)
class _Event:
    name: str = ""
    type: int = 0
    start: int = 0
    end: int = 0
    process: int = 0
    thread: int = 0


@dataclass(slots=True)
class _Node:
    id: int = 0
    parent: int = -1
    event: _Event | None = None


@dataclass(slots=True)
class _Thread:
    thread: int = 0
    nodes: list[_Node] = field(default_factory=list)


@dataclass(slots=True)
class _Fact:
    name: str = ""
    value: str = ""


@dataclass(slots=True)
class _Trace:
    version: str = ""
    span: int = 0
    threads: list[_Thread] = field(default_factory=list)
    facts: list[_Fact] = field(default_factory=list)


paddle_proto.FIELDS |= {
    _Event: {
        1: ("name", "str"), 2: ("type", "int"), 3: ("start", "int"), 4: ("end", "int"), 5: ("process", "int"),
        6: ("thread", "int"),
    },
    _Node: {1: ("id", "int"), 2: ("parent", "int"), 3: ("event", _Event)},
    _Thread: {1: ("thread", "int"), 2: ("nodes", (_Node,))},
    _Fact: {1: ("name", "str"), 2: ("value", "str")},
    _Trace: {1: ("version", "str"), 2: ("span", "int"), 3: ("threads", (_Thread,)), 4: ("facts", (_Fact,))},
}  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- write
def _nodes(events: Iterable[Record], process: int) -> list[_Node]:
    """Returns the root and the events of a thread; the parent of one is the last that began before it and ends after it."""
    made = [_Node(0, -1, _Event("root node", TracerEventType.UserDefined, 0, _END))]
    open_: list[tuple[int, int]] = [(0, _END)]
    for event in sorted(events, key=lambda e: (e.start, -e.end)):
        while open_[-1][1] < event.end:
            open_.pop()
        found = _Event(event.name, _TYPES[event.kind], event.start, event.end, process, event.thread)
        made.append(_Node(len(made), open_[-1][0], found))
        open_.append((len(made) - 1, event.end))
    return made


def save(recorder: Recorder, path: Path) -> None:
    """Writes the events in Paddle's format.

    Args:
        recorder: What was recorded.
        path: The file; its folder exists.

    Raises:
        ReportError: If it cannot be written.
    """
    rows: dict[int, list[Record]] = {}
    # Streams of devices are threads with small numbers.
    streams = {name: number for number, name in enumerate(sorted({e.queue for e in recorder.events if e.queue}), 1)}
    for event in recorder.events:
        rows.setdefault(streams.get(event.queue, event.thread), []).append(event)
    threads = [_Thread(thread, _nodes(events, os.getpid())) for thread, events in rows.items()]
    write_report(path, paddle_proto.write_message(_Trace(VERSION, 0, threads)), "the recording")


# ------------------------------------------------------------------------------------------------------------------ read
@dataclass
class HostPythonNode:
    """An event, and those that ran within it.

    Attributes:
        name: Of an operator, its type.
        type: What kind of event it is.
        start_ns, end_ns: Nanoseconds of a clock without a known beginning.
        process_id, thread_id: Where it ran.
        children_node: The events within it, in order.
    """

    name: str
    type: TracerEventType
    start_ns: int
    end_ns: int
    process_id: int
    thread_id: int
    children_node: list[HostPythonNode] = field(default_factory=list)


class ProfilerResult:
    """A recording that was read from a file."""

    def __init__(self, trace: _Trace) -> None:
        self._trace = trace
        self._data = {thread.thread & _END: _tree(thread) for thread in trace.threads}

    def get_data(self) -> dict[int, HostPythonNode]:
        """Returns for each thread the root of its events."""
        return self._data

    def get_extra_info(self) -> dict[str, str]:
        """Returns what else the file says, such as the names of threads."""
        return {fact.name: fact.value for fact in self._trace.facts}

    def get_version(self) -> str:
        """Returns the version of the format."""
        return self._trace.version

    def get_span_indx(self) -> int:
        """Returns the number of the recording."""
        return self._trace.span

    def save(self, file_name: str, format: str = "pb") -> None:
        """Writes the file once more.

        Args:
            file_name: The file.
            format: Whatever is given, it is Paddle's own.

        Raises:
            ReportError: If it cannot be written (an ``OSError``).
        """
        write_report(file_name, paddle_proto.write_message(self._trace), "the recording")


def _tree(thread: _Thread) -> HostPythonNode:
    made: dict[int, HostPythonNode] = {}
    for node in thread.nodes:
        event = node.event
        if event is None or node.id in made or (node.parent not in made if made else node.parent != -1):
            raise ValueError("the events of a thread are not a tree")
        made[node.id] = HostPythonNode(
            event.name, TracerEventType(event.type), event.start & _END, event.end & _END, event.process & _END,
            event.thread & _END,
        )  # fmt: skip
        if node.parent != -1:
            made[node.parent].children_node.append(made[node.id])
    if not made:
        raise ValueError("a thread without events")
    return next(iter(made.values()))


@export("profiler.load_profiler_result")
def load_profiler_result(filename: str) -> ProfilerResult:
    """Reads a recording in Paddle's own format, written by :func:`export_protobuf` or by Paddle.

    Args:
        filename: The file.

    Returns:
        Its ``get_data()`` gives the events of each thread, as trees.

    Raises:
        CheckpointError: If there is no such file, or it is another one (an ``OSError``).

    Example:
        >>> with paddle.profiler.Profiler(on_trace_ready=lambda profiler: None) as profiler:
        ...     with paddle.profiler.RecordEvent("loading"):
        ...         _ = np.ones(4)
        >>> profiler.export("trace.pb", format="pb")
        >>> roots = paddle.profiler.load_profiler_result("trace.pb").get_data()
        >>> [event.name for root in roots.values() for event in root.children_node]
        ['loading']
    """
    check_type(filename, (str, os.PathLike), "filename", "load_profiler_result")
    try:
        data = read_bytes(filename)
        return ProfilerResult(paddle_proto.read_message(_Trace, data, budget_of_program(len(data), filename)))
    except LoadLimitError:
        raise
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"cannot read the recording {filename}",
            expected="a file that export_protobuf or Paddle wrote",
            received=reason(error),
            fix="a Chrome trace (.json) is shown by a browser; for this format call Profiler.export(path, format='pb')",
        ) from error
