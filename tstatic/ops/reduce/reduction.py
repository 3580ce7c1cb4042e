"""Sums, means and products over axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_dtype
from tstatic.ir.opdef import Case, Cost, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.pointwise import Rows, trailing
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import DType, Meta, bool_, dtype_of, float32, float64, int32, int64
from tstatic.ops.base.call_ref import float_scratch
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sum import sum_calls, sum_scratch
from tstatic.ops.reduce import _reduce_onnx as _onnx
from tstatic.ops.reduce._reduce import (
    CASES,
    EMPTY_CASES,
    LONG_CASES,
    REDUCE_ATTRS,
    Over,
    count_of,
    fluid_reduced,
    reduced,
    reduced_shape,
    spread,
)

Attrs = Mapping[str, Any]
_BY_DIM = Over()
_ALL = Over("")


# ----------------------------------------------------------------------------------------------------------------- sum
def total_dtype(x: DType, out_dtype: DType | None) -> DType:
    """Returns what a sum is added up in: int64 for integers and truth values, unless something else is asked for."""
    if out_dtype is not None:
        return out_dtype
    # As in numpy and Paddle: a sum of 3,000 million int32 ones would wrap around.
    return x if x.is_inexact else int64


def _sum_infer(x: Meta, out_dtype: DType | None, **attrs: Any) -> Meta:
    return Meta(_BY_DIM.shape(x.shape, attrs), total_dtype(x.dtype, out_dtype))


def _mean_infer(x: Meta, over: Over = _BY_DIM, out_dtype: DType | None = None, **attrs: Any) -> Meta:
    out = Meta(over.shape(x.shape, attrs), out_dtype or x.dtype)
    check_dtype(x, FLOATS, "X")
    check_dtype(out, FLOATS, "the mean", fix="pass a float dtype as 'out_dtype'")
    return out


def _converts(x: DType, out: DType) -> bool:
    """Returns whether elements are converted before they are added up (``add.reduce`` widens integers by itself)."""
    return x is not out and (x.is_inexact or out.is_inexact or out.name == "bool")


def _sum_scratch_metas(x: Meta, out: Meta, axes: Sequence[int]) -> tuple[Meta, ...]:
    if not _converts(x.dtype, out.dtype):
        return sum_scratch(x, axes)
    converted = x.with_dtype(out.dtype)
    return converted, *sum_scratch(converted, axes)


def _sum_calls(x: Any, out: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
    if not _converts(dtype_of(x.dtype), dtype_of(out.dtype)):
        return sum_calls(x, axes, out, scratch)
    return [(np.copyto, (scratch[0], x, "unsafe")), *sum_calls(scratch[0], axes, out, scratch[1:])]


def _mean_calls(x: Any, out: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
    # One division of the few results, after the sum, not one of each element.
    count = np.asarray(count_of(x.shape, axes), out.dtype)
    return [*_sum_calls(x, out, axes, scratch), (np.true_divide, (out, count, out))]


def _lower(name: str) -> Any:
    def lower(torch: Any, x: Any, axes: Sequence[int], attrs: Attrs, *, out: Any = None) -> Any:
        kind = attrs.get("out_dtype")
        dtype = None if kind is None else getattr(torch, kind.name)
        if out is not None:
            return getattr(torch, name)(x, axes, dtype=out.dtype, out=out)
        return getattr(torch, name)(x, axes, dtype=dtype) if axes else getattr(torch, name)(x, dtype=dtype)

    return lower


# ----------------------------------------------------------------------------------------------------------- gradients
def _spread_calls(x: Any, dout: Any, dx: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
    return [(np.copyto, (dx, spread(dout, dx.shape, axes), "unsafe"))] if dx.size else []


def _mean_grad_scratch_metas(x: Meta, dout: Meta, dx: Meta, axes: Sequence[int]) -> tuple[Meta, ...]:
    return (dout.with_dtype(dout.dtype.compute),)


def _mean_grad_calls(x: Any, dout: Any, dx: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
    share = scratch[0]
    return [
        # The few values of dout are divided, not the many of dx.
        (np.copyto, (share, dout)),
        (np.true_divide, (share, np.asarray(count_of(x.shape, axes), share.dtype), share)),
        *_spread_calls(x, share, dx, axes, ()),
    ]


def _grad_op(type: str, over: Over, text: str = "") -> GradOp:
    """Makes the backward op of a sum, or of a mean: a spread; its own gradient is the reduction itself."""
    mean = type != "reduce_sum"
    calls = (_mean_grad_calls, _mean_grad_scratch_metas) if mean else (_spread_calls,)

    def lower(torch: Any, x: Any, dout: Any, axes: Sequence[int], attrs: Attrs, *, out: Any = None) -> Any:
        if out is None:
            return (dout / count_of(x.shape, axes) if mean else dout).expand(x.shape).to(x.dtype)
        wide = dout.expand(x.shape)
        return torch.div(wide, count_of(x.shape, axes), out=out) if mean else out.copy_(wide)

    def second_order(ctx: GradContext) -> list[OpSpec]:
        # The reduction of second order adds up in the type of the gradient, whatever the first converted.
        changed = {"out_dtype": ctx.meta(ctx.inputs["Out@GRAD"][0]).dtype} if over.dim else {}
        return grad_is_forward_op(type, changed=changed)(ctx)

    return GradOp(
        "X, Out@GRAD -> X@GRAD", ref=over.ref(*calls, unread=(0,), widen=False), lower=over.grad_lower(lower),
        split=over.grad_split, shape_only=("X",), grad=second_order, rows=_rows(text, "X@GRAD") if text else None,
    )  # fmt: skip


def _rows(text: str, slot: str) -> Callable[..., Rows | None]:
    """Describes a reduction of floats along rows, or its gradient, where the reduced axes are the last ones."""

    def rows(x: Meta, dout: Meta | None = None, *, out_dtype: DType | None, **attrs: Any) -> Rows | None:
        axes = _BY_DIM.axes(x.rank, attrs)
        # A gradient sums nothing: all elements may be its row.
        start = trailing(x.shape, axes) if dout is None or len(axes) < x.rank else 0
        # A sum in another type than the input's is not what a kernel computes in.
        odd = not x.dtype.is_float or (out_dtype is not None and out_dtype is not x.dtype)
        return None if start is None or odd else Rows({slot: text}, x.shape, start)

    return rows


# A type to add up in, with and without Paddle's `in_dtype`.
_CAST_CASES = (
    Case(((2, 3),), {"dim": (1,), "out_dtype": float64}),
    Case(((2, 3),), {"reduce_all": True, "in_dtype": float32, "out_dtype": float64}),
)


def _cost(x: Meta, out: Meta) -> Cost:
    """Counts one operation per element."""
    return Cost(float(x.numel), float(x.nbytes + out.nbytes))


register(OpDef(
    "reduce_sum", "X -> Out", lod="X", attrs=REDUCE_ATTRS, infer=_sum_infer, ref=_BY_DIM.ref(_sum_calls, _sum_scratch_metas),
    lower=_BY_DIM.lower(_lower("sum")), split=_BY_DIM.split(summed=True), cost=_cost,
    grad=_grad_op("reduce_sum", _BY_DIM, "dout"), rows=_rows("rsum(x)", "Out"), amp="black", uses_blas=True,
    domain=Domain(cases=(*CASES, *EMPTY_CASES, *_CAST_CASES, *LONG_CASES), others=("int32", "bool"), ulps=12.0),
    complex="linear", onnx=_onnx.over(_onnx.plain("Sum"), _BY_DIM),
))  # fmt: skip
register(OpDef(
    "reduce_mean", "X -> Out", lod="X", attrs=REDUCE_ATTRS, infer=_mean_infer,
    ref=_BY_DIM.ref(_mean_calls, _sum_scratch_metas), lower=_BY_DIM.lower(_lower("mean")), split=_BY_DIM.split(), cost=_cost,
    grad=_grad_op("reduce_mean", _BY_DIM, "dout / n"), rows=_rows("rsum(x) / n", "Out"), amp="black", uses_blas=True,
    domain=Domain(cases=(*CASES, *_CAST_CASES, *LONG_CASES), ulps=12.0),
    complex="linear", onnx=_onnx.over(_onnx.plain("Mean"), _BY_DIM),
))  # fmt: skip


def _mean_read(op: PaddleOp) -> OpSpec:
    """The result has one element in a list, as in Paddle 1.x, or no axis, as in 2.6: then the op of the same numbers does."""
    if op.shapes.get(op.result) == []:
        return op.made("reduce_mean", attrs={"reduce_all": True, "dim": (0,)})
    return op.made()


register(OpDef(
    "mean", "X -> Out", infer=lambda x: _mean_infer(x, _ALL), paddle=PaddleForm(_mean_read),
    ref=_ALL.ref(_mean_calls, _sum_scratch_metas),
    lower=_ALL.lower(_lower("mean")), cost=_cost, grad=_grad_op("mean", _ALL), amp="black", uses_blas=True,
    domain=Domain(cases=tuple(Case(c.shapes) for c in (*CASES, *LONG_CASES) if 0 not in c.shapes[0]), ulps=12.0),
    complex="linear", onnx=_onnx.over(_onnx.plain("Mean"), _ALL),
))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- product
def _prod_dtype(x: DType, out_dtype: DType | None) -> DType:
    """Returns the dtype of a product: int32 stays, unlike in a sum; smaller integers and truth values become int64."""
    return x if out_dtype is None and x is int32 else total_dtype(x, out_dtype)


def _prod_infer(x: Meta, out_dtype: DType | None, **attrs: Any) -> Meta:
    return Meta(_BY_DIM.shape(x.shape, attrs), _prod_dtype(x.dtype, out_dtype))


def _prod_scratch_metas(x: Meta, out: Meta, axes: Sequence[int]) -> tuple[Meta, ...]:
    return (x.with_dtype(out.dtype),) if _converts(x.dtype, out.dtype) else ()


def _prod_calls(x: Any, out: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
    target = out.reshape(reduced_shape(x.shape, axes), copy=False)
    if not _converts(dtype_of(x.dtype), dtype_of(out.dtype)):
        return [(np.multiply.reduce, (x, axes, out.dtype, target))]
    return [(np.copyto, (scratch[0], x, "unsafe")), (np.multiply.reduce, (scratch[0], axes, None, target))]


def _prod_grad_calls(x: Any, out: Any, dout: Any, dx: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
    return [(_prod_grad, (x, out, dout, dx, axes, *scratch))]


def _prod_grad_scratch_metas(x: Meta, out: Meta, dout: Meta, dx: Meta, axes: Sequence[int]) -> tuple[Meta, ...]:
    return Meta(x.shape, bool_), float_scratch(x, x.shape)


def _prod_grad(x: Any, out: Any, dout: Any, dx: Any, axes: tuple[int, ...], seen: Any, others: Any) -> None:
    """Multiplies the others for each factor, which is not ``out / x`` where a factor is 0."""
    if dx.size == 0:
        return
    wide = [spread(a, x.shape, axes) for a in (out, dout)]
    # 0 / 0 where a factor is 0; replaced below.
    np.true_divide(wide[0], x, dx)
    np.equal(x, 0, out=seen)
    if seen.any():
        # One zero: the product of the others is left. Two: every product holds one of them.
        zeros = np.add.reduce(seen, axes, np.int64, keepdims=True)
        np.copyto(others, x)
        np.copyto(others, 1, where=seen)
        product = np.multiply.reduce(others, axes, keepdims=True)
        np.copyto(dx, 0, where=zeros > 0)
        np.copyto(dx, product, where=seen & (zeros == 1))
    np.multiply(dx, wide[1], dx)


def _prod_lower(torch: Any, x: Any, axes: Sequence[int], attrs: Attrs) -> Any:
    out = x.to(getattr(torch, _prod_dtype(dtype_of(str(x.dtype)), attrs["out_dtype"]).name))
    kind, out = out.dtype, torch_wide(out)
    # torch's prod takes one axis.
    for axis in axes:
        out = out.prod(axis, keepdim=True, dtype=out.dtype)
    return out.to(kind)


def _prod_grad_lower(torch: Any, x: Any, out: Any, dout: Any, axes: Sequence[int], attrs: Attrs) -> Any:
    wide = torch_wide(x)
    zero = wide == 0
    zeros = zero.sum(tuple(axes), keepdim=True) if axes else zero
    factors = torch.where(zero, 1, wide)
    product = factors
    for axis in axes:
        product = product.prod(axis, keepdim=True)
    # One factor that is 0 has the product of the others as its gradient; beside it, and beside two, all have 0.
    others = torch.where(zeros == 0, out.to(wide.dtype) / factors, torch.where(zero & (zeros == 1), product, 0))
    return (others * dout.to(wide.dtype)).to(x.dtype)


def _prod_write(op: PaddleOp) -> list[OpSpec]:
    """Paddle converts the product, not its factors."""
    dtype = op.attrs["out_dtype"]
    casts, inputs = ([], op.inputs) if dtype is None else op.converted("X", dtype)
    return [*casts, op.made(inputs=inputs)]


register(OpDef(
    "reduce_prod", "X -> Out", lod="X", attrs=REDUCE_ATTRS, paddle=PaddleForm(write=_prod_write),
    infer=_prod_infer, ref=_BY_DIM.ref(_prod_calls, _prod_scratch_metas),
    lower=_BY_DIM.lower(_prod_lower), split=_BY_DIM.split(), cost=_cost,
    grad=GradOp(
        "X, Out, Out@GRAD -> X@GRAD", ref=_BY_DIM.ref(_prod_grad_calls, _prod_grad_scratch_metas),
        lower=_BY_DIM.grad_lower(_prod_grad_lower),
    ),
    amp="black",
    domain=Domain(
        cases=(*CASES, *EMPTY_CASES), values={"X": ValueRange(avoid=(0.0,))}, others=("int32", "bool"), ulps=24.0
    ),
    complex="holomorphic", onnx=_onnx.over(_onnx.plain("Prod"), _BY_DIM),
))  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- functions
def _to(x: Variable, dtype: Any, function: str) -> dict[str, Any]:
    """Returns the attributes that convert first."""
    return {} if dtype is None else {"in_dtype": check_variable(x, "x", function).dtype, "out_dtype": dtype_of(dtype)}


@export("tensor.sum", "Variable.sum", op="reduce_sum")
def sum(x: Variable, axis: Any = None, dtype: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the sum over axes.

    Args:
        x: Any shape; integers and truth values are added up in int64.
        axis: An int, a list of ints, or ``None`` for all axes.
        dtype: Convert to this dtype before adding up.
        keepdim: Keep reduced axes with size 1.
        name: Name of the layer.

    Returns:
        ``x`` without the axes; ``[]`` when all are reduced.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> total, rows = paddle.sum(x), paddle.sum(x, axis=1)
        >>> static.Executor().run(fetch_list=[total, rows])
        [array(10., dtype=float32), array([3., 7.], dtype=float32)]
    """
    return reduced("reduce_sum", "sum", x, axis, keepdim, name, **_to(x, dtype, "sum"))


@export("tensor.mean", "Variable.mean", op="reduce_mean")
def mean(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the mean of floats over axes (an int, a list of ints, or ``None`` for all, which gives ``[]``).

    Args:
        x: Floats of any shape.
        axis: An int, a list of ints, or ``None`` for all axes.
        keepdim: Keep reduced axes with size 1.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 6.0]])
        >>> static.Executor().run(fetch_list=[paddle.mean(x)])[0]
        array(3., dtype=float32)
        >>> static.Executor().run(fetch_list=[paddle.mean(x, axis=1, keepdim=True)])[0]
        array([[1.5],
               [4.5]], dtype=float32)
    """
    return reduced("reduce_mean", "mean", x, axis, keepdim, name)


@export("fluid.layers.reduce_sum", op="reduce_sum")
def reduce_sum(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns the sum over ``dim``; over all axes (``None``) it has shape ``[1]``.

    Args:
        input: Any shape; integers and bools are added up in int64.
        dim: An int or a list of ints; negative ones count from the end.
        keep_dim: Keep reduced axes with size 1.
        name: Name of the layer.

    Raises:
        ShapeError: If an axis is out of range.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.reduce_sum(x, dim=1, keep_dim=True)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[3.],
               [7.]], dtype=float32)
    """
    return fluid_reduced("reduce_sum", input, dim, keep_dim, name)


@export("fluid.layers.reduce_mean", op="reduce_mean")
def reduce_mean(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns the mean over ``dim``; over all axes (``None``) it has shape ``[1]``.

    Args:
        input: Floats of any shape.
        dim, keep_dim: As in :func:`reduce_sum`.
        name: Name of the layer.

    Raises:
        DTypeError: For integers.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 6.0]])
        >>> y = fluid.layers.reduce_mean(x, dim=0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([2., 4.], dtype=float32)
    """
    return fluid_reduced("reduce_mean", input, dim, keep_dim, name)


@export("fluid.layers.mean", op="mean")
def fluid_mean(x: Variable, name: str | None = None) -> Variable:
    """Returns the mean of all elements, of shape ``[1]``.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 6.0]])
        >>> y = fluid.layers.mean(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([3.], dtype=float32)
    """
    return emit_one("mean", {"X": check_variable(x, "x", "mean")}, name=name)


@export("tensor.prod", "Variable.prod", op="reduce_prod")
def prod(x: Variable, axis: Any = None, keepdim: bool = False, dtype: Any = None, name: str | None = None) -> Variable:
    """Returns the product over axes, converted to ``dtype`` first; see :func:`sum`. Of int32 it is an int32.

    Args:
        x: Any shape.
        axis: An int, a list of ints, or ``None`` for all axes.
        keepdim: Keep reduced axes with size 1.
        dtype: Convert to this dtype before multiplying.
        name: Name of the layer.
    """
    return reduced("reduce_prod", "reduce_prod", x, axis, keepdim, name, **_to(x, dtype, "prod"))


@export("fluid.layers.reduce_prod", op="reduce_prod")
def reduce_prod(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns the product over ``dim``; over all axes (``None``) it has shape ``[1]``.

    Args:
        input: Any shape; bools are multiplied in int64.
        dim, keep_dim: As in :func:`reduce_sum`.
        name: Name of the layer.
    """
    return fluid_reduced("reduce_prod", input, dim, keep_dim, name)
