"""Counts and order statistics along axes: median, quantile, mode, sums that leave out NaN, histograms, and sorted search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tstatic.errors import NumericsError, ProgramError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import ANY_RANK, INDICES, INTEGERS, check_axes, check_int, check_rank
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm
from tstatic.ir.program import Variable
from tstatic.ir.traits import Waits
from tstatic.ir.types import UNKNOWN, Meta, float32, float64, int32, int64, normalize_axis
from tstatic.ops.base.mixed import cast_to
from tstatic.ops.base.shapes import Array, emit_one
from tstatic.ops.elementwise.arithmetic import divide, lerp
from tstatic.ops.elementwise.logic import isnan, logical_not, where
from tstatic.ops.elementwise.scale import cast, scale
from tstatic.ops.elementwise.unary import ceil, floor
from tstatic.ops.indexing.along_axis import take_along_axis
from tstatic.ops.reduce import _reduce_onnx as _onnx
from tstatic.ops.reduce._reduce import axis_attr
from tstatic.ops.reduce.ordering import _with_size, sort
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.creation import zeros_like
from tstatic.ops.shape.joining import stack
from tstatic.ops.shape.reshape import flatten, reshape, squeeze, unsqueeze
from tstatic.ops.shape.transpose import transpose


# ------------------------------------------------------------------------------------------------------------- counts
@export("tensor.nansum", "Variable.nansum")
def nansum(
    x: Variable, axis: Any = None, dtype: Any = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Returns the sum over axes in which NaN counts as 0.

    Args:
        x: Floats ``[...]``.
        axis: An axis, a list of them, or ``None`` for all.
        dtype: What is added up and returned; that of ``x`` by default.
        keepdim: Keeps the axes, with size 1.
        name: Name of the layer.

    Example:
        >>> y = paddle.nansum(paddle.to_tensor([1.0, float("nan"), 2.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array(3., dtype=float32)
    """
    x = check_variable(x, "x", "nansum")
    return sum(where(isnan(x), zeros_like(x), x), axis, dtype, keepdim, name)


@export("tensor.nanmean", "Variable.nanmean")
def nanmean(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the mean over axes of what is not NaN; NaN where nothing is left.

    Args:
        x: Floats ``[...]``.
        axis: An axis, a list of them, or ``None`` for all.
        keepdim: Keeps the axes, with size 1.
        name: Name of the layer.
    """
    x = check_variable(x, "x", "nanmean")
    count = sum(cast(logical_not(isnan(x)), x.dtype), axis, keepdim=keepdim)
    return divide(nansum(x, axis, keepdim=keepdim), count, name=name)


@export("tensor.count_nonzero", "Variable.count_nonzero")
def count_nonzero(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns how many elements along axes are not 0, as int64.

    Args:
        x: ``[...]``, any dtype.
        axis: An axis, a list of them, or ``None`` for all.
        keepdim: Keeps the axes, with size 1.
        name: Name of the layer.
    """
    x = check_variable(x, "x", "count_nonzero")
    return sum(cast(cast(x, "bool"), "int64"), axis, keepdim=keepdim, name=name)


# ---------------------------------------------------------------------------------------------------- order statistics
def _to_one_axis(x: Variable, axis: Any, function: str) -> tuple[Variable, list[int]]:
    """Returns ``x`` with the axes joined as its last one, and their positions."""
    rank = len(x.shape)
    axes = list(check_axes(axis_attr(axis, function) or range(rank), x, "axis", function))
    kept = [i for i in range(rank) if i not in axes]
    x = transpose(x, [*kept, *axes]) if axes != list(range(rank))[len(kept) :] else x
    if len(axes) > 1:
        x = flatten(x, len(kept), -1)
    return (reshape(x, [1]) if rank == 0 else x), axes


def _at(x: Variable, count: Variable, q: float) -> Variable:
    """Returns the quantile ``q`` of sorted rows whose last axis has ``count`` values, of the dtype of ``count``.

    Both ends of the interval are read at positions that are found when the program runs, as sizes may be unknown.
    """
    place = scale(count, q, bias=-q)
    low, high = floor(place), ceil(place)
    below, above = (cast_to(take_along_axis(x, cast(p, "int64"), -1), count.dtype) for p in (low, high))
    return lerp(below, above, place - low)


def _quantiles(
    x: Variable, qs: Sequence[float], axis: Any, keepdim: bool, ignore_nan: bool, wide: Any, function: str
) -> list[Variable]:
    rows, axes = _to_one_axis(x, axis, function)
    nan = isnan(rows) if rows.dtype.is_float else None
    # NaN sorts last, so that the numbers of a row are its first ones.
    # Sorted once for all quantiles.
    ordered = sort(rows, -1)
    if nan is None or not ignore_nan:
        count = sum(cast(emit_one("fill_any_like", {"X": rows}, {"value": 1.0}), wide), -1, keepdim=True)
    else:
        count = sum(cast(logical_not(nan), wide), -1, keepdim=True)
        # A row of NaN only has one as its first value.
        count = where(count < 0.5, emit_one("fill_any_like", {"X": count}, {"value": 1.0}), count)
    count.stop_gradient = True
    found = [_at(ordered, count, q) for q in qs]
    if nan is not None and not ignore_nan:
        # A row that holds a NaN has no order.
        hole = sum(cast(nan, "int32"), -1, keepdim=True) > 0
        found = [where(hole, emit_one("fill_any_like", {"X": f}, {"value": float("nan")}), f) for f in found]
    if not keepdim:
        return [squeeze(f, -1) for f in found]
    return [unsqueeze(squeeze(f, -1), axes) for f in found] if x.shape else [reshape(f, []) for f in found]


def _quantile(x: Variable, q: Any, axis: Any, keepdim: bool, ignore_nan: bool, function: str) -> Variable:
    x = check_variable(x, "x", function, ("float32", "float64", *INTEGERS))
    x = x if x.dtype.is_float else cast(x, "float64")
    many = isinstance(q, list | tuple)
    qs = [float(one) for one in (q if many else [q])]
    if not qs or any(not 0 <= one <= 1 for one in qs):
        raise ProgramError(
            f"q of {function} should be in range [0, 1]",
            expected="a number from 0 to 1, or a list of them",
            received=repr(q),
            fix="pass 0.5 for the median",
            op=function,
        )
    # As in Paddle: quantiles are float64 whatever `x` is.
    found = _quantiles(x, qs, axis, keepdim, ignore_nan, "float64", function)
    return stack(found, 0) if len(found) > 1 else found[0]


@export("tensor.quantile", "Variable.quantile")
def quantile(x: Variable, q: Any, axis: Any = None, keepdim: bool = False) -> Variable:
    """Returns the number below which a share ``q`` of the elements along axes lies, between two elements their mixture.

    Args:
        x: float32, float64 or integers, ``[...]``.
        q: From 0 to 1, or a list of such numbers, which then are the first axis of the result.
        axis: An axis, a list of them, or ``None`` for all.
        keepdim: Keeps the axes, with size 1.

    Returns:
        float64; NaN where an element is NaN.

    Raises:
        ProgramError: If ``q`` is out of range.

    Example:
        >>> y = paddle.quantile(paddle.to_tensor([1.0, 2.0, 3.0, 4.0]), [0.25, 0.5])
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1.75, 2.5 ])
    """
    return _quantile(x, q, axis, keepdim, False, "quantile")


@export("tensor.nanquantile", "Variable.nanquantile")
def nanquantile(x: Variable, q: Any, axis: Any = None, keepdim: bool = False) -> Variable:
    """Returns what :func:`quantile` does of the elements that are not NaN; arguments and errors as there."""
    return _quantile(x, q, axis, keepdim, True, "nanquantile")


@export("tensor.median", "Variable.median")
def median(x: Variable, axis: int | None = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the middle element along an axis, of an even number the mean of the middle two; NaN where one is NaN.

    Args:
        x: Numbers ``[...]``; the result is float64 for float64, else float32.
        axis: An axis, or ``None`` for all elements.
        keepdim: Keeps the axis, with size 1.
        name: Name of the layer.

    Example:
        >>> y = paddle.median(paddle.to_tensor([[1.0, 9.0, 2.0, 4.0]]), axis=1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([3.], dtype=float32)
    """
    x = check_variable(x, "x", "median")
    # As in Paddle: the median of integers is float32.
    wide = "float64" if x.dtype is float64 else "float32"
    (found,) = _quantiles(x, [0.5], axis, keepdim, False, wide, "median")
    return scale(found, name=name) if name else found


@export("tensor.nanmedian", "Variable.nanmedian")
def nanmedian(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Returns the median over axes of the elements that are not NaN, of the dtype of ``x``.

    Args:
        x: Numbers ``[...]``.
        axis: An axis, a list of them, or ``None`` for all.
        keepdim: Keeps the axes, with size 1.
        name: Name of the layer.
    """
    x = check_variable(x, "x", "nanmedian")
    wide = "float32" if x.dtype is float32 or x.dtype.is_low else "float64"
    (found,) = _quantiles(x, [0.5], axis, keepdim, True, wide, "nanmedian")
    return cast(found, x.dtype) if name is None else scale(cast(found, x.dtype), name=name)


# ----------------------------------------------------------------------------------------------------------------- mode
def _infer_mode(x: Meta, *, axis: int, keepdim: bool) -> tuple[Meta, Meta]:
    out = _with_size(x, normalize_axis(axis, x.rank) if x.rank else 0, 1 if keepdim else None)
    return out, out.with_dtype(int64)


def _mode_positions(rows: Array) -> Array:
    """Returns where in each row the most frequent value stands last; of equally frequent ones the smallest counts.

    NaN equals nothing, as in Paddle, so that each NaN is a value of its own, greater than all numbers.
    """
    order = np.argsort(rows, -1, kind="stable")
    ordered = np.take_along_axis(rows, order, -1)
    # Sorted, equal values stand together: each element's number within its run, the largest first.
    begins = np.ones(rows.shape, bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    steps = np.arange(rows.shape[1])
    length = steps - np.maximum.accumulate(np.where(begins, steps, 0), -1)
    return np.asarray(np.take_along_axis(order, np.argmax(length, -1, keepdims=True), -1))


def _ref_mode(x: Array, out: Array | None, indices: Array | None, *, axis: int) -> None:
    line = np.moveaxis(x if x.ndim else x.reshape(1), axis if x.ndim else 0, -1)
    rows = np.ascontiguousarray(line.reshape(-1, line.shape[-1]))
    rows = rows.astype(np.float32) if rows.dtype.itemsize == 2 and rows.dtype.kind in "fV" else rows
    found = _mode_positions(rows).reshape(line.shape[:-1])
    if indices is not None:
        np.copyto(indices, found.reshape(indices.shape))
    if out is not None:
        np.copyto(out, np.take_along_axis(line, found[..., None], -1).reshape(out.shape))


def _lower_mode(torch: Any, x: Any, *, axis: int, keepdim: bool) -> Any:
    # As in the reference. torch's own mode takes NaN for equal to NaN, and does not say which of equal values it takes.
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    ordered, order = torch.sort(x.movedim(axis, -1), stable=True)
    steps = torch.arange(ordered.shape[-1], device=x.device)
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    length = steps - torch.cummax(torch.where(begins, steps, 0), -1).values
    # The first of the longest runs; argmax does not say on a device which of equal lengths it takes.
    first = (length * len(steps) + (len(steps) - 1 - steps)).argmax(-1, keepdim=True)
    last = order.gather(-1, first).movedim(-1, axis)
    pair = torch.gather(x, axis, last), last
    return tuple(t.contiguous() if keepdim else t.squeeze(axis).contiguous() for t in pair)


def _mode_back(x: Array, indices: Array, dout: Array, dx: Array, *, axis: int) -> None:
    dx.fill(0)
    if dx.ndim == 0:
        np.copyto(dx, dout.reshape(()))
        return
    shape = [1 if i == axis % dx.ndim else s for i, s in enumerate(dx.shape)]
    np.put_along_axis(dx, indices.reshape(shape), dout.reshape(shape), axis)


def _lower_mode_back(torch: Any, x: Any, indices: Any, dout: Any, *, axis: int) -> Any:
    if x.dim() == 0:
        return dout.reshape(())
    shape = [1 if i == axis % x.dim() else s for i, s in enumerate(x.shape)]
    return dout.new_zeros(tuple(x.shape)).scatter(axis, indices.reshape(shape), dout.reshape(shape))


register(OpDef(
    "mode", "X -> Out, Indices", attrs={"axis": -1, "keepdim": False}, infer=_infer_mode, ref=_ref_mode, lower=_lower_mode,
    grad=GradOp("X, Indices, Out@GRAD -> X@GRAD", ref=_mode_back, lower=_lower_mode_back, shape_only=("X",)),
    domain=Domain(
        cases=(
            Case(((3, 6),), {}), Case(((5, 3),), {"axis": 0, "keepdim": True}), Case(((2, 4, 3),), {"axis": 1}),
            Case(((1,),), {}), Case(((0, 3),), {}), Case(((4,),), {"keepdim": True}),
        ),
        values={"X": ValueRange(distinct=True)}, others=("int64", "int32"), ulps=0,
    ), onnx="ONNX does not find the most frequent entry",
))  # fmt: skip


@export("tensor.mode", "Variable.mode", op="mode")
def mode(x: Variable, axis: int = -1, keepdim: bool = False, name: str | None = None) -> tuple[Variable, Variable]:
    """Returns the most frequent value along an axis, the smallest of several, and where it stands last.

    Args:
        x: Numbers ``[...]``.
        axis: Which axis.
        keepdim: Keeps the axis, with size 1.
        name: Name of the layer.

    Returns:
        The values, and their indices (int64).

    Example:
        >>> found = paddle.mode(paddle.to_tensor([[2.0, 1.0, 2.0], [3.0, 3.0, 1.0]]))
        >>> static.Executor().run(fetch_list=list(found))
        [array([2., 3.], dtype=float32), array([2, 1])]
    """
    attrs = {"axis": axis, "keepdim": keepdim}
    found: tuple[Variable, Variable] = emit("mode", {"X": check_variable(x, "x", "mode")}, attrs, name=name)
    return found


# ---------------------------------------------------------------------------------------------------------- histograms
def _ref_histogram(x: Array, out: Array, *, bins: int, min: float, max: float) -> None:
    values = np.asarray(x, np.float64).reshape(-1)
    low, high = float(min), float(max)
    # As in Paddle, equal bounds take the range from the values, and a single value a range of 2 around it.
    if low == high:
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
        low, high = (low - 1, high + 1) if low == high else (low, high)
    _check_range(low, high, bins)
    values = values[(values >= low) & (values <= high)]
    # In Paddle's order of operations, so that a value on a border lands in the same bin.
    places = np.minimum(((values - low) * bins / (high - low)).astype(np.int64), bins - 1)
    out[...] = np.bincount(places, minlength=bins)


def _lower_histogram(torch: Any, x: Any, *, bins: int, min: float, max: float) -> Any:
    wide = x.to(torch.float64)
    if min == max and x.numel() == 0:
        return torch.zeros(bins, dtype=torch.int64, device=x.device)
    # Smaller types have ranges that float64 holds: the host reads nothing, torch refuses NaN and infinities by itself.
    if min == max and x.dtype is torch.float64 and x.device.type != "meta":
        low, high = (float(end) for end in torch.aminmax(wide))
        _check_range(low, high + 1 if low == high else high, bins)
    try:
        return torch.histc(wide, bins, min, max).to(torch.int64)
    except RuntimeError as error:
        if "finite" not in str(error):
            raise
    return _check_range(math.nan, math.nan, bins)


def _check_range(low: float, high: float, bins: int) -> None:
    # A place is the distance from the lowest value, times the number of bins, by the range.
    if not 0 < (high - low) * bins < math.inf:
        raise NumericsError(
            "histogram cannot divide the range of its values",
            expected="finite numbers whose range is finite, where min equals max, which takes the range from the values",
            received=f"values from {low:g} to {high:g}",
            fix="give min and max, or replace NaN and infinities first (paddle.nan_to_num)",
            op="histogram",
        )


register(OpDef(
    "histogram", "X -> Out", attrs={"bins": 100, "min": Attr(0, "number"), "max": Attr(0, "number")},
    infer=lambda x, *, bins: Meta((check_int(bins, "bins", "histogram", least=1),), int64),
    ref=_ref_histogram, lower=_lower_histogram,
    traits=(Waits("a range that is taken from the values, and is not finite, is an error"),),
    paddle=PaddleForm(whole=("min", "max")),
    domain=Domain(
        cases=(
            Case(((30,),), {"bins": 5}), Case(((4, 5),), {"bins": 3, "min": -1, "max": 1}),
            Case(((0,),), {"bins": 2, "min": 0, "max": 1}), Case(((1,),), {"bins": 4}), Case(((2, 3, 4),), {"bins": 7}),
        ),
        floats=("float32", "float64"), others=("int64", "int32"), ulps=0,
    ), onnx="ONNX does not count elements by ranges",
))  # fmt: skip


@export("tensor.histogram", "Variable.histogram", op="histogram")
def histogram(input: Variable, bins: int = 100, min: float = 0, max: float = 0, name: str | None = None) -> Variable:
    """Counts the elements in each of ``bins`` intervals of equal width from ``min`` to ``max``.

    Args:
        input: Numbers of any shape; those out of range are not counted.
        bins: At least 1.
        min, max: The range; that of the elements if both are equal.
        name: Name of the layer.

    Returns:
        ``[bins]``, int64.

    Raises:
        ProgramError: If ``max`` is less than ``min``.
    """
    if max < min:
        raise ProgramError(
            "max of histogram is less than min",
            expected=f"at least {min}",
            received=max,
            fix=f"pass min={max}, max={min}",
            op="histogram",
        )
    attrs = {"bins": bins, "min": min, "max": max}
    return emit_one("histogram", {"X": check_variable(input, "input", "histogram")}, attrs, name=name)


def _count_bins(x: Array, weights: Array | None, out: None, *, minlength: int) -> list[Array]:
    if x.size and x.min() < 0:
        raise ProgramError(
            "bincount counts numbers of at least 0", expected="no negative number", received=int(x.min()),
            fix="add an offset first", op="bincount",
        )  # fmt: skip
    # numpy adds weights up in float64; float32 is rounded once.
    found = np.bincount(x, None if weights is None else weights, minlength)
    return [found if weights is None else found.astype(weights.dtype if weights.dtype.kind in "f" else np.float64)]


def _infer_bincount(x: Meta, weights: Meta | None) -> Meta:
    check_rank(x, 1, "X")
    kind = int64 if weights is None else weights.dtype if weights.dtype is float32 else float64
    return Meta((UNKNOWN,), kind)


def _lower_bincount(torch: Any, x: Any, weights: Any, *, minlength: int) -> Any:
    found = torch.bincount(x, weights, minlength)
    return found if weights is None or weights.dtype is not torch.float32 else found.to(torch.float32)


register(OpDef(
    "bincount", "X, Weights? -> Out", attrs={"minlength": 0}, infer=_infer_bincount, ref=_count_bins, lower=_lower_bincount,
    dynamic=Dynamic("the greatest value", free=("Weights",)),
    domain=Domain(
        cases=(
            Case(((6,), None), {}), Case(((6,), (6,)), {"minlength": 9}), Case(((0,), None), {"minlength": 2}),
            Case(((20,), (20,)), {}),
        ),
        values={"X": ValueRange(0, 5, dtype="int64")}, floats=("float32", "float64"), ulps=8,
    ), onnx="ONNX does not count elements by value",
))  # fmt: skip


@export("tensor.bincount", "Variable.bincount", op="bincount")
def bincount(x: Variable, weights: Variable | None = None, minlength: int = 0, name: str | None = None) -> Variable:
    """Counts how often each number from 0 on occurs, or adds up the weights of its occurrences.

    Args:
        x: Integers of at least 0, ``[n]``.
        weights: ``[n]``; ``None`` counts.
        minlength: The least length of the result.
        name: Name of the layer.

    Returns:
        ``[max(largest number + 1, minlength)]``: int64, of weights float32 or float64.

    Raises:
        ShapeError: If ``minlength`` is negative, or ``x`` is not a vector.

    Example:
        >>> y = paddle.bincount(paddle.to_tensor([1, 3, 1]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0, 2, 0, 1])
    """
    inputs = {"X": check_variable(x, "x", "bincount", INDICES), "Weights": weights}
    attrs = {"minlength": check_int(minlength, "minlength", "bincount", least=0)}
    return emit_one("bincount", inputs, attrs, name=name)


# -------------------------------------------------------------------------------------------------------- sorted search
def _ref_search(sorted_sequence: Array, values: Array, out: Array, *, right: bool) -> None:
    side: Literal["left", "right"] = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        np.copyto(out, np.searchsorted(sorted_sequence, values, side), casting="same_kind")
        return
    # numpy searches one sequence at a time.
    rows, targets = (a.reshape(-1, a.shape[-1]) for a in (sorted_sequence, values))
    found = [np.searchsorted(row, target, side) for row, target in zip(rows, targets, strict=True)]
    if found:
        np.copyto(out, np.stack(found).reshape(out.shape), casting="same_kind")


def _infer_search(sorted_sequence: Meta, values: Meta, *, out_int32: bool) -> Meta:
    check_rank(sorted_sequence, range(1, ANY_RANK), "SortedSequence")
    if sorted_sequence.rank > 1:
        check_rank(values, sorted_sequence.rank, "Values", layout="as many as SortedSequence")
    return values.with_dtype(int32 if out_int32 else int64)


def _search_lower(torch: Any, s: Any, v: Any, *, out_int32: bool, right: bool) -> Any:
    s, v = s.contiguous(), v.contiguous()
    if s.dtype == torch.bool:  # torch orders no truth values
        s, v = s.view(torch.uint8), v.view(torch.uint8)
    if not s.is_floating_point():
        return torch.searchsorted(s, v, out_int32=out_int32, right=right)
    # NaN is greater than all numbers, as in numpy; torch looks for no number below one that stands before it.
    known = s == s
    found = torch.searchsorted(torch.where(known, s, math.inf), v, out_int32=out_int32, right=right)
    numbers = known.sum(-1, keepdim=s.dim() > 1).to(found.dtype)
    return torch.where(v == v, torch.minimum(found, numbers), s.shape[-1] if right else numbers)


register(OpDef(
    "searchsorted", "SortedSequence, Values -> Out", attrs={"out_int32": False, "right": False}, infer=_infer_search,
    ref=_ref_search,
    lower=_search_lower,
    domain=Domain(
        cases=(
            Case(((5,), (3, 4)), {}), Case(((5,), (2,)), {"right": True, "out_int32": True}),
            Case(((2, 4), (2, 3)), {}), Case(((0,), (2,)), {}), Case(((3,), ()), {"right": True}),
        ),
        values={"SortedSequence": ValueRange(ordered=True)}, floats=("float32", "float64"), others=("int64",), ulps=0,
    ), onnx=_onnx.searchsorted,
))  # fmt: skip


@export("tensor.searchsorted", "Variable.searchsorted", op="searchsorted")
def searchsorted(
    sorted_sequence: Variable, values: Variable, out_int32: bool = False, right: bool = False, name: str | None = None
) -> Variable:
    """Returns where values would have to be put into sorted rows to keep them sorted.

    Args:
        sorted_sequence: ``[n]``, or ``[..., n]`` with a row for each row of ``values``.
        values: ``[...]`` of the same dtype.
        out_int32: Gives int32 instead of int64.
        right: Behind equal elements rather than before them.
        name: Name of the layer.

    Example:
        >>> y = paddle.searchsorted(paddle.to_tensor([1.0, 3.0, 5.0]), paddle.to_tensor([0.0, 3.0, 6.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0, 1, 3])
    """
    inputs = {
        "SortedSequence": check_variable(sorted_sequence, "sorted_sequence", "searchsorted"),
        "Values": check_variable(values, "values", "searchsorted"),
    }
    return emit_one("searchsorted", inputs, {"out_int32": out_int32, "right": right}, name=name)


@export("tensor.bucketize", "Variable.bucketize", op="searchsorted")
def bucketize(
    x: Variable, sorted_sequence: Variable, out_int32: bool = False, right: bool = False, name: str | None = None
) -> Variable:
    """Returns the number of the interval between sorted borders in which each element lies.

    Args:
        x: ``[...]``.
        sorted_sequence: The borders, ``[n]``.
        out_int32, right, name: As in :func:`searchsorted`.

    Raises:
        ShapeError: If the borders are not a vector.
    """
    check_rank(check_variable(sorted_sequence, "sorted_sequence", "bucketize"), 1, "sorted_sequence", "bucketize")
    return searchsorted(sorted_sequence, x, out_int32, right, name)
