"""Removes ops whose results are not used."""

from __future__ import annotations

from dataclasses import replace

from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.ir.opdef import EMPTY


def keeps(op: FrozenOp) -> bool:
    """Returns whether an op stays even if no op reads it: it prints, calls Python, may raise on values, or owns such ops."""
    return op.definition.effects or any(keeps(inner) for sub_block in op.sub_blocks for inner in sub_block.ops)


def dce(program: FrozenProgram) -> FrozenProgram:
    """Removes dead ops, and dead optional outputs of the ops that stay."""
    return _swept(program, trim=True)


def without_unused(program: FrozenProgram) -> FrozenProgram:
    """Removes dead ops; those that stay keep their outputs, as fused ones must."""
    return _swept(program, trim=False)


def _swept(program: FrozenProgram, *, trim: bool) -> FrozenProgram:
    live = program.roots()
    kept: list[FrozenOp] = []
    for op in reversed(program.ops):
        if not keeps(op) and not any(v in live for v in op.writes()):
            continue
        live.update(op.reads())
        kept.append(_trim(op, live) if trim else op)
    return program.edit(ops=tuple(reversed(kept)))


def _trim(op: FrozenOp, live: set[str]) -> FrozenOp:
    outputs: list[Entry] = []
    changed = False
    for slot, entry in zip(op.definition.outputs, op.outputs, strict=True):
        if isinstance(entry, str) and entry not in live and slot.optional:
            entry = None
            changed = True
        elif isinstance(entry, tuple) and slot.optional and any(v not in live and v != EMPTY for v in entry):
            entry = tuple(v if v in live else EMPTY for v in entry)
            changed = True
        outputs.append(entry)
    return replace(op, outputs=tuple(outputs)) if changed else op
