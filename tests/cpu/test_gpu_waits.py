"""On a GPU the programs of the tests run where a wait is an error; here with streams that only take notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers import gpu
from tests.helpers.gpu import Library, first_gpu, trained
from tests.helpers.gpu_waits import waiting_is_an_error
from tstatic import static
from tstatic.devices.cuda import CudaDevice
from tstatic.devices.torch.forms import torch_form
from tstatic.ir.frozen import freeze
from tstatic.ir.opdef import op_def
from tstatic.ir.traits import Waits
from tstatic.places import CPUPlace, CUDAPlace

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(gpu.REAL, reason="watches streams that are not there")


class Mode:
    """In the place of torch's debug mode: while it is ``error``, a wait raises."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now: str | int = 0
        self.asked: list[str | int] = []
        patch.setattr(Library, "set_sync_debug_mode", lambda _, mode: self.set(mode), raising=False)
        patch.setattr(Library, "get_sync_debug_mode", lambda _: self.now, raising=False)
        patch.setattr(Library, "synchronize", lambda *_: self.wait())
        patch.setattr(gpu.Queue, "synchronize", lambda *_: self.wait())

    def set(self, mode: str | int) -> None:
        self.now = mode
        self.asked.append(mode)

    def wait(self) -> None:
        if self.now == "error":
            raise RuntimeError("called a synchronizing CUDA operation")


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> Mode:
    return Mode(monkeypatch)


@pytest.fixture
def device(mode: Mode) -> Iterator[CudaDevice]:
    with first_gpu() as made, waiting_is_an_error(made):
        yield made


def test_a_net_trains_and_what_runs_on_the_host_waits_outside(device: CudaDevice, mode: Mode) -> None:
    """Among its ops are some that the host runs, and checks of labels."""
    for a, b in zip(trained(CUDAPlace(0)), trained(CPUPlace()), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    assert mode.asked.count("error") > 50
    assert mode.now == 0, "afterwards it is what it was"


def run_relu(monkeypatch: pytest.MonkeyPatch, device: CudaDevice) -> Any:
    """Runs a relu whose form waits for the device in the middle."""
    form = torch_form(op_def("relu"))
    assert form is not None
    plain = form.function

    def waiting(*args: Any, **attrs: Any) -> Any:
        device.synchronize()
        return plain(*args, **attrs)

    monkeypatch.setattr(form, "function", waiting)
    y = paddle.nn.functional.relu(static.data("x", [3]))
    return static.Executor(CUDAPlace(0)).run(feed={"x": np.array([-1, 0, 2], "float32")}, fetch_list=[y])[0]


def test_a_form_that_waits_is_an_error(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="relu") as caught:
        run_relu(monkeypatch, device)
    assert "synchronizing" in str(caught.value.__cause__) or "synchronizing" in str(caught.value)


def test_a_form_that_says_why_it_waits_may(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(op_def("relu")), "traits", (Waits("it is told to"),))
    assert run_relu(monkeypatch, device).tolist() == [0, 0, 2]


def test_what_waits_in_its_form_is_part_of_no_graph(device: CudaDevice) -> None:
    """A capture ends at the first wait."""
    x = static.data("x", [2, 2])
    y = paddle.nn.functional.relu(paddle.linalg.inv(x + 1.0) * 2.0)
    ops = freeze(static.default_main_program(), ["x"], [y.name]).ops
    assert {op.type: bool(device.splits(op)) for op in ops} == {"scale": False, "inverse": True, "relu": False}
    exe = static.Executor(CUDAPlace(0))
    for _ in range(3):
        [found] = exe.run(feed={"x": np.eye(2, dtype="float32")}, fetch_list=[y])
        np.testing.assert_allclose(found, [[4 / 3, 0], [0, 4 / 3]], rtol=1e-5)
    assert len(device.cuda.graphs) == 2, "before the inverse and behind it"


def test_without_a_gpu_nothing_asks_for_the_mode(mode: Mode) -> None:
    with first_gpu():
        trained(CUDAPlace(0), steps=1)
    assert mode.asked == []
