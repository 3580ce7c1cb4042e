"""What the class of GPUs adds to torch's device, with tensors of the CPU and streams that only take notes in its place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import devices, nn, static
from tstatic.devices.cuda import CudaDevice
from tstatic.errors import DeviceError, IndexRangeError
from tstatic.places import CPUPlace, CUDAPlace

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="compares numpy's device with another one"
)


class Queue:
    """A stream: it remembers what it was told to wait for."""

    def __init__(self, index: int = 0) -> None:
        self.waits: list[Any] = []

    def wait_stream(self, other: Any) -> None:
        self.waits.append(other)

    wait_event = wait_stream

    def synchronize(self) -> None:
        pass


class Mark:
    """An event."""

    def __init__(self, enable_timing: bool) -> None:
        self.queue: Any = None

    def record(self, queue: Queue) -> None:
        self.queue = queue

    def elapsed_time(self, other: Mark) -> float:
        return 1.5


class Library:
    """In the place of ``torch.cuda``."""

    Stream, Event = Queue, Mark

    def __init__(self) -> None:
        self.current = Queue()
        self.inside: list[Queue] = []

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
        pass


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    made = CudaDevice(place="cpu", cuda=Library())
    monkeypatch.setitem(devices.DEVICES, made.name, made)
    return made


def trained(steps: int = 3) -> list[Any]:
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
            exe = static.Executor(CPUPlace())
            exe.run(static.default_startup_program())
            found = [exe.run(feed=feed, fetch_list=[loss, paddle.shape(kept)]) for _ in range(steps)]
            names = [p.name for p in static.default_main_program().all_parameters()]
            found.append([np.array(scope.find_var(name).get_tensor()) for name in names])
    return [np.asarray(value) for row in found for value in row]


def test_a_net_trains_as_on_the_cpu(gpu: CudaDevice) -> None:
    plain = trained()
    with devices.use(gpu.name):
        other = trained()
    for a, b in zip(plain, other, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-6)


def test_work_is_queued_between_what_the_caller_queued_before_and_after(gpu: CudaDevice) -> None:
    library = gpu.cuda
    with devices.use(gpu.name):
        x = static.data("x", [2])
        exe = static.Executor(CPUPlace())
        [found] = exe.run(feed={"x": np.ones(2, "float32")}, fetch_list=[x * 2.0])
        assert np.array_equal(found, [2, 2])
        mine = {id(one) for one in library.inside}
        assert id(library.current) not in mine
        exe.run(feed={"x": np.ones(2, "float32")}, fetch_list=[x * 2.0])
    before = [one for queue in library.inside for one in queue.waits if one is library.current]
    assert before, "the run's streams wait for the caller's"
    assert {id(one) for one in library.current.waits} >= mine, "the caller's stream waits for the run's"


def test_a_bad_index_is_named_and_leaves_the_state(gpu: CudaDevice) -> None:
    with devices.use(gpu.name):
        ids = static.data("ids", [2], "int64")
        out = static.nn.embedding(ids, [4, 3])
        exe = static.Executor(CPUPlace())
        exe.run(static.default_startup_program())
        with pytest.raises(IndexRangeError, match="7"):
            exe.run(feed={"ids": np.array([1, 7])}, fetch_list=[out])
        assert exe.run(feed={"ids": np.array([1, 2])}, fetch_list=[out])[0].shape == (2, 3)


def test_a_place_without_its_gpu_says_what_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = static.Executor(CUDAPlace(7))
    out = paddle.full([1], 2.0)
    with pytest.raises(DeviceError, match="gpu:7 to be present") as raised:
        exe.run(fetch_list=[out])
    assert "libcuda" in str(raised.value) or "torch" in str(raised.value) or "the CPU and gpu:0" in str(raised.value)
    paddle.set_flags({"FLAGS_cpu_fallback": True})
    try:
        assert exe.run(fetch_list=[out])[0] == 2.0
    finally:
        paddle.set_flags({"FLAGS_cpu_fallback": False})
