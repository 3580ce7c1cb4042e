"""Products beyond that of matrices: kron, cross, tensordot, distances of all pairs, and rows of bounded length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_axes, check_axis, check_choice
from tstatic.ir.export import respell
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.mixed import operands
from tstatic.ops.base.shapes import written
from tstatic.ops.elementwise.arithmetic import divide, multiply, subtract
from tstatic.ops.elementwise.logic import not_equal, where
from tstatic.ops.elementwise.scale import cast, scale
from tstatic.ops.elementwise.unary import abs, pow, sqrt, square
from tstatic.ops.matmul.matmul import matmul
from tstatic.ops.reduce.extrema import amax
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.creation import ones_like, zeros_like
from tstatic.ops.shape.reshape import reshape, unsqueeze
from tstatic.ops.shape.sequence import shape
from tstatic.ops.shape.transpose import roll, transpose


@export("tensor.kron", "Variable.kron")
def kron(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the Kronecker product: ``x`` with each element replaced by its product with the whole ``y``.

    Args:
        x, y: Numbers; the one of lower rank gets leading axes of size 1.
        name: Name of the layer.

    Returns:
        Sizes are the products of the sizes.

    Example:
        >>> y = paddle.kron(paddle.to_tensor([1, 10]), paddle.to_tensor([1, 2, 3]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([ 1,  2,  3, 10, 20, 30])
    """
    a, b = operands(x, y, "kron")
    rank = max(len(a.shape), len(b.shape))
    a, b = (reshape(v, [*[1] * (rank - len(v.shape)), *_sizes(v)]) if len(v.shape) < rank else v for v in (a, b))
    # Axes of x and y alternate, so that merging pairs of neighbours is the Kronecker product.
    product = multiply(unsqueeze(a, [2 * i + 1 for i in range(rank)]), unsqueeze(b, [2 * i for i in range(rank)]))
    known = [UNKNOWN if UNKNOWN in (m, n) else m * n for m, n in zip(a.shape, b.shape, strict=True)]
    if known.count(UNKNOWN) < 2:
        return reshape(product, known, name=name)
    return reshape(product, multiply(shape(a), shape(b)), name=name)


@export("fluid.layers.kron")
def fluid_kron(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns the Kronecker product, see :func:`kron`, or writes it to ``out``.

    Args:
        x, y, name: As there.
        out: A Variable of the result's shape and dtype; it is returned. ``None`` makes a new one.

    Raises:
        ShapeError, DTypeError: If ``out`` does not fit.
    """
    return written(kron(x, y, name), out)


def _sizes(x: Variable) -> list[int]:
    if x.shape.count(UNKNOWN) > 1:
        raise ShapeError(
            "this product adds axes to an operand of several unknown sizes",
            expected="at most one unknown size",
            received=list(x.shape),
            fix="give both operands the same rank",
        )
    return list(x.shape)


@export("tensor.cross", "Variable.cross")
@respell("fluid.layers.cross", takes="input, other, dim=None", input="x", other="y", dim="axis")
def cross(x: Variable, y: Variable, axis: int | None = 9, name: str | None = None) -> Variable:
    """Returns the cross product of vectors of length 3 along an axis.

    Args:
        x, y: Numbers of the same shape.
        axis: Which axis; 9 or ``None`` means the first one of size 3.
        name: Name of the layer.

    Raises:
        ShapeError: If the shapes differ, or no axis of size 3 is there.
    """
    a, b = operands(x, y, "cross")
    at = (
        # Paddle's default of 9 means the first axis of size 3.
        next((i for i, s in enumerate(a.shape) if s == 3), None)
        if axis in (9, None)
        else check_axis(axis, a, "axis", "cross")
    )
    if at is None or a.shape[at] not in (3, UNKNOWN) or a.shape != b.shape:
        raise ShapeError(
            "cross multiplies vectors of three numbers",
            expected="two values of one shape, with an axis of size 3",
            received=f"{list(a.shape)} and {list(b.shape)}, axis {axis}",
            fix="name that axis, or reshape the values",
            op="cross",
        )
    # Element i is a[i+1] b[i+2] - a[i+2] b[i+1], all modulo 3.
    first = multiply(roll(a, -1, at), roll(b, -2, at))
    return subtract(first, multiply(roll(a, -2, at), roll(b, -1, at)), name=name)


@export("tensor.tensordot", "Variable.tensordot")
def tensordot(x: Variable, y: Variable, axes: Any = 2, name: str | None = None) -> Variable:
    """Returns the sums of products over pairs of axes; the other axes of ``x`` come first, then those of ``y``.

    Args:
        x, y: Numbers.
        axes: How many of the last axes of ``x`` meet the first ones of ``y``; or the axes of ``x``, used for ``y`` too; or two
            lists: the axes of ``x``, and the axes of ``y`` that they meet (the shorter one goes on as the longer one does).
        name: Name of the layer.

    Raises:
        ShapeError: If an axis is out of range, or sizes that meet differ.

    Example:
        >>> x, y = paddle.ones([2, 3, 4]), paddle.ones([3, 4, 5])
        >>> z = paddle.tensordot(x, y, axes=2)
        >>> static.Executor().run(fetch_list=[z])[0].tolist()
        [[12.0, 12.0, 12.0, 12.0, 12.0], [12.0, 12.0, 12.0, 12.0, 12.0]]
    """
    a, b = operands(x, y, "tensordot")
    left, right = _pairs(axes, len(a.shape))
    left = [check_axis(i, a, "axes", "tensordot") for i in left]
    right = [check_axis(i, b, "axes", "tensordot") for i in right]
    if any(UNKNOWN not in (m := (a.shape[i], b.shape[j])) and m[0] != m[1] for i, j in zip(left, right, strict=True)):
        raise ShapeError(
            "axes of tensordot that meet have different sizes",
            expected="equal sizes",
            received=f"{[a.shape[i] for i in left]} and {[b.shape[j] for j in right]}",
            fix="pass axes=[[axes of x], [axes of y]], in pairs of equal sizes, as in axes=[[1, 2], [0, 1]]",
            op="tensordot",
        )
    rest_a, rest_b = ([i for i in range(len(v.shape)) if i not in s] for v, s in ((a, left), (b, right)))
    rows, columns = ([v.shape[i] for i in rest] for v, rest in ((a, rest_a), (b, rest_b)))
    depth = math.prod(a.shape[i] if a.shape[i] != UNKNOWN else b.shape[j] for i, j in zip(left, right, strict=True))
    # Summed axes last in x and first in y: one matrix product does the rest.
    flat_a = reshape(transpose(a, [*rest_a, *left]), [_product(rows), depth])
    flat_b = reshape(transpose(b, [*right, *rest_b]), [depth, _product(columns)])
    return reshape(matmul(flat_a, flat_b), [*rows, *columns], name=name)


def _product(sizes: Sequence[int]) -> int:
    return UNKNOWN if UNKNOWN in sizes else math.prod(sizes)


def _pairs(axes: Any, rank: int) -> tuple[list[int], list[int]]:
    if isinstance(axes, int):
        return list(range(rank - axes, rank)), list(range(axes))
    items: list[Any] = [list(v) if isinstance(v, list | tuple) else v for v in axes]
    if not items or not isinstance(items[0], list):
        return items, items
    left, right = items[0], items[1] if len(items) > 1 else items[0]
    # As in Paddle, the shorter list is continued by the longer one's own axes.
    longer = left if len(left) > len(right) else right
    return [*left, *longer[len(left) :]], [*right, *longer[len(right) :]]


# ------------------------------------------------------------------------------------------------------------ distances
@export("tensor.cdist", "Variable.cdist")
def cdist(
    x: Variable,
    y: Variable,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
    name: str | None = None,
) -> Variable:
    """Returns the distance of each row of ``x`` from each row of ``y``.

    Args:
        x: Floats ``[..., rows, features]``.
        y: Floats ``[..., others, features]``; leading sizes broadcast.
        p: The order of the norm: 0 counts differences, infinity takes the largest.
        compute_mode: ``"use_mm_for_euclid_dist"`` multiplies matrices where ``p`` is 2, the default does from 26 rows on,
            ``"donot_use_mm_for_euclid_dist"`` never does.
        name: Name of the layer.

    Returns:
        ``[..., rows, others]``.

    Raises:
        ProgramError: For another mode, or a negative ``p``.

    Example:
        >>> d = paddle.cdist(paddle.to_tensor([[0.0, 0.0]]), paddle.to_tensor([[3.0, 4.0], [0.0, 1.0]]))
        >>> static.Executor().run(fetch_list=[d])[0]
        array([[5., 1.]], dtype=float32)
    """
    a, b = check_variable(x, "x", "cdist"), check_variable(y, "y", "cdist")
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    check_choice(compute_mode, modes, "compute_mode", "cdist")
    if p < 0:
        raise ProgramError("p of cdist is negative", expected="at least 0", received=p, fix="pass p=2.0", op="cdist")
    # The bound of 25 rows is Paddle's and torch's.
    large = a.shape[-2] > 25 or b.shape[-2] > 25
    if p == 2.0 and (compute_mode == modes[1] or (compute_mode == modes[0] and large)):
        squares = [sum(square(v), -1, keepdim=True) for v in (a, b)]
        cross_terms = scale(matmul(a, b, transpose_y=True), -2.0)
        swapped = transpose(squares[1], [*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2])
        total = cross_terms + squares[0] + swapped
        # By rounding a distance of equal rows may come out below 0.
        return sqrt(where(total > 0, total, zeros_like(total)), name=name)
    apart = subtract(unsqueeze(a, -2), unsqueeze(b, -3))
    return _length(apart, p, [-1], False, name)


def _length(x: Variable, p: float, axes: Sequence[int], keepdim: bool, name: str | None = None) -> Variable:
    """Returns the norm of order ``p`` over axes; where it is 0, its gradient is 0 too."""
    if p == 0:
        return sum(cast(not_equal(x, zeros_like(x)), x.dtype), list(axes), keepdim=keepdim, name=name)
    if math.isinf(p):
        return amax(abs(x), list(axes), keepdim, name)
    if p == 1:
        return sum(abs(x), list(axes), keepdim=keepdim, name=name)
    total = sum(square(x) if p == 2 else pow(abs(x), p), list(axes), keepdim=keepdim)
    # The slope of a root at 0 is infinite: 1 takes its place there, and the result is chosen afterwards.
    empty = total <= 0
    root = pow(where(empty, ones_like(total), total), 1.0 / p)
    found: Variable = where(empty, zeros_like(total), root, name=name)
    return found


@export("tensor.renorm", "Variable.renorm", inplace=True)
def renorm(x: Variable, p: float, axis: int, max_norm: float) -> Variable:
    """Scales each slice along an axis whose norm is above a bound down to that bound.

    Args:
        x: Floats ``[...]`` of at least two dimensions.
        p: The order of the norm.
        axis: Which axis the slices follow one another along.
        max_norm: The bound.

    Raises:
        ShapeError: If the axis is out of range.
    """
    x = check_variable(x, "x", "renorm")
    at = check_axis(axis, x, "axis", "renorm")
    others = check_axes([i for i in range(len(x.shape)) if i != at], x)
    size = _length(x, p, others, True)
    bound = zeros_like(size) + max_norm
    # The addend keeps Paddle's bits, whose scaled slices are just below the bound.
    return multiply(x, where(size > max_norm, divide(bound, size + 1e-7), ones_like(size)))
