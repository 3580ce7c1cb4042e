"""The scores of the true classes and of some that are drawn (`sample_logits`), and the cross entropy of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.ranking.nce import (
    FLOATS,
    log_uniform_class,
    log_uniform_probability,
    torch_uniform_numbers,
    uniform_numbers,
)
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import (
    INTEGERS,
    check_dtype,
    check_has_shape,
    check_int,
    check_rank,
    check_same_dtype,
    check_type,
)
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, Index, OpDef, ValueRange, export, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.program import Variable
from tstatic.ir.rng import RngKey
from tstatic.ir.types import Meta, int64
from tstatic.ops.indexing.embedding import one_hot
from tstatic.ops.loss.softmax_with_cross_entropy import softmax_with_cross_entropy

Array = np.ndarray[Any, Any]

FAR = 1e20
"""The score, below zero, of a drawn class that is a true one of its row: its probability is then 0."""


def _infer(
    logits: Meta, labels: Meta, samples: Meta | None, probabilities: Meta | None, *, num_samples: int
) -> tuple[Meta, Meta, Meta, Meta]:
    check_dtype(logits, FLOATS, "Logits")
    check_rank(logits, 2, "Logits", layout="[batch, classes]")
    check_dtype(labels, INTEGERS, "Labels")
    check_rank(labels, 2, "Labels", layout="[batch, true classes]")
    true = labels.shape[1]
    shape = (max(logits.shape[0], labels.shape[0]), -1 if true == -1 else true + num_samples)
    if samples is not None and probabilities is not None:
        check_dtype(samples, INTEGERS, "CustomizedSamples")
        check_same_dtype((logits, probabilities), ("Logits", "CustomizedProbabilities"))
        for value, name in ((samples, "CustomizedSamples"), (probabilities, "CustomizedProbabilities")):
            check_has_shape(value, shape, name, why="the true classes of each row, then those that are drawn")
    elif logits.shape[1] != -1:
        check_int(num_samples, "num_samples", "sample_logits", 1, logits.shape[1], fix="draw at most all classes")
    return Meta(shape, int64), logits.with_shape(shape), logits.with_shape(shape), Meta(labels.shape, int64)


def _distinct(uniform: Any, classes: int, count: int) -> tuple[Array, int]:
    """Returns distinct classes from a log-uniform distribution, and how many were drawn until they were found.

    Args:
        uniform: ``(first, count) -> numbers``: numbers in [0, 1) from a stream.
        classes: How many there are.
        count: How many to find.
    """
    # More than are needed: the first classes of the distribution are drawn again and again.
    drawn, block = np.zeros(0, np.int64), 4 * count
    while True:
        drawn = np.concatenate([drawn, log_uniform_class(uniform(len(drawn), block), classes)])
        # In the order of drawing, as the number of tries counts; `unique` sorts by class.
        first = np.sort(np.unique(drawn, return_index=True)[1])
        if len(first) >= count:
            return drawn[first[:count]], int(first[count - 1]) + 1
        block *= 2


def _from(rng: RngKey, start: int) -> Any:
    return rng.tile(start)


def _picked(uniform: Any, labels: Array, classes: int, count: int) -> tuple[Array, Array]:
    """Returns true and drawn classes, and the probability that each is among the drawn ones."""
    drawn, tries = _distinct(uniform, classes, count)
    picked = np.concatenate([labels, np.broadcast_to(drawn, (len(labels), count))], axis=1)
    one = log_uniform_probability(picked, classes)
    # 1 - (1 - p)^tries, in a form that keeps the digits of a small p.
    return picked, one * count if tries == count else -np.expm1(tries * np.log1p(-one))


def _ref(
    logits: Array,
    labels: Array,
    given: Array | None,
    given_probabilities: Array | None,
    samples: Array | None,
    probabilities: Array | None,
    sampled: Array | None,
    sampled_labels: Array | None,
    *,
    num_samples: int,
    remove_accidental_hits: bool,
    seed: int,
    rng: Any,
) -> None:
    true, classes = labels.shape[1], logits.shape[1]
    if given is not None and given_probabilities is not None:
        picked, chance = given.astype(np.int64), given_probabilities
    else:
        picked, chance = _picked(
            lambda start, n: uniform_numbers(n, seed, _from(rng, start)), labels.astype(np.int64), classes, num_samples
        )
    if samples is not None:
        samples[...] = picked
    if probabilities is not None:
        probabilities[...] = chance
    if sampled is not None:
        # Less log(chance), which makes the sum over drawn classes an estimate of that over all (Jean et al., 2015).
        sampled[...] = np.take_along_axis(logits, picked, 1) - np.log(chance.astype(logits.dtype))
        if remove_accidental_hits:
            hits = (picked[:, true:, None] == picked[:, None, :true]).any(axis=2)
            sampled[:, true:][hits] = -FAR
    if sampled_labels is not None:
        # Among the sampled scores the true classes are the first columns.
        sampled_labels[...] = np.arange(true)


def _lower(
    torch: Any, logits: Any, labels: Any, given: Any, given_probabilities: Any,
    *, num_samples: int, remove_accidental_hits: bool, seed: int, rng: Any,
) -> Any:  # fmt: skip
    true, classes = labels.shape[1], logits.shape[1]
    if given is not None:
        picked, chance = given.long(), given_probabilities
    else:

        def uniform(start: int, n: int) -> Array:
            # On the host: how many have to be drawn depends on the values.
            drawn = torch_uniform_numbers(torch, n, seed, _from(rng, start), "cpu")
            return np.asarray(drawn.numpy())

        arrays = _picked(uniform, labels.cpu().long().numpy(), classes, num_samples)
        picked, chance = (torch.from_numpy(a).to(logits.device) for a in arrays)
        chance = chance.to(logits.dtype)
    sampled = logits.gather(1, picked) - torch.log(chance)
    if remove_accidental_hits:
        hits = (picked[:, true:, None] == picked[:, None, :true]).any(2)
        sampled[:, true:] = sampled[:, true:].masked_fill(hits, -FAR)
    return picked, chance, sampled, torch.arange(true).expand(labels.shape).clone()


def _grad_ref(logits: Array, samples: Array, sampled: Array, dsampled: Array, dlogits: Array) -> None:
    dlogits.fill(0)
    # A hit was replaced by a constant, so no gradient passes.
    counted = np.where(sampled == sampled.dtype.type(-FAR), 0, dsampled)
    np.add.at(dlogits, (np.arange(len(samples))[:, None], samples), counted)


def _grad_lower(torch: Any, logits: Any, samples: Any, sampled: Any, dsampled: Any) -> Any:
    counted = dsampled.masked_fill(sampled == torch.tensor(-FAR, dtype=sampled.dtype), 0)
    return torch.zeros_like(logits).scatter_add(1, samples, counted)


register(OpDef(
    "sample_logits",
    "Logits, Labels, CustomizedSamples?, CustomizedProbabilities? -> Samples, Probabilities, SampledLogits, SampledLabels",
    attrs={
        "num_samples": Attr(kind="int"), "remove_accidental_hits": True, "seed": 0,
        "use_customized_samples": Attr.idle(False, "the inputs say whether classes are given"),
        "uniq": Attr.idle(True, "drawn classes are distinct"),
    },
    infer=_infer, ref=_ref, lower=_lower, random=True, amp="black", paddle=ABSENT,
    indices=tuple(
        Index(slot, lambda logits, *rest: logits.shape[1], fix="feed classes below {size}")
        for slot in ("Labels", "CustomizedSamples")
    ),
    grad=GradOp(
        "Logits, Samples, SampledLogits, SampledLogits@GRAD -> Logits@GRAD", ref=_grad_ref, lower=_grad_lower,
        shape_only=("Logits",),
    ),
    # Without hits: differences of scores of -1e20 say nothing.
    domain=Domain(
        cases=(
            Case(((3, 9), (3, 1)), {"num_samples": 4, "remove_accidental_hits": False}),
            Case(((2, 12), (2, 2)), {"num_samples": 3, "seed": 5, "remove_accidental_hits": False}),
            Case(((4, 3), (4, 1)), {"num_samples": 3, "remove_accidental_hits": False}),
            Case(((2, 5), (2, 1), (2, 3), (2, 3)), {"num_samples": 2, "remove_accidental_hits": False}),
            Case(((0, 5), (0, 1)), {"num_samples": 2}),
        ),
        values={
            "Labels": ValueRange(0, "Logits.1", dtype="int64"),
            "CustomizedSamples": ValueRange(0, "Logits.1", dtype="int64"),
            "CustomizedProbabilities": ValueRange(0.1, 0.9),
        },
        floats=FLOATS, ulps=16.0,
    ),
))  # fmt: skip


@export("fluid.layers.sampled_softmax_with_cross_entropy", op="sample_logits")
def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Returns the cross entropy of each row's true classes among themselves and classes that are drawn.

    Distinct classes are drawn from a log-uniform distribution, the same for all rows; the logarithm of the chance to be
    drawn is taken off each score (Jean et al., 2015).

    Args:
        logits: Scores ``[batch, classes]``, classes in the order of their frequency; float32 or float64.
        label: True classes ``[batch, num_true]``; integers.
        num_samples: How many classes are drawn; at most all.
        num_true: True classes per row.
        remove_accidental_hits: Whether a drawn class that is a true one of its row counts for nothing.
        use_customized_samples: Take the classes and chances that are given instead.
        customized_samples: ``[batch, num_true + num_samples]``: the true classes of each row, then drawn ones; integers.
        customized_probabilities: The chance of each; floats.
        seed: Replaces the program's seed if it is not 0.

    Returns:
        ``[batch, 1]``.

    Raises:
        ShapeError, DTypeError: If the arguments do not fit together.

    Example:
        >>> scores, label = static.data("scores", [None, 10000]), static.data("label", [None, 1], "int64")
        >>> loss = fluid.layers.sampled_softmax_with_cross_entropy(scores, label, num_samples=25)
        >>> loss.shape
        (-1, 1)
    """
    function = "sampled_softmax_with_cross_entropy"
    check_variable(logits, "logits", function, FLOATS)
    check_variable(label, "label", function, INTEGERS)
    check_int(num_samples, "num_samples", function, 1)
    check_int(num_true, "num_true", function, 1)
    check_has_shape(label, (-1, num_true), "label", function, why="num_true classes per row")
    ins: dict[str, Any] = {"Logits": logits, "Labels": label}
    if check_type(use_customized_samples, bool, "use_customized_samples", function):
        ins["CustomizedSamples"] = check_variable(customized_samples, "customized_samples", function, INTEGERS)
        ins["CustomizedProbabilities"] = check_variable(
            customized_probabilities, "customized_probabilities", function, FLOATS
        )
    attrs = {"num_samples": num_samples, "remove_accidental_hits": remove_accidental_hits, "seed": seed}
    _, _, scores, labels = emit("sample_logits", ins, attrs)
    hot = one_hot(labels, num_true + num_samples)
    # Several true classes share the weight, so that the row sums to 1.
    soft = hot if num_true == 1 else emit("reduce_sum", {"X": hot}, {"dim": (1,), "keep_dim": False}) / num_true
    soft = emit("reshape2", {"X": soft}, {"shape": (-1, num_true + num_samples)})
    soft.stop_gradient = True
    loss = softmax_with_cross_entropy(scores, soft, soft_label=True)
    assert isinstance(loss, Variable)
    return loss
