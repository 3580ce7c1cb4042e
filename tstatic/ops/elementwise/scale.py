"""Copies, conversions, linear functions and limits of one value: assign, cast, scale, increment, clip."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tstatic.errors import DTypeError
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ir.types import DType, Meta, bool_, dtype_of
from tstatic.no_effect import no_effect
from tstatic.ops.base.gradients import grad_is_op
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.one_input import infer_number, unary_op
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.torch_out import filled
from tstatic.ops.elementwise.arithmetic import with_activation


def _infer(x: Meta, out_dtype: DType) -> Meta:
    return x.with_dtype(out_dtype)


def _lower(torch: Any, x: Any, out_dtype: DType, *, out: Any = None) -> Any:
    # As numpy: a truth value says whether a part of a complex number is not 0, any other type holds the real part.
    if x.is_complex() and not out_dtype.is_complex:
        x = x != 0 if out_dtype is bool_ else x.real
    return x.to(getattr(torch, out_dtype.name)) if out is None else out.copy_(x)


def _copy_lower(torch: Any, x: Any, *, out: Any = None) -> Any:
    return x.clone() if out is None else out.copy_(x)


def _back_to_input(ctx: GradContext) -> Mapping[str, Any]:
    return {"in_dtype": ctx.attrs["out_dtype"], "out_dtype": ctx.meta(ctx.inputs["X"][0]).dtype}


# A shape for each of the target types below: every type meets some shape, without the product of both lists.
_SHAPES = ((7,), (3, 4), (), (0,), (2, 3), (1,), (2, 1, 3), (33,), (4, 2), (5,), (3, 1), (6,))
_TARGETS = (
    "float32", "float64", "int32", "bool", "float16", "bfloat16", "int64", "uint8", "int8", "int16", "complex64", "complex128",
)  # fmt: skip


def _cast_write(op: PaddleOp) -> list[OpSpec]:
    """Paddle states the dtype of the input, too."""
    return [op.made(attrs={**op.attrs, "in_dtype": op.dtypes[op.inputs["X"][0]]})]


register(OpDef(
    "cast", "X -> Out", paddle=PaddleForm(write=_cast_write),
    attrs={"in_dtype": Attr.idle(None, "the input has a dtype of its own", "dtype"), "out_dtype": Attr(kind="dtype")},
    pointwise={"Out": "x"}, infer=_infer, grad=grad_is_op("cast", _back_to_input), lower=_lower, amp="gray",
    # Fractions are cut off, so whole numbers are avoided; uint8 takes no negative ones. Gradients flow in float64 only.
    domain=Domain(
        cases=tuple(Case((s,), {"out_dtype": d}) for d, s in zip(_TARGETS, _SHAPES, strict=True)),
        values={"X": ValueRange(0.0, 4.0, avoid="int")}, others=("int64", "int32", "bool", "uint8"), ulps=0,
    ),
    complex="own",
))  # fmt: skip


register(OpDef(
    "assign", "X -> Out", pointwise={"Out": "x"}, grad=grad_is_op("assign"), lower=_copy_lower, amp="gray",
    domain=Domain("unary", others=("int64", "int32", "bool", "uint8", "complex64"), ulps=0),
    complex="linear",
))  # fmt: skip


# What Paddle's ``detach`` is in saved programs.
register(OpDef(
    "share_data", "X -> Out", pointwise={"Out": "x"}, lower=_copy_lower, amp="gray",
    domain=Domain("unary", others=("int64", "int32", "bool", "uint8"), ulps=0, check_grad="no gradient flows through it"),
    complex="linear",
))  # fmt: skip


@export(
    "tensor.cast", "tensor.cast_", "Variable.cast", "Variable.cast_", "Variable.astype", "fluid.layers.cast", op="cast"
)
def cast(x: Variable, dtype: Any) -> Variable:
    """Returns ``x`` converted to another dtype; any shape, fractions are cut off.

    Args:
        x: Any shape and dtype.
        dtype: A dtype, or its name.

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
    return emit_one("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": wanted})


@export("tensor.clone", "Variable.clone", op="assign")
def clone(x: Variable, name: str | None = None) -> Variable:
    """Returns a copy of the value as a new variable; gradients flow through it."""
    return emit_one("assign", {"X": check_variable(x, "x", "clone")}, name=name)


@export("Variable.detach", op="assign")
def detach(x: Variable) -> Variable:
    """Returns a copy of the value that no gradient flows through."""
    out = clone(x)
    out.stop_gradient = True
    return out


# -------------------------------------------------------------------------------------------------- scale and increment
def check_whole(x: Meta, **numbers: float) -> None:
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
    """Returns a finite number without its fraction; anything else as it is."""
    return int(number) if isinstance(number, float | np.floating) and math.isfinite(number) else number


def _scale_infer(x: Meta, scale: float, bias: float) -> Meta:
    check_whole(infer_number(x), scale=scale, bias=bias)
    return x


def _scale_lower(torch: Any, x: Any, scale: float, bias: float, bias_after_scale: bool, *, out: Any = None) -> Any:
    if not bias:
        # A factor that is a float would make a float of an integer tensor.
        whole = not (x.dtype.is_floating_point or x.dtype.is_complex)
        return torch.mul(x, int(scale) if whole else scale, out=out)
    wide = torch_wide(x)
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        scale, bias = int(scale), int(bias)
    # No addition of 0: it would turn -0 into 0.
    if out is None or out.dtype != wide.dtype:
        wide = wide * scale + bias if bias_after_scale else (wide + bias) * scale
        return filled(out, wide.to(x.dtype))
    if bias_after_scale:
        return torch.mul(wide, scale, out=out).add_(bias)
    return torch.add(wide, bias, out=out).mul_(scale)


# Both orders of scale and bias, then each of them alone, which takes a shorter way in torch.
_CHOICES: tuple[dict[str, Any], ...] = (
    {"scale": 2.0, "bias": 1.0}, {"scale": -3.0, "bias": 2.0, "bias_after_scale": False}, {"scale": 1.0}, {"bias": -1.0},
)  # fmt: skip
register(OpDef(
    "scale", "X -> Out", attrs={"scale": Attr(1.0, "number"), "bias": Attr(0.0, "number"), "bias_after_scale": True},
    pointwise={"Out": "where(bias_after_scale, x * scale + bias, (x + bias) * scale)"}, infer=_scale_infer,
    grad=grad_is_op("scale", lambda ctx: {"scale": ctx.attrs["scale"]}), lower=_scale_lower, amp="gray",
    domain=Domain("unary", attrs=_CHOICES, others=("int64", "int32", "complex64"), ulps=1),
    complex="linear",
))  # fmt: skip


def _increment_infer(x: Meta, step: float) -> Meta:
    check_whole(infer_number(x), step=step)
    return x


def _increment_lower(torch: Any, x: Any, step: float, *, out: Any = None) -> Any:
    return torch.add(x, step if x.dtype.is_floating_point or x.dtype.is_complex else int(step), out=out)


register(OpDef(
    "increment", "X -> Out", attrs={"step": Attr(1.0, "number")}, pointwise={"Out": "x + step"}, infer=_increment_infer,
    grad=grad_is_op("assign"),
    lower=_increment_lower, amp="gray",
    domain=Domain("unary", attrs=({"step": 1.0}, {"step": -2.0}), others=("int64", "int32"), ulps=1),
    complex="linear",
))  # fmt: skip


@export("tensor.scale", "Variable.scale", "fluid.layers.scale", op="scale", inplace=True)
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
    if not x.dtype.is_inexact:
        bias = whole_part(bias)
        scale = scale if isinstance(scale, Variable) else whole_part(scale)
    if not isinstance(scale, Variable):
        attrs = {"scale": scale, "bias": bias, "bias_after_scale": bias_after_scale}
        return with_activation("scale", {"X": x}, attrs, act, name)
    # A scale that is a Variable is a product; the bias goes before or behind it as an op of its own.
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
    return emit_one("increment", {"X": check_variable(x, "x", "increment")}, {"step": value}, outputs={"Out": x})


@export("fluid.layers.increment", op="increment")
def fluid_increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Adds ``value`` to ``x``, in place or into a new Variable.

    Args:
        x: Floats, or integers with a whole ``value``; any shape.
        value: A number.
        in_place: Write the result to ``x`` and return it; otherwise ``x`` keeps its value.

    Raises:
        DTypeError: If ``value`` has a fraction beside integers.

    Example:
        >>> i = fluid.layers.fill_constant([1], "int64", 3)
        >>> j = fluid.layers.increment(i, value=2, in_place=False)
        >>> static.Executor().run(fetch_list=[i, j])
        [array([3]), array([5])]
    """
    if in_place:
        return increment(x, value)
    return emit_one("increment", {"X": check_variable(x, "x", "increment")}, {"step": value})


# ----------------------------------------------------------------------------------------------------------------- clip
def _infer_clip(x: Meta, min: float, max: float) -> Meta:
    infer_number(x)
    check_whole(x, min=min, max=max)
    return x


def _lower_clip(torch: Any, x: Any, min: float, max: float, *, out: Any = None) -> Any:
    return torch.clamp(x, *(v if x.dtype.is_floating_point else int(v) for v in (min, max)), out=out)


# There is no gradient at the limits themselves, so the output says enough.
unary_op(
    "clip", "minimum(maximum(x, min), max)", "where((out > min) & (out < max), dout, 0)", _lower_clip,
    attrs={"min": Attr(-math.inf, "number"), "max": Attr(math.inf, "number")}, infer=_infer_clip,
    samples=({"min": -1.0, "max": 1.0}, {"min": 0.0, "max": 1.0}), values=ValueRange(avoid=(-1.0, 0.0, 1.0)),
    others=("int64", "int32"), ulps=0,
)  # fmt: skip


@export("tensor.clip", "Variable.clip", inplace=True)
def clip(
    x: Variable, min: float | Variable | None = None, max: float | Variable | None = None, name: str | None = None
) -> Variable:
    """Returns each element, or the limit that it exceeds.

    Args:
        x: Floats or integers of any shape.
        min: Lower limit: a number, a Variable that broadcasts with ``x``, or ``None`` for none. Beside integers a
            number loses its fraction, as in Paddle: 0.5 becomes 0.
        max: Upper limit.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([-2.0, 0.5, 3.0])
        >>> y = paddle.clip(x, min=-1.0, max=1.0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-1. ,  0.5,  1. ], dtype=float32)
    """
    check_variable(x, "x", "clip", ("float16", "bfloat16", "float32", "float64", "int32", "int64"))
    if isinstance(min, Variable) or isinstance(max, Variable):
        out = x
        if min is not None:
            out = emit("elementwise_max", {"X": out, "Y": as_variable(min, like=x)}, name=name, prefix="clip")
        if max is not None:
            out = emit("elementwise_min", {"X": out, "Y": as_variable(max, like=x)}, name=name, prefix="clip")
        return out
    if not x.dtype.is_float:
        # An infinite limit is none.
        min, max = (None if isinstance(v, float) and math.isinf(v) else whole_part(v) for v in (min, max))
    # Integers have no infinity: a missing limit is the end of their range.
    low, high = (-math.inf, math.inf) if x.dtype.is_float else _limits(x)
    attrs = {"min": low if min is None else min, "max": high if max is None else max}
    return emit_one("clip", {"X": x}, attrs, name=name)


def _limits(x: Variable) -> tuple[int, int]:
    infer_number(x.meta)
    limits = np.iinfo(x.dtype.np)
    return int(limits.min), int(limits.max)


@export("fluid.layers.clip", op="clip")
def fluid_clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """Returns each element, or the limit that it exceeds; any shape.

    Args:
        x: Floats or integers.
        min, max: The limits, as in :func:`clip`; of crossed limits ``max`` counts.
        name: Name of the layer.
    """
    return clip(x, min, max, name)
