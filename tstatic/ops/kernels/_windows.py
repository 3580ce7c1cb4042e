"""Geometry of sliding windows: output sizes, and how a convolution is cut into cache-sized blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Padding at top, bottom, left, right."""

COLS = 1 << 18
"""Elements of the column buffer per block: 1 MiB in float32, a common second-level cache."""


def output_size(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """Number of windows along one axis: ``(size + before + after - dilation * (kernel - 1) - 1) // stride + 1``."""
    return max(0, (size + before + after - dilation * (kernel - 1) - 1) // stride + 1)


Mode = Literal["direct", "rows", "wide", "stack", "none"]


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """How one convolution runs.

    Attributes:
        batch, channels, height, width: The input.
        filters, kernel: Output channels and ``(kh, kw)``.
        strides, pads, dilations, groups: As in the op.
        out: ``(oh, ow)``.
        depth: Length of one filter, ``channels / groups * kh * kw``.
        mode: ``direct``: the input is the column matrix; ``rows``: columns are copied one output row at a time;
            ``wide``: columns keep the padded row length, so that copies are long, and the product is narrowed
            afterwards; ``stack``: the columns of several images stand side by side in one product, for small outputs.
        images: Images per block.
        rows: Output rows per block (all of them unless one image alone overflows the cache).
        padded: Whether a padded copy of the input is needed.
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
    padded: bool

    @property
    def padded_shape(self) -> tuple[int, int, int, int]:
        """Shape of the padded copy of one block of images."""
        top, bottom, left, right = self.pads
        return self.images, self.channels, self.height + top + bottom, self.width + left + right

    @property
    def row(self) -> int:
        """Length of an output row in the column buffer."""
        return self.padded_shape[3] if self.mode == "wide" else self.out[1]

    @property
    def columns(self) -> int:
        """Elements of the column buffer."""
        if self.mode in ("direct", "none"):
            return 0
        return self.images * self.groups * self.depth * self.rows * self.row

    @property
    def products(self) -> int:
        """Elements of the buffer for a product that is narrowed or rearranged afterwards."""
        return self.images * self.filters * self.rows * self.row if self.mode in ("wide", "stack") else 0


@lru_cache(maxsize=1024)
def conv_plan(
    x_shape: tuple[int, int, int, int],
    w_shape: tuple[int, int, int, int],
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    groups: int,
    filter_grad: bool = False,
) -> ConvPlan:
    """Chooses mode and block sizes from shapes alone, so that results never depend on the machine's load.

    The estimates are nanoseconds per output row of one image, measured on one core (float32): a copied row costs
    5.5 + 0.02 a value, a value of a long copy 0.09, a multiply-add 0.0105.
    """
    n, c, h, w = x_shape
    filters, _, kh, kw = w_shape
    top, bottom, left, right = pads
    oh = output_size(h, kh, strides[0], top, bottom, dilations[0])
    ow = output_size(w, kw, strides[1], left, right, dilations[1])
    depth = w_shape[1] * kh * kw
    total = groups * depth
    padded_width = w + left + right
    mode: Mode
    if n * filters * oh * ow == 0 or depth == 0:
        mode = "none"
    elif oh * ow < 128 and n > 1:
        mode = "stack"
    elif (kh, kw, *strides) == (1, 1, 1, 1) and not any(pads):
        mode = "direct"
    else:
        by_rows = total * (5.5 + 0.02 * ow)
        widely = 0.09 * total * padded_width + filters * 5.5 + filters * depth * (padded_width - ow) * 0.021
        mode = "wide" if strides == (1, 1) and widely < by_rows and not filter_grad else "rows"
    row = padded_width if mode == "wide" else ow
    per_row = max(1, total * row)
    rows = max(1, oh)
    if mode in ("rows", "wide"):
        parts = -(-oh // max(1, COLS // per_row))
        rows = -(-oh // parts)  # of even size: a short last block makes a slow product
    goal = 4 * COLS if mode == "stack" else COLS
    images = 1 if rows < oh else max(1, min(n, goal // max(1, per_row * rows)))
    return ConvPlan(
        n, c, h, w, filters, (kh, kw), strides, pads, dilations, groups, (oh, ow), depth, mode, images, rows,
        any(pads),
    )  # fmt: skip
