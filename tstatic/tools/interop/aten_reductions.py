"""Sums, averages, extrema, order, running sums and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.mixed import cast_to
from tstatic.ops.elementwise.unary import sqrt, square
from tstatic.ops.indexing.along_axis import take_along_axis
from tstatic.ops.norm import softmax as softmaxes
from tstatic.ops.reduce import extrema, ordering, reduction, vector_norm
from tstatic.ops.reduce.cumsum import cumsum
from tstatic.ops.shape import reshape
from tstatic.ops.shape.creation import ones_like
from tstatic.tools.interop.conversion import Call, family

converts = family("reductions")

Axes = int | Sequence[int] | None


def _axes(axes: Axes) -> Any:
    """Returns axes as the builders take them: none given are all."""
    if axes is None or isinstance(axes, int):
        return axes
    return list(axes) or None


@converts("sum.default", "sum.dim_IntList")
def _sum(c: Call, x: Variable, axes: Axes = None, keepdim: bool = False, dtype: Any = None) -> Variable:
    return reduction.sum(c.cast(x), _axes(axes), None, keepdim)


@converts("mean.default", "mean.dim")
def _mean(c: Call, x: Variable, axes: Axes = None, keepdim: bool = False, dtype: Any = None) -> Variable:
    return reduction.mean(c.cast(x), _axes(axes), keepdim)


@converts("prod.default")
def _prod(c: Call, x: Variable, dtype: Any = None) -> Variable:
    return reduction.prod(c.cast(x))


@converts("prod.dim_int")
def _prod_axis(c: Call, x: Variable, axis: int, keepdim: bool = False, dtype: Any = None) -> Variable:
    return reduction.prod(c.cast(x), axis, keepdim)


@converts("amax.default")
def _amax(c: Call, x: Variable, axes: Axes = None, keepdim: bool = False) -> Variable:
    # Several largest elements share the gradient, as in torch.
    return extrema.amax(x, _axes(axes), keepdim)


@converts("amin.default")
def _amin(c: Call, x: Variable, axes: Axes = None, keepdim: bool = False) -> Variable:
    return extrema.amin(x, _axes(axes), keepdim)


@converts("max.default")
def _max(c: Call, x: Variable) -> Variable:
    return extrema.amax(x)


@converts("min.default")
def _min(c: Call, x: Variable) -> Variable:
    return extrema.amin(x)


@converts("max.dim", "min.dim")
def _extremum(c: Call, x: Variable, axis: int, keepdim: bool = False) -> list[Variable]:
    choose = ordering.argmax if c.name == "aten.max.dim" else ordering.argmin
    places = choose(x, axis, True)
    # The value at the place, so that the gradient goes to that element alone.
    value = take_along_axis(x, places, axis, broadcast=False)
    return [value, places] if keepdim else [reshape.squeeze(value, axis), reshape.squeeze(places, axis)]


@converts("argmax.default")
def _argmax(c: Call, x: Variable, axis: int | None = None, keepdim: bool = False) -> Variable:
    return ordering.argmax(x, axis, keepdim)


@converts("argmin.default")
def _argmin(c: Call, x: Variable, axis: int | None = None, keepdim: bool = False) -> Variable:
    return ordering.argmin(x, axis, keepdim)


@converts("topk.default")
def _topk(c: Call, x: Variable, k: int, axis: int = -1, largest: bool = True, ordered: bool = True) -> list[Variable]:
    return list(ordering.topk(x, k, axis, largest, ordered))


@converts("sort.default")
def _sort(c: Call, x: Variable, axis: int = -1, descending: bool = False) -> list[Variable]:
    places = ordering.argsort(x, axis, descending)
    return [take_along_axis(x, places, axis, broadcast=False), places]


@converts("argsort.default")
def _argsort(c: Call, x: Variable, axis: int = -1, descending: bool = False) -> Variable:
    return ordering.argsort(x, axis, descending)


@converts("all.default", "all.dim", "all.dims")
def _all(c: Call, x: Variable, axes: Axes = None, keepdim: bool = False) -> Variable:
    return extrema.all(cast_to(x, c.dtype), _axes(axes), keepdim)


@converts("any.default", "any.dim", "any.dims")
def _any(c: Call, x: Variable, axes: Axes = None, keepdim: bool = False) -> Variable:
    return extrema.any(cast_to(x, c.dtype), _axes(axes), keepdim)


@converts("cumsum.default")
def _cumsum(c: Call, x: Variable, axis: int, dtype: Any = None) -> Variable:
    return cumsum(c.cast(x), axis)


@converts("logsumexp.default")
def _logsumexp(c: Call, x: Variable, axes: Axes, keepdim: bool = False) -> Variable:
    return extrema.logsumexp(x, _axes(axes), keepdim)


# ------------------------------------------------------------------------------------------------------------ statistics
def _unbiased(c: Call, correction: Any) -> bool:
    if correction not in (None, 0, 1):
        raise c.refuse("with another correction", "0 or 1", correction)
    return correction in (None, 1)


def _variance(x: Variable, axes: Any, unbiased: bool, keepdim: bool) -> Variable:
    """Returns the variance; an unbiased one of one element is NaN, as in torch, where Paddle has 0."""
    chosen = range(len(x.shape)) if axes is None else [axes] if isinstance(axes, int) else axes
    sizes = [x.shape[axis] for axis in chosen]
    if not unbiased or (UNKNOWN not in sizes and math.prod(sizes) > 1):
        return vector_norm.var(x, axes, unbiased, keepdim)
    if UNKNOWN in sizes:
        count = reduction.sum(ones_like(x), axes, None, keepdim)
        return vector_norm.var(x, axes, False, keepdim) * (count / (count - 1.0))
    return vector_norm.var(x, axes, False, keepdim) * math.nan


@converts("var.correction", "var.dim", "var.default")
def _var(
    c: Call, x: Variable, axes: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = 1
) -> Variable:
    if isinstance(axes, bool):
        axes, unbiased = None, axes
    return _variance(x, _axes(axes), _unbiased(c, correction) and unbiased, keepdim)


@converts("std.correction", "std.dim", "std.default")
def _std(
    c: Call, x: Variable, axes: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = 1
) -> Variable:
    if isinstance(axes, bool):
        axes, unbiased = None, axes
    return sqrt(_variance(x, _axes(axes), _unbiased(c, correction) and unbiased, keepdim))


@converts("linalg_vector_norm.default")
def _norm(
    c: Call, x: Variable, power: Any = 2, axes: Axes = None, keepdim: bool = False, *, dtype: Any = None
) -> Variable:
    x = c.cast(x)
    if power in (None, 2):
        return reduction.sum(square(x), _axes(axes), None, keepdim) ** 0.5
    return vector_norm.norm(x, float(power), _axes(axes), keepdim)


# --------------------------------------------------------------------------------------------------------------- softmax
@converts("softmax.int")
def _softmax(c: Call, x: Variable, axis: int, dtype: Any = None) -> Variable:
    return softmaxes.softmax(c.cast(x), axis)


@converts("_softmax.default")
def _inner_softmax(c: Call, x: Variable, axis: int, half_to_float: Any = False) -> Variable:
    return softmaxes.softmax(c.cast(x), axis)


@converts("log_softmax.int")
def _log_softmax(c: Call, x: Variable, axis: int, dtype: Any = None) -> Variable:
    return softmaxes.log_softmax(c.cast(x), axis)


@converts("_log_softmax.default")
def _inner_log_softmax(c: Call, x: Variable, axis: int, half_to_float: bool = False) -> Variable:
    return softmaxes.log_softmax(c.cast(x), axis)
