"""Maximum and average pooling over two axes: sliding, global and adaptive windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.opdef import Case, Cost, Domain, GradOp, OpDef, Tile, ValueRange, register
from tstatic.ir.ref import plain
from tstatic.ir.types import Meta
from tstatic.ops._low import in_float32
from tstatic.ops.conv._convolution import np_compute, torch_back, torch_first, wide
from tstatic.ops.conv._pooling import Pooling, infer_pool, pool_attrs, pool_pieces
from tstatic.ops.conv._sliding import as_metas, first, first_shape, spatial
from tstatic.tuned._common import Array
from tstatic.tuned.pool import (
    avg_pool2d,
    avg_pool2d_grad,
    avg_pool2d_grad_scratch,
    max_pool2d,
    max_pool2d_grad,
    max_pool2d_grad_scratch,
    max_pool2d_scratch,
)


def _infer(x: Meta, **attrs: Any) -> Meta:
    return infer_pool(x, attrs)


def _scratch(x: Meta, out: Meta, **attrs: Any) -> tuple[Meta, ...]:
    if attrs["pooling_type"] != "max":
        return ()
    layout = attrs["data_format"]
    return as_metas(max_pool2d_scratch(first_shape(x.shape, layout), first_shape(out.shape, layout), np_compute(x)))


@in_float32()
def _ref(x: Array, out: Array, scratch: Sequence[Array] = (), **attrs: Any) -> None:
    layout = attrs["data_format"]
    source, target = first(x, layout), first(out, layout)
    pooling = Pooling(source.shape[2:], attrs)
    rows, columns = pooling.bounds
    if attrs["pooling_type"] == "max":
        max_pool2d(source, target, rows, columns, scratch)
        return
    avg_pool2d(source, target, rows, columns, pooling.extents(attrs["exclusive"]))


def _split(x: Meta, out: Meta, data_format: str) -> list[Tile] | None:
    tiles = pool_pieces(x, data_format)
    return None if tiles is None else [(p, p) for p in tiles]


def _grad_scratch(x: Meta, out: Meta, dout: Meta, dx: Meta, **attrs: Any) -> tuple[Meta, ...]:
    layout, dtype = attrs["data_format"], np_compute(dout)
    large, small = first_shape(x.shape, layout), first_shape(out.shape, layout)
    if attrs["pooling_type"] == "max":
        return as_metas(max_pool2d_grad_scratch(large, small, dtype))
    return as_metas(avg_pool2d_grad_scratch(large, small, dtype))


@in_float32()
def _grad_ref(x: Array, out: Array, dout: Array, dx: Array, scratch: Sequence[Array], **attrs: Any) -> None:
    layout = attrs["data_format"]
    gradient, target = first(dout, layout), first(dx, layout)
    pooling = Pooling(target.shape[2:], attrs)
    rows, columns = pooling.bounds
    if attrs["pooling_type"] == "max":
        max_pool2d_grad(first(x, layout), first(out, layout), gradient, target, rows, columns, scratch)
        return
    avg_pool2d_grad(gradient, target, rows, columns, scratch, pooling.extents(attrs["exclusive"]))


def _grad_split(x: Meta, out: Meta, dout: Meta, dx: Meta, data_format: str) -> list[Tile] | None:
    tiles = pool_pieces(x, data_format)
    return None if tiles is None else [(p, p, p, p) for p in tiles]


def lower_pool(torch: Any, x: Any, **attrs: Any) -> Any:
    """Pooling of a channels-first tensor in float32 or float64, by torch's functions on an input padded beforehand."""
    f = torch.nn.functional
    pooling = Pooling(x.shape[2:], attrs)
    largest = attrs.get("pooling_type", "max") == "max"
    if pooling.adaptive:
        return (f.adaptive_max_pool2d if largest else f.adaptive_avg_pool2d)(x, pooling.outs)
    pads: list[int] = []
    for size, k, s, (before, after), out in zip(
        pooling.sizes, pooling.kernel, pooling.strides, pooling.pads, pooling.outs, strict=True
    ):
        # What a last window needs beyond the padding; a negative number crops.
        pads = [before, max(after, (out - 1) * s + k - size - before), *pads]
    if largest:
        return f.max_pool2d(f.pad(x, pads, value=-float("inf")), pooling.kernel, pooling.strides)
    sums = f.avg_pool2d(f.pad(x, pads), pooling.kernel, pooling.strides, divisor_override=1)
    extents = pooling.extents(attrs["exclusive"])
    if extents is None:
        ones = torch.ones(1, 1, *x.shape[2:], dtype=x.dtype, device=x.device)
        divisor = f.avg_pool2d(f.pad(ones, pads), pooling.kernel, pooling.strides, divisor_override=1)
    else:
        divisor = torch.outer(*(torch.tensor(e, dtype=x.dtype, device=x.device) for e in extents))
    # A window without values has the sum 0, whatever it is divided by.
    return (sums / divisor.clamp(min=1))[..., : pooling.outs[0], : pooling.outs[1]]


def _lower(torch: Any, x: Any, **attrs: Any) -> Any:
    layout = attrs["data_format"]
    return torch_back(lower_pool(torch, wide(torch_first(x, layout)), **attrs), layout, x.dtype)


def _grad_lower(torch: Any, x: Any, out: Any, dout: Any, **attrs: Any) -> Any:
    layout = attrs["data_format"]
    with torch.enable_grad():
        source = wide(torch_first(x, layout)).detach().requires_grad_()
        result = lower_pool(torch, source, **attrs)
        (dx,) = torch.autograd.grad(result, source, wide(torch_first(dout, layout)))
    return torch_back(dx, layout, x.dtype)


def _cost(x: Meta, out: Meta, **attrs: Any) -> Cost:
    layout = attrs["data_format"]
    pooling = Pooling(spatial(x.shape, layout), attrs)
    window = max(x.numel // max(out.numel, 1), 1) if pooling.adaptive else pooling.kernel[0] * pooling.kernel[1]
    return Cost(float(out.numel * window), float(x.nbytes + out.nbytes))


def _grad_cost(x: Meta, out: Meta, dout: Meta, dx: Meta, **attrs: Any) -> Cost:
    one = _cost(x, out, **attrs)
    return Cost(2 * one.flops, 2 * one.bytes)


def _both(shape: tuple[int, ...], **attrs: Any) -> tuple[Case, ...]:
    return tuple(Case((shape,), {"pooling_type": kind, **attrs}) for kind in ("max", "avg"))


_CASES = (
    *_both((2, 3, 4, 6), ksize=(2, 2), strides=(2, 2)),
    *_both((2, 2, 5, 7), ksize=(3, 3), strides=(2, 2), paddings=(1, 1)),
    *_both((2, 2, 5, 7), ksize=(3, 2), strides=(1, 2), paddings=(0, 1, 1, 0), exclusive=False),
    *_both((1, 2, 5, 6), ksize=(2, 3), strides=(2, 2), ceil_mode=True),
    *_both((1, 2, 6, 6), ksize=(2, 2), strides=(3, 3), paddings=(1, 1), ceil_mode=True, exclusive=False),
    *_both((1, 2, 7, 3), ksize=(2, 2), strides=(2, 2), paddings=(1, 1), ceil_mode=True)[1:],
    *_both((1, 1, 5, 4), ksize=(1, 2), strides=(3, 3), paddings=(0, 1), ceil_mode=True, exclusive=False)[1:],
    *_both((2, 1, 6, 2), ksize=(7, 3), strides=(7, 2), exclusive=False),
    *_both((2, 3, 4, 5), ksize=(1, 1), global_pooling=True),
    *_both((2, 2, 5, 7), ksize=(3, 4), adaptive=True),
    *_both((2, 5, 4, 3), ksize=(2, 2), strides=(1, 2), paddings=(1, 1), data_format="NHWC"),
    *_both((2, 2, 5, 4), ksize=(3, 3), strides=(2, 2), padding_algorithm="SAME"),
    *_both((1, 2, 4, 4), ksize=(3, 3), paddings=(2, 2), padding_algorithm="VALID"),
    *_both((0, 2, 4, 4), ksize=(2, 2), strides=(2, 2)),
    *_both((1, 1, 1, 1), ksize=(1, 1)),
    *_both((2, 6, 5, 2), ksize=(2, 3), adaptive=True, data_format="NHWC"),
)

register(
    OpDef(
        "pool2d",
        "X -> Out",
        attrs=pool_attrs(True),
        infer=_infer,
        ref=plain(_ref, _scratch),
        lower=_lower,
        split=_split,
        cost=_cost,
        grad=GradOp(
            "X, Out, Out@GRAD -> X@GRAD",
            ref=plain(_grad_ref, _grad_scratch),
            lower=_grad_lower,
            split=_grad_split,
            cost=_grad_cost,
        ),
        amp="gray",
        domain=Domain(cases=_CASES, values={"X": ValueRange(-2.0, 2.0, distinct=True)}),
    )
)
