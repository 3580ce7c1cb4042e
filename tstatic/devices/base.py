"""Defines the interface of devices: memory, copies, streams and events, and how a step of a plan becomes calls.

A device is five protocols: a newcomer implements those of memory and of binding; the others have a default for devices whose calls
end when their work is done.
"""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

import numpy as np

from tstatic.devices.refusals import NOT_COMPILED as NOT_COMPILED  # for what binds
from tstatic.devices.refusals import KernelLaunch as KernelLaunch  # for what launches
from tstatic.devices.refusals import LaunchTooLargeError as LaunchTooLargeError  # for what binds
from tstatic.devices.refusals import Refusals
from tstatic.devices.region_log import Facts
from tstatic.devices.region_log import RegionLog as RegionLog  # for what records
from tstatic.devices.step import Block, BlockMemory, BoundStep, HostArray, ReadyStep, Region, Schedule, Stream, Watch
from tstatic.errors import DeviceError
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.indices import Limits
from tstatic.ir.recording import Call
from tstatic.ir.types import Meta
from tstatic.records import Machine, Recorder
from tstatic.target import Target

MemoryKind = Literal["device", "pinned", "foreign"]
"""``device``: the device's memory. ``pinned``: host memory that the device copies from and to while the host continues; feeds,
and values on their way to other processes, pass through it. ``foreign``: device memory from the allocator of another library
(torch's on a GPU), so that an array in it can be handed to that library by DLPack and outlive the session: for results under
``return_numpy=False``. :meth:`Device.adopt` makes foreign memory of an array that is there already."""

ALIGNED = 64
"""A cache line. The planner aligns values to a multiple of it, so no other value fits into a smaller gap."""

ArraysByName = MutableMapping[str, Any]
"""Value -> array; an op that runs by name adds its results."""

RunByName = Callable[[FrozenOp, ArraysByName, Mapping[str, Any]], None]
"""Runs an op on the host's arrays by name: the op, the arrays, and reserved values."""


class Memory(Protocol):
    """Memory that a device allocated."""

    @property
    def can_release(self) -> bool:
        """Whether the pages can be released while the addresses stay valid."""

    @property
    def held_bytes(self) -> int:
        """The bytes that may be resident now."""

    def touch(self) -> None:
        """Records that the memory is in use."""

    def release(self, keep: int = 0) -> None:
        """Releases the pages, but not those of the first ``keep`` bytes; the next touch finds zeros at the same addresses."""

    def forget(self) -> None:
        """Records that the memory is no longer in use."""


class DeviceArray(abc.ABC):
    """An array that the host cannot access; every device but the CPU has its own subclass.

    Attributes:
        owner: The device, which copies values from and to the host.
    """

    owner: Device
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int
    nbytes: int

    # numpy and Python ask for these without being told to: a conversion that nobody wrote must not become a hidden copy.
    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DeviceError(
            "the host touched memory of a device",
            expected="Device.to_host or Device.from_host",
            received=f"a {self.dtype}{list(self.shape)} of the device '{self.owner.name}'",
            fix="take the values from the device: owner_of(array).to_host(array)",
        )

    __array__ = __getitem__ = __setitem__ = __len__ = __iter__ = __float__ = __int__ = __bool__ = _refuse

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}{list(self.shape)})"


Array = Any
"""The arrays that a device computes on: a numpy array on the CPU, a :class:`DeviceArray` elsewhere. Both have ``shape``, ``dtype``,
``size`` and ``nbytes``."""


class Event:
    """A point in a stream that other streams and the host can wait for.

    Attributes:
        time: The time at which it was reached, in seconds of a clock of the device.
    """

    def __init__(self) -> None:
        self.time = 0.0


class StreamSet(NamedTuple):
    """The streams of a session: one for copies, one for collectives, and those over which the other steps are spread.

    Attributes:
        streams: They.
        turn: Held while a session puts work into them, where several share the set.
    """

    streams: list[Stream]
    turn: contextlib.AbstractContextManager[Any]


class Graph:
    """Calls that are replayed as one."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = tuple(calls)


class QueuedWorkError(Exception):
    """Raised if queued work failed when it ran, after the call that queued it had returned; ``__cause__`` is its error.

    Attributes:
        op: The op whose work it was.
        stream: The stream that ran it: one of those synchronized, or one that they waited for.
    """

    def __init__(self, op: FrozenOp | None, stream: Stream | None = None) -> None:
        super().__init__(op)
        self.op = op
        self.stream = stream


class DeviceFacts(abc.ABC):
    """What a plan, and a session, ask of a device before they use it.

    Attributes:
        name: The backend's name.
        target: The facts of the chip, which decide how kernels are divided into programs.
        way: Which of the ways that a kernel has on that chip is launched; 0 is the plan.
        refusals: The launches that the chip has no room for, as far as they were tried.
        generated: Whether fused ops run as generated kernels; otherwise as the ops that they replaced.
        deferred: Whether work runs after the call that queues it.
        compute_streams: Number of streams over which a session spreads its steps.
        exclusive: Whether a process that uses the device for CPU places cannot use another one for them.
        binds_sizes: Whether steps whose sizes a run finds are bound for them: arrays are numpy's, and nothing runs late.
        gives_tensors: Whether its arrays are tensors that callers may have, on the device, by DLPack.
        virtual_clock: Whether times of events are of a clock of the device's own, which has nothing to do with the host's.
    """

    name: str
    target: Target
    way: int = 0
    refusals: Refusals = Refusals()
    generated: bool = False
    deferred: bool = False
    compute_streams: int = 1
    exclusive: bool = False
    binds_sizes: bool = False
    gives_tensors: bool = False
    virtual_clock: bool = False

    def compiling(self) -> contextlib.AbstractContextManager[Any] | None:
        """Returns the block in which Triton compiles for the device; ``None`` where it compiles nothing."""
        return None


class DeviceMemory(DeviceFacts):
    """What a device does with memory: it allocates, makes arrays in it, and copies their values."""

    @abc.abstractmethod
    def allocate(self, nbytes: int, kind: MemoryKind = "device", purpose: str = "memory") -> Memory:
        """Returns zeroed memory, aligned to at least 256 bytes; ``purpose`` is for the ``memory`` log."""

    @abc.abstractmethod
    def adopt(self, array: Any) -> Memory:
        """Returns the memory of another library's array as foreign memory: nothing is copied, and both see what either writes.

        It keeps the array alive until it is freed. Work on it must be ordered with the other library's by the caller.

        Args:
            array: An array or tensor with ``__dlpack__``, in this device's memory, writable, contiguous in C order.

        Raises:
            DeviceError: If it is not.

        Example:
            >>> memory = device.adopt(tensor)
            >>> array = device.view(memory, 0, Meta((2, 3), float32))
        """

    def accept(self, value: Any) -> Array | None:
        """Returns another library's tensor as an array, without a copy; ``None`` if it does not lie in this device's memory."""
        return None

    def free(self, memory: Memory) -> None:
        """Frees memory; the caller must drop it and all its views."""
        memory.forget()

    @abc.abstractmethod
    def view(self, memory: Memory, offset: int, meta: Meta) -> Array:
        """Returns an array at an offset in bytes."""

    @abc.abstractmethod
    def slice(self, array: Array, start: int, shape: Sequence[int]) -> Array:
        """Returns elements of a flat array from ``start`` on, in a shape, in the same memory."""

    @abc.abstractmethod
    def join(self, first: Array, second: Array) -> Array | None:
        """Returns the flat array from the start of one flat array to the end of another that follows it in the same memory.

        ``None`` if they have different dtypes or memories, or if another value may lie in the gap (:data:`ALIGNED`).
        """

    @abc.abstractmethod
    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Returns an array with new memory; its values are undefined."""

    def block(self, meta: Meta) -> Block:
        """Returns an array without memory of its own: a step brings it along in each run (:meth:`block_use`)."""
        raise NotImplementedError(f"the ops of the device '{self.name}' bring no memory along")

    def watch(self) -> Watch | None:
        """Returns what sees the memory that the device's library allocates in a run; ``None`` where none does."""
        return None

    def library_bytes(self) -> int:
        """Returns the bytes that the device's libraries keep for themselves once ops have run."""
        return 0

    def pool_bytes(self, streams: Sequence[Stream]) -> int:
        """Returns the bytes that the graphs of a session's streams hold, beside the arena."""
        return 0

    def block_memory(self, array: Array) -> BlockMemory | None:
        """Returns the block in which an array lies; ``None`` for one that has one place for all runs."""
        return None

    @abc.abstractmethod
    def holds(self, array: Array) -> bool:
        """Returns whether an array is in this device's memory."""

    @abc.abstractmethod
    def derive(self, array: Array, view: Callable[..., HostArray | None]) -> Array | None:
        """Returns the view of an array that a function of numpy arrays (a transpose, a slice) makes, in the same memory.

        ``None`` if the device has no such arrays (with strides that go back, for example): then the op runs as others do.
        """

    @abc.abstractmethod
    def contiguous(self, array: Array) -> bool:
        """Returns whether an array is contiguous, in C order."""

    @abc.abstractmethod
    def span(self, array: Array) -> tuple[int, int]:
        """Returns the addresses that an array covers: first byte, byte after the last."""

    # copies
    @abc.abstractmethod
    def copy(self, destination: Array, source: Array, stream: Stream | None = None) -> None:
        """Copies values between two arrays of equal shape and dtype, of this device or in its pinned memory.

        With a stream, the host must not touch pinned memory before the copy is done.
        """

    def copying(self, destination: Array, source: Array, stream: Stream) -> Call:
        """Returns a call that copies as :meth:`copy` does in a stream, in every run."""
        return self.copy, (destination, source, stream)

    @abc.abstractmethod
    def fill(self, destination: Array, value: complex, stream: Stream | None = None) -> None:
        """Writes a number to all elements."""

    @abc.abstractmethod
    def to_host(self, array: Array, stream: Stream | None = None) -> HostArray:
        """Returns a copy of the values, after the work that is in the stream now."""

    @abc.abstractmethod
    def from_host(self, destination: Array, source: HostArray, stream: Stream | None = None) -> None:
        """Writes values; the caller may change ``source`` after the call."""

    @abc.abstractmethod
    def upload(self, array: HostArray) -> Array:
        """Returns an array of this device with the values of a host array; neither may be written afterwards."""

    @abc.abstractmethod
    def assigning(self, destination: Array, source: HostArray) -> Call:
        """Returns a call that writes values in one step: signals and other threads do not see a part of them."""


class DeviceQueue(DeviceFacts):
    """The order of work: streams, events and graphs; without any of its own, a device has ended all work when a call returns."""

    @abc.abstractmethod
    def stream(self, collective: bool = False) -> Stream:
        """Returns a new stream; ``collective``: for work with the arrays of other replicas."""

    def streams(self, replica: int = 0) -> StreamSet:
        """Returns the streams of a session of this thread, or of a replica that it makes."""
        return StreamSet([self.stream() for _ in range(2 + self.compute_streams)], contextlib.nullcontext())

    def event(self) -> Event:
        """Returns a new event."""
        return Event()

    def record(self, event: Event, stream: Stream) -> None:
        """Records an event after the work that is in a stream."""
        # Without queues all earlier work has ended by now, so this is when the event is reached.
        event.time = time.perf_counter()

    def wait(self, event: Event, stream: Stream) -> None:
        """Makes later work in a stream wait for the last recording of an event."""

    def synchronize(self, streams: Sequence[Stream] | None = None) -> None:
        """Returns when all work in the given streams, or in all streams, is done.

        Raises:
            QueuedWorkError: If some work failed.
        """

    def finish(self, event: Event) -> None:
        """Returns when the last recording of an event was reached; work behind it may go on.

        Raises:
            QueuedWorkError: If work before it failed.
        """

    def reached(self, event: Event) -> bool:
        """Returns whether the last recording of an event was reached, or can be no more because of an error; does not wait."""
        return True

    def discard(self, streams: Sequence[Stream]) -> None:
        """Drops the work that an error or an interrupt left in the given streams; streams that wait for it fail, too."""

    def running(self, streams: Sequence[Stream]) -> FrozenOp | None:
        """Returns the op whose queued work runs in one of the streams now, or ``None`` if the device does not know."""
        return None

    def elapsed(self, start: Event, stop: Event) -> float:
        """Returns the seconds between two events that were reached; the ``steps`` log shows them for each run."""
        return stop.time - start.time

    def settings(
        self, threads: int, streams: Sequence[StreamSet] = ()
    ) -> Callable[[bool], contextlib.AbstractContextManager[None]]:
        """Returns what makes the block in which a plan runs: it sets libraries of the process, and at its end sets them back.

        It is told whether the run only launches what was captured, so that libraries are not asked for anything.

        Args:
            threads: Size of the session's thread pool.
            streams: Those of the session, and of others that run in the same block.
        """
        # Called for each run: a function of our own would be one call more.
        return contextlib.nullcontext  # type: ignore[return-value]

    def splits(self, op: FrozenOp, sized: bool = True) -> str:
        """Returns why the step of an op cannot be part of a graph; empty if it can, or where there are no graphs.

        Args:
            op: The op.
            sized: Whether the sizes of its results are known before it runs.
        """
        return ""

    def capture(self, calls: Sequence[Call], streams: Sequence[Stream]) -> Graph:
        """Makes a graph of calls that only put work into the given streams.

        The calls are not run. :meth:`replay` raises their errors.

        Raises:
            DeviceError: If one of them waits for the device or copies to the host.
        """
        return Graph(calls)

    def replay(self, graph: Graph) -> None:
        """Runs a graph."""
        for function, args in graph.calls:
            function(*args)


class DeviceBinding(DeviceFacts):
    """What a device makes of the steps of a plan: work that is bound to arrays, and the calls of a region."""

    def worker_threads(self, wanted: int) -> int:
        """Returns how many threads share the work of a step, if so many are wanted."""
        return max(1, wanted)

    def before_runs(self, ops: Sequence[FrozenOp]) -> Callable[[], None] | None:
        """Returns what has to be called before each run of some ops; ``None``: nothing."""
        return None

    @abc.abstractmethod
    def schedule(self, steps: Sequence[ReadyStep], region: Region) -> Schedule:
        """Returns the calls of a region: of steps that are bound, in the program's order.

        Args:
            steps: The steps.
            region: What they share.
        """

    def scratch_bytes(self, op: FrozenOp, metas: Mapping[str, Meta]) -> int:
        """Returns the bytes of the arena that a step of an op needs while it runs; :meth:`bind` gets them as ``scratch``.

        0 on the CPU: there several tiles of a step run at the same time, each in the workspace of its thread, which all steps
        share. It is as large as the largest need of a single tile, so it stays in the cache of a core; in the arena every step
        would need one part per thread, and the plan would depend on their number.
        """
        return 0

    def block_use(self, op: FrozenOp) -> Literal["", "finds", "makes"]:
        """Returns how an op that is bound deals with foreign blocks, whose addresses change from run to run.

        ``finds``: it finds its inputs where they lie in each run. ``makes``: it also puts its results where the device's library
        allocated them, without a copy. Empty: what it reads and writes has one place for all runs.
        """
        return ""

    @abc.abstractmethod
    def bind(
        self,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        reserved: Mapping[str, Any],
        stream: Stream,
        scratch: Array | None = None,
    ) -> BoundStep:
        """Binds an op to arrays.

        Args:
            op: The op.
            ins, outs: Arrays (lists of them, ``None``) per slot.
            reserved: Values for reserved keywords of the reference (``rng``, ``run_block``, ``group``).
            stream: The stream for its work.
            scratch: Bytes of the arena, as many as :meth:`scratch_bytes` says; ``None``: the device allocates what it needs.

        Returns:
            The work of the step.
        """

    def host_reason(self, op: FrozenOp) -> str:
        """Returns why an op runs on the host while others run on the device; empty where nothing leaves the device."""
        return ""

    def bind_collective(self, op: FrozenOp, ins: Sequence[Any], outs: Sequence[Any], group: Any) -> list[Call]:
        """Returns the calls of a collective op, which put its work into the stream of the replica's ``Communicator``.

        They wait for the other replicas' host threads, so they cannot be part of a graph.
        """
        # No scratch: what a collective keeps between runs lives as long as its communicator (`Communicator.buffer`), not as a step.
        return op.definition.ref.bind_arrays(ins, outs, op.attrs, (), {"group": group.of_op(op)})

    @abc.abstractmethod
    def bind_dynamic(
        self, op: FrozenOp, arrays: ArraysByName, reserved: Mapping[str, Any], run: RunByName, stream: Stream
    ) -> BoundStep:
        """Binds an op whose results' sizes are known only when they have been computed.

        Args:
            op: The op.
            arrays: The arrays; results are added when the op runs.
            reserved: As of :meth:`bind`.
            run: Runs an op on host arrays by name.
            stream: The stream for its work.

        Returns:
            The work of the step.
        """

    @abc.abstractmethod
    def launch(
        self, module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, Array], stream: Stream
    ) -> list[Call]:
        """Returns the calls that launch a generated kernel.

        Args:
            module: The generated module.
            launches: The arguments of the launches; the call does not compile anything.
            arrays: The array that each argument given as a name refers to.
            stream: The stream in which the kernel runs.

        Raises:
            LaunchTooLargeError: If the chip has no room for one of them.
        """


class DeviceLateChecks(DeviceFacts):
    """Checks whose result the host learns with the results of a run."""

    @abc.abstractmethod
    def check_finite(self, arrays: Sequence[Array], stream: Stream | None = None) -> Array:
        """Counts NaN and infinity: one int64 per array, in device memory, so that later work can read it there."""

    @abc.abstractmethod
    def limit(
        self, source: Array, limits: Limits, kept: Array, safe: Array, wrong: Array, stream: Stream
    ) -> list[Call]:
        """Returns calls that check positions on a device whose work runs late; the host does not wait for them.

        Args:
            source: The positions; not empty.
            limits: What they must stay within.
            kept: Gets a copy of them, for the message of the error; or ``source`` itself.
            safe: Gets them, the bad ones replaced by the nearest good one.
            wrong: One int64; gets the number of bad ones.
            stream: The stream for the work.
        """

    # Work that runs late cannot ask the host whether to change state, so it asks a word of the device's memory. Devices whose
    # calls end when their work is done need none of this.
    def any_nonzero(self, words: Array, found: Array, stream: Stream) -> list[Call]:
        """Returns calls that write whether a word is not 0 to a truth value in device memory."""
        raise NotImplementedError

    def bind_unless(
        self,
        skip: Array,
        op: FrozenOp,
        ins: Sequence[Any],
        outs: Sequence[Any],
        stream: Stream,
        scratch: Array | None = None,
    ) -> BoundStep:
        """Binds an update as :meth:`bind` does; where the truth value ``skip`` holds when the work runs, it changes nothing.

        The results lie in the memory of the inputs that they replace.
        """
        raise NotImplementedError

    def copy_unless(self, skip: Array, destination: Array, source: Array, stream: Stream) -> None:
        """Copies as :meth:`copy` does, within device memory, where the truth value ``skip`` does not hold."""
        raise NotImplementedError

    def count_unless(self, skip: Array | None, counter: Array, stream: Stream) -> None:
        """Adds 1 to an int64 of shape [1] in device memory, where the truth value ``skip`` does not hold."""
        raise NotImplementedError


class DeviceRecording(DeviceFacts):
    """How the work of a device is timed while a profiler records."""

    def timed(self, op: FrozenOp, calls: Sequence[Call], stream: Stream, log: RegionLog) -> list[Call]:
        """Returns calls that do the same, and write to ``log`` when their work began and ended.

        Only a run that is recorded makes them; others have the calls as they are.
        """
        return log.bracketed(op, calls, stream) if self.deferred else log.stamped(op, calls)

    def start_recording(self, recorder: Recorder) -> None:
        """Prepares what measures beside the calls of :meth:`timed`; called whenever a session begins to record."""

    def machine(self, threads: int) -> Machine:
        """Returns what shares of the bandwidth refer to, and how ops are timed.

        Args:
            threads: Threads that share the work.
        """
        clock = "events of the device, in runs without a graph" if self.deferred else "the host's clock"
        chip = self.target
        source = f"the {chip.source} of {chip.name}" if chip.bandwidth else f"no data sheet of {chip.name} is at hand"
        return Machine(chip.bandwidth, source, clock)


class Device(DeviceMemory, DeviceQueue, DeviceBinding, DeviceLateChecks, DeviceRecording):
    """A backend. Adding one takes a file with a subclass, and two lines in ``devices/__init__.py``.

    Calls that take a stream may return before their work is done; on the CPU all work is done when a call returns, and
    all streams are one. A call without a stream, or with ``None``, waits for all streams.
    """

    def begin(self) -> None:
        """Prepares the process, before the device's first use.

        Raises:
            DeviceError: If it is too late.
        """

    def describe(self, error: BaseException) -> tuple[str, str]:
        """Returns class and text of a device's error, for messages to the user."""
        return type(error).__name__, str(error)

    def region_log(
        self, recorder: Recorder, update: bool, facts: Callable[[], Facts], streams: Mapping[Stream, str]
    ) -> RegionLog:
        """Returns what the calls of a region write their marks to; see :class:`tstatic.devices.region_log.RegionLog`."""
        return RegionLog(recorder, self, update, facts, streams)
