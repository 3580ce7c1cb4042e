"""Layers on images as functions: ``deform_conv2d`` and ``deformable_conv``, with their parameters."""

from __future__ import annotations

from typing import Any

from tstatic.extras.detection.deformable_conv import deform
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    check_ints,
    check_type,
)
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.param import LayerHelper, check_enabled
from tstatic.nn.static_conv import channels_and_groups, kaiming
from tstatic.no_effect import no_effect


@no_effect(im2col_step="results do not depend on how many images are worked on at once")
@export("static.nn.deform_conv2d", op="deformable_conv")
def deform_conv2d(
    x: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    deformable_groups: int = 1,
    im2col_step: int = 1,
    weight_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Builds a convolution layer whose filters read beside their usual places, by offsets that are inputs.

    Args:
        x: ``[n, c, h, w]``; float32 or float64, ``c`` known.
        offset: ``[n, 2 * deformable_groups * kh * kw, oh, ow]``: down and right, for each place of the filters.
        mask: ``[n, deformable_groups * kh * kw, oh, ow]``: the weight of each place (version 2); ``None`` for none.
        num_filters: Number of output channels.
        filter_size: An int, or ``[kh, kw]``.
        stride, padding, dilation: An int, or ``[height, width]``.
        groups: Groups of channels and filters that do not see each other.
        deformable_groups: Groups of channels with offsets of their own.
        weight_attr: ParamAttr, name or initializer of the filters ``[num_filters, c / groups, kh, kw]``.
        bias_attr: The same for the bias ``[num_filters]``; ``False`` for none.
        name: Name of the layer.

    Returns:
        ``[n, num_filters, oh, ow]``.

    Raises:
        ShapeError, DTypeError: If the shapes or dtypes do not fit together.

    Example:
        >>> x = static.data("x", [None, 3, 8, 8])
        >>> offset = static.nn.conv2d(x, num_filters=2 * 3 * 3, filter_size=3, padding=1)
        >>> y = static.nn.deform_conv2d(x, offset, None, num_filters=4, filter_size=3, padding=1)
        >>> y.shape
        (-1, 4, 8, 8)
    """
    function = "deform_conv2d"
    count, groups = channels_and_groups(x, num_filters, groups, "NCHW", 2, function)
    kernel = check_ints(filter_size, 2, "filter_size", function)
    check_enabled(weight_attr, "weight_attr", function)
    helper = LayerHelper("deformable_conv", name=name, bias_attr=bias_attr)
    shape = (num_filters, count // groups, *kernel)
    w = helper.create_parameter(weight_attr, shape, x.dtype, default_initializer=kaiming(count, kernel))
    out = deform(x, offset, mask, w, stride, padding, dilation, groups, deformable_groups, function, helper.name)
    return helper.append_bias_op(out, 1, 2)


@no_effect(im2col_step="results do not depend on how many images are worked on at once")
@export("fluid.layers.deformable_conv", op="deformable_conv")
def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    deformable_groups: int | None = None,
    im2col_step: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    modulated: bool = True,
    name: str | None = None,
) -> Variable:
    """Builds a convolution layer as :func:`deform_conv2d` does.

    Args:
        input, offset, mask, num_filters, filter_size, stride, padding, dilation, groups, deformable_groups, name: As there;
            one group if ``None``.
        param_attr, bias_attr: ParamAttr, name or initializer of the filters and the bias.
        modulated: Whether the mask weights the places (version 2).

    Raises:
        ShapeError, DTypeError: If the shapes or dtypes do not fit together.
    """
    function = "deformable_conv"
    if check_type(modulated, bool, "modulated", function):
        check_variable(mask, "mask", function)
    groups, deformable_groups = (1 if count is None else count for count in (groups, deformable_groups))
    return deform_conv2d(
        input, offset, mask if modulated else None, num_filters, filter_size, stride, padding, dilation, groups,
        deformable_groups, weight_attr=param_attr, bias_attr=bias_attr, name=name,
    )  # fmt: skip
