"""Suppression of boxes that overlap better ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.extras.detection._boxes import FLOATS, Array, by_score, check_boxes, on_host, suppressed
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import INTEGERS, check_dtype, check_has_shape, check_int, check_number, check_type
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int64


def _infer(boxes: Meta, scores: Meta | None, category: Meta | None) -> Meta:
    check_boxes(boxes, "Boxes")
    if scores is not None:
        check_dtype(scores, FLOATS, "Scores")
        check_has_shape(scores, boxes.shape[:1], "Scores", why="one per box")
    if category is not None:
        check_dtype(category, INTEGERS, "CategoryIdxs")
        check_has_shape(category, boxes.shape[:1], "CategoryIdxs", why="one per box")
    return Meta((UNKNOWN,), int64)


def _ref(
    boxes: Array, scores: Array | None, category: Array | None, kept: None, *, iou_threshold: float,
    categories: Sequence[int], top_k: int,
) -> list[Array]:  # fmt: skip
    order = np.arange(len(boxes)) if scores is None else by_score(scores)
    if category is None:
        found = order[suppressed(boxes[order], iou_threshold)]
    else:
        each = [order[category[order] == c] for c in categories]
        found = np.concatenate([np.zeros(0, np.int64), *(o[suppressed(boxes[o], iou_threshold)] for o in each)])
        if scores is not None:
            found = found[by_score(scores[found])]
    return [found[:top_k] if top_k >= 0 else found]


register(OpDef(
    "nms", "Boxes, Scores?, CategoryIdxs? -> KeepBoxesIdxs",
    attrs={"iou_threshold": 0.3, "categories": Attr((), "ints"), "top_k": -1}, infer=_infer, ref=_ref,
    lower=on_host(_ref, 1), dynamic=Dynamic("the boxes that are kept"),
    paddle=ABSENT,
    domain=Domain(
        cases=(
            Case(((9, 4),)), Case(((9, 4), (9,)), {"iou_threshold": 0.1}),
            Case(((8, 4), (8,), (8,)), {"categories": (0, 2), "top_k": 3}), Case(((0, 4),)),
        ),
        values={
            "Boxes": ValueRange(0.0, 4.0), "Scores": ValueRange(distinct=True),
            "CategoryIdxs": ValueRange(0, 2, dtype="int64"),
        },
        floats=FLOATS, ulps=0, check_grad="positions have no gradient",
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("vision.ops.nms", op="nms")
def nms(
    boxes: Variable,
    iou_threshold: float = 0.3,
    scores: Variable | None = None,
    category_idxs: Variable | None = None,
    categories: Sequence[int] | None = None,
    top_k: int | None = None,
) -> Variable:
    """Returns the positions of boxes that overlap no better box by more than a threshold, best first.

    Args:
        boxes: ``[n, 4]``: left, top, right, bottom; float32 or float64.
        iou_threshold: Intersection over union from which a box is dropped.
        scores: ``[n]``; without it the first box is the best.
        category_idxs: ``[n]``: a category of each box; only boxes of one category suppress each other; integers.
        categories: The categories to look at; it belongs to ``category_idxs``.
        top_k: Return at most so many; all if ``None``.

    Returns:
        int64; their number is known when the program runs.

    Raises:
        ShapeError, DTypeError: If the values do not fit together.
        ProgramError: If only one of ``category_idxs`` and ``categories`` is given, or they are given without scores.

    Example:
        >>> boxes = paddle.to_tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0]])
        >>> kept = paddle.vision.ops.nms(boxes, 0.5, scores=paddle.to_tensor([0.1, 0.9, 0.8]))
        >>> static.Executor().run(fetch_list=[kept])[0]
        array([1, 2])
    """
    function = "nms"
    check_variable(boxes, "boxes", function, FLOATS)
    if scores is not None:
        check_variable(scores, "scores", function, FLOATS)
    if (category_idxs is None) != (categories is None) or (categories is not None and scores is None):
        raise ProgramError(
            "'category_idxs' and 'categories' of nms belong together, and to 'scores'",
            expected="all three, or neither of the two",
            received=", ".join(
                f"{arg}={'None' if v is None else 'given'}"
                for arg, v in (("scores", scores), ("category_idxs", category_idxs), ("categories", categories))
            ),
            fix="pass scores, category_idxs and categories=[0, 1, ...]",
            op=function,
        )
    attrs: dict[str, Any] = {"iou_threshold": check_number(iou_threshold, "iou_threshold", function)}
    if categories is not None:
        check_variable(category_idxs, "category_idxs", function, INTEGERS)
        check_type(categories, (list, tuple), "categories", function)
        attrs["categories"] = [check_int(c, "categories", function) for c in categories]
    if top_k is not None:
        attrs["top_k"] = check_int(top_k, "top_k", function, 0)
    kept: Variable = emit(function, {"Boxes": boxes, "Scores": scores, "CategoryIdxs": category_idxs}, attrs)
    return kept
