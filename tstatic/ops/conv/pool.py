"""Maximum and average pooling over two or three axes: sliding, global and adaptive windows; maxima also with their places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.attrs import one_of
from tstatic.ir.checks import FLOATS, check_dtype, check_rank, check_sizes
from tstatic.ir.opdef import Attr, Case, Cost, Domain, GradOp, OpDef, OpSpec, ValueRange, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.ref import plain
from tstatic.ir.shape_checks import check_elements
from tstatic.ir.torch_tables import fresh
from tstatic.ir.traits import SlowOnCpu
from tstatic.ir.types import UNKNOWN, Meta, int32
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.sliding import (
    ALGORITHMS,
    LAYOUTS_BY_RANK,
    Pairs,
    as_metas,
    assemble,
    channels,
    check_lengths,
    check_no_windows,
    first,
    first_shape,
    is_last,
    layout_attr,
    not_negative,
    of_any_batch,
    pads_of,
    per_axis,
    positive,
    spatial,
    split_batch,
    torch_back,
    torch_first,
)
from tstatic.ops.conv import _conv_onnx as _onnx
from tstatic.tuned._common import Array
from tstatic.tuned.pool import (
    Axes,
    Extents,
    adaptive_bounds,
    avg_pool,
    avg_pool_grad,
    avg_pool_grad_scratch,
    max_pool,
    max_pool_grad,
    max_pool_grad_scratch,
    max_pool_index,
    max_pool_index_grad,
    max_pool_index_grad_scratch,
    max_pool_scratch,
    padded_extents,
    pool_bounds,
)


def _window_attrs(rank: int) -> dict[str, Any]:
    """Returns the attributes of both pooling ops."""
    return {
        "ksize": Attr(kind="ints"),
        "strides": Attr((1,) * rank, "ints", positive),
        "paddings": Attr((0,) * rank, "ints", not_negative),
        "global_pooling": False,
        "adaptive": False,
        "ceil_mode": False,
    }


# ------------------------------------------------------------------------------------------------------------- geometry
def pooled_size(size: int, kernel: int, stride: int, pad: tuple[int, int], ceil_mode: bool) -> int:
    """Returns the number of windows along one axis, by Paddle's rule.

    With ``ceil_mode`` a last window may hang over the end, wherever it begins (torch leaves it out if it would begin in
    the padding behind the input). An input that is smaller than the window, by less than a stride, has one window.
    """
    # Rounded up, so that a last window covers what is left over.
    room = size + pad[0] + pad[1] - kernel + (stride - 1 if ceil_mode else 0)
    if room < 0:
        # Paddle's division rounds towards 0, so a window a little larger than the input counts once.
        return int(size > 0 and -room < stride)
    return room // stride + 1


class Pooling:
    """The windows of one pooling op.

    Attributes:
        outs: Output sizes, unknown where the input's are.
        pads: Padding per axis.
    """

    def __init__(self, sizes: Sequence[int], attrs: Mapping[str, Any]) -> None:
        self.sizes = tuple(sizes)
        rank = len(sizes)
        kernel = per_axis(attrs["ksize"], rank)
        self.adaptive = attrs["adaptive"]
        self.ceil_mode = attrs["ceil_mode"]
        self.pads: Pairs = ((0, 0),) * rank
        self.strides = per_axis(attrs["strides"], rank)
        if attrs["global_pooling"]:
            # A global pooling is an adaptive one to a single place.
            self.adaptive, kernel = True, (1,) * rank
        self.kernel = kernel
        if self.adaptive:
            self.outs = kernel
            return
        algorithm = attrs.get("padding_algorithm", "EXPLICIT")
        self.pads = pads_of(attrs["paddings"], algorithm, sizes, kernel, self.strides)
        self.outs = tuple(
            UNKNOWN if size == UNKNOWN else pooled_size(size, k, s, pad, self.ceil_mode)
            for size, k, s, pad in zip(sizes, kernel, self.strides, self.pads, strict=True)
        )

    @property
    def _axes(self) -> list[tuple[int, int, int, tuple[int, int], int]]:
        return list(zip(self.sizes, self.kernel, self.strides, self.pads, self.outs, strict=True))

    @property
    def bounds(self) -> Axes:
        """Bounds of the windows along each axis, clipped to the input."""
        return tuple(
            adaptive_bounds(size, out) if self.adaptive else pool_bounds(size, k, s, pad[0], out)
            for size, k, s, pad, out in self._axes
        )

    def extents(self, exclusive: bool) -> Extents | None:
        """Returns what averages divide by, per axis; ``None`` for the number of values inside the input."""
        if self.adaptive or exclusive:
            return None
        return tuple(padded_extents(size, k, s, *pad, out) for size, k, s, pad, out in self._axes)

    def torch_pads(self) -> list[int]:
        """Returns paddings for ``torch.nn.functional.pad``, with what a last window needs beyond them; a negative one crops."""
        pads: list[int] = []
        for size, k, s, (before, after), out in self._axes:
            # Missing places behind the last window are padding; superfluous ones are cropped.
            pads = [before, max(after, (out - 1) * s + k - size - before), *pads]
        return pads


@of_any_batch
def _infer(rank: int, x: Meta, attrs: Mapping[str, Any]) -> Meta:
    """Infers the shape of a pooling op's output over ``rank`` axes.

    Raises:
        ShapeError: If the input has another rank, an attribute has the wrong length, or the window does not fit.
        DTypeError: If integers are averaged.
    """
    layout = attrs.get("data_format", LAYOUTS_BY_RANK[rank][0])
    check_rank(x, (rank + 2,), "X", layout=layout)
    check_lengths(rank, ksize=attrs["ksize"], strides=attrs["strides"], paddings=attrs["paddings"])
    if attrs.get("pooling_type") == "avg":
        check_dtype(x, FLOATS, "X")
    sizes = spatial(x.shape, layout)
    if not attrs["global_pooling"]:
        check_sizes(attrs["ksize"], "ksize", least=1)
    pooling = Pooling(sizes, attrs)
    if not pooling.adaptive:
        check_no_windows(sizes, pooling.outs, pooling.kernel, pooling.pads)
        explicit = attrs.get("padding_algorithm", "EXPLICIT") == "EXPLICIT"
        for axis, (pad, kernel) in enumerate(zip(pooling.pads, pooling.kernel, strict=True)):
            # Such a window would have only padding: a maximum of minus infinity, an average of nothing.
            if explicit and max(pad) >= kernel:
                raise ShapeError(
                    f"the padding of a pooling leaves a window without values along spatial axis {axis}",
                    expected=f"paddings below the kernel size {kernel}",
                    received=list(pad),
                    fix="use a smaller padding",
                )
    else:
        axes = tuple(range(1, rank + 1) if is_last(layout) else range(2, rank + 2))
        check_elements(x, axes, "an adaptive or global pooling", fix="feed images that are not empty")
    return x.with_shape(assemble(x.shape[0], channels(x.shape, layout), pooling.outs, layout))


# ----------------------------------------------------------------------------------------------------- averages, maxima
def _scratch(x: Meta, out: Meta, **attrs: Any) -> tuple[Meta, ...]:
    # Averages sum into the output itself.
    if attrs["pooling_type"] != "max":
        return ()
    layout = attrs["data_format"]
    return as_metas(max_pool_scratch(first_shape(x.shape, layout), first_shape(out.shape, layout), x.dtype.compute.np))


@in_float32()
def _ref(x: Array, out: Array, scratch: Sequence[Array] = (), **attrs: Any) -> None:
    layout = attrs["data_format"]
    source, target = first(x, layout), first(out, layout)
    pooling = Pooling(source.shape[2:], attrs)
    if attrs["pooling_type"] == "max":
        max_pool(source, target, pooling.bounds, scratch)
        return
    avg_pool(source, target, pooling.bounds, pooling.extents(attrs["exclusive"]))


def _grad_scratch(x: Meta, out: Meta, dout: Meta, dx: Meta, **attrs: Any) -> tuple[Meta, ...]:
    layout, dtype = attrs["data_format"], dout.dtype.compute.np
    large, small = first_shape(x.shape, layout), first_shape(out.shape, layout)
    if attrs["pooling_type"] == "max":
        return as_metas(max_pool_grad_scratch(large, small, dtype))
    return as_metas(avg_pool_grad_scratch(large, small, dtype))


@in_float32()
def _grad_ref(x: Array, out: Array, dout: Array, dx: Array, scratch: Sequence[Array], **attrs: Any) -> None:
    layout = attrs["data_format"]
    gradient, target = first(dout, layout), first(dx, layout)
    pooling = Pooling(target.shape[2:], attrs)
    if attrs["pooling_type"] == "max":
        max_pool_grad(first(x, layout), first(out, layout), gradient, target, pooling.bounds, scratch)
        return
    avg_pool_grad(gradient, target, pooling.bounds, scratch, pooling.extents(attrs["exclusive"]))


_SLOW = SlowOnCpu("torch looks at one element at a time there, and a maximum's gradient needs its places again")


def _torch_function(torch: Any, name: str, rank: int) -> Any:
    return getattr(torch.nn.functional, f"{name}{rank}d")


def _alike(pooling: Pooling, maximum: bool) -> bool:
    """Whether torch pools like this by itself: paddings alike at both ends, and as many windows."""
    pads = pooling.torch_pads()
    # torch takes padding of at most half a window.
    alike = all(pads[2 * i] == pads[2 * i + 1] and 2 * pads[2 * i] <= k for i, k in enumerate(pooling.kernel[::-1]))
    return alike and (maximum or not pooling.ceil_mode)


def _averages_wide(pooling: Pooling, *, pooling_type: str, **attrs: Any) -> bool:
    """Whether averages of 16 bits are computed in float32: sums that are divided afterwards, and what torch has not."""
    whole = pooling.adaptive or _alike(pooling, maximum=False)
    return pooling_type == "avg" and (len(pooling.sizes) == 3 or not whole)


def _torch_plan(
    torch: Any, x: Any, pooling: Pooling, maximum: bool, exclusive: bool, tables: Any
) -> tuple[Any, Any, bool, Any]:
    """Returns how torch's functions pool a channels-first tensor: its input, paddings, whether those count, and a divisor.

    torch has one padding per axis, of at most half a window, and another rule for ``ceil_mode``: others are put on beforehand.
    ``None`` as the divisor says that torch's own is right.
    """
    rank, pads = len(pooling.sizes), pooling.torch_pads()
    if _alike(pooling, maximum):
        return x, pads[::-2], not exclusive, None
    # Minus infinity is not the maximum of a window that holds a number.
    padded = torch.nn.functional.pad(x, pads, value=-float("inf") if maximum else 0.0)
    zeros = [0] * rank
    if maximum:
        return padded, zeros, False, None
    extents = pooling.extents(exclusive)
    if extents is None:
        ones = torch.ones(1, 1, *x.shape[2:], dtype=x.dtype, device=x.device)
        ones = torch.nn.functional.pad(ones, pads)
        # A count of what lies inside: the sum of ones under each window.
        divisor = _torch_function(torch, "avg_pool", rank)(ones, pooling.kernel, pooling.strides, divisor_override=1)
    else:
        divisor = _outer(torch, [tables(torch, e, x.dtype, x.device) for e in extents])
    # A window without values has the sum 0, whatever it is divided by.
    return padded, zeros, True, divisor.clamp(min=1)


def _torch_pool(torch: Any, x: Any, tables: Any, **attrs: Any) -> Any:
    """Pools a channels-first tensor by torch's functions."""
    pooling = Pooling(x.shape[2:], attrs)
    rank, kind = len(pooling.sizes), attrs["pooling_type"]
    if _averages_wide(pooling, **attrs):
        x = torch_wide(x)
    if pooling.adaptive:
        return _torch_function(torch, f"adaptive_{kind}_pool", rank)(x, pooling.outs)
    source, pads, counts, divisor = _torch_plan(torch, x, pooling, kind == "max", attrs["exclusive"], tables)
    pool = _torch_function(torch, f"{kind}_pool", rank)
    if kind == "max":
        return pool(source, pooling.kernel, pooling.strides, pads)
    if divisor is None:
        return pool(source, pooling.kernel, pooling.strides, pads, False, counts)
    # Sums, which are divided by the counts of Paddle.
    sums = pool(source, pooling.kernel, pooling.strides, divisor_override=1)
    return (sums / divisor)[..., *map(slice, pooling.outs)]


def _torch_pool_grad(torch: Any, x: Any, dout: Any, tables: Any, **attrs: Any) -> Any:
    """Returns the gradient of :func:`_torch_pool`."""
    pooling = Pooling(x.shape[2:], attrs)
    rank, aten, maximum = len(pooling.sizes), torch.ops.aten, attrs["pooling_type"] == "max"
    if _averages_wide(pooling, **attrs):
        x, dout = torch_wide(x), torch_wide(dout)
    if pooling.adaptive:
        if maximum:
            index = _torch_function(torch, "adaptive_max_pool", rank)(x, pooling.outs, return_indices=True)[1]
            return getattr(aten, f"adaptive_max_pool{rank}d_backward")(dout, x, index)
        # The gradient of a single window is one number per channel.
        if pooling.outs == (1,) * rank:
            return torch.div(dout.expand(x.shape), math.prod(pooling.sizes))
        return getattr(aten, f"_adaptive_avg_pool{rank}d_backward")(dout, x)
    kernel, strides, ones = pooling.kernel, pooling.strides, [1] * rank
    source, pads, counts, divisor = _torch_plan(torch, x, pooling, maximum, attrs["exclusive"], tables)
    # On a GPU torch takes both to lie alike, whatever strides they have.
    source, dout = _in_one_order(torch, source, dout)
    if maximum:
        with_index = getattr(aten, f"max_pool{rank}d_with_indices")
        index = with_index(source, kernel, strides, pads)[1]
        back = getattr(aten, f"max_pool{rank}d_with_indices_backward")
        dx = back(dout, source, kernel, strides, pads, ones, False, index)
    else:
        override = None
        if divisor is not None:
            dout, override = dout / divisor[..., *map(slice, pooling.outs)], 1
            # torch makes every window that fits the padded input; those that Paddle leaves out have gradient 0.
            places = [(n - k) // s + 1 for n, k, s in zip(source.shape[2:], kernel, strides, strict=True)]
            missing = [m for n, d in zip(places[::-1], pooling.outs[::-1], strict=True) for m in (0, n - d)]
            dout = torch.nn.functional.pad(dout, missing) if any(missing) else dout
        back = getattr(aten, f"avg_pool{rank}d_backward")
        dx = back(dout, source, kernel, strides, pads, False, counts, override)
    for axis, (size, (before, _)) in enumerate(zip(x.shape[2:], pooling.pads, strict=True)):
        if dx.shape[axis + 2] != size:
            dx = dx.narrow(axis + 2, before, size)
    return dx


def _in_one_order(torch: Any, *given: Any) -> list[Any]:
    """Returns tensors that all have their channels last, or all have elements beside each other in the order of their axes."""
    if all(x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) for x in given):
        return list(given)
    return [x.contiguous() for x in given]


def _outer(torch: Any, factors: Sequence[Any]) -> Any:
    """Returns the products of one entry per axis."""
    return math.prod(f.reshape(-1, *[1] * (len(factors) - 1 - axis)) for axis, f in enumerate(factors))


def _lower(torch: Any, x: Any, *, tables: Any = fresh, **attrs: Any) -> Any:
    layout = attrs["data_format"]
    return torch_back(_torch_pool(torch, torch_first(x, layout), tables, **attrs), layout, x.dtype)


def _grad_lower(torch: Any, x: Any, out: Any, dout: Any, *, tables: Any = fresh, **attrs: Any) -> Any:
    layout = attrs["data_format"]
    dx = _torch_pool_grad(torch, torch_first(x, layout), torch_first(dout, layout), tables, **attrs)
    return torch_back(dx, layout, x.dtype)


def _cost(x: Meta, out: Meta, **attrs: Any) -> Cost:
    layout = attrs["data_format"]
    pooling = Pooling(spatial(x.shape, layout), attrs)
    # Adaptive windows differ in size; on average each covers the input divided by the output.
    window = max(x.numel // max(out.numel, 1), 1) if pooling.adaptive else math.prod(pooling.kernel)
    return Cost(float(out.numel * window), float(x.nbytes + out.nbytes))


def _grad_cost(x: Meta, out: Meta, dout: Meta, dx: Meta, **attrs: Any) -> Cost:
    # Maxima are looked for again, and each average is spread.
    return _cost(x, out, **attrs).times(2)


def _both(shape: tuple[int, ...], **attrs: Any) -> tuple[Case, ...]:
    return tuple(Case((shape,), {"pooling_type": kind, **attrs}) for kind in ("max", "avg"))


# For each option a maximum and an average; what only averages can have comes without its maximum.
_CASES_2D = (
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
# The options along three axes.
_CASES_3D = (
    *_both((2, 2, 4, 4, 2), ksize=(2, 2, 2), strides=(2, 2, 2)),
    *_both((1, 2, 4, 5, 3), ksize=(3, 3, 2), strides=(2, 2, 1), paddings=(1, 1, 0), exclusive=False),
    *_both((1, 1, 3, 4, 5), ksize=(2, 2, 3), strides=(2, 1, 2), paddings=(0, 1, 1, 0, 1, 1), ceil_mode=True),
    *_both((1, 2, 3, 2, 4), ksize=(1, 1, 1), global_pooling=True),
    *_both((1, 2, 5, 3, 4), ksize=(3, 2, 4), adaptive=True),
    *_both((1, 3, 4, 3, 2), ksize=(2, 2, 2), strides=(1, 2, 1), paddings=(1, 1, 0), data_format="NDHWC"),
    *_both((1, 1, 5, 4, 3), ksize=(3, 3, 2), strides=(2, 2, 2), padding_algorithm="SAME"),
    *_both((0, 1, 2, 2, 2), ksize=(2, 2, 2)),
)


def _register_pool(type: str, rank: int, cases: tuple[Case, ...]) -> None:
    layout = LAYOUTS_BY_RANK[rank][0]

    def infer(x: Meta, **attrs: Any) -> Meta:
        return _infer(rank, x, attrs)

    def write(op: PaddleOp) -> list[OpSpec]:
        """The adaptive maximum is the op with places in Paddle; its plain op takes other windows."""
        if not op.attrs["adaptive"] or op.attrs["pooling_type"] != "max" or op.attrs["data_format"] != layout:
            return [op.made()]
        assert op.fresh is not None
        places = op.fresh(Meta(tuple(op.shapes[op.result] or ()), int32))
        attrs = {name: op.attrs[name] for name in ("ksize", "strides", "paddings", "global_pooling", "adaptive")}
        outputs = {**op.outputs, "Mask": [places]}
        return [op.made(f"max_pool{rank}d_with_index", outputs=outputs, attrs=attrs)]

    register(OpDef(
        type, "X -> Out", paddle=PaddleForm(write=write),
        attrs={
            **_window_attrs(rank),
            "pooling_type": Attr("max", "str", one_of("max", "avg")),
            "exclusive": True,
            "padding_algorithm": Attr("EXPLICIT", "str", one_of(*ALGORITHMS)),
            "data_format": layout_attr(layout),
        },
        infer=infer, ref=plain(_ref, _scratch, recorded=True), lower=_lower, traits=(_SLOW,),
        split=split_batch, cost=_cost,
        grad=GradOp(
            "X, Out, Out@GRAD -> X@GRAD",
            ref=plain(_grad_ref, _grad_scratch, recorded=True),
            lower=_grad_lower,
            traits=(_SLOW,),
            split=split_batch,
            cost=_grad_cost,
        ),
        amp="gray", domain=Domain(cases=cases, values={"X": ValueRange(-2.0, 2.0, distinct=True)}),
            onnx=lambda g, x, *, pooling_type, exclusive, data_format, **a: _onnx.pool(
            g, x, Pooling(first_shape(x.shape, data_format)[2:], a), data_format, pooling_type == "avg", exclusive
        ),
    ))  # fmt: skip


_register_pool("pool2d", 2, _CASES_2D)
_register_pool("pool3d", 3, _CASES_3D)


# -------------------------------------------------------------------------------------------- maxima with their places
@in_float32(outputs=2)
def _index_ref(x: Array, out: Array, mask: Array | None, **attrs: Any) -> None:
    axes = Pooling(x.shape[2:], attrs).bounds
    max_pool(x, out, axes)
    if mask is not None:
        max_pool_index(x, out, mask, axes)


def _index_lower(torch: Any, x: Any, *, tables: Any = fresh, **attrs: Any) -> Any:
    pooling = Pooling(x.shape[2:], attrs)
    # torch has no maxima of integers by windows; a float64 holds those up to 2^53.
    rank, source = len(pooling.sizes), x if x.is_floating_point() else x.double()
    if pooling.adaptive:
        out, index = _torch_function(torch, "adaptive_max_pool", rank)(source, pooling.outs, return_indices=True)
        # Places are int32, as in Paddle.
        return out.to(x.dtype), index.int()
    padded = torch.nn.functional.pad(source, pooling.torch_pads(), value=-float("inf"))
    pool = _torch_function(torch, "max_pool", rank)
    out, index = pool(padded, pooling.kernel, pooling.strides, return_indices=True)
    # From a place in the padded volume to one in the input.
    place, inner = torch.zeros_like(index), torch.ones_like(index)
    for size, wide, (before, _) in reversed(list(zip(pooling.sizes, padded.shape[2:], pooling.pads, strict=True))):
        place = place + (index % wide - before) * inner
        index, inner = index // wide, inner * size
    keep = (..., *map(slice, pooling.outs))
    full = _outer(torch, [tables(torch, [b > a for a, b in axis], torch.bool, x.device) for axis in pooling.bounds])
    return out[keep].to(x.dtype), torch.where(full.bool(), place[keep], -1).int()


def _index_grad_scratch(x: Meta, mask: Meta, dout: Meta, dx: Meta) -> tuple[Meta, ...]:
    return as_metas(max_pool_index_grad_scratch(dout.shape))


@in_float32()
def _index_grad_ref(x: Array, mask: Array, dout: Array, dx: Array, scratch: Sequence[Array]) -> None:
    max_pool_index_grad(mask, dout, dx, scratch)


def _index_grad_lower(torch: Any, x: Any, mask: Any, dout: Any) -> Any:
    # In float32: one place may be the maximum of several windows, and their gradients add up.
    target = torch_wide(torch.zeros_like(x, memory_format=torch.contiguous_format)).flatten(2)
    # A window of padding alone has the place -1.
    given = torch.where(mask < 0, 0, torch_wide(dout)).flatten(2)
    return target.scatter_add(2, mask.clamp(min=0).flatten(2).long(), given).view(x.shape).to(x.dtype)


# As above, for the ops that return places, which have fewer options.
_INDEX_CASES_2D = (
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

# The same along three axes.
_INDEX_CASES_3D = (
    Case(((2, 2, 4, 4, 2),), {"ksize": (2, 2, 2), "strides": (2, 2, 2)}),
    Case(((1, 2, 4, 5, 3),), {"ksize": (3, 3, 2), "strides": (2, 2, 1), "paddings": (1, 1, 0)}),
    Case(((1, 1, 3, 4, 5),), {"ksize": (2, 2, 3), "strides": (2, 1, 2), "ceil_mode": True}),
    Case(((1, 2, 3, 2, 4),), {"ksize": (1, 1, 1), "global_pooling": True}),
    Case(((1, 2, 5, 3, 4),), {"ksize": (3, 2, 4), "adaptive": True}),
    Case(((0, 1, 2, 2, 2),), {"ksize": (2, 2, 2)}),
)


def _register_index(type: str, rank: int, cases: tuple[Case, ...], amp: str) -> None:
    def infer(x: Meta, **attrs: Any) -> tuple[Meta, Meta]:
        out = _infer(rank, x, attrs)
        return out, out.with_dtype(int32)

    register(OpDef(
        type, "X -> Out, Mask", attrs=_window_attrs(rank), infer=infer, ref=_index_ref,
        lower=_index_lower, split=split_batch,
        grad=GradOp(
            "X, Mask, Out@GRAD -> X@GRAD",
            ref=plain(_index_grad_ref, _index_grad_scratch),
            lower=_index_grad_lower,
            split=split_batch,
            shape_only=("X",),
        ),
        amp=amp, domain=Domain(cases=cases, values={"X": ValueRange(-2.0, 2.0, distinct=True)}),
            onnx=lambda g, x, **a: _onnx.pool(g, x, Pooling(x.shape[2:], a), "NCHW", False, False, True),
    ))  # fmt: skip


_register_index("max_pool2d_with_index", 2, _INDEX_CASES_2D, amp="white")
_register_index("max_pool3d_with_index", 3, _INDEX_CASES_3D, amp="")
