"""Programs on torch's CPU tensors: the numbers of the reference, within the tolerance rule; torch's settings stay the user's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings

import tstatic
import tstatic as paddle
from tests.cpu.test_fake_device import samples as samples_of_documents
from tests.cpu.test_fake_device import values_after
from tests.cpu.test_seeds import _changed_imports, _with_cpu
from tests.helpers.drawn import PLAIN
from tests.helpers.soak import SOAK, shards
from tests.ops import oracles
from tests.ops.sampler import Sample, map_arrays, op_types, samples
from tests.parallel.golden import ROWS, Training, net, strategy
from tests.parallel.test_equality import EVERY_FUSION
from tests.parallel.test_golden import CASES
from tests.parity import compare, nets, record, runner
from tstatic import devices, nn, static, testing
from tstatic.devices.step import Workspace
from tstatic.devices.torch.device import DEVICE, TorchArray, TorchDevice
from tstatic.devices.torch.forms import torch_form
from tstatic.errors import DeviceError
from tstatic.ir import declare
from tstatic.ir.evaluate import infer_outputs, metas_of
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import OpDef, op_def
from tstatic.ir.types import Meta
from tstatic.runtime import scope
from tstatic.testing.runner import baseline_of, trial_of_recipe

torch = pytest.importorskip("torch")

PROGRAMS = 2000 if SOAK else 100

pytestmark = pytest.mark.skipif(
    os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="compares numpy's device with torch's"
)


@pytest.mark.parametrize("shard", shards(4, 1))
def test_random_programs_give_the_references_numbers(shard: int) -> None:
    kinds: dict[str, Any] = [{}, {"backward": True}, {"optimizer": True}, {"special": True}][shard]
    plain = baseline_of(static.BuildStrategy())

    @seed(9000 + shard)
    @settings(max_examples=PROGRAMS // 4, **PLAIN)
    @given(recipe=testing.programs(max_ops=12, **kinds))
    def run(recipe: testing.Recipe) -> None:
        # What two libraries' functions differ by is not the fusions' to answer for: a few units for each.
        trial, feeds = trial_of_recipe(recipe, k=32.0)
        assert trial.compare(plain, feeds) is None
        with devices.use("torch"):
            failure = trial.compare(plain, feeds)
        assert failure is None, f"{failure.variable}: {failure.difference or failure.error!r}"

    run()


@pytest.mark.parametrize("name", CASES)
def test_golden_numbers(name: str) -> None:
    rows, switches, steps, losses, gradient, weights = CASES[name]
    feed = {"X": ROWS[:rows]} if isinstance(rows, int) else [{"X": ROWS[a:b]} for a, b in rows]
    with devices.use("torch"):
        training = Training(net(), build=strategy(**switches))
        for _ in range(steps):
            loss, grad, w = training.step(feed, ["w@GRAD", "w"])
    np.testing.assert_allclose(loss, losses, atol=1e-6)
    np.testing.assert_allclose(grad[:, 0], gradient, atol=1e-6)
    np.testing.assert_allclose(w[:, 0], weights * 2, atol=1e-6)


# -------------------------------------------------------------------------------------------------------------- the ops
def run_on_device(
    definition: OpDef, sample: Sample, in_blocks: bool = False, device: TorchDevice = DEVICE
) -> list[Any]:
    """Binds an op to tensors and runs it; one entry per output slot, as numpy arrays.

    With ``in_blocks`` the op brings the memory of its results along, and that of its inputs is overwritten behind it.
    """
    attrs = definition.complete(sample.attrs)
    ins = [map_arrays(lambda a: device.upload(np.array(a)), v) for v in sample.ins]
    metas = infer_outputs(definition, metas_of(sample.ins), attrs)

    def empty(meta: Meta) -> TorchArray:
        made = device.empty(meta.shape, meta.dtype.np)
        made.tensor.untyped_storage().fill_(0x5A)
        return made

    outs = [map_arrays(device.block if in_blocks else empty, meta) for meta in metas]
    op = FrozenOp(definition, ("",) * len(ins), ("",) * len(outs), attrs)
    step = device.bind(op, ins, outs, {}, device.stream())
    workspace = Workspace()
    workspace.reserve(step.scratch_bytes)
    workspace.allocate()
    # As a run does: on a GPU torch's own settings let convolutions round to TF32.
    with device.settings(1)(False):
        for tile in step.bind_workspace(workspace):
            for function, args in tile:
                function(*args)
        for function, args in step.after:
            function(*args)
    for value in ins if in_blocks else []:
        map_arrays(lambda a: a.tensor.untyped_storage().fill_(0x5A), value)
    return [map_arrays(lambda a: device.to_host(a), out) for out in outs]


@pytest.mark.parametrize("type", [t for t in op_types() if torch_form(op_def(t)) is not None])
def test_an_op_writes_what_its_reference_writes(type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = op_def(type)
    for number, sample in enumerate(samples(definition, 12 if SOAK else 2)):
        run = partial(run_on_device, in_blocks=number % 2 == 0 and definition.torch_run == "alloc")
        monkeypatch.setattr(oracles, "run_torch", run)
        oracles.check_lower(definition, sample)


# ------------------------------------------------------------------------------------------------------ whole programs
@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return record.load()


@pytest.fixture(scope="module")
def listed() -> list[compare.Row]:
    return compare.rows(compare.PAGE.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", nets.NETS)
def test_networks_train_as_paddles(name: str, recorded: dict[str, Any], listed: list[compare.Row]) -> None:
    found = [
        (c, a) for c, a in zip(recorded["calls"], recorded["answers"], strict=True) if c["id"] == f"network {name}"
    ]
    assert found
    with devices.use("torch"):
        differences = [d for c, a in found for d in compare.compare(c, a, runner.answer(tstatic, c))]
    assert not compare.judge(differences, listed)[0]


@pytest.mark.parametrize(("name", "code"), samples_of_documents(), ids=[name for name, _ in samples_of_documents()])
def test_samples_leave_the_references_numbers(
    name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CPU_NUM", "2")
    code = _changed_imports(_with_cpu(code))
    plain = values_after(code, name)
    with devices.use("torch"):
        other = values_after(code, name)
    assert bool(plain) == (".run(" in code), "a sample that runs a program keeps something"
    for a, b in zip(plain, other, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(np.asarray(b, np.float64), np.asarray(a, np.float64), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_the_same_seed_gives_the_same_bits(fused: bool) -> None:
    def trained() -> list[bytes]:
        declare.reset_default_programs()
        scope.reset_global_scope()
        paddle.seed(11)
        x, y = static.data("x", [None, 1, 12, 12]), static.data("y", [None, 1], "int64")
        h = nn.functional.relu(static.nn.batch_norm(static.nn.conv2d(x, 4, 3)))
        h = nn.functional.dropout(static.nn.fc(h, 16, activation="gelu"), 0.3)
        loss = paddle.mean(nn.functional.cross_entropy(static.nn.fc(h, 5), y))
        paddle.optimizer.AdamW(0.01, grad_clip=nn.ClipGradByGlobalNorm(1.0)).minimize(loss)
        exe = static.Executor(paddle.CPUPlace())
        exe.run(static.default_startup_program())
        build = static.BuildStrategy()
        if fused:
            for switch in EVERY_FUSION:
                setattr(build, switch, True)
        program = static.CompiledProgram(static.default_main_program(), build_strategy=build)
        draw = np.random.RandomState(2)
        feed = {"x": draw.rand(6, 1, 12, 12).astype("float32"), "y": draw.randint(0, 5, (6, 1))}
        return [exe.run(program, feed=feed, fetch_list=[loss])[0].tobytes() for _ in range(4)]

    with devices.use("torch"):
        assert trained() == trained()


# ------------------------------------------------------------------------------------------------------------- settings
def settings_of_torch() -> tuple[Any, ...]:
    backends = torch.backends
    precisions = (one.fp32_precision for one in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn))
    return torch.get_num_threads(), *precisions, backends.cudnn.deterministic


@pytest.fixture
def users_settings() -> Iterator[None]:
    """Settings of a user that are not those of a run."""
    before = settings_of_torch()
    torch.set_num_threads(before[0] + 5)
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_num_threads(before[0])


@pytest.mark.parametrize("fails", [False, True])
def test_torchs_settings_are_the_users_again_after_a_run(fails: bool, users_settings: None) -> None:
    seen: list[tuple[Any, ...]] = []

    def spy(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        seen.append(settings_of_torch())
        if fails:
            raise ValueError("no")
        return x

    before = settings_of_torch()
    with devices.use("torch"):
        x = static.data("x", [2, 2])
        out = static.default_main_program().current_block().create_var(name="out", shape=[2, 2], dtype="float32")
        static.py_func(spy, x, out)
        exe = static.Executor(paddle.CPUPlace())
        for allowed in (False, True):
            paddle.set_flags({"FLAGS_allow_tf32": allowed, "FLAGS_cudnn_deterministic": allowed})
            with contextlib.suppress(Exception) if fails else contextlib.nullcontext():
                exe.run(feed={"x": np.ones((2, 2), "float32")}, fetch_list=[out])
            assert settings_of_torch() == before
            assert torch.backends.cuda.matmul.allow_tf32, "the older setting can be read as before"
    paddle.set_flags({"FLAGS_allow_tf32": False, "FLAGS_cudnn_deterministic": False})
    assert [row[1:] for row in seen] == [("ieee", "ieee", "ieee", False), ("tf32", "tf32", "tf32", True)]
    assert all(row[0] != before[0] for row in seen)


def test_a_flipped_value_is_copied_because_torch_has_no_strides_that_go_back() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = DEVICE.wrap(values)
    assert DEVICE.derive(array, lambda a: a[:, ::-1]) is None
    turned = DEVICE.derive(array, lambda a: a.T[1:])
    assert turned is not None
    assert np.array_equal(DEVICE.to_host(turned), values.T[1:])
    with devices.use("torch"):
        x = static.data("x", [2, 3])
        exe = static.Executor(paddle.CPUPlace())
        [found] = exe.run(feed={"x": values}, fetch_list=[paddle.flip(x, [1]) * 2])
    assert np.array_equal(found, values[:, ::-1] * 2)


def test_an_explanation_names_the_ops_that_leave_the_device() -> None:
    x = static.data("x", [4, 3])
    y = nn.functional.relu(paddle.index_select(x, paddle.nonzero(x[:, 0])[:, 0]))
    compiled = static.CompiledProgram(static.default_main_program())
    assert compiled.explain([y]).on_host == ()
    with devices.use("torch"):
        explained = compiled.explain([y])
    assert [(one.op.type, one.reason) for one in explained.on_host if one.op.type == "where_index"] == [
        ("where_index", "the size of its result depends on values")
    ]
    assert all(one.op.type not in ("relu", "slice") for one in explained.on_host)
    assert "runs on the host on this device: the size of its result depends on values" in explained.to_text(
        verbose=True
    )
    assert explained.to_dict()["on_host"][0]["reason"]


def test_the_host_does_not_read_a_tensor_by_chance() -> None:
    with pytest.raises(DeviceError, match="the host touched memory of a device"):
        np.asarray(DEVICE.empty((2,), np.dtype(np.float32)))
