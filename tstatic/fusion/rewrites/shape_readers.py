"""Redirects shape-only inputs to other values of the same shape, so that a fused intermediate need not be stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.ir.opdef import op_def
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.passes.dce import without_unused


def shapes_from_contents(program: FrozenProgram, metas: Mapping[str, Meta]) -> FrozenProgram:
    """Replaces an input of which an op reads only the shape by one with equal metadata that it reads anyway.

    The gradient of an add needs its operands' shapes; without this the forward kernel would have to write its intermediate
    value for it. An op that fills a value of another one's shape gets the shape as an attribute: the ones that a gradient
    starts from then do not read the loss, so a loss and its gradient can be one kernel. What nobody reads now is left out, such as
    a loss that is not fetched.

    Args:
        program: The frozen program.
        metas: Metadata of all its values, with the sizes of this run.
    """
    ops = tuple(op if op.body or op.sub_blocks else _redirected(op, metas) for op in program.ops)
    changed = any(a is not b for a, b in zip(ops, program.ops, strict=True))
    return without_unused(program.edit(ops=ops)) if changed else program


def _redirected(op: FrozenOp, metas: Mapping[str, Meta]) -> FrozenOp:
    slots = op.definition.inputs
    # What is declared of results whose sizes depend on values is a guess.
    if not op.definition.shape_only or op.definition.dynamic:
        return op
    number = op.definition.ref.constant(op.attrs)
    if number is not None:
        return _filled(op, number, metas)
    read = [
        e
        for s, e in zip(slots, op.inputs, strict=True)
        if isinstance(e, str) and s.name not in op.definition.shape_only
    ]
    inputs: list[Entry] = []
    for slot, entry in zip(slots, op.inputs, strict=True):
        known = metas.get(entry) if isinstance(entry, str) and slot.name in op.definition.shape_only else None
        if known is None or UNKNOWN in known.shape:
            inputs.append(entry)
            continue
        # Where nothing else has that shape, the value stays, and has to be stored.
        inputs.append(next((v for v in read if metas.get(v) == known), entry))
    return op if tuple(inputs) == op.inputs else replace(op, inputs=tuple(inputs))


def _filled(op: FrozenOp, number: float, metas: Mapping[str, Meta]) -> FrozenOp:
    """Returns a fill op with a constant shape, if the shape is known."""
    (result,) = op.writes()
    meta = metas.get(result)
    # An input whose elements are read has a say in the result.
    if meta is None or not meta.known or not {s.name for s in op.definition.inputs}.issubset(op.definition.shape_only):
        return op
    constant = op_def("fill_constant")
    attrs = constant.complete({"shape": meta.shape, "dtype": meta.dtype, "value": number})
    return replace(op, definition=constant, inputs=(), attrs=attrs)
