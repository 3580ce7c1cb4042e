"""What all convolution op definitions share: attributes, shapes, tiles and cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.errors import DTypeError, ShapeError
from tstatic.ir.opdef import PARTIAL_SUM, WHOLE, Attr, Cost, Tile
from tstatic.ir.types import UNKNOWN, Meta, numel
from tstatic.ops.conv._sliding import (
    ALGORITHMS,
    Pairs,
    assemble,
    at,
    channels,
    check_float,
    check_lengths,
    check_no_windows,
    check_rank,
    is_last,
    layout_attr,
    not_negative,
    one_of,
    pads_of,
    parts,
    per_axis,
    positive,
    spatial,
)
from tstatic.tuned._windows import output_size

# Floating-point operations of the smallest tile: about half a millisecond of one core.
_TILE = 4e7
# Filters above this size are cut themselves: partial sums over the batch would cost more than columns built twice.
_LARGE_FILTER = 1 << 18
# Columns per tile of a product with filters that do not stay in the cache.
_COLUMNS = 256
_LAYOUT = {2: "NCHW", 3: "NCDHW"}


WINDOW = ("strides", "paddings", "padding_algorithm", "dilations")
"""Attributes that make a :class:`Window`, in its order."""


def conv_attrs(rank: int) -> dict[str, Attr]:
    """Attributes of a convolution over ``rank`` axes."""
    return {
        "strides": Attr((1,) * rank, "ints", positive),
        "paddings": Attr((0,) * rank, "ints", not_negative),
        "padding_algorithm": Attr("EXPLICIT", "str", one_of(*ALGORITHMS)),
        "dilations": Attr((1,) * rank, "ints", positive),
        "groups": Attr(1, "int", lambda g: None if g > 0 else "a number of groups of at least 1"),
        "data_format": layout_attr(_LAYOUT[rank]),
    }


class Window:
    """Strides, paddings and dilations per axis, once the sizes are known."""

    def __init__(
        self,
        sizes: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int],
        paddings: Sequence[int],
        padding_algorithm: str,
        dilations: Sequence[int],
    ) -> None:
        rank = len(kernel)
        self.kernel = tuple(kernel)
        self.strides = per_axis(strides, rank)
        self.pads: Pairs = pads_of(paddings, padding_algorithm, sizes, kernel, self.strides)
        # Paddle sets dilations to 1 under SAME.
        self.dilations = (1,) * rank if padding_algorithm == "SAME" else per_axis(dilations, rank)

    @property
    def flat_pads(self) -> tuple[int, ...]:
        return tuple(p for pair in self.pads for p in pair)

    @property
    def reach(self) -> tuple[int, ...]:
        """Extent of the dilated kernel."""
        return tuple(
            UNKNOWN if k == UNKNOWN else d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True)
        )

    def outputs(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Output sizes of a convolution; unknown where the input's are."""
        return tuple(
            UNKNOWN if UNKNOWN in (size, k) else output_size(size, k, s, *pad, d)
            for size, k, s, pad, d in zip(sizes, self.kernel, self.strides, self.pads, self.dilations, strict=True)
        )

    def sources(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Smallest sizes that a convolution turns into ``sizes``: the output of the transposed one."""
        return tuple(
            UNKNOWN if UNKNOWN in (size, reach) else (size - 1) * s - sum(pad) + reach
            for size, s, pad, reach in zip(sizes, self.strides, self.pads, self.reach, strict=True)
        )


def check_conv(x: Meta, w: Meta, rank: int, data_format: str, **lists: Sequence[int]) -> None:
    """Checks ranks, dtypes and the lengths of attributes.

    Raises:
        ShapeError, DTypeError: Says what does not fit.
    """
    check_rank(x, (rank + 2,), "Input", data_format)
    check_rank(w, (rank + 2,), "Filter", "output channels, input channels / groups, kernel sizes")
    check_lengths(rank, **lists)
    check_float(x, "Input")
    if x.dtype is not w.dtype:
        raise DTypeError(
            "Input and Filter of a convolution have different dtypes",
            expected=x.dtype.name,
            received=f"{x.dtype.name} and {w.dtype.name}",
            fix=f"convert one with paddle.cast(..., '{x.dtype.name}')",
        )
    if 0 in w.shape:
        raise ShapeError(
            "Filter of a convolution is empty",
            expected="positive sizes only",
            received=list(w.shape),
            fix="give every kernel size and channel count",
        )


def infer_conv(
    x: Meta,
    w: Meta,
    rank: int,
    strides: Sequence[int],
    paddings: Sequence[int],
    padding_algorithm: str,
    dilations: Sequence[int],
    groups: int,
    data_format: str,
) -> Meta:
    """Shape of a convolution's output; ``w`` is ``[out channels, channels / groups, kernel...]`` in either layout."""
    check_conv(x, w, rank, data_format, strides=strides, paddings=paddings, dilations=dilations)
    count, filters, depth = channels(x.shape, data_format), w.shape[0], w.shape[1]
    if UNKNOWN not in (count, depth) and count != depth * groups:
        raise ShapeError(
            "The number of input's channels should be equal to filter's channels * groups",
            expected=f"{depth} * {groups} = {depth * groups} channels in {data_format}",
            received=f"Input of shape {list(x.shape)}, Filter of shape {list(w.shape)}, groups={groups}",
            fix="check groups, data_format and the filter's second size",
        )
    if filters != UNKNOWN and filters % groups:
        raise ShapeError(
            "The number of output channels should be divided by groups",
            expected=f"a multiple of {groups}",
            received=filters,
            fix="change the number of filters or groups",
        )
    sizes = spatial(x.shape, data_format)
    window = Window(sizes, w.shape[2:], strides, paddings, padding_algorithm, dilations)
    outs = window.outputs(sizes)
    check_no_windows(sizes, outs, window.reach, window.pads)
    return x.with_shape(assemble(x.shape[0], filters, outs, data_format))


# --------------------------------------------------------------------------------------------------------------- tiles
def flops(small: Meta, w: Meta, data_format: str) -> float:
    """Twice the multiply-adds; ``small`` is the side that every filter visits (a convolution's output)."""
    return 2.0 * small.shape[0] * numel(spatial(small.shape, data_format)) * w.numel


def _effort(small: Meta, w: Meta, data_format: str) -> float:
    """:func:`flops`, made comparable: depthwise products are vectors, a twelfth of a matrix product's speed."""
    return flops(small, w, data_format) * (12 if w.shape[1] == 1 else 1)


def _pieces(size: int, work: float, most: int) -> list[slice] | None:
    """Cuts ``size`` items; more work gives more tiles and larger ones, since every tile rearranges the filters anew."""
    return parts(size, work, _TILE * max(1.0, work / (2 * _TILE)) ** 0.5, most)


def split_images(target: Meta, w: Meta, small: Meta, axis: int, data_format: str) -> list[tuple[Any, Any, Any]] | None:
    """Tiles of an op that maps images to images: ``(input part, filter part, output part)``.

    Over the batch where there are enough images for every tile to make good use of the filters, else over the output's
    channels: then every tile builds the same columns, so there are few of them.

    Args:
        target: The output.
        w: The filters.
        small: The side that every filter visits.
        axis: Axis of the filters that belongs to the output's channels, or -1 when groups forbid that cut.
        data_format: Where channels stand.
    """
    work = _effort(small, w, data_format)
    columns = numel(spatial(small.shape, data_format))
    most = 16 if w.numel <= _LARGE_FILTER // 4 or axis < 0 else target.shape[0] * columns // _COLUMNS
    tiles = _pieces(target.shape[0], work, most)
    if tiles is not None:
        return [((p,), WHOLE, (p,)) for p in tiles]
    total = channels(target.shape, data_format)
    tiles = _pieces(total, work, max(2, total // 128)) if axis >= 0 else None
    place = target.rank - 1 if is_last(data_format) else 1
    return None if tiles is None else [(WHOLE, at(axis, p), at(place, p)) for p in tiles]


def split_filters(w: Meta, small: Meta, groups: int, data_format: str) -> list[tuple[Any, Any, Any]] | None:
    """Tiles of a filter gradient: ``(small side's part, other side's part, filter part)``.

    Filters that are small get partial sums over parts of the batch. Large ones are cut along their first axis, the
    channels of the small side; the other side is read whole.
    """
    work = _effort(small, w, data_format)
    if w.numel > _LARGE_FILTER and groups == 1:
        tiles = _pieces(w.shape[0], work, max(2, w.shape[0] // 128))
        place = small.rank - 1 if is_last(data_format) else 1
        return None if tiles is None else [(at(place, p), WHOLE, (p,)) for p in tiles]
    tiles = _pieces(small.shape[0], work, min(16, 4 * _LARGE_FILTER // w.numel))
    return None if tiles is None else [((p,), (p,), PARTIAL_SUM) for p in tiles]


def conv_split(x: Meta, w: Meta, out: Meta, groups: int, data_format: str) -> list[Tile] | None:
    """``split`` of a convolution."""
    if out.numel <= 0:
        return None
    return split_images(out, w, out, 0 if groups == 1 else -1, data_format)


def conv_grad_split(
    x: Meta, w: Meta, dout: Meta, dx: Meta | None, dw: Meta | None, groups: int, data_format: str
) -> list[Tile] | None:
    """``split`` of both gradients of a convolution: tiles of their own for each."""
    if dout.numel <= 0:
        return None
    tiles: list[Tile] = []
    if dx is not None:
        cut = split_images(dx, w, dout, 1 if groups == 1 else -1, data_format)
        tiles += [(None, f, d, i, None) for d, f, i in cut or [(WHOLE, WHOLE, WHOLE)]]
    if dw is not None:
        cut = split_filters(w, dout, groups, data_format)
        tiles += [(i, None, d, None, f) for d, i, f in cut or [(WHOLE, WHOLE, WHOLE)]]
    return tiles if len(tiles) > 1 else None


def conv_cost(x: Meta, w: Meta, out: Meta, data_format: str) -> Cost:
    """``cost`` of a convolution."""
    return Cost(flops(out, w, data_format), float(x.nbytes + w.nbytes + out.nbytes))


def twice(one: Callable[..., Cost]) -> Callable[..., Cost]:
    """``cost`` of both gradients from that of the forward op."""

    def cost(x: Meta, w: Meta, dout: Meta, dx: Meta | None, dw: Meta | None, data_format: str) -> Cost:
        wanted = (dx is not None) + (dw is not None)
        forward = one(x, w, dout, data_format)
        return Cost(forward.flops * wanted, forward.bytes * wanted)

    return cost


# ---------------------------------------------------------------------------------------------------------------- torch
def wide(tensor: Any) -> Any:
    """Low precision as float32: the result is rounded once."""
    return tensor.float() if tensor.itemsize == 2 else tensor


def torch_pads(window: Window) -> list[int]:
    """Paddings in the order of ``torch.nn.functional.pad``: last axis first."""
    return [p for pair in reversed(window.pads) for p in pair]


def torch_first(tensor: Any, data_format: str) -> Any:
    """Channels moved to axis 1."""
    return tensor.movedim(-1, 1) if is_last(data_format) else tensor


def torch_back(tensor: Any, data_format: str, dtype: Any) -> Any:
    """Channels moved back, rounded to the dtype."""
    return (tensor.movedim(1, -1) if is_last(data_format) else tensor).to(dtype)


def np_compute(meta: Meta) -> np.dtype[Any]:
    """The numpy dtype that arithmetic runs in."""
    dtype: np.dtype[Any] = meta.dtype.compute.np
    return dtype
