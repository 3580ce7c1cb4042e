"""Geometry of pooling ops: windows from attributes, shapes, divisors and tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.opdef import Attr
from tstatic.ir.types import UNKNOWN, Meta, numel
from tstatic.ops.conv._sliding import (
    ALGORITHMS,
    Pairs,
    assemble,
    at,
    channels,
    check_float,
    check_lengths,
    check_no_windows,
    check_rank,
    is_last,
    layout_attr,
    not_negative,
    one_of,
    pads_of,
    parts,
    per_axis,
    positive,
    spatial,
)
from tstatic.tuned.pool import Bounds, Extents, adaptive_bounds, padded_extents, pool_bounds

# Elements of the input per tile: about half a millisecond of one core.
TILE = 1 << 19


def pool_attrs(kind: bool) -> dict[str, Any]:
    """Attributes of ``pool2d`` (``kind``: with those that only it has)."""
    attrs: dict[str, Any] = {
        "ksize": Attr(kind="ints"),
        "strides": Attr((1, 1), "ints", positive),
        "paddings": Attr((0, 0), "ints", not_negative),
        "global_pooling": False,
        "adaptive": False,
        "ceil_mode": False,
    }
    if kind:
        attrs |= {
            "pooling_type": Attr("max", "str", one_of("max", "avg")),
            "exclusive": True,
            "padding_algorithm": Attr("EXPLICIT", "str", one_of(*ALGORITHMS)),
            "data_format": layout_attr("NCHW"),
        }
    return attrs


def pooled_size(size: int, kernel: int, stride: int, pad: tuple[int, int], ceil_mode: bool) -> int:
    """Number of windows along one axis, by Paddle's rule.

    With ``ceil_mode`` a last window may hang over the end, wherever it begins (torch leaves it out if it would begin in
    the padding behind the input). An input that is smaller than the window, by less than a stride, has one window.
    """
    room = size + pad[0] + pad[1] - kernel + (stride - 1 if ceil_mode else 0)
    if room < 0:
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
    def bounds(self) -> tuple[Bounds, Bounds]:
        """Bounds of the windows along height and width, clipped to the input."""
        found = [self._bounds(axis) for axis in range(2)]
        return found[0], found[1]

    def _bounds(self, axis: int) -> Bounds:
        size, out = self.sizes[axis], self.outs[axis]
        if self.adaptive:
            return adaptive_bounds(size, out)
        return pool_bounds(size, self.kernel[axis], self.strides[axis], self.pads[axis][0], out)

    def extents(self, exclusive: bool) -> Extents | None:
        """What averages divide by, per row and column; ``None`` for the number of values inside the input."""
        if self.adaptive or exclusive:
            return None
        rows, columns = (
            padded_extents(size, k, s, *pad, out)
            for size, k, s, pad, out in zip(self.sizes, self.kernel, self.strides, self.pads, self.outs, strict=True)
        )
        return rows, columns


def infer_pool(x: Meta, attrs: Mapping[str, Any]) -> Meta:
    """Shape of a pooling op's output.

    Raises:
        ShapeError: If the rank is not 4, an attribute has the wrong length, or the window does not fit.
        DTypeError: If integers are averaged.
    """
    layout = attrs.get("data_format", "NCHW")
    check_rank(x, (4,), "the input of a pooling", layout)
    check_lengths(2, ksize=attrs["ksize"], strides=attrs["strides"], paddings=attrs["paddings"])
    if attrs.get("pooling_type") == "avg":
        check_float(x, "the input of an average pooling")
    sizes = spatial(x.shape, layout)
    if not attrs["global_pooling"] and min(attrs["ksize"]) <= 0:
        raise ShapeError(
            "the window of a pooling must be positive",
            expected="positive sizes",
            received=list(attrs["ksize"]),
            fix="give the kernel size, or use global_pooling",
        )
    pooling = Pooling(sizes, attrs)
    if not pooling.adaptive:
        check_no_windows(sizes, pooling.outs, pooling.kernel, pooling.pads)
        _check_pads(pooling, attrs.get("padding_algorithm", "EXPLICIT"))
    elif 0 in sizes:
        raise ShapeError(
            "an adaptive or global pooling needs spatial sizes above 0",
            expected="positive sizes",
            received=list(x.shape),
            fix="feed images that are not empty",
        )
    return x.with_shape(assemble(x.shape[0], channels(x.shape, layout), pooling.outs, layout))


def _check_pads(pooling: Pooling, algorithm: str) -> None:
    for axis, (pad, kernel) in enumerate(zip(pooling.pads, pooling.kernel, strict=True)):
        if algorithm == "EXPLICIT" and max(pad) >= kernel:
            raise ShapeError(
                f"the padding of a pooling leaves a window without values along spatial axis {axis}",
                expected=f"paddings below the kernel size {kernel}",
                received=list(pad),
                fix="use a smaller padding",
            )


def pool_pieces(x: Meta, layout: str) -> list[tuple[slice, ...]] | None:
    """Parts along the batch; along the channels where they stand first and there is one image only."""
    if x.numel <= 0:
        return None
    work = float(numel(x.shape))
    tiles = parts(x.shape[0], work, TILE)
    if tiles is not None:
        return [(p,) for p in tiles]
    by_channel = None if is_last(layout) else parts(x.shape[1], work, TILE)
    return None if by_channel is None else [at(1, p) for p in by_channel]
