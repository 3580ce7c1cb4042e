"""Functions of two values that broadcast, beside arithmetic: heaviside, nextafter, atan2, gcd, lcm, hypot, ldexp, logaddexp."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir import expr
from tstatic.ir.build import check_variable
from tstatic.ir.checks import INTEGERS, check_dtype
from tstatic.ir.opdef import DERIVE, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.paddle_form import ABSENT, PaddleForm
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, float32, float64
from tstatic.ops.base.mixed import cast_to, operands, unify
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise._broadcast import binary, binary_floats, reduced_gradient, write_angle
from tstatic.ops.elementwise.arithmetic import add, binary_op, broadcast_op, divide, maximum, multiply, subtract
from tstatic.ops.elementwise.logic import equal, greater_than, where
from tstatic.ops.elementwise.scale import scale
from tstatic.ops.elementwise.unary import abs, exp, floor, log1p, log2, sqrt, square
from tstatic.ops.shape.creation import zeros_like

expr.define("gcd", np.gcd, None, whole=True)
expr.define("lcm", np.lcm, None, whole=True)
expr.define("nextafter", np.nextafter, None, exact=True)

# Where x is 0 the result is y: the slope is that of a step.
broadcast_op(
    "elementwise_heaviside", "where(x == 0, y, where(x > 0, sign(x), 0))",
    ("where(dout == 0, dout, 0)", "where(x == 0, dout, 0)"),
    values={"X": ValueRange(avoid=(0.0,))}, others=(), ulps=0,
)  # fmt: skip


def _whole(x: Meta, y: Meta) -> Meta:
    check_dtype(x, INTEGERS, "X")
    return binary(x, y)


# Equal and broadcast shapes, a number, no elements.
_CASES = tuple(Case(s) for s in (((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2,)), ((0,), (1,)), ((2, 3, 4), (3, 4))))
# Small, with both signs and zeros: gcd(0, n) is n, and no least common multiple overflows.
_INTS = {"X": ValueRange(-40, 40, dtype="int64"), "Y": ValueRange(-40, 40, dtype="int64")}

for _name in ("gcd", "lcm"):
    register(OpDef(
        _name, "X, Y -> Out", pointwise={"Out": f"{_name}(x, y)"}, infer=_whole, paddle=ABSENT,
        domain=Domain(cases=_CASES, values=_INTS, floats=("float32",), ulps=0),
    ))  # fmt: skip
register(OpDef(
    "nextafter", "x, y -> out", pointwise={"out": "nextafter(x, y)"}, infer=binary_floats,
    # Listed cases: random programs are compared with finite differences, which see a slope of 1 where there is no gradient.
    domain=Domain(cases=_CASES, floats=("float32", "float64"), ulps=0),
))  # fmt: skip


register(OpDef(
    "atan2", "X1, X2 -> Out", paddle=PaddleForm(write=write_angle, wide=float64),
    pointwise={"Out": "atan2(x1, x2)"}, infer=binary_floats,
    grad=reduced_gradient(
        "X1, X2, Out@GRAD -> X1@GRAD, X2@GRAD",
        # The point 0 has no angle; its gradient is 0, as in torch.
        {
            "X1@GRAD": "where(x1 * x1 + x2 * x2 == 0, 0, dout * x2 / (x1 * x1 + x2 * x2))",
            "X2@GRAD": "where(x1 * x1 + x2 * x2 == 0, 0, -dout * x1 / (x1 * x1 + x2 * x2))",
        },
        attrs=(), grad=DERIVE,
    ),
    amp="gray", inplace=(("X1", "Out"), ("X2", "Out")), domain=Domain("binary", values={"X2": ValueRange(0.5, 2.0)}, ulps=4),
))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ functions
@export("tensor.atan2", "Variable.atan2", op="atan2")
def atan2(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the angle of the point with height ``x`` and breadth ``y``, in (-pi, pi]; float64 for integers.

    Args:
        x, y: Variables of any shapes that broadcast, floats or integers; dtypes meet as in :func:`add`.
        name: Name of the layer.

    Raises:
        ProgramTypeError: If one is not a Variable.
        ShapeError: If the shapes do not broadcast.
    """
    a, b = unify(check_variable(x, "x", "atan2"), check_variable(y, "y", "atan2"), "atan2")
    # As Paddle: the angle of integers is float64.
    if a.dtype.is_integer:
        a, b = cast_to(a, float64), cast_to(b, float64)
    return emit_one("atan2", {"X1": a, "X2": b}, name=name)


@export("tensor.heaviside", "Variable.heaviside", op="elementwise_heaviside")
def heaviside(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns 0 where ``x`` is negative, 1 where it is positive, and ``y`` where it is 0; shapes broadcast.

    Args:
        x, y: Numbers of shapes that broadcast; dtypes meet.
        name: Name of the layer.
    """
    a, b = operands(x, y, "heaviside")
    if not a.dtype.is_float:
        zero = zeros_like(a)
        stepped: Variable = where(equal(a, zero), b, cast_to(greater_than(a, zero), a.dtype), name=name)
        return stepped
    return binary_op("elementwise_heaviside", a, b, name)


@export("tensor.nextafter", "Variable.nextafter", op="nextafter")
def nextafter(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the float next to ``x`` in the direction of ``y``; shapes broadcast.

    Args:
        x, y: float32 or float64 of shapes that broadcast; dtypes meet.
        name: Name of the layer.
    """
    a, b = operands(x, y, "nextafter")
    return emit_one("nextafter", {"x": a, "y": b}, name=name)


@export("tensor.gcd", "Variable.gcd", op="gcd", inplace=True)
def gcd(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the greatest common divisor of each pair, which is not negative; shapes broadcast.

    Args:
        x, y: Integers of shapes that broadcast; dtypes meet.
        name: Name of the layer.

    Raises:
        DTypeError: If they are floats.

    Example:
        >>> y = paddle.gcd(paddle.to_tensor([12, 0, -4]), paddle.to_tensor([20, 5, 6]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([4, 5, 2])
    """
    return binary_op("gcd", x, y, name)


@export("tensor.lcm", "Variable.lcm", op="lcm", inplace=True)
def lcm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the least common multiple of each pair, which is not negative; arguments and errors as of :func:`gcd`."""
    return binary_op("lcm", x, y, name)


@export("tensor.hypot", "Variable.hypot", inplace=True)
def hypot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns ``sqrt(x * x + y * y)``; shapes broadcast.

    Args:
        x, y: Floats of shapes that broadcast; dtypes meet.
        name: Name of the layer.
    """
    a, b = operands(x, y, "hypot")
    return sqrt(add(square(a), square(b)), name=name)


@export("tensor.logaddexp", "Variable.logaddexp")
def logaddexp(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns ``log(exp(x) + exp(y))`` without overflow; shapes broadcast.

    Args:
        x, y: Floats of shapes that broadcast; dtypes meet.
        name: Name of the layer.
    """
    a, b = operands(x, y, "logaddexp")
    # The larger one taken out: exp of minus a distance is at most 1.
    return add(log1p(exp(scale(abs(subtract(a, b)), -1.0))), maximum(a, b), name=name)


@export("tensor.ldexp", "Variable.ldexp", inplace=True)
def ldexp(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns ``x * 2 ** y``; shapes broadcast, integers count as float32.

    Args:
        x, y: Floats or integers of shapes that broadcast.
        name: Name of the layer.
    """
    pair = [check_variable(v, arg, "ldexp") for v, arg in ((x, "x"), (y, "y"))]
    wide = float64 if any(v.dtype is float64 for v in pair) else float32
    a, b = (cast_to(v, wide) for v in pair)
    return multiply(a, emit_one("elementwise_pow", {"X": _number(b, 2.0), "Y": b}), name=name)


def _number(like: Variable, value: float) -> Variable:
    return emit_one("fill_any_like", {"X": like}, {"value": value})


@export("tensor.frexp", "Variable.frexp")
def frexp(x: Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """Splits each element into a mantissa of at least 0.5 and less than 1 (0 for 0) and a power of two.

    Args:
        x: Floats of any shape.
        name: Name of the mantissa.

    Returns:
        The mantissa and the exponent, both of the dtype of ``x``, which is ``mantissa * 2 ** exponent``.

    Example:
        >>> parts = paddle.frexp(paddle.to_tensor([1.0, -6.0, 0.0]))
        >>> static.Executor().run(fetch_list=parts)
        [array([ 0.5 , -0.75,  0.  ], dtype=float32), array([1., 3., 0.], dtype=float32)]
    """
    x = check_variable(x, "x", "frexp", ("float32", "float64"))
    empty = equal(x, zeros_like(x))
    # The logarithm may round up to the next whole number, which the second step takes back.
    guess = where(empty, zeros_like(x), floor(log2(abs(where(empty, _number(x, 1.0), x)))))
    # The exponent is a step function, so only the mantissa has a gradient.
    guess.stop_gradient = True
    mantissa = divide(x, emit_one("elementwise_pow", {"X": _number(x, 2.0), "Y": guess}))
    size = abs(mantissa)
    low, high = size < 0.5, size >= 1.0
    factor = where(high, _number(x, 0.5), where(low, _number(x, 2.0), _number(x, 1.0)))
    step = where(high, _number(x, 1.0), where(low, _number(x, -1.0), zeros_like(x)))
    exponent = where(empty, zeros_like(x), add(guess, step))
    factor.stop_gradient = True
    return multiply(mantissa, factor, name=name), exponent


def _scaled(x: Any, factor: float, function: str, name: str | None) -> Variable:
    x = check_variable(x, "x", function)
    return scale(x if x.dtype.is_float else cast_to(x, float32), factor, name=name)


@export("tensor.rad2deg", "Variable.rad2deg")
def rad2deg(x: Variable, name: str | None = None) -> Variable:
    """Returns angles in degrees for angles in radians; any shape, integers become float32."""
    return _scaled(x, 180.0 / np.pi, "rad2deg", name)


@export("tensor.deg2rad", "Variable.deg2rad")
def deg2rad(x: Variable, name: str | None = None) -> Variable:
    """Returns angles in radians for angles in degrees; any shape, integers become float32."""
    return _scaled(x, np.pi / 180.0, "deg2rad", name)
