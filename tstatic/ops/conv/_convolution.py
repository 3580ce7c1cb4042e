"""What all convolutions share: geometry, shapes, the three products, tiles and cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.attrs import one_of
from tstatic.ir.checks import (
    FLOATS,
    check_divisible,
    check_dtype,
    check_rank,
    check_same_dtype,
    check_sizes,
    same_shape,
)
from tstatic.ir.opdef import PARTIAL_SUM, WHOLE, Attr, Cost, Tile
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.split import CONVOLUTIONS, along, tiles
from tstatic.ir.types import UNKNOWN, Meta, Shape, numel
from tstatic.ops.base.sliding import (
    ALGORITHMS,
    Pairs,
    as_metas,
    assemble,
    channels,
    check_lengths,
    check_no_windows,
    is_last,
    layout_attr,
    not_negative,
    of_any_batch,
    pads_of,
    per_axis,
    positive,
    spatial,
)
from tstatic.tuned._common import Array
from tstatic.tuned._windows import Geometry, output_size
from tstatic.tuned.conv import (
    conv2d_filter_grad,
    conv2d_filter_grad_scratch,
    conv2d_forward,
    conv2d_forward_scratch,
    conv2d_input_grad,
    conv2d_input_grad_scratch,
)

# Filters above this size are cut themselves: partial sums over the batch would cost more than columns built twice.
_LARGE_FILTER = 1 << 18
# Columns per tile of a product with filters that do not stay in the cache.
_COLUMNS = 256


def conv_attrs(rank: int, transposed: bool) -> dict[str, Attr]:
    """Returns the attributes of a convolution over ``rank`` axes."""
    attrs = {
        "strides": Attr((1,) * rank, "ints", positive),
        "paddings": Attr((0,) * rank, "ints", not_negative),
        "padding_algorithm": Attr("EXPLICIT", "str", one_of(*ALGORITHMS)),
        "dilations": Attr((1,) * rank, "ints", positive),
        "groups": Attr(1, "int", lambda g: None if g > 0 else "a number of groups of at least 1"),
        "data_format": layout_attr({2: "NCHW", 3: "NCDHW"}[rank]),
    }
    if transposed:
        attrs |= {"output_padding": Attr((), "ints", not_negative), "output_size": Attr((), "ints")}
    return attrs


class Window:
    """Strides, paddings and dilations per axis, once the sizes are known.

    Args:
        sizes: Spatial sizes that paddings are reckoned from.
        kernel: Sizes of the window.
        attrs: ``strides``, ``paddings``, ``dilations``, and perhaps ``padding_algorithm`` and ``groups``.
    """

    def __init__(self, sizes: Sequence[int], kernel: Sequence[int], attrs: Mapping[str, Any]) -> None:
        rank, algorithm = len(kernel), attrs.get("padding_algorithm", "EXPLICIT")
        self.kernel = tuple(kernel)
        self.strides = per_axis(attrs["strides"], rank)
        self.pads: Pairs = pads_of(attrs["paddings"], algorithm, sizes, kernel, self.strides)
        # Paddle sets dilations to 1 under SAME.
        self.dilations = (1,) * rank if algorithm == "SAME" else per_axis(attrs["dilations"], rank)
        self.groups: int = attrs.get("groups", 1)

    @property
    def reach(self) -> tuple[int, ...]:
        """Extent of the dilated kernel."""
        return tuple(
            UNKNOWN if k == UNKNOWN else d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True)
        )

    def outputs(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Returns the output sizes of a convolution; unknown where the input's are."""
        return tuple(
            UNKNOWN if UNKNOWN in (size, k) else output_size(size, k, s, *pad, d)
            for size, k, s, pad, d in zip(sizes, self.kernel, self.strides, self.pads, self.dilations, strict=True)
        )

    def sources(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Returns the smallest sizes that a convolution turns into ``sizes``: the output of the transposed one."""
        return tuple(
            UNKNOWN if UNKNOWN in (size, reach) else (size - 1) * s - sum(pad) + reach
            for size, s, pad, reach in zip(sizes, self.strides, self.pads, self.reach, strict=True)
        )

    def plane(self, groups: int) -> Geometry:
        """Returns how the filters meet the input along the last two axes, in a tile that has so many of the groups."""
        pads = tuple(p for pair in self.pads[-2:] for p in pair)
        return Geometry(self.strides[-2:], pads, self.dilations[-2:], groups)  # type: ignore[arg-type]

    def taps(self, place: int, depth: int) -> Iterator[tuple[int, int]]:
        """Yields what an output place reads along the first axis: places of the kernel and of an input of size ``depth``."""
        for a in range(self.kernel[0]):
            source = place * self.strides[0] + a * self.dilations[0] - self.pads[0][0]
            if 0 <= source < depth:
                yield a, source


_GEOMETRY = ("strides", "paddings", "dilations", "padding_algorithm", "groups")


@lru_cache(maxsize=1024)
def _known_window(sizes: Shape, kernel: Shape, values: tuple[Any, ...]) -> Window:
    return Window(sizes, kernel, dict(zip(_GEOMETRY, values, strict=True)))


def window_of(sizes: Shape, kernel: Shape, attrs: Mapping[str, Any]) -> Window:
    """Returns the window of an op's complete attributes; batches of all sizes share it."""
    return _known_window(sizes, kernel, tuple([attrs[n] for n in _GEOMETRY]))


def _check(x: Meta, w: Meta, rank: int, attrs: Mapping[str, Any]) -> None:
    """Checks ranks, dtypes and the lengths of attributes.

    Raises:
        ShapeError, DTypeError: Says what does not fit.
    """
    check_rank(x, (rank + 2,), "Input", layout=attrs["data_format"])
    check_rank(w, (rank + 2,), "Filter", layout="output channels, input channels / groups, kernel sizes")
    check_lengths(rank, **{n: attrs[n] for n in ("strides", "paddings", "dilations")})
    check_lengths(rank, **{n: attrs[n] for n in ("output_padding", "output_size") if attrs.get(n)})
    check_dtype(x, FLOATS, "Input")
    check_same_dtype((x, w), ("Input", "Filter"))
    check_sizes([n for n in w.shape if n != UNKNOWN], "Filter", least=1)


@of_any_batch
def infer_conv(rank: int, x: Meta, w: Meta, attrs: Mapping[str, Any]) -> Meta:
    """Infers the shape of a convolution's output; ``w`` is ``[out channels, channels / groups, kernel...]`` in either layout."""
    _check(x, w, rank, attrs)
    groups, layout = attrs["groups"], attrs["data_format"]
    count, filters, depth = channels(x.shape, layout), w.shape[0], w.shape[1]
    check_fit(
        count == depth * groups or UNKNOWN in (count, depth), (x, w), ("Input", "Filter"),
        "The number of input's channels should be equal to filter's channels * groups",
        f"{depth} * {groups} = {depth * groups} channels in {layout}, with groups={groups}",
        "check groups, data_format and the filter's second size",
    )  # fmt: skip
    check_divisible(filters, groups, "The number of output channels", "groups")
    sizes = spatial(x.shape, layout)
    window = window_of(sizes, w.shape[2:], attrs)
    outs = window.outputs(sizes)
    check_no_windows(sizes, outs, window.reach, window.pads)
    return x.with_shape(assemble(x.shape[0], filters, outs, layout))


@of_any_batch
def infer_transposed(rank: int, x: Meta, w: Meta, attrs: Mapping[str, Any]) -> Meta:
    """Infers the shape of a transposed convolution's output; ``w`` is ``[channels, out channels / groups, kernel...]``."""
    _check(x, w, rank, attrs)
    groups, layout = attrs["groups"], attrs["data_format"]
    count, asked = channels(x.shape, layout), per_axis(attrs["output_size"], rank)
    check_fit(
        same_shape([count], w.shape[:1]), (x, w), ("Input", "Filter"),
        "The number of input's channels of a transposed convolution should be the filter's first size",
        f"{w.shape[0]} channels in {layout}", "filters are [in channels, out channels / groups, kh, kw]",
    )  # fmt: skip
    check_divisible(max(count, w.shape[0]), groups, "The number of input's channels", "groups")
    sizes = spatial(x.shape, layout)
    window = Window(sizes, w.shape[2:], attrs)
    smallest = window.sources(sizes)
    extra = per_axis(attrs["output_padding"], rank) or (0,) * rank
    outs = []
    for axis, (low, stride, dilation) in enumerate(zip(smallest, window.strides, window.dilations, strict=True)):
        # A convolution maps `stride` sizes to one; torch allows as many as the dilation, if that is larger.
        limit = max(stride, dilation)
        if low == UNKNOWN:
            outs.append(asked[axis] if asked else UNKNOWN)
            continue
        size = asked[axis] if asked else low + extra[axis]
        if not low <= size < low + limit or size <= 0:
            raise ShapeError(
                "the output size of a transposed convolution is out of range",
                expected=f"a size from {max(low, 1)} to {low + limit - 1} along spatial axis {axis}",
                received=size,
                fix="change output_size or output_padding, paddings or strides",
            )
        outs.append(size)
    filters = UNKNOWN if w.shape[1] == UNKNOWN else w.shape[1] * groups
    return x.with_shape(assemble(x.shape[0], filters, outs, layout))


# ------------------------------------------------------------------------------------------------------------- products
Sides = tuple[Any, Any, Any]
"""The large side (a convolution's input), the filters and the small side (its output), channels first."""


def _groups(large: Shape, filters: Shape) -> int:
    """Returns the groups that a tile has: not the attribute's, where tiles are cut along the channels of a depthwise one."""
    return large[1] // filters[1]


@dataclass(frozen=True)
class Product:
    """One of the sides of a convolution, computed from the other two.

    Over three axes it is a sum of products over two: place ``i`` of the small side along the depth meets the places of
    :meth:`Window.taps` of the filters and the large side.

    Attributes:
        side: Which one is computed: position in :data:`Sides`.
        buffers: How many scratch buffers the product over two axes has.
        needs: ``(large shape, filters shape, small shape, plane, dtype) -> buffers``.
        run: ``(large, filters, small, plane, scratch)``: writes the side that it computes.
    """

    side: int
    buffers: int
    needs: Callable[..., Any]
    run: Callable[..., None]

    def scratch(self, shapes: tuple[Shape, Shape, Shape], window: Window, meta: Meta) -> tuple[Meta, ...]:
        """Returns the scratch of :meth:`compute` for sides of these shapes; ``meta`` has their dtype."""
        # Planes: over three axes the depth is summed product by product.
        flat = [(*s[:2], *s[-2:]) for s in shapes]
        found = as_metas(self.needs(*flat, window.plane(_groups(*shapes[:2])), meta.dtype.compute.np))
        return found if len(window.kernel) == 2 else (Meta(flat[self.side], meta.dtype.compute), *found)

    def compute(self, sides: Sides, window: Window, scratch: Sequence[Array]) -> list[Array]:
        """Writes one side; returns the scratch buffers that are not its own."""
        large, filters, small = sides
        plane = window.plane(_groups(large.shape, filters.shape))
        if len(window.kernel) == 2:
            self.run(*sides, plane, scratch[: self.buffers])
            return list(scratch[self.buffers :])
        part, needs = scratch[0], scratch[1 : 1 + self.buffers]
        # Places that no tap reaches, because of padding or strides, are zero.
        sides[self.side].fill(0)
        for i in range(small.shape[2]):
            for k, (a, p) in enumerate(window.taps(i, large.shape[2])):
                slices = [large[:, :, p], filters[:, :, a], small[:, :, i]]
                place, slices[self.side] = slices[self.side], part
                self.run(*slices, plane, needs)
                # Products of an output place follow each other, so the first one writes; those of an input place do not.
                if self.side == 2 and k == 0:
                    np.copyto(place, part)
                else:
                    np.add(place, part, place)
        return list(scratch[1 + self.buffers :])


# The side, the number of buffers, their shapes, and the function; sides are x, filters and y.
OUTPUT = Product(2, 4, lambda x, w, y, *rest: conv2d_forward_scratch(x, w, *rest), conv2d_forward)
# The function takes what it writes last, so the sides change places.
INPUT_GRAD = Product(0, 5, conv2d_input_grad_scratch, lambda x, w, y, *rest: conv2d_input_grad(y, w, x, *rest))
# Here the filters come last.
FILTER_GRAD = Product(
    1,
    5,
    lambda x, w, y, *rest: conv2d_filter_grad_scratch(x, w, *rest),
    lambda x, w, y, *rest: conv2d_filter_grad(x, y, w, *rest),
)


# --------------------------------------------------------------------------------------------------------------- tiles
def flops(small: Meta, w: Meta, data_format: str) -> float:
    """Returns twice the multiply-adds; ``small`` is the side that every filter visits (a convolution's output)."""
    return 2.0 * small.shape[0] * numel(spatial(small.shape, data_format)) * w.numel


def _effort(small: Meta, w: Meta, data_format: str) -> float:
    """Makes :func:`flops` comparable: depthwise products are vectors, a twelfth of a matrix product's speed."""
    return flops(small, w, data_format) * (12 if w.shape[1] == 1 else 1)


def _parts(size: int, work: float, most: int) -> list[slice] | None:
    """Cuts ``size`` items; more work gives more tiles and larger ones, since every tile rearranges the filters anew."""
    if work < CONVOLUTIONS.size:
        return None
    return CONVOLUTIONS.parts(size, work, most=most, times=max(1.0, work / (2 * CONVOLUTIONS.size)) ** 0.5)


def _split_groups(x: Meta, w: Meta, out: Meta, groups: int, data_format: str) -> list[Tile] | None:
    """Returns the tiles of a grouped convolution of a single image, with entries for input, filters and output.

    Groups share nothing. ``None`` if parts of the batch serve: these lie in one piece, where the channels of all images take
    up to twice the time. Also ``None`` where the channels come last, whose parts lie in the smallest pieces.
    """
    if groups == 1 or x.shape[0] > 1 or is_last(data_format):
        return None
    parts = _parts(groups, max(_effort(side, w, data_format) for side in (x, out)), 16)
    if parts is None:
        return None
    sizes = (x.shape[1] // groups, w.shape[0] // groups, out.shape[1] // groups)
    return [
        tuple(along(axis, slice(p.start * size, p.stop * size)) for axis, size in zip((1, 0, 1), sizes, strict=True))
        for p in parts
    ]


def split_images(target: Meta, w: Meta, small: Meta, axis: int, data_format: str) -> list[Tile] | None:
    """Returns the tiles of an op that maps images to images, with entries for input, filters and output.

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
    # Images first: tiles along the channels build the same columns each.
    parts = _parts(target.shape[0], work, most)
    if parts is not None:
        return tiles(parts, 0, WHOLE, 0)
    total = channels(target.shape, data_format)
    parts = _parts(total, work, max(2, total // 128)) if axis >= 0 else None
    return tiles(parts, WHOLE, axis, -1 if is_last(data_format) else 1)


def split_filters(w: Meta, small: Meta, groups: int, data_format: str) -> list[Tile] | None:
    """Returns the tiles of a filter gradient, with entries for the small side, the other side and the filters.

    Filters that are small get partial sums over parts of the batch. Large ones are cut along their first axis, the
    channels of the small side; the other side is read whole.
    """
    work = _effort(small, w, data_format)
    # Each tile of a large filter has its own rows, at least 128, so nothing is added up.
    if w.numel > _LARGE_FILTER and groups == 1:
        parts = _parts(w.shape[0], work, max(2, w.shape[0] // 128))
        return tiles(parts, -1 if is_last(data_format) else 1, WHOLE, 0)
    # All partial sums together have at most 4 << 18 elements: 4 MiB in float32.
    return tiles(_parts(small.shape[0], work, min(16, 4 * _LARGE_FILTER // w.numel)), 0, 0, PARTIAL_SUM)


def conv_split(transposed: bool) -> tuple[Callable[..., list[Tile] | None], Callable[..., list[Tile] | None]]:
    """Makes the ``split`` of a convolution, and of both its gradients: tiles of their own for each."""

    def split(x: Meta, w: Meta, out: Meta, groups: int, data_format: str) -> list[Tile] | None:
        if out.numel <= 0 or x.numel <= 0:
            return None
        by_group = _split_groups(x, w, out, groups, data_format)
        if by_group is not None:
            return by_group
        return split_images(out, w, x if transposed else out, int(transposed) if groups == 1 else -1, data_format)

    def grad_split(
        x: Meta, w: Meta, dout: Meta, dx: Meta | None, dw: Meta | None, groups: int, data_format: str
    ) -> list[Tile] | None:
        if dout.numel <= 0 or x.numel <= 0:
            return None
        small = x if transposed else dout
        found: list[Tile] = []
        by_group = _split_groups(x, w, dout, groups, data_format)
        if by_group is not None:
            wanted = [(None, 1, 2, 0, None)] * (dx is not None) + [(0, None, 2, None, 1)] * (dw is not None)
            return [tuple(None if i is None else tile[i] for i in entries) for entries in wanted for tile in by_group]
        if dx is not None:
            cut = split_images(dx, w, small, int(not transposed) if groups == 1 else -1, data_format)
            found += [(None, f, d, i, None) for d, f, i in cut or [(WHOLE, WHOLE, WHOLE)]]
        if dw is not None:
            cut = split_filters(w, small, groups, data_format)
            for one, other, f in cut or [(WHOLE, WHOLE, WHOLE)]:
                found.append((one, None, other, None, f) if transposed else (other, None, one, None, f))
        return found if len(found) > 1 else None

    return split, grad_split


def conv_cost(transposed: bool) -> tuple[Callable[..., Cost], Callable[..., Cost]]:
    """Makes the ``cost`` of a convolution, and of its gradients."""

    def cost(x: Meta, w: Meta, out: Meta, data_format: str) -> Cost:
        return Cost(flops(x if transposed else out, w, data_format), float(x.nbytes + w.nbytes + out.nbytes))

    def grad_cost(x: Meta, w: Meta, dout: Meta, dx: Meta | None, dw: Meta | None, data_format: str) -> Cost:
        return cost(x, w, dout, data_format).times((dx is not None) + (dw is not None))

    return cost, grad_cost
