"""Computes small constants once, at compile time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import TstaticError
from tstatic.ir.evaluate import evaluate
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.ir.ref import NO_REF
from tstatic.passes.dce import keeps

_LIMIT = 4096
"""The size in bytes of the largest constant that is kept with the plan; larger ones are cheaper to recompute than to keep."""


def fold(program: FrozenProgram) -> FrozenProgram:
    """Evaluates ops whose inputs are all constants and whose results are small."""
    constants: dict[str, np.ndarray[Any, Any]] = dict(program.constants)
    kept = [op for op in program.ops if not _fold_one(op, program, constants)]
    return program.edit(ops=tuple(kept), constants=constants)


def _fold_one(op: FrozenOp, program: FrozenProgram, constants: dict[str, np.ndarray[Any, Any]]) -> bool:
    definition = op.definition
    if (
        definition.random
        or definition.state
        or definition.objects
        or definition.dynamic
        or op.sub_blocks
        or keeps(op)
        or definition.ref is NO_REF
    ):
        return False
    writes = op.writes()
    if not all(v in constants for v in op.reads()) or not writes:
        return False
    for value in writes:
        meta = program.metas.get(value)
        if meta is None or not meta.known or meta.nbytes > _LIMIT:
            return False
    try:
        results = evaluate(
            definition, [_values(e, constants) for e in op.inputs], op.attrs, [e is not None for e in op.outputs]
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


def _values(entry: Entry, constants: dict[str, np.ndarray[Any, Any]]) -> Any:
    if entry is None:
        return None
    return constants[entry] if isinstance(entry, str) else [constants[v] for v in entry]
