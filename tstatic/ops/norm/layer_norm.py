"""Layer normalisation over the last axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_dtype, check_ints
from tstatic.ir.opdef import Attr, Case, Cost, Domain, GradOp, OpDef, export, register
from tstatic.ir.pointwise import Rows
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.split import BATCHES, PARTIAL_SUM, WHOLE, Split
from tstatic.ir.types import UNKNOWN, Meta, numel
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.norm import OutputView, check_parameters
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sliding import as_metas
from tstatic.ops.norm import _norm_onnx as _onnx
from tstatic.tuned._common import Array
from tstatic.tuned.norm import layer_norm as normalize
from tstatic.tuned.norm import layer_norm_grad, layer_norm_scratch


def _matrix(shape: Sequence[int], axis: int) -> tuple[int, int]:
    """Returns the number of rows to normalise, and the length of one."""
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def _infer(x: Meta, scale: Meta | None, bias: Meta | None, begin_norm_axis: int) -> tuple[Meta, Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    # Axis 0 would leave no row: one mean for the whole batch.
    if not 0 < begin_norm_axis < max(x.rank, 1):
        raise ShapeError(
            "begin_norm_axis of layer_norm is out of range",
            expected=f"an axis from 1 to {x.rank - 1} for an input of rank {x.rank}",
            received=begin_norm_axis,
            fix="normalise over the last axes, and leave at least one before them",
        )
    length = numel(x.shape[begin_norm_axis:])
    check_parameters(x, length, Scale=scale, Bias=bias)
    statistics = Meta(x.shape[:begin_norm_axis], x.dtype.compute)
    return x, statistics, statistics


def _scratch(x: Meta, *rest: Meta | None, begin_norm_axis: int) -> tuple[Meta, ...]:
    rows, length = _matrix(x.shape, begin_norm_axis)
    dtype = x.dtype.compute
    return (*as_metas(layer_norm_scratch(rows, length, dtype.np)), Meta((2, rows), dtype))


def _vector(parameter: Array | None) -> Array | None:
    return None if parameter is None else parameter.reshape(-1)


@in_float32(outputs=3)
def _ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    y: Array,
    mean: Array | None,
    variance: Array | None,
    epsilon: float,
    begin_norm_axis: int,
    scratch: Sequence[Array],
) -> None:
    rows, length = _matrix(x.shape, begin_norm_axis)
    target = OutputView(y, (rows, length))
    center = OutputView(scratch[-1][0] if mean is None else mean, (rows,))
    spread = OutputView(scratch[-1][1] if variance is None else variance, (rows,))
    source = x.reshape(rows, length)
    normalize(source, _vector(scale), _vector(bias), target.view, center.view, spread.view, epsilon, scratch)
    for done in (target, center, spread):
        done.store()


def _grad_scratch(x: Meta, *rest: Meta | None, begin_norm_axis: int) -> tuple[Meta, ...]:
    rows, length = _matrix(x.shape, begin_norm_axis)
    return as_metas(layer_norm_scratch(rows, length, x.dtype.compute.np))


@in_float32(outputs=3)
def _grad_ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    dy: Array,
    dx: Array | None,
    dscale: Array | None,
    dbias: Array | None,
    epsilon: float,
    begin_norm_axis: int,
    scratch: Sequence[Array],
) -> None:
    shape = _matrix(x.shape, begin_norm_axis)
    targets = [
        None if a is None else OutputView(a, s) for a, s in ((dx, shape), (dscale, shape[1:]), (dbias, shape[1:]))
    ]
    place, slope, shift = (None if t is None else t.view for t in targets)
    layer_norm_grad(
        x.reshape(shape), _vector(scale), mean.reshape(-1), variance.reshape(-1), dy.reshape(shape), place, slope,
        shift, epsilon, scratch,
    )  # fmt: skip
    for target in targets:
        if target is not None:
            target.store()


def _cost(x: Meta, *rest: Meta | None) -> Cost:
    # Bytes: `x` is read and `y` written; the statistics are small beside them.
    return Cost(8.0 * x.numel, 2.0 * x.nbytes)


def _grad_cost(x: Meta, *rest: Meta | None) -> Cost:
    return Cost(16.0 * x.numel, 3.0 * x.nbytes)


# ---------------------------------------------------------------------------------------------------------------- torch
def _lower(torch: Any, x: Any, scale: Any, bias: Any, epsilon: float, begin_norm_axis: int) -> Any:
    sizes = x.shape[begin_norm_axis:]
    source = torch_wide(x)
    wide = [None if t is None else torch_wide(t).to(source.dtype).reshape(sizes) for t in (scale, bias)]
    y, mean, _ = torch.native_layer_norm(source, sizes, *wide, epsilon)
    axes = list(range(begin_norm_axis, x.dim()))
    if x.numel():
        spread, center = torch.var_mean(source, axes, correction=0)
    else:
        # torch warns of a variance of nothing.
        spread = center = mean.reshape(x.shape[:begin_norm_axis])
    if source.device.type == "cpu":
        # On the CPU torch's normalised row is NaN where the variance overflows; it is 0, as on a GPU.
        # 1 / sqrt(inf) is 0, so what is left is the bias.
        y = y.where(~spread.isinf().reshape(mean.shape), 0 if wide[1] is None else wide[1])
    return y.to(x.dtype), center, spread


def _grad_lower(
    torch: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, dy: Any, epsilon: float, begin_norm_axis: int
) -> Any:
    sizes = x.shape[begin_norm_axis:]
    shape = (*x.shape[:begin_norm_axis], *[1] * len(sizes))
    source, gradient = torch_wide(x), torch_wide(dy)
    wide = [None if t is None else torch_wide(t).to(source.dtype).reshape(sizes) for t in (scale, bias)]
    inverse = torch.rsqrt(variance + epsilon)
    if source.device.type == "cpu":
        # As in the forward pass: without its centre, such a row is 0, and no sum of it overflows.
        source = torch.where(inverse.reshape(shape) == 0, mean.reshape(shape), source)
    dx, dscale, dbias = torch.ops.aten.native_layer_norm_backward(
        gradient.contiguous(), source.contiguous(), sizes, mean.reshape(shape).contiguous(),
        inverse.reshape(shape).contiguous(), *wide,
        # torch fails where it is asked for the gradient of an absent parameter.
        (True, scale is not None, bias is not None),
    )  # fmt: skip
    return (
        dx.to(x.dtype),
        None if scale is None else dscale.to(scale.dtype).reshape(scale.shape),
        None if bias is None else dbias.to(bias.dtype).reshape(bias.shape),
    )


# --------------------------------------------------------------------------------------------------- op definition
# Each parameter left out, no row, no batch; the last has sizes that are not multiples of a vector register.
_CASES = (
    Case(((3, 5), (5,), (5,)), {}),
    Case(((2, 3, 4), (12,), (12,)), {"epsilon": 1e-3}),
    Case(((2, 3, 4), (4,), (4,)), {"begin_norm_axis": 2}),
    Case(((2, 3, 2, 2), (2, 2), (2, 2)), {"begin_norm_axis": 2}),
    Case(((3, 6), None, None), {}),
    Case(((3, 6), (6,), None), {}),
    Case(((3, 6), None, (6,)), {}),
    Case(((0, 4), (4,), (4,)), {}),
    Case(((2, 0, 3), (3,), (3,)), {"begin_norm_axis": 2}),
    Case(((9, 131), (131,), (131,)), {}),
)

_MEAN = "(rsum(x) / n)"
# Two passes, as in the reference: E[x^2] - E[x]^2 cancels where the mean is large beside the deviation.
_VARIANCE = f"(rsum(square(x - {_MEAN})) / n)"


def _rows(x: Meta, scale: Meta | None, bias: Meta | None, begin_norm_axis: int) -> Rows:
    y = f"(x - {_MEAN}) * rsqrt({_VARIANCE} + epsilon)"
    y = f"{y} * scale" if scale is not None else y
    y = f"{y} + bias" if bias is not None else y
    texts = {"Y": y, "Mean": _MEAN, "Variance": _VARIANCE}
    return Rows(texts, x.shape, begin_norm_axis, ("Scale", "Bias"))


def _grad_rows(
    x: Meta, scale: Meta | None, bias: Meta | None, mean: Meta, variance: Meta, dy: Meta, begin_norm_axis: int
) -> Rows:
    near = "((x - mean) * rsqrt(variance + epsilon))"
    g = "(dy * scale)" if scale is not None else "dy"
    texts = {
        "X@GRAD": f"rsqrt(variance + epsilon) * ({g} - rsum({g}) / n - {near} * (rsum({g} * {near}) / n))",
        "Scale@GRAD": f"dy * {near}",
        "Bias@GRAD": "dy",
    }
    return Rows(texts, x.shape, begin_norm_axis, ("Scale", "Scale@GRAD", "Bias@GRAD"))


register(OpDef(
    "layer_norm", "X, Scale?, Bias? -> Y, Mean~, Variance~", lod="X",
    attrs={
        # Paddle refuses an epsilon above 0.001, too.
        "epsilon": Attr(1e-5, "float", lambda e: None if 0 <= e <= 0.001 else "a number from 0 to 0.001"),
        "begin_norm_axis": 1,
    },
    infer=_infer, ref=plain(_ref, _scratch, recorded=True), lower=_lower,
    split=Split(BATCHES, 0, WHOLE, WHOLE, 0, 0, 0), cost=_cost,
    grad=GradOp(
        "X, Scale?, Bias?, Mean, Variance, Y@GRAD -> X@GRAD, Scale@GRAD, Bias@GRAD",
        ref=plain(_grad_ref, _grad_scratch),
        lower=_grad_lower,
        # The parameters' gradients are sums over rows: a tile has its part, and the parts are added in order.
        split=Split(BATCHES, 0, WHOLE, WHOLE, 0, 0, 0, 0, PARTIAL_SUM, PARTIAL_SUM),
        cost=_grad_cost,
        shape_only=("Bias",),
        inplace=(("Y@GRAD", "X@GRAD"),),
        rows=_grad_rows,
    ),
    rows=_rows, inplace=(("X", "Y"),), amp="black", float32_inputs=("Scale", "Bias"), uses_blas=True,
    domain=Domain(cases=_CASES, ulps=16.0), onnx=_onnx.layer_norm,
))  # fmt: skip


@export("nn.functional.layer_norm", op="layer_norm")
def layer_norm(
    x: Variable,
    normalized_shape: Any,
    weight: Variable | None = None,
    bias: Variable | None = None,
    epsilon: float = 1e-05,
    name: str | None = None,
) -> Variable:
    """Normalises over the last axes: ``y = (x - mean) / sqrt(var + epsilon) * weight + bias``, with the biased variance.

    Args:
        x: ``[..., *normalized_shape]``, floats, with at least one axis before.
        normalized_shape: An int, or the sizes of the last axes.
        weight, bias: Shape ``normalized_shape``, or ``None``.
        epsilon: Added to the variance, at most 0.001.
        name: The layer's name.

    Returns:
        A Variable like ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    check_variable(x, "x", "layer_norm")
    count = len(normalized_shape) if isinstance(normalized_shape, list | tuple) else 1
    sizes = check_ints(normalized_shape, count, "normalized_shape", "layer_norm")
    axis = len(x.shape) - count
    if axis < 0 or any(UNKNOWN not in (a, b) and a != b for a, b in zip(x.shape[axis:], sizes, strict=True)):
        raise ShapeError(
            f"Given normalized_shape is {list(sizes)}, expected input with shape [*, {str(list(sizes))[1:]}",
            expected=f"an input whose last sizes are {list(sizes)}",
            received=f"input {list(x.shape)}",
            fix="pass the sizes of the last axes of x",
            op="layer_norm",
        )
    attrs = {"epsilon": epsilon, "begin_norm_axis": axis}
    ins = {"X": x, "Scale": weight, "Bias": bias}
    return emit_one("layer_norm", ins, attrs, name=name, order=("Mean", "Variance", "Y"))
