"""Normalisation of groups of channels within each sample: what ``group_norm`` and ``instance_norm`` share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.opdef import PARTIAL_SUM, WHOLE, Tile
from tstatic.ir.split import BATCHES
from tstatic.ir.types import Meta
from tstatic.ops.conv._sliding import as_metas, first, is_last, parts
from tstatic.ops.norm._norm import torch_wide
from tstatic.tuned._common import Array, ones
from tstatic.tuned.norm import layer_norm, layer_norm_scratch


class Groups:
    """Shapes of one call.

    Attributes:
        planes: ``[n, c, places]``.
        rows: ``[n * groups, values of a group]``.
    """

    def __init__(self, shape: Sequence[int], groups: int, layout: str) -> None:
        last = is_last(layout) and len(shape) > 2
        count = shape[-1] if last else shape[1]
        places = math.prod(shape[1:-1] if last else shape[2:])
        self.planes = shape[0], count, places
        self.rows = shape[0] * groups, count // groups * places
        self.last = last


def plane_buffers(x: Meta, layout: str, count: int) -> tuple[Meta, ...]:
    """Buffers of the input's size, channels first."""
    return (Meta((x.numel,), x.dtype.compute),) * count


def forward_scratch(x: Meta, groups: int, layout: str) -> tuple[Meta, ...]:
    """Scratch of :func:`forward`: the row kernel's, statistics, and for channels last a copy."""
    shape = Groups(x.shape, groups, layout)
    needs = as_metas(layer_norm_scratch(*shape.rows, x.dtype.compute.np))
    return (*needs, Meta((2, shape.rows[0]), x.dtype.compute), *plane_buffers(x, layout, 1 if shape.last else 0))


def forward(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    y: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    groups: int,
    layout: str,
    scratch: Sequence[Array],
) -> None:
    """``y = (x - mean) / sqrt(variance + epsilon) * scale + bias``; statistics by sample and group.

    Args:
        x: ``[n, c, ...]`` or ``[n, ..., c]``; ``y`` alike, written.
        scale, bias: ``[c]`` or ``None``.
        mean, variance: ``[n * groups]``, contiguous, written.
        epsilon: Added to the variance.
        groups: Groups of channels.
        layout: Where channels stand.
        scratch: From :func:`forward_scratch`.
    """
    shape = Groups(x.shape, groups, layout)
    source, target = (first(a, layout) if shape.last else a for a in (x, y))
    # Rows must be contiguous: odd strides and channels last go through a copy.
    place = target if target.flags.c_contiguous else _room(target, scratch, shape)
    if source.flags.c_contiguous:
        rows = source.reshape(shape.rows)
    else:
        np.copyto(place, source)
        rows = place.reshape(shape.rows)
    layer_norm(rows, None, None, place.reshape(shape.rows), mean, variance, epsilon, scratch)
    planes = place.reshape(shape.planes)
    if scale is not None:
        np.multiply(planes, scale.reshape(-1, 1), planes)
    if bias is not None:
        np.add(planes, bias.reshape(-1, 1), planes)
    if place is not target:
        np.copyto(target, place)


def _room(like: Array, scratch: Sequence[Array], shape: Groups) -> Array:
    return scratch[-1].reshape(like.shape) if shape.last else np.empty(like.shape, like.dtype)


def backward_scratch(x: Meta, groups: int, layout: str) -> tuple[Meta, ...]:
    """Scratch of :func:`backward`: normalised input, gradient, sums by plane and by row."""
    shape = Groups(x.shape, groups, layout)
    n, c, _ = shape.planes
    sums = Meta((n * c,), x.dtype.compute), Meta((3, shape.rows[0]), x.dtype.compute)
    return (*plane_buffers(x, layout, 2), *sums)


def backward(
    x: Array,
    scale: Array | None,
    mean: Array,
    inverse: Array,
    dy: Array,
    dx: Array | None,
    dscale: Array | None,
    dbias: Array | None,
    groups: int,
    layout: str,
    scratch: Sequence[Array],
) -> None:
    """Gradients of :func:`forward`, with ``inverse = 1 / sqrt(variance + epsilon)``.

    With ``h = (x - mean) * inverse`` and ``g = dy * scale``: ``dx = inverse * (g - mean(g) - h * mean(g * h))`` by group,
    ``dscale = sum(dy * h)`` and ``dbias = sum(dy)`` by channel over the samples given.

    Args:
        x, dy: ``[n, c, ...]`` or ``[n, ..., c]``; ``dx`` alike, written unless ``None``; it may be ``dy``.
        scale: ``[c]`` or ``None``.
        mean, inverse: ``[n * groups]``.
        dscale, dbias: ``[c]``, written unless ``None``.
        groups, layout: As in :func:`forward`.
        scratch: From :func:`backward_scratch`.
    """
    shape = Groups(x.shape, groups, layout)
    if x.size == 0:
        for total in (dscale, dbias):
            if total is not None:
                total.fill(0)
        return
    source, gradient = (first(a, layout) if shape.last else a for a in (x, dy))
    hat, work = (s.reshape(source.shape) for s in scratch[:2])
    rows = hat.reshape(shape.rows)
    np.copyto(hat, source)
    np.subtract(rows, mean[:, None], rows)
    np.multiply(rows, inverse[:, None], rows)
    np.copyto(work, gradient)
    planes, sums = work.reshape(shape.planes), scratch[2].reshape(shape.planes[:2])
    if dbias is not None:
        np.matmul(planes, ones(shape.planes[2], work.dtype), out=sums)
        np.add.reduce(sums, axis=0, out=dbias.reshape(-1))
    if dscale is not None:
        np.vecdot(planes, hat.reshape(shape.planes), out=sums)
        np.add.reduce(sums, axis=0, out=dscale.reshape(-1))
    if dx is None:
        return
    if scale is not None:
        np.multiply(planes, scale.reshape(-1, 1), planes)
    given, along, _ = scratch[3]
    slopes, count = work.reshape(shape.rows), np.asarray(shape.rows[1], work.dtype)
    np.matmul(slopes, ones(shape.rows[1], work.dtype), out=given)
    np.vecdot(slopes, rows, out=along)
    np.divide(given, count, given)
    np.divide(along, count, along)
    np.multiply(rows, along[:, None], rows)
    np.add(rows, given[:, None], rows)
    np.subtract(slopes, rows, slopes)
    np.multiply(slopes, inverse[:, None], slopes)
    np.copyto(first(dx, layout) if shape.last else dx, work)


# ---------------------------------------------------------------------------------------------------------------- tiles
def sample_parts(x: Meta) -> list[slice] | None:
    """Parts of the batch."""
    return parts(x.shape[0], float(x.numel), BATCHES.size) if x.numel > 0 else None


def forward_pieces(x: Meta, per_sample: int) -> list[Tile] | None:
    """``split`` for slots X, Scale, Bias -> Y and two statistics with ``per_sample`` leading entries per sample."""
    cut = sample_parts(x)
    if cut is None:
        return None
    return [((p,), WHOLE, WHOLE, (p,), *[(_times(p, per_sample),)] * 2) for p in cut]


def backward_pieces(x: Meta, per_sample: int) -> list[Tile] | None:
    """``split`` for slots X, Scale, Bias, two statistics, Y@GRAD -> X@GRAD, Scale@GRAD, Bias@GRAD."""
    cut = sample_parts(x)
    if cut is None:
        return None
    return [((p,), WHOLE, WHOLE, *[(_times(p, per_sample),)] * 2, (p,), (p,), PARTIAL_SUM, PARTIAL_SUM) for p in cut]


def _times(part: slice, factor: int) -> slice:
    return slice(part.start * factor, part.stop * factor)


# ----------------------------------------------------------------------------------------------------------------- torch
def torch_groups(torch: Any, x: Any, scale: Any, bias: Any, epsilon: float, groups: int, layout: str) -> Any:
    """``(y, mean, variance)`` with statistics ``[n, groups]``, in the type of computation."""
    last = is_last(layout) and x.dim() > 2
    source = torch_wide(x.movedim(-1, 1) if last else x)
    rows = source.reshape(source.shape[0], groups, math.prod(source.shape[1:]) // groups)
    center = rows.mean(-1)
    spread = (rows - center[..., None]).square().mean(-1)
    # torch's own gradient of an affine group_norm fails where one of scale and bias is absent.
    y = torch.nn.functional.group_norm(source.contiguous(), groups, eps=epsilon) if x.numel() else source
    wide = (-1, *[1] * (source.dim() - 2))
    if scale is not None:
        y = y * torch_wide(scale).to(source.dtype).reshape(wide)
    if bias is not None:
        y = y + torch_wide(bias).to(source.dtype).reshape(wide)
    return y.movedim(1, -1) if last else y, center, spread


def torch_groups_grad(
    torch: Any, x: Any, scale: Any, bias: Any, dy: Any, epsilon: float, groups: int, layout: str
) -> Any:
    """Gradients by X, Scale and Bias (``None`` for an absent one)."""
    with torch.enable_grad():
        leaves = [None if t is None else torch_wide(t).detach().clone().requires_grad_() for t in (x, scale, bias)]
        y = torch_groups(torch, leaves[0], leaves[1], leaves[2], epsilon, groups, layout)[0]
        given = [t for t in leaves if t is not None]
        found = iter(torch.autograd.grad(y, given, torch_wide(dy), allow_unused=True))
    results = []
    for leaf, like in zip(leaves, (x, scale, bias), strict=True):
        gradient = None if leaf is None else next(found)
        if leaf is not None and gradient is None:
            gradient = torch.zeros_like(leaf)
        results.append(None if gradient is None else gradient.to(like.dtype))
    return tuple(results)
