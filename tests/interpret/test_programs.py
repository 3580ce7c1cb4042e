"""Whole programs with generated kernels: the table of wrong results, in all float types, forward and gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.fusion_programs import CASES, Case, build, run
from tstatic.devices import interpret
from tstatic.target import TINY

SWITCHES: tuple[dict[str, bool], ...] = ({"fuse_elewise_add_act_ops": True}, {"enable_auto_fusion": True})
TOLERANCE = {"float32": 2e-6, "bfloat16": 2e-2, "float16": 3e-3}


def close(a: Any, b: Any, bound: float) -> bool:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    scale = max(1.0, float(np.abs(b).max())) if b.size else 1.0
    return bool((np.abs(a - b) <= bound * scale).all())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_table_of_wrong_results(case: Case, dtype: str) -> None:
    if dtype != "float32" and ("conv" in case.name or "scale" in case.name):
        pytest.skip("one float type is enough where the layer makes float32 parameters")
    built = build(case, dtype)
    plain, _ = run(built)
    for switches in SWITCHES:
        values, compiled = run(built, **switches)
        assert any(s.how == "kernel" for s in compiled.plan.steps) or not case.fused
        for name, a, b in zip(built.fetches, plain, values, strict=True):
            assert close(b, a, TOLERANCE[dtype]), f"{name} under {switches}:\n{b}\n{a}"


@pytest.mark.parametrize("case", CASES[:3] + CASES[-3:], ids=lambda c: c.name)
def test_any_inner_variable_can_be_fetched(case: Case) -> None:
    built = build(case)
    names = [n for op in built.main.global_block().ops for n in op.output_arg_names]
    plain, _ = run(built, names)
    for name, wanted in zip(names, plain, strict=True):
        for switches in SWITCHES:
            assert close(run(built, [name], **switches)[0][0], wanted, 2e-6), name


def test_a_run_repeats_bit_for_bit() -> None:
    built = build(CASES[-1])
    first, _ = run(built, enable_auto_fusion=True)
    second, _ = run(built, enable_auto_fusion=True)
    assert [a.tobytes() for a in first] == [b.tobytes() for b in second]


SMALL_CHIP = replace(TINY, architecture="sm_90", multiprocessors=1)
"""A chip so small that programs go over several tiles, as those of large arrays do on a large one."""


@pytest.mark.parametrize(
    ("shapes", "compute"),
    [
        (((75, 40), (40,)), lambda x, w: paddle.tanh(x * w)),
        (((6, 3, 9, 11), (3, 1, 1)), lambda x, w: paddle.tanh(x * w)),
        (((75, 40), (40,)), lambda x, w: paddle.nn.functional.softmax(x) * w),
    ],
    ids=["columns", "channels", "rows"],
)
def test_programs_of_a_small_chip_go_over_several_tiles(
    shapes: Any, compute: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build(Case("small chip", shapes, compute, 0))
    plain, _ = run(built)
    monkeypatch.setattr(interpret.DEVICE, "target", SMALL_CHIP)
    values, compiled = run(built, enable_auto_fusion=True)
    for name, a, b in zip(built.fetches, plain, values, strict=True):
        assert close(b, a, 4e-6), name
    launches = [one for found in compiled.plan.kernels.values() for one in found.calls.launches]
    strips = [
        (one.arguments[-1], one.constants["ROWS"]) for one in launches if {"ROWS", "COLUMNS"} == set(one.constants)
    ]
    assert any(isinstance(strip, int) and strip > tall for strip, tall in strips), launches


def test_triton_does_not_compute_checks_that_nothing_reads() -> None:
    from triton.runtime.interpreter import interpreter_builder

    run(build(CASES[-1]), enable_auto_fusion=True)
    assert not interpreter_builder.options.debug
    assert not interpreter_builder.options.sanitize_overflow
