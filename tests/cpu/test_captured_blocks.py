"""Results that torch allocates stay where they are on a GPU, too, and captured graphs find them, with the bits of the calls."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.test_graphs import Build, images, same, standing_in, trained
from tstatic import devices, nn, profiler, static
from tstatic.devices.fake.with_torch import FakeTorchDevice
from tstatic.devices.graphs import LateGraph
from tstatic.devices.torch import forms as torch_forms
from tstatic.devices.torch.forms import ForeignBlock
from tstatic.runtime.session import Session

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy",
    reason="puts a device of its own in the place of the CPU's",
)

IMAGES = np.random.default_rng(3).random((4, 3, 8, 8), np.float32)


def pooled() -> tuple[list[Any], dict[str, Any]]:
    """Convolutions, batch norm, both kinds of pooling, a view and a fetched result."""
    x = static.data("x", [None, 3, 8, 8])
    h = static.nn.batch_norm(static.nn.conv2d(x, 4, 3, padding=1, bias_attr=False), act="relu")
    h = nn.functional.max_pool2d(h, 2)
    kept = static.nn.conv2d(h, 4, 3, padding=1)
    h = nn.functional.adaptive_avg_pool2d(kept, 2)
    flat = paddle.reshape(static.nn.conv2d(h, 5, 1, bias_attr=False), [-1, 20])
    loss = paddle.mean(paddle.square(static.nn.fc(flat, 3)))
    paddle.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return [loss, kept, flat], {"x": IMAGES}


def tied() -> tuple[list[Any], dict[str, Any]]:
    """An embedding whose table is used twice, so that its gradient is a sum."""
    ids = static.data("ids", [None, 3], "int64")
    h = nn.functional.layer_norm(static.nn.embedding(ids, [9, 4], param_attr=static.ParamAttr("table")), [4])
    table = static.default_main_program().global_block().var("table")
    logits = paddle.matmul(paddle.reshape(h, [-1, 4]), table, transpose_y=True)
    loss = paddle.mean(nn.functional.cross_entropy(logits, paddle.reshape(ids, [-1, 1])))
    paddle.optimizer.SGD(0.05).minimize(loss)
    return [loss], {"ids": np.array([[1, 2, 8], [0, 3, 3]])}


def crossing() -> tuple[list[Any], dict[str, Any]]:
    """Convolutions whose results, and whose gradients' operands, lie across steps that end a graph."""
    x = static.data("x", [4, 3, 8, 8])
    h = static.nn.conv2d(x, 4, 3, padding=1, bias_attr=False)
    kept = static.nn.conv2d(nn.functional.relu(h), 4, 3, padding=1, bias_attr=False)
    out = static.default_main_program().current_block().create_var(name="doubled", dtype="float32", shape=[1])
    doubled = static.py_func(lambda a: np.array(a) * 2, paddle.reshape(paddle.mean(kept), [1]), out)
    loss = paddle.mean(paddle.tanh(h)) + paddle.mean(paddle.square(kept)) + paddle.sum(doubled) * 0.0
    paddle.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return [loss, kept, doubled], {"x": IMAGES}


def waiting() -> tuple[list[Any], dict[str, Any]]:
    """A result of a call that waits for the device, and that a graph reads behind it."""
    x = static.data("x", [4, 3, 3])
    h = paddle.matmul(x, paddle.transpose(x, [0, 2, 1])) + paddle.eye(3)
    return [paddle.tanh(paddle.linalg.inv(h)) * 2.0], {"x": IMAGES[:, 0, :3, :3].copy()}


def chosen() -> tuple[list[Any], dict[str, Any]]:
    """Results that the branch of a condition, and whatever needs sizes, reads; and one of which only the shape is read."""
    x = static.data("x", [4, 3, 8, 8])
    h = static.nn.conv2d(x, 4, 3, padding=1, bias_attr=False)
    flat = paddle.reshape(static.nn.conv2d(h, 2, 3, bias_attr=False), [4, -1])
    picked = static.nn.cond(paddle.mean(h) > 0, lambda: paddle.sum(flat), lambda: paddle.mean(flat))
    found = paddle.nonzero(h > 0.5)
    loss = paddle.mean(h) + picked
    paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return [loss, h, found], {"x": IMAGES}


NETS: list[Build] = [images, pooled, tied, crossing, waiting, chosen]
KEPT: list[Build] = [images, pooled, tied, crossing]
"""Those of whose results none needs a copy."""


class Copies:
    """Counts the bytes of results that were copied to the place of their value."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        self.kept = 0
        one, several, copied, take = (
            torch_forms._copy_result, torch_forms._copy_results, ForeignBlock.copied, ForeignBlock.take,
        )  # fmt: skip

        def count(tensors: Any) -> None:
            self.bytes += sum(t.nbytes for t in torch_forms._flat(tensors) if t is not None)

        patch.setattr(torch_forms, "_copy_result", lambda run, out: (count([out]), one(run, out))[1])
        patch.setattr(torch_forms, "_copy_results", lambda run, outs: (count(outs), several(run, outs))[1])
        patch.setattr(ForeignBlock, "copied", lambda block, made: (count([made]), copied(block, made))[1])

        def taken(block: ForeignBlock, made: Any, others: set[int]) -> None:
            self.kept += made.nbytes
            take(block, made, others)

        patch.setattr(ForeignBlock, "take", taken)


@pytest.mark.parametrize("build", NETS, ids=lambda build: build.__name__)
def test_captured_graphs_find_what_torch_allocated(build: Build) -> None:
    """A launch makes calls at the addresses of the capture, and nothing else; the calls' own memory is new in each run."""
    with standing_in("gpu") as gpu:
        plain = trained(build, "off")
        assert gpu.cuda.graphs == []
        for mode in ("auto", "check"):
            gpu.cuda.graphs.clear()
            assert same(trained(build, mode), plain), mode
            assert any(one.launches for one in gpu.cuda.graphs), "nothing was captured, so that the test tests nothing"


@pytest.mark.parametrize("build", NETS, ids=lambda build: build.__name__)
def test_graphs_over_several_streams_leave_the_bits_of_the_calls(build: Build) -> None:
    """There results are copied: which stream is the last to read one is not known."""
    with pytest.MonkeyPatch.context() as patch:
        device = FakeTorchDevice()
        patch.setitem(devices.DEVICES, device.name, device)
        with devices.use(device.name):
            plain = trained(build, "off", steps=3)
            for seed, mode in ((1, "auto"), (2, "check")):
                device.reseed(seed)
                assert same(trained(build, mode, steps=3), plain), mode


@pytest.mark.parametrize("mode", ["off", "auto"])
@pytest.mark.parametrize("build", KEPT, ids=lambda build: build.__name__)
def test_no_result_is_copied(build: Build, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies(monkeypatch)
    with standing_in("gpu"):
        trained(build, mode)
    assert copies.bytes == 0
    assert copies.kept > 0


class Trained:
    """A program that is trained step by step, on the device that stands in for a GPU."""

    def __init__(self, build: Build, mode: str, iterations: int = 1) -> None:
        paddle.seed(5)
        self.mode = mode
        with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
            self.fetches, self.feed = build()
            self.scope = static.Scope()
            self.exe = static.Executor(paddle.CPUPlace())
            with static.scope_guard(self.scope):
                self.exe.run(static.default_startup_program())
            execution = static.ExecutionStrategy()
            execution.num_iteration_per_run = iterations
            execution.num_threads = 1
            self.compiled = static.CompiledProgram(static.default_main_program(), exec_strategy=execution)

    def step(self) -> list[np.ndarray[Any, Any]]:
        paddle.set_flags({"FLAGS_cuda_graph": self.mode})
        with static.scope_guard(self.scope):
            found: list[Any] = self.exe.run(self.compiled, feed=self.feed, fetch_list=self.fetches)
        return [np.asarray(one) for one in found]

    @property
    def session(self) -> Session:
        (found,) = self.compiled._history.sessions
        return found

    @property
    def graphs(self) -> list[LateGraph]:
        bound = self.session.bound
        assert bound is not None
        made = [one for one in (*bound.schedules.values(), bound.whole) if one is not None]
        return [graph for one in made for graph in getattr(one, "graphs", ())]


def test_a_capture_that_fails_at_any_call_finds_what_its_calls_had_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It frees what others wrote before it; the calls that do the work then need it."""
    with standing_in("gpu") as gpu:
        plain, mine = Trained(crossing, "off"), Trained(crossing, "auto")
        put, number, failing, broken = gpu._put, 0, 0, 0

        def fails(*args: Any, **kwargs: Any) -> Any:
            nonlocal number, broken
            if gpu.cuda.capturing is not None:
                number += 1
                if number == failing:
                    broken += 1
                    raise ArithmeticError("planted")
            return put(*args, **kwargs)

        monkeypatch.setattr(gpu, "_put", fails)
        for _ in range(2):
            assert same(mine.step(), plain.step())
        most, number = number, 0
        assert most > 10
        for failing in range(1, most + 1):
            for graph in mine.graphs:
                graph.free()
                graph.refused = ""
            number = 0
            # The calls that come first bring new memory, so that no graph reads what another one wrote.
            for _ in range(3):
                assert same(mine.step(), plain.step()), failing
        assert broken == most


def test_a_graph_is_not_captured_on_memory_that_calls_bring_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with standing_in("gpu"):
        plain, mine = Trained(crossing, "off"), Trained(crossing, "auto")
        assert same(mine.step(), plain.step())
        first, *others = mine.graphs
        first.refused = "planted"
        for _ in range(3):
            assert same(mine.step(), plain.step())
        assert any(one._blocks.read for one in others), "none reads another's, so that the test tests nothing"
        assert not any(one.captured for one in others if one._blocks.read)
        first.refused = ""
        for _ in range(3):
            assert same(mine.step(), plain.step())
        assert all(one.captured for one in mine.graphs if one._ran)


@pytest.mark.parametrize("build", [pooled, crossing], ids=lambda build: build.__name__)
def test_an_error_behind_any_step_leaves_the_next_run_right(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are freed wherever a run ends; launches give them their memory again."""
    with standing_in("gpu"):
        plain, mine = Trained(build, "off"), Trained(build, "auto")
        for turn in range(4):
            assert same(mine.step(), plain.step()), turn
            bound = mine.session.bound
            assert bound is not None
            schedule = bound.schedules["main"] if bound.whole is None else bound.whole
            at = [0, len(schedule.calls) // 2, len(schedule.calls)][turn % 3]
            schedule.calls.insert(at, (lambda: 1 / 0, ()))
            schedule.op_of_call.insert(at, mine.session.plan.steps[0].op)
            with pytest.raises(ZeroDivisionError):
                mine.step()
            assert all(one.block.hold() is None for one in bound.blocks.all)
            del schedule.calls[at], schedule.op_of_call[at]
            # What was broken off changed no state only if it came before the update.
            if bound.whole is not None:
                break


@pytest.mark.parametrize("iterations", [1, 3])
def test_calls_and_launches_may_alternate(iterations: int) -> None:
    """A profiler has the calls, between launches; several iterations on one feed keep what is fetched."""
    with standing_in("gpu"):
        plain, mine = (Trained(crossing, mode, iterations) for mode in ("off", "auto"))
        for turn in range(5):
            if turn in (1, 3):
                with profiler.Profiler():
                    found = mine.step()
            else:
                found = mine.step()
            assert same(found, plain.step()), turn
        assert all(one.captured for one in mine.graphs if one._ran)


def test_a_result_behind_a_wait_of_the_device_is_copied_for_the_graph_that_reads_it() -> None:
    with standing_in("gpu"):
        plain, mine = Trained(waiting, "off"), Trained(waiting, "auto")
        for _ in range(3):
            assert same(mine.step(), plain.step())
        assert [one.captured for one in mine.graphs if one._ran] == [True, True]
