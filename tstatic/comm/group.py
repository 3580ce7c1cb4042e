"""Runs collectives between the replicas of one process, whose threads wait for each other; sums have a fixed order.

The host's threads exchange arrays and events, not values: all work on values is put into streams of the replicas' devices.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tstatic.comm.passes.distribution import host_decides
from tstatic.comm.passes.finite_gradients import Finding, Watch, refusal, settled
from tstatic.comm.transport import Part, ProcessTransport, Transport, flattened
from tstatic.comm.transport.host import HostTransport
from tstatic.devices import HOST, Array, Device
from tstatic.devices.base import Event, Memory, MemoryKind
from tstatic.devices.step import BoundStep, Stream, Workspace
from tstatic.errors import RankFailedError
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OpDef
from tstatic.ir.recording import Call
from tstatic.ir.types import Meta, dtype_of
from tstatic.where import show

_SLICE = 1.0
"""Seconds between a waiting replica's own checks whether the others arrived or stopped: a net below the notifications, so rare."""


class ReplicaStoppedError(RankFailedError):
    """Raised in a replica that stops at a collective because another one failed."""


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

    The replicas meet here; their values are moved by transports.

    Args:
        size: Number of replicas.
        outer: Moves values between processes, if there are several; one replica uses it on behalf of all of its process.
        transport: Moves values between the replicas; by default by the host's threads.

    Attributes:
        across: Whether the other processes run this step, too; not for a program that does not exchange values.
        ended: Returns when a function says that a step has ended and all processes have queued it; ``None``: they agree before
            each update.
        calls, moved: Number of collectives so far, and the bytes that one replica sent in them.
        waiting: Replicas that wait for the others inside a collective.
        findings: For each replica, what its gradients of this step were found to hold.
    """

    def __init__(self, size: int, outer: ProcessTransport | None = None, transport: Transport | None = None) -> None:
        self.size = size
        self.outer = outer
        self.transport = HostTransport(size) if transport is None else transport
        # The caller's thread takes the lock directly: an interrupt inside a condition's methods may leave it held.
        self._lock = threading.Lock()
        self._cond = threading.Condition(self._lock)
        self._round = _Round(size)
        self._count = 0
        self._error: BaseException | None = None
        self.across = outer is not None
        self.ended: Callable[[Callable[[], bool]], None] | None = None
        self.calls = 0
        self.moved = 0
        self.waiting: set[int] = set()
        self.findings: list[list[Finding]] = [[] for _ in range(size)]

    @property
    def world(self) -> int:
        """Number of replicas of all processes."""
        return self.size * (self.outer.size if self.outer is not None else 1)

    @property
    def only_queues(self) -> bool:
        """Whether collectives only put work into streams; then the host need not wait before an update is queued."""
        return self.transport.only_queues and (self.outer is None or self.outer.only_queues)

    def communicator(self, rank: int, device: Device = HOST) -> Communicator:
        """Returns the handle of one replica, whose arrays are in the memory of a device."""
        return Communicator(self, rank, device)

    def abort(self, error: BaseException) -> None:
        """Makes every replica that waits, now or later, raise :class:`ReplicaStoppedError`; the first error is kept."""
        with self._lock:
            if self._error is None:
                self._error = error
            # With the error in place: a replica that wakes up must find it.
            self._cond.notify_all()
        # Without the lock: a transport may wait for other processes, and replicas must see the error meanwhile.
        self.transport.abort(error)

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
            # The first to arrive names the round; the others must have come for the same.
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
                # Noted while it waits: when a step takes too long, this replica is not the one to blame.
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


class Communicator:
    """One replica's handle of a group; a collective's reference receives it as ``group``.

    Its methods return when the collective's work is in the stream; on the CPU it is done then.

    Attributes:
        device: The device that holds the replica's arrays.
        stream: The stream of the replica's collectives.
        ring: Number of the ring that they use: those of one ring are ordered, those of several may run at the same time, so that a
            library that has communicators of its own needs one for each.
        op: The collective op that is bound, for error messages.
        buffers: The memory that collectives allocated.
        known: Whether the truth values by which collectives are left out hold in this run, by the identity of their arrays.
    """

    def __init__(self, group: Group, rank: int, device: Device = HOST) -> None:
        self.group = group
        self.rank = rank
        self.device = device
        self.stream = device.stream(collective=True)
        self.ring = 0
        self.op: FrozenOp | None = None
        self.buffers: list[Memory] = []
        # Changed in place only: handles of ops share it.
        self.known: dict[int, bool] = {}
        self._workspace = Workspace()
        self._others: dict[int | Stream, Communicator] = {}

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

    def of_ring(self, ring: int) -> Communicator:
        """Returns the handle of the same replica whose collectives are those of a ring, in a stream of their own."""
        if ring == self.ring:
            return self
        if ring not in self._others:
            made = self._others[ring] = self.on(self.device.stream(collective=True))
            made.ring = ring
        return self._others[ring]

    def on(self, stream: Stream) -> Communicator:
        """Returns the handle of the same replica that queues collectives in another stream."""
        if stream is self.stream:
            return self
        if stream not in self._others:
            made = self._others[stream] = copy.copy(self)
            # Scratch memory of its own: work in two streams may run at the same time.
            made.stream, made._workspace = stream, Workspace()
        return self._others[stream]

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

    def bind_definition(
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
        return step.calls(self._workspace)

    def all_reduce(self, arrays: Sequence[Array], label: str = "all_reduce", block: int = 0) -> None:
        """Sums arrays over all replicas, in place; ``block`` is what :meth:`Transport.sum` takes."""
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

    def may_be_captured(self, op: FrozenOp) -> bool:
        """Returns whether a collective op can be part of a graph: its calls are the device's alone, and the flag asks for it."""
        outer = self.group.outer if self.group.across else None
        alone = self.size == 1 and outer is not None and outer.own_streams and self.only_queues(op)
        return alone and not host_decides(op)

    def holds(self, skip: Array) -> bool:
        """Returns whether a truth value holds by which collectives are left out; waits for the device unless that is known."""
        known = self.known.get(id(skip))
        return bool(self.device.to_host(skip, self.stream).flat[0]) if known is None else known

    def rendezvous(self) -> None:
        """Returns when every replica of this process has queued what comes before its update; the host waits for no device.

        Raises:
            ReplicaStoppedError: If one will not arrive; then the update must not be queued.
        """
        self.group.rendezvous(self.rank, "update")

    def finish(self, event: Event) -> None:
        """Returns when the device has reached an event, behind the step that the replica queued.

        Raises:
            QueuedWorkError: If work before it failed.
            RankFailedError: If another process failed, or did not queue the step.
        """
        ended = self.group.ended if self.group.across else None
        if ended is not None:
            # Asked again and again, so that a process that waits for a failed one learns of it.
            ended(lambda: self.device.reached(event))
        self.device.finish(event)

    @property
    def broken_off(self) -> bool:
        """Whether collectives were ended before they had their values, so that what ran behind them had others."""
        return self.group.aborted and self.group.transport.own_streams

    def deciding(self, bad: Array | None, stream: Stream) -> list[Call]:
        """Returns calls that make a truth value hold on all replicas where it holds on one, between two works of a stream.

        Without a value the streams of the replicas only meet: what follows on any of them begins behind what came before on all.

        Args:
            bad: Truth value of shape [1] in device memory.
            stream: The stream that makes it, and in which what asks it comes next.
        """
        device = self.device
        arrived, decided = device.event(), device.event()
        return [
            (device.record, (arrived, stream)),
            (device.wait, (arrived, self.stream)),
            # The sum of truth values is whether one of them holds.
            (Sum(self, [] if bad is None else [bad], None, "decision", 0), ()),
            (device.record, (decided, self.stream)),
            (device.wait, (decided, stream)),
        ]

    def commit(self) -> None:
        """Returns when every replica of every process has reached the point after which state is written.

        Raises:
            ReplicaStoppedError: If one will not arrive; then state must not be written.
            RankNumericsError: On all replicas, if one found gradients that are not finite.
        """
        outer = self.group.outer if self.group.across else None
        everyone = self.group.transport if outer is None else outer
        mine = settled(self.device, self.group.findings[self.rank], self.stream)
        # Before the others are met: an error there must not leave findings of this step to the next.
        self.group.findings[self.rank].clear()

        def last(found: list[Any]) -> None:
            note = {str(place): one for place, one in enumerate(found) if one} or None
            found[:] = [everyone.agree("commit", note)] * len(found)

        notes = self.group.rendezvous(self.rank, "commit", mine, last)[self.rank]
        error = refusal(notes, self.size)
        if error is not None:
            raise error

    def only_queues(self, op: FrozenOp) -> bool:
        """Returns whether a collective op only puts work into streams."""
        # What is found of gradients is read by the host, before it lets any replica write state.
        watched = op.attrs.get("watch", 0) > 0
        return self.group.only_queues and op.definition.ref.only_queues and not watched

    def watch(self, arrays: Sequence[Array], setting: int) -> Watch | None:
        """Returns what looks for NaN and infinity in gradients; ``None`` if ``setting`` is 0, or -1 where the host would wait."""
        if setting == 0 or (setting < 0 and self.device.deferred) or self.op is None:
            return None
        names, found = list(self.op.reads())[: len(arrays)], self.group.findings[self.rank]
        return Watch(self.device, arrays, names, show(self.op.where), found)


class Collective:
    """One collective of one replica, bound to its arrays; each call runs it once.

    Its transport says what is queued; here the replicas meet, and events order their streams.

    Args:
        communicator: This replica's handle of the group.
        arrays: This replica's arrays.
        label: Name of the collective, the same for all replicas.
        method: Name of the transport's method.
        watch: What looks at the arrays before they are summed.

    Attributes:
        arrays: The replica's arrays.
        ready: Recorded when the arrays may be read and written by the other replicas.
        done: Recorded after the work that this replica does for all.
        ends: The events after which no replica accesses the arrays of another one any more.
        token: Identity of the binding; peers compare it instead of keeping each other alive.
        crosses: Whether the last replica to arrive goes on between the processes.
    """

    crosses = True

    def __init__(
        self, communicator: Communicator, arrays: Sequence[Array], label: str, method: str, watch: Watch | None = None
    ) -> None:
        self.communicator = communicator
        self.device = communicator.device
        self.stream = communicator.stream
        self.label = label
        self.arrays = arrays
        self.part = Part(communicator, arrays, watch)
        self.transport = communicator.group.transport.of_ring(communicator.ring)
        self.ready, self.done = self.device.event(), self.device.event()
        self.ends: Sequence[Event] = ()
        self.token = object()
        self._shared = self.transport.shared(method, sum(a.size for a in arrays))
        self._bound_to: list[object] = []
        self._calls: list[Call] = []
        self._outside: list[Call] | None = None

    def __call__(self) -> None:
        """Runs it on all replicas together: each one's thread calls its own."""
        group = self.communicator.group
        # Without arrays only the streams meet.
        if self.communicator.rank == 0 and self.arrays:
            group.calls += 1
            group.moved += sum(a.nbytes for a in self.arrays)
        # Queued work may still write this replica's arrays; peers wait for the event on the device, not on the host.
        self.device.record(self.ready, self.stream)
        if self._shared:
            self._share(self._rendezvous())
            # A second time: only when all have recorded `done` may any wait for it.
            self._rendezvous(self._end, ", end")
        else:
            self._rendezvous(self._everything)
        self._wait(self.ends)

    def calls(self, peers: Sequence[Any]) -> list[Call]:
        """Returns the calls of this replica's share of the work; ``peers`` has the collective of each replica."""
        raise NotImplementedError

    def outside(self, outer: ProcessTransport, peers: Sequence[Any]) -> list[Call]:
        """Returns the calls by which this replica goes on between the processes, on behalf of all ``peers``."""
        raise NotImplementedError

    def _rendezvous(self, last: Callable[[list[Any]], None] | None = None, part: str = "") -> Any:
        return self.communicator.group.rendezvous(self.communicator.rank, f"{self.label}{part}", self, last)

    def _share(self, peers: Sequence[Collective]) -> None:
        # Calls are bound at the first run and after a peer has bound its arrays anew.
        tokens = [peer.token for peer in peers]
        if tokens != self._bound_to:
            self._calls, self._bound_to, self._outside = self.calls(peers), tokens, None
        # Waits before the work, the event behind it: peers' streams go on when it is recorded.
        self._wait([] if self.transport.own_streams else [peer.ready for peer in peers])
        for function, args in self._calls:
            function(*args)
        self.device.record(self.done, self.stream)

    def _everything(self, peers: Sequence[Collective]) -> None:
        """Does the work of all, as the last replica to arrive."""
        self._share(peers)
        self._cross(peers)
        self._end_here(peers)

    def _end(self, peers: Sequence[Collective]) -> None:
        for peer in peers:
            peer.ends = [one.done for one in peers]
        if self.crosses and self.communicator.group.outer is not None:
            # Each replica queued a part of what the last one to arrive takes to the other processes.
            self._wait(self.ends)
            self._cross(peers)
            self._end_here(peers)

    def _cross(self, peers: Sequence[Collective]) -> None:
        outer = self.communicator.group.outer
        if not self.crosses or outer is None:
            return
        if self._outside is None:
            self._outside = self.outside(outer.of_ring(self.communicator.ring), peers)
        for function, args in self._outside:
            function(*args)

    def _end_here(self, peers: Sequence[Collective]) -> None:
        """Ends the collective with the work in this replica's stream."""
        self.device.record(self.done, self.stream)
        for peer in peers:
            peer.ends = [] if self.transport.own_streams else [self.done]

    def _wait(self, events: Sequence[Event]) -> None:
        for event in events:
            # A stream runs in order, so it need not wait for its own events.
            if event is not self.ready and event is not self.done:
                self.device.wait(event, self.stream)


class Sum(Collective):
    """Sums array ``i`` over the replicas, then over the processes, into that of replica ``roots[i]``, or into all.

    Args:
        communicator: This replica's handle of the group.
        arrays: This replica's arrays, which can be viewed flat; the sums are written in place.
        roots: The replica that gets each sum; ``None``: all get all.
        label: Name of the collective, the same for all replicas.
        block: As of :meth:`Transport.sum`, between processes.
        watch: As of :meth:`Communicator.watch`; :meth:`Communicator.commit` tells all replicas what is found.
    """

    def __init__(
        self, communicator: Communicator, arrays: Sequence[Array], roots: Sequence[int] | None, label: str, block: int,
        watch: int = 0,
    ) -> None:  # fmt: skip
        flats = [flattened(communicator.device, a) for a in arrays]
        super().__init__(communicator, flats, label, "sum", communicator.watch(flats, watch))
        self._roots = roots
        self._block = block
        self._staged: list[Array | None] = []

    def __call__(self) -> None:
        watch = self.part.watch
        if watch is not None and not watch.of_host:
            watch.look(self.stream)  # before the others learn that they may write to the arrays
        super().__call__()

    def calls(self, peers: Sequence[Sum]) -> list[Call]:
        return self.transport.sum([peer.part for peer in peers], self.communicator.rank, self._roots)

    def outside(self, outer: ProcessTransport, peers: Sequence[Sum]) -> list[Call]:
        holders = [0] * len(self.arrays) if self._roots is None else self._roots
        held = [peers[holder].arrays[i] for i, holder in enumerate(holders)]
        # Between the places of a process gradients are looked at while they are added.
        watch = self.part.watch if len(peers) == 1 else None
        made = outer.sum([Part(self.communicator, held, watch, self._staged)], 0, None, self._block)
        if self._roots is None:
            # Across processes one replica's copy was summed; here the other replicas of this process get it.
            made += [
                (self.device.copy, (peer.arrays[i], total, self.stream))
                for i, total in enumerate(held)
                for peer in peers[1:]
            ]
        return made


class Broadcast(Collective):
    """Writes replica ``roots[i]``'s array ``i`` into those of all replicas of the process; arguments as of :class:`Sum`."""

    crosses = False

    def __init__(self, communicator: Communicator, arrays: Sequence[Array], roots: Sequence[int], label: str) -> None:
        super().__init__(communicator, list(arrays), label, "send")
        self._roots = roots

    def calls(self, peers: Sequence[Broadcast]) -> list[Call]:
        return self.transport.send([peer.part for peer in peers], self.communicator.rank, self._roots)


class Gather(Collective):
    """Stacks the replicas' arrays in ``out``, in the order of their ranks.

    Args:
        communicator: This replica's handle of the group.
        array: This replica's array; equal in shape and dtype on all.
        out: Array of shape ``[world, *array.shape]``.
        label: Name of the collective, the same for all replicas.
    """

    def __init__(self, communicator: Communicator, array: Array, out: Array, label: str) -> None:
        super().__init__(communicator, [array], label, "gather")
        self._out = out
        self._local = array
        if communicator.group.outer is not None and communicator.size > 1:
            self._local = communicator.buffer((communicator.size, *array.shape), array.dtype)

    def calls(self, peers: Sequence[Gather]) -> list[Call]:
        outs: list[Array | None] = [peer._out for peer in peers]
        if self.communicator.group.outer is not None:
            if len(peers) == 1:
                return []
            # The last to arrive gathers what it takes to the other processes.
            outs = [self._local if peer is self else None for peer in peers]
        return self.transport.gather([peer.part for peer in peers], self.communicator.rank, outs)

    def outside(self, outer: ProcessTransport, peers: Sequence[Gather]) -> list[Call]:
        made = outer.gather([Part(self.communicator, [self._local])], 0, [self._out])
        return made + [(self.device.copy, (peer._out, self._out, self.stream)) for peer in peers if peer is not self]
