"""Moves values by NCCL, in the places' own streams: between the places of one process, and between processes of one place each."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from tstatic import flags
from tstatic.comm.transport import Part, flattened, nccl_proof, rows_of
from tstatic.comm.transport.gloo import bounded
from tstatic.comm.transport.host import joined
from tstatic.comm.transport.nccl import BYTES, ID_BYTES, TYPES, Library, NcclError
from tstatic.comm.transport.ordered_sum import SUM
from tstatic.devices import Array
from tstatic.devices.cuda.graphs import CudaStream
from tstatic.devices.step import Stream
from tstatic.errors import DeviceError, DTypeError, RankFailedError, RankNumericsError
from tstatic.ir.recording import Call
from tstatic.ir.types import dtype_of
from tstatic.locks import lock
from tstatic.logs import get_logger

if TYPE_CHECKING:
    from tstatic.devices.cuda import CudaDevice

_MOMENT = 0.2
"""Seconds for which an abort waits for a thread that queues work: a call that takes longer hangs, and is what the abort ends."""

_PAIRS = {"complex64": "float32", "complex128": "float64"}
"""Dtypes that are summed as two numbers of another one."""


class Peers(Protocol):
    """Processes, or some of them, that can find each other without NCCL: ``Processes``, or its ``Members``."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def broadcast(self, arrays: Sequence[np.ndarray[Any, Any]], root: int = 0) -> None: ...
    def among(self, ranks: Sequence[int]) -> Peers: ...
    def agree(self, label: str, note: Any = None) -> Sequence[Any]: ...
    def failed(self, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True)
class _Work:
    """One call of the library for one part.

    Attributes:
        call: The library's method.
        arrays: Its first arguments are their addresses: of each run, since some arrays lie elsewhere in each.
        rest: What comes next: the count, the dtype, the root or peer.
        number: Number of the part, whose communicator and stream come last.
        stream: The stream's handle.
    """

    call: Callable[..., None]
    arrays: tuple[Array, ...]
    rest: tuple[int, ...]
    number: int
    stream: int

    def queue(self, comms: Sequence[int]) -> None:
        self.call(*map(_address, self.arrays), *self.rest, comms[self.number], self.stream)


class NcclTransport:
    """What both members share: part ``i`` of a call is member ``rank + i``, with communicator ``i``, in its own lane's stream.

    All calls of one method are one group of NCCL. They queue work and return; the host waits for others only while communicators
    are created and prove themselves, before the first call of :meth:`connect` returns, and where NCCL connects two ranks for the
    first time.

    Values that are only moved may have any dtype. Sums are NCCL's, in an order of its own; 16-bit floats are sent, and rounded
    after each addition, in 16 bits. Under strict numerics the values are gathered instead and added in the order of the ranks,
    so that results have the bits of the host's sum: each member receives ``size`` times the bytes. Adding them is an op of the
    device (``c_sum``), for which the host waits only if the device has no form of it.

    Args:
        library: NCCL.
        rank: Number of the first member of this process.
        size: Number of members.
    """

    only_queues = True
    own_streams = True
    _instead = ""
    """The value of ``FLAGS_collectives`` that does without NCCL."""

    def __init__(self, library: Library, rank: int, size: int) -> None:
        self.library = library
        self.rank = rank
        self.size = size
        # Changed in place only: the finalizer has the list.
        self._comms: list[int] = []
        self._rings: dict[int, Self] = {}
        self._error: BaseException | None = None
        self._connecting, self._queueing, self._changing = lock(), lock(), lock()
        self._of_thread = threading.local()

    # ------------------------------------------------------------------------------------------------------ communicators
    @property
    def devices(self) -> Sequence[CudaDevice]:
        """The devices of the members of this process."""
        raise NotImplementedError

    def creating(self) -> Callable[[], list[int]]:
        """Returns a function that makes new communicators, one for each device, and may wait for other ranks for ever."""
        raise NotImplementedError

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        raise NotImplementedError

    def connect(self) -> None:
        """Creates the communicators, unless that is done, and makes them prove themselves; all members call it together.

        Binding a collective calls it, so that nobody must. Called before the first step, it has the step's time-out for itself; and
        nothing may be captured meanwhile.

        Raises:
            NcclError: If NCCL cannot connect the devices.
            RankFailedError: If another process failed or did not come.
            DeviceError: If the ranks were not connected in time, a collective had a wrong result, or did not end; on all ranks.
        """
        if self._comms:
            return
        if getattr(self._of_thread, "tests", False):
            raise self._stopped()  # what it tested was given up
        with self._connecting:
            if self._comms:
                return
            try:
                why = self._create() or self._test()
                if why:
                    # Before the others are met: a rank that waits for this one in a collective must come to the meeting, too.
                    self._stop(None)
                self._meet(why)
            except BaseException as error:
                self._stop(error)
                raise
            names = ", ".join(device.name for device in self.devices)
            get_logger("dist").info(
                "NCCL %s (%s) connects %s of %d", self.library.version, self.library.where, names, self.size
            )

    def _create(self) -> str:
        """Makes the communicators; returns why there are none, or nothing."""
        patience = float(flags.flag("FLAGS_step_timeout_s"))
        create, given_up = self.creating(), threading.Event()

        def created() -> list[int]:
            made = create()
            if given_up.is_set():
                self.library.abort(made)
            return made

        try:
            made = bounded(created, patience, "tstatic-nccl")
        except TimeoutError:
            given_up.set()
            return f"{self.size} ranks were not connected within {patience:g} s"
        self._error = None
        self._comms[:] = made
        return ""

    def _test(self) -> str:
        """Tests the communicators; returns what is wrong, or nothing."""

        def found() -> str:
            self._of_thread.tests = True
            return nccl_proof.wrong(self)

        try:
            return bounded(found, nccl_proof.SECONDS, "tstatic-nccl")
        except TimeoutError:
            return f"it did not end within {nccl_proof.SECONDS:g} s"
        except (NcclError, RankFailedError) as error:
            return f"{error.what}: {error.received}"

    def _meet(self, why: str) -> None:
        """Returns if all ranks have working communicators."""
        notes = self.agree("test of NCCL", why)
        rank, found = next(((rank, note) for rank, note in enumerate(notes) if note), (0, ""))
        if found:
            raise DeviceError(
                f"NCCL {self.library.version} failed its test before the first step",
                expected="sums, orders and sizes as on the host",
                received=f"rank {rank} of {len(notes)}: {found}" if len(notes) > 1 else found,
                fix=f"set FLAGS_collectives={self._instead}, which does without NCCL; NCCL_DEBUG=INFO says what NCCL does",
            )

    def fault(self) -> RankFailedError | None:
        """Returns what NCCL found behind its calls, such as a lost connection; ``None`` if nothing."""
        with self._changing:  # an abort frees them
            found = [self.library.async_error(comm) for comm in self._comms]
        for number, text in enumerate(found):
            if text:
                return RankFailedError(
                    f"NCCL lost the connection of rank {self.rank + number} of {self.size}",
                    expected="connections that stay open",
                    received=text,
                    fix="look at the other ranks' output and at the network; NCCL_DEBUG=WARN makes NCCL say more",
                )
        return None

    def abort(self, error: BaseException) -> None:
        if not isinstance(error, RankNumericsError):  # all ranks raise it together, and go on
            ended: list[NcclTransport] = [self, *self._rings.values()]
            for one in ended:
                one._stop(error)

    def close(self) -> None:
        """Frees the communicators, after their work; between processes all of them call it."""
        for one in self._rings.values():
            one.close()
        for comm in self._taken():
            self.library.destroy(comm)

    def of_ring(self, ring: int) -> Self:
        """Returns a transport with communicators of its own: one communicator's calls run one after another."""
        if not ring:
            return self
        if ring not in self._rings:
            self._rings[ring] = self._like()
        return self._rings[ring]

    def _like(self) -> Self:
        """Returns a transport of the same members that is not connected yet."""
        raise NotImplementedError

    def _taken(self) -> list[int]:
        """Takes the communicators away: only one may end them."""
        with self._changing:
            found = list(self._comms)
            self._comms.clear()
        return found

    def _stop(self, error: BaseException | None) -> None:
        """Ends all work; the next collective connects anew."""
        self._error = error
        comms = self._taken()
        if not comms:
            return
        # Who has begun to queue work goes on with communicators that are there, unless it hangs inside of NCCL.
        idle = self._queueing.acquire(timeout=_MOMENT)
        try:
            self.library.abort(comms)
        finally:
            if idle:
                self._queueing.release()

    def _calls(self, works: Sequence[_Work]) -> list[Call]:
        return [(self._run, (works,))] if works else []

    def _run(self, works: Sequence[_Work]) -> None:
        self.connect()
        with self._queueing:
            comms = list(self._comms)
            if not comms:
                raise self._stopped()
            fault = self.fault()
            if fault is not None:
                raise fault
            try:
                with self.library.group():
                    for work in works:
                        work.queue(comms)
            except NcclError as error:
                if self._comms:
                    raise
                raise self._stopped() from error

    def _stopped(self) -> RankFailedError:
        made = RankFailedError("a collective of NCCL was ended, because a place or a process failed")
        made.__cause__ = self._error
        return made

    # ------------------------------------------------------------------------------------------------------- collectives
    def _begin(self, parts: Sequence[Part]) -> None:
        """Connects the members, before work of theirs is bound.

        Raises:
            DeviceError: If a part is on another device than its communicator.
        """
        self.connect()
        for number, (part, device) in enumerate(zip(parts, self.devices, strict=True)):
            if part.lane.device.name != device.name:
                raise DeviceError(
                    f"a communicator of NCCL belongs to one GPU, and part {number} is on another one",
                    expected=device.name,
                    received=part.lane.device.name,
                    fix=f"set FLAGS_collectives={self._instead}, or run one process for each GPU",
                )

    def shared(self, method: str, elements: int) -> bool:
        return False

    def sum(self, parts: Sequence[Part], mine: int, roots: Sequence[int] | None = None, block: int = 0) -> list[Call]:
        """Sums array ``i`` over the members, in place; ``block`` has no effect: NCCL knows the machines and their links."""
        # Of truth values the sum is whether one holds; NCCL has no such type.
        if flags.numerics() == "strict" or any(array.dtype == np.bool_ for array in parts[0].arrays):
            return self.sum_in_order(parts, roots)
        return self.sum_by_nccl(parts, roots)

    def sum_by_nccl(self, parts: Sequence[Part], roots: Sequence[int] | None = None) -> list[Call]:
        """Returns the calls of :meth:`sum` in the order that NCCL chooses.

        Raises:
            DTypeError: If NCCL cannot add values of an array's dtype.
            DeviceError: If a part is not on the device of its communicator.
        """
        self._begin(parts)
        works = []
        to = [
            range(self.size) if roots is None else range(root, root + 1) for root in roots or [0] * len(parts[0].arrays)
        ]
        for arrays, targets in self._batches(parts, to):
            for number, array in enumerate(arrays):
                count, dtype = _summed(array)
                if roots is None:
                    works.append(self._work(parts, number, self.library.all_reduce, (array, array), count, dtype))
                else:
                    call = self.library.reduce
                    works.append(self._work(parts, number, call, (array, array), count, dtype, targets[0]))
        return self._calls(works)

    def sum_in_order(self, parts: Sequence[Part], roots: Sequence[int] | None = None) -> list[Call]:
        """Returns the calls of :meth:`sum` in the order of the members."""
        self._begin(parts)
        works: list[_Work] = []
        sums: list[Call] = []
        for i, array in enumerate(parts[0].arrays):
            if not array.size:
                continue
            receivers = range(self.size) if roots is None else [roots[i]]
            outs = [
                part.lane.buffer((self.size, array.size), array.dtype) if self.rank + number in receivers else None
                for number, part in enumerate(parts)
            ]
            works += self._gathering(parts, [part.arrays[i] for part in parts], outs, receivers)
            for part, out in zip(parts, outs, strict=True):
                if out is not None:
                    sums += _in_order(part, out, flattened(part.lane.device, part.arrays[i]))
        return self._calls(works) + sums

    def scatter(self, parts: Sequence[Part], mine: int, outs: Sequence[Array]) -> list[Call]:
        self._begin(parts)
        if flags.numerics() == "strict":
            rows = [part.lane.buffer((self.size, out.size), out.dtype) for part, out in zip(parts, outs, strict=True)]
            made = self._calls(self._exchanging(parts, rows)) if outs[0].size else []
            for part, row, out in zip(parts, rows, outs, strict=True):
                made += _in_order(part, row, flattened(part.lane.device, out)) if out.size else []
            return made
        works = []
        for number, (part, out) in enumerate(zip(parts, outs, strict=True)):
            count, dtype = _summed(out)
            if count:
                arrays = part.arrays[0], out
                works.append(self._work(parts, number, self.library.reduce_scatter, arrays, count, dtype))
        return self._calls(works)

    def gather(self, parts: Sequence[Part], mine: int, outs: Sequence[Array | None]) -> list[Call]:
        self._begin(parts)
        receivers: Iterable[int] = range(self.size)
        if len(parts) == self.size:  # otherwise the others are other processes, each of which gets all
            receivers = [number for number, out in enumerate(outs) if out is not None]
        return self._calls(self._gathering(parts, [part.arrays[0] for part in parts], outs, receivers))

    def send(self, parts: Sequence[Part], mine: int, roots: Sequence[int]) -> list[Call]:
        self._begin(parts)
        works = []
        for arrays, root in self._batches(parts, [range(root, root + 1) for root in roots]):
            for number, array in enumerate(arrays):
                rest = (array.nbytes, BYTES, root[0])
                works.append(self._work(parts, number, self.library.broadcast, (array, array), *rest))
        return self._calls(works)

    def exchange(self, parts: Sequence[Part], mine: int, outs: Sequence[Array]) -> list[Call]:
        """Sends row ``r`` of each part's first array to member ``r``; stacks what came from each in its ``outs``."""
        self._begin(parts)
        return self._calls(self._exchanging(parts, outs) if outs[0].size else [])

    def _gathering(
        self, parts: Sequence[Part], arrays: Sequence[Array], outs: Sequence[Array | None], receivers: Iterable[int]
    ) -> list[_Work]:
        to = list(receivers)
        works = []
        for number, (part, array, out) in enumerate(zip(parts, arrays, outs, strict=True)):
            if not array.size:
                continue
            if len(to) == self.size and out is not None:
                rest = (array.nbytes, BYTES)
                works.append(self._work(parts, number, self.library.all_gather, (array, out), *rest))
                continue
            works += [self._sending(parts, number, array, peer) for peer in to]
            if out is not None:
                rows = rows_of(part.lane.device, out)
                works += [self._receiving(parts, number, row, peer) for peer, row in enumerate(rows)]
        return works

    def _exchanging(self, parts: Sequence[Part], outs: Sequence[Array]) -> list[_Work]:
        works = []
        for number, (part, out) in enumerate(zip(parts, outs, strict=True)):
            device = part.lane.device
            rows = enumerate(zip(rows_of(device, part.arrays[0]), rows_of(device, out), strict=True))
            for peer, (mine, its) in rows:
                works += [self._sending(parts, number, mine, peer), self._receiving(parts, number, its, peer)]
        return works

    def _sending(self, parts: Sequence[Part], number: int, array: Array, peer: int) -> _Work:
        return self._work(parts, number, self.library.send, (array,), array.nbytes, BYTES, peer)

    def _receiving(self, parts: Sequence[Part], number: int, array: Array, peer: int) -> _Work:
        return self._work(parts, number, self.library.receive, (array,), array.nbytes, BYTES, peer)

    def _work(
        self, parts: Sequence[Part], number: int, call: Callable[..., None], arrays: tuple[Array, ...], *rest: int
    ) -> _Work:
        return _Work(call, arrays, rest, number, _handle(parts[number].lane.stream))

    def _batches(
        self, parts: Sequence[Part], to: Sequence[Sequence[int]]
    ) -> Iterable[tuple[Sequence[Array], Sequence[int]]]:
        """Yields arrays, one for each part, and the members that get them; adjacent ones may come as one."""
        if len(parts) == self.size:
            return joined(parts[0].lane.device, parts, to)
        # What is adjacent in one process need not be so in another one, and all must send the same: the group joins them.
        return [
            ([part.arrays[i] for part in parts], targets)
            for i, targets in enumerate(to)
            if parts[0].arrays[i].size
        ]  # fmt: skip


class NcclPlaces(NcclTransport):
    """Connects the places of one process, each on a GPU of its own: one thread queues the work of all.

    An abort ends the work on its way; the next collective connects the places anew.

    Args:
        devices: The places' devices; all different.
        library: NCCL.
    """

    _instead = "host"

    def __init__(self, devices: Sequence[CudaDevice], library: Library) -> None:
        super().__init__(library, 0, len(devices))
        self._devices = list(devices)
        # Of a session that nobody holds any more. Not when the process ends: CUDA may be gone by then.
        weakref.finalize(self, _destroy, library, self._comms).atexit = False

    def _like(self) -> NcclPlaces:
        return NcclPlaces(self._devices, self.library)

    @property
    def devices(self) -> Sequence[CudaDevice]:
        return self._devices

    def creating(self) -> Callable[[], list[int]]:
        return lambda: self.library.init_all([device.index for device in self._devices])

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        return [note]  # there is no other process; the places have met before one of them asks


class NcclProcesses(NcclTransport):
    """Connects processes, of which this one takes part with one place.

    Args:
        peers: The processes, by which the ranks find each other.
        device: This process's device; no other process may take part with it.
        library: NCCL.
    """

    _instead = "gloo"

    def __init__(self, peers: Peers, device: CudaDevice, library: Library) -> None:
        super().__init__(library, peers.rank, peers.size)
        self.peers = peers
        self._device = device
        self._some: dict[tuple[int, ...], NcclProcesses] = {}

    def _like(self) -> NcclProcesses:
        return NcclProcesses(self.peers, self._device, self.library)

    @property
    def devices(self) -> Sequence[CudaDevice]:
        return [self._device]

    def creating(self) -> Callable[[], list[int]]:
        named = np.zeros(ID_BYTES, np.uint8)
        if not self.rank:
            named[:] = np.frombuffer(self.library.unique_id(), np.uint8)
        self.peers.broadcast([named], 0)
        return lambda: [self.library.init_rank(self.size, named.tobytes(), self.rank, self._device.index)]

    def among(self, ranks: Sequence[int]) -> NcclProcesses:
        """Returns what connects some of the processes, of which this is one: for the same ranks always the same."""
        found = self._some.get(tuple(ranks))
        if found is None:
            found = self._some[tuple(ranks)] = NcclProcesses(self.peers.among(ranks), self._device, self.library)
        return found

    def agree(self, label: str, note: Any = None) -> Sequence[Any]:
        return self.peers.agree(label, note)

    def abort(self, error: BaseException) -> None:
        # Told first: the others then know whom to name when their collectives end.
        self.peers.failed(error)
        super().abort(error)
        for one in list(self._some.values()):
            NcclTransport.abort(one, error)

    def give_up(self) -> None:
        """Ends all work, because it is known that a process failed; who waits for it gets the error of the group."""
        ended: list[NcclTransport] = [self, *self._rings.values(), *self._some.values()]
        for one in ended:
            one._stop(None)

    def close(self) -> None:
        for one in self._some.values():
            one.close()
        super().close()


def _destroy(library: Library, comms: Sequence[int]) -> None:
    for comm in comms:
        with contextlib.suppress(NcclError):
            library.destroy(comm)


def _in_order(part: Part, rows: Array, out: Array) -> list[Call]:
    """Returns calls that add the rows of an array, from the first to the last."""
    device = part.lane.device
    flat = flattened(device, rows)
    count = rows.shape[0]
    single = [device.slice(flat, row * (rows.size // count), out.shape) for row in range(count)]
    return part.lane.bind_definition(SUM, [single], [[out]], {"in_place": False})


def _summed(array: Array) -> tuple[int, int]:
    """Returns how many numbers of which of NCCL's types an array holds.

    Raises:
        DTypeError: If NCCL cannot add them.
    """
    name = dtype_of(array.dtype).name
    number = TYPES.get(_PAIRS.get(name, name))
    if number is None:
        raise DTypeError(
            f"NCCL cannot add arrays of {name}",
            expected=f"one of {', '.join([*TYPES, *_PAIRS])}",
            received=name,
            fix="cast to int32 or float32 first",
        )
    return array.size * (2 if name in _PAIRS else 1), number


def _address(array: Array) -> int:
    return int(array.tensor.data_ptr())


def _handle(stream: Stream) -> int:
    assert isinstance(stream, CudaStream)
    return int(stream.queue.cuda_stream)


__all__ = ["NcclPlaces", "NcclProcesses", "NcclTransport", "Peers"]
