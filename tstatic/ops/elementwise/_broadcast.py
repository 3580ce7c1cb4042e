"""Ops of several inputs that broadcast: alignment by Paddle's ``axis``, ``infer``, and gradients summed back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from tstatic.errors import ShapeError, UnsupportedError
from tstatic.ir import expr, expr_numpy
from tstatic.ir.checks import FLOATS, NUMBERS, check_dtype, check_same_dtype
from tstatic.ir.evaluate import meta_of
from tstatic.ir.expr_torch import run_torch
from tstatic.ir.opdef import (
    DERIVE,
    GRAD,
    PARTIAL_SUM,
    WHOLE,
    GradContext,
    GradOp,
    GradRule,
    OpSpec,
    Slot,
    Tile,
    parse_slots,
)
from tstatic.ir.paddle_form import PaddleOp
from tstatic.ir.pointwise import derive_gradient
from tstatic.ir.ref import Attrs, Calls, ExpressionRef, Expressions, Slots
from tstatic.ir.split import POINTWISE, tiles
from tstatic.ir.types import UNKNOWN, DType, Meta, Shape, bool_, broadcast_shapes, dtype_of, float64
from tstatic.ops.base.call_ref import CallRef
from tstatic.ops.base.sum import sum_calls, sum_scratch

Align = Callable[..., list[Shape | None]]
"""``(shapes, attrs, like)``: maps the inputs' shapes to shapes of one rank that broadcast by numpy's rule."""


# ------------------------------------------------------------------------------------------------------------ alignment
def align(shapes: Sequence[Shape | None], attrs: Mapping[str, Any], like: Sequence[int] = (0, 1)) -> list[Shape | None]:
    """Adds sizes of 1 to shapes, so that all broadcast from the last dimension backwards.

    With ``axis`` -1 the last dimensions meet; otherwise the dimensions of the operand of lower rank begin at ``axis`` of the
    other one, and its trailing sizes of 1 that reach beyond are dropped.

    Args:
        shapes: Those of X, Y and further inputs.
        attrs: May hold ``axis``.
        like: Per input 0 or 1 where it is placed as X or Y is; any other input meets the result from its last dimension.

    Raises:
        ShapeError: If the operand does not fit there.
    """
    axis = attrs.get("axis", -1)
    x, y = shapes[0], shapes[1]
    # Of equal ranks all dimensions meet, so `axis` has nothing to choose.
    if axis != -1 and x is not None and y is not None and len(x) != len(y):
        lower, rank = (1, len(x)) if len(x) > len(y) else (0, len(y))
        shapes = [
            _place(s, rank, axis) if s is not None and i < len(like) and like[i] == lower else s
            for i, s in enumerate(shapes)
        ]
    return align_last(shapes, attrs)


def align_last(
    shapes: Sequence[Shape | None], attrs: Mapping[str, Any], like: Sequence[int] = ()
) -> list[Shape | None]:
    """Does what :func:`align` does, for ops without ``axis``: the last dimensions meet."""
    rank = max(len(s) for s in shapes if s is not None)
    return [None if s is None else (1,) * (rank - len(s)) + s for s in shapes]


def _place(small: Shape, rank: int, axis: int) -> Shape:
    trimmed = small
    # An unknown size that reaches beyond can only turn out to be 1.
    while trimmed and trimmed[-1] in (1, UNKNOWN) and axis + len(trimmed) > rank:
        trimmed = trimmed[:-1]
    if not 0 <= axis <= rank - len(trimmed):
        raise ShapeError(
            f"axis {axis} puts an operand of rank {len(small)} outside one of rank {rank}",
            expected=f"axis -1, or an axis in [0, {rank - len(trimmed)}]",
            received=f"axis {axis}",
            fix="use axis=-1 and give the operand trailing sizes of 1 where it has none",
        )
    return (1,) * axis + trimmed + (1,) * (rank - axis - len(trimmed))


def prepare(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Sequence[Any]:
    """Returns arrays or tensors as views whose shapes broadcast by numpy's rule."""
    if attrs.get("axis", -1) == -1:
        return inputs
    shapes = align([None if a is None else tuple(a.shape) for a in inputs], attrs)
    return [a if a is None else a.reshape(s) for a, s in zip(inputs, shapes, strict=True)]


# ---------------------------------------------------------------------------------------------------------------- infer
def same_dtype(x: Meta, y: Meta, names: tuple[str, str] = ("X", "Y")) -> None:
    """Refuses two operands of different dtypes.

    Raises:
        DTypeError: Names both.
    """
    check_same_dtype((x, y), names)


def binary(x: Meta, y: Meta, axis: int = -1) -> Meta:
    """Infers the output of an op on two numbers: the broadcast shape.

    Raises:
        ShapeError: If the shapes do not broadcast.
        DTypeError: If the dtypes differ, or are bool.
    """
    same_dtype(x, y)
    fix = "convert truth values first: paddle.cast(x, 'int64'), or use paddle.logical_and / logical_or"
    check_dtype(x, NUMBERS, "X", fix=fix)
    a, b = align([x.shape, y.shape], {"axis": axis})
    assert a is not None
    assert b is not None
    return x.with_shape(broadcast_shapes(a, b))


def binary_floats(x: Meta, y: Meta, axis: int = -1) -> Meta:
    """Does what :func:`binary` does, for ops that take floats only."""
    out = binary(x, y, axis)
    fix = "convert both first: paddle.cast(x, 'float32'); for whole quotients use paddle.floor_divide"
    check_dtype(out, FLOATS, "X", fix=fix)
    return out


def comparison(x: Meta, y: Meta, axis: int = -1) -> Meta:
    """Infers the output of a comparison: truth values of the broadcast shape; both operands are of one dtype."""
    same_dtype(x, y)
    a, b = align([x.shape, y.shape], {"axis": axis})
    assert a is not None
    assert b is not None
    return Meta(broadcast_shapes(a, b), bool_)


# ------------------------------------------------------------------------------------------------------------ gradients
@dataclass(frozen=True)
class _Target:
    """One wanted output: the axes that it is summed over, and where its summands stand."""

    index: int
    aligned: Shape
    axes: tuple[int, ...]
    source: int  # input position whose values are summed as they are, or -1
    room: int  # position in scratch of the summands, or -1
    sums: slice  # positions in scratch of what the sum needs


@dataclass(frozen=True)
class _Met:
    """How inputs of given shapes meet.

    Attributes:
        shapes: Those of the inputs, with sizes of 1 where they lack dimensions.
        full: That of all inputs together.
        outputs: Output position -> what it computes, the shape of the input that it is like, and the axes it is summed over.
    """

    shapes: tuple[Shape | None, ...]
    full: Shape
    outputs: Mapping[int, tuple[expr.Node, Shape, tuple[int, ...]]]


@dataclass(frozen=True)
class _Plan:
    shapes: tuple[Shape | None, ...]
    code: expr_numpy.Code
    registers: int
    targets: tuple[_Target, ...]
    scratch: tuple[Meta, ...]


class SummedRef(CallRef, ExpressionRef):
    """A reference whose outputs are expressions over broadcast inputs, each summed back to the shape of one input.

    Args:
        params: Names of the inputs inside the expressions.
        texts: Output position -> expression.
        like: Output position -> input position whose shape the output has.
        attrs: Attributes that the expressions or the alignment use.
        unread: Positions of inputs of which only the shape is used.
        aligned: How the inputs meet.
    """

    elementwise = False

    def __init__(
        self,
        params: Sequence[str],
        texts: Mapping[int, str],
        like: Mapping[int, int],
        attrs: Sequence[str],
        unread: Sequence[int] = (),
        aligned: Align = align_last,
    ) -> None:
        super().__init__(self._calls, self._planned_scratch, unread, attrs=attrs)
        self.params = tuple(params)
        self.nodes = {i: expr.parse(text) for i, text in texts.items()}
        self.like = dict(like)
        self.align = aligned
        # By shapes: a program whose sizes change from run to run asks again and again for the same few.
        self._met = lru_cache(maxsize=4096)(self._meet)
        self._planned = lru_cache(maxsize=4096)(self._plan)
        # By types alone: sizes that differ from run to run compile nothing.
        self._known_nodes = lru_cache(maxsize=1024)(self._nodes)
        self._compiled = lru_cache(maxsize=1024)(self._code)

    def _planned_scratch(self, ins: Sequence[Any], outs: Sequence[Any], **attrs: Any) -> Sequence[Meta]:
        return self._planned(tuple(ins), tuple(outs), _by_text(attrs)).scratch

    def _meet(self, given: tuple[Shape | None, ...], attrs: tuple[tuple[str, str, Any], ...]) -> _Met:
        shapes = self.align(given, {n: v for n, _, v in attrs})
        full = _full(shapes)
        nodes = self._known_nodes(tuple(s is None for s in given), attrs)
        outputs = {}
        for i, node in nodes.items():
            aligned = shapes[self.like[i]]
            if aligned is not None:
                # Summed over: axes along which this input was repeated.
                axes = tuple(a for a, (s, f) in enumerate(zip(aligned, full, strict=True)) if s != f)
                outputs[i] = node, aligned, axes
        return _Met(tuple(shapes), full, outputs)

    def _nodes(self, absent: tuple[bool, ...], attrs: tuple[tuple[str, str, Any], ...]) -> Mapping[int, expr.Node]:
        """Returns what the outputs are, by position, for inputs that are there and attributes."""
        known = {n: expr.const(v) for n, _, v in attrs if isinstance(v, bool | int | float)}
        lacking = [p for p, missing in zip(self.params, absent, strict=True) if missing]
        return {i: expr.substitute(expr.without(node, lacking), known) for i, node in self.nodes.items()}

    def _code(
        self,
        wanted: tuple[tuple[int, DType], ...],
        given: tuple[DType | None, ...],
        attrs: tuple[tuple[str, str, Any], ...],
    ) -> expr_numpy.Code:
        """Returns the code of some outputs, each with its type, for inputs of given types."""
        nodes = self._known_nodes(tuple(d is None for d in given), attrs)
        inputs = {p: (i, d.np) for i, (p, d) in enumerate(zip(self.params, given, strict=True)) if d is not None}
        return expr_numpy.compile_numpy({i: nodes[i] for i, _ in wanted}, inputs, {i: d.np for i, d in wanted}, {})

    def _plan(self, ins: tuple[Any, ...], outs: tuple[Any, ...], attrs: tuple[tuple[str, str, Any], ...]) -> _Plan:
        met = self._met(tuple(None if m is None else m.shape for m in ins), attrs)
        shapes, full = met.shapes, met.full
        inputs = {p: i for i, (p, m) in enumerate(zip(self.params, ins, strict=True)) if m is not None}
        wanted: list[tuple[int, DType]] = []
        pending: list[tuple[int, Shape, tuple[int, ...], int]] = []
        for i in reversed(self.nodes):
            # The first output is computed last: it may stand in the buffer of an input that the others read.
            if outs[i] is None:
                continue
            node, aligned, axes = met.outputs[i]
            # A gradient that is another value summed (that of an addition) needs no buffer for its summands.
            source = inputs[node.value] if node.op == "var" and axes else -1
            if source < 0 or shapes[source] != full:
                source = -1
                wanted.append((i, outs[i].dtype))
            pending.append((i, aligned, axes, source))
        code = self._compiled(tuple(wanted), tuple(None if m is None else m.dtype for m in ins), attrs)
        scratch = [Meta(full, dtype_of(d)) for d in code.registers]
        targets = []
        for i, aligned, axes, source in pending:
            room = -1
            summands = Meta(full, outs[i].dtype)
            if axes and source < 0:
                room = len(scratch)
                scratch.append(summands)
            first = len(scratch)
            scratch += sum_scratch(summands, axes) if axes else ()
            targets.append(_Target(i, aligned, axes, source, room, slice(first, len(scratch))))
        return _Plan(tuple(shapes), code, len(code.registers), tuple(targets), tuple(scratch))

    def _calls(self, ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], **attrs: Any) -> Calls:
        metas = [[None if a is None else meta_of(a) for a in side] for side in (ins, outs)]
        plan = self._planned(tuple(metas[0]), tuple(metas[1]), _by_text(attrs))
        views = [a if a is None or a.shape == s else a.reshape(s) for a, s in zip(ins, plan.shapes, strict=True)]
        places: list[Any] = [None] * len(outs)
        early: Calls = []
        late: Calls = []
        for t in plan.targets:
            if not t.axes:
                # Nothing to sum: the expression writes to the output itself.
                places[t.index] = outs[t.index].reshape(t.aligned)
                continue
            kept = outs[t.index].reshape(tuple(s for a, s in enumerate(t.aligned) if a not in t.axes))
            if t.source >= 0:
                # Early: the expressions may overwrite the buffer of the gradient that is summed.
                early += sum_calls(views[t.source], t.axes, kept, scratch[t.sums])
            else:
                places[t.index] = scratch[t.room]
                late += sum_calls(scratch[t.room], t.axes, kept, scratch[t.sums])
        return [*early, *plan.code.bind_operands(views, places, scratch[: plan.registers]), *late]

    def expressions(self, ins: Slots, attrs: Attrs) -> Expressions | None:
        if any(isinstance(m, list | tuple) for m in ins):
            return None
        shapes = self.align([None if m is None else m.shape for m in ins], dict(attrs))
        return Expressions(self.nodes, self.params, shapes, self.like)

    def lower(self, torch: Any, *tensors: Any, out: Any = None, **attrs: Any) -> Any:
        """Computes the same with torch; one tensor per output slot."""
        met = self._met(tuple(None if t is None else tuple(t.shape) for t in tensors), _by_text(attrs))
        full = met.full
        named = {
            p: t if t.shape == s else t.reshape(s)
            for p, t, s in zip(self.params, tensors, met.shapes, strict=True)
            if t is not None and s is not None
        }
        count = len(self.nodes)
        places = (out,) if count == 1 else out or (None,) * count
        results: list[Any] = [None] * count
        # As in the reference, the first output last: it may be the tensor of an input that the others read.
        for i in reversed(self.nodes):
            like, place = tensors[self.like[i]], places[i]
            if like is None or (out is not None and place is None):
                continue
            node, aligned, axes = met.outputs[i]
            if node.op == "var":
                value = named[node.value]  # nothing is computed: a sum of 16 bits adds up in 32
            else:
                value = run_torch(torch, node, named, {}, place.view(full) if place is not None and not axes else None)
            if not hasattr(value, "dtype"):
                # An expression without variables is a number of Python.
                value = torch.full((), value, dtype=like.dtype, device=like.device)
            value = value if value.shape == full else value.broadcast_to(full)
            if place is None:
                value = value.sum(axes) if axes else value
                results[i] = value.reshape(like.shape).to(like.dtype)
                continue
            results[i] = place
            if axes:
                kept = place.view(tuple(s for a, s in enumerate(aligned) if a not in axes))
                torch.sum(value, axes, dtype=place.dtype, out=kept)
            elif value.data_ptr() != place.data_ptr():
                place.copy_(value.reshape(place.shape))
        return results[0] if count == 1 else tuple(results)

    def split(self, *metas: Any, **attrs: Any) -> list[Tile] | None:
        """Cuts along the axis where the fewest sums have to be put together afterwards."""
        ins, outs = metas[: len(self.params)], metas[len(self.params) :]
        met = self._met(tuple(None if m is None else m.shape for m in ins), _by_text(attrs))
        shapes, full = met.shapes, met.full
        total = math.prod(full)
        # Less than a usual tile: a second thread would cost more than it saves.
        if total <= POINTWISE.size:
            return None
        rows = [*shapes, *(None if m is None else shapes[self.like[i]] for i, m in enumerate(outs))]
        written = [r for r, m in zip(rows[len(self.params) :], outs, strict=True) if r is not None and m is not None]
        axis = _best_axis(full, written)
        if axis < 0:
            return None
        broadcast = [*[WHOLE] * len(ins), *[PARTIAL_SUM] * len(outs)]
        entries = [
            None if m is None or r is None else b if r[axis] == 1 else _own_axis(m.shape, r, axis)
            for m, r, b in zip(metas, rows, broadcast, strict=True)
        ]
        return tiles(POINTWISE.parts(full[axis], total), *entries)


def _by_text(attrs: Mapping[str, Any]) -> tuple[tuple[str, str, Any], ...]:
    """Returns attributes as a key: 0.0 and -0.0, or 1 and True, are equal but not the same constant."""
    return tuple((name, repr(value), value) for name, value in attrs.items())


def _full(shapes: Sequence[Shape | None]) -> Shape:
    full: Shape = ()
    for shape in shapes:
        if shape is not None:
            full = broadcast_shapes(full, shape)
    return full


def _own_axis(shape: Shape, aligned: Shape, axis: int) -> int:
    """Returns the dimension of the unaligned shape that stands at an axis of the aligned one, where it is longer than 1."""
    # Sizes of 1 may have been added or dropped by `axis`; the order of the longer dimensions stays.
    longer = sum(1 for s in aligned[:axis] if s != 1)
    return [a for a, s in enumerate(shape) if s != 1][longer]


def _best_axis(full: Shape, written: Sequence[Shape]) -> int:
    """Returns the axis to cut along: few partial sums, runs of at least 256 elements, tiles near the usual size; -1 for none."""
    total = math.prod(full)
    best, lowest = -1, math.inf
    for axis, size in enumerate(full):
        if size < 2:
            continue
        rows = max(1, size * POINTWISE.size // total)
        tile = total // size * rows
        partial = sum(math.prod(w) for w in written if w[axis] == 1)
        run = math.prod(full[axis + 1 :]) * rows
        # In units of a tile's work: writing and adding partial sums,
        # short runs, tiles above twice the usual size, then outer axes.
        cost = 3 * partial / tile + (run < 256) + 0.3 * max(0.0, math.log2(tile / POINTWISE.size) - 1) + 0.01 * axis
        if rows < size and cost < lowest:
            best, lowest = axis, cost
    return best


def reduced_gradient(
    slots: str,
    texts: Mapping[str, str],
    *,
    attrs: Sequence[str] = ("axis",),
    shape_only: tuple[str, ...] = (),
    inplace: tuple[tuple[str, str], ...] = (),
    grad: GradRule | None = None,
    aligned: Align | None = None,
) -> GradOp:
    """Makes the backward op of an op whose inputs broadcast.

    Args:
        slots: As in an op definition. ``X@GRAD`` and its like must have their input among the inputs.
        texts: Output slot -> expression over the aligned inputs; the result is summed to the input's shape.
        attrs: Attributes that expressions or alignment use.
        shape_only: Inputs of which only the shape is used.
        inplace: Pairs of slots that may share a buffer; the output must be the first one.
        grad: Second order; ``DERIVE`` makes one more backward op by differentiating the expressions; a third order is refused.
        aligned: How the inputs meet; the default is :func:`align` if ``attrs`` has ``axis``, else :func:`align_last`.
    """
    inputs, outputs = parse_slots(slots)
    names = [s.name for s in inputs]
    if aligned is None:
        aligned = align if "axis" in attrs else align_last
    if grad is DERIVE:
        grad = _second_order(inputs, outputs, texts, attrs, shape_only, aligned)
    ref = SummedRef(
        [s.param for s in inputs],
        {i: texts[s.name] for i, s in enumerate(outputs)},
        {i: names.index(s.name.removesuffix(GRAD)) for i, s in enumerate(outputs)},
        attrs,
        tuple(names.index(n) for n in shape_only),
        partial(aligned, like=_places(names)),
    )
    return GradOp(
        slots,
        ref=ref,
        lower=ref.lower,
        split=ref.split,
        shape_only=shape_only,
        inplace=inplace,
        grad=grad,
    )


def _places(names: Sequence[str]) -> tuple[int, ...]:
    """Returns which inputs stand as X (0) or as Y (1): those themselves, and what arrives for their gradients."""
    return tuple(
        names[:2].index(bare) if (bare := n.removesuffix(GRAD).removesuffix(GRAD)) in names[:2] else -1 for n in names
    )


def _second_order(
    inputs: Sequence[Slot],
    outputs: Sequence[Slot],
    texts: Mapping[str, str],
    attrs: Sequence[str],
    shape_only: Sequence[str],
    aligned: Align,
) -> GradOp:
    """Makes the backward op of a backward op by differentiation; a gradient that does not arrive counts as zero."""
    read = [s for s in inputs if s.name not in shape_only]
    found = derive_gradient(
        [s.param for s in inputs], {s.param: texts[s.name] for s in outputs}, [s.param for s in read]
    )
    targets = [s for s in read if found[s.param] != "0"]
    slots = ",".join(s.name for s in inputs) + "," + ",".join(f"{s.name}{GRAD}?" for s in outputs)
    slots += "->" + ",".join(f"{s.name}{GRAD}" for s in targets)
    second = {f"{s.name}{GRAD}": found[s.param] for s in targets}
    return reduced_gradient(
        slots, second, attrs=attrs, shape_only=tuple(shape_only), aligned=aligned, grad=_no_third_order
    )


def _no_third_order(ctx: GradContext) -> list[OpSpec]:
    raise UnsupportedError(
        "this operator has gradients up to second order only",
        expected="at most two gradients taken through it",
        received="a third one",
        fix="write it with +, -, *, / and **, whose gradients exist to any order",
    )


def write_in_one_shape(op: PaddleOp) -> list[OpSpec]:
    """Writes ``where`` for Paddle, whose kernel takes three inputs of one shape: others get zeros of the common one added."""
    names = [op.inputs[slot][0] for slot in ("Condition", "X", "Y")]
    shapes = {tuple(op.shapes[name] or ()) for name in names}
    if len(shapes) == 1:
        return [op.made()]
    assert op.fresh is not None
    out = Meta(tuple(op.shapes[op.result] or ()), op.dtypes[op.result])
    made: list[OpSpec] = []

    def add(type: str, inputs: dict[str, list[str]], meta: Meta, **attrs: Any) -> list[str]:
        assert op.fresh is not None
        made.append(OpSpec(type, inputs, {"Out": [op.fresh(meta)]}, attrs))
        return list(made[-1].outputs["Out"])

    condition, x, y = names
    number = add(
        "cast", {"X": [condition]}, out.with_shape(op.shapes[condition] or ()), in_dtype=bool_, out_dtype=out.dtype
    )
    zeros = [
        add("fill_any_like", {"X": [name]}, out.with_shape(op.shapes[name] or ()), value=0.0, dtype=out.dtype)
        for name in (x, y)
    ]
    nothing = add("elementwise_add", {"X": zeros[0], "Y": zeros[1]}, out)
    wide = add("elementwise_add", {"X": nothing, "Y": number}, out)
    same = add("fill_any_like", {"X": wide}, out, value=0.0, dtype=out.dtype)
    inputs = {slot: add("elementwise_add", {"X": same, "Y": [name]}, out) for slot, name in (("X", x), ("Y", y))}
    inputs["Condition"] = add("cast", {"X": wide}, out.with_dtype(bool_), in_dtype=out.dtype, out_dtype=bool_)
    return [*made, op.made(inputs=inputs)]


def write_truth_values(op: PaddleOp) -> list[OpSpec]:
    """Writes a function of truth values for Paddle, which reads both operands in the dtype of the first."""
    kinds = {op.dtypes[op.inputs[slot][0]] for slot in "XY"}
    casts, inputs = op.converted("XY", bool_) if len(kinds) > 1 else ([], op.inputs)
    return [*casts, op.made(inputs=inputs)]


def write_nearness(op: PaddleOp) -> list[OpSpec]:
    """Writes a test of nearness for Paddle, which has the tolerances as texts, and compares floats of one shape."""
    slots = ("Input", "Other")
    whole = op.dtypes[op.inputs["Input"][0]].is_integer
    casts, inputs = op.converted(slots, float64) if whole else ([], op.inputs)
    wide = replace(op, inputs=inputs, dtypes={**op.dtypes, **{n: float64 for c in casts for n in c.outputs["Out"]}})
    wide = replace(wide, shapes={**op.shapes, **{c.outputs["Out"][0]: op.shapes[c.inputs["X"][0]] for c in casts}})
    grows, inputs = wide.grown(slots)
    attrs = {**op.attrs, "rtol": repr(op.attrs["rtol"]), "atol": repr(op.attrs["atol"])}
    return [*casts, *grows, op.made(inputs=inputs, attrs=attrs)]


def write_angle(op: PaddleOp) -> list[OpSpec]:
    """Writes ``atan2`` for Paddle, whose kernel takes operands of one shape."""
    grows, inputs = op.grown(("X1", "X2"))
    return [*grows, op.made(inputs=inputs)]


def read_product(op: PaddleOp) -> OpSpec:
    """Reads a product of Paddle, which multiplies truth values, too."""
    if op.dtypes.get(op.inputs["X"][0]) is bool_ and op.attrs.get("axis", -1) == -1:
        return op.made("logical_and", attrs=op.without("axis"))
    return op.made()
