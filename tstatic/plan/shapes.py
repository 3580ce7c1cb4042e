"""Infers the metadata of an op's results from that of its inputs, bodies of control flow included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.errors import TstaticError
from tstatic.ir.evaluate import infer_outputs
from tstatic.ir.frozen import Entry, FrozenOp, SubBlock
from tstatic.ir.opdef import EMPTY
from tstatic.ir.traits import Recurrent
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.where import show


def entry_metas(entries: Sequence[Entry], metas: Mapping[str, Meta]) -> list[Any]:
    """Returns the metadata per slot, in the form that ``infer`` takes."""
    return [
        None if e is None else metas.get(e) if isinstance(e, str) else [metas[v] if v != EMPTY else None for v in e]
        for e in entries
    ]


def infer_op(op: FrozenOp, metas: dict[str, Meta]) -> None:
    """Adds the metadata of an op's results.

    Raises:
        TstaticError: If the op definition's ``infer`` rejects the inputs; it has the op and the user's line.
    """
    # A fused op has no shape rule of its own: its members have, also for values that stay in registers.
    if op.body:
        for one in op.body:
            infer_op(one, metas)
        return
    if op.sub_blocks:
        _infer_sub_blocks(op, metas)
        return
    definition = op.definition
    try:
        result = infer_outputs(definition, entry_metas(op.inputs, metas), op.attrs)
    except TstaticError as error:
        raise error.add_context(op=op.type, var=", ".join(op.reads()) or None, where=show(op.where)) from None
    for entry, meta in zip(op.outputs, result, strict=True):
        if entry is None or meta is None:
            continue
        if isinstance(entry, str):
            metas[entry] = meta
        else:
            for value, one in zip(entry, meta, strict=True):
                if value != EMPTY and one is not None:
                    metas[value] = one


def _run_sub_block(sub_block: SubBlock, given: Mapping[str, Meta]) -> dict[str, Meta]:
    metas = dict(sub_block.metas)
    for name, value in sub_block.inputs:
        if name in given:
            metas[value] = given[name]
    for op in sub_block.ops:
        infer_op(op, metas)
    return metas


def _meet(a: Meta, b: Meta) -> Meta:
    """Returns the metadata of a value that may have either: sizes that differ become unknown; if ranks differ, the first's."""
    if a.shape == b.shape or len(a.shape) != len(b.shape):
        return a
    return a.with_shape(x if x == y else UNKNOWN for x, y in zip(a.shape, b.shape, strict=True))


def _infer_sub_blocks(op: FrozenOp, metas: dict[str, Meta]) -> None:
    names, recurrent = op.slot_names, op.definition.trait(Recurrent)
    stepped = () if recurrent is None else recurrent.stepped
    steps = UNKNOWN
    given: dict[str, Meta] = {}
    by_slot = {s.name: e for s, e in zip(op.definition.inputs, op.inputs, strict=True)}
    for slot, entry in by_slot.items():
        row = (entry,) if isinstance(entry, str) else entry or ()
        for name, value in zip(names.get(slot, ()), row, strict=True):
            if value in metas:
                meta = metas[value]
                given[name] = meta.with_shape(meta.shape[1:]) if slot in stepped else meta
                if slot in stepped:
                    steps = meta.shape[0]
    if op.definition.infer is not None:
        # Backward ops of control flow: results are shaped like the forward inputs.
        result = infer_outputs(op.definition, entry_metas(op.inputs, metas), op.attrs)
        for entry, meta in zip(op.outputs, result, strict=True):
            if entry == ():
                continue
            if isinstance(entry, tuple):
                metas.update((v, m) for v, m in zip(entry, meta, strict=True) if v != EMPTY)
            elif entry is not None and meta is not None:
                metas[entry] = meta
        return
    sub_block = op.sub_blocks[0]
    pairs: list[tuple[str, str]] = (
        [] if recurrent is None else list(zip(op.attrs[recurrent.before], op.attrs[recurrent.after], strict=True))
    )
    # A loop's variables may grow from one round to the next.
    before: dict[str, Meta] = {}
    # Until a pass changes nothing: each may only turn sizes into unknown ones, so it ends.
    while before != given:
        before = dict(given)
        inner = _run_sub_block(sub_block, given)
        results = {name: inner[value] for name, value in sub_block.outputs if value in inner}
        for name, meta in results.items():
            if name in given:
                given[name] = _meet(given[name], meta)
        for old, new in pairs:
            given[old] = _meet(given[old], results[new])
    for out, entry in zip(op.definition.outputs, op.outputs, strict=True):
        if out.name in op.definition.objects or entry is None:
            continue
        for name, value in zip(names.get(out.name, ()), (entry,) if isinstance(entry, str) else entry, strict=True):
            if name in results:
                meta = given.get(name, results[name])
                metas[value] = meta.with_shape((steps, *meta.shape)) if out.name in stepped else meta
