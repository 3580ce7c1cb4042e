"""Merges ops that compute the same values from the same inputs."""

from __future__ import annotations

from typing import Any

from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.operator import OpRole
from tstatic.passes.dce import keeps


def _key(op: FrozenOp) -> Any:
    try:
        key = (
            op.type,
            op.inputs,
            # 0.0 and -0.0 are equal, and their reciprocals are not: the text tells them apart.
            tuple(sorted((name, value, repr(value)) for name, value in op.attrs.items())),
            tuple(e is None for e in op.outputs),
            # A forward op that the backward pass repeats (recompute) must not be merged with the original.
            op.role & OpRole.Backward,
        )
        hash(key)
    except TypeError:
        return None
    return key


def cse(program: FrozenProgram) -> FrozenProgram:
    """Keeps the first of equal ops; random ops, updates, control flow and ops with effects are never merged."""
    # The commit needs the name of a persistable variable's last value, so it is not merged away.
    protected = program.roots()
    rename: dict[str, str] = {}
    seen: dict[Any, FrozenOp] = {}
    kept = []
    for op in program.ops:
        if rename:
            op = op.with_inputs(rename)
        definition = op.definition
        if definition.random or definition.state or definition.objects or op.sub_blocks or keeps(op):
            kept.append(op)
            continue
        key = _key(op)
        if key is None:
            kept.append(op)
            continue
        duplicate = seen.get(key)
        if duplicate is not None and not any(v in protected for v in op.writes()):
            for mine, theirs in zip(op.writes(), duplicate.writes(), strict=True):
                rename[mine] = theirs
            continue
        seen.setdefault(key, op)
        kept.append(op)
    return program.edit(ops=tuple(kept))
