"""Functions of several reductions: norms over any axes, variance, and values divided by their norm."""

from __future__ import annotations

import math
from typing import Any

from tstatic.errors import ProgramError
from tstatic.ir.build import LayerNamer, check_variable
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.reduce._reduce import axis_attr, known_count, reduced_axes
from tstatic.ops.shape._shapes import emit_one


@export("tensor.norm", "Variable.norm")
def norm(
    x: Variable, p: float | str = "fro", axis: Any = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Returns the vector norm of order ``p`` over axes: ``sum(abs(x) ** p) ** (1 / p)``.

    Args:
        x: Floats of any shape.
        p: ``"fro"`` (2), a number, or infinity (the largest magnitude; the smallest for minus infinity).
        axis: An int, one or two ints in a list, or ``None`` for all axes.
        keepdim: Keep reduced axes with size 1.
        name: Name of the layer.

    Raises:
        ProgramError: For another ``p``, more than two axes, or order 0 over two axes.
    """
    check_variable(x, "x", "norm")
    axes = axis_attr(axis, "norm")
    if isinstance(p, str) and p != "fro":
        raise _refuse("the order of a norm is not a number", "'fro' or a number", repr(p), "pass p='fro' or p=2", x)
    if len(axes) > 2 or (len(axes) == 2 and p == 0):
        raise _refuse(
            "this norm is taken over too many axes", "at most two axes, one for p=0", list(axes), "flatten x", x
        )
    if p == "fro" and len(axes) != 1:
        attrs = {"dim": axes or (0,), "keep_dim": keepdim, "reduce_all": not axes}
        return emit_one("frobenius_norm", {"X": x}, attrs, name=name)
    order = 2.0 if isinstance(p, str) else float(p)
    if len(axes) < 2:
        attrs = {"porder": order, "axis": axes[0] if axes else -1, "keepdim": keepdim, "asvector": not axes}
        return emit_one("p_norm", {"X": x}, attrs, name=name)
    helper = LayerNamer("norm", name)
    reduce = {"dim": axes, "keep_dim": keepdim}
    size = helper.emit("abs", {"X": x})
    result: Variable
    if math.isinf(order):
        result = helper.emit("reduce_amax" if order > 0 else "reduce_amin", {"X": size}, reduce)
    else:
        total = helper.emit("reduce_sum", {"X": helper.emit("pow", {"X": size}, {"factor": order})}, reduce)
        result = helper.emit("pow", {"X": total}, {"factor": 1.0 / order})
    return result


def _refuse(what: str, expected: str, received: Any, fix: str, x: Variable) -> ProgramError:
    return ProgramError(what, expected=expected, received=received, fix=fix, op="norm", var=x.name)


@export("tensor.dist", "Variable.dist")
def dist(x: Variable, y: Variable, p: float = 2, name: str | None = None) -> Variable:
    """Returns the norm ``[]`` of order ``p`` of ``x - y``, which broadcast."""
    ins = {"X": check_variable(x, "x", "dist"), "Y": check_variable(y, "y", "dist")}
    return norm(emit_one("elementwise_sub", ins), float(p), name=name)


# ------------------------------------------------------------------------------------------------------------ variance
def _freedom(helper: LayerNamer, x: Variable, out: Variable) -> Variable:
    """``1 / max(n - 1, 1)`` in the dtype of ``x`` when the number ``n`` of elements is known at run time only."""
    wide = {"out_dtype": x.dtype.compute}
    counts = [helper.emit("cast", {"X": helper.emit("size", {"Input": v})}, wide) for v in (x, out)]
    count = helper.emit("elementwise_div", {"X": counts[0], "Y": counts[1]})
    less = helper.emit("clip", {"X": helper.emit("scale", {"X": count}, {"bias": -1.0})}, {"min": 1.0, "max": math.inf})
    found: Variable = helper.emit("reciprocal", {"X": less})
    found.stop_gradient = True
    return found


def _variance(helper: LayerNamer, x: Variable, axis: Any, unbiased: bool, keepdim: bool) -> Variable:
    dim = axis_attr(axis, helper.prefix)
    axes = reduced_axes(len(x.shape), dim, not dim)
    reduce = {"dim": dim or (0,), "reduce_all": not dim}
    center = helper.emit("reduce_mean", {"X": x}, {**reduce, "keep_dim": True})
    square = helper.emit("square", {"X": helper.emit("elementwise_sub", {"X": x, "Y": center})})
    result: Variable
    if not unbiased:
        result = helper.emit("reduce_mean", {"X": square}, {**reduce, "keep_dim": keepdim})
        return result
    total: Variable = helper.emit("reduce_sum", {"X": square}, {**reduce, "keep_dim": keepdim})
    count = known_count(x, axes)
    if count != UNKNOWN:
        result = helper.emit("scale", {"X": total}, {"scale": 1.0 / max(count - 1, 1)})
        return result
    factor = _freedom(helper, x, total)
    if x.dtype.is_low:
        factor = helper.emit("cast", {"X": factor}, {"out_dtype": x.dtype})
    result = helper.emit("elementwise_mul", {"X": total, "Y": factor})
    return result


@export("tensor.var", "Variable.var")
def var(
    x: Variable, axis: Any = None, unbiased: bool = True, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Returns the variance over axes: the mean of squared distances from the mean.

    Args:
        x: Floats of any shape.
        axis: An int, a list of ints, or ``None`` for all axes.
        unbiased: Divide by the number of elements less one (at least 1) instead of the number.
        keepdim: Keep reduced axes with size 1.
        name: Name of the layer.
    """
    check_variable(x, "x", "var")
    helper = LayerNamer("var", name)
    return _variance(helper, x, axis, unbiased, keepdim)


@export("tensor.std", "Variable.std")
def std(
    x: Variable, axis: Any = None, unbiased: bool = True, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Returns the square root of :func:`var`."""
    check_variable(x, "x", "std")
    helper = LayerNamer("std", name)
    result: Variable = helper.emit("sqrt", {"X": _variance(helper, x, axis, unbiased, keepdim)})
    return result


# ------------------------------------------------------------------------------------------------------- normalisation
@export("fluid.layers.l2_normalize")
def l2_normalize(x: Variable, axis: int, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """Returns ``x / sqrt(sum(x * x) + epsilon)`` along an axis; the shape of ``x``."""
    check_variable(x, "x", "l2_normalize")
    helper = LayerNamer("l2_normalize", name)
    square = helper.emit("square", {"X": x})
    total = helper.emit("reduce_sum", {"X": square}, {"dim": (axis,), "keep_dim": True})
    size = helper.emit("sqrt", {"X": helper.emit("scale", {"X": total}, {"bias": float(epsilon)})})
    result: Variable = helper.emit("elementwise_div", {"X": x, "Y": size})
    return result


@export("nn.functional.normalize")
def normalize(x: Variable, p: float = 2, axis: int = 1, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """Returns ``x`` divided by its norm of order ``p`` along an axis, or by ``epsilon`` if that is larger."""
    check_variable(x, "x", "normalize")
    helper = LayerNamer("normalize", name)
    size = helper.emit(
        "p_norm", {"X": x}, {"porder": float(p), "axis": axis if len(x.shape) > 1 else 0, "keepdim": True}
    )
    least = helper.emit("clip", {"X": size}, {"min": float(epsilon), "max": math.inf})
    result: Variable = helper.emit("elementwise_div", {"X": x, "Y": least})
    return result
