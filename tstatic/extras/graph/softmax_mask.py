"""Softmax of masked scores, and a loss as it is: functions of Paddle's ``incubate``."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_choice, check_rank
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.arithmetic import add
from tstatic.ops.elementwise.scale import scale
from tstatic.ops.norm.softmax import softmax
from tstatic.ops.reduce.reduction import mean, sum
from tstatic.ops.shape.creation import ones, ones_like
from tstatic.ops.shape.diagonal import tril


@export("incubate.softmax_mask_fuse")
def softmax_mask_fuse(x: Variable, mask: Variable, name: str | None = None) -> Variable:
    """Returns the softmax of ``x + mask`` along the last axis.

    Args:
        x: Scores ``[batch, heads, rows, columns]``.
        mask: What is added, ``[batch, 1, rows, columns]``: 0, or a large negative number where a score does not count.
        name: Name of the layer.
    """
    check_variable(x, "x", "softmax_mask_fuse", FLOATS)
    return softmax(add(x, check_variable(mask, "mask", "softmax_mask_fuse", FLOATS)), name=name)


@export("incubate.softmax_mask_fuse_upper_triangle")
def softmax_mask_fuse_upper_triangle(x: Variable) -> Variable:
    """Returns the softmax of scores along the last axis, in which a row sees the columns up to its own.

    Args:
        x: Scores ``[batch, heads, rows, rows]``.

    Example:
        >>> y = paddle.incubate.softmax_mask_fuse_upper_triangle(paddle.zeros([1, 1, 2, 2]))
        >>> static.Executor().run(fetch_list=[y])[0][0, 0]
        array([[1. , 0. ],
               [0.5, 0.5]], dtype=float32)
    """
    check_variable(x, "x", "softmax_mask_fuse_upper_triangle", FLOATS)
    check_rank(x, 4, "x", layout="[batch, heads, rows, rows]")
    far = float(ml_dtypes.finfo(x.dtype.np).max) / 2
    # 0 in the lower triangle, and a number that no score reaches above it; a constant where the lengths are known.
    sizes = list(x.shape[-2:])
    seen = ones_like(x) if UNKNOWN in sizes else ones([1, 1, *sizes], x.dtype)
    return softmax(add(x, scale(tril(seen), far, bias=-far)))


@export("incubate.identity_loss")
def identity_loss(x: Variable, reduction: Any = "none") -> Variable:
    """Returns a loss as it is, or its sum or mean, which marks it as the loss.

    Args:
        x: Floats of any shape.
        reduction: ``"none"`` or 2, ``"sum"`` or 0, ``"mean"`` or 1.

    Raises:
        ProgramError: For another reduction.
    """
    check_variable(x, "x", "identity_loss", FLOATS)
    check_choice(reduction, ("sum", "mean", "none", 0, 1, 2), "reduction", "identity_loss")
    if reduction in ("none", 2):
        return emit_one("assign", {"X": x}, prefix="identity_loss")
    return sum(x) if reduction in ("sum", 0) else mean(x)
