"""Runs collectives between the replicas of one process, whose threads wait for each other; sums have a fixed order.

The host's threads exchange arrays and events, not values: all work on values is put into streams of the replicas' devices.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tstatic.comm.finite_gradients import Finding, Watch, WatchedSum, refusal, settled
from tstatic.devices import HOST, Array, Device, HostArray
from tstatic.devices.base import Event, Memory, MemoryKind
from tstatic.devices.step import BoundStep, Workspace
from tstatic.errors import RankFailedError
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OpDef
from tstatic.ir.recording import Call
from tstatic.ir.ref import plain
from tstatic.ir.types import Meta, dtype_of
from tstatic.where import show

_UNDIVIDED = 1 << 15
"""Elements up to which the last replica to arrive sums everything: dividing the work takes a second rendezvous."""

_SLICE = 1.0
"""Seconds between a waiting replica's own checks whether the others arrived or stopped."""


Look = Callable[[Sequence[HostArray], HostArray], None]


class ReplicaStoppedError(RankFailedError):
    """Raised in a replica that stops at a collective because another one failed."""


class Outer(Protocol):
    """A group of processes, used by one replica on behalf of all of its process."""

    rank: int
    size: int

    def all_reduce(self, arrays: Sequence[HostArray], block: int = 0, look: Look | None = None) -> None:
        """Sums arrays over the processes, in place; arguments as of :meth:`Processes.all_reduce`."""

    def all_gather(self, array: HostArray) -> HostArray:
        """Stacks the processes' arrays along a new first axis, in the order of their ranks."""

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        """Returns when all processes have arrived: what each of them noted, by rank."""


class _Round:
    """One exchange: the payload of each replica, and whether all have arrived."""

    __slots__ = ("done", "error", "label", "payloads")

    def __init__(self, size: int) -> None:
        self.payloads: list[Any] = [None] * size
        self.label = ""
        self.done = False
        self.error: BaseException | None = None


class Group:
    """The replicas of one process; each calls the same collectives in the same order from its own thread.

    Sums are taken in the order of the replicas, element by element, so the bits do not depend on which one arrives first.

    Args:
        size: Number of replicas.
        outer: The group of processes, if there are several.

    Attributes:
        across: Whether the other processes run this step, too; not for a program that does not exchange values.
        calls, moved: Number of collectives so far, and the bytes that one replica sent in them.
        waiting: Replicas that wait for the others inside a collective.
        findings: For each replica, what its gradients of this step were found to hold.
    """

    def __init__(self, size: int, outer: Outer | None = None) -> None:
        self.size = size
        self.outer = outer
        # The caller's thread takes the lock directly: an interrupt inside a condition's methods may leave it held.
        self._lock = threading.Lock()
        self._cond = threading.Condition(self._lock)
        self._round = _Round(size)
        self._count = 0
        self._error: BaseException | None = None
        self.across = outer is not None
        self.calls = 0
        self.moved = 0
        self.waiting: set[int] = set()
        self.findings: list[list[Finding]] = [[] for _ in range(size)]

    @property
    def world(self) -> int:
        """Number of replicas of all processes."""
        return self.size * (self.outer.size if self.outer is not None else 1)

    def communicator(self, rank: int, device: Device = HOST) -> Communicator:
        """Returns the handle of one replica, whose arrays are in the memory of a device."""
        return Communicator(self, rank, device)

    def abort(self, error: BaseException) -> None:
        """Makes every replica that waits, now or later, raise :class:`ReplicaStoppedError`; the first error is kept."""
        with self._lock:
            if self._error is None:
                self._error = error
            self._cond.notify_all()

    @property
    def aborted(self) -> bool:
        return self._error is not None

    def reset(self) -> None:
        """Makes the group usable again; no replica may be inside a collective."""
        with self._lock:
            self._error = None
            self._round = _Round(self.size)
            self._count = 0
            for found in self.findings:
                found.clear()

    def rendezvous(
        self, rank: int, label: str, payload: Any = None, last: Callable[[list[Any]], None] | None = None
    ) -> Any:
        """All-gathers ``payload``: waits for all replicas and returns theirs in order.

        Args:
            rank: The caller's rank.
            label: Purpose of the exchange; the same for all.
            payload: The caller's payload.
            last: Called by the last replica to arrive, before any continues.

        Raises:
            ReplicaStoppedError: If another replica failed.
            RankFailedError: If the replicas are at different collectives.
        """
        with self._cond:
            self._check()
            mine = self._round
            if self._count and mine.label != label:
                error = RankFailedError(
                    f"replica {rank} is at another collective than the others",
                    expected=mine.label,
                    received=label,
                    fix="all replicas run one program; make sure that no operator decides by place what runs",
                )
                self._error = error
                self._cond.notify_all()
                raise error
            mine.label = label
            mine.payloads[rank] = payload
            self._count += 1
            if self._count < self.size:
                self.waiting.add(rank)
                try:
                    while not mine.done:
                        self._cond.wait(_SLICE)
                        # A completed round counts even if the group was aborted meanwhile: the others returned from it, too.
                        if not mine.done:
                            self._check()
                finally:
                    self.waiting.discard(rank)
                if mine.error is not None:
                    raise ReplicaStoppedError(
                        f"replica {rank} stopped: another one failed in '{label}'"
                    ) from mine.error
                return mine.payloads
            # A new round before anybody continues: a fast replica may enter the next rendezvous while slow ones read this one.
            self._round = _Round(self.size)
            self._count = 0
            if last is None:
                mine.done = True
                self._cond.notify_all()
                return mine.payloads
        # The others wait for `done`; the lock is free meanwhile so that an abort can take it.
        try:
            last(mine.payloads)
        except BaseException as error:
            mine.error = error
            raise
        finally:
            with self._cond:
                mine.done = True
                self._cond.notify_all()
        return mine.payloads

    def _check(self) -> None:
        if self._error is not None:
            raise ReplicaStoppedError("this replica stopped because another one failed") from self._error


def add_in_order(parts: Sequence[HostArray], targets: Sequence[HostArray], total: HostArray | None = None) -> None:
    """Writes ``parts[0] + parts[1] + ...``, left to right, to all targets; adds 16-bit floats in float32 and rounds once.

    Args:
        parts: The arrays to add.
        targets: The arrays that receive the sum; they may be among the parts.
        total: Memory for the sum, if the first part is not a target or has 16 bits; allocated if ``None``.
    """
    first = parts[0]
    # float16 and bfloat16: rounding after each addition would lose digits, and depend on the number of parts.
    low = first.dtype.itemsize == 2 and first.dtype.kind in "fV"
    if total is None:
        in_place = not low and any(t is first for t in targets)
        total = first if in_place else np.empty(first.shape, np.float32 if low else first.dtype)
    if len(parts) == 1:
        np.copyto(total, first, casting="unsafe")
    left = first
    for part in parts[1:]:
        np.add(left, part, out=total, dtype=total.dtype, casting="unsafe")
        left = total
    for target in targets:
        if target is not total:
            np.copyto(target, total, casting="unsafe")


def _sum(parts: Sequence[HostArray], targets: Sequence[HostArray], *, scratch: Sequence[HostArray]) -> None:
    add_in_order(parts, targets, *scratch)


def _sum_scratch(parts: Sequence[Meta], targets: Sequence[Meta], *, in_place: bool) -> tuple[Meta, ...]:
    dtype = parts[0].dtype
    return () if in_place and not dtype.is_low else (Meta(parts[0].shape, dtype.compute),)


_SUM = OpDef("c_sum", "X* -> Out*", attrs={"in_place": True}, ref=plain(_sum, _sum_scratch))
"""The sum that one replica takes of all replicas' arrays: an op like any other, so that every device can run it."""


class Communicator:
    """One replica's handle of a group; a collective's reference receives it as ``group``.

    Its methods return when the collective's work is in the stream; on the CPU it is done then.

    Attributes:
        device: The device that holds the replica's arrays.
        stream: The stream of the replica's collectives.
        op: The collective op that is bound, for error messages.
        buffers: The memory that collectives allocated.
    """

    def __init__(self, group: Group, rank: int, device: Device = HOST) -> None:
        self.group = group
        self.rank = rank
        self.device = device
        self.stream = device.stream(collective=True)
        self.op: FrozenOp | None = None
        self.buffers: list[Memory] = []
        self._workspace = Workspace()

    @property
    def size(self) -> int:
        """Number of replicas of this process."""
        return self.group.size

    @property
    def world(self) -> int:
        """Number of replicas of all processes."""
        return self.group.world

    def of_op(self, op: FrozenOp) -> Communicator:
        """Returns a handle of the same replica that binds work of ``op``."""
        # Shallow: `buffers` and the workspace are shared, so that `free` reaches what all handles allocated.
        made = copy.copy(self)
        made.op = op
        return made

    def buffer(self, shape: Sequence[int], dtype: Any, kind: MemoryKind = "device") -> Array:
        """Returns an array in memory of its own, which :meth:`free` frees."""
        meta = Meta(tuple(shape), dtype_of(dtype))
        memory = self.device.allocate(meta.nbytes, kind, "a buffer of collectives")
        memory.touch()
        self.buffers.append(memory)
        return self.device.view(memory, 0, meta)

    def free(self, start: int = 0) -> None:
        """Frees the buffers from number ``start`` on; what was bound to them cannot run any more."""
        for memory in self.buffers[start:]:
            self.device.free(memory)
        del self.buffers[start:]

    def bind(
        self, definition: OpDef, ins: Sequence[Any], outs: Sequence[Any], attrs: Mapping[str, Any] | None = None
    ) -> list[Call]:
        """Returns calls that put an op into the stream: what a collective computes by itself."""
        where = None if self.op is None else self.op.where
        op = FrozenOp(definition, (), (), definition.complete(attrs or {}), where=where)
        step: BoundStep = self.device.bind(op, ins, outs, {}, self.stream)
        if step.scratch_bytes > self._workspace.need:
            # Calls that are bound already keep the old, smaller buffer.
            self._workspace.reserve(step.scratch_bytes)
            self._workspace.allocate()
        return [call for tile in step.bind(self._workspace) for call in tile] + step.after

    def all_reduce(self, arrays: Sequence[Array], label: str = "all_reduce", block: int = 0) -> None:
        """Sums arrays over all replicas, in place; ``block`` is what :meth:`Outer.all_reduce` takes."""
        Sum(self, arrays, None, label, block)()

    def reduce(self, arrays: Sequence[Array], roots: Sequence[int], label: str = "reduce", block: int = 0) -> None:
        """Sums array ``i`` over all replicas into that of replica ``roots[i]``; the others keep their values."""
        Sum(self, arrays, roots, label, block)()

    def broadcast(self, arrays: Sequence[Array], roots: Sequence[int], label: str = "broadcast") -> None:
        """Writes replica ``roots[i]``'s array ``i`` into those of all replicas of the process."""
        Broadcast(self, arrays, roots, label)()

    def all_gather(self, array: Array, out: Array, label: str = "all_gather") -> None:
        """Writes all replicas' arrays, in the order of their ranks, into ``out`` of shape ``[world, *array.shape]``."""
        Gather(self, array, out, label)()

    def commit(self) -> None:
        """Returns when every replica of every process has reached the point after which state is written.

        Raises:
            ReplicaStoppedError: If one will not arrive; then state must not be written.
            RankNumericsError: On all replicas, if one found gradients that are not finite.
        """
        outer = self.group.outer if self.group.across else None
        mine = settled(self.device, self.group.findings[self.rank], self.stream)
        self.group.findings[self.rank].clear()

        def last(found: list[Any]) -> None:
            note = {str(place): one for place, one in enumerate(found) if one} or None
            found[:] = [[note] if outer is None else outer.agree("commit", note)] * len(found)

        notes = self.group.rendezvous(self.rank, "commit", mine, last)[self.rank]
        error = refusal(notes, self.size)
        if error is not None:
            raise error

    def watch(self, arrays: Sequence[Array], setting: int) -> Watch | None:
        """Returns what looks for NaN and infinity in gradients; ``None`` if ``setting`` is 0, or -1 where the host would wait."""
        if setting == 0 or (setting < 0 and self.device.deferred) or self.op is None:
            return None
        names, found = list(self.op.reads())[: len(arrays)], self.group.findings[self.rank]
        return Watch(self.device, arrays, names, show(self.op.where), found)


class Collective:
    """One collective of one replica, bound to its arrays; each call runs it once.

    Attributes:
        arrays: The replica's arrays.
        ready: Recorded when the arrays may be read and written by the other replicas.
        done: Recorded after the work that this replica does for all.
        ends: The events after which no replica accesses the arrays of another one any more.
        token: Identity of the binding; peers compare it instead of keeping each other alive.
    """

    def __init__(self, communicator: Communicator, arrays: Sequence[Array], label: str) -> None:
        self.communicator = communicator
        self.device = communicator.device
        self.stream = communicator.stream
        self.label = label
        self.arrays = arrays
        self.ready, self.done = self.device.event(), self.device.event()
        self.ends: Sequence[Event] = ()
        self.token = object()
        self._bound_to: list[object] = []
        self._calls: list[Call] = []

    def __call__(self) -> None:
        """Runs it on all replicas together: each one's thread calls its own."""
        group = self.communicator.group
        if self.communicator.rank == 0:
            group.calls += 1
            group.moved += sum(a.nbytes for a in self.arrays)
        # Queued work may still write this replica's arrays; peers wait for the event on the device, not on the host.
        self.device.record(self.ready, self.stream)
        self.exchange()
        self._wait(self.ends)

    def exchange(self) -> None:
        """Puts the work into the streams: each replica does its share."""
        self._share(self._rendezvous())
        self._rendezvous(self._end, ", end")

    def calls(self, peers: Sequence[Any]) -> list[Call]:
        """Returns the calls of this replica's share of the work; ``peers`` has the collective of each replica."""
        raise NotImplementedError

    def _rendezvous(self, last: Callable[[list[Any]], None] | None = None, part: str = "") -> Any:
        return self.communicator.group.rendezvous(self.communicator.rank, f"{self.label}{part}", self, last)

    def _share(self, peers: Sequence[Collective]) -> None:
        # Calls are bound at the first run and after a peer has bound its arrays anew.
        tokens = [peer.token for peer in peers]
        if tokens != self._bound_to:
            self._calls, self._bound_to = self.calls(peers), tokens
        self._wait([peer.ready for peer in peers])
        for function, args in self._calls:
            function(*args)
        self.device.record(self.done, self.stream)

    def _end(self, peers: Sequence[Collective]) -> None:
        for peer in peers:
            peer.ends = [one.done for one in peers]

    def _end_here(self, peers: Sequence[Collective]) -> None:
        """Ends the collective with the work in this replica's stream."""
        self.device.record(self.done, self.stream)
        for peer in peers:
            peer.ends = [self.done]

    def _wait(self, events: Sequence[Event]) -> None:
        for event in events:
            # A stream runs in order, so it need not wait for its own events.
            if event is not self.ready and event is not self.done:
                self.device.wait(event, self.stream)


class Sum(Collective):
    """Sums array ``i`` over the replicas, then over the processes, into that of replica ``roots[i]``, or into all.

    The last replica to arrive sums small arrays; of large ones each replica sums a part.

    Args:
        communicator: This replica's handle of the group.
        arrays: This replica's arrays, which can be viewed flat; the sums are written in place.
        roots: The replica that gets each sum; ``None``: all get all.
        label: Name of the collective, the same for all replicas.
        block: As of :meth:`Outer.all_reduce`.
        watch: As of :meth:`Communicator.watch`; :meth:`Communicator.commit` tells all replicas what is found.
    """

    def __init__(
        self, communicator: Communicator, arrays: Sequence[Array], roots: Sequence[int] | None, label: str, block: int,
        watch: int = 0,
    ) -> None:  # fmt: skip
        flats = [_flattened(communicator.device, a) for a in arrays]
        super().__init__(communicator, flats, label)
        everyone = range(communicator.size)
        self._to = [everyone] * len(flats) if roots is None else [(root,) for root in roots]
        self._block = block
        self._watch = communicator.watch(flats, watch)
        undivided = sum(a.size for a in flats) <= _UNDIVIDED or communicator.size == 1
        self._part, self._parts = (0, 1) if undivided else (communicator.rank, communicator.size)
        self._staged: list[Any] = []

    def __call__(self) -> None:
        if self._watch is not None and not self._watch.of_host:
            self._watch.look(self.stream)  # before the others learn that they may write to the arrays
        super().__call__()

    def exchange(self) -> None:
        if self._parts == 1:
            self._rendezvous(self._everything)
        else:
            super().exchange()

    def calls(self, peers: Sequence[Sum]) -> list[Call]:
        made: list[Call] = []
        for arrays, to in self._joined(peers):
            # Parts by position in the array, equal on all replicas: each
            # element is summed by one replica, in the order of all.
            low, high = (arrays[0].size * part // self._parts for part in (self._part, self._part + 1))
            if high > low:
                rows = [self.device.slice(array, low, (high - low,)) for array in arrays]
                if self._watch is not None and self._watch.of_host and len(peers) > 1:
                    made.append((WatchedSum(add_in_order, rows, to, [p._watch for p in peers if p._watch]), ()))
                    continue
                made += self.communicator.bind(_SUM, [rows], [[rows[r] for r in to]], {"in_place": 0 in to})
        return made

    def _joined(self, peers: Sequence[Sum]) -> list[tuple[list[Array], Sequence[int]]]:
        """Returns few sums that cover all: the array of each replica, and the replicas that get the sum.

        Arrays that are adjacent in every replica are summed as one. Parts of a batch that differ in size have different
        arenas, so what is adjacent in one replica need not be so in another.
        """
        done: list[tuple[list[Array], Sequence[int]]] = []
        for i, to in enumerate(self._to):
            arrays = [peer.arrays[i] for peer in peers]
            if not arrays[0].size:
                continue
            if done and done[-1][1] == to:
                # Fewer, longer sums: each costs calls on every replica.
                joined = [self.device.join(a, b) for a, b in zip(done[-1][0], arrays, strict=True)]
                if len({0 if one is None else one.size for one in joined}) == 1 and joined[0] is not None:
                    done[-1] = joined, to
                    continue
            done.append((arrays, to))
        return done

    def _everything(self, peers: Sequence[Sum]) -> None:
        self._share(peers)
        if self.communicator.group.outer is not None:
            self._across(self.communicator.group.outer, peers)
        self._end_here(peers)

    def _end(self, peers: Sequence[Any]) -> None:
        super()._end(peers)
        if self.communicator.group.outer is not None:
            # The last replica to arrive takes the sum, of which each replica queued a part, to the other processes.
            self._wait(self.ends)
            self._across(self.communicator.group.outer, peers)
            self._end_here(peers)

    def _across(self, outer: Outer, peers: Sequence[Sum]) -> None:
        """Sums over the processes; what the host cannot access goes through pinned memory."""
        device, stream = self.device, self.stream
        owned = [peers[to[0]].arrays[i] for i, to in enumerate(self._to)]
        if not self._staged:
            buffer = self.communicator.buffer
            # Kept between runs: pinning memory is slow, and the arrays stay until the plan binds anew.
            self._staged = [None if isinstance(a, np.ndarray) else buffer(a.shape, a.dtype, "pinned") for a in owned]
        moved = [(a, s) for a, s in zip(owned, self._staged, strict=True) if s is not None]
        for array, staged in moved:
            device.copy(staged, array, stream)
        # The host sends the values, so they must have arrived in its memory.
        device.synchronize([stream])
        sent = [a if s is None else s for a, s in zip(owned, self._staged, strict=True)]
        if self._watch is not None and self._watch.of_host and len(peers) == 1:
            outer.all_reduce(sent, self._block, self._watch.look_at)
        else:
            outer.all_reduce(sent, self._block)
        for array, staged in moved:
            device.copy(array, staged, stream)
        for i, (total, to) in enumerate(zip(owned, self._to, strict=True)):
            # Across processes one replica's copy was summed; here the other replicas of this process get it.
            for r in to[1:]:
                device.copy(peers[r].arrays[i], total, stream)


class Broadcast(Collective):
    """Writes replica ``roots[i]``'s array ``i`` into those of all replicas; arguments as of :class:`Sum`."""

    def __init__(self, communicator: Communicator, arrays: Sequence[Array], roots: Sequence[int], label: str) -> None:
        super().__init__(communicator, list(arrays), label)
        self._roots = roots

    def calls(self, peers: Sequence[Broadcast]) -> list[Call]:
        return [
            (self.device.copy, (self.arrays[i], peers[root].arrays[i], self.stream))
            for i, root in enumerate(self._roots)
            if root != self.communicator.rank
        ]


class Gather(Collective):
    """Stacks the replicas' arrays in ``out``, in the order of their ranks; the last replica to arrive copies for all.

    Args:
        communicator: This replica's handle of the group.
        array: This replica's array; equal in shape and dtype on all.
        out: Array of shape ``[world, *array.shape]``.
        label: Name of the collective, the same for all replicas.
    """

    def __init__(self, communicator: Communicator, array: Array, out: Array, label: str) -> None:
        super().__init__(communicator, [array], label)
        self._out = out
        # Only host memory can be sent to other processes; pinned, so that the device copies it without the host.
        across = communicator.group.outer is not None
        shape = (communicator.size, *array.shape)
        self._local = communicator.buffer(shape, array.dtype, "pinned") if across else out
        owner = HOST if across else self.device
        flat = _flattened(owner, self._local)
        self._rows = [owner.slice(flat, i * array.size, array.shape) for i in range(communicator.size)]

    def exchange(self) -> None:
        self._rendezvous(self._everything)

    def calls(self, peers: Sequence[Gather]) -> list[Call]:
        return [
            (self.device.copy, (row, peer.arrays[0], self.stream)) for row, peer in zip(self._rows, peers, strict=True)
        ]

    def _everything(self, peers: Sequence[Gather]) -> None:
        self._share(peers)
        outer = self.communicator.group.outer
        if outer is not None:
            self.device.synchronize([self.stream])
            whole = outer.all_gather(self._local).reshape(self._out.shape)
            self.device.from_host(self._out, whole, self.stream)
        for peer in peers:
            if peer is not self:
                self.device.copy(peer._out, self._out, self.stream)
        self._end_here(peers)


def _flattened(device: Device, array: Array) -> Array:
    flat = device.derive(array, _flat)
    assert flat is not None, "every device has flat views of contiguous arrays"
    return flat


def _flat(array: HostArray) -> HostArray:
    flat = array.reshape(-1)
    assert flat.size == 0 or np.may_share_memory(flat, array), "a collective works in place"
    return flat
