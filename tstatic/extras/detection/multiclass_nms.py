"""Suppression of boxes class by class, and the best of what is left of each image."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import FLOATS, Array, by_score, check_boxes, on_host, suppressed
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import (
    check_dtype,
    check_has_shape,
    check_int,
    check_number,
    check_rank,
    check_same_dtype,
    check_type,
)
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import LOD, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int32, int64

NOTHING = -1.0
"""The only number of a result without boxes."""


def check_scored(boxes: Meta, scores: Meta) -> None:
    """Refuses boxes of images, and their scores in each class, that do not fit together.

    Raises:
        ShapeError, DTypeError: Says what was expected.
    """
    check_boxes(boxes, "BBoxes", 3)
    check_dtype(scores, FLOATS, "Scores")
    check_same_dtype((boxes, scores), ("BBoxes", "Scores"))
    check_rank(scores, 3, "Scores", layout="[images, classes, boxes]")
    check_has_shape(scores, (boxes.shape[0], UNKNOWN, boxes.shape[1]), "Scores", why="a score per class and box")


def _infer(boxes: Meta, scores: Meta) -> tuple[Meta, Meta, Meta, Meta]:
    check_scored(boxes, scores)
    images = boxes.shape[0]
    # The one number of a result without boxes has a row of its own.
    out = boxes.with_shape((UNKNOWN, UNKNOWN))
    offsets = Meta((images if images == UNKNOWN else UNKNOWN,), int64)
    return out, offsets, Meta((UNKNOWN, 1), int32), Meta((images,), int32)


def _of_image(
    boxes: Array, scores: Array, background: int, threshold: float, top: int, keep: int, overlap: float, eta: float,
    one: float,
) -> list[tuple[int, int]]:  # fmt: skip
    """Returns class and position of the boxes of an image that are kept, by class and then score."""
    found: list[tuple[int, int]] = []
    for label, score in enumerate(scores):
        if label != background:
            at = np.flatnonzero(score > threshold)
            at = at[by_score(score[at], top)]
            found += [(label, int(i)) for i in at[suppressed(boxes[at], overlap, eta, one)]]
    if 0 <= keep < len(found):
        best = sorted(range(len(found)), key=lambda k: -scores[found[k]])[:keep]
        found = [found[k] for k in sorted(best)]
    return found


def _ref(
    boxes: Array, scores: Array, out: None, offsets: None, index: None, number: None, *, background_label: int,
    score_threshold: float, nms_top_k: int, nms_threshold: float, nms_eta: float, keep_top_k: int, normalized: bool,
) -> list[Array]:  # fmt: skip
    rows: list[Array] = []
    places: list[int] = []
    counts = []
    for n, (box, score) in enumerate(zip(boxes, scores, strict=True)):
        kept = _of_image(
            box, score, background_label, score_threshold, nms_top_k, keep_top_k, nms_threshold, nms_eta,
            0.0 if normalized else 1.0,
        )  # fmt: skip
        counts.append(len(kept))
        rows += [np.concatenate([[label, score[label, i]], box[i]]) for label, i in kept]
        places += [n * len(box) + i for _, i in kept]
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if not rows:
        ends = np.array([0, 1])
        return [np.full((1, 1), NOTHING, boxes.dtype), ends, np.zeros((0, 1), np.int32), np.array(counts, np.int32)]
    return [
        np.array(rows, boxes.dtype), ends, np.array(places, np.int32).reshape(-1, 1), np.array(counts, np.int32),
    ]  # fmt: skip


register(OpDef(
    "multiclass_nms", f"BBoxes, Scores -> Out, Out{LOD}, Index, NmsRoisNum",
    attrs={
        "background_label": 0, "score_threshold": 0.0, "nms_top_k": -1, "nms_threshold": 0.3, "nms_eta": 1.0,
        "keep_top_k": -1, "normalized": True,
    },
    infer=_infer, ref=_ref, lower=on_host(_ref, 4), dynamic=Dynamic("the boxes that are kept"),
    domain=Domain(
        cases=(
            Case(((2, 6, 4), (2, 3, 6)), {"score_threshold": 0.2}),
            Case(((1, 7, 4), (1, 2, 7)), {"background_label": -1, "nms_top_k": 4, "keep_top_k": 3, "normalized": False}),
            Case(((2, 6, 4), (2, 2, 6)), {"nms_threshold": 0.7, "nms_eta": 0.6, "background_label": 1}),
            Case(((1, 3, 4), (1, 2, 3)), {"score_threshold": 9.0}),
        ),
        values={"BBoxes": ValueRange(0.0, 4.0), "Scores": ValueRange(0.0, 1.0, distinct=True)}, floats=FLOATS, ulps=0,
        check_grad="boxes are chosen; as in Paddle, no gradient flows through them",
    ),
))  # fmt: skip


@export("fluid.layers.multiclass_nms", op="multiclass_nms")
def multiclass_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> Variable:
    """Drops, class by class, boxes that overlap better ones, and returns the best of each image.

    Args:
        bboxes: ``[images, boxes, 4]``: left, top, right, bottom; float32 or float64.
        scores: ``[images, classes, boxes]``.
        score_threshold: Boxes of a class need a higher score.
        nms_top_k: At most so many of a class are looked at; all if negative.
        keep_top_k: At most so many of an image are returned; all if negative.
        nms_threshold: Intersection over union from which a box is dropped.
        normalized: Whether coordinates are fractions of the image; if not, both ends of a side are pixels of the box.
        nms_eta: After each box that is kept, a threshold above one half is multiplied by it.
        background_label: A class to leave out; -1 for none.
        name: Name of the layer.

    Returns:
        Rows of class, score, left, top, right and bottom, ``[kept, 6]``, by class and score, with a LoD: the rows of each
        image. A single number -1 if there are none.

    Raises:
        ShapeError, DTypeError: If the values do not fit together.

    Example:
        >>> boxes = paddle.to_tensor([[[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0]]])
        >>> scores = paddle.to_tensor([[[0.5, 0.9, 0.1]]])
        >>> found = fluid.layers.multiclass_nms(boxes, scores, 0.3, nms_top_k=10, keep_top_k=10, background_label=-1)
        >>> static.Executor().run(fetch_list=[found])[0]
        array([[0. , 0.9, 0. , 0. , 2. , 1.9]], dtype=float32)
    """
    function = "multiclass_nms"
    ins = {
        "BBoxes": check_variable(bboxes, "bboxes", function, FLOATS),
        "Scores": check_variable(scores, "scores", function, FLOATS),
    }
    attrs: dict[str, Any] = {
        "score_threshold": check_number(score_threshold, "score_threshold", function),
        "nms_top_k": check_int(nms_top_k, "nms_top_k", function),
        "keep_top_k": check_int(keep_top_k, "keep_top_k", function),
        "nms_threshold": check_number(nms_threshold, "nms_threshold", function),
        "normalized": check_type(normalized, bool, "normalized", function),
        "nms_eta": check_number(nms_eta, "nms_eta", function),
        "background_label": check_int(background_label, "background_label", function),
    }
    found: Variable = emit(function, ins, attrs, name=name, drop=("Index", "NmsRoisNum"))
    found.stop_gradient = True
    return found
