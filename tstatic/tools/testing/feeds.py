"""Draws feeds for any program from one seed: shapes that fit together, and values that its ops accept."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.errors import ProgramError, TstaticError, near
from tstatic.ir.frozen import freeze
from tstatic.ir.opdef import OpDef, ValueRange, op_def
from tstatic.ir.program import Operator, Program, Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.plan.known_values import infer_program
from tstatic.tools.testing.parts import Feeds, sample

Range = tuple[float, float]


def data_variables(program: Program) -> list[Variable]:
    """Returns the inputs that the program's ops read, in the order of their declaration."""
    read = {n for block in program.blocks for op in block.ops for n in op.input_arg_names}
    return [v for v in program.global_block().vars.values() if v.is_data and v.name in read]


def sample_feeds(
    program: Program, seed: int = 0, ranges: Mapping[str, Range] | None = None, sizes: Sequence[int] = (3, 4, 2)
) -> Feeds:
    """Returns a feed for a program.

    Args:
        program: Any program.
        seed: Seed of the values.
        ranges: Input name -> ``(low, high)``; whole numbers are drawn from ``low`` to ``high - 1``. Without it the bounds
            follow from the ops that read the input (labels and indices stay inside what they select from).
        sizes: Values of unknown sizes, by axis. If shape inference refuses them, all unknown sizes are the first one.

    Raises:
        ProgramError: For a range of an input that the program does not have.
    """
    inputs = data_variables(program)
    for name in ranges or ():
        if not program.global_block().has_var(name):
            raise ProgramError(
                f"ranges names '{name}', which the program does not have",
                expected=f"inputs {', '.join(repr(v.name) for v in inputs)}",
                received=repr(name),
                fix=near(name, [v.name for v in inputs]) or "use the names of static.data",
                var=name,
            )
    shapes = _shapes(program, inputs, sizes)
    feeds = {}
    for var in inputs:
        values = values_of(program, var)
        low, high = values.low, float(values.high)
        if ranges is not None and var.name in ranges:
            low, high = ranges[var.name]
        # Each input has its own random stream, so that it does not depend on the other inputs.
        stream = zlib.crc32(var.name.encode("utf-8", "surrogatepass"), seed)
        feeds[var.name] = sample(shapes[var.name], var.dtype.name, low, high, stream, values.avoid, values.rows)
    return feeds


def _shapes(program: Program, inputs: Sequence[Variable], sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    def fill(choose: Any) -> dict[str, tuple[int, ...]]:
        return {v.name: tuple(choose(i) if s == UNKNOWN else s for i, s in enumerate(v.shape)) for v in inputs}

    by_axis = fill(lambda axis: sizes[min(axis, len(sizes) - 1)])
    equal = fill(lambda axis: sizes[0])
    return by_axis if by_axis == equal or _fits(program, inputs, by_axis) else equal


def _fits(program: Program, inputs: Sequence[Variable], shapes: Mapping[str, tuple[int, ...]]) -> bool:
    try:
        frozen = freeze(program, [v.name for v in inputs], [])
        known = {v.name: Meta(shapes[v.name], v.dtype) for v in inputs}
        block = program.global_block()
        known |= {value: block._var_recursive(var).meta for var, value in frozen.reads.items() if var not in known}
        infer_program(frozen, known)
    except TstaticError:
        return False
    return True


def values_of(program: Program, var: Variable) -> ValueRange:
    """Returns the range of an input: the intersection of the domains of the ops that read it or a view of it."""
    found: ValueRange | None = None
    names, seen = [var.name], {var.name}
    while names:
        name = names.pop()
        for block in program.blocks:
            for op in block.ops:
                if name not in op.input_arg_names:
                    continue
                found = _narrow(found, _slot_values(op, name, var))
                if op.definition.view is not None or (op.definition.pointwise or {}).get("Out") == "x":
                    new = [n for n in op.output_arg_names if n not in seen]
                    seen.update(new)
                    names += new
    if found is not None:
        return found
    return ValueRange() if var.dtype.is_float else ValueRange(0, 2, dtype=var.dtype.name)


def _forward(definition: OpDef) -> OpDef:
    while definition.of:
        definition = op_def(definition.of)
    return definition


def _slot_values(op: Operator, name: str, var: Variable) -> ValueRange | None:
    definition = _forward(op.definition)
    if definition.domain is None:
        return None
    slot = next(s for s, row in op.inputs.items() if name in row)
    values = definition.domain.values.get(slot)
    if values is None or (values.dtype == "float") != var.dtype.is_float:
        return None
    high = values.high
    if isinstance(high, str):
        limit = _bound(op, high)
        if limit is None:
            return None
        high = limit
    return ValueRange(values.low, float(high), values.avoid, values.dtype, values.distinct, values.rows)


def _bound(op: Operator, text: str) -> float | None:
    """Resolves a symbolic bound: ``"W.0"`` is the size of axis 0 of input W; any other text names an attribute."""
    slot, dot, axis = text.partition(".")
    if not dot:
        return float(op.attrs[slot]) if slot in op.attrs else None
    row = op.inputs.get(slot)
    shape = op.block._var_recursive(row[0]).shape if row else ()
    size = shape[int(axis)] if shape else 1
    return None if size == UNKNOWN else float(size)


def _narrow(a: ValueRange | None, b: ValueRange | None) -> ValueRange | None:
    if a is None or b is None:
        return a or b
    low, high = max(a.low, b.low), min(float(a.high), float(b.high))
    if low >= high:
        return a
    both = tuple(p for v in (a.avoid, b.avoid) if not isinstance(v, str) for p in v)
    avoid: tuple[float, ...] | str = "int" if "int" in (a.avoid, b.avoid) else both
    return ValueRange(low, high, avoid, a.dtype, a.distinct or b.distinct, a.rows or b.rows)


__all__ = ["data_variables", "sample_feeds", "values_of"]
