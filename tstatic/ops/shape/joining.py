"""Joining values along an axis, old or new, splitting one into several, and taking one apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    ANY_RANK,
    check_divisible,
    check_int,
    check_not_empty,
    check_rank,
    check_same_dtype,
    check_size,
    check_type,
)
from tstatic.ir.opdef import LOD, Attr, Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ir.recording import Call
from tstatic.ir.split import along
from tstatic.ir.types import UNKNOWN, Meta, Shape, normalize_axis
from tstatic.ops.base.call_ref import copies
from tstatic.ops.base.gradients import gathered, scattered, zeros
from tstatic.ops.base.shapes import ANY, Array, as_list, copy, emit_list, emit_one
from tstatic.ops.control.tensor_array import is_array, join_array
from tstatic.ops.shape import _shape_onnx as _onnx
from tstatic.ops.shape.when_run import axes_to_split, by_axis, join_by_axis, split_when_run


def variables(items: Any, arg: str, function: str) -> list[Variable]:
    """Returns a list of Variables from a list, or from a single Variable.

    Raises:
        ProgramTypeError: If it is neither, or an entry is not a Variable.
    """
    if isinstance(items, Variable):
        return [items]  # as Paddle: one value is a list of one
    check_type(items, (list, tuple), arg, function, expected="a list of Variables", fix=f"pass {arg}=[x, y]")
    return [check_variable(v, f"{arg}[{i}]", function) for i, v in enumerate(items)]


def common_shape(shapes: Sequence[Shape], free: int | None) -> Shape:
    """Returns the shape that values agree on: unknown sizes take known ones, and axis ``free`` may differ.

    Raises:
        ShapeError: If ranks or sizes differ.
    """
    first = list(shapes[0])
    for i, shape in enumerate(shapes[1:], 1):
        for axis, (a, b) in enumerate(zip(first, shape, strict=False)):
            if axis == free or b == UNKNOWN:
                continue
            if a == UNKNOWN:
                first[axis] = b  # what one value knows holds for all
            elif a != b:
                raise _differ(shapes, i, free)
        if len(shape) != len(first):
            raise _differ(shapes, i, free)
    if free is not None:
        first[free] = UNKNOWN  # the caller adds the sizes up
    return tuple(first)


def _differ(shapes: Sequence[Shape], i: int, free: int | None) -> ShapeError:
    return ShapeError(
        f"value {i} does not fit the others",
        expected="the same shape" if free is None else f"the same sizes except along axis {free}",
        received=" and ".join(str(list(s)) for s in (shapes[0], shapes[i])),
        fix="reshape or slice the values so that they agree",
    )


def section_sizes(size: int, num: int, sections: Sequence[int], axis: int) -> list[int]:
    """Returns the sizes of the parts into which ``split`` cuts an axis.

    Args:
        size: The axis's size, or -1.
        num: Number of equal parts; 0 when ``sections`` say the sizes.
        sections: Sizes, one of which may be -1.
        axis: For messages.

    Raises:
        ShapeError: If they do not add up.
    """
    if num > 0:
        each = check_divisible(
            size, num, f"the size of axis {axis}", "num_or_sections", fix="pass a list of sizes instead of a number"
        )
        return [each] * num
    rest = [s for s in sections if s != UNKNOWN]  # at most one -1: it takes what is left
    total = sum(rest)
    wild = len(sections) - len(rest)
    good = len(sections) > 0 and wild <= 1 and all(s >= 0 for s in rest)
    if good and size >= 0:
        good = total == size if wild == 0 else total <= size  # fits exactly, or leaves a rest for -1
    if not good:
        raise ShapeError(
            f"these sizes do not make up axis {axis}",
            expected="sizes of at least 0, at most one -1" + (f", that add up to {size}" if size >= 0 else ""),
            received=list(sections),
            fix=f"change num_or_sections so that it adds up to {size}, or write -1 for one part"
            if size >= 0
            else "write -1 for one part at most",
        )
    left = size - total if size >= 0 else UNKNOWN
    return [left if s == UNKNOWN else s for s in sections]


def without(meta: Meta, axis: int) -> Meta:
    """Returns the metadata with one axis removed."""
    return meta.with_shape(meta.shape[:axis] + meta.shape[axis + 1 :])


# -------------------------------------------------------------------------------------------------------------- concat
def _infer_concat(xs: Sequence[Meta], *, axis: int) -> Meta:
    check_not_empty(xs, "X")
    check_same_dtype(xs, "X")
    check_rank(xs[0], range(1, ANY_RANK), "X", fix="use paddle.stack")
    at = normalize_axis(axis, xs[0].rank)
    shape = list(common_shape([x.shape for x in xs], at))
    sizes = [x.shape[at] for x in xs]  # one unknown size makes the sum unknown
    shape[at] = UNKNOWN if UNKNOWN in sizes else sum(sizes)
    return xs[0].with_shape(shape)


def _runs(sizes: Sequence[int], whole: Array, axis: int) -> list[Array]:
    """Returns views of the parts, of given sizes, that follow one another along an axis."""
    at = normalize_axis(axis, whole.ndim)
    ends = list(itertools.accumulate(sizes))
    return [whole[along(at, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def _concat_calls(xs: Sequence[Array], out: Array, *, axis: int) -> list[Call]:
    return [copy(place, x) for x, place in zip(xs, _runs([x.shape[axis] for x in xs], out, axis), strict=True)]


def _concat_grad(ctx: GradContext) -> list[OpSpec]:
    found = scattered(ctx, "X", "Out")
    if found is None:
        return []
    arriving, outs = found
    metas = [ctx.meta(n) for n in ctx.inputs["X"]]
    axis = normalize_axis(ctx.attrs["axis"], metas[0].rank)
    sizes = [m.shape[axis] for m in metas]
    if sizes.count(UNKNOWN) <= 1:
        attrs = {"axis": axis, "num": 0, "sections": tuple(sizes)}
        return [OpSpec("split", {"X": [arriving]}, {"Out": outs}, attrs)]
    # Several unknown sizes: only the values themselves know where one ends.
    inputs = {"X": ctx.inputs["X"], "Out@GRAD": [arriving]}
    return [OpSpec("concat_grad", inputs, {"X@GRAD": outs}, {"axis": axis})]


_CONCAT_CASES = (  # ranks, negative axes, empty values, one value alone
    Case(([(2, 3), (4, 3)],), {"axis": 0}),
    Case(([(2, 3), (2, 1), (2, 2)],), {"axis": -1}),
    Case(([(3,)],), {"axis": 0}),
    Case(([(2, 0, 3), (2, 2, 3)],), {"axis": 1}),
    Case(([(0, 2), (0, 2)],), {"axis": 0}),
    Case(([(2, 1, 2), (2, 1, 2), (2, 1, 2)],), {"axis": -3}),
)

register(OpDef(
    "concat", "X* -> Out", lod="X", attrs={"axis": 0}, infer=_infer_concat, ref=copies(_concat_calls),
    lower=lambda torch, xs, *, axis, out=None: torch.cat(list(xs), axis, out=out), grad=_concat_grad, amp="gray",
    domain=Domain(cases=_CONCAT_CASES, others=ANY, ulps=0),
    complex="linear", onnx=lambda g, xs, *, axis: g("Concat", *xs, axis=axis),
))  # fmt: skip


def _back_calls(xs: Sequence[Array], dout: Array, dxs: Sequence[Array | None], *, axis: int) -> list[Call]:
    parts = _runs([x.shape[axis] for x in xs], dout, axis)
    return [copy(dx, part) for dx, part in zip(dxs, parts, strict=True) if dx is not None]


def _back_grad(ctx: GradContext) -> list[OpSpec]:
    wanted = ctx.in_grads.get(ctx.inputs["Out@GRAD"][0])
    names = ctx.outputs["X@GRAD"]
    if wanted is None or not any(n in ctx.out_grads for n in names):
        return []
    specs: list[OpSpec] = []
    # concat needs every part: what no gradient arrives for is zeros of the shape of its value.
    parts = [ctx.out_grads.get(n) or zeros(ctx, x, specs) for x, n in zip(ctx.inputs["X"], names, strict=True)]
    return [*specs, OpSpec("concat", {"X": parts}, {"Out": [wanted]}, ctx.attrs)]


def _split_lower(torch: Any, xs: Sequence[Any], dout: Any, *, axis: int, out: Any = None) -> Any:
    return _cut(torch, dout, [x.shape[axis] for x in xs], axis, out)


def _cut(torch: Any, x: Any, sizes: Sequence[int], axis: int, out: Any) -> Any:
    """Cuts a tensor; what nobody reads has no place in ``out``. A GPU's own call takes nothing empty and nothing transposed."""
    if out is None:
        return ([p.contiguous() for p in torch.split(x, sizes, axis)],)
    if all(place is not None for place in out) and x.is_contiguous() and x.numel() and 0 not in sizes:
        torch.split_with_sizes_copy(x, sizes, axis, out=out)
        return (out,)
    for part, place in zip(torch.split(x, sizes, axis), out, strict=True):
        if place is not None:
            place.copy_(part)
    return (out,)


register(OpDef(
    "concat_grad", "X*, Out@GRAD -> X@GRAD*", attrs={"axis": 0}, infer=lambda xs, dout, *, axis: (list(xs),),
    ref=copies(_back_calls), lower=_split_lower, grad=_back_grad, shape_only=("X",),
    domain=Domain(
        cases=(
            Case(([(2, 3), (4, 3)], (6, 3)), {"axis": 0}), Case(([(2, 3), (2, 1), (2, 2)], (2, 6)), {"axis": -1}),
            Case(([(3,)], (3,)), {"axis": 0}), Case(([(2, 0, 3), (2, 2, 3)], (2, 2, 3)), {"axis": 1}),
            Case(([(0, 2), (0, 2)], (0, 2)), {"axis": 0}), Case(([(1, 2), (3, 2)], (4, 2)), {"axis": -2}),
        ),
        ulps=0,
    ),
    complex="linear", onnx="it is part of a backward pass",
))  # fmt: skip


@export("tensor.concat", op="concat")
def concat(x: Sequence[Variable] | Variable, axis: Any = 0, name: str | None = None) -> Variable:
    """Joins values along an existing axis.

    Args:
        x: Variables of one dtype, with equal sizes except along ``axis``, or a tensor array of such.
        axis: The axis, a number or an integer Variable (sizes are then checked in the run); negative counts from the end.
        name: Name of the layer.

    Raises:
        ShapeError: If other sizes differ, or the list is empty.

    Example:
        >>> x, y = paddle.to_tensor([[1.0, 2.0]]), paddle.to_tensor([[3.0, 4.0]])
        >>> rows, columns = paddle.concat([x, y]), paddle.concat([x, y], axis=1)
        >>> static.Executor().run(fetch_list=[rows, columns])
        [array([[1., 2.],
               [3., 4.]], dtype=float32), array([[1., 2., 3., 4.]], dtype=float32)]
    """
    if is_array(x):
        return join_array(x, axis, False, name)[0]
    items = variables(x, "x", "concat")

    def joined(at: int, items: Sequence[Variable]) -> Variable:
        out = emit_one("concat", {"X": items}, {"axis": at}, name=name)
        levels = {len(item.lod) for item in items}  # a LoD is kept only if all have one of equal depth
        in_rows = normalize_axis(at, len(items[0].shape)) == 0  # elsewhere rows stay what they are
        if not in_rows or len(levels) != 1 or not items[0].lod:
            return out
        block = out.block
        lods = zip(*([block.var(name) for name in item.lod] for item in items), strict=True)
        return emit_one("lod_reset", {"X": out, f"Y{LOD}": [_appended(level) for level in lods]})

    return join_by_axis(axis, items, joined)


def _appended(offsets: Sequence[Variable]) -> Variable:
    """Returns the offsets of sequences that stand one behind the other: those of each input begin where the ones before end."""
    parts = [offsets[0]]
    for one in offsets[1:]:
        end, behind = ({"axes": (0,), "starts": (at,), "ends": (2**31 - 1,)} for at in (-1, 1))
        last, rest = emit_one("slice", {"Input": parts[-1]}, end), emit_one("slice", {"Input": one}, behind)
        parts.append(emit_one("elementwise_add", {"X": rest, "Y": last}))
    return emit_one("concat", {"X": parts}, {"axis": 0})


@export("fluid.layers.concat", op="concat")
def fluid_concat(input: Sequence[Variable] | Variable, axis: Any = 0, name: str | None = None) -> Variable:
    """Calls :func:`concat` under its older signature.

    Args:
        input: A list of Variables: the ``x`` of :func:`concat`.
        axis, name: As there.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0]])
        >>> y = fluid.layers.concat([x, x * 10], axis=1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 1.,  2., 10., 20.]], dtype=float32)
    """
    if is_array(input):
        return join_array(input, axis, False, name)[0]
    return concat(variables(input, "input", "concat"), axis, name)


# --------------------------------------------------------------------------------------------------------------- split
def _infer_split(x: Meta, *, num: int, sections: Sequence[int], axis: int) -> tuple[list[Meta]]:
    check_rank(x, range(1, ANY_RANK), "X")
    at = normalize_axis(axis, x.rank)
    sizes = section_sizes(x.shape[at], num, sections, at)
    return ([x.with_shape((*x.shape[:at], s, *x.shape[at + 1 :])) for s in sizes],)


def _split_calls(x: Array, outs: Sequence[Array | None], *, num: int, sections: Sequence[int], axis: int) -> list[Call]:
    parts = _runs(section_sizes(x.shape[axis], num, sections, axis), x, axis)
    return [copy(out, part) for out, part in zip(outs, parts, strict=True) if out is not None]


def _lower_split(torch: Any, x: Any, *, num: int, sections: Sequence[int], axis: int, out: Any = None) -> Any:
    return _cut(torch, x, section_sizes(x.shape[axis], num, sections, axis), axis, out)


def _joined_by(type: str, result: str, slot: str) -> Callable[[GradContext], list[OpSpec]]:
    """Returns the gradient rule of an op with a list of results ``slot``: op ``type`` joins their gradients."""

    def rule(ctx: GradContext) -> list[OpSpec]:
        found = gathered(ctx, "X", slot)
        if found is None:
            return []
        wanted, parts, specs = found
        return [*specs, OpSpec(type, {"X": parts}, {result: [wanted]}, {"axis": ctx.attrs["axis"]})]

    return rule


def _split_write(op: PaddleOp) -> list[OpSpec]:
    """Paddle's kernel counts an axis from the first one."""
    rank = len(op.shapes[op.outputs["Out"][0]] or ())
    return [op.made(attrs=op.without("axis", axis=op.attrs["axis"] % max(rank, 1)))]


register(OpDef(
    "split", "X -> Out*", lod="X", attrs={"num": 0, "sections": Attr((), "ints"), "axis": 0}, infer=_infer_split,
    paddle=PaddleForm(write=_split_write), ref=copies(_split_calls), lower=_lower_split,
    grad=_joined_by("concat", "Out", "Out"), amp="gray",
    domain=Domain(
        cases=(
            Case(((6, 2),), {"num": 3, "axis": 0}), Case(((2, 6),), {"num": 0, "sections": (1, 2, 3), "axis": 1}),
            Case(((2, 6),), {"num": 0, "sections": (1, -1), "axis": -1}), Case(((2, 0, 3),), {"num": 3, "axis": 2}),
            Case(((0, 4),), {"num": 2, "axis": 0}), Case(((4,),), {"num": 1, "axis": 0}),
            Case(((3, 4),), {"num": 0, "sections": (0, 3), "axis": 0}),
        ),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=_onnx.split,
))  # fmt: skip


@export("tensor.split", "Variable.split", op="split")
def split(x: Variable, num_or_sections: Any, axis: Any = 0, name: str | None = None) -> list[Variable]:
    """Splits a value along an axis.

    Args:
        x: ``[...]``, any dtype.
        num_or_sections: The number of equal parts, or their sizes, one of which may be -1; sizes may be Variables.
        axis: Which axis, a number or an integer Variable.
        name: Name of the layer.

    Returns:
        A list of Variables.

    Raises:
        ShapeError: If the parts do not make up the axis.

    Example:
        >>> x = paddle.to_tensor([1, 2, 3, 4, 5, 6])
        >>> a, b, c = paddle.split(x, 3)
        >>> d, e = paddle.split(x, [2, -1])
        >>> static.Executor().run(fetch_list=[a, b, c, d, e])
        [array([1, 2]), array([3, 4]), array([5, 6]), array([1, 2]), array([3, 4, 5, 6])]
    """
    x = check_variable(x, "x", "split")
    if isinstance(axis, Variable):
        fitting = axes_to_split(x.shape, num_or_sections)

        def along(at: int) -> list[Variable]:
            # A branch that does not run is planned too, with sizes that may not fit: its parts are cut when it runs.
            known = num_or_sections == 1 or x.shape[at] != UNKNOWN
            return split(x, num_or_sections, at, name) if known else split_when_run(x, num_or_sections, at, name)

        return by_axis(axis, len(x.shape), along, "split", fitting)
    if isinstance(num_or_sections, list | tuple) and any(isinstance(s, Variable) for s in num_or_sections):
        return split_when_run(x, num_or_sections, normalize_axis(axis, len(x.shape)), name)
    if isinstance(num_or_sections, list | tuple):
        attrs: dict[str, Any] = {"num": 0, "sections": as_list(num_or_sections), "axis": axis}
    else:
        attrs = {"num": num_or_sections, "axis": axis}
        if isinstance(num_or_sections, int):
            check_int(num_or_sections, "num_or_sections", "split", 1)
    return emit_list("split", {"X": x}, attrs, name=name)


@export("fluid.layers.split", op="split")
def fluid_split(
    input: Variable, num_or_sections: int | Sequence[int], dim: int = -1, name: str | None = None
) -> list[Variable]:
    """Calls :func:`split` under its older signature, along the last axis by default.

    Args:
        input: The ``x`` of :func:`split`.
        num_or_sections: As there.
        dim: The ``axis``.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
        >>> a, b = fluid.layers.split(x, 2, dim=1)
        >>> static.Executor().run(fetch_list=[a, b])
        [array([[1, 2],
               [5, 6]]), array([[3, 4],
               [7, 8]])]
    """
    return split(input, num_or_sections, dim, name)


@export("tensor.chunk", "Variable.chunk", op="split")
def chunk(x: Variable, chunks: int, axis: int = 0, name: str | None = None) -> list[Variable]:
    """Splits a value into ``chunks`` equal parts along an axis.

    Args:
        x: ``[...]``, any dtype.
        chunks: How many; they divide the axis.
        axis: Which axis.
        name: Name of the layer.
    """
    return split(x, chunks, axis, name)


@export("tensor.vsplit", "Variable.vsplit", op="split")
def vsplit(x: Variable, num_or_sections: int | Sequence[int], name: str | None = None) -> list[Variable]:
    """Splits along the first axis of a value of at least two dimensions.

    Args:
        x: ``[...]`` of at least two dimensions, any dtype.
        num_or_sections: The number of equal parts, or their sizes, one of which may be -1.
        name: Name of the layer.
    """
    return split(x, num_or_sections, 0, name)


# ---------------------------------------------------------------------------------------------------- stack and unstack
def _place(whole: Array, axis: int, k: int) -> Array:
    """Returns entry ``k`` along an axis, as a view (0-d too)."""
    return whole[along(axis, slice(k, k + 1))].squeeze(axis)  # an integer index would copy a 0-d entry


# --------------------------------------------------------------------------------------------------------------- stack
def _infer_stack(xs: Sequence[Meta], *, axis: int) -> Meta:
    check_not_empty(xs, "X")
    check_same_dtype(xs, "X")
    shape = list(common_shape([x.shape for x in xs], None))
    shape.insert(normalize_axis(axis, xs[0].rank + 1), len(xs))
    return xs[0].with_shape(shape)


def _stack_calls(xs: Sequence[Array], y: Array, *, axis: int) -> list[Call]:
    at = normalize_axis(axis, y.ndim)
    return [copy(_place(y, at, k), x) for k, x in enumerate(xs)]


def _stack_grad(ctx: GradContext) -> list[OpSpec]:
    found = scattered(ctx, "X", "Y")
    if found is None:
        return []
    arriving, outs = found
    return [OpSpec("unstack", {"X": [arriving]}, {"Y": outs}, {"axis": ctx.attrs["axis"], "num": len(outs)})]


register(OpDef(
    "stack", "X* -> Y", lod="X", attrs={"axis": 0}, infer=_infer_stack, ref=copies(_stack_calls),
    lower=lambda torch, xs, *, axis, out=None: torch.stack(list(xs), axis, out=out), grad=_stack_grad, amp="gray",
    domain=Domain(
        cases=(
            Case(([(2, 3), (2, 3)],), {"axis": 0}), Case(([(2, 3), (2, 3), (2, 3)],), {"axis": -1}),
            Case(([(), ()],), {"axis": 0}), Case(([(0, 2), (0, 2)],), {"axis": 1}), Case(([(4,)],), {"axis": 1}),
            Case(([(1, 2, 2), (1, 2, 2)],), {"axis": -3}),
        ),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=_onnx.stack,
))  # fmt: skip


@export("tensor.stack", "fluid.layers.stack", op="stack")
def stack(x: Sequence[Variable] | Variable, axis: int = 0, name: str | None = None) -> Variable:
    """Joins values of one shape along a new axis.

    Args:
        x: Variables of one shape and dtype, or a tensor array of such.
        axis: Where the new axis is in the result; negative counts from its end.
        name: Name of the layer.

    Raises:
        ShapeError: If the shapes differ, or the list is empty.

    Example:
        >>> x, y = paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([3.0, 4.0])
        >>> z = paddle.stack([x, y], axis=1)
        >>> static.Executor().run(fetch_list=[z])[0]
        array([[1., 3.],
               [2., 4.]], dtype=float32)
    """
    if is_array(x):
        return join_array(x, axis, True, name)[0]
    return emit_one("stack", {"X": variables(x, "x", "stack")}, {"axis": axis}, name=name)


@export("Variable.stack", op="stack")
def variable_stack(x: Variable, axis: int = 0, name: str | None = None) -> Variable:
    """Stacks this value alone: inserts an axis of size 1.

    Args:
        x: ``[...]``, any dtype.
        axis: Where the new axis is in the result; negative counts from its end.
        name: Name of the layer.

    Raises:
        ShapeError: If the axis is out of range.
    """
    return stack([x], axis, name)


# ------------------------------------------------------------------------------------------------------------- unstack
def _pieces(x: Meta, *, axis: int, num: int) -> tuple[list[Meta]]:
    check_rank(x, range(1, ANY_RANK), "X")
    at = normalize_axis(axis, x.rank)
    size = x.shape[at]
    if num:
        check_size(x, at, num, "X", why="num", fix=f"leave num out, or pass num={size}")
    count = num or size  # Paddle's 0: as many as the axis has
    if count == UNKNOWN:
        raise ShapeError(
            f"the size of axis {at} must be known, or the number of results is not",
            expected="a known size",
            received=list(x.shape),
            fix="give the axis a size in static.data, or pass num",
        )
    return ([without(x, at)] * count,)


def _apart_calls(x: Array, outs: Sequence[Array | None], *, axis: int) -> list[Call]:
    at = normalize_axis(axis, x.ndim)
    return [copy(out, _place(x, at, k)) for k, out in enumerate(outs) if out is not None]


def _lower_apart(torch: Any, x: Any, *, axis: int) -> Any:
    return ([p.contiguous() for p in torch.unbind(x, axis)],)


_CASES = (  # also parts without elements, one part alone, axes from the end
    Case(((3, 2),), {"axis": 0, "num": 3}),
    Case(((2, 3),), {"axis": -1, "num": 3}),
    Case(((4,),), {"axis": 0, "num": 4}),
    Case(((2, 0, 3),), {"axis": 2, "num": 3}),
    Case(((1, 2, 2),), {"axis": 0, "num": 1}),
    Case(((2, 3, 1),), {"axis": -2, "num": 3}),
)


# Sizes may be unknown while a program is built, so ops with a list of results say how many there are.
_DOMAIN = Domain(cases=_CASES, others=ANY, ulps=0)


for _type, _slot in (("unstack", "Y"), ("unbind", "Out")):
    register(OpDef(
        _type, f"X -> {_slot}*", attrs={"axis": 0, "num": 0}, infer=_pieces, ref=copies(_apart_calls), lower=_lower_apart,
        grad=_joined_by("stack", "Y", _slot), amp="gray", domain=_DOMAIN,
        complex="linear", onnx=_onnx.apart,
    ))  # fmt: skip


@export("tensor.unstack", "Variable.unstack", "fluid.layers.unstack", op="unstack")
def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """Returns the entries along an axis, which is removed, as a list of Variables.

    Args:
        x: ``[...]``, any dtype.
        axis: Which axis.
        num: Its size; needed when that is unknown.

    Raises:
        ShapeError: If the size is unknown and ``num`` is not given, or they differ.
    """
    x = check_variable(x, "x", "unstack")
    count = _count(x, axis, "unstack") if num is None else num
    return emit_list("unstack", {"X": x}, {"axis": axis, "num": count}) if count else []


@export("tensor.unbind", "Variable.unbind", "fluid.layers.unbind", op="unbind")
def unbind(input: Variable, axis: int = 0) -> list[Variable]:
    """Returns the entries along an axis of known size, which is removed, as a list of Variables.

    Args:
        input: ``[...]``, any dtype.
        axis: Which axis.

    Raises:
        ShapeError: If the size is unknown.
    """
    count = _count(x := check_variable(input, "input", "unbind"), axis, "unbind")
    return emit_list("unbind", {"X": x}, {"axis": axis, "num": count}) if count else []


def _count(x: Variable, axis: int, function: str) -> int:
    try:
        return len(_pieces(x.meta, axis=axis, num=0)[0])
    except ShapeError as error:
        raise error.add_context(op=function, var=x.name) from None
