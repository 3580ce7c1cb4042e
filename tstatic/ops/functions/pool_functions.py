"""Public functions of pooling over one to three axes."""

from __future__ import annotations

import math
from typing import Any

from tstatic.errors import ShapeError, UnsupportedError
from tstatic.ir.build import LayerNamer, check_variable, emit
from tstatic.ir.checks import check_choice, check_ints, check_sizes, check_type
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.respell import parameters_of
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sliding import LAYOUTS_BY_RANK, is_last, on_images, padding_of, spatial

Pooled = Variable | tuple[Variable, Variable]


def _window(
    function: str, rank: int, x: Variable, kernel_size: Any, stride: Any, padding: Any, data_format: str, **flags: Any
) -> dict[str, Any]:
    """Returns the attributes of sliding windows after checking the arguments; sequences have the layout of images."""
    check_variable(x, "x", function)
    check_choice(data_format, LAYOUTS_BY_RANK[max(rank, 2)], "data_format", function, error=ShapeError)
    for name, value in flags.items():
        check_type(value, bool, name, function)
    kernel = check_ints(kernel_size, rank, "kernel_size", function)
    # By default windows do not overlap.
    strides = kernel if stride is None else check_ints(stride, rank, "stride", function)
    paddings, algorithm = padding_of(padding, rank, is_last(data_format), function)
    windows = {"ksize": kernel, "strides": strides, "paddings": paddings, "padding_algorithm": algorithm}
    return {**windows, **flags, "data_format": data_format}


def _adaptive(function: str, rank: int, x: Variable, output_size: Any, data_format: str) -> dict[str, Any]:
    """Returns the attributes of adaptive windows after checking the arguments; a size of ``None`` keeps the input's."""
    check_variable(x, "x", function)
    check_choice(data_format, LAYOUTS_BY_RANK[max(rank, 2)], "data_format", function, error=ShapeError)
    if isinstance(output_size, list | tuple) and None in output_size and len(output_size) == rank:
        sizes = spatial(x.shape, data_format)
        output_size = [
            s if o is None else o for o, s in zip(output_size, (*sizes, *([UNKNOWN] * rank))[:rank], strict=True)
        ]
        if UNKNOWN in output_size:
            raise ShapeError(
                f"output_size of {function} keeps a size that is unknown",
                expected="ints where the input's size is unknown",
                received=f"input {list(x.shape)}, output_size {output_size}",
                fix="give that size in static.data, or a number in output_size",
                op=function,
            )
    values = check_ints(output_size, rank, "output_size", function)
    check_sizes(values, "output_size", function, least=1)
    return {"ksize": values, "adaptive": True, "data_format": data_format}


def _emit(function: str, rank: int, type: str, x: Variable, attrs: dict[str, Any], name: str | None) -> Any:
    """Emits a pooling; that of ``[n, c, length]`` on images of height 1."""
    if rank > 1:
        return emit(type, {"X": x}, attrs, name=name)
    # Paddle has no pooling op over one axis either.
    helper = LayerNamer(function, name)
    image = helper.emit("unsqueeze2", {"X": x}, {"axes": (2,)})
    pooled = emit(type, {"X": image}, on_images(attrs))
    if isinstance(pooled, Variable):
        return helper.emit("squeeze2", {"X": pooled}, {"axes": (2,)})
    return tuple(helper.emit("squeeze2", {"X": p}, {"axes": (2,)}) for p in pooled)


def _average(function: str, rank: int, x: Variable, attrs: dict[str, Any], name: str | None) -> Variable:
    out: Variable = _emit(function, rank, f"pool{max(rank, 2)}d", x, {**attrs, "pooling_type": "avg"}, name)
    return out


def _divided(
    function: str, rank: int, x: Variable, attrs: dict[str, Any], divisor: float | None, name: str | None
) -> Variable:
    """Emits an average pooling that divides sums by ``divisor`` unless that is ``None``."""
    if divisor is None:
        return _average(function, rank, x, attrs, name)
    out = _average(function, rank, x, {**attrs, "exclusive": False}, name)
    # The average over whole windows times their size is the sum, whatever lies in the padding.
    return emit_one("scale", {"X": out}, {"scale": math.prod(attrs["ksize"]) / divisor})


def _maximum(function: str, rank: int, x: Variable, attrs: dict[str, Any], mask: bool, name: str | None) -> Pooled:
    """Emits a maximum pooling; with ``mask`` the op that also returns places, whose paddings are numbers."""
    found: Pooled
    if not mask:
        found = _emit(function, rank, f"pool{max(rank, 2)}d", x, {**attrs, "pooling_type": "max"}, name)
        return found
    # The op with places has neither a layout nor a padding algorithm.
    first, last = LAYOUTS_BY_RANK[max(rank, 2)]
    if attrs.pop("data_format") == last:
        raise ShapeError(
            f"When setting return_mask to true, data_format must be set to {first}",
            expected=f"'{first}'",
            received=f"'{last}'",
            fix=f"transpose to {first} first, or leave return_mask at False",
            op=function,
        )
    if attrs.pop("padding_algorithm", "EXPLICIT") == "SAME":
        raise UnsupportedError(
            f"{function} with return_mask=True takes paddings as numbers",
            expected="'VALID', an int or a list of ints",
            received="'SAME'",
            fix="give the padding's sizes, or leave return_mask at False",
            op=function,
        )
    found = _emit(function, rank, f"max_pool{max(rank, 2)}d_with_index", x, attrs, name)
    return found


# ------------------------------------------------------------------------------------------------------------- sliding
@export("nn.functional.max_pool2d", op="pool2d")
def max_pool2d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Pooled:
    """Takes the maximum over sliding windows.

    Args:
        x: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats.
        kernel_size: An int, or one per axis.
        stride: The same; the kernel size if ``None``.
        padding: An int, ``[h, w]``, ``[top, bottom, left, right]``, pairs per axis, ``"SAME"`` or ``"VALID"``; padding
            counts as minus infinity.
        return_mask: Also return the places ``row * w + column`` of the maxima, int32.
        ceil_mode: Whether a last window may hang over the end. A window that holds only padding gives minus infinity
            (at place -1), and 0 as an average.
        data_format: Layout of the axes, which says where the channels are.
        name: The layer's name.

    Returns:
        ``[n, c, oh, ow]`` in the layout of ``x``, or that and the places.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]]]])
        >>> y = paddle.nn.functional.max_pool2d(x, kernel_size=2, stride=1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[5., 6.]]]], dtype=float32)
    """
    attrs = _window("max_pool2d", 2, x, kernel_size, stride, padding, data_format, ceil_mode=ceil_mode)
    return _maximum("max_pool2d", 2, x, attrs, return_mask, name)


@export("nn.functional.avg_pool2d", op="pool2d")
def avg_pool2d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
    divisor_override: float | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Takes the average over sliding windows.

    Args:
        x, kernel_size, stride, padding, ceil_mode, data_format, name: As in :func:`max_pool2d`.
        exclusive: Whether padding is left out of the count that a sum is divided by.
        divisor_override: Divide sums by this number instead.

    Returns:
        ``[n, c, oh, ow]`` in the layout of ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]]]])
        >>> y = paddle.nn.functional.avg_pool2d(x, kernel_size=2, stride=1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[3.25, 3.75]]]], dtype=float32)
    """
    flags = {"ceil_mode": ceil_mode, "exclusive": exclusive}
    attrs = _window("avg_pool2d", 2, x, kernel_size, stride, padding, data_format, **flags)
    return _divided("avg_pool2d", 2, x, attrs, divisor_override, name)


@export("nn.functional.max_pool3d", op="pool3d")
@parameters_of(max_pool2d, data_format="NCDHW")
def max_pool3d(x: Variable, return_mask: bool, name: str | None, **window: Any) -> Pooled:
    """Takes the maximum over sliding windows of volumes; see :func:`max_pool2d`.

    Args:
        x: ``[n, c, d, h, w]`` (``NCDHW``) or ``[n, d, h, w, c]`` (``NDHWC``), floats.
        kernel_size: An int, or one per axis.
        stride: The same; the kernel size if ``None``.
        padding: An int, ``[d, h, w]``, before and after each axis (six ints), pairs per axis, ``"SAME"`` or ``"VALID"``;
            padding counts as minus infinity.
        return_mask: Also return the places ``(plane * h + row) * w + column`` of the maxima, int32.
        ceil_mode: Whether a last window may hang over the end.
        data_format: Layout of the axes, which says where the channels are.
        name: The layer's name.

    Returns:
        ``[n, c, od, oh, ow]`` in the layout of ``x``, or that and the places.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = paddle.reshape(paddle.arange(8.0), [1, 1, 2, 2, 2])
        >>> y = paddle.nn.functional.max_pool3d(x, kernel_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[[7.]]]]], dtype=float32)
    """
    attrs = _window("max_pool3d", 3, x, **window)
    return _maximum("max_pool3d", 3, x, attrs, return_mask, name)


@export("nn.functional.avg_pool3d", op="pool3d")
@parameters_of(avg_pool2d, data_format="NCDHW")
def avg_pool3d(x: Variable, divisor_override: float | None, name: str | None, **window: Any) -> Variable:
    """Takes the average over sliding windows of volumes; see :func:`avg_pool2d`.

    Args:
        x, kernel_size, stride, padding, ceil_mode, data_format, name: As in :func:`max_pool3d`.
        exclusive: Whether padding is left out of the count that a sum is divided by.
        divisor_override: Divide sums by this number instead.

    Returns:
        ``[n, c, od, oh, ow]`` in the layout of ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = paddle.reshape(paddle.arange(8.0), [1, 1, 2, 2, 2])
        >>> y = paddle.nn.functional.avg_pool3d(x, kernel_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[[3.5]]]]], dtype=float32)
    """
    attrs = _window("avg_pool3d", 3, x, **window)
    return _divided("avg_pool3d", 3, x, attrs, divisor_override, name)


@export("nn.functional.max_pool1d", op="pool2d")
def max_pool1d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Pooled:
    """Takes the maximum over sliding windows of ``[n, c, length]``; see :func:`max_pool2d`.

    Args:
        x: ``[n, c, length]``, floats.
        kernel_size: Length of a window.
        stride: Distance of windows; the kernel size if ``None``.
        padding: An int, ``[before, after]``, ``"SAME"`` or ``"VALID"``; padding counts as minus infinity.
        return_mask, ceil_mode: As in :func:`max_pool2d`.
        name: Name of the layer.

    Returns:
        ``[n, c, out length]``, or that and the places of the maxima.

    Raises:
        ShapeError: If ``x`` has another rank, or the padding is not one of these.

    Example:
        >>> x = paddle.to_tensor([[[1.0, 3.0, 2.0, 4.0]]])
        >>> y = paddle.nn.functional.max_pool1d(x, kernel_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[3., 4.]]], dtype=float32)
    """
    attrs = _window("max_pool1d", 1, x, kernel_size, stride, padding, "NCHW", ceil_mode=ceil_mode)
    return _maximum("max_pool1d", 1, x, attrs, return_mask, name)


@export("nn.functional.avg_pool1d", op="pool2d")
def avg_pool1d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    exclusive: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Variable:
    """Takes the average over sliding windows of ``[n, c, length]``; see :func:`avg_pool2d`.

    Args:
        x: ``[n, c, length]``, floats.
        kernel_size: Length of a window.
        stride: Distance of windows; the kernel size if ``None``.
        padding: An int, ``[before, after]``, ``"SAME"`` or ``"VALID"``.
        exclusive, ceil_mode: As in :func:`avg_pool2d`.
        name: Name of the layer.

    Returns:
        ``[n, c, out length]``.

    Raises:
        ShapeError: If ``x`` has another rank, or the padding is not one of these.

    Example:
        >>> x = paddle.to_tensor([[[1.0, 3.0, 2.0, 4.0]]])
        >>> y = paddle.nn.functional.avg_pool1d(x, kernel_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[2., 3.]]], dtype=float32)
    """
    flags = {"ceil_mode": ceil_mode, "exclusive": exclusive}
    attrs = _window("avg_pool1d", 1, x, kernel_size, stride, padding, "NCHW", **flags)
    return _average("avg_pool1d", 1, x, attrs, name)


# ------------------------------------------------------------------------------------------------------------ adaptive
@export("nn.functional.adaptive_avg_pool2d", op="pool2d")
def adaptive_avg_pool2d(x: Variable, output_size: Any, data_format: str = "NCHW", name: str | None = None) -> Variable:
    """Takes the average over windows that share the input: window i covers ``floor(i h / oh)`` to ``ceil((i + 1) h / oh)``.

    Args:
        x: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats.
        output_size: An int, or one per axis; ``None`` keeps an axis.
        data_format: Layout of the axes, which says where the channels are.
        name: The layer's name.

    Returns:
        ``[n, c, oh, ow]`` in the layout of ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 3.0], [2.0, 4.0]]]])
        >>> y = paddle.nn.functional.adaptive_avg_pool2d(x, output_size=1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[2.5]]]], dtype=float32)
    """
    return _average("adaptive_avg_pool2d", 2, x, _adaptive("adaptive_avg_pool2d", 2, x, output_size, data_format), name)


@export("nn.functional.adaptive_max_pool2d", op="pool2d")
def adaptive_max_pool2d(x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None) -> Pooled:
    """Takes the maximum over windows that share the input; see :func:`adaptive_avg_pool2d`.

    Args:
        x: ``[n, c, h, w]``, floats.
        output_size: An int, or one per axis; ``None`` keeps an axis.
        return_mask: Also return the places ``row * w + column`` of the maxima, int32.
        name: The layer's name.

    Returns:
        ``[n, c, oh, ow]``, or that and the places.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 3.0], [2.0, 4.0]]]])
        >>> y = paddle.nn.functional.adaptive_max_pool2d(x, output_size=1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[4.]]]], dtype=float32)
    """
    attrs = _adaptive("adaptive_max_pool2d", 2, x, output_size, "NCHW")
    return _maximum("adaptive_max_pool2d", 2, x, attrs, return_mask, name)


@export("nn.functional.adaptive_avg_pool3d", op="pool3d")
def adaptive_avg_pool3d(x: Variable, output_size: Any, data_format: str = "NCDHW", name: str | None = None) -> Variable:
    """Takes the average over windows that share volumes; see :func:`adaptive_avg_pool2d`.

    Args:
        x: ``[n, c, d, h, w]`` (``NCDHW``) or ``[n, d, h, w, c]`` (``NDHWC``), floats.
        output_size: An int, or one per axis; ``None`` keeps an axis.
        data_format: Layout of the axes, which says where the channels are.
        name: The layer's name.

    Returns:
        ``[n, c, od, oh, ow]`` in the layout of ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = paddle.reshape(paddle.arange(8.0), [1, 1, 2, 2, 2])
        >>> y = paddle.nn.functional.adaptive_avg_pool3d(x, output_size=1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[[3.5]]]]], dtype=float32)
    """
    return _average("adaptive_avg_pool3d", 3, x, _adaptive("adaptive_avg_pool3d", 3, x, output_size, data_format), name)


@export("nn.functional.adaptive_max_pool3d", op="pool3d")
def adaptive_max_pool3d(x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None) -> Pooled:
    """Takes the maximum over windows that share volumes; see :func:`adaptive_avg_pool2d`.

    Args:
        x: ``[n, c, d, h, w]``, floats.
        output_size: An int, or one per axis; ``None`` keeps an axis.
        return_mask: Also return the places ``(plane * h + row) * w + column`` of the maxima, int32.
        name: The layer's name.

    Returns:
        ``[n, c, od, oh, ow]``, or that and the places.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = paddle.reshape(paddle.arange(8.0), [1, 1, 2, 2, 2])
        >>> y = paddle.nn.functional.adaptive_max_pool3d(x, output_size=1)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[[7.]]]]], dtype=float32)
    """
    attrs = _adaptive("adaptive_max_pool3d", 3, x, output_size, "NCDHW")
    return _maximum("adaptive_max_pool3d", 3, x, attrs, return_mask, name)


@export("nn.functional.adaptive_avg_pool1d", op="pool2d")
def adaptive_avg_pool1d(x: Variable, output_size: Any, name: str | None = None) -> Variable:
    """Takes the average over windows that share ``[n, c, length]``; see :func:`adaptive_avg_pool2d`.

    Args:
        x: ``[n, c, length]``, floats.
        output_size: Number of windows, at least 1.
        name: Name of the layer.

    Returns:
        ``[n, c, output_size]``.

    Raises:
        ShapeError: If ``x`` has another rank, or ``output_size`` is 0.

    Example:
        >>> x = paddle.to_tensor([[[1.0, 3.0, 2.0, 4.0]]])
        >>> y = paddle.nn.functional.adaptive_avg_pool1d(x, output_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[2., 3.]]], dtype=float32)
    """
    return _average("adaptive_avg_pool1d", 1, x, _adaptive("adaptive_avg_pool1d", 1, x, output_size, "NCHW"), name)


@export("nn.functional.adaptive_max_pool1d", op="pool2d")
def adaptive_max_pool1d(x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None) -> Pooled:
    """Takes the maximum over windows that share ``[n, c, length]``; see :func:`adaptive_max_pool2d`.

    Args:
        x: ``[n, c, length]``, floats.
        output_size: Number of windows, at least 1.
        return_mask: Also return the places of the maxima, int32.
        name: Name of the layer.

    Returns:
        ``[n, c, output_size]``, or that and the places of the maxima.

    Raises:
        ShapeError: If ``x`` has another rank, or ``output_size`` is 0.

    Example:
        >>> x = paddle.to_tensor([[[1.0, 3.0, 2.0, 4.0]]])
        >>> y = paddle.nn.functional.adaptive_max_pool1d(x, output_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[3., 4.]]], dtype=float32)
    """
    attrs = _adaptive("adaptive_max_pool1d", 1, x, output_size, "NCHW")
    return _maximum("adaptive_max_pool1d", 1, x, attrs, return_mask, name)
