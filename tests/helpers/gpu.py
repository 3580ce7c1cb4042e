"""The GPU of this machine; without one, the class of GPUs on tensors of the CPU, with streams that only take notes."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu_waits import waiting_is_an_error
from tests.helpers.recorded_graph import Pool, Recording
from tstatic import devices, nn, places, static
from tstatic.devices import cuda
from tstatic.devices.cuda import CudaDevice
from tstatic.devices.cuda.kernel_launch import KernelLaunching
from tstatic.devices.step import Stream
from tstatic.ops.update import common

REAL = places.device_count() > 0
"""Whether there is a GPU."""


class Queue:
    """A stream: it remembers what it was told to wait for, and the graphs that were launched since it was waited for."""

    cuda_stream = 99

    def __init__(self, library: Library) -> None:
        self._library = library
        self.waits: list[Any] = []
        self.running: list[Recorded] = []

    def wait_stream(self, other: Any) -> None:
        self.waits.append(other)

    wait_event = wait_stream

    def synchronize(self) -> None:
        if self._library.capturing is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self.running.clear()


class Mark:
    """An event."""

    def __init__(self, enable_timing: bool) -> None:
        self.queue: Any = None

    def record(self, queue: Queue) -> None:
        self.queue = queue

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Mark) -> float:
        return 1.5


class Recorded:
    """A graph: the calls of torch that were made while it was captured, which a launch makes at the same addresses.

    Attributes:
        work: They.
        puts: The pieces of work that made them.
        launches: How often it was launched.
        pool: Its memory; ``None`` before it is captured, and when it was destroyed.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._recording: Recording | None = None
        self.work: list[Callable[[], Any]] = []
        self.puts: list[Callable[[], Any]] = []
        self.launches = 0
        self.pool: Pool | None = None

    def capture_begin(self, pool: Pool, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        assert self._library.capturing is None
        assert pool.graphs != 0, "torch has given up a pool whose last graph is gone"
        pool.graphs = (pool.graphs or 0) + 1
        self._library.pools.append(pool)
        self._library.capturing = self
        self.pool = pool
        self._recording = Recording(pool)
        self.work = self._recording.work
        self._recording.__enter__()

    def capture_end(self) -> None:
        assert self._library.capturing is self
        assert self._recording is not None
        self._library.capturing = None
        self._recording.__exit__(None, None, None)
        self._library.graphs.append(self)

    def reset(self) -> None:
        assert self not in self._library.in_flight, "a graph was destroyed while it ran"
        self.work.clear()
        if self.pool is not None:
            assert self.pool.graphs
            self.pool.graphs -= 1
        self.pool = None

    def replay(self) -> None:
        self.launches += 1
        self._library.now.running.append(self)
        for work in self.work:
            work()


class Library:
    """In the place of ``torch.cuda``.

    Attributes:
        current: The caller's stream.
        inside: The streams whose blocks were entered.
        entered: Those that were not left since.
        capturing: The graph that this thread captures; others may go on meanwhile (``thread_local``).
        graphs: All that were.
        pools: The memory of each, and of those that were broken off.
        made: All streams but the caller's.
    """

    Event = Mark

    def __init__(self) -> None:
        self.current = Queue(self)
        self.inside: list[Queue] = []
        self.entered: list[Queue] = []
        self._threads = threading.local()
        self.graphs: list[Recorded] = []
        self.pools: list[Pool] = []
        self.made: list[Queue] = []

    @property
    def capturing(self) -> Recorded | None:
        found: Recorded | None = getattr(self._threads, "capturing", None)
        return found

    @capturing.setter
    def capturing(self, graph: Recorded | None) -> None:
        self._threads.capturing = graph

    def Stream(self, index: int, priority: int = 0) -> Queue:
        self.made.append(Queue(self))
        return self.made[-1]

    def CUDAGraph(self) -> Recorded:
        return Recorded(self)

    def graph_pool_handle(self) -> Pool:
        return Pool()

    def memory_snapshot(self) -> list[dict[str, Any]]:
        pools = dict.fromkeys(one for one in self.pools if one.graphs)
        return [{"segment_pool_id": one, "total_size": one.nbytes} for one in pools]

    @property
    def now(self) -> Queue:
        """The stream whose block is entered."""
        return self.entered[-1] if self.entered else self.current

    @property
    def in_flight(self) -> list[Recorded]:
        """The graphs whose launches nobody has waited for."""
        return [graph for queue in (self.current, *self.made) for graph in queue.running]

    def is_current_stream_capturing(self) -> bool:
        return False

    def init(self) -> None:
        pass

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=66)

    def current_stream(self, index: int) -> Queue:
        return self.current

    @contextlib.contextmanager
    def stream(self, queue: Queue) -> Iterator[None]:
        self.inside.append(queue)
        self.entered.append(queue)
        yield
        self.entered.pop()

    def synchronize(self, index: int) -> None:
        for queue in (self.current, *self.made):
            queue.synchronize()


_inside_run = contextvars.ContextVar("inside a run of the stand-in", default=False)
_fused_adam = common.adam_in_place


def _adam_in_place(*args: Any) -> bool:
    return not _inside_run.get() and _fused_adam(*args)


@contextlib.contextmanager
def _without_fused_adam() -> Iterator[None]:
    """Makes the calls of a GPU, in this thread and those of replicas: torch's fused Adam is for tensors of the CPU alone."""
    common.adam_in_place = _adam_in_place
    token = _inside_run.set(True)
    try:
        yield
    finally:
        _inside_run.reset(token)


class StandIn(CudaDevice):
    """The class of GPUs on tensors of the CPU: what it puts into streams runs at once; a capture records calls of torch."""

    cuda: Library

    def __init__(self, index: int = 0, cuda: Library | None = None) -> None:
        super().__init__(index, "cpu", Library() if cuda is None else cuda)

    def _put(self, stream: Stream | None, work: Callable[[], Any]) -> None:
        graph = self.cuda.capturing
        if graph is not None:
            graph.puts.append(work)
        if graph is not None and isinstance(work, KernelLaunching):
            # The interpreter of kernels makes no calls of torch that could be recorded.
            graph.work.append(work)
        else:
            super()._put(stream, work)

    def settings(self, threads: int, streams: Any = ()) -> Any:
        made = super().settings(threads, streams)

        @contextlib.contextmanager
        def run(launches: bool) -> Iterator[None]:
            # A launch computes here, so that torch's threads matter.
            with made(False), _without_fused_adam():
                yield

        return run


@contextlib.contextmanager
def first_gpu() -> Iterator[CudaDevice]:
    """Puts the first GPU, or what stands in for it, where ``CUDAPlace(0)`` and ``devices.use("gpu")`` find it."""
    with pytest.MonkeyPatch.context() as patch:
        if REAL:
            made = cuda.device(0)
        else:
            made = StandIn()
            patch.setattr(cuda, "device", lambda index: made)
            patch.setattr(places, "_count_gpus", lambda visible: 1)
        patch.setitem(devices.DEVICES, made.name, made)
        with waiting_is_an_error(made) if REAL else contextlib.nullcontext():
            yield made


def trained(place: places.Place, steps: int = 3) -> list[Any]:
    """Losses, and the parameters at the end, of a net with ops that torch runs and ops that only the host runs."""
    with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
        paddle.seed(4)
        scope = static.Scope()
        x, y = static.data("x", [None, 1, 10, 10]), static.data("y", [None, 1], "int64")
        h = nn.functional.relu(static.nn.batch_norm(static.nn.conv2d(x, 3, 3, bias_attr=False)))
        h = nn.functional.dropout(paddle.flip(static.nn.fc(h, 8, activation="tanh"), [1]), 0.2)
        loss = paddle.mean(nn.functional.cross_entropy(static.nn.fc(h, 4), y))
        kept = paddle.nonzero(h > 0.0)
        paddle.optimizer.AdamW(0.01, grad_clip=nn.ClipGradByGlobalNorm(1.0)).minimize(loss)
        draw = np.random.RandomState(0)
        feed = {"x": draw.rand(5, 1, 10, 10).astype("float32"), "y": draw.randint(0, 4, (5, 1))}
        with static.scope_guard(scope):
            exe = static.Executor(place)
            exe.run(static.default_startup_program())
            found = [exe.run(feed=feed, fetch_list=[loss, paddle.shape(kept)]) for _ in range(steps)]
            names = [p.name for p in static.default_main_program().all_parameters()]
            found.append([np.array(scope.find_var(name).get_tensor()) for name in names])
    return [np.asarray(value) for row in found for value in row]
