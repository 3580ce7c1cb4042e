"""Depthwise convolution as products with banded matrices: a block of results is a window of the source times one matrix.

For 16 results of a row, a 3x3 filter reads 3 rows of 18 values: the 54 values of that window, as they lie in memory, times
a matrix of 54 x 16 that holds the filter sixteen times, each time one place further. Five of six multiplications are with
zeros, yet small matrix products run at 110 GFLOP/s where sums of shifted products make 9: images of 8x8 take 2.2 ns a
result instead of 3.6, input gradients at stride 2 1.3 instead of 6. The same holds for gradients: by the input, results
are blocks of it and the window is one of the output gradient; by the filter, the product of windows and output gradients
holds each sum on its diagonals.

Windows of neighbouring rows overlap, which a matrix for BLAS must not: every ``phases``-th of them is one product. Images lie
below each other with the zeros between two of them shared, so that few products serve all images. Zero times infinity is
NaN: where a result is not finite, it is computed anew from the values that belong to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tstatic.tuned._common import Array, by_rows, flat
from tstatic.tuned._windows import SMALL, Geometry, Shape4, output_size

WIDTH = 16
"""Results of a block: two vectors of 8, for which the kernels for small matrices are made; 32 take twice the time for each."""
BUDGET = 1 << 18
"""Elements of windows and results per block: a second-level cache of 1 MiB in float32; fewer make more calls of numpy."""

Ints = NDArray[np.intp]
Tap = tuple[int, int, int, int, int]
"""Of one place of the filter: the first place of the window, the first result, the steps of both, and how many results."""


@dataclass(frozen=True, slots=True)
class Axis:
    """How blocks of results lie along one axis, and the window of the source that each of them reads.

    Attributes:
        size: Results.
        block: Results of a block; the last may have fewer.
        count: Blocks.
        step: Places of the source from one block's window to the next one's.
        window: Places of a window.
        start: Place of the source where the first window begins; negative where that is padding.
        source: Places of the source.
        taps: What each place of the filter multiplies.
    """

    size: int
    block: int
    count: int
    step: int
    window: int
    start: int
    source: int
    taps: tuple[Tap, ...]

    @property
    def before(self) -> int:
        """Zeros before the source."""
        return max(0, -self.start)

    @property
    def reach(self) -> int:
        """Places from the begin of the first window to the end of the last."""
        return (self.count - 1) * self.step + self.window

    @property
    def taken(self) -> slice:
        """The places of the source that some window has."""
        first = max(0, self.start)
        return slice(first, max(first, min(self.source, self.start + self.reach)))

    @property
    def slot(self) -> int:
        """Places that an image takes with its zeros before it; those after it are the next image's."""
        last: int = self.before + self.taken.stop - self.taken.start
        return -(-max(last, self.reach - self.before, self.count * self.step) // self.step) * self.step

    def inside(self) -> Axis:
        """Returns a single block with a window that has no padding; itself if there are more, or if it is all padding."""
        # Padding makes windows larger than what they read; one window that fits needs no zeros in the buffer.
        first, stop = max(0, self.start), min(self.source, self.start + self.window)
        if self.count > 1 or stop <= first:
            return self
        taps = []
        for place, result, stride, apart, count in self.taps:
            place -= first - self.start
            ahead = max(0, -(place // stride))
            left = min(count, (stop - first - 1 - place) // stride + 1) - ahead
            taps.append((place + ahead * stride, result + ahead * apart, stride, apart, max(0, left)))
        return Axis(self.size, self.block, 1, self.step, stop - first, first, self.source, tuple(taps))


def _reading(source: int, size: int, kernel: int, stride: int, dilation: int, before: int, block: int) -> Axis:
    """Returns the axis of a correlation: result ``i`` reads the places ``i * stride + a * dilation - before``."""
    taps = tuple((a * dilation, 0, stride, 1, block) for a in range(kernel))
    window = (block - 1) * stride + (kernel - 1) * dilation + 1
    return Axis(size, block, -(-size // block), block * stride, window, -before, source, taps)


def _adding(source: int, size: int, kernel: int, stride: int, dilation: int, before: int, block: int) -> Axis:
    """Returns the axis of an input gradient: place ``i`` adds to the results ``i * stride + a * dilation - before``."""
    # A multiple of the stride, so that all blocks meet the same places of the filter.
    block = -(-block // stride) * stride
    start = -(((kernel - 1) * dilation - before) // stride)
    taps = []
    for a in range(kernel):
        # Only every stride-th result meets this place of the filter.
        result = (a * dilation - before) % stride
        place = (result + before - a * dilation) // stride - start
        taps.append((place, result, 1, stride, -(-(block - result) // stride)))
    window = (block - 1 + before) // stride - start + 1
    return Axis(size, block, -(-size // block), block // stride, window, start, source, tuple(taps))


@dataclass(frozen=True, slots=True)
class BandPlan:
    """How one pass runs.

    Attributes:
        batch, channels: Images, and channels of the source.
        per_channel: Filters of a channel.
        kernel: Of the filters.
        rows, columns: The axes; a block of columns is a strip of the image.
        images, planes: Images and channels of a block of work.
    """

    batch: int
    channels: int
    per_channel: int
    kernel: tuple[int, int]
    rows: Axis
    columns: Axis
    images: int
    planes: int

    @property
    def depth(self) -> int:
        """Values of a window."""
        return self.rows.window * self.columns.window

    @property
    def width(self) -> int:
        """Results of a window."""
        return self.per_channel * self.rows.block * self.columns.block

    @property
    def phases(self) -> int:
        """Products that take every so many windows, so that the windows of one do not overlap."""
        return -(-self.rows.window // self.rows.step)

    def windows(self, images: int) -> int:
        """Returns the windows of one channel, as many for each phase."""
        found = images * self.columns.count * self.rows.slot // self.rows.step
        return -(-found // self.phases) * self.phases

    def source_rows(self, images: int) -> int:
        """Returns the rows of all these windows."""
        return self.windows(images) * self.rows.step + max(0, self.rows.window - self.rows.step)

    @property
    def sources(self) -> int:
        """Elements of the buffer for the windows."""
        return self.planes * self.source_rows(self.images) * self.columns.window

    @property
    def results(self) -> int:
        """Elements of the buffer for the results."""
        return self.planes * self.windows(self.images) * self.width

    @property
    def products(self) -> int:
        """Elements of the buffer for a sum over windows."""
        return self.planes * self.depth * self.width

    @property
    def matrices(self) -> int:
        """Elements of the buffer for the matrices of all channels."""
        return self.channels * self.depth * self.width


def _plan(batch: int, channels: int, per_channel: int, kernel: tuple[int, int], rows: Axis, columns: Axis) -> BandPlan:
    whole = BandPlan(batch, channels, per_channel, kernel, rows, columns.inside(), 1, 1)
    # As many windows in a product as the kernels for small matrices take, of as many images as the cache holds.
    most = SMALL // (whole.depth * whole.width) * whole.phases
    # Of one channel and image: windows and results.
    values = whole.source_rows(1) * whole.columns.window + whole.windows(1) * whole.width
    images = max(1, min(batch, most // whole.windows(1), BUDGET // values))
    # Of even size: a short last block costs as many calls.
    images = -(-batch // -(-batch // images)) if batch else 1
    planes = max(1, min(channels, BUDGET // (values * images)))
    return replace(whole, images=images, planes=-(-channels // -(-channels // planes)) if channels else 1)


_FEW = 128
"""Values of a window up to which a product of one strip is faster than columns at stride 1 (:mod:`conv_depthwise`)."""
_MOST = 40
"""Values of a window for each place of the filter up to which one takes less time than a copy of the columns, at other strides."""


def _chosen(plan: BandPlan, strides: tuple[int, int]) -> BandPlan | None:
    """Returns the plan; ``None`` where columns are faster.

    Measured forward, one core, ns a result, in turns with columns: 3x3 on 8x8 2.2 against 3.6, on 16x16 2.2 and 2.5, on
    32x32, where each row has two strips, 2.4 and 2.2; 5x5 on 56x56 3.7 and 3.4; stride 2, 3x3 on 32x32 4.7 and 6.3, with
    5x5 on 112x112 8 and 13. Input gradients at stride 2 are 5 to 9 times as fast.
    """
    if strides == (1, 1):
        return plan if plan.columns.count == 1 and plan.depth <= _FEW else None
    return plan if plan.depth <= _MOST * plan.kernel[0] * plan.kernel[1] else None


def _width(count: int, stride: int, per_channel: int) -> int:
    """Returns the results of a block along the columns: as even as they can be."""
    # A block has WIDTH results over all filters of the channel, in whole strides.
    most = max(1, WIDTH // (stride * per_channel)) * stride
    return -(-count // -(-count // most))


def _is_depthwise(x_shape: Shape4, w_shape: Shape4, geometry: Geometry) -> bool:
    channels = x_shape[1]
    return (
        geometry.groups == channels > 1
        and w_shape[1] == 1
        # The filters of a channel share the WIDTH results of a block: of more than two, each has fewer than eight.
        and 0 < w_shape[0] <= 2 * channels
        and w_shape[2] * w_shape[3] > 1
    )


@lru_cache(maxsize=1024)
def correlation(x_shape: Shape4, w_shape: Shape4, geometry: Geometry) -> BandPlan | None:
    """Returns the plan of the forward pass and of the filter gradient; ``None`` where there is none, or none that is faster."""
    (n, c, h, w), (filters, _, kh, kw) = x_shape, w_shape
    (sh, sw), (top, bottom, left, right), (dh, dw), _ = geometry
    oh, ow = output_size(h, kh, sh, top, bottom, dh), output_size(w, kw, sw, left, right, dw)
    if n * oh * ow == 0 or not _is_depthwise(x_shape, w_shape, geometry):
        return None
    block = _width(ow, 1, filters // c)
    # Narrow images fill a block with results of several rows.
    rows = _reading(h, oh, kh, sh, dh, top, max(1, min(oh, WIDTH * c // (filters * block))))
    plan = _plan(n, c, filters // c, (kh, kw), rows, _reading(w, ow, kw, sw, dw, left, block))
    return _chosen(plan, geometry.strides)


@lru_cache(maxsize=1024)
def adjoint(x_shape: Shape4, w_shape: Shape4, out_shape: Shape4, geometry: Geometry) -> BandPlan | None:
    """Returns the plan of the input gradient with one filter per channel; ``None`` where there is none, or none that is faster."""
    (n, c, h, w), (filters, _, kh, kw) = x_shape, w_shape
    (sh, sw), (top, _, left, _), (dh, dw), _ = geometry
    if 0 in (*x_shape, *out_shape) or filters != c or not _is_depthwise(x_shape, w_shape, geometry):
        return None
    block = _width(w, sw, 1)
    rows = _adding(out_shape[2], h, kh, sh, dh, top, max(1, min(h, WIDTH // block)))
    plan = _plan(n, c, 1, (kh, kw), rows, _adding(out_shape[3], w, kw, sw, dw, left, block))
    return _chosen(plan, geometry.strides)


Moves = list[tuple[Array, Array]]
"""Pairs of views that hold the same values in two layouts, the first axes of both channels and images."""


def _sources(x: Array, source: Array, plan: BandPlan, images: int) -> Moves:
    """Pairs ``[channels, rows of all windows, columns of a window]`` with the places of ``[n, channels, h, w]`` that it holds."""
    rows, columns = plan.rows, plan.columns
    slots = source[:, : images * columns.count * rows.slot]
    slots = slots.reshape(len(source), images, columns.count, rows.slot, columns.window)
    slots = slots[:, :, :, rows.before : rows.before + rows.taken.stop - rows.taken.start]
    x = x.transpose(1, 0, 2, 3)[:, :, rows.taken]
    # Strips without padding are one copy from a view in which they overlap.
    inner = slice(
        max(0, -(columns.start // columns.step)),
        min(columns.count, (columns.source - columns.window - columns.start) // columns.step + 1),
    )
    found = []
    if inner.stop > inner.start:
        shape = (*x.shape[:2], inner.stop - inner.start, x.shape[2], columns.window)
        strides = (*x.strides[:2], columns.step * x.strides[3], *x.strides[2:])
        found.append(
            (slots[:, :, inner], as_strided(x[..., inner.start * columns.step + columns.start :], shape, strides))
        )
    for strip in range(columns.count):
        first = strip * columns.step + columns.start
        begin, end = max(0, -first), min(columns.window, columns.source - first)
        if end > begin and not inner.start <= strip < inner.stop:
            found.append((slots[:, :, strip, :, begin:end], x[..., first + begin : first + end]))
    return found


def _results(results: Array, out: Array, plan: BandPlan, images: int) -> Moves:
    """Pairs ``[channels, windows, width]`` with the places of ``[n, channels * per_channel, h, w]`` that it holds."""
    rows, columns = plan.rows, plan.columns
    blocks = rows.slot // rows.step
    lie = results[:, : images * columns.count * blocks].reshape(
        len(results), images, columns.count, blocks, plan.per_channel, rows.block, columns.block
    )
    place = out.reshape(len(out), plan.channels, plan.per_channel, *out.shape[2:], copy=False)
    found = []
    # Whole blocks, then a last one with fewer results along the columns, the rows, or both.
    for above, below, high in _parts(rows):
        for first, last, wide in _parts(columns):
            part = place[..., above * rows.block : above * rows.block + (below - above) * high, :]
            part = part[..., first * columns.block : first * columns.block + (last - first) * wide]
            part = part.reshape(*place.shape[:3], below - above, high, last - first, wide, copy=False)
            found.append((lie[:, :, first:last, above:below, :, :high, :wide], part.transpose(1, 0, 5, 3, 2, 4, 6)))
    return found


def _parts(axis: Axis) -> Iterator[tuple[int, int, int]]:
    """Yields the first block, the one after the last, and the results of each: whole blocks, then a shorter one."""
    whole = axis.size // axis.block
    if whole:
        yield 0, whole, axis.block
    if whole < axis.count:
        yield whole, axis.count, axis.size - whole * axis.block


@dataclass(frozen=True, slots=True)
class _Block:
    """Channels and images of a block of work, and views of the buffers that blocks of its size share.

    Attributes:
        channels, images: Its parts of all.
        sources, results: What is moved between the buffers and the images.
        products: Windows ``[channels, windows, depth]`` and their results ``[channels, windows, width]``.
    """

    channels: slice
    images: slice
    sources: Moves
    results: Moves
    products: Moves

    def load(self, moves: Moves) -> None:
        """Copies the block's part of the images to the buffers."""
        for lie, place in moves:
            np.copyto(lie, place[self.channels, self.images])

    def store(self) -> None:
        """Copies the results to the block's part of the images."""
        for lie, place in self.results:
            np.copyto(place[self.channels, self.images], lie)


def _work(x: Array, out: Array, plan: BandPlan, buffers: Sequence[Array], clear_results: bool) -> Iterator[_Block]:
    """Yields the blocks of work, with zeros in the buffers wherever a block moves nothing."""
    views: tuple[Moves, Moves, Moves] | None = None
    last = (0, 0)
    for channel in range(0, plan.channels, plan.planes):
        for image in range(0, plan.batch, plan.images):
            size = min(plan.planes, plan.channels - channel), min(plan.images, plan.batch - image)
            if views is None or size != last:
                last = size
                source = flat(buffers[0], (size[0], plan.source_rows(size[1]), plan.columns.window))
                results = flat(buffers[1], (size[0], plan.windows(size[1]), plan.width))
                # Padding and the space between images are written here and by no block, so buffers stay valid until sizes change.
                source.fill(0)
                if clear_results:
                    results.fill(0)
                views = (
                    [by_rows(*move) for move in _sources(x, source, plan, size[1])],
                    [by_rows(*move) for move in _results(results, out, plan, size[1])],
                    list(_by_phase(source, results, plan)),
                )
            yield _Block(slice(channel, channel + size[0]), slice(image, image + size[1]), *views)


def _by_phase(source: Array, results: Array, plan: BandPlan) -> Iterator[tuple[Array, Array]]:
    """Yields windows ``[channels, windows, depth]`` and their results ``[channels, windows, width]``, phase by phase."""
    channels, total, _ = results.shape
    by_plane, by_row, item = source.strides
    step, phases = plan.rows.step * by_row, plan.phases
    for phase in range(phases):
        shape = (channels, total // phases, plan.depth)
        windows = np.ndarray(shape, source.dtype, source, phase * step, (by_plane, phases * step, item))
        yield windows, results[:, phase::phases]


def _bands(matrices: Array, plan: BandPlan, windows_last: bool = False) -> Iterator[tuple[int, int, Array]]:
    """Yields each place of the filter that multiplies anything, and the view of where the matrices have it.

    Args:
        matrices: ``[channels, windows, results]``, contiguous.
        plan: The plan.
        windows_last: The last two axes are the other way round.

    Returns:
        Rows and columns of the filter, and views ``[channels, filters, rows of a block, its columns]``.
    """
    item = matrices.itemsize
    by_channel, by_place, by_result = plan.depth * plan.width * item, plan.width * item, item
    if windows_last:
        by_place, by_result = item, plan.depth * item
    down, by_row = plan.columns.window * by_place, plan.columns.block * by_result
    for a, (high, above, by_high, by_above, rows) in enumerate(plan.rows.taps):
        for b, (wide, left, by_wide, by_left, columns) in enumerate(plan.columns.taps):
            if rows <= 0 or columns <= 0:
                continue
            first = high * down + wide * by_place + above * by_row + left * by_result
            steps = by_high * down + by_above * by_row, by_wide * by_place + by_left * by_result
            shape = (plan.channels, plan.per_channel, rows, columns)
            # The constructor takes a microsecond, ``as_strided`` five.
            yield (
                a,
                b,
                np.ndarray(shape, matrices.dtype, matrices, first, (by_channel, plan.rows.block * by_row, *steps)),
            )


def correlate(x: Array, w: Array, out: Array, plan: BandPlan, scratch: Sequence[Array]) -> None:
    """Computes the forward pass, or an input gradient, from the plan made for it.

    Args:
        x: The source, ``[n, channels, h, w]``.
        w: Filters, ``[channels * per_channel, 1, kh, kw]``.
        out: The results, ``[n, channels * per_channel, oh, ow]``, written.
        plan: The plan.
        scratch: Buffers for windows, results and matrices.
    """
    filters = w.reshape(plan.channels, plan.per_channel, *plan.kernel)
    matrices = flat(scratch[2], (plan.channels, plan.depth, plan.width))
    # `_bands` yields only places that hold a filter's number.
    matrices.fill(0)
    for a, b, band in _bands(matrices, plan):
        np.copyto(band, filters[:, :, a, b, None, None])
    for block in _work(x, out, plan, scratch, clear_results=False):
        block.load(block.sources)
        for windows, results in block.products:
            np.matmul(windows, matrices[block.channels], out=results)
        block.store()
    # A zero of the matrix times infinity is NaN: then, and only then, each result is computed from its own values.
    if not _is_finite(out):
        _correlate_again(x, filters, out, plan)


def _is_finite(results: Array) -> bool:
    """Returns False if a value is infinite or NaN, or a square too large; takes a quarter of the time of ``isfinite``."""
    dense = results.reshape(-1)
    return bool(np.isfinite(np.dot(dense, dense)))


def _places(axis: Axis) -> Iterator[tuple[Ints, Ints]]:
    """Yields, for each place of the filter along an axis, results and the places of the source that it multiplies for them."""
    blocks = np.arange(axis.count)[:, None]
    for place, result, stride, apart, count in axis.taps:
        k = np.arange(max(count, 0))
        results = (blocks * axis.block + result + k * apart).ravel()
        places = (blocks * axis.step + axis.start + place + k * stride).ravel()
        kept = (results < axis.size) & (places >= 0) & (places < axis.source)
        yield results[kept], places[kept]


def _taps(plan: BandPlan) -> Iterator[tuple[int, int, Any, Any]]:
    """Yields rows and columns of the filter, with indices of the results and of the source that belong to each place of it."""
    for a, (rows, above) in enumerate(_places(plan.rows)):
        for b, (columns, left) in enumerate(_places(plan.columns)):
            yield a, b, (..., rows[:, None], columns), (..., above[:, None], left)


def _correlate_again(x: Array, filters: Array, out: Array, plan: BandPlan) -> None:
    """Replaces the results that are not finite, place by place of the filter: no value is multiplied that does not belong to it."""
    found = np.zeros((len(x), plan.channels, plan.per_channel, *out.shape[2:]), out.dtype)
    with np.errstate(all="ignore"):
        for a, b, results, places in _taps(plan):
            found[results] += filters[None, :, :, a, b, None, None] * x[:, :, None][places]
    np.copyto(out, found.reshape(out.shape), where=~np.isfinite(out))


def filter_grad(x: Array, dout: Array, dw: Array, plan: BandPlan, scratch: Sequence[Array]) -> None:
    """Computes the filter gradient, summed over the blocks of images in order.

    Args:
        x: ``[n, channels, h, w]``.
        dout: ``[n, channels * per_channel, oh, ow]``.
        dw: ``[channels * per_channel, 1, kh, kw]``, written.
        plan: The plan of the forward pass.
        scratch: Buffers for windows, gradients, products and their sum.
    """
    sums = flat(scratch[3], (plan.channels, plan.width, plan.depth))
    for block in _work(x, dout, plan, scratch, clear_results=True):
        block.load(block.sources)
        block.load(block.results)
        added = sums[block.channels]
        product = flat(scratch[2], added.shape)
        # The first product of a channel is written, later ones are added: in the order of images, for any size of a block.
        started = block.images.start > 0
        for windows, gradient in block.products:
            np.matmul(gradient.transpose(0, 2, 1), windows, out=product if started else added)
            if started:
                np.add(added, product, added)
            started = True
    filters = dw.reshape(plan.channels, plan.per_channel, *plan.kernel, copy=False)
    filters.fill(0)
    for a, b, band in _bands(sums, plan, windows_last=True):
        # The sums of a place of the filter lie on a diagonal of the product; everything beside it belongs to no place.
        np.add.reduce(band, axis=(2, 3), out=filters[:, :, a, b])
    if not _is_finite(dw):
        arriving = dout.reshape(len(x), plan.channels, plan.per_channel, *dout.shape[2:])
        with np.errstate(all="ignore"):
            for a, b, results, places in _taps(plan):
                exact = (arriving[results] * x[:, :, None][places]).sum(axis=(0, 3, 4))
                np.copyto(filters[:, :, a, b], exact, where=~np.isfinite(filters[:, :, a, b]))
