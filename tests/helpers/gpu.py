"""The GPU of this machine; without one, the class of GPUs on tensors of the CPU, with streams that only take notes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu_waits import waiting_is_an_error
from tstatic import devices, nn, places, static
from tstatic.devices import cuda
from tstatic.devices.cuda import CudaDevice
from tstatic.devices.step import Stream

REAL = places.device_count() > 0
"""Whether there is a GPU."""


class Queue:
    """A stream: it remembers what it was told to wait for."""

    cuda_stream = 99

    def __init__(self, library: Library) -> None:
        self._library = library
        self.waits: list[Any] = []

    def wait_stream(self, other: Any) -> None:
        self.waits.append(other)

    wait_event = wait_stream

    def synchronize(self) -> None:
        if self._library.capturing is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")


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
    """A graph: what was put into streams while it was captured.

    Attributes:
        work: It.
        launches: How often it was launched.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self.work: list[Callable[[], Any]] = []
        self.launches = 0

    def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        assert self._library.capturing is None
        self._library.pools.append(pool)
        self._library.capturing = self

    def capture_end(self) -> None:
        assert self._library.capturing is self
        self._library.capturing = None
        self._library.graphs.append(self)

    def reset(self) -> None:
        self.work.clear()

    def replay(self) -> None:
        self.launches += 1
        for work in self.work:
            work()


class Library:
    """In the place of ``torch.cuda``.

    Attributes:
        current: The caller's stream.
        inside: The streams whose blocks were entered.
        capturing: The graph that is captured.
        graphs: All that were.
        pools: The memory of each.
        made: All streams but the caller's.
    """

    Event = Mark

    def __init__(self) -> None:
        self.current = Queue(self)
        self.inside: list[Queue] = []
        self.capturing: Recorded | None = None
        self.graphs: list[Recorded] = []
        self.pools: list[Any] = []
        self.made: list[Queue] = []

    def Stream(self, index: int) -> Queue:
        self.made.append(Queue(self))
        return self.made[-1]

    def CUDAGraph(self) -> Recorded:
        return Recorded(self)

    def graph_pool_handle(self) -> object:
        return object()

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
        yield

    def synchronize(self, index: int) -> None:
        self.current.synchronize()


class StandIn(CudaDevice):
    """The class of GPUs on tensors of the CPU: what it puts into streams runs at once, or is recorded while it captures."""

    cuda: Library

    def __init__(self) -> None:
        super().__init__(place="cpu", cuda=Library())

    def settings(self, threads: int, streams: Any = ()) -> Any:
        made = super().settings(threads, streams)
        # A launch computes here, so that torch's threads matter.
        return lambda launches: made(False)

    def _put(self, stream: Stream | None, work: Callable[[], Any]) -> None:
        graph = self.cuda.capturing
        super()._put(stream, work if graph is None else functools.partial(graph.work.append, work))


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
