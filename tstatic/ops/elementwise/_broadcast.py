"""Ops of several inputs that broadcast: alignment by Paddle's ``axis``, and ``infer``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tstatic.errors import DTypeError, ShapeError
from tstatic.ir.types import UNKNOWN, Meta, Shape, bool_, broadcast_shapes

Align = Callable[..., list[Shape | None]]
"""``(shapes, attrs, like)``: maps the inputs' shapes to shapes of one rank that broadcast by numpy's rule."""


# ------------------------------------------------------------------------------------------------------------ alignment
def align(shapes: Sequence[Shape | None], attrs: Mapping[str, Any], like: Sequence[int] = (0, 1)) -> list[Shape | None]:
    """Shapes with ones added, so that all broadcast from the last dimension backwards.

    With ``axis`` -1 the last dimensions meet; otherwise the dimensions of the operand of lower rank begin at ``axis`` of the
    other one, and its trailing sizes of 1 that reach beyond are dropped.

    Args:
        shapes: Those of X, Y and further inputs.
        attrs: May hold ``axis``.
        like: Per input 0 or 1 where it is placed as X or Y is; any other input meets the result from its last dimension.

    Raises:
        ShapeError: If the operand does not fit there.
    """
    axis = attrs.get("axis", -1)
    x, y = shapes[0], shapes[1]
    if axis != -1 and x is not None and y is not None and len(x) != len(y):
        lower, rank = (1, len(x)) if len(x) > len(y) else (0, len(y))
        shapes = [
            _place(s, rank, axis) if s is not None and i < len(like) and like[i] == lower else s
            for i, s in enumerate(shapes)
        ]
    return align_last(shapes, attrs)


def align_last(
    shapes: Sequence[Shape | None], attrs: Mapping[str, Any], like: Sequence[int] = ()
) -> list[Shape | None]:
    """Like :func:`align` for ops without ``axis``: the last dimensions meet."""
    rank = max(len(s) for s in shapes if s is not None)
    return [None if s is None else (1,) * (rank - len(s)) + s for s in shapes]


def _place(small: Shape, rank: int, axis: int) -> Shape:
    trimmed = small
    # An unknown size that reaches beyond can only turn out to be 1.
    while trimmed and trimmed[-1] in (1, UNKNOWN) and axis + len(trimmed) > rank:
        trimmed = trimmed[:-1]
    if not 0 <= axis <= rank - len(trimmed):
        raise ShapeError(
            f"axis {axis} puts an operand of rank {len(small)} outside one of rank {rank}",
            expected=f"axis -1, or an axis in [0, {rank - len(trimmed)}]",
            received=f"axis {axis}",
            fix="use axis=-1 and give the operand trailing sizes of 1 where it has none",
        )
    return (1,) * axis + trimmed + (1,) * (rank - axis - len(trimmed))


def prepare(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Sequence[Any]:
    """Arrays or tensors as views whose shapes broadcast by numpy's rule."""
    if attrs.get("axis", -1) == -1:
        return inputs
    shapes = align([None if a is None else tuple(a.shape) for a in inputs], attrs)
    return [a if a is None else a.reshape(s) for a, s in zip(inputs, shapes, strict=True)]


# ---------------------------------------------------------------------------------------------------------------- infer
def same_dtype(x: Meta, y: Meta, names: tuple[str, str] = ("X", "Y")) -> None:
    """Raises DTypeError when two operands have different dtypes."""
    if x.dtype is not y.dtype:
        wide = x.dtype if (x.dtype.is_float, x.dtype.itemsize) >= (y.dtype.is_float, y.dtype.itemsize) else y.dtype
        narrow = names[1] if wide is x.dtype else names[0]
        raise DTypeError(
            f"{names[0]} and {names[1]} have different dtypes",
            expected="operands of one dtype",
            received=f"{names[0]} of dtype {x.dtype.name} and {names[1]} of dtype {y.dtype.name}",
            fix=f"convert one of them: paddle.cast({narrow.lower()}, '{wide.name}')",
        )


def binary(x: Meta, y: Meta, axis: int = -1) -> Meta:
    """``infer`` of an op on two numbers: the broadcast shape.

    Raises:
        ShapeError: If the shapes do not broadcast.
        DTypeError: If the dtypes differ, or are bool.
    """
    same_dtype(x, y)
    if x.dtype is bool_:
        raise DTypeError(
            "this operator takes numbers, not truth values",
            expected="two operands of a float or integer dtype",
            received="X and Y of dtype bool",
            fix="convert both first: paddle.cast(x, 'int64'), or use paddle.logical_and / logical_or",
        )
    a, b = align([x.shape, y.shape], {"axis": axis})
    assert a is not None
    assert b is not None
    return x.with_shape(broadcast_shapes(a, b))


def binary_floats(x: Meta, y: Meta, axis: int = -1) -> Meta:
    """Like :func:`binary`, for ops that take floats only."""
    out = binary(x, y, axis)
    if not out.dtype.is_float:
        raise DTypeError(
            "this operator takes float values only",
            expected="float16, bfloat16, float32 or float64",
            received=f"X and Y of dtype {out.dtype.name}",
            fix="convert both first: paddle.cast(x, 'float32'); for whole quotients use paddle.floor_divide",
        )
    return out


def comparison(x: Meta, y: Meta, axis: int = -1) -> Meta:
    """``infer`` of a comparison: truth values of the broadcast shape; both operands of one dtype."""
    same_dtype(x, y)
    a, b = align([x.shape, y.shape], {"axis": axis})
    assert a is not None
    assert b is not None
    return Meta(broadcast_shapes(a, b), bool_)
