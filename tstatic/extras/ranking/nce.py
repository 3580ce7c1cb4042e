"""Noise-contrastive estimation: a true class against classes that are drawn (Gutmann and Hyvarinen, 2010)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.checks import INTEGERS, check_dtype, check_has_shape, check_rank, check_same_dtype
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, Index, OpDef, ValueRange, register
from tstatic.ir.types import UNKNOWN, Meta, int64
from tstatic.ops.base.indexing import add_rows
from tstatic.tuned import draw
from tstatic.tuned.philox import philox_key

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float64")
SAMPLERS = ("uniform", "log_uniform", "custom_dist")
"""How classes are drawn; the op's attribute is the position."""


# ---------------------------------------------------------------------------------------------------- drawing of classes
def uniform_numbers(n: int, seed: int, rng: Any) -> Array:
    """Returns float64 numbers in [0, 1)."""
    u = np.empty(n)
    draw.fill_uniform(u, 0.0, 1.0, philox_key(rng, seed), rng.start)
    return u


def torch_uniform_numbers(torch: Any, n: int, seed: int, rng: Any, device: Any) -> Any:
    """As :func:`uniform_numbers`."""
    return draw.torch_uniform(torch, n, np.dtype(np.float64), 0.0, 1.0, philox_key(rng, seed), rng.start, device)


def log_uniform_class(u: Array, classes: int) -> Array:
    """Returns classes, of which number ``k`` is drawn with probability ``log((k + 2) / (k + 1)) / log(classes + 1)``."""
    # exp(u * log(n + 1)) - 1 inverts the distribution; by rounding it may give n, one more than the last class.
    return np.asarray(np.minimum(np.exp(u * np.log(classes + 1.0)).astype(np.int64) - 1, classes - 1))


def log_uniform_probability(label: Array, classes: int) -> Array:
    """Returns the probability with which :func:`log_uniform_class` gives each class."""
    return np.asarray(np.log((label + 2.0) / (label + 1.0)) / np.log(classes + 1.0))


def _drawn(u: Array, classes: int, sampler: int, weights: Array | None) -> Array:
    if weights is not None:
        total = np.cumsum(weights, dtype=np.float64)
        found = np.searchsorted(total, u * total[-1], side="right")
        # The last sum is not exactly 1, so u is scaled to it; the limit keeps out classes of weight 0 at the end.
        return np.asarray(np.minimum(found, np.flatnonzero(weights)[-1]))
    if sampler == 1:
        return log_uniform_class(u, classes)
    return np.asarray(np.minimum((u * classes).astype(np.int64), classes - 1))


def _expected(label: Array, classes: int, sampler: int, weights: Array | None, count: int) -> Array:
    """Returns how often each class is expected among ``count`` drawn ones."""
    if weights is not None:
        return np.asarray(weights.astype(np.float64)[label] * count)
    if sampler == 1:
        return np.asarray(log_uniform_probability(label, classes) * count)
    return np.full(label.shape, count / classes)


# -------------------------------------------------------------------------------------------------------------- the loss
def _infer(
    x: Meta, label: Meta, weight: Meta, bias: Meta | None, sample_weight: Meta | None, probabilities: Meta | None,
    *, num_total_classes: int, num_neg_samples: int,
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    check_dtype(x, FLOATS, "Input")
    check_rank(x, 2, "Input", layout="[batch, features]")
    check_dtype(label, INTEGERS, "Label")
    check_rank(label, 2, "Label", layout="[batch, true classes]")
    check_same_dtype((x, weight), ("Input", "Weight"))
    check_has_shape(weight, (num_total_classes, x.shape[1]), "Weight", why="a row per class")
    if bias is not None:
        check_has_shape(bias, (num_total_classes, 1), "Bias", why="a number per class")
    if probabilities is not None:
        check_has_shape(probabilities, (num_total_classes,), "CustomDistProbs", why="a probability per class")
    batch = max(x.shape[0], label.shape[0])
    if sample_weight is not None:
        check_dtype(sample_weight, (x.dtype.name,), "SampleWeight")
        check_rank(sample_weight, (1, 2), "SampleWeight", layout="[batch, 1]")
        if UNKNOWN not in (x.shape[0], sample_weight.numel) and sample_weight.numel < x.shape[0]:
            raise ShapeError(
                "SampleWeight has fewer elements than there are rows",
                expected=f"{x.shape[0]} weights, one for each row",
                received=f"SampleWeight of shape {list(sample_weight.shape)}",
                fix="feed a weight for each row; of more, those of the rows are read",
            )
    width = -1 if label.shape[1] == -1 else label.shape[1] + num_neg_samples
    return x.with_shape((batch, 1)), x.with_shape((batch, width)), Meta((batch, width), int64)


def _ref(
    x: Array,
    label: Array,
    weight: Array,
    bias: Array | None,
    sample_weight: Array | None,
    probabilities: Array | None,
    cost: Array | None,
    logits: Array | None,
    labels: Array | None,
    *,
    num_total_classes: int,
    num_neg_samples: int,
    sampler: int,
    seed: int,
    rng: Any,
) -> None:
    classes, count, true = num_total_classes, num_neg_samples, label.shape[1]
    # A key and a position make each number, so all devices draw the same.
    u = uniform_numbers(len(x) * count, seed, rng)
    drawn = _drawn(u, classes, sampler, probabilities).reshape(len(x), count)
    picked = np.concatenate([label.astype(np.int64), drawn], axis=1)
    scores = np.einsum("nd,nsd->ns", x, weight[picked])
    if bias is not None:
        scores = scores + bias[picked, 0]
    o = 1.0 / (1.0 + np.exp(-scores))
    if cost is not None:
        # Counts in float64, rounded once: a rare class is expected 1e-6 times and less.
        b = _expected(picked, classes, sampler, probabilities, count).astype(x.dtype)
        # The loss is -log(o / (o + b)) for true classes, -log(b / (o + b)) for drawn ones: log(o + b) is in both.
        each = np.log(o + b)
        each[:, :true] -= np.log(o[:, :true])
        each[:, true:] -= np.log(b[:, true:])
        total = each.sum(axis=1)
        cost[:, 0] = total if sample_weight is None else total * sample_weight.reshape(-1)[: len(total)]
    if logits is not None:
        logits[...] = o
    if labels is not None:
        labels[...] = picked


def _grad_ref(
    x: Array,
    label: Array,
    weight: Array,
    bias: Array | None,
    sample_weight: Array | None,
    probabilities: Array | None,
    o: Array,
    labels: Array,
    dcost: Array,
    dx: Array | None,
    dweight: Array | None,
    dbias: Array | None,
    *,
    num_total_classes: int,
    num_neg_samples: int,
    sampler: int,
) -> None:
    b = _expected(labels, num_total_classes, sampler, probabilities, num_neg_samples).astype(x.dtype)
    true = label.shape[1]
    # The slope of log(o + b) along the score, less that of log(o) where the class is a true one.
    slope = o * (1 - o) / (o + b)
    slope[:, :true] -= 1 - o[:, :true]
    slope *= dcost if sample_weight is None else dcost * sample_weight.reshape(-1, 1)[: dcost.shape[0]]
    if dx is not None:
        np.einsum("ns,nsd->nd", slope, weight[labels], out=dx)
    if dweight is not None:
        dweight.fill(0)
        # A class may occur several times: its rows add up, which plain indexing does not do.
        add_rows(dweight, labels.reshape(-1), (slope[:, :, None] * x[:, None, :]).reshape(-1, x.shape[1]), fresh=True)
    if dbias is not None:
        dbias.fill(0)
        np.add.at(dbias[:, 0], labels, slope)


# ---------------------------------------------------------------------------------------------------------------- torch
def _torch_expected(
    torch: Any, label: Any, classes: int, sampler: int, weights: Any, count: int, dtype: Any
) -> Any:  # fmt: skip
    if weights is not None:
        return (weights.double()[label] * count).to(dtype)
    if sampler == 1:
        wide = label.double()
        return (torch.log((wide + 2) / (wide + 1)) / np.log(classes + 1.0) * count).to(dtype)
    return torch.full(label.shape, count / classes, dtype=dtype, device=label.device)


def _torch_cost(
    torch: Any, x: Any, weight: Any, bias: Any, sample_weight: Any, picked: Any, b: Any, true: int
) -> tuple[Any, Any]:
    scores = (x[:, None, :] * weight[picked]).sum(-1)
    if bias is not None:
        scores = scores + bias[picked, 0]
    o = torch.sigmoid(scores)
    terms = torch.cat([torch.log(o[:, :true]), torch.log(b[:, true:])], 1)
    cost = (torch.log(o + b) - terms).sum(1, keepdim=True)
    return (cost if sample_weight is None else cost * sample_weight.reshape(-1, 1)[: cost.shape[0]]), o


def _lower(
    torch: Any, x: Any, label: Any, weight: Any, bias: Any, sample_weight: Any, probabilities: Any,
    *, num_total_classes: int, num_neg_samples: int, sampler: int, seed: int, rng: Any,
) -> Any:  # fmt: skip
    classes, count = num_total_classes, num_neg_samples
    u = torch_uniform_numbers(torch, len(x) * count, seed, rng, x.device)
    if probabilities is not None:
        total = torch.cumsum(probabilities.double(), 0)
        drawn = torch.searchsorted(total, u * total[-1], right=True).clamp(max=int(probabilities.nonzero()[-1]))
    elif sampler == 1:
        drawn = (torch.exp(u * np.log(classes + 1.0)).long() - 1).clamp(max=classes - 1)
    else:
        drawn = (u * classes).long().clamp(max=classes - 1)
    picked = torch.cat([label.long(), drawn.reshape(len(x), count)], 1)
    b = _torch_expected(torch, picked, classes, sampler, probabilities, count, x.dtype)
    return (*_torch_cost(torch, x, weight, bias, sample_weight, picked, b, label.shape[1]), picked)


def _grad_lower(
    torch: Any, x: Any, label: Any, weight: Any, bias: Any, sample_weight: Any, probabilities: Any, o: Any,
    labels: Any, dcost: Any, *, num_total_classes: int, num_neg_samples: int, sampler: int,
) -> Any:  # fmt: skip
    b = _torch_expected(torch, labels, num_total_classes, sampler, probabilities, num_neg_samples, x.dtype)
    true = label.shape[1]
    # As in `_grad_ref`.
    slope = o * (1 - o) / (o + b)
    slope = torch.cat([slope[:, :true] - (1 - o[:, :true]), slope[:, true:]], 1)
    slope = slope * (dcost if sample_weight is None else dcost * sample_weight.reshape(-1, 1)[: dcost.shape[0]])
    dx = (slope[:, :, None] * weight[labels]).sum(1)
    rows = (slope[:, :, None] * x[:, None, :]).flatten(0, 1)
    dweight = torch.zeros_like(weight).index_add_(0, labels.flatten(), rows)
    if bias is None:
        return dx, dweight, None
    return dx, dweight, torch.zeros_like(bias).index_add_(0, labels.flatten(), slope.reshape(-1, 1))


_INPUTS = "Input, Label, Weight, Bias?, SampleWeight?, CustomDistProbs?"

register(OpDef(
    "nce", f"{_INPUTS} -> Cost, SampleLogits~, SampleLabels~",
    attrs={
        "num_total_classes": Attr(kind="int"), "num_neg_samples": 10,
        "sampler": Attr(0, "int", lambda v: None if v in (0, 1, 2) else "0 (uniform), 1 (log_uniform) or 2 (custom_dist)"),
        "seed": 0, "is_sparse": Attr.idle(False, "the gradient of the weight is dense"),
        "remote_prefetch": Attr.idle(False, "there are no parameter servers"),
    },
    infer=_infer, ref=_ref, lower=_lower, random=True, uses_blas=True, amp="black",
    indices=(Index(
        "Label", lambda *ins, num_total_classes: num_total_classes, fix="feed classes below num_total_classes={size}"
    ),),
    grad=GradOp(
        f"{_INPUTS}, SampleLogits, SampleLabels, Cost@GRAD -> Input@GRAD, Weight@GRAD, Bias@GRAD",
        ref=_grad_ref, lower=_grad_lower,
    ),
    domain=Domain(
        cases=(
            Case(((4, 3), (4, 1), (5, 3), (5, 1)), {"num_total_classes": 5, "num_neg_samples": 3}),
            Case(((3, 2), (3, 2), (9, 2), None, (3, 1)), {"num_total_classes": 9, "num_neg_samples": 4, "sampler": 1}),
            Case(
                ((2, 3), (2, 1), (4, 3), (4, 1), (2,), (4,)),
                {"num_total_classes": 4, "num_neg_samples": 2, "sampler": 2, "seed": 7},
            ),
            Case(((0, 2), (0, 1), (3, 2), (3, 1)), {"num_total_classes": 3, "num_neg_samples": 2}),
        ),
        values={
            "Label": ValueRange(0, "Weight.0", dtype="int64"), "CustomDistProbs": ValueRange(rows=True),
            "SampleWeight": ValueRange(0.5, 2.0),
        },
        floats=FLOATS, ulps=32.0,
    ),
))  # fmt: skip
