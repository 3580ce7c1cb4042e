"""``fluid.nets`` and ``fluid.layers.data``: the 1.x helpers that put several layers together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    check_divisible,
    check_each,
    check_int,
    check_number,
    check_rank,
    check_size,
    check_static_dim,
    check_type,
)
from tstatic.ir.declare import data as declare
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.nn.static_conv import conv2d
from tstatic.nn.static_linear import fluid_fc
from tstatic.nn.static_norm import batch_norm
from tstatic.no_effect import LIBRARY, no_effect
from tstatic.ops.functions.gated import glu as gated
from tstatic.ops.functions.pool_first_generation import pool2d
from tstatic.ops.matmul.matmul import matmul
from tstatic.ops.norm.softmax import softmax
from tstatic.ops.random.dropout import fluid_dropout
from tstatic.ops.shape.reshape import reshape
from tstatic.ops.shape.transpose import transpose


@no_effect(type="every variable is a dense tensor")
@export("fluid.layers.data", "fluid.layers.io.data")
def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: Any = None,
    stop_gradient: bool = True,
) -> Variable:
    """Declares an input of the program; the batch axis goes in front of ``shape``.

    Args:
        name: The key in ``feed``.
        shape: Sizes of one sample. A ``None`` or negative size means that the batch axis is there already.
        append_batch_size: ``False``: ``shape`` includes the batch axis.
        dtype: Element type.
        lod_level: How deep the rows are nested in sequences, as of :func:`static.data`.
        stop_gradient: Whether gradients end here.

    Raises:
        ProgramTypeError, ShapeError, DTypeError, ProgramError: As :func:`static.data`.

    Example:
        >>> x = fluid.layers.data("x", shape=[3])
        >>> label = fluid.layers.data("label", shape=[4], append_batch_size=False, dtype="int64")
        >>> x.shape, label.shape
        ((-1, 3), (4,))
    """
    if isinstance(shape, list | tuple) and append_batch_size:
        sizes = [-1 if s is None else s for s in shape]
        if all(not isinstance(s, int) or s >= 0 for s in sizes):
            shape = [-1, *sizes]
    var = declare(name, shape, dtype, lod_level)
    # As in Paddle: what is fed is not compared with the declaration; operators refuse what they cannot use.
    var.need_check_feed = False
    var.stop_gradient = stop_gradient
    return var


@no_effect(use_cudnn=LIBRARY)
@export("fluid.nets.simple_img_conv_pool")
def simple_img_conv_pool(
    input: Variable,
    num_filters: int,
    filter_size: Any,
    pool_size: Any,
    pool_stride: Any,
    pool_padding: Any = 0,
    pool_type: str = "max",
    global_pooling: bool = False,
    conv_stride: Any = 1,
    conv_padding: Any = 0,
    conv_dilation: Any = 1,
    conv_groups: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    use_cudnn: bool = True,
) -> Variable:
    """Builds a convolution layer with an activation, then pooling.

    Args:
        input: Images ``[n, c, h, w]``.
        num_filters, filter_size, conv_stride, conv_padding, conv_dilation, conv_groups, param_attr, bias_attr, act: As in
            ``fluid.layers.conv2d``.
        pool_size, pool_stride, pool_padding, pool_type, global_pooling: As in ``fluid.layers.pool2d``.

    Example:
        >>> x = fluid.layers.data("x", shape=[1, 28, 28])
        >>> y = fluid.nets.simple_img_conv_pool(x, num_filters=20, filter_size=5, pool_size=2, pool_stride=2)
        >>> y.shape
        (-1, 20, 12, 12)
    """
    out = conv2d(
        input, num_filters, filter_size, conv_stride, conv_padding, conv_dilation, conv_groups, param_attr, bias_attr,
        use_cudnn, act,
    )  # fmt: skip
    return pool2d(out, pool_size, pool_type, pool_stride, pool_padding, global_pooling, use_cudnn)


@no_effect(use_cudnn=LIBRARY)
@export("fluid.nets.img_conv_group")
def img_conv_group(
    input: Variable,
    conv_num_filter: Sequence[int],
    pool_size: Any,
    conv_padding: Any = 1,
    conv_filter_size: Any = 3,
    conv_act: str | None = None,
    param_attr: Any = None,
    conv_with_batchnorm: Any = False,
    conv_batchnorm_drop_rate: Any = 0.0,
    pool_stride: Any = 1,
    pool_type: str = "max",
    use_cudnn: bool = True,
) -> Variable:
    """Builds several convolutions, each with optional batch normalisation and dropout, then pooling.

    Args:
        input: Images ``[n, c, h, w]``.
        conv_num_filter: Filters of each convolution; its length is their number.
        pool_size, pool_stride, pool_type: As in ``fluid.layers.pool2d``.
        conv_padding, conv_filter_size, param_attr: As in ``fluid.layers.conv2d``; one value, or one per convolution.
        conv_act: Activation after each convolution or its normalisation.
        conv_with_batchnorm: Whether a batch normalisation follows; one value, or one per convolution.
        conv_batchnorm_drop_rate: Dropout after the normalisation; one value, or one per convolution.

    Raises:
        ProgramTypeError, ShapeError: If ``conv_num_filter`` is not a list, or another list has another length.
    """
    check_type(conv_num_filter, (list, tuple), "conv_num_filter", "img_conv_group", expected="a list such as [64, 64]")
    count = len(conv_num_filter)
    rows = zip(
        conv_num_filter,
        check_each(conv_padding, count, "conv_padding", "img_conv_group", "convolution"),
        check_each(conv_filter_size, count, "conv_filter_size", "img_conv_group", "convolution"),
        check_each(param_attr, count, "param_attr", "img_conv_group", "convolution"),
        check_each(conv_with_batchnorm, count, "conv_with_batchnorm", "img_conv_group", "convolution"),
        check_each(conv_batchnorm_drop_rate, count, "conv_batchnorm_drop_rate", "img_conv_group", "convolution"),
        strict=True,
    )
    out = input
    for filters, padding, size, attr, normed, drop in rows:
        act = None if normed else conv_act
        out = conv2d(out, filters, size, padding=padding, param_attr=attr, act=act, use_cudnn=use_cudnn)
        if normed:
            out = batch_norm(out, act=conv_act, in_place=True)
            if abs(drop) > 1e-5:
                out = fluid_dropout(out, drop)
    return pool2d(out, pool_size, pool_type, pool_stride, use_cudnn=use_cudnn)


@export("fluid.nets.glu")
def glu(input: Variable, dim: int = -1) -> Variable:
    """Returns the first half along an axis times the sigmoid of the second half, as ``nn.functional.glu``.

    Args:
        input: Floats of any rank but 0; the size of the axis is even.
        dim: The axis.

    Raises:
        ShapeError: If the size is odd, or there is no such axis.

    Example:
        >>> y = fluid.nets.glu(paddle.to_tensor([[2.0, 4.0, 0.0, 0.0]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[1., 2.]], dtype=float32)
    """
    return gated(input, dim)


@export("fluid.nets.scaled_dot_product_attention")
def scaled_dot_product_attention(
    queries: Variable, keys: Variable, values: Variable, num_heads: int = 1, dropout_rate: float = 0.0
) -> Variable:
    """Builds attention of queries to keys, as the 1.x function does.

    With several heads each of the three values first goes through a fully connected layer, as in Paddle 1.8.

    Args:
        queries: ``[batch, targets, size]``; float32 or float64, ``size`` known.
        keys: ``[batch, sources, size]``.
        values: ``[batch, sources, value size]``.
        num_heads: Divides both sizes.
        dropout_rate: Chance that a weight is dropped.

    Returns:
        ``[batch, targets, value size]``.

    Raises:
        ShapeError: If the values do not fit together, or a size is not divided.

    Example:
        >>> x = static.data("x", [None, 5, 8])
        >>> y = fluid.nets.scaled_dot_product_attention(x, x, x, num_heads=2)
        >>> y.shape
        (-1, 5, 8)
    """
    function = "scaled_dot_product_attention"
    heads = check_int(num_heads, "num_heads", function, 1)
    check_number(dropout_rate, "dropout_rate", function, least=0.0, most=1.0)
    sizes = []
    for arg, x in (("queries", queries), ("keys", keys), ("values", values)):
        check_variable(x, arg, function, ("float32", "float64"))
        check_rank(x, 3, arg, function, layout="[batch, positions, size]")
        size = check_static_dim(x.shape[2], x, "axis 2 (the size)", function)
        check_divisible(size, heads, f"the size of {arg}", "num_heads", function)
        sizes.append(size)
    check_size(keys, 2, sizes[0], "keys", function, why="as of the queries")
    check_size(values, 1, keys.shape[1], "values", function, why="one per key")
    q, k, v = queries, keys, values
    if heads > 1:
        q, k, v = (fluid_fc(x, size, num_flatten_dims=2) for x, size in zip((q, k, v), sizes, strict=True))
        q, k, v = (
            transpose(reshape(x, [0, 0, heads, size // heads]), [0, 2, 1, 3])
            for x, size in zip((q, k, v), sizes, strict=True)
        )
    weights = softmax(matmul(q * (sizes[0] // heads) ** -0.5, k, transpose_y=True))
    if dropout_rate:
        weights = fluid_dropout(weights, dropout_rate, is_test=False)
    out: Variable = matmul(weights, v)
    return out if heads == 1 else reshape(transpose(out, [0, 2, 1, 3]), [0, 0, sizes[2]])
