"""Removes identity gradients: if both operands of an add have its output's shape, their gradients alias the output gradient."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache

from tstatic.fusion.codegen.define import define
from tstatic.fusion.codegen.matrix.products import is_product_gradient
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import op_def
from tstatic.ir.operator import OpRole
from tstatic.ir.types import Meta


def eliminate_identity_gradients(
    program: FrozenProgram, metas: Mapping[str, Meta], only: Collection[int] | None = None
) -> FrozenProgram:
    """Removes backward ops whose results all equal one of their inputs, element for element.

    An op with other results stays: patterns look for it, and its kernel writes all results in one pass. An op whose result is
    fetched or kept stays, because the user would see two names for one array. An op that completes a parameter's gradient
    stays, because later stages look for it.

    Args:
        program: The frozen program; its fused ops stay.
        metas: Metadata of all its values, with the sizes of this run.
        only: Indices of the ops that are asked; ``None`` for all.
    """
    roots = program.roots()
    made: set[str] = set()
    renamed: dict[str, str] = {}
    kept: list[FrozenOp] = []
    for index, op in enumerate(program.ops):
        if renamed and not renamed.keys().isdisjoint(op.reads()):
            op = op.with_inputs(renamed)
        same = _same(op, metas) if only is None or index in only else {}
        # A feed or a variable in a scope may be overwritten in the same run; a value that an op makes never is.
        if same and roots.isdisjoint(same) and made.issuperset(same.values()):
            renamed |= same
            continue
        made.update(op.writes())
        kept.append(op)
    return program.edit(ops=tuple(kept)) if renamed else program


def pass_on_to_products(
    program: FrozenProgram, metas: Mapping[str, Meta], only: Collection[int] | None = None
) -> FrozenProgram:
    """Lets ops read the gradient that arrives at an add, instead of the equal one that the add hands on.

    Removes adds' gradients as :func:`eliminate_identity_gradients`. One that also makes a bias's gradient keeps that; if nothing
    but gradients of matrix products reads what it hands on, these read what arrives. Whoever makes what arrives may then sum
    it in the same pass, and one array fewer is written.

    Args:
        program: The frozen program.
        metas: Metadata of all its values.
        only: Indices of the adds' gradients; ``None`` for all.
    """
    if only is None:
        only = {i for i, op in enumerate(program.ops) if op.type == "elementwise_add_grad"}
    roots = program.roots()
    readers: dict[str, list[FrozenOp]] = {}
    for op in program.ops:
        for value in op.reads():
            readers.setdefault(value, []).append(op)
    made: set[str] = set()
    renamed: dict[str, str] = {}
    done: list[FrozenOp] = []
    for index, op in enumerate(program.ops):
        if renamed and not renamed.keys().isdisjoint(op.reads()):
            op = op.with_inputs(renamed)
        if index in only:
            same = _same(op, metas)
            if same and roots.isdisjoint(same) and made.issuperset(same.values()):
                renamed |= same
                continue
            own = {
                result: source
                for result, source in _equal(op, metas, some=True).items()
                if result not in roots
                and source in made
                and all(_multiplies(reader, result) for reader in readers.get(result, ()))
            }
            # An op all of whose results are handed on would be left with none: above, it was removed or had a reason to stay.
            if own and set(own) != set(op.writes()):
                renamed |= own
                op = replace(op, outputs=tuple(None if e in own else e for e in op.outputs))
        made.update(op.writes())
        done.append(op)
    return program.edit(ops=tuple(done)) if renamed else program


def _multiplies(reader: FrozenOp, gradient: str) -> bool:
    """Returns whether nothing but gradients of matrix products reads a gradient in an op, which may be a fused one."""
    inside = [op for op in reader.body or (reader,) if gradient in op.reads()]
    return all(is_product_gradient(op.definition) for op in inside)


@lru_cache(maxsize=4096)
def _copies(kind: str) -> frozenset[int]:
    """Returns the positions of an op's outputs whose expression is the name of an input."""
    definition = op_def(kind)
    names = {s.param for s in definition.inputs}
    texts = {} if definition.expression is None else definition.expression.nodes
    return frozenset(i for i, node in texts.items() if node.op == "var" and node.value in names)


def _same(op: FrozenOp, metas: Mapping[str, Meta]) -> dict[str, str]:
    """Returns result -> the input that it equals; empty unless every result equals one."""
    # What completes a parameter's gradient (`role_var`) stays: replicas find the gradient by it.
    if not op.role & OpRole.Backward or op.role_var or op.body or op.sub_blocks:
        return {}
    return _equal(op, metas)


def _equal(op: FrozenOp, metas: Mapping[str, Meta], some: bool = False) -> dict[str, str]:
    """Returns result -> the input that it equals, of all results, or with ``some`` of those that equal one."""
    positions = [i for i, e in enumerate(op.outputs) if e is not None]
    if some:
        positions = [i for i in positions if i in _copies(op.type)]
    if not positions or not _copies(op.type).issuperset(positions):
        return {}
    # An unknown size may turn out to be one that is broadcast.
    if not all(v in metas and metas[v].known for v in (*op.reads(), *op.writes())):
        return {}
    formula = define(op, metas)
    if formula is None:
        return {}
    found: dict[str, str] = {}
    for i in positions:
        position = formula.inputs[formula.nodes[i].value]
        source, result = formula.entries[position], op.outputs[i]
        # Otherwise the op sums or broadcasts its input.
        same = formula.aligned[position] == formula.full == formula.targets[i]
        if not same or not isinstance(source, str) or not isinstance(result, str) or metas[source] != metas[result]:
            if some:
                continue
            return {}
        found[result] = source
    return found
