"""Eigenvalues and eigenvectors of matrices that need not be symmetric; both are complex."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_dtype
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.base.host import NO_GRADIENT_CALL
from tstatic.ops.elementwise.complex_numbers import COMPLEX
from tstatic.ops.linalg._batched import CONVERGED, FLOATS, check_matrices, stored, t
from tstatic.tuned._common import Array


def _infer(x: Meta) -> tuple[Meta, Meta]:
    check_dtype(x, (*FLOATS, *COMPLEX), "X")
    check_matrices(x.with_dtype(x.dtype.real), square=True)
    made = x.with_dtype(x.dtype.complex)
    return made.with_shape(x.shape[:-1]), made


def _eig(x: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eig(x)
    if 0 in x.shape:
        return values, vectors
    # An eigenvector may be multiplied by any number: these have length 1, and their largest component is positive.
    at = np.argmax(np.abs(vectors), -2, keepdims=True)
    largest = np.take_along_axis(vectors, at, -2)
    return values, vectors * (np.abs(largest) / largest)


def _torch_eig(torch: Any, x: Any) -> Any:
    values, vectors = torch.linalg.eig(x)
    if 0 in x.shape:
        return values, vectors
    largest = torch.gather(vectors, -2, torch.argmax(vectors.abs(), -2, keepdim=True))
    return values, vectors * (largest.abs() / largest)


def _eig_back(x: Array, values: Array, v: Array, dvalues: Array, dv: Array) -> Array:
    """DX = V^-H (diag(dw) + V^H dV' / conj(w_j - w_i)) V^H.

    With V' = U + V c, where U is what other vectors add, the length 1 and the positive component say c; of what arrives for
    V, dV' is what is left for U: without its part along the vector, and with its turn put on the positive component.
    """
    if 0 in x.shape:
        return np.zeros_like(x)
    v_h = np.conj(t(v))
    along = (np.conj(dv) * v).sum(-2, keepdims=True)
    # Two conditions fix the turn of a vector: length 1 takes away the part along it, a real largest component the rest.
    at = np.argmax(np.abs(v), -2, keepdims=True)
    left = dv - along.real * v
    largest = np.take_along_axis(v, at, -2).real
    np.put_along_axis(left, at, np.take_along_axis(left, at, -2) + 1j * along.imag / largest, -2)
    gaps = np.conj(values[..., None, :] - values[..., :, None])
    # Equal eigenvalues: their vectors are any of a plane, and the part is left out.
    gaps[gaps == 0] = np.inf
    inner = v_h @ left / gaps
    rows = np.arange(x.shape[-1])
    inner[..., rows, rows] = dvalues
    found = np.linalg.solve(v_h, inner @ v_h)
    # The gradient of real matrices is real; what is left of the imaginary part is rounding.
    return np.asarray(found if x.dtype.kind == "c" else found.real)


def _back_ref(x: Array, values: Array, v: Array, dvalues: Array, dv: Array, dx: Array) -> None:
    stored(_eig_back, (dx,), x, values, v, dvalues, dv)


def _torch_back(torch: Any, x: Any, values: Any, v: Any, dvalues: Any, dv: Any) -> Any:
    if 0 in x.shape:
        return torch.zeros_like(x)
    at = torch.argmax(v.abs(), -2, keepdim=True)
    source = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        w, u = torch.linalg.eig(source)
        # torch wants a function that does not depend on the turn of a vector: this one turns it back.
        largest = torch.gather(u, -2, at)
        turned = u * (largest.abs() / largest)
        total = (w * dvalues.conj()).real.sum() + (turned * dv.conj()).real.sum()
    return torch.autograd.grad(total, source)[0]


register(OpDef(
    "eig", "X -> Eigenvalues, Eigenvectors", infer=_infer, complex="own", uses_blas=True, traits=(CONVERGED,),
    ref=lambda x, values, vectors: stored(_eig, (values, vectors), x), lower=_torch_eig,
    # Without this, the gradients of outputs that nothing reads would be missing instead of zero.
    grad=GradOp(
        "X, Eigenvalues, Eigenvectors, Eigenvalues@GRAD, Eigenvectors@GRAD -> X@GRAD", ref=_back_ref,
        traits=(NO_GRADIENT_CALL,), lower=_torch_back
    ),
    domain=Domain(
        cases=(Case(((3, 3),)), Case(((2, 2, 2),)), Case(((1, 1),)), Case(((0, 2, 2),))),
        # 14 ulps seen of the gradient, whose conditioning explains up to 717.
        values={"X": ValueRange(-0.5, 0.5, regular=True)}, floats=FLOATS, others=COMPLEX, ulps=4096.0,
    ), onnx="ONNX does not decompose matrices",
))  # fmt: skip


@export("linalg.eig", "Variable.eig", op="eig")
def eig(x: Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """Returns the eigenvalues of square matrices, and the eigenvectors as columns; both are complex.

    Each vector has length 1 and a positive largest component. Gradients need different eigenvalues.

    Args:
        x: float32, float64 or complex, ``[..., n, n]``.
        name: Name of the layer.

    Returns:
        ``[..., n]`` and ``[..., n, n]``, complex64 or complex128.

    Raises:
        ShapeError: If the matrices are not square.

    Example:
        >>> x = paddle.to_tensor([[0.0, 1.0], [-1.0, 0.0]])
        >>> w, v = paddle.linalg.eig(x)
        >>> static.Executor().run(fetch_list=[w])[0]
        array([0.+1.j, 0.-1.j], dtype=complex64)
    """
    values, vectors = emit("eig", {"X": check_variable(x, "x", "eig")}, name=name)
    return values, vectors


@export("linalg.eigvals", "Variable.eigvals", op="eig")
def eigvals(x: Variable, name: str | None = None) -> Variable:
    """Returns the eigenvalues of square matrices, which are complex; arguments and errors as of :func:`eig`."""
    values: Variable = emit("eig", {"X": check_variable(x, "x", "eigvals")}, name=name, prefix="eigvals")[0]
    return values
