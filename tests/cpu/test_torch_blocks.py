"""Results that torch allocates: their memory is the value's, nothing is copied, and the memory report counts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.bench.scripts import script
from tests.helpers.own_process import run_alone
from tstatic import devices, static
from tstatic.devices.torch.device import DEVICE, TorchDevice
from tstatic.devices.torch.forms import Blocks, ForeignBlock, Taking, watching
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import op_def
from tstatic.ir.types import Meta, float32
from tstatic.runtime.session import Session

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="compares numpy's device with torch's"
)

IMAGES = np.random.default_rng(3).random((4, 3, 8, 8), np.float32)


def convolutions() -> list[Any]:
    """A net whose convolutions' results are read by a view, in place, by a loop's condition and by fetches."""
    x = static.data("x", [4, 3, 8, 8], "float32")
    h = static.nn.conv2d(x, 4, 3, padding=1, act="relu", param_attr=static.ParamAttr(name="w1"), bias_attr=False)
    kept = static.nn.conv2d(h, 4, 3, padding=1, param_attr=static.ParamAttr(name="w2"), bias_attr=False)
    flat = paddle.reshape(static.nn.conv2d(h, 2, 3, bias_attr=False, param_attr=static.ParamAttr(name="w3")), [4, -1])
    chosen = static.nn.cond(paddle.mean(kept) > 0, lambda: paddle.sum(flat), lambda: paddle.mean(flat))
    loss = paddle.mean(kept) + chosen
    paddle.optimizer.Momentum(learning_rate=0.1, momentum=0.9).minimize(loss)
    return [loss, kept, flat, "w1@GRAD"]


class Run:
    """A program, its session and its results on torch's device."""

    def __init__(self, build: Callable[[], list[Any]] = convolutions, steps: int = 3) -> None:
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), paddle.utils.unique_name.guard():
            paddle.seed(5)
            main.random_seed = startup.random_seed = 5
            self.fetches = build()
        self.scope = static.Scope()
        self.exe = static.Executor(paddle.CPUPlace())
        self.compiled = static.CompiledProgram(main)
        with static.scope_guard(self.scope), devices.use("torch"):
            self.exe.run(startup)
            self.results = [self.step() for _ in range(steps)]

    def step(self) -> list[Any]:
        with static.scope_guard(self.scope), devices.use("torch"):
            return self.exe.run(self.compiled, feed={"x": IMAGES}, fetch_list=self.fetches)

    @property
    def session(self) -> Session:
        (found,) = self.compiled._history.sessions
        return found

    def report(self) -> Any:
        with static.scope_guard(self.scope), devices.use("torch"):
            return self.compiled.memory_report({"x": IMAGES.shape}, self.fetches)


def test_values_are_those_of_results_that_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Run()
    kinds = {slot.kind for slot in mine.session.plan.storage.values()}
    assert {"foreign", "view", "arena"} <= kinds
    assert any(slot.kind == "foreign" and slot.of for slot in mine.session.plan.storage.values()), "none in place"
    monkeypatch.setattr(TorchDevice, "block_use", lambda self, op: "")
    copied = Run()
    assert not copied.session.plan.foreign
    for a, b in zip(mine.results, copied.results, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_nothing_is_copied_and_all_is_freed() -> None:
    run = Run()
    copied: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForeignBlock, "copied", lambda self, made: copied.append(made.shape) or made.clone())
        run.step()
    assert not copied
    assert {b.block.tensor.untyped_storage().nbytes() for b in run.session.bound.blocks.all} == {0}


def test_checks_of_positions_ask_a_block_that_is_gone_for_its_shape_alone() -> None:
    def picked() -> list[Any]:
        x = static.data("x", [4, 3, 8, 8], "float32")
        h = static.nn.conv2d(x, 4, 3, padding=1, param_attr=static.ParamAttr(name="w1"), bias_attr=False)
        positions = paddle.argsort(x[:, :1, :2], axis=-1).expand([4, 4, 2, 8])
        loss = paddle.sum(paddle.take_along_axis(h, positions, 2))
        paddle.optimizer.Momentum(learning_rate=0.1, momentum=0.9).minimize(loss)
        return [loss, "w1@GRAD"]

    run = Run(picked)
    (gradient,) = [step.op for step in run.session.plan.steps if step.op.type == "take_along_axis_grad"]
    kinds = {slot: run.session.plan.storage[gradient.input(slot)].kind for slot in ("Input", "Index")}
    assert set(kinds.values()) == {"foreign"}, f"not both lie in blocks, so that the test tests nothing: {kinds}"
    plain = static.Scope()
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.scope_guard(plain), paddle.utils.unique_name.guard():
        paddle.seed(5)
        main.random_seed = startup.random_seed = 5
        fetches = picked()
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        expected = [exe.run(main, feed={"x": IMAGES}, fetch_list=fetches) for _ in range(3)]
    for a, b in zip(run.results, expected, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_an_error_frees_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    calls = run.session.bound.schedules["main"].calls
    calls.append((lambda: 1 / 0, ()))
    run.session.bound.schedules["main"].op_of_call.append(run.session.plan.steps[0].op)
    with pytest.raises(ZeroDivisionError):
        run.step()
    assert {b.block.tensor.untyped_storage().nbytes() for b in run.session.bound.blocks.all} == {0}
    calls.pop()
    assert np.isfinite(run.step()[0]).all()


def test_the_memory_report_counts_blocks() -> None:
    run = Run()
    with watching(torch) as seen:
        run.step()
    report = run.report()
    # The report rounds up, and what a run without the report's watch makes is in it, whatever is alive beside it.
    assert 0 < seen.most_bytes <= report.foreign_bytes <= 3 * seen.most_bytes + 256 * len(run.session.plan.foreign)
    assert report.peak_bytes == run.session.plan.arena_bytes + report.foreign_bytes
    assert report.to_dict()["foreign_bytes"] == report.foreign_bytes
    assert "blocks of the device's library" in str(report)


SEVERAL = """
import threading, time
import torch
from tstatic.devices.torch.forms import watching

made, before = [], torch._ops.OpOverload.__init__

def slowly(self, *args, **more):
    before(self, *args, **more)
    if str(self).startswith("aten.set_."):
        made.append(str(self))
        time.sleep(0.05)

torch._ops.OpOverload.__init__ = slowly
together = threading.Barrier(2)

def work():
    together.wait()
    with watching(torch):
        torch.empty(0).set_(torch.ones(3))

threads = [threading.Thread(target=work) for _ in range(2)]
for one in threads:
    one.start()
for one in threads:
    one.join()
assert made and len(made) == len({*made}), made
with watching(torch):
    torch.empty(0).set_(torch.ones(3))
print("done")
"""


def test_several_threads_that_watch_make_each_of_torchs_operators_once() -> None:
    """torch keeps the address of an operator's Python object: of two that are made at once, one is freed, and used."""
    done = run_alone(SEVERAL)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


def test_a_result_that_is_an_input_or_larger_than_the_value_is_copied() -> None:
    given = torch.arange(12.0)
    for made in (given.view(3, 4), torch.arange(24.0).view(6, 4)[1:4], torch.arange(12.0).view(4, 3).t()):
        block = DEVICE.block(Meta((3, 4), float32))
        view = DEVICE.derive(block, lambda a: a.reshape(4, 3)[1:])
        block.block.take(made, {given.untyped_storage().data_ptr()})
        expected = made.clone()
        assert block.tensor.is_contiguous()
        assert block.tensor.untyped_storage().nbytes() == 48
        made.fill_(-1)
        assert torch.equal(block.tensor, expected)
        assert torch.equal(view.tensor, expected.reshape(4, 3)[1:])


def test_what_the_host_reads_lies_in_the_arena() -> None:
    """A reference is bound to addresses, which a block has not."""

    def build() -> list[Any]:
        x = static.data("x", [4, 3, 8, 8], "float32")
        h = static.nn.conv2d(x, 4, 3, bias_attr=False)
        return [paddle.nn.functional.dropout(h, 0.5), paddle.reshape(h, [4, -1])]

    run = Run(build)
    storage = run.session.plan.storage
    assert [v for v, slot in storage.items() if slot.kind == "foreign"] == []


def test_a_result_may_have_the_address_that_a_block_had_before() -> None:
    read, made, fixed = DEVICE.block(Meta((4,), float32)), DEVICE.block(Meta((4,), float32)), torch.ones(4)
    view = DEVICE.derive(read, lambda a: a[1:])
    before = read.tensor.untyped_storage().data_ptr()
    blocks = Blocks([read.block], [made.block])
    taking = Taking(torch, lambda: torch.ones(4), [read.tensor, view.tensor, fixed], [made.tensor], blocks, None)
    assert taking._fixed == {fixed.data_ptr()}
    assert before not in taking._fixed


def test_devices_that_run_late_have_blocks_where_their_steps_share_a_stream() -> None:
    op = FrozenOp(op_def("conv2d"), ("x", "w"), ("y",), op_def("conv2d").complete({}))
    assert DEVICE.block_use(op) == "makes"
    late = TorchDevice("late")
    late.deferred = True
    assert late.block_use(op) == "makes"
    # One stream may still read a block that another one is given.
    late.compute_streams = 2
    assert late.block_use(op) == ""


_FAULTS = """
import resource
import numpy as np
import tstatic as paddle
from tstatic import static

paddle.enable_static()
x = static.data("x", [32, 3, 64, 64], "float32")
h = static.nn.conv2d(x, 16, 3, padding=1, bias_attr=False)
h = static.nn.conv2d(h, 16, 3, padding=1, bias_attr=False)
loss = paddle.mean(h)
exe = static.Executor(paddle.CPUPlace())
exe.run(static.default_startup_program())
feed = {"x": np.ones([32, 3, 64, 64], np.float32)}
counts = []
for _ in range(12):
    exe.run(feed=feed, fetch_list=[loss])
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print((counts[-1] - counts[4]) / 7)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
def test_pages_of_blocks_are_not_mapped_again_in_every_step() -> None:
    """Two blocks of 8 MiB are 4096 pages."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        [sys.executable, "-c", _FAULTS],
        env={**plain, "TSTATIC_CPU_BACKEND": "torch"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(found.stdout) < 500, found.stdout


_IMPORTS = """
import sys
import numpy as np
import tstatic as paddle
from tstatic import static

paddle.enable_static()
x = static.data("x", [2, 3, 8, 8], "float32")
loss = paddle.mean(static.nn.conv2d(x, 4, 3))
clip = paddle.nn.ClipGradByGlobalNorm(1.0)
paddle.optimizer.Momentum(learning_rate=0.1, grad_clip=clip).minimize(loss)
exe = static.Executor(paddle.CPUPlace())
exe.run(static.default_startup_program())
exe.run(feed={"x": np.ones([2, 3, 8, 8], np.float32)}, fetch_list=[loss])
print([name for name in sys.modules if name.startswith("torch._dynamo")][:3])
"""


def test_the_first_step_does_not_import_torchs_compiler() -> None:
    """The import takes seconds; a step that waits for another replica's first one counted as one that hangs."""
    environment = {**os.environ, "TSTATIC_CPU_BACKEND": "torch"}
    found = subprocess.run(
        [sys.executable, "-c", _IMPORTS], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"


def test_bench_nets_keep_their_largest_results_in_blocks() -> None:
    nets = script("nets")
    net = nets.NETS["cnn"]
    feed = {name: a.shape for name, a in net.feed(np.random.default_rng(0)).items()}
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss = net.build(paddle)
    with devices.use("torch"), static.scope_guard(static.Scope()):
        report = static.CompiledProgram(main).memory_report(feed, [loss])
        assert report.foreign_bytes > 64 * 32 * 32 * 32 * 4
