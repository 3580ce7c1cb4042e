"""Regions that may hold an object, from the scores and distances of anchors (Ren et al., 2015)."""

from __future__ import annotations

import math
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

_MOST = math.log(1000.0 / 16.0)
"""Largest logarithm of how much larger a box is than its anchor."""


def _infer(
    scores: Meta, deltas: Meta, image: Meta, anchors: Meta, variances: Meta
) -> tuple[Meta, Meta, Meta, Meta, Meta]:
    check_dtype(scores, FLOATS, "Scores")
    check_rank(scores, 4, "Scores", layout="[n, anchors, h, w]")
    n, count, h, w = scores.shape
    for value, slot in ((deltas, "BboxDeltas"), (image, "ImShape"), (anchors, "Anchors"), (variances, "Variances")):
        check_same_dtype((scores, value), ("Scores", slot))
    check_has_shape(deltas, (n, UNKNOWN if count == UNKNOWN else 4 * count, h, w), "BboxDeltas", why="four per anchor")
    check_rank(image, 2, "ImShape", layout="[n, 2], or [n, 3] with scales")
    check_boxes(anchors, "Anchors", (2, 4))
    check_boxes(variances, "Variances", (2, 4))
    return (
        scores.with_shape((UNKNOWN, 4)), Meta((UNKNOWN,), int64), scores.with_shape((UNKNOWN, 1)), Meta((UNKNOWN,), int64),
        Meta((n,), int32),
    )  # fmt: skip


def _decoded(anchors: Array, deltas: Array, variances: Array, one: float) -> Array:
    size = anchors[:, 2:] - anchors[:, :2] + one
    middle = anchors[:, :2] + 0.5 * size
    at = variances[:, :2] * deltas[:, :2] * size + middle
    half = np.exp(np.minimum(variances[:, 2:] * deltas[:, 2:], _MOST)) * size / 2
    return np.concatenate([at - half, at + half - one], axis=1)


def _of_image(
    scores: Array, deltas: Array, image: Array, anchors: Array, variances: Array, before: int, after: int,
    threshold: float, min_size: float, eta: float, one: float, scaled: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """Returns the regions of one image and their scores; a single region of zeros if none is large enough."""
    order = by_score(scores, before if before > 0 else -1)
    boxes = _decoded(anchors[order], deltas[order], variances[order], one)
    limit = np.array([image[1], image[0]] * 2) - one
    boxes = np.clip(boxes, 0, limit.astype(boxes.dtype))
    size = boxes[:, 2:] - boxes[:, :2]
    # Sizes count in the original image if its scale is given.
    sides = size / image[2] + 1 if scaled else size + one
    kept = (sides >= max(min_size, 1.0)).all(axis=1)
    if one:
        kept &= (boxes[:, :2] + (size + one) / 2 <= image[1::-1]).all(axis=1)
    boxes, best = boxes[kept], scores[order][kept]
    if not len(boxes):
        return np.zeros((1, 4), scores.dtype), np.zeros(1, scores.dtype)
    if threshold > 0:
        left = suppressed(boxes, threshold, eta, one, after if after > 0 else -1)
        boxes, best = boxes[left], best[left]
    return boxes, best


def _ref(
    scores: Array, deltas: Array, image: Array, anchors: Array, variances: Array, rois: None, offsets: None, probs: None,
    same: None, number: None, *, pre_nms_topN: int, post_nms_topN: int, nms_thresh: float, min_size: float, eta: float,
    pixel_offset: bool,
) -> list[Array]:  # fmt: skip
    found = [
        _of_image(
            score.transpose(1, 2, 0).reshape(-1), delta.reshape(-1, 4, *delta.shape[1:]).transpose(2, 3, 0, 1).reshape(-1, 4),
            size, anchors.reshape(-1, 4), variances.reshape(-1, 4), pre_nms_topN, post_nms_topN, nms_thresh, min_size, eta,
            1.0 if pixel_offset else 0.0, image.shape[1] > 2,
        )
        for score, delta, size in zip(scores, deltas, image, strict=True)
    ]  # fmt: skip
    counts = [len(b) for b, _ in found]
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return [
        np.concatenate([np.zeros((0, 4), scores.dtype), *(b for b, _ in found)]), ends,
        np.concatenate([np.zeros(0, scores.dtype), *(s for _, s in found)]).reshape(-1, 1), ends,
        np.array(counts, np.int32),
    ]  # fmt: skip


register(OpDef(
    "generate_proposals_v2",
    f"Scores, BboxDeltas, ImShape, Anchors, Variances -> RpnRois, RpnRois{LOD}, RpnRoiProbs, RpnRoiProbs{LOD}, RpnRoisNum",
    attrs={
        "pre_nms_topN": 6000, "post_nms_topN": 1000, "nms_thresh": 0.5, "min_size": 0.1, "eta": 1.0, "pixel_offset": True,
    },
    infer=_infer, ref=_ref, lower=on_host(_ref, 5), dynamic=Dynamic("the boxes that are kept"),
    domain=Domain(
        cases=(
            Case(((2, 2, 3, 3), (2, 8, 3, 3), (2, 2), (3, 3, 2, 4), (3, 3, 2, 4)), {"pixel_offset": False, "min_size": 1.0}),
            Case(((1, 2, 3, 2), (1, 8, 3, 2), (1, 3), (12, 4), (12, 4)), {"pre_nms_topN": 9, "post_nms_topN": 4, "min_size": 2.0}),
            Case(((1, 2, 3, 2), (1, 8, 3, 2), (1, 2), (12, 4), (12, 4)), {"nms_thresh": 0.8, "eta": 0.7}),
            Case(((1, 1, 2, 2), (1, 4, 2, 2), (1, 2), (4, 4), (4, 4)), {"min_size": 99.0, "nms_thresh": 0.0}),
        ),
        values={
            "Scores": ValueRange(distinct=True), "ImShape": ValueRange(5.0, 9.0), "Anchors": ValueRange(0.0, 7.0),
            "Variances": ValueRange(0.5, 0.9),
        },
        floats=FLOATS, ulps=0, check_grad="regions are chosen; as in Paddle, no gradient flows through them",
    ),
))  # fmt: skip


def _proposals(
    function: str, size_name: str, scores: Variable, bbox_deltas: Variable, size: Variable, anchors: Variable,
    variances: Variable, pre_nms_top_n: int, post_nms_top_n: int, nms_thresh: float, min_size: float, eta: float,
    pixel_offset: bool, return_rois_num: bool, name: str | None,
) -> tuple[Any, ...]:  # fmt: skip
    named = (
        ("Scores", "scores", scores), ("BboxDeltas", "bbox_deltas", bbox_deltas), ("ImShape", size_name, size),
        ("Anchors", "anchors", anchors), ("Variances", "variances", variances),
    )  # fmt: skip
    ins = {slot: check_variable(value, arg, function, FLOATS) for slot, arg, value in named}
    attrs = {
        "pre_nms_topN": check_int(pre_nms_top_n, "pre_nms_top_n", function),
        "post_nms_topN": check_int(post_nms_top_n, "post_nms_top_n", function),
        "nms_thresh": check_number(nms_thresh, "nms_thresh", function),
        "min_size": check_number(min_size, "min_size", function), "eta": check_number(eta, "eta", function),
        "pixel_offset": check_type(pixel_offset, bool, "pixel_offset", function),
    }  # fmt: skip
    rois, probabilities, number = emit("generate_proposals_v2", ins, attrs, name=name)
    for made in (rois, probabilities, number):
        made.stop_gradient = True
    asked = check_type(return_rois_num, bool, "return_rois_num", function)
    return rois, probabilities, number if asked else None


@export("vision.ops.generate_proposals", op="generate_proposals_v2")
def generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    img_size: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    pixel_offset: bool = False,
    return_rois_num: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable | None]:
    """Returns regions that may hold an object: the best anchors, moved, clipped, and without those that overlap better ones.

    Args:
        scores: ``[n, anchors, h, w]``; float32 or float64.
        bbox_deltas: ``[n, 4 * anchors, h, w]``: how far each region lies from its anchor.
        img_size: Height and width of each image, ``[n, 2]``.
        anchors: ``[h, w, anchors, 4]``: left, top, right, bottom.
        variances: What distances are multiplied by; the shape of ``anchors``.
        pre_nms_top_n, post_nms_top_n: At most so many of an image before and after the suppression.
        nms_thresh: Intersection over union from which a region is dropped; 0 drops none.
        min_size: Sides are at least so long, and at least 1.
        eta: After each region that is kept, a threshold above one half is multiplied by it.
        pixel_offset: Whether both ends of a side are pixels of the box.
        return_rois_num: Also return how many regions each image has, ``[n]``.
        name: Name of the layer.

    Returns:
        Regions ``[kept, 4]``, their scores ``[kept, 1]``, and the numbers, or ``None``. An image without a region has one of
        zeros.

    Raises:
        ShapeError, DTypeError: If the values do not fit together.

    Example:
        >>> scores, deltas = paddle.to_tensor([[[[0.9, 0.8]]]]), paddle.zeros([1, 4, 1, 2])
        >>> anchors = paddle.to_tensor([[[[0.0, 0.0, 4.0, 4.0]], [[0.0, 0.0, 4.0, 5.0]]]])
        >>> size = paddle.to_tensor([[8.0, 8.0]])
        >>> rois, probabilities, _ = paddle.vision.ops.generate_proposals(scores, deltas, size, anchors, paddle.ones([1, 2, 1, 4]))
        >>> static.Executor().run(fetch_list=[rois])[0]
        array([[0., 0., 4., 4.]], dtype=float32)
    """
    return _proposals(
        "generate_proposals", "img_size", scores, bbox_deltas, img_size, anchors, variances, pre_nms_top_n,
        post_nms_top_n, nms_thresh, min_size, eta, pixel_offset, return_rois_num, name,
    )  # fmt: skip


@export("fluid.layers.generate_proposals", op="generate_proposals_v2")
def fluid_generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    im_info: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    name: str | None = None,
    return_rois_num: bool = False,
) -> Any:
    """Returns regions that may hold an object, with a LoD, as :func:`generate_proposals` with ``pixel_offset=True``.

    Args:
        scores, bbox_deltas, anchors, variances, pre_nms_top_n, post_nms_top_n, nms_thresh, min_size, eta, name: As there.
        im_info: Height, width and scale of each image, ``[n, 3]``; ``min_size`` counts before scaling.
        return_rois_num: Also return how many regions each image has.
    """
    found = _proposals(
        "generate_proposals", "im_info", scores, bbox_deltas, im_info, anchors, variances, pre_nms_top_n, post_nms_top_n,
        nms_thresh, min_size, eta, True, return_rois_num, name,
    )  # fmt: skip
    return found if return_rois_num else found[:2]
