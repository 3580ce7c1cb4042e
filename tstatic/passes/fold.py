"""Computes constants once, at compile time: small ones always, larger ones where something asks for them."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

from tstatic.devices.cpu import blas
from tstatic.errors import TstaticError
from tstatic.ir.evaluate import evaluate
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.ir.ref import NO_REF
from tstatic.ir.types import Meta
from tstatic.passes.dce import keeps

_LIMIT = 4096
"""The size in bytes of the largest constant that is kept with the plan; larger ones are cheaper to recompute than to keep."""

_DEEP = 64
"""The most ops that one constant may be made of."""

Array = np.ndarray[Any, Any]


def fold(program: FrozenProgram) -> FrozenProgram:
    """Evaluates ops whose inputs are all constants and whose results are small."""
    constants: dict[str, Array] = dict(program.constants)
    kept = [op for op in program.ops if not _fold_one(op, program.metas, constants, _LIMIT)]
    return program.edit(ops=tuple(kept), constants=constants)


class Constants:
    """The constants of a program, with those that can be computed from them.

    Args:
        program: The frozen program.
        metas: Metadata of all its values.
        limit: The size in bytes of the largest value that is computed on the way.
    """

    def __init__(self, program: FrozenProgram, metas: Mapping[str, Meta], limit: int) -> None:
        self._ops = program.ops
        self._maker = {v: index for index, op in enumerate(program.ops) for v in op.writes()}
        self._metas, self._limit = metas, limit
        self._known: dict[str, Array] = dict(program.constants)
        self._failed: set[str] = set()

    def get(self, value: str) -> Array | None:
        """Returns what a value holds in every run; ``None`` if runs decide it, or it takes too much to find out."""
        found: set[int] = set()
        pending = [value]
        while pending:
            name = pending.pop()
            index = self._maker.get(name)
            if name in self._known or index in found:
                continue
            # Where a run decides a value, nothing of what is made of it is computed.
            if index is None or name in self._failed or not _is_foldable(self._ops[index]) or len(found) >= _DEEP:
                self._failed.add(value)
                return None
            found.add(index)
            pending += self._ops[index].reads()
        for index in sorted(found):
            if not _fold_one(self._ops[index], self._metas, self._known, self._limit):
                self._failed.update((value, *self._ops[index].writes()))
                return None
        return self._known[value]


def _is_foldable(op: FrozenOp) -> bool:
    definition = op.definition
    return not (
        definition.random
        or definition.state
        or definition.objects
        or definition.dynamic
        or op.sub_blocks
        or keeps(op)
        or definition.ref is NO_REF
    )


def _fold_one(op: FrozenOp, metas: Mapping[str, Meta], constants: MutableMapping[str, Array], limit: int) -> bool:
    writes = op.writes()
    if not _is_foldable(op) or not all(v in constants for v in op.reads()) or not writes:
        return False
    for value in writes:
        meta = metas.get(value)
        if meta is None or not meta.known or meta.nbytes > limit:
            return False
    if op.definition.uses_blas:
        blas.hold()
    try:
        results = evaluate(
            op.definition, [_values(e, constants) for e in op.inputs], op.attrs, [e is not None for e in op.outputs]
        )
    except (TstaticError, ValueError, TypeError, IndexError):
        # The op raises this error again when the program runs, with the user's line.
        return False
    for entry, result in zip(op.outputs, results, strict=True):
        if isinstance(entry, str):
            constants[entry] = result
        elif entry is not None:
            constants.update(zip(entry, result, strict=True))
    return True


def _values(entry: Entry, constants: Mapping[str, Array]) -> Any:
    if entry is None:
        return None
    return constants[entry] if isinstance(entry, str) else [constants[v] for v in entry]
