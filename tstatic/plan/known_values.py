"""Values that are known before a run, as constants and sizes of feeds are, and the sizes that depend on them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import TstaticError
from tstatic.ir.evaluate import allocate, call_ref
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram, flat
from tstatic.ir.opdef import EMPTY
from tstatic.ir.ref import NO_REF
from tstatic.ir.types import Meta
from tstatic.plan.shapes import entry_metas, infer_op

_LIMIT = 4096
"""The size in bytes of the largest value that is computed ahead to see what sizes follow from it: shapes, bounds and counts are far
smaller, and a table of data decides none."""

_MOST_ELEMENTS = 1 << 24
"""The most elements of an op's inputs for which it is tried what sizes it gives them: it takes some milliseconds."""

_REFUSED = (TstaticError, ValueError, TypeError, IndexError, MemoryError, OverflowError)
"""What a reference raises on values that it does not take: it raises them again when the program runs, with the user's line."""


class KnownValues:
    """Infers metadata, with what is known of values: sizes that others would have to find out in each run.

    A value is known if it is a constant, a shape of something whose size is known, or made of such; only small integers and truth
    values are looked at, as nothing else decides sizes.

    Args:
        constants: The program's constants.
    """

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self._arrays = {v: a for v, a in constants.items() if a.dtype.kind in "iub"}

    def infer(self, op: FrozenOp, metas: dict[str, Meta]) -> None:
        """Adds the metadata of an op's results, as :func:`infer_op` does and with the same errors."""
        # First: an op's own rule has the errors that a user knows, and what it tells needs no values.
        infer_op(op, metas)
        definition = op.definition
        if op.body:
            return
        opaque = (
            definition.random or definition.effects or definition.objects or definition.collective or definition.update
        )
        inexact = definition.dynamic is not None and not definition.dynamic.exact
        if opaque or inexact or op.sub_blocks or definition.ref is NO_REF:
            return
        made = [metas.get(v) for v in op.writes()]
        open_sizes = any(m is not None and not m.known for m in made)
        small = all(m is not None and m.dtype.np.kind in "iub" and m.known and m.nbytes <= _LIMIT for m in made)
        if not (open_sizes or small) or not all(self._is_sized(v, metas) for v in op.reads()):
            return
        if sum(metas[v].numel for v in op.reads()) > _MOST_ELEMENTS:
            return
        free = self._free(op)
        deciding = [
            v for slot, e in zip(definition.inputs, op.inputs, strict=True) if slot.name not in free for v in flat([e])
        ]
        complete = all(v in self._arrays for v in op.contents())
        if not complete and not (open_sizes and deciding and all(v in self._arrays for v in deciding)):
            return
        for value, one in self._computed(op, metas, complete).items():
            metas[value] = metas[value].with_shape(one.shape)
            if complete and one.nbytes <= _LIMIT and one.dtype.kind in "iub":
                self._arrays[value] = one

    def _free(self, op: FrozenOp) -> Sequence[str]:
        """Returns the input slots whose values decide no size."""
        definition = op.definition
        if definition.dynamic is not None:
            return definition.dynamic.free
        # What an operator works on comes first, what says how behind it: shapes, bounds, counts.
        return (*definition.shape_only, definition.inputs[0].name if definition.inputs else "")

    def _is_sized(self, value: str, metas: Mapping[str, Meta]) -> bool:
        meta = metas.get(value)
        return meta is not None and meta.known

    def _computed(self, op: FrozenOp, metas: Mapping[str, Meta], complete: bool) -> Mapping[str, Any]:
        """Returns an op's results by value; nothing if the reference refuses its inputs, or if what is not known decides sizes."""
        found = self._run(op, metas, 0)
        # Once with zeros for what is not known, and once with ones: a size that differs depends on it after all.
        other = found if complete else self._run(op, metas, 1)
        alike = found.keys() == other.keys() and all(one.shape == other[v].shape for v, one in found.items())
        return found if alike else {}

    def _run(self, op: FrozenOp, metas: Mapping[str, Meta], fill: int) -> Mapping[str, Any]:
        """Runs an op on what is known, and on numbers ``fill`` for the rest."""

        def value(name: str) -> Any:
            known = self._arrays.get(name)
            # A number that takes no memory, whatever the shape.
            return np.broadcast_to(np.array(fill, metas[name].dtype.np), metas[name].shape) if known is None else known

        def entry(one: Entry) -> Any:
            if one is None or isinstance(one, str):
                return None if one is None else value(one)
            return [None if v == EMPTY else value(v) for v in one]

        definition = op.definition
        ins: list[Any] = [entry(e) for e in op.inputs]
        made = [metas.get(v) for v in op.writes()]
        try:
            with np.errstate(all="ignore"):
                if definition.dynamic is None and all(m is not None and m.known for m in made):
                    results = allocate(entry_metas(op.outputs, metas))
                    call_ref(definition, ins, results, op.attrs)
                else:
                    results = definition.ref.compute(ins, [None] * len(op.outputs), op.attrs, {})
        except _REFUSED:
            return {}
        pairs = [
            pair
            for e, result in zip(op.outputs, results, strict=True)
            for pair in zip(flat([e]), result if isinstance(result, list) else [result], strict=False)
        ]
        return {v: one for v, one in pairs if isinstance(one, np.ndarray) and v in metas}


def is_open(op: FrozenOp, metas: Mapping[str, Meta]) -> bool:
    """Returns whether an op's own rule leaves sizes open that are known all the same, from values: its reference allocates."""
    definition = op.definition
    if op.body or op.sub_blocks or definition.infer is None:
        return False
    slots = zip(definition.inputs, op.inputs, strict=True)
    given = [v for slot, e in slots if slot.optional for v in flat([e])]
    if definition.dynamic is None and not any(v in metas and metas[v].dtype.is_integer for v in given):
        return False
    found = {v: metas[v] for v in op.reads() if v in metas}
    infer_op(op, found)
    return any(v in found and not found[v].known for v in op.writes())


def infer_program(program: FrozenProgram, known: Mapping[str, Meta]) -> dict[str, Meta]:
    """Returns value -> metadata; ``known`` has those of feeds and state. Sizes that depend on values of a run stay unknown."""
    metas: dict[str, Meta] = {v: program.metas[v] for v in program.reads.values() if v in program.metas}
    metas.update(known)
    for value, array in program.constants.items():
        # A folded constant has the size that the program may have left unknown.
        metas[value] = program.metas[value].with_shape(array.shape)
    values = KnownValues(program.constants)
    for op in program.ops:
        values.infer(op, metas)
    return metas
