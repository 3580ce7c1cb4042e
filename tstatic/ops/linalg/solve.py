"""Inverses, determinants, and linear systems."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_int, check_not_empty
from tstatic.ir.opdef import Case, export
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, broadcast_shapes
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.linalg._batched import SINGULAR, check_matrices, matrix_op, t
from tstatic.ops.matmul.matmul import matmul
from tstatic.ops.shape.diagonal import eye
from tstatic.ops.shape.expanding import expand_as
from tstatic.tuned._common import Array


def _square(x: Meta) -> Meta:
    check_matrices(x, square=True)
    return x


def _det_back(x: Array, out: Array, dout: Array) -> Array:
    # By the inverse, so a singular matrix is an error here, though its determinant is 0.
    return (dout * out)[..., None, None] * t(np.linalg.inv(x))


# A matrix, a batch, one number, a batch of two axes.
_SQUARE = (Case(((3, 3),)), Case(((2, 2, 2),)), Case(((1, 1),)), Case(((2, 1, 3, 3),)))
_BACK_INV = lambda x, out, dout: -t(out) @ dout @ t(out)  # noqa: E731 - one formula of several in this file

matrix_op(
    "inverse",
    "Input -> Output",
    _square,
    np.linalg.inv,
    lambda torch, x: torch.linalg.inv(x),
    _BACK_INV,
    _SQUARE,
    torch_back=lambda torch, x, out, dout: -out.mT @ dout @ out.mT,
    traits=(SINGULAR,),
)
matrix_op(
    "determinant", "Input -> Out", lambda x: _square(x).with_shape(x.shape[:-2]), np.linalg.det,
    lambda torch, x: torch.linalg.det(x), _det_back, _SQUARE, onnx=lambda g, x: g("Det", x),
    torch_back=lambda torch, x, out, dout: (dout * out)[..., None, None] * torch.linalg.inv(x).mT, back_traits=(SINGULAR,),
)  # fmt: skip


def _slogdet(x: Array) -> Array:
    # Sign and logarithm in one value, as in Paddle.
    return np.stack(np.linalg.slogdet(x))


matrix_op(
    "slogdeterminant", "Input -> Out", lambda x: _square(x).with_shape((2, *x.shape[:-2])), _slogdet,
    lambda torch, x: torch.stack(tuple(torch.linalg.slogdet(x))),
    # The sign has no slope: only dout of the logarithm counts.
    lambda x, out, dout: dout[1][..., None, None] * t(np.linalg.inv(x)), _SQUARE,
    torch_back=lambda torch, x, out, dout: dout[1][..., None, None] * torch.linalg.inv(x).mT, back_traits=(SINGULAR,),
)  # fmt: skip


def _infer_solve(x: Meta, y: Meta) -> Meta:
    check_matrices(x, square=True)
    if y.rank == 1:
        return y.with_shape((*x.shape[:-2], y.shape[0]))
    check_matrices(y, "Y")
    return y.with_shape((*broadcast_shapes(x.shape[:-2], y.shape[:-2]), *y.shape[-2:]))


def _solve(x: Array, y: Array) -> Array:
    # A vector as a column: it broadcasts against a batch of matrices in every version of numpy.
    return np.linalg.solve(x, y[..., None])[..., 0] if y.ndim == 1 else np.linalg.solve(x, y)


def _summed(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Adds up the axes that were broadcast."""
    lead = gradient.ndim - len(shape)
    gradient = gradient.sum(tuple(range(lead)))
    wide = tuple(i for i, (a, b) in enumerate(zip(gradient.shape, shape, strict=True)) if a != b)
    return np.asarray(gradient.sum(wide, keepdims=True) if wide else gradient)


def _solve_back(x: Array, y: Array, out: Array, dout: Array) -> tuple[Array, Array]:
    if y.ndim == 1:
        dy = np.linalg.solve(t(x), dout[..., None])[..., 0]
        # The right-hand side is shared by the batch, so its gradients add up.
        return -dy[..., :, None] * out[..., None, :], _summed(dy, y.shape)
    dy = np.linalg.solve(t(x), dout)
    return _summed(-dy @ t(out), x.shape), _summed(dy, y.shape)


def _torch_solve_back(torch: Any, x: Any, y: Any, out: Any, dout: Any) -> Any:
    if y.dim() == 1:
        dy = torch.linalg.solve(x.mT, dout[..., None])[..., 0]
        return -dy[..., :, None] * out[..., None, :], dy.sum_to_size(y.shape)
    dy = torch.linalg.solve(x.mT, dout)
    return (-dy @ out.mT).sum_to_size(x.shape), dy.sum_to_size(y.shape)


matrix_op(
    "solve", "X, Y -> Out", _infer_solve, _solve, lambda torch, x, y: torch.linalg.solve(x, y), _solve_back,
    (Case(((3, 3), (3, 2))), Case(((2, 2, 2), (2, 2, 3))), Case(((3, 3), (3,))), Case(((2, 2, 2), (2, 1)))),
    torch_back=_torch_solve_back, traits=(SINGULAR,), back_traits=(SINGULAR,),
)  # fmt: skip

_TRIANGLE = {"upper": True, "transpose": False, "unitriangular": False}


def _triangle(x: Array, upper: bool, unitriangular: bool) -> Array:
    part = np.triu(x) if upper else np.tril(x)
    if unitriangular:
        rows = np.arange(x.shape[-1])
        part[..., rows, rows] = 1
    return part


def _infer_triangular(x: Meta, y: Meta) -> Meta:
    check_matrices(x, square=True)
    check_matrices(y, "Y")
    return y.with_shape((*broadcast_shapes(x.shape[:-2], y.shape[:-2]), *y.shape[-2:]))


def _triangular(x: Array, y: Array, *, upper: bool, transpose: bool, unitriangular: bool) -> Array:
    part = _triangle(x, upper, unitriangular)
    # numpy has no solver for triangles; the other half is cleared, so the general one gives the same.
    return np.linalg.solve(t(part) if transpose else part, y)


def _triangular_back(
    x: Array, y: Array, out: Array, dout: Array, *, upper: bool, transpose: bool, unitriangular: bool
) -> tuple[Array, Array]:
    part = _triangle(x, upper, unitriangular)
    dy = np.linalg.solve(part if transpose else t(part), dout)
    dx = -out @ t(dy) if transpose else -dy @ t(out)
    # Only the triangle that is read has a gradient; of a unit triangle not its diagonal.
    keep = (np.triu if upper else np.tril)(dx, (1 if upper else -1) if unitriangular else 0)
    return _summed(keep, x.shape), _summed(dy, y.shape)


def _torch_triangular(torch: Any, x: Any, y: Any, *, upper: bool, transpose: bool, unitriangular: bool) -> Any:
    part = torch.triu(x) if upper else torch.tril(x)
    if transpose:
        return torch.linalg.solve_triangular(part.mT, y, upper=not upper, unitriangular=unitriangular)
    return torch.linalg.solve_triangular(part, y, upper=upper, unitriangular=unitriangular)


def _torch_triangular_back(
    torch: Any, x: Any, y: Any, out: Any, dout: Any, *, upper: bool, transpose: bool, unitriangular: bool
) -> Any:
    dy = _torch_triangular(torch, x, dout, upper=upper, transpose=not transpose, unitriangular=unitriangular)
    dx = -out @ dy.mT if transpose else -dy @ out.mT
    keep = (torch.triu if upper else torch.tril)(dx, (1 if upper else -1) if unitriangular else 0)
    return keep.sum_to_size(x.shape), dy.sum_to_size(y.shape)


_BITS = (True, False)
# All eight combinations of the attributes, and a batch.
_TRIANGLES = [
    Case(((3, 3), (3, 2)), {"upper": u, "transpose": p, "unitriangular": n})
    for u in _BITS
    for p in _BITS
    for n in _BITS
]
_TRIANGLES.append(Case(((2, 2, 2), (2, 2, 3))))

matrix_op(
    "triangular_solve", "X, Y -> Out", _infer_triangular, _triangular, _torch_triangular, _triangular_back,
    _TRIANGLES,
    # A triangle's solution adds up n terms one after the other, and its diagonal may be small: four times the usual bound.
    # 1.0 ulp seen.
    attrs=_TRIANGLE, ulps=16384.0, torch_back=_torch_triangular_back,
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ functions
@export("linalg.inv", "tensor.inverse", "Variable.inverse", op="inverse")
def inv(x: Variable, name: str | None = None) -> Variable:
    """Returns the inverses of square matrices.

    Args:
        x: float32 or float64, ``[..., n, n]``.
        name: Name of the layer.

    Raises:
        ShapeError: If the matrices are not square.
        NumericsError: When the program runs, for a singular matrix.

    Example:
        >>> y = paddle.linalg.inv(paddle.to_tensor([[2.0, 0.0], [0.0, 4.0]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0.5 , 0.  ],
               [0.  , 0.25]], dtype=float32)
    """
    return emit_one("inverse", {"Input": check_variable(x, "x", "inv")}, name=name)


@export("linalg.det", op="determinant")
def det(x: Variable, name: str | None = None) -> Variable:
    """Returns the determinants of square matrices, ``[...]``; arguments and errors as of :func:`inv`."""
    return emit_one("determinant", {"Input": check_variable(x, "x", "det")}, name=name)


@export("linalg.slogdet", op="slogdeterminant")
def slogdet(x: Variable, name: str | None = None) -> Variable:
    """Returns the signs of determinants and the logarithms of their absolute values, ``[2, ...]``.

    Args:
        x, name: As in :func:`inv`, with its errors.
    """
    return emit_one("slogdeterminant", {"Input": check_variable(x, "x", "slogdet")}, name=name)


@export("linalg.solve", "Variable.solve", op="solve")
def solve(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the solutions of ``x @ out = y``.

    Args:
        x: ``[..., n, n]``.
        y: ``[..., n, k]`` or ``[n]``; leading sizes broadcast.
        name: Name of the layer.

    Raises:
        ShapeError: If the shapes do not fit.
        NumericsError: When the program runs, for a singular matrix.

    Example:
        >>> x, y = paddle.to_tensor([[2.0, 0.0], [0.0, 4.0]]), paddle.to_tensor([2.0, 8.0])
        >>> static.Executor().run(fetch_list=[paddle.linalg.solve(x, y)])[0]
        array([1., 2.], dtype=float32)
    """
    return emit_one("solve", {"X": check_variable(x, "x", "solve"), "Y": check_variable(y, "y", "solve")}, name=name)


@export("linalg.triangular_solve", "Variable.triangular_solve", op="triangular_solve")
def triangular_solve(
    x: Variable,
    y: Variable,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    name: str | None = None,
) -> Variable:
    """Returns the solutions of ``x @ out = y`` for triangles.

    Args:
        x: ``[..., n, n]``; only the triangle counts.
        y: ``[..., n, k]``; leading sizes broadcast.
        upper: Takes the upper triangle, otherwise the lower one.
        transpose: Solves with the triangle transposed.
        unitriangular: Takes the diagonal to be 1.
        name: Name of the layer.

    Raises:
        ShapeError: If the shapes do not fit.
    """
    inputs = {"X": check_variable(x, "x", "triangular_solve"), "Y": check_variable(y, "y", "triangular_solve")}
    attrs = {"upper": upper, "transpose": transpose, "unitriangular": unitriangular}
    return emit_one("triangular_solve", inputs, attrs, name=name)


@export("linalg.cholesky_solve", "Variable.cholesky_solve")
def cholesky_solve(x: Variable, y: Variable, upper: bool = False, name: str | None = None) -> Variable:
    """Returns the solutions of ``A @ out = x``, where ``y`` is the Cholesky factor of ``A``.

    Args:
        x: The right sides, ``[..., n, k]``.
        y: The factor, ``[..., n, n]``.
        upper: The factor is the upper one.
        name: Name of the layer.

    Raises:
        ShapeError: If the shapes do not fit.
    """
    # A = L L^T: first L, then its transpose; from an upper factor in the other order.
    middle = triangular_solve(y, x, upper=upper, transpose=upper)
    return triangular_solve(y, middle, upper=upper, transpose=not upper, name=name)


@export("linalg.matrix_power", "Variable.matrix_power")
def matrix_power(x: Variable, n: int, name: str | None = None) -> Variable:
    """Returns products of ``n`` equal square matrices; of the inverse for a negative ``n``.

    Args:
        x: ``[..., m, m]``.
        n: Any whole number; 0 gives identities.
        name: Name of the layer.

    Raises:
        ShapeError: If the matrices are not square.
    """
    x = check_variable(x, "x", "matrix_power")
    check_matrices(x.meta, "x", square=True)
    count = check_int(n, "n", "matrix_power")
    if count == 0:
        # Also of singular matrices the power 0 is the identity.
        return expand_as(eye(x.shape[-1], dtype=x.dtype), x, name=name)
    base, left = inv(x) if count < 0 else x, count if count > 0 else -count
    result: Variable | None = None
    # Squares, and those of them that stand in the binary form of n.
    while left:
        if left % 2:
            result = base if result is None else matmul(result, base)
        left //= 2
        base = matmul(base, base) if left else base
    assert result is not None
    return result if name is None else emit_one("assign", {"X": result}, name=name)


@export("linalg.multi_dot", "Variable.multi_dot")
def multi_dot(x: list[Variable], name: str | None = None) -> Variable:
    """Returns the product of several matrices, multiplied in the order that takes the fewest operations.

    Args:
        x: At least one Variable ``[rows, columns]``; the first and the last may be vectors.
        name: Name of the layer.

    Raises:
        ShapeError: If there is none, or sizes that meet differ.
    """
    items = [check_variable(v, "x", "multi_dot") for v in check_not_empty(list(x), "x", "multi_dot")]
    if len(items) == 1:
        return items[0]
    # An unknown size counts as 1: it only weighs the orders.
    sizes = [max(v.shape[0], 1) if len(v.shape) == 2 else 1 for v in items]
    sizes.append(max(items[-1].shape[-1], 1) if len(items[-1].shape) == 2 else 1)
    if len(items[0].shape) == 1:
        sizes[1] = max(items[0].shape[0], 1)
    count = len(items)
    cost = [[0.0] * count for _ in range(count)]
    cut = [[0] * count for _ in range(count)]
    for width in range(1, count):
        for i in range(count - width):
            j = i + width
            ways = [cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)]
            cost[i][j] = min(ways)
            cut[i][j] = i + ways.index(cost[i][j])

    def product(i: int, j: int) -> Variable:
        if i == j:
            return items[i]
        k = cut[i][j]
        return matmul(product(i, k), product(k + 1, j), name=name if (i, j) == (0, count - 1) else None)

    return product(0, count - 1)
