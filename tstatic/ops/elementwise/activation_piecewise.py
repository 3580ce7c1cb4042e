"""Activations with kinks: relu, its relatives, shrinkage and the hard sigmoids. Gradients at a kink are as in Paddle."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import DERIVE, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ops.elementwise._unary import infer_float, unary

_KINK = {"X": ValueRange(avoid=(0.0,))}


def _wide(torch: Any, x: Any) -> Any:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


_SELU = {"scale": 1.0507009873554804934193349852946, "alpha": 1.6732632423543772848170429916717}


def _lower_selu(torch: Any, x: Any, scale: float, alpha: float) -> Any:
    wide = _wide(torch, x)
    if {"scale": scale, "alpha": alpha} == _SELU:
        return torch.selu(wide).to(x.dtype)
    return torch.where(wide > 0, scale * wide, scale * alpha * torch.expm1(wide)).to(x.dtype)


def _lower_hard_swish(torch: Any, x: Any, threshold: float, scale: float, offset: float) -> Any:
    wide = _wide(torch, x)
    if (threshold, scale, offset) == (6.0, 6.0, 3.0):
        return torch.nn.functional.hardswish(wide).to(x.dtype)
    return (wide * (wide + offset).clamp(0, threshold) / scale).to(x.dtype)


register(OpDef(
    "relu", "X -> Out", pointwise={"Out": "maximum(x, 0)"}, infer=infer_float,
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where(out > 0, dout, 0)"}, grad=DERIVE),
    lower=lambda torch, x: torch.relu(x), amp="gray", activation=True, domain=Domain("unary", values=_KINK, ulps=0),
))  # fmt: skip
register(OpDef(
    "relu6", "X -> Out", attrs={"threshold": 6.0}, pointwise={"Out": "minimum(maximum(x, 0), threshold)"},
    infer=infer_float,
    grad=GradOp(
        "Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where((out > 0) & (out < threshold), dout, 0)"}, grad=DERIVE
    ),
    lower=lambda torch, x, threshold: torch.nn.functional.hardtanh(x, 0.0, threshold), amp="gray", activation=True,
    domain=Domain(
        "unary", attrs=({}, {"threshold": 1.0}), values={"X": ValueRange(-2.0, 8.0, avoid=(0.0, 1.0, 6.0))}, ulps=0
    ),
))  # fmt: skip
register(OpDef(
    "leaky_relu", "X -> Out", attrs={"alpha": 0.02}, pointwise={"Out": "where(x > 0, x, alpha * x)"}, infer=infer_float,
    # Read from X: with a negative alpha the output's sign says nothing.
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where(x > 0, dout, alpha * dout)"}, grad=DERIVE),
    lower=lambda torch, x, alpha: torch.nn.functional.leaky_relu(x, alpha), amp="gray", activation=True,
    domain=Domain("unary", attrs=({"alpha": 0.02}, {"alpha": -0.5}), values=_KINK, ulps=1),
))  # fmt: skip
register(OpDef(
    "elu", "X -> Out", attrs={"alpha": 1.0}, pointwise={"Out": "where(x > 0, x, alpha * expm1(x))"}, infer=infer_float,
    grad=GradOp(
        "X, Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where(x > 0, dout, dout * (out + alpha))"}, grad=DERIVE
    ),
    lower=lambda torch, x, alpha: torch.nn.functional.elu(x, alpha), amp="gray",
    domain=Domain("unary", attrs=({"alpha": 1.0}, {"alpha": 0.3}), values=_KINK, ulps=8),
))  # fmt: skip
register(OpDef(
    "selu", "X -> Out", attrs=_SELU,
    pointwise={"Out": "where(x > 0, scale * x, (scale * alpha) * expm1(x))"}, infer=infer_float,
    grad=GradOp(
        "Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where(out > 0, scale * dout, dout * (out + scale * alpha))"},
        grad=DERIVE,
    ),
    lower=_lower_selu, amp="gray", domain=Domain("unary", values=_KINK, ulps=8),
))  # fmt: skip
register(OpDef(
    "celu", "X -> Out", attrs={"alpha": 1.0}, pointwise={"Out": "where(x > 0, x, alpha * expm1(x / alpha))"},
    infer=infer_float,
    grad=GradOp(
        "Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where(out > 0, dout, dout * (out / alpha + 1))"}, grad=DERIVE
    ),
    lower=lambda torch, x, alpha: torch.nn.functional.celu(x, alpha), amp="gray",
    domain=Domain("unary", attrs=({"alpha": 1.0}, {"alpha": 0.4}), values=_KINK, ulps=8),
))  # fmt: skip
register(OpDef(
    "brelu", "X -> Out", attrs={"t_min": 0.0, "t_max": 24.0}, pointwise={"Out": "minimum(maximum(x, t_min), t_max)"},
    infer=infer_float,
    grad=GradOp(
        "Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where((out > t_min) & (out < t_max), dout, 0)"}, grad=DERIVE
    ),
    lower=lambda torch, x, t_min, t_max: torch.nn.functional.hardtanh(x, t_min, t_max), amp="gray",
    domain=Domain(
        "unary", attrs=({"t_min": -1.0, "t_max": 1.0}, {"t_min": 0.0, "t_max": 1.5}),
        values={"X": ValueRange(avoid=(-1.0, 0.0, 1.0, 1.5))}, ulps=0,
    ),
))  # fmt: skip
register(OpDef(
    "softshrink", "X -> Out", attrs={"threshold": 0.5},
    pointwise={"Out": "where(x > threshold, x - threshold, where(x < -threshold, x + threshold, where(x == x, 0, x)))"},
    infer=infer_float,
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where(out != 0, dout, 0)"}, grad=DERIVE),
    lower=lambda torch, x, threshold: torch.nn.functional.softshrink(x, threshold), amp="gray",
    domain=Domain(
        "unary", attrs=({"threshold": 0.5}, {"threshold": 1.0}), values={"X": ValueRange(avoid=(-1.0, -0.5, 0.5, 1.0))},
        ulps=1,
    ),
))  # fmt: skip
register(OpDef(
    "hard_shrink", "X -> Out", attrs={"threshold": 0.5}, pointwise={"Out": "where(abs(x) <= threshold, 0, x)"},
    infer=infer_float,
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where(out != 0, dout, 0)"}, grad=DERIVE),
    lower=lambda torch, x, threshold: torch.nn.functional.hardshrink(x, threshold), amp="gray",
    domain=Domain(
        "unary", attrs=({"threshold": 0.5}, {"threshold": 1.0}), values={"X": ValueRange(avoid=(-1.0, -0.5, 0.5, 1.0))},
        ulps=0,
    ),
))  # fmt: skip
register(OpDef(
    "thresholded_relu", "X -> Out", attrs={"threshold": 1.0}, pointwise={"Out": "where(x <= threshold, 0, x)"},
    infer=infer_float,
    # Read from X: below a negative threshold the output is 0, which lies above it.
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where(x > threshold, dout, 0)"}, grad=DERIVE),
    lower=lambda torch, x, threshold: torch.nn.functional.threshold(x, threshold, 0.0), amp="gray",
    domain=Domain(
        "unary", attrs=({"threshold": 1.0}, {"threshold": -0.5}), values={"X": ValueRange(avoid=(-0.5, 1.0))}, ulps=0
    ),
))  # fmt: skip
register(OpDef(
    "hard_sigmoid", "X -> Out", attrs={"slope": 0.2, "offset": 0.5},
    pointwise={"Out": "minimum(maximum(slope * x + offset, 0), 1)"}, infer=infer_float,
    grad=GradOp(
        "Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "where((out > 0) & (out < 1), dout * slope, 0)"}, grad=DERIVE
    ),
    lower=lambda torch, x, slope, offset: (_wide(torch, x) * slope + offset).clamp(0, 1).to(x.dtype), amp="gray",
    domain=Domain(
        "unary", attrs=({"slope": 0.5, "offset": 0.5}, {"slope": 0.25}),
        values={"X": ValueRange(-3.0, 3.0, avoid=(-1.0, 1.0, -2.0, 2.0))}, ulps=2,
    ),
))  # fmt: skip
register(OpDef(
    "hard_swish", "X -> Out", attrs={"threshold": 6.0, "scale": 6.0, "offset": 3.0},
    pointwise={"Out": "x * minimum(maximum(x + offset, 0), threshold) / scale"}, infer=infer_float,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD",
        pointwise={
            "X@GRAD": "where(x <= -offset, 0, where(x >= threshold - offset, dout * (threshold / scale),"
            " dout * (2 * x + offset) / scale))"
        },
        grad=DERIVE,
    ),
    lower=_lower_hard_swish, amp="gray", activation=True,
    domain=Domain(
        "unary", attrs=({}, {"threshold": 2.0, "scale": 3.0, "offset": 1.0}),
        values={"X": ValueRange(-4.0, 4.0, avoid=(-3.0, -1.0, 1.0, 3.0))}, ulps=4,
    ),
))  # fmt: skip


@export("nn.functional.relu", "nn.functional.relu_", "fluid.layers.relu", op="relu")
def relu(x: Variable, name: str | None = None) -> Variable:
    """Returns ``max(x, 0)`` of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.relu(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0., 0., 2.], dtype=float32)
    """
    return unary("relu", x, name=name)


@export("nn.functional.relu6", op="relu6")
def relu6(x: Variable, name: str | None = None) -> Variable:
    """Returns ``min(max(x, 0), 6)`` of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 3.0, 8.0])
        >>> y = paddle.nn.functional.relu6(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0., 3., 6.], dtype=float32)
    """
    return unary("relu6", x, name=name)


@export("fluid.layers.relu6", op="relu6")
def fluid_relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """Returns ``min(max(x, 0), threshold)`` of each element; any shape."""
    return unary("relu6", x, {"threshold": threshold}, name=name)


@export("nn.functional.leaky_relu", "nn.functional.leaky_relu_", op="leaky_relu")
def leaky_relu(x: Variable, negative_slope: float = 0.01, name: str | None = None) -> Variable:
    """Returns ``x`` where it is positive, ``negative_slope * x`` elsewhere; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.leaky_relu(x, negative_slope=0.1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.1,  0. ,  2. ], dtype=float32)
    """
    return unary("leaky_relu", x, {"alpha": negative_slope}, name=name)


@export("fluid.layers.leaky_relu", op="leaky_relu")
def fluid_leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """Returns ``x`` where it is positive, ``alpha * x`` elsewhere; any shape."""
    return unary("leaky_relu", x, {"alpha": alpha}, name=name)


@export("nn.functional.elu", "nn.functional.elu_", "fluid.layers.elu", op="elu")
def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Returns ``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.elu(x, alpha=0.5)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.3161,  0.    ,  2.    ], dtype=float32)
    """
    return unary("elu", x, {"alpha": alpha}, name=name)


@export("nn.functional.selu", op="selu")
def selu(
    x: Variable,
    scale: float = 1.0507009873554804934193349852946,
    alpha: float = 1.6732632423543772848170429916717,
    name: str | None = None,
) -> Variable:
    """Returns ``scale * x`` where it is positive, ``scale * alpha * (exp(x) - 1)`` elsewhere; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.selu(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-1.1113,  0.    ,  2.1014], dtype=float32)
    """
    return unary("selu", x, {"scale": scale, "alpha": alpha}, name=name)


@export("fluid.layers.selu", op="selu")
def fluid_selu(
    x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None
) -> Variable:
    """Like ``nn.functional.selu``; ``None`` means the usual constant."""
    given = {"scale": scale, "alpha": alpha}
    return unary("selu", x, {n: v for n, v in given.items() if v is not None}, name=name)


@export("nn.functional.celu", op="celu")
def celu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Returns ``x`` where it is positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.celu(x, alpha=0.5)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.4323,  0.    ,  2.    ], dtype=float32)
    """
    return unary("celu", x, {"alpha": alpha}, name=name)


@export("nn.functional.hardtanh", "nn.functional.hardtanh_", op="brelu")
def hardtanh(x: Variable, min: float = -1.0, max: float = 1.0, name: str | None = None) -> Variable:
    """Returns each element, or the limit that it exceeds; any shape.

    Example:
        >>> x = paddle.to_tensor([-2.0, 0.5, 2.0])
        >>> y = paddle.nn.functional.hardtanh(x, min=-1.0, max=1.0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-1. ,  0.5,  1. ], dtype=float32)
    """
    return unary("brelu", x, {"t_min": min, "t_max": max}, name=name, prefix="hardtanh")


@export("fluid.layers.brelu", op="brelu")
def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """Returns each element, or the limit that it exceeds; any shape."""
    return unary("brelu", x, {"t_min": t_min, "t_max": t_max}, name=name)


@export("nn.functional.softshrink", op="softshrink")
def softshrink(x: Variable, threshold: float = 0.5, name: str | None = None) -> Variable:
    """Returns each element moved towards 0 by the threshold, 0 where it is smaller; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.3, 2.0])
        >>> y = paddle.nn.functional.softshrink(x, threshold=0.5)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.5,  0. ,  1.5], dtype=float32)
    """
    return unary("softshrink", x, {"threshold": threshold}, name=name)


@export("fluid.layers.softshrink", op="softshrink")
def fluid_softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """Returns each element moved towards 0 by ``alpha`` (0.5 if ``None``), 0 where it is smaller; any shape."""
    return unary("softshrink", x, {} if alpha is None else {"threshold": alpha})


@export("nn.functional.hardshrink", op="hard_shrink")
def hardshrink(x: Variable, threshold: float = 0.5, name: str | None = None) -> Variable:
    """Returns each element, 0 where its absolute value is not above the threshold; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.3, 2.0])
        >>> y = paddle.nn.functional.hardshrink(x, threshold=0.5)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-1.,  0.,  2.], dtype=float32)
    """
    return unary("hard_shrink", x, {"threshold": threshold}, name=name, prefix="hardshrink")


@export("fluid.layers.hard_shrink", op="hard_shrink")
def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """Like ``nn.functional.hardshrink``; ``None`` means 0.5."""
    return unary("hard_shrink", x, {} if threshold is None else {"threshold": threshold})


@export("nn.functional.thresholded_relu", "nn.functional.thresholded_relu_", op="thresholded_relu")
def thresholded_relu(x: Variable, threshold: float = 1.0, name: str | None = None) -> Variable:
    """Returns each element, 0 where it is not above the threshold; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.5, 2.0])
        >>> y = paddle.nn.functional.thresholded_relu(x, threshold=1.0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0., 0., 2.], dtype=float32)
    """
    return unary("thresholded_relu", x, {"threshold": threshold}, name=name)


@export("fluid.layers.thresholded_relu", op="thresholded_relu")
def fluid_thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """Like ``nn.functional.thresholded_relu``; ``None`` means 1."""
    return unary("thresholded_relu", x, {} if threshold is None else {"threshold": threshold})


@export("nn.functional.hardsigmoid", op="hard_sigmoid")
def hardsigmoid(x: Variable, slope: float = 0.1666667, offset: float = 0.5, name: str | None = None) -> Variable:
    """Returns ``slope * x + offset`` of each element, clipped to [0, 1]; any shape.

    Example:
        >>> x = paddle.to_tensor([-4.0, 0.0, 1.5])
        >>> y = paddle.nn.functional.hardsigmoid(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.  , 0.5 , 0.75], dtype=float32)
    """
    return unary("hard_sigmoid", x, {"slope": slope, "offset": offset}, name=name, prefix="hardsigmoid")


@export("fluid.layers.hard_sigmoid", op="hard_sigmoid")
def hard_sigmoid(x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """Returns ``slope * x + offset`` of each element, clipped to [0, 1]; any shape."""
    return unary("hard_sigmoid", x, {"slope": slope, "offset": offset}, name=name)


@export("nn.functional.hardswish", op="hard_swish")
def hardswish(x: Variable, name: str | None = None) -> Variable:
    """Returns ``x * min(max(x + 3, 0), 6) / 6`` of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 1.0, 4.0])
        >>> y = paddle.nn.functional.hardswish(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.3333,  0.6667,  4.    ], dtype=float32)
    """
    return unary("hard_swish", x, name=name, prefix="hardswish")


@export("fluid.layers.hard_swish", op="hard_swish")
def hard_swish(
    x: Variable, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0, name: str | None = None
) -> Variable:
    """Returns ``x * min(max(x + offset, 0), threshold) / scale`` of each element; any shape."""
    return unary("hard_swish", x, {"threshold": threshold, "scale": scale, "offset": offset}, name=name)
