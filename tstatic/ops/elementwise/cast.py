"""Conversion of dtypes and copies: cast and assign."""

from __future__ import annotations

from typing import Any

from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, Meta, dtype_of
from tstatic.ops._emitter import Emitter


def _infer(x: Meta, out_dtype: DType) -> Meta:
    return x.with_dtype(out_dtype)


def _lower(torch: Any, x: Any, out_dtype: DType) -> Any:
    return x.to(getattr(torch, out_dtype.name))


def _cast_grad(ctx: GradContext) -> list[OpSpec]:
    e = Emitter(ctx)
    wanted, arriving = e.wanted("X"), e.incoming("Out")
    if wanted is not None and arriving is not None:
        e.emit("cast", {"X": arriving}, wanted, in_dtype=ctx.attrs["out_dtype"], out_dtype=ctx.meta(e.input("X")).dtype)
    return e.specs


_SHAPES = ((7,), (3, 4), (), (0,), (2, 3), (1,), (2, 1, 3), (33,), (4, 2), (5,))
_TARGETS = ("float32", "float64", "int32", "bool", "float16", "bfloat16", "int64", "uint8", "int8", "int16")
register(OpDef(
    "cast", "X -> Out",
    attrs={"in_dtype": Attr.idle(None, "the input has a dtype of its own", "dtype"), "out_dtype": Attr(kind="dtype")},
    pointwise={"Out": "x"}, infer=_infer, grad=_cast_grad, lower=_lower, amp="gray",
    # Fractions are cut off, so whole numbers are avoided; uint8 takes no negative ones. Gradients flow in float64 only.
    domain=Domain(
        cases=tuple(Case((s,), {"out_dtype": d}) for d, s in zip(_TARGETS, _SHAPES, strict=True)),
        values={"X": ValueRange(0.0, 4.0, avoid="int")}, others=("int64", "int32", "bool", "uint8"), ulps=0,
    ),
))  # fmt: skip


def _assign_grad(ctx: GradContext) -> list[OpSpec]:
    e = Emitter(ctx)
    wanted, arriving = e.wanted("X"), e.incoming("Out")
    if wanted is not None and arriving is not None:
        e.emit("assign", {"X": arriving}, wanted)
    return e.specs


register(OpDef(
    "assign", "X -> Out", pointwise={"Out": "x"}, grad=_assign_grad, lower=lambda torch, x: x.clone(), amp="gray",
    domain=Domain("unary", others=("int64", "int32", "bool", "uint8"), ulps=0),
))  # fmt: skip


@export("tensor.cast", "Variable.cast", "Variable.astype", "fluid.layers.cast", op="cast")
def cast(x: Variable, dtype: Any) -> Variable:
    """Returns ``x`` converted to another dtype; any shape, fractions are cut off.

    Raises:
        DTypeError: If there is no such dtype.

    Example:
        >>> x = paddle.to_tensor([-1.7, 0.0, 2.5])
        >>> y = paddle.cast(x, "int64")
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-1,  0,  2])
    """
    check_variable(x, "x", "cast")
    wanted = dtype_of(dtype)
    out: Variable = emit("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": wanted})
    return out


@export("Variable.clone", op="assign")
def clone(x: Variable) -> Variable:
    """Returns a copy of the value as a new variable; gradients flow through it."""
    out: Variable = emit("assign", {"X": x})
    return out


@export("Variable.detach", op="assign")
def detach(x: Variable) -> Variable:
    """Returns a copy of the value that no gradient flows through."""
    out = clone(x)
    out.stop_gradient = True
    return out
