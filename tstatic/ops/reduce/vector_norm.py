"""Norms, variance, and values divided by their norm or clipped by it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir.build import LayerNamer, check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.shape_checks import check_elements
from tstatic.ir.types import UNKNOWN, Meta, bool_
from tstatic.ops.base.call_ref import CallRef, float_scratch
from tstatic.ops.base.low import flat_parts, square_sum, store, torch_sign, torch_wide
from tstatic.ops.base.one_input import infer_float
from tstatic.ops.base.shapes import emit_one, view_of
from tstatic.ops.base.sum import dot_calls, dot_scratch, sum_calls, sum_scratch
from tstatic.ops.reduce import _reduce_onnx as _onnx
from tstatic.ops.reduce._reduce import (
    Over,
    axis_attr,
    known_count,
    reduced_axes,
    reduced_shape,
    spread,
)
from tstatic.ops.shape.when_run import by_axis

_BY_DIM = Over()
_BY_AXIS = Over("axis", "keepdim", "asvector")


# ------------------------------------------------------------------------------------------------------ frobenius_norm
def _scratch_metas(x: Meta, out: Meta, axes: Sequence[int]) -> tuple[Meta, ...]:
    return float_scratch(x, x.shape), *sum_scratch(x, axes)


def _frobenius_calls(x: Any, out: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
    return [(np.multiply, (x, x, scratch[0])), *sum_calls(scratch[0], axes, out, scratch[1:]), (np.sqrt, (out, out))]


def _ratio(dout: Any, out: Any, result: Any) -> None:
    """Computes ``dout / out``, and 0 where the norm is 0: the subgradient of least length."""
    np.true_divide(dout, out, result)
    np.copyto(result, 0, where=out == 0)


def _frobenius_grad_scratch_metas(x: Meta, out: Meta, dout: Meta, dx: Meta, axes: Sequence[int]) -> tuple[Meta, ...]:
    return (float_scratch(out, out.shape),)


def _frobenius_grad_calls(x: Any, out: Any, dout: Any, dx: Any, axes: Sequence[int], scratch: Sequence[Any]) -> Calls:
    if dx.size == 0:
        return []
    return [(_ratio, (dout, out, scratch[0])), (np.multiply, (x, spread(scratch[0], x.shape, axes), dx))]


def _norm_lower(torch: Any, x: Any, axes: Sequence[int], attrs: Mapping[str, Any]) -> Any:
    order = attrs.get("porder", 2.0)
    # Over no axes the norm is abs(x), but of order 0 a count.
    if order == 0 and not axes:
        return (x != 0).to(x.dtype)
    return _torch_norm(torch, torch_wide(x), order, axes).to(x.dtype)


def _torch_norm(torch: Any, wide: Any, order: float, axes: Sequence[int]) -> Any:
    """Returns the norm with the axes kept."""
    single = all(wide.shape[axis] == 1 for axis in axes)
    if not single or order in (0, 1) or math.isinf(order):
        return torch.linalg.vector_norm(wide, order, tuple(axes), keepdim=True) if axes else wide.abs()
    # Of a single number torch returns the absolute value; its power overflows here, as in Paddle.
    return (wide * wide).sqrt() if order == 2 else wide.abs().pow(order).pow(1 / order)


def _norm_grad_lower(torch: Any, x: Any, out: Any, dout: Any, axes: Sequence[int], attrs: Mapping[str, Any]) -> Any:
    """As :func:`_p_grad`, from a norm that is not rounded to 16 bits."""
    order = attrs.get("porder", 2.0)
    if order == 0:
        return torch.zeros_like(x)
    wide, arrived = torch_wide(x), torch_wide(dout)
    if order == 1:
        return (torch_sign(torch, wide) * arrived).to(x.dtype)
    norm = _torch_norm(torch, wide, order, axes)
    if math.isinf(order):
        largest = wide.abs() == norm
        # Equal extrema share the gradient, as in the reference.
        shared = arrived / largest.sum(tuple(axes), keepdim=True).clamp(min=1) if axes else arrived
        return torch.where(largest, torch_sign(torch, wide) * shared, 0).to(x.dtype)
    if order == 2:
        return (wide * torch.where(norm == 0, 0, arrived / norm)).to(x.dtype)
    # A ratio to the norm, as in the reference: abs(x) ** (order - 1) alone overflows for large orders.
    slope = torch_sign(torch, wide) * (wide.abs() / norm).pow(order - 1) * arrived
    return torch.where((wide == 0) | (norm == 0), 0, slope).to(x.dtype)


register(OpDef(
    "frobenius_norm", "X -> Out", lod="X", attrs={"dim": Attr((0,), "ints"), "keep_dim": False, "reduce_all": False},
    infer=lambda x, **attrs: infer_float(x).with_shape(_BY_DIM.shape(x.shape, attrs)),
    ref=_BY_DIM.ref(_frobenius_calls, _scratch_metas), lower=_BY_DIM.lower(_norm_lower), split=_BY_DIM.split(),
    grad=GradOp(
        "X, Out, Out@GRAD -> X@GRAD", ref=_BY_DIM.ref(_frobenius_grad_calls, _frobenius_grad_scratch_metas),
        lower=_BY_DIM.grad_lower(_norm_grad_lower),
    ),
    amp="black", uses_blas=True,
    domain=Domain(
        cases=(
            Case(((3, 4),), {"dim": (0, 1)}), Case(((2, 3, 4),), {"dim": (1, -1), "keep_dim": True}),
            Case(((2, 3, 4),), {"reduce_all": True}), Case(((2, 3, 4),), {"dim": (0, 2)}),
            Case(((1, 1),), {"dim": (0, 1)}), Case(((),), {"reduce_all": True}), Case(((0, 3),), {"dim": (0,)}),
            Case(((2, 700),), {"dim": (1,)}),
        ),
        values={"X": ValueRange(avoid=(0.0,))}, ulps=12.0,
    ), onnx=_onnx.over(_onnx.frobenius, _BY_DIM),
))  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- p_norm
def _p_infer(x: Meta, porder: float, **attrs: Any) -> Meta:
    infer_float(x)
    if porder < 0 or math.isinf(porder):
        check_elements(x, _BY_AXIS.axes(x.rank, attrs), f"the norm of order {porder}")
    return x.with_shape(_BY_AXIS.shape(x.shape, attrs))


def _p_calls(x: Any, out: Any, axes: tuple[int, ...], scratch: Sequence[Any], *, porder: float) -> Calls:
    work = scratch[0]
    total = sum_calls(work, axes, out, scratch[1:])
    if porder == 0:
        return [(np.not_equal, (x, 0, work)), *total]
    if math.isinf(porder):
        extremum = np.maximum if porder > 0 else np.minimum
        return [
            (np.absolute, (x, work)),
            (extremum.reduce, (work, axes, None, out.reshape(reduced_shape(x.shape, axes)))),
        ]
    if porder == 2:
        return [(np.multiply, (x, x, work)), *total, (np.sqrt, (out, out))]
    if porder == 1:
        return [(np.absolute, (x, work)), *total]
    order, inverse = np.asarray(porder, x.dtype), np.asarray(1.0 / porder, x.dtype)
    return [(np.absolute, (x, work)), (np.power, (work, order, work)), *total, (np.power, (out, inverse, out))]


def _p_grad_scratch_metas(x: Meta, out: Meta, dout: Meta, dx: Meta, axes: Sequence[int]) -> tuple[Meta, ...]:
    return Meta(x.shape, bool_), float_scratch(x, out.shape), float_scratch(x, x.shape)


def _p_grad_calls(
    x: Any, out: Any, dout: Any, dx: Any, axes: tuple[int, ...], scratch: Sequence[Any], *, porder: float
) -> Calls:
    if dx.size == 0:
        return []
    return [(np.copyto, (dx, 0)) if porder == 0 else (_p_grad, (x, out, dout, dx, porder, axes, *scratch))]


def _p_grad(
    x: Any, out: Any, dout: Any, dx: Any, order: float, axes: tuple[int, ...], mask: Any, share: Any, work: Any
) -> None:
    """Computes ``sign(x) * (abs(x) / out) ** (order - 1) * dout``; 0 where the norm is 0; equal extrema share the gradient."""
    wide, seed = spread(out, x.shape, axes), spread(share, x.shape, axes)
    np.sign(x, dx)
    if math.isinf(order):
        np.absolute(x, work)
        np.equal(work, wide, out=mask)
        count = np.add.reduce(mask, axes, np.int64, keepdims=True)
        np.copyto(seed, spread(dout, x.shape, axes))
        np.true_divide(seed, np.maximum(count, 1), out=seed, casting="unsafe")
        np.multiply(dx, seed, dx)
        np.copyto(dx, 0, where=~mask)
        return
    if order == 2:
        _ratio(dout, out, share)
        np.multiply(x, seed, dx)
        return
    if order == 1:
        np.multiply(dx, spread(dout, x.shape, axes), dx)
        return
    np.absolute(x, work)
    # abs(x) / norm is at most 1, so its power cannot overflow.
    np.true_divide(work, wide, work)
    np.power(work, np.asarray(order - 1, x.dtype), work)
    np.multiply(work, dx, dx)
    np.multiply(dx, spread(dout, x.shape, axes), dx)
    # 0 to a negative power is infinite, and NaN times the sign 0.
    np.equal(x, 0, out=mask)
    np.copyto(dx, 0, where=mask)
    np.copyto(dx, 0, where=np.broadcast_to(wide == 0, x.shape))


def _p_onnx(g: Any, x: Any, **attrs: Any) -> Any:
    return _onnx.over(partial(_onnx.p_norm, porder=attrs["porder"]), _BY_AXIS)(g, x, **attrs)


register(OpDef(
    "p_norm", "X -> Out",
    lod="X",
    attrs={
        "porder": 2.0, "axis": -1,
        "epsilon": Attr.idle(1e-12, "a norm of 0 has the gradient 0, so that nothing is divided by 0"),
        "keepdim": False, "asvector": False,
    },
    infer=_p_infer, ref=_BY_AXIS.ref(_p_calls, _scratch_metas), lower=_BY_AXIS.lower(_norm_lower),
    split=_BY_AXIS.split(),
    grad=GradOp(
        "X, Out, Out@GRAD -> X@GRAD", ref=_BY_AXIS.ref(_p_grad_calls, _p_grad_scratch_metas),
        lower=_BY_AXIS.grad_lower(_norm_grad_lower),
    ),
    amp="black", uses_blas=True,
    domain=Domain(
        cases=(
            Case(((3, 4),)), Case(((3, 4),), {"porder": 1.0, "axis": 0}),
            Case(((2, 3, 4),), {"porder": 3.0, "axis": 1, "keepdim": True}),
            Case(((2, 3, 4),), {"porder": math.inf, "axis": 1}), Case(((2, 3, 4),), {"porder": -math.inf, "axis": -1}),
            Case(((2, 3, 4),), {"porder": 0.5, "asvector": True}), Case(((2, 3, 4),), {"porder": 0.0, "axis": 2}),
            Case(((2, 3, 4),), {"porder": math.inf, "asvector": True, "keepdim": True}),
            Case(((5,),), {"porder": 2.5}), Case(((1, 1),), {"porder": 4.0}), Case(((3, 0),), {"porder": 2.0}),
            Case(((0, 3),), {"porder": 3.0, "axis": 1}), Case(((2, 700),), {"porder": 2.0}),
        ),
        # Of one sign, so that no two magnitudes tie.
        values={"X": ValueRange(0.1, 3.0, distinct=True)}, ulps=24.0,
    ), onnx=_p_onnx,
))  # fmt: skip


# ----------------------------------------------------------------------------------------------------- squared_l2_norm
def _squared_scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta]) -> tuple[Meta, ...]:
    return dot_scratch(ins[0].with_shape((ins[0].numel,)))


def _squared_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
    x, out = ins[0], outs[0]
    flat, total = view_of(x, (x.size,)), out.reshape(())
    return [(_squared_copy, (x, total, scratch))] if flat is None else dot_calls(flat, flat, total, scratch)


def _squared_copy(x: Any, out: Any, scratch: Sequence[Any]) -> None:
    """Adds up by way of a copy: for strides that cannot be walked in one run."""
    flat = np.array(x, order="C").reshape(-1)
    for function, args in dot_calls(flat, flat, out, scratch):
        function(*args)


def _squared_lower(torch: Any, x: Any) -> Any:
    # Added up, in float32 at least, without squares or a copy in memory.
    wide = torch.float32 if x.itemsize == 2 else x.dtype
    return torch.linalg.vector_norm(x, dtype=wide).square().reshape(1).to(x.dtype)


def _squared_grad_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
    x, dout = ins
    dx = outs[0]
    return [(np.multiply, (dout.reshape(()), np.asarray(2, dx.dtype), scratch[0])), (np.multiply, (x, scratch[0], dx))]


register(OpDef(
    "squared_l2_norm", "X -> Out", infer=lambda x: infer_float(x).with_shape((1,)),
    ref=CallRef(_squared_calls, _squared_scratch_metas),
    lower=_squared_lower,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", ref=CallRef(_squared_grad_calls, lambda ins, outs: (float_scratch(ins[0], ()),)),
        lower=lambda torch, x, dout: 2 * dout.reshape(()) * x,
    ),
    uses_blas=True,
    domain=Domain("unary", cases=(Case(((1300,),)), Case(((40, 40),))), ulps=16.0),
    onnx=lambda g, x: g("Reshape", g("ReduceSumSquare", g.wide(x), keepdims=0), g.ints([1])),
))  # fmt: skip


# --------------------------------------------------------------------------------------------------------- clip_by_norm
Array = np.ndarray[Any, Any]


def _ref(x: Array, out: Array, *, max_norm: float) -> None:
    # Blocks are summed in the type of x, as BLAS does, and their sums in float64.
    norm = math.sqrt(sum(square_sum(values) for _, values in flat_parts(x)))
    if not norm > max_norm:
        np.copyto(out, x)
        return
    factor = max_norm / norm
    for part, values in flat_parts(x):
        store(out, part, values * values.dtype.type(factor))


def _lower(torch: Any, x: Any, *, max_norm: float) -> Any:
    wide = torch_wide(x)
    norm = torch.linalg.vector_norm(wide.reshape(-1).double())
    factor = torch.where(norm > max_norm, max_norm / norm, 1.0).to(wide.dtype)
    return (wide * factor).to(x.dtype)


def _positive(value: float) -> str | None:
    return None if value > 0 else "a norm above 0"


register(OpDef(
    "clip_by_norm", "X -> Out", lod="X", attrs={"max_norm": Attr(kind="float", check=_positive)}, infer=infer_float, ref=_ref,
    lower=_lower, inplace=(("X", "Out"),),
    uses_blas=True,
    domain=Domain(
        "unary", attrs=({"max_norm": 0.5}, {"max_norm": 1e3}, {"max_norm": 3.0}),
        cases=(Case(((40000,),), {"max_norm": 10.0}),), ulps=8,
    ), onnx=_onnx.clip_by_norm,
))  # fmt: skip


@export("fluid.layers.clip_by_norm", "nn.clip_by_norm", op="clip_by_norm")
def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """Returns ``x * max_norm / |x|`` when the L2 norm ``|x|`` is above ``max_norm``, else ``x``; the shape of ``x``.

    Args:
        x: Floats of any shape.
        max_norm: The largest norm that the result may have, above 0.
        name: Name of the layer.
    """
    return emit_one("clip_by_norm", {"X": check_variable(x, "x", "clip_by_norm")}, {"max_norm": max_norm}, name=name)


# -------------------------------------------------------------------------------------- functions of several reductions
@export("tensor.norm", "Variable.norm", "linalg.norm")
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
    """Returns the norm ``[]`` of order ``p`` of ``x - y``, which broadcast.

    Args:
        x, y: Floats of shapes that broadcast.
        p: A number, or infinity.
        name: Name of the layer.
    """
    ins = {"X": check_variable(x, "x", "dist"), "Y": check_variable(y, "y", "dist")}
    return norm(emit_one("elementwise_sub", ins), float(p), name=name)


# ------------------------------------------------------------------------------------------------------------ variance
def _freedom(helper: LayerNamer, x: Variable, out: Variable) -> Variable:
    """Emits ``1 / max(n - 1, 1)`` in the dtype of ``x``, for a number ``n`` of elements that is known at run time only."""
    wide = {"out_dtype": x.dtype.compute}
    counts = [helper.emit("cast", {"X": helper.emit("size", {"Input": v})}, wide) for v in (x, out)]
    count = helper.emit("elementwise_div", {"X": counts[0], "Y": counts[1]})
    # At least 1, as in Paddle: the variance of one element is 0, where torch has NaN.
    less = helper.emit("clip", {"X": helper.emit("scale", {"X": count}, {"bias": -1.0})}, {"min": 1.0, "max": math.inf})
    found: Variable = helper.emit("reciprocal", {"X": less})
    found.stop_gradient = True
    return found


def _variance(helper: LayerNamer, x: Variable, axis: Any, unbiased: bool, keepdim: bool) -> Variable:
    dim = axis_attr(axis, helper.prefix)
    axes = reduced_axes(len(x.shape), dim, not dim)
    reduce = {"dim": dim or (0,), "reduce_all": not dim}
    # Two passes: the mean of squares less the squared mean cancels where the mean is large.
    center = helper.emit("reduce_mean", {"X": x}, {**reduce, "keep_dim": True})
    square = helper.emit("square", {"X": helper.emit("elementwise_sub", {"X": x, "Y": center})})
    result: Variable
    if not unbiased:
        result = helper.emit("reduce_mean", {"X": square}, {**reduce, "keep_dim": keepdim})
        return result
    total: Variable = helper.emit("reduce_sum", {"X": square}, {**reduce, "keep_dim": keepdim})
    count = known_count(x, axes)
    # A known number is a constant of the program; else it is counted when it runs.
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
        axis: An int, a list of ints, an integer Variable with one element, or ``None`` for all axes.
        unbiased: Divide by the number of elements less one (at least 1) instead of the number.
        keepdim: Keep reduced axes with size 1.
        name: Name of the layer.
    """
    check_variable(x, "x", "var")
    helper = LayerNamer("var", name)
    return by_axis(axis, len(x.shape), lambda at: _variance(helper, x, at, unbiased, keepdim), "var")


@export("tensor.std", "Variable.std")
def std(
    x: Variable, axis: Any = None, unbiased: bool = True, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Returns the square root of :func:`var`.

    Args:
        x: Floats of any shape.
        axis: An int, a list of ints, an integer Variable with one element, or ``None`` for all axes.
        unbiased: Divide by the number of elements less one (at least 1) instead of the number.
        keepdim: Keep reduced axes with size 1.
        name: Name of the layer.
    """
    check_variable(x, "x", "std")
    helper = LayerNamer("std", name)
    spread = by_axis(axis, len(x.shape), lambda at: _variance(helper, x, at, unbiased, keepdim), "std")
    result: Variable = helper.emit("sqrt", {"X": spread})
    return result


# ------------------------------------------------------------------------------------------------------- normalisation
@export("fluid.layers.l2_normalize")
def l2_normalize(x: Variable, axis: int, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """Returns ``x / sqrt(sum(x * x) + epsilon)`` along an axis; the shape of ``x``.

    Args:
        x: Floats of any shape.
        axis: Which axis.
        epsilon: Added to the sum of squares; a vector of zeros stays zero.
        name: Name of the layer.
    """
    check_variable(x, "x", "l2_normalize")
    helper = LayerNamer("l2_normalize", name)
    square = helper.emit("square", {"X": x})
    total = helper.emit("reduce_sum", {"X": square}, {"dim": (axis,), "keep_dim": True})
    size = helper.emit("sqrt", {"X": helper.emit("scale", {"X": total}, {"bias": float(epsilon)})})
    result: Variable = helper.emit("elementwise_div", {"X": x, "Y": size})
    return result


@export("nn.functional.normalize")
def normalize(x: Variable, p: float = 2, axis: int = 1, epsilon: float = 1e-12, name: str | None = None) -> Variable:
    """Returns ``x`` divided by its norm of order ``p`` along an axis, or by ``epsilon`` if that is larger.

    Args:
        x: Floats of any shape.
        p: A number, or infinity.
        axis: Which axis; a vector has the axis 0.
        epsilon: The least divisor.
        name: Name of the layer.
    """
    check_variable(x, "x", "normalize")
    helper = LayerNamer("normalize", name)
    size = helper.emit(
        "p_norm", {"X": x}, {"porder": float(p), "axis": axis if len(x.shape) > 1 else 0, "keepdim": True}
    )
    # A bound, not a summand as in `l2_normalize`: Paddle has both.
    least = helper.emit("clip", {"X": size}, {"min": float(epsilon), "max": math.inf})
    result: Variable = helper.emit("elementwise_div", {"X": x, "Y": least})
    return result
