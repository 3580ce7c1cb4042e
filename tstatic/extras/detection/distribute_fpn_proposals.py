"""Regions for the levels of a feature pyramid, by their size (Lin et al., 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import FLOATS, Array, area, check_boxes, on_host
from tstatic.extras.sequence.lod_reset import lod_reset
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import INDICES, check_dtype, check_int, check_number, check_rank, check_type
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int32
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.reduce.cumsum import cumsum
from tstatic.ops.shape.creation import full
from tstatic.ops.shape.joining import concat


def _infer(rois: Meta, number: Meta | None, *, min_level: int, max_level: int) -> tuple[list[Meta], Meta, list[Meta]]:
    check_boxes(rois, "FpnRois")
    if number is not None:
        check_dtype(number, INDICES, "RoisNum")
        check_rank(number, 1, "RoisNum", layout="[images]")
    levels = check_int(max_level, "max_level", "distribute_fpn_proposals", min_level) - min_level + 1
    count = Meta((1,) if number is None else number.shape, int32)
    return [rois.with_shape((UNKNOWN, 4))] * levels, Meta((rois.shape[0], 1), int32), [count] * levels


def _ref(
    rois: Array, number: Array | None, out: None, restore: None, counts: None, *, min_level: int, max_level: int,
    refer_level: int, refer_scale: int, pixel_offset: bool,
) -> list[Any]:  # fmt: skip
    scale = np.sqrt(area(rois, 1.0 if pixel_offset else 0.0))
    with np.errstate(divide="ignore"):
        level = np.floor(np.log2(scale / refer_scale + 1e-6) + refer_level)
    level = np.clip(level, min_level, max_level)
    owner = np.zeros(len(rois), np.int64) if number is None else np.repeat(np.arange(len(number)), number)
    images = 1 if number is None else len(number)
    places = [np.flatnonzero(level == one) for one in range(min_level, max_level + 1)]
    order = np.concatenate(places)
    back = np.empty((len(rois), 1), np.int32)
    back[order, 0] = np.arange(len(order))
    return [
        [rois[at] for at in places], back,
        [np.bincount(owner[at], minlength=images).astype(np.int32) for at in places],
    ]  # fmt: skip


register(OpDef(
    "distribute_fpn_proposals", "FpnRois, RoisNum? -> MultiFpnRois*, RestoreIndex, MultiLevelRoIsNum*",
    attrs={
        "min_level": Attr(kind="int"), "max_level": Attr(kind="int"), "refer_level": Attr(kind="int"),
        "refer_scale": Attr(kind="int"), "pixel_offset": True,
    },
    infer=_infer, ref=_ref, lower=on_host(_ref, 3), dynamic=Dynamic("the boxes of each level"),
    domain=Domain(
        cases=(
            Case(((7, 4), (7,)), {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 3}),
            Case(((6, 4),), {"min_level": 2, "max_level": 3, "refer_level": 3, "refer_scale": 2, "pixel_offset": False}),
        ),
        values={"FpnRois": ValueRange(0.0, 8.0), "RoisNum": ValueRange(1, 1, dtype="int32")}, floats=FLOATS, ulps=0,
        check_grad="regions are moved; as in Paddle, no gradient flows through them",
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


def _distribute(
    rois: Variable, min_level: int, max_level: int, refer_level: int, refer_scale: int, pixel_offset: bool,
    number: Variable | None, name: str | None,
) -> tuple[list[Variable], Variable, list[Variable]]:  # fmt: skip
    function = "distribute_fpn_proposals"
    ins = {"FpnRois": check_variable(rois, "fpn_rois", function, FLOATS)}
    if number is not None:
        ins["RoisNum"] = check_variable(number, "rois_num", function, INDICES)
    check_number(refer_scale, "refer_scale", function, above=0.0)
    attrs = {
        "min_level": check_int(min_level, "min_level", function),
        "max_level": check_int(max_level, "max_level", function, min_level),
        "refer_level": check_int(refer_level, "refer_level", function),
        "refer_scale": check_int(refer_scale, "refer_scale", function, 1),
        "pixel_offset": check_type(pixel_offset, bool, "pixel_offset", function),
    }
    levels, restore, counts = emit(function, ins, attrs, name=name)
    for made in (*levels, restore, *counts):
        made.stop_gradient = True
    return levels, restore, counts


@export("vision.ops.distribute_fpn_proposals", op="distribute_fpn_proposals")
def distribute_fpn_proposals(
    fpn_rois: Variable,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    pixel_offset: bool = False,
    rois_num: Variable | None = None,
    name: str | None = None,
) -> tuple[list[Variable], Variable, list[Variable] | None]:
    """Divides regions among the levels of a feature pyramid: ``floor(log2(sqrt(area) / refer_scale)) + refer_level``.

    Args:
        fpn_rois: ``[regions, 4]``: left, top, right, bottom; float32 or float64.
        min_level, max_level: The levels there are; larger and smaller regions go to the nearest.
        refer_level: The level of regions whose area is that of a square with side ``refer_scale``.
        refer_scale: That side.
        pixel_offset: Whether both ends of a side are pixels of the box.
        rois_num: How many regions each image has, ``[images]``; int32 or int64.
        name: Name of the layer.

    Returns:
        The regions of each level; where each region stands among those of all levels, ``[regions, 1]``; and with
        ``rois_num`` how many regions of each image each level has, else ``None``.

    Raises:
        ShapeError, DTypeError: If there are no boxes, or no levels.

    Example:
        >>> boxes = paddle.to_tensor([[0.0, 0.0, 8.0, 8.0], [0.0, 0.0, 2.0, 2.0]])
        >>> levels, restore, _ = paddle.vision.ops.distribute_fpn_proposals(boxes, 2, 3, refer_level=3, refer_scale=8)
        >>> [v.tolist() for v in static.Executor().run(fetch_list=[*levels, restore])]
        [[[0.0, 0.0, 2.0, 2.0]], [[0.0, 0.0, 8.0, 8.0]], [[1], [0]]]
    """
    levels, restore, counts = _distribute(
        fpn_rois, min_level, max_level, refer_level, refer_scale, pixel_offset, rois_num, name
    )
    return levels, restore, None if rois_num is None else counts


@export("fluid.layers.distribute_fpn_proposals", op="distribute_fpn_proposals")
def fluid_distribute_fpn_proposals(
    fpn_rois: Variable,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    name: str | None = None,
    rois_num: Variable | None = None,
) -> Any:
    """Divides regions among the levels of a feature pyramid, with ``pixel_offset=True``; see :func:`distribute_fpn_proposals`.

    Args:
        fpn_rois, min_level, max_level, refer_level, refer_scale, rois_num, name: As there; boxes may have a LoD instead of
            ``rois_num``, and then so have the regions of each level.

    Returns:
        The regions of each level, and the positions; with ``rois_num`` also the numbers.
    """
    number = rois_num
    if number is None and check_variable(fpn_rois, "fpn_rois", "distribute_fpn_proposals").lod:
        offsets: Any = fpn_rois.block._find_var_recursive(fpn_rois.lod[-1])
        number = cast(offsets[1:] - offsets[:-1], "int32")
    levels, restore, counts = _distribute(fpn_rois, min_level, max_level, refer_level, refer_scale, True, number, name)
    if rois_num is not None:
        return levels, restore, counts
    if number is not None:
        first = full([1], 0, "int64")
        levels = [
            lod_reset(level, concat([first, cast(cumsum(count, 0), "int64")]))
            for level, count in zip(levels, counts, strict=True)
        ]
    return levels, restore
