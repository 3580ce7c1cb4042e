"""Geometry of sliding windows: output sizes, and how a convolution is cut into cache-sized blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Padding at top, bottom, left, right."""
Shape4 = tuple[int, int, int, int]


class Geometry(NamedTuple):
    """How the filters of a convolution over two axes meet its input.

    Attributes:
        strides, dilations: Rows, columns.
        pads: Zeros at top, bottom, left, right.
        groups: Number of groups; the channels of input and output are cut into as many.
    """

    strides: Pair
    pads: Pads
    dilations: Pair
    groups: int


COLS = 1 << 18
"""Elements of the column buffer per block: 1 MiB in float32, a common second-level cache."""


SMALL = 10**6
"""Multiply-adds up to which OpenBLAS takes its kernels for small matrices, which pack nothing: 100 to 110 GFLOP/s where the
others reach 80 to 90 with 32 or 64 rows."""


@lru_cache(maxsize=1024)
def small_parts(rows: int, depth: int, places: int) -> int:
    """Returns into how many equal parts of at least 32 places a product is cut to be small; 1 where that cannot be."""
    for parts in range(1, places // 32 + 1):
        if places % parts == 0 and rows * depth * (places // parts) <= SMALL:
            return parts
    return 1


def output_size(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """Returns the number of windows along one axis: ``(size + before + after - dilation * (kernel - 1) - 1) // stride + 1``."""
    return max(0, (size + before + after - dilation * (kernel - 1) - 1) // stride + 1)


Mode = Literal["none", "direct", "rows", "wide", "shifts", "pixels", "windows", "depthwise"]

_PRODUCT_ROWS = 384
"""Rows that a product of mode ``pixels`` has at least: the other operand is repacked for every product."""

_ALONE = 49
"""Places of an image from which a filter of one pixel multiplies image by image."""
_FEW = 64
"""Places of an image up to which all images of a block are one product of the filter gradient: 32 images of 4x256 and as large
filters take 0.03 ms instead of 0.7."""
_FEW_FILTERS = 1 << 13
"""Values of all filters up to which their gradient is summed image by image from as many places."""

_SIDE_BY_SIDE = 1536
"""Places that a product of mode ``depthwise`` has at least."""


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """How one convolution runs.

    Attributes:
        batch, channels, height, width: The input.
        filters, kernel: Output channels and ``(kh, kw)``.
        strides, pads, dilations, groups: As in the op.
        out: ``(oh, ow)``.
        depth: Length of one filter, ``channels / groups * kh * kw``.
        mode: ``none``: nothing to compute; ``direct``: the input is the column matrix; ``pixels``: channels are moved
            last, so that a copy takes a row of the window with all channels; ``rows``: columns are copied one output row at
            a time; ``wide``: columns keep the padded row length, so that copies are long, and the product is narrowed
            afterwards; ``shifts``: columns hold a row of the window only, and the products of its rows, which read the
            same columns further down, are added; ``windows``: only for scattering, a row of a window is added at a time;
            ``depthwise``: as ``shifts``, with one product for all rows of the window and several images side by side.
        images: Images per block.
        rows: Output rows per block (all of them unless one image alone overflows the cache).
    """

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: Pair
    strides: Pair
    pads: Pads
    dilations: Pair
    groups: int
    out: Pair
    depth: int
    mode: Mode
    images: int
    rows: int

    @property
    def padded(self) -> bool:
        """Whether the input has a border."""
        return any(self.pads)

    @property
    def padded_size(self) -> Pair:
        """Height and width of the input with its border."""
        top, bottom, left, right = self.pads
        return self.height + top + bottom, self.width + left + right

    @property
    def sources(self) -> int:
        """Elements of the buffer for a block of padded (or rearranged) images."""
        if self.mode in ("none", "shifts", "depthwise") or not (self.padded or self.mode == "pixels"):
            return 0
        return self.images * self.channels * self.padded_size[0] * self.padded_size[1]

    @property
    def row(self) -> int:
        """Length of an output row in the column buffer."""
        return self.padded_size[1] if self.mode == "wide" else self.out[1]

    @property
    def block(self) -> int:
        """Values per channel in the output of a block."""
        return 0 if self.mode == "none" else self.images * self.rows * self.row

    @property
    def planes(self) -> int:
        """Channels per block of mode ``depthwise``."""
        kh, kw = self.kernel
        values = (kw + kh * (self.filters // self.groups)) * self.images * (self.rows + self.reach) * self.out[1]
        return max(1, min(self.channels, 2 * COLS // values))

    @property
    def columns(self) -> int:
        """Elements of the column buffer."""
        if self.mode == "shifts":
            tap = self.depth // self.kernel[0]
            return self.images * self.groups * tap * (self.rows + self.reach) * self.out[1]
        if self.mode == "depthwise":
            return self.planes * self.kernel[1] * self.images * (self.rows + self.reach) * self.out[1]
        return 0 if self.mode == "direct" else self.block * self.groups * self.depth

    @property
    def products(self) -> int:
        """Elements of the buffer for a product that is narrowed, added or rearranged afterwards."""
        if self.mode == "depthwise":
            places = self.images * (self.rows + self.reach) * self.out[1]
            return self.planes * self.filters // self.groups * self.kernel[0] * places
        return self.block * self.filters if self.mode in ("wide", "shifts", "pixels") else 0

    @property
    def parts(self) -> int:
        """The most parts that :func:`small_parts` cuts a filter gradient of mode ``shifts`` into."""
        per_group, tap = self.filters // self.groups, self.depth // self.kernel[0]
        last = self.out[0] % self.rows or self.rows
        return max(small_parts(per_group, tap, rows * self.out[1]) for rows in (self.rows, last))

    @property
    def reach(self) -> int:
        """Rows of the window after its first."""
        return (self.kernel[0] - 1) * self.dilations[0]


def _shifts_pay(w_shape: Sequence[int], stride: int, places: int, batch: int, filter_grad: bool) -> bool:
    """Returns whether mode ``shifts`` is fastest: a third of the copies of a 3x3 window for two more passes over the product.

    Measured against mode ``pixels``, forward, one core, GFLOP/s: 8 channels of 32x32 64 against 35, 16 channels 86 against
    54, 32 of 16x16 90 against 73, 64 of 56x56 97 against 78; with 3 channels products are too thin.

    Args:
        w_shape: ``[filters, channels of a group, kh, kw]``.
        stride: Between output rows.
        places: Output places of an image; each image is a product of its own.
        batch: Images.
        filter_grad: For the filter gradient, whose products are as thin as a row of the window.
    """
    filters, channels, kh, kw = w_shape
    if stride != 1 or kh == 1 or channels * kw < 16 or places < 49:
        return False
    if filter_grad:
        return channels * kw <= 48 or places >= 784 or (channels * kw <= 192 and places >= 256)
    return filters * kh * kw <= batch * places  # else rearranging the filters costs more than is saved


@lru_cache(maxsize=1024)
def conv_plan(
    x_shape: Shape4,
    w_shape: Shape4,
    geometry: Geometry,
    narrow: bool = False,
    filter_grad: bool = False,
    scatter: bool = False,
) -> ConvPlan:
    """Chooses mode and block sizes from shapes alone, so that results never depend on the machine's load.

    The estimates are nanoseconds per output row of one image, measured on one core (float32): a copied row costs
    5.5 + 0.02 a value, a value of a long copy 0.09, a multiply-add 0.0105.

    Args:
        x_shape, w_shape, geometry: Of the convolution.
        narrow: Rule out modes ``wide`` and ``shifts``, for gradients that cannot use them.
        filter_grad: Mode ``shifts`` is possible all the same.
        scatter: Columns are made by a product and added to the places that they come from; mode ``windows`` is possible.
    """
    n, c, h, w = x_shape
    filters, _, kh, kw = w_shape
    strides, pads, dilations, groups = geometry
    top, bottom, left, right = pads
    oh = output_size(h, kh, strides[0], top, bottom, dilations[0])
    ow = output_size(w, kw, strides[1], left, right, dilations[1])
    depth = w_shape[1] * kh * kw
    total = groups * depth
    padded_width = w + left + right
    # An image of enough places is a product of its own: 16 images of 8x8, 256 channels to as many, take 1.5 ms where moving
    # the channels last takes 2.1. A filter gradient adds up a product of each image, which pays if filters are small.
    lone = oh * ow >= (_ALONE if not filter_grad or filters * depth <= _FEW_FILTERS else 128)
    mode: Mode
    # From the least work to the most: nothing, no copies, few copies, long copies; the last two by their estimates.
    if n * filters * oh * ow == 0 or depth == 0:
        mode = "none"
    elif (kh, kw, *strides) == (1, 1, 1, 1) and not any(pads) and lone and not scatter:
        mode = "direct"
    elif (not narrow or filter_grad) and depth == kh * kw and filters <= 2 * c and groups > 1 and strides[0] == 1:
        # One channel per filter, of which there are few: their products are added once more each.
        mode = "depthwise"
    elif (not narrow or filter_grad) and _shifts_pay(w_shape, strides[0], oh * ow, n, filter_grad):
        mode = "shifts"
    elif groups == 1 and (c >= 8 or (filter_grad and oh * ow <= _FEW)) and not ((kh, kw) == (1, 1) and lone):
        # With fewer channels a row of the window is too short a copy, unless each image had a thin product of its own; a single
        # pixel needs no other order of the channels.
        mode = "pixels"
    elif scatter and kw > ow:
        # numpy takes as long to begin a row as to add 15 values: the longer of the two rows is the one to add.
        mode = "windows"
    else:
        by_rows = total * (5.5 + 0.02 * ow)
        # A copy per filter tap of the whole padded image, and a product with columns that nothing reads.
        widely = 0.09 * total * padded_width + filters * 5.5 + filters * depth * (padded_width - ow) * 0.021
        mode = "wide" if strides == (1, 1) and widely < by_rows and not narrow else "rows"
    per_row = max(1, total * (padded_width if mode == "wide" else ow))
    budget = COLS
    if mode == "shifts":
        # Halos make short blocks of rows dear; images are one product each, so a few at a time do.
        per_row = max(1, (total // kh + filters) * ow)
        budget = 4 * COLS
    least = -(-_PRODUCT_ROWS // max(1, ow)) if mode == "pixels" else 1
    rows = max(1, oh)
    if mode not in ("none", "direct", "depthwise"):
        parts = -(-rows // min(rows, max(budget // per_row, least)))
        rows = -(-rows // parts)  # of even size: a short last block makes a slow product
    # Several small images share a block; a block of parts of several images would need a copy of its own to each.
    images = 1
    if mode == "depthwise":
        # Fewer places take longer to begin a product than to compute it.
        images = min(n, -(-_SIDE_BY_SIDE // ((oh + dilations[0] * (kh - 1)) * ow)))
    elif rows >= oh:
        images = max(1, min(n, max(budget // (per_row * rows), least // rows)))
    return ConvPlan(n, c, h, w, filters, (kh, kw), *geometry, (oh, ow), depth, mode, images, rows)
