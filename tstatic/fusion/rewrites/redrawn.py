"""Lets gradients draw a forward op's random bits again, so that no mask is stored between the two."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tstatic.fusion.codegen.define import define, draws
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.fusion.rewrites.moves import refusal
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.traits import Redrawn
from tstatic.ir.types import UNKNOWN, Meta


def draw_again(program: FrozenProgram, metas: Mapping[str, Meta], only: Collection[int] | None = None) -> FrozenProgram:
    """Returns the program in which nothing reads a mask that only gradients read.

    A mask that is fetched, kept, or read by anything else stays, and all its readers read it.

    Args:
        program: The frozen program; its fused ops stay.
        metas: Metadata of all its values, with the sizes of this run.
        only: Indices of the gradients that may draw; ``None`` for all.
    """
    if not any(op.definition.has(Redrawn) for op in program.ops):
        return program
    view = View(program, metas)
    changed: dict[int, FrozenOp] = {}
    for index, op in enumerate(view.ops):
        if index in view.forbidden or not _is_drawable(op, metas):
            continue
        outputs = list(op.outputs)
        for at, value in enumerate(outputs):
            if not isinstance(value, str) or value in view.fetched or value in view.kept:
                continue
            readers = {i: _redrawn(view.ops[i], op, value) for i in view.readers.get(value, ())}
            found = {
                i: one
                for i, one in readers.items()
                if one is not None and i not in view.forbidden and (only is None or i in only)
            }
            # All readers or none: a mask that one of them reads is stored in any case.
            if found and len(found) == len(readers):
                changed |= found
                outputs[at] = None
        if tuple(outputs) != op.outputs:
            changed[index] = replace(op, outputs=tuple(outputs))
    if not changed:
        return program
    # Of a forward op that made nothing but its mask, nothing is left.
    ops = (changed.get(i, op) for i, op in enumerate(view.ops))
    return program.edit(ops=tuple(op for op in ops if any(op.outputs) or not op.definition.random))


def why_stored(view: View, op: FrozenOp) -> MatchRejected:
    """Returns why the mask of an op that draws is stored, in a program in which gradients draw again."""
    *_, mask = op.writes()
    if UNKNOWN in view.metas[mask].shape:
        return MatchRejected("DYNAMIC", f"the size of '{mask}' is known only when the program runs")
    gradients = {i for i in view.readers.get(mask, ()) if view.ops[i].definition.has(Redrawn)}
    return refusal(view, mask, gradients) or MatchRejected("RANDOM", reader=op.type)


def _is_drawable(op: FrozenOp, metas: Mapping[str, Meta]) -> bool:
    """Returns whether a kernel can draw an op's numbers."""
    if not draws(op.definition) or op.body:
        return False
    known = [metas.get(v) for v in (*op.reads(), *op.writes())]
    if any(meta is None or UNKNOWN in meta.shape or 0 in meta.shape for meta in known):
        return False
    # The mask may be smaller than the result, and then no kernel writes it; without it there may be one.
    first = replace(op, outputs=(op.outputs[0], *(None for _ in op.outputs[1:])))
    return define(first, metas) is not None


def _redrawn(reader: FrozenOp, maker: FrozenOp, value: str) -> FrozenOp | None:
    """Returns a gradient that draws what it reads as ``value``; ``None`` for any other reader."""
    redrawn = reader.definition.trait(Redrawn)
    if redrawn is None or (definition := redrawn.op).of != maker.type:
        return None
    slots = dict(zip((s.name for s in reader.definition.inputs), reader.inputs, strict=True))
    if {n for n, e in slots.items() if e == value} != slots.keys() - definition.input_slots.keys():
        return None
    inputs = tuple(slots[s.name] for s in definition.inputs)
    attrs = {n: maker.attrs[n] for n in definition.attrs}
    return replace(reader, definition=definition, inputs=inputs, attrs=attrs, position=maker.position)
