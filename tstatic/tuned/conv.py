"""Convolution as column copies and matrix products, in blocks that stay in cache; channels first (NCHW, OIHW).

All functions write into ``out`` and into scratch buffers made by the matching ``*_scratch`` function. The result
depends on nothing but the arguments: blocks are chosen from shapes (``conv_plan``) and summed in order. Depthwise convolution has
forms of its own. Channels last is a transposed view.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tstatic.tuned import conv_bands, conv_depthwise, conv_pixels, conv_rows
from tstatic.tuned._common import Array, Buffer, buffers, flat
from tstatic.tuned._windows import ConvPlan, Geometry, Shape4, conv_plan


# -------------------------------------------------------------------------------------------------------------- forward
def conv2d_forward_scratch(
    x_shape: Shape4,
    w_shape: Shape4,
    geometry: Geometry,
    dtype: np.dtype[np.floating],
) -> tuple[Buffer, ...]:
    """Returns the scratch buffers of :func:`conv2d_forward`: images, columns, products, rearranged filters."""
    bands = conv_bands.correlation(x_shape, w_shape, geometry)
    if bands is not None:
        return buffers(dtype, bands.sources, bands.results, bands.matrices, 0)
    plan = conv_plan(x_shape, w_shape, geometry)
    # Columns with channels last need filters in that order; columns with channels first have the filters' own.
    filters = plan.filters * plan.depth if plan.mode == "pixels" else 0
    return buffers(dtype, plan.sources, plan.columns, plan.products, filters)


def conv2d_forward(
    x: Array,
    w: Array,
    out: Array,
    geometry: Geometry,
    scratch: Sequence[Array],
) -> None:
    """Cross-correlates: ``out[n,o,i,j] = sum_{c,a,b} w[o,c,a,b] * x[n, c, i*s0 + a*d0 - top, j*s1 + b*d1 - left]``.

    Args:
        x: ``[n, c, h, w]``, any strides.
        w: ``[o, c / groups, kh, kw]``.
        out: ``[n, o, oh, ow]``, written.
        geometry: How the filters meet the input; ``s``, ``d``, ``top`` and ``left`` in the formula.
        scratch: Buffers from :func:`conv2d_forward_scratch`.
    """
    bands = conv_bands.correlation(x.shape, w.shape, geometry)
    if bands is not None:
        conv_bands.correlate(x, w, out, bands, scratch)
        return
    plan = conv_plan(x.shape, w.shape, geometry)
    # No images, or a sum of no products.
    if plan.mode == "none":
        out.fill(0)
    elif plan.mode == "pixels":
        filters = flat(scratch[3], (*plan.kernel, plan.channels, plan.filters))
        np.copyto(filters, w.transpose(2, 3, 1, 0))
        conv_pixels.correlate(x, filters.reshape(plan.depth, plan.filters), out, plan, scratch)
    else:
        correlate = conv_depthwise.correlate if plan.mode == "depthwise" else conv_rows.correlate
        correlate(x, w.reshape(plan.groups, plan.filters // plan.groups, plan.depth), out, plan, scratch)


# ------------------------------------------------------------------------------------------------------- input gradient
_MIRRORED = 2.0
"""Times as many multiply-adds that a correlation with mirrored filters may have: it takes a fifth less time for each."""
_FILTERS, _FILTERS_THIN = 20, 4
"""Filters for each channel from which it is slower: its columns have all filters, and its product as few rows as channels.
The second is for products of less than ``_THIN`` rows: 32 filters of 3x3 on 3 channels of 32x32 take 0.55 ms instead of 1.35."""
_THIN = 8


def _mirror_plan(x_shape: Shape4, w_shape: Shape4, out_shape: Shape4, geometry: Geometry) -> ConvPlan | None:
    """Returns the plan of the input gradient as a correlation with mirrored filters; ``None`` where that is slower or none."""
    strides, (top, bottom, left, right), dilations, groups = geometry
    reach_h, reach_w = dilations[0] * (w_shape[2] - 1), dilations[1] * (w_shape[3] - 1)
    # Every input place sees the output places that read it: the border shrinks where the input had one, and a padding
    # beyond the reach would have to crop.
    pads = (reach_h - top, reach_h - bottom, reach_w - left, reach_w - right)
    if strides != (1, 1) or min(pads) < 0:
        return None
    # The filters meet every place of the input instead of every place of the output: 128 times as many where they are as
    # wide as an input of 128 columns.
    if x_shape[2] * x_shape[3] > _MIRRORED * out_shape[2] * out_shape[3]:
        return None
    # 256 filters of 5x5 on one channel of 64x64: 1.1 ms instead of 3.9.
    # A single pixel needs no columns either way.
    filters = _FILTERS_THIN if w_shape[1] < _THIN and groups == 1 else _FILTERS
    if w_shape[0] >= filters * w_shape[1] * groups and (reach_h, reach_w) != (0, 0):
        return None
    mirrored = (x_shape[1], w_shape[0] // groups, w_shape[2], w_shape[3])
    return conv_plan(out_shape, mirrored, Geometry((1, 1), pads, dilations, groups))


def conv2d_input_grad_scratch(
    x_shape: Shape4,
    w_shape: Shape4,
    out_shape: Shape4,
    geometry: Geometry,
    dtype: np.dtype[np.floating],
) -> tuple[Buffer, ...]:
    """Returns the scratch buffers of :func:`conv2d_input_grad`: images, columns, products, rearranged filters."""
    bands = conv_bands.adjoint(x_shape, w_shape, out_shape, geometry)
    if bands is not None:
        return buffers(dtype, bands.sources, bands.results, bands.matrices, 0)
    filters = w_shape[0] * w_shape[1] * w_shape[2] * w_shape[3]
    plan = _mirror_plan(x_shape, w_shape, out_shape, geometry)
    if plan is not None:
        return buffers(dtype, plan.sources, plan.columns, plan.products, filters)
    plan = conv_plan(x_shape, w_shape, geometry, narrow=True, scatter=True)
    return buffers(dtype, plan.sources, plan.columns, plan.products, filters if plan.mode == "pixels" else 0)


def conv2d_input_grad(
    dout: Array,
    w: Array,
    dx: Array,
    geometry: Geometry,
    scratch: Sequence[Array],
) -> None:
    """Computes the gradient of :func:`conv2d_forward` by ``x``; also the forward of a transposed convolution.

    ``dx[n,c,p,q]`` is the sum of ``w[o,c,a,b] * dout[n,o,i,j]`` over all ``p = i*s0 + a*d0 - top``, ``q`` alike. At
    stride 1 this is a correlation with mirrored filters, else columns are scattered (a fifth slower).

    Args:
        dout: ``[n, o, oh, ow]``.
        w: ``[o, c / groups, kh, kw]``.
        dx: ``[n, c, h, w]``, written.
        geometry: As in :func:`conv2d_forward`.
        scratch: Buffers from :func:`conv2d_input_grad_scratch`.
    """
    if dout.size == 0 or w.size == 0:
        dx.fill(0)
        return
    bands = conv_bands.adjoint(dx.shape, w.shape, dout.shape, geometry)
    if bands is not None:
        conv_bands.correlate(dout, w, dx, bands, scratch)
        return
    (o, c, kh, kw), groups = w.shape, geometry.groups
    plan = _mirror_plan(dx.shape, w.shape, dout.shape, geometry)
    if plan is None:
        plan = conv_plan(dx.shape, w.shape, geometry, narrow=True, scatter=True)
        if plan.mode == "pixels":
            filters = flat(scratch[3], (o, kh, kw, c))
            np.copyto(filters, w.transpose(0, 2, 3, 1))
            conv_pixels.scatter(dout, filters.reshape(o, plan.depth), dx, plan, scratch)
        else:
            conv_rows.scatter(dout, w.reshape(groups, o // groups, plan.depth), dx, plan, scratch)
        return
    # Filters are turned around, and input and output channels change places within each group.
    turned = w[..., ::-1, ::-1]
    if plan.mode == "pixels":
        filters = flat(scratch[3], (kh, kw, o, c))
        np.copyto(filters, turned.transpose(2, 3, 0, 1))
        conv_pixels.correlate(dout, filters.reshape(plan.depth, c), dx, plan, scratch)
    else:
        filters = flat(scratch[3], (groups, c, o // groups, kh, kw))
        np.copyto(filters, turned.reshape(groups, o // groups, c, kh, kw).transpose(0, 2, 1, 3, 4))
        correlate = conv_depthwise.correlate if plan.mode == "depthwise" else conv_rows.correlate
        correlate(dout, filters.reshape(groups, c, plan.depth), dx, plan, scratch)


# ------------------------------------------------------------------------------------------------------ filter gradient
def conv2d_filter_grad_scratch(
    x_shape: Shape4,
    w_shape: Shape4,
    geometry: Geometry,
    dtype: np.dtype[np.floating],
) -> tuple[Buffer, ...]:
    """Returns the scratch buffers of :func:`conv2d_filter_grad`: images, columns, gradients, products, their sum."""
    bands = conv_bands.correlation(x_shape, w_shape, geometry)
    if bands is not None:
        return buffers(dtype, bands.sources, bands.results, bands.products, bands.matrices, 0)
    plan = conv_plan(x_shape, w_shape, geometry, narrow=True, filter_grad=True)
    size = plan.filters * plan.depth
    # Channels first: one product per image, added afterwards; else all places of a block are one sum inside the product.
    products = size if plan.mode == "pixels" else size * plan.images
    if plan.mode == "shifts":
        products = products // plan.kernel[0] * plan.parts
    return buffers(dtype, plan.sources, plan.columns, plan.products, products, size)


def conv2d_filter_grad(
    x: Array,
    dout: Array,
    dw: Array,
    geometry: Geometry,
    scratch: Sequence[Array],
) -> None:
    """Computes the gradient of :func:`conv2d_forward` by ``w``, summed over the images given (a part gives a partial sum).

    ``dw[o,c,a,b] = sum_{n,i,j} dout[n,o,i,j] * x[n, c, i*s0 + a*d0 - top, j*s1 + b*d1 - left]``.

    Args:
        x: ``[n, c, h, w]``.
        dout: ``[n, o, oh, ow]``.
        dw: ``[o, c / groups, kh, kw]``, written.
        geometry: As in :func:`conv2d_forward`.
        scratch: Buffers from :func:`conv2d_filter_grad_scratch`.
    """
    bands = conv_bands.correlation(x.shape, dw.shape, geometry)
    if bands is not None:
        conv_bands.filter_grad(x, dout, dw, bands, scratch)
        return
    plan = conv_plan(x.shape, dw.shape, geometry, narrow=True, filter_grad=True)
    if plan.mode == "none":
        dw.fill(0)
    elif plan.mode == "pixels":
        conv_pixels.filter_grad(x, dout, dw, plan, scratch)
    elif plan.mode == "depthwise":
        conv_depthwise.filter_grad(x, dout, dw, plan, scratch)
    else:
        conv_rows.filter_grad(x, dout, dw, plan, scratch)
