"""The facts of chips."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers import driver_facts
from tests.helpers.driver_facts import Chip
from tests.helpers.gpu import Library
from tests.kernels.limits import SHARED_LIMIT
from tstatic import devices, static, target
from tstatic.devices.cuda import CudaDevice
from tstatic.devices.fake import clock
from tstatic.devices.null import NullDevice
from tstatic.errors import ProgramError
from tstatic.fusion.codegen.kernel import KernelLocal, Launch
from tstatic.ir.types import Meta, float32
from tstatic.plan.capacity import RESERVED_BYTES
from tstatic.profiler import tables
from tstatic.records import Machine
from tstatic.static.compile import compile_program

CHIPS = target.CHIPS


@pytest.mark.parametrize("chip", CHIPS, ids=lambda c: c.name)
def test_chips_have_the_shared_memory_that_compiled_kernels_are_checked_for(chip: target.Target) -> None:
    assert chip.shared_bytes == SHARED_LIMIT[int(chip.architecture.removeprefix("sm_"))]
    assert not chip.large_programs


def test_only_where_programs_are_slow_and_run_one_by_one_are_they_large() -> None:
    assert target.TINY.large_programs
    assert not dataclasses.replace(target.TINY, architecture="sm_90").large_programs


def test_a_part_of_a_chip_is_known_by_its_name_and_has_its_own_multiprocessors() -> None:
    part = target.of_chip("NVIDIA H200 MIG 3g.71gb", (9, 0), 60, 30 << 20)
    share = 60 / 132
    rates = {"matrix_rate": share * target.H200.matrix_rate, "vector_rate": share * target.H200.vector_rate}
    assert part == dataclasses.replace(target.H200, multiprocessors=60, l2_bytes=30 << 20, **rates)
    assert target.of_chip("NVIDIA A100-SXM4-80GB", (8, 0), 108) == target.A100
    half = target.of_chip("NVIDIA H200 MIG 3g.71gb", (9, 0), 60, memory_bytes=70_500_000_000)
    assert half.bandwidth == pytest.approx(target.H200.bandwidth / 2)
    assert half.matrix_rate == pytest.approx(target.H200.matrix_rate * 60 / 132)


# ------------------------------------------------------------------------------------------------- what a driver says of itself
@pytest.mark.parametrize("chip", driver_facts.CHIPS, ids=lambda c: c.name)
def test_a_chip_has_the_numbers_of_its_data_sheet(chip: Chip) -> None:
    """Guards against chips that are taken for an H200: memory, bandwidth and so all predictions were up to 16 times too large."""
    found = target.of_properties(chip.properties())
    assert found.name == chip.name
    assert (found.architecture, found.multiprocessors) == ("sm_{}{}".format(*chip.capability), chip.multiprocessors)
    assert (found.l2_bytes, found.shared_bytes) == (chip.l2 << 20, chip.shared)
    assert found.memory_bytes == chip.memory << 20
    assert found.memory_bytes == pytest.approx(chip.sheet_memory * 1e9, rel=0.1), "some of it is the driver's own"
    assert found.bandwidth == pytest.approx(chip.bandwidth * 1e9, rel=0.05)
    assert found.source == "driver"
    assert found.matrix_rate == pytest.approx(chip.matrix * 1e12, rel=0.03)
    assert found.vector_rate == pytest.approx(chip.vector * 1e12, rel=0.03)


@pytest.mark.parametrize("chip", driver_facts.CHIPS, ids=lambda c: c.name)
def test_where_torch_tells_no_clocks_the_data_sheet_does(chip: Chip) -> None:
    found = target.of_properties(chip.properties(*driver_facts.CLOCKS, "shared_memory_per_block_optin"))
    assert found.bandwidth == pytest.approx(chip.bandwidth * 1e9, rel=0.01)
    assert found.source == "data sheet"
    assert found.shared_bytes == chip.shared
    assert found.memory_bytes == chip.memory << 20, "the driver's"
    named = target.of_chip(chip.driver_name, chip.capability, chip.multiprocessors)
    assert named.memory_bytes == pytest.approx(chip.sheet_memory * 1e9, rel=0.1)


@pytest.mark.parametrize("chip", driver_facts.CHIPS, ids=lambda c: c.name)
def test_a_chip_without_a_data_sheet_has_its_own_numbers(chip: Chip) -> None:
    """By clock and width alone; a boost clock may lie above the one that a data sheet computes rates with."""
    name = "NVIDIA GeForce X" if "GeForce" in chip.driver_name else "NVIDIA X"
    found = target.of_properties(chip.properties(name=name))
    assert (found.name, found.has_sheet) == (name, False)
    assert found.bandwidth == pytest.approx(chip.bandwidth * 1e9, rel=0.05)
    assert found.memory_bytes == chip.memory << 20
    assert 0.97 < found.matrix_rate / (chip.matrix * 1e12) < 1.1
    assert 0.95 < found.vector_rate / (chip.vector * 1e12) < 1.13
    silent = target.of_properties(chip.properties(*driver_facts.CLOCKS, name=name))
    assert (silent.bandwidth, silent.matrix_rate, silent.vector_rate, silent.source) == (0, 0, 0, ""), "not known"
    assert silent.memory_bytes == chip.memory << 20


def test_an_architecture_that_nobody_knows_is_taken_for_no_other() -> None:
    found = target.of_properties(
        driver_facts.CHIPS[0].properties("shared_memory_per_block_optin", name="NVIDIA Z", major=17)
    )
    assert (found.architecture, found.matrix_rate, found.shared_bytes) == ("sm_170", 0, target.LEAST_SHARED)
    laptop = target.of_properties(
        driver_facts.CHIPS[5].properties(name="NVIDIA GeForce RTX 4090 Laptop GPU", memory_bus_width=256)
    )
    assert not laptop.has_sheet
    assert laptop.bandwidth == pytest.approx(0.672e12, rel=0.01)


class Telling(Library):
    """torch with a driver that tells these facts."""

    def __init__(self, facts: Any) -> None:
        super().__init__()
        self.facts = facts

    def get_device_properties(self, index: int) -> Any:
        return self.facts


def test_a_gpu_takes_the_facts_of_its_driver() -> None:
    pytest.importorskip("torch")
    for chip in driver_facts.CHIPS:
        device = CudaDevice(place="cpu", cuda=Telling(chip.properties()))
        device.begin()
        assert device.target == target.of_properties(chip.properties())
        machine = device.machine(1)
        assert (machine.bandwidth, machine.source) == (device.target.bandwidth, f"the driver of {chip.name}")
    device = CudaDevice(place="cpu", cuda=Telling(chip.properties(*driver_facts.CLOCKS, name="NVIDIA X")))
    device.begin()
    assert device.machine(1).bandwidth == 0
    assert "bandwidth not known (no data sheet of NVIDIA X is at hand)" in device.machine(1).told()


def test_what_is_said_of_a_chip_follows_its_own_numbers() -> None:
    """Memory that a run fits in, the largest batch, the seconds of a plan and the least times of kernels."""
    w = static.create_parameter([1 << 12, 1 << 12], "float32")
    loss = paddle.mean(paddle.matmul(static.data("x", [None, 1 << 12]), w))
    compiled = static.CompiledProgram(static.default_main_program())
    batches = []
    for chip in (target.of_properties(one.properties()) for one in driver_facts.CHIPS):
        fits = compiled.fits(chip, {"x": (8, 1 << 12)}, [loss])
        assert (fits.memory, fits.available_bytes) == (chip.name, chip.memory_bytes - RESERVED_BYTES)
        batches.append(compiled.max_batch(chip, fetch_list=[loss]) / (chip.memory_bytes - RESERVED_BYTES))
        cost = clock.costs(chip)["kernel"]
        assert cost.seconds(1 << 30) == pytest.approx(4e-6 + (1 << 30) / chip.bandwidth)
    assert max(batches) < 1.05 * min(batches)


def test_of_what_is_not_known_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = target.of_chip("NVIDIA X", (8, 9), 10)
    with pytest.raises(ProgramError, match="not known how much memory NVIDIA X has"):
        static.CompiledProgram(static.Program()).fits(unknown)
    with pytest.raises(ProgramError, match="not known how fast the memory of NVIDIA X is"):
        clock.costs(unknown)
    assert tables.Row("x", [500], 3000).share_of(Machine(0.0, "", "")) is None


@pytest.mark.parametrize("chip", [driver_facts.CHIPS[4], None], ids=["L40S", "nobody knows it"])
def test_an_explanation_bounds_times_by_the_bandwidth_of_the_device(chip: Chip | None) -> None:
    found = target.of_properties(chip.properties()) if chip else target.of_chip("NVIDIA X", (8, 9), 10)
    build = static.BuildStrategy()
    build.enable_auto_fusion = True
    out = paddle.exp(static.data("x", [1 << 20]) * 2.0 + 1.0)
    compiled = static.CompiledProgram(static.default_main_program(), build)
    made = dataclasses.replace(compiled.explain([out]), target=found)
    [row] = made.to_dict()["fusions"]["applied"]
    if chip is None:
        assert row["source"]["floor_us"] is None
        assert "the chip's bandwidth is not" in made.to_html()
    else:
        assert row["source"]["floor_us"] == pytest.approx(8e6 * 1.048576 / (0.9 * found.bandwidth) * 1e6)
        assert f"at {0.9 * found.bandwidth / 1e12:.1f} TB/s" in made.to_html()


def test_strict_numerics_plan_for_one_chip_and_for_the_interpreter_as_it_is() -> None:
    assert {chip.strict for chip in target.CHIPS} == {target.H200}
    assert target.TINY.strict is target.TINY


# --------------------------------------------------------------------------------------------------------- plans follow
NETS: dict[str, Any] = {
    "columns": lambda x, w: paddle.tanh(x * w),
    "rows": lambda x, w: paddle.tanh(static.nn.layer_norm(x, begin_norm_axis=1)) * w,
    "channels": lambda x, w: static.nn.batch_norm(x, act="relu") * w,
}


def planned(chip: target.Target, net: str = "columns", rows: int = 100_000) -> Any:
    """The launches of a fused program whose sums are large, as a compilation for a chip plans them."""
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        x, w = static.data("x", [rows, 256]), static.data("w", [256])
        x.stop_gradient = w.stop_gradient = False
        out = NETS[net](x, w)
        found = static.gradients([paddle.mean(out * out)], [x, w, *main.all_parameters()])
    build = static.BuildStrategy()
    build.build_cinn_pass = build.fuse_bn_act_ops = True
    feeds = {"x": Meta((rows, 256), float32), "w": Meta((256,), float32)}
    made = compile_program(
        main, build, [feeds], [g.name for g in found if g is not None], static.Scope(), device=OnChip(chip)
    )
    return [launch for one in made.first.plan.kernels.values() for launch in one.calls.launches]


def _sums(launch: Launch) -> bool:
    """Whether a launch writes partial sums."""
    # What adds up the sums of several kernels finds them by a table.
    merges = launch.finishes or launch.function.startswith("finish") or "STRIPS" in launch.constants
    merges = merges or any(str(a).startswith("table:") for a in launch.arguments)
    return not merges and any(isinstance(a, KernelLocal) or str(a).endswith("@STRIPS") for a in launch.arguments)


class OnChip(NullDevice):
    """The device of a chip."""

    generated = True

    def __init__(self, chip: target.Target) -> None:
        self.target = chip


@pytest.mark.parametrize(("net", "rows"), [*((net, 100_000) for net in NETS), ("channels", 4_000)])
def test_programs_of_a_launch_follow_the_multiprocessors(net: str, rows: int) -> None:
    half = dataclasses.replace(target.H200, multiprocessors=66)
    whole, less = (
        [math.prod(one.grid) for one in planned(chip, net, rows) if _sums(one)] for chip in (target.H200, half)
    )
    assert whole
    assert all(1.8 < a / b < 2.2 for a, b in zip(whole, less, strict=True))
    assert planned(target.H100, net) == planned(target.H200, net), "as many multiprocessors"


def test_under_strict_numerics_all_chips_have_the_same_launches() -> None:
    paddle.set_flags({"FLAGS_numerics": "strict"})
    assert planned(target.A100) == planned(target.B200) == planned(target.H200)
    paddle.set_flags({"FLAGS_numerics": "default"})
    assert planned(target.A100) != planned(target.B200)


def test_a_device_that_turns_out_to_be_another_chip_gets_other_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is part of the key under which compilations are kept."""
    device = OnChip(target.H200)
    device.generated = False
    monkeypatch.setitem(devices.DEVICES, "chip", device)
    with static.program_guard(static.Program(), static.Program()), devices.use("chip"):
        out = paddle.tanh(static.data("x", [2]))
        exe = static.Executor("cpu")
        seen = []
        for chip in (target.H200, target.A100, target.H200):
            device.target = chip
            exe.run(feed={"x": np.ones(2, "float32")}, fetch_list=[out])
            seen.append(len(exe._cache))
    assert seen == [1, 2, 2]
