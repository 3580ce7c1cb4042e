"""Simulates a device whose memory the host cannot access, and whose work runs late and in any legal order.

It computes with the CPU's references on private arrays, so its results equal the CPU's, unless the host reads device memory
or a wait between streams is missing.

Its clock is virtual: each item of a stream takes as long as a table says, streams advance independently, and a wait continues at
the later of the two times. So an event's time depends on the program alone, not on the order that was drawn.

* ``with_torch``  the same with torch's operators
* ``clock``, ``late_work``  what work takes on the virtual clock, and the order in which it runs
* ``pinned_copies``  what of the host's memory is copied later, and the host must leave alone until then
* ``recorded_graph``  a graph, which raises for what CUDA refuses
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from tstatic.devices import interpret
from tstatic.devices.base import (
    ALIGNED,
    Array,
    ArraysByName,
    DeviceArray,
    Event,
    KernelLaunch,
    Memory,
    MemoryKind,
    QueuedWorkError,
    RunByName,
)
from tstatic.devices.cpu.buffer import Buffer, ForeignBuffer, addresses_only
from tstatic.devices.cpu.device import CpuDevice, prepare
from tstatic.devices.fake.clock import FakeEvent, FakeStream, Item, Mark, costs
from tstatic.devices.fake.late_work import LateWork
from tstatic.devices.fake.pinned_copies import PinnedCopies
from tstatic.devices.fake.recorded_graph import Capture, against_rules, waits_from_outside
from tstatic.devices.queued import QueuedDevice
from tstatic.devices.seen_arrays import SeenArrays
from tstatic.devices.step import BoundStep, HostArray, Stream, Workspace, of_calls
from tstatic.errors import OutOfMemoryError
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.indices import Limits
from tstatic.ir.opdef import EMPTY
from tstatic.ir.recording import Call
from tstatic.ir.types import Meta
from tstatic.records import Machine
from tstatic.target import TINY, Target

_CPU = CpuDevice()


class FakeMemory:
    """Memory of the fake device."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self.touch, self.release, self.forget = self._buffer.touch, self._buffer.release, self._buffer.forget

    @property
    def can_release(self) -> bool:
        return self._buffer.can_release

    @property
    def held_bytes(self) -> int:
        return self._buffer.held_bytes


class FakeArray(DeviceArray):
    """An array of the fake device: the host sees its shape and dtype, but not its values."""

    def __init__(self, owner: FakeDevice, inside: HostArray) -> None:
        self.owner = owner
        self._inside = inside
        self.shape, self.dtype, self.size, self.nbytes = inside.shape, inside.dtype, inside.size, inside.nbytes


class FakeDevice(QueuedDevice):
    """A device for tests.

    Args:
        seed: Seed of the order in which streams continue. Nothing else depends on it.
        generated: Run fused ops as generated kernels, if the process interprets them.
        target: The chip that its clock is of, and that kernels are planned for.
    """

    name = "fake"
    virtual_clock = True
    # Several, so that any wait that is missing between steps has orders in which it shows; a GPU has one (`cuda.py`).
    compute_streams = 3
    # Its graphs are there to find what breaks CUDA's rules.
    must_capture = True

    def __init__(self, seed: int = 0, generated: bool = False, target: Target = TINY) -> None:
        self.generated = generated
        self.target = target
        self.costs = costs(self.target)
        # Virtual time of each thread of the host, which moves on when it waits for the device.
        self._host = threading.local()
        self._late = LateWork()
        self._copies = PinnedCopies()
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Draws another order, for streams that are made from now on."""
        self._seed = seed
        self._numbers = itertools.count()

    # ------------------------------------------------------------------------------------------------------------ memory
    def allocate(self, nbytes: int, kind: MemoryKind = "device", purpose: str = "memory") -> Memory:
        self._outside("memory was allocated")
        if kind == "pinned":
            return Buffer(nbytes, purpose)
        return FakeMemory(Buffer(nbytes, purpose))

    def adopt(self, array: Any) -> Memory:
        return FakeMemory(_CPU.adopt(array))

    def free(self, memory: Memory) -> None:
        """Frees memory; what uses it afterwards finds NaN, or numbers that are as unlikely."""
        self._outside("memory was freed")
        if isinstance(memory, FakeMemory) and not isinstance(memory._buffer, ForeignBuffer):
            # All bits set: NaN in every type of floats, -1 or the largest number in integers.
            memory._buffer.array[...] = 0xFF
        super().free(memory)

    def view(self, memory: Memory, offset: int, meta: Meta) -> Array:
        if isinstance(memory, FakeMemory):
            return FakeArray(self, _CPU.view(memory._buffer, offset, meta))
        return _CPU.view(memory, offset, meta)

    def slice(self, array: FakeArray, start: int, shape: Sequence[int]) -> FakeArray:
        return FakeArray(self, _CPU.slice(array._inside, start, shape))

    def join(self, first: FakeArray, second: FakeArray) -> FakeArray | None:
        joined = _CPU.join(first._inside, second._inside)
        return None if joined is None else FakeArray(self, joined)

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> FakeArray:
        self._outside("memory was allocated")
        return FakeArray(self, np.empty(shape, dtype))

    def holds(self, array: Array) -> bool:
        return isinstance(array, FakeArray) and array.owner is self

    def derive(self, array: FakeArray, view: Callable[..., HostArray | None]) -> FakeArray | None:
        return FakeArray(self, _CPU.derive(array._inside, view))

    def contiguous(self, array: FakeArray) -> bool:
        return _CPU.contiguous(array._inside)

    def span(self, array: FakeArray) -> tuple[int, int]:
        return _CPU.span(array._inside)

    # ------------------------------------------------------------------------------------------------------------ copies
    def copy(self, destination: Array, source: Array, stream: Stream | None = None) -> None:
        seconds = self._copy_seconds(destination, source, stream)
        slots = [None if isinstance(one, FakeArray) else one for one in (source, destination)]
        self._put(stream, lambda: np.copyto(_inside(destination), _inside(source)), None, seconds, *slots)

    def fill(self, destination: FakeArray, value: complex, stream: Stream | None = None) -> None:
        seconds = self.costs["kernel"].seconds(destination.nbytes)
        self._put(stream, lambda: _CPU.fill(destination._inside, value), seconds=seconds)

    def to_host(self, array: FakeArray, stream: Stream | None = None) -> HostArray:
        # Before the clock moves on: the copy begins when the work that it waits for has ended.
        self.synchronize(None if stream is None else [stream])
        self._host.now = self._now + self.costs["copy"].seconds(array.nbytes)
        return np.array(array._inside)

    def from_host(self, destination: FakeArray, source: HostArray, stream: Stream | None = None) -> None:
        # The host would have to stay until it is read, which a launch of the graph does again and again.
        self._outside("memory of the host that is not pinned was copied")
        # A copy: the caller may change `source` as soon as this returns, and the work runs later.
        staged = np.array(source)
        seconds = self.costs["copy"].seconds(destination.nbytes)
        self._put(stream, lambda: np.copyto(destination._inside, staged), seconds=seconds)

    def upload(self, array: HostArray) -> FakeArray:
        self._outside("memory was allocated")
        # At once and in no stream: nobody else knows this memory yet.
        return FakeArray(self, np.array(array))

    def assigning(self, destination: FakeArray, source: HostArray) -> Call:
        # Work that is queued may still read the old value; the call itself must run nothing but C (`scope.assign`).
        self.synchronize()
        return operator.setitem, (destination._inside, ..., source)

    # ------------------------------------------------------------------------------------------------------------- order
    def stream(self, collective: bool = False) -> FakeStream:
        return FakeStream(f"{self._seed} {next(self._numbers)}", collective)

    def event(self) -> FakeEvent:
        return FakeEvent()

    def record(self, event: Event, stream: Stream) -> None:
        assert isinstance(event, FakeEvent)
        assert isinstance(stream, FakeStream)
        if stream.capturing is not None:
            stream.capturing.record(event, stream, (self.record, (event, stream)))
            return
        # Made when the host records, not when the work is reached: a wait that is queued next must find this recording.
        mark = event.mark = Mark(stream)
        event.of_graph = self._launching

        def reached() -> None:
            event.time = mark.time = stream.clock

        # The time is taken when the item runs, as on a real device, not when the host records the event.
        self._late.append(stream, Item(reached, marks=mark), self._now)

    def wait(self, event: Event, stream: Stream) -> None:
        assert isinstance(event, FakeEvent)
        assert isinstance(stream, FakeStream)
        if stream.capturing is not None:
            stream.capturing.wait(event, stream, (self.wait, (event, stream)))
        elif self._capture is not None:
            # A stream that the graph does not know of would be part of it from here on.
            raise against_rules("a stream outside of the graph waited for an event of it", "use the session's streams")
        elif event.of_graph and not self._launching:
            raise waits_from_outside()
        elif event.mark is not None:
            self._late.append(stream, Item(waits_for=event.mark), self._now)

    def synchronize(self, streams: Sequence[Stream] | None = None) -> None:
        # Captured streams have no items, but a capture that waits for the whole device must be refused, too.
        everything = self._late.open() if streams is None else streams
        wanted = [s for s in everything if isinstance(s, FakeStream)]
        self._outside("the host waited for the device")
        self._late.run(wanted)
        self._host.now = max([self._now, *(s.clock for s in wanted)])

    def finish(self, event: Event) -> None:
        assert isinstance(event, FakeEvent)
        self._outside("the host waited for an event")
        mark = event.mark
        if mark is not None:
            self._late.run([mark.stream], mark)
            self._host.now = max(self._now, mark.time)
            # A real device does not stop there.
            if mark.stream.random.random() < 0.5:
                self._run_on(mark.stream)

    def reached(self, event: Event) -> bool:
        assert isinstance(event, FakeEvent)
        mark = event.mark
        if mark is not None and not mark.done and mark.stream.random.random() < 0.5:
            self._run_on(mark.stream)
        return mark is None or mark.done

    def _run_on(self, stream: FakeStream) -> None:
        """Runs what a stream has; whoever waits for it later is told of errors."""
        with contextlib.suppress(QueuedWorkError):
            self._late.run([stream])

    @property
    def _now(self) -> float:
        now: float = getattr(self._host, "now", 0.0)
        return now

    def _copy_seconds(self, destination: Array, source: Array, stream: Stream | None) -> float:
        """Returns the virtual time of a copy: within the device's memory it is read and written at the speed of that."""
        if isinstance(stream, FakeStream) and stream.collective:
            return self.costs["collective"].seconds(source.nbytes)
        inside = isinstance(destination, FakeArray) and isinstance(source, FakeArray)
        return self.costs["kernel"].seconds(2 * source.nbytes) if inside else self.costs["copy"].seconds(source.nbytes)

    def discard(self, streams: Sequence[Stream]) -> None:
        for stream in streams:
            assert isinstance(stream, FakeStream)
            self._late.drop([stream], QueuedWorkError(None, stream))

    def running(self, streams: Sequence[Stream]) -> FrozenOp | None:
        return next((s.running for s in streams if isinstance(s, FakeStream) and s.running is not None), None)

    def _put(
        self,
        stream: Stream | None,
        run: Callable[[], None],
        op: FrozenOp | None = None,
        seconds: float = 0.0,
        reads: HostArray | None = None,
        writes: HostArray | None = None,
    ) -> None:
        """Puts work of some virtual seconds into a stream; without a stream, runs it now, after all other work.

        ``reads`` and ``writes`` are the pinned memory of a copy, which the host must leave alone until the work has ended.
        """
        if stream is None:
            self.synchronize()
            run()
            self._host.now = self._now + seconds
            return
        assert isinstance(stream, FakeStream)
        if stream.capturing is not None:
            stream.capturing.put(stream, (self._put, (stream, run, op, seconds, reads, writes)), op)
        elif self._capture is not None:
            raise against_rules("work was put into a stream of others", "use the session's streams", op)
        else:
            run = run if reads is None and writes is None else self._copies.queued(run, reads, writes)
            self._late.append(stream, Item(run, op, seconds=seconds), self._now)

    def _put_for_host(self, stream: Stream, run: Callable[[], None], op: FrozenOp, seconds: float) -> None:
        """Puts work into a stream that the host's own work is part of: it waits for the stream, and goes on with what it finds."""
        if self._capture is not None:
            raise against_rules("the host was asked to do a step", "let Device.splits say so", op)
        self._put(stream, run, op, seconds)

    # -------------------------------------------------------------------------------------------------------------- work
    def machine(self, threads: int) -> Machine:
        return Machine(self.costs["kernel"].bandwidth, "the table of a virtual clock", "the device's virtual clock")

    def scratch_bytes(self, op: FrozenOp, metas: Mapping[str, Meta]) -> int:
        # The work of collectives is bound by the group; a value without metadata has the size of the branch that runs.
        if op.definition.collective or not all(value in metas for value in (*op.reads(), *op.writes())):
            return 0

        def like(entry: Any) -> Any:
            if isinstance(entry, tuple):
                return [like(v) for v in entry]
            if entry is None or entry == EMPTY:
                return None
            # Never read or written; a plan for another machine may have more of them than this one has memory.
            return addresses_only(metas[entry].shape, metas[entry].dtype.np)

        sums = _Parts(None)
        try:
            ins, outs = ([like(e) for e in entries] for entries in (op.inputs, op.outputs))
        except OutOfMemoryError:
            # Where not even addresses can be had, the operands alone do not fit: the run says so, with the operator and its line.
            return 0
        return prepare(op.definition, ins, outs, op.attrs, {}, partial=sums.like).scratch_bytes + sums.need

    def bind(
        self,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reserved: Mapping[str, Any],
        stream: Stream,
        scratch: Array | None = None,
    ) -> BoundStep:
        assert isinstance(stream, FakeStream)
        work = self._work(op, ins, outs, reserved, stream, scratch)
        cost = self.costs["collective" if stream.collective else "host" if op.definition.effects else "kernel"]
        definition = op.definition
        waits = op.sub_blocks or definition.objects or (definition.effects and not definition.indices)
        put = self._put_for_host if waits else self._put
        return of_calls([(put, (stream, work, op, cost.seconds(_nbytes(ins) + _nbytes(outs))))])

    def _work(
        self,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reserved: Mapping[str, Any],
        stream: FakeStream,
        scratch: Array | None,
    ) -> Callable[[], None]:
        """Returns what an op does when its turn comes."""
        given = None if scratch is None else _inside(scratch)
        sums = _Parts(given)
        inside = [_inside(a) for a in ins], [_inside(a) for a in outs]
        inner = prepare(op.definition, *inside, op.attrs, reserved, partial=sums.like)
        # Steps of several streams may run at the same time: where the plan gave no memory, each has its own.
        workspace = Workspace(None if given is None else given[sums.need :])
        if workspace.need < inner.scratch_bytes:
            workspace.reserve(inner.scratch_bytes)
            workspace.allocate()
        tiles = inner.bind_workspace(workspace)

        def run() -> None:
            # Tiles may run in any order, too.
            for tile in stream.random.sample(tiles, len(tiles)):
                for function, args in tile:
                    function(*args)
            for function, args in inner.after:
                function(*args)

        return run

    def any_nonzero(self, words: FakeArray, found: FakeArray, stream: Stream) -> list[Call]:
        return [(self._put, (stream, lambda: np.copyto(found._inside, words._inside.any())))]

    def bind_unless(
        self,
        skip: FakeArray,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        stream: Stream,
        scratch: Array | None = None,
    ) -> BoundStep:
        ((put, (_, run, _, seconds)),) = _calls(self.bind(op, ins, outs, {}, stream, scratch))
        return of_calls([(put, (stream, lambda: None if skip._inside.item() else run(), op, seconds))])

    def copy_unless(self, skip: FakeArray, destination: FakeArray, source: FakeArray, stream: Stream) -> None:
        to, of = destination._inside, source._inside
        self._put(stream, lambda: None if skip._inside.item() else np.copyto(to, of))

    def count_unless(self, skip: FakeArray | None, counter: FakeArray, stream: Stream) -> None:
        number = counter._inside
        stopped = np.zeros(1, np.bool_) if skip is None else skip._inside

        def count() -> None:
            np.add(number, ~stopped, out=number)

        self._put(stream, count)

    def bind_dynamic(
        self, op: FrozenOp, arrays: ArraysByName, reserved: Mapping[str, Any], run: RunByName, stream: Stream
    ) -> BoundStep:
        inside = SeenArrays(arrays, _inside, partial(FakeArray, self))
        seconds = self.costs["host"].seconds(0)
        return of_calls([(self._put_for_host, (stream, lambda: run(op, inside, reserved), op, seconds))])

    def launch(
        self, module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, Array], stream: Stream
    ) -> list[Call]:
        device = interpret.DEVICE if self.generated else _CPU
        calls = device.launch(module, launches, {n: a._inside for n, a in arrays.items()}, stream)

        def run() -> None:
            for function, args in calls:
                function(*args)

        # What all launches name, once: those beside the main one see little.
        cost = self.costs["kernel"]
        seconds = cost.seconds(_nbytes(list(arrays.values()))) + (len(launches) - 1) * cost.launch
        return [(self._put, (stream, run, None, seconds))]

    # ------------------------------------------------------------------------------------------------------------ graphs
    @property
    def _capture(self) -> Capture | None:
        """What this thread captures."""
        found: Capture | None = getattr(self._host, "capture", None)
        return found

    def _outside(self, what: str) -> None:
        """Refuses what must not happen while this thread captures a graph."""
        if self._capture is not None:
            raise against_rules(what, "end the graph before that call: Device.splits says which steps end it")

    def begin_capture(self, streams: Sequence[Stream]) -> Capture:
        made = self._host.capture = Capture([s for s in streams if isinstance(s, FakeStream)])
        for stream in made.streams:
            stream.capturing = made
        return made

    def end_capture(self, token: Capture) -> Sequence[Call]:
        self.abandon_capture(token)
        calls: Sequence[Call] = token.end()
        return calls

    def abandon_capture(self, token: Capture) -> None:
        # A stream that went on recording would run nothing any more.
        self._host.capture = None
        for stream in token.streams:
            stream.capturing = None

    def launch_graph(self, made: Sequence[Call], stream: Stream) -> None:
        self._outside("a graph was launched")
        self._host.launching = True
        try:
            for function, args in made:
                function(*args)
        finally:
            self._host.launching = False

    @property
    def _launching(self) -> bool:
        """Whether this thread launches a graph."""
        return getattr(self._host, "launching", False)

    # ------------------------------------------------------------------------------------------------------------ errors
    def limit(
        self, source: FakeArray, limits: Limits, kept: FakeArray, safe: FakeArray, wrong: FakeArray, stream: Stream
    ) -> list[Call]:
        calls = _CPU.limit(source._inside, limits, kept._inside, safe._inside, wrong._inside, stream)
        return [(self._put, (stream, partial(function, *args))) for function, args in calls]

    def check_finite(self, arrays: Sequence[FakeArray], stream: Stream | None = None) -> FakeArray:
        counts = self.empty((len(arrays),), np.dtype(np.int64))
        inside = [a._inside for a in arrays]
        seconds = self.costs["kernel"].seconds(_nbytes(arrays))
        self._put(stream, lambda: np.copyto(counts._inside, _CPU.check_finite(inside)), seconds=seconds)
        return counts


class _Parts:
    """Memory of a step's partial sums, at increasing offsets.

    Args:
        memory: Bytes of the arena; ``None``: each has its own.
    """

    def __init__(self, memory: HostArray | None) -> None:
        self._memory = memory
        self.need = 0

    def like(self, array: HostArray) -> HostArray:
        """Returns memory for one partial sum of a result."""
        start = self.need
        self.need += -(-array.nbytes // ALIGNED) * ALIGNED
        if self._memory is None:
            return np.empty_like(array)
        part: HostArray = self._memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        return part


def _calls(step: BoundStep) -> list[Call]:
    """Returns the calls of a step that needs no scratch memory."""
    return step.calls(Workspace())


def _nbytes(value: Any) -> int:
    """Returns the bytes of all arrays of slots."""
    if isinstance(value, list | tuple):
        return sum(map(_nbytes, value))
    return value.nbytes if isinstance(value, FakeArray) else 0


def _inside(value: Any) -> Any:
    """Returns the private arrays of a slot."""
    if isinstance(value, FakeArray):
        return value._inside
    if isinstance(value, list) and any(isinstance(one, FakeArray) for one in value):
        return [_inside(one) for one in value]
    return value


DEVICE = FakeDevice()
