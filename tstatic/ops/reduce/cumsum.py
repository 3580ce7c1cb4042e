"""Running sums and products along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.split import ELEMENTS, FREE, Split
from tstatic.ir.types import Meta, dtype_of, normalize_axis
from tstatic.ops.base.gradients import passed
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import Array, emit_one
from tstatic.ops.reduce import _reduce_onnx as _onnx
from tstatic.ops.shape.reshape import reshape_to
from tstatic.ops.shape.when_run import by_axis


# -------------------------------------------------------------------------------------------------------------- cumsum
def _infer(x: Meta, *, axis: int, flatten: bool) -> Meta:
    if flatten:
        return x.with_shape((x.numel,))
    normalize_axis(axis, x.rank)
    return x


def _line(array: Array, axis: int, start: int | None, stop: int | None, step: int = 1) -> Array:
    return array[(*[slice(None)] * axis, slice(start, stop, step))]


@in_float32()
def _ref(x: Array, out: Array, *, axis: int, flatten: bool, exclusive: bool, reverse: bool) -> None:
    if flatten:
        x, axis = x.reshape(-1), 0
    if x.ndim == 0:
        np.copyto(out, 0 if exclusive else x)
        return
    at = normalize_axis(axis, x.ndim)
    # Backwards views: the sum runs from the end, without a copy.
    if reverse:
        x, out = _line(x, at, None, None, -1), _line(out, at, None, None, -1)
    if not exclusive:
        np.add.accumulate(x, axis=at, dtype=_sum_type(out), out=out)
    elif x.shape[at]:
        # Exclusive: nothing comes before the first element.
        _line(out, at, 0, 1).fill(0)
        np.add.accumulate(_line(x, at, None, -1), axis=at, dtype=_sum_type(out), out=_line(out, at, 1, None))


def _sum_type(out: Array) -> Any:
    """Returns float64 for float32: a running sum of 20,000 numbers is then off by half an ulp instead of by a hundred."""
    return np.float64 if out.dtype == np.float32 else out.dtype


def _lower(torch: Any, x: Any, *, axis: int, flatten: bool, exclusive: bool, reverse: bool) -> Any:
    kind = x.dtype
    x = x.reshape(-1) if flatten else x
    axis = 0 if flatten else axis
    if x.dim() == 0:
        return torch.zeros_like(x) if exclusive else x.clone()
    # float64 sums: an oracle that does not share the rounding of a running sum.
    wide = x.double() if x.is_floating_point() else x.long()
    if reverse:
        wide = wide.flip(axis)
    if exclusive:
        # Shifted, not subtracted: an element that is infinite or NaN is in no sum before it.
        first = torch.zeros_like(wide.narrow(axis, 0, min(1, wide.shape[axis])))
        wide = torch.cat([first, wide.narrow(axis, 0, max(0, wide.shape[axis] - 1))], axis)
    total = wide.cumsum(axis)
    return (total.flip(axis) if reverse else total).to(kind)


def _grad(ctx: GradContext) -> list[OpSpec]:
    x = ctx.inputs["X"][0]
    names = passed(ctx)
    if names is None:
        return []
    arriving, wanted = names
    flatten = ctx.attrs["flatten"]
    attrs = {
        "axis": 0 if flatten else ctx.attrs["axis"],
        "exclusive": ctx.attrs["exclusive"],
        # An element goes into all sums behind it, so its gradient is a sum from the other end.
        "reverse": not ctx.attrs["reverse"],
    }
    if not flatten or ctx.meta(x).rank == 1:
        return [OpSpec("cumsum", {"X": [arriving]}, {"Out": [wanted]}, attrs)]
    line = ctx.fresh(wanted)
    return [OpSpec("cumsum", {"X": [arriving]}, {"Out": [line]}, attrs), reshape_to(ctx, x, line, wanted)]


register(OpDef(
    "cumsum", "X -> Out", lod="X", attrs={"axis": -1, "flatten": False, "exclusive": False, "reverse": False}, infer=_infer,
    ref=_ref, lower=_lower, split=Split(ELEMENTS, FREE, taken="axis", unless="flatten"), grad=_grad, amp="black",
    domain=Domain(
        cases=(
            Case(((3, 4),), {"axis": 0}), Case(((3, 4),), {"axis": -1, "reverse": True}),
            Case(((2, 3, 2),), {"axis": 1, "exclusive": True}),
            Case(((2, 3, 2),), {"axis": -2, "exclusive": True, "reverse": True}), Case(((2, 3),), {"flatten": True}),
            Case(((0, 3),), {"axis": 0, "exclusive": True}), Case(((5,),), {"flatten": True, "reverse": True}),
            Case(((1,),), {"axis": 0, "exclusive": True}),
        ),
        others=("int64", "int32"),
    ), onnx=_onnx.cumsum,
))  # fmt: skip


@export("tensor.cumsum", "Variable.cumsum", op="cumsum", inplace=True)
def cumsum(x: Variable, axis: Any = None, dtype: Any = None, name: str | None = None) -> Variable:
    """Returns the running sum along an axis.

    Args:
        x: ``[...]``.
        axis: Which axis, a number or an integer Variable; without it the flattened value is summed.
        dtype: Converts ``x`` first.
        name: Name of the layer.

    Raises:
        ShapeError: If the axis is out of range.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y, flat = paddle.cumsum(x, axis=0), paddle.cumsum(x)
        >>> static.Executor().run(fetch_list=[y, flat])
        [array([[1., 2.],
               [4., 6.]], dtype=float32), array([ 1.,  3.,  6., 10.], dtype=float32)]
    """
    x = _converted(check_variable(x, "x", "cumsum"), dtype)
    if axis is None:
        return emit_one("cumsum", {"X": x}, {"flatten": True}, name=name)
    return by_axis(axis, len(x.shape), lambda at: emit_one("cumsum", {"X": x}, {"axis": at}, name=name), "cumsum")


def _converted(x: Variable, dtype: Any) -> Variable:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    if x.dtype.name == "bool" and dtype is None:
        kind = dtype_of("int64")
    return x if kind is x.dtype else emit_one("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": kind})


@export("fluid.layers.cumsum", op="cumsum")
def fluid_cumsum(
    x: Variable,
    axis: int | None = None,
    exclusive: bool | None = None,
    reverse: bool | None = None,
    flatten: bool | None = None,
    name: str | None = None,
) -> Variable:
    """Returns the running sum along an axis, the last by default.

    Args:
        x: ``[...]``.
        axis: Which axis.
        exclusive: Leave each element itself out of its sum.
        reverse: Sum from the end.
        flatten: Sum the flattened value.
        name: Name of the layer.
    """
    attrs: dict[str, Any] = {"axis": -1 if axis is None else axis}
    for key, value in (("exclusive", exclusive), ("reverse", reverse), ("flatten", flatten)):
        if value is not None:
            attrs[key] = value
    return emit_one("cumsum", {"X": check_variable(x, "x", "cumsum")}, attrs, name=name)


# ------------------------------------------------------------------------------------------------------------- cumprod
@in_float32()
def _product(x: Array, out: Array, *, dim: int) -> None:
    if x.ndim == 0:
        np.copyto(out, x)
    else:
        np.multiply.accumulate(x, axis=normalize_axis(dim, x.ndim), dtype=_sum_type(out), out=out)


@in_float32()
def _product_back(x: Array, dout: Array, dx: Array, *, dim: int) -> None:
    """Computes ``dx[i] = p[i-1] * s[i]``, ``p`` the running product, ``s[i] = dout[i] + x[i+1] * s[i+1]``: exact at zeros."""
    if x.ndim == 0:
        np.copyto(dx, dout)
        return
    at = normalize_axis(dim, x.ndim)
    x, dout, dx = np.moveaxis(x, at, 0), np.moveaxis(dout, at, 0), np.moveaxis(dx, at, 0)
    np.copyto(dx, dout)
    # From the end: s[i] needs s[i + 1].
    for i in range(x.shape[0] - 2, -1, -1):
        dx[i] += x[i + 1] * dx[i + 1]
    if x.shape[0] > 1:
        dx[1:] *= np.multiply.accumulate(x[:-1], axis=0)


def _lower_back(torch: Any, x: Any, dout: Any, *, dim: int) -> Any:
    if x.dim() == 0:
        return dout.clone()
    # As in the reference, without dividing: exact at zeros too.
    wide, sums = torch_wide(x).movedim(dim, 0), torch_wide(dout).movedim(dim, 0).clone()
    for i in range(wide.shape[0] - 2, -1, -1):
        # Not in one step, which would leave out an overflow in between.
        sums[i] += wide[i + 1] * sums[i + 1]
    sums[1:] *= wide[:-1].cumprod(0)
    return sums.movedim(0, dim).to(dout.dtype).contiguous()


def _product_lower(torch: Any, x: Any, *, dim: int) -> Any:
    if not x.dim():
        return x.clone()
    # torch multiplies no truth values.
    return torch.cumprod(x, dim, dtype=torch.uint8 if x.dtype == torch.bool else x.dtype).to(x.dtype)


register(OpDef(
    "cumprod", "X -> Out", attrs={"dim": Attr(-1, "int")}, infer=lambda x, *, dim: _infer(x, axis=dim, flatten=False),
    ref=_product, lower=_product_lower,
    split=Split(ELEMENTS, FREE, taken="dim"),
    grad=GradOp("X, Out@GRAD -> X@GRAD", ref=_product_back, lower=_lower_back), amp="black",
    domain=Domain(
        cases=(
            Case(((3, 4),), {"dim": 0}), Case(((3, 4),), {"dim": -1}), Case(((2, 3, 2),), {"dim": 1}),
            Case(((5,),), {"dim": 0}), Case(((),), {"dim": 0}), Case(((0, 3),), {"dim": 0}),
            Case(((2, 1),), {"dim": -2}),
        ),
        others=("int64", "int32"), values={"X": ValueRange(-1.5, 1.5)},
    ), onnx="ONNX has no running product",
))  # fmt: skip


@export("tensor.cumprod", "Variable.cumprod", op="cumprod", inplace=True)
def cumprod(x: Variable, dim: int | None = None, dtype: Any = None, name: str | None = None) -> Variable:
    """Returns the running product along axis ``dim``; ``dtype`` converts ``x`` first.

    Args:
        x: ``[...]``.
        dim: Which axis.
        dtype: Converts ``x`` first.
        name: Name of the layer.

    Raises:
        ProgramTypeError: If no axis is given.
        ShapeError: If the axis is out of range.
    """
    x = _converted(check_variable(x, "x", "cumprod"), dtype)
    return emit_one("cumprod", {"X": x}, {"dim": dim}, name=name)
