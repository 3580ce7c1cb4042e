"""Norms: ``p_norm``, ``frobenius_norm``, ``squared_l2_norm``, and functions that divide by a norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.opdef import GRAD, Attr, Case, Domain, GradOp, OpDef, Tile, ValueRange, register
from tstatic.ir.ref import Calls
from tstatic.ir.types import Meta, bool_
from tstatic.ops._call_ref import CallRef, float_scratch
from tstatic.ops.elementwise._unary import infer_float
from tstatic.ops.reduce._reduce import check_not_empty, reduced_axes, reduced_shape, split_reduction, spread
from tstatic.ops.reduce._sum import dot_calls, dot_scratch, sum_calls, sum_scratch
from tstatic.ops.shape._shapes import view_of


# ------------------------------------------------------------------------------------------------------ frobenius_norm
def _frobenius_infer(x: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool) -> Meta:
    return infer_float(x).with_shape(reduced_shape(x.shape, reduced_axes(x.rank, dim, reduce_all), keep_dim))


def _frobenius_scratch_metas(
    ins: Sequence[Meta], outs: Sequence[Meta], *, dim: Sequence[int], reduce_all: bool
) -> tuple[Meta, ...]:
    x = ins[0]
    return float_scratch(x, x.shape), *sum_scratch(x, reduced_axes(x.rank, dim, reduce_all))


def _frobenius_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
) -> Calls:
    x, out = ins[0], outs[0]
    total = sum_calls(scratch[0], reduced_axes(x.ndim, dim, reduce_all), out, scratch[1:])
    return [(np.multiply, (x, x, scratch[0])), *total, (np.sqrt, (out, out))]


def _frobenius_grad_scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta]) -> tuple[Meta, ...]:
    return (float_scratch(ins[1], ins[1].shape),)


def _ratio(dout: Any, out: Any, result: Any) -> None:
    """``dout / out``, and 0 where the norm is 0: the subgradient of least length."""
    np.true_divide(dout, out, result)
    np.copyto(result, 0, where=out == 0)


def _frobenius_grad_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
) -> Calls:
    x, out, dout = ins
    if outs[0].size == 0:
        return []
    axes = reduced_axes(x.ndim, dim, reduce_all)
    return [(_ratio, (dout, out, scratch[0])), (np.multiply, (x, spread(scratch[0], x.shape, axes), outs[0]))]


def _norm_lower(torch: Any, x: Any, axes: Sequence[int], keepdim: bool, order: float) -> Any:
    wide = x.float() if x.itemsize == 2 else x
    if not axes:
        return (x != 0).to(x.dtype) if order == 0 else x.abs()
    return torch.linalg.vector_norm(wide, order, tuple(axes), keepdim=keepdim).to(x.dtype)


def _norm_grad_lower(torch: Any, x: Any, dout: Any, axes: Sequence[int], order: float) -> Any:
    wide = (x.float() if x.itemsize == 2 else x).detach().requires_grad_()
    with torch.enable_grad():
        out = _norm_lower(torch, wide, axes, True, order)
    if order == 0:
        return torch.zeros_like(x)
    return torch.autograd.grad(out, wide, dout.reshape(out.shape).to(out.dtype))[0].to(x.dtype)


def _frobenius_split(x: Meta, out: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool) -> list[Tile] | None:
    return split_reduction(x, out, reduced_axes(x.rank, dim, reduce_all), keep_dim)


_FROBENIUS = CallRef(_frobenius_calls, _frobenius_scratch_metas)
_FROBENIUS_GRAD = CallRef(_frobenius_grad_calls, _frobenius_grad_scratch_metas)

register(
    OpDef(
        "frobenius_norm",
        "X -> Out",
        attrs={"dim": Attr((0,), "ints"), "keep_dim": False, "reduce_all": False},
        infer=_frobenius_infer,
        ref=_FROBENIUS,
        lower=lambda torch, x, dim, keep_dim, reduce_all: _norm_lower(
            torch, x, reduced_axes(x.dim(), dim, reduce_all), keep_dim, 2.0
        ),
        split=_frobenius_split,
        grad=GradOp(
            f"X, Out, Out{GRAD} -> X{GRAD}",
            ref=_FROBENIUS_GRAD,
            lower=lambda torch, x, out, dout, dim, reduce_all: _norm_grad_lower(
                torch, x, dout, reduced_axes(x.dim(), dim, reduce_all), 2.0
            ),
        ),
        amp="black",
        uses_blas=True,
        domain=Domain(
            cases=(
                Case(((3, 4),), {"dim": (0, 1)}),
                Case(((2, 3, 4),), {"dim": (1, -1), "keep_dim": True}),
                Case(((2, 3, 4),), {"reduce_all": True}),
                Case(((2, 3, 4),), {"dim": (0, 2)}),
                Case(((1, 1),), {"dim": (0, 1)}),
                Case(((),), {"reduce_all": True}),
                Case(((0, 3),), {"dim": (0,)}),
                Case(((2, 700),), {"dim": (1,)}),
            ),
            values={"X": ValueRange(avoid=(0.0,))},
            ulps=12.0,
        ),
    )
)


# -------------------------------------------------------------------------------------------------------------- p_norm
def _p_axes(rank: int, axis: int, asvector: bool) -> tuple[int, ...]:
    return reduced_axes(rank, (axis,), asvector)


def _p_infer(x: Meta, porder: float, axis: int, keepdim: bool, asvector: bool) -> Meta:
    infer_float(x)
    axes = _p_axes(x.rank, axis, asvector)
    if porder < 0 or math.isinf(porder):
        check_not_empty(x, axes, f"norm of order {porder}")
    return x.with_shape(reduced_shape(x.shape, axes, keepdim))


def _p_scratch_metas(
    ins: Sequence[Meta], outs: Sequence[Meta], *, porder: float, axis: int, asvector: bool
) -> tuple[Meta, ...]:
    x = ins[0]
    return float_scratch(x, x.shape), *sum_scratch(x, _p_axes(x.rank, axis, asvector))


def _p_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, porder: float, axis: int, asvector: bool
) -> Calls:
    x, out = ins[0], outs[0]
    work = scratch[0]
    axes = _p_axes(x.ndim, axis, asvector)
    total = sum_calls(work, axes, out, scratch[1:])
    if porder == 0:
        return [(np.not_equal, (x, 0, work)), *total]
    if math.isinf(porder):
        extremum = np.maximum if porder > 0 else np.minimum
        return [
            (np.absolute, (x, work)),
            (extremum.reduce, (work, axes, None, out.reshape(reduced_shape(x.shape, axes)))),
        ]
    if porder == 2:
        return [(np.multiply, (x, x, work)), *total, (np.sqrt, (out, out))]
    if porder == 1:
        return [(np.absolute, (x, work)), *total]
    order, inverse = np.asarray(porder, x.dtype), np.asarray(1.0 / porder, x.dtype)
    return [(np.absolute, (x, work)), (np.power, (work, order, work)), *total, (np.power, (out, inverse, out))]


def _p_grad_scratch_metas(
    ins: Sequence[Meta], outs: Sequence[Meta], *, porder: float, axis: int, asvector: bool
) -> tuple[Meta, ...]:
    x, out, _ = ins
    return Meta(x.shape, bool_), float_scratch(x, out.shape), float_scratch(x, x.shape)


def _p_grad_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, porder: float, axis: int, asvector: bool
) -> Calls:
    if outs[0].size == 0:
        return []
    if porder == 0:
        return [(np.copyto, (outs[0], 0))]
    return [(_p_grad, (*ins, outs[0], porder, _p_axes(ins[0].ndim, axis, asvector), *scratch))]


def _p_grad(
    x: Any, out: Any, dout: Any, dx: Any, order: float, axes: tuple[int, ...], mask: Any, share: Any, work: Any
) -> None:
    """``sign(x) * (abs(x) / out) ** (order - 1) * dout``; 0 where the norm is 0; equal extrema share the gradient."""
    wide, seed = spread(out, x.shape, axes), spread(share, x.shape, axes)
    np.sign(x, dx)
    if math.isinf(order):
        np.absolute(x, work)
        np.equal(work, wide, out=mask)
        count = np.add.reduce(mask, axes, np.int64, keepdims=True)
        np.copyto(seed, spread(dout, x.shape, axes))
        np.true_divide(seed, np.maximum(count, 1), out=seed, casting="unsafe")
        np.multiply(dx, seed, dx)
        np.copyto(dx, 0, where=~mask)
        return
    if order == 2:
        _ratio(dout, out, share)
        np.multiply(x, seed, dx)
        return
    if order == 1:
        np.multiply(dx, spread(dout, x.shape, axes), dx)
        return
    np.absolute(x, work)
    np.true_divide(work, wide, work)
    np.power(work, np.asarray(order - 1, x.dtype), work)
    np.multiply(work, dx, dx)
    np.multiply(dx, spread(dout, x.shape, axes), dx)
    np.equal(x, 0, out=mask)
    np.copyto(dx, 0, where=mask)
    np.copyto(dx, 0, where=np.broadcast_to(wide == 0, x.shape))


def _p_split(x: Meta, out: Meta, axis: int, keepdim: bool, asvector: bool) -> list[Tile] | None:
    return split_reduction(x, out, _p_axes(x.rank, axis, asvector), keepdim)


_P_NORM = CallRef(_p_calls, _p_scratch_metas)
_P_NORM_GRAD = CallRef(_p_grad_calls, _p_grad_scratch_metas)

register(
    OpDef(
        "p_norm",
        "X -> Out",
        attrs={
            "porder": 2.0,
            "axis": -1,
            "epsilon": Attr.idle(1e-12, "a norm of 0 has the gradient 0, so that nothing is divided by 0"),
            "keepdim": False,
            "asvector": False,
        },
        infer=_p_infer,
        ref=_P_NORM,
        lower=lambda torch, x, porder, axis, keepdim, asvector: _norm_lower(
            torch, x, _p_axes(x.dim(), axis, asvector), keepdim, porder
        ),
        split=_p_split,
        grad=GradOp(
            f"X, Out, Out{GRAD} -> X{GRAD}",
            ref=_P_NORM_GRAD,
            lower=lambda torch, x, out, dout, porder, axis, asvector: _norm_grad_lower(
                torch, x, dout, _p_axes(x.dim(), axis, asvector), porder
            ),
        ),
        amp="black",
        uses_blas=True,
        domain=Domain(
            cases=(
                Case(((3, 4),)),
                Case(((3, 4),), {"porder": 1.0, "axis": 0}),
                Case(((2, 3, 4),), {"porder": 3.0, "axis": 1, "keepdim": True}),
                Case(((2, 3, 4),), {"porder": math.inf, "axis": 1}),
                Case(((2, 3, 4),), {"porder": -math.inf, "axis": -1}),
                Case(((2, 3, 4),), {"porder": 0.5, "asvector": True}),
                Case(((2, 3, 4),), {"porder": 0.0, "axis": 2}),
                Case(((2, 3, 4),), {"porder": math.inf, "asvector": True, "keepdim": True}),
                Case(((5,),), {"porder": 2.5}),
                Case(((1, 1),), {"porder": 4.0}),
                Case(((3, 0),), {"porder": 2.0}),
                Case(((0, 3),), {"porder": 3.0, "axis": 1}),
                Case(((2, 700),), {"porder": 2.0}),
            ),
            # Of one sign, so that no two magnitudes tie.
            values={"X": ValueRange(0.1, 3.0, distinct=True)},
            ulps=24.0,
        ),
    )
)


# ----------------------------------------------------------------------------------------------------- squared_l2_norm
def _squared_infer(x: Meta) -> Meta:
    return infer_float(x).with_shape((1,))


def _flat_meta(x: Meta) -> Meta:
    return x.with_shape((x.numel,))


def _squared_scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta]) -> tuple[Meta, ...]:
    return dot_scratch(_flat_meta(ins[0]))


def _squared_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
    x, out = ins[0], outs[0]
    flat, total = view_of(x, (x.size,)), out.reshape(())
    return [(_squared_copy, (x, total, scratch))] if flat is None else dot_calls(flat, flat, total, scratch)


def _squared_copy(x: Any, out: Any, scratch: Sequence[Any]) -> None:
    """For strides that cannot be walked in one run."""
    flat = np.array(x, order="C").reshape(-1)
    for function, args in dot_calls(flat, flat, out, scratch):
        function(*args)


def _squared_grad_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
    x, dout = ins
    dx = outs[0]
    return [(np.multiply, (dout.reshape(()), np.asarray(2, dx.dtype), scratch[0])), (np.multiply, (x, scratch[0], dx))]


_SQUARED = CallRef(_squared_calls, _squared_scratch_metas)
_SQUARED_GRAD = CallRef(_squared_grad_calls, lambda ins, outs: (float_scratch(ins[0], ()),))

register(
    OpDef(
        "squared_l2_norm",
        "X -> Out",
        infer=_squared_infer,
        ref=_SQUARED,
        lower=lambda torch, x: (x.float() if x.itemsize == 2 else x).square().sum().reshape(1).to(x.dtype),
        grad=GradOp(
            f"X, Out{GRAD} -> X{GRAD}",
            ref=_SQUARED_GRAD,
            lower=lambda torch, x, dout: 2 * dout.reshape(()) * x,
        ),
        uses_blas=True,
        domain=Domain("unary", cases=(Case(((1300,),)), Case(((40, 40),))), ulps=16.0),
    )
)
