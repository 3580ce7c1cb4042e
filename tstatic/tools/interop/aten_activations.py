"""Activations and dropout."""

from __future__ import annotations

from typing import Any

from tstatic.ir.program import Variable
from tstatic.ops.elementwise import activation, activation_piecewise
from tstatic.ops.elementwise.scale import clip
from tstatic.ops.functions.gated import glu
from tstatic.ops.random.dropout import dropout
from tstatic.tools.interop.conversion import Call, each, family

converts = family("activations")


converts("sigmoid.default")(each(activation.sigmoid))
converts("log_sigmoid.default")(each(activation.log_sigmoid))
converts("tanh.default")(each(activation.tanh))
converts("silu.default")(each(activation.silu))
converts("mish.default")(each(activation.mish))
converts("hardswish.default")(each(activation_piecewise.hardswish))
converts("selu.default")(each(activation_piecewise.selu))


@converts("relu.default")
def _relu(c: Call, x: Variable) -> Variable:
    return activation_piecewise.relu(x) if c.dtype.is_float else clip(x, 0)


@converts("relu6.default")
def _relu6(c: Call, x: Variable) -> Variable:
    return activation_piecewise.relu6(x) if c.dtype.is_float else clip(x, 0, 6)


@converts("gelu.default")
def _gelu(c: Call, x: Variable, approximate: str = "none") -> Variable:
    return activation.gelu(x, approximate == "tanh")


@converts("hardsigmoid.default")
def _hardsigmoid(c: Call, x: Variable) -> Variable:
    # Paddle's default slope has seven places; torch divides by 6.
    return activation_piecewise.hardsigmoid(x, 1.0 / 6.0)


@converts("hardtanh.default")
def _hardtanh(c: Call, x: Variable, least: float = -1.0, most: float = 1.0) -> Variable:
    if least == 0 and most == 6:
        # relu6 by the name that nn.ReLU6 exports: activations of their own have gradients that read the result.
        return activation_piecewise.relu6(x)
    return clip(x, least, most) if not c.dtype.is_float else activation_piecewise.hardtanh(x, least, most)


@converts("leaky_relu.default")
def _leaky_relu(c: Call, x: Variable, negative_slope: float = 0.01) -> Variable:
    return activation_piecewise.leaky_relu(x, negative_slope)


@converts("elu.default")
def _elu(c: Call, x: Variable, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Variable:
    if input_scale != 1 or scale != 1:
        raise c.refuse("with scales", "scale=1 and input_scale=1", f"{scale} and {input_scale}")
    return activation_piecewise.elu(x, alpha)


@converts("celu.default")
def _celu(c: Call, x: Variable, alpha: float = 1.0) -> Variable:
    return activation_piecewise.celu(x, alpha)


@converts("softplus.default")
def _softplus(c: Call, x: Variable, beta: float = 1.0, threshold: float = 20.0) -> Variable:
    return activation.softplus(x, beta, threshold)


@converts("softshrink.default")
def _softshrink(c: Call, x: Variable, threshold: float = 0.5) -> Variable:
    return activation_piecewise.softshrink(x, threshold)


@converts("hardshrink.default")
def _hardshrink(c: Call, x: Variable, threshold: float = 0.5) -> Variable:
    return activation_piecewise.hardshrink(x, threshold)


@converts("prelu.default")
def _prelu(c: Call, x: Variable, weight: Variable) -> Variable:
    return activation_piecewise.prelu(x, weight)


@converts("glu.default")
def _glu(c: Call, x: Variable, axis: int = -1) -> Variable:
    return glu(x, axis)


# --------------------------------------------------------------------------------------------------------------- dropout
@converts("dropout.default")
def _dropout(c: Call, x: Variable, p: float, train: bool) -> Variable:
    return dropout(x, p) if train else x


@converts("feature_dropout.default")
def _feature_dropout(c: Call, x: Variable, p: float, train: bool) -> Variable:
    # Whole channels: each channel of each sample has one draw.
    return dropout(x, p, axis=[0, 1]) if train else x


@converts("native_dropout.default")
def _native_dropout(c: Call, x: Variable, p: float, train: bool | None) -> list[Any]:
    # The second result, which elements were kept, is for torch's own gradient.
    return [dropout(x, p) if train else x, None]
