"""Convolutions, pooling and resizing of images, sequences and volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tstatic.interop.conversion import Call, Converter, family
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.conv import conv, pool_functions
from tstatic.ops.conv.interpolate_functions import interpolate
from tstatic.ops.shape.slicing import slice_

converts = family("images")

Ints = Sequence[int]


def _rank(c: Call, x: Variable, rank: int) -> None:
    if len(x.shape) != rank + 2:
        raise c.refuse("without a batch", f"an input of {rank + 2} dimensions", f"{len(x.shape)} dimensions",
                       "give the example a batch axis")  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- convolutions
_PLAIN: tuple[Callable[..., Variable], ...] = (conv.conv1d, conv.conv2d, conv.conv3d)
_TURNED: tuple[Callable[..., Variable], ...] = (conv.conv1d_transpose, conv.conv2d_transpose, conv.conv3d_transpose)


def _convolution(rank: int) -> Converter:
    def convert(
        c: Call, x: Variable, weight: Variable, bias: Variable | None = None, stride: Ints = (1,), padding: Any = (0,),
        dilation: Ints = (1,), groups: int = 1,
    ) -> Variable:  # fmt: skip
        _rank(c, x, rank)
        around = padding.upper() if isinstance(padding, str) else _each(padding, rank)
        return _PLAIN[rank - 1](x, weight, bias, _each(stride, rank), around, _each(dilation, rank), groups)

    return convert


def _each(values: Ints, rank: int) -> list[int]:
    """Returns one number for each axis: a single one is for all."""
    return list(values) * rank if len(values) == 1 else list(values)


def _transposed(rank: int) -> Converter:
    def convert(
        c: Call, x: Variable, weight: Variable, bias: Variable | None = None, stride: Ints = (1,), padding: Ints = (0,),
        output_padding: Ints = (0,), groups: int = 1, dilation: Ints = (1,),
    ) -> Variable:  # fmt: skip
        _rank(c, x, rank)
        sizes = {
            "stride": _each(stride, rank), "padding": _each(padding, rank), "dilation": _each(dilation, rank),
            "output_padding": _each(output_padding, rank),
        }  # fmt: skip
        return _TURNED[rank - 1](x, weight, bias, groups=groups, **sizes)

    return convert


converts("conv1d.default", "conv1d.padding")(_convolution(1))
converts("conv2d.default", "conv2d.padding")(_convolution(2))
converts("conv3d.default", "conv3d.padding")(_convolution(3))
converts("conv_transpose1d.default")(_transposed(1))
converts("conv_transpose2d.input")(_transposed(2))
converts("conv_transpose3d.input")(_transposed(3))


@converts("convolution.default")
def _any_convolution(
    c: Call, x: Variable, weight: Variable, bias: Variable | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Variable:  # fmt: skip
    rank = len(weight.shape) - 2
    if transposed:
        made: Variable = _transposed(rank)(c, x, weight, bias, stride, padding, output_padding, groups, dilation)
        return made
    result: Variable = _convolution(rank)(c, x, weight, bias, stride, padding, dilation, groups)
    return result


# --------------------------------------------------------------------------------------------------------------- pooling
_MAX = (pool_functions.max_pool1d, pool_functions.max_pool2d, pool_functions.max_pool3d)
_AVERAGE: tuple[Callable[..., Variable], ...] = (
    pool_functions.avg_pool1d,
    pool_functions.avg_pool2d,
    pool_functions.avg_pool3d,
)


def _begun(c: Call, pooled: Variable, window: tuple[list[int], ...], ceil_mode: bool) -> Variable:
    """Returns the windows that begin before the end of the image: with ``ceil_mode`` Paddle has those behind it, too."""
    kernel, stride, padding = window
    if not ceil_mode or not any(p or s > k for k, s, p in zip(kernel, stride, padding, strict=True)):
        return pooled
    if UNKNOWN in c.shape[2:]:
        raise c.refuse("with ceil_mode, padding and open sizes", "known sizes, or ceil_mode=False", list(c.sizes))
    axes = list(range(2, len(pooled.shape)))
    return slice_(pooled, axes, [0] * len(axes), list(c.shape[2:]))


def _max_pool(rank: int, places: bool = False) -> Converter:
    def convert(
        c: Call, x: Variable, kernel: Ints, stride: Ints = (), padding: Ints = (0,), dilation: Ints = (1,),
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        _rank(c, x, rank)
        if any(step != 1 for step in dilation):
            raise c.refuse("with a dilation", "dilation=1", list(dilation))
        window = _each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank)
        made = _MAX[rank - 1](x, *window, places, ceil_mode)
        parts = [made[0], made[1].astype("int64")] if isinstance(made, tuple) else [made]
        parts = [_begun(c, part, window, ceil_mode) for part in parts]
        return parts if isinstance(made, tuple) else parts[0]

    return convert


def _average_pool(rank: int) -> Converter:
    def convert(
        c: Call, x: Variable, kernel: Ints, stride: Ints = (), padding: Ints = (0,), ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Variable:  # fmt: skip
        _rank(c, x, rank)
        padded = any(padding)
        if ceil_mode and count_include_pad and padded:
            # torch leaves out of the count what hangs over the padding's end, Paddle does not.
            raise c.refuse("with ceil_mode and padding that counts", "count_include_pad=False", "True")
        window = _each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank)
        # Without padding, what hangs over the end never counts in torch.
        exclusive = not count_include_pad or not padded
        if rank == 1:
            return _begun(c, pool_functions.avg_pool1d(x, *window, exclusive, ceil_mode), window, ceil_mode)
        return _begun(c, _AVERAGE[rank - 1](x, *window, ceil_mode, exclusive, divisor_override), window, ceil_mode)

    return convert


converts("max_pool1d.default")(_max_pool(1))
converts("max_pool2d.default")(_max_pool(2))
converts("max_pool3d.default")(_max_pool(3))
converts("max_pool2d_with_indices.default")(_max_pool(2, places=True))
converts("avg_pool1d.default")(_average_pool(1))
converts("avg_pool2d.default")(_average_pool(2))
converts("avg_pool3d.default")(_average_pool(3))


def _adaptive(function: Callable[..., Any], rank: int) -> Converter:
    def convert(c: Call, x: Variable, sizes: Sequence[int | None]) -> Any:
        _rank(c, x, rank)
        wanted = [x.shape[2 + i] if size is None else size for i, size in enumerate(sizes)]
        return function(x, wanted if rank > 1 else wanted[0])

    return convert


converts("adaptive_avg_pool1d.default")(_adaptive(pool_functions.adaptive_avg_pool1d, 1))
converts("adaptive_avg_pool2d.default", "_adaptive_avg_pool2d.default")(
    _adaptive(pool_functions.adaptive_avg_pool2d, 2)
)
converts("adaptive_avg_pool3d.default", "_adaptive_avg_pool3d.default")(
    _adaptive(pool_functions.adaptive_avg_pool3d, 3)
)


# -------------------------------------------------------------------------------------------------------------- resizing
def _resized(c: Call, x: Variable, mode: str, size: Any, factors: Any, align_corners: bool = False) -> Variable:
    if size is not None:
        return interpolate(x, c.sizes_given(size), None, mode, align_corners)
    return interpolate(x, None, list(factors), mode, align_corners)


def _nearest(c: Call, x: Variable, size: Any, factors: Any = None) -> Variable:
    return _resized(c, x, "nearest", size, factors)


converts("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")(_nearest)


@converts("upsample_nearest2d.default")
def _nearest_size(c: Call, x: Variable, size: Any, *factors: Any, **named: Any) -> Variable:
    return _resized(c, x, "nearest", size, None)


@converts("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec", "upsample_bicubic2d.vec")
def _linear(c: Call, x: Variable, size: Any, align_corners: bool, factors: Any = None) -> Variable:
    return _resized(c, x, c.name.removeprefix("aten.upsample_").partition(".")[0][:-2], size, factors, align_corners)


@converts("upsample_bilinear2d.default", "upsample_bicubic2d.default")
def _linear_size(c: Call, x: Variable, size: Any, align_corners: bool, *factors: Any, **named: Any) -> Variable:
    return _linear(c, x, size, align_corners)
