"""The blocks of an image as the rows of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError, UnsupportedError
from tstatic.extras.sequence._offsets import Array
from tstatic.ir.attrs import Attr
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_dtype, check_ints, check_rank
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int64
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import emit_one

Ints = Sequence[int]


def _sizes(height: int, width: int, kernels: Ints, strides: Ints, paddings: Ints) -> tuple[int, int]:
    """Returns how many blocks stand under and beside each other; paddings are up, left, down, right."""
    found = []
    for i, size in enumerate((height, width)):
        padded = size + paddings[i] + paddings[i + 2]
        found.append(UNKNOWN if size == UNKNOWN else (padded - kernels[i]) // strides[i] + 1)
    return found[0], found[1]


def _infer(x: Meta, kernels: Ints, strides: Ints, paddings: Ints) -> tuple[Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    check_rank(x, 4, "X", layout="NCHW")
    n, c, h, w = x.shape
    oh, ow = _sizes(h, w, kernels, strides, paddings)
    if any(size != UNKNOWN and size < 1 for size in (oh, ow)):
        raise ShapeError(
            "the blocks of im2sequence are larger than the padded images",
            expected=f"images of at least {list(kernels)}, padding included",
            received=list(x.shape[2:]),
            fix="choose a smaller filter_size, or more padding",
        )
    # All images of a batch have as many blocks, so sizes are known where those of the images are.
    rows = UNKNOWN if UNKNOWN in (n, oh, ow) else n * oh * ow
    numbers = UNKNOWN if c == UNKNOWN else c * kernels[0] * kernels[1]
    return x.with_shape((rows, numbers)), Meta((UNKNOWN if n == UNKNOWN else n + 1,), int64)


def _windows(padded: Array, strides: Ints, kernels: Ints) -> Array:
    """Returns ``[n, oh, ow, c, kh, kw]``, a view."""
    # Windows at all places, then every stride-th: both are strides of a view, the blocks are copied once, into `out`.
    found = np.lib.stride_tricks.sliding_window_view(padded, tuple(kernels), (2, 3))
    return found[:, :, :: strides[0], :: strides[1]].transpose(0, 2, 3, 1, 4, 5)


def _padded(x: Array, paddings: Ints) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (paddings[0], paddings[2]), (paddings[1], paddings[3])))


def _ref(x: Array, out: Array | None, offsets: Array | None, *, kernels: Ints, strides: Ints, paddings: Ints) -> None:
    windows = _windows(_padded(x, paddings), strides, kernels)
    if out is not None:
        np.copyto(out, windows.reshape(out.shape))
    if offsets is not None:
        np.copyto(offsets, np.arange(len(x) + 1) * (windows.shape[1] * windows.shape[2]))


@in_float32()
def _back(x: Array, dout: Array, dx: Array, *, kernels: Ints, strides: Ints, paddings: Ints) -> None:
    n, c, h, w = x.shape
    oh, ow = _sizes(h, w, kernels, strides, paddings)
    blocks = dout.reshape(n, oh, ow, c, *kernels)
    total = np.zeros((n, c, h + paddings[0] + paddings[2], w + paddings[1] + paddings[3]), dx.dtype)
    for i in range(kernels[0]):
        for j in range(kernels[1]):
            # Blocks overlap; within one place of the block, every element is met once.
            rows, columns = slice(i, i + strides[0] * oh, strides[0]), slice(j, j + strides[1] * ow, strides[1])
            # Of the slice, oh by ow places: where blocks leave a rest at the edge, it would have one more.
            total[:, :, rows, columns][:, :, :oh, :ow] += blocks[..., i, j].transpose(0, 3, 1, 2)
    np.copyto(dx, total[:, :, paddings[0] : paddings[0] + h, paddings[1] : paddings[1] + w])


def _lower(torch: Any, x: Any, *, kernels: Ints, strides: Ints, paddings: Ints) -> Any:
    # torch pads from the last axis on: left, right, up, down.
    up, left, down, right = paddings
    padded = torch.nn.functional.pad(torch_wide(x), (left, right, up, down))
    columns = torch.nn.functional.unfold(padded, tuple(kernels), stride=tuple(strides))
    out = columns.transpose(1, 2).reshape(-1, columns.shape[1]).to(x.dtype)
    return out, torch.arange(len(x) + 1, device=x.device) * columns.shape[2]


def _lower_back(torch: Any, x: Any, dout: Any, *, kernels: Ints, strides: Ints, paddings: Ints) -> Any:
    up, left, down, right = paddings
    h, w = x.shape[2] + up + down, x.shape[3] + left + right
    columns = torch_wide(dout).reshape(len(x), -1, dout.shape[1]).transpose(1, 2)
    folded = torch.nn.functional.fold(columns, (h, w), tuple(kernels), stride=tuple(strides))
    return folded[:, :, up : h - down, left : w - right].to(x.dtype)


def _pair(least: int) -> Any:
    return lambda v: None if len(v) == 2 and min(v) >= least else f"two numbers of at least {least}"


register(OpDef(
    "im2sequence", f"X -> Out, Out{LOD}",
    attrs={
        "kernels": Attr(kind="ints", check=_pair(1)), "strides": Attr((1, 1), "ints", _pair(1)),
        "paddings": Attr((0, 0, 0, 0), "ints", lambda v: None if len(v) == 4 and min(v) >= 0 else "four numbers from 0"),
    },
    infer=_infer, ref=_ref, lower=_lower,
    grad=GradOp(
        f"X, Out{GRAD} -> X{GRAD}", ref=_back, lower=_lower_back, shape_only=("X",), grad=grad_is_forward_op("im2sequence"),
    ),
    domain=Domain(
        cases=(
            Case(((2, 2, 4, 3),), {"kernels": (2, 2)}),
            Case(((1, 1, 5, 5),), {"kernels": (3, 2), "strides": (2, 1), "paddings": (1, 0, 0, 2)}),
            Case(((3, 2, 2, 2),), {"kernels": (1, 1), "strides": (2, 2)}),
        ),
        ulps=4.0,
    ),
))  # fmt: skip


@export("fluid.layers.im2sequence", op="im2sequence")
def im2sequence(
    input: Variable,
    filter_size: Any = 1,
    stride: Any = 1,
    padding: Any = 0,
    input_image_size: Variable | None = None,
    out_stride: Any = 1,
    name: str | None = None,
) -> Variable:
    """Makes a sequence of each image: its blocks from left to right, row under row.

    Args:
        input: ``[n, c, h, w]`` floats.
        filter_size: Height and width of a block: an int, or two.
        stride: Steps from block to block: an int, or two.
        padding: Zeros around the image: an int, ``[up and down, left and right]``, or ``[up, left, down, right]``.
        input_image_size: Not supported: images of one batch have one size.
        out_stride: Goes with ``input_image_size``.
        name: Name of the layer.

    Returns:
        ``[n * blocks, c * height * width]`` with a LoD of ``n`` sequences.

    Raises:
        ShapeError: If a block is larger than the padded image.
        UnsupportedError: If ``input_image_size`` is given.

    Example:
        >>> x = static.data("x", [None, 1, 2, 3])
        >>> y = fluid.layers.im2sequence(x, filter_size=[2, 1])
        >>> feed = {"x": np.arange(6, dtype="float32").reshape(1, 1, 2, 3)}
        >>> done = static.Executor().run(feed=feed, fetch_list=[y], return_numpy=False)[0]
        >>> np.array(done).tolist(), done.lod()
        ([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]], [[0, 3]])
    """
    function = "im2sequence"
    if input_image_size is not None or out_stride not in (1, (1, 1), [1, 1]):
        raise UnsupportedError(
            "im2sequence with sizes of images given at run time is not part of tstatic",
            expected="images of one size",
            received="input_image_size or out_stride",
            fix="resize the images before the feed, and leave both out",
            op=function,
        )
    pads = [padding] * 4 if isinstance(padding, int) else list(padding)
    # Two numbers are (up and down, left and right); Paddle's order is up, left, down, right.
    pads = [*pads, *pads] if len(pads) == 2 else pads
    attrs = {
        "kernels": check_ints(filter_size, 2, "filter_size", function), "strides": check_ints(stride, 2, "stride", function),
        "paddings": check_ints(pads, 4, "padding", function),
    }  # fmt: skip
    return emit_one(function, {"X": check_variable(input, "input", function, FLOATS)}, attrs, name=name)
