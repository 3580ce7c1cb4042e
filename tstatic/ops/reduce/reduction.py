"""Sums and means over axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import DTypeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import GRAD, Case, Cost, Domain, GradContext, GradOp, OpDef, OpSpec, Tile, export, register
from tstatic.ir.pointwise import Rows, trailing
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import DType, Meta, dtype_of, float32, float64, int64
from tstatic.ops._call_ref import CallRef
from tstatic.ops.reduce._reduce import (
    CASES,
    EMPTY_CASES,
    LONG_CASES,
    REDUCE_ATTRS,
    count_of,
    fluid_reduction,
    reduced_axes,
    reduced_shape,
    reduction,
    split_reduction,
    split_spread,
    spread,
)
from tstatic.ops.reduce._sum import sum_calls, sum_scratch
from tstatic.ops.shape._shapes import emit_one

Attrs = Mapping[str, Any]


# ----------------------------------------------------------------------------------------------------------------- sum
def total_dtype(x: DType, out_dtype: DType | None) -> DType:
    """Integers and truth values are added up in int64 unless something else is asked for."""
    if out_dtype is not None:
        return out_dtype
    return x if x.is_float else int64


def total_infer(
    x: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool, out_dtype: DType | None, one_d: bool
) -> Meta:
    """``infer`` of a sum or product."""
    axes = reduced_axes(x.rank, dim, reduce_all)
    return Meta(reduced_shape(x.shape, axes, keep_dim, one_d), total_dtype(x.dtype, out_dtype))


def _mean_infer(
    x: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool, out_dtype: DType | None, one_d: bool
) -> Meta:
    out = out_dtype or x.dtype
    if not x.dtype.is_float or not out.is_float:
        raise DTypeError(
            "a mean is taken of floats only",
            expected="float16, bfloat16, float32 or float64",
            received=x.dtype.name if not x.dtype.is_float else f"out_dtype {out.name}",
            fix="convert the input with paddle.cast(x, 'float32')",
        )
    return Meta(reduced_shape(x.shape, reduced_axes(x.rank, dim, reduce_all), keep_dim, one_d), out)


def converts(x: DType, out: DType) -> bool:
    """Whether elements are converted before they are added up (``add.reduce`` widens integers by itself)."""
    return x is not out and (x.is_float or out.is_float or out.name == "bool")


def _sum_scratch_metas(
    ins: Sequence[Meta], outs: Sequence[Meta], *, dim: Sequence[int], reduce_all: bool
) -> tuple[Meta, ...]:
    x, out = ins[0], outs[0]
    axes = reduced_axes(x.rank, dim, reduce_all)
    if not converts(x.dtype, out.dtype):
        return sum_scratch(x, axes)
    converted = x.with_dtype(out.dtype)
    return converted, *sum_scratch(converted, axes)


def _sum_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
) -> Calls:
    x, out = ins[0], outs[0]
    axes = reduced_axes(x.ndim, dim, reduce_all)
    if not converts(dtype_of(x.dtype), dtype_of(out.dtype)):
        return sum_calls(x, axes, out, scratch)
    return [(np.copyto, (scratch[0], x, "unsafe")), *sum_calls(scratch[0], axes, out, scratch[1:])]


def _mean_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
) -> Calls:
    x, out = ins[0], outs[0]
    count = count_of(x.shape, reduced_axes(x.ndim, dim, reduce_all))
    total = _sum_calls(ins, outs, scratch, dim=dim, reduce_all=reduce_all)
    return [*total, (np.true_divide, (out, np.asarray(count, out.dtype), out))]


def _sum_lower(
    torch: Any, x: Any, dim: Any, keep_dim: bool, reduce_all: bool, out_dtype: DType | None, one_d: bool
) -> Any:
    axes = reduced_axes(x.dim(), dim, reduce_all)
    dtype = getattr(torch, out_dtype.name) if out_dtype is not None else None
    out = torch.sum(x, axes, keepdim=keep_dim, dtype=dtype) if axes else torch.sum(x, dtype=dtype)
    return out.reshape(1) if one_d and not out.dim() else out


def _mean_lower(
    torch: Any, x: Any, dim: Any, keep_dim: bool, reduce_all: bool, out_dtype: DType | None, one_d: bool
) -> Any:
    axes = reduced_axes(x.dim(), dim, reduce_all)
    dtype = getattr(torch, out_dtype.name) if out_dtype is not None else None
    out = torch.mean(x, axes, keepdim=keep_dim, dtype=dtype) if axes else torch.mean(x, dtype=dtype)
    return out.reshape(1) if one_d and not out.dim() else out


def _sum_split(x: Meta, out: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool) -> list[Tile] | None:
    return split_reduction(x, out, reduced_axes(x.rank, dim, reduce_all), keep_dim, summed=True)


def kept_split(x: Meta, out: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool) -> list[Tile] | None:
    """Tiles along axes that are kept."""
    return split_reduction(x, out, reduced_axes(x.rank, dim, reduce_all), keep_dim)


# ----------------------------------------------------------------------------------------------------------- gradients
def _spread_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
) -> Calls:
    dout, dx = ins[1], outs[0]
    if dx.size == 0:
        return []
    axes = reduced_axes(dx.ndim, dim, reduce_all)
    return [(np.copyto, (dx, spread(dout, dx.shape, axes), "unsafe"))]


def _mean_grad_scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta]) -> tuple[Meta, ...]:
    return (ins[1].with_dtype(ins[1].dtype.compute),)


def _mean_grad_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
) -> Calls:
    x, dout = ins
    share = scratch[0]
    count = count_of(x.shape, reduced_axes(x.ndim, dim, reduce_all))
    return [
        # The few values of dout are divided, not the many of dx.
        (np.copyto, (share, dout)),
        (np.true_divide, (share, np.asarray(count, share.dtype), share)),
        *_spread_calls((x, share), outs, (), dim=dim, reduce_all=reduce_all),
    ]


def _spread_lower(torch: Any, x: Any, dout: Any, dim: Any, reduce_all: bool) -> Any:
    axes = reduced_axes(x.dim(), dim, reduce_all)
    shape = [1 if i in axes else s for i, s in enumerate(x.shape)]
    return dout.reshape(shape).expand(x.shape).to(x.dtype)


def _mean_grad_lower(torch: Any, x: Any, dout: Any, dim: Any, reduce_all: bool) -> Any:
    return _spread_lower(torch, x, dout / count_of(x.shape, reduced_axes(x.dim(), dim, reduce_all)), dim, reduce_all)


def _grad_split(
    x: Meta, dout: Meta, dx: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool
) -> list[Tile] | None:
    return split_spread(x, dout, dx, reduced_axes(x.rank, dim, reduce_all), keep_dim)


def _again(type: str) -> Any:
    """The gradient of a spread is the reduction itself."""

    def rule(ctx: GradContext) -> list[OpSpec]:
        dout = ctx.inputs["Out" + GRAD][0]
        arriving = ctx.out_grads.get(ctx.outputs["X" + GRAD][0])
        if arriving is None or dout not in ctx.in_grads:
            return []
        attrs = {**ctx.attrs, "out_dtype": ctx.meta(dout).dtype}
        return [OpSpec(type, {"X": [arriving]}, {"Out": [ctx.in_grads[dout]]}, attrs)]

    return rule


def _rows(text: str, slot: str) -> Callable[..., Rows | None]:
    """A reduction of floats along rows, or its gradient, where the reduced axes are the last ones."""

    def rows(
        x: Meta, dout: Meta | None = None, *, dim: Sequence[int], reduce_all: bool, out_dtype: DType | None
    ) -> Rows | None:
        axes = reduced_axes(x.rank, dim, reduce_all)
        # A gradient sums nothing: all elements may be its row.
        start = trailing(x.shape, axes) if dout is None or len(axes) < x.rank else 0
        # A sum in another type than the input's is not what a kernel computes in.
        odd = not x.dtype.is_float or (out_dtype is not None and out_dtype is not x.dtype)
        return None if start is None or odd else Rows({slot: text}, x.shape, start)

    return rows


_SUM = CallRef(_sum_calls, _sum_scratch_metas)
_MEAN = CallRef(_mean_calls, _sum_scratch_metas)
_SUM_GRAD = CallRef(_spread_calls, unread=(0,), widen=False)
_MEAN_GRAD = CallRef(_mean_grad_calls, _mean_grad_scratch_metas, unread=(0,), widen=False)
_CAST_CASES = (
    Case(((2, 3),), {"dim": (1,), "out_dtype": float64}),
    Case(((2, 3),), {"reduce_all": True, "in_dtype": float32, "out_dtype": float64}),
)


def reduce_cost(x: Meta, out: Meta) -> Cost:
    """One operation per element."""
    return Cost(float(x.numel), float(x.nbytes + out.nbytes))


register(
    OpDef(
        "reduce_sum",
        "X -> Out",
        attrs=REDUCE_ATTRS,
        infer=total_infer,
        ref=_SUM,
        lower=_sum_lower,
        split=_sum_split,
        cost=reduce_cost,
        grad=GradOp(
            f"X, Out{GRAD} -> X{GRAD}",
            ref=_SUM_GRAD,
            lower=_spread_lower,
            split=_grad_split,
            shape_only=("X",),
            grad=_again("reduce_sum"),
            rows=_rows("dout", f"X{GRAD}"),
        ),
        rows=_rows("rsum(x)", "Out"),
        amp="black",
        uses_blas=True,
        domain=Domain(cases=(*CASES, *EMPTY_CASES, *_CAST_CASES, *LONG_CASES), others=("int32", "bool"), ulps=12.0),
    )
)

register(
    OpDef(
        "reduce_mean",
        "X -> Out",
        attrs=REDUCE_ATTRS,
        infer=_mean_infer,
        ref=_MEAN,
        lower=_mean_lower,
        split=kept_split,
        cost=reduce_cost,
        grad=GradOp(
            f"X, Out{GRAD} -> X{GRAD}",
            ref=_MEAN_GRAD,
            lower=_mean_grad_lower,
            split=_grad_split,
            shape_only=("X",),
            grad=_again("reduce_mean"),
            rows=_rows("dout / n", f"X{GRAD}"),
        ),
        rows=_rows("rsum(x) / n", "Out"),
        amp="black",
        uses_blas=True,
        domain=Domain(cases=(*CASES, *_CAST_CASES, *LONG_CASES), ulps=12.0),
    )
)


# ---------------------------------------------------------------------------------------------------------------- mean
def _mean_op_infer(x: Meta) -> Meta:
    return _mean_infer(x, (), False, True, None, True)


def _mean_op_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
    return _mean_calls(ins, outs, scratch, dim=(), reduce_all=True)


def _mean_op_scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta]) -> tuple[Meta, ...]:
    return _sum_scratch_metas(ins, outs, dim=(), reduce_all=True)


def _mean_op_grad_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
    return _mean_grad_calls(ins, outs, scratch, dim=(), reduce_all=True)


def _mean_op_again(ctx: GradContext) -> list[OpSpec]:
    dout = ctx.inputs["Out" + GRAD][0]
    arriving = ctx.out_grads.get(ctx.outputs["X" + GRAD][0])
    if arriving is None or dout not in ctx.in_grads:
        return []
    return [OpSpec("mean", {"X": [arriving]}, {"Out": [ctx.in_grads[dout]]})]


_MEAN_OP = CallRef(_mean_op_calls, _mean_op_scratch_metas)
_MEAN_OP_GRAD = CallRef(_mean_op_grad_calls, _mean_grad_scratch_metas, unread=(0,), widen=False)

register(
    OpDef(
        "mean",
        "X -> Out",
        infer=_mean_op_infer,
        ref=_MEAN_OP,
        lower=lambda torch, x: torch.mean(x).reshape(1),
        cost=reduce_cost,
        grad=GradOp(
            f"X, Out{GRAD} -> X{GRAD}",
            ref=_MEAN_OP_GRAD,
            lower=lambda torch, x, dout: _mean_grad_lower(torch, x, dout, (), True),
            split=lambda x, dout, dx: split_spread(x, dout, dx, range(x.rank), False),
            shape_only=("X",),
            grad=_mean_op_again,
        ),
        amp="black",
        uses_blas=True,
        domain=Domain(cases=tuple(Case(c.shapes) for c in (*CASES, *LONG_CASES) if 0 not in c.shapes[0]), ulps=12.0),
    )
)


# ----------------------------------------------------------------------------------------------------------- functions
_sum = reduction("reduce_sum", "sum")
_mean = reduction("reduce_mean", "mean")
_fluid_sum = fluid_reduction("reduce_sum")
_fluid_mean = fluid_reduction("reduce_mean")


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
    attrs = {} if dtype is None else {"in_dtype": check_variable(x, "x", "sum").dtype, "out_dtype": dtype_of(dtype)}
    return _sum(x, axis, keepdim, name, **attrs)


@export("tensor.mean", "Variable.mean", op="reduce_mean")
def mean(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the mean of floats over axes (an int, a list of ints, or ``None`` for all, which gives ``[]``).

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 6.0]])
        >>> static.Executor().run(fetch_list=[paddle.mean(x)])[0]
        array(3., dtype=float32)
        >>> static.Executor().run(fetch_list=[paddle.mean(x, axis=1, keepdim=True)])[0]
        array([[1.5],
               [4.5]], dtype=float32)
    """
    return _mean(x, axis, keepdim, name)


@export("fluid.layers.reduce_sum", op="reduce_sum")
def reduce_sum(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns the sum over ``dim``; over all axes (``None``) it has shape ``[1]``.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.reduce_sum(x, dim=1, keep_dim=True)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[3.],
               [7.]], dtype=float32)
    """
    return _fluid_sum(input, dim, keep_dim, name)


@export("fluid.layers.reduce_mean", op="reduce_mean")
def reduce_mean(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns the mean over ``dim``; over all axes (``None``) it has shape ``[1]``.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 6.0]])
        >>> y = fluid.layers.reduce_mean(x, dim=0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([2., 4.], dtype=float32)
    """
    return _fluid_mean(input, dim, keep_dim, name)


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
