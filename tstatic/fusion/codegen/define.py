"""What an op computes, element by element: expressions over its inputs, aligned so that all broadcast by numpy's rule."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tstatic.ir import expr
from tstatic.ir.channels import Channels, ChannelTerms
from tstatic.ir.drawn import NUMBERS
from tstatic.ir.expr import Node
from tstatic.ir.frozen import Entry, FrozenOp
from tstatic.ir.opdef import EMPTY, OpDef
from tstatic.ir.pointwise import ALONG, COLUMN
from tstatic.ir.types import Meta, Shape, broadcast_shapes, numel


@dataclass(frozen=True, slots=True)
class Draw:
    """Random numbers of an op.

    Attributes:
        shape: Of the elements that draw a number each, with ones added.
        position: The op's number in the program.
        seed: Its own seed; 0 for the program's.
        loaded: Names and numbers that the expressions read from memory.
    """

    shape: Shape
    position: int
    seed: int
    loaded: tuple[tuple[str, int | float], ...] = ()


@dataclass(frozen=True, slots=True)
class LoopBody:
    """An op as expressions: what a loop nest computes at each place.

    Attributes:
        nodes: Output position -> expression over the names of ``inputs``; attributes are numbers already.
        inputs: Name inside the expressions -> input position.
        aligned: Per input position its shape with ones added (``None``: absent, or read by no expression).
        full: The shape that all inputs broadcast to.
        targets: Output position -> its shape with ones added; where it is smaller than ``full`` the expression is summed.
        entries: Per input position its value; of a slot with several values each has a position of its own.
        inner: Where the dimensions of a row begin, for an op along rows.
        per_row: Output positions whose expression has one value per row, or per channel: these are not summed.
        channel: The dimension of the channels, for an op on channels.
        draw: The random numbers that the expressions read.
    """

    nodes: Mapping[int, Node]
    inputs: Mapping[str, int]
    aligned: tuple[Shape | None, ...]
    full: Shape
    targets: Mapping[int, Shape]
    entries: tuple[str | None, ...]
    inner: int | None = None
    per_row: frozenset[int] = frozenset()
    channel: int | None = None
    draw: Draw | None = None

    @property
    def along(self) -> tuple[int, ...]:
        """The dimensions of a row, or those of a channel's values."""
        assert self.inner is not None or self.channel is not None, "a function of a row in an op that has none"
        return tuple(i for i in range(self.inner or 0, len(self.full)) if i != self.channel)

    @property
    def uniform(self) -> bool:
        """Whether all that is read and written has the whole shape, so that nothing is broadcast, summed or drawn."""
        if self.inner is not None or self.draw is not None or self.per_row or 0 in self.full:
            return False
        return all(s is None or s == self.full for s in self.aligned) and all(
            s == self.full for s in self.targets.values()
        )


def is_pointwise(definition: OpDef) -> bool:
    """Returns whether an op may be inlined into kernels: it states expressions, draws nothing and has no effects."""
    return definition.expression is not None and not (
        definition.random or definition.effects or definition.state or definition.objects or definition.dynamic
    )


def draws(definition: OpDef) -> bool:
    """Returns whether an op draws numbers per element as kernels can: it may be inlined, too."""
    raises = (
        definition.effects and not definition.indices
    )  # what is read as positions or chances is checked before a kernel
    return definition.drawn is not None and not (raises or definition.state or definition.objects or definition.dynamic)


def is_elementwise(definition: OpDef) -> bool:
    """Returns whether an op may be inlined into kernels, with numbers that it draws or without."""
    return is_pointwise(definition) or draws(definition)


def works_on_rows(definition: OpDef) -> bool:
    """Returns whether an op states expressions along rows.

    Such an op may have effects: what states all its results as expressions does nothing besides but check its values (class
    numbers), and a kernel, which cannot raise, makes NaN of what the check would refuse.
    """
    return definition.rows is not None and not (
        definition.random or definition.state or definition.objects or definition.dynamic
    )


def worth_a_kernel(body: LoopBody) -> bool:
    """Returns whether an op along rows does more than reduce each row once, so that alone, too, it gains by a kernel.

    A plain reduction reads each element once, whoever makes it. What depends on a sum of its row (softmax, normalisations),
    on a sum of sums or on places in the row (class numbers) takes a library several passes or several arrays.
    """
    return body.inner is not None and any(
        position not in body.per_row or _levels(node) > 1 for position, node in body.nodes.items()
    )


def _levels(node: Node) -> int:
    """Returns how many sums and maxima of a row need each other."""
    most, stack = 0, [(node, 0)]
    while stack:
        current, level = stack.pop()
        # Each function of a row on the way from the result is one more pass over the row.
        level += current.op in ALONG
        most = max(most, level)
        stack.extend((argument, level) for argument in current.args)
    return most


def _define_rows(op: FrozenOp, metas: Mapping[str, Meta]) -> LoopBody | None:
    definition = op.definition
    assert definition.rows is not None
    ins = [metas[e] if isinstance(e, str) else None for e in op.inputs]
    rows = definition.rows(*ins, **definition.pick(definition.rows, op.attrs))
    if rows is None:
        return None
    values = {n: expr.const(v) for n, v in op.attrs.items() if isinstance(v, bool | int | float)}
    # Expressions are Python text, which has no literal for NaN; the length of a row is not an attribute.
    values |= {"n": expr.const(rows.length), "nan": expr.const(math.nan)}
    nodes: dict[int, Node] = {}
    targets: dict[int, Shape] = {}
    per_row = set()
    for i, (slot, entry) in enumerate(zip(definition.outputs, op.outputs, strict=True)):
        if not isinstance(entry, str):
            continue
        # An output without a formula: the op runs by its reference.
        if slot.name not in rows.texts:
            return None
        nodes[i] = expr.substitute(expr.parse(rows.texts[slot.name]), values)
        if slot.name in rows.columns:
            targets[i] = rows.per_column
        # Numbers of elements tell the two apart, except for rows of one element: there a value counts as one per row.
        elif metas[entry].numel == numel(rows.shape) and rows.length > 1:
            targets[i] = rows.shape
        else:
            targets[i] = rows.per_row
            per_row.add(i)
    read = set().union(*(expr.variables(n) for n in nodes.values())) if nodes else set()
    along = any(expr.calls(n, ALONG) for n in nodes.values()) or COLUMN in read or (bool(per_row) and rows.length > 1)
    aligned: list[Shape | None] = []
    for slot, meta in zip(definition.inputs, ins, strict=True):
        # A value of which only the shape is asked for says where the op lies in the iteration space of a group, too.
        if meta is None or not (slot.param in read or slot.name in definition.shape_only):
            aligned.append(None)
        elif slot.name in rows.columns:
            aligned.append(rows.per_column)
        else:
            aligned.append(rows.shape if meta.numel == numel(rows.shape) and rows.length > 1 else rows.per_row)
    inputs = {s.param: i for i, s in enumerate(definition.inputs) if s.param in read}
    # Without a function of a row the op is one per element, and fits any group.
    inner = rows.axis if along else None
    kept = frozenset(per_row if along else ())
    return LoopBody(nodes, inputs, tuple(aligned), rows.shape, targets, _only(op), inner, kept)


def _define_drawn(op: FrozenOp, metas: Mapping[str, Meta]) -> LoopBody | None:
    definition = op.definition
    assert definition.drawn is not None
    ins = [metas[e] if isinstance(e, str) else None for e in op.inputs]
    found = definition.drawn(*ins, **definition.pick(definition.drawn, op.attrs))
    if found is None:
        return None
    values = {n: expr.const(v) for n, v in found.values.items()}
    wanted = {i: e for i, e in enumerate(op.outputs) if isinstance(e, str)}
    texts = {i: found.texts.get(definition.outputs[i].name) for i in wanted}
    nodes = {i: expr.substitute(expr.parse(text), values) for i, text in texts.items() if text is not None}
    read = set[str]().union(*map(expr.variables, nodes.values()))
    inputs = {s.param: i for i, s in enumerate(definition.inputs) if s.param in read}
    shapes = {i: m.shape for i, m in enumerate(ins) if m is not None and i in inputs.values()}
    full = found.shape
    for shape in shapes.values():
        full = broadcast_shapes(full, shape)
    # An output without an expression would stay unwritten, and a smaller one would be summed.
    if len(nodes) < len(wanted) or any(metas[e].shape != full for e in wanted.values()):
        return None

    def aligned(shape: Shape) -> Shape:
        return (1,) * (len(full) - len(shape)) + tuple(shape)

    seed = op.attrs.get("seed", 0)
    loaded = tuple(found.loaded.items())
    draw = Draw(aligned(found.shape), op.position, seed, loaded) if not read.isdisjoint(NUMBERS) else None
    places = tuple(aligned(shapes[i]) if i in shapes else None for i in range(len(ins)))
    return LoopBody(nodes, inputs, places, full, dict.fromkeys(wanted, full), _only(op), draw=draw)


def _only(op: FrozenOp) -> tuple[str | None, ...]:
    """Returns the entries of an op without lists."""
    return tuple(e if isinstance(e, str) else None for e in op.inputs)


def channels_of(
    op: FrozenOp, metas: Mapping[str, Meta], wanted: Collection[str]
) -> tuple[Channels, ChannelTerms] | None:
    """Returns an op on channels for known shapes, and the terms that some of its output slots need; ``None`` if it is not one.

    Args:
        op: Any.
        metas: Metadata of its values.
        wanted: Output slots.
    """
    definition = op.definition
    ins = [metas[e] if isinstance(e, str) else None for e in op.inputs]
    stated = definition.channels
    found = None if stated is None else stated(*ins, **definition.pick(stated, op.attrs))
    if found is None:
        return None
    return found, found.bind_attributes(op.attrs, wanted)


def define_channels(op: FrozenOp, metas: Mapping[str, Meta]) -> LoopBody | None:
    """Returns the expressions of an op on channels for known shapes; ``None`` if it is not one.

    Such an op is several loop nests, so that no group takes it: it has kernels of its own.
    """
    definition = op.definition
    found = channels_of(
        op, metas, [s.name for s, e in zip(definition.outputs, op.outputs, strict=True) if e is not None]
    )
    if found is None:
        return None
    channels, terms = found
    nodes = terms.inlined()
    places = {i: s.name for i, s in enumerate(definition.outputs) if s.name in nodes}
    read = set[str]().union(*map(expr.variables, nodes.values()))
    shapes = {True: channels.shape, False: channels.per_channel}
    aligned = [
        None
        if s.param not in read
        else (1,) * len(channels.shape)
        if s.name in channels.numbers
        else shapes[s.param in terms.data]
        for s in definition.inputs
    ]
    # Inlined: only the reference in numpy uses this form; kernels give each term a line of its own.
    whole = {i: terms.outputs[name] in terms.data for i, name in places.items()}
    return LoopBody(
        {i: nodes[name] for i, name in places.items()},
        {s.param: i for i, s in enumerate(definition.inputs) if s.param in read},
        tuple(aligned),
        channels.shape,
        {i: shapes[full] for i, full in whole.items()},
        _only(op),
        per_row=frozenset(i for i, full in whole.items() if not full),
        channel=channels.axis,
    )


def define(op: FrozenOp, metas: Mapping[str, Meta]) -> LoopBody | None:
    """Returns an op's expressions for known shapes; ``None`` if it has none."""
    definition = op.definition
    if works_on_rows(definition):
        return _define_rows(op, metas)
    if draws(definition):
        return _define_drawn(op, metas)
    if not is_pointwise(definition):
        return None
    if any(isinstance(e, tuple) for e in op.outputs):
        return None
    assert definition.expression is not None
    found = definition.expression.expressions([_metas(e, metas) for e in op.inputs], op.attrs)
    if found is None:
        return None
    params, shapes, like = found.params, found.shapes, found.like
    values = {n: expr.const(v) for n, v in op.attrs.items() if isinstance(v, bool | int | float)}
    wanted = {i: node for i, node in found.nodes.items() if op.outputs[i] is not None}
    # An output without an expression would stay unwritten.
    if set(wanted) != {i for i, e in enumerate(op.outputs) if e is not None}:
        return None
    entries = tuple(v for e in op.inputs for v in (e if isinstance(e, tuple) else (e,)))
    # A gradient that does not arrive counts as zero, so that its term disappears.
    absent = [p for p, e in zip(params, entries, strict=True) if e is None]
    nodes = {i: expr.substitute(expr.without(node, absent), values) for i, node in wanted.items()}
    read = set().union(*(expr.variables(n) for n in nodes.values())) if nodes else set()
    full: Shape = ()
    for s in shapes:
        if s is not None:
            full = broadcast_shapes(full, s)
    used = tuple(s if p in read else None for p, s in zip(params, shapes, strict=True))
    rank = len(full)
    targets = {}
    for i in nodes:
        # The gradient of a broadcast operand has the operand's shape: there the expression is summed.
        own = shapes[like[i]] if i in like else None
        target = full if own is None else own
        targets[i] = (1,) * (rank - len(target)) + tuple(target)
    aligned = tuple(None if s is None else (1,) * (rank - len(s)) + tuple(s) for s in used)
    return LoopBody(nodes, {p: i for i, p in enumerate(params) if p in read}, aligned, full, targets, entries)


class LoopBodies:
    """What the ops of one program compute, each worked out once however many groups are tried with it.

    Args:
        metas: Metadata of all values; every size of an op that is asked for is known.
    """

    def __init__(self, metas: Mapping[str, Meta]) -> None:
        self.metas = metas
        # The op is kept beside its formula: an id is reused once its object is gone.
        self._known: dict[int, tuple[FrozenOp, LoopBody | None]] = {}
        self._uniform: dict[int, tuple[FrozenOp, tuple[Shape, frozenset[str]] | None]] = {}

    def of(self, op: FrozenOp) -> LoopBody | None:
        """Returns an op's formula, as :func:`define` does."""
        found = self._known.get(id(op))
        if found is None:
            found = self._known[id(op)] = op, define(op, self.metas)
        return found[1]

    def uniform(self, op: FrozenOp) -> tuple[Shape, frozenset[str]] | None:
        """Returns the shape and the values read of an op that fits any group of such ops of its shape; ``None`` for others."""
        known = self._uniform.get(id(op))
        if known is None:
            known = self._uniform[id(op)] = op, self._of_uniform(op)
        return known[1]

    def _of_uniform(self, op: FrozenOp) -> tuple[Shape, frozenset[str]] | None:
        formula = self.of(op)
        if formula is None or op.definition.indices or not formula.uniform:
            return None
        if any(self.metas[v].dtype.is_complex for v in (*op.reads(), *op.writes())):
            return None
        read = (formula.entries[position] for position in formula.inputs.values())
        return formula.full, frozenset(v for v in read if v is not None)


def _metas(entry: Entry, metas: Mapping[str, Meta]) -> Any:
    """Returns metadata of a slot's value, or of each value of a list."""
    if entry is None or isinstance(entry, str):
        return None if entry is None else metas[entry]
    return [None if v == EMPTY else metas[v] for v in entry]
