"""Forms in ONNX of sums, extremes, norms, orders and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.ir.onnx_expr import log1p
from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.types import bool_, float64, int64, normalize_axis

Axes = Sequence[int]
Shaped = Callable[[Graph, Value, Axes, bool], Value]


def over(kind: Shaped, by: Any) -> Callable[..., Value]:
    """Makes the form of a reduction.

    Args:
        kind: ``(g, x, axes, keep) -> value``: reduces over axes, of which there is at least one or the value has no axes.
        by: The op's :class:`~tstatic.ops.reduce._reduce.Over`.
    """

    def form(g: Graph, x: Value, **attrs: Any) -> Value:
        axes = by.axes(x.rank, attrs)
        found = kind(g, x, axes, bool(attrs.get(by.keep, False)))
        # The 1.x names give a full reduction the shape [1].
        kept = attrs.get(by.keep, False)
        return (
            g("Reshape", found, g.ints([1])) if g.outs[0].shape == (1,) and not kept and len(axes) == x.rank else found
        )

    return form


def plain(op: str) -> Shaped:
    """Makes a reduction that is one node; what is added up is converted first where the result is of another type."""

    def reduced(g: Graph, x: Value, axes: Axes, keep: bool) -> Value:
        # Converted first, as in the reference: what is added up in float32 is rounded once.
        wide = g.outs[0].dtype.compute if op in ("Sum", "Mean", "Prod") else x.dtype
        return g.reduce(op, g.cast(x, wide), axes, keep)

    return reduced


def truth(op: str) -> Shaped:
    """Makes ``all`` or ``any``: the least or the largest of ones and zeros."""

    def reduced(g: Graph, x: Value, axes: Axes, keep: bool) -> Value:
        numbers = g.cast(g.cast(x, bool_), int64)
        if 0 in x.shape:
            # Of no elements ONNX has no extremes.
            return g.cast(g.reduce("Prod" if op == "Min" else "Sum", numbers, axes, keep), bool_)
        return g.cast(g.reduce(op, numbers, axes, keep), bool_)

    return reduced


def log_sum_exp(g: Graph, x: Value, axes: Axes, keep: bool) -> Value:
    return g("ReduceLogSumExp", g.wide(x), g.ints(axes), keepdims=int(keep)) if axes else x


def frobenius(g: Graph, x: Value, axes: Axes, keep: bool) -> Value:
    return g("ReduceL2", g.wide(x), g.ints(axes), keepdims=int(keep)) if axes else g("Abs", x)


def p_norm(g: Graph, x: Value, axes: Axes, keep: bool, porder: float) -> Value:
    size = g("Abs", g.wide(x))
    if porder == 0:
        # NaN is not 0.
        return g.reduce("Sum", g.where(g.equal(size, 0), g.number(0, size), g.number(1, size)), axes, keep)
    if not axes:
        return size
    if np.isinf(porder):
        return g.reduce("Max" if porder > 0 else "Min", size, axes, keep)
    if porder == 1:
        return g.reduce("Sum", size, axes, keep)
    if porder == 2:
        return g("ReduceL2", size, g.ints(axes), keepdims=int(keep))
    return g("Pow", g.reduce("Sum", g("Pow", size, g.number(porder, size)), axes, keep), g.number(1 / porder, size))


def clip_by_norm(g: Graph, x: Value, *, max_norm: float) -> Value:
    wide = g.wide(x)
    # In float64, in which squares of float32 neither overflow nor vanish.
    exact = g.cast(wide, float64)
    norm = g("Sqrt", g("ReduceSum", g.mul(exact, exact), keepdims=0))
    clipped = g.mul(wide, g.cast(g.div(g.number(max_norm, norm), norm), wide.dtype))
    return g.where(g("Greater", norm, g.number(max_norm, norm), dtype=bool_), clipped, wide)


# --------------------------------------------------------------------------------------------------------------- orders
def extreme(op: str) -> Callable[..., Value]:
    """Makes ``ArgMax`` or ``ArgMin``."""

    def form(g: Graph, x: Value, *, axis: int, keepdims: bool, flatten: bool) -> Value:
        if flatten or not x.shape:
            # ONNX's axis has no form for all axes, so the value is flattened.
            found = g(op, g("Reshape", x, g.ints([-1])), dtype=int64, axis=0, keepdims=0)
            return g("Reshape", found, g.ints([1] * g.outs[0].rank)) if g.outs[0].rank else found
        return g(op, x, dtype=int64, axis=axis, keepdims=int(keepdims))

    return form


def top(g: Graph, x: Value, count: Value, axis: int, largest: bool) -> tuple[Value, Value]:
    """Returns the largest or least entries along an axis, in order, and their places."""
    values, places = g("TopK", x, count, axis=axis, largest=int(largest), sorted=1, count=2)
    return values, Value(places.name, int64)


def argsort(g: Graph, x: Value, *, axis: int, descending: bool) -> tuple[Value, Value]:
    if not x.shape:
        return x, g.const(0, int64)
    at = normalize_axis(axis, x.rank)
    return top(g, x, g.sizes(x, at, at + 1), axis, descending)


def top_k(g: Graph, x: Value, given: Value | None, *, k: int, axis: int, largest: bool) -> tuple[Value, Value]:
    if not x.shape:
        return x, g.const(0, int64)
    return top(g, x, g.ints([k]) if given is None else g("Reshape", g.cast(given, int64), g.ints([1])), axis, largest)


def kth(g: Graph, x: Value, *, k: int, axis: int, keepdim: bool) -> tuple[Value, ...]:
    if not x.shape:
        return x, g.const(0, int64)
    found = top(g, x, g.ints([k]), axis, False)
    last = [g.slice(v, normalize_axis(axis, x.rank), k - 1, k) for v in found]
    return tuple(last) if keepdim else tuple(g.squeeze(v, [axis]) for v in last)


def cumsum(g: Graph, x: Value, *, axis: int, flatten: bool, exclusive: bool, reverse: bool) -> Value:
    wide = g.wide(x)
    if flatten or not x.shape:
        # ONNX adds along an axis only.
        wide, axis = g("Reshape", wide, g.ints([-1])), 0
    found = g("CumSum", wide, g.const(axis, int64), exclusive=int(exclusive), reverse=int(reverse))
    return found if x.shape or g.outs[0].rank else g("Reshape", found, g.ints([]))


def log_cumsum(g: Graph, x: Value, *, axis: int, reverse: bool) -> Value:
    """Adds to each entry the sum of as many before it as it holds already, in the logarithm: twice as many at each step."""
    # Doubling: log2(size) additions of whole arrays instead of one per element; ONNX has no such running sum.
    found = g.wide(x)
    if not x.shape:
        return found
    (size,) = g.known(x, [axis])
    pads, step = [0] * x.rank, 1
    while step < size:
        amount = list(pads)
        amount[axis] = step
        kept = g.slice(found, axis, step, None) if reverse else g.slice(found, axis, 0, size - step)
        moved = g("Pad", kept, g.ints([*pads, *amount] if reverse else [*amount, *pads]), g.number(-math.inf, found))
        found = _log_add(g, found, moved)
        step *= 2
    return found


def _log_add(g: Graph, a: Value, b: Value) -> Value:
    """Returns ``log(exp(a) + exp(b))`` without an overflow; two equal infinities are one."""
    same = g.equal(a, b)
    # Minus infinity less itself is NaN; of two equal infinities the sum is the same infinity, log(2) or not.
    far = g("Neg", g("Abs", g.where(same, g.number(0, a), g.sub(a, b))))
    return g.add(g("Max", a, b), log1p(g, g("Exp", far)))


def searchsorted(g: Graph, sequence: Value, values: Value, *, right: bool) -> Value:
    """Counts the entries below each value; NaN is greater than all numbers."""
    rows = g.unsqueeze(sequence, [sequence.rank - 1])
    if sequence.rank == 1:
        rows = sequence
    each = g.unsqueeze(values, [values.rank])
    below = g("LessOrEqual" if right else "Less", rows, each, dtype=bool_)
    if sequence.dtype.is_float:
        # `<` is false for NaN, which is above all numbers: it counts every entry but other NaN.
        last = g("IsNaN", each, dtype=bool_)
        if not right:
            last = g("And", last, g("Not", g("IsNaN", rows, dtype=bool_)))
        below = g("Or", below, last)
    return g("ReduceSum", g.cast(below, int64), g.ints([-1]), keepdims=0)
