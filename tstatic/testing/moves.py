"""Inputs in float64, as they are and moved by a unit in the last place: what a result's conditioning is measured with."""

from __future__ import annotations

import numpy as np

from tstatic.ir.program import Program
from tstatic.ir.types import DType, dtype_of
from tstatic.testing.recipe import Array
from tstatic.testing.tolerance import ulp


def widen(array: Array) -> Array:
    """A float array as float64; any other is copied as it is."""
    return np.array(array, np.float64 if dtype_of(array.dtype).is_float else None)


def coarsest(program: Program) -> DType | None:
    """The 16-bit type of a program's values, if it has any: bfloat16 before float16."""
    found = {v.dtype.name for b in program.blocks for v in b.vars.values() if v._dtype is not None and v.dtype.is_low}
    return dtype_of("bfloat16" if "bfloat16" in found else "float16") if found else None


def nudge(array: Array, rng: np.random.Generator, coarse: DType | None = None) -> Array:
    """The float64 array of a low-precision one, each element moved by plus or minus one unit in the last place.

    Args:
        array: An input.
        rng: Draws the signs.
        coarse: A wider unit to take for floats of more bits: a program that rounds inner values to 16 bits is conditioned
            by that rounding, whatever its inputs are.
    """
    wide = widen(array)
    dtype = dtype_of(array.dtype)
    if not dtype.is_float:
        return wide
    unit = coarse if coarse is not None and not dtype.is_low else dtype
    return np.asarray(wide + rng.choice([-1.0, 1.0], wide.shape) * ulp(wide, unit.np) * (wide != 0))
