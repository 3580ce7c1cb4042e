"""Largest and smallest elements over axes, whether all or any are true, and the logarithm of a sum of exponentials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.shape_checks import check_elements
from tstatic.ir.types import Meta, bool_, int64
from tstatic.ops.base.call_ref import float_scratch
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.one_input import infer_float
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sum import sum_calls, sum_scratch
from tstatic.ops.reduce import _reduce_onnx as _onnx
from tstatic.ops.reduce._reduce import (
    CASES,
    CHOICE_ATTRS,
    EMPTY_CASES,
    Over,
    axis_attr,
    fluid_reduced,
    reduced,
    reduced_shape,
    spread,
)

_BY_DIM = Over()
_BY_AXIS = Over("axis", "keepdim")


# ------------------------------------------------------------------------------------------------------------- extrema
def _at_least_one(count: Any) -> None:
    # An element that is NaN equals nothing, so a count may be 0.
    np.maximum(count, 1, out=count)


def _write_axes(op: PaddleOp) -> list[OpSpec]:
    """Paddle's kernel looks at the list of axes alone, which is empty for all."""
    return [op.made(attrs={**op.attrs, "dim": ()} if op.attrs["reduce_all"] else op.attrs)]


def _choice_op(type: str, word: str, function: str, share: bool) -> None:
    """Registers an op that picks the largest or smallest element; with ``share``, equal ones divide the gradient."""

    def infer(x: Meta, **attrs: Any) -> Meta:
        # There is no largest of no elements.
        check_elements(x, _BY_DIM.axes(x.rank, attrs), f"the {word}")
        return x.with_shape(_BY_DIM.shape(x.shape, attrs))

    def calls(x: Any, out: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
        return [(getattr(np, word).reduce, (x, axes, None, out.reshape(reduced_shape(x.shape, axes), copy=False)))]

    def grad_scratch_metas(x: Meta, out: Meta, dout: Meta, dx: Meta, axes: Sequence[int]) -> tuple[Meta, ...]:
        count = (Meta(out.shape, int64),) if share else ()
        return Meta(x.shape, bool_), float_scratch(x, out.shape), *count

    def grad_calls(x: Any, out: Any, dout: Any, dx: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
        """Gives every element that equals the result the gradient, or its share of it."""
        if dx.size == 0:
            return []
        equal, part = scratch[0], spread(scratch[1], x.shape, axes)
        done: Calls = [
            (np.equal, (x, spread(out, x.shape, axes), equal)),
            (np.copyto, (part, spread(dout, x.shape, axes))),
        ]
        if share:
            count = spread(scratch[2], x.shape, axes)
            # NOTE: the fifth argument is ``keepdims``; an element that is NaN equals nothing, so the count may be 0.
            done += [(np.add.reduce, (equal, axes, None, count, True)), (_at_least_one, (count,))]
            done += [(np.true_divide, (part, count, part))]
        return [*done, (np.copyto, (dx, 0)), (np.copyto, (dx, part, "unsafe", equal))]

    def lower(torch: Any, x: Any, axes: Sequence[int], attrs: Any) -> Any:
        return getattr(torch, function)(x, axes) if axes else x.clone()

    def grad_lower(torch: Any, x: Any, out: Any, dout: Any, axes: Sequence[int], attrs: Any) -> Any:
        equal = x == out
        if share:
            dout = dout / (equal.sum(axes, keepdim=True) if axes else equal.long()).clamp(min=1)
        return torch.where(equal, dout, torch.zeros((), dtype=dout.dtype, device=dout.device))

    register(OpDef(
        type, "X -> Out", lod="X", attrs=CHOICE_ATTRS, infer=infer, ref=_BY_DIM.ref(calls), lower=_BY_DIM.lower(lower),
        split=_BY_DIM.split(),
        grad=GradOp(
            "X, Out, Out@GRAD -> X@GRAD", ref=_BY_DIM.ref(grad_calls, grad_scratch_metas),
            lower=_BY_DIM.grad_lower(grad_lower),
        ),
        amp="gray", paddle=PaddleForm(write=_write_axes) if share else None,
        domain=Domain(cases=CASES, values={"X": ValueRange(distinct=True)}, others=("int32", "int64"), ulps=0.0),
        onnx=_onnx.over(_onnx.plain("Max" if word == "maximum" else "Min"), _BY_DIM),
    ))  # fmt: skip


# Paddle's two families: max gives each of equal elements the whole gradient, amax divides it.
_choice_op("reduce_max", "maximum", "amax", False)
_choice_op("reduce_amax", "maximum", "amax", True)
_choice_op("reduce_min", "minimum", "amin", False)
_choice_op("reduce_amin", "minimum", "amin", True)


# ------------------------------------------------------------------------------------------------------------- logical
def _truth_op(type: str, ufunc: np.ufunc, function: str) -> None:
    def calls(x: Any, out: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
        # numpy reduces truth values without converting the input in memory.
        return [(ufunc.reduce, (x, axes, np.bool_, out.reshape(reduced_shape(x.shape, axes), copy=False)))]

    def lower(torch: Any, x: Any, axes: Sequence[int], attrs: Any) -> Any:
        out = x.bool()
        # Axes are kept with size 1, so that the numbers of the others hold.
        for axis in axes:
            out = getattr(torch, function)(out, axis, keepdim=True)
        return out

    register(OpDef(
        type, "X -> Out", attrs=CHOICE_ATTRS, infer=lambda x, **attrs: Meta(_BY_DIM.shape(x.shape, attrs), bool_),
        ref=_BY_DIM.ref(calls), lower=_BY_DIM.lower(lower), split=_BY_DIM.split(),
        domain=Domain(cases=(*CASES, *EMPTY_CASES), values={"X": ValueRange(-1.0, 1.0)}, others=("bool", "int32")),
        onnx=_onnx.over(_onnx.truth("Min" if function == "all" else "Max"), _BY_DIM),
    ))  # fmt: skip


_truth_op("reduce_all", np.logical_and, "all")
_truth_op("reduce_any", np.logical_or, "any")


# ----------------------------------------------------------------------------------------------------------- logsumexp
def _infer(x: Meta, **attrs: Any) -> Meta:
    infer_float(x)
    check_elements(x, _BY_AXIS.axes(x.rank, attrs), "the logsumexp")
    return x.with_shape(_BY_AXIS.shape(x.shape, attrs))


def _scratch_metas(x: Meta, out: Meta, axes: Sequence[int]) -> tuple[Meta, ...]:
    return float_scratch(x, x.shape), float_scratch(x, out.shape), *sum_scratch(x, axes)


def _drop_infinities(peak: Any) -> None:
    """Replaces an infinite maximum by 0: the exponentials then are 0, infinite or NaN, as the sum is."""
    np.copyto(peak, 0, where=~np.isfinite(peak))


def _calls(x: Any, out: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
    powers, peak = scratch[0], scratch[1]
    return [
        # Less the maximum: exp overflows float32 above 88; one number of the sum is then 1.
        (np.maximum.reduce, (x, axes, None, peak.reshape(reduced_shape(x.shape, axes)))),
        (_drop_infinities, (peak,)),
        (np.subtract, (x, spread(peak, x.shape, axes), powers)),
        (np.exp, (powers, powers)),
        *sum_calls(powers, axes, out, scratch[2:]),
        (np.log, (out, out)),
        (np.add, (out, peak, out)),
    ]


def _grad_calls(x: Any, out: Any, dout: Any, dx: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
    if dx.size == 0:
        return []
    return [
        # exp(x - out) is the softmax, at most 1, so it cannot overflow.
        (np.subtract, (x, spread(out, x.shape, axes), dx)),
        (np.exp, (dx, dx)),
        (np.multiply, (dx, spread(dout, x.shape, axes), dx)),
    ]


def _grad_lower(torch: Any, x: Any, out: Any, dout: Any, axes: Sequence[int], attrs: Any) -> Any:
    wide = [torch_wide(v) for v in (x, out, dout)]
    return ((wide[0] - wide[1]).exp() * wide[2]).to(x.dtype)


register(OpDef(
    "logsumexp", "X -> Out", attrs={"axis": Attr((0,), "ints"), "keepdim": False, "reduce_all": False}, infer=_infer,
    ref=_BY_AXIS.ref(_calls, _scratch_metas), split=_BY_AXIS.split(),
    lower=_BY_AXIS.lower(lambda torch, x, axes, attrs: torch.logsumexp(x, axes) if axes else x.clone()),
    grad=GradOp("X, Out, Out@GRAD -> X@GRAD", ref=_BY_AXIS.ref(_grad_calls), lower=_BY_AXIS.grad_lower(_grad_lower)),
    amp="black", uses_blas=True,
    domain=Domain(
        cases=(
            Case(((3, 4),)), Case(((3, 4),), {"axis": (-1,), "keepdim": True}), Case(((2, 3, 4),), {"axis": (0, 2)}),
            Case(((2, 3, 4),), {"reduce_all": True}), Case(((2, 3, 4),), {"axis": (1,)}),
            Case(((),), {"reduce_all": True}), Case(((5,),)), Case(((1, 1),), {"axis": (1,)}), Case(((3, 0),)),
            Case(((2, 600),), {"axis": (1,)}),
        ),
        ulps=16.0,
    ), onnx=_onnx.over(_onnx.log_sum_exp, _BY_AXIS),
))  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- functions
@export("tensor.max", "Variable.max", op="reduce_max")
def max(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the largest element over axes; NaN if there is one.

    Every element that equals the maximum gets the whole gradient; :func:`amax` divides it among them.

    Args:
        x: Any shape, floats or integers.
        axis: An int, a list of ints, or ``None`` for all axes.
        keepdim: Keep reduced axes with size 1.
        name: Name of the layer.

    Returns:
        ``x`` without the axes; ``[]`` when all are reduced.
    """
    return reduced("reduce_max", "max", x, axis, keepdim, name)


@export("tensor.min", "Variable.min", op="reduce_min")
def min(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the smallest element over axes; see :func:`max`.

    Args:
        x, axis, keepdim: As in :func:`max`.
        name: Name of the layer.
    """
    return reduced("reduce_min", "min", x, axis, keepdim, name)


@export("tensor.amax", "Variable.amax", op="reduce_amax")
def amax(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the largest element over axes; equal maxima share the gradient evenly. See :func:`max`.

    Args:
        x, axis, keepdim: As in :func:`max`.
        name: Name of the layer.
    """
    return reduced("reduce_amax", "amax", x, axis, keepdim, name)


@export("tensor.amin", "Variable.amin", op="reduce_amin")
def amin(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the smallest element over axes; equal minima share the gradient evenly. See :func:`max`.

    Args:
        x, axis, keepdim: As in :func:`max`.
        name: Name of the layer.
    """
    return reduced("reduce_amin", "amin", x, axis, keepdim, name)


@export("tensor.all", "Variable.all", op="reduce_all")
def all(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns whether all elements over axes are true (numbers: not 0); a bool of shape ``[]`` for all axes.

    Args:
        x: Any shape.
        axis: An int, a list of ints, or ``None`` for all axes.
        keepdim: Keep reduced axes with size 1.
        name: Name of the layer.
    """
    return reduced("reduce_all", "all", x, axis, keepdim, name)


@export("tensor.any", "Variable.any", op="reduce_any")
def any(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns whether any element over axes is true (numbers: not 0); a bool of shape ``[]`` for all axes.

    Args:
        x: Any shape.
        axis: An int, a list of ints, or ``None`` for all axes.
        keepdim: Keep reduced axes with size 1.
        name: Name of the layer.
    """
    return reduced("reduce_any", "any", x, axis, keepdim, name)


@export("fluid.layers.reduce_max", op="reduce_max")
def reduce_max(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns the largest element over ``dim``; over all axes (``None``) it has shape ``[1]``.

    Args:
        input: Any shape, floats, integers or bools.
        dim, keep_dim: As in :func:`reduce_sum`.
        name: Name of the layer.
    """
    return fluid_reduced("reduce_max", input, dim, keep_dim, name)


@export("fluid.layers.reduce_min", op="reduce_min")
def reduce_min(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns the smallest element over ``dim``; over all axes (``None``) it has shape ``[1]``.

    Args:
        input: Any shape, floats, integers or bools.
        dim, keep_dim: As in :func:`reduce_sum`.
        name: Name of the layer.
    """
    return fluid_reduced("reduce_min", input, dim, keep_dim, name)


@export("fluid.layers.reduce_all", op="reduce_all")
def reduce_all(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns whether all elements over ``dim`` are true; over all axes (``None``) it has shape ``[1]``.

    Args:
        input: Any shape; numbers other than 0 count as true.
        dim, keep_dim: As in :func:`reduce_sum`.
        name: Name of the layer.
    """
    return fluid_reduced("reduce_all", input, dim, keep_dim, name)


@export("fluid.layers.reduce_any", op="reduce_any")
def reduce_any(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns whether any element over ``dim`` is true; over all axes (``None``) it has shape ``[1]``.

    Args:
        input: Any shape; numbers other than 0 count as true.
        dim, keep_dim: As in :func:`reduce_sum`.
        name: Name of the layer.
    """
    return fluid_reduced("reduce_any", input, dim, keep_dim, name)


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
