"""Activations with kinks: relu, its relatives, shrinkage, the hard sigmoids, and PReLU. Gradients at a kink are as in Paddle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.ir.attrs import one_of
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_number, same_shape
from tstatic.ir.opdef import DERIVE, Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm
from tstatic.ir.pointwise import torch_lowering
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.traits import Activation
from tstatic.ir.types import UNKNOWN, Meta, Shape, numel
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.one_input import infer_float, unary, unary_op
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.torch_out import filled, torch_function
from tstatic.ops.elementwise._broadcast import align_last, reduced_gradient, same_dtype

# Finite differences across a kink would meet neither slope.
_KINK = ValueRange(avoid=(0.0,))


# Klambauer et al., 2017: fixed point at mean 0 and variance 1.
_SELU = {"scale": 1.0507009873554804934193349852946, "alpha": 1.6732632423543772848170429916717}


def _lower_relu(torch: Any, x: Any, *, out: Any = None) -> Any:
    return torch.relu(x) if out is None else torch.clamp(x, min=0, out=out)


_RELU_BACK = "where(out > 0, dout, 0)"
_relu_back_by_formula = torch_lowering(("out", "dout"), {0: _RELU_BACK}, 1, ())


def _lower_relu_back(torch: Any, y: Any, dout: Any, *, out: Any = None) -> Any:
    if y.device.type != "cpu":
        return _relu_back_by_formula(torch, y, dout, out=out)
    # The formula takes twice as long on the CPU. A NaN in Out has no gradient here, but has one in `threshold_backward`, so
    # that it becomes 0 first: in the result's memory, unless the arriving gradient lies there.
    free = out is not None and out.data_ptr() != dout.data_ptr()
    number = torch.nan_to_num(y, 0.0, 1.0, 0.0, out=out if free else None)
    if out is None:
        return torch.ops.aten.threshold_backward(dout, number, 0)
    return torch.ops.aten.threshold_backward.grad_input(dout, number, 0, grad_input=out)


def _lower_selu(torch: Any, x: Any, scale: float, alpha: float, *, out: Any = None) -> Any:
    if out is not None:
        return torch.ops.aten.elu.out(x, alpha, scale, 1.0, out=out)
    wide = torch_wide(x)
    # torch.selu has these constants inside; others are written out.
    if {"scale": scale, "alpha": alpha} == _SELU:
        return torch.selu(wide).to(x.dtype)
    return torch.where(wide > 0, scale * wide, scale * alpha * torch.expm1(wide)).to(x.dtype)


def _lower_hard_swish(torch: Any, x: Any, threshold: float, scale: float, offset: float, *, out: Any = None) -> Any:
    # torch's own is for these numbers only.
    if (threshold, scale, offset) == (6.0, 6.0, 3.0):
        return torch_function("nn.functional.hardswish")(torch, x, out=out)
    wide = torch_wide(x)
    return filled(out, (wide * (wide + offset).clamp(0, threshold) / scale).to(x.dtype))


unary_op(
    "relu",
    "maximum(x, 0)",
    _RELU_BACK,
    _lower_relu,
    values=_KINK,
    ulps=0,
    traits=(Activation(),),
    onnx=lambda g, x: g("Relu", x),
    lower_gradient=_lower_relu_back,
)
unary_op(
    "relu6", "minimum(maximum(x, 0), threshold)", "where((out > 0) & (out < threshold), dout, 0)",
    lambda torch, x, threshold, *, out=None: torch_function("nn.functional.hardtanh")(torch, x, 0.0, threshold, out=out),
    attrs={"threshold": 6.0}, samples=({}, {"threshold": 1.0}), values=ValueRange(-2.0, 8.0, avoid=(0.0, 1.0, 6.0)), ulps=0,
    traits=(Activation(),),
)  # fmt: skip
# Its gradient reads X: with a negative alpha the output's sign says nothing.
unary_op(
    "leaky_relu", "where(x > 0, x, alpha * x)", "where(x > 0, dout, alpha * dout)", "nn.functional.leaky_relu",
    attrs={"alpha": 0.02}, samples=({"alpha": 0.02}, {"alpha": -0.5}), values=_KINK, ulps=1,
    traits=(Activation(),), onnx=lambda g, x, *, alpha: g("LeakyRelu", x, alpha=alpha),
)  # fmt: skip
unary_op(
    # Reads X and Out: alpha (exp(x) - 1) + alpha is alpha exp(x), without a second exponential.
    "elu", "where(x > 0, x, alpha * expm1(x))", "where(x > 0, dout, dout * (out + alpha))", "nn.functional.elu",
    attrs={"alpha": 1.0}, samples=({"alpha": 1.0}, {"alpha": 0.3}), values=_KINK, ulps=8,
    onnx=lambda g, x, *, alpha: g("Elu", x, alpha=alpha),
)  # fmt: skip
unary_op(
    "selu", "where(x > 0, scale * x, (scale * alpha) * expm1(x))",
    "where(out > 0, scale * dout, dout * (out + scale * alpha))", _lower_selu, attrs=_SELU, values=_KINK, ulps=8,
    onnx=lambda g, x, *, alpha, scale: g("Selu", x, alpha=alpha, gamma=scale),
)  # fmt: skip
unary_op(
    "celu", "where(x > 0, x, alpha * expm1(x / alpha))", "where(out > 0, dout, dout * (out / alpha + 1))",
    "nn.functional.celu", attrs={"alpha": 1.0}, samples=({"alpha": 1.0}, {"alpha": 0.4}), values=_KINK, ulps=8,
)  # fmt: skip
unary_op(
    "brelu", "minimum(maximum(x, t_min), t_max)", "where((out > t_min) & (out < t_max), dout, 0)",
    "nn.functional.hardtanh", attrs={"t_min": 0.0, "t_max": 24.0},
    samples=({"t_min": -1.0, "t_max": 1.0}, {"t_min": 0.0, "t_max": 1.5}),
    values=ValueRange(avoid=(-1.0, 0.0, 1.0, 1.5)), ulps=0,
)  # fmt: skip
unary_op(
    # The last choice lets NaN through, which no comparison selects.
    "softshrink", "where(x > threshold, x - threshold, where(x < -threshold, x + threshold, where(x == x, 0, x)))",
    "where(out != 0, dout, 0)", "nn.functional.softshrink", attrs={"threshold": 0.5},
    samples=({"threshold": 0.5}, {"threshold": 1.0}), values=ValueRange(avoid=(-1.0, -0.5, 0.5, 1.0)), ulps=1,
    paddle=PaddleForm(
        lambda op: op.made(attrs=op.without("lambda", threshold=op.attrs.get("lambda", 0.5))),
        lambda op: [op.made(attrs=op.without("threshold", **{"lambda": op.attrs["threshold"]}))],
    ),
)  # fmt: skip
unary_op(
    "hard_shrink", "where(abs(x) <= threshold, 0, x)", "where(out != 0, dout, 0)", "nn.functional.hardshrink",
    attrs={"threshold": 0.5}, samples=({"threshold": 0.5}, {"threshold": 1.0}),
    values=ValueRange(avoid=(-1.0, -0.5, 0.5, 1.0)), ulps=0,
)  # fmt: skip
# Its gradient reads X: below a negative threshold the output is 0, which lies above it.
unary_op(
    "thresholded_relu", "where(x <= threshold, 0, x)", "where(x > threshold, dout, 0)",
    lambda torch, x, threshold, *, out=None: torch_function("nn.functional.threshold")(torch, x, threshold, 0.0, out=out),
    attrs={"threshold": 1.0},
    samples=({"threshold": 1.0}, {"threshold": -0.5}), values=ValueRange(avoid=(-0.5, 1.0)), ulps=0,
)  # fmt: skip
unary_op(
    "hard_sigmoid", "minimum(maximum(slope * x + offset, 0), 1)", "where((out > 0) & (out < 1), dout * slope, 0)",
    lambda torch, x, slope, offset: (torch_wide(x) * slope + offset).clamp(0, 1).to(x.dtype),
    attrs={"slope": 0.2, "offset": 0.5}, samples=({"slope": 0.5, "offset": 0.5}, {"slope": 0.25}),
    values=ValueRange(-3.0, 3.0, avoid=(-1.0, 1.0, -2.0, 2.0)), ulps=2,
    onnx=lambda g, x, *, slope, offset: g("HardSigmoid", x, alpha=slope, beta=offset),
)  # fmt: skip
unary_op(
    "hard_swish", "x * minimum(maximum(x + offset, 0), threshold) / scale",
    "where(x <= -offset, 0, where(x >= threshold - offset, dout * (threshold / scale), dout * (2 * x + offset) / scale))",
    _lower_hard_swish, attrs={"threshold": 6.0, "scale": 6.0, "offset": 3.0},
    samples=({}, {"threshold": 2.0, "scale": 3.0, "offset": 1.0}),
    values=ValueRange(-4.0, 4.0, avoid=(-3.0, -1.0, 1.0, 3.0)),
    traits=(Activation(),),
)  # fmt: skip


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
    """Returns ``min(max(x, 0), threshold)`` of each element; any shape.

    Args:
        x: Floats.
        threshold: Largest result.
        name: Name of the layer.

    Raises:
        DTypeError: For integers.
    """
    return unary("relu6", x, {"threshold": threshold}, name=name)


@export("nn.functional.leaky_relu", "nn.functional.leaky_relu_", op="leaky_relu")
def leaky_relu(x: Variable, negative_slope: float = 0.01, name: str | None = None) -> Variable:
    """Returns ``x`` where it is positive, ``negative_slope * x`` elsewhere; any shape.

    Args:
        x: Floats of any shape.
        negative_slope: Slope below 0.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.leaky_relu(x, negative_slope=0.1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.1,  0. ,  2. ], dtype=float32)
    """
    return unary("leaky_relu", x, {"alpha": negative_slope}, name=name)


@export("fluid.layers.leaky_relu", op="leaky_relu")
def fluid_leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """Returns ``x`` where it is positive, ``alpha * x`` elsewhere; any shape.

    Args:
        x: Floats.
        alpha: Slope below 0.
        name: Name of the layer.

    Raises:
        DTypeError: For integers.
    """
    return unary("leaky_relu", x, {"alpha": alpha}, name=name)


@export("nn.functional.elu", "nn.functional.elu_", "fluid.layers.elu", op="elu")
def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Returns ``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere; any shape.

    Args:
        x: Floats of any shape.
        alpha: The limit for large negative numbers is ``-alpha``.
        name: Name of the layer.

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

    Args:
        x: Floats of any shape.
        scale, alpha: The usual ones keep mean 0 and variance 1 from layer to layer.
        name: Name of the layer.

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
    """Returns what ``nn.functional.selu`` returns; ``None`` means the usual constant.

    Args:
        x: Floats of any shape.
        scale: Factor of the result; 1.0507009873554805 if ``None``.
        alpha: Factor of ``exp(x) - 1`` below 0; 1.6732632423543772 if ``None``.
        name: Name of the layer.

    Raises:
        DTypeError: For integers.
    """
    given = {"scale": scale, "alpha": alpha}
    return unary("selu", x, {n: v for n, v in given.items() if v is not None}, name=name)


@export("nn.functional.celu", op="celu")
def celu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Returns ``x`` where it is positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere; any shape.

    Args:
        x: Floats of any shape.
        alpha: The limit for large negative numbers is ``-alpha``; not 0.
        name: Name of the layer.

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

    Args:
        x: Floats of any shape.
        min, max: The limits.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([-2.0, 0.5, 2.0])
        >>> y = paddle.nn.functional.hardtanh(x, min=-1.0, max=1.0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-1. ,  0.5,  1. ], dtype=float32)
    """
    return unary("brelu", x, {"t_min": min, "t_max": max}, name=name, prefix="hardtanh")


@export("fluid.layers.brelu", op="brelu")
def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """Returns each element, or the limit that it exceeds; any shape.

    Args:
        x: Floats.
        t_min, t_max: Lower and upper limit.
        name: Name of the layer.

    Raises:
        DTypeError: For integers.
    """
    return unary("brelu", x, {"t_min": t_min, "t_max": t_max}, name=name)


@export("nn.functional.softshrink", op="softshrink")
def softshrink(x: Variable, threshold: float = 0.5, name: str | None = None) -> Variable:
    """Returns each element moved towards 0 by the threshold, 0 where it is smaller; any shape.

    Args:
        x: Floats of any shape.
        threshold: By how much, not negative.
        name: Name of the layer.

    Raises:
        ProgramError: If the threshold is negative.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.3, 2.0])
        >>> y = paddle.nn.functional.softshrink(x, threshold=0.5)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.5,  0. ,  1.5], dtype=float32)
    """
    check_number(threshold, "threshold", "softshrink", least=0)
    return unary("softshrink", x, {"threshold": threshold}, name=name)


@export("fluid.layers.softshrink", op="softshrink")
def fluid_softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """Returns each element moved towards 0 by ``alpha`` (0.5 if ``None``), 0 where it is smaller; any shape.

    Args:
        x: Floats.
        alpha: The distance that elements move, not negative.

    Raises:
        DTypeError: For integers.
        ProgramError: If ``alpha`` is negative.
    """
    if alpha is not None:
        check_number(alpha, "alpha", "softshrink", least=0)
    return unary("softshrink", x, {} if alpha is None else {"threshold": alpha})


@export("nn.functional.hardshrink", op="hard_shrink")
def hardshrink(x: Variable, threshold: float = 0.5, name: str | None = None) -> Variable:
    """Returns each element, 0 where its absolute value is not above the threshold; any shape.

    Args:
        x: Floats of any shape.
        threshold: The largest magnitude that becomes 0.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.3, 2.0])
        >>> y = paddle.nn.functional.hardshrink(x, threshold=0.5)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-1.,  0.,  2.], dtype=float32)
    """
    return unary("hard_shrink", x, {"threshold": threshold}, name=name, prefix="hardshrink")


@export("fluid.layers.hard_shrink", op="hard_shrink")
def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """Returns each element, 0 where its absolute value is not above the threshold (``None``: 0.5); any shape.

    Args:
        x: Floats.
        threshold: Largest absolute value that becomes 0.

    Raises:
        DTypeError: For integers.
    """
    return unary("hard_shrink", x, {} if threshold is None else {"threshold": threshold})


@export("nn.functional.thresholded_relu", "nn.functional.thresholded_relu_", op="thresholded_relu")
def thresholded_relu(x: Variable, threshold: float = 1.0, name: str | None = None) -> Variable:
    """Returns each element, 0 where it is not above the threshold; any shape.

    Args:
        x: Floats of any shape.
        threshold: The largest number that becomes 0.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.5, 2.0])
        >>> y = paddle.nn.functional.thresholded_relu(x, threshold=1.0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0., 0., 2.], dtype=float32)
    """
    return unary("thresholded_relu", x, {"threshold": threshold}, name=name)


@export("fluid.layers.thresholded_relu", op="thresholded_relu")
def fluid_thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """Returns each element, 0 where it is not above the threshold (``None``: 1); any shape.

    Args:
        x: Floats.
        threshold: Largest value that becomes 0.

    Raises:
        DTypeError: For integers.
    """
    return unary("thresholded_relu", x, {} if threshold is None else {"threshold": threshold})


@export("nn.functional.hardsigmoid", op="hard_sigmoid")
def hardsigmoid(x: Variable, slope: float = 0.1666667, offset: float = 0.5, name: str | None = None) -> Variable:
    """Returns ``slope * x + offset`` of each element, clipped to [0, 1]; any shape.

    Args:
        x: Floats of any shape.
        slope, offset: Of the line between 0 and 1.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([-4.0, 0.0, 1.5])
        >>> y = paddle.nn.functional.hardsigmoid(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.  , 0.5 , 0.75], dtype=float32)
    """
    return unary("hard_sigmoid", x, {"slope": slope, "offset": offset}, name=name, prefix="hardsigmoid")


@export("fluid.layers.hard_sigmoid", op="hard_sigmoid")
def hard_sigmoid(x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """Returns ``slope * x + offset`` of each element, clipped to [0, 1]; any shape.

    Args:
        x: Floats.
        slope, offset: The line's slope, and its value at 0.
        name: Name of the layer.

    Raises:
        DTypeError: For integers.
    """
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
    """Returns ``x * min(max(x + offset, 0), threshold) / scale`` of each element; any shape.

    Args:
        x: Floats.
        threshold: Upper limit of ``x + offset``.
        scale: What the product is divided by.
        offset: Added to ``x`` in the factor.
        name: Name of the layer.

    Raises:
        DTypeError: For integers.
    """
    return unary("hard_swish", x, {"threshold": threshold, "scale": scale, "offset": offset}, name=name)


# ---------------------------------------------------------------------------------------------------------------- prelu
def _align(
    shapes: Sequence[Shape | None], attrs: Mapping[str, Any], like: Sequence[int] = (0, 1)
) -> list[Shape | None]:
    """Places slopes per channel along the channel axis; any others meet from the last dimension."""
    x = shapes[0]
    assert x is not None
    rank = len(x)
    # A vector has its one axis for channels.
    channel = 1 if attrs["data_format"].startswith("NC") or rank < 2 else rank - 1
    done = []
    for i, shape in enumerate(shapes):
        if shape is not None and i < len(like) and like[i] == 1:
            if attrs["mode"] == "all":
                shape = (1,) * rank
            elif attrs["mode"] == "channel":
                # Paddle declares the slopes as [channels] or [1, channels, 1, 1]; both have as many elements.
                shape = (1,) * channel + (numel(shape),) + (1,) * (rank - channel - 1)
        done.append(shape)
    return align_last(done, attrs)


def _prepare(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Sequence[Any]:
    shapes = _align([tuple(a.shape) for a in inputs], attrs)
    return [a.reshape(s) for a, s in zip(inputs, shapes, strict=True)]


def _infer(x: Meta, alpha: Meta, mode: str, data_format: str) -> Meta:
    infer_float(x)
    same_dtype(x, alpha, ("X", "Alpha"))
    channel = 1 if data_format.startswith("NC") else x.rank - 1
    if mode == "all":
        expected = "1 element"
        fits = alpha.numel in (1, UNKNOWN)
    elif mode == "channel":
        expected = f"{x.shape[channel] if x.rank > channel else 1} elements, one per channel"
        fits = x.rank > channel and (x.shape[channel] == alpha.numel or UNKNOWN in (x.shape[channel], alpha.numel))
    else:
        sizes = x.shape[1:]
        own = alpha.shape[-len(sizes) :] if sizes else ()
        expected = f"shape {[1, *sizes]}"
        fits = numel(alpha.shape[: len(alpha.shape) - len(own)]) in (1, UNKNOWN) and same_shape(own, sizes)
    fix = "give the slopes the expected number of elements, or choose another mode"
    check_fit(fits, (x, alpha), ("X", "Alpha"), f"Alpha does not fit X in mode '{mode}'", expected, fix)
    return x


def _lower(torch: Any, x: Any, alpha: Any, mode: str, data_format: str) -> Any:
    slope = alpha.reshape(_align([tuple(x.shape), tuple(alpha.shape)], {"mode": mode, "data_format": data_format})[1])
    return torch.where(x > 0, x, slope * x)


register(OpDef(
    "prelu", "X, Alpha -> Out", attrs={"mode": Attr("all", "str", one_of("all", "channel", "element")), "data_format": "NCHW"},
    pointwise={"Out": "where(x > 0, x, alpha * x)"}, infer=_infer, prepare=_prepare, lower=_lower,
    grad=reduced_gradient(
        "X, Alpha, Out@GRAD -> X@GRAD, Alpha@GRAD",
        {"X@GRAD": "where(x > 0, dout, alpha * dout)", "Alpha@GRAD": "where(x > 0, 0, x * dout)"},
        attrs=("mode", "data_format"), inplace=(("Out@GRAD", "X@GRAD"),), grad=DERIVE, aligned=_align,
    ),
    amp="gray", inplace=(("X", "Out"),),
    domain=Domain(cases=(
        Case(((3, 4), (1,))), Case(((2, 3, 4), (3,)), {"mode": "channel"}), Case(((), (1,))), Case(((0, 2), (1,))),
        Case(((2, 3, 2, 2), (1, 3, 1, 1)), {"mode": "channel"}),
        Case(((2, 2, 2, 3), (3,)), {"mode": "channel", "data_format": "NHWC"}),
        Case(((2, 3, 4), (1, 3, 4)), {"mode": "element"}), Case(((2, 5), (5,)), {"mode": "element"}),
    ), values={"X": ValueRange(avoid=(0.0,))}, ulps=1),
))  # fmt: skip


@export("nn.functional.prelu", op="prelu")
def prelu(x: Variable, weight: Variable, data_format: str = "NCHW", name: str | None = None) -> Variable:
    """Returns ``x`` where it is positive, ``weight * x`` elsewhere.

    Args:
        x: ``[N, C, ...]``, or ``[N, ..., C]`` for a ``data_format`` that ends in C.
        weight: ``[1]``, or ``[C]`` for a slope per channel.
        data_format: Where the channels stand.
        name: Name of the layer.

    Raises:
        ShapeError: If ``weight`` has another number of elements.
    """
    check_variable(x, "x", "prelu")
    check_variable(weight, "weight", "prelu")
    mode = "all" if numel(weight.shape) == 1 else "channel"
    return emit_one("prelu", {"X": x, "Alpha": weight}, {"mode": mode, "data_format": data_format}, name=name)
