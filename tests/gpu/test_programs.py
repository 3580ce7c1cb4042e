"""Programs on ``CUDAPlace(0)`` give the CPU's numbers by the tolerance rule: ops, nets, the documents' samples, drawn programs.

On a GPU all of it runs (``bench/gpu/ring.py --programs``), the quick and telling parts first; elsewhere a few of each.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings

import tstatic as paddle
from tests.cpu.test_fake_device import values_after
from tests.cpu.test_seeds import ALL, OWN, _changed_imports, _with_cpu
from tests.cpu.test_torch_device import run_on_device
from tests.helpers.drawn import PLAIN
from tests.helpers.fusion_programs import CASES, Case, build, run
from tests.helpers.gpu import REAL, trained
from tests.ops import oracles
from tests.ops.held import no_collection
from tests.ops.sampler import op_types, samples
from tests.parallel.golden import ROWS, Training, net, strategy
from tests.parallel.test_equality import EVERY_FUSION
from tests.parallel.test_golden import CASES as GOLDEN
from tstatic import devices, nn, static, testing
from tstatic.benchlib.gpu_memory import GpuMemory
from tstatic.devices.cuda import CudaDevice
from tstatic.devices.torch.forms import torch_form
from tstatic.errors import FeedError, IndexRangeError
from tstatic.ir.opdef import op_def
from tstatic.places import CPUPlace, CUDAPlace
from tstatic.testing.runner import baseline_of, everything_on, trial_of_recipe

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="compares numpy's device with a GPU"
)

PROGRAMS = 25 if REAL else 4
"""Drawn programs of each kind."""
EVERY = 1 if REAL else 40
"""Of the ops, and of other cases, one in so many."""


OWN_TANH = ("rnn", "simple_rnn_sequence")
"""Ops that cuDNN computes with a tanh of its own: hundreds of units off on an H200."""


def close(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=2e-4, atol=2e-5)


# ------------------------------------------------------------------------------------------------------- what comes first
def test_a_net_trains_as_on_the_cpu(gpu: CudaDevice) -> None:
    close(trained(CUDAPlace(0)), trained(CPUPlace()))


def test_a_bad_label_is_told_and_the_gpu_goes_on(gpu: CudaDevice) -> None:
    """The assertion of torch's own kernels would end the process's use of the GPU."""
    x, y = static.data("x", [3, 4]), static.data("y", [3, 1], "int64")
    # A step of 0.1 from weights drawn anew each time may overshoot.
    paddle.seed(1)
    loss = paddle.mean(nn.functional.softmax_with_cross_entropy(static.nn.fc(x, 5), y))
    paddle.optimizer.Adam(0.01).minimize(loss)
    exe = static.Executor(CUDAPlace(0))
    exe.run(static.default_startup_program())
    good = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "y": np.array([[1], [4], [0]])}
    [first] = exe.run(feed=good, fetch_list=[loss])
    names = sorted(static.global_scope().local_var_names())
    held = [np.array(static.global_scope().find_var(n).get_tensor()) for n in names]  # type: ignore[union-attr]
    with pytest.raises(IndexRangeError, match="9"):
        exe.run(feed={**good, "y": np.array([[1], [9], [0]])}, fetch_list=[loss])
    close([np.array(static.global_scope().find_var(n).get_tensor()) for n in names], held)  # type: ignore[union-attr]
    [second] = exe.run(feed=good, fetch_list=[loss])
    assert second < first


def test_a_run_waits_for_the_callers_stream_and_the_caller_for_the_run(gpu: CudaDevice) -> None:
    """Without a call of ``synchronize``, behind work that takes a while on a GPU."""
    x = static.data("x", [512, 512])
    y = x * 2.0
    exe = static.Executor(CUDAPlace(0))
    given_in = torch.full((512, 512), 0.5, device=gpu.place)
    slow = torch.ones((512, 512), device=gpu.place)
    for _ in range(20 if REAL else 1):
        for _ in range(20 if REAL else 1):
            slow = slow @ slow / 512.0
        given_in.copy_(slow)
        [found] = exe.run(feed={"x": given_in}, fetch_list=[y], return_numpy=False)
        there = torch.from_dlpack(found)
        given_in.zero_()
        assert float(there.to(gpu.place).sum()) == 2.0 * 512 * 512


# ------------------------------------------------------------------------------------------------------ whole programs
def test_what_a_startup_program_needed_is_given_back(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arena is as large as all variables together."""
    of = torch.multiprocessing.reductions.StorageWeakRef
    arenas = []

    def allocate(nbytes: int, kind: Any = "device", purpose: str = "memory") -> Any:
        made = CudaDevice.allocate(gpu, nbytes, kind, purpose)
        if "arena" in purpose:
            arenas.append(of(made.tensor.untyped_storage()))
        return made

    monkeypatch.setattr(gpu, "allocate", allocate)
    exe = static.Executor(paddle.CUDAPlace(0))
    with static.program_guard(static.Program(), static.Program()), static.scope_guard(static.Scope()):
        loss = paddle.mean(static.nn.fc(static.data("x", [2, 3]), 4))
        with no_collection():
            exe.run(static.default_startup_program())
            assert [one.expired() for one in arenas] == [True]
        exe.run(feed={"x": np.ones((2, 3), np.float32)}, fetch_list=[loss])
        # What may run again keeps its own.
        assert [one.expired() for one in arenas] == [True, False]


@pytest.mark.skipif(not REAL, reason="asks the allocator of a GPU")
def test_the_memory_report_is_what_the_allocator_held(gpu: CudaDevice) -> None:
    """Within a twentieth, of a step that is launched as a graph; context, modules and nodes of graphs stand apart."""
    memory = GpuMemory(gpu.cuda)
    with static.program_guard(static.Program(), static.Program()), static.scope_guard(static.Scope()):
        x = static.data("x", [None, 64, 56, 56])
        h = nn.functional.relu(static.nn.batch_norm(static.nn.conv2d(x, 128, 3, padding=1, bias_attr=False)))
        loss = paddle.mean(static.nn.fc(nn.functional.max_pool2d(h, 2), 1000))
        paddle.optimizer.Momentum(0.01, 0.9).minimize(loss)
        exe = static.Executor(CUDAPlace(0))
        exe.run(static.default_startup_program())
        compiled = static.CompiledProgram(static.default_main_program())
        feed = {"x": np.random.default_rng(0).random((32, 64, 56, 56), np.float32)}
        found = memory.compare(
            lambda: exe.run(compiled, feed=feed, fetch_list=[loss]),
            lambda: compiled.memory_report({"x": feed["x"].shape}, [loss], place=CUDAPlace(0)),
        )
        exe.close()
    assert abs(found.off) <= 0.05, str(found)


@pytest.mark.parametrize("name", [*GOLDEN][:: 1 if REAL else 3])
def test_golden_numbers(name: str, gpu: CudaDevice) -> None:
    rows, switches, steps, losses, gradient, weights = GOLDEN[name]
    feed = {"X": ROWS[:rows]} if isinstance(rows, int) else [{"X": ROWS[a:b]} for a, b in rows]
    with devices.use("gpu"):
        training = Training(net(), build=strategy(**switches))
        for _ in range(steps):
            loss, grad, w = training.step(feed, ["w@GRAD", "w"])
    np.testing.assert_allclose(loss, losses, atol=1e-6)
    np.testing.assert_allclose(grad[:, 0], gradient, atol=1e-6)
    np.testing.assert_allclose(w[:, 0], weights * 2, atol=1e-6)


def documents() -> list[tuple[str, str]]:
    """The samples of the documents, and stand-ins with the same calls."""
    found = [(s.name, s.code) for s in ALL]
    return [*OWN.items(), *(found if REAL else found[::6])]


@pytest.mark.parametrize(("name", "code"), documents(), ids=[name for name, _ in documents()])
def test_samples_run_on_their_place(
    name: str, code: str, gpu: CudaDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them names a second GPU, which is the first here: two replicas share it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPU_NUM", "2" if "CUDAPlace(1)" in code else "1")
    code = _changed_imports(code)
    try:
        there = values_after(code.replace("CUDAPlace(1)", "CUDAPlace(0)"), name)
    except FeedError as error:
        if "does not match the device number" not in str(error):
            raise
        pytest.skip("it feeds a list for more GPUs than there are")
    assert bool(there) == (".run(" in code), "a sample that runs a program keeps something"
    close(there, values_after(_with_cpu(code), name))


KINDS = ("plain", "backward", "optimizer", "special")


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_programs(kind: str, gpu: CudaDevice) -> None:
    compare_drawn(kind, fused=False)


def compare_drawn(kind: str, fused: bool) -> None:
    kinds: dict[str, Any] = {} if kind == "plain" else {kind: True}
    plain = baseline_of(static.BuildStrategy())

    @seed(7000)
    @settings(max_examples=PROGRAMS, **PLAIN)
    @given(recipe=testing.programs(max_ops=12, **kinds))
    def check(recipe: testing.Recipe) -> None:
        # What two libraries' functions differ by is not the fusions' to answer for: a few units for each.
        trial, feeds = trial_of_recipe(recipe, k=32.0)
        assert trial.compare(plain, feeds) is None
        with devices.use("gpu"):
            failure = trial.compare(everything_on() if fused else plain, feeds)
        assert failure is None, f"{failure.variable}: {failure.difference or failure.error!r}"

    check()


@pytest.mark.parametrize("fused", [False, True])
def test_the_same_seed_gives_the_same_bits(fused: bool, gpu: CudaDevice) -> None:
    def found() -> list[bytes]:
        with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
            x = static.data("x", [None, 12])
            h = nn.functional.dropout(static.nn.fc(x, 16, activation="gelu"), 0.3)
            loss = paddle.mean(paddle.square(static.nn.fc(h, 5)))
            paddle.optimizer.AdamW(0.01, grad_clip=nn.ClipGradByGlobalNorm(1.0)).minimize(loss)
            static.default_main_program().random_seed = static.default_startup_program().random_seed = 9
            build_strategy = static.BuildStrategy()
            for switch in EVERY_FUSION if fused else ():
                setattr(build_strategy, switch, True)
            program = static.CompiledProgram(static.default_main_program(), build_strategy=build_strategy)
            with static.scope_guard(static.Scope()):
                exe = static.Executor(CUDAPlace(0))
                exe.run(static.default_startup_program())
                feed = {"x": np.random.RandomState(2).rand(6, 12).astype("float32")}
                return [exe.run(program, feed=feed, fetch_list=[loss])[0].tobytes() for _ in range(4)]

    assert found() == found()


# ------------------------------------------------------------------------------- generated kernels, each compiled for it
@pytest.mark.parametrize("case", CASES[:: 1 if REAL else 6], ids=lambda c: c.name)
def test_fused_programs(case: Case, gpu: CudaDevice) -> None:
    switches = {"fuse_elewise_add_act_ops": True, "enable_auto_fusion": True, "fuse_all_optimizer_ops": True}
    plain, _ = run(build(case), **switches)
    with devices.use("gpu"):
        found, compiled = run(build(case), **switches)
    fused = any(step.op.body for step in compiled.plan.steps)
    assert bool(compiled.plan.kernels) == (gpu.generated and fused), "what is fused is a kernel"
    close(found, plain)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_programs_with_every_fusion(kind: str, gpu: CudaDevice) -> None:
    compare_drawn(kind, fused=True)


# -------------------------------------------------------------------------------------------------------------- the ops
@pytest.mark.parametrize("type", [t for t in op_types() if torch_form(op_def(t)) is not None][::EVERY])
def test_an_op_writes_what_its_reference_writes(type: str, gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = op_def(type)
    if type in OWN_TANH:
        monkeypatch.setattr(oracles, "units", lambda definition, dtype: 1024.0)
    for sample in samples(definition, 2):
        monkeypatch.setattr(oracles, "run_torch", partial(run_on_device, device=gpu))
        oracles.check_lower(definition, sample)
