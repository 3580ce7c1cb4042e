"""Values of at least so many dimensions, views by strides, sliding windows, powers, combinations, and triangles of indices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import as_variable, check_variable
from tstatic.ir.checks import INDICES, check_axis, check_int, check_rank, check_result_dtype, check_static_dim
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, dtype_of
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.shape.creation import ones_like
from tstatic.ops.shape.joining import stack
from tstatic.ops.shape.reshape import flatten, reshape, unsqueeze
from tstatic.ops.shape.sequence import shape
from tstatic.ops.shape.transpose import flip, moveaxis
from tstatic.shortage import free_main_memory, out_of_memory


# ------------------------------------------------------------------------------------------------------------ dimensions
def _at_least(rank: int, inputs: Sequence[Any], name: str | None) -> Any:
    found = []
    for item in inputs:
        x = as_variable(item)
        if len(x.shape) < rank:
            # One axis becomes the middle one of three: [n] is [1, n] and [1, n, 1].
            axes = list(range(rank)) if not x.shape else [0, 2][: rank - 1] if len(x.shape) == 1 else [2]
            x = unsqueeze(x, axes, name=name)
        found.append(x)
    return found[0] if len(found) == 1 else found


@export("tensor.atleast_1d", "Variable.atleast_1d")
def atleast_1d(*inputs: Any, name: str | None = None) -> Any:
    """Returns values as they are, numbers as vectors of one element.

    Args:
        inputs: Variables, numbers or arrays.
        name: Name of the layer.

    Returns:
        A Variable, or a list of them for several inputs.
    """
    return _at_least(1, inputs, name)


@export("tensor.atleast_2d", "Variable.atleast_2d")
def atleast_2d(*inputs: Any, name: str | None = None) -> Any:
    """Returns values with at least two dimensions: a vector becomes a row; arguments as of :func:`atleast_1d`."""
    return _at_least(2, inputs, name)


@export("tensor.atleast_3d", "Variable.atleast_3d")
def atleast_3d(*inputs: Any, name: str | None = None) -> Any:
    """Returns values with at least three dimensions: ``[n]`` becomes ``[1, n, 1]``, ``[m, n]`` becomes ``[m, n, 1]``.

    Args:
        inputs, name: As of :func:`atleast_1d`.
    """
    return _at_least(3, inputs, name)


# ----------------------------------------------------------------------------------------------------------------- views
def _offsets(sizes: Sequence[int], strides: Sequence[int]) -> Any:
    places = np.zeros((), np.int64)
    for size, stride in zip(sizes, strides, strict=True):
        places = places[..., None] + np.arange(size) * stride
    return places


@export("tensor.as_strided", "Variable.as_strided")
def as_strided(
    x: Variable, shape: Sequence[int], stride: Sequence[int], offset: int = 0, name: str | None = None
) -> Variable:
    """Returns the elements of the flattened ``x`` that lie ``stride`` elements apart along each axis, as a copy.

    Args:
        x: ``[...]``, any dtype.
        shape: The sizes of the result.
        stride: The distance of neighbours along each of its axes, in elements.
        offset: Where the first element lies.
        name: Name of the layer.

    Raises:
        IndexRangeError: If an element lies outside, when the program runs.

    Example:
        >>> y = paddle.as_strided(paddle.arange(6), [3, 2], [1, 2])
        >>> static.Executor().run(fetch_list=[y])[0].tolist()
        [[0, 2], [1, 3], [2, 4]]
    """
    # A gather, not a view of memory: elements that are read several times need a gradient that adds.
    places = as_variable(_offsets(shape, stride).reshape(-1) + offset)
    line = flatten(check_variable(x, "x", "as_strided")) if x.shape else reshape(x, [1])
    return reshape(emit_one("gather", {"X": line, "Index": places}), list(shape), name=name)


@export("tensor.view", "Variable.view")
def view(x: Variable, shape_or_dtype: Any, name: str | None = None) -> Variable:
    """Returns ``x`` in another shape, as :func:`reshape` does.

    Args:
        x: ``[...]``, any dtype.
        shape_or_dtype: The sizes.
        name: Name of the layer.

    Raises:
        ShapeError: If the elements do not fit.
        ProgramTypeError: For a dtype: bits are never read as another type in a program.
    """
    sizes = list(shape_or_dtype) if isinstance(shape_or_dtype, list | tuple) else shape_or_dtype
    return reshape(check_variable(x, "x", "view"), sizes, name=name)


@export("tensor.view_as", "Variable.view_as")
def view_as(x: Variable, other: Variable, name: str | None = None) -> Variable:
    """Returns ``x`` in the shape of ``other``.

    Args:
        x: ``[...]``, any dtype.
        other: Of as many elements.
        name: Name of the layer.

    Raises:
        ShapeError: If the elements do not fit.
    """
    like = check_variable(other, "other", "view_as")
    known = like.shape.count(UNKNOWN) < 2
    return reshape(check_variable(x, "x", "view_as"), list(like.shape) if known else shape(like), name=name)


@export("tensor.unfold", "Variable.unfold")
def unfold(x: Variable, axis: int, size: int, step: int, name: str | None = None) -> Variable:
    """Returns all windows along an axis: the axis counts windows, and a new last axis runs through each.

    Args:
        x: ``[...]``; the size of the axis must be known.
        axis: Which axis.
        size: How many elements a window has.
        step: How far windows are apart.
        name: Name of the layer.

    Raises:
        ShapeError: If no window fits, or the size of the axis is unknown.

    Example:
        >>> y = paddle.unfold(paddle.arange(5), 0, 3, 1)
        >>> static.Executor().run(fetch_list=[y])[0].tolist()
        [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    """
    x = check_variable(x, "x", "unfold")
    at = check_axis(axis, x, "axis", "unfold")
    length = check_static_dim(x.shape[at], x, "the axis", "unfold")
    count = (length - check_int(size, "size", "unfold", least=1, most=length)) // check_int(
        step, "step", "unfold", least=1
    ) + 1
    places = as_variable(_offsets([count, size], [step, 1]).reshape(-1))
    rows = emit_one("gather", {"X": x, "Index": places}, {"axis": at})
    split = reshape(rows, [*x.shape[:at], count, size, *x.shape[at + 1 :]])
    return moveaxis(split, at + 1, -1, name=name)


# ---------------------------------------------------------------------------------------------------------- made values
@export("tensor.vander", "Variable.vander")
def vander(x: Variable, n: int | None = None, increasing: bool = False, name: str | None = None) -> Variable:
    """Returns the powers of each element of a vector, side by side.

    Args:
        x: Numbers ``[m]``.
        n: How many powers, from the power of 0 on; by default ``m``, which must then be known.
        increasing: Puts the power of 0 first, otherwise last.
        name: Name of the layer.

    Returns:
        ``[m, n]``.

    Raises:
        ShapeError: If ``x`` is not a vector, or ``n`` is negative.
    """
    x = check_variable(x, "x", "vander")
    check_rank(x, 1, "x", "vander")
    count = check_static_dim(x.shape[0], x, "its size", "vander") if n is None else check_int(n, "n", "vander", least=0)
    powers = [ones_like(x)]
    # Each column is the one before times x, as in numpy's vander, so both round alike.
    while len(powers) < count:
        powers.append(emit_one("elementwise_mul", {"X": powers[-1], "Y": x}))
    found = stack(powers[:count], 1) if count else emit_one("slice", {"Input": unsqueeze(x, 1)}, _NO_COLUMN)
    return found if increasing else flip(found, 1, name=name)


_NO_COLUMN = {"axes": [1], "starts": [0], "ends": [0]}
"""As attributes of a slice: a matrix without columns."""


@export("tensor.combinations", "Variable.combinations")
def combinations(x: Variable, r: int = 2, with_replacement: bool = False, name: str | None = None) -> Variable:
    """Returns all choices of ``r`` elements of a vector, in order.

    Args:
        x: ``[n]``; the size must be known.
        r: How many, at least 0.
        with_replacement: An element may be chosen several times.
        name: Name of the layer.

    Returns:
        ``[choices, r]``.

    Raises:
        ShapeError: If ``x`` is not a vector of known size, or ``r`` is negative.
    """
    x = check_variable(x, "x", "combinations")
    check_rank(x, 1, "x", "combinations")
    size, count = (
        check_static_dim(x.shape[0], x, "its size", "combinations"),
        check_int(r, "r", "combinations", least=0),
    )
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = np.array(list(choose(range(size), count)), np.int64).reshape(-1, count)
    chosen = emit_one("gather", {"X": x, "Index": as_variable(places.reshape(-1))})
    return reshape(chosen, list(places.shape), name=name)


def _triangle(row: Any, col: Any, offset: int, dtype: Any, function: str, lower: bool) -> Variable:
    rows = check_int(row, "row", function, least=0)
    columns = rows if col is None else check_int(col, "col", function, least=0)
    last = max(-rows, min(columns, check_int(offset, "offset", function) + (1 if lower else 0)))
    kind = dtype_of(dtype)
    check_result_dtype(kind, INDICES, function)
    # Nothing is computed that memory does not suffice for: a system may grant it, and end the process when it is used.
    if not lower:
        rows = min(rows, columns - last)  # those below have none of it
    below = _below(rows, columns, last)
    wanted = 8 * (4 * rows + 5 * (below if lower else rows * columns - below))
    if wanted > free_main_memory():
        raise out_of_memory(
            f"{function}({rows}, {columns})",
            wanted,
            fix="pass fewer rows or columns, or feed indices made in parts",
            op=function,
        )
    # Of each row the columns below `first` are below the triangle's edge: elements without a mask of the whole matrix.
    edge = np.clip(np.arange(rows) + last, 0, columns)
    counts = edge if lower else columns - edge
    starts = np.cumsum(counts) - counts
    at = np.arange(int(counts.sum())) - np.repeat(starts - (0 if lower else edge), counts)
    return as_variable(np.stack([np.repeat(np.arange(rows), counts), at]).astype(kind.np))


def _below(rows: int, columns: int, last: int) -> int:
    """Returns how many elements lie left of the edge of a triangle, which row ``i`` has at column ``i + last``."""
    first, end = (
        max(0, -last),
        max(0, min(rows, columns - last)),
    )  # rows from `first` to `end` have a part of their elements there
    partly = max(0, end - first)
    return partly * (2 * (first + last) + partly - 1) // 2 + (rows - max(first, end)) * columns if rows > first else 0


@export("tensor.tril_indices")
def tril_indices(row: int, col: int | None = None, offset: int = 0, dtype: Any = "int64") -> Variable:
    """Returns the coordinates of the lower triangle of a matrix, row by row.

    Args:
        row, col: The sizes of the matrix; it is square by default.
        offset: The last diagonal that belongs to it; positive ones lie above the main one.
        dtype: int32 or int64.

    Returns:
        ``[2, elements]``: rows, then columns.

    Raises:
        ShapeError: If a size is negative.
        OutOfMemoryError: If there is no memory for so many coordinates.

    Example:
        >>> y = paddle.tril_indices(2, 2)
        >>> static.Executor().run(fetch_list=[y])[0].tolist()
        [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle(row, col, offset, dtype, "tril_indices", lower=True)


@export("tensor.triu_indices")
def triu_indices(row: int, col: int | None = None, offset: int = 0, dtype: Any = "int64") -> Variable:
    """Returns the coordinates of the upper triangle of a matrix, row by row; arguments and errors as of :func:`tril_indices`."""
    return _triangle(row, col, offset, dtype, "triu_indices", lower=False)
