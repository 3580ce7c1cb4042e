"""Kernels that torch's profiler saw, and their ops. Nothing here has a GPU: the events are written down as torch gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.profiler.nets import Net
from tstatic import devices, profiler, records
from tstatic.devices import cuda
from tstatic.devices.torch import kernels as torch_kernels
from tstatic.devices.torch.kernels import kernels_of
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import op_def

OPS = [FrozenOp(op_def("tanh"), ("x",), ("a",), {}), FrozenOp(op_def("exp"), ("a",), ("b",), {})]


@dataclass
class Seen:
    called: str
    begin: int
    length: int
    number: int = 0
    gpu: bool = False
    thread: int = 7

    def name(self) -> str:
        return self.called

    def device_type(self) -> str:
        return "DeviceType.CUDA" if self.gpu else "DeviceType.CPU"

    def device_resource_id(self) -> int:
        return 13

    def start_thread_id(self) -> int:
        return self.thread

    def correlation_id(self) -> int:
        return self.number

    def start_ns(self) -> int:
        return self.begin

    def duration_ns(self) -> int:
        return self.length


def test_a_kernel_is_of_the_op_whose_range_launched_it() -> None:
    events = [
        Seen("tstatic:0", 100, 50),
        Seen("cuLaunchKernelEx", 110, 5, 1),
        Seen("cudaLaunchKernel", 120, 5, 2),
        Seen("tstatic:1", 150, 50),
        Seen("aten::exp", 155, 20, 3),
        Seen("cudaLaunchKernel", 160, 5, 3),
        Seen("cudaMemcpyAsync", 300, 5, 4),
        Seen("cudaLaunchKernel", 120, 5, 5, thread=8),
        Seen("fused_tanh", 1000, 40, 1, gpu=True),
        Seen("helper", 1040, 10, 2, gpu=True),
        Seen("exp_kernel", 1100, 30, 3, gpu=True),
        Seen("Memcpy DtoH", 1200, 30, 4, gpu=True),
        Seen("of another thread", 1300, 30, 5, gpu=True),
        Seen("tstatic:0", 1000, 50, 1, gpu=True),
    ]
    found = list(kernels_of(reversed(events), OPS, "gpu", offset=5))
    assert [(r.name, r.op and r.op.type) for r in found] == [
        ("fused_tanh", "tanh"), ("helper", "tanh"), ("exp_kernel", "exp"), ("Memcpy DtoH", None), ("of another thread", None),
    ]  # fmt: skip
    assert [(r.start, r.length) for r in found][:2] == [(1005, 40), (1045, 10)]
    assert {r.kind for r in found} == {"kernel"}
    rows = profiler.tables.rows_of(found, lambda e: e.name)
    assert rows["helper"].calls == 1


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.numpy_device("chooses its devices itself")
def test_the_recording_beside_ours_begins_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch records, on this machine's CPU, the ranges of all ops; a GPU's kernels would carry their numbers."""
    torch = pytest.importorskip("torch")
    from tests.helpers.gpu import first_gpu  # needs torch

    names: list[str] = []

    def noted(events: Any, ops: Any, device: str, offset: int) -> Any:
        names.extend(event.name() for event in events)
        numbered = [int(n.removeprefix("tstatic:")) for n in names if n.startswith("tstatic:")]
        assert numbered
        assert {ops[n].type for n in numbered} >= {"gelu", "momentum", "mul"}
        return [records.Record("kernel", "one", 1, 2, 0, kernel="one", device=device)]

    monkeypatch.setattr(cuda, "sees_gpus", lambda torch: True)
    monkeypatch.setattr(torch_kernels, "kernels_of", noted)
    with first_gpu() as gpu, devices.use(gpu.name):
        net = Net(width=8)
        net.run()
        with profiler.profile(kernels=True) as found:
            net.run()
            net.run()
        assert [row.name for row in found.by_kernel()] == ["one"]
        assert "kernels by torch's profiler" in found.machines[gpu.name].clock
        with profiler.profile() as found:
            net.run()
        assert "kernels as the operators they compute" in found.machines[gpu.name].clock
    assert names.count("tstatic:0") == 2
    assert torch_kernels.sees_gpus(torch) == torch.cuda.is_available()
