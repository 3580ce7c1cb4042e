"""Batch normalisation with running statistics, in training and in inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError, ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.channels import Channels
from tstatic.ir.checks import FLOATS, check_dtype, check_number, check_rank
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, OpSpec, Tile, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.split import CHANNELS, WHOLE, tiles
from tstatic.ir.types import Meta
from tstatic.ops.base.low import in_float32
from tstatic.ops.base.norm import OutputView, check_parameters, running_factor, uses_running_statistics
from tstatic.ops.base.sliding import as_metas, channels, is_last, layout_attr
from tstatic.ops.norm import _norm_onnx as _onnx
from tstatic.ops.norm._batch_norm_lower import lower_batch_norm, lower_batch_norm_grad
from tstatic.tuned._common import Array
from tstatic.tuned.norm import batch_norm as normalize
from tstatic.tuned.norm import batch_norm_grad, batch_norm_inference, batch_norm_scratch
from tstatic.tuned.norm_rows import batch_norm_rows, batch_norm_rows_grad, batch_norm_rows_scratch


def _by_rows(rank: int, layout: str) -> bool:
    """Whether the data is a matrix of rows with one column per channel."""
    return rank == 2 or is_last(layout)


def _shape(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """``[rows, c]``, or ``[n, c, values]`` where channels stand second before places."""
    if _by_rows(len(shape), layout):
        return math.prod(shape[:-1]), shape[-1]
    return shape[0], shape[1], math.prod(shape[2:])


def _scratch_metas(x: Meta, layout: str) -> tuple[Meta, ...]:
    shape, dtype = _shape(x.shape, layout), x.dtype.compute.np
    return as_metas(batch_norm_rows_scratch(*shape, dtype) if len(shape) == 2 else batch_norm_scratch(shape, dtype))


def _infer(
    x: Meta,
    scale: Meta | None,
    bias: Meta | None,
    mean: Meta,
    variance: Meta,
    momentum_tensor: Meta | None,
    data_layout: str,
) -> tuple[Meta | None, ...]:
    check_dtype(x, FLOATS, "X")
    check_rank(x, (2, 3, 4, 5), "X", layout=data_layout)
    count = x.shape[1] if x.rank == 2 else channels(x.shape, data_layout)
    check_parameters(x, count, Scale=scale, Bias=bias, Mean=mean, Variance=variance)
    # Beside 16-bit data the saved statistics are float32, as in Paddle: the backward op subtracts the mean from each element.
    saved = Meta(mean.shape, x.dtype.compute)
    # ReserveSpace is cuDNN's working memory: there is none here.
    return x, mean, variance, saved, saved, None


def _scratch(
    x: Meta,
    scale: Meta | None,
    bias: Meta | None,
    mean: Meta,
    variance: Meta,
    momentum_tensor: Meta | None,
    *outs: Meta | None,
    data_layout: str,
) -> tuple[Meta, ...]:
    return (*_scratch_metas(x, data_layout), Meta((3, _shape(x.shape, data_layout)[1]), x.dtype.compute))


@in_float32(outputs=6)
def _ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    momentum_tensor: Array | None,
    y: Array,
    mean_out: Array | None,
    variance_out: Array | None,
    saved_mean: Array | None,
    saved_inverse: Array | None,
    reserve: None,
    scratch: Sequence[Array],
    **attrs: Any,
) -> None:
    layout, epsilon = attrs["data_layout"], attrs["epsilon"]
    # Statistics that no output takes are computed in scratch.
    own_mean, spread, own_inverse = scratch[-1]
    center = own_mean if saved_mean is None else saved_mean
    inverse = own_inverse if saved_inverse is None else saved_inverse
    shape = _shape(x.shape, layout)
    source, target = x.reshape(shape), OutputView(y, shape)
    if uses_running_statistics(attrs) or x.size == 0:
        # Of an empty batch nothing can be learnt: the statistics stay.
        np.copyto(center, mean)
        np.add(variance, epsilon, inverse)
        np.sqrt(inverse, inverse)
        np.reciprocal(inverse, inverse)
        if x.size:
            # A row of a matrix is an image with one place per channel.
            planes = source.reshape(shape if len(shape) == 3 else (*shape, 1))
            place = target.view.reshape(planes.shape)
            batch_norm_inference(planes, scale, bias, mean, variance, place, epsilon)
        for new, old in ((mean_out, mean), (variance_out, variance)):
            if new is not None:
                np.copyto(new, old)
        target.store()
        return
    run = batch_norm_rows if len(shape) == 2 else normalize
    run(source, scale, bias, target.view, center, spread, inverse, epsilon, scratch)
    target.store()
    keep = attrs["momentum"] if momentum_tensor is None else float(momentum_tensor.reshape(-1)[0])
    if variance_out is not None:
        # One factor after the other, as the expression has them: their product may overflow.
        np.multiply(spread, running_factor(x.size // shape[1], attrs), spread)
        np.multiply(spread, 1 - keep, spread)
        np.multiply(variance, keep, variance_out)
        np.add(variance_out, spread, variance_out)
    if mean_out is not None:
        np.multiply(center, 1 - keep, spread)
        np.multiply(mean, keep, mean_out)
        np.add(mean_out, spread, mean_out)


def _split(
    x: Meta,
    scale: Meta | None,
    bias: Meta | None,
    mean: Meta,
    variance: Meta,
    momentum_tensor: Meta | None,
    *outs: Meta | None,
    data_layout: str,
) -> list[Tile] | None:
    axis, parts = _channel_parts(x, data_layout)
    return tiles(parts, axis, 0, 0, 0, 0, WHOLE, axis, *[0] * (len(outs) - 1))


def _channel_parts(x: Meta, layout: str) -> tuple[int, list[slice] | None]:
    """The axis of the channels and its parts: statistics are sums over all images."""
    # Channels last: a tile's rows are short pieces of memory, so at least 256 channels go together.
    axis, grain = (-1, min(256, CHANNELS.size)) if _by_rows(x.rank, layout) else (1, 1)
    return axis, CHANNELS.parts(x.shape[axis], x.numel, grain) if x.numel > 0 else None


def _grad_scratch(x: Meta, *rest: Meta | None, data_layout: str) -> tuple[Meta, ...]:
    return _scratch_metas(x, data_layout)


@in_float32(outputs=3)
def _grad_ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    saved_mean: Array,
    saved_inverse: Array,
    dy: Array,
    dx: Array | None,
    dscale: Array | None,
    dbias: Array | None,
    scratch: Sequence[Array],
    **attrs: Any,
) -> None:
    layout = attrs["data_layout"]
    shape = _shape(x.shape, layout)
    target = None if dx is None else OutputView(dx, shape)
    run = batch_norm_rows_grad if len(shape) == 2 else batch_norm_grad
    run(
        x.reshape(shape), scale, saved_mean, saved_inverse, dy.reshape(shape), None if target is None else target.view,
        dscale, dbias, scratch, uses_running_statistics(attrs),
    )  # fmt: skip
    if target is not None:
        target.store()


def _grad_split(
    x: Meta,
    scale: Meta | None,
    bias: Meta | None,
    saved_mean: Meta,
    saved_inverse: Meta,
    dy: Meta,
    dx: Meta | None,
    dscale: Meta | None,
    dbias: Meta | None,
    data_layout: str,
) -> list[Tile] | None:
    axis, parts = _channel_parts(x, data_layout)
    return tiles(parts, axis, 0, 0, 0, 0, axis, axis, 0, 0)


# ---------------------------------------------------------------------------------------------------------- expressions
def _axis(x: Meta, layout: str) -> int:
    """Returns the dimension of the channels."""
    return x.rank - 1 if _by_rows(x.rank, layout) else 1


def _scaled(scale: Meta | None) -> dict[str, str]:
    """Returns terms that both directions have, from the statistics that the op saves."""
    return {"centered": "x - savedmean", "slope": "savedvariance" if scale is None else "savedvariance * scale"}


def _result(scale: Meta | None, bias: Meta | None) -> dict[str, str]:
    """Returns the terms of the result.

    The mean is subtracted first: folded into the bias, a large one would cancel there. Product and sum are one operation,
    not by a compiler's choice: a backward kernel that computes the result anew must find the same bits.
    """
    return {**_scaled(scale), "Y": "centered * slope" if bias is None else "fma(centered, slope, bias)"}


def _channels(
    x: Meta,
    scale: Meta | None,
    bias: Meta | None,
    mean: Meta,
    variance: Meta,
    momentum_tensor: Meta | None,
    **attrs: Any,
) -> Channels | None:
    given = uses_running_statistics(attrs)
    keep = "momentum" if momentum_tensor is None else "momentumtensor"
    # The count is fixed with the shape, so Bessel's correction is a number in the text.
    count = x.numel // max(1, x.shape[_axis(x, attrs["data_layout"])])
    now = f"spread * {running_factor(count, attrs)!r}" if attrs["unbiased_variance"] else "spread"
    texts = {
        "SavedMean": "mean" if given else "cmean(x)",
        "spread": "variance" if given else "cvar(x)",
        "SavedVariance": "rsqrt(spread + epsilon)",
        **_result(scale, bias),
        "MeanOut": "mean" if given else f"mean * {keep} + savedmean * (1 - {keep})",
        "VarianceOut": "variance" if given else f"variance * {keep} + {now} * (1 - {keep})",
    }
    return Channels(texts, x.shape, _axis(x, attrs["data_layout"]), ("X",), ("MomentumTensor",)) if x.numel else None


def _grad_channels(
    x: Meta,
    scale: Meta | None,
    bias: Meta | None,
    saved_mean: Meta,
    saved_inverse: Meta,
    dy: Meta,
    **attrs: Any,
) -> Channels | None:
    texts = {
        **_scaled(scale),
        "Bias@GRAD": "csum(dy)",
        "along": "csum(dy * centered)",
        "Scale@GRAD": "along * savedvariance",
        "level": "dbias / n",
        # `centered` is not divided by the deviation; the inverse comes in per channel, not per element.
        "tilt": "dscale * savedvariance / n",
        "X@GRAD": "dy * slope" if uses_running_statistics(attrs) else "(dy - (centered * tilt + level)) * slope",
    }
    return Channels(texts, x.shape, _axis(x, attrs["data_layout"]), ("X", "Y@GRAD")) if x.numel else None


def _recomputed_channels(
    x: Meta, scale: Meta | None, bias: Meta | None, saved_mean: Meta, saved_inverse: Meta, data_layout: str
) -> Channels | None:
    return Channels(_result(scale, bias), x.shape, _axis(x, data_layout), ("X",)) if x.numel else None


# --------------------------------------------------------------------------------------------------- op definition
def _case(shape: tuple[int, ...], count: int = 3, bare: bool = False, tensor: bool = False, **attrs: Any) -> Case:
    one = (count,)
    return Case((shape, None if bare else one, None if bare else one, one, one, (1,) if tensor else None), attrs)


# All ranks and layouts, every source of statistics, parameters left out, no image, one channel.
_CASES = (
    _case((4, 3, 2, 3)),
    _case((5, 3), epsilon=1e-3),
    _case((2, 3, 4), momentum=0.7),
    _case((2, 4, 3, 3), data_layout="NHWC"),
    _case((2, 3, 2, 2, 2)),
    _case((2, 3, 3, 2), is_test=True),
    _case((2, 3, 3, 2), use_global_stats=True),
    _case((2, 2, 3, 3), is_test=True, trainable_statistics=True, data_layout="NHWC"),
    _case((3, 3, 2, 2), bare=True),
    _case((3, 2, 2, 2), count=2, tensor=True),
    _case((0, 3, 2, 2)),
    _case((2, 1, 1, 2), count=1),
    _case((2, 3, 2, 2), is_test=True, bare=True, data_layout="AnyLayout"),
    _case((2, 2, 3, 2), count=2, unbiased_variance=True),
    _case((3, 2), count=2, tensor=True, unbiased_variance=True),
)


def _to_paddle(op: PaddleOp) -> list[OpSpec]:
    """Paddle's running variance is always that of the batch."""
    if op.attrs["unbiased_variance"] and not uses_running_statistics(op.attrs):
        raise ProgramError(
            "Paddle has no batch norm whose running variance is the unbiased one",
            expected="unbiased_variance=False, or a program for inference",
            received="unbiased_variance=True in training",
            fix="save without format='paddle', or save program.clone(for_test=True)",
            op="batch_norm",
        )
    return [op.made()]


def _onnx_form(g: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, tensor: Any, **attrs: Any) -> Any:
    if not uses_running_statistics(attrs):
        raise g.refuse("with the statistics of the batch", "export a program cloned with for_test=True")
    return _onnx.batch_norm(g, x, scale, bias, mean, variance, attrs)


BATCH_NORM = register(
    OpDef(
        "batch_norm",
        "X, Scale?, Bias?, Mean, Variance, MomentumTensor? "
        "-> Y, MeanOut, VarianceOut, SavedMean~, SavedVariance~, ReserveSpace?",
        lod="X",
        attrs={
            "momentum": 0.9,
            # Paddle refuses an epsilon above 0.001, too.
            "epsilon": Attr(1e-5, "float", lambda e: None if 0 <= e <= 0.001 else "a number from 0 to 0.001"),
            "is_test": False,
            "use_global_stats": False,
            "trainable_statistics": False,
            "data_layout": layout_attr("NCHW"),
            "unbiased_variance": False,
        },
        infer=_infer,
        ref=plain(_ref, _scratch, recorded=True),
        lower=lower_batch_norm,
        split=_split,
        grad=GradOp(
            "X, Scale?, Bias?, SavedMean, SavedVariance, Y@GRAD -> X@GRAD, Scale@GRAD, Bias@GRAD",
            ref=plain(_grad_ref, _grad_scratch, recorded=True),
            lower=lower_batch_norm_grad,
            split=_grad_split,
            shape_only=("Bias",),
            inplace=(("Y@GRAD", "X@GRAD"),),
            channels=_grad_channels,
        ),
        inplace=(("X", "Y"),),
        state=(("Mean", "MeanOut"), ("Variance", "VarianceOut")),
        amp="gray",
        float32_inputs=("Scale", "Bias", "Mean", "Variance"),
        uses_blas=True,
        channels=_channels,
        domain=Domain(
            cases=_CASES,
            values={"Variance": ValueRange(0.5, 2.0), "MomentumTensor": ValueRange(0.1, 0.9)},
            ulps=16.0,
        ),
        onnx=_onnx_form,
        paddle=PaddleForm(write=_to_paddle, lacks=("unbiased_variance",)),
    )
)

RECOMPUTED = OpDef(
    "batch_norm_recomputed",
    "X, Scale?, Bias?, SavedMean, SavedVariance -> Y",
    attrs=BATCH_NORM.attrs,
    channels=_recomputed_channels,
)
"""The result, computed in the gradient's kernel from the statistics that the op saved; it stands in no program."""


@export("nn.functional.batch_norm", op="batch_norm")
def batch_norm(
    x: Variable,
    running_mean: Variable,
    running_var: Variable,
    weight: Variable | None = None,
    bias: Variable | None = None,
    training: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-05,
    data_format: str = "NCHW",
    use_global_stats: bool | None = None,
    name: str | None = None,
) -> Variable:
    """Normalises each channel over the batch and all places, or by running statistics.

    ``y = (x - mean) / sqrt(var + epsilon) * weight + bias``. In training the running statistics become
    ``momentum * old + (1 - momentum) * batch``, with the biased variance of the batch.

    Args:
        x: ``[n, c]``, ``[n, c, ...]`` or, channels last, ``[n, ..., c]``; floats.
        running_mean, running_var: ``[c]`` persistable Variables; written in training.
        weight, bias: ``[c]`` or ``None``.
        training: Whether the batch's own statistics normalise.
        momentum: Weight of the old running value.
        epsilon: Added to the variance, at most 0.001.
        data_format: ``NC``, ``NCL``, ``NCHW``, ``NCDHW``, ``NLC``, ``NHWC`` or ``NDHWC``.
        use_global_stats: Use the running statistics even in training; the opposite of ``training`` if ``None``.
        name: The layer's name.

    Returns:
        A Variable like ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    check_variable(x, "x", "batch_norm")
    for variable, arg in ((running_mean, "running_mean"), (running_var, "running_var")):
        check_variable(variable, arg, "batch_norm")
    layout = channel_layout(data_format, "batch_norm")
    attrs = {
        "momentum": check_number(momentum, "momentum", "batch_norm", least=0.0, most=1.0),
        "epsilon": epsilon,
        "is_test": not training,
        "data_layout": layout,
        "use_global_stats": not training if use_global_stats is None else use_global_stats,
        # As in Paddle, an explicit False takes the batch's statistics at inference, too; None does not.
        "trainable_statistics": use_global_stats is not None and not use_global_stats,
    }
    ins = {"X": x, "Scale": weight, "Bias": bias, "Mean": running_mean, "Variance": running_var}
    out: Variable = emit(
        "batch_norm",
        ins,
        attrs,
        name=name,
        # The running statistics are updated in place: startup and saved programs know them by these names.
        outputs={"MeanOut": running_mean, "VarianceOut": running_var},
        order=("MeanOut", "VarianceOut", "SavedMean", "SavedVariance", "Y"),
    )[0]
    return out


def channel_layout(data_format: str, function: str) -> str:
    """``NCHW`` or ``NHWC`` for any format with channels second or last.

    Raises:
        ShapeError: If it is none.
    """
    allowed = ("NC", "NCL", "NCHW", "NCDHW", "NLC", "NHWC", "NDHWC")
    if data_format not in allowed:
        raise ShapeError(
            f"'data_format' of {function} must be one of {', '.join(map(repr, allowed))}",
            expected=" or ".join(map(repr, allowed)),
            received=repr(data_format),
            fix="pass 'NCHW' for images with their channels second, 'NHWC' with their channels last",
            op=function,
        )
    return "NCHW" if data_format[1] == "C" else "NHWC"
