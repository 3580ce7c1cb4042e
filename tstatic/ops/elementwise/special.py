"""Special functions of each element: the gamma function and its derivatives, Bessel functions, the inverse of erf."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tstatic.ir import expr
from tstatic.ir.checks import check_int
from tstatic.ir.opdef import Attr, OpSpec, ValueRange, export
from tstatic.ir.paddle_form import LOWER, PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ops.base.one_input import float_unary, unary, unary_op
from tstatic.tuned._common import Array


# --------------------------------------------------------------------------------------------- functions of expressions
def _scipy(name: str) -> Callable[..., None]:
    def call(*arrays: Array) -> None:
        # scipy's import takes 0.2 s, so it waits for the first value.
        from scipy import special

        getattr(special, name)(*arrays)

    return call


def _polygamma(n: Array, x: Array, out: Array) -> None:
    """Computes the derivative of order ``n`` of digamma: (-1)^(n+1) n! zeta(n+1, x)."""
    from scipy import special

    order = int(n)
    if order == 0:
        special.psi(x, out)
        return
    # Not special.polygamma, which is written in Python, computes psi as well and allocates.
    special.zeta(np.asarray(order + 1, out.dtype), x, out)
    np.multiply(out, (-1) ** (order + 1) * math.factorial(order), out)


def _torch(name: str) -> Callable[..., Any]:
    return lambda torch, a: getattr(torch.special, name)(a)


expr.define("digamma", _scipy("psi"), None, "polygamma(1, a)")
expr.define("lgamma", _scipy("gammaln"), None, "digamma(a)")
expr.define(
    "polygamma", _polygamma, lambda torch, n, a: torch.polygamma(int(n), a), "0", "polygamma(a + 1, b)", exact=True
)
# 0.886... is sqrt(pi) / 2: the derivative is 1 / erf'(r).
expr.define("erfinv", _scipy("erfinv"), None, "0.8862269254527579 * exp(r * r)")
expr.define("i0", _scipy("i0"), _torch("i0"), "i1(a)")
expr.define("i0e", _scipy("i0e"), _torch("i0e"), "i1e(a) - sign(a) * r")
# i1(x) / x tends to 1/2 at 0.
expr.define("i1", _scipy("i1"), _torch("i1"), "i0(a) - where(a == 0, 0.5, r / a)")
expr.define("i1e", _scipy("i1e"), _torch("i1e"), "i0e(a) - sign(a) * r - where(a == 0, 0.5, r / a)")

# Away from the poles at 0 and below, near which derivatives grow without bound.
_POSITIVE = ValueRange(0.4, 4.0)

# From 2.3 on: at 1 and 2 the logarithm is 0, where a relative error means nothing.
unary_op("lgamma", "lgamma(x)", "dout * digamma(x)", "lgamma", amp="black", values=ValueRange(2.3, 6.0), ulps=16)
# 3.0 ulps seen of digamma, 2.0 of polygamma.
unary_op("digamma", "digamma(x)", "dout * polygamma(1, x)", "digamma", amp="black", values=_POSITIVE, ulps=64)


def _polygamma_write(op: PaddleOp) -> list[OpSpec]:
    """Paddle's kernel knows orders from 1 on."""
    if op.attrs["n"] == 0:
        return [op.made("digamma", attrs={})]
    assert LOWER.write is not None
    return LOWER.write(op)


unary_op(
    "polygamma", "polygamma(n, x)", "dout * polygamma(n + 1, x)", lambda torch, x, n, *, out=None: torch.polygamma(n, x, out=out),
    attrs={"n": Attr(kind="int")}, amp="black", values=_POSITIVE, samples=({"n": 1}, {"n": 0}, {"n": 2}), ulps=64,
    paddle=PaddleForm(write=_polygamma_write),
)  # fmt: skip
unary_op(
    "erfinv", "erfinv(x)", "dout * 0.8862269254527579 * exp(out * out)", "erfinv", amp="black",
    values=ValueRange(-0.8, 0.8), ulps=16,
)  # fmt: skip
unary_op("i0", "i0(x)", "dout * i1(x)", "special.i0", amp="black", ulps=16, paddle=LOWER)
# 649 ulps seen of the second gradient of i0e, 18 of that of i1e, 4.0 of the rest.
unary_op("i0e", "i0e(x)", "dout * (i1e(x) - sign(x) * out)", "special.i0e", amp="black",
         values=ValueRange(0.3, 3.0), ulps=2048, paddle=LOWER)  # fmt: skip
unary_op("i1", "i1(x)", "dout * (i0(x) - where(x == 0, 0.5, out / x))", "special.i1", amp="black",
         values=ValueRange(0.3, 3.0), ulps=2048, paddle=LOWER)  # fmt: skip
unary_op("i1e", "i1e(x)", "dout * (i0e(x) - sign(x) * out - where(x == 0, 0.5, out / x))", "special.i1e", amp="black",
         values=ValueRange(0.3, 3.0), ulps=2048, paddle=LOWER)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ functions
@export("tensor.lgamma", "Variable.lgamma", op="lgamma", inplace=True)
def lgamma(x: Variable, name: str | None = None) -> Variable:
    """Returns the logarithm of the absolute value of the gamma function of each element; any shape.

    Example:
        >>> y = paddle.lgamma(paddle.to_tensor([1.0, 4.0, 6.0]))
        >>> static.Executor().run(fetch_list=[paddle.exp(y)])[0].round(2)
        array([  1.,   6., 120.], dtype=float32)
    """
    return float_unary("lgamma", x, name=name)


@export("tensor.digamma", "Variable.digamma", op="digamma", inplace=True)
def digamma(x: Variable, name: str | None = None) -> Variable:
    """Returns the derivative of :func:`lgamma` at each element; any shape."""
    return float_unary("digamma", x, name=name)


@export("tensor.polygamma", "Variable.polygamma", op="polygamma", inplace=True)
def polygamma(x: Variable, n: int, name: str | None = None) -> Variable:
    """Returns the ``n``-th derivative of :func:`digamma` at each positive element.

    Args:
        x: Floats of any shape.
        n: At least 0, which is :func:`digamma` itself.
        name: Name of the layer.

    Raises:
        ShapeError: If ``n`` is negative.
    """
    return unary("polygamma", x, {"n": check_int(n, "n", "polygamma", least=0)}, name=name)


@export("tensor.erfinv", "Variable.erfinv", op="erfinv", inplace=True)
def erfinv(x: Variable, name: str | None = None) -> Variable:
    """Returns the number whose ``erf`` is the element; infinite at 1 and -1, NaN beyond. Any shape."""
    return unary("erfinv", x, name=name)


@export("tensor.i0", "Variable.i0", op="i0", inplace=True)
def i0(x: Variable, name: str | None = None) -> Variable:
    """Returns the modified Bessel function of the first kind of order 0; any shape."""
    return unary("i0", x, name=name)


@export("tensor.i0e", "Variable.i0e", op="i0e")
def i0e(x: Variable, name: str | None = None) -> Variable:
    """Returns ``exp(-abs(x)) * i0(x)``, which does not overflow; any shape."""
    return unary("i0e", x, name=name)


@export("tensor.i1", "Variable.i1", op="i1")
def i1(x: Variable, name: str | None = None) -> Variable:
    """Returns the modified Bessel function of the first kind of order 1; any shape."""
    return unary("i1", x, name=name)


@export("tensor.i1e", "Variable.i1e", op="i1e")
def i1e(x: Variable, name: str | None = None) -> Variable:
    """Returns ``exp(-abs(x)) * i1(x)``, which does not overflow; any shape."""
    return unary("i1e", x, name=name)
