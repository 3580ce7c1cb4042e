"""Records a graph of the fake device, and raises for what CUDA refuses, or silently gets wrong, while it captures one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.devices.base import Event
from tstatic.devices.fake.clock import FakeEvent, FakeStream
from tstatic.errors import DeviceError
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import Call
from tstatic.where import show


def against_rules(what: str, fix: str, op: FrozenOp | None = None) -> DeviceError:
    """Returns the error of what must not happen while a graph is captured."""
    error = DeviceError(
        f"{what} while a graph is captured",
        expected="calls that put work into the captured streams, in an order that their own events give",
        received=f"work of operator '{op.type}'" if op is not None else "a call of the runtime",
        fix=fix,
    )
    if op is not None:
        error.add_context(op=op.type, where=show(op.where))
    return error


def waits_from_outside() -> DeviceError:
    """Returns the error of a stream outside of a graph that waits for an event of the graph's own."""
    return DeviceError(
        "a stream waited for an event that a graph recorded",
        expected="an event that is recorded behind the launch of the graph",
        received="one that is recorded within it",
        fix="record another event in the stream that launches the graph",
    )


class Capture:
    """What is captured: the calls that a launch makes, and how far each stream has seen the others.

    Args:
        streams: The streams; the first one must have seen all work of the others in the end.
    """

    def __init__(self, streams: Sequence[FakeStream]) -> None:
        self.calls: list[Call] = []
        self.streams = streams
        # Per stream: how many pieces of work of each stream come before what it does next. The others have none before they join.
        self._seen: dict[FakeStream, dict[FakeStream, int]] = {streams[0]: {}}
        self._events: dict[Event, dict[FakeStream, int]] = {}

    def put(self, stream: FakeStream, call: Call, op: FrozenOp | None) -> None:
        """Adds work of a stream."""
        seen = self._seen.get(stream)
        if seen is None:
            raise against_rules("work was put into a stream that has not joined", "wait for the first stream first", op)
        seen[stream] = seen.get(stream, 0) + 1
        self.calls.append(call)

    def record(self, event: Event, stream: FakeStream, call: Call) -> None:
        """Adds the recording of an event."""
        if stream not in self._seen:
            raise against_rules(
                "an event was recorded in a stream that has not joined", "wait for the first stream first"
            )
        self._events[event] = dict(self._seen[stream])
        if isinstance(event, FakeEvent):
            event.of_graph = True
        self.calls.append(call)

    def wait(self, event: Event, stream: FakeStream, call: Call) -> None:
        """Adds a wait for an event."""
        reached = self._events.get(event)
        if reached is None:
            raise against_rules("a stream waited for an event that was recorded before", "record it within the graph")
        seen = self._seen.setdefault(stream, {})
        for other, count in reached.items():
            seen[other] = max(seen.get(other, 0), count)
        self.calls.append(call)

    def end(self) -> Any:
        """Returns what a launch does.

        Raises:
            DeviceError: If the first stream does not wait for all work.
        """
        last = self._seen[self.streams[0]]
        for stream, seen in self._seen.items():
            if seen.get(stream, 0) > last.get(stream, 0):
                raise against_rules("a stream was left open", "let the first stream wait for it")
        return tuple(self.calls)


__all__ = ["Capture", "against_rules", "waits_from_outside"]
