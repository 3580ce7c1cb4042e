"""Adds the gradients of a value with several uses one by one, in place, instead of all at the end."""

from __future__ import annotations

from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import EMPTY, op_def
from tstatic.ir.operator import OpRole
from tstatic.ir.traits import Pairwise


def _sums(op: FrozenOp, program: FrozenProgram) -> tuple[str, ...]:
    """Returns the gradients that a sum adds, if a chain can replace it; not 16-bit ones, whose float32 sum is rounded once."""
    if not op.definition.has(Pairwise) or not op.role & OpRole.Backward or not isinstance(op.inputs[0], tuple):
        return ()
    values = op.inputs[0]
    known = all(v != EMPTY and v in program.metas and not program.metas[v].dtype.is_low for v in values)
    same = known and len({program.metas[v].shape for v in values}) == 1
    return values if same and len(values) > 1 and len(set(values)) == len(values) else ()


def addto(program: FrozenProgram) -> FrozenProgram:
    """Replaces each sum of n gradients by n - 1 additions, each right after the gradient that it adds.

    Keeps the order of the additions, and so every bit. This saves memory: each gradient is free once it is added.
    """
    maker = {v: i for i, op in enumerate(program.ops) for v in op.writes()}
    after: dict[int, list[FrozenOp]] = {}
    metas, names = dict(program.metas), dict(program.names)
    replaced: set[int] = set()
    for index, op in enumerate(program.ops):
        values = _sums(op, program)
        if not values:
            continue
        replaced.add(index)
        add = op_def(op.definition.needs(Pairwise).op)
        attrs = add.complete({})
        (out,) = op.writes()
        total, at = values[0], maker.get(values[0], -1)
        for i, value in enumerate(values[1:], 1):
            at = max(at, maker.get(value, -1))
            result = out if i == len(values) - 1 else f"{out}@ADD{i}"
            if result != out:
                metas[result], names[result] = metas[out], names.get(out, out)
            made = FrozenOp(
                add, (total, value), (result,), attrs, op.role, op.role_var if result == out else (), op.where,
                op.position, scope=op.scope,
            )  # fmt: skip
            after.setdefault(at, []).append(made)
            total = result
    if not replaced:
        return program
    ops = list(after.get(-1, ()))
    for index, op in enumerate(program.ops):
        if index not in replaced:
            ops.append(op)
        ops.extend(after.get(index, ()))
    return program.edit(ops=tuple(ops), metas=metas, names=names)
