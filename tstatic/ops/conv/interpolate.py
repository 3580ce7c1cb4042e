"""Resizing by interpolation along one to three axes: nearest, linear and cubic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.attrs import one_of
from tstatic.ir.checks import FLOATS, check_dtype, check_length, check_rank
from tstatic.ir.opdef import Attr, Case, Cost, Domain, GradOp, OpDef, OpSpec, ValueRange, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.ref import plain
from tstatic.ir.split import FILTERS, Split
from tstatic.ir.torch_tables import fresh
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.sliding import (
    assemble,
    channels,
    first,
    first_shape,
    layout_attr,
    per_axis,
    spatial,
    torch_back,
    torch_first,
)
from tstatic.ops.conv import _conv_onnx as _onnx
from tstatic.tuned._common import Array

_SIZES = ("out_d", "out_h", "out_w")

Taps = tuple[tuple[Array, Array], ...]
"""Along one axis: for each tap the input's places and their weights, one per output place."""


# ----------------------------------------------------------------------------------------------------------------- taps
@lru_cache(maxsize=256)
def axis_taps(
    method: str, size: int, out: int, scale: float, align_corners: bool, align_mode: int, dtype: np.dtype[Any]
) -> Taps:
    """Returns what each output place reads.

    With ``align_corners`` the source of place ``i`` is ``i * (size - 1) / (out - 1)``. Else, with the ratio ``r`` of input to
    output (``1 / scale`` where a scale was given), it is ``i * r`` for nearest and for ``align_mode`` 1, and
    ``(i + 0.5) * r - 0.5`` for ``align_mode`` 0 and for cubic.

    Args:
        method: ``nearest``, ``linear`` or ``cubic``.
        size, out: Sizes of input and output.
        scale: The user's scale, 0 if sizes were given.
        align_corners, align_mode: As above.
        dtype: Float type of the weights. Places are found in float64; for nearest in float32, as Paddle and torch do.
    """
    # In float64 the nearest place would round otherwise, and differ where it lies between two pixels.
    kind: Any = np.float32 if method == "nearest" else np.float64
    place = np.arange(out, dtype=kind)
    if align_corners:
        # A single place reads the first one.
        ratio = kind((size - 1) / (out - 1)) if out > 1 else kind(0)
    else:
        # The given scale, not the rounded sizes, is the ratio: 5 * 0.5 gives 2 places, 2 apart.
        ratio = kind(1.0 / scale) if scale > 0 else kind(size / out) if out else kind(0)
    if method == "nearest":
        source = place * ratio + kind(0.5) if align_corners else place * ratio
        return ((np.minimum(source.astype(np.int64), size - 1), np.ones(out, dtype)),)
    plain = align_corners or (align_mode == 1 and method == "linear")
    source = place * ratio if plain else (place + 0.5) * ratio - 0.5
    if method == "linear":
        # Before the first place's middle the first value is repeated, as torch and Paddle do.
        source = np.maximum(source, 0)
        # Never negative here, so truncation is rounding down.
        low = np.minimum(source.astype(np.int64), size - 1)
        # Rounded once, from places in float64.
        part = np.clip(source - low, 0, 1).astype(dtype)
        return (low, 1 - part), (np.minimum(low + 1, size - 1), part)
    low = np.floor(source).astype(np.int64)
    # Places beyond the border read the border's value; weights stay, so that they still sum to 1.
    return tuple((np.clip(low + k, 0, size - 1), _cubic(source - low - k).astype(dtype)) for k in range(-1, 3))


def _cubic(distance: Array) -> Array:
    """Returns Keys' cubic kernel with a = -0.75."""
    # Paddle's and torch's constant; Keys' own was -0.5.
    a = -0.75
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, far)


_METHOD = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


class Resize:
    """Output sizes, and the taps of each axis."""

    def __init__(self, sizes: Sequence[int], attrs: Mapping[str, Any]) -> None:
        rank = len(sizes)
        self.method = _METHOD[attrs["interp_method"]]
        given = [attrs[n] for n in _SIZES[3 - rank :]]
        scale = attrs["scale"]
        self.scales = per_axis(scale, rank) or (0.0,) * rank
        # A scale beats sizes, as in Paddle.
        self.outs = tuple(
            (UNKNOWN if size == UNKNOWN else int(size * s)) if s > 0 else out
            for size, s, out in zip(sizes, self.scales, given, strict=True)
        )
        self.sizes = tuple(sizes)
        self.align = attrs["align_corners"], attrs["align_mode"]

    def taps(self, dtype: np.dtype[Any]) -> list[Taps]:
        return [
            axis_taps(self.method, size, out, scale, *self.align, dtype)
            for size, out, scale in zip(self.sizes, self.outs, self.scales, strict=True)
        ]


# ------------------------------------------------------------------------------------------------------------ reference
def _infer(x: Meta, **attrs: Any) -> Meta:
    layout = attrs["data_layout"]
    method = attrs["interp_method"]
    # The nearest value is copied, so that masks of integers can be resized.
    if method != "nearest":
        check_dtype(x, FLOATS, "X")
    ranks = {"linear": (3,), "trilinear": (5,), "nearest": (3, 4, 5)}.get(method, (4,))
    check_rank(x, ranks, "X", layout=layout)
    check_length(attrs["scale"], (0, 1, x.rank - 2), "scale", why="one per spatial axis")
    sizes = spatial(x.shape, layout)
    outs = Resize(sizes, attrs).outs
    if any(o <= 0 for o, s in zip(outs, sizes, strict=True) if UNKNOWN not in (o, s)) or 0 in sizes:
        raise ShapeError(
            "the input and output of an interpolation need positive sizes",
            expected="sizes of at least 1",
            received=f"input {list(sizes)}, output {list(outs)}",
            fix="give out sizes or a scale that leave at least one place",
        )
    return x.with_shape(assemble(x.shape[0], channels(x.shape, layout), outs, layout))


def _chain(shape: Sequence[int], resize: Resize) -> list[tuple[int, ...]]:
    """Returns the shapes between the axes' steps: the first spatial axis is resized first."""
    current = list(shape)
    found = []
    for axis, out in enumerate(resize.outs):
        current[axis + 2] = out
        found.append(tuple(current))
    return found


def _scratch(x: Meta, out: Meta, **attrs: Any) -> tuple[Meta, ...]:
    layout, dtype = attrs["data_layout"], x.dtype.compute
    shape = first_shape(x.shape, layout)
    chain = _chain(shape, Resize(shape[2:], attrs))
    # The last buffer is for further taps of any axis, so it has the largest size.
    return (*(Meta(s, dtype) for s in chain), Meta((max(map(math.prod, chain)),), dtype))


def _weights(weight: Array, axis: int, rank: int) -> Array:
    return weight.reshape(-1, *[1] * (rank - axis - 1))


@in_float32()
def _ref(x: Array, out: Array, scratch: Sequence[Array], **attrs: Any) -> None:
    source = first(x, attrs["data_layout"])
    resize = Resize(source.shape[2:], attrs)
    # Axis by axis: 4 + 4 cubic taps in an image instead of 4 * 4.
    for axis, taps in enumerate(resize.taps(out.dtype)):
        target = scratch[axis]
        for k, (place, weight) in enumerate(taps):
            # The first tap writes the target; others are added, in the taps' order.
            room = target if k == 0 else scratch[-1][: target.size].reshape(target.shape)
            np.take(source, place, axis=axis + 2, out=room, mode="clip")
            if resize.method != "nearest":
                np.multiply(room, _weights(weight, axis + 2, room.ndim), room)
            if k:
                np.add(target, room, target)
        source = target
    np.copyto(first(out, attrs["data_layout"]), source)


def _grad_scratch(x: Meta, dout: Meta, dx: Meta, **attrs: Any) -> tuple[Meta, ...]:
    layout, dtype = attrs["data_layout"], x.dtype.compute
    shape = first_shape(x.shape, layout)
    chain = [shape, *_chain(shape, Resize(shape[2:], attrs))]
    return tuple(Meta(s, dtype) for s in chain[:-1])


@in_float32()
def _grad_ref(x: Array, dout: Array, dx: Array, scratch: Sequence[Array], **attrs: Any) -> None:
    layout = attrs["data_layout"]
    gradient = first(dout, layout)
    resize = Resize(first(dx, layout).shape[2:], attrs)
    # The transpose of each axis' step, last axis first.
    for axis, taps in reversed(list(enumerate(resize.taps(dx.dtype)))):
        target = scratch[axis]
        target.fill(0)
        lead: tuple[Any, ...] = (slice(None),) * (axis + 2)
        for place, weight in taps:
            # Place by place: one input place has several readers, which are added in order.
            for i, (p, w) in enumerate(zip(place.tolist(), weight, strict=True)):
                here = target[(*lead, p)]
                part = gradient[(*lead, i)]
                np.add(here, part if resize.method == "nearest" else part * w, here)
        gradient = target
    np.copyto(first(dx, layout), gradient)


def _cost(x: Meta, out: Meta) -> Cost:
    # An estimate: 8 operations for each place, whatever the method.
    return Cost(8.0 * out.numel, float(x.nbytes + out.nbytes))


# ---------------------------------------------------------------------------------------------------------------- torch
def _torch_resize(torch: Any, source: Any, attrs: Mapping[str, Any], tables: Any) -> Any:
    """Interpolates a channels-first tensor: torch's function where the meanings agree, else gathers and sums."""
    resize = Resize(source.shape[2:], attrs)
    align, mode = resize.align
    if not any(resize.scales) and attrs["interp_method"] != "nearest" and (align or mode == 0):
        # In float64, because torch finds its weights in the input's own precision.
        f = torch.nn.functional
        wide = f.interpolate(source.double(), resize.outs, mode=attrs["interp_method"], align_corners=align)
        return wide.to(source.dtype)
    if not any(resize.scales) and not align and attrs["interp_method"] == "nearest" and source.is_floating_point():
        return torch.nn.functional.interpolate(source, resize.outs, mode="nearest")
    kind = np.dtype(str(source.dtype).removeprefix("torch."))
    for axis, taps in enumerate(resize.taps(kind)):
        total: Any = 0
        for place, weight in taps:
            index = tables(torch, place, torch.int64, source.device)
            shape = (-1, *[1] * (source.dim() - axis - 3))
            factor = tables(torch, weight.tolist(), source.dtype, source.device).reshape(shape)
            # As in the reference: the first tap first.
            total = total + source.index_select(axis + 2, index) * factor
        source = total
    return source


def _lower(torch: Any, x: Any, *, tables: Any = fresh, **attrs: Any) -> Any:
    layout = attrs["data_layout"]
    return torch_back(_torch_resize(torch, torch_wide(torch_first(x, layout)), attrs, tables), layout, x.dtype)


def _grad_lower(torch: Any, x: Any, dout: Any, *, tables: Any = fresh, **attrs: Any) -> Any:
    layout = attrs["data_layout"]
    arrived = torch_wide(torch_first(dout, layout))
    shape = torch_first(x, layout).shape
    if not x.numel():
        return torch.zeros_like(x)
    resize = Resize(shape[2:], attrs)
    align, mode = resize.align
    method = attrs["interp_method"]
    if not any(resize.scales) and (method != "nearest" or not align) and (method == "nearest" or align or mode == 0):
        function = getattr(torch.ops.aten, f"upsample_{method}{len(shape) - 2}d_backward")
        given = (resize.outs, shape) if method == "nearest" else (resize.outs, shape, align)
        wide = function(arrived if method == "nearest" else arrived.double(), *given)
        return torch_back(wide, layout, x.dtype)
    kind = np.dtype(str(arrived.dtype).removeprefix("torch."))
    for axis, taps in reversed(list(enumerate(resize.taps(kind)))):
        total = arrived.new_zeros([*arrived.shape[: axis + 2], shape[axis + 2], *arrived.shape[axis + 3 :]])
        for place, weight in taps:
            index = tables(torch, place, torch.int64, arrived.device)
            wide = (-1, *[1] * (arrived.dim() - axis - 3))
            factor = tables(torch, weight.tolist(), arrived.dtype, arrived.device).reshape(wide)
            total.index_add_(axis + 2, index, arrived * factor)
        arrived = total
    return torch_back(arrived, layout, x.dtype)


def _onnx_form(g: Any, x: Any, **attrs: Any) -> Any:
    layout = attrs["data_layout"]
    return _onnx.resize(g, x, Resize(first_shape(x.shape, layout)[2:], attrs), layout)


# -------------------------------------------------------------------------------------------------- op definitions
def _case(shape: tuple[int, ...], outs: Sequence[int] = (), **attrs: Any) -> Case:
    sizes = dict(zip(_SIZES[3 - len(outs) :], outs, strict=True))
    return Case((shape,), {**sizes, **attrs})


def _cases(rank: int) -> tuple[Case, ...]:
    small, large, odd = (3, 4, 2)[:rank], (5, 7, 3)[:rank], (4, 3, 5)[:rank]
    modes = [{"align_corners": a, "align_mode": m} for a in (False, True) for m in (0, 1)]
    return (
        *(_case((2, 2, *small), large, **m) for m in modes),
        *(_case((1, 2, *large), small, **m) for m in modes),
        _case((1, *odd, 2), small, align_corners=False, data_layout=("NLC", "NHWC", "NDHWC")[rank - 1]),
        _case((1, 2, *small), scale=(1.7,), align_corners=False, align_mode=0),
        _case((1, 2, *odd), scale=(2.0, 0.7, 1.5)[:rank], align_corners=False, align_mode=1),
        _case((2, 1, *small), (1,) * rank),
        _case((1, 1, *(1,) * rank), small, align_corners=False),
        _case((0, 2, *small), large),
    )


# The nearest place has one op for all ranks.
_OTHER_RANKS = (
    _case((1, 2, 3, 2, 4), (2, 3, 5), align_corners=False),
    _case((1, 3, 2, 2, 2), (4, 1, 3), align_corners=True),
    _case((2, 2, 5), (8,), align_corners=False),
)


def _write(op: PaddleOp) -> list[OpSpec]:
    """Paddle's kernels name all layouts as those of images."""
    layout = "NHWC" if op.attrs["data_layout"].endswith("C") else "NCHW"
    return [op.made(attrs={**op.attrs, "data_layout": layout})]


def _register(type: str, rank: int, layout: str) -> None:
    method = type.removesuffix("_interp_v2")
    nearest, linear = method == "nearest", method.endswith("linear")
    attrs = {
        "data_layout": layout_attr(layout),
        "out_d": Attr(-1, "int", no_effect="" if rank == 3 else "the input has no depth"),
        "out_h": Attr(-1, "int", no_effect="the input has no height" if rank == 1 else ""),
        "out_w": Attr(-1, "int"),
        "scale": Attr((), "floats", lambda s: None if all(v > 0 for v in s) else "scales above 0"),
        "interp_method": Attr(method, "str", one_of(method)),
        "align_corners": True,
        "align_mode": Attr(
            1,
            "int",
            lambda m: None if m in (0, 1) else "0 or 1",
            no_effect="" if linear else "it chooses between two ways to interpolate linearly",
        ),
    }
    domain = Domain(
        cases=(*_cases(rank), *(_OTHER_RANKS if nearest else ())),
        # Positive values: a cubic sum that cancels has no digits to compare.
        values={"X": ValueRange(0.5, 2.0)} if method == "bicubic" else {},
        others=("int64", "int32", "uint8") if nearest else (),
        ulps=0.0 if nearest else 32.0,
    )
    split = Split(FILTERS, 0, work=1)  # of images of the result, or of its gradient
    grad = GradOp(
        "X, Out@GRAD -> X@GRAD", ref=plain(_grad_ref, _grad_scratch), lower=_grad_lower, split=split, shape_only=("X",)
    )  # fmt: skip
    register(OpDef(
        type, "X -> Out", attrs=attrs, infer=_infer, ref=plain(_ref, _scratch), lower=_lower,
        split=split, cost=_cost, grad=grad, amp="float32", domain=domain, paddle=PaddleForm(write=_write), onnx=_onnx_form,
    ))  # fmt: skip


_register("nearest_interp_v2", 2, "NCHW")
_register("linear_interp_v2", 1, "NCL")
_register("bilinear_interp_v2", 2, "NCHW")
_register("trilinear_interp_v2", 3, "NCDHW")
_register("bicubic_interp_v2", 2, "NCHW")
