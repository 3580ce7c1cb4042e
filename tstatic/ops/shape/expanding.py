"""Repeating values: broadcasting to a shape, tiling, and repeating each entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.errors import IndexRangeError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import ANY_RANK, INTEGERS, check_dtype, check_int, check_length, check_rank, check_sizes
from tstatic.ir.opdef import (
    NO_ATTRS,
    Attr,
    Case,
    Domain,
    GradContext,
    GradOp,
    OpDef,
    OpSpec,
    ValueRange,
    export,
    register,
)
from tstatic.ir.paddle_form import ABSENT, from_the_front
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import UNKNOWN, Meta, Shape, broadcast_shapes, normalize_axis
from tstatic.ops.base.call_ref import CallRef, copies
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.indexing import add_rows
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import (
    ANY,
    Array,
    clear,
    copy,
    emit_list,
    emit_one,
    sizes_given,
    sizes_of,
    spread_axes,
    tensor_rank,
)
from tstatic.ops.base.sum import sum_calls, sum_scratch
from tstatic.ops.shape import _shape_onnx as _onnx
from tstatic.ops.shape.joining import variables
from tstatic.ops.shape.reshape import flatten


# ----------------------------------------------------------------------------------------------------------- expand_v2
def _target(old: Shape, shape: Sequence[int]) -> Shape:
    """Returns the shape to expand to; -1 keeps a size.

    Raises:
        ShapeError: If it does not fit the input.
    """
    check_sizes(shape)
    lead = len(shape) - len(old)
    check_length(
        shape,
        range(len(old), ANY_RANK),
        "shape",
        why="one for each dimension",
        fix="give one size for each dimension; -1 keeps a size",
    )
    new = []
    for size, have in zip(shape, (None,) * lead + tuple(old), strict=True):
        wrong = size == UNKNOWN if have is None else size not in (UNKNOWN, have) and have not in (1, UNKNOWN)
        if wrong:
            raise ShapeError(
                "a value can only be expanded along new dimensions and those of size 1",
                expected=f"a shape that ends in {list(old)}, where a 1 may become any size",
                received=list(shape),
                fix="write -1 where a size stays as it is; to repeat elements along an axis use paddle.tile",
            )
        new.append(have if size == UNKNOWN and have is not None else size)  # in a new axis, -1 stays unknown
    return tuple(new)


def _infer(x: Meta, given: Meta | None, each: list[Meta] | None, *, shape: Sequence[int]) -> Meta:
    rank = tensor_rank(given, each, "shape")
    if rank is None:
        return x.with_shape(_target(x.shape, shape))
    known = shape if len(shape) == rank else (UNKNOWN,) * rank
    # Where some sizes are Variables, -1 may be one of them, but a size above 1 cannot change.
    had = (1,) * (rank - x.rank) + x.shape[max(x.rank - rank, 0) :]
    return x.with_shape(h if s < 0 and h > 1 else max(s, UNKNOWN) for s, h in zip(known, had, strict=True))


def _calls(x: Array, given: Any, each: Any, out: Array) -> Calls:
    return [copy(out, x)]


def _fresh(x: Array, given: Any, each: Any, out: None, *, shape: Sequence[int]) -> list[Any]:
    return [np.array(np.broadcast_to(x, _target(x.shape, sizes_of(shape, given, each))))]


def _lower(torch: Any, x: Any, given: Any, each: Any, *, shape: Sequence[int]) -> Any:
    return x.expand(sizes_of(shape, given, each)).contiguous()


def _summing(
    fold: Callable[[Shape, Shape], tuple[Shape, tuple[int, ...]]],
) -> CallRef:
    """Returns the reference ``X, Out@GRAD -> X@GRAD`` of the gradient of an op that repeats values: it adds up the repetitions.

    Args:
        fold: ``(shape of X, shape of Out) -> (the shape in which to read Out@GRAD, its axes to add up)``.
    """

    def calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
        dout, dx = ins[1], outs[0]
        if dout.size == 0:
            return [clear(dx)]
        shape, axes = fold(dx.shape, dout.shape)
        # To split an axis never needs a copy, whatever the strides are.
        return sum_calls(dout.reshape(shape, copy=False), axes, dx, scratch)

    def scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta]) -> tuple[Meta, ...]:
        dout, dx = ins[1], outs[0]
        if dout.numel == 0:
            return ()
        shape, axes = fold(dx.shape, dout.shape)
        return sum_scratch(dout.with_shape(shape), axes)

    return CallRef(calls, scratch_metas, unread=(0,))


_GRAD = GradOp(
    "X, Out@GRAD -> X@GRAD",
    ref=_summing(lambda old, new: (new, spread_axes(new, old))),
    lower=lambda torch, x, dout: dout.sum_to_size(tuple(x.shape)),
    shape_only=("X",),
    # The new shape may be known at run time only, so the gradient's gradient follows the incoming gradient's.
    grad=grad_is_forward_op("expand_as_v2", keep={"Y": "Out@GRAD"}, attrs=NO_ATTRS),
)

_NONE = (None, None)
register(OpDef(
    "expand_v2", "X, Shape?, expand_shapes_tensor*? -> Out", attrs={"shape": Attr((), "ints")}, infer=_infer,
    ref=copies(_calls, _fresh), lower=_lower, grad=_GRAD, amp="gray", uses_blas=True,
    domain=Domain(
        cases=(
            Case(((3, 1), *_NONE), {"shape": (3, 4)}), Case(((3, 1), *_NONE), {"shape": (2, -1, 4)}),
            Case(((4,), *_NONE), {"shape": (2, 3, 4)}), Case(((), *_NONE), {"shape": (2, 3)}),
            Case(((1, 3), *_NONE), {"shape": (0, 3)}), Case(((2, 0), *_NONE), {"shape": (2, -1)}),
            Case(((1, 5, 1), *_NONE), {"shape": (2, 5, 3)}),
        ), others=ANY,
    ), complex="linear", onnx=_onnx.expand,
))  # fmt: skip


@export("tensor.expand", "Variable.expand", op="expand_v2")
def expand(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """Repeats a value along new leading dimensions and those of size 1.

    Args:
        x: ``[...]``, any dtype.
        shape: The new sizes; -1 keeps one. A list of ints and Variables, or one Variable.
        name: Name of the layer.

    Raises:
        ShapeError: If a size other than 1 would change.
    """
    check_variable(x, "x", "expand")
    if isinstance(shape, list | tuple) and any(isinstance(s, Variable) for s in shape):
        # A -1 that keeps a size of 1 is written as 1, since -1 also marks the sizes that are Variables.
        lead = len(shape) - len(x.shape)
        shape = [
            1 if i >= lead and not isinstance(s, Variable) and s == UNKNOWN and x.shape[i - lead] == 1 else s
            for i, s in enumerate(shape)
        ]
    attr, given, each = sizes_given(shape)
    inputs = {"X": check_variable(x, "x", "expand"), "Shape": given, "expand_shapes_tensor": each}
    return emit_one("expand_v2", inputs, {"shape": attr}, name=name, prefix="expand")


@export("tensor.broadcast_to", "Variable.broadcast_to", op="expand_v2")
def broadcast_to(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """Calls :func:`expand` under another name.

    Args:
        x, shape, name: As in :func:`expand`.
    """
    return expand(x, shape, name)


# -------------------------------------------------------------------------------------------------------- expand_as_v2
def _infer_as(x: Meta, y: Meta | None, *, target_shape: Sequence[int]) -> Meta:
    shape = y.shape if y is not None else tuple(target_shape)
    lead = len(shape) - x.rank  # new axes are in front
    # An unknown size of the target does not mean that the input's size stays.
    new = _target(x.shape, [s if s != UNKNOWN else 1 if i < lead else -1 for i, s in enumerate(shape)])
    return x.with_shape(
        UNKNOWN if s == UNKNOWN and (i < lead or x.shape[i - lead] in (1, UNKNOWN)) else n
        for i, (s, n) in enumerate(zip(shape, new, strict=True))
    )


def _as_calls(x: Array, y: Any, out: Array) -> Calls:
    return [copy(out, x)]


def _as_lower(torch: Any, x: Any, y: Any, *, target_shape: Sequence[int]) -> Any:
    return x.expand(tuple(y.shape) if y is not None else list(target_shape)).contiguous()


register(OpDef(
    "expand_as_v2", "X, Y? -> Out", attrs={"target_shape": Attr((), "ints")}, infer=_infer_as, ref=copies(_as_calls),
    lower=_as_lower, grad=_GRAD, shape_only=("Y",), amp="gray", uses_blas=True,
    domain=Domain(
        cases=(
            Case(((3, 1), (3, 4))), Case(((4,), (2, 3, 4))), Case(((), (3,))), Case(((1, 3), (0, 3))),
            Case(((2, 1), None), {"target_shape": (3, 2, 2)}), Case(((1,), (1,))),
        ), others=ANY,
    ), complex="linear", onnx=_onnx.expand_as,
))  # fmt: skip


@export("tensor.expand_as", "Variable.expand_as", op="expand_as_v2")
def expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Expands ``x`` to the shape of ``y``.

    Args:
        x: ``[...]``, any dtype.
        y: Any dtype; only its shape is read.
        name: Name of the layer.

    Raises:
        ShapeError: If a size other than 1 would change.
    """
    y = check_variable(y, "y", "expand_as")
    inputs = {"X": check_variable(x, "x", "expand_as"), "Y": y}
    return emit_one("expand_as_v2", inputs, {"target_shape": y.shape}, name=name, prefix="expand_as")


# --------------------------------------------------------------------------------------------------- broadcast_tensors
def _infer_all(xs: Sequence[Meta]) -> tuple[list[Meta]]:
    shape: Shape = ()
    for x in xs:
        shape = broadcast_shapes(shape, x.shape)
    return ([x.with_shape(shape) for x in xs],)


def _all_calls(xs: Sequence[Array], outs: Sequence[Array | None]) -> Calls:
    return [copy(out, x) for x, out in zip(xs, outs, strict=True) if out is not None]


def _all_grad(ctx: GradContext) -> list[OpSpec]:
    return [
        OpSpec("expand_v2_grad", {"X": [x], "Out@GRAD": [ctx.out_grads[out]]}, {"X@GRAD": [ctx.in_grads[x]]})
        for x, out in zip(ctx.inputs["X"], ctx.outputs["Out"], strict=True)
        if x in ctx.in_grads and out in ctx.out_grads
    ]


register(OpDef(
    "broadcast_tensors", "X* -> Out*", infer=_infer_all, ref=copies(_all_calls),
    lower=lambda torch, xs: ([t.contiguous() for t in torch.broadcast_tensors(*xs)],), grad=_all_grad,
    domain=Domain(
        cases=(
            Case(([(3, 1), (1, 4)],)), Case(([(4,), (2, 3, 4), ()],)), Case(([(2, 3)],)), Case(([(0, 1), (1, 3)],)),
            Case(([(), ()],)), Case(([(2, 1, 2), (3, 1)],)),
        ), others=ANY,
    ), complex="linear", onnx=_onnx.broadcast,
))  # fmt: skip


@export("tensor.broadcast_tensors", op="broadcast_tensors")
def broadcast_tensors(input: Sequence[Variable], name: str | None = None) -> list[Variable]:
    """Expands all values to the shape that they broadcast to.

    Raises:
        ShapeError: If they do not broadcast.
    """
    return emit_list("broadcast_tensors", {"X": variables(input, "input", "broadcast_tensors")}, name=name)


@export("tensor.broadcast_shape")
def broadcast_shape(x_shape: Sequence[int], y_shape: Sequence[int]) -> list[int]:
    """Returns the shape that two shapes broadcast to, -1 where it is unknown; builds nothing.

    Args:
        x_shape, y_shape: Sizes, -1 for unknown ones.

    Raises:
        ShapeError: If they do not broadcast.
    """
    try:
        return list(broadcast_shapes(tuple(x_shape), tuple(y_shape)))
    except ShapeError as error:
        raise error.add_context(op="broadcast_shape") from None


# ----------------------------------------------------------------------------------------------------------------- tile
def _aligned(old: Shape, times: Sequence[int]) -> tuple[Shape, Shape]:
    """Pads a shape and repetitions with leading ones to equal length."""
    rank = max(len(old), len(times))
    return (1,) * (rank - len(old)) + tuple(old), (1,) * (rank - len(times)) + tuple(times)


def _tiled(old: Shape, times: Sequence[int]) -> Shape:
    for n in times:
        check_int(n, "repeat_times", least=0)
    new = tuple(0 if n == 0 else UNKNOWN if s == UNKNOWN else s * n for s, n in zip(*_aligned(old, times), strict=True))
    check_sizes(new)
    return new


def _pairs(old: Shape, new: Shape) -> Shape:
    """Returns the result's shape with each axis as (repetitions, size)."""
    sizes = (1,) * (len(new) - len(old)) + tuple(old)
    return tuple(v for s, n in zip(sizes, new, strict=True) for v in (n // s if s else 1, s))


def _infer_tile(x: Meta, given: Meta | None, each: list[Meta] | None, times: Sequence[int]) -> Meta:
    rank = tensor_rank(given, each, "repeat_times")
    if rank is None:
        return x.with_shape(_tiled(x.shape, times))
    if len(times) != rank:
        return x.with_shape((UNKNOWN,) * max(rank, x.rank))
    sizes = zip(*_aligned(x.shape, times), strict=True)
    return x.with_shape(UNKNOWN if UNKNOWN in (s, n) else s * n for s, n in sizes)


def _calls_tile(x: Array, given: Any, each: Any, out: Array) -> Calls:
    if out.size == 0:
        return []
    pairs = _pairs(x.shape, out.shape)  # one axis becomes (repetitions, size)
    ones = tuple(1 if i % 2 == 0 else s for i, s in enumerate(pairs))
    # Splitting an axis never needs a copy, whatever the strides are.
    return [copy(out.reshape(pairs, copy=False), x.reshape(ones, copy=False))]


def _back_axes(pairs: Shape) -> tuple[int, ...]:
    return tuple(i for i in range(0, len(pairs), 2) if pairs[i] != 1)


def _folded(old: Shape, new: Shape) -> tuple[Shape, tuple[int, ...]]:
    pairs = _pairs(old, new)
    return pairs, _back_axes(pairs)


def _lower_back(torch: Any, x: Any, dout: Any) -> Any:
    if dout.numel() == 0:
        return torch.zeros(tuple(x.shape), dtype=dout.dtype, device=dout.device)
    pairs, axes = _folded(tuple(x.shape), tuple(dout.shape))
    folded = dout.reshape(pairs)
    return (folded.sum(axes) if axes else folded).reshape(tuple(x.shape))


def _grad(again_rule: Any) -> GradOp:
    return GradOp(
        "X, Out@GRAD -> X@GRAD",
        ref=_summing(_folded),
        lower=_lower_back,
        shape_only=("X",),
        grad=again_rule,
    )


def _tile_op(type: str, attr: str, slot: str, cases: Sequence[tuple[Shape, Shape]], exact: bool, amp: str = "") -> None:
    """Registers an op that repeats a value; ``exact`` ones want a number for each dimension.

    Args:
        type: Op type.
        attr: Its attribute with the repetitions.
        slot: Its slot for a Variable with them.
        cases: (shape, repetitions) for tests.
        exact: Whether leading repetitions of 1 may not be left out.
        amp: What mixed precision does with it.
    """

    def infer(x: Meta, given: Meta | None, each: list[Meta] | None, **attrs: Any) -> Meta:
        if exact and given is None and not each:
            check_length(attrs[attr], x.rank, attr, why="one for each dimension")
        return _infer_tile(x, given, each, attrs[attr])

    def fresh(x: Array, given: Any, each: Any, out: None, **attrs: Any) -> list[Any]:
        return [np.array(np.tile(x, sizes_of(attrs[attr], given, each)))]

    def lower(torch: Any, x: Any, given: Any, each: Any, **attrs: Any) -> Any:
        counts = sizes_of(attrs[attr], given, each)
        return torch.tile(x, tuple(counts)) if counts else x.clone()

    register(OpDef(
        type, f"X, {slot}?, {attr}_tensor*? -> Out", lod="X", attrs={attr: Attr((), "ints")}, infer=infer,
        ref=copies(lambda x, given, each, out, **attrs: _calls_tile(x, given, each, out), fresh, attrs=(attr,)),
        lower=lower, grad=_grad(grad_is_forward_op(type)), amp=amp, uses_blas=True,
        domain=Domain(cases=tuple(Case((shape, *_NONE), {attr: times}) for shape, times in cases), others=ANY), complex="linear",
        onnx=lambda g, x, given, each, **a: _onnx.tile(g, x, given, each, a[attr]),
    ))  # fmt: skip


_tile_op(
    "tile", "repeat_times", "RepeatTimes", (
        ((3, 2), (2, 3)), ((3, 2), (2,)), ((4,), (2, 1, 3)), ((), (3,)), ((2, 0), (2, 2)), ((2, 3), (0, 1)),
        ((2, 1, 2), (1, 1, 1)), ((2,), ()),
    ), exact=False, amp="gray",
)  # fmt: skip
_tile_op(
    "expand", "expand_times", "ExpandTimes", (
        ((3, 2), (2, 3)), ((4,), (3,)), ((1, 3), (4, 1)), ((), ()), ((2, 0), (2, 2)), ((2, 1, 3), (1, 2, 2)),
    ), exact=True,
)  # fmt: skip


@export("tensor.tile", "Variable.tile", op="tile")
def tile(x: Variable, repeat_times: Any, name: str | None = None) -> Variable:
    """Repeats a value as a whole along each axis.

    Args:
        x: ``[...]``, any dtype.
        repeat_times: How often along each axis, the last ones if there are fewer; more of them add leading axes. A
            list of ints and Variables, or one Variable.
        name: Name of the layer.

    Raises:
        ShapeError: If a number is negative.
    """
    attr, given, each = sizes_given(repeat_times)
    inputs = {"X": check_variable(x, "x", "tile"), "RepeatTimes": given, "repeat_times_tensor": each}
    return emit_one("tile", inputs, {"repeat_times": attr}, name=name)


# ------------------------------------------------------------------------------------------------------ older spellings
@export("fluid.layers.expand", op="expand")
def fluid_expand(x: Variable, expand_times: Any, name: str | None = None) -> Variable:
    """Repeats a value as a whole, ``expand_times[i]`` times along axis ``i``.

    Args:
        x: ``[...]``, any dtype.
        expand_times: One number for each axis: a list of ints and Variables, or one Variable.
        name: Name of the layer.

    Raises:
        ShapeError: If there are more or fewer numbers than axes.
    """
    attr, given, each = sizes_given(expand_times)
    inputs = {"X": check_variable(x, "x", "expand"), "ExpandTimes": given, "expand_times_tensor": each}
    return emit_one("expand", inputs, {"expand_times": attr}, name=name)


def _infer_as_tile(x: Meta, target: Meta) -> Meta:
    # Whole multiples only: tiles are never cut.
    fits = x.rank == target.rank and all(
        UNKNOWN in (a, b) or (b % a == 0 if a else b == 0) for a, b in zip(x.shape, target.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            "the target's sizes must be multiples of the value's",
            expected=f"multiples of {list(x.shape)}",
            received=list(target.shape),
            fix="use paddle.expand_as to broadcast",
        )
    return x.with_shape(target.shape)


def _lower_as(torch: Any, x: Any, target: Any) -> Any:
    return torch.tile(x, tuple(b // a if a else 1 for a, b in zip(x.shape, target.shape, strict=True)))


register(OpDef(
    "expand_as", "X, target_tensor -> Out", paddle=ABSENT, infer=_infer_as_tile,
    ref=copies(lambda x, target, out: _calls_tile(x, None, None, out)), lower=_lower_as,
    grad=_grad(grad_is_forward_op("expand_as", keep={"target_tensor": "Out@GRAD"}, attrs=NO_ATTRS)),
    shape_only=("target_tensor",), uses_blas=True,
    domain=Domain(
        cases=(
            Case(((3, 2), (6, 2))), Case(((1, 4), (3, 4))), Case(((2,), (6,))), Case(((), ())), Case(((0, 2), (0, 4))),
            Case(((2, 1, 2), (2, 3, 4))),
        ), others=ANY,
    ), complex="linear", onnx=_onnx.tile_as,
))  # fmt: skip


@export("fluid.layers.expand_as", op="expand_as")
def fluid_expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """Repeats a value as a whole until it has the target's shape.

    Args:
        x: ``[...]``, any dtype.
        target_tensor: A Variable of as many dimensions, whose sizes are multiples of those of ``x``; only its shape
            counts.
        name: Name of the layer.

    Raises:
        ShapeError: If they are not.
    """
    target = check_variable(target_tensor, "target_tensor", "expand_as")
    return emit_one("expand_as", {"X": check_variable(x, "x", "expand_as"), "target_tensor": target}, name=name)


# ---------------------------------------------------------------------------------------------------- repeat_interleave
def _infer_repeat(x: Meta, counts: Meta | None, *, Repeats: int, dim: int) -> Meta:
    check_rank(x, range(1, ANY_RANK), "X")
    at = normalize_axis(dim, x.rank)
    size = x.shape[at]
    if counts is not None:
        check_dtype(counts, INTEGERS, "RepeatsTensor")
        check_rank(counts, 1, "RepeatsTensor")
        if UNKNOWN not in (size, counts.shape[0]) and counts.shape[0] not in (size, 1):
            raise ShapeError(
                "repeats must say a number for each entry",
                expected=f"{size} numbers",
                received=list(counts.shape),
                fix=f"give as many numbers as axis {at} has entries",
            )
        new = UNKNOWN  # the sum of the counts, which only a run knows
    else:
        check_int(Repeats, "repeats", least=0)
        new = UNKNOWN if size == UNKNOWN else size * Repeats
    return x.with_shape((*x.shape[:at], new, *x.shape[at + 1 :]))


def _counts(counts: Array | None, repeats: int, size: int) -> Array:
    if counts is None:
        return np.full(size, repeats)
    if counts.size and int(counts.min()) < 0:
        raise IndexRangeError(
            "repeats holds a negative number",
            expected="numbers of at least 0",
            received=int(counts.min()),
            fix="check the values fed to repeats",
        )
    return np.broadcast_to(counts, (size,))  # one count may serve all


def _ref(x: Array, counts: Array | None, out: Array | None, *, Repeats: int, dim: int) -> list[Array] | None:
    at = normalize_axis(dim, x.ndim)
    if out is None:
        return [np.repeat(x, _counts(counts, Repeats, x.shape[at]), axis=at)]
    if out.size:
        # Splitting the axis never needs a copy, whatever the strides are.
        split = out.reshape((*x.shape[: at + 1], Repeats, *x.shape[at + 1 :]), copy=False)
        np.copyto(split, np.expand_dims(x, at + 1))
    return None


def _lower_repeat(torch: Any, x: Any, counts: Any, *, Repeats: int, dim: int) -> Any:
    return torch.repeat_interleave(x, Repeats if counts is None else counts, dim)


@in_float32()
def _back(x: Array, counts: Array | None, dout: Array, dx: Array, *, Repeats: int, dim: int) -> None:
    at = normalize_axis(dim, x.ndim)
    dx.fill(0)  # an entry with a count of 0 has no gradient
    index = np.repeat(np.arange(x.shape[at]), _counts(counts, Repeats, x.shape[at]))  # the entry of each row
    add_rows(np.moveaxis(dx, at, 0), index, np.moveaxis(dout, at, 0), fresh=True)


def _lower_back_repeat(torch: Any, x: Any, counts: Any, dout: Any, *, Repeats: int, dim: int) -> Any:
    size = x.shape[dim]
    times = torch.full((size,), Repeats, device=dout.device) if counts is None else counts.expand(size)
    places = torch.arange(size, device=dout.device)  # of the entries; each repeated as often as the entry
    index = torch.repeat_interleave(places, times, output_size=dout.shape[dim])
    wide = torch_wide(dout)
    return torch.zeros(tuple(x.shape), dtype=wide.dtype, device=dout.device).index_add(dim, index, wide).to(dout.dtype)


register(OpDef(
    "repeat_interleave", "X, RepeatsTensor? -> Out", attrs={"Repeats": 1, "dim": Attr(0, "int")}, infer=_infer_repeat,
    ref=_ref, lower=_lower_repeat,
    grad=GradOp(
        "X, RepeatsTensor?, Out@GRAD -> X@GRAD", ref=_back, lower=_lower_back_repeat, shape_only=("X",),
        grad=grad_is_forward_op("repeat_interleave", keep=("RepeatsTensor",)),
    ),
    domain=Domain(
        cases=(
            Case(((3, 2), None), {"Repeats": 2, "dim": 0}), Case(((3, 2), None), {"Repeats": 3, "dim": -1}),
            Case(((4,), None), {"Repeats": 1, "dim": 0}), Case(((2, 3, 2), None), {"Repeats": 2, "dim": 1}),
            Case(((2, 3), None), {"Repeats": 0, "dim": 1}), Case(((0, 3), None), {"Repeats": 2, "dim": 0}),
        ),
        values={"RepeatsTensor": ValueRange(0, 3, dtype="int64")}, others=ANY,
    ), complex="linear", paddle=from_the_front("dim"), onnx=_onnx.repeat,
))  # fmt: skip


@export("tensor.repeat_interleave", "Variable.repeat_interleave", op="repeat_interleave")
def repeat_interleave(x: Variable, repeats: Any, axis: int | None = None, name: str | None = None) -> Variable:
    """Repeats each entry along an axis.

    Args:
        x: ``[...]``, any dtype.
        repeats: How often: a number, or an integer Variable of one number for each entry.
        axis: Which axis; without it the flattened value is used.
        name: Name of the layer.

    Raises:
        ShapeError: If a number is negative or the counts do not fit the axis.
    """
    x = check_variable(x, "x", "repeat_interleave")
    if axis is None:
        x, axis = flatten(x), 0  # as numpy: without an axis in C order
    given = repeats if isinstance(repeats, Variable) else None
    attrs = {"Repeats": 0 if given is not None else repeats, "dim": axis}
    return emit_one("repeat_interleave", {"X": x, "RepeatsTensor": given}, attrs, name=name)
