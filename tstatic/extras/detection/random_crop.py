"""Parts of given sizes, each from a random place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_int, check_length
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, export, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.shapes import emit_one
from tstatic.tuned import draw
from tstatic.tuned.philox import philox_key

Array = np.ndarray[Any, Any]


def _infer(x: Meta, *, shape: Sequence[int]) -> Meta:
    lead = x.rank - len(shape)
    check_fit(
        lead >= 0 and all(size == UNKNOWN or size >= s for size, s in zip(x.shape[max(lead, 0) :], shape, strict=False)),
        (x,), ("X",), "the part is larger than the value that it is cut from", f"at least {list(shape)} in the last axes",
        "cut a smaller part, or pad the value",
    )  # fmt: skip
    return x.with_shape((*x.shape[:lead], *shape))


def _starts(u: Any, room: Sequence[int], count: int) -> Any:
    """Returns where each part begins along each axis, ``[parts, axes]``, from uniform numbers."""
    # room + 1 places are possible along an axis: the last one ends with the value.
    return (u.reshape(count, len(room)) * [n + 1 for n in room]).astype(np.int64)


def _crop(x: Any, out: Any, u: Array, shape: Sequence[int]) -> None:
    lead = x.shape[: len(x.shape) - len(shape)]
    count = math.prod(lead)
    room = [size - s for size, s in zip(x.shape[len(lead) :], shape, strict=True)]
    # Every leading index is a sample, which is cut at a place of its own.
    for place, starts in zip(np.ndindex(*lead), _starts(u, room, count).tolist(), strict=True):
        out[place] = x[(*place, *(slice(at, at + s) for at, s in zip(starts, shape, strict=True)))]


def _count(x: Any, shape: Sequence[int]) -> int:
    return int(math.prod(x.shape[: len(x.shape) - len(shape)]) * len(shape))


def _ref(x: Array, out: Array, *, shape: Sequence[int], seed: int, rng: Any) -> None:
    # One number for each part and axis, all at once: the order of numbers does not depend on how parts are walked.
    u = np.empty(_count(x, shape))
    draw.fill_uniform(u, 0.0, 1.0, philox_key(rng, seed), rng.start)
    _crop(x, out, u, shape)


def _lower(torch: Any, x: Any, *, shape: Sequence[int], seed: int, rng: Any) -> Any:
    u = draw.torch_uniform(
        torch, _count(x, shape), np.dtype(np.float64), 0.0, 1.0, philox_key(rng, seed), rng.start, x.device
    )
    out = x.new_empty((*x.shape[: len(x.shape) - len(shape)], *shape))
    _crop(x, out, u.cpu().numpy(), shape)
    return out


register(OpDef(
    "random_crop", "X -> Out", attrs={"shape": Attr(kind="ints"), "seed": 0}, infer=_infer, ref=_ref, lower=_lower,
    random=True, paddle=ABSENT,
    domain=Domain(
        cases=(
            Case(((3, 5, 4),), {"shape": (2, 2)}), Case(((6,),), {"shape": (3,)}),
            Case(((2, 3, 4),), {"shape": (2, 4), "seed": 3}), Case(((0, 3),), {"shape": (2,)}),
        ),
        others=("int64",), ulps=0, check_grad="as in Paddle, no gradient reaches what is cropped",
    ),
))  # fmt: skip


@export("fluid.layers.random_crop", op="random_crop")
def random_crop(x: Variable, shape: Sequence[int], seed: int | None = None) -> Variable:
    """Cuts a part of the given sizes from a random place of each sample.

    Args:
        x: ``[..., sizes]``; the axes before those of ``shape`` count samples.
        shape: Sizes of the part along the last axes.
        seed: Replaces the program's seed if it is neither ``None`` nor 0.

    Returns:
        ``[..., shape]``. No gradient flows through it, as in Paddle.

    Raises:
        ShapeError: If a part is larger than a sample.

    Example:
        >>> image = static.data("image", [None, 3, 256, 256])
        >>> part = fluid.layers.random_crop(image, shape=[3, 224, 224])
        >>> part.shape
        (-1, 3, 224, 224)
    """
    function = "random_crop"
    check_variable(x, "x", function)
    check_length(list(shape), range(1, len(x.shape) + 1), "shape", function, why="one size per cropped axis")
    sizes = [check_int(size, "shape", function, 1) for size in shape]
    return emit_one(function, {"X": x}, {"shape": sizes, "seed": check_int(seed or 0, "seed", function)})
