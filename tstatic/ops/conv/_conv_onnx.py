"""Forms in ONNX of convolutions, pooling, resizing and what reads windows of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.types import UNKNOWN, int64
from tstatic.ops.base.onnx_layout import back, first
from tstatic.ops.base.sliding import Pairs, first_shape, per_axis
from tstatic.ops.conv._convolution import Window


def _check_same(g: Graph, x: Value, sizes: Sequence[int], attrs: Mapping[str, Any]) -> None:
    if attrs.get("padding_algorithm") == "SAME" and UNKNOWN in sizes:
        raise g.unknown(x, "the sizes that SAME pads")


def _ends(pads: Pairs) -> list[int]:
    return [before for before, _ in pads] + [after for _, after in pads]


# --------------------------------------------------------------------------------------------------------- convolutions
def conv(g: Graph, x: Value, w: Value, **attrs: Any) -> Value:
    layout = attrs["data_format"]
    source = first(g, x, layout)
    _check_same(g, x, source.shape[2:], attrs)
    window = Window(source.shape[2:], g.known(w)[2:], attrs)
    made = g(
        "Conv", source, w, strides=list(window.strides), pads=_ends(window.pads), dilations=list(window.dilations),
        group=window.groups, kernel_shape=list(window.kernel),
    )  # fmt: skip
    return back(g, made, x.rank, layout)


def conv_transpose(g: Graph, x: Value, w: Value, **attrs: Any) -> Value:
    layout = attrs["data_format"]
    source = first(g, x, layout)
    sizes = source.shape[2:]
    _check_same(g, x, sizes, attrs)
    window = Window(sizes, g.known(w)[2:], attrs)
    wanted = first_shape(g.outs[0].shape, layout)[2:]
    if UNKNOWN in sizes and attrs["output_size"]:
        raise g.unknown(x, "the sizes that output_size completes")
    given = per_axis(attrs["output_padding"], len(sizes)) or (0,) * len(sizes)
    # What is missing at the end stands behind the last window.
    more = [e if UNKNOWN in (o, s) else o - s for o, s, e in zip(wanted, window.sources(sizes), given, strict=True)]
    made = g(
        "ConvTranspose", source, w, strides=list(window.strides), pads=_ends(window.pads),
        dilations=list(window.dilations), group=window.groups, kernel_shape=list(window.kernel), output_padding=more,
    )  # fmt: skip
    return back(g, made, x.rank, layout)


# -------------------------------------------------------------------------------------------------------------- pooling
def pool(g: Graph, x: Value, pooling: Any, layout: str, average: bool, exclusive: bool, places: bool = False) -> Any:
    """Pools by a :class:`~tstatic.ops.conv.pool.Pooling`; with ``places`` returns where the maxima stood too."""
    source = first(g, x, layout)
    sizes = source.shape[2:]
    op = "AveragePool" if average else "MaxPool"
    kernel, strides, pads = list(pooling.kernel), list(pooling.strides), list(pooling.pads)
    if pooling.adaptive:
        if all(k == 1 for k in kernel) and not places:
            return back(g, g(f"Global{op}", source), x.rank, layout)
        if UNKNOWN in sizes:
            raise g.unknown(x, "the sizes that adaptive windows divide")
        # ONNX has no adaptive windows; equal ones are plain windows, as long as the stride.
        if any(s % k for s, k in zip(sizes, kernel, strict=True)):
            raise g.refuse("for adaptive windows of unequal sizes")
        kernel = strides = [s // k for s, k in zip(sizes, kernel, strict=True)]
    elif pooling.ceil_mode or any(
        s != UNKNOWN and s + a + b < k for s, (a, b), k in zip(sizes, pads, kernel, strict=True)
    ):
        if UNKNOWN in sizes:
            raise g.unknown(x, "the sizes of which the last windows hang over")
        # Padding behind the end makes room for the last window, wherever it begins.
        ends = [
            (o - 1) * s + k - n - a
            for o, s, k, n, (a, _) in zip(pooling.outs, strides, kernel, sizes, pads, strict=True)
        ]
        # ONNX counts such places as padding, Paddle does not count them.
        if average and not exclusive and any(e > b for e, (_, b) in zip(ends, pads, strict=True)):
            raise g.refuse("for averages over windows that hang over the padding")
        pads = [(a, max(e, b)) for (a, b), e in zip(pads, ends, strict=True)]
    # A window of padding alone has no maximum and no average; runtimes differ in what they give.
    if any(max(pair) >= k for pair, k in zip(pads, kernel, strict=True)):
        raise g.refuse("for padding as wide as the window")
    # Adaptive windows have no padding to count.
    own: dict[str, Any] = {"count_include_pad": int(not exclusive and not pooling.adaptive)} if average else {}
    shared: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": _ends(tuple(pads))}
    if not places:
        return back(g, g(op, source, **shared, **own), x.rank, layout)
    if UNKNOWN in sizes:
        raise g.unknown(x, "the sizes of the images whose places are told")
    values, found = g(op, source, **shared, count=2)
    # Places count in one image; ONNX counts on over all of them.
    found = Value(found.name, g.ints([0]).dtype)
    return values, g("Mod", found, g.const(np.int64(np.prod(sizes))))


# ------------------------------------------------------------------------------------------------------------- resizing
def resize(g: Graph, x: Value, resize: Any, layout: str) -> Value:
    """Resizes as a :class:`~tstatic.ops.conv.interpolate.Resize` says."""
    source = first(g, x, layout)
    align, mode = resize.align
    if align:
        where = "align_corners"
    elif resize.method == "nearest" or (resize.method == "linear" and mode == 1):
        where = "asymmetric"
    else:
        where = "half_pixel"
    scales: Value | None = None
    sizes: Value | None = None
    if all(s > 0 for s in resize.scales):
        scales = g.const(np.asarray([1, 1, *resize.scales], np.float32))
    elif any(s > 0 for s in resize.scales) or UNKNOWN in resize.outs:
        raise g.refuse("for a scale along some axes only")
    else:
        sizes = g.join([g.sizes(source, 0, 2), g.ints(resize.outs)])
    # Paddle's nearest place: rounded half up with aligned corners, else rounded down.
    rounding = ("round_prefer_ceil" if align else "floor") if resize.method == "nearest" else None
    made = g(
        "Resize", source, None, scales, sizes, mode=resize.method, coordinate_transformation_mode=where,
        nearest_mode=rounding, cubic_coeff_a=-0.75 if resize.method == "cubic" else None,
    )  # fmt: skip
    return back(g, made, x.rank, layout)


def grid_sample(g: Graph, x: Value, grid: Value, *, mode: str, padding_mode: str, align_corners: bool) -> Value:
    if x.rank != 4:
        raise g.refuse("for volumes")
    return g("GridSample", x, grid, mode=mode, padding_mode=padding_mode, align_corners=int(align_corners))


def unpool(g: Graph, x: Value, indices: Value) -> Value:
    """Puts values at places that count in one image."""
    target = g.outs[0].shape
    if UNKNOWN in target[2:]:
        raise g.unknown(x, "the sizes of the image")
    rows = g.sizes(x, 0, 2)
    count = g.ints([int(np.prod(target[2:]))])
    empty = g.full(g.join([rows, count]), np.zeros((), x.dtype.np), x.dtype)
    inside = g.join([rows, g.ints([int(np.prod(g.known(x, range(2, x.rank))))])])
    # allowzero: a size of 0 is meant as such, not copied.
    values, places = (g("Reshape", v, inside, allowzero=1) for v in (x, g.cast(indices, int64)))
    filled = g("ScatterElements", empty, places, values, axis=2)
    return g("Reshape", filled, g.join([rows, g.ints(target[2:])]), allowzero=1)


# --------------------------------------------------------------------------------------------------------------- unfold
def unfold(g: Graph, x: Value, window: Any) -> Value:
    """Takes the pixels that each tap of the window reads, one strided slice per tap."""
    count, sizes = x.shape[1], g.known(x, (2, 3))
    outs = window.outputs(sizes)
    pads = [0, 0, *(a for a, _ in window.pads), 0, 0, *(b for _, b in window.pads)]
    wide = g("Pad", x, g.ints(pads), g.const(np.zeros((), x.dtype.np))) if any(pads) else x
    taps = []
    # ONNX has no unfold: one strided slice for each place of the window.
    for i in range(window.kernel[0]):
        for j in range(window.kernel[1]):
            low = [i * window.dilations[0], j * window.dilations[1]]
            high = [b + (o - 1) * s + 1 for b, o, s in zip(low, outs, window.strides, strict=True)]
            taken = g("Slice", wide, g.ints(low), g.ints(high), g.ints([2, 3]), g.ints(window.strides))
            taps.append(g("Unsqueeze", taken, g.ints([2])))
    stacked = g("Concat", *taps, axis=2)
    columns = -1 if count == UNKNOWN else count * len(taps)
    target = g.join([g.sizes(x, 0, 1), g.ints([columns, outs[0] * outs[1]])])
    return g("Reshape", stacked, target, allowzero=1 if 0 in x.shape else None)


def fold(g: Graph, x: Value, window: Any, sizes: Sequence[int]) -> Value:
    return g(
        "Col2Im", x, g.ints(sizes), g.ints(window.kernel), strides=list(window.strides), pads=_ends(window.pads),
        dilations=list(window.dilations),
    )  # fmt: skip
