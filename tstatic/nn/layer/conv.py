"""Convolution layers: ``Conv1D``, ``Conv2D``, ``Conv3D``, and the transposes of all three."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_choice, check_divisible, check_int, check_ints, check_rank, check_size
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.layer.layers import Layer, own_constructor
from tstatic.nn.param import check_enabled
from tstatic.nn.static_conv import kaiming
from tstatic.ops.base.sliding import is_last, padding_of
from tstatic.ops.conv.conv import conv1d, conv1d_transpose, conv2d, conv2d_transpose, conv3d, conv3d_transpose
from tstatic.ops.shape.pad import pad

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(Layer):
    """What all convolution layers share: filters, bias and their sizes.

    Args:
        data_format: The first of ``_layouts`` if ``None``.
    """

    _rank = 2
    _transposed = False
    _layouts = ("NCHW", "NHWC")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str | None = None,
    ) -> None:
        super().__init__()
        function = type(self).__name__
        layout = self._layouts[0] if data_format is None else data_format
        self._data_format = check_choice(layout, self._layouts, "data_format", function)
        self._in_channels = check_int(in_channels, "in_channels", function, 1)
        self._out_channels = check_int(out_channels, "out_channels", function, 1)
        self._groups = check_int(groups, "groups", function, 1)
        check_divisible(in_channels, groups, "in_channels", "groups", function)
        check_divisible(out_channels, groups, "out_channels", "groups", function)
        self._kernel_size = check_ints(kernel_size, self._rank, "kernel_size", function)
        self._stride = check_ints(stride, self._rank, "stride", function)
        self._dilation = check_ints(dilation, self._rank, "dilation", function)
        self._padding = padding
        self._paddings, self._algorithm = padding_of(padding, self._rank, is_last(layout), function)
        self._padding_mode = check_choice(padding_mode, PADDING_MODES, "padding_mode", function)
        check_enabled(weight_attr, "weight_attr", function)
        outer = (in_channels, out_channels) if self._transposed else (out_channels, in_channels)
        shape = (outer[0], outer[1] // groups, *self._kernel_size)
        default = None if self._transposed else kaiming(in_channels, self._kernel_size)
        self.weight = self.create_parameter(shape, weight_attr, default_initializer=default)
        self.bias = self.create_parameter((out_channels,), bias_attr, is_bias=True)

    def _check(self, x: Variable) -> None:
        function = type(self).__name__
        check_rank(check_variable(x, "x", function, FLOATS), self._rank + 2, "x", function, layout=self._data_format)
        at = self._rank + 1 if is_last(self._data_format) else 1
        check_size(x, at, self._in_channels, "x", function, why=f"in_channels, in {self._data_format}")

    def _widened(self, x: Variable) -> tuple[Variable, Any]:
        """Returns the input, padded here unless with zeros, and the padding that is left to the op."""
        if self._padding_mode == "zeros" or self._algorithm == "VALID":
            return x, self._padding
        if self._algorithm == "SAME":
            raise ShapeError(
                f"padding='SAME' of {type(self).__name__} pads with zeros only",
                expected="padding in numbers, or padding_mode='zeros'",
                received=f"padding_mode={self._padding_mode!r}",
                fix="give the padding in numbers",
                op=type(self).__name__,
                var=x.name,
            )
        pads = self._paddings
        pairs = pads if len(pads) == 2 * self._rank else [p for p in pads for _ in (0, 1)]
        # The pad function takes the last axis first.
        flat = [p for i in reversed(range(self._rank)) for p in pairs[2 * i : 2 * i + 2]]
        return pad(x, flat, mode=self._padding_mode, data_format=self._data_format), 0

    def _convolve(self, function: Callable[..., Variable], x: Variable) -> Variable:
        self._check(x)
        x, padding = self._widened(x)
        return function(
            x, self.weight, self.bias, self._stride, padding, self._dilation, self._groups, self._data_format
        )

    def extra_repr(self) -> str:
        """Returns the sizes, and what differs from the default."""
        text = f"{self._in_channels}, {self._out_channels}, kernel_size={list(self._kernel_size)}"
        once = (1,) * self._rank
        for label, value, default in (
            ("stride", self._stride, once),
            ("padding", self._padding, 0),
            ("padding_mode", self._padding_mode, "zeros"),
            ("dilation", self._dilation, once),
            ("groups", self._groups, 1),
        ):
            if value != default:
                text += f", {label}={list(value) if isinstance(value, tuple) else value}"
        return f"{text}, data_format={self._data_format}"


@export("nn.Conv2D", op="conv2d")
@own_constructor(data_format="NCHW")
class Conv2D(_Conv):
    """Convolution of images with learned filters.

    Args:
        in_channels, out_channels: Channels of input and output.
        kernel_size: An int, or ``[height, width]``.
        stride, dilation: An int, or one per axis.
        padding: An int, ``[h, w]``, ``[top, bottom, left, right]``, pairs per axis, ``"SAME"`` or ``"VALID"``.
        groups: Number of groups that channels are divided into, each convolved on its own; ``groups == in_channels`` makes the op a
            ``depthwise_conv2d``.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        weight_attr: ParamAttr, name or initializer of the filters ``[out_channels, in_channels / groups, kh, kw]``; by
            default normal with variance ``2 / (kh * kw * in_channels)``.
        bias_attr: The same for the bias ``[out_channels]``; ``False`` for none.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Example:
        >>> layer = paddle.nn.Conv2D(1, 1, kernel_size=2, weight_attr=paddle.nn.initializer.Constant(1.0))
        >>> y = layer(paddle.reshape(paddle.arange(9.0), [1, 1, 3, 3]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[[ 8., 12.],
                 [20., 24.]]]], dtype=float32)
    """

    def forward(self, x: Variable) -> Variable:
        """Maps ``[n, in_channels, h, w]`` to ``[n, out_channels, oh, ow]``, or with channels last."""
        return self._convolve(conv2d, x)


@export("nn.Conv3D", op="conv3d")
@own_constructor(data_format="NCDHW")
class Conv3D(_Conv):
    """Convolution of volumes with learned filters ``[out_channels, in_channels / groups, kd, kh, kw]``; see :class:`Conv2D`.

    Example:
        >>> layer = paddle.nn.Conv3D(1, 1, kernel_size=2, weight_attr=paddle.nn.initializer.Constant(1.0))
        >>> y = layer(paddle.reshape(paddle.arange(8.0), [1, 1, 2, 2, 2]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[[[28.]]]]], dtype=float32)
    """

    _rank = 3
    _layouts = ("NCDHW", "NDHWC")

    def forward(self, x: Variable) -> Variable:
        """Maps ``[n, in_channels, d, h, w]`` to ``[n, out_channels, od, oh, ow]``, or with channels last."""
        return self._convolve(conv3d, x)


@export("nn.Conv1D", op="conv2d")
@own_constructor(data_format="NCL")
class Conv1D(_Conv):
    """Convolution along one axis with learned filters ``[out_channels, in_channels / groups, k]``; see :class:`Conv2D`.

    Example:
        >>> layer = paddle.nn.Conv1D(1, 1, kernel_size=2, weight_attr=paddle.nn.initializer.Constant(1.0))
        >>> y = layer(paddle.to_tensor([[[1.0, 2.0, 3.0]]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[3., 5.]]], dtype=float32)
    """

    _rank = 1
    _layouts = ("NCL", "NLC")

    def forward(self, x: Variable) -> Variable:
        """Maps ``[n, in_channels, length]`` to ``[n, out_channels, out length]``, or with channels last."""
        return self._convolve(conv1d, x)


class _ConvTranspose(_Conv):
    """What transposed convolution layers share; Paddle orders the arguments of one axis differently."""

    _transposed = True
    _output_padding: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, "zeros", weight_attr, bias_attr,
            data_format,
        )  # fmt: skip
        self._output_padding = output_padding

    def _transpose(self, function: Callable[..., Variable], x: Variable, output_size: Any) -> Variable:
        self._check(x)
        extra = self._output_padding if output_size is None else 0
        return function(
            x, self.weight, self.bias, self._stride, self._padding, extra, dilation=self._dilation, groups=self._groups,
            output_size=output_size, data_format=self._data_format,
        )  # fmt: skip


@export("nn.Conv2DTranspose", op="conv2d_transpose")
@own_constructor(data_format="NCHW")
class Conv2DTranspose(_ConvTranspose):
    """Transposed convolution of images with learned filters ``[in_channels, out_channels / groups, kh, kw]``.

    Args:
        in_channels, out_channels: Channels of input and output.
        kernel_size: An int, or ``[height, width]``.
        stride, dilation: An int, or one per axis.
        padding: What is removed from the output; as in :class:`Conv2D`.
        output_padding: Rows and columns added at the bottom and right, less than the stride.
        groups: Number of groups.
        weight_attr: ParamAttr, name or initializer of the filters; Xavier uniform by default.
        bias_attr: The same for the bias ``[out_channels]``; ``False`` for none.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Example:
        >>> layer = paddle.nn.Conv2DTranspose(1, 1, kernel_size=2, weight_attr=paddle.nn.initializer.Constant(1.0))
        >>> y = layer(paddle.to_tensor([[[[1.0, 2.0]]]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[[1., 3., 2.],
                 [1., 3., 2.]]]], dtype=float32)
    """

    def forward(self, x: Variable, output_size: Any = None) -> Variable:
        """Maps ``x``, ``[n, in_channels, h, w]``, to ``[n, out_channels, oh, ow]``; ``output_size`` beats ``output_padding``."""
        return self._transpose(conv2d_transpose, x, output_size)


@export("nn.Conv3DTranspose", op="conv3d_transpose")
@own_constructor(data_format="NCDHW")
class Conv3DTranspose(_ConvTranspose):
    """Transposed convolution of volumes, filters ``[in_channels, out_channels / groups, kd, kh, kw]``; as :class:`Conv2DTranspose`.

    Example:
        >>> layer = paddle.nn.Conv3DTranspose(1, 1, kernel_size=[1, 1, 2], weight_attr=paddle.nn.initializer.Constant(1.0))
        >>> y = layer(paddle.to_tensor([[[[[1.0, 2.0]]]]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[[[1., 3., 2.]]]]], dtype=float32)
    """

    _rank = 3
    _layouts = ("NCDHW", "NDHWC")

    def forward(self, x: Variable, output_size: Any = None) -> Variable:
        """Maps ``x``, ``[n, in_channels, d, h, w]``, to ``[n, out_channels, od, oh, ow]``.

        ``output_size`` beats ``output_padding``.
        """
        return self._transpose(conv3d_transpose, x, output_size)


@export("nn.Conv1DTranspose", op="conv2d_transpose")
class Conv1DTranspose(_ConvTranspose):
    """Transposed convolution along one axis, filters ``[in_channels, out_channels / groups, k]``; see :class:`Conv2DTranspose`.

    Example:
        >>> layer = paddle.nn.Conv1DTranspose(1, 1, kernel_size=2, weight_attr=paddle.nn.initializer.Constant(1.0))
        >>> y = layer(paddle.to_tensor([[[1.0, 2.0, 3.0]]]))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[1., 3., 5., 3.]]], dtype=float32)
    """

    _rank = 1
    _layouts = ("NCL", "NLC")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCL",
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation, groups, weight_attr, bias_attr,
            data_format,
        )  # fmt: skip

    def forward(self, x: Variable, output_size: Any = None) -> Variable:
        """Maps ``x``, ``[n, in_channels, length]``, to ``[n, out_channels, out length]``.

        ``output_size`` beats ``output_padding``.
        """
        return self._transpose(conv1d_transpose, x, output_size)
