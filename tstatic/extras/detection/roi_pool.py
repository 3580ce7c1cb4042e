"""The largest pixel of each part of a region (Girshick, 2015)."""

from __future__ import annotations

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
    rounded,
    torch_images,
    windows,
)
from tstatic.ir.build import emit
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, int64
from tstatic.ops.base.host import READS_BOXES


def _infer(
    x: Meta, rois: Meta, number: Meta | None, offsets: Meta | None, *, pooled_height: int, pooled_width: int
) -> tuple[Meta, Meta]:
    check_regions(x, rois, number, offsets)
    out = x.with_shape((rois.shape[0], x.shape[1], pooled_height, pooled_width))
    return out, out.with_dtype(int64)


def _parts(box: Any, scale: float, pooled: tuple[int, int], sizes: tuple[int, int]) -> Any:
    """Yields position and pixels of the parts of a region: ``((i, j), rows, columns)``, empty ones left out."""
    left, top, right, bottom = (int(v) for v in rounded(np.asarray(box) * np.asarray(box).dtype.type(scale)))
    down = windows(top, max(bottom - top + 1, 1) / pooled[0], pooled[0], sizes[0])
    across = windows(left, max(right - left + 1, 1) / pooled[1], pooled[1], sizes[1])
    for i, (a, b) in enumerate(down):
        for j, (c, d) in enumerate(across):
            if a < b and c < d:
                yield (i, j), slice(a, b), slice(c, d)


def _ref(
    x: Array, rois: Array, number: Array | None, offsets: Array | None, out: Array | None, argmax: Array | None,
    *, pooled_height: int, pooled_width: int, spatial_scale: float,
) -> None:  # fmt: skip
    sizes = x.shape[2:]
    if out is not None:
        out.fill(0)
    if argmax is not None:
        argmax.fill(-1)
    for r, image in enumerate(images(x, rois, number, offsets)):
        for (i, j), rows, columns in _parts(rois[r], spatial_scale, (pooled_height, pooled_width), sizes):
            part = x[image, :, rows, columns]
            flat = part.reshape(len(part), -1)
            at = flat.argmax(axis=1)
            if out is not None:
                out[r, :, i, j] = flat[np.arange(len(part)), at]
            if argmax is not None:
                down, across = np.divmod(at, part.shape[2])
                argmax[r, :, i, j] = (rows.start + down) * sizes[1] + columns.start + across


def _grad_ref(
    x: Array, rois: Array, number: Array | None, offsets: Array | None, argmax: Array, dout: Array, dx: Array
) -> None:
    made = np.zeros((len(x), x.shape[1], x.shape[2] * x.shape[3]), x.dtype)
    owner = images(x, rois, number, offsets)
    seen = argmax >= 0
    region, channel, _, _ = np.nonzero(seen)
    np.add.at(made, (owner[region], channel, argmax[seen]), dout[seen])
    np.copyto(dx, made.reshape(x.shape))


def _lower(
    torch: Any, x: Any, rois: Any, number: Any, offsets: Any, *, pooled_height: int, pooled_width: int,
    spatial_scale: float,
) -> Any:  # fmt: skip
    pooled, sizes = (pooled_height, pooled_width), x.shape[2:]
    out = x.new_zeros(len(rois), x.shape[1], *pooled)
    argmax = torch.full(out.shape, -1, dtype=torch.int64, device=x.device)
    for r, image in enumerate(torch_images(x, rois, number, offsets)):
        for (i, j), rows, columns in _parts(rois[r].cpu().numpy(), spatial_scale, pooled, sizes):
            part = x[image, :, rows, columns]
            out[r, :, i, j], at = part.flatten(1).max(1)
            wide = columns.stop - columns.start
            argmax[r, :, i, j] = (rows.start + at // wide) * sizes[1] + columns.start + at % wide
    return out, argmax


def _grad_lower(torch: Any, x: Any, rois: Any, number: Any, offsets: Any, argmax: Any, dout: Any) -> Any:
    made = torch.zeros_like(x).flatten(2)
    for r, image in enumerate(torch_images(x, rois, number, offsets)):
        at, grad = argmax[r].flatten(1), dout[r].flatten(1)
        made[image].scatter_add_(1, at.clamp(min=0), torch.where(at >= 0, grad, 0))
    return made.reshape(x.shape)


register(OpDef(
    "roi_pool", f"{SLOTS} -> Out, Argmax~",
    attrs={
        "pooled_height": Attr(1, "int", lambda v: None if v > 0 else "a number above 0"),
        "pooled_width": Attr(1, "int", lambda v: None if v > 0 else "a number above 0"), "spatial_scale": 1.0,
    },
    infer=_infer, ref=_ref,
    traits=(READS_BOXES,), lower=_lower,
    grad=GradOp(
        f"{SLOTS}, Argmax, Out@GRAD -> X@GRAD", ref=_grad_ref,
        traits=(READS_BOXES,), lower=_grad_lower, shape_only=("X",),
    ),
    domain=Domain(
        cases=(
            Case(((2, 2, 5, 4), (2, 4), (2,)), {"pooled_height": 2, "pooled_width": 2}),
            Case(((2, 1, 4, 5), (4, 4), None, (3,)), {"pooled_height": 1, "pooled_width": 3, "spatial_scale": 0.7}),
            Case(((0, 1, 4, 4), (0, 4), (0,)), {"pooled_height": 2}),
        ),
        values={**VALUES, "X": ValueRange(distinct=True)}, floats=FLOATS, ulps=0,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("vision.ops.roi_pool", op="roi_pool")
def roi_pool(
    x: Variable,
    boxes: Variable,
    boxes_num: Variable,
    output_size: Any,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Cuts regions of images into parts, and returns the largest pixel of each part.

    Args:
        x: ``[n, c, h, w]``; float32 or float64.
        boxes: ``[regions, 4]``: left, top, right, bottom, those of the first image first; rounded to whole pixels.
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
        >>> x = paddle.reshape(paddle.arange(16, dtype="float32"), [1, 1, 4, 4])
        >>> box, number = paddle.to_tensor([[0.0, 0.0, 3.0, 3.0]]), paddle.to_tensor(np.array([1], "int32"))
        >>> y = paddle.vision.ops.roi_pool(x, box, number, output_size=2)
        >>> static.Executor().run(fetch_list=[y])[0][0, 0]
        array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """
    function = "roi_pool"
    attrs = region_attrs(function, output_size, spatial_scale)
    out: Variable = emit(function, region_inputs(function, x, boxes, boxes_num), attrs, name=name)
    return out


@export("fluid.layers.roi_pool", op="roi_pool")
def fluid_roi_pool(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    rois_lod: Variable | None = None,
    rois_num: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Returns the largest pixel of each part of regions, as :func:`roi_pool`.

    Args:
        input: ``[n, c, h, w]``; float32 or float64.
        rois: ``[regions, 4]``, with a LoD unless ``rois_lod`` or ``rois_num`` is given.
        pooled_height, pooled_width: Parts of a region.
        spatial_scale, name: As there.
        rois_lod: The offsets of the images' regions, ``[n + 1]`` integers: ``[0, 2, 5]`` for two regions and three.
        rois_num: How many regions each image has, ``[n]`` integers; it counts if both are given.
    """
    attrs = region_attrs("roi_pool", [pooled_height, pooled_width], spatial_scale)
    out: Variable = emit(
        "roi_pool", region_inputs("roi_pool", input, rois, numbers_of(rois_lod, rois_num)), attrs, name=name
    )
    return out
