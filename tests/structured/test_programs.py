"""Whole 1.x programs on sequences give, step by step, the numbers that Paddle 1.8.5 gave."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.structured import programs
from tstatic import fluid, static

RECORDED = json.loads(Path(__file__).with_name("fluid.json").read_text())


def fused(program: Any) -> Any:
    """The program with every fusion switched on."""
    switches = (
        "fuse_elewise_add_act_ops",
        "fuse_all_optimizer_ops",
        "enable_auto_fusion",
        "build_cinn_pass",
        "enable_addto",
    )
    strategy = static.BuildStrategy()
    for name in switches:
        setattr(strategy, name, True)
    return static.CompiledProgram(program, build_strategy=strategy)


@pytest.mark.parametrize("compiled", [lambda program: program, fused], ids=["plain", "fused"])
@pytest.mark.parametrize(("net", "optimizer"), programs.PROGRAMS, ids=lambda f: f.__name__)
def test_a_program_trains_as_in_fluid(
    net: Callable[[Any], Any], optimizer: Callable[[Any], Any], compiled: Callable[[Any], Any]
) -> None:
    steps = programs.train(fluid, net, optimizer, compiled)
    recorded = RECORDED[net.__name__]
    assert len(steps) == len(recorded) == programs.STEPS + 1
    for i, (step, wanted) in enumerate(zip(steps, recorded, strict=True)):
        for j, ((values, lengths), (theirs, their_lengths)) in enumerate(zip(step, wanted, strict=True)):
            where = f"step {i}, result {j}"
            assert np.shape(values) == np.shape(theirs), where
            np.testing.assert_allclose(values, theirs, rtol=1e-4, atol=1e-5, err_msg=where)
            assert lengths == their_lengths, where


def test_losses_of_the_recorded_programs_change() -> None:
    for net, _ in programs.PROGRAMS:
        losses = [float(np.ravel(step[0][0])[0]) for step in RECORDED[net.__name__]]
        assert len(set(losses)) == len(losses)
        assert losses[-1] < losses[0], net.__name__
