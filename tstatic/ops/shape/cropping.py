"""Cutting a window of a given size out of a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, Shape
from tstatic.ops.shape._shapes import emit_one, sizes_given, sizes_of, tensor_rank
from tstatic.ops.shape._slicing import Runs, selection
from tstatic.ops.shape.reshape import ANY


def _sizes(old: Shape, shape: Sequence[int], offsets: Sequence[int]) -> tuple[list[int], list[int]]:
    """(offsets, sizes), -1 meaning up to the end; checks what is known."""
    offsets = list(offsets) if len(offsets) else [0] * len(old)
    if len(shape) != len(old) or len(offsets) != len(old):
        raise ShapeError(
            "shape and offsets of a crop must have one entry for each dimension",
            expected=f"{len(old)} entries each",
            received=f"shape {list(shape)} and offsets {offsets}",
            fix="give each dimension a size (-1: up to the end) and an offset",
        )
    sizes = []
    for size, low, kept in zip(old, offsets, shape, strict=True):
        kept = (size - low if size >= 0 else UNKNOWN) if kept == UNKNOWN else kept
        if low < 0 or kept < UNKNOWN or (size >= 0 and low + max(kept, 0) > size):
            raise ShapeError(
                "the window lies outside the value",
                expected=f"offsets of at least 0 and offset + size within {list(old)}",
                received=f"shape {list(shape)} and offsets {offsets}",
                fix="check shape and offsets",
            )
        sizes.append(kept)
    return offsets, sizes


def _find(
    old: Shape, given: Sequence[Any], *, shape: Sequence[int], offsets: Sequence[int]
) -> tuple[Runs, Sequence[int]]:
    size, sizes, offset, offset_list = given
    lows, kept = _sizes(old, sizes_of(shape, size, sizes), sizes_of(offsets, offset, offset_list))
    return {i: (low, low + n, 1) for i, (low, n) in enumerate(zip(lows, kept, strict=True))}, ()


def _infer(x: Meta, *given: Any, shape: Sequence[int], offsets: Sequence[int]) -> Meta:
    size, sizes, offset, offset_list = given
    free_size = tensor_rank(size, sizes, "shape") is not None
    free_offset = tensor_rank(offset, offset_list, "offsets") is not None
    if free_size:
        return x.with_shape(max(s, UNKNOWN) for s in shape) if len(shape) == x.rank else x.with_shape([-1] * x.rank)
    if free_offset:
        return x.with_shape(shape)
    return x.with_shape(_sizes(x.shape, shape, offsets)[1])


_NONE = (None,) * 4
register(
    selection(
        "crop_tensor",
        "X",
        ("Shape?", "ShapeTensor*?", "Offsets?", "OffsetsTensor*?"),
        {"shape": Attr((), "ints"), "offsets": Attr((), "ints")},
        _find,
        _infer,
        Domain(
            cases=(
                Case(((5, 4), *_NONE), {"shape": (2, 3), "offsets": (1, 0)}),
                Case(((5, 4), *_NONE), {"shape": (-1, 2), "offsets": (3, 2)}),
                Case(((5, 4), *_NONE), {"shape": (5, 4), "offsets": ()}),
                Case(((2, 3, 4), *_NONE), {"shape": (1, -1, 1), "offsets": (1, 0, 3)}),
                Case(((0, 3), *_NONE), {"shape": (0, 2), "offsets": (0, 1)}),
                Case(((6,), *_NONE), {"shape": (0,), "offsets": (6,)}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


@export("tensor.crop", "Variable.crop", "fluid.layers.crop_tensor", op="crop_tensor")
def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """Cuts out a window.

    Args:
        x: ``[...]``, any dtype.
        shape: The window's sizes; -1 means up to the end. A list of ints and Variables, or one Variable. Without it the
            whole value.
        offsets: Where it begins; zeros by default.
        name: Name of the layer.

    Raises:
        ShapeError: If the window lies outside the value.
    """
    x = check_variable(x, "x", "crop")
    sizes, size, size_list = sizes_given([-1] * len(x.shape) if shape is None else shape)
    lows, low, low_list = sizes_given([0] * len(x.shape) if offsets is None else offsets)
    inputs = {"X": x, "Shape": size, "ShapeTensor": size_list, "Offsets": low, "OffsetsTensor": low_list}
    return emit_one("crop_tensor", inputs, {"shape": sizes, "offsets": lows}, name=name)


@export("fluid.layers.crop", op="crop_tensor")
def fluid_crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """:func:`crop`, where a Variable given as ``shape`` lends its own shape, not its values."""
    sizes = list(shape.shape) if isinstance(shape, Variable) else shape
    return crop(x, sizes, offsets, name)
