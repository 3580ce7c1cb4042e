"""Synchronises batch norm: statistics over the samples of all replicas, weighted by the number that each has."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.comm.collectives import CollectiveRef
from tstatic.comm.group import Communicator, Gather, Sum
from tstatic.ir.opdef import OpDef, op_def, register
from tstatic.ir.ref import Attrs, Calls, Slots
from tstatic.ops.base.low import in_float32
from tstatic.ops.base.norm import running_factor
from tstatic.ops.base.sliding import is_last
from tstatic.tuned._common import Array
from tstatic.tuned.norm import batch_norm_inference


def _planes(x: Array, layout: str) -> Array:
    """Returns ``x`` as ``[images, channels, values]``, as a view if the strides allow it."""
    if x.ndim == 2 or is_last(layout):
        return np.moveaxis(x.reshape(-1, math.prod(x.shape[1:-1]), x.shape[-1]), -1, 1)
    return x.reshape(x.shape[0], x.shape[1], -1)


def _store(planes: Array, out: Array, layout: str) -> None:
    """Copies planes back to their array, if its strides did not allow a view."""
    if not np.may_share_memory(planes, out):
        last = out.ndim == 2 or is_last(layout)
        np.copyto(out, (np.moveaxis(planes, 1, -1) if last else planes).reshape(out.shape))


def _moments(x: Array) -> tuple[Array, Array]:
    """Returns the mean and the sum of squared differences from it, per channel; in two passes, to avoid cancellation."""
    count = max(1, x.shape[0] * x.shape[2])
    mean = np.add.reduce(x, axis=(0, 2), dtype=np.float64) / count
    squares = np.zeros_like(mean)
    for image in x:
        # Image by image: the differences of a whole batch in float64 would take twice the memory of the batch.
        difference = image - mean[:, None]
        squares += np.einsum("cv,cv->c", difference, difference)
    return mean, squares


# Each op is three steps: sums over the replica's own samples, an exchange of these, and the results.
@in_float32()
def _moments_ref(x: Array, own: Array, *, data_layout: str) -> None:
    """Writes the number of the replica's samples, their means and their squared differences: ``[1 + 2 * channels]``."""
    planes = _planes(x, data_layout)
    mean, squares = _moments(planes)
    np.concatenate([[float(planes.shape[0] * planes.shape[2])], mean, squares], out=own)


def _merged(everyone: Array) -> tuple[Array, Array, float]:
    """Returns mean and variance of all replicas' samples, and their number, from ``[world, 1 + 2 * channels]``.

    Uses the formula of Chan, Golub and LeVeque for merging counts, means and squared differences, in replica order.
    """
    channels = everyone.shape[1] // 2
    counts, means, squares = everyone[:, :1], everyone[:, 1 : 1 + channels], everyone[:, 1 + channels :]
    total = float(counts.sum())
    if not total:
        return means[0], squares[0], 0.0
    mean = (counts * means).sum(0) / total
    return mean, (squares + counts * (means - mean) ** 2).sum(0) / total, total


@in_float32(outputs=6)
def _normalize_ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    momentum_tensor: Array | None,
    everyone: Array,
    y: Array,
    mean_out: Array | None,
    variance_out: Array | None,
    saved_mean: Array | None,
    saved_inverse: Array | None,
    reserve: None,
    *,
    data_layout: str,
    epsilon: float,
    momentum: float,
    unbiased_variance: bool,
) -> None:
    source, target = _planes(x, data_layout), _planes(y, data_layout)
    center, spread, total = _merged(everyone)
    if not total:
        # Without samples anywhere the running statistics go on as they are.
        center, spread = mean.astype(np.float64), variance.astype(np.float64)
    inverse = 1.0 / np.sqrt(spread + epsilon)
    statistics = center.astype(x.dtype), spread.astype(x.dtype)
    batch_norm_inference(source, scale, bias, *statistics, target, epsilon)
    _store(target, y, data_layout)
    if saved_mean is not None:
        np.copyto(saved_mean, center, casting="unsafe")
    if saved_inverse is not None:
        np.copyto(saved_inverse, inverse, casting="unsafe")
    keep = momentum if momentum_tensor is None else float(momentum_tensor.reshape(-1)[0])
    running = spread * running_factor(int(total), {"unbiased_variance": unbiased_variance})
    for new, old, now in ((mean_out, mean, center), (variance_out, variance, running)):
        if new is not None:
            # Paddle's momentum is the weight of the old value.
            np.copyto(new, old * keep + now * (1 - keep) if total else old, casting="unsafe")


@in_float32(outputs=3)
def _grad_sums_ref(
    x: Array,
    saved_mean: Array,
    saved_inverse: Array,
    dy: Array,
    dscale: Array | None,
    dbias: Array | None,
    own: Array,
    *,
    data_layout: str,
) -> None:
    source, given = _planes(x, data_layout), _planes(dy, data_layout)
    channels = source.shape[1]
    middle, inverse = saved_mean[:, None], saved_inverse[:, None]
    own[:] = 0
    for image, gradient in zip(source, given, strict=True):
        own[:channels] += np.add.reduce(gradient, axis=1, dtype=np.float64)
        own[channels:-1] += np.einsum("cv,cv->c", gradient, (image - middle) * inverse, dtype=np.float64)
    # Replicas may have parts of different sizes, so the count is summed along.
    own[-1] = source.shape[0] * source.shape[2]
    # The gradients of scale and bias cover the replica's own samples; they are summed later, with the other gradients.
    if dbias is not None:
        np.copyto(dbias, own[:channels], casting="unsafe")
    if dscale is not None:
        np.copyto(dscale, own[channels:-1], casting="unsafe")


@in_float32()
def _grad_ref(
    x: Array,
    scale: Array | None,
    saved_mean: Array,
    saved_inverse: Array,
    dy: Array,
    sums: Array,
    dx: Array,
    *,
    data_layout: str,
) -> None:
    source, given, target = (_planes(one, data_layout) for one in (x, dy, dx))
    channels = source.shape[1]
    middle, inverse = saved_mean[:, None], saved_inverse[:, None]
    # Sums over no samples are 0, and stay 0.
    total = max(sums[-1], 1.0)
    by_bias = (sums[:channels] / total).astype(x.dtype)[:, None]
    by_scale = (sums[channels:-1] / total).astype(x.dtype)[:, None]
    factor = inverse if scale is None else inverse * scale[:, None]
    for image, gradient, place in zip(source, given, target, strict=True):
        normal = (image - middle) * inverse
        np.copyto(place, (gradient - by_bias - normal * by_scale) * factor)
    _store(target, dx, data_layout)


# The same in torch, for devices whose values the host does not see: what depends on values is computed there, too.
def _torch_planes(x: Any, layout: str) -> Any:
    """Returns ``x`` as ``[images, channels, values]``, in float32 if it has 16 bits."""
    wide = x.float() if x.element_size() == 2 else x
    if x.ndim == 2 or is_last(layout):
        return wide.reshape(-1, math.prod(x.shape[1:-1]), x.shape[-1]).transpose(1, 2)
    return wide.reshape(x.shape[0], x.shape[1], -1)


def _torch_shaped(planes: Any, x: Any, layout: str) -> Any:
    """Returns planes in the shape and layout of ``x``."""
    return (planes.transpose(1, 2) if x.ndim == 2 or is_last(layout) else planes).reshape(x.shape)


def _torch_moments(torch: Any, x: Any, *, data_layout: str) -> Any:
    planes = _torch_planes(x, data_layout)
    count = planes.shape[0] * planes.shape[2]
    own = torch.zeros(1 + 2 * planes.shape[1], dtype=torch.float64, device=x.device)
    if count:
        # By Welford's method, so that float32 does not cancel.
        variance, mean = torch.var_mean(planes, (0, 2), correction=0)
        channels = planes.shape[1]
        own[0].fill_(count)
        own[1 : 1 + channels].copy_(mean)
        own[1 + channels :].copy_(variance).mul_(count)
    return own


def _torch_normalized(
    torch: Any,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    momentum_tensor: Any,
    everyone: Any,
    *,
    data_layout: str,
    epsilon: float,
    momentum: float,
    unbiased_variance: bool,
) -> tuple[Any, ...]:
    channels = mean.numel()
    counts, means, squares = everyone[:, :1], everyone[:, 1 : 1 + channels], everyone[:, 1 + channels :]
    # No number of samples is known to the host; a total of 0 divides by 1 and is left out behind.
    total = counts.sum()
    some, divisor = total > 0, total.clamp(min=1.0)
    merged = (counts * means).sum(0) / divisor
    spread = (squares + counts * (means - merged) ** 2).sum(0) / divisor
    center = torch.where(some, merged, mean.double())
    spread = torch.where(some, spread, variance.double())
    inverse = (spread + epsilon).rsqrt()
    planes = _torch_planes(x, data_layout)
    kind = planes.dtype

    def across(one: Any) -> Any:
        return one.to(kind)[:, None]

    y = (planes - across(center)) * (across(inverse) if scale is None else across(inverse * scale.double()))
    if bias is not None:
        y = y + across(bias)
    keep = momentum if momentum_tensor is None else momentum_tensor.reshape(-1)[0].double()
    running = spread * total / (total - 1).clamp(min=1.0) if unbiased_variance else spread
    new_mean = torch.where(some, mean.double() * keep + center * (1 - keep), mean.double())
    new_variance = torch.where(some, variance.double() * keep + running * (1 - keep), variance.double())
    return _torch_shaped(y, x, data_layout), new_mean, new_variance, center, inverse, None


def _torch_sums(
    torch: Any, x: Any, saved_mean: Any, saved_inverse: Any, dy: Any, *, data_layout: str
) -> tuple[Any, ...]:
    source, given = _torch_planes(x, data_layout), _torch_planes(dy, data_layout)
    normal = (source - saved_mean[:, None]) * saved_inverse[:, None]
    by_bias = given.sum((0, 2), dtype=torch.float64)
    by_scale = (given * normal).sum((0, 2), dtype=torch.float64)
    count = torch.full((1,), float(source.shape[0] * source.shape[2]), dtype=torch.float64, device=x.device)
    return by_scale, by_bias, torch.cat([by_bias, by_scale, count])


def _torch_gradient(
    torch: Any, x: Any, scale: Any, saved_mean: Any, saved_inverse: Any, dy: Any, sums: Any, *, data_layout: str
) -> Any:
    source, given = _torch_planes(x, data_layout), _torch_planes(dy, data_layout)
    channels = source.shape[1]
    means = (sums[:-1] / sums[-1].clamp(min=1.0)).to(source.dtype)
    normal = (source - saved_mean[:, None]) * saved_inverse[:, None]
    factor = saved_inverse if scale is None else saved_inverse * scale
    dx = (given - means[:channels, None] - normal * means[channels:, None]) * factor[:, None]
    return _torch_shaped(dx, x, data_layout)


def _step(name: str, slots: str, ref: Any, lower: Any) -> OpDef:
    """Returns the definition of a step, with the op's name for errors."""
    return OpDef(name, slots, attrs=op_def(name.removeprefix("sync_")).attrs, ref=ref, lower=lower)


_NORM = "sync_batch_norm"
_GRAD = "sync_batch_norm_grad"
_MOMENTS = _step(_NORM, "X -> Own", _moments_ref, _torch_moments)
_NORMALIZE = _step(
    _NORM,
    "X, Scale?, Bias?, Mean, Variance, MomentumTensor?, Everyone"
    " -> Y, MeanOut, VarianceOut, SavedMean, SavedVariance, ReserveSpace",
    _normalize_ref,
    _torch_normalized,
)
_SUMS = _step(_GRAD, "X, SavedMean, SavedVariance, Y@GRAD -> Scale@GRAD, Bias@GRAD, Own", _grad_sums_ref, _torch_sums)
_RESULT = _step(_GRAD, "X, Scale?, SavedMean, SavedVariance, Y@GRAD, Sums -> X@GRAD", _grad_ref, _torch_gradient)


def _bind(ins: Slots, outs: Slots, attrs: Attrs, group: Communicator) -> Calls:
    # In float64, as one exchange: the merge subtracts means that may be close.
    length = 1 + 2 * math.prod(ins[3].shape)
    own, everyone = group.buffer((length,), "float64"), group.buffer((group.world, length), "float64")
    return [
        *group.bind_definition(_MOMENTS, ins[:1], [own], attrs),
        # Gathered, not summed: means of parts of different sizes are merged by a formula that needs each of them.
        (Gather(group, own, everyone, _NORM), ()),
        *group.bind_definition(_NORMALIZE, [*ins, everyone], outs, attrs),
    ]


def _bind_grad(ins: Slots, outs: Slots, attrs: Attrs, group: Communicator) -> Calls:
    x, scale, _, mean, inverse, dy = ins
    dx, dscale, dbias = outs
    own = group.buffer((2 * math.prod(mean.shape) + 1,), "float64")
    result = [] if dx is None else group.bind_definition(_RESULT, [x, scale, mean, inverse, dy, own], [dx], attrs)
    return [
        *group.bind_definition(_SUMS, [x, mean, inverse, dy], [dscale, dbias, own], attrs),
        (Sum(group, [own], None, _GRAD, 0), ()),
        *result,
    ]


MODES = ("is_test", "use_global_stats", "trainable_statistics")
TRAINS = "the op only stands where batch_norm trains"


def _sync(name: str, ref: Any) -> None:
    """Registers a variant of an op whose ``ref`` communicates with the other replicas."""
    like: OpDef = op_def(name)
    register(
        OpDef(
            f"sync_{name}",
            like.slots,
            attrs={**like.attrs, **{n: replace(like.attrs[n], no_effect=TRAINS) for n in MODES}},
            infer=like.infer,
            ref=ref,
            shape_only=like.shape_only,
            inplace=like.inplace,
            state=like.state,
            float32_inputs=like.float32_inputs,
            effects=True,
            collective=True,
            of=like.of and f"sync_{like.of}",
        )
    )


_sync("batch_norm", CollectiveRef(_bind, only_queues=True))
_sync("batch_norm_grad", CollectiveRef(_bind_grad, only_queues=True))
