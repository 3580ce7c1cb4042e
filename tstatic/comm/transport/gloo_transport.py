"""Moves values between processes through the host's memory: what a device holds is copied there, sent by gloo, and copied back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

from tstatic.comm.passes.finite_gradients import Look
from tstatic.comm.transport import Lane, Part
from tstatic.devices import Array, HostArray
from tstatic.ir.recording import Call


class HostPeers(Protocol):
    """Processes that exchange arrays of the host; each call returns when that is done: ``Processes``, or some of them."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def all_reduce(self, arrays: Sequence[HostArray], block: int = 0, look: Look | None = None) -> None: ...
    def all_gather(self, array: HostArray) -> HostArray: ...
    def broadcast(self, arrays: Sequence[HostArray], root: int = 0) -> None: ...
    def exchange_parts(self, parts: HostArray) -> HostArray: ...
    def among(self, ranks: Sequence[int]) -> HostPeers: ...
    def agree(self, label: str, note: Any = None) -> Sequence[Any]: ...
    def failed(self, error: BaseException) -> None: ...


class GlooTransport:
    """Connects processes; the host waits for the arrays, for the other processes, and sends the values itself.

    Args:
        peers: The processes.
    """

    only_queues = False
    own_streams = False

    def __init__(self, peers: HostPeers) -> None:
        self.peers = peers

    @property
    def rank(self) -> int:
        return self.peers.rank

    @property
    def size(self) -> int:
        return self.peers.size

    def of_ring(self, ring: int) -> Self:
        return self

    def shared(self, method: str, elements: int) -> bool:
        return False

    def sum(self, parts: Sequence[Part], mine: int, roots: Sequence[int] | None = None, block: int = 0) -> list[Call]:
        return [(self._sum, (parts[mine], roots, block))]

    def _sum(self, part: Part, roots: Sequence[int] | None, block: int) -> None:
        device, stream = part.lane.device, part.lane.stream
        if part.staged is None:
            sent = [_read(part.lane, a) for a in part.arrays]
        else:
            if not part.staged:
                # Kept between runs: pinning memory is slow.
                part.staged[:] = [
                    None if _of_host(a) else part.lane.buffer(a.shape, a.dtype, "pinned") for a in part.arrays
                ]
            for array, staged in zip(part.arrays, part.staged, strict=True):
                if staged is not None:
                    device.copy(staged, array, stream)
            # The host sends the values, so they must have arrived in its memory.
            device.synchronize([stream])
            sent = [a if s is None else s for a, s in zip(part.arrays, part.staged, strict=True)]
        gets = [roots is None or roots[i] == self.rank for i in range(len(sent))]
        # gloo sums in place: a place that keeps its values sends a copy of them.
        sent = [s if got or s is not a else s.copy() for s, a, got in zip(sent, part.arrays, gets, strict=True)]
        # The host has the values in its hands; those of other devices were looked at there.
        if part.watch is not None and part.watch.of_host:
            self.peers.all_reduce(sent, block, part.watch.look_at)
        else:
            self.peers.all_reduce(sent, block)
        for array, host, got in zip(part.arrays, sent, gets, strict=True):
            if got and host is not array:
                device.copy(array, host, stream) if part.staged else device.from_host(array, host, stream)

    def scatter(self, parts: Sequence[Part], mine: int, outs: Sequence[Array]) -> list[Call]:
        return [(self._scatter, (parts[mine], outs[mine]))]

    def _scatter(self, part: Part, out: Array) -> None:
        whole = _read(part.lane, part.arrays[0])
        self.peers.all_reduce([whole])
        part.lane.device.from_host(out, whole[self.rank], part.lane.stream)

    def gather(self, parts: Sequence[Part], mine: int, outs: Sequence[Array | None]) -> list[Call]:
        return [(self._gather, (parts[mine], outs[mine]))]

    def _gather(self, part: Part, out: Array) -> None:
        whole = self.peers.all_gather(_read(part.lane, part.arrays[0]))
        part.lane.device.from_host(out, whole.reshape(out.shape), part.lane.stream)

    def send(self, parts: Sequence[Part], mine: int, roots: Sequence[int]) -> list[Call]:
        return [(self._send, (parts[mine], roots))]

    def _send(self, part: Part, roots: Sequence[int]) -> None:
        hosts = [_read(part.lane, a) for a in part.arrays]
        # Neighbours of one root in one call, in the order that all ranks have.
        for root, group in itertools.groupby(range(len(hosts)), key=lambda i: roots[i]):
            numbers = list(group)
            self.peers.broadcast([hosts[i] for i in numbers], root)
            for i in numbers:
                if root != self.rank and hosts[i] is not part.arrays[i]:
                    part.lane.device.from_host(part.arrays[i], hosts[i], part.lane.stream)

    def exchange(self, parts: Sequence[Part], mine: int, outs: Sequence[Array]) -> list[Call]:
        return [(self._exchange, (parts[mine], outs[mine]))]

    def _exchange(self, part: Part, out: Array) -> None:
        came = self.peers.exchange_parts(_read(part.lane, part.arrays[0]))
        part.lane.device.from_host(out, came, part.lane.stream)

    def among(self, ranks: Sequence[int]) -> GlooTransport:
        return GlooTransport(self.peers.among(ranks))

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        return self.peers.agree(label, note)

    def abort(self, error: BaseException) -> None:
        self.peers.failed(error)


def _of_host(array: Array) -> bool:
    return isinstance(array, np.ndarray)


def _read(lane: Lane, array: Array) -> HostArray:
    """Returns the values, after the work that is in the lane's stream: the array itself if it is the host's, else a copy."""
    if not _of_host(array):
        return lane.device.to_host(array, lane.stream)
    # The host reads the memory itself, so what writes it must have ended.
    lane.device.synchronize([lane.stream])
    host: HostArray = array
    return host


__all__ = ["GlooTransport", "HostPeers"]
