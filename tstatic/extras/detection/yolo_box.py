"""Boxes and scores of what a YOLO network answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import FLOATS, Array
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import (
    INTEGERS,
    check_divisible,
    check_dtype,
    check_has_shape,
    check_int,
    check_number,
    check_rank,
    check_size,
    check_type,
)
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.torch_tables import fresh
from tstatic.ir.types import UNKNOWN, Meta


def check_anchors(anchors: Any, function: str) -> list[int]:
    """Returns the widths and heights of anchors as ints; there are as many of both.

    Raises:
        ProgramTypeError: If they are not a list.
        ShapeError: If their number is odd or 0, or one is not positive.
    """
    check_type(anchors, (list, tuple), "anchors", function)
    check_divisible(len(anchors) or 1, 2, "the number of entries in anchors", "the number of sides", function)
    return [check_int(v, "anchors", function, 1) for v in anchors]


def _infer(x: Meta, size: Meta, *, anchors: Sequence[int], class_num: int, iou_aware: bool) -> tuple[Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    check_rank(x, 4, "X", layout="[n, c, h, w]")
    count = len(anchors) // 2
    check_size(x, 1, count * (class_num + (6 if iou_aware else 5)), "X", why="place, score and classes of each anchor")
    check_dtype(size, INTEGERS, "ImgSize")
    check_has_shape(size, (x.shape[0], 2), "ImgSize", why="height and width of each image")
    boxes = UNKNOWN if UNKNOWN in x.shape[2:] else count * x.shape[2] * x.shape[3]
    return x.with_shape((x.shape[0], boxes, 4)), x.with_shape((x.shape[0], boxes, class_num))


def _boxes(
    xp: Any, x: Any, size: Any, line: Any, anchors: Sequence[int], class_num: int, conf_thresh: float,
    downsample_ratio: int, clip_bbox: bool, scale: float, iou_aware: bool, factor: float,
) -> tuple[Any, Any]:  # fmt: skip
    n, _, h, w = x.shape
    count = len(anchors) // 2

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + xp.exp(-v))

    certain = None
    if iou_aware:
        certain, x = sigmoid(x[:, :count]), x[:, count:]
    each = x.reshape(n, count, 5 + class_num, h, w)
    # Heights and widths of the images, in the type of the boxes.
    high, wide = (size[:, i].reshape(n, 1, 1, 1) for i in (0, 1))
    shift = 0.5 * (scale - 1)
    cx = (sigmoid(each[:, :, 0]) * scale - shift + line(range(w))) * wide / w
    cy = (sigmoid(each[:, :, 1]) * scale - shift + line(range(h))[:, None]) * high / h
    across = xp.exp(each[:, :, 2]) * line(anchors[::2]).reshape(count, 1, 1) * wide / (downsample_ratio * w)
    down = xp.exp(each[:, :, 3]) * line(anchors[1::2]).reshape(count, 1, 1) * high / (downsample_ratio * h)
    sure = sigmoid(each[:, :, 4])
    if certain is not None:
        sure = sure ** (1 - factor) * certain**factor
    kept = sure >= conf_thresh
    left, top, right, bottom = cx - across / 2, cy - down / 2, cx + across / 2, cy + down / 2
    if clip_bbox:
        zero = xp.zeros_like(left)
        left, top = xp.maximum(left, zero), xp.maximum(top, zero)
        right, bottom = xp.minimum(right, wide - 1), xp.minimum(bottom, high - 1)
    boxes = xp.where(kept[..., None], xp.stack([left, top, right, bottom], -1), 0.0)
    scores = xp.where(kept[:, :, None], sure[:, :, None] * sigmoid(each[:, :, 5:]), 0.0)
    total = count * h * w
    return boxes.reshape(n, total, 4), xp.moveaxis(scores, 2, -1).reshape(n, total, class_num)


def _ref(
    x: Array, size: Array, boxes: Array | None, scores: Array | None, *, anchors: Sequence[int], class_num: int,
    conf_thresh: float, downsample_ratio: int, clip_bbox: bool, scale_x_y: float, iou_aware: bool,
    iou_aware_factor: float,
) -> None:  # fmt: skip
    def line(values: Any) -> Array:
        return np.array(values, x.dtype)

    found = _boxes(
        np, x, size.astype(x.dtype), line, anchors, class_num, conf_thresh, downsample_ratio, clip_bbox, scale_x_y,
        iou_aware, iou_aware_factor,
    )  # fmt: skip
    for out, made in zip((boxes, scores), found, strict=True):
        if out is not None:
            np.copyto(out, made)


def _lower(
    torch: Any, x: Any, size: Any, *, anchors: Sequence[int], class_num: int, conf_thresh: float, downsample_ratio: int,
    clip_bbox: bool, scale_x_y: float, iou_aware: bool, iou_aware_factor: float, tables: Any = fresh,
) -> Any:  # fmt: skip
    def line(values: Any) -> Any:
        return tables(torch, list(values), x.dtype, x.device)

    return _boxes(
        torch, x, size.to(x.dtype), line, anchors, class_num, conf_thresh, downsample_ratio, clip_bbox, scale_x_y,
        iou_aware, iou_aware_factor,
    )  # fmt: skip


register(OpDef(
    "yolo_box", "X, ImgSize -> Boxes, Scores",
    attrs={
        "anchors": Attr(kind="ints"), "class_num": Attr(kind="int"), "conf_thresh": 0.01,
        "downsample_ratio": Attr(32, "int", lambda v: None if v > 0 else "a number above 0"), "clip_bbox": True,
        "scale_x_y": 1.0, "iou_aware": False, "iou_aware_factor": 0.5,
    },
    infer=_infer, ref=_ref, lower=_lower,
    domain=Domain(
        cases=(
            Case(((2, 14, 2, 3), (2, 2)), {"anchors": (10, 13, 16, 30), "class_num": 2}),
            Case(
                ((1, 6, 3, 2), (1, 2)),
                {"anchors": (10, 13), "class_num": 1, "clip_bbox": False, "scale_x_y": 1.2, "conf_thresh": 0.5},
            ),
            Case(
                ((1, 8, 2, 2), (1, 2)),
                {"anchors": (20, 30), "class_num": 2, "iou_aware": True, "iou_aware_factor": 0.3, "downsample_ratio": 16},
            ),
        ),
        # A certainty is clear of the threshold of one half.
        values={"ImgSize": ValueRange(20, 90, dtype="int32"), "X": ValueRange(avoid=(0.0,))}, floats=FLOATS, ulps=256.0,
        check_grad="boxes are answers; as in Paddle, no gradient flows through them",
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("vision.ops.yolo_box", op="yolo_box")
def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Sequence[int],
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
    iou_aware: bool = False,
    iou_aware_factor: float = 0.5,
) -> tuple[Variable, Variable]:
    """Returns the boxes and scores that the answer of a YOLO network means.

    Args:
        x: ``[n, anchors * (5 + class_num), h, w]``: of each anchor x, y, width, height, certainty and classes, before
            sigmoids and exponentials; float32 or float64. With ``iou_aware`` first the overlap of each anchor.
        img_size: Height and width of each image, ``[n, 2]``; integers.
        anchors: Widths and heights in turn, in pixels of the network's input.
        class_num: How many classes there are.
        conf_thresh: Boxes of less certainty are zeros, and so are their scores.
        downsample_ratio: How much larger the network's input is than ``x``.
        clip_bbox: Clip boxes to the image.
        name: Name of the layer.
        scale_x_y: How far, in pixels of ``x``, a centre can move.
        iou_aware: Whether certainties take the predicted overlap in.
        iou_aware_factor: How much: ``certainty ** (1 - factor) * overlap ** factor``.

    Returns:
        Boxes ``[n, h * w * anchors, 4]`` in pixels of the image, and scores ``[n, h * w * anchors, class_num]``.

    Raises:
        ShapeError, DTypeError: If the arguments do not fit together.

    Example:
        >>> x, size = paddle.zeros([1, 6, 1, 1]), paddle.to_tensor(np.array([[64, 64]], "int32"))
        >>> boxes, scores = paddle.vision.ops.yolo_box(x, size, [16, 16], 1, conf_thresh=0.1, downsample_ratio=32)
        >>> [v.ravel().tolist() for v in static.Executor().run(fetch_list=[boxes, scores])]
        [[16.0, 16.0, 48.0, 48.0], [0.25]]
    """
    function = "yolo_box"
    ins = {
        "X": check_variable(x, "x", function, FLOATS),
        "ImgSize": check_variable(img_size, "img_size", function, INTEGERS),
    }
    attrs = {
        "anchors": check_anchors(anchors, function), "class_num": check_int(class_num, "class_num", function, 1),
        "conf_thresh": check_number(conf_thresh, "conf_thresh", function),
        "downsample_ratio": check_int(downsample_ratio, "downsample_ratio", function, 1),
        "clip_bbox": check_type(clip_bbox, bool, "clip_bbox", function),
        "scale_x_y": check_number(scale_x_y, "scale_x_y", function),
        "iou_aware": check_type(iou_aware, bool, "iou_aware", function),
        "iou_aware_factor": check_number(iou_aware_factor, "iou_aware_factor", function),
    }  # fmt: skip
    boxes, scores = emit(function, ins, attrs, name=name)
    return boxes, scores


@export("fluid.layers.yolo_box", op="yolo_box")
def fluid_yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Sequence[int],
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
    iou_aware: bool = False,
    iou_aware_factor: float = 0.5,
) -> tuple[Variable, Variable]:
    """Returns the boxes and scores of a YOLO network; arguments as of :func:`yolo_box`.

    Args:
        x, img_size, anchors, class_num, conf_thresh, downsample_ratio, clip_bbox, name, scale_x_y, iou_aware, iou_aware_factor:
            As there.
    """
    return yolo_box(
        x, img_size, anchors, class_num, conf_thresh, downsample_ratio, clip_bbox, name, scale_x_y, iou_aware, iou_aware_factor,
    )  # fmt: skip
