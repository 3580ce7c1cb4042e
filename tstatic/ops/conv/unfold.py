"""Sliding blocks as columns (``unfold``) and their sum back into images (``fold``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_dtype, check_ints, check_length, check_rank, check_sizes
from tstatic.ir.opdef import GRAD, Attr, Case, Domain, GradContext, GradOp, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.split import BATCHES, Split
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sliding import check_no_windows
from tstatic.ops.conv import _conv_onnx as _onnx
from tstatic.ops.conv._convolution import Window
from tstatic.tuned._common import Array


class Blocks(Window):
    """Geometry: paddings are top, left, bottom, right, as Paddle orders them here."""

    def __init__(self, sizes: Sequence[int], attrs: Mapping[str, Any]) -> None:
        top, left, bottom, right = attrs["paddings"]
        # The base class has the two ends of an axis side by side.
        super().__init__(sizes, attrs["kernel_sizes"], {**attrs, "paddings": (top, bottom, left, right)})
        self.sizes = tuple(sizes)
        self.outs = self.outputs(sizes)
        self.area = self.kernel[0] * self.kernel[1]

    @property
    def length(self) -> int:
        """Number of blocks."""
        return UNKNOWN if UNKNOWN in self.outs else self.outs[0] * self.outs[1]

    @property
    def padded(self) -> tuple[int, int]:
        return self.sizes[0] + sum(self.pads[0]), self.sizes[1] + sum(self.pads[1])

    def check(self) -> None:
        """Refuses blocks that do not fit."""
        check_no_windows(self.sizes, self.outs, self.reach, self.pads)

    def inner(self, padded: Any) -> Any:
        """Returns the input inside its padded copy."""
        (top, _), (left, _) = self.pads
        return padded[:, :, top : top + self.sizes[0], left : left + self.sizes[1]]

    def tap(self, padded: Array, a: int, b: int) -> Array:
        """Returns what place (a, b) of every block is: ``[n, c, oh, ow]``."""
        (sh, sw), (dh, dw), (oh, ow) = self.strides, self.dilations, self.outs
        i, j = a * dh, b * dw
        return padded[:, :, i : i + (oh - 1) * sh + 1 : sh, j : j + (ow - 1) * sw + 1 : sw]


def _columns(y: Array, blocks: Blocks, channels: int) -> tuple[Array, bool]:
    """Returns ``y`` as ``[n, c, kh, kw, oh, ow]``, and whether that is a copy."""
    shape = (y.shape[0], channels, *blocks.kernel, *blocks.outs)
    # A view where the strides allow one; else a copy that is written back at the end.
    try:
        return y.reshape(shape, copy=False), False
    except ValueError:
        return y.reshape(shape), True


def _unfold_ref(x: Array, y: Array, scratch: Sequence[Array], **attrs: Any) -> None:
    """Writes every block of ``x`` as a column of ``y``."""
    blocks, padded = Blocks(x.shape[2:], attrs), scratch[0]
    # The border is the padding; only the inside is written below.
    padded.fill(0)
    np.copyto(blocks.inner(padded), x)
    columns, copied = _columns(y, blocks, x.shape[1])
    for a in range(blocks.kernel[0]):
        for b in range(blocks.kernel[1]):
            np.copyto(columns[:, :, a, b], blocks.tap(padded, a, b))
    if copied:
        np.copyto(y, columns.reshape(y.shape))


def _fold_ref(y: Array, x: Array, scratch: Sequence[Array], **attrs: Any) -> None:
    """Adds every column of ``y`` to the places of ``x`` that its block covers."""
    blocks, padded = Blocks(x.shape[2:], attrs), scratch[0]
    padded.fill(0)
    columns, _ = _columns(y, blocks, x.shape[1])
    for a in range(blocks.kernel[0]):
        for b in range(blocks.kernel[1]):
            # Place by place of the block, since blocks overlap: within one, every element is written once.
            place = blocks.tap(padded, a, b)
            np.add(place, columns[:, :, a, b], place)
    np.copyto(x, blocks.inner(padded))


def _unfold_grad_ref(x: Array, dy: Array, dx: Array, scratch: Sequence[Array], **attrs: Any) -> None:
    _fold_ref(dy, dx, scratch, **attrs)


def _padded_image(x: Meta, attrs: Mapping[str, Any]) -> tuple[Meta, ...]:
    return (Meta((*x.shape[:2], *Blocks(x.shape[2:], attrs).padded), x.dtype.compute),)


# --------------------------------------------------------------------------------------------------------------- shapes
def _unfold_infer(x: Meta, **attrs: Any) -> Meta:
    check_dtype(x, FLOATS, "X")
    check_rank(x, 4, "X", layout="NCHW")
    blocks = Blocks(x.shape[2:], attrs)
    blocks.check()
    depth = UNKNOWN if x.shape[1] == UNKNOWN else x.shape[1] * blocks.area
    return x.with_shape((x.shape[0], depth, blocks.length))


def _fold_infer(x: Meta, output_sizes: tuple[int, ...], **attrs: Any) -> Meta:
    check_dtype(x, FLOATS, "X")
    check_rank(x, (3,), "X", layout="[n, c * kh * kw, blocks]")
    check_length(output_sizes, 2, "output_sizes", why="height and width")
    check_sizes(output_sizes, "output_sizes", least=1)
    blocks = Blocks(output_sizes, attrs)
    blocks.check()
    place = blocks.area
    depth, length = x.shape[1:]
    check_fit(
        length in (UNKNOWN, blocks.length) and (depth == UNKNOWN or depth % place == 0), [x], ["X"],
        "the columns of fold do not fit the image", f"a multiple of {place} rows and {blocks.length} columns",
        "check output_sizes, kernel_sizes, strides, paddings and dilations",
    )  # fmt: skip
    return x.with_shape((x.shape[0], UNKNOWN if depth == UNKNOWN else depth // place, *output_sizes))


# ---------------------------------------------------------------------------------------------------------------- torch
def _torch_unfold(torch: Any, x: Any, attrs: Mapping[str, Any]) -> Any:
    top, left, bottom, right = attrs["paddings"]
    padded = torch.nn.functional.pad(x, (left, right, top, bottom))
    blocks = Blocks(x.shape[2:], attrs)
    # torch refuses images without elements.
    if x.numel() == 0:
        return x.new_zeros((x.shape[0], x.shape[1] * blocks.area, blocks.length))
    return torch.nn.functional.unfold(padded, blocks.kernel, blocks.dilations, 0, blocks.strides)


def _torch_fold(torch: Any, y: Any, sizes: Sequence[int], attrs: Mapping[str, Any]) -> Any:
    blocks = Blocks(sizes, attrs)
    if y.numel() == 0:
        return y.new_zeros((y.shape[0], y.shape[1] // blocks.area, *sizes))
    # Into the padded image, then cropped: torch has one padding per axis, here all four sides may differ.
    full = torch.nn.functional.fold(y, blocks.padded, blocks.kernel, blocks.dilations, 0, blocks.strides)
    return blocks.inner(full)


def _unfold_lower(torch: Any, x: Any, **attrs: Any) -> Any:
    return _torch_unfold(torch, torch_wide(x), attrs).to(x.dtype)


def _unfold_grad_lower(torch: Any, x: Any, dy: Any, **attrs: Any) -> Any:
    return _torch_fold(torch, torch_wide(dy), x.shape[2:], attrs).to(x.dtype)


def _fold_lower(torch: Any, x: Any, **attrs: Any) -> Any:
    return _torch_fold(torch, torch_wide(x), attrs["output_sizes"], attrs).to(x.dtype)


# ------------------------------------------------------------------------------------------------------- op definitions
def _pair(values: Sequence[int]) -> str | None:
    return None if len(values) == 2 and min(values) > 0 else "two positive sizes"


def _sides(values: Sequence[int]) -> str | None:
    return None if len(values) == 4 and min(values) >= 0 else "top, left, bottom and right of at least 0"


# Shared by unfold and fold, which are each other's gradient.
_GEOMETRY: dict[str, Any] = {
    "kernel_sizes": Attr(kind="ints", check=_pair),
    "strides": Attr((1, 1), "ints", _pair),
    "paddings": Attr((0, 0, 0, 0), "ints", _sides),
    "dilations": Attr((1, 1), "ints", _pair),
}


def _unfold_of(ctx: GradContext, value: str, given: str) -> list[OpSpec]:
    """Unfolds the gradient that arrives at ``value`` to that of ``given``: both ops are adjoint."""
    if given not in ctx.in_grads or value not in ctx.out_grads:
        return []
    attrs = {n: ctx.attrs[n] for n in _GEOMETRY}
    return [OpSpec("unfold", {"X": [ctx.out_grads[value]]}, {"Y": [ctx.in_grads[given]]}, attrs)]


def _fold_grad(ctx: GradContext) -> list[OpSpec]:
    return _unfold_of(ctx, ctx.outputs["Y"][0], ctx.inputs["X"][0])


def _unfold_grad_grad(ctx: GradContext) -> list[OpSpec]:
    return _unfold_of(ctx, ctx.outputs["X" + GRAD][0], ctx.inputs["Y" + GRAD][0])


register(OpDef(
    "unfold", "X -> Y", attrs=_GEOMETRY, infer=_unfold_infer,
    ref=plain(in_float32()(_unfold_ref), lambda x, y, **attrs: _padded_image(x, attrs)), lower=_unfold_lower,
    split=Split(BATCHES, 0),
    grad=GradOp(
        "X, Y@GRAD -> X@GRAD",
        ref=plain(in_float32()(_unfold_grad_ref), lambda x, dy, dx, **attrs: _padded_image(dx, attrs)),
        lower=_unfold_grad_lower,
        split=Split(BATCHES, 0),
        shape_only=("X",),
        grad=_unfold_grad_grad,
    ),
    amp="gray",
    domain=Domain(
        cases=(
            Case(((2, 3, 4, 5),), {"kernel_sizes": (2, 3)}),
            Case(((1, 2, 5, 6),), {"kernel_sizes": (3, 2), "strides": (2, 1), "paddings": (1, 1, 1, 1)}),
            Case(((2, 2, 5, 5),), {"kernel_sizes": (2, 2), "paddings": (1, 0, 0, 2)}),
            Case(((1, 2, 7, 6),), {"kernel_sizes": (3, 2), "dilations": (2, 3)}),
            Case(((0, 2, 4, 4),), {"kernel_sizes": (2, 2)}),
            Case(((1, 1, 1, 1),), {"kernel_sizes": (1, 1)}),
        ),
    ), onnx=lambda g, x, **a: _onnx.unfold(g, x, Blocks(x.shape[2:], a)),
))  # fmt: skip
register(OpDef(
    "fold", "X -> Y", attrs={"output_sizes": Attr(kind="ints"), **_GEOMETRY}, infer=_fold_infer,
    ref=plain(in_float32()(_fold_ref), lambda x, y, **attrs: _padded_image(y, attrs)), lower=_fold_lower,
    split=Split(BATCHES, 0), grad=_fold_grad, amp="gray",
    domain=Domain(
        cases=(
            Case(((2, 18, 9),), {"output_sizes": (4, 5), "kernel_sizes": (2, 3)}),
            Case(
                ((1, 6, 9),),
                {"output_sizes": (5, 4), "kernel_sizes": (3, 2), "strides": (2, 1), "paddings": (1, 0, 1, 0)},
            ),
            Case(((2, 8, 25),), {"output_sizes": (5, 4), "kernel_sizes": (2, 2), "paddings": (1, 0, 0, 2)}),
            Case(((1, 12, 9),), {"output_sizes": (7, 6), "kernel_sizes": (3, 2), "dilations": (2, 3)}),
            Case(((0, 8, 9),), {"output_sizes": (4, 4), "kernel_sizes": (2, 2)}),
            Case(((1, 1, 1),), {"output_sizes": (1, 1), "kernel_sizes": (1, 1)}),
        ),
    ), onnx=lambda g, x, **a: _onnx.fold(g, x, Blocks(a["output_sizes"], a), a["output_sizes"]),
))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ functions
def _geometry(kernel_sizes: Any, strides: Any, paddings: Any, dilations: Any, function: str) -> dict[str, Any]:
    four = isinstance(paddings, list | tuple) and len(paddings) == 4
    pads = check_ints(paddings, 4 if four else 2, "paddings", function)
    return {
        "kernel_sizes": check_ints(kernel_sizes, 2, "kernel_sizes", function),
        "strides": check_ints(strides, 2, "strides", function),
        # Two values are top and left, and hold for bottom and right.
        "paddings": pads if four else (*pads, *pads),
        "dilations": check_ints(dilations, 2, "dilations", function),
    }


@export("nn.functional.unfold", "fluid.layers.unfold", op="unfold")
def unfold(
    x: Variable, kernel_sizes: Any, strides: Any = 1, paddings: Any = 0, dilations: Any = 1, name: str | None = None
) -> Variable:
    """Returns every sliding block of an image as a column.

    Args:
        x: ``[n, c, h, w]``, floats.
        kernel_sizes: Height and width of a block, or an int.
        strides, dilations: An int, or one per axis.
        paddings: An int, ``[h, w]``, or ``[top, left, bottom, right]``.
        name: The layer's name.

    Returns:
        ``[n, c * kh * kw, blocks]``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = paddle.reshape(paddle.arange(6.0), [1, 1, 2, 3])
        >>> y = paddle.nn.functional.unfold(x, kernel_sizes=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[0., 1.],
                [1., 2.],
                [3., 4.],
                [4., 5.]]], dtype=float32)
    """
    check_variable(x, "x", "unfold")
    return emit_one("unfold", {"X": x}, _geometry(kernel_sizes, strides, paddings, dilations, "unfold"), name=name)


@export("nn.functional.fold", op="fold")
def fold(
    x: Variable,
    output_sizes: Any,
    kernel_sizes: Any,
    strides: Any = 1,
    paddings: Any = 0,
    dilations: Any = 1,
    name: str | None = None,
) -> Variable:
    """Adds columns back into the image that their blocks come from; where blocks overlap, values are summed.

    Args:
        x: ``[n, c * kh * kw, blocks]``, floats.
        output_sizes: Height and width of the image, or an int.
        kernel_sizes, strides, paddings, dilations, name: As in :func:`unfold`.

    Returns:
        ``[n, c, height, width]``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.

    Example:
        >>> x = paddle.ones([1, 4, 2])
        >>> y = paddle.nn.functional.fold(x, output_sizes=[2, 3], kernel_sizes=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[1., 2., 1.],
                 [1., 2., 1.]]]], dtype=float32)
    """
    check_variable(x, "x", "fold")
    attrs = _geometry(kernel_sizes, strides, paddings, dilations, "fold")
    attrs["output_sizes"] = check_ints(output_sizes, 2, "output_sizes", "fold")
    return emit_one("fold", {"X": x}, attrs, name=name)
