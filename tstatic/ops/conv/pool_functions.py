"""Public functions of pooling over one and two axes, of Paddle 2.x and 1.x."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ShapeError, UnsupportedError
from tstatic.ir.build import LayerNamer, check_variable, emit
from tstatic.ir.checks import check_choice, check_ints, check_sizes, check_type
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.no_effect import LIBRARY, no_effect
from tstatic.ops.conv._sliding import LAYOUTS_BY_RANK, is_last, on_images, padding_of, spatial
from tstatic.ops.shape._shapes import emit_one

Pooled = Variable | tuple[Variable, Variable]


def _window(
    function: str, rank: int, x: Variable, size: Any, stride: Any, padding: Any, data_format: str, **flags: Any
) -> dict[str, Any]:
    """Returns the attributes of sliding windows after checking the arguments; sequences have the layout of images."""
    check_variable(x, "x", function)
    check_choice(data_format, LAYOUTS_BY_RANK[2], "data_format", function, error=ShapeError)
    for name, value in flags.items():
        check_type(value, bool, name, function)
    kernel = check_ints(size, rank, "kernel_size", function)
    strides = kernel if stride is None else check_ints(stride, rank, "stride", function)
    paddings, algorithm = padding_of(padding, rank, is_last(data_format), function)
    windows = {"ksize": kernel, "strides": strides, "paddings": paddings, "padding_algorithm": algorithm}
    return {**windows, **flags, "data_format": data_format}


def _adaptive(function: str, rank: int, x: Variable, output_size: Any, data_format: str = "NCHW") -> dict[str, Any]:
    """Returns the attributes of adaptive windows after checking the arguments; a size of ``None`` keeps the input's."""
    check_variable(x, "x", function)
    check_choice(data_format, LAYOUTS_BY_RANK[2], "data_format", function, error=ShapeError)
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
    if rank == 2:
        return emit(type, {"X": x}, attrs, name=name)
    helper = LayerNamer(function, name)
    image = helper.emit("unsqueeze2", {"X": x}, {"axes": (2,)})
    pooled = emit(type, {"X": image}, on_images(attrs))
    if isinstance(pooled, Variable):
        return helper.emit("squeeze2", {"X": pooled}, {"axes": (2,)})
    return tuple(helper.emit("squeeze2", {"X": p}, {"axes": (2,)}) for p in pooled)


def _average(function: str, rank: int, x: Variable, attrs: dict[str, Any], name: str | None) -> Variable:
    out: Variable = _emit(function, rank, "pool2d", x, {**attrs, "pooling_type": "avg"}, name)
    return out


def _maximum(function: str, rank: int, x: Variable, attrs: dict[str, Any], mask: bool, name: str | None) -> Pooled:
    """Emits a maximum pooling; with ``mask`` the op that also returns places, whose paddings are numbers."""
    found: Pooled
    if not mask:
        found = _emit(function, rank, "pool2d", x, {**attrs, "pooling_type": "max"}, name)
        return found
    if is_last(attrs.pop("data_format")):
        raise ShapeError(
            "When setting return_mask to true, data_format must be set to NCHW",
            expected="'NCHW'",
            received="'NHWC'",
            fix="transpose to NCHW first, or leave return_mask at False",
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
    found = _emit(function, rank, "max_pool2d_with_index", x, attrs, name)
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
    if divisor_override is None:
        return _average("avg_pool2d", 2, x, attrs, name)
    out = _average("avg_pool2d", 2, x, {**attrs, "exclusive": False}, name)
    factor = attrs["ksize"][0] * attrs["ksize"][1] / divisor_override
    return emit_one("scale", {"X": out}, {"scale": factor})


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
    return _maximum("adaptive_max_pool2d", 2, x, _adaptive("adaptive_max_pool2d", 2, x, output_size), return_mask, name)


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
    return _average("adaptive_avg_pool1d", 1, x, _adaptive("adaptive_avg_pool1d", 1, x, output_size), name)


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
    return _maximum("adaptive_max_pool1d", 1, x, _adaptive("adaptive_max_pool1d", 1, x, output_size), return_mask, name)


# --------------------------------------------------------------------------------------------------------- names of 1.x
@no_effect(use_cudnn=LIBRARY)
@export("fluid.layers.pool2d", op="pool2d")
def pool2d(
    input: Variable,
    pool_size: Any = -1,
    pool_type: str = "max",
    pool_stride: Any = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Pools by maximum or average under the names of Paddle 1.x.

    Args:
        input: ``[n, c, h, w]`` or ``[n, h, w, c]``, floats.
        pool_size: An int, or one per axis; needed unless ``global_pooling``.
        pool_type: ``"max"`` or ``"avg"``.
        pool_stride, pool_padding, ceil_mode, exclusive, data_format: As in ``nn.functional.avg_pool2d``.
        global_pooling: One window over the whole image.
        name: The layer's name.

    Returns:
        ``[n, c, oh, ow]`` in the layout of ``input``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = fluid.layers.data("x", shape=[1, 2, 4])
        >>> y = fluid.layers.pool2d(x, pool_size=2, pool_type="avg", pool_stride=2)
        >>> static.Executor().run(feed={"x": np.arange(8, dtype="float32").reshape(1, 1, 2, 4)}, fetch_list=[y])[0]
        array([[[[2.5, 4.5]]]], dtype=float32)
    """
    check_variable(input, "input", "pool2d")
    check_choice(pool_type, ("max", "avg"), "pool_type", "pool2d", error=ShapeError)
    check_type(ceil_mode, bool, "ceil_mode", "pool2d")
    check_type(global_pooling, bool, "global_pooling", "pool2d")
    check_choice(data_format, ("NCHW", "NHWC"), "data_format", "pool2d", error=ShapeError)
    if not global_pooling and pool_size == -1:
        raise ShapeError(
            "When Attr(global_pooling) is False, Attr(pool_size) must be passed and be a valid value",
            expected="an int or a list of ints",
            received="pool_size=-1",
            fix="pass pool_size, or global_pooling=True",
            op="pool2d",
        )
    paddings, algorithm = padding_of(pool_padding, 2, is_last(data_format), "pool2d")
    attrs = {
        "ksize": check_ints(pool_size, 2, "pool_size", "pool2d"),
        "strides": check_ints(pool_stride, 2, "pool_stride", "pool2d"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "pooling_type": pool_type,
        "global_pooling": global_pooling,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
        "data_format": data_format,
    }
    return emit_one("pool2d", {"X": input}, attrs, name=name)


@export("fluid.layers.adaptive_pool2d", op="pool2d")
def adaptive_pool2d(
    input: Variable, pool_size: Any, pool_type: str = "max", require_index: bool = False, name: str | None = None
) -> Pooled:
    """Pools over adaptive windows under the names of Paddle 1.x; see ``nn.functional.adaptive_avg_pool2d``.

    Args:
        input: ``[n, c, h, w]``, floats.
        pool_size: Rows and columns of windows: an int, or one per axis, of which ``None`` keeps the axis.
        pool_type: ``"max"`` or ``"avg"``.
        require_index: Also return the places ``row * w + column`` of the maxima, int32.
        name: Name of the layer.

    Returns:
        ``[n, c, *pool_size]``, or that and the places of the maxima with ``require_index``.

    Raises:
        ShapeError: For an unknown ``pool_type``, or ``require_index`` with averages.
    """
    check_variable(input, "input", "adaptive_pool2d")
    check_choice(pool_type, ("max", "avg"), "pool_type", "adaptive_pool2d", error=ShapeError)
    if pool_type == "avg":
        if require_index:
            raise ShapeError(
                "invalid setting 'require_index' true when 'pool_type' is 'avg'.",
                expected="require_index=False with averages",
                received="require_index=True",
                fix="leave require_index at False, or use pool_type='max'",
                op="adaptive_pool2d",
            )
        return adaptive_avg_pool2d(input, pool_size, name=name)
    return adaptive_max_pool2d(input, pool_size, require_index, name)
