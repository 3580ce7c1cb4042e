"""The interface of what moves values: between the places of one process, and between processes.

A transport works on the arrays of the places' *devices*, in their streams; it does not assume that the host can read them. Whether
values pass through the host's memory, and whether the host waits, is the member's own business: nobody else copies for it.

* ``choice``  which member moves values, and why
* ``host``, ``gloo_transport``  members: between the places of a process, and through the host between processes
* ``nccl_transport``, ``nccl_proof``, ``nccl``  members by NVIDIA's NCCL, what its communicators prove first, and its binding
* ``gloo``  gloo of torch, whose calls can be given up
* ``hierarchy``, ``ordered_sum``  hierarchical sums, and sums from the first array to the last
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from tstatic.comm.passes.finite_gradients import Watch
from tstatic.devices import Array, Device, HostArray
from tstatic.devices.base import MemoryKind
from tstatic.devices.step import Stream
from tstatic.ir.opdef import OpDef
from tstatic.ir.recording import Call


class Lane(Protocol):
    """Where a place queues its part of a collective; a ``Communicator`` is one."""

    @property
    def device(self) -> Device:
        """The device that holds the place's arrays."""

    @property
    def stream(self) -> Stream:
        """The stream of its collectives."""

    def bind_definition(
        self, definition: OpDef, ins: Sequence[Any], outs: Sequence[Any], attrs: Mapping[str, Any] | None = None
    ) -> list[Call]:
        """Returns calls that put an op into the stream."""

    def buffer(self, shape: Sequence[int], dtype: Any, kind: MemoryKind = "device") -> Array:
        """Returns an array in memory that lives as long as what the place has bound."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one place brings to a collective.

    Attributes:
        lane: Where its work is queued.
        arrays: Its arrays, contiguous; number ``i`` has the same shape and dtype on all members.
        watch: What looks for NaN and infinity in gradients. Arrays that the host cannot read have been looked at already; a
            member that reads the others anyway looks at them on that occasion.
        staged: Memory that a member may keep from run to run, in which it leaves what it allocates at the first; ``None``: it keeps
            nothing.
    """

    lane: Lane
    arrays: Sequence[Array]
    watch: Watch | None = None
    staged: list[Array | None] | None = None


class Transport(Protocol):
    """Connects members: the places of one process, of which this process has all, or processes, of which it is one.

    All methods but the last two return calls: each run of them moves the values that the arrays have then. They put work into
    the streams, and return when it is there; whether the host waits is up to the member.

    Arguments that they share:
        parts: Those of the members of this process: of all its places; between processes, of one place that acts for all of them.
        mine: The part in whose lane the calls are made. What is divided (:meth:`shared`) has calls of each place, for its share.

    The caller orders the streams: calls of one place may access the arrays of all parts, in its lane's stream. With
    ``own_streams`` they access each part's arrays in the stream of that part's lane alone.

    Attributes:
        rank: Number of the first member of this process.
        size: Number of members.
        only_queues: Whether the calls only put work into streams, so that the host waits neither for a device nor for another
            process.
        own_streams: Whether a part's arrays are accessed in its own lane's stream only: then what a place queues behind a
            collective need not wait for the other places' streams.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def only_queues(self) -> bool: ...
    @property
    def own_streams(self) -> bool: ...

    def of_ring(self, ring: int) -> Self:
        """Returns what moves the values of a ring of collectives, which may be in flight beside those of others."""

    def shared(self, method: str, elements: int) -> bool:
        """Returns whether each place makes calls for its share of the work; otherwise those of one place do all of it.

        Args:
            method: The name of one of those that move values.
            elements: Elements of all arrays of a part.
        """

    def sum(self, parts: Sequence[Part], mine: int, roots: Sequence[int] | None = None, block: int = 0) -> list[Call]:
        """Sums array ``i`` over the members, in place.

        Args:
            parts, mine: See above.
            roots: The member that gets the sum of each array, while the others keep their values; ``None``: all get all.
            block: Size of the blocks of neighbours that sum first; then their first members sum over the blocks, so that less is
                sent between machines. 0: the member decides.
        """

    def scatter(self, parts: Sequence[Part], mine: int, outs: Sequence[Array]) -> list[Call]:
        """Sums the first array, of shape ``[size, *shape]``, over the members; row ``r`` of the sum goes to member ``r``.

        The array has no defined values afterwards.

        Args:
            parts, mine: See above.
            outs: The array of each part that gets its row.
        """

    def gather(self, parts: Sequence[Part], mine: int, outs: Sequence[Array | None]) -> list[Call]:
        """Stacks the members' first arrays, in their order.

        Args:
            parts, mine: See above.
            outs: For each part an array of shape ``[size, *shape]``; ``None`` if it needs none. ``outs[mine]`` is an array.
        """

    def send(self, parts: Sequence[Part], mine: int, roots: Sequence[int]) -> list[Call]:
        """Writes member ``roots[i]``'s array ``i`` into those of all members."""

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        """Returns when all other processes have arrived: what each process noted, by rank.

        Args:
            label: Purpose of the meeting; the same for all.
            note: Any JSON value for the others.
        """

    def abort(self, error: BaseException) -> None:
        """Ends what is on its way, because a place of this process failed: no member waits for it any more."""


class ProcessTransport(Transport, Protocol):
    """Connects processes, some of which may exchange values without the others."""

    def exchange(self, parts: Sequence[Part], mine: int, outs: Sequence[Array]) -> list[Call]:
        """Sends row ``r`` of the first array to member ``r``, for all members; stacks what came from each in ``outs[mine]``."""

    def among(self, ranks: Sequence[int]) -> ProcessTransport:
        """Returns what connects some of the processes, of which this is one; results count members in this order."""


def flattened(device: Device, array: Array) -> Array:
    """Returns a contiguous array with one axis, in the same memory."""
    flat = device.derive(array, _flat)
    assert flat is not None, "every device has flat views of contiguous arrays"
    return flat


def rows_of(device: Device, array: Array) -> list[Array]:
    """Returns the entries of a contiguous array along its first axis, in the same memory."""
    flat = flattened(device, array)
    count, shape = array.shape[0], array.shape[1:]
    return [device.slice(flat, i * (array.size // count), shape) for i in range(count)]


def _flat(array: HostArray) -> HostArray:
    flat = array.reshape(-1)
    # numpy copies silently what it cannot view, and the sum would be lost with the copy.
    assert flat.size == 0 or np.may_share_memory(flat, array), "a collective works in place"
    return flat


__all__ = ["Lane", "Part", "ProcessTransport", "Transport", "flattened", "rows_of"]
