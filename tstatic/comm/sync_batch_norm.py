"""Synchronised batch norm: the statistics of all replicas' samples, weighted by the number that each has."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.comm.group import Communicator
from tstatic.ir.opdef import OpDef, op_def, register
from tstatic.ops._low import in_float32
from tstatic.ops.conv._sliding import is_last
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
        difference = image - mean[:, None]
        squares += np.einsum("cv,cv->c", difference, difference)
    return mean, squares


def _joined(x: Array, group: Communicator) -> tuple[Array, Array, float]:
    """Returns mean and variance of all replicas' samples, and their number.

    Uses the formula of Chan, Golub and LeVeque for merging counts, means and squared differences, in replica order.
    """
    channels = x.shape[1]
    mean, squares = _moments(x)
    own = np.concatenate([[float(x.shape[0] * x.shape[2])], mean, squares])
    everyone = np.empty((group.world, own.size))
    group.all_gather(own, everyone, "sync_batch_norm")
    counts, means, others = everyone[:, :1], everyone[:, 1 : 1 + channels], everyone[:, 1 + channels :]
    total = float(counts.sum())
    if not total:
        return mean, squares, 0.0
    whole = (counts * means).sum(0) / total
    variance = (others + counts * (means - whole) ** 2).sum(0) / total
    return whole, variance, total


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
    *,
    group: Communicator,
    **attrs: Any,
) -> None:
    layout = attrs["data_layout"]
    source, target = _planes(x, layout), _planes(y, layout)
    center, spread, total = _joined(source, group)
    if not total:
        center, spread = mean.astype(np.float64), variance.astype(np.float64)
    inverse = 1.0 / np.sqrt(spread + attrs["epsilon"])
    statistics = center.astype(x.dtype), spread.astype(x.dtype)
    batch_norm_inference(source, scale, bias, *statistics, target, attrs["epsilon"])
    _store(target, y, layout)
    if saved_mean is not None:
        np.copyto(saved_mean, center, casting="unsafe")
    if saved_inverse is not None:
        np.copyto(saved_inverse, inverse, casting="unsafe")
    keep = attrs["momentum"] if momentum_tensor is None else float(momentum_tensor.reshape(-1)[0])
    for new, old, now in ((mean_out, mean, center), (variance_out, variance, spread)):
        if new is not None:
            np.copyto(new, old * keep + now * (1 - keep) if total else old, casting="unsafe")


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
    *,
    group: Communicator,
    **attrs: Any,
) -> None:
    layout = attrs["data_layout"]
    source, given = _planes(x, layout), _planes(dy, layout)
    channels = source.shape[1]
    middle, inverse = saved_mean[:, None], saved_inverse[:, None]
    own = np.zeros(2 * channels + 1)
    for image, gradient in zip(source, given, strict=True):
        own[:channels] += np.add.reduce(gradient, axis=1, dtype=np.float64)
        own[channels:-1] += np.einsum("cv,cv->c", gradient, (image - middle) * inverse, dtype=np.float64)
    own[-1] = source.shape[0] * source.shape[2]
    # The gradients of scale and bias cover the replica's own samples; they are summed later, with the other gradients.
    if dbias is not None:
        np.copyto(dbias, own[:channels], casting="unsafe")
    if dscale is not None:
        np.copyto(dscale, own[channels:-1], casting="unsafe")
    group.all_reduce([own], "sync_batch_norm_grad")
    if dx is None:
        return
    total = max(own[-1], 1.0)
    by_bias = (own[:channels] / total).astype(x.dtype)[:, None]
    by_scale = (own[channels:-1] / total).astype(x.dtype)[:, None]
    factor = inverse if scale is None else inverse * scale[:, None]
    target = _planes(dx, layout)
    for image, gradient, place in zip(source, given, target, strict=True):
        normal = (image - middle) * inverse
        np.copyto(place, (gradient - by_bias - normal * by_scale) * factor)
    _store(target, dx, layout)


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
            effects=True,
            collective=True,
            of=like.of and f"sync_{like.of}",
        )
    )


_sync("batch_norm", _ref)
_sync("batch_norm_grad", _grad_ref)
