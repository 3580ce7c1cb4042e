"""Boxes and scores of what a YOLO network answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import FLOATS
from tstatic.ir.build import check_variable
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
from tstatic.ir.composed import composed
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.elementwise.activation import sigmoid
from tstatic.ops.elementwise.activation_piecewise import relu
from tstatic.ops.elementwise.arithmetic import minimum
from tstatic.ops.elementwise.logic import where
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.elementwise.unary import exp
from tstatic.ops.reduce.cumsum import cumsum
from tstatic.ops.shape.creation import assign, ones_like, zeros_like
from tstatic.ops.shape.joining import split, stack
from tstatic.ops.shape.reshape import flatten, unsqueeze
from tstatic.ops.shape.transpose import transpose


def check_anchors(anchors: Any, function: str) -> list[int]:
    """Returns the widths and heights of anchors as ints; there are as many of both.

    Raises:
        ProgramTypeError: If they are not a list.
        ShapeError: If their number is odd or 0, or one is not positive.
    """
    check_type(anchors, (list, tuple), "anchors", function)
    check_divisible(len(anchors) or 1, 2, "the number of entries in anchors", "the number of sides", function)
    return [check_int(v, "anchors", function, 1) for v in anchors]


def _places(x: Variable, axis: int) -> tuple[Variable, Variable | float]:
    """Returns positions along the height or width of ``x``, which broadcast with images, and their number."""
    n = x.shape[axis]
    if n != UNKNOWN:
        line = np.arange(n, dtype=x.dtype.np)
        return assign(line.reshape([-1 if i == axis else 1 for i in range(4)])), float(n)
    counted = cumsum(ones_like(x[:1, :1, :, :1] if axis == 2 else x[:1, :1, :1]), axis)
    return counted - 1.0, counted[:, :, -1:] if axis == 2 else counted[..., -1:]


def _boxes(
    x: Variable, size: Variable, anchors: Sequence[int], class_num: int, conf_thresh: float, downsample_ratio: int,
    clip_bbox: bool, scale_x_y: float, iou_aware: bool, iou_aware_factor: float, name: str | None = None,
) -> tuple[Variable, Variable]:  # fmt: skip
    function, count = "yolo_box", len(anchors) // 2
    check_dtype(x, FLOATS, "X", function)
    check_rank(x, 4, "X", function, layout="[n, c, h, w]")
    channels = count * (class_num + (6 if iou_aware else 5))
    check_size(x, 1, channels, "X", function, why="place, score and classes of each anchor")
    check_dtype(size, INTEGERS, "ImgSize", function)
    check_has_shape(size, (x.shape[0], 2), "ImgSize", function, why="height and width of each image")

    def sides(anchor: int) -> Variable:
        return assign(np.array(anchors[anchor::2], x.dtype.np).reshape(-1, 1, 1))

    image = unsqueeze(cast(size, x.dtype), [2, 3])
    high, wide = image[:, 0:1], image[:, 1:2]
    (rows, h), (columns, w) = _places(x, 2), _places(x, 3)
    answers = x[:, count:] if iou_aware else x
    each = stack(split(answers, count, 1), 1)
    shift = 0.5 * (scale_x_y - 1)
    cx = (sigmoid(each[:, :, 0]) * scale_x_y - shift + columns) * wide / w
    cy = (sigmoid(each[:, :, 1]) * scale_x_y - shift + rows) * high / h
    across = exp(each[:, :, 2]) * sides(0) * wide / (w * downsample_ratio)
    down = exp(each[:, :, 3]) * sides(1) * high / (h * downsample_ratio)
    sure = sigmoid(each[:, :, 4])
    if iou_aware:
        sure = sure ** (1 - iou_aware_factor) * sigmoid(x[:, :count]) ** iou_aware_factor
    corners = [cx - across / 2, cy - down / 2, cx + across / 2, cy + down / 2]
    if clip_bbox:
        ends = (minimum(v, end - 1.0) for v, end in zip(corners[2:], (wide, high), strict=True))
        corners = [*map(relu, corners[:2]), *ends]
    kept, nothing = sure >= conf_thresh, zeros_like(sure)
    boxes = stack([where(kept, v, nothing) for v in corners], -1)
    classes = each[:, :, 5:]
    shares = unsqueeze(sure, 2) * sigmoid(classes)
    scores = transpose(where(unsqueeze(kept, 2), shares, zeros_like(classes)), [0, 1, 3, 4, 2])
    found = flatten(boxes, 1, 3, name), flatten(scores, 1, 3, name)
    for one in found:
        # Boxes are answers: as in Paddle, no gradient flows through them.
        one.stop_gradient = True
    return found


@composed("yolo_box")
def _yolo_box(
    X: Variable, ImgSize: Variable, *, anchors: Sequence[int], class_num: int, conf_thresh: float = 0.01,
    downsample_ratio: int = 32, clip_bbox: bool = True, scale_x_y: float = 1.0, iou_aware: bool = False,
    iou_aware_factor: float = 0.5,
) -> dict[str, Variable]:  # fmt: skip
    sides, classes = check_anchors(list(anchors), "yolo_box"), check_int(class_num, "class_num", "yolo_box", 1)
    ratio = check_int(downsample_ratio, "downsample_ratio", "yolo_box", 1)
    rest = clip_bbox, scale_x_y, iou_aware, iou_aware_factor
    return dict(zip(("Boxes", "Scores"), _boxes(X, ImgSize, sides, classes, conf_thresh, ratio, *rest), strict=True))


@export("vision.ops.yolo_box")
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
    return _boxes(
        check_variable(x, "x", function, FLOATS), check_variable(img_size, "img_size", function, INTEGERS),
        check_anchors(anchors, function), check_int(class_num, "class_num", function, 1),
        check_number(conf_thresh, "conf_thresh", function),
        check_int(downsample_ratio, "downsample_ratio", function, 1), check_type(clip_bbox, bool, "clip_bbox", function),
        check_number(scale_x_y, "scale_x_y", function), check_type(iou_aware, bool, "iou_aware", function),
        check_number(iou_aware_factor, "iou_aware_factor", function), name,
    )  # fmt: skip


@export("fluid.layers.yolo_box")
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
