"""Records when the ops of a bound region run: by the host's clock, or by events of a device whose work runs late."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import Call
from tstatic.records import OpFacts, Record, Recorder


class EventClock(Protocol):
    """What is needed of a device: its events, and the seconds between two of them."""

    name: str
    virtual_clock: bool

    def event(self) -> Any:
        """Returns a new event."""

    def record(self, event: Any, stream: Any) -> None:
        """Records an event after the work that is in a stream."""

    def elapsed(self, start: Any, stop: Any) -> float:
        """Returns the seconds between two events."""


Facts = Mapping[int, OpFacts]
"""Identity of an op -> what its records say."""
NO_FACTS = OpFacts(0, (), "")  # of an op that the session told nothing of: a record without bytes is better than none


class RegionLog:
    """The marks of one region of one session.

    A run writes numbers only; they become records when somebody looks at them.

    Args:
        recorder: Gets the records.
        device: The session's.
        update: Whether the region writes parameters.
        facts: Returns what is known of the ops after a run.
        streams: Stream -> what it is called; the first one is that in which a run begins.
    """

    def __init__(
        self,
        recorder: Recorder,
        device: EventClock,
        update: bool,
        facts: Callable[[], Facts],
        streams: Mapping[Any, str],
    ) -> None:
        self.recorder = recorder
        self.device = device
        self._update = update
        self._facts = facts
        self._streams = streams
        self._ops: list[FrozenOp] = []
        self._stamps: list[int] = []
        # Reads the clock and appends to the list, all in C: 115 ns with its turn of the loop; a function of Python takes 140.
        self._stamp: Call = next, (map(self._stamps.append, iter(perf_counter_ns, -1)),)
        self._pieces: list[tuple[FrozenOp, int, int, int]] = []
        self._spans: list[tuple[FrozenOp, Any, Any, Any]] = []
        self._anchor = device.event()
        self._began = 0
        self._run = 0
        self._known: Facts = {}
        self._queued = False

    # ----------------------------------------------------------------------------------------------------- while binding
    def stamped(self, op: FrozenOp, calls: Sequence[Call]) -> list[Call]:
        """Returns calls that are done when they return, and behind them one that reads the host's clock."""
        self._ops.append(op)
        return [*calls, self._stamp]

    def timed_tiles(self, bound: Sequence[Sequence[Sequence[Call]]], ends: Sequence[Any]) -> list[list[list[Call]]]:
        """Returns the tiles of a pool's work with each call timed; as many calls as before, so that errors find their op.

        Args:
            bound: ``bound[thread][tile]``: calls.
            ends: Of each tile: (number of calls up to here, op).
        """
        append, now, thread = self._pieces.append, perf_counter_ns, self.recorder.thread

        def timed(function: Callable[..., Any], args: tuple[Any, ...], op: FrozenOp) -> None:
            start = now()
            function(*args)
            append((op, start, now(), thread()))

        def tile(calls: Sequence[Call], row: Sequence[tuple[int, FrozenOp]]) -> list[Call]:
            owners = [
                op for (end, op), (start, _) in zip(row, [(0, None), *row], strict=False) for _ in range(start, end)
            ]
            return [(timed, (function, own, op)) for (function, own), op in zip(calls, owners, strict=True)]

        return [[tile(calls, row) for calls, row in zip(tiles, ends, strict=True)] for tiles in bound]

    def pooled(self, call: Call, ends: Sequence[Any]) -> list[Call]:
        """Returns a call of a pool with its tiles timed, and behind it one that begins the time of the next op."""
        function, (bound,) = call
        stamps = self._stamps

        def restart() -> None:
            # No op of this thread's ends here: a mark that is skipped, and the next op begins at it.
            stamps.append(-perf_counter_ns())

        return [(function, (self.timed_tiles(bound, ends),)), (restart, ())]

    def bracketed(self, op: FrozenOp, calls: Sequence[Call], stream: Any) -> list[Call]:
        """Returns calls that queue work, between two events."""
        begin, end = self.device.event(), self.device.event()
        self._spans.append((op, stream, begin, end))
        return [(self.device.record, (begin, stream)), *calls, (self.device.record, (end, stream))]

    # ----------------------------------------------------------------------------------------------------- while running
    def begin(self) -> None:
        """Begins a run of the region."""
        # First: this run records the same events anew, and the times of the last one would be lost.
        self.collect()
        self._stamps.clear()
        self._pieces.clear()
        if self._spans:
            self.device.record(self._anchor, next(iter(self._streams)))
        self._began = perf_counter_ns()
        self._stamps.append(self._began)

    def end(self, run: int) -> None:
        """Ends a run of the region: all its calls returned.

        Args:
            run: Number of the run.
        """
        # Asked now: the next run may have other sizes.
        known = self._known = self._facts()
        self._run = run
        thread = self.recorder.thread()
        if self._spans:
            self.recorder.add("queue", f"{self.device.name}: {'update' if self._update else 'main'}", self._began)
            self._queued = True
            return
        # Copies, because the next run clears both lists; the records are made when somebody looks.
        marks, pieces = self._stamps.copy(), self._pieces.copy()
        self.recorder.add_raw(lambda: self._of_host(marks, pieces, known, run, thread))

    def drop(self) -> None:
        """Forgets a run that failed: its events may never be reached."""
        self._queued = False

    def collect(self) -> None:
        """Takes the times of the last run's events, which have been reached when the run ended."""
        if not self._queued:
            return
        self._queued = False
        # A GPU's events tell only differences: its times are put where the host saw the run begin.
        base = round(self._anchor.time * 1e9) if self.device.virtual_clock else self._began
        elapsed, anchor = self.device.elapsed, self._anchor
        for op, stream, begin, end in self._spans:
            start = base + round(elapsed(anchor, begin) * 1e9)
            length = round(elapsed(begin, end) * 1e9)
            name = self._streams.get(stream, "stream")
            self.recorder.add_record(self._record(op, start, start + length, 0, self._run, self._known, 1, 0, name))

    # ----------------------------------------------------------------------------------------------------------- records
    def _of_host(
        self,
        marks: Sequence[int],
        pieces: Sequence[tuple[FrozenOp, int, int, int]],
        known: Facts,
        run: int,
        thread: int,
    ) -> Iterator[Record]:
        """Returns the records of a run whose calls ended with their work."""
        ops = iter(self._ops)
        found = list(pieces)
        for start, end in itertools.pairwise(marks):
            if end > 0:
                found.append((next(ops), abs(start), end, thread))
        count: dict[int, int] = {}
        for op, *_ in found:
            count[id(op)] = count.get(id(op), 0) + 1
        seen: dict[int, int] = {}
        for op, start, end, where in found:
            at = seen[id(op)] = seen.get(id(op), -1) + 1
            yield self._record(op, start, end, where, run, known, count[id(op)], at)

    def _record(
        self,
        op: FrozenOp,
        start: int,
        end: int,
        thread: int,
        run: int,
        known: Facts,
        pieces: int,
        piece: int,
        queue: str = "",
    ) -> Record:
        facts = known.get(id(op), NO_FACTS)
        # The pieces' bytes are as many as the op's.
        share = facts.nbytes * (piece + 1) // pieces - facts.nbytes * piece // pieces
        return Record(
            "op", op.type, start, end, thread, op, run, facts.metas, share, facts.kernel, queue, self.device.name, self._update
        )  # fmt: skip
