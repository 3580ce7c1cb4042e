"""Holds the streams of the fake device, and says what their work takes on its virtual clock."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tstatic.devices.base import Event, QueuedWorkError
from tstatic.devices.step import Stream
from tstatic.errors import ProgramError
from tstatic.ir.frozen import FrozenOp
from tstatic.target import Target


class Cost(NamedTuple):
    """What an item takes: seconds, and bytes in a second."""

    launch: float
    bandwidth: float

    def seconds(self, nbytes: int) -> float:
        """Returns the time of an item that reads and writes so many bytes."""
        return self.launch + nbytes / self.bandwidth


def costs(chip: Target) -> dict[str, Cost]:
    """Returns what each kind of work takes on a chip.

    ``kernel``: an op, or a launch of a generated kernel. ``copy``: between the memories of host and chip. ``collective``: work in
    a stream of collectives. ``host``: an op that calls Python or finds sizes, which the device waits for.

    Raises:
        ProgramError: If the chip's bandwidth is not known.
    """
    if not chip.bandwidth:
        raise ProgramError(
            f"it is not known how fast the memory of {chip.name} is, so nothing can be said of its times",
            expected="a chip whose bandwidth is known",
            received=chip.name,
            fix="give the Target a bandwidth: dataclasses.replace(target, bandwidth=...)",
        )
    return {
        # Orders of magnitude, not measurements: a launch takes microseconds, a copy from the host longer, a collective and a call
        # into Python several times as long. They are there to compare plans on one clock.
        "kernel": Cost(4e-6, chip.bandwidth),
        "copy": Cost(8e-6, chip.host_bandwidth),
        "collective": Cost(2e-5, chip.link_bandwidth),
        "host": Cost(3e-5, 1e10),
    }


class Mark:
    """One recording of an event: waits refer to it, so that a later recording does not affect them.

    ``error`` is that of the work before it, if it failed; streams that wait for the event then fail, too. ``time`` is that of the
    stream when it was reached.
    """

    __slots__ = ("done", "error", "number", "stream", "time")

    def __init__(self, stream: FakeStream) -> None:
        self.stream = stream
        # Numbered when the host records it: of two marks in a stream, the later one implies the earlier.
        self.number = next(stream.marks)
        self.done = False
        self.error: QueuedWorkError | None = None
        self.time = 0.0


class FakeEvent(Event):
    """A point in a stream; a wait for an event that was never recorded returns at once.

    Attributes:
        mark: Its last recording.
        of_graph: Whether a graph recorded it last: then it is the graph's alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mark: Mark | None = None
        self.of_graph = False


class Item:
    """An item of a stream: work, or a wait; it begins at ``after`` at the earliest, when the host queued it."""

    __slots__ = ("after", "marks", "op", "run", "seconds", "waits_for")

    def __init__(
        self,
        run: Callable[[], None] | None = None,
        op: FrozenOp | None = None,
        waits_for: Mark | None = None,
        marks: Mark | None = None,
        seconds: float = 0.0,
    ) -> None:
        self.run = run
        self.seconds = seconds
        self.after = 0.0
        self.op = op
        self.waits_for = waits_for
        self.marks = marks


class FakeStream(Stream):
    """A queue.

    Attributes:
        items: The items that have not run.
        busy: Whether an item runs now, in some thread.
        running: The op whose work runs now.
        error: The error of its work, until the stream is synchronized or discarded.
        random: Draws which of several streams continues while this one's end is awaited.
        capturing: The graph that is captured, if its work is recorded instead of running.
        collective: Whether it is for collectives.
        clock: The virtual time at which its last item ended.
        spent: The virtual seconds of all its work, waits left out.
    """

    def __init__(self, seed: str, collective: bool = False) -> None:
        self.collective = collective
        self.clock = self.spent = 0.0
        self.items: deque[Item] = deque()
        self.busy = False
        self.running: FrozenOp | None = None
        self.error: QueuedWorkError | None = None
        self.marks = itertools.count()
        # A generator of its own: other streams, and other threads' draws, do not move its order.
        self.random = random.Random(seed)
        self.capturing: Any = None
