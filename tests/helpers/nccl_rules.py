"""NCCL on the memory of the CPU: it has NCCL's rules, and finds who breaks them.

Ranks are the places of one process, or threads that stand for processes. A collective is carried out by the last rank to come; the
others wait for it where their group ends, while those of real NCCL would leave the wait to the device.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.helpers.stream_order import Order, OrderedQueue, Use
from tstatic.comm.transport.nccl import ID_BYTES, TYPES, NcclError
from tstatic.ir.types import dtype_of

Array = np.ndarray[Any, Any]

DTYPES = {number: dtype_of(name).np for name, number in TYPES.items()}

_INTERNAL, _INVALID_USAGE = 3, 5
"""Of ``ncclResult_t``."""


class RuleError(AssertionError):
    """A use that NCCL forbids, or that would hang."""


@dataclass
class _Clique:
    """The ranks of one unique id."""

    size: int
    comms: dict[int, _Comm] = field(default_factory=dict)
    collectives: dict[int, dict[int, _Operation]] = field(default_factory=dict)
    messages: dict[tuple[int, int], tuple[list[_Operation], list[_Operation]]] = field(default_factory=dict)
    broken: str = ""


@dataclass(eq=False)
class _Comm:
    """A communicator: one rank.

    Attributes:
        done: How many collectives it took part in.
        user: The thread in whose group it is.
        ended: Why it cannot be used; empty while it can.
        fault: What :meth:`RuledNccl.async_error` tells of it.
    """

    clique: _Clique
    rank: int
    device: int
    process: RuledNccl
    done: int = 0
    user: int | None = None
    ended: str = ""
    fault: str = ""


@dataclass(eq=False)
class _Operation:
    """One call; of ``peer`` it is a root's or the other end's rank, -1 if the call has none."""

    name: str
    comm: _Comm
    send: int
    receive: int
    count: int
    dtype: int
    peer: int
    queue: OrderedQueue
    done: bool = False
    seen: dict[int, int] = field(default_factory=dict)

    @property
    def signature(self) -> tuple[str, int, int, int]:
        return self.name, self.count, self.dtype, self.peer

    @property
    def item(self) -> int:
        return int(DTYPES[self.dtype].itemsize)

    def values(self, address: int, count: int) -> Array:
        memory: Any = (ctypes.c_uint8 * (count * self.item)).from_address(address)
        found: Array = np.frombuffer(memory, DTYPES[self.dtype])
        return found

    def uses(self) -> list[Use]:
        size, mine = self.comm.clique.size, self.comm.rank == self.peer
        sent = self.count * (size if self.name == "reduce_scatter" else 1) * self.item
        came = self.count * (size if self.name == "all_gather" else 1) * self.item
        reads = self.send and (self.name != "broadcast" or mine)
        writes = self.receive and (self.name != "reduce" or mine)
        found = [Use(self.send, self.send + sent, False)] if reads else []
        return found + ([Use(self.receive, self.receive + came, True)] if writes else [])


class World:
    """What the ranks of all processes share.

    Args:
        order: What the streams of their devices share.
        patience: Seconds after which a wait that nobody ends is an error.

    Attributes:
        log: The calls that were carried out, in order: name, count, dtype, peer.
    """

    def __init__(self, order: Order, patience: float = 60.0) -> None:
        self.order = order
        self.patience = patience
        self.changed = threading.Condition()
        self.cliques: dict[bytes, _Clique] = {}
        self.comms: dict[int, _Comm] = {}
        self.log: list[tuple[str, int, int, int]] = []
        self.processes: list[RuledNccl] = []
        self._numbers = itertools.count(1)
        order.before_waits.append(self._before_wait)

    def process(self) -> RuledNccl:
        """Returns the library of one process."""
        self.processes.append(RuledNccl(self))
        return self.processes[-1]

    def number(self) -> int:
        return next(self._numbers)

    def lose(self, rank: int, text: str) -> None:
        """Breaks the connections of a rank of all groups: a watchdog tells of it, and no call does."""
        for comm in self.comms.values():
            if comm.rank == rank:
                comm.fault = text

    def wait(self, ended: Callable[[], bool], what: Callable[[], str]) -> None:
        """Waits, with the lock of ``changed``.

        Raises:
            RuleError: If nothing ends the wait.
        """
        deadline = time.monotonic() + self.patience
        while not ended():
            if not self.changed.wait(max(0.0, deadline - time.monotonic())) and not ended():
                raise RuleError(f"would hang: {what()}")

    def _before_wait(self, queue: OrderedQueue) -> None:
        for process in self.processes:
            if any(operation.queue is queue for operation in process.waiting()):
                raise RuleError("would hang: the host waits for a stream with calls of a group that was not ended")


class RuledNccl:
    """The library of one process, or of a thread that stands for one: :class:`tstatic.comm.transport.nccl.Library`."""

    version = "0.0.0"
    where = "tests/helpers/nccl_rules.py"

    def __init__(self, world: World) -> None:
        self.world = world
        self._one_group = threading.RLock()
        self._of_thread = threading.local()

    # ------------------------------------------------------------------------------------------------------ communicators
    def unique_id(self) -> bytes:
        return self.world.number().to_bytes(8, "big").rjust(ID_BYTES, b"\0")

    def init_rank(self, size: int, unique_id: bytes, rank: int, device: int) -> int:
        return self._join(size, unique_id, {rank: device})[0]

    def init_all(self, devices: Sequence[int]) -> list[int]:
        return self._join(len(devices), self.unique_id(), dict(enumerate(devices)))

    def _join(self, size: int, unique_id: bytes, devices: dict[int, int]) -> list[int]:
        with self.world.changed:
            clique = self.world.cliques.setdefault(unique_id, _Clique(size))
            made = {rank: _Comm(clique, rank, device, self) for rank, device in devices.items()}
            if clique.size != size or clique.comms.keys() & made.keys() or not all(0 <= r < size for r in made):
                raise RuleError(f"the ranks {list(made)} of {size} are not those of this unique id")
            clique.comms |= made
            self.world.changed.notify_all()
            self.world.wait(
                lambda: len(clique.comms) == size,
                lambda: f"rank {list(made)} waits for {size - len(clique.comms)} others",
            )
            if len({comm.device for comm in clique.comms.values()}) < size:
                raise NcclError("ncclCommInitRank", _INVALID_USAGE, "invalid usage", "two ranks on one GPU")
            handles = [self.world.number() for _ in made]
            self.world.comms |= zip(handles, made.values(), strict=True)
            return handles

    def async_error(self, comm: int) -> str:
        return self._comm(comm).fault

    def abort(self, comms: Sequence[int]) -> None:
        self._end(comms, "aborted")

    def destroy(self, comm: int) -> None:
        if self._comm(comm).user is not None:
            raise RuleError("a communicator is destroyed in the middle of a group")
        self._end([comm], "destroyed")

    def _end(self, comms: Sequence[int], how: str) -> None:
        with self.world.changed:
            for comm in comms:
                self._comm(comm).ended = how
            self.world.changed.notify_all()

    def _comm(self, number: int) -> _Comm:
        comm = self.world.comms.get(number)
        if comm is None or comm.process is not self:
            raise RuleError(f"{number} is no communicator of this process")
        if comm.ended:
            raise RuleError(f"a communicator is used that was {comm.ended}")
        return comm

    # ------------------------------------------------------------------------------------------------------------- groups
    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        with self._one_group:
            self.start_group()
            try:
                yield
            except BaseException:
                self._leave()
                raise
            self.end_group()

    def start_group(self) -> None:
        if getattr(self._of_thread, "operations", None) is not None:
            raise RuleError("a group begins in another one, which was not ended")
        self._of_thread.operations = []

    def end_group(self) -> None:
        operations = list(self._of_thread.operations)
        try:
            graphs = [one.queue.library.capturing for one in operations]
            if not any(graphs):
                self._launch(operations)
                return
            if len({id(graph) for graph in graphs}) > 1:
                raise RuleError("may hang: several GPUs of one process in graphs")
            assert graphs[0] is not None
            graphs[0].work.append(lambda: self._launch([replace(one, done=False, seen={}) for one in operations]))
        finally:
            self._leave()

    def _leave(self) -> None:
        for one in self.waiting():
            one.comm.user = None
        self._of_thread.operations = None

    def waiting(self) -> list[_Operation]:
        """Returns the calls of this thread's group, which begin when it ends."""
        return list(getattr(self._of_thread, "operations", None) or ())

    def _add(
        self, name: str, send: int, receive: int, count: int, dtype: int, peer: int, comm: int, stream: int
    ) -> None:
        mine = self._comm(comm)
        if not 0 <= peer < mine.clique.size and (peer != -1 or name in ("reduce", "broadcast", "send", "receive")):
            raise RuleError(f"{name}: there is no rank {peer}")
        if dtype not in DTYPES:
            raise NcclError(name, _INVALID_USAGE, "invalid argument", f"dtype {dtype}")
        queue = self.world.order.queues[stream]
        if queue.library.index != mine.device:
            raise RuleError(f"{name}: a stream of GPU {queue.library.index}, a communicator of GPU {mine.device}")
        thread = threading.get_ident()
        if mine.user not in (None, thread):
            raise RuleError("two threads use a communicator at the same time")
        operation = _Operation(name, mine, send, receive, count, dtype, peer, queue)
        alone = getattr(self._of_thread, "operations", None) is None
        if alone:
            if sum(one.process is self for one in mine.clique.comms.values()) > 1 or name in ("send", "receive"):
                raise RuleError(f"would hang: {name} outside of a group, in a thread that has the other end, too")
            self.start_group()
        mine.user = thread
        self._of_thread.operations.append(operation)
        if alone:
            self.end_group()

    def _launch(self, operations: Sequence[_Operation]) -> None:
        world = self.world
        with world.changed:
            for one in operations:
                if one.comm.ended:
                    raise RuleError(f"a communicator is used that was {one.comm.ended}")
                world.order.work(one.queue, one.uses(), one.name)
                one.seen = dict(one.queue.seen)
                world.log.append(one.signature)
                self._post(one)
            world.changed.notify_all()

            def over() -> bool:
                return all(o.done for o in operations) or any(o.comm.ended or o.comm.clique.broken for o in operations)

            world.wait(over, lambda: "; ".join(_absent(one) for one in operations if not one.done))
            for one in operations:
                if one.comm.clique.broken:
                    raise RuleError(one.comm.clique.broken)
            if not all(one.done for one in operations):
                raise NcclError("ncclGroupEnd", _INTERNAL, "internal error", "the communicator was aborted")

    def _post(self, one: _Operation) -> None:
        clique, rank = one.comm.clique, one.comm.rank
        if one.name in ("send", "receive"):
            key = (rank, one.peer) if one.name == "send" else (one.peer, rank)
            sends, receives = clique.messages.setdefault(key, ([], []))
            (sends if one.name == "send" else receives).append(one)
            while sends and receives:
                _deliver(sends.pop(0), receives.pop(0))
            return
        row = clique.collectives.setdefault(one.comm.done, {})
        one.comm.done += 1
        for other in row.values():
            if other.signature != one.signature:
                clique.broken = (
                    f"would hang: collective {one.comm.done} is {one.signature} on rank {rank}, "
                    f"and {other.signature} on rank {other.comm.rank}"
                )
        row[rank] = one
        if len(row) == clique.size and not clique.broken:
            _carry_out([row[r] for r in range(clique.size)])

    # -------------------------------------------------------------------------------------------------------------- calls
    def all_reduce(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        self._add("all_reduce", send, receive, count, dtype, -1, comm, stream)

    def reduce(self, send: int, receive: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        self._add("reduce", send, receive, count, dtype, root, comm, stream)

    def reduce_scatter(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        self._add("reduce_scatter", send, receive, count, dtype, -1, comm, stream)

    def broadcast(self, send: int, receive: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        self._add("broadcast", send, receive, count, dtype, root, comm, stream)

    def all_gather(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        self._add("all_gather", send, receive, count, dtype, -1, comm, stream)

    def send(self, send: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self._add("send", send, 0, count, dtype, peer, comm, stream)

    def receive(self, receive: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self._add("receive", 0, receive, count, dtype, peer, comm, stream)


def _absent(one: _Operation) -> str:
    clique = one.comm.clique
    row = clique.collectives.get(one.comm.done - 1, {})
    missing = [one.peer] if one.name in ("send", "receive") else [r for r in range(clique.size) if r not in row]
    return f"{one.name} of rank {one.comm.rank} waits for ranks {missing}"


def _deliver(send: _Operation, receive: _Operation) -> None:
    if (send.count, send.dtype) != (receive.count, receive.dtype):
        send.comm.clique.broken = (
            f"would hang: rank {send.comm.rank} sends {send.count} of dtype {send.dtype}, and rank {receive.comm.rank} "
            f"waits for {receive.count} of dtype {receive.dtype}"
        )
        return
    receive.values(receive.receive, receive.count)[:] = send.values(send.send, send.count)
    _finish([send, receive])


def _carry_out(row: Sequence[_Operation]) -> None:
    """Carries out a collective, of which ``row`` has the call of each rank."""
    first, size = row[0], len(row)
    if first.name in ("broadcast", "all_gather"):
        given = [row[first.peer]] if first.name == "broadcast" else row
        values = np.concatenate([one.values(one.send, one.count) for one in given])
        results = [values] * size
    else:
        count = first.count * (size if first.name == "reduce_scatter" else 1)
        total = _sum([one.values(one.send, count) for one in row])
        results = [total] * size if first.name != "reduce_scatter" else np.split(total, size)
    for one, result in zip(row, results, strict=True):
        if one.name != "reduce" or one.comm.rank == one.peer:
            one.values(one.receive, result.size)[:] = result
    _finish(row)


def _sum(parts: Sequence[Array]) -> Array:
    # From the last to the first, and rounded each time: not the order of the host, as NCCL's is not.
    total = parts[-1].copy()
    for part in reversed(parts[:-1]):
        total = (total + part).astype(total.dtype)
    return total


def _finish(operations: Sequence[_Operation]) -> None:
    for one, other in itertools.product(operations, operations):
        one.queue.library.order.learn(one.queue.seen, other.seen)
    for one in operations:
        one.done = True


__all__ = ["DTYPES", "RuleError", "RuledNccl", "World"]
