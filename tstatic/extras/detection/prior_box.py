"""Boxes of several sizes and shapes around each pixel of a feature map (Liu et al., 2016)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.extras.detection._boxes import Array
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, check_each, check_length, check_number, check_rank, check_same_dtype, check_type
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.torch_tables import fresh
from tstatic.ir.types import Meta

TYPES = ("float32", "float64")
_SAME = 1e-6
"""Ratios that differ by less are one."""


def _ratios(aspect_ratios: Sequence[float], flip: bool) -> list[float]:
    """Returns the distinct ratios, 1 first."""
    found = [1.0]
    for ratio in aspect_ratios:
        if all(abs(ratio - other) >= _SAME for other in found):
            found += [ratio, 1.0 / ratio] if flip else [ratio]
    return found


def _sides(
    min_sizes: Sequence[float], max_sizes: Sequence[float], ratios: Sequence[float], max_first: bool
) -> list[tuple[float, float]]:
    """Returns the width and height of each box of a pixel."""
    sides: list[tuple[float, float]] = []
    for i, size in enumerate(min_sizes):
        shaped = [(size * math.sqrt(r), size / math.sqrt(r)) for r in ratios]
        middle = [(math.sqrt(size * max_sizes[i]),) * 2] if len(max_sizes) else []
        sides += [shaped[0], *middle, *shaped[1:]] if max_first else [*shaped, *middle]
    return sides


def _infer(
    x: Meta, image: Meta, *, min_sizes: Sequence[float], max_sizes: Sequence[float], aspect_ratios: Sequence[float],
    flip: bool,
) -> tuple[Meta, Meta]:  # fmt: skip
    for value, slot in ((x, "Input"), (image, "Image")):
        check_rank(value, 4, slot, layout="[n, c, h, w]")
    check_same_dtype((x, image), ("Input", "Image"))
    if len(max_sizes):
        check_length(max_sizes, len(min_sizes), "max_sizes", "prior_box", why="one per size in min_sizes")
    count = len(_ratios(aspect_ratios, flip)) * len(min_sizes) + len(max_sizes)
    out = x.with_shape((x.shape[2], x.shape[3], count, 4))
    return out, out


def _priors(
    xp: Any, x: Any, image: Any, line: Any, sides: list[tuple[float, float]], clip: bool, step_w: float, step_h: float,
    offset: float,
) -> Any:  # fmt: skip
    height, width = x.shape[2:]
    full_h, full_w = image.shape[2:]
    # As in Paddle, both steps are given or both follow from the sizes.
    across, down = (step_w, step_h) if step_w and step_h else (full_w / width, full_h / height)
    cx = ((line(width) + offset) * across)[None, :, None]
    cy = ((line(height) + offset) * down)[:, None, None]
    half_w, half_h = line([w / 2 for w, _ in sides]), line([h / 2 for _, h in sides])
    shape = (height, width, len(sides))
    parts = [(cx - half_w) / full_w, (cy - half_h) / full_h, (cx + half_w) / full_w, (cy + half_h) / full_h]
    boxes = xp.stack([xp.broadcast_to(p, shape) for p in parts], -1)
    return xp.clip(boxes, 0.0, 1.0) if clip else boxes


def _ref(
    x: Array, image: Array, boxes: Array | None, spread: Array | None, *, min_sizes: Sequence[float],
    max_sizes: Sequence[float], aspect_ratios: Sequence[float], variances: Sequence[float], flip: bool, clip: bool,
    step_w: float, step_h: float, offset: float, min_max_aspect_ratios_order: bool,
) -> None:  # fmt: skip
    def line(values: Any) -> Array:
        return np.asarray(np.arange(values) if isinstance(values, int) else values, x.dtype)

    sides = _sides(min_sizes, max_sizes, _ratios(aspect_ratios, flip), min_max_aspect_ratios_order)
    if boxes is not None:
        np.copyto(boxes, _priors(np, x, image, line, sides, clip, step_w, step_h, offset), casting="same_kind")
    if spread is not None:
        spread[...] = variances


def _lower(
    torch: Any, x: Any, image: Any, *, min_sizes: Sequence[float], max_sizes: Sequence[float],
    aspect_ratios: Sequence[float], variances: Sequence[float], flip: bool, clip: bool, step_w: float, step_h: float,
    offset: float, min_max_aspect_ratios_order: bool, tables: Any = fresh,
) -> Any:  # fmt: skip
    def line(values: Any) -> Any:
        given = range(values) if isinstance(values, int) else values
        return tables(torch, list(given), x.dtype, x.device)

    sides = _sides(min_sizes, max_sizes, _ratios(aspect_ratios, flip), min_max_aspect_ratios_order)
    boxes = _priors(torch, x, image, line, sides, clip, step_w, step_h, offset)
    return boxes, line(list(variances)).expand(boxes.shape).clone()


register(OpDef(
    "prior_box", "Input, Image -> Boxes, Variances",
    attrs={
        "min_sizes": Attr(kind="floats"), "max_sizes": Attr((), "floats"), "aspect_ratios": Attr((1.0,), "floats"),
        "variances": Attr((0.1, 0.1, 0.2, 0.2), "floats", lambda v: None if len(v) == 4 else "four numbers"),
        "flip": False, "clip": False, "step_w": 0.0, "step_h": 0.0, "offset": 0.5, "min_max_aspect_ratios_order": False,
    },
    infer=_infer, ref=_ref, lower=_lower, shape_only=("Input", "Image"),
    domain=Domain(
        cases=(
            Case(((1, 2, 2, 3), (1, 3, 8, 9)), {"min_sizes": (2.0, 4.0), "aspect_ratios": (2.0,), "flip": True}),
            Case(
                ((1, 1, 2, 2), (1, 1, 6, 6)),
                {"min_sizes": (2.0,), "max_sizes": (5.0,), "aspect_ratios": (1.0, 2.0), "clip": True,
                 "min_max_aspect_ratios_order": True},
            ),
            Case(
                ((2, 1, 1, 2), (2, 1, 4, 4)),
                {"min_sizes": (2.0,), "max_sizes": (3.0,), "aspect_ratios": (3.0,), "step_w": 2.0, "step_h": 3.0,
                 "offset": 0.25, "variances": (0.1, 0.2, 0.3, 0.4)},
            ),
        ),
        floats=TYPES, ulps=16.0, check_grad="the boxes depend on shapes alone",
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


def _prior_box(function: str, input: Variable, image: Variable, steps: Any, **attrs: Any) -> tuple[Variable, Variable]:
    ins = {
        "Input": check_variable(input, "input", function, FLOATS),
        "Image": check_variable(image, "image", function, FLOATS),
    }
    for name in ("min_sizes", "max_sizes", "aspect_ratios", "variances"):
        given = attrs[name]
        given = () if given is None else given if isinstance(given, list | tuple) else (given,)
        attrs[name] = [check_number(v, name, function) for v in given]
    for name in ("flip", "clip", "min_max_aspect_ratios_order"):
        check_type(attrs[name], bool, name, function)
    attrs["offset"] = check_number(attrs["offset"], "offset", function)
    attrs["step_w"], attrs["step_h"] = (
        check_number(v, "steps", function, least=0.0) for v in check_each(steps, 2, "steps", function, "axis")
    )
    name = attrs.pop("name")
    boxes, variances = emit("prior_box", ins, attrs, name=name)
    for made in (boxes, variances):
        made.stop_gradient = True
    return boxes, variances


@export("vision.ops.prior_box", op="prior_box")
def prior_box(
    input: Variable,
    image: Variable,
    min_sizes: Any,
    max_sizes: Any = None,
    aspect_ratios: Any = (1.0,),
    variance: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    flip: bool = False,
    clip: bool = False,
    steps: Any = (0.0, 0.0),
    offset: float = 0.5,
    min_max_aspect_ratios_order: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Returns boxes around each pixel of a feature map: one per size and ratio, and one between two sizes.

    Args:
        input: The feature map ``[n, c, h, w]``; floats, only its shape counts.
        image: The image ``[n, c, image height, image width]``, likewise.
        min_sizes: The side of each square, in pixels of the image.
        max_sizes: One per ``min_sizes``: a square as large as the geometric mean of both is added.
        aspect_ratios: Widths over heights; 1 is always one of them.
        variance: Four numbers that go with each box.
        flip: Add the reciprocal of each ratio.
        clip: Clip boxes to the image.
        steps: Pixels of the image per pixel of the map, ``[across, down]``; 0 for what the sizes give.
        offset: Where in its pixel a box has its centre.
        min_max_aspect_ratios_order: Put the square between two sizes second instead of last.
        name: Name of the layer.

    Returns:
        Boxes ``[h, w, boxes, 4]`` in fractions of the image, and ``variance`` for each.

    Raises:
        ShapeError: If ranks or the number of sizes do not fit.

    Example:
        >>> boxes, _ = paddle.vision.ops.prior_box(paddle.zeros([1, 1, 1, 1]), paddle.zeros([1, 3, 8, 8]), min_sizes=[4.0])
        >>> static.Executor().run(fetch_list=[boxes])[0]
        array([[[[0.25, 0.25, 0.75, 0.75]]]], dtype=float32)
    """
    return _prior_box(
        "prior_box", input, image, steps, min_sizes=min_sizes, max_sizes=max_sizes, aspect_ratios=aspect_ratios,
        variances=variance, flip=flip, clip=clip, offset=offset, min_max_aspect_ratios_order=min_max_aspect_ratios_order, name=name,
    )  # fmt: skip


@export("fluid.layers.prior_box", op="prior_box")
def fluid_prior_box(
    input: Variable,
    image: Variable,
    min_sizes: Any,
    max_sizes: Any = None,
    aspect_ratios: Any = (1.0,),
    variance: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    flip: bool = False,
    clip: bool = False,
    steps: Any = (0.0, 0.0),
    offset: float = 0.5,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable]:
    """Returns boxes around each pixel of a feature map; arguments as of :func:`prior_box`.

    Args:
        input, image, min_sizes, max_sizes, aspect_ratios, variance, flip, clip, steps, offset, name: As there.
        min_max_aspect_ratios_order: As there.
    """
    return prior_box(
        input, image, min_sizes, max_sizes, aspect_ratios, variance, flip, clip, steps, offset,
        min_max_aspect_ratios_order, name,
    )  # fmt: skip
