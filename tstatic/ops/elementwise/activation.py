"""Smooth activations: sigmoid, tanh, softplus and their relatives, and GELU."""

from __future__ import annotations

from typing import Any

from tstatic.ir.opdef import DERIVE, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.traits import Activation
from tstatic.ir.types import Meta
from tstatic.ops.base.call_ref import CallRef
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.one_input import infer_float, unary, unary_op
from tstatic.ops.base.torch_out import torch_function
from tstatic.tuned.special import gelu as gelu_kernel
from tstatic.tuned.special import gelu_grad as gelu_grad_kernel
from tstatic.tuned.special import special_scratch

unary_op("sigmoid", "sigmoid(x)", "dout * (1 - out) * out", "sigmoid", traits=(Activation(),), complex="holomorphic")
# exp of minus the absolute value is at most 1: no sum overflows, and log1p keeps the digits of small ones.
unary_op("logsigmoid", "minimum(x, 0) - log1p(exp(-abs(x)))", "dout / (1 + exp(x))", "nn.functional.logsigmoid")
unary_op("tanh", "tanh(x)", "dout * (1 - out * out)", "tanh", traits=(Activation(),), complex="holomorphic")
# Beside 0 the difference cancels.
unary_op(
    "tanh_shrink", "x - tanh(x)", "dout * square(tanh(x))",
    lambda torch, x: torch.nn.functional.tanhshrink(torch_wide(x)).to(x.dtype), amp="black",
    values=ValueRange(0.7, 2.0), ulps=8,
)  # fmt: skip
unary_op(
    # 20 as in Paddle and torch: log1p(exp(x)) - x is then below exp(-20) = 2e-9, which a float32 of that size cannot show.
    "softplus", "where(x * beta > threshold, x, log1p(exp(x * beta)) / beta)",
    "where(x * beta > threshold, dout, dout / (1 + exp(-x * beta)))", "nn.functional.softplus",
    attrs={"beta": 1.0, "threshold": 20.0}, samples=({"beta": 1.0, "threshold": 20.0}, {"beta": 2.0, "threshold": 1.0}),
    amp="black", values=ValueRange(avoid=(0.5,)), ulps=8,
)  # fmt: skip
unary_op(
    "softsign", "x / (1 + abs(x))", "dout / square(1 + abs(x))",
    lambda torch, x: torch.nn.functional.softsign(torch_wide(x)).to(x.dtype),
    values=ValueRange(avoid=(0.0,)),
)  # fmt: skip
unary_op(
    "silu",
    "x / (1 + exp(-x))",
    "dout * sigmoid(x) * (1 + x * (1 - sigmoid(x)))",
    "nn.functional.silu",
    ulps=8,
    traits=(Activation(),),
)
unary_op(
    "swish", "x / (1 + exp(-beta * x))", "dout * sigmoid(beta * x) * (1 + beta * x * (1 - sigmoid(beta * x)))",
    attrs={"beta": 1.0}, samples=({"beta": 1.0}, {"beta": 1.7}), ulps=8,
    traits=(Activation(),),
)  # fmt: skip
unary_op(
    "mish", "x * tanh(where(x > threshold, x, log1p(exp(x))))",
    "dout * (tanh(log1p(exp(minimum(x, threshold))))"
    " + x * (1 - square(tanh(log1p(exp(minimum(x, threshold)))))) * sigmoid(x))",
    lambda torch, x, *, out=None: torch_function("nn.functional.mish")(torch, x, out=out), attrs={"threshold": 20.0}, ulps=8,
)  # fmt: skip
unary_op(
    "stanh", "scale_b * tanh(scale_a * x)", "dout * (scale_a * scale_b) * (1 - square(tanh(scale_a * x)))",
    # Paddle's defaults: LeCun's 1.7159 tanh(2 x / 3), which takes 1 to 1 and -1 to -1.
    attrs={"scale_a": 0.67, "scale_b": 1.7159}, samples=({}, {"scale_a": 0.3, "scale_b": -2.0}),
)  # fmt: skip
unary_op(
    "soft_relu", "log(1 + exp(minimum(maximum(x, -threshold), threshold)))",
    "where((x <= -threshold) | (x >= threshold), 0, dout * sigmoid(x))", attrs={"threshold": 40.0},
    samples=({"threshold": 40.0}, {"threshold": 1.0}), values=ValueRange(avoid=(-1.0, 1.0)), ulps=8,
)  # fmt: skip


@export("nn.functional.sigmoid", "Variable.sigmoid", "fluid.layers.sigmoid", op="sigmoid", inplace=True)
def sigmoid(x: Variable, name: str | None = None) -> Variable:
    """Returns ``1 / (1 + exp(-x))`` of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 1.0])
        >>> y = paddle.nn.functional.sigmoid(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.2689, 0.5   , 0.7311], dtype=float32)
    """
    return unary("sigmoid", x, name=name)


@export("nn.functional.log_sigmoid", op="logsigmoid")
def log_sigmoid(x: Variable, name: str | None = None) -> Variable:
    """Returns ``log(1 / (1 + exp(-x)))`` of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.log_sigmoid(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-1.3133, -0.6931, -0.1269], dtype=float32)
    """
    return unary("logsigmoid", x, name=name, prefix="log_sigmoid")


@export("fluid.layers.logsigmoid", op="logsigmoid")
def logsigmoid(x: Variable, name: str | None = None) -> Variable:
    """Returns ``log(1 / (1 + exp(-x)))`` of each element; any shape."""
    return unary("logsigmoid", x, name=name)


@export(
    "tensor.tanh",
    "nn.functional.tanh",
    "nn.functional.tanh_",
    "Variable.tanh",
    "fluid.layers.tanh",
    op="tanh",
    inplace=True,
)
def tanh(x: Variable, name: str | None = None) -> Variable:
    """Returns the hyperbolic tangent of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 1.0])
        >>> y = paddle.tanh(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.7616,  0.    ,  0.7616], dtype=float32)
    """
    return unary("tanh", x, name=name)


@export("nn.functional.tanhshrink", "fluid.layers.tanh_shrink", op="tanh_shrink")
def tanhshrink(x: Variable, name: str | None = None) -> Variable:
    """Returns ``x - tanh(x)`` of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.tanhshrink(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.2384,  0.    ,  1.036 ], dtype=float32)
    """
    return unary("tanh_shrink", x, name=name)


@export("nn.functional.softplus", op="softplus")
def softplus(x: Variable, beta: float = 1, threshold: float = 20, name: str | None = None) -> Variable:
    """Returns ``log(1 + exp(beta * x)) / beta`` of each element, ``x`` where ``beta * x`` exceeds the threshold.

    Args:
        x: Floats of any shape.
        beta: Sharpness of the bend at 0.
        threshold: What ``beta * x`` must exceed for the result to be ``x``.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.softplus(x, beta=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.0635, 0.3466, 2.0091], dtype=float32)
    """
    return unary("softplus", x, {"beta": beta, "threshold": threshold}, name=name)


@export("fluid.layers.softplus", op="softplus")
def fluid_softplus(x: Variable, name: str | None = None, beta: float = 1.0, threshold: float = 20.0) -> Variable:
    """Returns ``log(1 + exp(beta * x)) / beta`` of each element, see :func:`softplus`.

    Args:
        x, name, beta, threshold: As there.
    """
    return softplus(x, beta, threshold, name)


@export("nn.functional.softsign", "fluid.layers.softsign", op="softsign")
def softsign(x: Variable, name: str | None = None) -> Variable:
    """Returns ``x / (1 + abs(x))`` of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 3.0])
        >>> y = paddle.nn.functional.softsign(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    return unary("softsign", x, name=name)


@export("nn.functional.silu", "fluid.layers.silu", op="silu")
def silu(x: Variable, name: str | None = None) -> Variable:
    """Returns ``x * sigmoid(x)`` of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.silu(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.2689,  0.    ,  1.7616], dtype=float32)
    """
    return unary("silu", x, name=name)


@export("nn.functional.swish", op="swish")
def swish(x: Variable, name: str | None = None) -> Variable:
    """Returns ``x * sigmoid(x)`` of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.swish(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.2689,  0.    ,  1.7616], dtype=float32)
    """
    return unary("swish", x, name=name)


@export("fluid.layers.swish", op="swish")
def fluid_swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """Returns ``x * sigmoid(beta * x)`` of each element; any shape.

    Args:
        x: Floats.
        beta: Factor inside the sigmoid.
        name: Name of the layer.

    Raises:
        DTypeError: For integers.
    """
    return unary("swish", x, {"beta": beta}, name=name)


@export("nn.functional.mish", op="mish")
def mish(x: Variable, name: str | None = None) -> Variable:
    """Returns ``x * tanh(log(1 + exp(x)))`` of each element; any shape.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.mish(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.3034,  0.    ,  1.944 ], dtype=float32)
    """
    return unary("mish", x, name=name)


@export("fluid.layers.mish", op="mish")
def fluid_mish(x: Variable, threshold: float = 20, name: str | None = None) -> Variable:
    """Returns ``x * tanh(softplus(x))``, where the softplus is ``x`` above the threshold; any shape.

    Args:
        x: Floats.
        threshold: Where the softplus turns into ``x``.
        name: Name of the layer.

    Raises:
        DTypeError: For integers.
    """
    return unary("mish", x, {"threshold": threshold}, name=name)


@export("tensor.stanh", "Variable.stanh", "fluid.layers.stanh", op="stanh")
def stanh(x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Variable:
    """Returns ``scale_b * tanh(scale_a * x)`` of each element; any shape.

    Args:
        x: Floats of any shape.
        scale_a: Factor of ``x``.
        scale_b: Factor of the tangent.
        name: Name of the layer.
    """
    return unary("stanh", x, {"scale_a": scale_a, "scale_b": scale_b}, name=name)


@export("fluid.layers.soft_relu", op="soft_relu")
def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """Returns ``log(1 + exp(x))`` with ``x`` clipped to plus and minus the threshold first; any shape.

    Args:
        x: Floats.
        threshold: Bound of the absolute value of ``x``; there is no gradient beyond it.
        name: Name of the layer.

    Raises:
        DTypeError: For integers.
    """
    return unary("soft_relu", x, {"threshold": threshold}, name=name)


# ----------------------------------------------------------------------------------------------------------------- gelu
# Expressions for kernels that inline them; numpy runs the tuned functions.
_EXACT = "0.5 * x * (1 + erf(x * 0.7071067811865476))"
# The density is 0 long before x is infinite, where their product would be NaN.
_DENSITY = "where(abs(x) < 40, x, 0) * (0.3989422804014327 * exp(-0.5 * x * x))"
_EXACT_GRAD = f"dout * (0.5 * (1 + erf(x * 0.7071067811865476)) + {_DENSITY})"
# With u = sqrt(2 / pi) * (x + 0.044715 * x^3) and e = exp(-2 * u), 0.5 * (1 + tanh(u)) is s = 1 / (1 + e). 1 - s is e * s
# where s is near 1 and the difference would lose digits; w is 2 * x * du/dx, as far as s * (1 - s) is not 0.
_E = "exp(x * (-1.5957691216057308 - 0.07135481627260025 * (x * x)))"
_S = f"(1 / (1 + {_E}))"
_REST = f"where({_E} < 1, {_E} * {_S}, 1 - {_S})"
_W = "where(x * x < 576, x * (1.5957691216057308 + 0.21406444881780075 * (x * x)), 0)"
_TANH = f"x / (1 + {_E})"
_TANH_GRAD = f"dout * ({_S} + {_S} * {_REST} * {_W})"


def _scratch_metas(ins: Any, outs: Any) -> list[Meta]:
    x = ins[0]
    return [Meta(shape, x.dtype) for shape, _ in special_scratch(x.numel, x.dtype.np)]


def _calls(ins: Any, outs: Any, scratch: Any, *, approximate: bool) -> Calls:
    return [(gelu_kernel, (ins[0], outs[0], approximate, scratch))]


def _grad_calls(ins: Any, outs: Any, scratch: Any, *, approximate: bool) -> Calls:
    return [(gelu_grad_kernel, (ins[0], ins[1], outs[0], approximate, scratch))]


def _gelu_lower(torch: Any, x: Any, approximate: bool, *, out: Any = None) -> Any:
    kind = "tanh" if approximate else "none"
    if out is not None:
        return torch.ops.aten.gelu.out(x, approximate=kind, out=out)
    return torch.nn.functional.gelu(x, approximate=kind)


def _gelu_grad_lower(torch: Any, x: Any, dout: Any, approximate: bool, *, out: Any = None) -> Any:
    # Beyond 40 the derivative is 0 or 1 in every type, and torch's formula 0 times infinity.
    near = x.clamp(-40, 40)
    kind = "tanh" if approximate else "none"
    if out is not None:
        return torch.ops.aten.gelu_backward.grad_input(dout, near, approximate=kind, grad_input=out)
    return torch.ops.aten.gelu_backward(dout, near, approximate=kind)


_REF, _GRAD_REF = CallRef(_calls, _scratch_metas), CallRef(_grad_calls, _scratch_metas)


register(OpDef(
    "gelu", "X -> Out", attrs={"approximate": False}, pointwise={"Out": f"where(approximate, {_TANH}, {_EXACT})"},
    infer=infer_float, ref=_REF, split=Split(ELEMENTS, FIRST),
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": f"where(approximate, {_TANH_GRAD}, {_EXACT_GRAD})"},
        ref=_GRAD_REF, split=Split(ELEMENTS, FIRST), grad=DERIVE, lower=_gelu_grad_lower,
    ),
    lower=_gelu_lower,
    amp="gray", traits=(Activation(),), domain=Domain("unary", attrs=({"approximate": False}, {"approximate": True}), ulps=8),
))  # fmt: skip


@export("nn.functional.gelu", "fluid.layers.gelu", op="gelu")
def gelu(x: Variable, approximate: bool = False, name: str | None = None) -> Variable:
    """Returns ``x`` times the normal distribution function of ``x``.

    Args:
        x: Any shape.
        approximate: Use ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))``.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.gelu(x)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([-0.1587,  0.    ,  1.9545], dtype=float32)
    """
    return unary("gelu", x, {"approximate": approximate}, name=name)
