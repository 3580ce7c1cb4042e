"""What convolution, pooling and unfold share: paddings as users give them, output sizes, and tiles of a batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np

from tstatic.errors import ShapeError, TstaticError
from tstatic.ir.attrs import one_of
from tstatic.ir.checks import check_choice, check_ints, check_length
from tstatic.ir.opdef import Attr
from tstatic.ir.split import IMAGES, Tile, tiles
from tstatic.ir.types import UNKNOWN, Meta, Shape, dtype_of
from tstatic.tuned._common import Array, Buffer

T = TypeVar("T")
Pairs = tuple[tuple[int, int], ...]
"""Padding before and after, per spatial axis."""

LAYOUTS_BY_RANK = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
"""By number of spatial axes: channels second, channels last."""

LAYOUTS = (*itertools.chain(*LAYOUTS_BY_RANK.values()), "AnyLayout")
ALGORITHMS = ("EXPLICIT", "SAME", "VALID")


def layout_attr(default: str) -> Attr:
    """Returns the attribute that says where channels stand."""
    return Attr(default, "str", one_of(*LAYOUTS))


def positive(values: Sequence[int]) -> str | None:
    """Checks an attribute of strides, dilations or window sizes."""
    return None if all(v > 0 for v in values) else "positive sizes only"


def not_negative(values: Sequence[int]) -> str | None:
    """Checks an attribute of paddings."""
    return None if all(v >= 0 for v in values) else "sizes of at least 0"


def is_last(data_format: str) -> bool:
    """Returns whether channels stand last."""
    return data_format in ("NLC", "NHWC", "NDHWC")


def spatial(shape: Shape, data_format: str) -> Shape:
    """Returns the sizes without batch and channels."""
    return shape[1:-1] if is_last(data_format) else shape[2:]


def channels(shape: Shape, data_format: str) -> int:
    """Returns how many channels images of a shape have."""
    return shape[-1] if is_last(data_format) else shape[1]


def assemble(batch: int, count: int, sizes: Sequence[int], data_format: str) -> Shape:
    """Returns a whole shape from its parts."""
    return (batch, *sizes, count) if is_last(data_format) else (batch, count, *sizes)


def first(array: Array, data_format: str) -> Array:
    """Returns a view with channels on axis 1."""
    return np.moveaxis(array, -1, 1) if is_last(data_format) else array


def first_shape(shape: Shape, data_format: str) -> Shape:
    """Returns the shape that :func:`first` gives."""
    return (shape[0], shape[-1], *shape[1:-1]) if is_last(data_format) else shape


def per_axis(values: Sequence[T], rank: int) -> tuple[T, ...]:
    """Returns one value per spatial axis; a single one applies to all."""
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def pads_of(
    paddings: Sequence[int], algorithm: str, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int]
) -> Pairs:
    """Returns the zeros before and after each spatial axis.

    ``SAME`` pads so that the output has ``ceil(size / stride)`` elements, the odd one behind; it knows no dilation
    (Paddle sets that to 1).

    Args:
        paddings: One value per axis, or (before, after) of each axis in one list.
        algorithm: ``EXPLICIT``, ``SAME`` or ``VALID``.
        sizes: The input's spatial sizes.
        kernel, strides: Per axis.
    """
    if algorithm == "VALID":
        return ((0, 0),) * len(kernel)
    if algorithm == "SAME":
        pairs = []
        for size, k, s in zip(sizes, kernel, strides, strict=True):
            # As TensorFlow has it: ceil(size / stride) places, and an odd zero goes to the end.
            total = max((-(-size // s) - 1) * s + k - size, 0)
            pairs.append((total // 2, total - total // 2))
        return tuple(pairs)
    if len(paddings) == 2 * len(kernel):
        return tuple((paddings[2 * i], paddings[2 * i + 1]) for i in range(len(kernel)))
    return tuple((p, p) for p in per_axis(paddings, len(kernel)))


def check_lengths(rank: int, **values: Sequence[int]) -> None:
    """Refuses lists that do not have one value per spatial axis (paddings may have two).

    Raises:
        ShapeError: Says which.
    """
    for name, given in values.items():
        check_length(given, (1, rank, 2 * rank)[: 3 if name == "paddings" else 2], name, why="one per spatial axis")


def check_no_windows(sizes: Sequence[int], outs: Sequence[int], kernel: Sequence[int], pads: Pairs) -> None:
    """Refuses a window that is larger than the padded input.

    Raises:
        ShapeError: Says which axis.
    """
    for axis, (size, out) in enumerate(zip(sizes, outs, strict=True)):
        if UNKNOWN not in (size, out) and out <= 0:
            raise ShapeError(
                f"the window does not fit the input along spatial axis {axis}",
                expected=f"a padded size of at least {kernel[axis]}",
                received=f"size {size} with padding {pads[axis][0]} and {pads[axis][1]}",
                fix="use a smaller kernel or dilation, more padding, or a larger input",
            )


def of_any_batch(rule: Callable[..., Meta]) -> Callable[..., Meta]:
    """Makes a shape rule of images, ``(rank, x, *metas, attrs) -> output``, look at what it was not given before only.

    It depends on all but the size of the batch, the first one: the second feed size of a program costs a look-up here.
    """

    @lru_cache(maxsize=1024)
    def known(rank: int, metas: tuple[Meta, ...], attrs: tuple[tuple[str, Any], ...]) -> Shape:
        return rule(rank, *metas, dict(attrs)).shape[1:]

    @wraps(rule)
    def infer(rank: int, x: Meta, *rest: Any) -> Meta:
        *metas, attrs = rest
        try:
            # The batch is left out of the key, so that feeds of all sizes share the entries of a net's layers.
            sizes = known(rank, (x.with_shape((UNKNOWN, *x.shape[1:])), *metas), tuple(attrs.items()))
        except TstaticError:
            # What it says is of the batch that was given.
            return rule(rank, x, *rest)
        return x.with_shape((x.shape[0], *sizes))

    return infer


# ------------------------------------------------------------------------------------------------- scratch and tiles
def as_metas(buffers: Sequence[Buffer]) -> tuple[Meta, ...]:
    """Returns scratch buffers as metadata."""
    if not buffers:
        return ()
    # Nearly all are of one dtype.
    first = buffers[0][1]
    common = dtype_of(first)
    return tuple([Meta(shape, common if dtype is first else dtype_of(dtype)) for shape, dtype in buffers])


def split_batch(x: Meta, *rest: Meta | None, data_format: str = "NCHW") -> list[Tile] | None:
    """Cuts an op on images and its gradient along the batch, or along channels that stand first where there are few images."""
    # Channels last, a tile of channels would be a piece of every pixel.
    for axis in (0,) if is_last(data_format) else (0, 1):
        found = IMAGES.parts(x.shape[axis], x.numel)
        if found is not None:
            return tiles(found, *[axis] * (1 + len(rest)))
    return None


# ---------------------------------------------------------------------------------------------------------------- torch
def torch_first(tensor: Any, data_format: str) -> Any:
    """Moves channels to axis 1."""
    return tensor.movedim(-1, 1) if is_last(data_format) else tensor


def torch_back(tensor: Any, data_format: str, dtype: Any) -> Any:
    """Moves channels back and rounds to the dtype."""
    return (tensor.movedim(1, -1) if is_last(data_format) else tensor).to(dtype)


# ---------------------------------------------------------------------------------------------------- users' arguments
# What an axis of size 1 needs: windows, strides and dilations of 1, and no padding.
_HEIGHT = {"ksize": 1, "strides": 1, "dilations": 1, "output_size": 1, "paddings": 0, "output_padding": 0}


def on_images(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns attributes for images of height 1 from those for one axis (paddings have one value or two)."""
    return {n: (_HEIGHT[n],) * len(v) + v if n in _HEIGHT else v for n, v in attrs.items()}


def padding_of(padding: Any, rank: int, last: bool, function: str) -> tuple[tuple[int, ...], str]:
    """Reads a ``padding`` argument: ``(paddings, padding_algorithm)``.

    It may be an int, a list of one or two ints per spatial axis, ``[before, after]`` pairs for all axes (batch and
    channels with zeros), ``"SAME"`` or ``"VALID"``.

    Raises:
        ProgramTypeError, ShapeError: For anything else.
    """
    if isinstance(padding, str):
        check_choice(padding.upper(), ALGORITHMS[1:], "padding", function, error=ShapeError)
        return (0,) * rank, padding.upper()
    if isinstance(padding, list | tuple) and padding and all(isinstance(p, list | tuple) for p in padding):
        padding = _from_pairs(padding, rank, last, function)
    else:
        # Twice as many values are both ends of each axis.
        twice = isinstance(padding, list | tuple) and len(padding) == 2 * rank
        padding = check_ints(padding, 2 * rank if twice else rank, "padding", function)
    if min(padding, default=0) < 0:
        raise ShapeError(
            f"Invalid padding in {function}, all values should be larger than or equal to 0",
            expected="values of at least 0",
            received=list(padding),
            fix="crop with slicing instead of a negative padding",
            op=function,
        )
    # As Paddle: equal paddings are stored with one value per axis.
    if len(padding) == 2 * rank and all(padding[2 * i] == padding[2 * i + 1] for i in range(rank)):
        padding = padding[::2]
    return tuple(padding), "EXPLICIT"


def _from_pairs(padding: Sequence[Sequence[Any]], rank: int, last: bool, function: str) -> tuple[int, ...]:
    whole = len(padding) == rank + 2
    outer = ([padding[0], padding[-1]] if last else padding[:2]) if whole else []
    inner = (padding[1:-1] if last else padding[2:]) if whole else padding
    if len(inner) != rank or any(len(p) != 2 for p in padding) or any(tuple(p) != (0, 0) for p in outer):
        raise ShapeError(
            f"'padding' of {function} holds pairs that do not fit the input",
            expected=f"{rank + 2} pairs with [0, 0] for batch and channels, or {rank} pairs",
            received=[list(p) for p in padding],
            fix=f"pass padding={[[0, 0], [0, 0], *([[1, 1]] * rank)]}, for example",
            op=function,
        )
    return check_ints([v for pair in inner for v in pair], 2 * rank, "padding", function)
