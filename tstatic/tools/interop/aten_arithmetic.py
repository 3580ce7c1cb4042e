"""Arithmetic, comparisons and functions of each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tstatic.ir.build import as_variable
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, bool_, dtype_of, float32, int64
from tstatic.ops.base.mixed import cast_to
from tstatic.ops.elementwise import arithmetic, logic, pairs, special, unary
from tstatic.ops.elementwise.scale import clip
from tstatic.ops.functions import operators
from tstatic.ops.functions.nan_to_num import nan_to_num
from tstatic.tools.interop.conversion import Call, Converter, Size, each, family

converts = family("arithmetic")

Number = bool | int | float


# ------------------------------------------------------------------------------------------------------------ arithmetic
def _pair(c: Call, x: Any, y: Any) -> tuple[Any, Any]:
    """Returns two operands in the result's dtype; a number beside a Variable stays a number."""
    a, b = c.cast(x), c.cast(y)
    if not isinstance(a, Variable) and not isinstance(b, Variable):
        a = as_variable(a, dtype=c.dtype)
    return a, b


def _variables(c: Call, x: Any, y: Any) -> tuple[Variable, Variable]:
    """Returns two operands as Variables in the result's dtype."""
    a, b = (v if isinstance(v, Variable) else as_variable(v, dtype=c.dtype) for v in (c.cast(x), c.cast(y)))
    return a, b


def _times(c: Call, x: Any, alpha: Number) -> Any:
    if alpha == 1:
        return x
    # torch takes the number in the dtype of a whole result: 0.5 is 0 there.
    return c.cast(x) * (alpha if c.dtype.is_inexact else int(alpha))


@converts("add.Tensor", "add.Scalar")
def _add(c: Call, x: Any, y: Any, alpha: Number = 1) -> Any:
    a, b = _pair(c, x, _times(c, y, alpha))
    # True + True is True in torch.
    return logic.logical_or(a, b) if c.dtype is bool_ else a + b


@converts("sub.Tensor", "sub.Scalar")
def _sub(c: Call, x: Any, y: Any, alpha: Number = 1) -> Any:
    a, b = _pair(c, x, _times(c, y, alpha))
    return a - b


@converts("rsub.Tensor", "rsub.Scalar")
def _rsub(c: Call, x: Any, y: Any, alpha: Number = 1) -> Any:
    a, b = _pair(c, _times(c, x, alpha), y)
    return b - a


@converts("mul.Tensor", "mul.Scalar")
def _mul(c: Call, x: Any, y: Any) -> Any:
    a, b = _pair(c, x, y)
    return a * b


@converts("div.Tensor", "div.Scalar")
def _div(c: Call, x: Any, y: Any) -> Any:
    a, b = _pair(c, x, y)
    return a / b


@converts("div.Tensor_mode")
def _div_mode(c: Call, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return _div(c, x, y)
    if rounding_mode == "floor":
        return _floor_divide(c, x, y)
    # A division by a number would be a product with its reciprocal, which may round to the next whole number.
    a, b = _variables(c, x, y)
    if c.dtype.is_float:
        return unary.trunc(a / b)
    # The quotient rounded down, and one more where it is negative and not whole.
    down, rest = _floor_divide(c, a, b), operators.mod(a, b)
    negative = logic.logical_xor(a < 0, b < 0)
    more = logic.logical_and(negative, logic.not_equal(rest, as_variable(0, dtype=c.dtype)))
    return down + cast_to(more, c.dtype)


@converts("floor_divide.default")
def _floor_divide(c: Call, x: Any, y: Any) -> Any:
    return operators.floordiv(*_variables(c, x, y))


@converts("remainder.Tensor", "remainder.Scalar")
def _remainder(c: Call, x: Any, y: Any) -> Any:
    a, b = _pair(c, x, y)
    return operators.mod(a, b)


@converts("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(c: Call, x: Any, y: Any) -> Any:
    a, b = _pair(c, x, y)
    if b == 2 if isinstance(b, int | float) else False:
        return unary.square(a)
    if isinstance(b, float) and b == 0.5:
        return unary.sqrt(a)
    if isinstance(b, Variable) and not c.dtype.is_inexact:
        return _whole_power(c, *_variables(c, a, b))
    return unary.pow(a, b) if isinstance(a, Variable) else operators.rpow(b, a)


def _whole_power(c: Call, a: Variable, b: Variable) -> Variable:
    """Returns a power of whole numbers; those of negative exponents are whole only for 1 and -1, and 0 for all others."""
    zero, one = (as_variable(n, dtype=c.dtype) for n in (0, 1))
    power = unary.pow(a, arithmetic.maximum(b, zero))
    sign = one - cast_to(logic.not_equal(logic.bitwise_and(b, one), zero), c.dtype) * 2
    of_minus_one = logic.where(logic.equal(a, -one), sign, zero)
    return logic.where(logic.less_than(b, zero), logic.where(logic.equal(a, one), one, of_minus_one), power)


@converts("addcmul.default")
def _addcmul(c: Call, x: Variable, y: Variable, z: Variable, value: Number = 1) -> Any:
    return c.cast(x) + c.cast(_times(c, y, value)) * c.cast(z)


@converts("addcdiv.default")
def _addcdiv(c: Call, x: Variable, y: Variable, z: Variable, value: Number = 1) -> Any:
    return c.cast(x) + c.cast(_times(c, y, value)) / c.cast(z)


@converts("lerp.Scalar", "lerp.Tensor")
def _lerp(c: Call, x: Variable, y: Variable, weight: Any) -> Any:
    return c.cast(x) + (c.cast(y) - c.cast(x)) * weight


@converts("maximum.default", "max.other")
def _maximum(c: Call, x: Variable, y: Variable) -> Any:
    return _larger(c, c.cast(x), c.cast(y))


def _larger(c: Call, a: Variable, b: Variable) -> Variable:
    return logic.logical_or(a, b) if c.dtype is bool_ else arithmetic.maximum(a, b)


def _smaller(c: Call, a: Variable, b: Variable) -> Variable:
    return logic.logical_and(a, b) if c.dtype is bool_ else arithmetic.minimum(a, b)


@converts("minimum.default", "min.other")
def _minimum(c: Call, x: Variable, y: Variable) -> Any:
    return _smaller(c, c.cast(x), c.cast(y))


@converts("atan2.default")
def _atan2(c: Call, x: Variable, y: Variable) -> Any:
    return pairs.atan2(c.cast(x), c.cast(y))


@converts("clamp.default", "clip.default")
def _clamp(c: Call, x: Variable, least: Number | None = None, most: Number | None = None) -> Any:
    return clip(c.cast(x), least, most)


@converts("clamp_min.default")
def _clamp_min(c: Call, x: Variable, least: Number) -> Any:
    return clip(c.cast(x), least)


@converts("clamp_max.default")
def _clamp_max(c: Call, x: Variable, most: Number) -> Any:
    return clip(c.cast(x), None, most)


@converts("clamp.Tensor")
def _clamp_tensor(c: Call, x: Variable, least: Variable | None = None, most: Variable | None = None) -> Any:
    x = c.cast(x)
    if least is not None:
        x = _larger(c, x, c.cast(least))
    return x if most is None else _smaller(c, x, c.cast(most))


@converts("nan_to_num.default")
def _nan_to_num(
    c: Call, x: Variable, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    return nan_to_num(x, 0.0 if nan is None else nan, posinf, neginf) if x.dtype.is_inexact else x


# ----------------------------------------------------------------------------------------------------------- comparisons
def _compared(c: Call, x: Any, y: Any) -> tuple[Variable, Variable]:
    """Returns two operands in the dtype that torch compares them in."""
    x, y = (v.variable() if isinstance(v, Size) else v for v in (x, y))
    if isinstance(x, Variable) and isinstance(y, Variable):
        dtype = _promoted(c, x, y)
        return cast_to(x, dtype), cast_to(y, dtype)
    wide = x.dtype
    if isinstance(y, float) and not wide.is_inexact:
        wide = float32
    elif wide is bool_ and not isinstance(y, bool):
        wide = int64
    return cast_to(x, wide), as_variable(y, dtype=wide)


def _promoted(c: Call, x: Variable, y: Variable) -> DType:
    """Returns torch's common dtype of two tensors: one without dimensions does not widen another of its kind."""
    import torch

    a, b = (torch.empty((1,) * len(c.sizes_of(v)), dtype=getattr(torch, v.dtype.name)) for v in (x, y))
    return dtype_of(str(torch.result_type(a, b)).removeprefix("torch."))


def _comparison(function: Callable[..., Variable]) -> Converter:
    def convert(c: Call, x: Any, y: Any) -> Variable:
        return function(*_compared(c, x, y))

    return convert


converts("eq.Tensor", "eq.Scalar")(_comparison(logic.equal))
converts("ne.Tensor", "ne.Scalar")(_comparison(logic.not_equal))
converts("lt.Tensor", "lt.Scalar")(_comparison(logic.less_than))
converts("le.Tensor", "le.Scalar")(_comparison(logic.less_equal))
converts("gt.Tensor", "gt.Scalar")(_comparison(logic.greater_than))
converts("ge.Tensor", "ge.Scalar")(_comparison(logic.greater_equal))


def _logical(function: Callable[..., Variable]) -> Converter:
    def convert(c: Call, *operands: Variable) -> Variable:
        return function(*(_truth(v) for v in operands))

    return convert


def _truth(x: Variable) -> Variable:
    """Returns whether elements are other than 0."""
    return x if x.dtype is bool_ else logic.not_equal(x, as_variable(0, dtype=x.dtype))


converts("logical_and.default")(_logical(logic.logical_and))
converts("logical_or.default")(_logical(logic.logical_or))
converts("logical_xor.default")(_logical(logic.logical_xor))
converts("logical_not.default")(_logical(logic.logical_not))


def _bitwise(function: Callable[..., Variable]) -> Converter:
    def convert(c: Call, *operands: Any) -> Variable:
        return function(
            *(v if isinstance(v, Variable) else as_variable(v, dtype=c.dtype) for v in map(c.cast, operands))
        )

    return convert


converts("bitwise_and.Tensor", "bitwise_and.Scalar", "__and__.Tensor", "__and__.Scalar")(_bitwise(logic.bitwise_and))
converts("bitwise_or.Tensor", "bitwise_or.Scalar", "__or__.Tensor", "__or__.Scalar")(_bitwise(logic.bitwise_or))
converts("bitwise_xor.Tensor", "bitwise_xor.Scalar", "__xor__.Tensor", "__xor__.Scalar")(_bitwise(logic.bitwise_xor))
converts("bitwise_not.default")(_bitwise(logic.bitwise_not))


@converts("isnan.default")
def _isnan(c: Call, x: Variable) -> Variable:
    return logic.isnan(x)


@converts("isinf.default")
def _isinf(c: Call, x: Variable) -> Variable:
    return logic.isinf(x)


@converts("isfinite.default")
def _isfinite(c: Call, x: Variable) -> Variable:
    return logic.isfinite(x)


@converts("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(c: Call, condition: Variable, x: Any, y: Any) -> Any:
    return logic.where(condition, *_variables(c, x, y))


@converts("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(c: Call, x: Variable, mask: Variable, value: Any) -> Any:
    return _where(c, mask, value, x)


# ------------------------------------------------------------------------------------------------------------- functions
converts("abs.default")(each(unary.abs))
converts("neg.default")(each(unary.neg))
converts("exp.default")(each(unary.exp))
converts("expm1.default")(each(unary.expm1))
converts("log.default")(each(unary.log))
converts("log2.default")(each(unary.log2))
converts("log10.default")(each(unary.log10))
converts("log1p.default")(each(unary.log1p))
converts("sqrt.default")(each(unary.sqrt))
converts("rsqrt.default")(each(unary.rsqrt))
converts("square.default")(each(unary.square))
converts("reciprocal.default")(each(unary.reciprocal))
converts("erf.default")(each(unary.erf))
converts("erfinv.default")(each(special.erfinv))
converts("sin.default")(each(unary.sin))
converts("cos.default")(each(unary.cos))
converts("tan.default")(each(unary.tan))
converts("asin.default")(each(unary.asin))
converts("acos.default")(each(unary.acos))
converts("atan.default")(each(unary.atan))
converts("sinh.default")(each(unary.sinh))
converts("cosh.default")(each(unary.cosh))
converts("digamma.default")(each(special.digamma))


def _of_floats(function: Callable[[Variable], Variable]) -> Converter:
    """Returns the converter of a function that leaves whole numbers as they are."""

    def convert(c: Call, x: Variable) -> Variable:
        return function(x) if c.dtype.is_float else x

    return convert


converts("floor.default")(_of_floats(unary.floor))
converts("ceil.default")(_of_floats(unary.ceil))
converts("trunc.default")(_of_floats(unary.trunc))


@converts("sign.default")
def _sign(c: Call, x: Variable) -> Variable:
    if c.dtype is bool_:
        return x
    # torch has 0 for NaN, Paddle NaN.
    found = unary.sign(x)
    return logic.where(logic.isnan(x), as_variable(0.0, dtype=x.dtype), found) if c.dtype.is_float else found


@converts("lgamma.default")
def _lgamma(c: Call, x: Variable) -> Variable:
    x = c.cast(x)
    # At minus infinity C's function, which torch takes, is infinite, and Paddle's minus infinity.
    return logic.where(logic.isinf(x), unary.abs(x), special.lgamma(x))


@converts("round.default")
def _round(c: Call, x: Variable) -> Variable:
    if not c.dtype.is_float:
        return x
    # torch rounds a half to the even neighbour, Paddle away from zero.
    half = logic.equal(unary.abs(x - unary.trunc(x)), as_variable(0.5, dtype=x.dtype))
    return logic.where(half, unary.round(x * 0.5) * 2.0, unary.round(x))
