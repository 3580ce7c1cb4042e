"""What a device is: memory, copies, streams and events, and how a step of a plan becomes calls."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import ModuleType
from typing import Any, Literal, Protocol

import numpy as np

from tstatic.devices.pool import Call
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta
from tstatic.target import Target

HostArray = np.ndarray[Any, Any]

MemoryKind = Literal["device", "pinned", "foreign"]
"""``device``: the device's own. ``pinned``: the host's, which the device copies from and to while the host goes on.
``foreign``: the device's, from the allocator of another library, which may look at it."""

KernelLaunch = tuple[str, tuple[int, ...], Sequence[str | int | float], Mapping[str, int], Mapping[str, int | bool]]
"""Function, grid, arguments, constants, options of the compiler."""


class Memory(Protocol):
    """Bytes that a device gave out."""

    @property
    def can_release(self) -> bool:
        """Whether the pages can be given back while the addresses stay."""

    @property
    def held_bytes(self) -> int:
        """Bytes that may be in memory now."""

    def touch(self) -> None:
        """Notes that the memory is in use."""

    def release(self) -> None:
        """Gives the pages back; the next touch finds zeros at the same addresses."""

    def forget(self) -> None:
        """Notes that the memory is no longer in use."""


class DeviceArray(abc.ABC):
    """An array that the host cannot touch; every device but the CPU gives out its own kind.

    Attributes:
        owner: The device, through which the values come and go.
    """

    owner: Device
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int
    nbytes: int


Array = Any
"""What a device computes on: a numpy array on the CPU, a :class:`DeviceArray` elsewhere. Both have ``shape``, ``dtype``,
``size`` and ``nbytes``."""


class Stream:
    """A queue of a device: what is put into one runs in that order; what is in two runs in any, but for events."""


class Event:
    """A point in a stream that other streams and the host can wait for.

    Attributes:
        time: When it was reached, in seconds of a clock of the device.
    """

    def __init__(self) -> None:
        self.time = 0.0


class Graph:
    """Calls that are replayed as one."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = tuple(calls)


class QueuedWorkError(Exception):
    """Queued work failed when it ran, after the call that queued it had returned; ``__cause__`` is its error.

    Attributes:
        op: The op whose work it was.
    """

    def __init__(self, op: FrozenOp | None) -> None:
        super().__init__(op)
        self.op = op


class Device(abc.ABC):
    """A backend. Adding one takes a file with a subclass, and two lines in ``devices/__init__.py``.

    Calls that take a stream may return before their work is done; on the CPU everything is done when a call returns, and
    all streams are one. What takes no stream, or ``None`` for it, waits for all streams.

    Attributes:
        name: The backend's.
        target: The facts of the chip, by which kernels are cut into programs.
        generated: Whether fused ops run as generated kernels; otherwise as the ops that they replaced.
        deferred: Whether work runs after the call that queues it.
        compute_streams: How many streams a session spreads its steps over.
        exclusive: Whether a process that uses the device on CPU places can use no other there.
    """

    name: str
    target: Target
    generated: bool = False
    deferred: bool = False
    compute_streams: int = 1
    exclusive: bool = False

    def begin(self) -> None:  # noqa: B027 - most devices have nothing to do here
        """Prepares the process, before the device's first use.

        Raises:
            DeviceError: If it is too late.
        """

    # ------------------------------------------------------------------------------------------------------------ memory
    @abc.abstractmethod
    def allocate(self, nbytes: int, kind: MemoryKind = "device", purpose: str = "memory") -> Memory:
        """Zeroed memory, aligned to 256 bytes at least; ``purpose`` is for the ``memory`` log."""

    def free(self, memory: Memory) -> None:
        """Takes memory back; its owner lets go of it, and of all views."""
        memory.forget()

    @abc.abstractmethod
    def view(self, memory: Memory, offset: int, meta: Meta) -> Array:
        """An array at an offset in bytes."""

    @abc.abstractmethod
    def slice(self, array: Array, start: int, shape: Sequence[int]) -> Array:
        """Elements of a flat array from ``start`` on, in a shape, in the same memory."""

    @abc.abstractmethod
    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An array in memory of its own; its values are undefined."""

    @abc.abstractmethod
    def holds(self, array: Array) -> bool:
        """Whether an array lies in this device's memory."""

    @abc.abstractmethod
    def derive(self, array: Array, view: Callable[..., HostArray | None]) -> Array:
        """The view that a function of numpy arrays (a transpose, a slice) makes of an array, in the same memory."""

    @abc.abstractmethod
    def contiguous(self, array: Array) -> bool:
        """Whether an array's elements lie one behind the other, in C's order."""

    @abc.abstractmethod
    def span(self, array: Array) -> tuple[int, int]:
        """The addresses that an array covers: first byte, byte after the last."""

    # ------------------------------------------------------------------------------------------------------------ copies
    @abc.abstractmethod
    def copy(self, destination: Array, source: Array, stream: Stream | None = None) -> None:
        """Copies values between two arrays of this device, which have one shape and dtype."""

    @abc.abstractmethod
    def fill(self, destination: Array, value: complex, stream: Stream | None = None) -> None:
        """Writes one number to all elements."""

    @abc.abstractmethod
    def to_host(self, array: Array, stream: Stream | None = None) -> HostArray:
        """A copy of the values, after what the stream holds by now."""

    @abc.abstractmethod
    def from_host(self, destination: Array, source: HostArray, stream: Stream | None = None) -> None:
        """Writes values; ``source`` may change when this returns."""

    @abc.abstractmethod
    def upload(self, array: HostArray) -> Array:
        """An array of this device with the values of one of the host, which nobody writes to."""

    @abc.abstractmethod
    def assigning(self, destination: Array, source: HostArray) -> Call:
        """A call that writes values when it is made, in one step as far as signals and other threads see it."""

    # ------------------------------------------------------------------------------------------------------------- order
    @abc.abstractmethod
    def stream(self) -> Stream:
        """A new stream."""

    def event(self) -> Event:
        """A new event."""
        return Event()

    def record(self, event: Event, stream: Stream) -> None:
        """Puts an event behind what a stream holds."""
        event.time = time.perf_counter()

    def wait(self, event: Event, stream: Stream) -> None:  # noqa: B027 - all is done when a call returns
        """Lets what comes next in a stream wait for an event, as it was recorded last."""

    def synchronize(self, streams: Sequence[Stream] | None = None) -> None:  # noqa: B027 - all is done when a call returns
        """Returns when everything in some streams, or in all, is done.

        Raises:
            QueuedWorkError: If some of it failed.
        """

    def discard(self, streams: Sequence[Stream]) -> None:  # noqa: B027 - nothing is left over
        """Forgets what an error or an interrupt left in some streams."""

    def running(self, streams: Sequence[Stream]) -> FrozenOp | None:
        """The op whose queued work runs in one of some streams now, as far as the device knows."""
        return None

    def elapsed(self, start: Event, stop: Event) -> float:
        """Seconds between two events that were reached."""
        return stop.time - start.time

    # -------------------------------------------------------------------------------------------------------------- work
    @abc.abstractmethod
    def bind(
        self, op: FrozenOp, ins: Sequence[Any], outs: Sequence[Any], reserved: Mapping[str, Any], stream: Stream
    ) -> Any:
        """Binds an op to arrays.

        Args:
            op: The op.
            ins, outs: Arrays (lists of them, ``None``) per slot.
            reserved: Values for reserved keywords of the reference (``rng``, ``run_block``, ``group``).
            stream: Where its work goes.

        Returns:
            A ``BoundStep``.
        """

    @abc.abstractmethod
    def bind_dynamic(
        self,
        op: FrozenOp,
        arrays: MutableMapping[str, Any],
        reserved: Mapping[str, Any],
        run: Callable[[FrozenOp, MutableMapping[str, Any], Mapping[str, Any]], None],
        stream: Stream,
    ) -> Any:
        """Binds an op whose results' sizes are known when they are there.

        Args:
            op: The op.
            arrays: Value -> array; results are added to it when the op runs.
            reserved: As of :meth:`bind`.
            run: Runs an op on arrays of the host by name.
            stream: Where its work goes.

        Returns:
            A ``BoundStep``.
        """

    @abc.abstractmethod
    def launch(
        self, module: ModuleType, launches: Sequence[KernelLaunch], arrays: Mapping[str, Array], stream: Stream
    ) -> list[Call]:
        """Ready calls of a generated kernel.

        Args:
            module: The generated module.
            launches: What it is called with; nothing is compiled here.
            arrays: The array that each argument given as a name refers to.
            stream: Where the kernel runs.
        """

    def capture(self, calls: Sequence[Call], streams: Sequence[Stream]) -> Graph:
        """Makes a graph of calls that do nothing but put work into some streams.

        The calls are not run. An error in one of them comes from :meth:`replay`.

        Raises:
            DeviceError: If one of them waits for the device or copies to the host.
        """
        return Graph(calls)

    def replay(self, graph: Graph) -> None:
        """Runs a graph."""
        for function, args in graph.calls:
            function(*args)

    # ------------------------------------------------------------------------------------------------------------ errors
    @abc.abstractmethod
    def check_finite(self, arrays: Sequence[Array], stream: Stream | None = None) -> Array:
        """Counts NaN and infinity: one int64 per array, which later work can read where it lies."""

    def describe(self, error: BaseException) -> tuple[str, str]:
        """What to tell the user about an error of the device: its class and its text."""
        return type(error).__name__, str(error)
