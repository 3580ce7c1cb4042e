"""Calls of detection layers and of layers with parameters, built alike with Paddle 1.8.5, Paddle 2.6.2 and tstatic."""

from __future__ import annotations

import zlib
from typing import Any

Values = Any


def draw(name: str, shape: Any, low: float, high: float) -> Any:
    """Numbers that depend on the name alone."""
    import numpy as np

    rng = np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)
    return rng.uniform(low, high, shape).astype("float32")


class Case:
    """One program being built: its feeds, and the values whose gradients are asked for.

    Args:
        fluid: What has ``data`` and ``layers`` of the 1.x API; ``None`` for calls of 2.x.
        paddle: What has the 2.x API; ``None`` for 1.x.
    """

    def __init__(self, name: str, fluid: Any, paddle: Any) -> None:
        self.name, self.fluid, self.paddle = name, fluid, paddle
        self.layers = None if fluid is None else fluid.layers
        self.feed: dict[str, Any] = {}
        self.wanted: list[Any] = []

    def fed(self, values: Any, dtype: str = "float32", lod: list[int] | None = None, grad: bool = False) -> Any:
        """Declares an input and feeds it."""
        import numpy as np

        name = f"in{len(self.feed)}"
        array = np.array(values, dtype)
        if lod is not None:
            x = self.fluid.layers.data(name, shape=list(array.shape[1:]), dtype=dtype, lod_level=1)
            self.feed[name] = self.fluid.create_lod_tensor(array, [lod], self.fluid.CPUPlace())
        else:
            declare = self.fluid.data if self.paddle is None else self.paddle.static.data
            x = declare(name, list(array.shape), dtype)
            self.feed[name] = array
        x.stop_gradient = not grad
        if grad:
            self.wanted.append(x)
        return x

    def some(self, *shape: int, low: float = -1.0, high: float = 1.0, grad: bool = False) -> Any:
        """Feeds numbers that are drawn."""
        return self.fed(draw(f"{self.name}.{len(self.feed)}", shape, low, high), grad=grad)

    def boxes(self, *shape: int, side: float = 8.0, lod: list[int] | None = None) -> Any:
        """Feeds boxes whose corners are in order."""
        import numpy as np

        made = draw(f"{self.name}.{len(self.feed)}", (*shape, 4), 0.0, side)
        made = np.concatenate([np.minimum(made[..., :2], made[..., 2:]), np.maximum(made[..., :2], made[..., 2:])], -1)
        return self.fed(made, lod=lod)


# ------------------------------------------------------------------------------------------------------------------- 1.x
def _scores(c: Case, *shape: int) -> Any:
    return c.some(*shape, low=0.0, high=1.0)


REGIONS = [[0.5, 1.0, 6.0, 5.0], [2.0, 0.0, 5.0, 8.0], [-1.0, 2.0, 3.0, 6.0]]
ANCHORS = [10, 13, 16, 30, 33, 23]
# Each in a cell of its own: of two in one, Paddle's gradient is that of the last.
TRUE = [
    [[0.2, 0.2, 0.1, 0.15], [0.5, 0.6, 0.4, 0.2], [0.9, 0.2, 0.2, 0.3]],
    [[0.1, 0.8, 0.3, 0.3], [0.6, 0.1, 0.1, 0.1], [0.8, 0.9, 0.35, 0.2]],
]

FLUID: dict[str, Any] = {
    "iou_similarity": lambda c: c.layers.iou_similarity(c.boxes(3), c.boxes(4)),
    "iou_similarity.pixels": lambda c: c.layers.iou_similarity(c.boxes(3), c.boxes(4), box_normalized=False),
    "box_coder.encode": lambda c: c.layers.box_coder(c.boxes(3), c.some(3, 4, low=0.1, high=0.5), c.boxes(2)),
    "box_coder.list": lambda c: c.layers.box_coder(c.boxes(3), [0.1, 0.1, 0.2, 0.2], c.boxes(2), box_normalized=False),
    "box_coder.decode": lambda c: c.layers.box_coder(
        c.boxes(3), c.some(3, 4, low=0.1, high=0.5), c.some(2, 3, 4), code_type="decode_center_size", box_normalized=False
    ),
    "box_coder.axis": lambda c: c.layers.box_coder(
        c.boxes(2), [0.1, 0.1, 0.2, 0.2], c.some(2, 3, 4), code_type="decode_center_size", axis=1
    ),
    "prior_box": lambda c: c.layers.prior_box(
        c.some(1, 2, 2, 3), c.some(1, 3, 9, 8), [2.0, 4.0], [5.0, 6.0], [1.0, 2.0], flip=True, clip=True
    ),
    "prior_box.order": lambda c: c.layers.prior_box(
        c.some(1, 2, 2, 3), c.some(1, 3, 9, 8), [2.0], [5.0], [2.0, 0.5], steps=[3.0, 4.0], offset=0.25,
        min_max_aspect_ratios_order=True,
    ),
    "yolo_box": lambda c: c.layers.yolo_box(
        c.some(2, 21, 3, 3), c.fed([[60, 50], [64, 96]], "int32"), ANCHORS, 2, 0.3, 32
    ),
    "yolo_box.free": lambda c: c.layers.yolo_box(
        c.some(1, 21, 3, 3), c.fed([[60, 50]], "int32"), ANCHORS, 2, 0.01, 32, clip_bbox=False, scale_x_y=1.2
    ),
    "yolov3_loss": lambda c: c.layers.yolov3_loss(
        c.some(2, 14, 3, 3, grad=True), c.fed(TRUE), c.fed([[0, 1, 1], [1, 0, 1]], "int32"), ANCHORS,
        [0, 2], 2, 0.3, 32,
    ),
    "yolov3_loss.scores": lambda c: c.layers.yolov3_loss(
        c.some(1, 14, 3, 3, grad=True), c.fed([[[0.3, 0.4, 0.2, 0.1], [0.0, 0.0, 0.0, 0.0]]]), c.fed([[0, 1]], "int32"),
        ANCHORS, [0, 1], 2, 0.3, 32, gt_score=c.fed([[0.7, 0.2]]), use_label_smooth=False, scale_x_y=1.1,
    ),
    "multiclass_nms": lambda c: c.layers.multiclass_nms(c.boxes(2, 8), _scores(c, 2, 3, 8), 0.2, 6, 7, 0.3),
    "multiclass_nms.pixels": lambda c: c.layers.multiclass_nms(
        c.boxes(2, 8), _scores(c, 2, 3, 8), 0.2, -1, 4, 0.7, normalized=False, nms_eta=0.8, background_label=-1
    ),
    "multiclass_nms.none": lambda c: c.layers.multiclass_nms(c.boxes(1, 4), _scores(c, 1, 2, 4), 2.0, 6, 7, 0.3),
    "roi_align": lambda c: c.layers.roi_align(
        c.some(2, 3, 6, 5, grad=True), c.boxes(3, lod=[2, 1]), 2, 3, spatial_scale=0.7
    ),
    "roi_align.ratio": lambda c: c.layers.roi_align(
        c.some(2, 3, 6, 5, grad=True), c.boxes(3, lod=[1, 2]), 2, 2, spatial_scale=0.5, sampling_ratio=2
    ),
    "roi_pool": lambda c: c.layers.roi_pool(c.some(2, 3, 6, 5, grad=True), c.boxes(3, lod=[2, 1]), 2, 3, spatial_scale=0.7),
    "psroi_pool": lambda c: c.layers.psroi_pool(
        c.some(2, 12, 6, 5, grad=True), c.boxes(3, lod=[2, 1]), 2, 0.7, 2, 3
    ),
    "generate_proposals": lambda c: c.layers.generate_proposals(
        _scores(c, 2, 3, 3, 3), c.some(2, 12, 3, 3), c.fed([[8.0, 7.0, 1.0], [9.0, 9.0, 0.5]]), c.boxes(3, 3, 3),
        c.some(3, 3, 3, 4, low=0.5, high=1.0), pre_nms_top_n=20, post_nms_top_n=6, nms_thresh=0.4, min_size=2.0,
    ),
    "distribute_fpn_proposals": lambda c: c.layers.distribute_fpn_proposals(c.boxes(7, side=40.0, lod=[4, 3]), 2, 5, 4, 20),
    "center_loss": lambda c: c.layers.center_loss(
        c.some(4, 2, grad=True), c.fed([[0], [1], [0], [0]], "int64"), 3, 0.1, c.fluid.initializer.Constant(0.5)
    ),
    "teacher_student_sigmoid_loss": lambda c: c.layers.teacher_student_sigmoid_loss(
        c.fed([[0.3], [0.4], [0.5], [-0.6], [3.0], [-3.0]], grad=True), c.fed([[-2.0], [-1.0], [0.3], [1.4], [0.3], [-2.0]]),
        2.0, -2.0,
    ),
    "sampled_softmax": lambda c: c.layers.sampled_softmax_with_cross_entropy(
        c.some(2, 10, grad=True), c.fed([[1], [3]], "int64"), 4, use_customized_samples=True,
        customized_samples=c.fed([[1, 4, 0, 1, 2], [3, 4, 0, 1, 2]], "int64"),
        customized_probabilities=c.some(2, 5, low=0.1, high=0.9),
    ),
    "mean_iou": lambda c: c.layers.mean_iou(
        c.fed([[0, 1, 2], [1, 1, 0]], "int64"), c.fed([[0, 1, 1], [2, 1, 0]], "int64"), 4
    ),
    "pad_constant_like": lambda c: c.layers.pad_constant_like(c.some(2, 4, 3), c.some(2, 2, 3, grad=True), 1.5),
    "add_position_encoding": lambda c: c.layers.add_position_encoding(c.some(2, 3, 6, grad=True), 1.5, 0.5),
    "image_resize_short": lambda c: c.layers.image_resize_short(c.some(1, 2, 4, 7, grad=True), 3),
    "affine_channel": lambda c: c.layers.affine_channel(
        c.some(2, 3, 2, 2, grad=True), c.some(3, grad=True), c.some(3, grad=True), act="tanh"
    ),
    "fsp_matrix": lambda c: c.layers.fsp_matrix(c.some(2, 3, 4, 5, grad=True), c.some(2, 2, 4, 5, grad=True)),
    "continuous_value_model": lambda c: c.layers.continuous_value_model(
        c.some(3, 4, low=0.0, high=5.0, grad=True), c.some(3, 2), True
    ),
    "continuous_value_model.without": lambda c: c.layers.continuous_value_model(
        c.some(3, 4, low=0.0, high=5.0, grad=True), c.some(3, 2), False
    ),
    "data_norm": lambda c: c.layers.data_norm(
        c.some(3, 4, grad=True), enable_scale_and_shift=True,
        param_attr={"scale_w": 2.0, "bias": 0.5, "batch_size": 10.0, "batch_sum": 1.0, "batch_square": 20.0},
    ),
    "data_norm.slots": lambda c: c.layers.data_norm(
        c.fed([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 0.0, 6.0], [7.0, 8.0, 9.0, 1.0]], grad=True), slot_dim=2,
        param_attr={"batch_size": 10.0, "batch_sum": 1.0, "batch_square": 20.0},
    ),
    "deformable_conv": lambda c: c.layers.deformable_conv(
        c.some(2, 2, 4, 4, grad=True), c.some(2, 18, 4, 4, grad=True), c.some(2, 9, 4, 4, low=0.1, grad=True), 3, 3,
        padding=1, deformable_groups=1, groups=1, im2col_step=1, param_attr=c.fluid.initializer.Constant(0.3),
        bias_attr=False,
    ),
    "nets.glu": lambda c: c.fluid.nets.glu(c.some(2, 6, grad=True)),
    "nets.attention": lambda c: c.fluid.nets.scaled_dot_product_attention(
        c.some(2, 3, 4, grad=True), c.some(2, 5, 4), c.some(2, 5, 6)
    ),
    "grid_sampler": lambda c: c.layers.grid_sampler(c.some(2, 3, 4, 5, grad=True), c.some(2, 4, 5, 2, grad=True)),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------- 2.x
def _numbers(c: Case, *counts: int) -> Any:
    return c.fed(list(counts), "int32")


PADDLE: dict[str, Any] = {
    "deform_conv2d": lambda c: c.paddle.vision.ops.deform_conv2d(
        c.some(1, 4, 4, 4, grad=True), c.some(1, 36, 2, 2, grad=True), c.some(2, 2, 3, 3, grad=True), c.some(2, grad=True),
        stride=2, padding=1, deformable_groups=2, groups=2, mask=c.some(1, 18, 2, 2, low=0.1, grad=True),
    ),
    "deform_conv2d.v1": lambda c: c.paddle.vision.ops.deform_conv2d(
        c.some(2, 2, 5, 4, grad=True), c.some(2, 8, 4, 2, grad=True), c.some(3, 2, 2, 2, grad=True), dilation=[1, 2]
    ),
    # Regions of more than one pixel: to smaller ones Paddle gives another gradient.
    "roi_align": lambda c: c.paddle.vision.ops.roi_align(
        c.some(2, 3, 6, 5, grad=True), c.fed(REGIONS), _numbers(c, 2, 1),
        (2, 3), spatial_scale=0.7
    ),
    "roi_align.free": lambda c: c.paddle.vision.ops.roi_align(
        c.some(2, 3, 6, 5, grad=True), c.boxes(3), _numbers(c, 1, 2), 2, sampling_ratio=3, aligned=False
    ),
    "roi_pool": lambda c: c.paddle.vision.ops.roi_pool(
        c.some(2, 3, 6, 5, grad=True), c.boxes(3), _numbers(c, 0, 3), 2, spatial_scale=0.8
    ),
    "nms": lambda c: c.paddle.vision.ops.nms(c.boxes(9), 0.2),
    "nms.scores": lambda c: c.paddle.vision.ops.nms(c.boxes(9), 0.2, _scores(c, 9)),
    "matrix_nms": lambda c: c.paddle.vision.ops.matrix_nms(
        c.boxes(2, 8), _scores(c, 2, 3, 8), 0.2, 0.1, 6, 7, return_index=True
    ),
    "matrix_nms.gaussian": lambda c: c.paddle.vision.ops.matrix_nms(
        c.boxes(2, 8), _scores(c, 2, 3, 8), 0.2, 0.0, -1, 5, use_gaussian=True, background_label=-1, normalized=False,
        return_index=True,
    ),
    "box_coder": lambda c: c.paddle.vision.ops.box_coder(
        c.boxes(3), c.some(3, 4, low=0.1, high=0.5), c.some(2, 3, 4), "decode_center_size"
    ),
    "prior_box": lambda c: c.paddle.vision.ops.prior_box(
        c.some(1, 2, 2, 3), c.some(1, 3, 9, 8), [2.0], [5.0], [2.0], flip=True, min_max_aspect_ratios_order=True
    ),
    "yolo_box.aware": lambda c: c.paddle.vision.ops.yolo_box(
        c.some(1, 24, 2, 3), c.fed([[60, 50]], "int32"), ANCHORS, 2, 0.3, 32, iou_aware=True, iou_aware_factor=0.4
    ),
    "yolo_loss": lambda c: c.paddle.vision.ops.yolo_loss(
        c.some(2, 14, 3, 3, grad=True), c.fed(TRUE), c.fed([[0, 1, 1], [1, 0, 1]], "int32"), ANCHORS,
        [0, 2], 2, 0.3, 32,
    ),
    "generate_proposals": lambda c: c.paddle.vision.ops.generate_proposals(
        _scores(c, 2, 3, 3, 3), c.some(2, 12, 3, 3), c.fed([[8.0, 7.0], [9.0, 9.0]]), c.boxes(3, 3, 3),
        c.some(3, 3, 3, 4, low=0.5, high=1.0), pre_nms_top_n=20, post_nms_top_n=6, nms_thresh=0.4, min_size=2.0,
        return_rois_num=True,
    ),
    "generate_proposals.pixels": lambda c: c.paddle.vision.ops.generate_proposals(
        _scores(c, 1, 3, 3, 3), c.some(1, 12, 3, 3), c.fed([[8.0, 7.0]]), c.boxes(3, 3, 3),
        c.some(3, 3, 3, 4, low=0.5, high=1.0), nms_thresh=0.7, eta=0.8, pixel_offset=True, return_rois_num=True,
    ),
    "distribute_fpn_proposals": lambda c: c.paddle.vision.ops.distribute_fpn_proposals(
        c.boxes(7, side=40.0), 2, 5, 4, 20, rois_num=_numbers(c, 4, 3)
    ),
    "data_norm": lambda c: c.paddle.static.nn.data_norm(c.some(3, 4, grad=True)),
    "deform_conv2d.layer": lambda c: c.paddle.static.nn.deform_conv2d(
        c.some(1, 2, 4, 4, grad=True), c.some(1, 18, 4, 4, grad=True), None, 3, 3, padding=1,
        weight_attr=c.paddle.nn.initializer.Constant(0.3),
    ),
    "static_pylayer": lambda c: c.paddle.static.nn.static_pylayer(
        lambda a: a * 3, [c.some(2, 3, grad=True)], lambda g: c.paddle.exp(g) * 2
    ),
    "ctr_metric_bundle": lambda c: c.paddle.static.ctr_metric_bundle(
        c.some(4, 1, low=0.0, high=1.0), c.fed([[0.0], [1.0], [1.0], [0.0]])
    ),
    "grid_sample.border": lambda c: c.paddle.nn.functional.grid_sample(
        c.some(2, 3, 4, 5, grad=True), c.some(2, 3, 2, 2, low=-1.4, high=1.4, grad=True), padding_mode="border",
        align_corners=False,
    ),
    "grid_sample.nearest": lambda c: c.paddle.nn.functional.grid_sample(
        c.some(2, 3, 4, 5, grad=True), c.some(2, 3, 2, 2, low=-1.4, high=1.4, grad=True), mode="nearest",
        padding_mode="reflection",
    ),
    "affine_grid": lambda c: c.paddle.nn.functional.affine_grid(c.some(2, 2, 3, grad=True), [2, 3, 3, 4], False),
    "affine_grid.volume": lambda c: c.paddle.nn.functional.affine_grid(c.some(2, 3, 4, grad=True), [2, 3, 2, 3, 4], True),
}  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- running
def leaves(value: Any) -> list[Any]:
    """The Variables of a result, ``None`` left out."""
    if isinstance(value, (list, tuple)):
        return [v for one in value for v in leaves(one)]
    return [] if value is None else [value]


def run(name: str, fluid: Any, paddle: Any) -> dict[str, Any]:
    """Builds and runs a case: results, their LoDs, and the gradients of the sum of the first result's ``x * (x + 1)``."""
    import numpy as np

    api = fluid if paddle is None else paddle.static
    main, startup = api.Program(), api.Program()
    with api.program_guard(main, startup):
        case = Case(name, fluid, paddle)
        results = leaves((FLUID if paddle is None else PADDLE)[name](case))
        grads = []
        if case.wanted:
            # Each element of the result then has a weight of its own.
            square = results[0] * (results[0] + 1.0)
            total = fluid.layers.reduce_sum(square) if paddle is None else paddle.sum(square)
            grads = list(api.gradients([total], case.wanted))
    executor = api.Executor(fluid.CPUPlace() if paddle is None else paddle.CPUPlace())
    executor.run(startup)
    found = executor.run(main, feed=case.feed, fetch_list=[*results, *grads], return_numpy=False)

    def numbers(tensor: Any) -> Any:
        array = np.array(tensor)
        return {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "values": [float(f"{v:.7g}") for v in array.ravel().tolist()],
        }

    return {
        "results": [numbers(t) for t in found[: len(results)]],
        "lods": [[list(level) for level in t.lod()] for t in found[: len(results)]],
        "gradients": [numbers(t) for t in found[len(results) :]],
    }
