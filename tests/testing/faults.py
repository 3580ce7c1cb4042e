"""Planted faults: wrong fusions, imitated by a rewritten program that runs in the place of the right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tstatic import static
from tstatic.ir.program import Program
from tstatic.testing.runner import baseline_of

Mutate = Callable[[Program], bool]
"""Edits a clone; says whether it found something to break."""


def plant(patch: pytest.MonkeyPatch, mutate: Mutate, switch: str = "fuse_elewise_add_act_ops") -> list[int]:
    """Makes every run under a strategy with ``switch`` on run the mutated program; returns a list that grows with each hit."""
    hits: list[int] = []
    run = static.Executor.run
    done: dict[int, Any] = {}

    def faulty(self: Any, program: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(program, static.CompiledProgram) and getattr(program.build_strategy, switch):
            twin = done.get(id(program))
            if twin is None:
                clone = program._program.clone()
                hits.extend([1] * mutate(clone))
                clone._touch()
                # The pair stays alive, so that no other object takes the id.
                twin = static.CompiledProgram(clone, build_strategy=baseline_of(program.build_strategy)), program
                done[id(program)] = twin
            program = twin[0]
        return run(self, program, *args, **kwargs)

    patch.setattr(static.Executor, "run", faulty)
    return hits


def pairs(program: Program, first: str, second: str) -> list[tuple[Any, Any]]:
    """Ops ``first`` whose result an op ``second`` reads."""
    ops = program.global_block().ops
    return [
        (a, b)
        for a in ops
        if a.type == first
        for b in ops
        if b.type == second and set(a.output_arg_names) & set(b.input_arg_names)
    ]


def swapped_operands(program: Program) -> bool:
    """``tanh(x - y)`` runs as ``tanh(y - x)``."""
    found = pairs(program, "elementwise_sub", "tanh")
    for op, _ in found:
        op.inputs = {"X": op.inputs["Y"], "Y": op.inputs["X"]}
    return bool(found)


def lost_bias(program: Program) -> bool:
    """``relu(scale(x) + bias)`` forgets the bias."""
    found = [a for a, _ in pairs(program, "scale", "relu") if a.attrs["bias"]]
    for op in found:
        op.attrs["bias"] = 0.0
    return bool(found)


def nan_dropped(program: Program) -> bool:
    """``relu`` is replaced by an op that turns NaN into 0, as a maximum that drops NaN does."""
    found = [op for op in program.global_block().ops if op.type == "relu"]
    block = program.global_block()
    for op in found:
        (name,) = op.inputs["X"]
        like = block.var(name)
        block.create_var(name=f"{name}_zero", shape=like.shape, dtype=like.dtype)
        attrs = {"value": 0.0}
        block._insert_op(op.idx, type="fill_any_like", inputs={"X": name}, outputs={"Out": f"{name}_zero"}, attrs=attrs)
        op.type, op.attrs = "elementwise_fmax", {"axis": -1}
        op.inputs = {"X": (name,), "Y": (f"{name}_zero",)}
    return bool(found)


def half_precision(program: Program) -> bool:
    """The result of each ``reduce_sum`` is rounded to bfloat16, as an accumulator of the wrong type would."""
    block = program.global_block()
    found = [op for op in block.ops if op.type == "reduce_sum"]
    for op in found:
        (name,) = op.outputs["Out"]
        wide = block.var(name)
        block.create_var(name=f"{name}_sum", shape=wide.shape, dtype=wide.dtype)
        block.create_var(name=f"{name}_low", shape=wide.shape, dtype="bfloat16")
        op.outputs = {"Out": (f"{name}_sum",)}
        at = op.idx
        for k, (source, result, dtype) in enumerate(
            ((f"{name}_sum", f"{name}_low", "bfloat16"), (f"{name}_low", name, wide.dtype.name)), 1
        ):
            attrs = {"in_dtype": block.var(source).dtype, "out_dtype": dtype}
            block._insert_op(at + k, type="cast", inputs={"X": source}, outputs={"Out": result}, attrs=attrs)
    return bool(found)


def overflow(program: Program) -> bool:
    """A result that should be finite is scaled out of range."""
    found = [op for op in program.global_block().ops if op.type == "scale"]
    for op in found:
        op.attrs["scale"] = 3e38
    return bool(found)


def second_reader(program: Program) -> bool:
    """``relu`` is done in place although another op still reads its input."""
    block = program.global_block()
    for a in block.ops:
        if a.type != "relu":
            continue
        others = [b for b in block.ops[a.idx + 1 :] if set(a.input_arg_names) & set(b.input_arg_names)]
        for b in others:
            b._rename_input(a.input_arg_names[0], a.output_arg_names[0])
        if others:
            return True
    return False


def gradient_of_other_branch(program: Program) -> bool:
    """The backward half of a product reads the wrong operand."""
    found = [op for op in program.global_block().ops if op.type == "elementwise_mul_grad"]
    for op in found:
        op.inputs = {**op.inputs, "X": op.inputs["Y"], "Y": op.inputs["X"]}
    return bool(found)
