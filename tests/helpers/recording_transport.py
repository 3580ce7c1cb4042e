"""A transport that wraps another one and counts what it does: calls by kind, bytes that pass the host, waits of the host."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tstatic.comm.transport.gloo_transport import GlooTransport
from tstatic.devices.base import Device
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OpDef
from tstatic.ir.recording import Call


@dataclass
class Tally:
    """What was counted, over all places of the process.

    Attributes:
        calls: Runs of what each method returned, and meetings; where the work is divided each place runs its share.
        host_bytes: Bytes that were copied between a device and the host's memory, or that an op of a device took to the host.
        waits: How often the host waited for a device or for other processes.
    """

    calls: Counter[str] = field(default_factory=Counter)
    host_bytes: int = 0
    waits: int = 0
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def add(self, kind: str = "", host_bytes: int = 0, waits: int = 0) -> None:
        with self._lock:
            self.calls.update([kind] if kind else [])
            self.host_bytes += host_bytes
            self.waits += waits

    def taken(self) -> tuple[dict[str, int], int, int]:
        """The counts since the last time: calls, bytes, waits."""
        with self._lock:
            found = dict(self.calls), self.host_bytes, self.waits
            self.calls, self.host_bytes, self.waits = Counter(), 0, 0
            return found


class _RecordedDevice:
    """A device whose visits to the host are counted."""

    def __init__(self, device: Device, tally: Tally) -> None:
        self._device, self._tally = device, tally

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def copy(self, destination: Any, source: Any, stream: Any = None) -> None:
        ends = [isinstance(one, np.ndarray) for one in (destination, source)]
        self._tally.add(host_bytes=source.nbytes if any(ends) and not all(ends) else 0)
        self._device.copy(destination, source, stream)

    def to_host(self, array: Any, stream: Any = None) -> Any:
        device_only = not isinstance(array, np.ndarray)
        self._tally.add(host_bytes=array.nbytes if device_only else 0, waits=device_only)
        return self._device.to_host(array, stream)

    def from_host(self, destination: Any, source: Any, stream: Any = None) -> None:
        self._tally.add(host_bytes=0 if isinstance(destination, np.ndarray) else source.nbytes)
        self._device.from_host(destination, source, stream)

    def synchronize(self, streams: Any = None) -> None:
        self._tally.add(waits=self._device.deferred)
        self._device.synchronize(streams)


class _RecordedLane:
    """A place's lane whose device is recorded."""

    def __init__(self, lane: Any, tally: Tally) -> None:
        self._lane, self._tally = lane, tally
        self.device: Any = _RecordedDevice(lane.device, tally)
        self.stream = lane.stream
        self.buffer = lane.buffer

    def bind_definition(
        self, definition: OpDef, ins: Sequence[Any], outs: Sequence[Any], attrs: Mapping[str, Any] | None = None
    ) -> list[Call]:
        made: list[Call] = self._lane.bind_definition(definition, ins, outs, attrs)
        op = FrozenOp(definition, (), (), definition.complete(attrs or {}))
        if not self._lane.device.host_reason(op):
            return made
        moved = sum(a.nbytes for slot in (*ins, *outs) for a in (slot if isinstance(slot, list) else [slot]))
        return [(self._tally.add, ("", moved)), *made]


class _RecordedPeers:
    """Processes for which the host waits: in each of their collectives."""

    def __init__(self, peers: Any, tally: Tally) -> None:
        self._peers, self._tally = peers, tally
        self.rank, self.size, self.failed = peers.rank, peers.size, peers.failed

    def _waiting(name: str) -> Callable[..., Any]:  # type: ignore[misc] # makes methods
        def method(self: _RecordedPeers, *args: Any) -> Any:
            self._tally.add(waits=1)
            return getattr(self._peers, name)(*args)

        return method

    all_reduce, all_gather, broadcast, exchange_parts, agree = map(
        _waiting, ("all_reduce", "all_gather", "broadcast", "exchange_parts", "agree")
    )

    def among(self, ranks: Sequence[int]) -> _RecordedPeers:
        return _RecordedPeers(self._peers.among(ranks), self._tally)


class RecordingTransport:
    """A transport that does what another one does, and counts it.

    Args:
        inside: The other one.
        tally: Where the counts are added; a new one by default.
    """

    def __init__(self, inside: Any, tally: Tally | None = None) -> None:
        self.tally = tally or Tally()
        self.inside = inside
        if isinstance(inside, GlooTransport) and not isinstance(inside.peers, _RecordedPeers):
            self.inside = GlooTransport(_RecordedPeers(inside.peers, self.tally))
        self.rank, self.size, self.shared, self.abort = inside.rank, inside.size, inside.shared, inside.abort
        self.only_queues = inside.only_queues
        self.own_streams = inside.own_streams

    def of_ring(self, ring: int) -> RecordingTransport:
        return self

    def _recorded(kind: str) -> Callable[..., list[Call]]:  # type: ignore[misc] # makes methods
        def method(self: RecordingTransport, parts: Sequence[Any], *args: Any) -> list[Call]:
            parts = [replace(part, lane=_RecordedLane(part.lane, self.tally)) for part in parts]
            return [(self.tally.add, (kind,)), *getattr(self.inside, kind)(parts, *args)]

        return method

    sum, scatter, gather, send, exchange = map(_recorded, ("sum", "scatter", "gather", "send", "exchange"))

    def among(self, ranks: Sequence[int]) -> RecordingTransport:
        return RecordingTransport(self.inside.among(ranks), self.tally)

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        self.tally.add("agree")
        found: Sequence[Any] = self.inside.agree(label, note)
        return found
