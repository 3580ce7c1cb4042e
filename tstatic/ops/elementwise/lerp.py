"""Linear interpolation between two values."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.opdef import DERIVE, Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, broadcast_shapes
from tstatic.ops.elementwise._broadcast import binary_floats, same_dtype
from tstatic.ops.elementwise._broadcast_grad import reduced_gradient


def _infer(x: Meta, y: Meta, weight: Meta) -> Meta:
    same_dtype(x, weight, ("X", "Weight"))
    out = binary_floats(x, y)
    return out.with_shape(broadcast_shapes(out.shape, weight.shape))


register(OpDef(
    "lerp", "X, Y, Weight -> Out", pointwise={"Out": "x + weight * (y - x)"}, infer=_infer,
    grad=reduced_gradient(
        "X, Y, Weight, Out@GRAD -> X@GRAD, Y@GRAD, Weight@GRAD",
        {"X@GRAD": "dout * (1 - weight)", "Y@GRAD": "dout * weight", "Weight@GRAD": "dout * (y - x)"},
        attrs=(), grad=DERIVE,
    ),
    amp="gray", inplace=(("Weight", "Out"),),
    domain=Domain(cases=tuple(Case(s) for s in (
        ((3, 4), (3, 4), (3, 4)), ((7,), (7,), ()), ((), (), ()), ((0,), (0,), (1,)), ((3, 1), (1, 4), (4,)),
        ((2, 3), (3,), (2, 1)), ((5,), (1,), (5,)),
    )), ulps=8),
))  # fmt: skip


@export("tensor.lerp", "Variable.lerp", "tensor.lerp_", "Variable.lerp_", op="lerp")
def lerp(x: Variable, y: Variable, weight: Any, name: str | None = None) -> Variable:
    """Returns ``x + weight * (y - x)``; the shapes broadcast, ``weight`` may be a number."""
    check_variable(x, "x", "lerp")
    check_variable(y, "y", "lerp")
    inputs = {"X": x, "Y": y, "Weight": as_variable(weight, like=x, dtype=x.dtype)}
    out: Variable = emit("lerp", inputs, name=name)
    return out
