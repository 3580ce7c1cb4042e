"""Limits: clip."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.opdef import DERIVE, Attr, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.elementwise._unary import infer_number
from tstatic.ops.elementwise.scale import whole, whole_part


def _infer(x: Meta, min: float, max: float) -> Meta:
    infer_number(x)
    whole(x, min=min, max=max)
    return x


def _lower(torch: Any, x: Any, min: float, max: float) -> Any:
    return torch.clamp(x, *(v if x.dtype.is_floating_point else int(v) for v in (min, max)))


register(OpDef(
    "clip", "X -> Out", attrs={"min": Attr(-math.inf, "number"), "max": Attr(math.inf, "number")},
    pointwise={"Out": "minimum(maximum(x, min), max)"}, infer=_infer,
    # No gradient at the limits themselves, so the output says enough.
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where((out > min) & (out < max), dout, 0)"}, grad=DERIVE),
    lower=_lower, amp="gray",
    domain=Domain(
        "unary", attrs=({"min": -1.0, "max": 1.0}, {"min": 0.0, "max": 1.0}), others=("int64", "int32"),
        values={"X": ValueRange(avoid=(-1.0, 0.0, 1.0))}, ulps=0,
    ),
))  # fmt: skip


@export("tensor.clip", "Variable.clip", "tensor.clip_", "Variable.clip_")
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
    low, high = (-math.inf, math.inf) if x.dtype.is_float else _limits(x)
    attrs = {"min": low if min is None else min, "max": high if max is None else max}
    result: Variable = emit("clip", {"X": x}, attrs, name=name)
    return result


def _limits(x: Variable) -> tuple[int, int]:
    infer_number(x.meta)
    limits = np.iinfo(x.dtype.np)
    return int(limits.min), int(limits.max)


@export("fluid.layers.clip", op="clip")
def fluid_clip(x: Variable, min: float, max: float, name: str | None = None) -> Variable:
    """Returns each element, or the limit that it exceeds; any shape."""
    return clip(x, min, max, name)
