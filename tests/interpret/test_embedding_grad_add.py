"""Gradients of tied tables with the kernels that other fusions make around them, on numpy and on torch's operators."""

from __future__ import annotations

import pytest

from tests.helpers.soak import SOAK
from tests.helpers.tied_programs import SWITCH, tied_recipe
from tstatic import devices, static, testing
from tstatic.testing.runner import everything_on, trial_of_recipe

PROGRAMS = 100 if SOAK else 6


@pytest.mark.parametrize("device", ["interpret", "torch+interpret"])
def test_drawn_programs_agree_with_every_switch_on(device: str) -> None:
    made = 0
    for place in range(PROGRAMS):
        recipe = tied_recipe(1000 + place, "training" if place % 3 == 2 else "gradients", 2)
        built = recipe.build()
        applied = static.CompiledProgram(built.main, everything_on()).explain(fetch_list=built.fetches).applied
        made += any(a.switch == SWITCH for a in applied)
        trial, feeds = trial_of_recipe(recipe)
        # The unfused program runs on numpy in any case.
        assert trial.compare(static.BuildStrategy(), feeds) is None
        with devices.use(device):
            failure = trial.compare(everything_on(), feeds)
        assert failure is None, f"program {place}: {failure}"
    assert made >= PROGRAMS // 2


def test_clipping_reads_what_was_added() -> None:
    recipe = tied_recipe(1002, "training", 3)
    testing.assert_equivalent(testing.Recipe(**{**vars(recipe), "clip": 0.5}), everything_on(), shrink=False)
