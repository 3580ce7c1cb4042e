"""Where the largest and the smallest element stand: argmax and argmin."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import DTypeError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, Tile, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, Meta, int64, normalize_axis
from tstatic.ops.reduce._ordering import with_size
from tstatic.ops.shape._shapes import Array, along, cut, emit_one, free_axis


def _infer(x: Meta, *, axis: int, keepdims: bool, flatten: bool, dtype: DType) -> Meta:
    if not dtype.is_integer or dtype.itemsize < 4:
        raise DTypeError(
            "positions are integers", expected="int64 or int32", received=dtype.name, fix="pass dtype='int64'"
        )
    at = None if flatten or not x.rank else normalize_axis(axis, x.rank)
    if (x.numel if at is None else x.shape[at]) == 0:
        raise ShapeError(
            "the largest or smallest of no elements has no position",
            expected="at least one element along the axis",
            received=list(x.shape),
            fix="check the shape, or choose another axis",
        )
    if at is None:
        return Meta((1,) * x.rank if keepdims else (), dtype)
    return with_size(x, at, 1 if keepdims else None).with_dtype(dtype)


def _find(function: Any) -> Any:
    def ref(x: Array, out: Array, *, axis: int, flatten: bool) -> None:
        if x.dtype.name == "bfloat16":
            x = x.astype(np.float32)
        if x.size == 0:
            return
        found = function(x, axis=None if flatten or not x.ndim else axis)
        np.copyto(out, np.asarray(found).reshape(out.shape), casting="same_kind")

    return ref


def _lower(name: str) -> Any:
    def lower(torch: Any, x: Any, *, axis: int, keepdims: bool, flatten: bool, dtype: DType) -> Any:
        if flatten or not x.dim():
            found = getattr(torch, name)(x)
            found = found.reshape((1,) * x.dim() if keepdims else ())
        else:
            found = getattr(torch, name)(x, dim=axis, keepdim=keepdims)
        return found.to(getattr(torch, dtype.name))

    return lower


def _split(x: Meta, out: Meta, *, axis: int, keepdims: bool, flatten: bool) -> list[Tile] | None:
    if flatten or not x.rank:
        return None
    at = normalize_axis(axis, x.rank)
    free = free_axis(x.shape, (at,))
    parts = None if free is None else cut(x.shape[free], x.numel)
    if free is None or parts is None:
        return None
    target = free if keepdims or free < at else free - 1
    return [(along(free, p), along(target, p)) for p in parts]


for _type, _function in (("arg_max", np.argmax), ("arg_min", np.argmin)):
    register(
        OpDef(
            _type,
            "X -> Out",
            attrs={"axis": -1, "keepdims": False, "flatten": False, "dtype": Attr(int64, "dtype")},
            infer=_infer,
            ref=_find(_function),
            lower=_lower(_type.replace("_", "")),
            split=_split,
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
        )
    )


def _positions(type: str, x: Variable, axis: int | None, keepdim: bool, dtype: Any, name: str | None) -> Variable:
    function = type.replace("_", "")
    attrs = {"axis": 0 if axis is None else axis, "flatten": axis is None, "keepdims": keepdim, "dtype": dtype}
    return emit_one(type, {"X": check_variable(x, "x", function)}, attrs, name=name, prefix=function)


@export("tensor.argmax", "Variable.argmax", op="arg_max")
def argmax(
    x: Variable, axis: int | None = None, keepdim: bool = False, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """Position of the largest element along an axis, the first of equals; NaN counts as the largest.

    Args:
        x: ``[...]``.
        axis: Which axis; without it the position in the flattened value.
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
    x: Variable, axis: int | None = None, keepdim: bool = False, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """Position of the smallest element along an axis, the first of equals; NaN counts as the smallest.

    Arguments and errors are those of :func:`argmax`.
    """
    return _positions("arg_min", x, axis, keepdim, dtype, name)


@export("fluid.layers.argmax", op="arg_max")
def fluid_argmax(x: Variable, axis: int = 0) -> Variable:
    """Position of the largest element along an axis, the first by default."""
    return argmax(x, axis)


@export("fluid.layers.argmin", op="arg_min")
def fluid_argmin(x: Variable, axis: int = 0) -> Variable:
    """Position of the smallest element along an axis, the first by default."""
    return argmin(x, axis)
