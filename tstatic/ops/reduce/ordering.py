"""Order along an axis: sort, top-k, the k-th element, and where the largest and smallest stand.

NaN counts as larger than all numbers and equal elements keep their order, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import DTypeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import INDICES, INTEGERS, check_choice, check_dtype, check_int
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_elements
from tstatic.ir.split import ELEMENTS, FREE, Split
from tstatic.ir.types import UNKNOWN, DType, Meta, int64, normalize_axis
from tstatic.ops.base.gradients import passed
from tstatic.ops.base.shapes import Array, emit_one
from tstatic.ops.reduce import _reduce_onnx as _onnx
from tstatic.ops.shape.when_run import by_axis

# Rows longer than this are first narrowed down when only few of their elements are asked for.
_LONG = 512


def _order(x: Array, axis: int, *, descending: bool) -> Array:
    """Returns the indices that sort along an axis, stable in both directions."""
    if not descending:
        return np.asarray(np.argsort(_sortable(x), axis=axis, kind="stable"))
    # Backwards twice: equal elements keep their order, and NaN, which sorts last, comes first.
    back = tuple(slice(None, None, -1) if i == axis else slice(None) for i in range(x.ndim))
    found = np.argsort(_sortable(x)[back], axis=axis, kind="stable")[back]
    return np.asarray(x.shape[axis] - 1 - found)


def _sortable(x: Array) -> Array:
    # ml_dtypes has no fast sort of its own; widening keeps the order.
    return x.astype(np.float32) if x.dtype.name == "bfloat16" else x


def _first(x: Array, axis: int, k: int, *, largest: bool) -> Array:
    """Returns the indices of the ``k`` first elements of the sorted order along an axis."""
    size = x.shape[axis]
    if k == 1 and largest and x.size:
        # argmax takes the first of equal elements and NaN before all numbers, as the stable order does.
        return np.asarray(np.argmax(_sortable(x), axis=axis, keepdims=True))
    # Narrowing down is a loop over rows in Python, so short rows are sorted whole, and those of which much is kept.
    if size <= _LONG or k * 8 > size:
        return _order(x, axis, descending=largest)[
            tuple(slice(0, k) if i == axis else slice(None) for i in range(x.ndim))
        ]
    rows = np.ascontiguousarray(np.moveaxis(_sortable(x), axis, -1)).reshape(-1, size)
    found = np.empty((rows.shape[0], k), np.int64)
    for row, result in zip(rows, found, strict=True):
        # Elements on the wrong side of the k-th one cannot be among the first; NaN compares false and stays.
        if largest:
            candidates = np.flatnonzero(~(row < np.partition(row, size - k)[size - k]))
        else:
            candidates = np.flatnonzero(~(row > np.partition(row, k - 1)[k - 1]))
        result[:] = candidates[_order(row[candidates], 0, descending=largest)[:k]]
    shape = np.moveaxis(x, axis, -1).shape[:-1]
    return np.moveaxis(found.reshape(*shape, k), -1, axis)


def _put(dx: Array, indices: Array, dout: Array, axis: int) -> None:
    """Writes zeros, and ``dout`` at positions that differ within each row: the gradient of a selection by order."""
    dx.fill(0)
    # The positions of a row differ, so plain writing loses nothing.
    if indices.size:
        np.put_along_axis(dx, indices, dout, axis)


def _check_k(k: int, x: Meta, axis: int) -> int:
    """Returns the positive axis.

    Raises:
        ShapeError: If the axis has fewer than ``k`` elements, or ``k`` is not positive.
    """
    at = normalize_axis(axis, x.rank)
    size = x.shape[at] if x.rank else 1
    check_int(k, "k", least=1, most=None if size == UNKNOWN else size)
    return at


def _with_size(x: Meta, axis: int, size: int | None) -> Meta:
    """Returns the metadata with another size along an axis, or without it."""
    middle: Sequence[int] = () if size is None else (size,)
    return x.with_shape((*x.shape[:axis], *middle, *x.shape[axis + 1 :])) if x.rank else x


def _grad_is_gather(ctx: GradContext) -> list[OpSpec]:
    """Differentiates the gradient of a selection by order: the new gradient is read at the same positions."""
    names = passed(ctx, "Out@GRAD", "X@GRAD")
    if names is None:
        return []
    # The positions are those of the first gradient: where a selection took a value, its gradient is read.
    inputs = {"Input": [names[0]], "Index": ctx.inputs["Indices"]}
    return [OpSpec("take_along_axis", inputs, {"Result": [names[1]]}, {"Axis": ctx.attrs["axis"]})]


# -------------------------------------------------------------------------------------------------------------- argsort
def _infer(x: Meta, *, axis: int) -> tuple[Meta, Meta]:
    normalize_axis(axis, x.rank)
    return x, x.with_dtype(int64)


def _ref(x: Array, out: Array | None, indices: Array | None, *, axis: int, descending: bool) -> None:
    if x.ndim == 0:
        if out is not None:
            np.copyto(out, x)
        if indices is not None:
            indices.fill(0)
        return
    at = normalize_axis(axis, x.ndim)
    found = _order(x, at, descending=descending)
    if indices is not None:
        np.copyto(indices, found)
    if out is not None:
        np.copyto(out, np.take_along_axis(x, found, at))


def _lower(torch: Any, x: Any, *, axis: int, descending: bool) -> Any:
    found = torch.sort(x, dim=axis, descending=descending, stable=True)
    return found.values, found.indices


def _back(x: Array, indices: Array, dout: Array, dx: Array, *, axis: int, keepdim: bool = True) -> None:
    if dx.ndim == 0:
        np.copyto(dx, dout)
        return
    at = normalize_axis(axis, dx.ndim)
    where, given = (indices, dout) if keepdim else (np.expand_dims(indices, at), np.expand_dims(dout, at))
    _put(dx, where, given, at)


def _lower_back(torch: Any, x: Any, indices: Any, dout: Any, *, axis: int, keepdim: bool = True) -> Any:
    if x.dim() == 0:
        return dout.clone()
    where, given = (indices, dout) if keepdim else (indices.unsqueeze(axis), dout.unsqueeze(axis))
    return torch.zeros(tuple(x.shape), dtype=dout.dtype, device=dout.device).scatter(axis, where, given)


# Of X only the shape is read: the values may be gone.
_SELECTION_GRAD = GradOp(
    "X, Indices, Out@GRAD -> X@GRAD", ref=_back, lower=_lower_back, split=Split(ELEMENTS, FREE, taken="axis"),
    shape_only=("X",), grad=_grad_is_gather,
)  # fmt: skip

register(OpDef(
    "argsort", "X -> Out, Indices", lod="X", attrs={"axis": -1, "descending": False}, infer=_infer, ref=_ref, lower=_lower,
    split=Split(ELEMENTS, FREE, taken="axis"),
    grad=_SELECTION_GRAD,
    domain=Domain(
        cases=(
            Case(((3, 4),), {"axis": -1}), Case(((4, 3),), {"axis": 0, "descending": True}),
            Case(((2, 5, 3),), {"axis": 1}), Case(((2, 5, 3),), {"axis": -2, "descending": True}),
            Case(((7,),), {"axis": 0}), Case(((0, 3),), {"axis": 0}), Case(((2, 0),), {"axis": 0, "descending": True}),
            Case(((1,),), {"axis": -1}),
        ),
        values={"X": ValueRange(distinct=True)}, others=("int64", "int32"), ulps=0,
    ), onnx=_onnx.argsort,
))  # fmt: skip


@export("tensor.argsort", "Variable.argsort", op="argsort")
def argsort(x: Variable, axis: int = -1, descending: bool = False, name: str | None = None) -> Variable:
    """Returns the indices (int64) that sort along an axis; equal elements keep their order and NaN counts as the largest.

    Args:
        x: ``[...]``.
        axis: Which axis.
        descending: From the largest to the smallest.
        name: Name of the layer.
    """
    attrs = {"axis": axis, "descending": descending}
    found: Variable = emit("argsort", {"X": check_variable(x, "x", "argsort")}, attrs, name=name)[1]
    return found


@export("tensor.sort", "Variable.sort", op="argsort")
def sort(x: Variable, axis: int = -1, descending: bool = False, name: str | None = None) -> Variable:
    """Returns the elements in order along an axis.

    Args:
        x: ``[...]``.
        axis: Which axis.
        descending: From the largest to the smallest; NaN counts as the largest.
        name: Name of the layer.
    """
    attrs = {"axis": axis, "descending": descending}
    found: Variable = emit("argsort", {"X": check_variable(x, "x", "sort")}, attrs, name=name, prefix="sort")[0]
    return found


@export("fluid.layers.argsort", op="argsort")
def fluid_argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """Returns the sorted elements and the indices that sort them.

    Args:
        input: ``[...]``.
        axis, descending: As in :func:`argsort`.
        name: Name of the layer.

    Raises:
        ShapeError: If the axis is out of range.
    """
    x = check_variable(input, "input", "argsort")
    found: tuple[Variable, Variable] = emit("argsort", {"X": x}, {"axis": axis, "descending": descending}, name=name)
    return found


# ------------------------------------------------------------------------------------------------------------ top_k_v2
def _infer_topk(x: Meta, given: Meta | None, *, k: int, axis: int) -> tuple[Meta, Meta]:
    if given is not None:
        check_dtype(given, INTEGERS, "K")
        # The number is known when it runs, so the size is open until then.
        out = _with_size(x, normalize_axis(axis, x.rank), UNKNOWN)
    else:
        out = _with_size(x, _check_k(k, x, axis), k)
    return out, out.with_dtype(int64)


def _ref_topk(
    x: Array, given: Array | None, out: Array | None, indices: Array | None, *, k: int, axis: int, largest: bool
) -> list[Array] | None:
    line = x if x.ndim else x.reshape(1)
    at = normalize_axis(axis, line.ndim)
    if given is not None:
        k = int(given.reshape(-1)[0])
        _check_k(k, Meta(line.shape, int64), at)
    found = _first(line, at, k, largest=largest)
    values = np.take_along_axis(line, found, at)
    if given is not None:
        return [values.reshape(()) if not x.ndim else values, found.reshape(()) if not x.ndim else found]
    if indices is not None:
        np.copyto(indices, found.reshape(indices.shape))
    if out is not None:
        np.copyto(out, values.reshape(out.shape))
    return None


def _lower_topk(torch: Any, x: Any, given: Any, *, k: int, axis: int, largest: bool) -> Any:
    # A stable sort: torch.topk leaves open which of equal elements it names.
    found = torch.sort(x, dim=axis, descending=largest, stable=True)
    count = int(given) if given is not None else k
    if x.dim() == 0:
        return found.values, found.indices
    return found.values.narrow(axis, 0, count).contiguous(), found.indices.narrow(axis, 0, count).contiguous()


register(OpDef(
    "top_k_v2", "X, K? -> Out, Indices", lod="X",
    attrs={"k": 1, "axis": -1, "largest": True, "sorted": Attr.idle(True, "the entries are always in order")},
    infer=_infer_topk, ref=_ref_topk, lower=_lower_topk,
    split=Split(ELEMENTS, FREE, None, FREE, FREE, taken="axis"),
    grad=_SELECTION_GRAD,
    domain=Domain(
        cases=(
            Case(((3, 6), None), {"k": 2}), Case(((5, 3), None), {"k": 3, "axis": 0, "largest": False}),
            Case(((2, 4, 3), None), {"k": 1, "axis": 1}),
            Case(((2, 4, 3), None), {"k": 4, "axis": -2, "largest": False}), Case(((1,), None), {"k": 1, "axis": 0}),
            Case(((0, 3), None), {"k": 2}), Case(((2, 600), None), {"k": 5}),
        ),
        values={"X": ValueRange(distinct=True)}, others=("int64", "int32"), ulps=0,
    ), onnx=_onnx.top_k,
))  # fmt: skip


@export("tensor.topk", "Variable.topk", op="top_k_v2")
def topk(
    x: Variable, k: Any, axis: int | None = None, largest: bool = True, sorted: bool = True, name: str | None = None
) -> tuple[Variable, Variable]:
    """Returns the ``k`` largest (or smallest) entries along an axis, in order, and where they stand.

    Args:
        x: ``[...]``.
        k: How many; an int or a Variable of one integer.
        axis: Which axis; the last by default.
        largest: The largest ones; NaN counts as the largest of all. Of equal entries the first comes first.
        sorted: Accepted; the entries are always in order.
        name: Name of the layer.

    Returns:
        Values, and indices (int64).

    Raises:
        ShapeError: If the axis has fewer than ``k`` entries.
    """
    given = k if isinstance(k, Variable) else None
    attrs = {
        "k": 1 if given is not None else k,
        "axis": -1 if axis is None else axis,
        "largest": largest,
        "sorted": sorted,
    }
    found: tuple[Variable, Variable] = emit(
        "top_k_v2", {"X": check_variable(x, "x", "topk"), "K": given}, attrs, name=name
    )
    return found


@export("fluid.layers.topk", op="top_k_v2")
def fluid_topk(input: Variable, k: Any, name: str | None = None) -> tuple[Variable, Variable]:
    """Returns the ``k`` largest entries of each row, in order, and where they stand.

    Args:
        input: ``[..., n]``.
        k: How many, at most ``n``; an int or a Variable of one integer.
        name: Name of the layer.

    Raises:
        ShapeError: If a row has fewer than ``k`` entries.

    Example:
        >>> x = paddle.to_tensor([[1.0, 5.0, 2.0], [7.0, 0.0, 3.0]])
        >>> values, indices = fluid.layers.topk(x, k=2)
        >>> static.Executor().run(fetch_list=[values, indices])
        [array([[5., 2.],
               [7., 3.]], dtype=float32), array([[1, 2],
               [0, 2]])]
    """
    return topk(input, k, name=name)


# ------------------------------------------------------------------------------------------------------------ kthvalue
def _infer_kth(x: Meta, *, k: int, axis: int, keepdim: bool) -> tuple[Meta, Meta]:
    out = _with_size(x, _check_k(k, x, axis), 1 if keepdim else None)
    return out, out.with_dtype(int64)


def _ref_kth(x: Array, out: Array | None, indices: Array | None, *, k: int, axis: int, keepdim: bool) -> None:
    line = x if x.ndim else x.reshape(1)
    at = normalize_axis(axis, line.ndim)
    found = _first(line, at, k, largest=False)
    found = found[tuple(slice(k - 1, k) if i == at else slice(None) for i in range(line.ndim))]
    if indices is not None:
        np.copyto(indices, found.reshape(indices.shape))
    if out is not None:
        np.copyto(out, np.take_along_axis(line, found, at).reshape(out.shape))


def _lower_kth(torch: Any, x: Any, *, k: int, axis: int, keepdim: bool) -> Any:
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    found = torch.sort(x, dim=axis, stable=True)
    pair = found.values.narrow(axis, k - 1, 1), found.indices.narrow(axis, k - 1, 1)
    return tuple(t.contiguous() if keepdim else t.squeeze(axis).contiguous() for t in pair)


register(OpDef(
    "kthvalue", "X -> Out, Indices", attrs={"k": 1, "axis": -1, "keepdim": False}, infer=_infer_kth, ref=_ref_kth,
    lower=_lower_kth,
    grad=GradOp("X, Indices, Out@GRAD -> X@GRAD", ref=_back, lower=_lower_back, shape_only=("X",)),
    domain=Domain(
        cases=(
            Case(((3, 6),), {"k": 2}), Case(((5, 3),), {"k": 3, "axis": 0, "keepdim": True}),
            Case(((2, 4, 3),), {"k": 1, "axis": 1}), Case(((2, 4, 3),), {"k": 4, "axis": -2}),
            Case(((1,),), {"k": 1, "axis": 0}), Case(((0, 3),), {"k": 2}), Case(((4,),), {"k": 4, "keepdim": True}),
        ),
        values={"X": ValueRange(distinct=True)}, others=("int64", "int32"), ulps=0,
    ), onnx=_onnx.kth,
))  # fmt: skip


@export("tensor.kthvalue", "Variable.kthvalue", op="kthvalue")
def kthvalue(
    x: Variable, k: int, axis: int | None = None, keepdim: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """Returns the ``k``-th smallest entry (from 1) along an axis, the last by default, and where it stands.

    Args:
        x: ``[...]``.
        k: Which one, from 1 to the size of the axis.
        axis: Which axis.
        keepdim: Keep the axis with size 1.
        name: Name of the layer.

    Raises:
        ShapeError: If the axis has fewer than ``k`` entries.
    """
    attrs = {"k": k, "axis": -1 if axis is None else axis, "keepdim": keepdim}
    found: tuple[Variable, Variable] = emit("kthvalue", {"X": check_variable(x, "x", "kthvalue")}, attrs, name=name)
    return found


# -------------------------------------------------------------------------------------------------- arg_max and arg_min
def _infer_extreme(x: Meta, *, axis: int, keepdims: bool, flatten: bool, dtype: DType) -> Meta:
    check_choice(dtype.name, INDICES, "dtype", error=DTypeError)
    at = None if flatten or not x.rank else normalize_axis(axis, x.rank)
    check_elements(x, range(x.rank) if at is None else (at,), "the position of the largest or smallest")
    if at is None:
        return Meta((1,) * x.rank if keepdims else (), dtype)
    return _with_size(x, at, 1 if keepdims else None).with_dtype(dtype)


def _find(function: Any) -> Any:
    def ref(x: Array, out: Array, *, axis: int, flatten: bool) -> None:
        if x.dtype.name == "bfloat16":
            x = x.astype(np.float32)
        if x.size == 0:
            return
        found = function(x, axis=None if flatten or not x.ndim else axis)
        np.copyto(out, np.asarray(found).reshape(out.shape), casting="same_kind")

    return ref


def _lower_extreme(name: str) -> Any:
    def lower(torch: Any, x: Any, *, axis: int, keepdims: bool, flatten: bool, dtype: DType) -> Any:
        x = x.view(torch.uint8) if x.dtype == torch.bool else x  # torch orders no truth values
        if flatten or not x.dim():
            found = getattr(torch, name)(x)
            found = found.reshape((1,) * x.dim() if keepdims else ())
        else:
            found = getattr(torch, name)(x, dim=axis, keepdim=keepdims)
        return found.to(getattr(torch, dtype.name))

    return lower


for _type, _function in (("arg_max", np.argmax), ("arg_min", np.argmin)):
    register(
        OpDef(
            _type,
            "X -> Out",
            attrs={"axis": -1, "keepdims": False, "flatten": False, "dtype": Attr(int64, "dtype")},
            infer=_infer_extreme,
            ref=_find(_function),
            lower=_lower_extreme(_type.replace("_", "")),
            split=Split(ELEMENTS, FREE, taken="axis", unless="flatten"),
            domain=Domain(
                cases=(
                    Case(((3, 4),), {"axis": -1}),
                    Case(((3, 4),), {"axis": 0, "keepdims": True}),
                    Case(((2, 3, 4),), {"flatten": True}),
                    Case(((2, 3),), {"flatten": True, "keepdims": True}),
                    Case(((),), {}),
                    Case(((0, 3),), {"axis": 1, "dtype": "int32"}),
                    Case(((1, 5),), {"axis": -2}),
                ),
                values={"X": ValueRange(distinct=True)},
                ulps=0,
            ),
            onnx=_onnx.extreme(_type.title().replace("_", "")),
        )
    )


def _positions(type: str, x: Variable, axis: Any, keepdim: bool, dtype: Any, name: str | None) -> Variable:
    function = type.replace("_", "")
    x = check_variable(x, "x", function)

    def along(axis: Any) -> Variable:
        attrs = {"axis": 0 if axis is None else axis, "flatten": axis is None, "keepdims": keepdim, "dtype": dtype}
        return emit_one(type, {"X": x}, attrs, name=name, prefix=function)

    return by_axis(axis, len(x.shape), along, function)


@export("tensor.argmax", "Variable.argmax", op="arg_max")
def argmax(
    x: Variable, axis: Any = None, keepdim: bool = False, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """Returns the position of the largest element along an axis, the first of equals; NaN counts as the largest.

    Args:
        x: ``[...]``.
        axis: Which axis, a number or an integer Variable; without it the position in the flattened value.
        keepdim: Keep the axis with size 1.
        dtype: int64 or int32.
        name: Name of the layer.

    Raises:
        ShapeError: If there is no element, or the axis is out of range.

    Example:
        >>> x = paddle.to_tensor([[1.0, 5.0, 2.0], [7.0, 0.0, 3.0]])
        >>> flat, rows = paddle.argmax(x), paddle.argmax(x, axis=1)
        >>> static.Executor().run(fetch_list=[flat, rows])
        [array(3), array([1, 0])]
    """
    return _positions("arg_max", x, axis, keepdim, dtype, name)


@export("tensor.argmin", "Variable.argmin", op="arg_min")
def argmin(
    x: Variable, axis: Any = None, keepdim: bool = False, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """Returns the position of the smallest element along an axis, the first of equals; NaN counts as the smallest.

    Arguments and errors are those of :func:`argmax`.

    Args:
        x, axis, keepdim, dtype, name: As in :func:`argmax`, with its errors.
    """
    return _positions("arg_min", x, axis, keepdim, dtype, name)


@export("fluid.layers.argmax", op="arg_max")
def fluid_argmax(x: Variable, axis: int = 0) -> Variable:
    """Returns the position of the largest element along an axis, the first by default.

    Args:
        x: ``[...]``.
        axis: Which axis, the first by default; ``None``: the flattened value.

    Raises:
        ShapeError: If there is no element, or the axis is out of range.
    """
    return argmax(x, axis)


@export("fluid.layers.argmin", op="arg_min")
def fluid_argmin(x: Variable, axis: int = 0) -> Variable:
    """Returns the position of the smallest element along an axis, the first by default.

    Args:
        x: ``[...]``.
        axis: Which axis, the first by default; ``None``: the flattened value.

    Raises:
        ShapeError: If there is no element, or the axis is out of range.
    """
    return argmin(x, axis)
