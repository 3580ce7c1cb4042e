"""Intersection over union of predicted and true classes, averaged over the classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import INTEGERS, check_dtype, check_int, check_same_dtype, check_same_shape
from tstatic.ir.opdef import Attr, Case, Domain, Index, OpDef, ValueRange, export, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, float32, int32
from tstatic.ops.base.host import READS_LABELS

Array = np.ndarray[Any, Any]


def _infer(predictions: Meta, labels: Meta, *, num_classes: int) -> tuple[Meta, Meta, Meta]:
    check_dtype(predictions, INTEGERS, "Predictions")
    check_same_dtype((predictions, labels), ("Predictions", "Labels"))
    check_same_shape((predictions, labels), ("Predictions", "Labels"))
    return Meta((1,), float32), Meta((num_classes,), int32), Meta((num_classes,), int32)


def _ref(
    predictions: Array, labels: Array, mean: Array | None, wrong: Array | None, correct: Array | None,
    *, num_classes: int,
) -> None:  # fmt: skip
    found, true = predictions.reshape(-1), labels.reshape(-1)
    right = found == true
    hits = np.bincount(true[right], minlength=num_classes)
    misses = np.bincount(true[~right], minlength=num_classes) + np.bincount(found[~right], minlength=num_classes)
    if mean is not None:
        seen = hits + misses
        # A class that is in neither value has no share, and does not lower the mean.
        shares = hits[seen > 0] / seen[seen > 0]
        mean[0] = shares.mean() if len(shares) else 0.0
    if wrong is not None:
        wrong[...] = misses
    if correct is not None:
        correct[...] = hits


def _lower(torch: Any, predictions: Any, labels: Any, *, num_classes: int) -> Any:
    hot = [torch.nn.functional.one_hot(v.reshape(-1).long(), num_classes).bool() for v in (predictions, labels)]
    hits, either = (hot[0] & hot[1]).sum(0), hot[0].sum(0) + hot[1].sum(0)
    # A hit is in both counts, and a miss in each of two classes, as the reference has it.
    misses = either - 2 * hits
    seen = (hits + misses) > 0
    shares = hits[seen].double() / (hits + misses)[seen]
    mean = shares.mean() if len(shares) else torch.zeros(())
    return mean.float().reshape(1), misses.int(), hits.int()


# Classes that exist, in both inputs.
_CLASS = ValueRange(0, "num_classes", dtype="int64")

register(OpDef(
    "mean_iou", "Predictions, Labels -> OutMeanIou, OutWrong, OutCorrect", attrs={"num_classes": Attr(kind="int")},
    infer=_infer, ref=_ref, traits=(READS_LABELS,), lower=_lower, paddle=ABSENT,
    indices=tuple(
        Index(slot, lambda found, true, *, num_classes: num_classes, fix="feed classes below num_classes={size}")
        for slot in ("Predictions", "Labels")
    ),
    domain=Domain(
        cases=(
            Case(((2, 3), (2, 3)), {"num_classes": 4}), Case(((40,), (40,)), {"num_classes": 3}),
            Case(((0,), (0,)), {"num_classes": 2}),
        ),
        values={"Predictions": _CLASS, "Labels": _CLASS}, floats=("float32",), ulps=2,
        check_grad="counts have no gradient",
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("fluid.layers.mean_iou", op="mean_iou")
def mean_iou(input: Variable, label: Variable, num_classes: int) -> tuple[Variable, Variable, Variable]:
    """Returns the mean over the classes of how many pixels are of a class in both values, over those where it is in either.

    Args:
        input: Predicted classes, any shape; integers.
        label: True classes of that shape and dtype.
        num_classes: How many classes there are; classes that occur nowhere are left out of the mean.

    Returns:
        The mean ``[1]``, float32; per class the number of wrong pixels, predicted or true, and of right ones, int32.

    Raises:
        ShapeError, DTypeError: If the values do not fit together.
        IndexRangeError: At run time, for a class that is not below ``num_classes``.

    Example:
        >>> found, true = paddle.to_tensor([0, 1, 1, 2]), paddle.to_tensor([0, 1, 2, 2])
        >>> mean, wrong, correct = fluid.layers.mean_iou(found, true, num_classes=3)
        >>> [v.tolist() for v in static.Executor().run(fetch_list=[wrong, correct])]
        [[0, 1, 1], [1, 1, 1]]
    """
    ins = {
        "Predictions": check_variable(input, "input", "mean_iou", INTEGERS),
        "Labels": check_variable(label, "label", "mean_iou", INTEGERS),
    }
    mean, wrong, correct = emit("mean_iou", ins, {"num_classes": check_int(num_classes, "num_classes", "mean_iou", 1)})
    return mean, wrong, correct
