"""Circular and hyperbolic functions of each element, and their inverses."""

from __future__ import annotations

from tstatic.ir.opdef import DERIVE, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ops.elementwise._unary import infer_float, unary


def _definition(type: str, gradient: str, lower: str, values: ValueRange | None = None, reads: str = "X") -> OpDef:
    """An op definition whose expression is the function of the same name; ``gradient`` reads ``x`` or ``out``."""
    return register(OpDef(
        type, "X -> Out", pointwise={"Out": f"{type}(x)"}, infer=infer_float,
        grad=GradOp(f"{reads}, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": gradient}, grad=DERIVE),
        lower=lambda torch, x: getattr(torch, lower)(x), amp="gray",
        domain=Domain("unary", values={"X": values or ValueRange()}, ulps=4),
    ))  # fmt: skip


_definition("sin", "dout * cos(x)", "sin")
_definition("cos", "-dout * sin(x)", "cos")
_definition("tan", "dout * (1 + out * out)", "tan", ValueRange(-1.1, 1.1), reads="Out")
_definition("asin", "dout / sqrt(1 - x * x)", "asin", ValueRange(-0.7, 0.7))
_definition("acos", "-dout / sqrt(1 - x * x)", "acos", ValueRange(-0.7, 0.7))
_definition("atan", "dout / (1 + x * x)", "atan")
_definition("sinh", "dout * cosh(x)", "sinh")
_definition("cosh", "dout * sinh(x)", "cosh")
_definition("asinh", "dout / sqrt(x * x + 1)", "asinh")
_definition("acosh", "dout / sqrt(x * x - 1)", "acosh", ValueRange(1.5, 4.0))
_definition("atanh", "dout / (1 - x * x)", "atanh", ValueRange(-0.7, 0.7))


@export("tensor.sin", "Variable.sin", "tensor.sin_", "Variable.sin_", "fluid.layers.sin", op="sin")
def sin(x: Variable, name: str | None = None) -> Variable:
    """Returns the sine of each element, in radians; any shape."""
    return unary("sin", x, name=name)


@export("tensor.cos", "Variable.cos", "fluid.layers.cos", op="cos")
def cos(x: Variable, name: str | None = None) -> Variable:
    """Returns the cosine of each element, in radians; any shape."""
    return unary("cos", x, name=name)


@export("tensor.tan", "Variable.tan", "fluid.layers.tan", op="tan")
def tan(x: Variable, name: str | None = None) -> Variable:
    """Returns the tangent of each element, in radians; any shape."""
    return unary("tan", x, name=name)


@export("tensor.asin", "Variable.asin", "fluid.layers.asin", op="asin")
def asin(x: Variable, name: str | None = None) -> Variable:
    """Returns the angle in [-pi/2, pi/2] whose sine each element is; NaN outside [-1, 1]. Any shape."""
    return unary("asin", x, name=name)


@export("tensor.acos", "Variable.acos", "fluid.layers.acos", op="acos")
def acos(x: Variable, name: str | None = None) -> Variable:
    """Returns the angle in [0, pi] whose cosine each element is; NaN outside [-1, 1]. Any shape."""
    return unary("acos", x, name=name)


@export("tensor.atan", "Variable.atan", "fluid.layers.atan", op="atan")
def atan(x: Variable, name: str | None = None) -> Variable:
    """Returns the angle in (-pi/2, pi/2) whose tangent each element is; any shape."""
    return unary("atan", x, name=name)


@export("tensor.sinh", "Variable.sinh", "fluid.layers.sinh", op="sinh")
def sinh(x: Variable, name: str | None = None) -> Variable:
    """Returns the hyperbolic sine of each element; any shape."""
    return unary("sinh", x, name=name)


@export("tensor.cosh", "Variable.cosh", "fluid.layers.cosh", op="cosh")
def cosh(x: Variable, name: str | None = None) -> Variable:
    """Returns the hyperbolic cosine of each element; any shape."""
    return unary("cosh", x, name=name)


@export("tensor.asinh", "Variable.asinh", op="asinh")
def asinh(x: Variable, name: str | None = None) -> Variable:
    """Returns the inverse of the hyperbolic sine of each element; any shape."""
    return unary("asinh", x, name=name)


@export("tensor.acosh", "Variable.acosh", op="acosh")
def acosh(x: Variable, name: str | None = None) -> Variable:
    """Returns the inverse of the hyperbolic cosine of each element; NaN below 1. Any shape."""
    return unary("acosh", x, name=name)


@export("tensor.atanh", "Variable.atanh", op="atanh")
def atanh(x: Variable, name: str | None = None) -> Variable:
    """Returns the inverse of the hyperbolic tangent of each element; NaN outside [-1, 1]. Any shape."""
    return unary("atanh", x, name=name)
