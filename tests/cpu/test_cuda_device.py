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
from tests.helpers.gpu import Queue, StandIn
from tstatic import devices, static
from tstatic.devices.cuda import CudaDevice
from tstatic.errors import DeviceError, IndexRangeError
from tstatic.places import CPUPlace, CUDAPlace

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="compares numpy's device with another one"
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    made = StandIn()
    monkeypatch.setitem(devices.DEVICES, made.name, made)
    return made


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


def test_a_value_without_axes_is_written(gpu: CudaDevice) -> None:
    """numpy's contiguous copy of such an array has an axis; so files with a count, or a rate, did not load."""
    there = gpu.upload(np.array(1.0))
    function, args = gpu.assigning(there, np.array(2.5))
    function(*args)
    assert gpu.to_host(there).shape == ()
    assert gpu.to_host(there) == 2.5


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


def test_a_kernel_may_ask_for_memory_and_the_users_allocator_stays(gpu: CudaDevice) -> None:
    allocation = pytest.importorskip("triton.runtime._allocation")
    before = allocation._allocator.get()
    given: list[Any] = []

    def kernel(*values: Any, **named: Any) -> None:
        given.append((values, named, allocation._allocator.get()(1000, 128, None)))

    x = gpu.upload(np.arange(6, dtype=np.float32).reshape(2, 3))
    launches = [("kernel", (4,), ("x", 7), {"BLOCK": 8}, {"num_warps": 2})]
    calls = gpu.launch(SimpleNamespace(kernel={(4,): kernel}), launches, {"x": x}, gpu.stream())  # type: ignore[arg-type]
    for function, args in calls:
        function(*args)
    [((tensor, number), named, memory)] = given
    assert (tensor.shape, number, named) == ((6,), 7, {"BLOCK": 8, "num_warps": 2})
    assert tensor.data_ptr() == x.tensor.data_ptr()
    assert memory.numel() >= 1000
    assert memory.device == x.tensor.device
    assert allocation._allocator.get() is before


class Compiled:
    """A kernel that was compiled: it notes how it is launched."""

    def __init__(self, scratch: int = 0) -> None:
        self.metadata = SimpleNamespace(global_scratch_size=scratch, profile_scratch_size=0)
        self.function, self.packed_metadata = 77, (1, 2)
        self.launched: list[tuple[Any, ...]] = []

    def run(self, *arguments: Any) -> None:
        self.launched.append(arguments)


class Jit:
    """A function of Triton: it counts how often it looks for its kernel."""

    def __init__(self, compiled: Compiled, *names: str) -> None:
        self.compiled, self.arg_names, self.looked_up = compiled, list(names), 0

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def call(*values: Any, **named: Any) -> Compiled:
            self.looked_up += 1
            return self.compiled

        return call


def launching(gpu: CudaDevice, jit: Jit) -> Iterator[None]:
    x = gpu.upload(np.arange(6, dtype=np.float32))
    launches = [("kernel", (4, 2), ("x", 7), {"BLOCK": 8}, {"num_warps": 2})]
    calls = gpu.launch(SimpleNamespace(kernel=jit), launches, {"x": x}, gpu.stream())  # type: ignore[arg-type]
    while True:
        for function, args in calls:
            function(*args)
        yield


def test_a_launch_looks_its_kernel_up_once(gpu: CudaDevice) -> None:
    pytest.importorskip("triton")
    jit = Jit(Compiled(), "x_ptr", "n", "BLOCK")
    launch = launching(gpu, jit)
    for _ in range(4):
        next(launch)
    assert (jit.looked_up, len(jit.compiled.launched)) == (1, 3)
    *fixed, tensor, number, block = jit.compiled.launched[-1]
    assert fixed == [4, 2, 1, 99, 77, (1, 2), None, None, None]
    assert (tensor.shape, number, block) == ((6,), 7, 8)


@pytest.mark.parametrize(
    "jit",
    [Jit(Compiled(scratch=128), "x_ptr", "n", "BLOCK"), Jit(Compiled(), "x_ptr", "n", "BLOCK", "DEFAULT")],
    ids=["scratch", "default"],
)
def test_what_only_triton_knows_is_asked_at_each_launch(gpu: CudaDevice, jit: Jit) -> None:
    """A kernel that asks for memory needs an allocator; one with an argument that nobody gave needs its default."""
    pytest.importorskip("triton")
    launch = launching(gpu, jit)
    for _ in range(3):
        next(launch)
    assert (jit.looked_up, jit.compiled.launched) == (3, [])


@pytest.mark.parametrize("chained", [True, False])
def test_whoever_watches_tritons_launches_sees_all(
    gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch, chained: bool
) -> None:
    knobs = pytest.importorskip("triton.knobs")
    jit = Jit(Compiled(), "x_ptr", "n", "BLOCK")
    launch = launching(gpu, jit)
    next(launch)
    if chained:
        monkeypatch.setattr(knobs.runtime.launch_exit_hook, "calls", [print])
    else:
        monkeypatch.setattr(knobs.runtime, "launch_enter_hook", lambda metadata: None)
    next(launch)
    assert (jit.looked_up, jit.compiled.launched) == (2, [])


# --------------------------------------------------------------------------------------------------------- what a run costs
def step(count: int) -> tuple[static.Executor, Any, dict[str, Any]]:
    """A program of three dense layers under AdamW."""
    with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard(f"p{count}"):
        h = static.data("x", [4, 5])
        for _ in range(3):
            h = static.nn.fc(h, 5, activation="tanh")
        loss = paddle.mean(h)
        paddle.optimizer.AdamW(0.01).minimize(loss)
        exe = static.Executor(CPUPlace())
        exe.run(static.default_startup_program())
        return exe, loss, {"x": np.ones((4, 5), "float32")}


@pytest.mark.parametrize("programs", [1, 20])
def test_what_a_run_asks_of_the_library_does_not_grow(gpu: StandIn, programs: int) -> None:
    """The streams of a thread are shared: whoever has compiled twenty programs waits for as many streams as whoever has one."""
    library = gpu.cuda
    paddle.set_flags({"FLAGS_cuda_graph": "off"})
    with devices.use(gpu.name), contextlib.ExitStack():
        made = [step(count) for count in range(programs)]
        for exe, loss, feed in made:
            exe.run(loss.block.program, feed=feed, fetch_list=[loss])
        library.inside.clear()
        library.current.waits.clear()
        queues = set(library.made)
        for queue in queues:
            queue.waits.clear()
        exe, loss, feed = made[0]
        exe.run(loss.block.program, feed=feed, fetch_list=[loss])
        waits = [one for queue in queues for one in queue.waits if isinstance(one, Queue)]
        assert len(queues) == 3
        assert len(waits) + len(library.current.waits) <= 2 * len(queues)
        # Two regions, and what is queued around them: the copy of the feeds and the event behind all.
        assert len(library.inside) <= 2 * len(queues)
