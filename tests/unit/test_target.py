"""The facts of chips."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.kernels.limits import SHARED_LIMIT
from tstatic import devices, static, target
from tstatic.devices.null import NullDevice
from tstatic.fusion.codegen.kernel import KernelLocal, Launch
from tstatic.ir.types import Meta, float32
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
    assert part == dataclasses.replace(target.H200, multiprocessors=60, l2_bytes=30 << 20)
    assert target.of_chip("NVIDIA A100-SXM4-80GB", (8, 0), 108) == target.A100
    other = target.of_chip("NVIDIA L4", (8, 9), 58)
    assert (other.name, other.architecture, other.multiprocessors) == ("NVIDIA L4", "sm_89", 58)


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
