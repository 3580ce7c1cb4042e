"""What a GPU's steps leave to the host: nothing in the nets of the bench, and what no kernel draws is told."""

from __future__ import annotations

import os
from typing import Any

import pytest

import tstatic as paddle
from tests.bench.scripts import script
from tests.helpers.drawn import only
from tests.helpers.gpu import StandIn
from tstatic import devices, static
from tstatic.devices.cuda import CudaDevice
from tstatic.fusion import FUSIONS
from tstatic.ir.opdef import OPS

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        os.environ.get("TSTATIC_CPU_BACKEND", "numpy") != "numpy", reason="plans for a device of its own"
    ),
]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    """The class of GPUs, planning generated kernels; nothing runs on it."""
    made = StandIn()
    made.generated = True
    monkeypatch.setitem(devices.DEVICES, made.name, made)
    return made


def everything() -> static.BuildStrategy:
    found = static.BuildStrategy()
    for fusion in FUSIONS:
        setattr(found, fusion.switch, True)
    return found


def hosted(
    main: static.Program, build: static.BuildStrategy, fetch: Any, feeds: dict[str, Any], gpu: CudaDevice
) -> list[str]:
    """What ``explain`` says of the steps that the host does: those of the plan, one for one."""
    with devices.use(gpu.name):
        explained = static.CompiledProgram(main, build).explain([fetch], feeds)
        plan = script("plan_count").lowered(main, build, feeds, [fetch.name]).plan
    steps = [one for one in plan.steps if one.how == "dynamic" or (one.how == "ref" and gpu.host_reason(one.op))]
    assert sorted(one.op.type for one in steps) == sorted(one.op.type for one in explained.on_host)
    return [str(one) for one in explained.on_host]


def known_net(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[static.Program, Any, Any]:
    """Returns a program of a bench model with one layer or stage of each kind, its loss, and the model."""
    models = script("models")
    for sizes in (models.GPT, models.BERT):
        monkeypatch.setitem(sizes, "layers", 1)
    monkeypatch.setattr(models, "STAGES", ((1, 64), (1, 128)))
    model = models.MODELS[name]
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        loss = model.build(paddle)
    return main, loss, model


@pytest.mark.parametrize("build", [static.BuildStrategy, everything], ids=["default", "everything"])
@pytest.mark.parametrize("name", ["gpt", "gpt-bf16", "bert", "bert-bf16", "resnet"])
def test_the_host_does_nothing_in_a_step_of_known_nets(
    name: str, build: Any, gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One layer of each kind: the others repeat it. With the default strategy each dropout is a kernel of its own."""
    main, loss, model = known_net(name, monkeypatch)
    drawn = sum(OPS[op.type].random for op in main.global_block().ops)
    assert drawn == (4 if name.startswith("bert") else 0)
    assert hosted(main, build(), loss, dict(model.feeds), gpu) == []


def test_starting_values_are_drawn_on_the_device(gpu: CudaDevice) -> None:
    startup = static.Program()
    initializer = paddle.nn.initializer
    with static.program_guard(static.Program(), startup), paddle.utils.unique_name.guard():
        for kind in (initializer.Normal(), initializer.TruncatedNormal(), initializer.XavierNormal(), initializer.Uniform(),
                     initializer.XavierUniform(), initializer.KaimingNormal(), initializer.KaimingUniform()):  # fmt: skip
            made = static.create_parameter([4, 8], "float32", default_initializer=kind)
    assert sum(OPS[op.type].random for op in startup.global_block().ops) == 7
    found = startup.global_block().var(made.name)
    assert hosted(startup, static.BuildStrategy(), found, {}, gpu) == []


def test_explain_tells_what_no_kernel_draws(gpu: CudaDevice) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        rates = static.data("rates", [4, 8])
        counts = paddle.poisson(rates) + paddle.nn.functional.dropout(rates, 0.5)
        picked = paddle.multinomial(rates, 2)
        last = paddle.sum(counts) + paddle.cast(paddle.sum(picked) + paddle.sum(paddle.randperm(5)), "float32")
    told = hosted(main, only("enable_auto_fusion"), last, {"rates": (4, 8)}, gpu)
    assert len(told) == 3
    for name, one in zip(("poisson", "multinomial", "randperm"), told, strict=True):
        assert name in one
        assert "its random numbers are the reference's" in one


def test_a_seed_in_a_tensor_stays_with_the_host(gpu: CudaDevice) -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x, seed = static.data("x", [4, 8]), static.data("seed", [1], "int32")
        out = main.global_block().create_var(name="out", shape=[4, 8], dtype="float32")
        mask = main.global_block().create_var(name="mask", shape=[4, 8], dtype="uint8")
        main.global_block().append_op(type="dropout", inputs={"X": x, "Seed": seed}, outputs={"Out": out, "Mask": mask})
    assert len(hosted(main, static.BuildStrategy(), out, {"x": (4, 8), "seed": (1,)}, gpu)) == 1


@pytest.mark.parametrize("generated", [True, False], ids=["kernels", "references"])
@pytest.mark.parametrize("build", [static.BuildStrategy, everything], ids=["default", "everything"])
@pytest.mark.parametrize("name", ["gpt-bf16", "bert", "resnet"])
def test_results_of_torch_stay_where_they_are_in_known_nets(
    name: str, build: Any, generated: bool, gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but gradients that one kernel updates parameters by, from a table of their addresses."""
    gpu.generated = generated
    main, loss, model = known_net(name, monkeypatch)
    with devices.use(gpu.name):
        plan = script("plan_count").lowered(main, build(), dict(model.feeds), [loss.name]).plan
        told = static.CompiledProgram(main, build()).explain([loss], dict(model.feeds), verbose=True)
    allocating = [s.op for s in plan.steps if s.how == "ref" and s.op.definition.torch_run == "alloc"]
    copied = [
        v for op in allocating for v in op.writes() if plan.storage[plan.root[v]].kind == "arena" and v in plan.copied
    ]
    assert set(copied) == plan.copied.keys()
    whole = sum(one.nbytes for one in plan.foreign)
    assert {v: why for v, why in plan.copied.items() if "from a table" not in why and "`dropout" not in why} == {}
    if name == "bert" and not generated:
        return  # dropout runs on the host there, which reads at addresses
    gradients = {v for op in allocating for v in op.writes() if v.partition("@")[2].startswith("GRAD")}
    assert plan.copied.keys() <= gradients
    assert sum(plan.storage[v].meta.nbytes for v in copied) <= whole / 10  # type: ignore[union-attr]
    assert [one.reason for one in told.copied_results] == ["a kernel reads its address from a table"] * len(
        told.copied_results
    )
    assert bool(told.copied_results) == bool(plan.copied)
    assert ("Copied results\n" in str(told)) == bool(plan.copied)
