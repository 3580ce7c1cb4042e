"""Forms in ONNX of losses on class numbers, distributions and scores."""

from __future__ import annotations

from typing import Any

from tstatic.ir.onnx_expr import log1p
from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.types import bool_, float32, int64
from tstatic.ops.base.labels import floor_of


def picked(g: Graph, logs: Value, label: Value, axis: int, ignore_index: int, rank: int) -> Value:
    """Returns minus the entries at the labels along an axis, 0 for ignored labels; the axis stays with size 1."""
    axis %= rank
    classes = g.cast(label, int64)
    if label.rank < rank:
        classes = g.unsqueeze(classes, [axis])
    ignored = g.equal(classes, ignore_index)
    # GatherElements refuses an index out of range, and an ignored label may be one.
    places = g.where(ignored, g.const(0, int64), classes)
    found = g("Neg", g("GatherElements", logs, places, axis=axis))
    return g.where(ignored, g.number(0, found), found)


def mixed(g: Graph, logs: Value, label: Value, axis: int) -> Value:
    """Returns minus the mean of entries under a distribution; the axis stays with size 1."""
    total = g("ReduceSum", g.mul(g.cast(label, logs.dtype), logs), g.ints([axis]), keepdims=1)
    return g("Neg", total)


def logs_of(g: Graph, x: Value) -> Value:
    """Returns logarithms of probabilities, none of which is below the smallest normal number."""
    wide = g.wide(x)
    return g("Log", g("Max", wide, g.number(floor_of(x.dtype), wide)))


def cross_entropy(g: Graph, x: Value, label: Value, soft_label: bool, ignore_index: int) -> Value:
    logs = logs_of(g, x)
    if soft_label:
        return mixed(g, logs, label, -1)
    return picked(g, logs, label, -1, ignore_index, x.rank)


def cross_entropy2(g: Graph, x: Value, label: Value, source: Any, *, ignore_index: int) -> Value:
    return cross_entropy(g, x, label, False, ignore_index)


def softmax_with_cross_entropy(
    g: Graph, x: Value, label: Value, source: Any, *, soft_label: bool, ignore_index: int, axis: int, use_softmax: bool
) -> tuple[Value, Value]:
    wide = g.wide(x)
    probabilities = g("Softmax", wide, axis=axis) if use_softmax else x
    # LogSoftmax, not Log of the softmax: a probability that underflows to 0 would be minus infinity.
    logs = g("LogSoftmax", wide, axis=axis) if use_softmax else logs_of(g, x)
    if soft_label:
        return probabilities, mixed(g, logs, label, axis)
    return probabilities, picked(g, logs, label, axis, ignore_index, x.rank)


def nll(g: Graph, x: Value, label: Value, weight: Value | None, *, ignore_index: int, reduction: str) -> Value:
    wide = g.wide(x)
    given = None if weight is None else g.cast(weight, wide.dtype)
    return g(
        "NegativeLogLikelihoodLoss", wide, g.cast(label, int64), given, ignore_index=ignore_index, reduction=reduction
    )


def sigmoid_cross_entropy(
    g: Graph, x: Value, label: Value, weight: Value | None, *, normalize: bool, ignore_index: int
) -> Value:
    wide, target = g.wide(x), g.wide(label)
    # The reference's formula, whose exponential does not overflow.
    soft = log1p(g, g("Exp", g("Neg", g("Abs", wide))))
    product = g.mul(wide, target)
    if weight is None:
        loss = g.add(g.sub(g("Max", wide, g.number(0, wide)), product), soft)
    else:
        factor = g.wide(weight)
        negative = g.mul(g("Neg", wide), g.sub(g.add(target, factor), g.number(1, wide)))
        linear = g.where(g("Less", wide, g.number(0, wide), dtype=bool_), negative, g.sub(wide, product))
        loss = g.add(linear, g.mul(soft, factor))
    ignored = g.equal(target, ignore_index)
    loss = g.where(ignored, g.number(0, loss), loss)
    if not normalize:
        return loss
    count = g("ReduceSum", g.cast(g("Not", ignored, dtype=bool_), loss.dtype), keepdims=0)
    return g.div(loss, g("Max", count, g.number(1, loss)))


def label_smooth(g: Graph, x: Value, prior: Value | None, *, epsilon: float) -> Value:
    wide = g.wide(x)
    kept = g.mul(wide, 1.0 - epsilon)
    if prior is None:
        classes = g.known(x, [x.rank - 1])[0]
        return g.add(kept, epsilon / max(classes, 1))
    return g.add(kept, g.mul(g("Reshape", g.cast(prior, wide.dtype), g.ints([-1])), epsilon))


def kl_div(g: Graph, x: Value, target: Value, *, reduction: str, one_d: bool) -> Value:
    wide, share = g.wide(x), g.wide(target)
    positive = g("Not", g("LessOrEqual", share, g.number(0, share), dtype=bool_), dtype=bool_)
    # Where the share is not above 0 its logarithm has no part in the result.
    safe = g.where(positive, share, g.number(1, share))
    losses = g.where(positive, g.mul(share, g.sub(g("Log", safe), wide)), g.number(0, wide))
    if reduction == "none":
        return losses
    total = g("ReduceSum", losses, keepdims=0)
    if reduction == "mean":
        total = g.div(total, g.cast(g("Size", x, dtype=int64), total.dtype))
    elif reduction == "batchmean" and x.rank:
        total = g.div(total, g.squeeze(g.cast(g.sizes(x, 0, 1), total.dtype), [0]))
    return g("Reshape", total, g.ints([1])) if one_d else total


def accuracy(g: Graph, out: Value | None, indices: Value, label: Value) -> tuple[Value, ...]:
    """Counts the rows whose label is among the indices: returns the share, the count, and the number of rows."""
    sizes = [m.shape for m in g.outs]
    column = g("Reshape", g.cast(label, int64), g.ints([-1, 1]))
    # Equal indices of one row count once: the largest of the hits, not their sum.
    hit = g("ReduceMax", g.cast(g.equal(g.cast(indices, int64), column), int64), g.ints([1]), keepdims=0)
    correct = g("ReduceSum", hit, keepdims=0)
    total = g.squeeze(g.sizes(label, 0, 1), [0])
    share = g.div(g.cast(correct, float32), g.cast(total, float32))
    made = (share, correct, total)
    return tuple(g("Reshape", v, g.ints(s)) if s else v for v, s in zip(made, sizes, strict=True))
