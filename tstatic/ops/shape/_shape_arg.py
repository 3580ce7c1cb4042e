"""The ``shape`` argument of functions that make a value from nothing: sizes, or Variables that hold sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ProgramTypeError, ShapeError
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, Shape


def has_variable(shape: Any) -> bool:
    """Whether a size is known at run time only."""
    return isinstance(shape, Variable) or (
        isinstance(shape, list | tuple) and any(isinstance(s, Variable) for s in shape)
    )


def known_shape(shape: Any, function: str) -> Shape:
    """Returns the sizes of a shape without Variables.

    Raises:
        ProgramTypeError: If it is not a list of ints.
        ShapeError: If a size is negative.
    """
    if isinstance(shape, int | np.integer) and not isinstance(shape, bool):
        shape = [shape]
    if isinstance(shape, np.ndarray) and shape.dtype.kind in "iu" and shape.ndim == 1:
        shape = shape.tolist()
    if not isinstance(shape, list | tuple) or any(
        isinstance(s, bool) or not isinstance(s, int | np.integer) for s in shape
    ):
        raise ProgramTypeError(
            f"The type of 'shape' in {function} must be list or tuple of ints, or an int64 Variable",
            expected="a list of ints",
            received=f"{shape!r} of type {type(shape).__name__}",
            fix="pass shape=[2, 3], for example",
            op=function,
        )
    sizes = tuple(int(s) for s in shape)
    check_sizes(sizes, function)
    return sizes


def check_sizes(sizes: Sequence[int], function: str) -> None:
    """Refuses negative sizes, and shapes that cannot be addressed.

    Raises:
        ShapeError: Says which.
    """
    total = 1
    for size in sizes:
        if size < 0:
            raise ShapeError(
                f"'shape' of {function} holds a size that is not known",
                expected="sizes of at least 0",
                received=list(sizes),
                fix="take the size from paddle.shape(x)[0], or use paddle.full_like(x, ...) for a value shaped like x",
                op=function,
            )
        total *= max(size, 1)
    if total > 2**60:
        raise ShapeError(
            f"the shape in {function} has more elements than can be addressed",
            expected="at most 2**60 elements",
            received=list(sizes),
            fix="check the sizes",
            op=function,
        )


def shape_variable(shape: Any, function: str) -> Variable:
    """An int64 Variable of shape [rank] from a shape that holds Variables."""
    if isinstance(shape, Variable):
        kind = check_variable(shape, "shape", function, ("int32", "int64"))
        return kind if kind.dtype.name == "int64" else _cast(kind)
    sizes = []
    for size in shape:
        if isinstance(size, Variable):
            one = check_variable(size, "shape", function, ("int32", "int64"))
            one = one if one.dtype.name == "int64" else _cast(one)
            sizes.append(emit("reshape2", {"X": one}, {"shape": (1,)}))
        else:
            check_sizes([size], function)
            sizes.append(as_variable([size], dtype="int64"))
    return emit("concat", {"X": sizes}, {"axis": 0})  # type: ignore[no-any-return]


def _cast(x: Variable) -> Variable:
    return emit("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": "int64"})  # type: ignore[no-any-return]


def filled(shape: Any, dtype: Any, value: Any, function: str, name: str | None = None) -> Variable:
    """A Variable of a shape that holds Variables, every element ``value``."""
    sizes = shape_variable(shape, function)
    known = () if isinstance(shape, Variable) else tuple(-1 if isinstance(s, Variable) else int(s) for s in shape)
    attrs = {"dtype": dtype, "value": value, "shape": known}
    return emit("full_with_tensor", {"ShapeTensor": sizes}, attrs, name=name)  # type: ignore[no-any-return]


def batch_shape(op: str, x: Meta, shape: Shape, input_dim_idx: int, output_dim_idx: int) -> Shape:
    """``shape`` with the size of one axis taken from another value.

    Raises:
        ProgramError: If an axis is out of range.
    """
    for name, axis, rank in (("input_dim_idx", input_dim_idx, x.rank), ("output_dim_idx", output_dim_idx, len(shape))):
        if not 0 <= axis < rank:
            raise ProgramError(
                f"'{name}' of '{op}' is out of range",
                expected=f"a number from 0 to {rank - 1}",
                received=axis,
                fix=f"choose an axis of the {'input' if rank == x.rank else 'shape'}",
                op=op,
            )
    sizes = list(shape)
    sizes[output_dim_idx] = x.shape[input_dim_idx]
    check_sizes([s for i, s in enumerate(sizes) if i != output_dim_idx], op)
    return tuple(sizes)
