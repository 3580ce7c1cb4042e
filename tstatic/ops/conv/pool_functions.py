"""Public functions of pooling: sliding and adaptive windows over one and two axes."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ProgramTypeError, ShapeError, UnsupportedError
from tstatic.ir.build import LayerNamer, check_variable, emit
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.conv._sliding import int_list, is_last, padding_of, spatial
from tstatic.ops.conv.conv2d import check_format

Pooled = Variable | tuple[Variable, Variable]


def check_flag(value: Any, name: str, function: str) -> None:
    """Refuses anything but a bool.

    Raises:
        ProgramTypeError: Says what was given.
    """
    if not isinstance(value, bool):
        raise ProgramTypeError(
            f"Attr({name}) of {function} should be a bool",
            expected="True or False",
            received=f"{value!r} of type {type(value).__name__}",
            fix=f"pass {name}=True or {name}=False",
            op=function,
        )


def _sliding(kernel_size: Any, stride: Any, padding: Any, rank: int, last: bool, function: str) -> dict[str, Any]:
    """Attributes of sliding windows; for one axis, those of images of height 1."""
    kernel = int_list(kernel_size, rank, "kernel_size", function)
    strides = kernel if stride is None else int_list(stride, rank, "stride", function)
    paddings, algorithm = padding_of(padding, rank, last, function)
    if rank == 1:
        kernel, strides = (1, *kernel), (1, *strides)
        paddings = (0, 0, *paddings) if len(paddings) == 2 else (0, *paddings)
    return {"ksize": kernel, "strides": strides, "paddings": paddings, "padding_algorithm": algorithm}


def _with_index(x: Variable, attrs: dict[str, Any], function: str, name: str | None) -> tuple[Variable, Variable]:
    """Emits ``max_pool2d_with_index``, whose paddings are numbers."""
    attrs = dict(attrs)
    if attrs.pop("padding_algorithm", "EXPLICIT") == "SAME":
        raise UnsupportedError(
            f"{function} with return_mask=True takes paddings as numbers",
            expected="'VALID', an int or a list of ints",
            received="'SAME'",
            fix="give the padding's sizes, or leave return_mask at False",
            op=function,
        )
    found: tuple[Variable, Variable] = emit("max_pool2d_with_index", {"X": x}, attrs, name=name)
    return found


def _flat(x: Variable, attrs: dict[str, Any], mask: bool, function: str, name: str | None) -> Pooled:
    """Runs a pooling of ``[n, c, length]`` on images of height 1."""
    helper = LayerNamer(function, name)
    image = helper.emit("unsqueeze2", {"X": x}, {"axes": (2,)})
    pooled = _with_index(image, attrs, function, None) if mask else (emit("pool2d", {"X": image}, attrs),)
    done = [helper.emit("squeeze2", {"X": p}, {"axes": (2,)}) for p in pooled]
    return (done[0], done[1]) if mask else done[0]


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
    """Maximum over sliding windows.

    Args:
        x: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats.
        kernel_size: An int, or one per axis.
        stride: The same; the kernel size if ``None``.
        padding: An int, ``[h, w]``, ``[top, bottom, left, right]``, pairs per axis, ``"SAME"`` or ``"VALID"``; padding
            counts as minus infinity.
        return_mask: Also return the places ``row * w + column`` of the maxima, int32.
        ceil_mode: Whether a last window may hang over the end. A window that holds only padding gives minus infinity
            (at place -1), and 0 as an average.
        data_format: Where channels stand.
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
    check_variable(x, "x", "max_pool2d")
    check_format(data_format, ("NCHW", "NHWC"), "max_pool2d")
    check_flag(ceil_mode, "ceil_mode", "max_pool2d")
    attrs = _sliding(kernel_size, stride, padding, 2, is_last(data_format), "max_pool2d")
    attrs["ceil_mode"] = ceil_mode
    if return_mask:
        if is_last(data_format):
            raise ShapeError(
                "When setting return_mask to true, data_format must be set to NCHW",
                expected="'NCHW'",
                received=repr(data_format),
                fix="transpose to NCHW first, or leave return_mask at False",
                op="max_pool2d",
            )
        return _with_index(x, attrs, "max_pool2d", name)
    out: Variable = emit("pool2d", {"X": x}, {**attrs, "pooling_type": "max", "data_format": data_format}, name=name)
    return out


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
    """Average over sliding windows.

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
    check_variable(x, "x", "avg_pool2d")
    check_format(data_format, ("NCHW", "NHWC"), "avg_pool2d")
    check_flag(ceil_mode, "ceil_mode", "avg_pool2d")
    check_flag(exclusive, "exclusive", "avg_pool2d")
    attrs = _sliding(kernel_size, stride, padding, 2, is_last(data_format), "avg_pool2d")
    attrs |= {
        "ceil_mode": ceil_mode,
        "exclusive": exclusive and divisor_override is None,
        "pooling_type": "avg",
        "data_format": data_format,
    }
    out: Variable = emit("pool2d", {"X": x}, attrs, name=name)
    if divisor_override is None:
        return out
    factor = attrs["ksize"][0] * attrs["ksize"][1] / divisor_override
    scaled: Variable = emit("scale", {"X": out}, {"scale": factor})
    return scaled


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
    """Maximum over sliding windows of ``[n, c, length]``; see :func:`max_pool2d`.

    Returns:
        ``[n, c, out length]``, or that and the places of the maxima.

    Example:
        >>> x = paddle.to_tensor([[[1.0, 3.0, 2.0, 4.0]]])
        >>> y = paddle.nn.functional.max_pool1d(x, kernel_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[3., 4.]]], dtype=float32)
    """
    check_variable(x, "x", "max_pool1d")
    check_flag(ceil_mode, "ceil_mode", "max_pool1d")
    attrs = _sliding(kernel_size, stride, padding, 1, False, "max_pool1d")
    attrs["ceil_mode"] = ceil_mode
    return _flat(x, attrs, return_mask, "max_pool1d", name)


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
    """Average over sliding windows of ``[n, c, length]``; see :func:`avg_pool2d`.

    Returns:
        ``[n, c, out length]``.

    Example:
        >>> x = paddle.to_tensor([[[1.0, 3.0, 2.0, 4.0]]])
        >>> y = paddle.nn.functional.avg_pool1d(x, kernel_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[2., 3.]]], dtype=float32)
    """
    check_variable(x, "x", "avg_pool1d")
    check_flag(ceil_mode, "ceil_mode", "avg_pool1d")
    check_flag(exclusive, "exclusive", "avg_pool1d")
    attrs = _sliding(kernel_size, stride, padding, 1, False, "avg_pool1d")
    attrs |= {"ceil_mode": ceil_mode, "exclusive": exclusive, "pooling_type": "avg"}
    out = _flat(x, attrs, False, "avg_pool1d", name)
    assert isinstance(out, Variable)
    return out


# ------------------------------------------------------------------------------------------------------------ adaptive
def _output_size(x: Variable, output_size: Any, rank: int, data_format: str, function: str) -> tuple[int, ...]:
    """Output sizes; ``None`` keeps the input's."""
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
    values = int_list(output_size, rank, "output_size", function)
    if min(values) <= 0:
        raise ShapeError(
            f"output_size of {function} must be positive",
            expected="sizes of at least 1",
            received=list(values),
            fix="choose positive sizes",
            op=function,
        )
    return values if rank == 2 else (1, *values)


@export("nn.functional.adaptive_avg_pool2d", op="pool2d")
def adaptive_avg_pool2d(x: Variable, output_size: Any, data_format: str = "NCHW", name: str | None = None) -> Variable:
    """Average over windows that share the input: window i covers ``floor(i h / oh)`` to ``ceil((i + 1) h / oh)``.

    Args:
        x: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``), floats.
        output_size: An int, or one per axis; ``None`` keeps an axis.
        data_format: Where channels stand.
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
    check_variable(x, "x", "adaptive_avg_pool2d")
    check_format(data_format, ("NCHW", "NHWC"), "adaptive_avg_pool2d")
    size = _output_size(x, output_size, 2, data_format, "adaptive_avg_pool2d")
    attrs = {"ksize": size, "adaptive": True, "pooling_type": "avg", "data_format": data_format}
    out: Variable = emit("pool2d", {"X": x}, attrs, name=name)
    return out


@export("nn.functional.adaptive_max_pool2d", op="pool2d")
def adaptive_max_pool2d(x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None) -> Pooled:
    """Maximum over windows that share the input; see :func:`adaptive_avg_pool2d`.

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
    check_variable(x, "x", "adaptive_max_pool2d")
    size = _output_size(x, output_size, 2, "NCHW", "adaptive_max_pool2d")
    attrs = {"ksize": size, "adaptive": True}
    if return_mask:
        return _with_index(x, attrs, "adaptive_max_pool2d", name)
    out: Variable = emit("pool2d", {"X": x}, {**attrs, "pooling_type": "max"}, name=name)
    return out


@export("nn.functional.adaptive_avg_pool1d", op="pool2d")
def adaptive_avg_pool1d(x: Variable, output_size: Any, name: str | None = None) -> Variable:
    """Average over windows that share ``[n, c, length]``; see :func:`adaptive_avg_pool2d`.

    Returns:
        ``[n, c, output_size]``.

    Example:
        >>> x = paddle.to_tensor([[[1.0, 3.0, 2.0, 4.0]]])
        >>> y = paddle.nn.functional.adaptive_avg_pool1d(x, output_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[2., 3.]]], dtype=float32)
    """
    check_variable(x, "x", "adaptive_avg_pool1d")
    size = _output_size(x, output_size, 1, "NCL", "adaptive_avg_pool1d")
    attrs = {"ksize": size, "adaptive": True, "pooling_type": "avg"}
    out = _flat(x, attrs, False, "adaptive_avg_pool1d", name)
    assert isinstance(out, Variable)
    return out


@export("nn.functional.adaptive_max_pool1d", op="pool2d")
def adaptive_max_pool1d(x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None) -> Pooled:
    """Maximum over windows that share ``[n, c, length]``; see :func:`adaptive_max_pool2d`.

    Returns:
        ``[n, c, output_size]``, or that and the places of the maxima.

    Example:
        >>> x = paddle.to_tensor([[[1.0, 3.0, 2.0, 4.0]]])
        >>> y = paddle.nn.functional.adaptive_max_pool1d(x, output_size=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[3., 4.]]], dtype=float32)
    """
    check_variable(x, "x", "adaptive_max_pool1d")
    size = _output_size(x, output_size, 1, "NCL", "adaptive_max_pool1d")
    return _flat(x, {"ksize": size, "adaptive": True}, return_mask, "adaptive_max_pool1d", name)
