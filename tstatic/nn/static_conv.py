"""Convolution layers as functions: ``conv2d``, ``conv3d`` and their transposes, with their parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    FLOATS,
    check_choice,
    check_divisible,
    check_int,
    check_ints,
    check_rank,
    check_static_dim,
)
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.respell import parameters_of
from tstatic.nn.initializer import Normal
from tstatic.nn.param import LayerHelper, check_activation, check_enabled
from tstatic.no_effect import LIBRARY, no_effect
from tstatic.ops.base.sliding import LAYOUTS_BY_RANK, is_last
from tstatic.ops.conv.conv import output_attrs, window_attrs
from tstatic.ops.conv.output_sizes import cut_to, holds_variable, most_padding


def channels_and_groups(
    input: Any, num_filters: Any, groups: Any, data_format: Any, rank: int, function: str
) -> tuple[int, int]:
    """Returns the number of channels of a batch of images or volumes, and of groups, which divides it and the filters.

    Raises:
        ProgramTypeError, DTypeError, ProgramError: If an argument is of another type or kind.
        ShapeError: If the rank is wrong, the number of channels is unknown, or ``groups`` does not fit.
    """
    check_variable(input, "input", function, FLOATS)
    check_choice(data_format, LAYOUTS_BY_RANK[rank], "data_format", function)
    check_int(num_filters, "num_filters", function, 1)
    groups = 1 if groups is None else check_int(groups, "groups", function, 1)
    check_rank(input, rank + 2, "input", function, layout=data_format)
    at = rank + 1 if is_last(data_format) else 1
    count = check_static_dim(input.shape[at], input, f"axis {at} (the channels)", function)
    check_divisible(count, groups, "the number of input channels", "groups", function)
    check_divisible(num_filters, groups, "the number of filters", "groups", function)
    return count, groups


def kaiming(channels: int, kernel: tuple[int, ...]) -> Normal:
    """Returns the default initializer of filters: normal with variance 2 / (all input channels * kernel size)."""
    return Normal(0.0, math.sqrt(2.0 / (channels * math.prod(kernel))))


def _finish(helper: LayerHelper, out: Variable, data_format: str) -> Variable:
    """Appends the bias of the channels and the activation."""
    axis = len(data_format) - 1 if is_last(data_format) else 1
    return helper.append_activation(helper.append_bias_op(out, axis, axis + 1))


@export("static.nn.conv2d", "fluid.layers.conv2d", op="conv2d")
def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Builds a convolution layer on images.

    Args:
        input: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats, ``c`` known.
        num_filters: Number of output channels.
        filter_size: An int, or ``[height, width]``.
        stride, dilation: An int, or one per axis.
        padding: An int, ``[h, w]``, ``[top, bottom, left, right]``, pairs per axis, ``"SAME"`` or ``"VALID"``.
        groups: Number of groups that channels and filters are divided into; 1 if ``None``.
        param_attr: ParamAttr, name or initializer of the filters ``[num_filters, c / groups, fh, fw]``; by default normal
            with variance ``2 / (fh * fw * c)``.
        bias_attr: The same for the bias ``[num_filters]``; ``False`` for none.
        use_cudnn: As in Paddle, ``False`` makes the op of a convolution with ``groups == c`` a ``depthwise_conv2d``.
        act: Op type of an activation.
        name: Name of the layer.
        data_format: Layout of the axes, which says where the channels are.

    Returns:
        ``[n, num_filters, oh, ow]`` in the layout of ``input``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError, ProgramError, NotFoundError: Where an argument does not fit.

    Example:
        >>> x = static.data("x", [None, 1, 3, 3])
        >>> y = static.nn.conv2d(x, num_filters=1, filter_size=2, param_attr=paddle.nn.initializer.Constant(1.0))
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(feed={"x": np.arange(9, dtype="float32").reshape(1, 1, 3, 3)}, fetch_list=[y])[0]
        array([[[[ 8., 12.],
                 [20., 24.]]]], dtype=float32)
    """
    depthwise = not use_cudnn and groups is not None
    return _conv(
        2, False, depthwise, input, num_filters, filter_size, stride, padding, dilation, groups, param_attr, bias_attr, act, name,
        data_format,
    )  # fmt: skip


@no_effect(use_cudnn=LIBRARY)
@export("static.nn.conv3d", "fluid.layers.conv3d", op="conv3d")
@parameters_of(conv2d, data_format="NCDHW")
def conv3d(use_cudnn: Any, **given: Any) -> Variable:
    """Builds a convolution layer on volumes.

    Args:
        input: ``[n, c, d, h, w]`` (``NCDHW``) or ``[n, d, h, w, c]`` (``NDHWC``), floats, ``c`` known.
        num_filters: Number of output channels.
        filter_size: An int, or ``[depth, height, width]``.
        stride, padding, dilation, groups, param_attr, bias_attr, act, name: As in :func:`conv2d`, for three axes.
        data_format: Layout of the axes, which says where the channels are.

    Returns:
        ``[n, num_filters, od, oh, ow]`` in the layout of ``input``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError, ProgramError, NotFoundError: Where an argument does not fit.
    """
    return _conv(3, False, False, **given)


def _conv(
    rank: int, transposed: bool, depthwise: bool, input: Variable, num_filters: int, filter_size: Any, stride: Any,
    padding: Any, dilation: Any, groups: int | None, param_attr: Any, bias_attr: Any, act: str | None, name: str | None,
    data_format: str, output_size: Any = None,
) -> Variable:  # fmt: skip
    """Builds a convolution layer or a transposed one; with ``depthwise`` the op is that where each channel has its own filters."""
    function = f"conv{rank}d" + "_transpose" * transposed
    count, groups = channels_and_groups(input, num_filters, groups, data_format, rank, function)
    given = None if transposed and filter_size is None else check_ints(filter_size, rank, "filter_size", function)
    attrs = window_attrs(stride, padding, dilation, groups, data_format, rank, function)
    kernel = _kernel_for(function, input, output_size, attrs) if given is None else given
    check_activation(act, function)
    check_enabled(param_attr, "param_attr", function)
    # As Paddle: a transposed convolution is depthwise only with one filter per channel.
    alone = groups == count == num_filters if transposed else groups == count and num_filters % count == 0
    type = f"depthwise_{function}" if depthwise and alone else function
    shape, default = (num_filters, count // groups, *kernel), None if transposed else kaiming(count, kernel)
    late = rank == 2 and given is not None and holds_variable(output_size)
    if transposed:
        shape = (count, num_filters // groups, *kernel)
        most, size = (most_padding(attrs["strides"]), None) if late else (0, output_size)
        attrs |= output_attrs(most, size, rank, function)
    helper = LayerHelper(type, name=name, bias_attr=bias_attr, act=act)
    w = helper.create_parameter(param_attr, shape, input.dtype, default_initializer=default)
    out = helper.emit(type, {"Input": input, "Filter": w}, attrs)
    if late:
        out = cut_to(out, output_size, most_padding(attrs["strides"]), 1 if is_last(data_format) else 2, function)
    return _finish(helper, out, data_format)


def _kernel_for(function: str, input: Variable, output_size: Any, attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the filter size that gives ``output_size``, as Paddle derives it."""
    strides, paddings, dilations = (attrs[name] for name in ("strides", "paddings", "dilations"))
    rank, algorithm = len(strides), attrs["padding_algorithm"]
    if output_size is None or algorithm != "EXPLICIT":
        raise ShapeError(
            "output_size must be set when filter_size is None, with paddings given in numbers",
            expected="filter_size, or output_size and paddings",
            received=f"filter_size=None, output_size={output_size!r}, padding {algorithm}",
            fix="pass filter_size",
            op=function,
            var=input.name,
        )
    sizes = check_ints(output_size, rank, "output_size", function)
    spatial = input.shape[1:-1] if is_last(attrs["data_format"]) else input.shape[2:]
    pads = tuple(paddings) if len(paddings) == 2 * rank else tuple(p for p in paddings for _ in (0, 1))
    kernel = []
    for i, (size, out, stride, dilation) in enumerate(zip(spatial, sizes, strides, dilations, strict=True)):
        check_static_dim(size, input, f"spatial axis {i}", function)
        kernel.append((out - (size - 1) * stride + pads[2 * i] + pads[2 * i + 1] - 1) // dilation + 1)
    for k in kernel:
        check_int(k, "filter_size (from output_size)", function, 1)
    return tuple(kernel)


@export("static.nn.conv2d_transpose", "fluid.layers.conv2d_transpose", op="conv2d_transpose")
def conv2d_transpose(
    input: Variable,
    num_filters: int,
    output_size: Any = None,
    filter_size: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Builds a transposed convolution layer on images: every input value adds its filters to the output.

    Args:
        input: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats, ``c`` known.
        num_filters: Number of output channels.
        output_size: An int or ``[oh, ow]``; chooses among the sizes that are possible. With ``filter_size`` it may hold Variables.
        filter_size: An int or ``[height, width]``; follows from ``output_size`` if ``None``.
        padding: What is removed from the output; as in :func:`conv2d`.
        stride, dilation, groups, use_cudnn, act, name, data_format: As in :func:`conv2d`.
        param_attr: ParamAttr, name or initializer of the filters ``[c, num_filters / groups, fh, fw]``; Xavier by default.
        bias_attr: The same for the bias ``[num_filters]``; ``False`` for none.

    Returns:
        ``[n, num_filters, oh, ow]`` in the layout of ``input``; ``oh`` is at least
        ``(h - 1) * stride - paddings + dilation * (fh - 1) + 1``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError, ProgramError, NotFoundError: Where an argument does not fit.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 2.0]]]])
        >>> one = paddle.nn.initializer.Constant(1.0)
        >>> y = static.nn.conv2d_transpose(x, 1, filter_size=2, stride=2, param_attr=one)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[[1., 1., 2., 2.],
                 [1., 1., 2., 2.]]]], dtype=float32)
    """
    return _conv(
        2, True, not use_cudnn, input, num_filters, filter_size, stride, padding, dilation, groups, param_attr, bias_attr, act,
        name, data_format, output_size,
    )  # fmt: skip


@no_effect(use_cudnn=LIBRARY)
@export("static.nn.conv3d_transpose", "fluid.layers.conv3d_transpose", op="conv3d_transpose")
@parameters_of(conv2d_transpose, data_format="NCDHW")
def conv3d_transpose(use_cudnn: Any, **given: Any) -> Variable:
    """Builds a transposed convolution layer on volumes: every input value adds its filters to the output.

    Args:
        input: ``[n, c, d, h, w]`` (``NCDHW``) or ``[n, d, h, w, c]`` (``NDHWC``), floats, ``c`` known.
        num_filters: Number of output channels.
        output_size: An int or ``[od, oh, ow]``; chooses among the sizes that are possible.
        filter_size: An int or ``[depth, height, width]``; follows from ``output_size`` if ``None``.
        padding: What is removed from the output; as in :func:`conv3d`.
        stride, dilation, groups, bias_attr, act, name, data_format: As in :func:`conv3d`.
        param_attr: ParamAttr, name or initializer of the filters ``[c, num_filters / groups, fd, fh, fw]``; Xavier by default.

    Returns:
        ``[n, num_filters, od, oh, ow]`` in the layout of ``input``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError, ProgramError, NotFoundError: Where an argument does not fit.

    Example:
        >>> x = paddle.to_tensor([[[[[1.0, 2.0]]]]])
        >>> one = paddle.nn.initializer.Constant(1.0)
        >>> y = static.nn.conv3d_transpose(x, 1, filter_size=[1, 1, 2], stride=[1, 1, 2], param_attr=one)
        >>> exe = static.Executor()
        >>> _ = exe.run(static.default_startup_program())
        >>> exe.run(fetch_list=[y])[0]
        array([[[[[1., 1., 2., 2.]]]]], dtype=float32)
    """
    return _conv(3, True, False, **given)
