"""Holds what was measured while programs ran; one variable says whether anything is recorded, so that nothing is paid otherwise."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, NamedTuple

from tstatic.display import size
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta

recorder: Recorder | None = None
"""Where running sessions record; ``None`` while nothing is recorded."""


@dataclass(frozen=True, slots=True)
class Record:
    """Something that took a while.

    Attributes:
        kind: ``"op"``, ``"kernel"`` (one that torch's profiler saw within an op), ``"run"`` (of an Executor), ``"device"`` (a run
            on a device whose work is queued, between its first and its last event), ``"queue"`` (the host queues a region),
            ``"bind"`` (the profiler prepares a region that it has not recorded before), ``"compile"``, ``"data"`` (the script
            waits for a batch), ``"load"`` (a batch is made), ``"user"`` (a RecordEvent) or ``"step"`` (of a Profiler).
        name: Of an op, its type.
        start, end: Nanoseconds of ``time.perf_counter_ns``, or of the device's virtual clock.
        thread: Identity of the host's thread; 0 for work on a device with a clock of its own.
        op: The op, for its place in the user's script.
        run: Number of the run, to tell two executions of an op.
        metas: Shapes and dtypes of the op's inputs, if they are recorded.
        nbytes: Bytes of memory that an op reads and writes; of an op whose work is recorded in pieces, this piece's share.
        kernel: The generated kernel that ran; empty where a library or the op's reference did.
        queue: The device's stream; empty on the host.
        device: Name of the device.
        update: Whether an op belongs to the region that writes parameters.
    """

    kind: str
    name: str
    start: int
    end: int
    thread: int
    op: FrozenOp | None = None
    run: int = 0
    metas: tuple[Meta, ...] = ()
    nbytes: int = 0
    kernel: str = ""
    queue: str = ""
    device: str = ""
    update: bool = False

    @property
    def length(self) -> int:
        """Nanoseconds."""
        return self.end - self.start


class OpFacts(NamedTuple):
    """What a record says of an op besides its times."""

    nbytes: int
    metas: tuple[Meta, ...]
    kernel: str


class Machine(NamedTuple):
    """What the shares of a device's bandwidth refer to.

    Attributes:
        bandwidth: Bytes per second; 0 where it is not known.
        source: Where the number is from.
        clock: How the device's ops are timed.
    """

    bandwidth: float
    source: str
    clock: str

    def told(self) -> str:
        """Returns all of it as a sentence."""
        known = f"{size(self.bandwidth)}/s ({self.source})" if self.bandwidth else f"not known ({self.source})"
        return f"times by {self.clock}; bandwidth {known}"


class Recorder:
    """Collects the records of all threads and devices.

    Args:
        shapes: Keep the shapes of the ops' inputs.
        memory: Note after each run how many bytes the temporaries of the Executor hold.
        ops: Record single ops; otherwise only runs, so that regions are replayed as they are bound.
        kernels: Ask torch's profiler for the kernels of a GPU.

    Attributes:
        held: (nanoseconds, bytes of temporaries) after each run.
        machines: Name of a device -> a function that returns what its shares refer to; may measure, so it is called late.
        threads: Identity of a thread -> its name.
    """

    def __init__(self, shapes: bool = False, memory: bool = False, ops: bool = True, kernels: bool = False) -> None:
        self.shapes = shapes
        self.memory = memory
        self.ops = ops
        self.kernels = kernels
        self.held: list[tuple[int, int]] = []
        self.machines: dict[str, Callable[[], Machine]] = {}
        self.threads: dict[int, str] = {}
        self._numbers = itertools.count()
        self._records: list[Record] = []
        # Records cost more than a step may: what a run wrote is kept as it is, and made into records when these are looked at.
        self._spans: list[tuple[str, str, int, int, int]] = []
        self._raw: list[Callable[[], Iterable[Record]]] = []
        self._finishers: list[Callable[[], None]] = []

    @property
    def events(self) -> list[Record]:
        """All records, in the order in which they began."""
        raw, self._raw = self._raw, []
        spans, self._spans = self._spans, []
        for make in raw:
            self._records.extend(make())
        self._records.extend(Record(*span) for span in spans)
        self._records.sort(key=lambda one: (one.start, -one.end))
        return self._records

    def clear(self) -> None:
        """Forgets what was recorded so far."""
        self._raw.clear()
        self._spans.clear()
        self._records.clear()
        self.held.clear()

    def finish(self) -> None:
        """Takes what devices have not handed over yet; called once, at the end."""
        for finish in self._finishers:
            finish()
        self._finishers.clear()

    def at_end(self, finish: Callable[[], None]) -> None:
        """Has :meth:`finish` call a function."""
        self._finishers.append(finish)

    def number(self) -> int:
        """Returns the number of a new run of a region."""
        return next(self._numbers)

    def add_raw(self, make: Callable[[], Iterable[Record]]) -> None:
        """Adds records that a function makes when they are looked at."""
        self._raw.append(make)

    def add_record(self, record: Record) -> None:
        """Adds a record."""
        self._records.append(record)

    def add(self, kind: str, name: str, start: int) -> None:
        """Records what began at ``start`` and ends now, in this thread."""
        self._spans.append((kind, name, start, perf_counter_ns(), self.thread()))

    def thread(self) -> int:
        """Returns the identity of this thread, whose name the recorder remembers."""
        found = threading.get_ident()
        if found not in self.threads:
            self.threads[found] = threading.current_thread().name
        return found

    def note_memory(self, held_bytes: int) -> None:
        """Records how many bytes temporaries hold after a run."""
        self.held.append((perf_counter_ns(), held_bytes))


def each(items: Iterable[Any], kind: str, name: str) -> Iterator[Any]:
    """Yields items, and records how long each took to come.

    Args:
        items: Batches, for example.
        kind: ``"data"`` or ``"load"``.
        name: What the records are called.
    """
    source = iter(items)
    try:
        while True:
            before, start = recorder, perf_counter_ns()
            try:
                # In a list and taken from it: a variable would keep the batch, whose memory is used again once nobody has it.
                taken = [next(source)]
            except StopIteration:
                return
            if before is not None and before is recorder:
                before.add(kind, name, start)
            yield taken.pop()
    finally:
        if isinstance(source, Generator):
            source.close()


@contextmanager
def spanning(kind: str, name: str) -> Iterator[None]:
    """Records how long a block takes, or, as a decorator, each call of a function, if anything is recorded then."""
    into, start = recorder, perf_counter_ns()
    yield
    if into is not None:
        into.add(kind, name, start)
