"""What the class of GPUs adds to torch's device, with tensors of the CPU and streams that only take notes in its place."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.gpu import StandIn
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
