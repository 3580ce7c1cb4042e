"""Largest and smallest elements over axes, and whether all or any are true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.opdef import GRAD, Domain, GradOp, OpDef, Tile, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import Meta, bool_, int64
from tstatic.ops._call_ref import CallRef, float_scratch
from tstatic.ops.reduce._reduce import (
    CASES,
    CHOICE_ATTRS,
    EMPTY_CASES,
    check_not_empty,
    fluid_reduction,
    reduced_axes,
    reduced_shape,
    reduction,
    split_reduction,
    spread,
)

_WORDS = {"reduce_max": "maximum", "reduce_amax": "maximum", "reduce_min": "minimum", "reduce_amin": "minimum"}


# ------------------------------------------------------------------------------------------------------------- extrema
def _split(x: Meta, out: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool) -> list[Tile] | None:
    return split_reduction(x, out, reduced_axes(x.rank, dim, reduce_all), keep_dim)


def _grad_calls(share: bool) -> Any:
    """Every element that equals the result gets the gradient; with ``share`` they divide it."""

    def calls(
        ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
    ) -> Calls:
        x, out, dout = ins
        dx = outs[0]
        if dx.size == 0:
            return []
        axes = reduced_axes(x.ndim, dim, reduce_all)
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

    return calls


def _at_least_one(count: Any) -> None:
    np.maximum(count, 1, out=count)


def _grad_scratch_metas(share: bool) -> Any:
    def needs(ins: Sequence[Meta], outs: Sequence[Meta]) -> tuple[Meta, ...]:
        x, out, _ = ins
        count = (Meta(out.shape, int64),) if share else ()
        return (Meta(x.shape, bool_), float_scratch(x, out.shape), *count)

    return needs


def _grad_lower(share: bool) -> Any:
    def lower(torch: Any, x: Any, out: Any, dout: Any, dim: Any, reduce_all: bool) -> Any:
        axes = reduced_axes(x.dim(), dim, reduce_all)
        shape = [1 if i in axes else s for i, s in enumerate(x.shape)]
        equal = x == out.reshape(shape)
        part = dout.reshape(shape)
        if share:
            count = equal.sum(axes, keepdim=True) if axes else equal.long()
            part = part / count.clamp(min=1)
        return torch.where(equal, part, torch.zeros((), dtype=part.dtype, device=part.device))

    return lower


def _extremum(type: str) -> None:
    name = _WORDS[type]
    ufunc = getattr(np, name)
    share = "_am" in type

    def infer(x: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool, one_d: bool) -> Meta:
        axes = reduced_axes(x.rank, dim, reduce_all)
        check_not_empty(x, axes, name)
        return x.with_shape(reduced_shape(x.shape, axes, keep_dim, one_d))

    def calls(
        ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
    ) -> Calls:
        x = ins[0]
        axes = reduced_axes(x.ndim, dim, reduce_all)
        return [(ufunc.reduce, (x, axes, None, outs[0].reshape(reduced_shape(x.shape, axes), copy=False)))]

    def lower(torch: Any, x: Any, dim: Any, keep_dim: bool, reduce_all: bool, one_d: bool) -> Any:
        axes = reduced_axes(x.dim(), dim, reduce_all)
        function = torch.amax if name == "maximum" else torch.amin
        out = function(x, axes, keepdim=keep_dim) if axes else x.clone()
        return out.reshape(1) if one_d and not out.dim() else out

    ref = CallRef(calls)
    back = CallRef(_grad_calls(share), _grad_scratch_metas(share))
    register(
        OpDef(
            type,
            "X -> Out",
            attrs=CHOICE_ATTRS,
            infer=infer,
            ref=ref,
            lower=lower,
            split=_split,
            grad=GradOp(f"X, Out, Out{GRAD} -> X{GRAD}", ref=back, lower=_grad_lower(share)),
            amp="gray",
            domain=Domain(cases=CASES, values={"X": ValueRange(distinct=True)}, others=("int32", "int64"), ulps=0.0),
        )
    )


for _type in _WORDS:
    _extremum(_type)


# ------------------------------------------------------------------------------------------------------------- logical
def _logical(type: str) -> None:
    name = "logical_and" if type == "reduce_all" else "logical_or"
    ufunc = getattr(np, name)

    def infer(x: Meta, dim: Sequence[int], keep_dim: bool, reduce_all: bool, one_d: bool) -> Meta:
        return Meta(reduced_shape(x.shape, reduced_axes(x.rank, dim, reduce_all), keep_dim, one_d), bool_)

    def calls(
        ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], *, dim: Sequence[int], reduce_all: bool
    ) -> Calls:
        x = ins[0]
        axes = reduced_axes(x.ndim, dim, reduce_all)
        return [(ufunc.reduce, (x, axes, np.bool_, outs[0].reshape(reduced_shape(x.shape, axes), copy=False)))]

    def lower(torch: Any, x: Any, dim: Any, keep_dim: bool, reduce_all: bool, one_d: bool) -> Any:
        axes = reduced_axes(x.dim(), dim, reduce_all)
        function = torch.all if name == "logical_and" else torch.any
        out = x.bool()
        for axis in axes:
            out = function(out, axis, keepdim=True)
        return out.reshape(reduced_shape(tuple(x.shape), axes, keep_dim, one_d))

    ref = CallRef(calls)
    register(
        OpDef(
            type,
            "X -> Out",
            attrs=CHOICE_ATTRS,
            infer=infer,
            ref=ref,
            lower=lower,
            split=_split,
            domain=Domain(cases=(*CASES, *EMPTY_CASES), values={"X": ValueRange(-1.0, 1.0)}, others=("bool", "int32")),
        )
    )


_logical("reduce_all")
_logical("reduce_any")


# ----------------------------------------------------------------------------------------------------------- functions
_max, _min = reduction("reduce_max", "max"), reduction("reduce_min", "min")
_amax, _amin = reduction("reduce_amax", "amax"), reduction("reduce_amin", "amin")
_all, _any = reduction("reduce_all", "all"), reduction("reduce_any", "any")
_fluid = {name: fluid_reduction(name) for name in ("reduce_max", "reduce_min", "reduce_all", "reduce_any")}


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
    return _max(x, axis, keepdim, name)


@export("tensor.min", "Variable.min", op="reduce_min")
def min(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the smallest element over axes; see :func:`max`."""
    return _min(x, axis, keepdim, name)


@export("tensor.amax", "Variable.amax", op="reduce_amax")
def amax(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the largest element over axes; equal maxima share the gradient evenly. See :func:`max`."""
    return _amax(x, axis, keepdim, name)


@export("tensor.amin", "Variable.amin", op="reduce_amin")
def amin(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the smallest element over axes; equal minima share the gradient evenly. See :func:`max`."""
    return _amin(x, axis, keepdim, name)


@export("tensor.all", "Variable.all", op="reduce_all")
def all(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns whether all elements over axes are true (numbers: not 0); a bool of shape ``[]`` for all axes."""
    return _all(x, axis, keepdim, name)


@export("tensor.any", "Variable.any", op="reduce_any")
def any(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns whether any element over axes is true (numbers: not 0); a bool of shape ``[]`` for all axes."""
    return _any(x, axis, keepdim, name)


@export("fluid.layers.reduce_max", op="reduce_max")
def reduce_max(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns the largest element over ``dim``; over all axes (``None``) it has shape ``[1]``."""
    return _fluid["reduce_max"](input, dim, keep_dim, name)


@export("fluid.layers.reduce_min", op="reduce_min")
def reduce_min(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns the smallest element over ``dim``; over all axes (``None``) it has shape ``[1]``."""
    return _fluid["reduce_min"](input, dim, keep_dim, name)


@export("fluid.layers.reduce_all", op="reduce_all")
def reduce_all(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns whether all elements over ``dim`` are true; over all axes (``None``) it has shape ``[1]``."""
    return _fluid["reduce_all"](input, dim, keep_dim, name)


@export("fluid.layers.reduce_any", op="reduce_any")
def reduce_any(input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
    """Returns whether any element over ``dim`` is true; over all axes (``None``) it has shape ``[1]``."""
    return _fluid["reduce_any"](input, dim, keep_dim, name)
