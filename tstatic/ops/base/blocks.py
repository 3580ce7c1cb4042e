"""Building ops that own blocks: the block of a body, and what the body reads and writes of the blocks around it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramTypeError
from tstatic.ir.build import as_variable
from tstatic.ir.declare import default_main_program
from tstatic.ir.program import Block, Program, Variable


def captures(block: Block) -> tuple[list[str], list[str]]:
    """(names read from outside, names of outside written), each in order of first occurrence.

    A written name that had a value before is also read: a body that does not run leaves the old value.
    """
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for op in block.ops:
        for name in op.input_arg_names:
            if name not in block.vars:
                reads[name] = None
        for name in op.output_arg_names:
            if name not in block.vars:
                # A dict keeps its order: that of a set of names differs from process to process, and so would programs.
                writes[name] = None
    for name in writes:
        # Written, but perhaps not in every run: then the value from before the body is its result, so it is an input as well.
        if name not in reads and _has_value(block, name):
            reads[name] = None
    return list(reads), list(writes)


def _has_value(block: Block, name: str) -> bool:
    outer = block.parent
    while outer is not None:
        var = outer.vars.get(name)
        # Feeds and the scope give these their values, no op does.
        if var is not None and (var.is_data or var.persistable):
            return True
        if any(name in op.output_arg_names for op in outer.ops):
            return True
        outer = outer.parent
    return False


@contextlib.contextmanager
def body(program: Program | None = None) -> Iterator[Block]:
    """Enters a new block; ops built inside go to it."""
    program = program or default_main_program()
    block = program._create_block()
    try:
        yield block
    finally:
        program._rollback()


def deliver(values: Sequence[Any], outs: Sequence[Any] | None) -> list[Any]:
    """Writes results to their buffers; where there are none (sizes known only now), hands them over."""
    if outs is None:
        return list(values)
    # No buffers at all: nobody wants this slot.
    for value, out in zip(values if outs else (), outs, strict=True):
        if out is not None:
            np.copyto(out, value, casting="unsafe")
    return list(outs)


# --------------------------------------------------------------------------------------------------------- structures
def flatten(value: Any) -> list[Any]:
    """Returns the leaves of nested lists, tuples and dicts, in order."""
    if isinstance(value, dict):
        # Sorted: two branches may build their dicts in different order.
        return [leaf for key in sorted(value) for leaf in flatten(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flatten(item)]
    return [value]


def pack(like: Any, leaves: Iterator[Any]) -> Any:
    """Returns the structure of ``like`` with other leaves."""
    if isinstance(like, dict):
        return {key: pack(like[key], leaves) for key in sorted(like)}
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*(pack(item, leaves) for item in like))
    if isinstance(like, list | tuple):
        return type(like)(pack(item, leaves) for item in like)
    return next(leaves)


def same_structure(a: Any, b: Any) -> bool:
    """Returns whether two values nest alike."""
    if isinstance(a, dict) or isinstance(b, dict):
        return (
            isinstance(a, dict)
            and isinstance(b, dict)
            and sorted(a) == sorted(b)
            and all(same_structure(a[k], b[k]) for k in a)
        )
    if isinstance(a, list | tuple) or isinstance(b, list | tuple):
        return (
            isinstance(a, list | tuple)
            and isinstance(b, list | tuple)
            and len(a) == len(b)
            and all(same_structure(x, y) for x, y in zip(a, b, strict=True))
        )
    return (a is None) == (b is None)


def leaf_variable(value: Any, function: str) -> Variable:
    """Returns a leaf that a function returned as a Variable; numbers and arrays become constants."""
    if isinstance(value, Variable | bool | int | float | np.ndarray | np.generic):
        return as_variable(value)
    raise ProgramTypeError(
        f"{function} returned something that is not a Variable",
        expected="Variables, numbers or arrays",
        received=f"{value!r} of type {type(value).__name__}",
        fix="return Variables from the function",
        op=function,
    )
