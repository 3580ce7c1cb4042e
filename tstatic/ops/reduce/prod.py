"""Products over axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.opdef import GRAD, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import DType, Meta, bool_, dtype_of, int32
from tstatic.ops._call_ref import CallRef, float_scratch
from tstatic.ops.reduce._reduce import (
    CASES,
    EMPTY_CASES,
    REDUCE_ATTRS,
    fluid_reduction,
    reduced_axes,
    reduced_shape,
    reduction,
    spread,
)
from tstatic.ops.reduce.reduction import converts, kept_split, reduce_cost, total_dtype, total_infer


def _dtype(x: DType, out_dtype: DType | None) -> DType:
    """int32 stays what it is, unlike in a sum; smaller integers and truth values become int64."""
    return x if out_dtype is None and x is int32 else total_dtype(x, out_dtype)


def _infer(x: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool, out_dtype: DType | None, one_d: bool) -> Meta:
    return total_infer(x, dim, keep_dim, reduce_all, _dtype(x.dtype, out_dtype), one_d)


def _prod_scratch_metas(
    ins: Sequence[Meta], outs: Sequence[Meta], *, dim: Sequence[int], reduce_all: bool
) -> tuple[Meta, ...]:
    return (ins[0].with_dtype(outs[0].dtype),) if converts(ins[0].dtype, outs[0].dtype) else ()


def _prod_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
) -> Calls:
    x, out = ins[0], outs[0]
    axes = reduced_axes(x.ndim, dim, reduce_all)
    target = out.reshape(reduced_shape(x.shape, axes), copy=False)
    if not converts(dtype_of(x.dtype), dtype_of(out.dtype)):
        return [(np.multiply.reduce, (x, axes, out.dtype, target))]
    return [(np.copyto, (scratch[0], x, "unsafe")), (np.multiply.reduce, (scratch[0], axes, None, target))]


def _prod_grad_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
) -> Calls:
    return [(_prod_grad, (*ins, outs[0], reduced_axes(ins[0].ndim, dim, reduce_all), *scratch))]


def _prod_grad(x: Any, out: Any, dout: Any, dx: Any, axes: tuple[int, ...], seen: Any, others: Any) -> None:
    """Each factor's gradient is the product of the others, which is not ``out / x`` where a factor is 0."""
    if dx.size == 0:
        return
    wide = [spread(a, x.shape, axes) for a in (out, dout)]
    np.true_divide(wide[0], x, dx)
    np.equal(x, 0, out=seen)
    if seen.any():
        zeros = np.add.reduce(seen, axes, np.int64, keepdims=True)
        np.copyto(others, x)
        np.copyto(others, 1, where=seen)
        product = np.multiply.reduce(others, axes, keepdims=True)
        np.copyto(dx, 0, where=zeros > 0)
        np.copyto(dx, product, where=seen & (zeros == 1))
    np.multiply(dx, wide[1], dx)


def _prod_lower(
    torch: Any, x: Any, dim: Any, keep_dim: bool, reduce_all: bool, out_dtype: DType | None, one_d: bool
) -> Any:
    axes = reduced_axes(x.dim(), dim, reduce_all)
    out = x.to(getattr(torch, _dtype(dtype_of(str(x.dtype)), out_dtype).name))
    low = out.dtype if out.dtype.is_floating_point and out.itemsize == 2 else None
    out = out.float() if low is not None else out
    for axis in axes:
        out = out.prod(axis, keepdim=True, dtype=out.dtype)
    out = out.reshape(reduced_shape(tuple(x.shape), axes, keep_dim, one_d))
    return out if low is None else out.to(low)


def _prod_grad_lower(torch: Any, x: Any, out: Any, dout: Any, dim: Any, reduce_all: bool) -> Any:
    axes = reduced_axes(x.dim(), dim, reduce_all)
    wide = (x.float() if x.itemsize == 2 else x).detach().requires_grad_()
    with torch.enable_grad():
        product = wide
        for axis in axes:
            product = product.prod(axis, keepdim=True)
    seeds = dout.reshape(product.shape).to(product.dtype)
    if not axes:
        return dout.reshape(x.shape)
    return torch.autograd.grad(product, wide, seeds)[0].to(x.dtype)


_PROD = CallRef(_prod_calls, _prod_scratch_metas)
_PROD_GRAD = CallRef(
    _prod_grad_calls, lambda ins, outs: (Meta(ins[0].shape, bool_), float_scratch(ins[0], ins[0].shape))
)

register(
    OpDef(
        "reduce_prod",
        "X -> Out",
        attrs=REDUCE_ATTRS,
        infer=_infer,
        ref=_PROD,
        lower=_prod_lower,
        split=kept_split,
        cost=reduce_cost,
        grad=GradOp(
            f"X, Out, Out{GRAD} -> X{GRAD}",
            ref=_PROD_GRAD,
            lower=_prod_grad_lower,
        ),
        amp="black",
        domain=Domain(
            cases=(*CASES, *EMPTY_CASES), values={"X": ValueRange(avoid=(0.0,))}, others=("int32", "bool"), ulps=24.0
        ),
    )
)


# ----------------------------------------------------------------------------------------------------------- functions
_prod = reduction("reduce_prod", "reduce_prod")
_fluid_prod = fluid_reduction("reduce_prod")


@export("tensor.prod", "Variable.prod", op="reduce_prod")
def prod(x: Variable, axis: Any = None, keepdim: bool = False, dtype: Any = None, name: str | None = None) -> Variable:
    """Returns the product over axes, converted to ``dtype`` first; see :func:`sum`. Of int32 it is an int32."""
    attrs = {} if dtype is None else {"in_dtype": check_variable(x, "x", "prod").dtype, "out_dtype": dtype_of(dtype)}
    return _prod(x, axis, keepdim, name, **attrs)


@export("fluid.layers.reduce_prod", op="reduce_prod")
def reduce_prod(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns the product over ``dim``; over all axes (``None``) it has shape ``[1]``."""
    return _fluid_prod(input, dim, keep_dim, name)
