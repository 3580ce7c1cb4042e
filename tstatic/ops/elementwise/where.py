"""Choice by a condition: where."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import DTypeError
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.opdef import PUBLIC_API, Case, Domain, GradContext, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, bool_, broadcast_shapes
from tstatic.ops._emitter import Emitter
from tstatic.ops.elementwise._broadcast import same_dtype
from tstatic.ops.elementwise._broadcast_grad import reduced_gradient
from tstatic.ops.elementwise._mixed import operands


def _infer(condition: Meta, x: Meta, y: Meta) -> Meta:
    if condition.dtype is not bool_:
        raise DTypeError(
            "the condition of 'where' must hold truth values",
            expected="dtype bool",
            received=f"Condition of dtype {condition.dtype.name}",
            fix="compare first, for example x > 0, or use paddle.cast(condition, 'bool')",
        )
    same_dtype(x, y)
    return x.with_shape(broadcast_shapes(condition.shape, broadcast_shapes(x.shape, y.shape)))


def _second(ctx: GradContext) -> list[OpSpec]:
    """The backward op is linear in the incoming gradient: what arrives for X and Y is chosen again."""
    e = Emitter(ctx)
    out = e.wanted("Out@GRAD")
    if out is not None:
        arriving = [e.incoming(f"{slot}@GRAD") or e.zeros(e.input(slot)) for slot in ("X", "Y")]
        e.emit("where", {"Condition": e.input("Condition"), "X": arriving[0], "Y": arriving[1]}, out)
    return e.specs


register(OpDef(
    "where", "Condition, X, Y -> Out", pointwise={"Out": "where(condition, x, y)"}, infer=_infer,
    lower=lambda torch, condition, x, y: torch.where(condition, x, y),
    grad=reduced_gradient(
        "Condition, X, Y, Out@GRAD -> X@GRAD, Y@GRAD",
        {"X@GRAD": "where(condition, dout, 0)", "Y@GRAD": "where(condition, 0, dout)"},
        attrs=(), shape_only=("X", "Y"), inplace=(("Out@GRAD", "X@GRAD"),), grad=_second,
    ),
    amp="gray", inplace=(("X", "Out"), ("Y", "Out")),
    domain=Domain(
        cases=tuple(Case(s) for s in (
            ((3, 4), (3, 4), (3, 4)), ((7,), (7,), (7,)), ((), (), ()), ((0,), (0,), (0,)), ((3, 1), (1, 4), ()),
            ((2, 3), (3,), (2, 1)), ((), (5,), (5,)), ((2, 1, 4), (3, 1), (4,)), ((33,), (1,), (33,)),
        )),
        values={"Condition": ValueRange(dtype="bool")}, others=("int64", "int32", "bool"), ulps=0,
    ),
))  # fmt: skip


@export("tensor.where", "Variable.where")
def where(condition: Variable, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Returns elements of ``x`` where the condition holds, of ``y`` elsewhere.

    Args:
        condition: Truth values; the three shapes broadcast.
        x: A Variable or a number. Of different dtypes the wider wins, a float before integers.
        y: The same. Two numbers are float64, int64 or bool.
        name: Name of the layer.

    Returns:
        A Variable; without ``x`` and ``y`` a tuple with the indices of the true elements, one per dimension.

    Raises:
        ProgramTypeError: If only one of ``x`` and ``y`` is given.
    """
    check_variable(condition, "condition", "where")
    if x is None and y is None:
        return PUBLIC_API["tensor.nonzero"].function(condition, as_tuple=True)
    if isinstance(x, Variable) or isinstance(y, Variable):
        x, y = operands(x, y, "where")
    else:
        # Two fractions are a float64, as in Paddle.
        kind = np.result_type(np.asarray(x), np.asarray(y))
        x, y = (as_variable(v, dtype=kind) for v in (x, y))
    return emit("where", {"Condition": condition, "X": x, "Y": y}, name=name)
