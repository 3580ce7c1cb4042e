"""Exponentials, logarithms, roots, powers, circular functions, rounding, absolute value, sign and erf of each element."""

from __future__ import annotations

from typing import Any

from tstatic.ir.attrs import OpSpec
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Attr, ValueRange, export
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, float32
from tstatic.ops.base.low import torch_sign
from tstatic.ops.base.mixed import unify
from tstatic.ops.base.one_input import float_unary, infer_number, unary, unary_op
from tstatic.ops.base.shapes import emit_one, written
from tstatic.ops.elementwise.scale import check_whole, whole_part

WHOLE_IN_FLOAT32 = PaddleForm(wide=float32)
_INTS = ("int64", "int32")
# Not down to 0: there slopes of logarithms and roots are infinite.
_POSITIVE = ValueRange(0.3, 4.0)
# Where the absolute value has its kink and the sign its jump.
_NOT_ZERO = ValueRange(avoid=(0.0,))
# Whole numbers are where rounding jumps, and finite differences across a jump mean nothing.
_BETWEEN = ValueRange(-4.0, 4.0, avoid="int")

unary_op("exp", "exp(x)", "dout * out", "exp", amp="black", complex="holomorphic", paddle=WHOLE_IN_FLOAT32)
# exp(x) is out + 1: no second exponential.
unary_op("expm1", "expm1(x)", "dout * out + dout", "expm1", amp="black", complex="holomorphic", paddle=WHOLE_IN_FLOAT32)
unary_op(
    "log", "log(x)", "dout / x", "log", amp="black", values=_POSITIVE, complex="holomorphic", paddle=WHOLE_IN_FLOAT32
)
unary_op(
    "log2",
    "log2(x)",
    "dout / (x * 0.6931471805599453)",
    "log2",
    amp="black",
    values=_POSITIVE,
    complex="holomorphic",
    paddle=WHOLE_IN_FLOAT32,
)
unary_op(
    "log10",
    "log10(x)",
    "dout / (x * 2.302585092994046)",
    "log10",
    amp="black",
    values=_POSITIVE,
    complex="holomorphic",
    paddle=WHOLE_IN_FLOAT32,
)
unary_op(
    "log1p",
    "log1p(x)",
    "dout / (x + 1)",
    "log1p",
    amp="black",
    values=ValueRange(-0.7, 4.0),
    complex="holomorphic",
    paddle=WHOLE_IN_FLOAT32,
)
# By the result, so that X need not stay in memory for the backward pass.
unary_op("sqrt", "sqrt(x)", "dout * 0.5 / out", "sqrt", values=_POSITIVE, ulps=2, complex="holomorphic")
unary_op(
    "rsqrt", "rsqrt(x)", "-0.5 * dout * out * out * out", "rsqrt", amp="black", values=_POSITIVE, complex="holomorphic"
)
unary_op(
    "square",
    "square(x)",
    "dout * 2 * x",
    "square",
    infer=infer_number,
    amp="black",
    others=_INTS,
    ulps=1,
    complex="holomorphic",
)
unary_op(
    "reciprocal",
    "reciprocal(x)",
    "-dout * out * out",
    "reciprocal",
    amp="black",
    values=ValueRange(0.4, 3.0),
    ulps=2,
    complex="holomorphic",
)


def _abs_read(op: PaddleOp) -> OpSpec:
    """The absolute value of complex numbers is an op of its own here: its result is real."""
    dtype = op.dtypes.get(op.inputs["X"][0])
    return op.made("complex_abs" if dtype is not None and dtype.is_complex else "abs")


unary_op(
    "abs", "abs(x)", "dout * sign(x)", "abs", infer=infer_number, values=_NOT_ZERO, others=_INTS, ulps=0,
    paddle=PaddleForm(_abs_read),
)  # fmt: skip
# torch's own gives 0 for NaN; NaN propagates here as it does in numpy.
unary_op(
    "sign", "sign(x)", "0.0", lambda torch, x: torch_sign(torch, x), infer=infer_number, values=_NOT_ZERO, others=_INTS, ulps=0,
)  # fmt: skip
# 1.128... is 2 / sqrt(pi), the slope at 0.
unary_op("erf", "erf(x)", "dout * 1.1283791670955126 * exp(-x * x)", "erf", amp="black")


def _pow_infer(x: Meta, factor: float) -> Meta:
    check_whole(infer_number(x), factor=factor)
    return x


def _pow_lower(torch: Any, x: Any, factor: float, *, out: Any = None) -> Any:
    # The power of integers by a float is a float in torch.
    factor = factor if x.is_floating_point() or x.is_complex() else int(factor)
    return torch.pow(x, factor) if out is None else torch.pow(x, factor, out=out)


# Any number to the power of 0 is 1, 0 too.
unary_op(
    "pow", "pow(x, factor)", "where(factor == 0, 0, dout * (factor * pow(x, factor - 1)))", _pow_lower,
    attrs={"factor": Attr(1.0, "number")}, infer=_pow_infer, amp="black",
    samples=tuple({"factor": f} for f in (2.0, 3.0, 0.5, -1.5, 1.0, 0.0)), values=ValueRange(0.4, 2.0), ulps=8,
    complex="holomorphic",
)  # fmt: skip
_LOGIT = "log(minimum(maximum(x, eps), 1 - eps) / (1 - minimum(maximum(x, eps), 1 - eps)))"
unary_op(
    "logit", f"where(eps > 0, {_LOGIT}, log(x / (1 - x)))", "where((x < eps) | (x > 1 - eps), 0, dout / (x * (1 - x)))",
    lambda torch, x, eps, *, out=None: torch.logit(x, eps if eps > 0 else None, out=out), attrs={"eps": 1e-6}, amp="black",
    # 0 means no limit: x outside of (0, 1) then gives infinity or NaN.
    samples=({"eps": 0.25}, {"eps": 0.0}), values=ValueRange(0.15, 0.85, avoid=(0.25, 0.75, 0.5)), ulps=8,
)  # fmt: skip

unary_op("sin", "sin(x)", "dout * cos(x)", "sin", complex="holomorphic")
unary_op("cos", "cos(x)", "-dout * sin(x)", "cos", complex="holomorphic")
unary_op(
    "tan", "tan(x)", "dout * (1 + out * out)", "tan", amp="black", values=ValueRange(-1.1, 1.1), complex="holomorphic"
)
unary_op(
    "asin",
    "asin(x)",
    "dout / sqrt(1 - x * x)",
    "asin",
    amp="black",
    values=ValueRange(-0.7, 0.7),
    complex="holomorphic",
)
unary_op(
    "acos",
    "acos(x)",
    "-dout / sqrt(1 - x * x)",
    "acos",
    amp="black",
    values=ValueRange(-0.7, 0.7),
    complex="holomorphic",
)
unary_op("atan", "atan(x)", "dout / (1 + x * x)", "atan", complex="holomorphic")
unary_op("sinh", "sinh(x)", "dout * cosh(x)", "sinh", amp="black", complex="holomorphic")
unary_op("cosh", "cosh(x)", "dout * sinh(x)", "cosh", amp="black", complex="holomorphic")
unary_op("asinh", "asinh(x)", "dout / sqrt(x * x + 1)", "asinh", complex="holomorphic")
unary_op("acosh", "acosh(x)", "dout / sqrt(x * x - 1)", "acosh", values=ValueRange(1.5, 4.0), complex="holomorphic")
unary_op(
    "atanh", "atanh(x)", "dout / (1 - x * x)", "atanh", amp="black", values=ValueRange(-0.7, 0.7), complex="holomorphic"
)


def _half_away(torch: Any, x: Any) -> Any:
    """Rounds halves away from zero, as in Paddle; torch.round takes them to even."""
    whole = torch.trunc(x)
    # The difference is exact: a number and its whole part share an exponent, or the whole part is 0.
    return torch.where((x - whole).abs() >= 0.5, whole + torch.sign(x), whole)


unary_op("floor", "floor(x)", "0.0", "floor", values=_BETWEEN, ulps=0)
unary_op("ceil", "ceil(x)", "0.0", "ceil", values=_BETWEEN, ulps=0)
unary_op(
    "round", "round(x)", "0.0", _half_away, ulps=0,
    values=ValueRange(-3.0, 3.0, avoid=(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, -2, -1, 0, 1, 2)),
)  # fmt: skip
unary_op("trunc", "trunc(x)", "0.0", "trunc", infer=infer_number, values=_BETWEEN, others=_INTS, ulps=0)


@export("tensor.exp", "Variable.exp", "fluid.layers.exp", op="exp", inplace=True)
def exp(x: Variable, name: str | None = None) -> Variable:
    """Returns e to the power of each element; any shape, integers become float32."""
    return float_unary("exp", x, name=name)


@export("tensor.expm1", "Variable.expm1", op="expm1", inplace=True)
def expm1(x: Variable, name: str | None = None) -> Variable:
    """Returns ``exp(x) - 1`` without the rounding error that the difference has near 0; any shape."""
    return float_unary("expm1", x, name=name)


@export("tensor.log", "Variable.log", "fluid.layers.log", op="log", inplace=True)
def log(x: Variable, name: str | None = None) -> Variable:
    """Returns the natural logarithm of each element; NaN below 0, minus infinity at 0. Any shape.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0, 10.0])
        >>> y = paddle.log(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.    , 0.6931, 2.3026], dtype=float32)
    """
    return float_unary("log", x, name=name)


@export("tensor.log2", "Variable.log2", op="log2", inplace=True)
def log2(x: Variable, name: str | None = None) -> Variable:
    """Returns the logarithm to base 2 of each element; any shape."""
    return float_unary("log2", x, name=name)


@export("tensor.log10", "Variable.log10", op="log10", inplace=True)
def log10(x: Variable, name: str | None = None) -> Variable:
    """Returns the logarithm to base 10 of each element; any shape."""
    return float_unary("log10", x, name=name)


@export("tensor.log1p", "Variable.log1p", op="log1p", inplace=True)
def log1p(x: Variable, name: str | None = None) -> Variable:
    """Returns ``log(1 + x)`` without the rounding error that the sum has near 0; any shape."""
    return float_unary("log1p", x, name=name)


@export("fluid.layers.log1p", op="log1p")
def fluid_log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Returns ``log(1 + x)``, see :func:`log1p`, or writes it to ``out``.

    Args:
        x: Any shape.
        out: A Variable of that shape and of the result's dtype; it is returned. ``None`` makes a new one.
        name: Name of the layer.

    Raises:
        ShapeError, DTypeError: If ``out`` does not fit.
    """
    return written(log1p(x, name), out)


@export("tensor.sqrt", "Variable.sqrt", "fluid.layers.sqrt", op="sqrt", inplace=True)
def sqrt(x: Variable, name: str | None = None) -> Variable:
    """Returns the square root of each element; NaN below 0. Any shape.

    Example:
        >>> x = paddle.to_tensor([1.0, 4.0, 10.0])
        >>> y = paddle.sqrt(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1.    , 2.    , 3.1623], dtype=float32)
    """
    return unary("sqrt", x, name=name)


@export("tensor.rsqrt", "Variable.rsqrt", "fluid.layers.rsqrt", op="rsqrt", inplace=True)
def rsqrt(x: Variable, name: str | None = None) -> Variable:
    """Returns ``1 / sqrt(x)`` of each element; any shape."""
    return unary("rsqrt", x, name=name)


@export("tensor.square", "Variable.square", "fluid.layers.square", op="square", inplace=True)
def square(x: Variable, name: str | None = None) -> Variable:
    """Returns ``x * x`` of each element; floats or integers of any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 2.0, 3.0])
        >>> y = paddle.square(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 4., 9.], dtype=float32)
    """
    return unary("square", x, name=name)


@export("tensor.reciprocal", "Variable.reciprocal", "fluid.layers.reciprocal", op="reciprocal", inplace=True)
def reciprocal(x: Variable, name: str | None = None) -> Variable:
    """Returns ``1 / x`` of each element; any shape."""
    return unary("reciprocal", x, name=name)


@export("tensor.abs", "Variable.abs", "fluid.layers.abs", "Variable.__abs__", op="abs", inplace=True)
def abs(x: Variable, name: str | None = None) -> Variable:
    """Returns the absolute value of each element; floats, integers or complex numbers of any shape."""
    return unary("complex_abs" if check_variable(x, "x", "abs").dtype.is_complex else "abs", x, name=name, prefix="abs")


@export("tensor.sign", "tensor.sgn", "Variable.sign", "Variable.sgn", "fluid.layers.sign", op="sign")
def sign(x: Variable, name: str | None = None) -> Variable:
    """Returns -1, 0 or 1 by the sign of each element; any shape."""
    return unary("sign", x, name=name)


@export("tensor.erf", "Variable.erf", "fluid.layers.erf", op="erf", inplace=True)
def erf(x: Variable, name: str | None = None) -> Variable:
    """Returns the error function ``2 / sqrt(pi) * integral of exp(-t * t) from 0 to x`` of each element; any shape."""
    return unary("erf", x, name=name)


@export("tensor.logit", "Variable.logit", op="logit", inplace=True)
def logit(x: Variable, eps: float | None = None, name: str | None = None) -> Variable:
    """Returns ``log(x / (1 - x))`` of each element.

    Args:
        x: Any shape.
        eps: Values are clamped to ``[eps, 1 - eps]`` first; with ``None``, what lies outside ``[0, 1]`` gives NaN.
        name: Name of the layer.
    """
    return unary("logit", x, {"eps": 0.0 if eps is None else eps}, name=name)


@export("tensor.pow", "Variable.pow", inplace=True)
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
        return emit_one("elementwise_pow", {"X": base, "Y": exponent}, name=name)
    return unary("pow", x, {"factor": y if x.dtype.is_inexact else whole_part(y)}, name=name)


@export("fluid.layers.pow", op="pow")
def fluid_pow(x: Variable, factor: Variable | float = 1.0, name: str | None = None) -> Variable:
    """Returns ``x`` to the power of ``factor``; any shape.

    Args:
        x: Floats or integers.
        factor: The exponent: a number or a Variable, as ``y`` of ``paddle.pow``.
        name: Name of the layer.
    """
    return pow(x, factor, name)


@export("tensor.neg", "Variable.neg", op="scale", inplace=True)
def neg(x: Variable, name: str | None = None) -> Variable:
    """Returns ``-x`` (a ``scale`` op); any shape."""
    return unary("scale", x, {"scale": -1.0}, name=name, prefix="neg")


@export("tensor.sin", "Variable.sin", "fluid.layers.sin", op="sin", inplace=True)
def sin(x: Variable, name: str | None = None) -> Variable:
    """Returns the sine of each element, in radians; any shape."""
    return unary("sin", x, name=name)


@export("tensor.cos", "Variable.cos", "fluid.layers.cos", op="cos", inplace=True)
def cos(x: Variable, name: str | None = None) -> Variable:
    """Returns the cosine of each element, in radians; any shape."""
    return unary("cos", x, name=name)


@export("tensor.tan", "Variable.tan", "fluid.layers.tan", op="tan", inplace=True)
def tan(x: Variable, name: str | None = None) -> Variable:
    """Returns the tangent of each element, in radians; any shape."""
    return unary("tan", x, name=name)


@export("tensor.asin", "Variable.asin", "fluid.layers.asin", op="asin", inplace=True)
def asin(x: Variable, name: str | None = None) -> Variable:
    """Returns the angle in [-pi/2, pi/2] whose sine each element is; NaN outside [-1, 1]. Any shape."""
    return unary("asin", x, name=name)


@export("tensor.acos", "Variable.acos", "fluid.layers.acos", op="acos", inplace=True)
def acos(x: Variable, name: str | None = None) -> Variable:
    """Returns the angle in [0, pi] whose cosine each element is; NaN outside [-1, 1]. Any shape."""
    return unary("acos", x, name=name)


@export("tensor.atan", "Variable.atan", "fluid.layers.atan", op="atan", inplace=True)
def atan(x: Variable, name: str | None = None) -> Variable:
    """Returns the angle in (-pi/2, pi/2) whose tangent each element is; any shape."""
    return unary("atan", x, name=name)


@export("tensor.sinh", "Variable.sinh", "fluid.layers.sinh", op="sinh", inplace=True)
def sinh(x: Variable, name: str | None = None) -> Variable:
    """Returns the hyperbolic sine of each element; any shape."""
    return unary("sinh", x, name=name)


@export("tensor.cosh", "Variable.cosh", "fluid.layers.cosh", op="cosh", inplace=True)
def cosh(x: Variable, name: str | None = None) -> Variable:
    """Returns the hyperbolic cosine of each element; any shape."""
    return unary("cosh", x, name=name)


@export("tensor.asinh", "Variable.asinh", op="asinh", inplace=True)
def asinh(x: Variable, name: str | None = None) -> Variable:
    """Returns the inverse of the hyperbolic sine of each element; any shape."""
    return unary("asinh", x, name=name)


@export("tensor.acosh", "Variable.acosh", op="acosh", inplace=True)
def acosh(x: Variable, name: str | None = None) -> Variable:
    """Returns the inverse of the hyperbolic cosine of each element; NaN below 1. Any shape."""
    return unary("acosh", x, name=name)


@export("tensor.atanh", "Variable.atanh", op="atanh", inplace=True)
def atanh(x: Variable, name: str | None = None) -> Variable:
    """Returns the inverse of the hyperbolic tangent of each element; NaN outside [-1, 1]. Any shape."""
    return unary("atanh", x, name=name)


@export("tensor.floor", "Variable.floor", "fluid.layers.floor", op="floor", inplace=True)
def floor(x: Variable, name: str | None = None) -> Variable:
    """Returns the greatest whole number not above each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.5, 0.2, 2.0])
        >>> y = paddle.floor(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-2.,  0.,  2.], dtype=float32)
    """
    return unary("floor", x, name=name)


@export("tensor.ceil", "Variable.ceil", "fluid.layers.ceil", op="ceil", inplace=True)
def ceil(x: Variable, name: str | None = None) -> Variable:
    """Returns the least whole number not below each element; any shape."""
    return unary("ceil", x, name=name)


@export("tensor.round", "Variable.round", "fluid.layers.round", op="round", inplace=True)
def round(x: Variable, name: str | None = None) -> Variable:
    """Returns the nearest whole number of each element, halves away from zero; any shape."""
    return unary("round", x, name=name)


@export("tensor.trunc", "Variable.trunc", op="trunc", inplace=True)
def trunc(input: Variable, name: str | None = None) -> Variable:
    """Returns each element without its fractional part; any shape."""
    return unary("trunc", input, name=name)


@export("tensor.frac", "Variable.frac", inplace=True)
def frac(x: Variable, name: str | None = None) -> Variable:
    """Returns the fractional part ``x - trunc(x)`` of each element; any shape."""
    # Two ops, each with a gradient of its own: that of trunc is 0.
    whole = emit("trunc", {"X": check_variable(x, "x", "frac")})
    return emit_one("elementwise_sub", {"X": x, "Y": whole}, name=name)
