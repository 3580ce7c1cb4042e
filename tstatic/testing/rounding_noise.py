"""Gradients of a drawn program that are nothing but rounding noise, on which no two right kernels agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tstatic.ir.opdef import GRAD
from tstatic.static.strategy import BuildStrategy
from tstatic.testing.perturbation import widen
from tstatic.testing.recipe import Recipe
from tstatic.testing.runner import Trial, baseline_of, trial_of_recipe
from tstatic.testing.tolerance import float64_program

NOISE = 1e-10
"""Gradients nearer to zero in float64 are what cancellation left."""


def noisy(recipe: Recipe, names: Mapping[str, str]) -> set[str]:
    """Inputs with gradients that cancel to rounding noise in float64 (a shift under a softmax): no two kernels agree there."""
    trial, feeds = trial_of_recipe(replace(recipe, runs=1))
    block = trial.program.global_block()
    wanted = [n for n in names if block.has_var(n)]
    twin = Trial(float64_program(trial.program), trial.state, wanted)
    (found, *_) = twin.run(
        twin.compiled(baseline_of(BuildStrategy())),
        {n: widen(a) for n, a in feeds.items()},
        {n: widen(a) for n, a in trial.state.items()},
    )
    return {names[n] for n, g in zip(wanted, found, strict=True) if ((np.abs(g) > 0) & (np.abs(g) < NOISE)).any()}


def quiet(recipe: Recipe) -> Recipe:
    """The recipe without the gradients that are only noise."""
    if not recipe.gradients:
        return recipe
    found = noisy(recipe, {f"{n}{GRAD}": n for n in recipe.gradients})
    return replace(recipe, gradients=tuple(n for n in recipe.gradients if n not in found))


__all__ = ["noisy", "quiet"]
