"""Op definitions on the last two axes: shapes, references and gradients written as formulas of numpy, oracles in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import NumericsError, ShapeError
from tstatic.ir.checks import ANY_RANK, check_dtype, check_rank
from tstatic.ir.opdef import NO_ATTRS, Case, Domain, GradOp, OpDef, ValueRange, register
from tstatic.ir.paddle_form import PaddleForm
from tstatic.ir.traits import Trait, Waits
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.host import NO_GRADIENT_CALL
from tstatic.tuned._common import Array

FLOATS = ("float32", "float64")
# Far from singular: the error of an inverse grows with the condition number, and 4096 ulps would not hold it.
_REGULAR = ValueRange(-0.5, 0.5, regular=True)


def t(x: Array) -> Array:
    """Returns matrices transposed."""
    return x.swapaxes(-1, -2)


def check_matrices(x: Meta, arg: str = "X", *, square: bool = False) -> None:
    """Refuses anything but batches of matrices of floats.

    Raises:
        DTypeError, ShapeError: Say what was expected.
    """
    check_dtype(x, FLOATS, arg)
    check_rank(x, range(2, ANY_RANK), arg, layout="[..., rows, columns]")
    if square and UNKNOWN not in x.shape[-2:] and x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            f"{arg} holds matrices that are not square",
            expected="[..., n, n]",
            received=list(x.shape),
            fix="use pinv or lstsq for other matrices",
        )


def stored(function: Callable[..., Any], outs: Sequence[Array | None], *arrays: Array, **attrs: Any) -> None:
    """Writes what a function of LAPACK returns to the outputs.

    Raises:
        NumericsError: If it cannot work with the values.
    """
    try:
        # numpy raises for the whole batch, so nothing is written before the error.
        found = function(*arrays, **attrs)
    except np.linalg.LinAlgError as error:
        raise NumericsError(
            "LAPACK cannot work with these matrices",
            expected="regular matrices of finite numbers (positive definite ones for cholesky)",
            received=str(error),
            fix="check the values that are fed, or use pinv",
        ) from None
    for out, value in zip(outs, found if isinstance(found, tuple) else (found,), strict=True):
        if out is not None:
            np.copyto(out, value, casting="unsafe")


SINGULAR = Waits("a singular matrix is an error, which the host has to raise")
INDEFINITE = Waits("a matrix that is not positive definite is an error, which the host has to raise")
CONVERGED = Waits("a decomposition that does not converge is an error, which the host has to raise")


def matrix_op(
    type: str,
    slots: str,
    infer: Callable[..., Any],
    function: Callable[..., Any],
    torch_function: Callable[..., Any],
    back: Callable[..., Any] | None,
    cases: Sequence[Case],
    *,
    torch_back: Callable[..., Any] | None = None,
    attrs: Mapping[str, Any] = NO_ATTRS,
    ulps: float = 4096.0,
    traits: tuple[Trait, ...] = (),
    back_traits: tuple[Trait, ...] = (),
    paddle: PaddleForm | None = None,
    onnx: Callable[..., Any] | str = "ONNX does not decompose or invert matrices",
) -> None:
    """Registers an op, and its backward op from a formula.

    Args:
        type: Op type.
        slots: As in an op definition.
        infer: The shape rule.
        function: ``(*inputs, attributes) -> outputs`` in numpy.
        torch_function: ``(torch, *inputs, attributes) -> outputs``.
        back: ``(*inputs, *outputs, *gradients of outputs, attributes) -> gradients of inputs`` in numpy; ``None`` for no
            gradient.
        cases: Where tests may sample.
        torch_back: As ``back``, in torch; without it the gradient is computed on the host, and torch's own is what tests compare.
        attrs: Attributes.
        traits, back_traits: What the op and its backward op state about themselves, as :class:`~tstatic.ir.traits.Waits`.
        paddle: How Paddle's files have it.
        onnx: Its form in ONNX, or why it has none.
        ulps: The tolerance, in units in the last place: what rounding makes of a condition number of some hundreds.
    """
    left, _, right = slots.partition("->")
    ins, outs = ([s.strip() for s in side.split(",")] for side in (left, right))
    count, made = len(ins), len(outs)

    def ref(*arrays: Any, **given: Any) -> None:
        stored(function, arrays[count:], *arrays[:count], **given)

    def lower(torch: Any, *tensors: Any, **given: Any) -> Any:
        return torch_function(torch, *tensors, **given)

    def grad_ref(*arrays: Any, **given: Any) -> None:
        assert back is not None
        stored(back, arrays[count + 2 * made :], *arrays[: count + 2 * made], **given)

    def grad_lower(torch: Any, *tensors: Any, **given: Any) -> Any:
        if torch_back is not None:
            return torch_back(torch, *tensors, **given)
        # autograd runs the function once more: these backward ops are oracles, and few.
        sources = [v.detach().clone().requires_grad_() for v in tensors[:count]]
        with torch.enable_grad():
            results = torch_function(torch, *sources, **given)
        results = results if isinstance(results, tuple) else (results,)
        arriving = tensors[count + made :]
        pairs = [(r, g) for r, g in zip(results, arriving, strict=True) if g is not None]
        return tuple(torch.autograd.grad([r for r, _ in pairs], sources, [g for _, g in pairs]))

    grad = None
    if back is not None:
        # Without this, the gradients of outputs that nothing reads would be missing instead of zero.
        given = ", ".join([*ins, *outs, *(f"{o}@GRAD" for o in outs)])
        grad = GradOp(
            f"{given} -> {', '.join(f'{i}@GRAD' for i in ins)}",
            ref=grad_ref,
            lower=grad_lower,
            traits=back_traits if torch_back is not None else (*back_traits, NO_GRADIENT_CALL),
        )
    register(OpDef(
        type, slots, attrs=attrs, infer=infer, ref=ref, lower=lower, grad=grad,
        # LAPACK of numpy and of torch differ in the order of every sum, which an inverse magnifies.
        domain=Domain(cases=tuple(cases), values=dict.fromkeys(("Input", "X"), _REGULAR), floats=FLOATS, ulps=ulps), paddle=paddle,
        onnx=onnx, uses_blas=True, traits=traits,
    ))  # fmt: skip
