"""``logsumexp``: the logarithm of a sum of exponentials, without overflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.opdef import GRAD, Attr, Case, Domain, GradOp, OpDef, Tile, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import Meta
from tstatic.ops._call_ref import CallRef, float_scratch
from tstatic.ops.elementwise._unary import infer_float
from tstatic.ops.reduce._reduce import axis_attr, check_not_empty, reduced_axes, reduced_shape, split_reduction, spread
from tstatic.ops.reduce._sum import sum_calls, sum_scratch
from tstatic.ops.shape._shapes import emit_one


def _infer(x: Meta, axis: Sequence[int], keepdim: bool, reduce_all: bool) -> Meta:
    infer_float(x)
    axes = reduced_axes(x.rank, axis, reduce_all)
    check_not_empty(x, axes, "logsumexp")
    return x.with_shape(reduced_shape(x.shape, axes, keepdim))


def _scratch_metas(
    ins: Sequence[Meta], outs: Sequence[Meta], *, axis: Sequence[int], reduce_all: bool
) -> tuple[Meta, ...]:
    x = ins[0]
    axes = reduced_axes(x.rank, axis, reduce_all)
    return float_scratch(x, x.shape), float_scratch(x, outs[0].shape), *sum_scratch(x, axes)


def _drop_infinities(peak: Any) -> None:
    """An infinite maximum is not subtracted: the exponentials then are 0, infinite or NaN, as the sum is."""
    np.copyto(peak, 0, where=~np.isfinite(peak))


def _calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, axis: Sequence[int], reduce_all: bool
) -> Calls:
    x, out = ins[0], outs[0]
    axes = reduced_axes(x.ndim, axis, reduce_all)
    powers, peak = scratch[0], scratch[1]
    return [
        (np.maximum.reduce, (x, axes, None, peak.reshape(reduced_shape(x.shape, axes)))),
        (_drop_infinities, (peak,)),
        (np.subtract, (x, spread(peak, x.shape, axes), powers)),
        (np.exp, (powers, powers)),
        *sum_calls(powers, axes, out, scratch[2:]),
        (np.log, (out, out)),
        (np.add, (out, peak, out)),
    ]


def _grad_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, axis: Sequence[int], reduce_all: bool
) -> Calls:
    x, out, dout = ins
    dx = outs[0]
    if dx.size == 0:
        return []
    axes = reduced_axes(x.ndim, axis, reduce_all)
    return [
        (np.subtract, (x, spread(out, x.shape, axes), dx)),
        (np.exp, (dx, dx)),
        (np.multiply, (dx, spread(dout, x.shape, axes), dx)),
    ]


def _lower(torch: Any, x: Any, axis: Sequence[int], keepdim: bool, reduce_all: bool) -> Any:
    axes = reduced_axes(x.dim(), axis, reduce_all)
    return torch.logsumexp(x, axes, keepdim=keepdim) if axes else x.clone()


def _grad_lower(torch: Any, x: Any, out: Any, dout: Any, axis: Sequence[int], reduce_all: bool) -> Any:
    axes = reduced_axes(x.dim(), axis, reduce_all)
    shape = [1 if i in axes else s for i, s in enumerate(x.shape)]
    wide = [v.float() if v.itemsize == 2 else v for v in (x, out, dout)]
    return ((wide[0] - wide[1].reshape(shape)).exp() * wide[2].reshape(shape)).to(x.dtype)


def _split(x: Meta, out: Meta, axis: Sequence[int], keepdim: bool, reduce_all: bool) -> list[Tile] | None:
    return split_reduction(x, out, reduced_axes(x.rank, axis, reduce_all), keepdim)


_REF = CallRef(_calls, _scratch_metas)
_GRAD = CallRef(_grad_calls)

register(
    OpDef(
        "logsumexp",
        "X -> Out",
        attrs={"axis": Attr((0,), "ints"), "keepdim": False, "reduce_all": False},
        infer=_infer,
        ref=_REF,
        lower=_lower,
        split=_split,
        grad=GradOp(f"X, Out, Out{GRAD} -> X{GRAD}", ref=_GRAD, lower=_grad_lower),
        amp="black",
        uses_blas=True,
        domain=Domain(
            cases=(
                Case(((3, 4),)),
                Case(((3, 4),), {"axis": (-1,), "keepdim": True}),
                Case(((2, 3, 4),), {"axis": (0, 2)}),
                Case(((2, 3, 4),), {"reduce_all": True}),
                Case(((2, 3, 4),), {"axis": (1,)}),
                Case(((),), {"reduce_all": True}),
                Case(((5,),)),
                Case(((1, 1),), {"axis": (1,)}),
                Case(((3, 0),)),
                Case(((2, 600),), {"axis": (1,)}),
            ),
            ulps=16.0,
        ),
    )
)


@export("tensor.logsumexp", "Variable.logsumexp", op="logsumexp")
def logsumexp(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns ``log(sum(exp(x)))`` over axes.

    Args:
        x: Floats of any shape.
        axis: An int, a list of ints, or ``None`` for all axes.
        keepdim: Keep reduced axes with size 1.
        name: Name of the layer.

    Returns:
        ``x`` without the axes; ``[]`` when all are reduced.
    """
    axes = axis_attr(axis, "logsumexp")
    attrs = {"axis": axes or (0,), "keepdim": keepdim, "reduce_all": not axes}
    return emit_one("logsumexp", {"X": check_variable(x, "x", "logsumexp")}, attrs, name=name)
