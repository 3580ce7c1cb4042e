"""The stand-in for GPUs, several of them, whose streams know what events order: memory that two use without one is an error."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.gpu import Library, Mark, Queue, StandIn
from tests.helpers.recorded_graph import mapped
from tstatic.devices.base import Memory, MemoryKind
from tstatic.devices.step import Stream
from tstatic.devices.torch.device import TorchArray, TorchMemory


class OrderError(AssertionError):
    """Two streams use the same memory, one of them to write, and no event orders them."""


@dataclass(frozen=True, slots=True)
class Use:
    """Memory that a piece of work reads or writes, from its first byte to the one behind its last."""

    start: int
    end: int
    writes: bool


@dataclass(frozen=True, slots=True)
class _Done:
    use: Use
    handle: int
    time: int
    what: str


class Order:
    """What the streams of some devices did to memory, and what orders them: clocks of vectors.

    Attributes:
        host: Of each stream, how much of its work the host has waited for.
        queues: The streams by their handles.
        before_waits: Called with a stream before the host waits for it.
    """

    def __init__(self) -> None:
        self.host: dict[int, int] = {}
        self.queues: WeakValueDictionary[int, OrderedQueue] = WeakValueDictionary()
        self.before_waits: list[Callable[[OrderedQueue], None]] = []
        self._done: list[_Done] = []
        self._memory: list[tuple[int, int, StorageWeakRef]] = []
        self._lock = threading.RLock()
        self._handles = itertools.count(1000)

    def handle(self) -> int:
        return next(self._handles)

    def learn(self, known: dict[int, int], more: dict[int, int]) -> None:
        with self._lock:
            for handle, time in more.items():
                known[handle] = max(known.get(handle, 0), time)

    def allocated(self, tensor: torch.Tensor) -> None:
        """Takes note of memory of a device: what others did to it before is forgotten, as torch orders that."""
        storage = tensor.untyped_storage()
        start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        with self._lock:
            self._memory = [one for one in self._memory if not one[2].expired()]
            self._memory.append((start, end, StorageWeakRef(storage)))
            self._done = [one for one in self._done if one.use.end <= start or end <= one.use.start]

    def is_of_device(self, use: Use) -> bool:
        """Returns whether memory is a device's; the host's is read and written before a call ends."""
        with self._lock:
            return any(start <= use.start < end and not kept.expired() for start, end, kept in self._memory)

    def work(self, queue: OrderedQueue, uses: Iterable[Use], what: str) -> None:
        """Takes note of work that is put into a stream.

        Args:
            queue: The stream.
            uses: The memory of devices that it uses.
            what: The work, for messages.

        Raises:
            OrderError: If no event orders it behind other work on the memory.
        """
        with self._lock:
            self.learn(queue.seen, self.host)
            uses = list(uses)
            for use, done in itertools.product(uses, self._done):
                apart = use.end <= done.use.start or done.use.end <= use.start
                if apart or not (use.writes or done.use.writes) or queue.seen.get(done.handle, 0) >= done.time:
                    continue
                does, did = ("writes" if one.writes else "reads" for one in (use, done.use))
                raise OrderError(
                    f"{what} {does} memory in stream {queue.cuda_stream} that '{done.what}' {did} in stream {done.handle}, "
                    "with no event between them"
                )
            time = queue.seen[queue.cuda_stream] = queue.seen.get(queue.cuda_stream, 0) + 1
            for use in uses:
                if use.writes:
                    self._done = [
                        d for d in self._done if not use.start <= d.use.start <= d.use.end <= use.end
                    ]  # fmt: skip
            self._done += [_Done(use, queue.cuda_stream, time, what) for use in uses]


class OrderedQueue(Queue):
    """A stream with a handle.

    Attributes:
        seen: Of each stream, how much of its work comes before what is put into this one next.
    """

    def __init__(self, library: OrderedLibrary) -> None:
        super().__init__(library)
        self.library = library
        self.cuda_stream = library.order.handle()
        self.seen: dict[int, int] = {}
        library.order.queues[self.cuda_stream] = self

    def wait_stream(self, other: Any) -> None:
        super().wait_stream(other)
        self.library.order.learn(self.seen, other.seen)

    wait_event = wait_stream

    def synchronize(self) -> None:
        for told in self.library.order.before_waits:
            told(self)
        super().synchronize()
        self.library.order.learn(self.library.order.host, self.seen)


class OrderedMark(Mark):
    """An event; it knows what comes before it."""

    def __init__(self, enable_timing: bool) -> None:
        super().__init__(enable_timing)
        self.seen: dict[int, int] = {}

    def record(self, queue: Queue) -> None:
        assert isinstance(queue, OrderedQueue)
        super().record(queue)
        self.seen = dict(queue.seen)

    def synchronize(self) -> None:
        self.queue.library.order.learn(self.queue.library.order.host, self.seen)


class OrderedLibrary(Library):
    """In the place of ``torch.cuda``, for one device of several.

    Attributes:
        order: What all of their streams share.
        index: Number of the device.
    """

    Event = OrderedMark

    def __init__(self, order: Order, index: int) -> None:
        super().__init__()
        self.order, self.index = order, index
        self.current = OrderedQueue(self)

    def Stream(self, index: int, priority: int = 0) -> OrderedQueue:
        made = OrderedQueue(self)
        made.priority = priority
        self.made.append(made)
        return made


class _Noting(TorchDispatchMode):
    """Takes note of the memory that torch's calls in the block use."""

    def __init__(self, order: Order, queue: OrderedQueue) -> None:
        super().__init__()
        self._order, self._queue = order, queue

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, uses = kwargs or {}, []
        for i, argument in enumerate(function._schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            writes = argument.alias_info is not None and argument.alias_info.is_write
            found: list[torch.Tensor] = []
            mapped(torch.Tensor, found.append, value)
            uses += [_use(tensor, writes) for tensor in found if tensor.numel()]
        self._order.work(self._queue, filter(self._order.is_of_device, uses), function._schema.name)
        return function(*args, **kwargs)


def _use(tensor: torch.Tensor, writes: bool) -> Use:
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return Use(tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size(), writes)


class OrderedGpu(StandIn):
    """One of several GPUs on tensors of the CPU: work that is put into its streams is held to their order.

    Args:
        order: What the streams of all of them share.
        index: Its number.
    """

    def __init__(self, order: Order, index: int) -> None:
        super().__init__(index, OrderedLibrary(order, index))
        self._order = order

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> TorchArray:
        made = super().empty(shape, dtype)
        self._order.allocated(made.tensor)
        return made

    def allocate(self, nbytes: int, kind: MemoryKind = "device", purpose: str = "memory") -> Memory:
        made = super().allocate(nbytes, kind, purpose)
        if isinstance(made, TorchMemory):
            self._order.allocated(made.tensor)
        return made

    def _put(self, stream: Stream | None, work: Callable[[], Any]) -> None:
        if stream is None or self.cuda.capturing is not None:
            super()._put(stream, work)
            return
        queue: Any = stream.queue  # type: ignore[attr-defined]
        with _Noting(self._order, queue):
            super()._put(stream, work)


__all__ = ["Order", "OrderError", "OrderedGpu", "OrderedQueue", "Use"]
