"""Changing the shape without moving an element: reshape, flatten, squeeze, unsqueeze."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_axes, check_axis, check_int, check_sizes
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.recording import Call
from tstatic.ir.types import UNKNOWN, Meta, Shape, normalize_axis, numel
from tstatic.no_effect import IN_PLACE, no_effect
from tstatic.ops.base.call_ref import copies
from tstatic.ops.base.gradients import grad_is_op, passed
from tstatic.ops.base.shapes import (
    ANY,
    Array,
    as_list,
    copy_reshaped,
    emit_one,
    sizes_given,
    sizes_of,
    tensor_rank,
    view_of,
)
from tstatic.ops.shape import _shape_onnx as _onnx
from tstatic.ops.shape.fill import has_variable
from tstatic.ops.shape.when_run import elements_of, squeeze_when_run, unsqueezed_by_axis


def resolve(old: Shape, wanted: Sequence[int]) -> Shape:
    """Returns the shape that ``reshape`` gives: 0 copies the input's size at that position, one -1 is computed.

    Args:
        old: The input's shape, with unknown sizes.
        wanted: What was asked for.

    Raises:
        ShapeError: For a second -1, another negative size, a 0 without a size to copy, or counts that differ.
    """
    guesses = [i for i, s in enumerate(wanted) if s == UNKNOWN]  # sizes of -1, to be computed
    if len(guesses) > 1 or any(s < UNKNOWN for s in wanted):
        raise ShapeError(
            "only one size of a new shape may be -1" if len(guesses) > 1 else "a new shape has a negative size",
            expected="sizes of at least 0, and at most one -1",
            received=list(wanted),
            fix="give all other sizes as numbers; 0 copies the size of the input",
        )
    check_sizes(wanted)
    new = _copied(old, wanted)
    copied = [i for i, s in enumerate(wanted) if s == 0]  # 0 copies the input's size, so it may be unknown
    count = numel(old)
    if guesses:
        new[guesses[0]] = _guess(old, new, copied, guesses[0])
    elif count >= 0 and UNKNOWN not in new and math.prod(new) != count:
        raise _mismatch(old, wanted, count, math.prod(new))
    return tuple(new)


def _copied(old: Shape, wanted: Sequence[int]) -> list[int]:
    new = []
    for i, size in enumerate(wanted):
        if size == 0 and i < len(old):
            size = old[i]
        elif size == 0:
            raise ShapeError(
                f"position {i} of the new shape is 0, but the input has no such dimension to copy",
                expected=f"0 at positions below {len(old)} only",
                received=f"shape {list(wanted)} for an input of shape {list(old)}",
                fix="replace the 0 by a number, or by -1 when the value is empty",
            )
        new.append(size)
    return new


def _guess(old: Shape, new: Sequence[int], copied: Sequence[int], at: int) -> int:
    """Returns the size that replaces -1; ``UNKNOWN`` if it depends on sizes that are not known yet."""
    rest = math.prod([s for i, s in enumerate(new) if i != at and not (i in copied and s == UNKNOWN)])
    open_old = {i for i, s in enumerate(old) if s == UNKNOWN}
    open_new = {i for i in copied if new[i] == UNKNOWN}
    if open_old != open_new:
        return UNKNOWN
    # The same sizes are unknown on both sides, so they cancel.
    count = math.prod([s for s in old if s != UNKNOWN])
    if rest == 0:
        if open_old or count:
            if open_old:
                return UNKNOWN
            raise _mismatch(old, new, count, 0)
        raise ShapeError(
            "-1 in a new shape cannot be computed beside a size of 0",
            expected="a number in the place of -1",
            received=f"shape {list(new)} for an input of shape {list(old)}",
            fix="give every size of an empty value",
        )
    if count % rest:
        raise _mismatch(old, new, count, rest)
    return count // rest


def _mismatch(old: Shape, wanted: Sequence[int], have: int, need: int) -> ShapeError:
    divides = UNKNOWN in wanted  # then the product need only divide the count
    elements = f"{need} elements{' without -1' if divides else ''}"
    return ShapeError(
        "the new shape does not hold as many elements as the input",
        expected=f"sizes whose product divides {have}" if divides else f"a shape of {have} elements",
        received=f"shape {list(wanted)} ({elements}) for an input of shape {list(old)}",
        fix="-1 in the place of one size computes it, 0 keeps the size of that axis"
        + (f"; {have} is not a multiple of {need}" if divides else ""),
    )


def with_shape(x: Meta, shape: Shape) -> tuple[Meta, Meta]:
    """Returns the metadata of ``Out`` and of ``XShape``, which has no element and the input's shape behind a 0."""
    return x.with_shape(shape), x.with_shape((0, *x.shape))


def plain_copy(x: Array, out: Array, xshape: Any) -> list[Call]:
    """Copies the elements in their order: the reference of an op ``X -> Out, XShape~`` whose output is not a view."""
    return [copy_reshaped(out, x)]


def reshape_back(ctx: GradContext) -> list[OpSpec]:
    """Emits the gradient of an op that keeps the order of elements: ``reshape2`` to the input's shape.

    When the input has several unknown sizes no list of numbers says that shape; ``reshape2_grad`` then reads it from
    the input itself.
    """
    names = passed(ctx)
    return [] if names is None else [reshape_to(ctx, ctx.inputs["X"][0], *names)]


def reshape_to(ctx: GradContext, x: str, arriving: str, wanted: str) -> OpSpec:
    """Returns the op that gives a gradient the shape of ``x``."""
    shape = ctx.meta(x).shape
    if shape.count(UNKNOWN) <= 1 and 0 not in shape:  # reshape2 reads 0 as "copy the size"
        return OpSpec("reshape2", {"X": [arriving]}, {"Out": [wanted]}, {"shape": shape})
    return OpSpec("reshape2_grad", {"X": [x], "Out@GRAD": [arriving]}, {"X@GRAD": [wanted]})


def _reshaping_op(
    type: str,
    attrs: Mapping[str, Any],
    shape_of: Callable[..., Shape],
    grad: Callable[[GradContext], list[OpSpec]],
    cases: Sequence[tuple[Shape, Mapping[str, Any]]],
    lower: Callable[..., Any] | None = None,
    onnx: Callable[..., Any] = _onnx.same_elements,
) -> None:
    """Registers an op ``X -> Out, XShape~`` that keeps the order of the elements and whose shape the attributes say.

    Args:
        type: Op type.
        attrs: Its attributes.
        shape_of: ``(shape of X, **attrs) -> shape of Out``.
        grad: The gradient rule.
        cases: (shape, attributes) for tests.
        lower: ``(torch, x, **attrs) -> out``, where torch has an operator of its own.
        onnx: Its form where sizes may be unknown.
    """

    def by_shape(torch: Any, x: Any, **values: Any) -> Any:
        return torch.reshape(x, shape_of(tuple(x.shape), **values))

    known = lower or by_shape

    def form(torch: Any, x: Any, *, out: Any = None, **values: Any) -> Any:
        return (known(torch, x, **values) if out is None else out[0].view(x.shape).copy_(x)), None

    register(OpDef(
        type, "X -> Out, XShape~", lod="X", attrs=attrs, infer=lambda x, **values: with_shape(x, shape_of(x.shape, **values)),
        ref=copies(plain_copy), lower=form,
        view=lambda x, **values: view_of(x, shape_of(x.shape, **values)), grad=grad, amp="gray",
        domain=Domain(cases=tuple(Case((shape,), given) for shape, given in cases), others=ANY, ulps=0),
        complex="linear", onnx=onnx,
    ))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- reshape2
def _infer_reshape(x: Meta, given: Meta | None, each: list[Meta] | None, *, shape: Sequence[int]) -> tuple[Meta, Meta]:
    rank = tensor_rank(given, each, "shape")
    if rank is None:
        return with_shape(x, resolve(x.shape, shape))
    known = shape if len(shape) == rank else (UNKNOWN,) * rank  # -1 for each size that is a Variable
    return with_shape(x, tuple((x.shape[i] if s == 0 and i < x.rank else max(s, UNKNOWN)) for i, s in enumerate(known)))


def _reshape_calls(x: Array, given: Any, each: Any, out: Array, xshape: Any) -> list[Call]:
    return [copy_reshaped(out, x)]


def _reshape_fresh(x: Array, given: Any, each: Any, out: Any, xshape: Any, *, shape: Sequence[int]) -> list[Any]:
    new = resolve(x.shape, sizes_of(shape, given, each))  # sizes are values here, so -1 and 0 are read now
    return [np.array(x.reshape(new), order="C", copy=True), np.empty((0, *x.shape), x.dtype)]


def _reshape_lower(torch: Any, x: Any, given: Any, each: Any, *, shape: Sequence[int], out: Any = None) -> Any:
    if out is not None:
        return out[0].view(x.shape).copy_(x), None
    return torch.reshape(x, resolve(tuple(x.shape), sizes_of(shape, given, each))), None


register(OpDef(
    "reshape2", "X, Shape?, ShapeTensor*? -> Out, XShape~", lod="X", attrs={"shape": Attr((), "ints")}, infer=_infer_reshape,
    ref=copies(_reshape_calls, _reshape_fresh), lower=_reshape_lower,
    view=lambda x, *, shape: view_of(x, resolve(x.shape, shape)), grad=reshape_back, amp="gray",
    domain=Domain(
        cases=(
            Case(((2, 3, 4), None, None), {"shape": (6, 4)}), Case(((2, 3, 4), None, None), {"shape": (0, -1)}),
            Case(((2, 3, 4), None, None), {"shape": (4, 0, 2)}), Case(((2, 3, 4), None, None), {"shape": (-1,)}),
            Case(((1, 1), None, None), {"shape": ()}), Case(((), None, None), {"shape": (1, 1)}),
            Case(((0, 3), None, None), {"shape": (3, -1)}), Case(((0, 3), None, None), {"shape": (0, 1, 3)}),
            Case(((2, 0, 3), None, None), {"shape": (-1, 3)}), Case(((12,), None, None), {"shape": (3, 1, 4)}),
        ),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=_onnx.reshape,
))  # fmt: skip


def _like_calls(x: Array, dout: Array, dx: Array) -> list[Call]:
    return [copy_reshaped(dx, dout)]


def _like_grad(ctx: GradContext) -> list[OpSpec]:
    names = passed(ctx, "Out@GRAD", "X@GRAD")
    if names is None:
        return []
    inputs = {"X": ctx.inputs["Out@GRAD"], "Out@GRAD": [names[0]]}  # linear: back to the incoming gradient's shape
    return [OpSpec("reshape2_grad", inputs, {"X@GRAD": [names[1]]})]


def _infer_like(x: Meta, dout: Meta) -> Meta:
    if x.numel != UNKNOWN and dout.numel != UNKNOWN and x.numel != dout.numel:
        raise ShapeError(
            "a gradient does not hold as many elements as the value it belongs to",
            expected=f"{x.numel} elements",
            received=f"shape {list(dout.shape)}",
            fix="pass a target gradient of the target's shape",
        )
    return dout.with_shape(x.shape)


register(OpDef(
    "reshape2_grad", "X, Out@GRAD -> X@GRAD", infer=_infer_like, ref=copies(_like_calls),
    lower=lambda torch, x, dout, *, out=None: (
        torch.reshape(dout, x.shape) if out is None else out.view(dout.shape).copy_(dout)
    ),
    grad=_like_grad, shape_only=("X",),
    domain=Domain(
        cases=(
            Case(((2, 3, 4), (6, 4))), Case(((0, 3), (3, 0))), Case(((), (1, 1))), Case(((4, 1), (2, 2))),
            Case(((2, 0, 3), (0,))), Case(((12,), (3, 4))),
        ),
        ulps=0,
    ),
    complex="linear", onnx="it is part of a backward pass",
))  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- flatten
def _flat_shape(shape: Shape, start_axis: int, stop_axis: int) -> Shape:
    if not shape:
        return (1,)
    start = normalize_axis(start_axis, len(shape), "start_axis")
    stop = normalize_axis(stop_axis, len(shape), "stop_axis")
    if start > stop:
        raise ShapeError(
            "the stop_axis should be larger than the start_axis",
            expected=f"a stop_axis of at least {start}",
            received=stop,
            fix="swap start_axis and stop_axis",
        )
    return (*shape[:start], numel(shape[start : stop + 1]), *shape[stop + 1 :])


_reshaping_op(
    "flatten_contiguous_range", {"start_axis": 1, "stop_axis": 1}, _flat_shape, reshape_back,
    (
        ((2, 3, 4, 5), {"start_axis": 1, "stop_axis": 2}), ((2, 3, 4), {"start_axis": 0, "stop_axis": -1}),
        ((2, 3, 4), {"start_axis": -2, "stop_axis": -1}), ((), {"start_axis": 0, "stop_axis": 0}),
        ((2, 0, 3), {"start_axis": 1, "stop_axis": 2}), ((5,), {"start_axis": 0, "stop_axis": 0}),
    ),
    lower=lambda torch, x, start_axis, stop_axis: torch.flatten(x, start_axis, stop_axis), onnx=_onnx.flatten_range,
)  # fmt: skip


def _matrix_shape(shape: Shape, axis: int) -> Shape:
    rank = len(shape)
    # An axis of ``rank`` is allowed: all sizes are then rows.
    at = check_int(axis, "axis", least=-rank, most=rank, fix="choose an axis that the input has")
    at = at + rank if at < 0 else at
    return numel(shape[:at]), numel(shape[at:])


_reshaping_op(
    "flatten2", {"axis": 1}, _matrix_shape, reshape_back,
    (
        ((2, 3, 4), {"axis": 1}), ((2, 3, 4), {"axis": 0}), ((2, 3, 4), {"axis": 3}), ((2, 3, 4), {"axis": -1}),
        ((0, 3), {"axis": 1}), ((4,), {"axis": 0}),
    ), onnx=_onnx.flatten,
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ functions
@export("tensor.reshape", "Variable.reshape", op="reshape2")
def reshape(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """Gives the elements another shape and keeps their order.

    Args:
        x: ``[...]``, any dtype.
        shape: A list of sizes: 0 copies the input's size at that position, one -1 is computed. Entries may be
            Variables of one integer; or one Variable that holds all sizes.
        name: Name of the layer.

    Returns:
        A Variable of the new shape.

    Raises:
        ShapeError: If the number of elements differs, or more than one size is -1.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        >>> y = paddle.reshape(x, [3, -1])
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[1., 2.],
               [3., 4.],
               [5., 6.]], dtype=float32)
    """
    attr, given, each = sizes_given(shape)
    inputs = {"X": check_variable(x, "x", "reshape"), "Shape": given, "ShapeTensor": each}
    return emit_one("reshape2", inputs, {"shape": attr}, name=name)


@export("tensor.reshape_", "Variable.reshape_", op="reshape2")
def reshape_(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """Does the same as :func:`reshape`: a program's values are never changed in place.

    Args:
        x, shape, name: As in :func:`reshape`.
    """
    return reshape(x, shape, name)


@no_effect(inplace=IN_PLACE)
@export("fluid.layers.reshape", op="reshape2")
def fluid_reshape(
    x: Variable,
    shape: Any,
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """Calls :func:`reshape`, with an optional activation ``act`` on the result; ``actual_shape`` takes precedence over ``shape``.

    Args:
        x, shape, name: As in :func:`reshape`.
        actual_shape: An int Variable that holds all sizes, in place of ``shape``.
        act: Op type of an activation, or ``None``.

    Raises:
        NotFoundError: If there is no such activation.

    Example:
        >>> x = fluid.layers.data("x", shape=[6])
        >>> y = fluid.layers.reshape(x, [0, 2, 3], act="relu")
        >>> static.Executor().run(feed={"x": np.array([[-1, 2, -3, 4, -5, 6]], "float32")}, fetch_list=[y])[0]
        array([[[0., 2., 0.],
                [4., 0., 6.]]], dtype=float32)
    """
    out = reshape(x, shape if actual_shape is None else actual_shape, name)
    return out if act is None else emit_one(act, {"X": out})


@export("tensor.flatten", "Variable.flatten", op="flatten_contiguous_range")
def flatten(x: Variable, start_axis: int = 0, stop_axis: int = -1, name: str | None = None) -> Variable:
    """Joins the axes from ``start_axis`` to ``stop_axis`` into one; a 0-d value becomes ``[1]``.

    Args:
        x: ``[...]``, any dtype.
        start_axis, stop_axis: The first and the last axis that are joined; negative ones count from the end.
        name: Name of the layer.

    Raises:
        ShapeError: If an axis is out of range or ``start_axis`` lies behind ``stop_axis``.
    """
    inputs = {"X": check_variable(x, "x", "flatten")}
    attrs = {"start_axis": start_axis, "stop_axis": stop_axis}
    return emit_one("flatten_contiguous_range", inputs, attrs, name=name, prefix="flatten")


@export("fluid.layers.flatten", op="flatten2")
def fluid_flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """Makes a matrix: the axes before ``axis`` joined into rows, the others into columns.

    Args:
        x: ``[...]``, any dtype.
        axis: From 0 (one row) to the number of axes (one column).
        name: Name of the layer.

    Raises:
        ShapeError: If the axis is out of range.

    Example:
        >>> x = paddle.ones([2, 3, 4, 5])
        >>> fluid.layers.flatten(x).shape
        (2, 60)
        >>> fluid.layers.flatten(x, axis=2).shape
        (6, 20)
    """
    return emit_one("flatten2", {"X": check_variable(x, "x", "flatten")}, {"axis": axis}, name=name)


@export("tensor.flatten_", "Variable.flatten_", op="flatten_contiguous_range")
def flatten_(x: Variable, start_axis: int = 0, stop_axis: int = -1, name: str | None = None) -> Variable:
    """Does the same as :func:`flatten`: a program's values are never changed in place.

    Args:
        x, start_axis, stop_axis, name: As in :func:`flatten`.
    """
    return flatten(x, start_axis, stop_axis, name)


@export("tensor.unflatten", "Variable.unflatten", op="reshape2")
def unflatten(x: Variable, axis: int, shape: Sequence[int], name: str | None = None) -> Variable:
    """Splits an axis into several, of sizes ``shape`` (one may be -1 where the others are known), numbers or Variables.

    Args:
        x: ``[...]``, any dtype.
        axis: Which axis.
        shape: Sizes whose product is that of the axis.
        name: Name of the layer.

    Raises:
        ShapeError: If the sizes do not make up the axis.
    """
    at = check_axis(axis, x := check_variable(x, "x", "unflatten"), "axis", "unflatten")
    try:
        given = elements_of(shape if isinstance(shape, Variable) else as_list(shape), "unflatten", "shape")
        sizes = given if has_variable(given) else resolve(x.shape[at : at + 1] or (1,), given)
    except ShapeError as error:
        raise error.add_context(op="unflatten", var=x.name) from None
    return reshape(x, [*[0] * at, *sizes, *x.shape[at + 1 :]], name)  # a 0 copies the size of its position


# ------------------------------------------------------------------------------------------------ squeeze and unsqueeze
def _squeezed(shape: Shape, axes: Sequence[int]) -> tuple[int, ...]:
    """Returns the axes that go: of the named ones those of size 1 (or unknown), or else all known to be 1."""
    if not len(axes):
        return tuple(i for i, s in enumerate(shape) if s == 1)  # unknown sizes stay: the rank must not depend on a run
    return tuple(i for i in check_axes(axes, len(shape)) if shape[i] in (1, UNKNOWN))


def _squeeze_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    gone = _squeezed(shape, axes)
    return tuple(s for i, s in enumerate(shape) if i not in gone)


def _unsqueezed(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Returns the new axes in the result; axes are inserted one after the other, as Paddle does."""
    new: list[int] = []
    for axis in axes:
        at = normalize_axis(axis, rank + len(new) + 1)
        new = [p + (p >= at) for p in new] + [at]  # axes at or behind the new one move up
    return tuple(sorted(new))


def _unsqueeze_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    new = _unsqueezed(len(shape), axes)
    rest = iter(shape)
    return tuple(1 if i in new else next(rest) for i in range(len(shape) + len(new)))


def _squeeze_grad(ctx: GradContext) -> list[OpSpec]:
    shape = ctx.meta(ctx.inputs["X"][0]).shape
    axes = _squeezed(shape, ctx.attrs["axes"])
    if any(shape[a] == UNKNOWN for a in axes):
        # An axis of unknown size is still there if its size turns out not to be 1: only the input says the shape.
        names = passed(ctx)
        if names is None:
            return []
        return [OpSpec("reshape2_grad", {"X": ctx.inputs["X"], "Out@GRAD": [names[0]]}, {"X@GRAD": [names[1]]})]
    return _one_op(ctx, "unsqueeze2", axes)


def _unsqueeze_grad(ctx: GradContext) -> list[OpSpec]:
    return _one_op(ctx, "squeeze2", _unsqueezed(ctx.meta(ctx.inputs["X"][0]).rank, ctx.attrs["axes"]))


def _one_op(ctx: GradContext, type: str, axes: Sequence[int]) -> list[OpSpec]:
    # squeeze2 without axes would remove every size of 1.
    return grad_is_op(type, {"axes": tuple(axes)})(ctx) if len(axes) else grad_is_op("assign")(ctx)


_reshaping_op(
    "squeeze2", {"axes": Attr((), "ints")}, _squeeze_shape, _squeeze_grad,
    (
        ((1, 3, 1, 4), {"axes": (0, 2)}), ((1, 3, 1, 4), {"axes": (-2,)}), ((3, 4), {"axes": ()}),
        ((1,), {"axes": (0,)}), ((1, 0, 2), {"axes": (0,)}), ((1, 1, 1), {"axes": (0, 1, 2)}),
    ), onnx=lambda g, x, *, axes: g.squeeze(x, _squeezed(x.shape, axes)),
)  # fmt: skip
_reshaping_op(
    "unsqueeze2", {"axes": Attr(kind="ints")}, _unsqueeze_shape, _unsqueeze_grad,
    (
        ((3, 4), {"axes": (0,)}), ((3, 4), {"axes": (0, -1)}), ((3, 4), {"axes": (1, 1)}), ((), {"axes": (0, 0)}),
        ((0, 2), {"axes": (-2,)}), ((2,), {"axes": (1, 0)}),
    ), onnx=lambda g, x, *, axes: g.unsqueeze(x, _unsqueezed(x.rank, axes)),
)  # fmt: skip


@export("tensor.squeeze", "Variable.squeeze", op="squeeze2", inplace=True)
def squeeze(x: Variable, axis: Any = None, name: str | None = None) -> Variable:
    """Removes axes of size 1.

    Args:
        x: ``[...]``, any dtype.
        axis: Which ones, numbers or integer Variables; a number of an axis of another size is left out, a Variable must name an
            axis of size 1. Without it all sizes known to be 1 go (an unknown size stays, whatever it turns out to be).
        name: Name of the layer.

    Example:
        >>> x = paddle.ones([1, 3, 1])
        >>> paddle.squeeze(x).shape
        (3,)
        >>> paddle.squeeze(x, axis=0).shape
        (3, 1)
    """
    x = check_variable(x, "x", "squeeze")
    axes = [] if axis is None else elements_of(axis, "squeeze")
    if any(isinstance(one, Variable) for one in axes):
        return squeeze_when_run(x, axes, name)
    if not axes and UNKNOWN in x.shape:
        axes = [i for i, s in enumerate(x.shape) if s == 1]  # named, so that a run cannot find more
        if not axes:
            return reshape(x, [0] * len(x.shape), name)  # squeeze2 without axes would squeeze what a run finds
    return emit_one("squeeze2", {"X": x}, {"axes": axes}, name=name, prefix="squeeze")


@export("fluid.layers.squeeze", op="squeeze2")
def fluid_squeeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Variable:
    """Calls :func:`squeeze` under its older signature.

    Args:
        input: The ``x`` of :func:`squeeze`.
        axes: The ``axis``; an empty list removes all axes of size 1.
        name: Name of the layer.

    Example:
        >>> x = paddle.ones([1, 3, 1])
        >>> fluid.layers.squeeze(x, axes=[]).shape
        (3,)
        >>> fluid.layers.squeeze(x, axes=[0]).shape
        (3, 1)
    """
    return squeeze(input, axes, name)


@export("tensor.unsqueeze", "Variable.unsqueeze", op="unsqueeze2", inplace=True)
def unsqueeze(x: Variable, axis: Any, name: str | None = None) -> Variable:
    """Inserts axes of size 1, one after the other; a negative axis counts from the end of the shape reached so far.

    Args:
        x: ``[...]``, any dtype.
        axis: Where, in the shape reached so far; an int, an integer Variable of known length, or a list of both.
        name: Name of the layer.

    Raises:
        ShapeError: If an axis is out of range.

    Example:
        >>> x = paddle.ones([2, 3])
        >>> paddle.unsqueeze(x, 0).shape
        (1, 2, 3)
        >>> paddle.unsqueeze(x, [1, -1]).shape
        (2, 1, 3, 1)
    """
    x, axes = check_variable(x, "x", "unsqueeze"), elements_of(axis, "unsqueeze")
    if not any(isinstance(one, Variable) for one in axes):
        return emit_one("unsqueeze2", {"X": x}, {"axes": axes}, name=name)
    for i, one in enumerate(axes, 1):
        x = unsqueezed_by_axis(x, one, name if i == len(axes) else None)
    return x


@export("fluid.layers.unsqueeze", op="unsqueeze2")
def fluid_unsqueeze(input: Variable, axes: int | Sequence[int], name: str | None = None) -> Variable:
    """Calls :func:`unsqueeze` under its older signature.

    Args:
        input, axes: The ``x`` and ``axis`` of :func:`unsqueeze`.
        name: Name of the layer.
    """
    return unsqueeze(input, axes, name)
