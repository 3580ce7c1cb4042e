"""Scores that fall with the overlap with better boxes, all at once (Wang et al., 2020)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import FLOATS, Array, by_score, on_host, shared
from tstatic.extras.detection.multiclass_nms import check_scored
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_int, check_number, check_type
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int32


def _infer(boxes: Meta, scores: Meta) -> tuple[Meta, Meta, Meta]:
    check_scored(boxes, scores)
    return boxes.with_shape((UNKNOWN, 6)), Meta((UNKNOWN, 1), int32), Meta((boxes.shape[0],), int32)


def _decayed(boxes: Array, scores: Array, gaussian: bool, sigma: float, one: float) -> Array:
    """Returns the scores of boxes, best first, after the overlaps with better ones took their part."""
    covered = np.tril(shared(boxes[:, None], boxes[None], one), -1)
    # How much each better box is itself covered by one that is better still.
    most = covered.max(axis=1, initial=0.0)
    factor = np.exp((most**2 - covered**2) * sigma) if gaussian else (1 - covered) / (1 - most)
    # Only better boxes take part.
    factor[np.triu_indices(len(boxes))] = np.inf
    return np.asarray(scores * np.minimum(factor.min(axis=1, initial=np.inf), 1.0))


def _ref(
    boxes: Array, scores: Array, out: None, index: None, number: None, *, background_label: int, score_threshold: float,
    post_threshold: float, nms_top_k: int, keep_top_k: int, normalized: bool, use_gaussian: bool, gaussian_sigma: float,
) -> list[Array]:  # fmt: skip
    rows: list[Array] = [np.zeros((0, 6), boxes.dtype)]
    places: list[Array] = [np.zeros(0, np.int64)]
    counts = []
    for n, (box, score) in enumerate(zip(boxes, scores, strict=True)):
        found: list[Array] = [np.zeros(0, np.int64)]
        values: list[Array] = [np.zeros(0, boxes.dtype)]
        labels: list[Array] = [np.zeros(0, np.int64)]
        for label, one in enumerate(score):
            if label != background_label:
                at = np.flatnonzero(one > score_threshold)
                at = at[by_score(one[at], nms_top_k)]
                value = _decayed(box[at], one[at], use_gaussian, gaussian_sigma, 0.0 if normalized else 1.0)
                kept = value > post_threshold
                found.append(at[kept])
                values.append(value[kept])
                labels.append(np.full(int(kept.sum()), label))
        place, value, label_of = (np.concatenate(v) for v in (found, values, labels))
        order = by_score(value, keep_top_k)
        counts.append(len(order))
        rows.append(np.column_stack([label_of[order], value[order], box[place[order]]]).astype(boxes.dtype))
        places.append(n * len(box) + place[order])
    return [
        np.concatenate(rows), np.concatenate(places).astype(np.int32).reshape(-1, 1), np.array(counts, np.int32),
    ]  # fmt: skip


register(OpDef(
    "matrix_nms", "BBoxes, Scores -> Out, Index, RoisNum",
    attrs={
        "background_label": 0, "score_threshold": 0.0, "post_threshold": 0.0, "nms_top_k": -1, "keep_top_k": -1,
        "normalized": True, "use_gaussian": False, "gaussian_sigma": 2.0,
    },
    infer=_infer, ref=_ref, lower=on_host(_ref, 3), dynamic=Dynamic("the boxes that are kept"),
    domain=Domain(
        cases=(
            Case(((2, 6, 4), (2, 3, 6)), {"score_threshold": 0.2, "post_threshold": 0.1}),
            Case(
                ((1, 7, 4), (1, 2, 7)),
                {"background_label": -1, "nms_top_k": 5, "keep_top_k": 3, "normalized": False, "use_gaussian": True},
            ),
            Case(((1, 6, 4), (1, 2, 6)), {"use_gaussian": True, "gaussian_sigma": 0.5, "background_label": 1}),
            Case(((1, 3, 4), (1, 2, 3)), {"score_threshold": 9.0}),
        ),
        values={"BBoxes": ValueRange(0.0, 4.0), "Scores": ValueRange(0.0, 1.0, distinct=True)}, floats=FLOATS, ulps=0,
        check_grad="boxes are chosen; as in Paddle, no gradient flows through them",
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("vision.ops.matrix_nms", op="matrix_nms")
def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    return_rois_num: bool = True,
    name: str | None = None,
) -> tuple[Variable, Variable | None, Variable | None]:
    """Lowers the scores of boxes that overlap better ones of their class, and returns the best of each image.

    Args:
        bboxes: ``[images, boxes, 4]``: left, top, right, bottom; float32 or float64.
        scores: ``[images, classes, boxes]``.
        score_threshold: Boxes of a class need a higher score.
        post_threshold: They also need a higher score after it was lowered.
        nms_top_k: At most so many of a class are looked at; all if negative.
        keep_top_k: At most so many of an image are returned; all if negative.
        use_gaussian: Lower scores by a Gaussian of the overlap instead of linearly.
        gaussian_sigma: Factor of the squared overlap in its exponent.
        background_label: A class to leave out; -1 for none.
        normalized: Whether coordinates are fractions of the image; if not, both ends of a side are pixels of the box.
        return_index: Also return the position of each box among those of all images, ``[kept, 1]``.
        return_rois_num: Also return how many boxes each image keeps, ``[images]``.
        name: Name of the layer.

    Returns:
        Rows of class, score, left, top, right and bottom, ``[kept, 6]``, by falling score; how many each image has, and the
        positions: ``None`` where they are not asked for.

    Raises:
        ShapeError, DTypeError: If the values do not fit together.

    Example:
        >>> boxes = paddle.to_tensor([[[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.0]]])
        >>> scores = paddle.to_tensor([[[0.5, 0.8]]])
        >>> found, number, _ = paddle.vision.ops.matrix_nms(boxes, scores, 0.1, 0.0, 10, 10, background_label=-1)
        >>> static.Executor().run(fetch_list=[found])[0][:, 1]
        array([0.8 , 0.25], dtype=float32)
    """
    function = "matrix_nms"
    ins = {
        "BBoxes": check_variable(bboxes, "bboxes", function, FLOATS),
        "Scores": check_variable(scores, "scores", function, FLOATS),
    }
    attrs: dict[str, Any] = {
        "score_threshold": check_number(score_threshold, "score_threshold", function),
        "post_threshold": check_number(post_threshold, "post_threshold", function),
        "nms_top_k": check_int(nms_top_k, "nms_top_k", function),
        "keep_top_k": check_int(keep_top_k, "keep_top_k", function),
        "use_gaussian": check_type(use_gaussian, bool, "use_gaussian", function),
        "gaussian_sigma": check_number(gaussian_sigma, "gaussian_sigma", function),
        "background_label": check_int(background_label, "background_label", function),
        "normalized": check_type(normalized, bool, "normalized", function),
    }
    out, index, number = emit(function, ins, attrs, name=name)
    for made in (out, index, number):
        made.stop_gradient = True
    check_type(return_rois_num, bool, "return_rois_num", function)
    check_type(return_index, bool, "return_index", function)
    return out, number if return_rois_num else None, index if return_index else None
