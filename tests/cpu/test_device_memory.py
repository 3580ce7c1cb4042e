"""The memory report of devices of torch counts what was seen, and memory that they cannot have is an error with the report."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_graphs import DEVICES, same
from tests.helpers.gpu import StandIn
from tstatic import devices, nn, static
from tstatic.benchlib.gpu_memory import GpuMemory
from tstatic.devices import cuda
from tstatic.devices.base import QueuedWorkError
from tstatic.devices.fake import FakeDevice
from tstatic.devices.fake.with_torch import FakeTorchDevice
from tstatic.devices.torch.forms import watching
from tstatic.errors import OutOfMemoryError
from tstatic.shortage import out_of_memory

torch = pytest.importorskip("torch")
FakeTensor = importlib.import_module("torch._subclasses.fake_tensor").FakeTensor
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy",
    reason="puts a device of its own in the place of the CPU's",
)

BATCH = 16


@contextmanager
def standing_in(name: str) -> Iterator[Any]:
    if name == "torch":
        with devices.use("torch"):
            yield devices.DEVICES["torch"]
        return
    with pytest.MonkeyPatch.context() as patch:
        made = {**DEVICES, "fake+torch": FakeTorchDevice}[name]()
        patch.setitem(devices.DEVICES, made.name, made)
        with devices.use(made.name):
            yield made


def images() -> tuple[list[Any], dict[str, Any]]:
    x, y = static.data("x", [None, 3, 24, 24]), static.data("y", [None, 1], "int64")
    h = static.nn.batch_norm(static.nn.conv2d(x, 16, 3, padding=1, bias_attr=False), act="relu")
    h = nn.functional.max_pool2d(static.nn.conv2d(h, 16, 3, padding=1), 2)
    loss = paddle.mean(nn.functional.cross_entropy(static.nn.fc(h, 10), y))
    paddle.optimizer.Momentum(0.05, 0.9).minimize(loss)
    draw = np.random.default_rng(0)
    return [loss], {"x": draw.random((BATCH, 3, 24, 24), "float32"), "y": draw.integers(0, 10, (BATCH, 1))}


def words() -> tuple[list[Any], dict[str, Any]]:
    ids = static.data("ids", [None, 32], "int64")
    h = static.nn.embedding(ids, [500, 64])
    h = nn.functional.layer_norm(static.nn.fc(h, 128, num_flatten_dims=2, activation="gelu"), [128])
    loss = paddle.mean(paddle.square(static.nn.fc(h, 64, num_flatten_dims=2)))
    paddle.optimizer.Adam(0.05).minimize(loss)
    return [loss], {"ids": np.random.default_rng(0).integers(0, 500, (BATCH, 32))}


class Trained:
    """A program, its executor and its scope."""

    def __init__(self, build: Any) -> None:
        paddle.seed(5)
        paddle.set_flags({"FLAGS_cuda_graph": "auto"})
        with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
            self.fetches, self.feed = build()
            self.main, self.scope = static.default_main_program(), static.Scope()
            self.exe, self.compiled = static.Executor(paddle.CPUPlace()), static.CompiledProgram(self.main)
            with static.scope_guard(self.scope):
                self.exe.run(static.default_startup_program())

    def step(self) -> list[Any]:
        with static.scope_guard(self.scope):
            return [np.asarray(a) for a in self.exe.run(self.compiled, feed=self.feed, fetch_list=self.fetches)]

    def report(self) -> Any:
        return self.compiled.memory_report({n: a.shape for n, a in self.feed.items()}, self.fetches, self.scope)

    def state(self) -> list[Any]:
        names = sorted(v.name for v in self.main.list_vars() if v.persistable)
        return [np.array(self.scope.find_var(name).get_tensor()) for name in names]


def storages() -> dict[int, int]:
    """Address -> bytes of the memory of all tensors that there are."""
    found: dict[int, int] = {}
    for one in gc.get_objects():  # of some, the class may not be asked for
        if issubclass(type(one), torch.Tensor) and not issubclass(type(one), FakeTensor):
            memory = one.untyped_storage()
            # Tensors that only stand in a graph of torch.compile have no memory.
            with contextlib.suppress(RuntimeError):
                found[memory.data_ptr()] = memory.nbytes()
    found.pop(0, None)
    return found


@pytest.mark.parametrize("build", [images, words], ids=lambda build: build.__name__)
@pytest.mark.parametrize("name", ["torch", "gpu"])
def test_the_report_is_what_tensors_were_seen_to_have(name: str, build: Any) -> None:
    """Within a hundredth: the tensors that there are between two runs, and what torch allocates in a run that makes the calls."""
    with standing_in(name) as device, pytest.MonkeyPatch.context() as patch:
        gc.collect()
        before = storages()
        pinned: list[Any] = []
        if name == "gpu":
            # No graphs: in their launches torch is not asked for memory.
            patch.setattr(StandIn, "splits", lambda self, op, how="": "planted")
            take = StandIn._pinned
            patch.setattr(StandIn, "_pinned", lambda *given: (pinned.append(take(*given)), pinned[-1])[1])
        net = Trained(build)
        net.step()
        net.step()
        gc.collect()
        kept = {at: n for at, n in storages().items() if before.get(at) != n}
        for one in pinned:
            # The host's own, though in tensors.
            kept.pop(one._tensor.untyped_storage().data_ptr(), None)
        with watching(torch) as seen:
            net.step()
        report = net.report()
        # So is the scratch of workers.
        mine = report.total_bytes - report.workspace_bytes
        assert mine == pytest.approx(sum(kept.values()) + seen.most_bytes, rel=0.01), (str(report), report.parts)
        del device


def test_the_memory_of_graphs_is_counted_while_there_are_any() -> None:
    with standing_in("gpu") as gpu:
        net = Trained(images)
        before = net.report()
        assert before.pool_bytes == before.workspace_bytes == 0
        net.step()
        called = net.report()
        assert called.pool_bytes == 0
        assert called.foreign_bytes > before.foreign_bytes, "what torch holds beside results is known after a run"
        net.step()
        net.step()
        report = net.report()
        (pool,) = {id(one): one for one in gpu.cuda.pools}.values()
        assert report.pool_bytes == pool.nbytes >= report.foreign_bytes
        assert report.peak_bytes == called.peak_bytes - called.foreign_bytes + report.pool_bytes
        assert report.parts["pools of graphs"] == report.pool_bytes
        assert sum(report.parts.values()) == report.total_bytes
        assert f"graphs  {'':<1}" in str(report)
        assert report.to_dict()["pool_bytes"] == report.pool_bytes
        net.exe.close()
        assert net.report().pool_bytes == 0


def _short(op: Any) -> Exception:
    error = QueuedWorkError(op)
    error.__cause__ = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.50 GiB is free."
    )
    return error


@contextmanager
def no_memory(name: str, armed: list[str]) -> Iterator[None]:
    """Within it, the first operator of a type in the list finds no memory."""
    run, work = cuda._run, getattr(LATE[name], "_work", None)

    def on_gpu(calls: Any, op: Any, stream: Any) -> None:
        if op.type in armed:
            raise _short(op)
        run(calls, op, stream)

    def on_fake(self: Any, op: Any, *rest: Any) -> Any:
        assert work is not None
        made = work(self, op, *rest)

        def late() -> None:
            if op.type in armed:
                raise _short(op).__cause__ or MemoryError
            made()

        return late

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "_run", on_gpu)
        if work is not None:
            patch.setattr(LATE[name], "_work", on_fake)
        patch.setattr(LATE[name], "must_capture", False)
        yield


LATE = {"gpu": StandIn, "fake": FakeDevice, "fake+torch": FakeTorchDevice}


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("name", LATE)
def test_memory_that_an_operator_cannot_have_is_told_and_the_executor_works_on(name: str, steps: int) -> None:
    """Before a graph is captured, while it is, and where calls are made again behind it."""
    with standing_in(name):
        plain = Trained(images)
        expected = [plain.step() for _ in range(steps + 2)]
    armed: list[str] = []
    with standing_in(name), no_memory(name, armed):
        net = Trained(images)
        for row in expected[:steps]:
            assert same(net.step(), row)
        before = net.state()
        if steps == 3:
            # A launch allocates nothing.
            net.exe.close()
            net.exe = static.Executor(paddle.CPUPlace())
        armed.append("conv2d")
        with pytest.raises(OutOfMemoryError) as caught:
            net.step()
        armed.clear()
        error = caught.value
        assert (error.op, error.wanted_bytes, error.available_bytes) == ("conv2d", int(20.5 * 2**30), int(1.5 * 2**30))
        assert "test_device_memory.py" in str(error.where)
        assert "compiled.max_batch(" in str(error.fix)
        assert str(error).count("the run takes") == 1
        assert "arena" in str(error.received)
        assert same(net.state(), before)
        for row in expected[steps:]:
            assert same(net.step(), row)


@pytest.mark.parametrize("name", LATE)
def test_memory_that_a_plan_cannot_have_is_told_with_its_parts(name: str) -> None:
    with standing_in(name) as device:
        net = Trained(images)
        allocate = device.allocate
        with pytest.MonkeyPatch.context() as patch:

            def refused(nbytes: int, kind: Any = "device", purpose: str = "memory") -> Any:
                if purpose == "an arena of temporaries":
                    raise out_of_memory(f"{purpose} on {name}", nbytes)
                return allocate(nbytes, kind, purpose)

            patch.setattr(device, "allocate", refused)
            with pytest.raises(OutOfMemoryError) as caught:
                net.step()
        said = str(caught.value)
        assert said.count("the run takes") == 1
        assert "most is needed at" in said
        assert "max_batch" in said
        assert np.isfinite(net.step()[0]).all()


class Allocator:
    """In the place of ``torch.cuda``: its numbers."""

    def __init__(self) -> None:
        self.allocated, self.reserved, self.free, self.steps, self.reset_after = 100, 1000, 5000, 0, -1

    def memory_allocated(self) -> int:
        return self.allocated

    def memory_reserved(self) -> int:
        return self.reserved

    def mem_get_info(self) -> tuple[int, int]:
        return self.free, 10_000

    def synchronize(self) -> None:
        pass

    def reset_peak_memory_stats(self) -> None:
        self.reset_after = self.steps

    def max_memory_allocated(self) -> int:
        return 2100

    def memory_snapshot(self) -> list[dict[str, Any]]:
        return [
            {"segment_pool_id": (0, 0), "total_size": 1 << 20, "allocated_size": 7},
            {"segment_pool_id": (0, 1), "total_size": 600, "allocated_size": 100},
        ]

    def step(self) -> None:
        self.steps += 1
        if self.steps == 1:
            self.free, self.reserved = 2800, 3000


def test_a_report_is_compared_with_what_the_allocator_and_the_driver_say() -> None:
    cuda = Allocator()
    memory = GpuMemory(cuda)
    with standing_in("gpu"):
        net = Trained(images)
        report = replace(
            net.report(), peak_bytes=1500, foreign_bytes=0, pool_bytes=500, bound_bytes=0, workspace_bytes=25
        )
        report = replace(report, by_category={**report.by_category, "parameters": 800, "other state": 200})
    found = memory.compare(cuda.step, lambda: report)
    assert (cuda.steps, cuda.reset_after) == (4, 3)
    assert (found.allocated_bytes, found.pool_bytes, found.measured_bytes) == (2000, 500, 2500)
    assert found.reported_bytes == 2525
    assert found.off == pytest.approx(0.01)
    assert (found.context_bytes, found.later_bytes) == (4000, 200)
    assert "measured 2.50 kB, +1.0%" in str(found)
