"""Rounding of each element: floor, ceil, round, trunc. Their gradients are zero."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ops.elementwise._unary import infer_float, infer_number, unary

_ZERO = GradOp("Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "0.0"})
_BETWEEN = {"X": ValueRange(-4.0, 4.0, avoid="int")}


def _half_away(torch: Any, x: Any) -> Any:
    """Halves away from zero, as in Paddle; torch.round takes them to even."""
    whole = torch.trunc(x)
    return torch.where((x - whole).abs() >= 0.5, whole + torch.sign(x), whole)


register(OpDef(
    "floor", "X -> Out", pointwise={"Out": "floor(x)"}, infer=infer_float, grad=_ZERO,
    lower=lambda torch, x: torch.floor(x), amp="gray", domain=Domain("unary", values=_BETWEEN, ulps=0),
))  # fmt: skip
register(OpDef(
    "ceil", "X -> Out", pointwise={"Out": "ceil(x)"}, infer=infer_float, grad=_ZERO,
    lower=lambda torch, x: torch.ceil(x), amp="gray", domain=Domain("unary", values=_BETWEEN, ulps=0),
))  # fmt: skip
register(OpDef(
    "round", "X -> Out", pointwise={"Out": "round(x)"}, infer=infer_float, grad=_ZERO,
    lower=_half_away, amp="gray",
    domain=Domain(
        "unary", values={"X": ValueRange(-3.0, 3.0, avoid=(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, -2, -1, 0, 1, 2))}, ulps=0
    ),
))  # fmt: skip
register(OpDef(
    "trunc", "X -> Out", pointwise={"Out": "trunc(x)"}, infer=infer_number, grad=_ZERO,
    lower=lambda torch, x: torch.trunc(x), amp="gray",
    domain=Domain("unary", values=_BETWEEN, others=("int64", "int32"), ulps=0),
))  # fmt: skip


@export("tensor.floor", "Variable.floor", "tensor.floor_", "Variable.floor_", "fluid.layers.floor", op="floor")
def floor(x: Variable, name: str | None = None) -> Variable:
    """Returns the greatest whole number not above each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.5, 0.2, 2.0])
        >>> y = paddle.floor(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-2.,  0.,  2.], dtype=float32)
    """
    return unary("floor", x, name=name)


@export("tensor.ceil", "Variable.ceil", "tensor.ceil_", "Variable.ceil_", "fluid.layers.ceil", op="ceil")
def ceil(x: Variable, name: str | None = None) -> Variable:
    """Returns the least whole number not below each element; any shape."""
    return unary("ceil", x, name=name)


@export("tensor.round", "Variable.round", "tensor.round_", "Variable.round_", "fluid.layers.round", op="round")
def round(x: Variable, name: str | None = None) -> Variable:
    """Returns the nearest whole number of each element, halves away from zero; any shape."""
    return unary("round", x, name=name)


@export("tensor.trunc", "Variable.trunc", op="trunc")
def trunc(input: Variable, name: str | None = None) -> Variable:
    """Returns each element without its fractional part; any shape."""
    return unary("trunc", input, name=name)


@export("tensor.frac", "Variable.frac")
def frac(x: Variable, name: str | None = None) -> Variable:
    """Returns the fractional part ``x - trunc(x)`` of each element; any shape."""
    whole = emit("trunc", {"X": check_variable(x, "x", "frac")})
    out: Variable = emit("elementwise_sub", {"X": x, "Y": whole}, name=name)
    return out
