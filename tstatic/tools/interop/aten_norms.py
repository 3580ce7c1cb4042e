"""Normalisation, and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.build import as_variable, emit
from tstatic.ir.program import Variable
from tstatic.ir.types import DType
from tstatic.ops.base.mixed import cast_to
from tstatic.ops.elementwise.activation import log_sigmoid
from tstatic.ops.elementwise.logic import not_equal, where
from tstatic.ops.elementwise.unary import rsqrt, square
from tstatic.ops.indexing.gather import gather
from tstatic.ops.loss import binary_loss, classification_loss, regression_loss
from tstatic.ops.norm import group_norm, layer_norm
from tstatic.ops.reduce.reduction import mean
from tstatic.ops.reduce.reduction import sum as total
from tstatic.ops.shape import reshape
from tstatic.tools.interop.conversion import Call, family

converts = family("norms")

Maybe = Variable | None


# --------------------------------------------------------------------------------------------------------- normalisation
@converts("layer_norm.default")
def _layer_norm(
    c: Call, x: Variable, sizes: Sequence[int], weight: Maybe = None, bias: Maybe = None, epsilon: float = 1e-5,
    cudnn: bool = True,
) -> Variable:  # fmt: skip
    if len(x.shape) > len(sizes):
        return layer_norm.layer_norm(x, list(sizes), weight, bias, epsilon)
    # The op has an axis of rows.
    row = layer_norm.layer_norm(reshape.unsqueeze(x, 0), list(sizes), weight, bias, epsilon)
    return reshape.squeeze(row, 0)


@converts("rms_norm.default")
def _rms_norm(
    c: Call, x: Variable, sizes: Sequence[int], weight: Maybe = None, epsilon: float | None = None
) -> Variable:
    import torch

    floor = torch.finfo(getattr(torch, x.dtype.compute.name)).eps if epsilon is None else epsilon
    normal = x * rsqrt(mean(square(x), list(range(-len(sizes), 0)), True) + floor)
    return normal if weight is None else normal * weight


@converts("group_norm.default")
def _group_norm(
    c: Call,
    x: Variable,
    groups: int,
    weight: Maybe = None,
    bias: Maybe = None,
    epsilon: float = 1e-5,
    cudnn: bool = True,
) -> Variable:
    return group_norm.group_norm(x, groups, epsilon, weight, bias)


@converts("instance_norm.default")
def _instance_norm(
    c: Call, x: Variable, weight: Maybe, bias: Maybe, running_mean: Maybe, running_var: Maybe, use_input_stats: bool,
    momentum: float, epsilon: float, cudnn: bool,
) -> Variable:  # fmt: skip
    if running_mean is not None:
        raise c.refuse("with running statistics", "track_running_stats=False", "running statistics")
    return group_norm.instance_norm(x, weight=weight, bias=bias, eps=epsilon)


@converts("batch_norm.default")
def _batch_norm(
    c: Call, x: Variable, weight: Maybe, bias: Maybe, running_mean: Maybe, running_var: Maybe, training: bool,
    momentum: float, epsilon: float, cudnn: bool = True,
) -> Variable:  # fmt: skip
    if running_mean is None or running_var is None:
        return _by_own_statistics(x, weight, bias, epsilon)
    attrs = {
        "momentum": 1.0 - momentum,  # of the old value, as Paddle counts it
        "epsilon": epsilon,
        "is_test": not training,
        "use_global_stats": not training,
        "unbiased_variance": True,
    }
    ins = {"X": x, "Scale": weight, "Bias": bias, "Mean": running_mean, "Variance": running_var}
    written = {"MeanOut": running_mean, "VarianceOut": running_var}
    normal: Variable = emit("batch_norm", ins, attrs, outputs=written)[0]
    return normal


def _by_own_statistics(x: Variable, weight: Maybe, bias: Maybe, epsilon: float) -> Variable:
    """Returns a batch norm without running statistics, in either mode."""
    axes = [0, *range(2, len(x.shape))]
    centered = x - mean(x, axes, True)
    normal = centered * rsqrt(mean(square(centered), axes, True) + epsilon)
    wide = (1, -1, *[1] * (len(x.shape) - 2))
    if weight is not None:
        normal = normal * reshape.reshape(weight, wide)
    return normal if bias is None else normal + reshape.reshape(bias, wide)


@converts("_native_batch_norm_legit_functional.default")
def _functional_batch_norm(
    c: Call, x: Variable, weight: Maybe, bias: Maybe, running_mean: Variable, running_var: Variable, training: bool,
    momentum: float, epsilon: float,
) -> list[Any]:  # fmt: skip
    normal = _batch_norm(c, x, weight, bias, running_mean, running_var, training, momentum, epsilon)
    # The new running statistics are in the variables of the old ones.
    return [normal, None, None, running_mean, running_var]


@converts("_native_batch_norm_legit_no_training.default")
def _frozen_batch_norm(
    c: Call, x: Variable, weight: Maybe, bias: Maybe, running_mean: Variable, running_var: Variable, momentum: float,
    epsilon: float,
) -> list[Any]:  # fmt: skip
    return [_batch_norm(c, x, weight, bias, running_mean, running_var, False, momentum, epsilon), None, None]


@converts("_native_batch_norm_legit.no_stats")
def _own_batch_norm(
    c: Call, x: Variable, weight: Maybe, bias: Maybe, training: bool, momentum: float, epsilon: float
) -> list[Any]:
    return [_by_own_statistics(x, weight, bias, epsilon), None, None]


@converts("_weight_norm.default")
def _weight_norm(c: Call, direction: Variable, length: Variable, axis: int = 0) -> Variable:
    others = [i for i in range(len(direction.shape)) if i != axis % len(direction.shape)]
    return direction * (length / total(square(direction), others, None, True) ** 0.5)


# ---------------------------------------------------------------------------------------------------------------- losses
def _reduction(number: int) -> str:
    """Returns the name of one of torch's numbers of reductions."""
    return ("none", "mean", "sum")[number]


@converts("cross_entropy_loss.default")
def _cross_entropy(
    c: Call, x: Variable, target: Variable, weight: Maybe = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Variable:  # fmt: skip
    if target.dtype.is_float or label_smoothing != 0:
        received = f"targets of {target.dtype.name}, label_smoothing={label_smoothing}"
        raise c.refuse("with probabilities as targets or smoothed labels", "class numbers, not smoothed", received)
    axis = 1 if len(x.shape) > 1 else 0
    if reduction != 1:
        return classification_loss.cross_entropy(x, target, weight, ignore_index, _reduction(reduction), axis=axis)
    each = classification_loss.cross_entropy(x, target, weight, ignore_index, "none", axis=axis)
    return total(each) / _counted(target, weight, ignore_index, each.dtype)


def _counted(target: Variable, weight: Maybe, ignore_index: int, dtype: DType) -> Variable:
    """Returns what torch's mean divides by: the number of targets that are not ignored, or the sum of their weights.

    Paddle counts the ignored ones where ``ignore_index`` is negative.
    """
    kept = not_equal(target, as_variable(ignore_index, dtype=target.dtype))
    if weight is None:
        return total(cast_to(kept, dtype))
    classes = reshape.reshape(where(kept, target, as_variable(0, dtype=target.dtype)), [-1])
    return total(gather(weight, classes) * reshape.reshape(cast_to(kept, dtype), [-1]))


@converts("nll_loss.default", "nll_loss_nd.default")
def _nll_loss(
    c: Call, x: Variable, target: Variable, weight: Maybe = None, reduction: int = 1, ignore_index: int = -100
) -> Variable:
    if reduction != 1:
        return classification_loss.nll_loss(x, target, weight, ignore_index, _reduction(reduction))
    each = classification_loss.nll_loss(x, target, weight, ignore_index, "none")
    return total(each) / _counted(target, weight, ignore_index, each.dtype)


@converts("mse_loss.default")
def _mse_loss(c: Call, x: Variable, target: Variable, reduction: int = 1) -> Variable:
    return regression_loss.mse_loss(x, target, _reduction(reduction))


@converts("l1_loss.default")
def _l1_loss(c: Call, x: Variable, target: Variable, reduction: int = 1) -> Variable:
    return regression_loss.l1_loss(x, target, _reduction(reduction))


@converts("smooth_l1_loss.default")
def _smooth_l1_loss(c: Call, x: Variable, target: Variable, reduction: int = 1, beta: float = 1.0) -> Variable:
    if beta <= 0:
        raise c.refuse("with beta=0", "beta > 0", beta)
    loss = regression_loss.smooth_l1_loss(x, target, _reduction(reduction), beta)
    # torch divides by beta, Paddle does not.
    return loss if beta == 1 else loss * (1.0 / beta)


@converts("binary_cross_entropy_with_logits.default")
def _with_logits(
    c: Call, x: Variable, target: Variable, weight: Maybe = None, pos_weight: Maybe = None, reduction: int = 1
) -> Variable:
    # torch's formula: Paddle's, which the operator computes, is NaN for infinite scores, and ignores targets of -100.
    scores, wanted = c.cast(x), c.cast(target)
    penalty = log_sigmoid(scores)
    if pos_weight is not None:
        penalty = penalty * ((c.cast(pos_weight) - 1.0) * wanted + 1.0)
    loss = (1.0 - wanted) * scores - penalty
    loss = loss if weight is None else loss * c.cast(weight)
    if _reduction(reduction) == "none":
        return loss
    return mean(loss) if _reduction(reduction) == "mean" else total(loss)


@converts("binary_cross_entropy.default")
def _binary_cross_entropy(c: Call, x: Variable, target: Variable, weight: Maybe = None, reduction: int = 1) -> Variable:
    return binary_loss.binary_cross_entropy(x, target, weight, _reduction(reduction))
