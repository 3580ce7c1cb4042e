"""The loss of YOLO version 3 (Redmon and Farhadi, 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import NumericsError
from tstatic.extras.detection._boxes import FLOATS, Array, overlaps
from tstatic.extras.detection.yolo_box import check_anchors
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import (
    INTEGERS,
    check_dtype,
    check_has_shape,
    check_index,
    check_int,
    check_number,
    check_rank,
    check_same_dtype,
    check_size,
    check_type,
)
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, Index, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, int32
from tstatic.ops.base.host import READS_BOXES

_SMALL = 1e-6
"""A true box with a shorter side is left out."""


def _infer(
    x: Meta, box: Meta, label: Meta, score: Meta | None, *, anchor_mask: Sequence[int], class_num: int
) -> tuple[Meta, Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    check_rank(x, 4, "X", layout="[n, c, h, w]")
    check_size(x, 1, len(anchor_mask) * (5 + class_num), "X", why="place, certainty and classes of each anchor")
    check_same_dtype((x, box), ("X", "GTBox"))
    check_rank(box, 3, "GTBox", layout="[n, boxes, 4]")
    check_has_shape(box, (x.shape[0], -1, 4), "GTBox", why="centre, width and height of each box")
    check_dtype(label, INTEGERS, "GTLabel")
    check_has_shape(label, box.shape[:2], "GTLabel", why="a class per box")
    if score is not None:
        check_same_dtype((x, score), ("X", "GTScore"))
        check_has_shape(score, box.shape[:2], "GTScore", why="a weight per box")
    n, _, h, w = x.shape
    return x.with_shape((n,)), x.with_shape((n, len(anchor_mask), h, w)), Meta(box.shape[:2], int32)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _entropy(x: Array, target: Any) -> Array:
    """Returns the cross entropy of a score before the sigmoid."""
    return np.asarray(np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x))))


def _corners(middle: Array, size: Array) -> Array:
    return np.concatenate([middle - size / 2, middle + size / 2], axis=-1)


def _shape(x: Array, anchor_mask: Sequence[int], class_num: int) -> Any:
    """Returns ``[n, anchors, 5 + classes, h, w]``."""
    return x.reshape(len(x), len(anchor_mask), 5 + class_num, *x.shape[2:])


def _check_centres(at: Array) -> None:
    """Refuses boxes without a place: Paddle writes far outside of its array."""
    if not np.isfinite(at).all():
        raise NumericsError(
            "a true box has no centre",
            expected="x and y of every box of GTBox with positive sides in 0 to 1",
            received=f"{at[~np.isfinite(at).all(axis=1)][0].tolist()} in cells of the grid",
            fix="remove such boxes, or give them sides of 0, which means that there is no box",
        )


class _Positives:
    """The true boxes that an anchor of the network's answer is compared with, and what it should say.

    Attributes:
        image, anchor, row, column, box: Where each is: in the answer, and among the true boxes.
        target: ``[boxes, 4]``: place in the cell, logarithms of the sides over the anchor's.
        weight: What errors of place and size count.
        score: What errors of class count.
        matched: ``[n, boxes]``: the anchor of each true box, -1 for none.
    """

    def __init__(
        self, box: Array, score: Array | None, sizes: tuple[int, int], anchors: Sequence[int], anchor_mask: Sequence[int],
        downsample_ratio: int,
    ) -> None:  # fmt: skip
        h, w = sizes
        valid = (box[..., 2] > _SMALL) & (box[..., 3] > _SMALL)
        full = downsample_ratio * h
        shapes = np.array(anchors, box.dtype).reshape(-1, 2) / full
        nothing = np.zeros_like(box[..., None, :2])
        shared = overlaps(np, _corners(nothing, box[..., None, 2:]), _corners(np.zeros_like(shapes), shapes))
        best = shared.argmax(axis=-1)
        place = np.full(len(shapes), -1)
        # An anchor that the mask names twice is the first one.
        for i in reversed(range(len(anchor_mask))):
            place[anchor_mask[i]] = i
        self.matched = np.where(valid, place[best], -1)
        self.image, self.box = np.nonzero(self.matched >= 0)
        self.anchor = self.matched[self.image, self.box]
        found = box[self.image, self.box]
        at = found[:, :2] * np.array([w, h], box.dtype)
        _check_centres(at)
        # A centre beyond the edge of the image belongs to the last cell before it: Paddle writes beside its array.
        cell = np.clip(at, 0, [w, h]).astype(np.int64)
        self.column, self.row = np.minimum(cell[:, 0], w - 1), np.minimum(cell[:, 1], h - 1)
        sides = np.log(found[:, 2:] * full / (shapes[best[self.image, self.box]] * full))
        self.target = np.concatenate([at - cell, sides], axis=1).astype(box.dtype)
        self.score = np.ones(len(found), box.dtype) if score is None else score[self.image, self.box]
        self.weight = (2 - found[:, 2] * found[:, 3]) * self.score

    def answers(self, each: Any) -> Any:
        """Returns what the answer says of each: ``[boxes, 5 + classes]``."""
        return each[self.image, self.anchor, :, self.row, self.column]


def _objectness(
    each: Array, box: Array, anchors: Sequence[int], anchor_mask: Sequence[int], ignore_thresh: float,
    downsample_ratio: int, scale: float,
) -> Array:  # fmt: skip
    """Returns -1 where an answer overlaps a true box so much that its certainty does not count, else 0."""
    _, count, _, h, w = each.shape
    full = downsample_ratio * h
    shapes = np.array(anchors, each.dtype).reshape(-1, 2)[list(anchor_mask)] / full
    shift = 0.5 * (scale - 1)
    x = (np.arange(w) + _sigmoid(each[:, :, 0]) * scale - shift) / w
    y = (np.arange(h)[:, None] + _sigmoid(each[:, :, 1]) * scale - shift) / h
    sides = [np.exp(each[:, :, 2 + i]) * shapes[:, i].reshape(count, 1, 1) for i in range(2)]
    found = _corners(np.stack([x, y], axis=-1), np.stack(sides, axis=-1))
    valid = (box[..., 2] > _SMALL) & (box[..., 3] > _SMALL)
    shared = overlaps(np, found[:, :, :, :, None], _corners(box[..., :2], box[..., 2:])[:, None, None, None])
    best = np.where(valid[:, None, None, None], shared, 0).max(axis=-1, initial=0.0)
    return np.where(best > ignore_thresh, -1.0, 0.0).astype(each.dtype)


def _class_targets(label: Array, at: _Positives, class_num: int, smooth: bool, dtype: Any) -> Array:
    wanted = label[at.image, at.box]
    check_index(wanted, class_num, "GTLabel", fix=f"feed classes below class_num={class_num}")
    delta = min(1.0 / class_num, 1.0 / 40) if smooth else 0.0
    return np.where(np.arange(class_num) == wanted[:, None], 1 - delta, delta).astype(dtype)


def _ref(
    x: Array, box: Array, label: Array, score: Array | None, loss: Array | None, objectness: Array | None,
    matched: Array | None, *, anchors: Sequence[int], anchor_mask: Sequence[int], class_num: int, ignore_thresh: float,
    downsample_ratio: int, use_label_smooth: bool, scale_x_y: float,
) -> None:  # fmt: skip
    each = _shape(x, anchor_mask, class_num)
    at = _Positives(box, score, x.shape[2:], anchors, anchor_mask, downsample_ratio)
    certain = _objectness(each, box, anchors, anchor_mask, ignore_thresh, downsample_ratio, scale_x_y)
    certain[at.image, at.anchor, at.row, at.column] = at.score
    if loss is not None:
        said = at.answers(each)
        terms = _entropy(said[:, :2], at.target[:, :2]).sum(axis=1) + np.abs(said[:, 2:4] - at.target[:, 2:]).sum(
            axis=1
        )
        classes = _entropy(said[:, 5:], _class_targets(label, at, class_num, use_label_smooth, x.dtype)).sum(axis=1)
        sure = each[:, :, 4]
        positive = certain > 1e-5
        ones = np.where(positive, _entropy(sure, 1.0) * certain, np.where(certain > -0.5, _entropy(sure, 0.0), 0))
        loss[...] = ones.sum(axis=(1, 2, 3))
        np.add.at(loss, at.image, terms * at.weight + classes * at.score)
    if objectness is not None:
        objectness[...] = certain
    if matched is not None:
        matched[...] = at.matched


def _grad_ref(
    x: Array, box: Array, label: Array, score: Array | None, certain: Array, dloss: Array, dx: Array, *,
    anchors: Sequence[int], anchor_mask: Sequence[int], class_num: int, downsample_ratio: int, use_label_smooth: bool,
) -> None:  # fmt: skip
    each = _shape(x, anchor_mask, class_num)
    at = _Positives(box, score, x.shape[2:], anchors, anchor_mask, downsample_ratio)
    made = np.zeros(each.shape, x.dtype)
    said = at.answers(each)
    slopes = np.zeros(said.shape, x.dtype)
    slopes[:, :2] = (_sigmoid(said[:, :2]) - at.target[:, :2]) * at.weight[:, None]
    slopes[:, 2:4] = np.sign(said[:, 2:4] - at.target[:, 2:]) * at.weight[:, None]
    targets = _class_targets(label, at, class_num, use_label_smooth, x.dtype)
    slopes[:, 5:] = (_sigmoid(said[:, 5:]) - targets) * at.score[:, None]
    slopes *= dloss[at.image, None]
    np.add.at(made.transpose(0, 1, 3, 4, 2), (at.image, at.anchor, at.row, at.column), slopes)
    sure = _sigmoid(each[:, :, 4])
    certainty = np.where(certain > 1e-5, (sure - 1) * certain, np.where(certain > -0.5, sure, 0))
    made[:, :, 4] = certainty * dloss.reshape(-1, 1, 1, 1)
    np.copyto(dx, made.reshape(x.shape))


def _torch_loss(
    torch: Any, x: Any, box: Any, label: Any, score: Any, certain: Any, *, anchors: Sequence[int],
    anchor_mask: Sequence[int], class_num: int, downsample_ratio: int, use_label_smooth: bool,
) -> Any:  # fmt: skip
    """Returns the loss; what is positive and what counts is found in the host's memory."""
    arrays: list[Any] = [None if v is None else v.detach().cpu().numpy() for v in (box, label, score)]
    at = _Positives(arrays[0], arrays[2], tuple(x.shape[2:]), anchors, anchor_mask, downsample_ratio)

    def tensor(array: Array) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array)).to(x.device)

    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    each = _shape(x, anchor_mask, class_num)
    image, anchor, row, column = (tensor(v) for v in (at.image, at.anchor, at.row, at.column))
    said, target = each[image, anchor, :, row, column], tensor(at.target)
    places = entropy(said[:, :2], target[:, :2], reduction="none").sum(1) + (said[:, 2:4] - target[:, 2:]).abs().sum(1)
    wanted = tensor(_class_targets(arrays[1], at, class_num, use_label_smooth, arrays[0].dtype))
    classes = entropy(said[:, 5:], wanted, reduction="none").sum(1)
    sure = each[:, :, 4]
    one, zero = (entropy(sure, f(sure), reduction="none") for f in (torch.ones_like, torch.zeros_like))
    ones = torch.where(certain > 1e-5, one * certain, torch.where(certain > -0.5, zero, 0)).sum((1, 2, 3))
    return ones.index_add(0, image, places * tensor(at.weight) + classes * tensor(at.score))


def _lower(
    torch: Any, x: Any, box: Any, label: Any, score: Any, *, anchors: Sequence[int], anchor_mask: Sequence[int],
    class_num: int, ignore_thresh: float, downsample_ratio: int, use_label_smooth: bool, scale_x_y: float,
) -> Any:  # fmt: skip
    arrays: list[Any] = [None if v is None else v.detach().cpu().numpy() for v in (x, box, score)]
    xs, boxes, scores = arrays
    at = _Positives(boxes, scores, tuple(x.shape[2:]), anchors, anchor_mask, downsample_ratio)
    each = _shape(xs, anchor_mask, class_num)
    certain = _objectness(each, boxes, anchors, anchor_mask, ignore_thresh, downsample_ratio, scale_x_y)
    certain[at.image, at.anchor, at.row, at.column] = at.score
    mask = torch.from_numpy(certain).to(x.device)
    given: dict[str, Any] = {
        "anchors": anchors, "anchor_mask": anchor_mask, "class_num": class_num, "downsample_ratio": downsample_ratio,
        "use_label_smooth": use_label_smooth,
    }  # fmt: skip
    loss = _torch_loss(torch, x, box, label, score, mask, **given)
    return loss, mask, torch.from_numpy(at.matched.astype(np.int32)).to(x.device)


def _grad_lower(
    torch: Any, x: Any, box: Any, label: Any, score: Any, certain: Any, dloss: Any, *, anchors: Sequence[int],
    anchor_mask: Sequence[int], class_num: int, downsample_ratio: int, use_label_smooth: bool,
) -> Any:  # fmt: skip
    source = x.detach().clone().requires_grad_()
    given: dict[str, Any] = {
        "anchors": anchors, "anchor_mask": anchor_mask, "class_num": class_num, "downsample_ratio": downsample_ratio,
        "use_label_smooth": use_label_smooth,
    }  # fmt: skip
    with torch.enable_grad():
        loss = _torch_loss(torch, source, box, label, score, certain, **given)
    return torch.autograd.grad(loss, source, dloss)[0]


_INPUTS = "X, GTBox, GTLabel, GTScore?"

_INDICES = (Index("GTLabel", lambda *ins, class_num: class_num, some=True),)

register(OpDef(
    "yolov3_loss", f"{_INPUTS} -> Loss, ObjectnessMask~, GTMatchMask~",
    attrs={
        "anchors": Attr(kind="ints"), "anchor_mask": Attr(kind="ints"), "class_num": Attr(kind="int"), "ignore_thresh": 0.7,
        "downsample_ratio": Attr(32, "int", lambda v: None if v > 0 else "a number above 0"), "use_label_smooth": True,
        "scale_x_y": 1.0,
    },
    infer=_infer, ref=_ref, traits=(READS_BOXES,), lower=_lower, amp="black", indices=_INDICES,
    grad=GradOp(
        f"{_INPUTS}, ObjectnessMask, Loss@GRAD -> X@GRAD", ref=_grad_ref, traits=(READS_BOXES,), lower=_grad_lower,
        indices=_INDICES,
    ),
    domain=Domain(
        cases=(
            Case(
                ((2, 14, 3, 2), (2, 3, 4), (2, 3)),
                {"anchors": (10, 13, 16, 30, 33, 23), "anchor_mask": (0, 2), "class_num": 2, "ignore_thresh": 0.35},
            ),
            Case(
                ((1, 16, 2, 2), (1, 4, 4), (1, 4), (1, 4)),
                {
                    "anchors": (8, 8, 30, 30), "anchor_mask": (0, 1), "class_num": 3, "ignore_thresh": 0.5,
                    "downsample_ratio": 16, "use_label_smooth": False, "scale_x_y": 1.2,
                },
            ),
        ),
        values={
            "GTBox": ValueRange(0.1, 0.9), "GTLabel": ValueRange(0, "class_num", dtype="int32"),
            "GTScore": ValueRange(0.3, 1.0),
        },
        floats=FLOATS, ulps=256.0,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


def _yolo(
    function: str, x: Variable, gt_box: Variable, gt_label: Variable, gt_score: Variable | None, **attrs: Any
) -> Variable:
    ins = {
        "X": check_variable(x, "x", function, FLOATS), "GTBox": check_variable(gt_box, "gt_box", function, FLOATS),
        "GTLabel": check_variable(gt_label, "gt_label", function, INTEGERS),
    }  # fmt: skip
    if gt_score is not None:
        ins["GTScore"] = check_variable(gt_score, "gt_score", function, FLOATS)
    anchors = check_anchors(attrs["anchors"], function)
    check_type(attrs["anchor_mask"], (list, tuple), "anchor_mask", function)
    mask = [check_int(v, "anchor_mask", function, 0, len(anchors) // 2 - 1) for v in attrs["anchor_mask"]]
    done = {
        "anchors": anchors, "anchor_mask": mask, "class_num": check_int(attrs["class_num"], "class_num", function, 1),
        "ignore_thresh": check_number(attrs["ignore_thresh"], "ignore_thresh", function),
        "downsample_ratio": check_int(attrs["downsample_ratio"], "downsample_ratio", function, 1),
        "use_label_smooth": check_type(attrs["use_label_smooth"], bool, "use_label_smooth", function),
        "scale_x_y": check_number(attrs["scale_x_y"], "scale_x_y", function),
    }  # fmt: skip
    loss: Variable = emit("yolov3_loss", ins, done, name=attrs["name"])
    return loss


@export("vision.ops.yolo_loss", "fluid.layers.yolov3_loss", op="yolov3_loss")
def yolo_loss(
    x: Variable,
    gt_box: Variable,
    gt_label: Variable,
    anchors: Sequence[int],
    anchor_mask: Sequence[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Variable | None = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Variable:
    """Returns the loss of what a YOLO network says of each image: places, sizes, certainties and classes.

    Args:
        x: ``[n, masked anchors * (5 + class_num), h, w]``: of each anchor x, y, width, height, certainty and classes, before
            sigmoids and exponentials; float32 or float64.
        gt_box: True boxes ``[n, boxes, 4]``: centre, width and height in fractions of the image; one without a side is left out.
        gt_label: The class of each, ``[n, boxes]``; integers.
        anchors: Widths and heights in turn, of all layers of the network, in pixels of its input.
        anchor_mask: Which anchors this layer has.
        class_num: How many classes there are.
        ignore_thresh: The certainty of an answer that overlaps a true box by more, and is compared with none, does not count.
        downsample_ratio: How much larger the network's input is than ``x``.
        gt_score: The weight of each true box, ``[n, boxes]``; 1 without it.
        use_label_smooth: Move targets of classes from 0 and 1 by ``1 / class_num``, at most 1/40.
        name: Name of the layer.
        scale_x_y: How far, in pixels of ``x``, a centre can move.

    Returns:
        ``[n]``.

    Raises:
        ShapeError, DTypeError: If the arguments do not fit together.

    Example:
        >>> x, box = static.data("x", [None, 21, 13, 13]), static.data("box", [None, 6, 4])
        >>> label = static.data("label", [None, 6], "int32")
        >>> anchors = [10, 13, 16, 30, 33, 23]
        >>> loss = paddle.vision.ops.yolo_loss(x, box, label, anchors, [0, 1, 2], 2, ignore_thresh=0.7, downsample_ratio=32)
        >>> loss.shape
        (-1,)
    """
    return _yolo(
        "yolo_loss", x, gt_box, gt_label, gt_score, anchors=anchors, anchor_mask=anchor_mask, class_num=class_num,
        ignore_thresh=ignore_thresh, downsample_ratio=downsample_ratio, use_label_smooth=use_label_smooth, name=name,
        scale_x_y=scale_x_y,
    )  # fmt: skip
