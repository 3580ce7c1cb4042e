"""Decompositions: cholesky, qr, svd, eigh, lu, and what follows from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.checks import check_choice, check_int
from tstatic.ir.opdef import Attr, Case, export
from tstatic.ir.paddle_form import respelled
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int32
from tstatic.no_effect import no_effect
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.arithmetic import divide, multiply, subtract
from tstatic.ops.elementwise.logic import where
from tstatic.ops.elementwise.scale import cast, scale
from tstatic.ops.elementwise.unary import abs, sqrt
from tstatic.ops.linalg._batched import CONVERGED, INDEFINITE, SINGULAR, check_matrices, matrix_op, t
from tstatic.ops.linalg.solve import inv
from tstatic.ops.matmul.matmul import matmul
from tstatic.ops.reduce.extrema import amax, amin
from tstatic.ops.reduce.reduction import mean, sum
from tstatic.ops.shape.creation import full_like, zeros_like
from tstatic.ops.shape.diagonal import diag_embed, diagonal, eye, tril, triu
from tstatic.ops.shape.reshape import reshape, unsqueeze
from tstatic.ops.shape.transpose import swapaxes
from tstatic.tuned._common import Array


def _least(a: int, b: int) -> int:
    return UNKNOWN if UNKNOWN in (a, b) else min(a, b)


def _square(x: Meta) -> Meta:
    check_matrices(x, square=True)
    return x


def _even(x: Any) -> Any:
    """Returns the symmetric part, of arrays and of tensors: what ops of symmetric matrices read."""
    return (x + x.swapaxes(-1, -2)) / 2


# ------------------------------------------------------------------------------------------------------------- cholesky
def _cholesky(x: Array, *, upper: bool) -> Array:
    factor = np.linalg.cholesky(_even(x))
    return t(factor) if upper else factor


def _cholesky_back(x: Array, out: Array, dout: Array, *, upper: bool) -> Array:
    """DA = L^-T P L^-1 made symmetric, with P the lower half of L^T dL, its diagonal halved."""
    factor, given = (t(out), t(dout)) if upper else (out, dout)
    half = np.tril(t(factor) @ np.tril(given))
    rows = np.arange(half.shape[-1])
    half[..., rows, rows] *= 0.5  # the diagonal is in both halves
    back = np.linalg.inv(factor)
    return np.asarray(_even(t(back) @ half @ back))


def _torch_cholesky_back(torch: Any, x: Any, out: Any, dout: Any, *, upper: bool) -> Any:
    factor, given = (out.mT, dout.mT) if upper else (out, dout)
    half = torch.tril(factor.mT @ torch.tril(given))
    half = half - torch.diag_embed(half.diagonal(0, -2, -1) * 0.5)
    left = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return _even(torch.linalg.solve_triangular(factor, left, upper=False, left=False))


matrix_op(
    "cholesky", "X -> Out", _square, _cholesky,
    lambda torch, x, *, upper: torch.linalg.cholesky(_even(x), upper=upper), _cholesky_back,
    (Case(((3, 3),)), Case(((2, 2, 2),), {"upper": True}), Case(((1, 1),))), attrs={"upper": False},
    torch_back=_torch_cholesky_back, traits=(INDEFINITE,),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------- eigenvalues, svd, qr
def _signs(vectors: Array) -> Array:
    """Returns the sign of the largest component of each column: vectors are turned so that it is positive."""
    if 0 in vectors.shape:
        return np.ones((*vectors.shape[:-2], 1, vectors.shape[-1]), vectors.dtype)
    at = np.argmax(np.abs(vectors), -2, keepdims=True)
    return np.where(np.take_along_axis(vectors, at, -2) < 0, -1, 1).astype(vectors.dtype)


def _torch_signs(torch: Any, vectors: Any) -> Any:
    at = torch.argmax(vectors.detach().abs(), -2, keepdim=True)
    return torch.where(torch.gather(vectors.detach(), -2, at) < 0, -1.0, 1.0).to(vectors.dtype)


def _check_finite(x: Array) -> None:
    # LAPACK's iterations end after a fixed number of rounds for most infinities, and never for some.
    if not np.isfinite(x).all():
        raise np.linalg.LinAlgError("a matrix holds NaN or an infinity")


def _eigh(x: Array) -> tuple[Array, Array]:
    _check_finite(x)
    values, vectors = np.linalg.eigh(_even(x))
    return values, vectors * _signs(vectors)


def _torch_eigh(torch: Any, x: Any) -> Any:
    values, vectors = torch.linalg.eigh(_even(x))
    return values, vectors * _torch_signs(torch, vectors)


def _gaps(values: Array) -> Array:
    """Returns the differences value[j] - value[i], infinite where they are 0: what they divide is then left out."""
    gaps = values[..., None, :] - values[..., :, None]
    gaps[gaps == 0] = np.inf
    return gaps


def _eigh_back(x: Array, w: Array, v: Array, dw: Array, dv: Array) -> Array:
    inner = (t(v) @ dv) / _gaps(w)
    rows = np.arange(w.shape[-1])
    inner[..., rows, rows] += dw
    return np.asarray(_even(v @ inner @ t(v)))


def _torch_eigh_back(torch: Any, x: Any, w: Any, v: Any, dw: Any, dv: Any) -> Any:
    gaps = w[..., None, :] - w[..., :, None]
    inner = (v.mT @ dv) / torch.where(gaps == 0, math.inf, gaps) + torch.diag_embed(dw)
    return _even(v @ inner @ v.mT)


matrix_op(
    "eigh", "X -> Eigenvalues, Eigenvectors", lambda x: (_square(x).with_shape(x.shape[:-1]), x), _eigh, _torch_eigh,
    _eigh_back, (Case(((2, 2),)), Case(((3, 2, 2),)), Case(((1, 1),))), torch_back=_torch_eigh_back, traits=(CONVERGED,),
)  # fmt: skip


def _infer_svd(x: Meta, *, full_matrices: bool) -> tuple[Meta, Meta, Meta]:
    check_matrices(x)
    *lead, rows, columns = x.shape
    least = _least(rows, columns)
    sides = (rows, columns) if full_matrices else (least, least)
    return x.with_shape((*lead, rows, sides[0])), x.with_shape((*lead, least)), x.with_shape((*lead, sides[1], columns))


def _svd(x: Array, *, full_matrices: bool) -> tuple[Array, Array, Array]:
    _check_finite(x)
    u, s, vh = np.linalg.svd(x, full_matrices=full_matrices)
    least = s.shape[-1]
    signs = _signs(u[..., :least])
    u[..., :least] *= signs
    vh[..., :least, :] *= t(signs)
    return u, s, vh


def _torch_svd(torch: Any, x: Any, *, full_matrices: bool) -> Any:
    u, s, vh = torch.linalg.svd(x, full_matrices=full_matrices)
    least = s.shape[-1]
    signs = _torch_signs(torch, u[..., :least])
    if full_matrices:
        u = torch.cat([u[..., :least] * signs, u[..., least:]], -1)
        return u, s, torch.cat([vh[..., :least, :] * signs.mT, vh[..., least:, :]], -2)
    return u * signs, s, vh * signs.mT


def _svd_back(
    x: Array, u: Array, s: Array, vh: Array, du: Array, ds: Array, dvh: Array, *, full_matrices: bool
) -> Array:
    least = s.shape[-1]
    # Of full matrices only the first columns depend on x in one way.
    u, vh, du, dvh = u[..., :least], vh[..., :least, :], du[..., :least], dvh[..., :least, :]
    v, dv = t(vh), t(dvh)
    gaps = _gaps(s * s)
    skew_u, skew_v = t(u) @ du, t(v) @ dv
    inner = (skew_u - t(skew_u)) / gaps * s[..., None, :] + s[..., :, None] * ((skew_v - t(skew_v)) / gaps)
    rows = np.arange(least)
    inner[..., rows, rows] += ds
    found = u @ inner @ vh  # within the columns of U and the rows of VH
    if x.shape[-2] > least:
        found += (du - u @ (t(u) @ du)) / s[..., None, :] @ vh  # and outside of the columns of U
    if x.shape[-1] > least:
        found += u @ t((dv - v @ (t(v) @ dv)) / s[..., None, :])
    return np.asarray(found)


matrix_op(
    "svd", "X -> U, S, VH", _infer_svd, _svd, _torch_svd, _svd_back, attrs={"full_matrices": False}, traits=(CONVERGED,),
    cases=(Case(((3, 3),)), Case(((4, 2),)), Case(((2, 4),)), Case(((2, 3, 2),)), Case(((1, 1),))),
)  # fmt: skip


def _infer_qr(x: Meta, *, mode: str) -> tuple[Meta, Meta]:
    check_matrices(x)
    *lead, rows, columns = x.shape
    inner = rows if mode == "complete" else _least(rows, columns)
    return x.with_shape((*lead, rows, inner)), x.with_shape((*lead, inner, columns))


def _qr_back(x: Array, q: Array, r: Array, dq: Array, dr: Array, *, mode: str) -> Array:
    """DA = (dQ + Q c(R dR^T - dQ^T Q)) R^-T, where c copies the lower triangle to the upper one."""
    if x.shape[-2] < x.shape[-1] or q.shape[-1] != r.shape[-1]:
        raise np.linalg.LinAlgError("gradients of qr need at least as many rows as columns, and mode='reduced'")
    inner = np.tril(r @ t(dr) - t(dq) @ q)
    whole = inner + t(np.tril(inner, -1))
    return np.asarray(t(np.linalg.solve(r, t(dq + q @ whole))))


def _sorted_qr(x: Array, *, mode: Any) -> tuple[Array, Array]:
    q, r = np.linalg.qr(x, mode)
    return q, r


matrix_op(
    "qr", "X -> Q, R", _infer_qr, _sorted_qr, lambda torch, x, *, mode: tuple(torch.linalg.qr(x, mode)), _qr_back,
    (Case(((3, 3),)), Case(((4, 2),)), Case(((2, 3, 2),)), Case(((1, 1),))), attrs={"mode": Attr("reduced", "str")},
)  # fmt: skip


def _lu(x: Array) -> tuple[Array, Array]:
    from scipy import linalg

    flat = x.reshape(-1, *x.shape[-2:])
    packed, pivots = np.empty_like(flat), np.empty((len(flat), min(x.shape[-2:])), np.int32)
    for i, one in enumerate(flat):
        packed[i], found = linalg.lu_factor(one, check_finite=False)
        # LAPACK counts rows from 1, scipy from 0.
        pivots[i] = found + 1
    return packed.reshape(x.shape), pivots.reshape(*x.shape[:-2], pivots.shape[-1])


def _infer_lu(x: Meta) -> tuple[Meta, Meta]:
    # Before a run, which holds all libraries to one thread when it begins; the import brings another one.
    import scipy.linalg  # noqa: F401

    check_matrices(x)
    return x, Meta((*x.shape[:-2], _least(*x.shape[-2:])), int32)


matrix_op(
    "lu", "X -> Out, Pivots", _infer_lu, _lu, lambda torch, x: tuple(torch.linalg.lu_factor(x)), None,
    (Case(((3, 3),)), Case(((2, 3, 2),)), Case(((1, 1),))), paddle=respelled(notes={"Infos": "int32"}), traits=(SINGULAR,),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ functions
def _of_triangle(x: Variable, upper: bool) -> Variable:
    """Returns the symmetric matrices of which one triangle is given."""
    half = triu(x, 1) if upper else tril(x, -1)
    diagonals = diag_embed(diagonal(x, 0, -2, -1))
    whole: Variable = half + swapaxes(half, -1, -2) + diagonals
    return whole


@export("linalg.cholesky", "tensor.cholesky", "Variable.cholesky", op="cholesky")
def cholesky(x: Variable, upper: bool = False, name: str | None = None) -> Variable:
    """Returns the triangles ``L`` with ``L @ L.T = x``, or with ``upper`` their transposes.

    Args:
        x: Symmetric positive definite matrices, float32 or float64, ``[..., n, n]``; one triangle is read.
        upper: Reads and gives the upper triangle.
        name: Name of the layer.

    Raises:
        ShapeError: If the matrices are not square.
        NumericsError: When the program runs, for a matrix that is not positive definite.

    Example:
        >>> y = paddle.linalg.cholesky(paddle.to_tensor([[4.0, 2.0], [2.0, 5.0]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[2., 0.],
               [1., 2.]], dtype=float32)
    """
    x = _of_triangle(check_variable(x, "x", "cholesky"), upper)
    return emit_one("cholesky", {"X": x}, {"upper": upper}, name=name)


@export("linalg.eigh", op="eigh")
def eigh(x: Variable, UPLO: str = "L", name: str | None = None) -> tuple[Variable, Variable]:
    """Returns the eigenvalues of symmetric matrices in rising order, and the eigenvectors as columns.

    Each eigenvector is turned so that its largest component is positive.

    Args:
        x: ``[..., n, n]``; one triangle is read.
        UPLO: Which one: ``"L"`` the lower, ``"U"`` the upper.
        name: Name of the layer.

    Raises:
        ProgramError: For another ``UPLO``.
        ShapeError: If the matrices are not square.

    Example:
        >>> w, v = paddle.linalg.eigh(paddle.to_tensor([[2.0, 0.0], [0.0, 1.0]]))
        >>> static.Executor().run(fetch_list=[w])[0]
        array([1., 2.], dtype=float32)
    """
    check_choice(UPLO, ("L", "U"), "UPLO", "eigh")
    found: tuple[Variable, Variable] = emit(
        "eigh", {"X": _of_triangle(check_variable(x, "x", "eigh"), UPLO == "U")}, name=name
    )
    return found


@export("linalg.eigvalsh", "tensor.eigvalsh", "Variable.eigvalsh", op="eigh")
def eigvalsh(x: Variable, UPLO: str = "L", name: str | None = None) -> Variable:
    """Returns the eigenvalues of symmetric matrices in rising order.

    Args:
        x, UPLO, name: As of :func:`eigh`, with its errors.
    """
    return eigh(x, UPLO, name)[0]


@export("linalg.svd", op="svd")
def svd(x: Variable, full_matrices: bool = False, name: str | None = None) -> tuple[Variable, Variable, Variable]:
    """Returns ``U``, ``S`` and ``VH`` with ``x = U @ diag(S) @ VH``; ``S`` falls.

    Each column of ``U`` is turned so that its largest component is positive.

    Args:
        x: float32 or float64, ``[..., m, n]``.
        full_matrices: Gives square ``U`` and ``VH``.
        name: Name of the layer.

    Raises:
        ShapeError: If ``x`` has fewer than two dimensions.

    Example:
        >>> u, s, vh = paddle.linalg.svd(paddle.to_tensor([[3.0, 0.0], [0.0, 4.0]]))
        >>> static.Executor().run(fetch_list=[s])[0]
        array([4., 3.], dtype=float32)
    """
    found: tuple[Variable, Variable, Variable] = emit(
        "svd", {"X": check_variable(x, "x", "svd")}, {"full_matrices": full_matrices}, name=name
    )
    return found


@export("linalg.qr", "Variable.qr", op="qr")
def qr(x: Variable, mode: str = "reduced", name: str | None = None) -> Any:
    """Returns ``Q`` with orthogonal columns and the upper triangle ``R``, with ``x = Q @ R``.

    Args:
        x: float32 or float64, ``[..., m, n]``.
        mode: ``"reduced"`` gives ``min(m, n)`` columns, ``"complete"`` ``m``, ``"r"`` only ``R``.
        name: Name of the layer.

    Raises:
        ProgramError: For another mode.
        NumericsError: When the program runs, for a gradient with fewer rows than columns.
    """
    check_choice(mode, ("reduced", "complete", "r"), "mode", "qr")
    attrs = {"mode": "complete" if mode == "complete" else "reduced"}
    found = emit("qr", {"X": check_variable(x, "x", "qr")}, attrs, name=name)
    return found[1] if mode == "r" else found


@export("linalg.lu", "Variable.lu", op="lu")
def lu(x: Variable, pivot: bool = True, get_infos: bool = False, name: str | None = None) -> tuple[Variable, ...]:
    """Returns both triangles of an LU decomposition in one matrix, and the rows that were exchanged, counted from 1.

    Args:
        x: float32 or float64, ``[..., m, n]``.
        pivot: Must be true: without exchanges the decomposition may not exist.
        get_infos: Gives zeros (int32, ``[...]``) too: that every decomposition was found.
        name: Name of the layer.

    Raises:
        ProgramError: If ``pivot`` is false.
    """
    check_choice(pivot, (True,), "pivot", "lu")
    packed, pivots = emit("lu", {"X": check_variable(x, "x", "lu")}, name=name)
    infos = cast(zeros_like(sum(packed, [-2, -1])), "int32") if get_infos else None
    return (packed, pivots) if infos is None else (packed, pivots, infos)


@export("linalg.lu_unpack", "Variable.lu_unpack")
def lu_unpack(
    x: Variable, y: Variable, unpack_ludata: bool = True, unpack_pivots: bool = True, name: str | None = None
) -> tuple[Variable, Variable, Variable]:
    """Returns ``P``, ``L`` and ``U`` with ``P @ L @ U`` the matrix that :func:`lu` decomposed.

    Args:
        x: The triangles of :func:`lu`, ``[..., m, n]`` of known sizes.
        y: Its pivots.
        unpack_ludata: Gives ``L`` and ``U``, otherwise zeros.
        unpack_pivots: Gives ``P``, otherwise zeros.
        name: Name of ``P``.
    """
    x, y = check_variable(x, "x", "lu_unpack"), check_variable(y, "y", "lu_unpack")
    rows, columns = x.shape[-2:]
    least = min(rows, columns)
    lower = tril(x[..., :least], -1) + eye(rows, least, x.dtype)  # the ones on the diagonal of L are not stored
    upper = triu(x[..., :least, :])
    order = eye(rows, dtype=x.dtype)
    # Each exchange is a product with a permutation: row i changes places with row y[i] - 1.
    for i in range(least):
        other = emit_one("one_hot_v2", {"X": cast(y[..., i], "int64") - 1}, {"depth": rows})
        other, own = cast(other, x.dtype), eye(rows, dtype=x.dtype)[i]
        gap = own - other
        order = matmul(order, eye(rows, dtype=x.dtype) - matmul(unsqueeze(gap, -1), unsqueeze(gap, -2)))
    parts = [order if unpack_pivots else zeros_like(order)]
    parts += [v if unpack_ludata else zeros_like(v) for v in (lower, upper)]
    first = emit_one("assign", {"X": parts[0]}, name=name)
    return first, parts[1], parts[2]


@export("linalg.pinv", "Variable.pinv")
def pinv(x: Variable, rcond: float = 1e-15, hermitian: bool = False, name: str | None = None) -> Variable:
    """Returns the pseudo-inverses.

    Args:
        x: float32 or float64, ``[..., m, n]``.
        rcond: Singular values up to this share of the largest count as 0.
        hermitian: The matrices are symmetric; the result is the same.
        name: Name of the layer.

    Returns:
        ``[..., n, m]``.
    """
    x = check_variable(x, "x", "pinv")
    u, s, vh = svd(_of_triangle(x, False) if hermitian else x)
    kept = s > multiply(amax(s, [-1], True), full_like(s, rcond))  # relative to the largest value, as in Paddle
    turned = where(kept, divide(full_like(s, 1.0), where(kept, s, full_like(s, 1.0))), zeros_like(s))
    return matmul(multiply(swapaxes(vh, -1, -2), unsqueeze(turned, -2)), swapaxes(u, -1, -2), name=name)


@export("linalg.matrix_rank")
def matrix_rank(x: Variable, tol: Any = None, hermitian: bool = False, name: str | None = None) -> Variable:
    """Returns how many singular values are above a bound, as int32.

    Args:
        x: float32 or float64, ``[..., m, n]`` of known sizes.
        tol: The bound, a number or a Variable; by default the largest one times ``max(m, n)`` times the rounding error.
        hermitian: The matrices are symmetric, so the absolute eigenvalues are taken.
        name: Name of the layer.
    """
    x = check_variable(x, "x", "matrix_rank")
    s = abs(eigvalsh(x)) if hermitian else svd(x)[1]
    if tol is None:
        bound = scale(amax(s, [-1], True), float(np.finfo(x.dtype.np).eps) * max(x.shape[-2:]))  # numpy's bound
    else:
        bound = cast(as_variable(tol, dtype=None if isinstance(tol, Variable) else x.dtype), x.dtype)
        bound = unsqueeze(bound, -1) if bound.shape else bound
    return sum(cast(s > bound, "int32"), -1, "int32", name=name)


@export("linalg.lstsq", "Variable.lstsq")
def lstsq(
    x: Variable, y: Variable, rcond: float | None = None, driver: str | None = None, name: str | None = None
) -> tuple[Variable, Variable, Variable, Variable]:
    """Returns the least-squares solutions of ``x @ out = y``.

    Args:
        x: ``[..., m, n]`` of known sizes.
        y: ``[..., m, k]``.
        rcond: Singular values up to this share of the largest count as 0; by default ``max(m, n)`` times the rounding error.
        driver: ``"gels"``, ``"gelsy"``, ``"gelsd"`` or ``"gelss"``: one decomposition serves them all.
        name: Name of the solution.

    Returns:
        The solutions ``[..., n, k]``, the squared lengths of the residuals ``[..., k]``, the ranks and the singular values.

    Raises:
        ProgramError: For another driver.
    """
    x, y = check_variable(x, "x", "lstsq"), check_variable(y, "y", "lstsq")
    check_choice(driver, (None, "gels", "gelsy", "gelsd", "gelss"), "driver", "lstsq")
    share = float(np.finfo(x.dtype.np).eps) * max(x.shape[-2:]) if rcond is None else rcond  # numpy's bound
    solution = matmul(pinv(x, share), y, name=name)
    s = svd(x)[1]
    rank = sum(cast(s > scale(amax(s, [-1], True), share), "int32"), -1, "int32")
    rest = subtract(matmul(x, solution), y)
    return solution, sum(multiply(rest, rest), -2), rank, s


@export("linalg.cond")
def cond(x: Variable, p: Any = None, name: str | None = None) -> Variable:
    """Returns the condition numbers of matrices: the norm times that of the inverse.

    Args:
        x: float32 or float64, ``[..., n, n]``; for ``p`` 2 and -2 ``[..., m, n]``.
        p: ``None`` or 2: largest over smallest singular value; -2 the inverse; ``"fro"``, ``"nuc"``, 1, -1, infinity, minus
            infinity: that norm.
        name: Name of the layer.

    Raises:
        ProgramError: For another norm.
    """
    x = check_variable(x, "x", "cond")
    infinity = float("inf")
    check_choice(p, (None, 2, -2, 1, -1, infinity, -infinity, "fro", "nuc"), "p", "cond")
    if p in (None, 2, -2):
        s = svd(x)[1]
        ends = amax(s, [-1]), amin(s, [-1])
        return divide(*(ends[::-1] if p == -2 else ends), name=name)

    def size(m: Variable) -> Variable:
        if p == "nuc":
            return sum(svd(m)[1], -1)
        if p == "fro":
            return sqrt(sum(multiply(m, m), [-2, -1]))
        sums = sum(abs(m), -2 if p in (1, -1) else -1)
        return amax(sums, [-1]) if p in (1, infinity) else amin(sums, [-1])

    return multiply(size(x), size(inv(x)), name=name)


@export("linalg.cov", "Variable.cov")
def cov(
    x: Variable,
    rowvar: bool = True,
    ddof: bool = True,
    fweights: Variable | None = None,
    aweights: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Returns the covariances of variables.

    Args:
        x: ``[variables, observations]``, or ``[observations]``.
        rowvar: Rows are variables, otherwise columns.
        ddof: Divides by the number of observations less 1.
        fweights: How often each observation counts, integers ``[observations]``.
        aweights: How much each observation weighs, ``[observations]``.
        name: Name of the layer.

    Returns:
        ``[variables, variables]``; a number for one variable.
    """
    x = check_variable(x, "x", "cov")
    rows = reshape(x, [1, -1]) if len(x.shape) == 1 else x if rowvar else swapaxes(x, 0, 1)
    weights = full_like(rows[0], 1.0)
    for given in (fweights, aweights):
        weights = weights if given is None else multiply(weights, cast(given, x.dtype))
    total = sum(weights)
    centred = subtract(rows, divide(sum(multiply(rows, weights), 1, keepdim=True), total))
    count = total
    if ddof:
        lost = 1.0 if aweights is None else divide(sum(multiply(weights, cast(aweights, x.dtype))), total)
        count = total - lost  # numpy's formula of the degrees of freedom with weights
    found = divide(matmul(multiply(centred, weights), centred, transpose_y=True), count)
    return reshape(found, [], name=name) if len(x.shape) == 1 or rows.shape[0] == 1 else scale(found, name=name)


@export("linalg.corrcoef", "Variable.corrcoef")
def corrcoef(x: Variable, rowvar: bool = True, name: str | None = None) -> Variable:
    """Returns the correlations of variables, from -1 to 1; arguments as of :func:`cov`."""
    found = cov(x, rowvar)
    if not found.shape:
        return divide(found, found, name=name)  # 1, or NaN where nothing varies
    lengths = sqrt(diagonal(found))
    found = divide(divide(found, unsqueeze(lengths, 1)), unsqueeze(lengths, 0))
    return emit_one("clip", {"X": found}, {"min": -1.0, "max": 1.0}, name=name)  # rounding may exceed 1 by an ulp


@export("linalg.householder_product", "Variable.householder_product")
def householder_product(x: Variable, tau: Variable, name: str | None = None) -> Variable:
    """Returns the first columns of a product of reflections, as LAPACK's geqrf describes them.

    Args:
        x: The vectors below the diagonal, ``[..., m, n]`` of known sizes.
        tau: Their factors, ``[..., k]``.
        name: Name of the layer.

    Returns:
        ``[..., m, n]``.
    """
    x, tau = check_variable(x, "x", "householder_product"), check_variable(tau, "tau", "householder_product")
    rows, columns = x.shape[-2:]
    vectors = tril(x, -1) + eye(rows, columns, x.dtype)  # geqrf does not store the ones
    product = eye(rows, dtype=x.dtype)
    for i in range(tau.shape[-1]):
        v = unsqueeze(vectors[..., i], -1)
        reflection = multiply(matmul(v, v, transpose_y=True), unsqueeze(tau[..., i], [-1, -1]))
        product = matmul(product, eye(rows, dtype=x.dtype) - reflection)
    return matmul(product, eye(rows, columns, x.dtype), name=name)


@no_effect(niter="the decomposition is exact, so it takes no steps")
@export("linalg.pca_lowrank", "Variable.pca_lowrank")
def pca_lowrank(
    x: Variable, q: int | None = None, center: bool = True, niter: int = 2, name: str | None = None
) -> tuple[Variable, Variable, Variable]:
    """Returns the first ``q`` principal components: ``U``, ``S`` and ``V`` with ``x`` about ``U @ diag(S) @ V.T``.

    Args:
        x: ``[..., m, n]`` of known sizes.
        q: How many; 6 or as many as there are by default.
        center: Takes the mean of each column away first.
        name: Name of ``U``.

    Raises:
        ShapeError: If there are not as many components.
    """
    x = check_variable(x, "x", "pca_lowrank")
    least = min(x.shape[-2:])  # Paddle takes 6 of them by default
    count = min(6, least) if q is None else check_int(q, "q", "pca_lowrank", least=0, most=least)
    centred = subtract(x, mean(x, -2, keepdim=True)) if center else x
    u, s, vh = svd(centred)
    return scale(u[..., :count], name=name), s[..., :count], swapaxes(vh, -1, -2)[..., :count]
