"""What the poolings of regions share: shapes, the image of each region, and where tests sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import FeedError, ProgramError
from tstatic.extras.detection._boxes import FLOATS, Array, check_boxes
from tstatic.extras.sequence._offsets import owners
from tstatic.ir.build import check_variable
from tstatic.ir.checks import INDICES, check_dtype, check_ints, check_number, check_rank, check_same_dtype
from tstatic.ir.opdef import LOD, ValueRange
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.elementwise.scale import cast

SLOTS = f"X, ROIs, RoisNum?, ROIs{LOD}?"
VALUES = {
    "ROIs": ValueRange(0.0, 5.0), "RoisNum": ValueRange(1, 1, dtype="int32"),
    f"ROIs{LOD}": ValueRange(dtype="int64", offsets="ROIs.0"),
}  # fmt: skip
"""One region per image where numbers are given."""
NO_GRADIENT = "as in Paddle, regions have no gradient"


def check_regions(x: Meta, rois: Meta, number: Meta | None, offsets: Meta | None) -> None:
    """Refuses images and regions that do not fit together.

    Raises:
        ShapeError, DTypeError: Says what was expected.
        ProgramError: If nothing says which image a region is of.
    """
    check_dtype(x, FLOATS, "X")
    check_rank(x, 4, "X", layout="[n, c, h, w]")
    check_boxes(rois, "ROIs")
    check_same_dtype((x, rois), ("X", "ROIs"))
    if number is not None:
        check_dtype(number, INDICES, "RoisNum")
        check_rank(number, 1, "RoisNum", layout="[images]")
    elif offsets is None:
        raise ProgramError(
            "nothing says which image each region is of",
            expected="the number of regions of each image, or regions with a LoD",
            received="regions alone",
            fix="pass the numbers, or declare the regions with lod_level=1",
        )


def images(x: Any, rois: Any, number: Array | None, offsets: Array | None) -> Array:
    """Returns the image of each region.

    Raises:
        FeedError: If the numbers do not add up to the regions, or are not one per image.
    """
    if number is None:
        assert offsets is not None
        counts = np.diff(offsets)
        owner = owners(offsets)
    else:
        counts = number.astype(np.int64)
        owner = np.repeat(np.arange(len(counts)), np.maximum(counts, 0))
    if len(counts) != len(x) or len(owner) != len(rois) or (counts < 0).any():
        raise FeedError(
            "the numbers of regions do not fit the images",
            expected=f"{len(x)} numbers that add up to {len(rois)}",
            received=counts.tolist(),
            fix="give for each image of the batch how many regions it has",
        )
    return owner


def torch_images(x: Any, rois: Any, number: Any, offsets: Any) -> list[int]:
    """As :func:`images`, of torch tensors."""
    arrays = (None if v is None else v.cpu().numpy() for v in (number, offsets))
    return [int(v) for v in images(x, rois, *arrays)]


def region_inputs(function: str, x: Variable, boxes: Variable, number: Variable | None) -> dict[str, Any]:
    """Returns the inputs of an op; numbers may be left out of boxes with a LoD."""
    check_variable(x, "x", function, FLOATS)
    check_variable(boxes, "boxes", function, FLOATS)
    if number is not None:
        check_variable(number, "boxes_num", function, INDICES)
    return {"X": x, "ROIs": boxes, "RoisNum": number}


def numbers_of(offsets: Variable | None, numbers: Variable | None) -> Variable | None:
    """Returns how many regions each image has: as given, or the differences of the images' offsets."""
    if numbers is not None or offsets is None:
        return numbers
    check_variable(offsets, "rois_lod", "roi_align", INDICES)
    return cast(offsets[1:] - offsets[:-1], "int32")


def region_attrs(function: str, output_size: Any, spatial_scale: Any) -> dict[str, Any]:
    """Returns the attributes that all poolings of regions have."""
    height, width = check_ints(output_size, 2, "output_size", function)
    scale = check_number(spatial_scale, "spatial_scale", function)
    return {"pooled_height": height, "pooled_width": width, "spatial_scale": scale}


def rounded(x: Array) -> Array:
    """Returns the nearest integers, halves away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(x) + 0.5), x))


def windows(start: float, size: float, count: int, limit: int, shift: float = 0.0) -> list[tuple[int, int]]:
    """Returns the pixels of each of ``count`` parts of a side, cut to the image.

    Args:
        start: Added to the parts' ends after rounding.
        size: Length of a part.
        count: How many there are.
        limit: Length of the image.
        shift: Added before rounding.
    """
    found = []
    for i in range(count):
        low = int(np.floor(i * size + shift) + start)
        high = int(np.ceil((i + 1) * size + shift) + start)
        found.append((min(max(low, 0), limit), min(max(high, 0), limit)))
    return found


def as_list(values: Any) -> Sequence[Sequence[float]]:
    """Returns an array or tensor as nested lists of numbers."""
    return values.tolist()  # type: ignore[no-any-return]
