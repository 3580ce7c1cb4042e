"""Linear functions of one value by constants: scale and increment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.errors import DTypeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Attr, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.no_effect import no_effect
from tstatic.ops._emitter import Emitter
from tstatic.ops.elementwise._unary import infer_number
from tstatic.ops.elementwise.arithmetic_fluid import with_activation


def whole(x: Meta, **numbers: float) -> None:
    """Checks that numbers beside integers are whole: a fraction would be cut off.

    Raises:
        DTypeError: If ``x`` holds integers and one of the numbers is not an integer.
    """
    for name, number in numbers.items():
        if not x.dtype.is_float and not (math.isfinite(number) and float(number).is_integer()):
            raise DTypeError(
                f"attribute '{name}' is not a whole number, but X is of dtype {x.dtype.name}",
                expected=f"a whole number for '{name}', or a float X",
                received=f"{name}={number!r}",
                fix="convert X first: paddle.cast(x, 'float32')",
            )


def whole_part(number: Any) -> Any:
    """A finite number without its fraction; anything else as it is."""
    return int(number) if isinstance(number, float | np.floating) and math.isfinite(number) else number


def _scale_infer(x: Meta, scale: float, bias: float) -> Meta:
    whole(infer_number(x), scale=scale, bias=bias)
    return x


def _scale_lower(torch: Any, x: Any, scale: float, bias: float, bias_after_scale: bool) -> Any:
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    if not x.dtype.is_floating_point:
        scale, bias = int(scale), int(bias)
    # No addition of 0: it would turn -0 into 0.
    if bias and not bias_after_scale:
        wide = wide + bias
    wide = wide * scale
    if bias and bias_after_scale:
        wide = wide + bias
    return wide.to(x.dtype)


def _scale_grad(ctx: GradContext) -> list[OpSpec]:
    e = Emitter(ctx)
    wanted, arriving = e.wanted("X"), e.incoming("Out")
    if wanted is not None and arriving is not None:
        e.emit("scale", {"X": arriving}, wanted, scale=ctx.attrs["scale"])
    return e.specs


_CHOICES: tuple[dict[str, Any], ...] = (
    {"scale": 2.0, "bias": 1.0}, {"scale": -3.0, "bias": 2.0, "bias_after_scale": False}, {"scale": 1.0}, {"bias": -1.0},
)  # fmt: skip
register(OpDef(
    "scale", "X -> Out", attrs={"scale": Attr(1.0, "number"), "bias": Attr(0.0, "number"), "bias_after_scale": True},
    pointwise={"Out": "where(bias_after_scale, x * scale + bias, (x + bias) * scale)"}, infer=_scale_infer,
    grad=_scale_grad, lower=_scale_lower, amp="gray",
    domain=Domain("unary", attrs=_CHOICES, others=("int64", "int32"), ulps=1),
))  # fmt: skip


def _increment_infer(x: Meta, step: float) -> Meta:
    whole(infer_number(x), step=step)
    return x


def _increment_grad(ctx: GradContext) -> list[OpSpec]:
    e = Emitter(ctx)
    wanted, arriving = e.wanted("X"), e.incoming("Out")
    if wanted is not None and arriving is not None:
        e.emit("assign", {"X": arriving}, wanted)
    return e.specs


register(OpDef(
    "increment", "X -> Out", attrs={"step": Attr(1.0, "number")}, pointwise={"Out": "x + step"}, infer=_increment_infer,
    grad=_increment_grad,
    lower=lambda torch, x, step: x + (step if x.dtype.is_floating_point else int(step)), amp="gray",
    domain=Domain("unary", attrs=({"step": 1.0}, {"step": -2.0}), others=("int64", "int32"), ulps=1),
))  # fmt: skip


@export("tensor.scale", "Variable.scale", "tensor.scale_", "Variable.scale_", "fluid.layers.scale", op="scale")
def scale(
    x: Variable,
    scale: float | Variable = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Returns ``scale * x + bias``, or ``scale * (x + bias)``.

    Args:
        x: Floats or integers; any shape. Beside integers ``scale`` and ``bias`` lose their fractions, as in Paddle:
            0.5 becomes 0. (``x * 0.5`` gives float32.)
        scale: A number, or a Variable with one element.
        bias: A number.
        bias_after_scale: Which of the two forms.
        act: Op type of an activation that is applied to the result.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> y, z = paddle.scale(x, 3.0, bias=1.0), paddle.scale(x, 3.0, bias=1.0, bias_after_scale=False)
        >>> static.Executor().run(fetch_list=[y, z])
        [array([4., 7.], dtype=float32), array([6., 9.], dtype=float32)]
    """
    check_variable(x, "x", "scale")
    if not x.dtype.is_float:
        bias = whole_part(bias)
        scale = scale if isinstance(scale, Variable) else whole_part(scale)
    if not isinstance(scale, Variable):
        attrs = {"scale": scale, "bias": bias, "bias_after_scale": bias_after_scale}
        return with_activation("scale", {"X": x}, attrs, act, name)
    if not bias_after_scale and bias:
        x = emit("scale", {"X": x}, {"bias": bias})
    if scale.dtype is not x.dtype:
        scale = emit("cast", {"X": scale}, {"in_dtype": scale.dtype, "out_dtype": x.dtype})
    if bias_after_scale and bias:
        product = emit("elementwise_mul", {"X": x, "Y": scale})
        return with_activation("scale", {"X": product}, {"bias": bias}, act, name)
    return with_activation("elementwise_mul", {"X": x, "Y": scale}, {}, act, name)


@export("tensor.increment", op="increment")
@no_effect(name="the result is ``x``")
def increment(x: Variable, value: float = 1.0, name: str | None = None) -> Variable:
    """Adds ``value`` to a Variable in place and returns it.

    Args:
        x: Floats, or integers with a whole ``value``; any shape.
        value: A number.

    Example:
        >>> i = paddle.full([1], 3, dtype="int64")
        >>> i = paddle.increment(i, value=2)
        >>> static.Executor().run(fetch_list=[i])[0]
        array([5])
    """
    out: Variable = emit("increment", {"X": check_variable(x, "x", "increment")}, {"step": value}, outputs={"Out": x})
    return out


@export("fluid.layers.increment", op="increment")
def fluid_increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Adds ``value`` to ``x``, in place or into a new Variable.

    Example:
        >>> i = fluid.layers.fill_constant([1], "int64", 3)
        >>> j = fluid.layers.increment(i, value=2, in_place=False)
        >>> static.Executor().run(fetch_list=[i, j])
        [array([3]), array([5])]
    """
    if in_place:
        return increment(x, value)
    out: Variable = emit("increment", {"X": check_variable(x, "x", "increment")}, {"step": value})
    return out
