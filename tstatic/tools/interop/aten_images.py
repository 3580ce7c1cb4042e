"""Convolutions, pooling and resizing of images, sequences and volumes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tstatic.ir.build import emit
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.conv import conv
from tstatic.ops.functions import pool_functions
from tstatic.ops.functions.interpolate_functions import interpolate
from tstatic.ops.shape.reshape import squeeze, unsqueeze
from tstatic.ops.shape.slicing import slice_
from tstatic.tools.interop.conversion import Call, Converter, family

converts = family("images")

Ints = Sequence[int]


def _batched(rank: int, convert: Converter) -> Converter:
    """Returns a converter that also takes one image without a batch axis, as torch does."""

    def of_any(c: Call, x: Variable, *args: Any, **named: Any) -> Any:
        if len(x.shape) == rank + 2:
            return convert(c, x, *args, **named)
        made = convert(c, unsqueeze(x, 0), *args, **named)
        return [squeeze(one, 0) for one in made] if isinstance(made, list) else squeeze(made, 0)

    return of_any


# ---------------------------------------------------------------------------------------------------------- convolutions
_PLAIN: tuple[Callable[..., Variable], ...] = (conv.conv1d, conv.conv2d, conv.conv3d)
_TURNED: tuple[Callable[..., Variable], ...] = (conv.conv1d_transpose, conv.conv2d_transpose, conv.conv3d_transpose)


def _convolution(rank: int) -> Converter:
    def convert(
        c: Call, x: Variable, weight: Variable, bias: Variable | None = None, stride: Ints = (1,), padding: Any = (0,),
        dilation: Ints = (1,), groups: int = 1,
    ) -> Variable:  # fmt: skip
        steps = _each(dilation, rank)
        if padding == "same":
            # Paddle's "SAME" sets the dilation to 1, and divides by the stride, which torch refuses.
            around = [n for size, step in zip(weight.shape[2:], steps, strict=True) for n in _halves(step * (size - 1))]
        else:
            around = [0] * rank if padding == "valid" else _each(padding, rank)
        return _PLAIN[rank - 1](x, weight, bias, _each(stride, rank), around, steps, groups)

    return _batched(rank, convert)


def _halves(amount: int) -> tuple[int, int]:
    """Returns the padding before and after an axis; of an odd amount torch puts one more behind."""
    return amount // 2, amount - amount // 2


def _each(values: Ints, rank: int) -> list[int]:
    """Returns one number for each axis: a single one is for all."""
    return list(values) * rank if len(values) == 1 else list(values)


def _transposed(rank: int) -> Converter:
    def convert(
        c: Call, x: Variable, weight: Variable, bias: Variable | None = None, stride: Ints = (1,), padding: Ints = (0,),
        output_padding: Ints = (0,), groups: int = 1, dilation: Ints = (1,),
    ) -> Variable:  # fmt: skip
        sizes = {
            "stride": _each(stride, rank), "padding": _each(padding, rank), "dilation": _each(dilation, rank),
            "output_padding": _each(output_padding, rank),
        }  # fmt: skip
        return _TURNED[rank - 1](x, weight, bias, groups=groups, **sizes)

    return _batched(rank, convert)


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
_MAX: tuple[Callable[..., Any], ...] = (
    pool_functions.max_pool1d,
    pool_functions.max_pool2d,
    pool_functions.max_pool3d,
)
_AVERAGE: tuple[Callable[..., Variable], ...] = (
    pool_functions.avg_pool1d,
    pool_functions.avg_pool2d,
    pool_functions.avg_pool3d,
)
_ADAPTIVE_MAX: tuple[Callable[..., Any], ...] = (
    pool_functions.adaptive_max_pool1d,
    pool_functions.adaptive_max_pool2d,
    pool_functions.adaptive_max_pool3d,
)
_ADAPTIVE_AVERAGE: tuple[Callable[..., Variable], ...] = (
    pool_functions.adaptive_avg_pool1d,
    pool_functions.adaptive_avg_pool2d,
    pool_functions.adaptive_avg_pool3d,
)
Window = tuple[list[int], list[int], list[int]]
"""Kernel, stride and padding, a number for each axis."""


def _known(c: Call, rank: int, what: str) -> list[int]:
    """Returns the sizes of the pooled image, which must be known."""
    sizes = list(c.shape[-rank:])
    if UNKNOWN in sizes:
        raise c.refuse(f"with ceil_mode, {what} and open sizes", "known sizes, or ceil_mode=False", list(c.sizes))
    return sizes


def _begun(c: Call, pooled: Variable, window: Window, ceil_mode: bool) -> Variable:
    """Returns the windows that begin before the end of the image: with ``ceil_mode`` Paddle has those behind it, too."""
    kernel, stride, padding = window
    if not ceil_mode or not any(p or s > k for k, s, p in zip(kernel, stride, padding, strict=True)):
        return pooled
    axes = list(range(2, len(pooled.shape)))
    return slice_(pooled, axes, [0] * len(axes), _known(c, len(axes), "padding"))


def _max_pool(rank: int, places: bool = False) -> Converter:
    def convert(
        c: Call, x: Variable, kernel: Ints, stride: Ints = (), padding: Ints = (0,), dilation: Ints = (1,),
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        if any(step != 1 for step in dilation):
            raise c.refuse("with a dilation", "dilation=1", list(dilation))
        window = _each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank)
        made = _MAX[rank - 1](x, *window, places, ceil_mode)
        parts = [_begun(c, part, window, ceil_mode) for part in (made if places else [made])]
        return [parts[0], parts[1].astype("int64")] if places else parts[0]

    return _batched(rank, convert)


def _padded(x: Variable, before: Sequence[int], behind: Sequence[int]) -> Variable:
    """Returns the image with zeros before and behind each of its last axes."""
    if not any((*before, *behind)):
        return x
    around = [n for pair in zip(before, behind, strict=True) for n in pair]
    padded: Variable = emit("pad", {"X": x}, {"paddings": [0, 0, 0, 0, *around], "pad_value": 0.0})
    return padded


def _average_pool(rank: int) -> Converter:
    def convert(
        c: Call, x: Variable, kernel: Ints, stride: Ints = (), padding: Ints = (0,), ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Variable:  # fmt: skip
        window = _each(kernel, rank), _each(stride or kernel, rank), _each(padding, rank)
        if divisor_override is not None:
            return _sums(c, x, window, ceil_mode) * (math.prod(window[0]) / divisor_override)
        average = partial(_AVERAGE[rank - 1], ceil_mode=ceil_mode)
        if count_include_pad and any(window[2]):
            if not ceil_mode:
                return average(x, *window, exclusive=False)
            # The padding counts, and what hangs over its end does not: zeros of the image's own say that.
            pooled = average(_padded(x, window[2], window[2]), window[0], window[1], 0, exclusive=True)
        else:
            pooled = average(x, *window, exclusive=True)
        return _begun(c, pooled, window, ceil_mode)

    def _sums(c: Call, x: Variable, window: Window, ceil_mode: bool) -> Variable:
        """Returns the sums of all windows, divided by the number of places of a whole one."""
        kernel, stride, padding = window
        if not ceil_mode:
            return _AVERAGE[rank - 1](x, *window, exclusive=False)
        # Zeros fill what hangs over the end, so that each window is whole.
        ends = [
            max(p, (count - 1) * s + k - size - p)
            for count, size, k, s, p in zip(
                _known(c, rank, "divisor_override"), x.shape[2:], kernel, stride, padding, strict=True
            )
        ]
        pooled = _AVERAGE[rank - 1](_padded(x, padding, ends), kernel, stride, 0, exclusive=False)
        return _begun(c, pooled, window, ceil_mode)

    return _batched(rank, convert)


converts("max_pool1d.default")(_max_pool(1))
converts("max_pool2d.default")(_max_pool(2))
converts("max_pool3d.default")(_max_pool(3))
converts("max_pool1d_with_indices.default")(_max_pool(1, places=True))
converts("max_pool2d_with_indices.default")(_max_pool(2, places=True))
converts("max_pool3d_with_indices.default")(_max_pool(3, places=True))
converts("avg_pool1d.default")(_average_pool(1))
converts("avg_pool2d.default")(_average_pool(2))
converts("avg_pool3d.default")(_average_pool(3))


def _sizes(x: Variable, sizes: Sequence[int | None]) -> Any:
    """Returns the sizes that an adaptive pool is asked for; ``None`` keeps that of the image."""
    wanted = [x.shape[2 + i] if size is None else size for i, size in enumerate(sizes)]
    return wanted if len(wanted) > 1 else wanted[0]


def _adaptive_average(rank: int) -> Converter:
    def convert(c: Call, x: Variable, sizes: Sequence[int | None]) -> Variable:
        return _ADAPTIVE_AVERAGE[rank - 1](x, _sizes(x, sizes))

    return _batched(rank, convert)


def _adaptive_max(rank: int) -> Converter:
    def convert(c: Call, x: Variable, sizes: Sequence[int | None]) -> list[Variable]:
        pooled, places = _ADAPTIVE_MAX[rank - 1](x, _sizes(x, sizes), return_mask=True)
        return [pooled, places.astype("int64")]

    return _batched(rank, convert)


converts("adaptive_avg_pool1d.default")(_adaptive_average(1))
converts("adaptive_avg_pool2d.default", "_adaptive_avg_pool2d.default")(_adaptive_average(2))
converts("adaptive_avg_pool3d.default", "_adaptive_avg_pool3d.default")(_adaptive_average(3))
converts("adaptive_max_pool1d.default")(_adaptive_max(1))
converts("adaptive_max_pool2d.default")(_adaptive_max(2))
converts("adaptive_max_pool3d.default")(_adaptive_max(3))


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
