"""Running extremes and sums along an axis, differences of neighbours, and areas under curves."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, INDICES, check_axis, check_dtype, check_int, check_result_dtype
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, Meta, dtype_of, int64, normalize_axis
from tstatic.ops.base.gradients import Emitter
from tstatic.ops.base.indexing import add_flat, positions
from tstatic.ops.base.low import in_float32
from tstatic.ops.base.shapes import Array, emit_one
from tstatic.ops.elementwise.arithmetic import add, multiply, subtract
from tstatic.ops.elementwise.logic import logical_xor
from tstatic.ops.elementwise.scale import cast, scale
from tstatic.ops.reduce import _reduce_onnx as _onnx
from tstatic.ops.reduce.cumsum import cumsum
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.joining import concat
from tstatic.ops.shape.reshape import flatten, reshape
from tstatic.ops.shape.slicing import slice_


# ---------------------------------------------------------------------------------------------------- cummax and cummin
def _infer(x: Meta, *, axis: int, dtype: DType) -> tuple[Meta, Meta]:
    if x.rank:
        normalize_axis(axis, x.rank)
    return x, x.with_dtype(dtype)


def _extreme(x: Array, axis: int, ufunc: Any) -> tuple[Array, Array]:
    """Returns the running extreme and where it stands: the last of equal elements, the first NaN."""
    found = ufunc.accumulate(x, axis)
    steps = np.arange(x.shape[axis]).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    # A new extreme, or one that equals it, or another NaN behind a NaN.
    # `found` is NaN from the first NaN on, and NaN equals nothing: the second part finds those.
    new = (x == found) | (x != x)
    return found, np.maximum.accumulate(np.where(new, steps, 0), axis)


def _ref(ufunc: Any) -> Any:
    def ref(x: Array, out: Array | None, indices: Array | None, *, axis: int) -> None:
        if x.ndim == 0:
            found, places = x, np.zeros((), np.int64)
        else:
            # The index is that of the widened values, whose order is the same.
            wide = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x
            found, places = _extreme(wide, axis, ufunc)
        if out is not None:
            np.copyto(out, found, casting="unsafe")
        if indices is not None:
            np.copyto(indices, places, casting="same_kind")

    return ref


@in_float32()
def _back(x: Array, indices: Array, dout: Array, dx: Array, *, axis: int) -> None:
    dx.fill(0)
    if dx.ndim == 0:
        np.copyto(dx, dout)
    elif dx.size:
        # One element may be the extreme of many places, so gradients add up.
        add_flat(dx, positions(dx.shape, indices, axis % dx.ndim), dout, fresh=True)


def _lower_back(torch: Any, x: Any, indices: Any, dout: Any, *, axis: int) -> Any:
    if x.dim() == 0:
        return dout.clone()
    wide = dout.float() if dout.itemsize == 2 else dout
    return wide.new_zeros(tuple(x.shape)).scatter_add(axis, indices.to(torch.int64), wide).to(dout.dtype)


def _lower(name: str) -> Any:
    def lower(torch: Any, x: Any, *, axis: int, dtype: DType) -> Any:
        found = getattr(torch, name)(x, axis if x.dim() else 0)
        return found.values, found.indices.to(getattr(torch, dtype.name))

    return lower


for _name, _ufunc in (("cummax", np.maximum), ("cummin", np.minimum)):
    register(OpDef(
        _name, "x -> out, indices", attrs={"axis": -1, "dtype": Attr(int64, "dtype")}, infer=_infer, ref=_ref(_ufunc),
        lower=_lower(_name),
        grad=GradOp("x, indices, out@GRAD -> x@GRAD", ref=_back, lower=_lower_back, shape_only=("x",)),
        domain=Domain(
            cases=(
                Case(((3, 4),), {}), Case(((4, 3),), {"axis": 0}), Case(((2, 5, 3),), {"axis": 1, "dtype": "int32"}),
                Case(((7,),), {"axis": 0}), Case(((0, 3),), {"axis": 0}), Case(((1,),), {}),
            ),
            values={"x": ValueRange(distinct=True)}, others=("int64", "int32"), ulps=0,
        ), onnx="ONNX has no running extremes",
    ))  # fmt: skip


def _running(type: str, x: Variable, axis: int | None, dtype: Any, name: str | None) -> tuple[Variable, Variable]:
    x = check_variable(x, "x", type)
    kind = dtype_of(dtype)
    check_result_dtype(kind, INDICES, type)
    if axis is None:
        x, axis = flatten(x), 0
    found: tuple[Variable, Variable] = emit(type, {"x": x}, {"axis": axis, "dtype": kind}, name=name)
    return found


@export("tensor.cummax", "Variable.cummax", op="cummax")
def cummax(
    x: Variable, axis: int | None = None, dtype: Any = "int64", name: str | None = None
) -> tuple[Variable, Variable]:
    """Returns the largest element so far along an axis, and where it stands (the last of equal ones).

    Args:
        x: Numbers ``[...]``.
        axis: Which axis; without it the flattened value is walked through.
        dtype: int64 or int32, of the indices.
        name: Name of the layer.

    Returns:
        The values and the indices, both shaped like ``x``, or ``[elements]`` without an axis.

    Raises:
        ShapeError: If the axis is out of range.
        DTypeError: If ``dtype`` is another one.

    Example:
        >>> found = paddle.cummax(paddle.to_tensor([1.0, 3.0, 2.0]))
        >>> static.Executor().run(fetch_list=list(found))
        [array([1., 3., 3.], dtype=float32), array([0, 1, 1])]
    """
    return _running("cummax", x, axis, dtype, name)


@export("tensor.cummin", "Variable.cummin", op="cummin")
def cummin(
    x: Variable, axis: int | None = None, dtype: Any = "int64", name: str | None = None
) -> tuple[Variable, Variable]:
    """Returns the smallest element so far along an axis, and where it stands; arguments and errors as of :func:`cummax`."""
    return _running("cummin", x, axis, dtype, name)


# --------------------------------------------------------------------------------------------------------- logcumsumexp
@in_float32()
def _ref_log(x: Array, out: Array, *, axis: int, reverse: bool) -> None:
    if x.ndim == 0:
        np.copyto(out, x)
        return
    at = normalize_axis(axis, x.ndim)
    way = tuple(slice(None, None, -1 if reverse and i == at else None) for i in range(x.ndim))
    # log(exp(a) + exp(b)) step by step: no exponential is ever taken of a large number.
    np.logaddexp.accumulate(x[way], at, out=out[way])


def _lower_log(torch: Any, x: Any, *, axis: int, reverse: bool) -> Any:
    wide = x.float() if x.itemsize == 2 else x
    if x.dim() == 0:
        return x.clone()
    found = torch.logcumsumexp(wide.flip(axis) if reverse else wide, axis)
    return (found.flip(axis) if reverse else found).to(x.dtype)


def _log_grad(ctx: GradContext) -> list[OpSpec]:
    """Differentiates: dx[i] is the sum of dout[j] exp(x[i] - out[j]) over all j that i goes into.

    It is taken in the logarithm, apart for positive and negative dout, because exp(-out) alone may overflow.
    """
    e = Emitter(ctx)
    wanted, arriving = e.wanted("X"), e.incoming("Out")
    if wanted is None or arriving is None:
        return []
    x, out = e.input("X"), ctx.outputs["Out"][0]
    attrs = {"axis": ctx.attrs["axis"], "reverse": not ctx.attrs["reverse"]}
    parts = []
    for sign in (1.0, -1.0):
        # The sum runs over logarithms, so gradients above and below 0 go separately; log(0) adds nothing.
        one_sided = e.emit("relu", {"X": e.emit("scale", {"X": arriving}, scale=sign)})
        logs = e.emit("elementwise_sub", {"X": e.emit("log", {"X": one_sided}), "Y": out})
        summed = e.emit("logcumsumexp", {"X": logs}, **attrs)
        parts.append(e.emit("exp", {"X": e.emit("elementwise_add", {"X": summed, "Y": x})}))
    e.emit("elementwise_sub", {"X": parts[0], "Y": parts[1]}, wanted)
    return e.specs


def _infer_log(x: Meta, *, axis: int) -> Meta:
    check_dtype(x, FLOATS, "X")
    if x.rank:
        normalize_axis(axis, x.rank)
    return x


register(OpDef(
    "logcumsumexp", "X -> Out", attrs={"axis": -1, "reverse": False}, infer=_infer_log, ref=_ref_log, lower=_lower_log,
    grad=_log_grad, amp="black",
    domain=Domain(
        cases=(
            Case(((3, 4),), {}), Case(((4, 3),), {"axis": 0}), Case(((2, 5, 3),), {"axis": 1, "reverse": True}),
            Case(((7,),), {"axis": 0}), Case(((0, 3),), {"axis": 0}), Case(((1,),), {}),
        ),
        ulps=16,
    ), onnx=_onnx.log_cumsum,
))  # fmt: skip


@export("tensor.logcumsumexp", "Variable.logcumsumexp", op="logcumsumexp")
def logcumsumexp(x: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None) -> Variable:
    """Returns the logarithm of the running sum of exponentials along an axis, without overflow.

    Args:
        x: Floats ``[...]``.
        axis: Which axis; without it the flattened value is walked through.
        dtype: Converts ``x`` first.
        name: Name of the layer.

    Raises:
        ShapeError: If the axis is out of range.
        DTypeError: If it holds no floats.
    """
    x = check_variable(x, "x", "logcumsumexp")
    x = x if dtype is None else cast(x, dtype)
    if axis is None:
        x, axis = flatten(x), 0
    return emit_one("logcumsumexp", {"X": x}, {"axis": axis}, name=name)


# ---------------------------------------------------------------------------------------------- neighbours and areas
_LONGEST = 2**31 - 1
"""As the end of a slice: up to the last element, whatever the size is."""


def _neighbours(x: Variable, axis: int) -> tuple[Variable, Variable]:
    """Returns all elements but the first along an axis, and all but the last."""
    return slice_(x, [axis], [1], [_LONGEST]), slice_(x, [axis], [0], [-1])


MOST_DIFFERENCES = 1024
"""How often differences of differences are taken at most; each time is an op."""


@export("tensor.diff", "Variable.diff")
def diff(
    x: Variable,
    n: int = 1,
    axis: int = -1,
    prepend: Variable | None = None,
    append: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Returns each element less the one before it along an axis; of truth values whether they differ.

    Args:
        x: ``[...]`` of at least one dimension.
        n: How often, at least 1.
        axis: Which axis.
        prepend, append: Values that are put before and behind ``x`` along the axis first.
        name: Name of the layer.

    Raises:
        ShapeError: If ``n`` is less than 1, or more than 1024.

    Example:
        >>> y = paddle.diff(paddle.to_tensor([1.0, 4.0, 9.0, 16.0]), n=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([2., 2.], dtype=float32)
    """
    x = check_variable(x, "x", "diff")
    at = check_axis(axis, x, "axis", "diff")
    parts = [v for v in (prepend, x, append) if v is not None]
    x = concat(parts, at) if len(parts) > 1 else x
    for _ in range(check_int(n, "n", "diff", least=1, most=MOST_DIFFERENCES)):
        after, before = _neighbours(x, at)
        x = logical_xor(after, before) if x.dtype.name == "bool" else subtract(after, before)
    return x if name is None else scale(x, name=name)


def _areas(y: Variable, x: Variable | None, dx: Any, axis: int, function: str) -> tuple[Variable, int]:
    """Returns the area of each trapezoid between neighbours along an axis, and the axis."""
    y = check_variable(y, "y", function, ("float32", "float64", "float16"))
    if x is not None and dx is not None:
        raise ProgramError(
            f"{function} got both x and dx",
            expected="the places x, or their distance dx",
            received="both",
            fix="leave one of them out",
            op=function,
        )
    at = check_axis(axis, y, "axis", function)
    after, before = _neighbours(y, at)
    heights = scale(add(after, before), 0.5)
    if x is None:
        return multiply(heights, dx) if isinstance(dx, Variable) else scale(heights, 1.0 if dx is None else dx), at
    width = diff(x, axis=at if len(x.shape) == len(y.shape) else -1)
    if len(x.shape) == 1 and len(y.shape) > 1:
        # The widths lie along one axis and broadcast over the others.
        width = reshape(width, [-1 if i == at else 1 for i in range(len(y.shape))])
    return multiply(heights, width), at


@export("tensor.trapezoid", "Variable.trapezoid")
def trapezoid(
    y: Variable, x: Variable | None = None, dx: Any = None, axis: int = -1, name: str | None = None
) -> Variable:
    """Returns the area under a curve of straight pieces along an axis.

    Args:
        y: The heights, floats ``[...]``.
        x: The places, ``[size of the axis]`` or shaped like ``y``.
        dx: Their distance, a number or a Variable; 1 by default.
        axis: Which axis, which the result does not have.
        name: Name of the layer.

    Raises:
        ProgramError: If both ``x`` and ``dx`` are given.

    Example:
        >>> y = paddle.trapezoid(paddle.to_tensor([4.0, 5.0, 6.0]), dx=2.0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array(20., dtype=float32)
    """
    areas, at = _areas(y, x, dx, axis, "trapezoid")
    return sum(areas, at, name=name)


@export("tensor.cumulative_trapezoid", "Variable.cumulative_trapezoid")
def cumulative_trapezoid(
    y: Variable, x: Variable | None = None, dx: Any = None, axis: int = -1, name: str | None = None
) -> Variable:
    """Returns the areas of :func:`trapezoid` up to each place but the first; arguments and errors as there."""
    areas, at = _areas(y, x, dx, axis, "cumulative_trapezoid")
    return cumsum(areas, at, name=name)
