"""Runs the work of the fake device's streams late, in an order that is drawn anew each time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from tstatic.devices.base import QueuedWorkError
from tstatic.devices.fake.clock import FakeStream, Item, Mark
from tstatic.errors import DeviceError
from tstatic.locks import rlock


class LateWork:
    """The items that streams have not run.

    Any thread that waits may run items of any stream; each item runs once, and those of a stream one by one.
    """

    def __init__(self) -> None:
        self._queued: set[FakeStream] = set()
        # Reentrant: `run` and `_next` hold it when they call `drop`.
        self._turn = threading.Condition(rlock())

    def open(self) -> list[FakeStream]:
        """Returns the streams that have items."""
        with self._turn:
            return [*self._queued]

    def append(self, stream: FakeStream, item: Item, now: float) -> None:
        """Adds an item, which begins at a virtual time at the earliest."""
        item.after = now
        with self._turn:
            stream.items.append(item)
            # Work is done even if its stream is no longer referenced.
            self._queued.add(stream)

    def drop(self, streams: Sequence[FakeStream], error: QueuedWorkError) -> None:
        """Drops the streams' items; what waits for their events fails with ``error``."""
        with self._turn:
            for stream in streams:
                for item in stream.items:
                    if item.marks is not None:
                        item.marks.done, item.marks.error = True, error
                stream.items.clear()
                stream.error = None
                self._queued.discard(stream)
            self._turn.notify_all()

    def run(self, wanted: Sequence[FakeStream], until: Mark | None = None) -> None:
        """Runs items until the wanted streams are empty, and of other streams only items that these wait for: the rest is late.

        With ``until``, the wanted stream is that of the mark, and nothing behind it is needed.

        Of the streams that can continue, the one with the highest drawn rank does. Its rank is redrawn after each item or,
        in most runs, only sometimes: then one stream runs far ahead of the others, or far behind. Uniform draws alone find
        far fewer missing waits.
        """
        ranks: dict[FakeStream, float] = {}
        # Two runs in three redraw a rank once in ten items: long runs of one stream find what even mixing does not.
        anew = wanted[0].random.choice((0.1, 0.1, 1.0)) if wanted else 0.0
        with self._turn:
            needed: Mapping[FakeStream, Mark | None] = _needed(wanted, until)
        while (taken := self._next(wanted, until, needed, ranks, anew)) is not None:
            stream, item, needed = taken
            error = None if item.waits_for is None else item.waits_for.error
            reached = 0.0 if item.waits_for is None else item.waits_for.time
            stream.clock = max(stream.clock, item.after, reached) + item.seconds
            stream.spent += item.seconds
            try:
                if item.run is not None:
                    with np.errstate(all="ignore"):  # a device has no floating-point warnings
                        item.run()  # without the lock, so that other threads run other streams meanwhile
            except Exception as raised:
                error = QueuedWorkError(item.op, stream)
                error.__cause__ = raised
            # Also after an interrupt: all who wait for a stream that stayed busy would wait for ever.
            finally:
                with self._turn:
                    stream.running, stream.busy = None, False
                    if item.marks is not None:
                        item.marks.done, item.marks.error = True, error
                    if error is not None:
                        self.drop([stream], error)
                        # Behind `drop`, which clears it.
                        stream.error = error
                    elif not stream.items:
                        self._queued.discard(stream)
                    self._turn.notify_all()

    def _next(
        self,
        wanted: Sequence[FakeStream],
        until: Mark | None,
        needed: Mapping[FakeStream, Mark | None],
        ranks: dict[FakeStream, float],
        anew: float,
    ) -> tuple[FakeStream, Item, Mapping[FakeStream, Mark | None]] | None:
        """Takes the item that runs next, and marks its stream busy; returns ``None`` once the wanted streams are empty.

        Returns:
            The stream, the item, and the streams that are needed from now on.
        """
        with self._turn:
            while True:
                if until is not None and until.done:
                    if until.error is not None:
                        raise until.error
                    return None
                # First: a stream whose work failed has been emptied, and would count as done.
                failed = next((s.error for s in wanted if s.error is not None), None)
                if failed is not None:
                    self.drop(wanted, failed)
                    raise failed
                if not any(s.items or s.busy for s in wanted):
                    return None
                ready = [s for s, last in needed.items() if _ready(s) and (last is None or not last.done)]
                if ready:
                    break
                # If another thread runs an item, that may make a stream ready; otherwise nothing ever will.
                if not any(s.busy for s in needed):
                    # Another thread may have queued work meanwhile that waits for streams which were empty before.
                    again = _needed(wanted, until)
                    if again != needed:
                        needed = again
                        continue
                    for one in needed:
                        self.drop([one], QueuedWorkError(None, one))
                    raise DeviceError(
                        "streams wait for each other",
                        expected="an event that is recorded before another stream waits for it",
                        received="streams of which none can go on",
                        fix="record the event first",
                    )
                self._turn.wait()
            draw = wanted[0].random
            for one in ready:
                ranks.setdefault(one, draw.random())
            stream = max(ready, key=ranks.__getitem__)
            if draw.random() < anew:
                ranks[stream] = draw.random()
            item = stream.items.popleft()
            stream.busy, stream.running = True, item.op
            return stream, item, needed


def _needed(wanted: Sequence[FakeStream], until: Mark | None) -> dict[FakeStream, Mark | None]:
    """Returns the wanted streams, and those that they wait for, directly or indirectly, with the last event that they need."""
    found: dict[FakeStream, Mark | None] = dict.fromkeys(wanted, until)
    open_ = list(found.items())
    while open_:
        stream, last = open_.pop()
        for item in stream.items:
            mark = item.waits_for
            if mark is not None and not mark.done:
                known = found.get(mark.stream)
                if mark.stream not in found or (known is not None and known.number < mark.number):
                    found[mark.stream] = mark
                    open_.append((mark.stream, mark))
            if last is not None and item.marks is last:
                break
    return found


def _ready(stream: FakeStream) -> bool:
    """Returns whether the stream's next item can run now."""
    if stream.busy or not stream.items:
        return False
    mark = stream.items[0].waits_for
    return mark is None or mark.done
