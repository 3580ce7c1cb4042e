"""Finds what stands around a linear layer's loss and works row by row: all ops that read the logits, or what is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tstatic.fusion.codegen.define import draws, is_elementwise, is_pointwise, works_on_rows
from tstatic.fusion.codegen.loops.loop_nest import CodegenUnsupported
from tstatic.fusion.codegen.matrix.products import multiplies, products_of
from tstatic.fusion.engine.pattern import one
from tstatic.fusion.engine.reasons import MatchRejected
from tstatic.fusion.engine.view import View
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.opdef import GRAD, OpDef, op_def
from tstatic.ir.traits import Softmax
from tstatic.ir.types import UNKNOWN, Shape, numel

MOST_OPS = 8
"""The most ops between a product and the loss.

A choice, to bound the search; as many as between the products of an attention."""

MATRIX, WIDE, ROW, WHOLE, SUM, EMPTY = "matrix", "wide", "row", "whole", "sum", "empty"
"""What a value is: the layer's input or its gradient, one row each; a row of classes each; a number per row; the same for all
rows; a sum over the rows; the shape of rows of classes, without elements."""


@dataclass
class RowGroup:
    """A linear layer, the loss behind it, and their gradients.

    Attributes:
        product: The layer's matrix product, by its index.
        loss: The first loss.
        rows, depth, classes: Sizes of the product.
        members: All ops, by index.
        kinds: Value -> one of ``MATRIX``, ``WIDE``, ``ROW``, ``WHOLE``, ``SUM``, ``EMPTY``.
        waiting: The members that wait until the losses of all rows are known.
    """

    product: int
    loss: int
    rows: int
    depth: int
    classes: int
    members: set[int] = field(default_factory=set)
    kinds: dict[str, str] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)

    def note(self, op: FrozenOp, value: str, kind: str) -> None:
        """Records what a value is.

        Raises:
            MatchRejected: If it is something else for another op.
        """
        if self.kinds.setdefault(value, kind) != kind:
            raise MatchRejected(
                "SHAPE_MISMATCH", f"'{value}' in {op.type} is both {kind} and {self.kinds[value]}", "give each its own"
            )

    def shape(self, kind: str, rows: int) -> Shape:
        """Returns the shape of so many rows of a value that has rows."""
        return rows, *{MATRIX: (self.depth,), WIDE: (self.classes,), ROW: (1,), EMPTY: (self.classes, 0)}[kind]

    def made(self, view: View) -> Mapping[str, int]:
        """Returns the results of the members, each with its maker."""
        return {v: i for i in sorted(self.members) for v in view.ops[i].writes()}


# ---------------------------------------------------------------------------------------------------------------- search
def loss_of(view: View, product: int) -> int | None:
    """Returns the first loss that is made of a product's result row by row; ``None`` where there is none."""
    found: list[int] = []
    seen: set[int] = set()
    slots = {s.name: e for s, e in zip(view.ops[product].definition.outputs, view.ops[product].outputs, strict=True)}
    pending: list[tuple[str | None, int]] = [(one(slots.get("Out")), 0)]
    while pending:
        value, depth = pending.pop()
        for index in view.readers.get(value or "", ()):
            op = view.ops[index]
            if is_loss(op.definition) and op.inputs[0] == value:
                found.append(index)
            elif depth < MOST_OPS and index not in seen and not op.definition.of and not op.body:
                seen.add(index)
                definition = op.definition
                if is_elementwise(definition) or definition.has(Softmax) or reshaped(view, op) is not None:
                    pending += [(v, depth + 1) for v in op.writes()]
    return min(found, default=None)


def group_of(view: View, product: int, loss: int) -> RowGroup:
    """Returns the group of a linear layer and its loss.

    Raises:
        MatchRejected: If the logits are needed whole, or an op that reads them does not work row by row.
    """
    op = view.ops[product]
    between = (product, loss)
    if any(UNKNOWN in view.metas[v].shape for i in between for v in (*view.ops[i].reads(), *view.ops[i].writes())):
        raise MatchRejected("DYNAMIC")
    try:
        (found,) = products_of(op, view.metas)
    except CodegenUnsupported as unfit:
        raise MatchRejected(unfit.code, unfit.reason, reader=op.type) from None
    # A chunk is a slice: its rows have to lie side by side in memory.
    if view.metas[found.b].rank != 2 or found.trans_a:
        raise MatchRejected("NOT_A_MATRIX", f"{op.type} does not multiply rows with one matrix")
    group = RowGroup(product, loss, found.rows, found.depth, found.columns)
    if group.rows < 2 or group.classes < 2:
        raise MatchRejected("FEW_ROWS", f"the logits are {group.rows} rows of {group.classes} classes")
    group.members.add(product)
    for value, kind in ((found.a, MATRIX), (found.b, WHOLE), (found.out, WIDE)):
        group.note(op, value, kind)
    # What reads rows of classes joins, and then what reads the ones that it makes.
    pending = [found.out]
    while pending:
        for index in view.readers.get(pending.pop(), ()):
            if index not in group.members:
                group.members.add(index)
                _place(view, group, index)
                pending += [v for v in view.ops[index].writes() if group.kinds.get(v) in (WIDE, EMPTY)]
    _check(view, group)
    _find_waiting(view, group)
    return group


def _check(view: View, group: RowGroup) -> None:
    """Checks that nobody else needs the logits or what has their size."""
    if group.members & view.forbidden:
        raise MatchRejected("FORBIDDEN")
    for value in group.made(view):
        if group.kinds.get(value) in (WIDE, EMPTY):
            if value in view.fetched:
                raise MatchRejected("FETCHED", value=value)
            if value in view.kept:
                raise MatchRejected("PERSISTABLE", value=value)


# -------------------------------------------------------------------------------------------------- what the ops work on
def _place(view: View, group: RowGroup, index: int) -> None:
    """Records what an op that reads the logits' rows reads and writes.

    Raises:
        MatchRejected: If it does not work row by row.
    """
    op = view.ops[index]
    wide = next(v for v in op.reads() if group.kinds.get(v) in (WIDE, EMPTY))
    if op.body or op.sub_blocks:
        raise MatchRejected("EXTRA_READER", value=wide, reader=op.type)
    if any(UNKNOWN in view.metas[v].shape for v in (*op.reads(), *op.writes()) if v in view.metas):
        raise MatchRejected("DYNAMIC")
    if multiplies(op):
        _place_gradient(view, group, op, wide)
    elif (source := reshaped(view, op)) is not None:
        _place_reshape(view, group, op, source)
    elif is_loss(op_def(op.definition.of) if op.definition.of else op.definition):
        if op.attrs.get("soft_label"):
            raise MatchRejected("ATTRIBUTE", "the labels are distributions over the classes", "use class numbers")
        _place_loss(view, group, op, view.metas[wide].rank)
    elif draws(op.definition) and not is_pointwise(op.definition):
        raise MatchRejected("RANDOM", reader=op.type)
    elif is_pointwise(op.definition) or works_on_rows(op.definition):
        _place_formula(view, group, op, wide)
    else:
        raise MatchRejected("EXTRA_READER", value=wide, reader=op.type)


def _place_gradient(view: View, group: RowGroup, op: FrozenOp, wide: str) -> None:
    """Records the gradient of the product itself."""
    product = view.ops[group.product]
    same = op.definition.of == product.type and op.attrs == product.attrs
    # The gradient of another product may read the logits as its operand.
    # Both ops have X and Y in their first two slots.
    if not same or op.inputs[:2] != product.inputs or wide in op.inputs[:2]:
        raise MatchRejected("EXTRA_READER", value=wide, reader=op.type)
    for slot, kind in ((f"X{GRAD}", MATRIX), (f"Y{GRAD}", SUM)):
        value = one(op.output(slot))
        if value is not None:
            group.note(op, value, kind)


def _place_reshape(view: View, group: RowGroup, op: FrozenOp, source: str) -> None:
    out = one(op.outputs[0])
    kept = group.kinds.get(source) == WIDE and out is not None and _by_size(view, group, out) == WIDE
    # Other results, such as XShape, would be those of the whole value.
    if not kept or any(view.readers.get(v) for v in op.writes() if v != out):
        raise MatchRejected("EXTRA_READER", value=source, reader=op.type)
    group.note(op, str(out), WIDE)


def is_loss(definition: OpDef) -> bool:
    """Returns whether an op is a cross entropy: a loss that knows what its probabilities are the softmax of."""
    return any(slot.name == "SoftmaxX" for slot in definition.inputs)


def reshaped(view: View, op: FrozenOp) -> str | None:
    """Returns what an op gives another shape, keeping the order of the elements; ``None`` for other ops."""
    definition = op.definition
    if definition.of:
        # The gradient of such an op has the elements of what arrives; where that op is none of these, nothing is cut.
        arriving = any(slot.name == f"Out{GRAD}" for slot in definition.inputs)
        back = arriving and len(op.outputs) == 1 and op_def(definition.of).view is not None
        return one(op.input(f"Out{GRAD}")) if back else None
    source = one(op.inputs[0]) if op.inputs else None
    if definition.view is None or source is None or any(op.inputs[1:]) or UNKNOWN in view.metas[source].shape:
        return None
    # The op's own view of a sample tells, and touches none of its memory.
    sample = np.empty(view.metas[source].shape, np.bool_)
    shown = definition.view(sample, **definition.pick(definition.view, op.attrs))
    whole = shown is not None and shown.size == sample.size and shown.flags.c_contiguous
    return source if whole and np.may_share_memory(shown, sample) else None


def _by_size(view: View, group: RowGroup, value: str) -> str | None:
    """Returns what a value is by its size alone."""
    meta = view.metas[value]
    if meta.numel == group.rows * group.classes and meta.shape[-1:] == (group.classes,):
        return WIDE
    if meta.shape[-2:] == (group.classes, 0):
        return EMPTY
    return ROW if meta.numel == group.rows else None


def _place_loss(view: View, group: RowGroup, op: FrozenOp, rank: int) -> None:
    # Softmax along any other axis mixes rows, which are in several chunks.
    if op.attrs.get("axis", -1) not in (-1, rank - 1):
        raise MatchRejected("ROWS")
    for value in (*op.reads(), *op.writes()):
        kind = _by_size(view, group, value)
        if kind is not None:
            group.note(op, value, kind)
        elif view.readers.get(value) or value in view.program.roots():
            raise MatchRejected("SHAPE_MISMATCH", f"'{value}' of {op.type} has neither rows of classes nor one per row")


def _place_formula(view: View, group: RowGroup, op: FrozenOp, wide: str) -> None:
    """Records an op per element, or along the classes."""
    formula = view.formulas.of(op)
    if formula is None:
        raise MatchRejected("EXTRA_READER", value=wide, reader=op.type)
    full = formula.full
    if numel(full) != group.rows * group.classes or full[-1:] != (group.classes,):
        raise MatchRejected("SHAPE_MISMATCH", f"{op.type} works on {list(full)}")
    if formula.inner is not None and (formula.inner != len(full) - 1 or "axis" not in op.attrs):
        raise MatchRejected("ROWS" if "axis" in op.attrs else "EXTRA_READER", value=wide, reader=op.type)
    for value, aligned in zip(formula.entries, formula.aligned, strict=True):
        if value is None:
            continue
        # Of what no expression reads only the shape matters.
        kind = _kind(full, aligned) if aligned is not None else _by_size(view, group, value) or WHOLE
        if kind is None or (kind == WHOLE and view.metas[value].rank > 2):
            raise MatchRejected(
                "SHAPE_MISMATCH", f"'{value}' of {op.type} has the shape {list(view.metas[value].shape)}",
                "give it one number per row, one per class in a value of rank 1 or 2, or one for all",
            )  # fmt: skip
        # Of what only the shape is read another op has said more.
        if aligned is not None or value not in group.kinds:
            group.note(op, value, kind)
    for position, entry in enumerate(op.outputs):
        if isinstance(entry, str):
            kind = _kind(full, formula.targets[position]) if position in formula.targets else None
            if kind is None:
                raise MatchRejected("SUM_SHAPE", f"'{entry}' of {op.type} is neither a value per row nor a sum of all")
            group.note(op, entry, SUM if kind == WHOLE else kind)


def _kind(full: Shape, aligned: Shape) -> str | None:
    """Returns what a value is whose axes are those of the full shape, or ones."""
    if aligned == full:
        return WIDE
    if aligned == (*full[:-1], 1):
        return ROW
    return WHOLE if all(n == 1 for n in aligned[:-1]) else None


# ------------------------------------------------------------------------------------------------------ who waits for whom
def needed(view: View, op: FrozenOp) -> Iterator[str]:
    """Yields the values whose elements an op reads: not those that none of its expressions names."""
    unread: set[str | None] = set()
    values = (*op.reads(), *op.writes())
    if is_pointwise(op.definition) and all(v in view.metas and UNKNOWN not in view.metas[v].shape for v in values):
        formula = view.formulas.of(op)
        if formula is not None:
            pairs = [*zip(formula.entries, formula.aligned, strict=True)]
            unread = {v for v, aligned in pairs if aligned is None} - {v for v, a in pairs if a is not None}
    yield from (v for v in op.contents() if v not in unread)


def _stays_in_order(op: FrozenOp) -> bool:
    """Returns whether an op may not change places with others: it prints, calls Python, or meets other replicas."""
    definition = op.definition
    return bool((definition.effects and not definition.indices) or op.sub_blocks or definition.collective)


def _find_waiting(view: View, group: RowGroup) -> None:
    """Finds the members that read what is made of the members' results.

    Raises:
        MatchRejected: If these would have to wait for each other once more.
    """
    # A member's level is the number of times that all rows must be done before it; an op outside is one above its makers.
    level: dict[str, int] = {}
    made: set[str] = set()
    first_waiting: int | None = None
    for index in range(group.product, len(view.ops)):
        op = view.ops[index]
        if index in group.members:
            own = max((level.get(v, 0) for v in needed(view, op)), default=0)
            # Rows are gone through twice at most: before and after what needs all of them.
            if own > 1:
                raise MatchRejected("CYCLE", reader=op.type)
            if own and first_waiting is None:
                first_waiting = index
            if own:
                group.waiting.add(index)
            level.update(dict.fromkeys(op.writes(), own))
            made.update(op.writes())
            continue
        own = max((level.get(v, 0) + (v in made) for v in needed(view, op)), default=0)
        if _stays_in_order(op) and index > group.loss:
            own = max(own, 1 if first_waiting is None else 2)
        if own:
            level.update(dict.fromkeys(op.writes(), own))
