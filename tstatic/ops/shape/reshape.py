"""Changing the shape without moving an element: reshape and flatten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Call
from tstatic.ir.types import UNKNOWN, Meta, Shape, normalize_axis, numel
from tstatic.no_effect import IN_PLACE, no_effect
from tstatic.ops._call_ref import copies
from tstatic.ops.shape._reshaping import plain_copy, reshape_back, resolve, with_shape
from tstatic.ops.shape._shapes import (
    Array,
    add_op_context,
    as_list,
    copy_reshaped,
    emit_one,
    sizes_given,
    sizes_of,
    tensor_rank,
    view_of,
)

ANY = ("int64", "bool", "int32")


# ------------------------------------------------------------------------------------------------------------- reshape2
def _infer_reshape(x: Meta, given: Meta | None, each: list[Meta] | None, *, shape: Sequence[int]) -> tuple[Meta, Meta]:
    rank = tensor_rank(given, each, "shape")
    if rank is None:
        return with_shape(x, resolve(x.shape, shape))
    known = shape if len(shape) == rank else (UNKNOWN,) * rank
    return with_shape(x, tuple((x.shape[i] if s == 0 and i < x.rank else max(s, UNKNOWN)) for i, s in enumerate(known)))


def _reshape_calls(x: Array, given: Any, each: Any, out: Array, xshape: Any) -> list[Call]:
    return [copy_reshaped(out, x)]


def _reshape_fresh(x: Array, given: Any, each: Any, out: Any, xshape: Any, *, shape: Sequence[int]) -> list[Any]:
    new = resolve(x.shape, sizes_of(shape, given, each))
    return [np.array(x.reshape(new), order="C", copy=True), np.empty((0, *x.shape), x.dtype)]


def _reshape_lower(torch: Any, x: Any, given: Any, each: Any, *, shape: Sequence[int]) -> Any:
    wanted = [int(t) for t in each] if each else given.tolist() if given is not None else shape
    return torch.reshape(x, resolve(tuple(x.shape), wanted)), None


register(
    OpDef(
        "reshape2",
        "X, Shape?, ShapeTensor*? -> Out, XShape~",
        attrs={"shape": Attr((), "ints")},
        infer=_infer_reshape,
        ref=copies(_reshape_calls, _reshape_fresh),
        lower=_reshape_lower,
        view=lambda x, *, shape: view_of(x, resolve(x.shape, shape)),
        grad=reshape_back,
        amp="gray",
        domain=Domain(
            cases=(
                Case(((2, 3, 4), None, None), {"shape": (6, 4)}),
                Case(((2, 3, 4), None, None), {"shape": (0, -1)}),
                Case(((2, 3, 4), None, None), {"shape": (4, 0, 2)}),
                Case(((2, 3, 4), None, None), {"shape": (-1,)}),
                Case(((1, 1), None, None), {"shape": ()}),
                Case(((), None, None), {"shape": (1, 1)}),
                Case(((0, 3), None, None), {"shape": (3, -1)}),
                Case(((0, 3), None, None), {"shape": (0, 1, 3)}),
                Case(((2, 0, 3), None, None), {"shape": (-1, 3)}),
                Case(((12,), None, None), {"shape": (3, 1, 4)}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


def _like_calls(x: Array, dout: Array, dx: Array) -> list[Call]:
    return [copy_reshaped(dx, dout)]


def _like_grad(ctx: GradContext) -> list[OpSpec]:
    dout = ctx.inputs["Out@GRAD"][0]
    wanted, arriving = ctx.in_grads.get(dout), ctx.out_grads.get(ctx.outputs["X@GRAD"][0])
    if wanted is None or arriving is None:
        return []
    return [OpSpec("reshape2_grad", {"X": [dout], "Out@GRAD": [arriving]}, {"X@GRAD": [wanted]})]


def _infer_like(x: Meta, dout: Meta) -> Meta:
    if x.numel != UNKNOWN and dout.numel != UNKNOWN and x.numel != dout.numel:
        raise ShapeError(
            "a gradient does not hold as many elements as the value it belongs to",
            expected=f"{x.numel} elements",
            received=f"shape {list(dout.shape)}",
            fix="pass a target gradient of the target's shape",
        )
    return dout.with_shape(x.shape)


register(
    OpDef(
        "reshape2_grad",
        "X, Out@GRAD -> X@GRAD",
        infer=_infer_like,
        ref=copies(_like_calls),
        lower=lambda torch, x, dout: torch.reshape(dout, x.shape),
        grad=_like_grad,
        shape_only=("X",),
        domain=Domain(
            cases=(
                Case(((2, 3, 4), (6, 4))),
                Case(((0, 3), (3, 0))),
                Case(((), (1, 1))),
                Case(((4, 1), (2, 2))),
                Case(((2, 0, 3), (0,))),
                Case(((12,), (3, 4))),
            ),
            ulps=0,
        ),
    )
)


# -------------------------------------------------------------------------------------------------------------- flatten
def _flat_shape(shape: Shape, start: int, stop: int) -> Shape:
    if not shape:
        return (1,)
    start, stop = normalize_axis(start, len(shape), "start_axis"), normalize_axis(stop, len(shape), "stop_axis")
    if start > stop:
        raise ShapeError(
            "the stop_axis should be larger than the start_axis",
            expected=f"a stop_axis of at least {start}",
            received=stop,
            fix="swap start_axis and stop_axis",
        )
    return (*shape[:start], numel(shape[start : stop + 1]), *shape[stop + 1 :])


register(
    OpDef(
        "flatten_contiguous_range",
        "X -> Out, XShape~",
        attrs={"start_axis": 1, "stop_axis": 1},
        infer=lambda x, *, start_axis, stop_axis: with_shape(x, _flat_shape(x.shape, start_axis, stop_axis)),
        ref=copies(plain_copy),
        lower=lambda torch, x, *, start_axis, stop_axis: (torch.flatten(x, start_axis, stop_axis), None),
        view=lambda x, *, start_axis, stop_axis: view_of(x, _flat_shape(x.shape, start_axis, stop_axis)),
        grad=reshape_back,
        amp="gray",
        domain=Domain(
            cases=(
                Case(((2, 3, 4, 5),), {"start_axis": 1, "stop_axis": 2}),
                Case(((2, 3, 4),), {"start_axis": 0, "stop_axis": -1}),
                Case(((2, 3, 4),), {"start_axis": -2, "stop_axis": -1}),
                Case(((),), {"start_axis": 0, "stop_axis": 0}),
                Case(((2, 0, 3),), {"start_axis": 1, "stop_axis": 2}),
                Case(((5,),), {"start_axis": 0, "stop_axis": 0}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


def _matrix_shape(shape: Shape, axis: int) -> Shape:
    at = axis + len(shape) if axis < 0 else axis
    if not 0 <= at <= len(shape):
        raise ShapeError(
            f"axis {axis} is out of range for a value of rank {len(shape)}",
            expected=f"an axis from 0 to {len(shape)}",
            received=axis,
            fix="choose an axis that the input has",
        )
    return numel(shape[:at]), numel(shape[at:])


register(
    OpDef(
        "flatten2",
        "X -> Out, XShape~",
        attrs={"axis": 1},
        infer=lambda x, *, axis: with_shape(x, _matrix_shape(x.shape, axis)),
        ref=copies(plain_copy),
        lower=lambda torch, x, *, axis: (torch.reshape(x, _matrix_shape(tuple(x.shape), axis)), None),
        view=lambda x, *, axis: view_of(x, _matrix_shape(x.shape, axis)),
        grad=reshape_back,
        amp="gray",
        domain=Domain(
            cases=(
                Case(((2, 3, 4),), {"axis": 1}),
                Case(((2, 3, 4),), {"axis": 0}),
                Case(((2, 3, 4),), {"axis": 3}),
                Case(((2, 3, 4),), {"axis": -1}),
                Case(((0, 3),), {"axis": 1}),
                Case(((4,),), {"axis": 0}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


# ------------------------------------------------------------------------------------------------------------ functions
@export("tensor.reshape", "Variable.reshape", op="reshape2")
def reshape(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """The same elements in another shape.

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
    """Same as :func:`reshape`: a program's values are never changed in place."""
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
    """:func:`reshape` with an optional activation ``act`` on the result; ``actual_shape`` beats ``shape``.

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

    Raises:
        ShapeError: If an axis is out of range or they stand in the wrong order.
    """
    inputs = {"X": check_variable(x, "x", "flatten")}
    attrs = {"start_axis": start_axis, "stop_axis": stop_axis}
    return emit_one("flatten_contiguous_range", inputs, attrs, name=name, prefix="flatten")


@export("fluid.layers.flatten", op="flatten2")
def fluid_flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """A matrix: the axes before ``axis`` joined into rows, the others into columns.

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
    """Same as :func:`flatten`: a program's values are never changed in place."""
    return flatten(x, start_axis, stop_axis, name)


@export("tensor.unflatten", "Variable.unflatten", op="reshape2")
def unflatten(x: Variable, axis: int, shape: Sequence[int], name: str | None = None) -> Variable:
    """Splits an axis into several, of sizes ``shape`` (one may be -1 where all other sizes are known).

    Raises:
        ShapeError: If the sizes do not make up the axis.
    """
    x = check_variable(x, "x", "unflatten")
    try:
        at = normalize_axis(axis, len(x.shape))
        sizes = resolve(x.shape[at : at + 1] or (1,), as_list(shape))
    except ShapeError as error:
        raise add_op_context(error, "unflatten", x.name) from None
    # Leading sizes are copied by position; those behind the axis must be known.
    return reshape(x, [*[0] * at, *sizes, *x.shape[at + 1 :]], name)
