"""Adds the gradient of an embedding lookup to the other gradient of its table, in its place, instead of making it whole.

A table that is looked up and multiplied by (tied embeddings) has two gradients, of which that of the lookup is zero but for the
rows of the batch. Here nothing clears a table for it, and no sum reads two: one op adds the rows looked up to the other gradient.

The references give the same bits as the sum of two whole gradients, but for the sign of zeros; so do devices of torch on 16 bits.
A device of torch adds the rows of wider types one by one to what is there: for a row that is looked up several times this is
another order, within the tolerance of sums. A sum of more than two has the lookups at its end. Every run has the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tstatic.fusion.codegen.numerics import strict_numerics
from tstatic.fusion.engine import Applied, Fusion, Log, Rejection, Rewriting, member
from tstatic.fusion.engine.chain import Chain, Link
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import op_def
from tstatic.ir.traits import Pairwise, RowGradient
from tstatic.ir.types import Meta


def rewritten(fusion: Fusion, program: FrozenProgram, metas: dict[str, Meta], log: Log) -> FrozenProgram:
    """Rewrites every sum of gradients that has one of a lookup among them, and records what was done and what was not.

    Args:
        fusion: The fusion, for the records.
        program: The frozen program.
        metas: Metadata of all its values; those of new ones are added.
        log: Gets the records.
    """
    if not any(op.definition.has(RowGradient) for op in program.ops):
        return program
    view = View(program, metas)
    names = dict(program.names)
    blocks: dict[int, list[FrozenOp]] = {}
    for index, values in _sums(view):
        taken: list[str] = []
        for value in (v for v in values if _is_lookup(view, v)):
            # Of gradients of lookups alone the first one is made whole.
            if len(taken) == len(values) - 1:
                break
            try:
                _check(view, value, index)
                taken.append(value)
            except MatchRejected as unfit:
                members = tuple(member(view.ops[i]) for i in (view.maker[value], index))
                log.refused.append(
                    Rejection(fusion.name, fusion.switch, unfit.code, members, unfit.reason, unfit.change)
                )
        if not taken:
            continue
        indices = (*(view.maker[v] for v in taken), index)
        made = _in_place(view, metas, names, index, values, taken)
        members = tuple(member(view.ops[i]) for i in indices)
        log.applied.append(
            Applied(fusion.name, fusion.switch, made[-1].type, members, tuple(taken), (), None, rewritten=tuple(made))
        )
        blocks |= {i: [] for i in indices[:-1]} | {index: made}
    if not blocks:
        return program
    ops = [made for index, op in enumerate(view.ops) for made in blocks.get(index, [op])]
    return program.edit(ops=tuple(ops), names=names)


def _sums(view: View) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yields the ops that add values of one shape, alone or two at a time, and these values."""
    # A sum that the pass `addto` has turned into adds of pairs counts, too.
    folds = (*(op.definition for op in view.ops), op_def("sum"))
    pairs = {pairwise.op for one in folds if (pairwise := one.trait(Pairwise))}
    for index, op in enumerate(view.ops):
        values = tuple(op.reads())
        if len(values) < 2 or op.body or not (op.definition.has(Pairwise) or op.type in pairs):
            continue
        (out,) = op.writes()
        # One of another type or shape would be broadcast, or cast.
        if all(v in view.metas and view.metas[v] == view.metas.get(out) for v in values):
            yield index, values


def _is_lookup(view: View, value: str) -> bool:
    index = view.maker.get(value)
    return index is not None and view.ops[index].definition.has(RowGradient)


def _check(view: View, value: str, total: int) -> None:
    """Refuses the gradient of a lookup that is needed whole.

    Raises:
        MatchRejected: Says why.
    """
    if not view.forbidden.isdisjoint((view.maker[value], total)):
        raise MatchRejected("FORBIDDEN")
    if strict_numerics():
        raise MatchRejected("NUM_STRICT")
    if value in view.fetched:
        raise MatchRejected("FETCHED", value=value)
    if value in view.kept:
        raise MatchRejected("PERSISTABLE", value=value)
    readers = view.readers[value]
    if len(readers) > 1:
        reader = next((i for i in readers if i != total), total)
        raise MatchRejected("EXTRA_READER", value=value, reader=view.ops[reader].type)


def _in_place(
    view: View, metas: dict[str, Meta], names: dict[str, str], index: int, values: Sequence[str], taken: Sequence[str]
) -> list[FrozenOp]:
    """Returns the ops that add the rows of lookups to the sum of the other values."""
    op = view.ops[index]
    (out,) = op.writes()
    others = tuple(v for v in values if v not in taken)
    made: list[FrozenOp] = []
    total = others[0]
    if len(others) > 1:
        # First: rows are added to what lies whole in memory.
        total = _new(f"{out}@OTHERS", out, metas, names)
        made.append(replace(op, inputs=(others,), outputs=(total,), role_var=()))
    for number, value in enumerate(taken, 1):
        lookup = view.ops[view.maker[value]]
        adds = op_def(lookup.definition.needs(RowGradient).adds)
        result = out if number == len(taken) else _new(f"{out}@ROWS{number}", out, metas, names)
        inputs = (total, *(lookup.input(slot.name) for slot in adds.inputs[1:]))
        attrs = {name: lookup.attrs[name] for name in adds.attrs}
        # The parameter's gradient is complete with the last rows, and no sooner.
        pairs = op.role_var if result == out else ()
        made.append(
            replace(
                op, definition=adds, inputs=inputs, outputs=(result,), attrs=attrs, role_var=pairs, where=lookup.where,
                slot_names={},
            )
        )  # fmt: skip
        total = result
    return made


def _new(name: str, like: str, metas: dict[str, Meta], names: dict[str, str]) -> str:
    while name in metas:
        name += "_"
    metas[name] = metas[like]
    names[name] = name
    return name


_CHAIN = Chain(
    (
        Link("a gradient of a lookup", lambda op: op.definition.has(RowGradient)),
        Link("a sum of gradients", lambda op: op.type == "sum"),
    ),
    "a table that is looked up has a second gradient, of a product or another lookup",
)
FUSION = Fusion("embedding_grad_add", "fuse_embedding_grad_add", Rewriting(rewritten, _CHAIN))
