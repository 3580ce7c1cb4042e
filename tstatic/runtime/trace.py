"""Records when operators run; one variable says whether anything is recorded, so that nothing is paid otherwise."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from tstatic.devices.base import Device
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import Call
from tstatic.ir.types import Meta, dtype_of

recorder: Recorder | None = None
"""Where running sessions record; ``None`` while nothing is recorded."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """Something that took a while.

    Attributes:
        kind: ``"op"``, ``"run"`` (of an Executor), ``"compile"``, ``"user"`` (a RecordEvent) or ``"step"`` (of a Profiler).
        name: Of the op, its type.
        start, end: Nanoseconds of ``time.perf_counter_ns``.
        thread: Identity of the thread.
        op: The op, for its place in the user's script.
        run: Number of the run of the session, to tell two executions of an op.
        metas: Shapes and dtypes of the op's inputs, if they are recorded.
    """

    kind: str
    name: str
    start: int
    end: int
    thread: int
    op: FrozenOp | None = None
    run: int = 0
    metas: tuple[Meta, ...] = ()


class Recorder:
    """Collects events of all threads.

    Args:
        shapes: Keep the shapes of the ops' inputs.
        memory: Note after each run how many bytes the temporaries of the Executor hold.
    """

    def __init__(self, shapes: bool = False, memory: bool = False) -> None:
        self.shapes = shapes
        self.memory = memory
        self.events: list[TraceEvent] = []
        self.held: list[tuple[int, int]] = []
        self._runs = itertools.count()

    @contextmanager
    def span(self, kind: str, name: str) -> Iterator[None]:
        """Records how long the statements of a ``with`` take."""
        start = perf_counter_ns()
        try:
            yield
        finally:
            self.add(kind, name, start)

    def add(self, kind: str, name: str, start: int) -> None:
        """Records what began at ``start`` and ends now."""
        self.events.append(TraceEvent(kind, name, start, perf_counter_ns(), threading.get_ident()))

    # ------------------------------------------------------------------------------------------------------------ sessions
    def run_region(
        self, region: str, calls: Iterator[Call], op_of_call: Sequence[Any], arrays: Mapping[str, Any], device: Device
    ) -> None:
        """Runs the calls of a region as a session does, and records when its ops run.

        Of a device that queues its work, it records when the region was queued.

        Args:
            region: ``"main"`` or ``"update"``.
            calls: Function and arguments, to be taken one by one: what is left says where an error happened.
            op_of_call: The op of each call; for work of a pool of threads, ``ends`` of its tiles.
            arrays: Value -> array.
            device: The session's.
        """
        if not device.deferred:
            self._run_calls(calls, op_of_call, arrays)
            return
        with self.span("op", f"{device.name}::{region}"):
            for function, args in calls:
                function(*args)

    def _run_calls(self, calls: Iterator[Call], op_of_call: Sequence[Any], arrays: Mapping[str, Any]) -> None:
        run = next(self._runs)
        owner, start, end = None, 0, 0
        for (function, args), op in zip(calls, op_of_call, strict=False):
            if op is not owner and isinstance(owner, FrozenOp):
                self._add(owner, start, end, run, arrays)
            if isinstance(op, FrozenOp):
                start = start if op is owner else perf_counter_ns()
                function(*args)
                end = perf_counter_ns()
            else:
                function(*self._timed_tiles(args, op, run, arrays))
            owner = op
        if isinstance(owner, FrozenOp):
            self._add(owner, start, end, run, arrays)

    def _add(self, op: FrozenOp, start: int, end: int, run: int, arrays: Mapping[str, Any]) -> None:
        metas: tuple[Meta, ...] = ()
        if self.shapes:
            found = [arrays[value] for value in op.reads() if hasattr(arrays.get(value), "dtype")]
            metas = tuple(Meta(array.shape, dtype_of(array.dtype)) for array in found)
        self.events.append(TraceEvent("op", op.type, start, end, threading.get_ident(), op, run, metas))

    def _timed_tiles(self, args: tuple[Any, ...], ends: Any, run: int, arrays: Mapping[str, Any]) -> Any:
        """Returns the tiles of a pool's work with each call timed; as many calls as before, so that errors find their op."""

        def timed(function: Callable[..., Any], args: tuple[Any, ...], op: FrozenOp) -> None:
            start = perf_counter_ns()
            function(*args)
            self._add(op, start, perf_counter_ns(), run, arrays)

        def tile(calls: Sequence[Call], row: Sequence[tuple[int, FrozenOp]]) -> list[Call]:
            owners = [
                op for (end, op), (start, _) in zip(row, [(0, None), *row], strict=False) for _ in range(start, end)
            ]
            return [(timed, (function, own, op)) for (function, own), op in zip(calls, owners, strict=True)]

        (bound,) = args
        return ([[tile(calls, row) for calls, row in zip(tiles, ends, strict=True)] for tiles in bound],)

    def note_memory(self, held_bytes: int) -> None:
        """Records how many bytes temporaries hold after a run."""
        if self.memory:
            self.held.append((perf_counter_ns(), held_bytes))
