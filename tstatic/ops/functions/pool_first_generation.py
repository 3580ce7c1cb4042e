"""Pooling under the names of Paddle 1.x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_choice, check_ints, check_type
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.respell import parameters_of
from tstatic.no_effect import LIBRARY, no_effect
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sliding import LAYOUTS_BY_RANK, is_last, padding_of
from tstatic.ops.functions.pool_functions import (
    Pooled,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
)


def _sliding(
    rank: int,
    input: Variable,
    pool_size: Any,
    pool_type: str,
    pool_stride: Any,
    pool_padding: Any,
    global_pooling: bool,
    ceil_mode: bool,
    name: str | None,
    exclusive: bool,
    data_format: str,
) -> Variable:
    function = f"pool{rank}d"
    check_variable(input, "input", function)
    check_choice(pool_type, ("max", "avg"), "pool_type", function, error=ShapeError)
    check_type(ceil_mode, bool, "ceil_mode", function)
    check_type(global_pooling, bool, "global_pooling", function)
    check_choice(data_format, LAYOUTS_BY_RANK[rank], "data_format", function, error=ShapeError)
    # -1 means "not given", which only global pooling allows.
    if not global_pooling and pool_size == -1:
        raise ShapeError(
            "When Attr(global_pooling) is False, Attr(pool_size) must be passed and be a valid value",
            expected="an int or a list of ints",
            received="pool_size=-1",
            fix="pass pool_size, or global_pooling=True",
            op=function,
        )
    paddings, algorithm = padding_of(pool_padding, rank, is_last(data_format), function)
    attrs = {
        "ksize": check_ints(pool_size, rank, "pool_size", function),
        "strides": check_ints(pool_stride, rank, "pool_stride", function),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "pooling_type": pool_type,
        "global_pooling": global_pooling,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
        "data_format": data_format,
    }
    return emit_one(function, {"X": input}, attrs, name=name)


def _adaptive(
    function: str,
    averages: Callable[..., Variable],
    maxima: Callable[..., Pooled],
    input: Variable,
    pool_size: Any,
    pool_type: str,
    require_index: bool,
    name: str | None,
) -> Pooled:
    check_variable(input, "input", function)
    check_choice(pool_type, ("max", "avg"), "pool_type", function, error=ShapeError)
    if pool_type == "avg":
        if require_index:
            raise ShapeError(
                "invalid setting 'require_index' true when 'pool_type' is 'avg'.",
                expected="require_index=False with averages",
                received="require_index=True",
                fix="leave require_index at False, or use pool_type='max'",
                op=function,
            )
        return averages(input, pool_size, name=name)
    return maxima(input, pool_size, require_index, name)


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
    return _sliding(
        2, input, pool_size, pool_type, pool_stride, pool_padding, global_pooling, ceil_mode, name, exclusive, data_format
    )  # fmt: skip


@no_effect(use_cudnn=LIBRARY)
@export("fluid.layers.pool3d", op="pool3d")
@parameters_of(pool2d, data_format="NCDHW")
def pool3d(use_cudnn: Any, **given: Any) -> Variable:
    """Pools volumes by maximum or average under the names of Paddle 1.x.

    Args:
        input: ``[n, c, d, h, w]`` or ``[n, d, h, w, c]``, floats.
        pool_size: An int, or one per axis; needed unless ``global_pooling``.
        pool_type: ``"max"`` or ``"avg"``.
        pool_stride, pool_padding, ceil_mode, exclusive, data_format: As in ``nn.functional.avg_pool3d``.
        global_pooling: One window over the whole volume.
        name: The layer's name.

    Returns:
        ``[n, c, od, oh, ow]`` in the layout of ``input``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = fluid.layers.data("x", shape=[1, 2, 2, 2])
        >>> y = fluid.layers.pool3d(x, pool_size=2, pool_type="avg", pool_stride=2)
        >>> feed = {"x": np.arange(8, dtype="float32").reshape(1, 1, 2, 2, 2)}
        >>> static.Executor().run(feed=feed, fetch_list=[y])[0]
        array([[[[[3.5]]]]], dtype=float32)
    """
    return _sliding(3, **given)


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
    return _adaptive(
        "adaptive_pool2d", adaptive_avg_pool2d, adaptive_max_pool2d, input, pool_size, pool_type, require_index, name
    )  # fmt: skip


@export("fluid.layers.adaptive_pool3d", op="pool3d")
def adaptive_pool3d(
    input: Variable, pool_size: Any, pool_type: str = "max", require_index: bool = False, name: str | None = None
) -> Pooled:
    """Pools volumes over adaptive windows under the names of Paddle 1.x; see ``nn.functional.adaptive_avg_pool3d``.

    Args:
        input: ``[n, c, d, h, w]``, floats.
        pool_size: Windows along each axis: an int, or one per axis, of which ``None`` keeps the axis.
        pool_type: ``"max"`` or ``"avg"``.
        require_index: Also return the places ``(plane * h + row) * w + column`` of the maxima, int32.
        name: Name of the layer.

    Returns:
        ``[n, c, *pool_size]``, or that and the places of the maxima with ``require_index``.

    Raises:
        ShapeError: For an unknown ``pool_type``, or ``require_index`` with averages.
    """
    return _adaptive(
        "adaptive_pool3d", adaptive_avg_pool3d, adaptive_max_pool3d, input, pool_size, pool_type, require_index, name
    )  # fmt: skip
