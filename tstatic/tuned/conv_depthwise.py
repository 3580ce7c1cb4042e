"""Depthwise convolution at row stride 1: one product per channel for all rows of the window, of columns that hold one row of it.

Columns take ``kw`` copies of the image instead of ``kh * kw``. Row ``a`` of the window reads the same columns ``a`` output
rows further down, so the product makes the partial sums of all rows, and these are added shifted. Small images are put side
by side, since a product of a few hundred places takes as long to begin as to compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tstatic.tuned._common import Array, copy_rows, flat
from tstatic.tuned._windows import ConvPlan


def _blocks(plan: ConvPlan) -> Iterator[tuple[slice, slice, bool]]:
    """Yields the channels and the images of each block, and whether its size is new, so that its border has to be cleared."""
    last = None
    for channel in range(0, plan.channels, plan.planes):
        for image in range(0, plan.batch, plan.images):
            size = min(plan.planes, plan.channels - channel), min(plan.images, plan.batch - image)
            yield slice(channel, channel + size[0]), slice(image, image + size[1]), size != last
            last = size


def _columns(x: Array, plan: ConvPlan, buffer: Array, clear: bool) -> Array:
    """Copies ``x``, ``[images, channels, h, w]``, to ``[channels, kw, images, oh + reach, ow]``, with zeros outside of it."""
    images, channels = x.shape[:2]
    (top, _, left, _), (_, ow), dw, sw = plan.pads, plan.out, plan.dilations[1], plan.strides[1]
    columns = flat(buffer, (channels, plan.kernel[1], images, plan.out[0] + plan.reach, ow))
    if clear:
        columns.fill(0)
    # A border at the bottom that no window reaches is not copied, nor what lies below the last window.
    stop = min(plan.height, plan.out[0] + plan.reach - top)
    source = x.transpose(1, 0, 2, 3)[:, :, :stop]
    for b in range(plan.kernel[1]):
        start = b * dw - left
        begin = max(0, -(start // sw))
        end = min(ow, (plan.width - 1 - start) // sw + 1)
        if end > begin:
            part = source[..., begin * sw + start : (end - 1) * sw + start + 1 : sw]
            copy_rows(columns[:, b, :, top : top + stop, begin:end], part)
    return columns


def correlate(x: Array, filters: Array, out: Array, plan: ConvPlan, scratch: Sequence[Array]) -> None:
    """Computes ``out[n, o] = sum_k filters[o, k] * columns(x)[n, k]``; filters are ``[groups, per group, kh * kw]``."""
    # Sums are written in place, with the places of an image as one axis; odd strides take the slow path.
    if out.strides[2:] != (out.shape[3] * out.itemsize, out.itemsize):
        whole = np.empty(out.shape, out.dtype)
        correlate(x, filters, whole, plan, scratch)
        np.copyto(out, whole)
        return
    cols, prod = scratch[1:3]
    (kh, kw), (oh, ow), per_group = plan.kernel, plan.out, filters.shape[1]
    step = plan.dilations[0] * ow
    rows = filters.reshape(plan.groups, per_group * kh, kw)
    for channels, images, clear in _blocks(plan):
        columns = _columns(x[images, channels], plan, cols, clear)
        count, _, batch = columns.shape[:3]
        product = flat(prod, (count, per_group * kh, batch * (oh + plan.reach) * ow))
        np.matmul(rows[channels], columns.reshape(count, kw, -1), out=product)
        sums = product.reshape(count, per_group, kh, batch, -1).transpose(3, 0, 1, 2, 4)
        target = out[images, channels.start * per_group : channels.stop * per_group]
        target = target.reshape(batch, count, per_group, oh * ow)
        if kh == 1:
            np.copyto(target, sums[:, :, :, 0])
        else:
            np.add(sums[:, :, :, 0, : oh * ow], sums[:, :, :, 1, step : step + oh * ow], target)
        for a in range(2, kh):
            np.add(target, sums[:, :, :, a, a * step : a * step + oh * ow], target)


def filter_grad(x: Array, dout: Array, dw: Array, plan: ConvPlan, scratch: Sequence[Array]) -> None:
    """Computes the filter gradient, summed over the blocks of images in order."""
    cols, stack, prod, total = scratch[1:]
    (kh, kw), (oh, ow), per_group = plan.kernel, plan.out, dw.shape[0] // plan.groups
    step, length = plan.dilations[0] * ow, (oh + plan.reach) * ow
    sums = flat(total, (plan.groups, kh, kw, per_group))
    sums.fill(0)
    for channels, images, clear in _blocks(plan):
        columns = _columns(x[images, channels], plan, cols, clear)
        count, _, batch = columns.shape[:3]
        columns = columns.reshape(count, kw, batch * length)
        # Gradients stand as far apart as the columns of an image, with zeros between: one product runs through all images.
        gradient = flat(stack, (count, per_group, batch, length))
        if clear:
            gradient.fill(0)
        part = dout[images, channels.start * per_group : channels.stop * per_group]
        part = part.reshape(batch, count, per_group, oh * ow)
        np.copyto(gradient[..., : oh * ow], part.transpose(1, 2, 0, 3))
        turned = gradient.reshape(count, per_group, batch * length).transpose(0, 2, 1)
        product = flat(prod, (count, kw, per_group))
        for a in range(kh):
            length_a = batch * length - a * step
            np.matmul(columns[..., a * step :], turned[:, :length_a], out=product)
            np.add(sums[channels, a], product, sums[channels, a])
    np.copyto(dw, sums.transpose(0, 3, 1, 2).reshape(dw.shape))
