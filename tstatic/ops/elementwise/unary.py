"""Exponentials, logarithms, roots, powers, absolute value, sign and erf of each element."""

from __future__ import annotations

from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import DERIVE, Attr, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.elementwise import _functions  # noqa: F401 - erf and integer powers in expressions
from tstatic.ops.elementwise._mixed import unify
from tstatic.ops.elementwise._unary import float_unary, infer_float, infer_number, unary
from tstatic.ops.elementwise.scale import whole, whole_part

_POSITIVE = {"X": ValueRange(0.3, 4.0)}

register(OpDef(
    "exp", "X -> Out", pointwise={"Out": "exp(x)"}, infer=infer_float,
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * out"}, grad=DERIVE),
    lower=lambda torch, x: torch.exp(x), amp="black", domain=Domain("unary", ulps=4),
))  # fmt: skip
register(OpDef(
    "expm1", "X -> Out", pointwise={"Out": "expm1(x)"}, infer=infer_float,
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * out + dout"}, grad=DERIVE),
    lower=lambda torch, x: torch.expm1(x), amp="black", domain=Domain("unary", ulps=4),
))  # fmt: skip
register(OpDef(
    "log", "X -> Out", pointwise={"Out": "log(x)"}, infer=infer_float,
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout / x"}, grad=DERIVE),
    lower=lambda torch, x: torch.log(x), amp="black", domain=Domain("unary", values=_POSITIVE, ulps=4),
))  # fmt: skip
register(OpDef(
    "log2", "X -> Out", pointwise={"Out": "log2(x)"}, infer=infer_float,
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout / (x * 0.6931471805599453)"}, grad=DERIVE),
    lower=lambda torch, x: torch.log2(x), amp="black", domain=Domain("unary", values=_POSITIVE, ulps=4),
))  # fmt: skip
register(OpDef(
    "log10", "X -> Out", pointwise={"Out": "log10(x)"}, infer=infer_float,
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout / (x * 2.302585092994046)"}, grad=DERIVE),
    lower=lambda torch, x: torch.log10(x), amp="black", domain=Domain("unary", values=_POSITIVE, ulps=4),
))  # fmt: skip
register(OpDef(
    "log1p", "X -> Out", pointwise={"Out": "log1p(x)"}, infer=infer_float,
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout / (x + 1)"}, grad=DERIVE),
    lower=lambda torch, x: torch.log1p(x), amp="black", domain=Domain("unary", values={"X": ValueRange(-0.7, 4.0)}, ulps=4),
))  # fmt: skip
register(OpDef(
    "sqrt", "X -> Out", pointwise={"Out": "sqrt(x)"}, infer=infer_float,
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * 0.5 / out"}, grad=DERIVE),
    lower=lambda torch, x: torch.sqrt(x), amp="gray", domain=Domain("unary", values=_POSITIVE, ulps=2),
))  # fmt: skip
register(OpDef(
    "rsqrt", "X -> Out", pointwise={"Out": "rsqrt(x)"}, infer=infer_float,
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "-0.5 * dout * out * out * out"}, grad=DERIVE),
    lower=lambda torch, x: torch.rsqrt(x), amp="black", domain=Domain("unary", values=_POSITIVE, ulps=4),
))  # fmt: skip
register(OpDef(
    "square", "X -> Out", pointwise={"Out": "square(x)"}, infer=infer_number,
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * 2 * x"}, grad=DERIVE),
    lower=lambda torch, x: torch.square(x), amp="black", domain=Domain("unary", others=("int64", "int32"), ulps=1),
))  # fmt: skip
register(OpDef(
    "reciprocal", "X -> Out", pointwise={"Out": "reciprocal(x)"}, infer=infer_float,
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "-dout * out * out"}, grad=DERIVE),
    lower=lambda torch, x: torch.reciprocal(x), amp="gray",
    domain=Domain("unary", values={"X": ValueRange(0.4, 3.0)}, ulps=2),
))  # fmt: skip
register(OpDef(
    "abs", "X -> Out", pointwise={"Out": "abs(x)"}, infer=infer_number,
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * sign(x)"}, grad=DERIVE),
    lower=lambda torch, x: torch.abs(x), amp="gray",
    domain=Domain("unary", values={"X": ValueRange(avoid=(0.0,))}, others=("int64", "int32"), ulps=0),
))  # fmt: skip
register(OpDef(
    "sign", "X -> Out", pointwise={"Out": "sign(x)"}, infer=infer_number,
    grad=GradOp("Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "0.0"}),
    # torch gives 0 for NaN; NaN propagates here as it does in numpy.
    lower=lambda torch, x: torch.where(x == x, torch.sign(x), x), amp="gray",
    domain=Domain("unary", values={"X": ValueRange(avoid=(0.0,))}, others=("int64", "int32"), ulps=0),
))  # fmt: skip
register(OpDef(
    "erf", "X -> Out", pointwise={"Out": "erf(x)"}, infer=infer_float,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * 1.1283791670955126 * exp(-x * x)"}, grad=DERIVE
    ),
    lower=lambda torch, x: torch.erf(x), amp="black", domain=Domain("unary", ulps=4),
))  # fmt: skip


def _pow_infer(x: Meta, factor: float) -> Meta:
    whole(infer_number(x), factor=factor)
    return x


register(OpDef(
    "pow", "X -> Out", attrs={"factor": Attr(1.0, "number")}, pointwise={"Out": "pow(x, factor)"}, infer=_pow_infer,
    # Any number to the power of 0 is 1, 0 too.
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where(factor == 0, 0, dout * (factor * pow(x, factor - 1)))"},
        grad=DERIVE,
    ),
    lower=lambda torch, x, factor: torch.pow(x, factor), amp="black",
    domain=Domain(
        "unary", attrs=({"factor": 2.0}, {"factor": 3.0}, {"factor": 0.5}, {"factor": -1.5}, {"factor": 1.0}, {"factor": 0.0}),
        values={"X": ValueRange(0.4, 2.0)}, ulps=8,
    ),
))  # fmt: skip
_LOGIT = "log(minimum(maximum(x, eps), 1 - eps) / (1 - minimum(maximum(x, eps), 1 - eps)))"
register(OpDef(
    "logit", "X -> Out", attrs={"eps": 1e-6},
    pointwise={"Out": f"where(eps > 0, {_LOGIT}, log(x / (1 - x)))"},
    infer=infer_float,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD",
        pointwise={"X@GRAD": "where((x < eps) | (x > 1 - eps), 0, dout / (x * (1 - x)))"}, grad=DERIVE,
    ),
    lower=lambda torch, x, eps: torch.logit(x, eps if eps > 0 else None), amp="black",
    domain=Domain(
        "unary", values={"X": ValueRange(0.15, 0.85, avoid=(0.25, 0.75, 0.5))}, attrs=({"eps": 0.25}, {"eps": 0.0}), ulps=8
    ),
))  # fmt: skip


@export("tensor.exp", "Variable.exp", "fluid.layers.exp", op="exp")
def exp(x: Variable, name: str | None = None) -> Variable:
    """Returns e to the power of each element; any shape, integers become float32."""
    return float_unary("exp", x, name=name)


@export("tensor.expm1", "Variable.expm1", op="expm1")
def expm1(x: Variable, name: str | None = None) -> Variable:
    """Returns ``exp(x) - 1`` without the rounding error that the difference has near 0; any shape."""
    return float_unary("expm1", x, name=name)


@export("tensor.log", "Variable.log", "fluid.layers.log", op="log")
def log(x: Variable, name: str | None = None) -> Variable:
    """Returns the natural logarithm of each element; NaN below 0, minus infinity at 0. Any shape.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0, 10.0])
        >>> y = paddle.log(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.    , 0.6931, 2.3026], dtype=float32)
    """
    return float_unary("log", x, name=name)


@export("tensor.log2", "Variable.log2", op="log2")
def log2(x: Variable, name: str | None = None) -> Variable:
    """Returns the logarithm to base 2 of each element; any shape."""
    return float_unary("log2", x, name=name)


@export("tensor.log10", "Variable.log10", op="log10")
def log10(x: Variable, name: str | None = None) -> Variable:
    """Returns the logarithm to base 10 of each element; any shape."""
    return float_unary("log10", x, name=name)


@export("tensor.log1p", "Variable.log1p", "fluid.layers.log1p", op="log1p")
def log1p(x: Variable, name: str | None = None) -> Variable:
    """Returns ``log(1 + x)`` without the rounding error that the sum has near 0; any shape."""
    return float_unary("log1p", x, name=name)


@export("tensor.sqrt", "Variable.sqrt", "tensor.sqrt_", "Variable.sqrt_", "fluid.layers.sqrt", op="sqrt")
def sqrt(x: Variable, name: str | None = None) -> Variable:
    """Returns the square root of each element; NaN below 0. Any shape.

    Example:
        >>> x = paddle.to_tensor([1.0, 4.0, 10.0])
        >>> y = paddle.sqrt(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1.    , 2.    , 3.1623], dtype=float32)
    """
    return unary("sqrt", x, name=name)


@export("tensor.rsqrt", "Variable.rsqrt", "tensor.rsqrt_", "Variable.rsqrt_", "fluid.layers.rsqrt", op="rsqrt")
def rsqrt(x: Variable, name: str | None = None) -> Variable:
    """Returns ``1 / sqrt(x)`` of each element; any shape."""
    return unary("rsqrt", x, name=name)


@export("tensor.square", "Variable.square", "fluid.layers.square", op="square")
def square(x: Variable, name: str | None = None) -> Variable:
    """Returns ``x * x`` of each element; floats or integers of any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 2.0, 3.0])
        >>> y = paddle.square(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 4., 9.], dtype=float32)
    """
    return unary("square", x, name=name)


@export("tensor.reciprocal", "Variable.reciprocal", "tensor.reciprocal_", "Variable.reciprocal_",
         "fluid.layers.reciprocal", op="reciprocal")  # fmt: skip
def reciprocal(x: Variable, name: str | None = None) -> Variable:
    """Returns ``1 / x`` of each element; any shape."""
    return unary("reciprocal", x, name=name)


@export("tensor.abs", "Variable.abs", "fluid.layers.abs", "Variable.__abs__", op="abs")
def abs(x: Variable, name: str | None = None) -> Variable:
    """Returns the absolute value of each element; floats or integers of any shape."""
    return unary("abs", x, name=name)


@export("tensor.sign", "Variable.sign", "fluid.layers.sign", op="sign")
def sign(x: Variable, name: str | None = None) -> Variable:
    """Returns -1, 0 or 1 by the sign of each element; any shape."""
    return unary("sign", x, name=name)


@export("tensor.erf", "Variable.erf", "fluid.layers.erf", op="erf")
def erf(x: Variable, name: str | None = None) -> Variable:
    """Returns the error function ``2 / sqrt(pi) * integral of exp(-t * t) from 0 to x`` of each element; any shape."""
    return unary("erf", x, name=name)


@export("tensor.logit", "Variable.logit", op="logit")
def logit(x: Variable, eps: float | None = None, name: str | None = None) -> Variable:
    """Returns ``log(x / (1 - x))`` of each element.

    Args:
        x: Any shape.
        eps: Values are clamped to ``[eps, 1 - eps]`` first; with ``None``, what lies outside ``[0, 1]`` gives NaN.
        name: Name of the layer.
    """
    return unary("logit", x, {"eps": 0.0 if eps is None else eps}, name=name)


@export("tensor.pow", "Variable.pow", "tensor.pow_", "Variable.pow_")
def pow(x: Variable, y: Variable | float, name: str | None = None) -> Variable:
    """Returns ``x`` to the power of ``y``.

    Args:
        x: Floats or integers of any shape.
        y: A number (op ``pow``), or a Variable whose shape broadcasts with ``x`` (``elementwise_pow``; dtypes meet). Beside
            integers a number loses its fraction, as in Paddle: 0.5 becomes 0. (``x ** 0.5`` gives float32.)
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0, 3.0])
        >>> y = paddle.pow(x, 2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 4., 9.], dtype=float32)
    """
    check_variable(x, "x", "pow")
    if isinstance(y, Variable):
        base, exponent = unify(x, y, "pow")
        out: Variable = emit("elementwise_pow", {"X": base, "Y": exponent}, name=name)
        return out
    return unary("pow", x, {"factor": y if x.dtype.is_float else whole_part(y)}, name=name)


@export("fluid.layers.pow", op="pow")
def fluid_pow(x: Variable, factor: Variable | float = 1.0, name: str | None = None) -> Variable:
    """Returns ``x`` to the power of ``factor``; any shape."""
    return pow(x, factor, name)


@export("tensor.neg", "Variable.neg", op="scale")
def neg(x: Variable, name: str | None = None) -> Variable:
    """Returns ``-x`` (a ``scale`` op); any shape."""
    return unary("scale", x, {"scale": -1.0}, name=name, prefix="neg")
