"""Means of samples between the pixels of a region (He et al., 2017)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import FLOATS, Array
from tstatic.extras.detection._regions import (
    SLOTS,
    VALUES,
    check_regions,
    images,
    numbers_of,
    region_attrs,
    region_inputs,
    torch_images,
)
from tstatic.ir.build import emit
from tstatic.ir.checks import check_int, check_type
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.base.host import READS_BOXES
from tstatic.ops.base.torch_gradient import torch_gradient
from tstatic.ops.conv._reading import Reading, as_rows, store_rows, torch_read


def _infer(
    x: Meta, rois: Meta, number: Meta | None, offsets: Meta | None, *, pooled_height: int, pooled_width: int
) -> Meta:
    check_regions(x, rois, number, offsets)
    return x.with_shape((rois.shape[0], x.shape[1], pooled_height, pooled_width))


def _sides(rois: Any, scale: float, aligned: bool, xp: Any) -> tuple[Any, Any]:
    """Returns where regions begin and how long they are, ``[regions, 2]`` each: down, across."""
    placed = rois * scale - (0.5 if aligned else 0.0)
    start, size = placed[:, :2], placed[:, 2:] - placed[:, :2]
    if not aligned:
        size = xp.maximum(size, xp.ones_like(size))
    return start[:, [1, 0]], size[:, [1, 0]]


class _Samples:
    """The samples of all regions with the same number of samples per part, and their weights."""

    def __init__(
        self, x: Array, owner: Array, start: Array, size: Array, pooled: tuple[int, int], grid: tuple[int, int]
    ) -> None:
        h, w = x.shape[2:]
        self.shape = (len(owner), *(n for pair in zip(pooled, grid, strict=True) for n in pair))
        self.count = grid[0] * grid[1]
        lines = []
        for axis in range(2):
            steps = (np.arange(pooled[axis] * grid[axis]) + 0.5) / grid[axis] / pooled[axis]
            lines.append(start[:, axis, None] + steps.astype(x.dtype) * size[:, axis, None])
        ys = np.repeat(lines[0], lines[1].shape[1], axis=1).reshape(-1)
        xs = np.tile(lines[1], (1, lines[0].shape[1])).reshape(-1)
        # Up to one pixel beside the image, what is read is its border.
        seen = (ys >= -1) & (ys <= h) & (xs >= -1) & (xs <= w)
        self.weights = (seen / max(self.count, 1)).astype(x.dtype)[:, None]
        first = np.repeat(owner * (h * w), lines[0].shape[1] * lines[1].shape[1])
        self.reading = Reading((np.clip(ys, 0, h - 1), np.clip(xs, 0, w - 1)), (h, w), first)

    def means(self, rows: Array) -> Array:
        """Returns ``[regions, pooled height, pooled width, c]``."""
        found = self.reading.read(rows)
        found *= self.weights
        return np.asarray(found.reshape(*self.shape, -1).sum(axis=(2, 4)))

    def spread(self, grads: Array, rows: Array) -> None:
        """Adds gradients ``[regions, pooled height, pooled width, c]`` to those of the pixels."""
        wide = np.broadcast_to(grads[:, :, None, :, None], (*self.shape, grads.shape[-1]))
        self.reading.spread(wide.reshape(-1, grads.shape[-1]) * self.weights, rows)


def _grids(size: Any, pooled: tuple[int, int], sampling_ratio: int) -> list[tuple[int, int]]:
    """Returns how many samples each part of each region has, down and across."""
    if sampling_ratio > 0:
        return [(sampling_ratio, sampling_ratio)] * len(size)
    return [(max(math.ceil(a / pooled[0]), 0), max(math.ceil(b / pooled[1]), 0)) for a, b in size.tolist()]


def _groups(
    x: Array, rois: Array, number: Any, offsets: Any, pooled: tuple[int, int], scale: float, ratio: int, aligned: bool
) -> list[tuple[Array, _Samples]]:
    """Returns the positions of regions that have equally many samples, and these; regions without samples are left out."""
    owner = images(x, rois, number, offsets)
    start, size = _sides(rois, scale, aligned, np)
    grids = _grids(size, pooled, ratio)
    found = []
    for grid in dict.fromkeys(grids):
        at = np.array([i for i, one in enumerate(grids) if one == grid])
        if grid[0] * grid[1] > 0:
            found.append((at, _Samples(x, owner[at], start[at], size[at], pooled, grid)))
    return found


def _ref(
    x: Array, rois: Array, number: Array | None, offsets: Array | None, out: Array, *, pooled_height: int,
    pooled_width: int, spatial_scale: float, sampling_ratio: int, aligned: bool,
) -> None:  # fmt: skip
    out.fill(0)
    rows = as_rows(x)
    pooled = (pooled_height, pooled_width)
    for at, one in _groups(x, rois, number, offsets, pooled, spatial_scale, sampling_ratio, aligned):
        out[at] = one.means(rows).transpose(0, 3, 1, 2)


def _grad_ref(
    x: Array, rois: Array, number: Array | None, offsets: Array | None, dout: Array, dx: Array, *, pooled_height: int,
    pooled_width: int, spatial_scale: float, sampling_ratio: int, aligned: bool,
) -> None:  # fmt: skip
    rows = np.zeros((len(x) * math.prod(x.shape[2:]), x.shape[1]), x.dtype)
    pooled = (pooled_height, pooled_width)
    for at, one in _groups(x, rois, number, offsets, pooled, spatial_scale, sampling_ratio, aligned):
        one.spread(dout[at].transpose(0, 2, 3, 1), rows)
    store_rows(rows, dx)


def _lower(
    torch: Any, x: Any, rois: Any, number: Any, offsets: Any, *, pooled_height: int, pooled_width: int,
    spatial_scale: float, sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    h, w = x.shape[2:]
    pooled = (pooled_height, pooled_width)
    start, size = _sides(rois, spatial_scale, aligned, torch)
    grids = _grids(size, pooled, sampling_ratio)
    found = []
    for i, image in enumerate(torch_images(x, rois, number, offsets)):
        (gh, gw), shape = grids[i], (pooled_height, grids[i][0], pooled_width, grids[i][1])
        if gh * gw == 0:
            found.append(x.new_zeros(x.shape[1], *pooled))
            continue
        ys, xs = (
            start[i, axis] + (torch.arange(n, dtype=x.dtype, device=x.device) + 0.5) * (size[i, axis] / n)
            for axis, n in enumerate((pooled_height * gh, pooled_width * gw))
        )
        ys, xs = (v.reshape(1, -1) for v in torch.meshgrid(ys, xs, indexing="ij"))
        seen = (ys >= -1) & (ys <= h) & (xs >= -1) & (xs <= w)
        read = torch_read(torch, x[image : image + 1], ys.clamp(0, h - 1), xs.clamp(0, w - 1))
        found.append((read * seen[:, None]).reshape(x.shape[1], *shape).mean((2, 4)))
    return torch.stack(found) if found else x.new_zeros(0, x.shape[1], *pooled)


_SIZE = {"pooled_height": 2, "pooled_width": 2}

register(OpDef(
    "roi_align", f"{SLOTS} -> Out",
    attrs={
        "pooled_height": Attr(1, "int", lambda v: None if v > 0 else "a number above 0"),
        "pooled_width": Attr(1, "int", lambda v: None if v > 0 else "a number above 0"),
        "spatial_scale": 1.0, "sampling_ratio": -1, "aligned": False,
    },
    infer=_infer, ref=_ref,
    traits=(READS_BOXES,), lower=_lower,
    grad=GradOp(
        f"{SLOTS}, Out@GRAD -> X@GRAD", ref=_grad_ref,
        traits=(READS_BOXES,), lower=torch_gradient(_lower, 4, (0,)),
    ),
    domain=Domain(
        cases=(
            Case(((2, 3, 5, 4), (2, 4), (2,)), _SIZE),
            Case(((3, 2, 4, 4), (3, 4), (3,)), {**_SIZE, "sampling_ratio": 2, "aligned": True, "spatial_scale": 0.5}),
            Case(((2, 1, 4, 5), (5, 4), None, (3,)), {"pooled_height": 1, "pooled_width": 3, "aligned": True}),
            Case(((0, 1, 4, 4), (0, 4), (0,)), _SIZE),
        ),
        values=VALUES, floats=FLOATS, ulps=64.0,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("vision.ops.roi_align", op="roi_align")
def roi_align(
    x: Variable,
    boxes: Variable,
    boxes_num: Variable,
    output_size: Any,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = True,
    name: str | None = None,
) -> Variable:
    """Cuts regions of images into parts, and returns the mean of samples between the pixels of each part.

    Args:
        x: ``[n, c, h, w]``; float32 or float64.
        boxes: ``[regions, 4]``: left, top, right, bottom, those of the first image first.
        boxes_num: How many regions each image has, ``[n]``; int32 or int64.
        output_size: Parts of a region: an int, or ``[height, width]``.
        spatial_scale: Pixels of ``x`` per unit of the boxes.
        sampling_ratio: Samples of a part along an axis; if not positive, as many as it has pixels, rounded up.
        aligned: Whether boxes are moved by half a pixel, so that they lie as pixels do; if not, regions have at least one
            pixel.
        name: Name of the layer.

    Returns:
        ``[regions, c, height, width]``. No gradient reaches the boxes.

    Raises:
        ShapeError, DTypeError: If the arguments do not fit together.
        FeedError: At run time, if the numbers do not fit the images.

    Example:
        >>> x = paddle.reshape(paddle.arange(16, dtype="float32"), [1, 1, 4, 4])
        >>> box, number = paddle.to_tensor([[0.0, 0.0, 4.0, 4.0]]), paddle.to_tensor(np.array([1], "int32"))
        >>> y = paddle.vision.ops.roi_align(x, box, number, output_size=2)
        >>> static.Executor().run(fetch_list=[y])[0][0, 0]
        array([[ 2.5,  4.5],
               [10.5, 12.5]], dtype=float32)
    """
    function = "roi_align"
    attrs = {
        **region_attrs(function, output_size, spatial_scale),
        "sampling_ratio": check_int(sampling_ratio, "sampling_ratio", function),
        "aligned": check_type(aligned, bool, "aligned", function),
    }
    out: Variable = emit(function, region_inputs(function, x, boxes, boxes_num), attrs, name=name)
    return out


@export("fluid.layers.roi_align", op="roi_align")
def fluid_roi_align(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    name: str | None = None,
    rois_lod: Variable | None = None,
    rois_num: Variable | None = None,
) -> Variable:
    """Returns the mean of samples in the parts of regions, as :func:`roi_align` with ``aligned=False``.

    Args:
        input: ``[n, c, h, w]``; float32 or float64.
        rois: ``[regions, 4]``, with a LoD unless ``rois_lod`` or ``rois_num`` is given.
        pooled_height, pooled_width: Parts of a region.
        spatial_scale, sampling_ratio, name: As there.
        rois_lod: The offsets of the images' regions, ``[n + 1]`` integers: ``[0, 2, 5]`` for two regions and three.
        rois_num: How many regions each image has, ``[n]`` integers; it counts if both are given.
    """
    function = "roi_align"
    attrs = {
        **region_attrs(function, [pooled_height, pooled_width], spatial_scale),
        "sampling_ratio": check_int(sampling_ratio, "sampling_ratio", function),
    }
    out: Variable = emit(
        function, region_inputs(function, input, rois, numbers_of(rois_lod, rois_num)), attrs, name=name
    )
    return out
