"""Activations as layers."""

from __future__ import annotations

from typing import Any

from tstatic.ir.checks import check_int, check_rank
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.initializer import Constant
from tstatic.nn.layer.functional_layer import functional_layer
from tstatic.nn.layer.layers import Layer
from tstatic.ops.elementwise.activation_piecewise import prelu
from tstatic.ops.norm.softmax import softmax

ReLU = functional_layer("ReLU", "relu")
ReLU6 = functional_layer("ReLU6", "relu6")
LeakyReLU = functional_layer("LeakyReLU", "leaky_relu")
ThresholdedReLU = functional_layer("ThresholdedReLU", "thresholded_relu")
ELU = functional_layer("ELU", "elu")
SELU = functional_layer("SELU", "selu")
CELU = functional_layer("CELU", "celu")
GELU = functional_layer("GELU", "gelu")
Silu = functional_layer("Silu", "silu")
Swish = functional_layer("Swish", "swish")
Mish = functional_layer("Mish", "mish")
Sigmoid = functional_layer("Sigmoid", "sigmoid")
LogSigmoid = functional_layer("LogSigmoid", "log_sigmoid")
Hardsigmoid = functional_layer("Hardsigmoid", "hardsigmoid", without=("slope", "offset"))
Hardswish = functional_layer("Hardswish", "hardswish")
Hardtanh = functional_layer("Hardtanh", "hardtanh")
Hardshrink = functional_layer("Hardshrink", "hardshrink")
Softshrink = functional_layer("Softshrink", "softshrink")
Softplus = functional_layer("Softplus", "softplus")
Softsign = functional_layer("Softsign", "softsign")
Tanh = functional_layer("Tanh", "tanh")
Tanhshrink = functional_layer("Tanhshrink", "tanhshrink")
Softmax = functional_layer("Softmax", "softmax", without=("dtype",))
Maxout = functional_layer("Maxout", "maxout")
GLU = functional_layer("GLU", "glu")
RReLU = functional_layer("RReLU", "rrelu")
LogSoftmax = functional_layer("LogSoftmax", "log_softmax", without=("dtype",))


@export("nn.Softmax2D")
class Softmax2D(Layer):
    """Softmax over the channels of images ``[n, c, h, w]`` or ``[c, h, w]``.

    Example:
        >>> x = paddle.to_tensor([[[[0.0, 0.0]], [[0.0, 2.0]]]])
        >>> y = paddle.nn.Softmax2D()(x)
        >>> static.Executor().run(fetch_list=[y])[0][0, :, 0]
        array([[0.5   , 0.1192],
               [0.5   , 0.8808]], dtype=float32)
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Variable) -> Variable:
        """Returns a value of the same shape as ``x``."""
        check_rank(x, (3, 4), "x", "Softmax2D", layout="[c, h, w] or [n, c, h, w]")
        return softmax(x, axis=-3, name=self._name)


@export("nn.PReLU", op="prelu")
class PReLU(Layer):
    """``x`` where it is positive, else ``x`` times a learned slope.

    Args:
        num_parameters: 1, or the number of channels.
        init: First value of the slopes.
        weight_attr: ParamAttr, name or initializer of the slopes.
        data_format: Layout of the axes, which says where the channels are.
        name: Name of the op's layer.

    Example:
        >>> layer = paddle.nn.PReLU(init=0.25)
        >>> y = layer(paddle.to_tensor([-4.0, 2.0]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([-1.,  2.], dtype=float32)
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        weight_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        count = check_int(num_parameters, "num_parameters", "PReLU", 1)
        self._num_parameters, self._init, self._data_format, self._name = count, init, data_format, name
        self._weight = self.create_parameter((count,), weight_attr, default_initializer=Constant(init))

    def forward(self, x: Variable) -> Variable:
        """Returns a value of the same shape as ``x``."""
        return prelu(x, self._weight, data_format=self._data_format, name=self._name)

    def extra_repr(self) -> str:
        """Returns number and first value of the slopes."""
        return f"num_parameters={self._num_parameters}, data_format={self._data_format}, init={self._init}"
