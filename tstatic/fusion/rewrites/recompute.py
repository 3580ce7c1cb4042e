"""Computes ops once more just before ops that read their results, so that a fused kernel need not store these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tstatic.fusion.engine.view import View
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.types import Meta


def recompute(view: View, metas: dict[str, Meta], readers: Mapping[int, Sequence[int]]) -> FrozenProgram:
    """Returns the program with copies of some ops.

    Args:
        view: The program.
        metas: Metadata of all its values; those of the copies' results are added.
        readers: Index of an op with one result -> indices of the ops that read the copy's result instead.
    """
    copies: dict[int, list[FrozenOp]] = {}
    renamed: dict[int, dict[str, str]] = {}
    names = dict(view.program.names)
    for index, later in readers.items():
        op = view.ops[index]
        (out,) = op.writes()
        new = f"{out}@RECOMPUTED"
        while new in metas:
            new += "_"
        metas[new] = metas[out]
        names[new] = new
        # One copy serves all of them.
        first = min(later)
        # The copy belongs to its readers' phase, and completes no parameter's gradient.
        copies.setdefault(first, []).append(replace(op, outputs=(new,), role=view.ops[first].role, role_var=()))
        for i in later:
            renamed.setdefault(i, {})[out] = new
    if not copies:
        return view.program
    ops: list[FrozenOp] = []
    for index, op in enumerate(view.ops):
        ops += copies.get(index, ())
        ops.append(op.with_inputs(renamed[index]) if index in renamed else op)
    return view.program.edit(ops=tuple(ops), names=names)
