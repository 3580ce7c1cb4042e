"""Forms in ONNX of softmax and of normalisations, which read saved statistics where they have any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.types import UNKNOWN, numel
from tstatic.ops.base.onnx_layout import back, first


def softmax(op: str, g: Graph, x: Value, axis: int) -> Value:
    if not x.shape:
        return g.squeeze(g(op, g.unsqueeze(x, [0]), axis=0), [0])
    return g(op, x, axis=axis)


def ones(g: Graph, scale: Value | None, bias: Value | None, count: int, like: Value) -> tuple[Value, Value]:
    """Returns factors and summands per channel, ones and zeros where they are left out."""
    return (
        scale or g.const(np.ones(count, like.dtype.np)),
        bias or g.const(np.zeros(count, like.dtype.np)),
    )


def batch_norm(
    g: Graph, x: Value, scale: Any, bias: Any, mean: Value, variance: Value, attrs: Mapping[str, Any]
) -> tuple[Value, ...]:
    layout = attrs["data_layout"]
    source = first(g, x, layout) if x.rank > 2 else x
    # ONNX wants one type for data and statistics, and those of 16-bit data are float32.
    wide = g.cast(source, mean.dtype)
    parameters = [g.cast(v, mean.dtype) for v in ones(g, scale, bias, g.known(mean)[0], mean)]
    made = g("BatchNormalization", wide, *parameters, mean, variance, epsilon=attrs["epsilon"])
    made = g.cast(made, x.dtype)
    return back(g, made, x.rank, layout) if x.rank > 2 else made, mean, variance


def layer_norm(
    g: Graph, x: Value, scale: Value | None, bias: Value | None, *, epsilon: float, begin_norm_axis: int
) -> Value:
    axis = begin_norm_axis % x.rank
    sizes = g.known(x, range(axis, x.rank))
    wide = g.wide(x)
    factor, summand = (g.cast(v, wide.dtype) for v in ones(g, scale, bias, numel(sizes), wide))
    factor, summand = (g.reshape(v, sizes) for v in (factor, summand))
    return g("LayerNormalization", wide, factor, summand, axis=axis, epsilon=epsilon)


def instance_norm(g: Graph, x: Value, scale: Any, bias: Any, *, epsilon: float) -> Value:
    if x.rank == 2:
        # One element per channel: it is its own mean.
        return g("Mul", x, g.number(0, x)) if bias is None else g.add(g("Mul", x, g.number(0, x)), bias)
    factor, summand = ones(g, scale, bias, g.known(x, [1])[0], x)
    return g("InstanceNormalization", x, factor, summand, epsilon=epsilon)


def group_norm(
    g: Graph, x: Value, scale: Value | None, bias: Value | None, *, epsilon: float, groups: int, data_layout: str
) -> Value:
    source = first(g, x, data_layout)
    count = g.known(source, [1])[0]
    inner = source.shape[2:]
    # A known size is stated: beside a batch of 0, which the 0 copies, Reshape cannot resolve -1.
    rest = -1 if UNKNOWN in inner or UNKNOWN in source.shape[:1] else numel(inner) * (count // groups)
    # A group as a channel: GroupNormalization had one factor per group before opset 21, not one per channel.
    flat = g("Reshape", source, g.ints([0, groups, rest]))
    plain = g("InstanceNormalization", flat, *ones(g, None, None, groups, x), epsilon=epsilon)
    made = g("Reshape", plain, g.sizes(source))
    wide = [1, count, *[1] * len(inner)]
    if scale is not None:
        made = g("Mul", made, g.reshape(scale, wide))
    if bias is not None:
        made = g.add(made, g.reshape(bias, wide))
    return back(g, made, x.rank, data_layout)


def data_norm(
    g: Graph, x: Value, scale: Any, bias: Any, size: Value, total: Value, squares: Value, *, slot_dim: int
) -> Value:
    if slot_dim > 0:
        raise g.refuse("for slots of features")
    made = g.mul(g.sub(x, g.div(total, size)), g("Sqrt", g.div(size, squares)))
    made = made if scale is None else g.mul(made, scale)
    return made if bias is None else g.add(made, bias)
