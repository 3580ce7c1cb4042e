"""Smooth activations: sigmoid, tanh, softplus and their relatives."""

from __future__ import annotations

from tstatic.ir.opdef import DERIVE, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ops.elementwise._unary import infer_float, unary

register(OpDef(
    "sigmoid", "X -> Out", pointwise={"Out": "sigmoid(x)"}, infer=infer_float,
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * (1 - out) * out"}, grad=DERIVE),
    lower=lambda torch, x: torch.sigmoid(x), amp="gray", activation=True, domain=Domain("unary", ulps=4),
))  # fmt: skip
register(OpDef(
    "logsigmoid", "X -> Out", pointwise={"Out": "minimum(x, 0) - log1p(exp(-abs(x)))"}, infer=infer_float,
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout / (1 + exp(x))"}, grad=DERIVE),
    lower=lambda torch, x: torch.nn.functional.logsigmoid(x), amp="gray", domain=Domain("unary", ulps=4),
))  # fmt: skip
register(OpDef(
    "tanh", "X -> Out", pointwise={"Out": "tanh(x)"}, infer=infer_float,
    grad=GradOp("Out, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * (1 - out * out)"}, grad=DERIVE),
    lower=lambda torch, x: torch.tanh(x), amp="gray", activation=True, domain=Domain("unary", ulps=4),
))  # fmt: skip
register(OpDef(
    "tanh_shrink", "X -> Out", pointwise={"Out": "x - tanh(x)"}, infer=infer_float,
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * square(tanh(x))"}, grad=DERIVE),
    lower=lambda torch, x: torch.nn.functional.tanhshrink(x.float() if x.itemsize == 2 else x).to(x.dtype), amp="gray",
    # The difference cancels near 0.
    domain=Domain("unary", values={"X": ValueRange(0.7, 2.0)}, ulps=8),
))  # fmt: skip
register(OpDef(
    "softplus", "X -> Out", attrs={"beta": 1.0, "threshold": 20.0},
    pointwise={"Out": "where(x * beta > threshold, x, log1p(exp(x * beta)) / beta)"}, infer=infer_float,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD",
        pointwise={"X@GRAD": "where(x * beta > threshold, dout, dout / (1 + exp(-x * beta)))"}, grad=DERIVE,
    ),
    lower=lambda torch, x, beta, threshold: torch.nn.functional.softplus(x, beta, threshold), amp="gray",
    domain=Domain(
        "unary", attrs=({"beta": 1.0, "threshold": 20.0}, {"beta": 2.0, "threshold": 1.0}),
        values={"X": ValueRange(avoid=(0.5,))}, ulps=8,
    ),
))  # fmt: skip
register(OpDef(
    "softsign", "X -> Out", pointwise={"Out": "x / (1 + abs(x))"}, infer=infer_float,
    grad=GradOp("X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout / square(1 + abs(x))"}, grad=DERIVE),
    lower=lambda torch, x: torch.nn.functional.softsign(x.float() if x.itemsize == 2 else x).to(x.dtype), amp="gray",
    domain=Domain("unary", values={"X": ValueRange(avoid=(0.0,))}, ulps=4),
))  # fmt: skip
register(OpDef(
    "silu", "X -> Out", pointwise={"Out": "x / (1 + exp(-x))"}, infer=infer_float,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * sigmoid(x) * (1 + x * (1 - sigmoid(x)))"}, grad=DERIVE
    ),
    lower=lambda torch, x: torch.nn.functional.silu(x), amp="gray", activation=True, domain=Domain("unary", ulps=8),
))  # fmt: skip
register(OpDef(
    "swish", "X -> Out", attrs={"beta": 1.0}, pointwise={"Out": "x / (1 + exp(-beta * x))"}, infer=infer_float,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD",
        pointwise={"X@GRAD": "dout * sigmoid(beta * x) * (1 + beta * x * (1 - sigmoid(beta * x)))"}, grad=DERIVE,
    ),
    amp="gray", activation=True, domain=Domain("unary", attrs=({"beta": 1.0}, {"beta": 1.7}), ulps=8),
))  # fmt: skip
register(OpDef(
    "mish", "X -> Out", attrs={"threshold": 20.0},
    pointwise={"Out": "x * tanh(where(x > threshold, x, log1p(exp(x))))"}, infer=infer_float,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD",
        pointwise={
            "X@GRAD": "dout * (tanh(log1p(exp(minimum(x, threshold))))"
            " + x * (1 - square(tanh(log1p(exp(minimum(x, threshold)))))) * sigmoid(x))"
        },
        grad=DERIVE,
    ),
    lower=lambda torch, x: torch.nn.functional.mish(x), amp="gray", domain=Domain("unary", ulps=8),
))  # fmt: skip
register(OpDef(
    "stanh", "X -> Out", attrs={"scale_a": 0.67, "scale_b": 1.7159},
    pointwise={"Out": "scale_b * tanh(scale_a * x)"}, infer=infer_float,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", pointwise={"X@GRAD": "dout * (scale_a * scale_b) * (1 - square(tanh(scale_a * x)))"},
        grad=DERIVE,
    ),
    amp="gray", domain=Domain("unary", attrs=({}, {"scale_a": 0.3, "scale_b": -2.0}), ulps=4),
))  # fmt: skip
register(OpDef(
    "soft_relu", "X -> Out", attrs={"threshold": 40.0},
    pointwise={"Out": "log(1 + exp(minimum(maximum(x, -threshold), threshold)))"}, infer=infer_float,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD",
        pointwise={"X@GRAD": "where((x <= -threshold) | (x >= threshold), 0, dout * sigmoid(x))"}, grad=DERIVE,
    ),
    amp="gray",
    domain=Domain(
        "unary", attrs=({"threshold": 40.0}, {"threshold": 1.0}), values={"X": ValueRange(avoid=(-1.0, 1.0))}, ulps=8
    ),
))  # fmt: skip


@export("nn.functional.sigmoid", "Variable.sigmoid", "fluid.layers.sigmoid", op="sigmoid")
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


@export("tensor.tanh", "tensor.tanh_", "nn.functional.tanh", "nn.functional.tanh_", "Variable.tanh", "Variable.tanh_",
         "fluid.layers.tanh", op="tanh")  # fmt: skip
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

    Example:
        >>> x = paddle.to_tensor([-1.0, 0.0, 2.0])
        >>> y = paddle.nn.functional.softplus(x, beta=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.0635, 0.3466, 2.0091], dtype=float32)
    """
    return unary("softplus", x, {"beta": beta, "threshold": threshold}, name=name)


@export("fluid.layers.softplus", op="softplus")
def fluid_softplus(x: Variable, name: str | None = None) -> Variable:
    """Returns ``log(1 + exp(x))`` of each element; any shape."""
    return unary("softplus", x, name=name)


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


@export("nn.functional.silu", op="silu")
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
    """Returns ``x * sigmoid(beta * x)`` of each element; any shape."""
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
    """Returns ``x * tanh(softplus(x))``, where the softplus is ``x`` above the threshold; any shape."""
    return unary("mish", x, {"threshold": threshold}, name=name)


@export("tensor.stanh", "Variable.stanh", "fluid.layers.stanh", op="stanh")
def stanh(x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Variable:
    """Returns ``scale_b * tanh(scale_a * x)`` of each element; any shape."""
    return unary("stanh", x, {"scale_a": scale_a, "scale_b": scale_b}, name=name)


@export("fluid.layers.soft_relu", op="soft_relu")
def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """Returns ``log(1 + exp(x))`` with ``x`` clipped to plus and minus the threshold first; any shape."""
    return unary("soft_relu", x, {"threshold": threshold}, name=name)
