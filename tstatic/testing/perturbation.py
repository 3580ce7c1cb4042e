"""Values moved by a unit in their last place, in float64: what a result's conditioning is measured with."""

from __future__ import annotations

import numpy as np

from tstatic.ir.program import Program
from tstatic.ir.types import dtype_of
from tstatic.testing.parts import Array
from tstatic.testing.tolerance import float64_program, ulp

SUFFIX = "@MOVE"
"""Of the inputs that :func:`movable` adds."""


def widen(array: Array) -> Array:
    """A float array as float64; any other is copied as it is."""
    return np.array(array, np.float64 if dtype_of(array.dtype).is_float else None)


def nudge(array: Array, rng: np.random.Generator) -> Array:
    """The float64 array of a low-precision one, each element moved by plus or minus one unit in the last place."""
    wide = widen(array)
    return wide + unit_step(wide, array.dtype, rng) if dtype_of(array.dtype).is_float else wide


def unit_step(wide: Array, dtype: object, rng: np.random.Generator) -> Array:
    """One unit in the last place of a dtype at each value, with a random sign; 0 where the value is 0."""
    signs = rng.choice([-1.0, 1.0], wide.shape)
    return np.asarray(signs * ulp(wide, dtype_of(dtype).np) * (wide != 0))


def made_values(program: Program) -> dict[str, bool]:
    """Floats that one op of the main block makes, in order, and whether another reads them; the scope keeps none of them."""
    block = program.global_block()
    times: dict[str, int] = {}
    read = set()
    for op in block.ops:
        read.update(op.input_arg_names)
        for name in op.output_arg_names:
            times[name] = times.get(name, 0) + 1
    found = {}
    for name, count in times.items():
        var = block._find_var_recursive(name)
        if count == 1 and var is not None and not var.persistable and var.type == "dense_tensor" and var.dtype.is_float:
            found[name] = name in read
    return found


def movable(program: Program) -> Program:
    """The float64 twin with one more input ``v@MOVE`` for each value ``v``, which is added to it where it is made."""
    twin = float64_program(program)
    block = twin.global_block()
    for name in made_values(program):
        var = block.var(name)
        index = next(op.idx for op in block.ops if name in op.output_arg_names)
        move = block.create_var(name=name + SUFFIX, shape=var.shape, dtype="float64")
        move.is_data = move.stop_gradient = True
        role = block.ops[index].role
        block._insert_op(
            index + 1, type="elementwise_add", inputs={"X": name, "Y": name + SUFFIX}, outputs={"Out": name},
            attrs={"axis": -1, "op_role": role},
        )  # fmt: skip
    twin._touch()
    return twin


__all__ = ["SUFFIX", "made_values", "movable", "nudge", "unit_step", "widen"]
