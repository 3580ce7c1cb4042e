"""Convolutions whose filters read at places that are inputs (Dai et al., 2017), each weighted by a mask in version 2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import (
    check_divisible,
    check_dtype,
    check_has_shape,
    check_int,
    check_ints,
    check_rank,
    check_same_dtype,
)
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, Shape
from tstatic.ops.base.host import NO_GRADIENT_CALL
from tstatic.ops.base.sliding import not_negative, positive
from tstatic.ops.base.torch_gradient import torch_gradient
from tstatic.ops.conv._reading import Array, Reading, as_rows, store_rows, torch_read

FLOATS = ("float32", "float64")


def _outputs(
    shape: Shape, kernel: Sequence[int], strides: Sequence[int], paddings: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Returns the height and width of the result, -1 if unknown."""
    return tuple(
        UNKNOWN if UNKNOWN in (size, k) else (size + 2 * pad - dilation * (k - 1) - 1) // stride + 1
        for size, k, stride, pad, dilation in zip(shape[2:], kernel, strides, paddings, dilations, strict=True)
    )


def _infer(
    x: Meta, offset: Meta, mask: Meta | None, filter: Meta, *, strides: Sequence[int], paddings: Sequence[int],
    dilations: Sequence[int], groups: int, deformable_groups: int,
) -> Meta:  # fmt: skip
    check_dtype(x, FLOATS, "Input")
    for value, name in ((x, "Input"), (offset, "Offset"), (mask, "Mask"), (filter, "Filter")):
        if value is not None:
            check_rank(value, 4, name)
            check_same_dtype((x, value), ("Input", name))
    if x.shape[1] != UNKNOWN:
        for count, arg in ((groups, "groups"), (deformable_groups, "deformable_groups")):
            check_divisible(x.shape[1], count, "the number of input channels", arg, "deformable_conv")
        check_has_shape(filter, (UNKNOWN, x.shape[1] // groups, UNKNOWN, UNKNOWN), "Filter", why="channels / groups")
    if filter.shape[0] != UNKNOWN:
        check_divisible(filter.shape[0], groups, "the number of filters", "groups", "deformable_conv")
    kernel = filter.shape[2:]
    outs = _outputs(x.shape, kernel, strides, paddings, dilations)
    if any(size != UNKNOWN and size < 1 for size in outs):
        raise ShapeError(
            "the filters of a deformable convolution do not fit into the image",
            expected="an image of at least the filters' size, with its padding",
            received=f"Input of shape {list(x.shape)}, Filter of shape {list(filter.shape)}",
            fix="use smaller filters, or more padding",
        )
    places = UNKNOWN if UNKNOWN in kernel else deformable_groups * math.prod(kernel)
    why = "one for each place of the filters, group and output pixel"
    check_has_shape(
        offset, (x.shape[0], places if places == UNKNOWN else 2 * places, *outs), "Offset", why=f"y and x, {why}"
    )  # fmt: skip
    if mask is not None:
        check_has_shape(mask, (x.shape[0], places, *outs), "Mask", why=why)
    return x.with_shape((max(x.shape[0], offset.shape[0]), filter.shape[0], *outs))


class _Places:
    """The columns of a deformable convolution: what each filter reads for each pixel of the result."""

    def __init__(
        self, x: Array, offset: Array, filter: Array, strides: Sequence[int], paddings: Sequence[int],
        dilations: Sequence[int], groups: int, deformable_groups: int,
    ) -> None:  # fmt: skip
        n, c, h, w = x.shape
        self.batch, self.groups, self.parts = n, groups, deformable_groups
        self.kernel = math.prod(filter.shape[2:])
        self.outs = offset.shape[2:]
        self.pixels = math.prod(self.outs)
        self.channels = c
        # A group of offsets as an image of its own: all of its channels are read at the same places.
        self.rows = as_rows(x.reshape(n * deformable_groups, c // max(deformable_groups, 1), h, w))
        # y, then x, for each place of the filters: the order of Paddle.
        moved = offset.reshape(n, deformable_groups, self.kernel, 2, *self.outs)
        places = []
        for axis in range(2):
            taps = np.arange(filter.shape[2 + axis]) * dilations[axis] - paddings[axis]
            along = taps.repeat(filter.shape[3]) if axis == 0 else np.tile(taps, filter.shape[2])
            starts = np.arange(self.outs[axis]) * strides[axis]
            grid = along[:, None, None] + (starts[:, None] if axis == 0 else starts[None, :])
            places.append(np.ascontiguousarray(moved[:, :, :, axis] + grid.astype(x.dtype)).reshape(-1))
        # Where the rows of each image and group begin.
        first = np.repeat(np.arange(n * deformable_groups) * (h * w), self.kernel * self.pixels)
        self.reading = Reading(places, (h, w), first)

    def columns(self, points: Array) -> Array:
        """Returns ``[n, groups, channels / groups * kernel, pixels]`` from ``[points, channels / parts]``."""
        # Channels before the places of the filter: the order that filters have.
        wide = points.reshape(self.batch, self.parts, self.kernel, self.pixels, -1).transpose(0, 1, 4, 2, 3)
        return np.ascontiguousarray(wide).reshape(self.batch, self.groups, -1, self.pixels)

    def points(self, columns: Array) -> Array:
        """Returns ``[points, channels / parts]`` from columns."""
        wide = columns.reshape(self.batch, self.parts, -1, self.kernel, self.pixels).transpose(0, 1, 3, 4, 2)
        return np.ascontiguousarray(wide).reshape(self.reading.points, -1)


# Columns as of a plain convolution, then one product per group.
def _ref(
    x: Array, offset: Array, mask: Array | None, filter: Array, out: Array, *, strides: Sequence[int],
    paddings: Sequence[int], dilations: Sequence[int], groups: int, deformable_groups: int,
) -> None:  # fmt: skip
    if out.size == 0:
        return
    at = _Places(x, offset, filter, strides, paddings, dilations, groups, deformable_groups)
    points = at.reading.read(at.rows)
    if mask is not None:
        points *= mask.reshape(-1, 1)
    made = np.matmul(filter.reshape(groups, len(filter) // groups, -1), at.columns(points))
    np.copyto(out, made.reshape(out.shape))


def _grad_ref(
    x: Array, offset: Array, mask: Array | None, filter: Array, dout: Array, dx: Array | None, doffset: Array | None,
    dmask: Array | None, dfilter: Array | None, *, strides: Sequence[int], paddings: Sequence[int],
    dilations: Sequence[int], groups: int, deformable_groups: int,
) -> None:  # fmt: skip
    if dout.size == 0:
        for made in (dx, doffset, dmask, dfilter):
            if made is not None:
                made.fill(0)
        return
    at = _Places(x, offset, filter, strides, paddings, dilations, groups, deformable_groups)
    weights = filter.reshape(groups, len(filter) // groups, -1)
    arrived = dout.reshape(len(x), groups, len(filter) // groups, at.pixels)
    shares = None if mask is None else mask.reshape(-1, 1)
    # The columns are read once for both gradients.
    points = at.reading.read(at.rows) if dfilter is not None or dmask is not None else None
    if dfilter is not None:
        assert points is not None
        columns = at.columns(points if shares is None else points * shares)
        # One product per image, added up over the batch afterwards, in its order.
        np.copyto(dfilter, np.matmul(arrived, columns.swapaxes(2, 3)).sum(axis=0).reshape(filter.shape))
    grads = at.points(np.matmul(weights.swapaxes(1, 2), arrived))
    # Before `grads` is multiplied by the mask, whose slope is what was read without it.
    if dmask is not None:
        assert points is not None
        np.copyto(dmask, np.einsum("pc,pc->p", points, grads).reshape(dmask.shape))
    if shares is not None:
        grads *= shares
    if dx is not None:
        rows = np.zeros_like(at.rows)
        at.reading.spread(grads, rows)
        parts = np.empty((len(x) * at.parts, at.channels // at.parts, *x.shape[2:]), x.dtype)
        store_rows(rows, parts)
        np.copyto(dx, parts.reshape(x.shape))
    if doffset is not None:
        slopes = [s.reshape(len(x), at.parts, at.kernel, *at.outs) for s in at.reading.slopes(at.rows, grads)]
        np.copyto(doffset, np.stack(slopes, axis=3).reshape(doffset.shape))


def _lower(
    torch: Any, x: Any, offset: Any, mask: Any, filter: Any, *, strides: Sequence[int], paddings: Sequence[int],
    dilations: Sequence[int], groups: int, deformable_groups: int,
) -> Any:  # fmt: skip
    n, c, h, w = x.shape
    kh, kw = filter.shape[2:]
    oh, ow = offset.shape[2:]
    moved = offset.reshape(n * deformable_groups, kh, kw, 2, oh, ow)

    def line(count: int, step: int, start: int = 0) -> Any:
        return torch.arange(count, dtype=x.dtype, device=x.device) * step + start

    rows = line(kh, dilations[0], -paddings[0])[:, None, None, None] + line(oh, strides[0])[:, None]
    columns = line(kw, dilations[1], -paddings[1])[None, :, None, None] + line(ow, strides[1])
    ys, xs = (p.reshape(len(moved), kh * kw * oh * ow) for p in (moved[:, :, :, 0] + rows, moved[:, :, :, 1] + columns))
    found = torch_read(torch, x.reshape(n * deformable_groups, c // deformable_groups, h, w), ys, xs)
    if mask is not None:
        found = found * mask.reshape(len(moved), 1, kh * kw * oh * ow)
    wide = found.reshape(n, groups, c // groups * kh * kw, oh * ow)
    made = torch.matmul(filter.reshape(groups, filter.shape[0] // groups, c // groups * kh * kw), wide)
    return made.reshape(n, filter.shape[0], oh, ow)


# As of a plain convolution, but paddings are alike at both ends.
_ATTRS: dict[str, Any] = {
    "strides": Attr((1, 1), "ints", positive), "paddings": Attr((0, 0), "ints", not_negative),
    "dilations": Attr((1, 1), "ints", positive),
    "groups": Attr(1, "int", lambda v: None if v > 0 else "a number above 0"),
    "deformable_groups": Attr(1, "int", lambda v: None if v > 0 else "a number above 0"),
    "im2col_step": Attr.idle(64, "results do not depend on how many images are worked on at once"),
}  # fmt: skip
# The bends of linear interpolation lie at whole pixels.
_GAPS = tuple(float(k) for k in range(-2, 3))
# One image of [n, 2, h, w] and its filters, version 2 with a mask.
_CASES = (
    Case(((2, 2, 4, 3), (2, 8, 3, 2), (2, 4, 3, 2), (2, 2, 2, 2))),
    Case(
        ((1, 4, 4, 4), (1, 36, 2, 2), (1, 18, 2, 2), (2, 2, 3, 3)),
        {"groups": 2, "deformable_groups": 2, "strides": (2, 2), "paddings": (1, 1)},
    ),
    Case(((1, 2, 5, 4), (1, 4, 5, 4), None, (3, 2, 1, 2)), {"dilations": (1, 2), "paddings": (0, 1)}),
    Case(((0, 2, 3, 3), (0, 8, 2, 2), (0, 4, 2, 2), (1, 2, 2, 2))),
)


register(OpDef(
    "deformable_conv", "Input, Offset, Mask?, Filter -> Output", attrs=_ATTRS, infer=_infer, ref=_ref, lower=_lower,
    uses_blas=True, amp="black",
    grad=GradOp(
        "Input, Offset, Mask?, Filter, Output@GRAD -> Input@GRAD, Offset@GRAD, Mask@GRAD, Filter@GRAD",
        ref=_grad_ref, traits=(NO_GRADIENT_CALL,), lower=torch_gradient(_lower, 4, (0, 1, 2, 3)),
    ),
    domain=Domain(
        cases=_CASES, values={"Offset": ValueRange(-1.6, 1.6, avoid=_GAPS), "Mask": ValueRange(0.2, 1.0)},
        # 7.8 ulps seen of the gradient.
        floats=FLOATS, ulps=64.0,
    ), onnx="ONNX has deformable convolutions from version 19 on",
))  # fmt: skip


def deform(
    x: Variable, offset: Variable, mask: Variable | None, weight: Variable, stride: Any, padding: Any, dilation: Any,
    groups: int, deformable_groups: int, function: str, name: str | None = None,
) -> Variable:  # fmt: skip
    """Emits the op; the arguments are those of :func:`deform_conv2d`."""
    for arg, value in (("x", x), ("offset", offset), ("mask", mask), ("weight", weight)):
        if value is not None:
            check_variable(value, arg, function, FLOATS)
    attrs = {
        "strides": check_ints(stride, 2, "stride", function), "paddings": check_ints(padding, 2, "padding", function),
        "dilations": check_ints(dilation, 2, "dilation", function), "groups": check_int(groups, "groups", function, 1),
        "deformable_groups": check_int(deformable_groups, "deformable_groups", function, 1),
    }  # fmt: skip
    ins = {"Input": x, "Offset": offset, "Mask": mask, "Filter": weight}
    out: Variable = emit("deformable_conv", ins, attrs, name=name)
    return out


@export("vision.ops.deform_conv2d", op="deformable_conv")
def deform_conv2d(
    x: Variable,
    offset: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    deformable_groups: int = 1,
    groups: int = 1,
    mask: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Convolves images with filters that read beside their usual places, by offsets that are inputs.

    Args:
        x: ``[n, c, h, w]``; float32 or float64.
        offset: ``[n, 2 * deformable_groups * kh * kw, oh, ow]``: down and right, for each place of the filters.
        weight: ``[filters, c / groups, kh, kw]``.
        bias: ``[filters]`` or ``None``.
        stride, padding, dilation: An int, or ``[height, width]``.
        deformable_groups: Groups of channels with offsets of their own.
        groups: Groups of channels and filters that do not see each other.
        mask: ``[n, deformable_groups * kh * kw, oh, ow]``: the weight of each place (version 2); ``None`` for none.
        name: Name of the layer.

    Returns:
        ``[n, filters, oh, ow]``.

    Raises:
        ShapeError, DTypeError: If the shapes or dtypes do not fit together.

    Example:
        >>> x = paddle.reshape(paddle.arange(9, dtype="float32"), [1, 1, 3, 3])
        >>> half = paddle.full([1, 2, 2, 2], 0.5)
        >>> y = paddle.vision.ops.deform_conv2d(x, half, paddle.ones([1, 1, 1, 1]), padding=0, stride=2)
        >>> static.Executor().run(fetch_list=[y])[0][0, 0]
        array([[2., 2.],
               [4., 2.]], dtype=float32)
    """
    out = deform(x, offset, mask, weight, stride, padding, dilation, groups, deformable_groups, "deform_conv2d", name)
    if bias is None:
        return out
    check_variable(bias, "bias", "deform_conv2d", FLOATS)
    added: Variable = emit("elementwise_add", {"X": out, "Y": bias}, {"axis": 1})
    return added
