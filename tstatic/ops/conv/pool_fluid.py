"""Pooling under the names of Paddle 1.x."""

from __future__ import annotations

from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.no_effect import LIBRARY, no_effect
from tstatic.ops.conv._sliding import int_list, is_last, padding_of
from tstatic.ops.conv.conv2d import check_format
from tstatic.ops.conv.pool_functions import Pooled, adaptive_avg_pool2d, adaptive_max_pool2d, check_flag


def _pool_type(pool_type: Any, function: str) -> None:
    if pool_type not in ("max", "avg"):
        raise ShapeError(
            f"Unknown Attr(pool_type): '{pool_type}'. It can only be 'max' or 'avg'.",
            expected="'max' or 'avg'",
            received=repr(pool_type),
            fix="choose one of the two",
            op=function,
        )


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
    """Maximum or average pooling under the names of Paddle 1.x.

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
    _pool_type(pool_type, "pool2d")
    check_flag(ceil_mode, "ceil_mode", "pool2d")
    check_flag(global_pooling, "global_pooling", "pool2d")
    check_format(data_format, ("NCHW", "NHWC"), "pool2d")
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
        "ksize": int_list(pool_size, 2, "pool_size", "pool2d"),
        "strides": int_list(pool_stride, 2, "pool_stride", "pool2d"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "pooling_type": pool_type,
        "global_pooling": global_pooling,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
        "data_format": data_format,
    }
    out: Variable = emit("pool2d", {"X": input}, attrs, name=name)
    return out


@export("fluid.layers.adaptive_pool2d", op="pool2d")
def adaptive_pool2d(
    input: Variable, pool_size: Any, pool_type: str = "max", require_index: bool = False, name: str | None = None
) -> Pooled:
    """Adaptive pooling under the names of Paddle 1.x; see ``nn.functional.adaptive_avg_pool2d``.

    Returns:
        ``[n, c, *pool_size]``, or that and the places of the maxima with ``require_index``.

    Raises:
        ShapeError: For an unknown ``pool_type``, or ``require_index`` with averages.
    """
    check_variable(input, "input", "adaptive_pool2d")
    _pool_type(pool_type, "adaptive_pool2d")
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
