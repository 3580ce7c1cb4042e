"""The mean of each part of a region, each part in channels of its own (Dai et al., 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import FLOATS, Array
from tstatic.extras.detection._regions import (
    SLOTS,
    VALUES,
    check_regions,
    images,
    region_attrs,
    region_inputs,
    rounded,
    torch_images,
    windows,
)
from tstatic.ir.build import emit
from tstatic.ir.checks import check_int, check_size, check_static_dim
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.base.host import READS_BOXES
from tstatic.ops.base.torch_gradient import torch_gradient


def _infer(
    x: Meta, rois: Meta, number: Meta | None, offsets: Meta | None, *, output_channels: int, pooled_height: int,
    pooled_width: int,
) -> Meta:  # fmt: skip
    check_regions(x, rois, number, offsets)
    why = "output channels times the parts of a region"
    check_size(x, 1, output_channels * pooled_height * pooled_width, "X", why=why)
    return x.with_shape((rois.shape[0], output_channels, pooled_height, pooled_width))


def _parts(
    box: Any, scale: float, pooled: tuple[int, int], sizes: tuple[int, int]
) -> Iterator[tuple[tuple[int, int], slice, slice]]:
    """Yields position and pixels of the parts of a region; empty ones are left out."""
    corners = rounded(np.asarray(box, np.float64))
    left, top = corners[:2] * scale
    right, bottom = (corners[2:] + 1) * scale
    down = windows(0, max(bottom - top, 0.1) / pooled[0], pooled[0], sizes[0], top)
    across = windows(0, max(right - left, 0.1) / pooled[1], pooled[1], sizes[1], left)
    for i, (a, b) in enumerate(down):
        for j, (c, d) in enumerate(across):
            if a < b and c < d:
                yield (i, j), slice(a, b), slice(c, d)


def _ref(
    x: Array, rois: Array, number: Array | None, offsets: Array | None, out: Array, *, output_channels: int,
    pooled_height: int, pooled_width: int, spatial_scale: float,
) -> None:  # fmt: skip
    pooled, sizes = (pooled_height, pooled_width), x.shape[2:]
    out.fill(0)
    for r, image in enumerate(images(x, rois, number, offsets)):
        each = x[image].reshape(output_channels, *pooled, *sizes)
        for (i, j), rows, columns in _parts(rois[r], spatial_scale, pooled, sizes):
            out[r, :, i, j] = each[:, i, j, rows, columns].mean(axis=(1, 2))


def _grad_ref(
    x: Array, rois: Array, number: Array | None, offsets: Array | None, dout: Array, dx: Array, *, output_channels: int,
    pooled_height: int, pooled_width: int, spatial_scale: float,
) -> None:  # fmt: skip
    pooled, sizes = (pooled_height, pooled_width), x.shape[2:]
    made = np.zeros((len(x), output_channels, *pooled, *sizes), x.dtype)
    for r, image in enumerate(images(x, rois, number, offsets)):
        for (i, j), rows, columns in _parts(rois[r], spatial_scale, pooled, sizes):
            part = made[image, :, i, j, rows, columns]
            part += (dout[r, :, i, j] / (part.shape[1] * part.shape[2]))[:, None, None]
    np.copyto(dx, made.reshape(x.shape))


def _lower(
    torch: Any, x: Any, rois: Any, number: Any, offsets: Any, *, output_channels: int, pooled_height: int,
    pooled_width: int, spatial_scale: float,
) -> Any:  # fmt: skip
    pooled, sizes = (pooled_height, pooled_width), x.shape[2:]
    out = x.new_zeros(len(rois), output_channels, *pooled)
    for r, image in enumerate(torch_images(x, rois, number, offsets)):
        each = x[image].reshape(output_channels, *pooled, *sizes)
        for (i, j), rows, columns in _parts(rois[r].cpu().numpy(), spatial_scale, pooled, sizes):
            out[r, :, i, j] = each[:, i, j, rows, columns].mean((1, 2))
    return out


register(OpDef(
    "psroi_pool", f"{SLOTS} -> Out",
    attrs={
        "output_channels": Attr(kind="int"), "pooled_height": Attr(1, "int", lambda v: None if v > 0 else "a number above 0"),
        "pooled_width": Attr(1, "int", lambda v: None if v > 0 else "a number above 0"), "spatial_scale": 1.0,
    },
    infer=_infer, ref=_ref,
    traits=(READS_BOXES,), lower=_lower,
    grad=GradOp(f"{SLOTS}, Out@GRAD -> X@GRAD", ref=_grad_ref,
    traits=(READS_BOXES,), lower=torch_gradient(_lower, 4, (0,))),
    domain=Domain(
        cases=(
            Case(((2, 8, 5, 4), (2, 4), (2,)), {"output_channels": 2, "pooled_height": 2, "pooled_width": 2}),
            Case(
                ((2, 3, 4, 5), (4, 4), None, (3,)),
                {"output_channels": 1, "pooled_height": 1, "pooled_width": 3, "spatial_scale": 0.7},
            ),
            Case(((0, 2, 4, 4), (0, 4), (0,)), {"output_channels": 1, "pooled_height": 2}),
        ),
        values=VALUES, floats=FLOATS, ulps=32.0,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


def _pool(
    function: str, x: Variable, boxes: Variable, number: Variable | None, output_size: Any, spatial_scale: Any,
    output_channels: int | None, name: str | None,
) -> Variable:  # fmt: skip
    inputs = region_inputs(function, x, boxes, number)
    attrs = region_attrs(function, output_size, spatial_scale)
    parts = attrs["pooled_height"] * attrs["pooled_width"]
    if output_channels is None:
        output_channels = check_static_dim(x.shape[1], x, "axis 1 (the channels)", function) // parts
    attrs["output_channels"] = check_int(output_channels, "output_channels", function, 1)
    out: Variable = emit(function, inputs, attrs, name=name)
    return out


@export("vision.ops.psroi_pool", op="psroi_pool")
def psroi_pool(
    x: Variable,
    boxes: Variable,
    boxes_num: Variable,
    output_size: Any,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Cuts regions of images into parts, and returns the mean of each part, read from the channels of its place.

    Args:
        x: ``[n, c * height * width, h, w]``; float32 or float64, the channels known.
        boxes: ``[regions, 4]``: left, top, right, bottom, those of the first image first; rounded to whole numbers.
        boxes_num: How many regions each image has, ``[n]``; int32 or int64.
        output_size: Parts of a region: an int, or ``[height, width]``.
        spatial_scale: Pixels of ``x`` per unit of the boxes.
        name: Name of the layer.

    Returns:
        ``[regions, c, height, width]``; 0 for a part outside of the image. No gradient reaches the boxes.

    Raises:
        ShapeError, DTypeError: If the arguments do not fit together.
        FeedError: At run time, if the numbers do not fit the images.

    Example:
        >>> x = paddle.reshape(paddle.arange(16, dtype="float32"), [1, 4, 2, 2])
        >>> box, number = paddle.to_tensor([[0.0, 0.0, 1.0, 1.0]]), paddle.to_tensor(np.array([1], "int32"))
        >>> y = paddle.vision.ops.psroi_pool(x, box, number, output_size=2)
        >>> static.Executor().run(fetch_list=[y])[0][0, 0]
        array([[ 0.,  5.],
               [10., 15.]], dtype=float32)
    """
    return _pool("psroi_pool", x, boxes, boxes_num, output_size, spatial_scale, None, name)


@export("fluid.layers.psroi_pool", op="psroi_pool")
def fluid_psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    name: str | None = None,
) -> Variable:
    """Returns the mean of each part of regions, read from the channels of its place, as :func:`psroi_pool`.

    Args:
        input: ``[n, output_channels * pooled_height * pooled_width, h, w]``; float32 or float64.
        rois: ``[regions, 4]`` with a LoD.
        output_channels: Channels of the result.
        spatial_scale, name: As there.
        pooled_height, pooled_width: Parts of a region.
    """
    return _pool("psroi_pool", input, rois, None, [pooled_height, pooled_width], spatial_scale, output_channels, name)
