"""Takes the shape of a value from another input of the same op, so that inner values of fusions are not kept for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.ir.types import UNKNOWN, Meta


def shapes_from_contents(program: FrozenProgram, metas: Mapping[str, Meta]) -> FrozenProgram:
    """Where an op asks only for the shape of an input, gives it an input that it reads anyway and that is shaped alike.

    The gradient of an add asks for its operands' shapes: the forward op would have to write its inner value for that.

    Args:
        program: Frozen.
        metas: Metadata of all its values, with the sizes of this run.
    """
    ops = tuple(op if op.body or op.regions else _redirected(op, metas) for op in program.ops)
    changed = any(a is not b for a, b in zip(ops, program.ops, strict=True))
    return program.edit(ops=ops) if changed else program


def _redirected(op: FrozenOp, metas: Mapping[str, Meta]) -> FrozenOp:
    slots = op.card.inputs
    if not op.card.shape_only:
        return op
    read = [e for s, e in zip(slots, op.inputs, strict=True) if isinstance(e, str) and s.name not in op.card.shape_only]
    inputs: list[Entry] = []
    for slot, entry in zip(slots, op.inputs, strict=True):
        known = metas.get(entry) if isinstance(entry, str) and slot.name in op.card.shape_only else None
        if known is None or UNKNOWN in known.shape:
            inputs.append(entry)
            continue
        inputs.append(next((v for v in read if metas.get(v) == known), entry))
    return op if tuple(inputs) == op.inputs else replace(op, inputs=tuple(inputs))
