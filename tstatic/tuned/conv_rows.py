"""Convolution with channels first throughout: windows copied whole, a row of them at a time, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tstatic.tuned._common import Array, contiguous, copy_rows, flat
from tstatic.tuned._windows import ConvPlan, small_parts


def _clear_border(plan: ConvPlan, buffer: Array) -> None:
    # Once a call: images are copied inside the border, which stays 0 from block to block.
    if plan.padded:
        flat(buffer, (plan.images, plan.channels, *plan.padded_size)).fill(0)


def _source(x: Array, plan: ConvPlan, first: int, count: int, buffer: Array) -> Array:
    """Returns images ``first : first + count`` with their zero border, contiguous. The border of ``buffer`` is zero already."""
    block = x[first : first + count]
    if not plan.padded:
        return contiguous(block)
    top, _, left, _ = plan.pads
    source = flat(buffer, (count, plan.channels, *plan.padded_size))
    copy_rows(source[:, :, top : top + plan.height, left : left + plan.width], block)
    return source


def _columns(source: Array, plan: ConvPlan, row: int, rows: int, buffer: Array) -> Array:
    """Returns the column matrix of ``rows`` output rows, ``[images, groups, depth, rows * length]``."""
    count, groups, depth = source.shape[0], plan.groups, plan.depth
    if plan.mode == "direct":
        return source.reshape(count, groups, depth, -1)
    (kh, kw), (dh, dw), (sh, sw), (_, ow) = plan.kernel, plan.dilations, plan.strides, plan.out
    by_image, by_channel, by_row, by_value = source.strides
    # The constructor costs 1 us, ``as_strided`` 5 us, once a block; it checks the bounds too.
    if plan.mode == "wide":
        # Rows run on into the next one: what stands between two of them is computed and then dropped.
        length = (rows - 1) * source.shape[3] + ow
        if source.shape[3] == 1:
            # The stride of an axis of one element says nothing; here the next element is that of the next row.
            by_value = by_row
        windows = np.ndarray(
            (count, plan.channels, kh, kw, length), source.dtype, source, row * by_row,
            (by_image, by_channel, dh * by_row, dw * by_value, by_value),
        )  # fmt: skip
        columns = flat(buffer, (count, groups, depth, rows * source.shape[3]))[..., :length]
        np.copyto(columns.reshape(count, plan.channels, kh, kw, length, copy=False), windows)
        return columns
    shape = (count, plan.channels, kh, kw, rows, ow)
    strides = (by_image, by_channel, dh * by_row, dw * by_value, sh * by_row, sw * by_value)
    copy_rows(flat(buffer, shape), np.ndarray(shape, source.dtype, source, row * sh * by_row, strides))
    return flat(buffer, (count, groups, depth, rows * ow))


_LONG = 16
"""Places of an output row from which only what lies outside the image is cleared: 3 % of the forward pass on 32x32 and 16x16."""


def _inside(plan: ConvPlan, row: int, rows: int) -> tuple[int, int, list[tuple[int, int]]]:
    """Returns the rows of a block of columns that lie inside the image, and its places for each column of the window."""
    dw, sw, ow, top, left = plan.dilations[1], plan.strides[1], plan.out[1], plan.pads[0], plan.pads[2]
    high = max(0, top - row)
    places = []
    for start in range(-left, plan.kernel[1] * dw - left, dw):
        begin = min(ow, max(0, -(start // sw)))
        places.append((begin, max(begin, min(ow, (plan.width - 1 - start) // sw + 1))))
    return high, max(high, min(rows + plan.reach, plan.height + top - row)), places


def _clear(target: Array, plan: ConvPlan, row: int, rows: int) -> None:
    """Writes zeros where columns ``[images, channels, kw, rows + reach, ow]`` lie outside the image, or everywhere."""
    if plan.out[1] < _LONG:
        target.fill(0)
        return
    high, low, places = _inside(plan, row, rows)
    target[:, :, :, :high].fill(0)
    target[:, :, :, low:].fill(0)
    for b, (begin, stop) in enumerate(places):
        target[:, :, b, high:low, :begin].fill(0)
        target[:, :, b, high:low, stop:].fill(0)


def _target(plan: ConvPlan, count: int, rows: int, buffer: Array) -> Array:
    return flat(buffer, (count, plan.channels, plan.kernel[1], rows + plan.reach, plan.out[1]))


def _clear_shifts(plan: ConvPlan, buffer: Array) -> None:
    if plan.rows >= plan.out[0]:
        _clear(_target(plan, plan.images, plan.rows, buffer), plan, 0, plan.rows)


def _shifts(x: Array, plan: ConvPlan, first: int, count: int, row: int, rows: int, buffer: Array) -> Array:
    """Copies one row of each window for ``rows`` output rows and those that the window's other rows see.

    What lies outside the image is zero in ``buffer`` already where all rows are in one block.

    Returns:
        ``[images, groups, channels * kw, (rows + reach) * ow]``: row ``a`` of the window begins ``a * dilation * ow``
        further.
    """
    top, left, dw, sw = plan.pads[0], plan.pads[2], plan.dilations[1], plan.strides[1]
    target = _target(plan, count, rows, buffer)
    # Each block of rows touches the border elsewhere.
    if rows < plan.out[0]:
        _clear(target, plan, row, rows)
    # Rows, and for each column of the window places, that lie inside the image: no padded copy of it is made.
    high, low, places = _inside(plan, row, rows)
    block = x[first : first + count, :, row + high - top : max(row + low - top, 0)]
    for b, (begin, stop) in enumerate(places):
        start = b * dw - left
        if low > high and stop > begin:
            source = block[..., begin * sw + start : (stop - 1) * sw + start + 1 : sw]
            copy_rows(target[:, :, b, high:low, begin:stop], source)
    per_group = plan.channels // plan.groups * plan.kernel[1]
    return flat(buffer, (count, plan.groups, per_group, target.shape[3] * plan.out[1]))


def _in_parts(array: Array, parts: int) -> Array:
    """Views ``[images, groups, k, places]`` as ``[images, groups, parts, k, places of a part]``."""
    return array.reshape(*array.shape[:-1], parts, -1, copy=False).transpose(0, 1, 3, 2, 4)


def _by_window_row(filters: Array, plan: ConvPlan) -> Array:
    """Copies ``[groups, per group, channels * kh * kw]`` to ``[kh, groups, per group, channels * kw]``."""
    # A copy of its own, since the filters of one window row are not adjacent; made once per call, they are small.
    groups, per_group, _ = filters.shape
    split = filters.reshape(groups, per_group, -1, *plan.kernel)
    ordered = split.transpose(3, 0, 1, 2, 4)
    taps = np.empty(ordered.shape, ordered.dtype)
    copy_rows(taps, ordered)
    return taps.reshape(plan.kernel[0], groups, per_group, -1)


def _correlate_shifts(x: Array, filters: Array, out: Array, plan: ConvPlan, scratch: Sequence[Array]) -> None:
    cols, prod = scratch[1:3]
    (oh, ow), groups, per_group = plan.out, plan.groups, plan.filters // plan.groups
    step = plan.dilations[0] * ow
    taps = _by_window_row(filters, plan)
    _clear_shifts(plan, cols)
    for first in range(0, plan.batch, plan.images):
        count = min(plan.images, plan.batch - first)
        places = out[first : first + count].reshape(count, groups, per_group, oh * ow)
        for row in range(0, oh, plan.rows):
            rows = min(plan.rows, oh - row)
            columns = _shifts(x, plan, first, count, row, rows, cols)
            target = places[..., row * ow : (row + rows) * ow]
            product = flat(prod, target.shape)
            # Products that are small enough are not packed: see ``_SMALL``.
            parts = small_parts(per_group, taps.shape[-1], rows * ow)
            out_parts, product_parts = _in_parts(target, parts), _in_parts(product, parts)
            for a, tap in enumerate(taps):
                # The next row of the window is the same columns, one output row (times the dilation) further.
                window = _in_parts(columns[..., a * step : a * step + rows * ow], parts)
                np.matmul(tap[:, None], window, out=product_parts if a else out_parts)
                if a:
                    np.add(target, product, target)


def correlate(x: Array, filters: Array, out: Array, plan: ConvPlan, scratch: Sequence[Array]) -> None:
    """Computes ``out[n, o] = sum_k filters[o, k] * columns(x)[n, k]`` with ``filters`` of shape ``[groups, per group, depth]``."""
    # Products are written in place, reshaped; odd strides take the slow path.
    if not out.flags.c_contiguous:
        whole = np.empty(out.shape, out.dtype)
        correlate(x, filters, whole, plan, scratch)
        np.copyto(out, whole)
        return
    if plan.mode == "shifts":
        _correlate_shifts(x, filters, out, plan, scratch)
        return
    pad, cols, prod = scratch[:3]
    oh, ow = plan.out
    groups, per_group = plan.groups, plan.filters // plan.groups
    _clear_border(plan, pad)
    for first in range(0, plan.batch, plan.images):
        count = min(plan.images, plan.batch - first)
        source = _source(x, plan, first, count, pad)
        block = out[first : first + count]
        for row in range(0, oh, plan.rows):
            rows = min(plan.rows, oh - row)
            columns = _columns(source, plan, row, rows, cols)
            if plan.mode == "wide":
                product = flat(prod, (count, groups, per_group, rows * plan.row))
                np.matmul(filters, columns, out=product[..., : columns.shape[-1]])
                # The last row of the buffer ends in values that no product wrote; they are not copied.
                wide = product.reshape(count, plan.filters, rows, plan.row)
                copy_rows(block[:, :, row : row + rows], wide[..., :ow])
            else:
                target = block.reshape(count, groups, per_group, oh * ow)
                np.matmul(filters, columns, out=target[..., row * ow : (row + rows) * ow])


def _add_taps(gradient: Array, filters: Array, target: Array, plan: ConvPlan, rows: int, buffer: Array) -> None:
    """Adds the input gradients of ``rows`` output rows: for each place of the filter, a row of the output at a time."""
    count, groups, _, places = gradient.shape
    (kh, kw), (sh, sw), (dh, dw), ow = plan.kernel, plan.strides, plan.dilations, plan.out[1]
    columns = flat(buffer, (count, groups, plan.depth, places))
    np.matmul(filters.transpose(0, 2, 1), gradient, out=columns)
    taps = columns.reshape(count, plan.channels, kh, kw, rows, ow)
    for a in range(kh):
        for b in range(kw):
            i, j = a * dh, b * dw
            place = target[:, :, i : i + (rows - 1) * sh + 1 : sh, j : j + (ow - 1) * sw + 1 : sw]
            np.add(place, taps[:, :, a, b], place)


def _add_windows(gradient: Array, filters: Array, target: Array, plan: ConvPlan, rows: int, buffer: Array) -> None:
    """Adds the input gradients of ``rows`` output rows: for each output column, a row of the filter at a time."""
    count, groups, _, places = gradient.shape
    (kh, kw), (sh, sw), (dh, dw), ow = plan.kernel, plan.strides, plan.dilations, plan.out[1]
    columns = flat(buffer, (count, groups, places, plan.depth))
    np.matmul(gradient.transpose(0, 1, 3, 2), filters, out=columns)
    windows = columns.reshape(count, groups, rows, ow, plan.channels // groups, kh, kw)
    by_group = target.reshape(count, groups, -1, *target.shape[2:], copy=False)
    for a in range(kh):
        for column in range(ow):
            i, j = a * dh, column * sw
            place = by_group[..., i : i + (rows - 1) * sh + 1 : sh, j : j + (kw - 1) * dw + 1 : dw]
            np.add(place, windows[:, :, :, column, :, a].transpose(0, 1, 3, 2, 4), place)


def scatter(dout: Array, filters: Array, dx: Array, plan: ConvPlan, scratch: Sequence[Array]) -> None:
    """Computes the input gradient for any stride: columns ``filters.T @ dout``, added to the places that they were copied from."""
    pad, cols = scratch[:2]
    groups, sh, (oh, ow) = plan.groups, plan.strides[0], plan.out
    top, _, left, _ = plan.pads
    for first in range(0, plan.batch, plan.images):
        count = min(plan.images, plan.batch - first)
        block = dx[first : first + count]
        # Without a border the gradients are added in place.
        target = flat(pad, (count, plan.channels, *plan.padded_size)) if plan.padded else block
        target.fill(0)
        for row in range(0, oh, plan.rows):
            rows = min(plan.rows, oh - row)
            part = dout[first : first + count, :, row : row + rows]
            gradient = part.reshape(count, groups, plan.filters // groups, rows * ow)
            add = _add_windows if plan.mode == "windows" else _add_taps
            add(gradient, filters, target[:, :, row * sh :], plan, rows, cols)
        if plan.padded:
            copy_rows(block, target[:, :, top : top + plan.height, left : left + plan.width])


def filter_grad(x: Array, dout: Array, dw: Array, plan: ConvPlan, scratch: Sequence[Array]) -> None:
    """Computes the filter gradient, summed over the images in order."""
    if plan.mode == "shifts":
        _filter_grad_shifts(x, dout, dw, plan, scratch[1:])
        return
    pad, cols, _, prod, total = scratch
    (oh, ow), groups, per_group = plan.out, plan.groups, plan.filters // plan.groups
    # Columns times the transposed gradient: 94 GFLOP/s, the other order 71 (its result is transposed once at the end).
    sums = flat(total, (groups, plan.depth, per_group))
    started = False
    _clear_border(plan, pad)
    for first in range(0, plan.batch, plan.images):
        count = min(plan.images, plan.batch - first)
        source = _source(x, plan, first, count, pad)
        for row in range(0, oh, plan.rows):
            rows = min(plan.rows, oh - row)
            columns = _columns(source, plan, row, rows, cols)
            part = dout[first : first + count, :, row : row + rows]
            gradient = part.reshape(count, groups, per_group, rows * ow).transpose(0, 1, 3, 2)
            products = flat(prod, (count, *sums.shape))
            np.matmul(columns, gradient, out=products)
            # One image after the other: the sum has the same bits however many images a block has.
            if not started:
                np.copyto(sums, products[0])
            for product in products[0 if started else 1 :]:
                np.add(sums, product, sums)
            started = True
    np.copyto(dw, sums.transpose(0, 2, 1).reshape(dw.shape))


_NARROW = 16
"""Filters up to which the filter gradient's product reads the output gradient as it lies: 16 filters on 16 channels of 32x32 take
a tenth less time so (a third less with 512-bit products); 32 filters of 16x16 up to half as long again."""


def _filter_grad_shifts(x: Array, dout: Array, dw: Array, plan: ConvPlan, scratch: Sequence[Array]) -> None:
    cols, stack, prod, total = scratch
    (oh, ow), groups, per_group, kh = plan.out, plan.groups, plan.filters // plan.groups, plan.kernel[0]
    step = plan.dilations[0] * ow
    # By row of the window first, as the products are made; turned once at the end.
    sums = flat(total, (kh, groups, plan.depth // kh, per_group))
    started = False
    _clear_shifts(plan, cols)
    for first in range(0, plan.batch, plan.images):
        count = min(plan.images, plan.batch - first)
        for row in range(0, oh, plan.rows):
            rows = min(plan.rows, oh - row)
            columns = _shifts(x, plan, first, count, row, rows, cols)
            part = dout[first : first + count, :, row : row + rows].reshape(count, groups, per_group, rows * ow)
            if per_group <= _NARROW:
                gradient = part.transpose(0, 1, 3, 2)
            else:
                gradient = flat(stack, (count, groups, rows * ow, per_group))
                # Planes a multiple of 1 KiB apart share few cache sets: 32 of them at a time stay, 64 take half as long again.
                for f in range(0, per_group, 32):
                    np.copyto(gradient[..., f : f + 32], part[:, :, f : f + 32].transpose(0, 1, 3, 2))
            parts = small_parts(plan.depth // kh, per_group, rows * ow)
            products = flat(prod, (count, parts, *sums.shape[1:]))
            # [images, groups, places, filters] as [images, parts, groups, places of a part, filters]
            gradient = gradient.reshape(count, groups, parts, -1, per_group).transpose(0, 2, 1, 3, 4)
            for a in range(kh):
                window = columns[..., a * step : a * step + rows * ow]
                window = window.reshape(*window.shape[:-1], parts, -1, copy=False).transpose(0, 3, 1, 2, 4)
                np.matmul(window, gradient, out=products)
                # What is known already goes into the first product, so that one reduction adds it all up.
                flatly = products.reshape(count * parts, *sums.shape[1:])
                if started:
                    np.add(sums[a], flatly[0], flatly[0])
                np.add.reduce(flatly, axis=0, out=sums[a])
            started = True
    ordered = sums.reshape(kh, groups, dw.shape[1], plan.kernel[1], per_group).transpose(1, 4, 2, 0, 3)
    np.copyto(dw, ordered.reshape(dw.shape))
