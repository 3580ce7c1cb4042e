"""Layers of ``vision.ops``: deformable convolution, and poolings of regions."""

from __future__ import annotations

from typing import Any

from tstatic.extras.detection.deformable_conv import deform_conv2d
from tstatic.extras.detection.psroi_pool import psroi_pool
from tstatic.extras.detection.roi_align import roi_align
from tstatic.extras.detection.roi_pool import roi_pool
from tstatic.ir.checks import check_divisible, check_int, check_ints, check_number, check_type
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.layer.layers import Layer
from tstatic.nn.param import check_enabled
from tstatic.nn.static_conv import kaiming


@export("vision.ops.DeformConv2D", op="deformable_conv")
class DeformConv2D(Layer):
    """Convolution of images with filters that read beside their usual places, by offsets that are inputs.

    Args:
        in_channels, out_channels: Channels of input and output.
        kernel_size: An int, or ``[height, width]``.
        stride, padding, dilation: An int, or one per axis.
        deformable_groups: Groups of channels with offsets of their own.
        groups: Groups of channels and filters that do not see each other.
        weight_attr: ParamAttr, name or initializer of the filters ``[out_channels, in_channels / groups, kh, kw]``; by
            default normal with variance ``2 / (kh * kw * in_channels)``.
        bias_attr: The same for the bias ``[out_channels]``; ``False`` for none.

    Example:
        >>> x = static.data("x", [None, 3, 8, 8])
        >>> offset = paddle.nn.Conv2D(3, 2 * 3 * 3, kernel_size=3, padding=1)(x)
        >>> layer = paddle.vision.ops.DeformConv2D(3, 4, kernel_size=3, padding=1)
        >>> layer(x, offset).shape
        (-1, 4, 8, 8)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        deformable_groups: int = 1,
        groups: int = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        function = "DeformConv2D"
        check_enabled(weight_attr, "weight_attr", function)
        for value, arg in ((in_channels, "in_channels"), (out_channels, "out_channels"), (groups, "groups")):
            check_int(value, arg, function, 1)
        check_divisible(in_channels, groups, "in_channels", "groups", function)
        check_divisible(out_channels, groups, "out_channels", "groups", function)
        self._groups = groups
        self._deformable_groups = check_int(deformable_groups, "deformable_groups", function, 1)
        kernel = check_ints(kernel_size, 2, "kernel_size", function)
        self._stride = check_ints(stride, 2, "stride", function)
        self._padding = check_ints(padding, 2, "padding", function)
        self._dilation = check_ints(dilation, 2, "dilation", function)
        shape = (out_channels, in_channels // groups, *kernel)
        self.weight = self.create_parameter(shape, weight_attr, default_initializer=kaiming(in_channels, kernel))
        self.bias = self.create_parameter((out_channels,), bias_attr, is_bias=True)

    def forward(self, x: Variable, offset: Variable, mask: Variable | None = None) -> Variable:
        """Returns ``[n, out_channels, oh, ow]``.

        Args:
            x: ``[n, in_channels, h, w]``.
            offset, mask: As of :func:`~tstatic.vision.ops.deform_conv2d`.
        """
        return deform_conv2d(
            x, offset, self.weight, self.bias, self._stride, self._padding, self._dilation, self._deformable_groups,
            self._groups, mask,
        )  # fmt: skip


class _RegionPool(Layer):
    """What the poolings of regions share: their settings."""

    def __init__(self, output_size: Any, spatial_scale: float = 1.0) -> None:
        super().__init__()
        function = type(self).__name__
        self._output_size = check_ints(output_size, 2, "output_size", function)
        self._spatial_scale = check_number(spatial_scale, "spatial_scale", function)

    def extra_repr(self) -> str:
        """Returns the settings."""
        return f"output_size={list(self._output_size)}, spatial_scale={self._spatial_scale}"


@export("vision.ops.RoIAlign", op="roi_align")
class RoIAlign(_RegionPool):
    """Means of samples between the pixels of regions' parts; see :func:`~tstatic.vision.ops.roi_align`.

    Args:
        output_size: Parts of a region: an int, or ``[height, width]``.
        spatial_scale: Pixels of the image per unit of the boxes.

    Example:
        >>> x, boxes = static.data("x", [None, 3, 8, 8]), static.data("boxes", [None, 4])
        >>> number = static.data("number", [None], "int32")
        >>> paddle.vision.ops.RoIAlign(output_size=4, spatial_scale=0.5)(x, boxes, number).shape
        (-1, 3, 4, 4)
    """

    def forward(self, x: Variable, boxes: Variable, boxes_num: Variable, aligned: bool = True) -> Variable:
        """Returns ``[regions, c, height, width]``.

        Args:
            x: Images ``[n, c, h, w]``.
            boxes: ``[regions, 4]``: left, top, right, bottom.
            boxes_num: How many regions each image has, ``[n]``.
            aligned: Whether boxes are moved by half a pixel.
        """
        check_type(aligned, bool, "aligned", "RoIAlign")
        return roi_align(x, boxes, boxes_num, self._output_size, self._spatial_scale, aligned=aligned)


@export("vision.ops.RoIPool", op="roi_pool")
class RoIPool(_RegionPool):
    """The largest pixel of regions' parts; see :func:`~tstatic.vision.ops.roi_pool`.

    Args:
        output_size: Parts of a region: an int, or ``[height, width]``.
        spatial_scale: Pixels of the image per unit of the boxes.

    Example:
        >>> x, boxes = static.data("x", [None, 3, 8, 8]), static.data("boxes", [None, 4])
        >>> number = static.data("number", [None], "int32")
        >>> paddle.vision.ops.RoIPool(output_size=[2, 3])(x, boxes, number).shape
        (-1, 3, 2, 3)
    """

    def forward(self, x: Variable, boxes: Variable, boxes_num: Variable) -> Variable:
        """Returns ``[regions, c, height, width]``.

        Args:
            x: Images ``[n, c, h, w]``.
            boxes: ``[regions, 4]``: left, top, right, bottom.
            boxes_num: How many regions each image has, ``[n]``.
        """
        return roi_pool(x, boxes, boxes_num, self._output_size, self._spatial_scale)


@export("vision.ops.PSRoIPool", op="psroi_pool")
class PSRoIPool(_RegionPool):
    """The mean of regions' parts, read from the channels of their places; see :func:`~tstatic.vision.ops.psroi_pool`.

    Args:
        output_size: Parts of a region: an int, or ``[height, width]``.
        spatial_scale: Pixels of the image per unit of the boxes.

    Example:
        >>> x, boxes = static.data("x", [None, 8, 6, 6]), static.data("boxes", [None, 4])
        >>> number = static.data("number", [None], "int32")
        >>> paddle.vision.ops.PSRoIPool(output_size=2)(x, boxes, number).shape
        (-1, 2, 2, 2)
    """

    def forward(self, x: Variable, boxes: Variable, boxes_num: Variable) -> Variable:
        """Returns ``[regions, c, height, width]``.

        Args:
            x: Images ``[n, c, h, w]``.
            boxes: ``[regions, 4]``: left, top, right, bottom.
            boxes_num: How many regions each image has, ``[n]``.
        """
        return psroi_pool(x, boxes, boxes_num, self._output_size, self._spatial_scale)
