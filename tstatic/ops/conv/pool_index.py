"""Maximum pooling that also returns where each maximum stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, Tile, ValueRange, register
from tstatic.ir.ref import plain
from tstatic.ir.types import Meta, int32
from tstatic.ops._low import in_float32
from tstatic.ops.conv._convolution import wide
from tstatic.ops.conv._pooling import Pooling, infer_pool, pool_attrs, pool_pieces
from tstatic.ops.conv._sliding import as_metas
from tstatic.tuned._common import Array
from tstatic.tuned.pool import max_pool2d
from tstatic.tuned.pool_index import max_pool2d_index, max_pool2d_index_grad, max_pool2d_index_grad_scratch


def _infer(x: Meta, **attrs: Any) -> tuple[Meta, Meta]:
    out = infer_pool(x, attrs)
    return out, out.with_dtype(int32)


@in_float32(outputs=2)
def _ref(x: Array, out: Array, mask: Array | None, **attrs: Any) -> None:
    rows, columns = Pooling(x.shape[2:], attrs).bounds
    max_pool2d(x, out, rows, columns)
    if mask is not None:
        max_pool2d_index(x, out, mask, rows, columns)


def _lower(torch: Any, x: Any, **attrs: Any) -> Any:
    f = torch.nn.functional
    pooling = Pooling(x.shape[2:], attrs)
    source = wide(x)
    if pooling.adaptive:
        out, index = f.adaptive_max_pool2d(source, pooling.outs, return_indices=True)
        return out.to(x.dtype), index.int()
    pads: list[int] = []
    for size, k, s, (before, after), count in zip(
        pooling.sizes, pooling.kernel, pooling.strides, pooling.pads, pooling.outs, strict=True
    ):
        pads = [before, max(after, (count - 1) * s + k - size - before), *pads]
    padded = f.pad(source, pads, value=-float("inf"))
    out, index = f.max_pool2d(padded, pooling.kernel, pooling.strides, return_indices=True)
    width = padded.shape[3]
    row, column = index // width - pooling.pads[0][0], index % width - pooling.pads[1][0]
    keep = (..., slice(pooling.outs[0]), slice(pooling.outs[1]))
    full = torch.outer(*(torch.tensor([b > a for a, b in axis], device=x.device) for axis in pooling.bounds))
    return out[keep].to(x.dtype), torch.where(full, (row * x.shape[3] + column)[keep], -1).int()


def _split(x: Meta, out: Meta, mask: Meta | None) -> list[Tile] | None:
    tiles = pool_pieces(x, "NCHW")
    return None if tiles is None else [(p, p, p) for p in tiles]


def _grad_scratch(x: Meta, mask: Meta, dout: Meta, dx: Meta) -> tuple[Meta, ...]:
    return as_metas(max_pool2d_index_grad_scratch(dout.shape))


@in_float32()
def _grad_ref(x: Array, mask: Array, dout: Array, dx: Array, scratch: Sequence[Array]) -> None:
    max_pool2d_index_grad(mask, dout, dx, scratch)


def _grad_lower(torch: Any, x: Any, mask: Any, dout: Any) -> Any:
    target = wide(torch.zeros_like(x, memory_format=torch.contiguous_format)).flatten(2)
    given = torch.where(mask < 0, 0, wide(dout)).flatten(2)
    return target.scatter_add(2, mask.clamp(min=0).flatten(2).long(), given).view(x.shape).to(x.dtype)


def _grad_split(x: Meta, mask: Meta, dout: Meta, dx: Meta) -> list[Tile] | None:
    tiles = pool_pieces(x, "NCHW")
    return None if tiles is None else [(p, p, p, p) for p in tiles]


_CASES = (
    Case(((2, 3, 4, 6),), {"ksize": (2, 2), "strides": (2, 2)}),
    Case(((2, 2, 5, 7),), {"ksize": (3, 3), "strides": (2, 2), "paddings": (1, 1)}),
    Case(((2, 2, 5, 7),), {"ksize": (3, 2), "strides": (1, 1), "paddings": (1, 0)}),
    Case(((1, 2, 5, 6),), {"ksize": (2, 3), "strides": (2, 2), "ceil_mode": True}),
    Case(((2, 1, 6, 2),), {"ksize": (7, 3), "strides": (7, 2)}),
    Case(((2, 3, 4, 5),), {"ksize": (1, 1), "global_pooling": True}),
    Case(((2, 2, 5, 7),), {"ksize": (3, 4), "adaptive": True}),
    Case(((0, 2, 4, 4),), {"ksize": (2, 2), "strides": (2, 2)}),
    Case(((1, 1, 1, 1),), {"ksize": (1, 1)}),
)

register(
    OpDef(
        "max_pool2d_with_index",
        "X -> Out, Mask",
        attrs=pool_attrs(False),
        infer=_infer,
        ref=_ref,
        lower=_lower,
        split=_split,
        grad=GradOp(
            "X, Mask, Out@GRAD -> X@GRAD",
            ref=plain(_grad_ref, _grad_scratch),
            lower=_grad_lower,
            split=_grad_split,
            shape_only=("X",),
        ),
        amp="gray",
        domain=Domain(cases=_CASES, values={"X": ValueRange(-2.0, 2.0, distinct=True)}),
    )
)
