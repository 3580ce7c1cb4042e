"""Rearrangements of channels among themselves, between channels and pixels, and between the frames of videos."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    FLOATS,
    check_choice,
    check_divisible,
    check_int,
    check_number,
    check_rank,
    check_static_dim,
)
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, export, register
from tstatic.ir.paddle_form import ABSENT, PaddleForm
from tstatic.ir.program import Variable
from tstatic.ir.split import IMAGES, Split
from tstatic.ir.types import UNKNOWN, Meta, Shape
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.norm import OutputView
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.base.sliding import assemble, channels, first, is_last, layout_attr, spatial
from tstatic.ops.shape import _shape_onnx as _onnx
from tstatic.ops.shape.joining import concat
from tstatic.ops.shape.pad import pad
from tstatic.ops.shape.reshape import flatten, reshape, unsqueeze
from tstatic.tuned._common import Array


class Permutation(NamedTuple):
    """``reshape(parts).transpose(axes).reshape(out)``, of a channels-first array."""

    parts: Shape
    axes: tuple[int, ...]
    out: Shape


Planner = Callable[[Shape, Mapping[str, Any]], Permutation]


def _divided(height: int, width: int, by: int, divisor: str, op: str) -> tuple[int, int]:
    return check_divisible(height, by, "the height", divisor, op), check_divisible(width, by, "the width", divisor, op)


def _times(value: int, by: int) -> int:
    return UNKNOWN if value == UNKNOWN else value * by


def _pixel_shuffle(shape: Shape, attrs: Mapping[str, Any]) -> Permutation:
    n, c, h, w = shape
    r = attrs["upscale_factor"]
    count = check_divisible(c, r * r, "the number of channels", "upscale_factor**2", "pixel_shuffle")
    # Channel (c r + i) r + j becomes pixel (h r + i, w r + j): each of the two r goes behind its axis.
    return Permutation((n, count, r, r, h, w), (0, 1, 4, 2, 5, 3), (n, count, _times(h, r), _times(w, r)))


def _pixel_unshuffle(shape: Shape, attrs: Mapping[str, Any]) -> Permutation:
    n, c, h, w = shape
    r = attrs["downscale_factor"]
    oh, ow = _divided(h, w, r, "downscale_factor", "pixel_unshuffle")
    return Permutation((n, c, oh, r, ow, r), (0, 1, 3, 5, 2, 4), (n, _times(c, r * r), oh, ow))


def _shuffle(shape: Shape, attrs: Mapping[str, Any]) -> Permutation:
    n, c, h, w = shape
    # The operators differ in the attribute's name alone.
    name, groups = next((n, attrs[n]) for n in ("group", "groups") if n in attrs)
    each = check_divisible(c, groups, "the number of channels", name)
    return Permutation((n, groups, each, h, w), (0, 2, 1, 3, 4), shape)


def _space_to_depth(shape: Shape, attrs: Mapping[str, Any]) -> Permutation:
    """Moves channels to pixels of an image ``blocksize`` times as large and reads that again in rows, as Paddle does."""
    n, c, h, w = shape
    r = attrs["blocksize"]
    count = check_divisible(c, r * r, "the number of channels", "blocksize**2", "space_to_depth")
    oh, ow = _divided(h, w, r, "blocksize", "space_to_depth")
    # Not the inverse of pixel_shuffle: Paddle reads the larger image again in rows, so blocks come before channels.
    return Permutation((n, r, r, count, h, w), (0, 3, 4, 1, 5, 2), (n, _times(c, r * r), oh, ow))


def _first_shape(shape: Shape, layout: str) -> Shape:
    return (shape[0], channels(shape, layout), *spatial(shape, layout))


def _move(source: Array, target: Array, plan: Permutation, back: bool) -> None:
    if back:
        # The incoming gradient has the order of the result, so the target is viewed in that order, too.
        place = OutputView(target, plan.parts)
        wide = tuple(plan.parts[a] for a in plan.axes)
        np.copyto(place.view.transpose(plan.axes), source.reshape(wide))
    else:
        moved = source.reshape(plan.parts).transpose(plan.axes)
        # A target without a view of that shape gets its values through a buffer, which `store` writes back.
        place = OutputView(target, moved.shape)
        np.copyto(place.view, moved)
    place.store()


def _permuting(
    type: str, planner: Planner, attrs: dict[str, Any], cases: tuple[Case, ...], paddle: PaddleForm | None = None
) -> None:
    """Registers an op that only moves values, and its backward op, the same moves backwards."""

    def layout_of(given: Mapping[str, Any]) -> str:
        return str(given.get("data_format", "NCHW"))

    def infer(x: Meta, **given: Any) -> Meta:
        layout = layout_of(given)
        check_rank(x, (4,), "X", layout=layout)
        # Plans are written for channels first; other layouts are views in that order.
        n, c, *sizes = planner(_first_shape(x.shape, layout), given).out
        return x.with_shape(assemble(n, c, sizes, layout))

    def ref(x: Array, out: Array, **given: Any) -> None:
        source, target = (first(a, layout_of(given)) for a in (x, out))
        _move(source, target, planner(source.shape, given), False)

    def grad_ref(x: Array, dout: Array, dx: Array, **given: Any) -> None:
        source, target = (first(a, layout_of(given)) for a in (dout, dx))
        _move(source, target, planner(target.shape, given), True)

    def lower(torch: Any, x: Any, **given: Any) -> Any:
        last = is_last(layout_of(given))
        source = x.movedim(-1, 1) if last else x
        plan = planner(tuple(source.shape), given)
        out = source.reshape(plan.parts).permute(plan.axes).reshape(plan.out)
        return out.movedim(1, -1) if last else out

    def onnx(g: Any, x: Any, **given: Any) -> Any:
        layout = layout_of(given)
        return _onnx.permuted(g, x, planner(_first_shape(x.shape, layout), given), is_last(layout))

    def grad_lower(torch: Any, x: Any, dout: Any, **given: Any) -> Any:
        last = is_last(layout_of(given))
        source = dout.movedim(-1, 1) if last else dout
        plan = planner(_first_shape(tuple(x.shape), layout_of(given)), given)
        # The inverse permutation.
        order = sorted(range(len(plan.axes)), key=plan.axes.__getitem__)
        wide = source.reshape([plan.parts[a] for a in plan.axes])
        dx = wide.permute(order).reshape(_first_shape(tuple(x.shape), layout_of(given)))
        return dx.movedim(1, -1) if last else dx

    register(
        OpDef(
            type,
            "X -> Out",
            attrs=attrs,
            infer=infer,
            ref=ref,
            lower=lower,
            paddle=paddle,
            split=Split(IMAGES, 0),
            grad=GradOp(
                "X, Out@GRAD -> X@GRAD",
                ref=grad_ref,
                lower=grad_lower,
                split=Split(IMAGES, 0),
                shape_only=("X",),
                grad=grad_is_forward_op(type),
            ),
            amp="gray",
            domain=Domain(cases=cases, others=("int64", "bool"), ulps=0.0),
            onnx=onnx,
        )
    )


def _count(what: str) -> Attr:
    return Attr(1, "int", lambda v: None if v > 0 else f"{what} of at least 1")


_permuting(
    "pixel_shuffle", _pixel_shuffle, {"upscale_factor": _count("a factor"), "data_format": layout_attr("NCHW")},
    (
        Case(((2, 8, 3, 2),), {"upscale_factor": 2}), Case(((1, 9, 2, 2),), {"upscale_factor": 3}),
        Case(((2, 3, 2, 8),), {"upscale_factor": 2, "data_format": "NHWC"}),
        Case(((0, 4, 2, 2),), {"upscale_factor": 2}), Case(((2, 3, 2, 2),), {"upscale_factor": 1}),
        Case(((1, 4, 1, 1),), {"upscale_factor": 2}),
    ),
)  # fmt: skip
_permuting(
    "pixel_unshuffle", _pixel_unshuffle, {"downscale_factor": _count("a factor"), "data_format": layout_attr("NCHW")},
    (
        Case(((2, 2, 4, 6),), {"downscale_factor": 2}), Case(((1, 1, 6, 3),), {"downscale_factor": 3}),
        Case(((2, 4, 2, 3),), {"downscale_factor": 2, "data_format": "NHWC"}),
        Case(((0, 2, 2, 2),), {"downscale_factor": 2}), Case(((2, 3, 2, 2),), {"downscale_factor": 1}),
        Case(((1, 1, 2, 2),), {"downscale_factor": 2}),
    ),
)  # fmt: skip
_permuting(
    "shuffle_channel", _shuffle, {"group": _count("a number of groups")},
    (
        Case(((2, 6, 2, 3),), {"group": 3}), Case(((2, 6, 2, 3),), {"group": 2}), Case(((1, 4, 1, 1),), {"group": 4}),
        Case(((0, 4, 2, 2),), {"group": 2}), Case(((2, 3, 2, 2),), {"group": 1}), Case(((1, 8, 3, 1),), {"group": 4}),
    ),
)  # fmt: skip
_permuting(
    "channel_shuffle", _shuffle, {"groups": _count("a number of groups"), "data_format": layout_attr("NCHW")},
    (
        Case(((2, 6, 2, 3),), {"groups": 3}), Case(((2, 2, 3, 6),), {"groups": 2, "data_format": "NHWC"}),
        Case(((1, 4, 1, 1),), {"groups": 4}), Case(((0, 4, 2, 2),), {"groups": 2}),
        Case(((2, 3, 2, 2),), {"groups": 1}), Case(((1, 8, 3, 1),), {"groups": 4}),
    ),
)  # fmt: skip
_permuting(
    "space_to_depth", _space_to_depth,
    {"blocksize": Attr(kind="int", check=lambda v: None if v > 0 else "a block size of at least 1")},
    (
        Case(((2, 4, 2, 4),), {"blocksize": 2}), Case(((1, 9, 3, 6),), {"blocksize": 3}),
        Case(((1, 8, 4, 2),), {"blocksize": 2}), Case(((0, 4, 2, 2),), {"blocksize": 2}),
        Case(((2, 3, 2, 2),), {"blocksize": 1}), Case(((1, 16, 4, 4),), {"blocksize": 4}),
    ),
    ABSENT,
)  # fmt: skip


@export("nn.functional.pixel_shuffle", op="pixel_shuffle")
def pixel_shuffle(x: Variable, upscale_factor: int, data_format: str = "NCHW", name: str | None = None) -> Variable:
    """Moves channels into places: ``out[n, c, h r + i, w r + j] = x[n, (c r + i) r + j, h, w]``.

    Args:
        x: ``[n, c * r * r, h, w]`` (``NCHW``) or ``[n, h, w, c * r * r]`` (``NHWC``).
        upscale_factor: r.
        data_format: Where channels stand.
        name: The layer's name.

    Returns:
        ``[n, c, h * r, w * r]`` in the layout of ``x``.

    Raises:
        ShapeError: If the number of channels is not a multiple of ``r * r``.

    Example:
        >>> x = paddle.to_tensor([[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]])
        >>> y = paddle.nn.functional.pixel_shuffle(x, upscale_factor=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[[[1., 2.],
                 [3., 4.]]]], dtype=float32)
    """
    check_variable(x, "x", "pixel_shuffle")
    check_choice(data_format, ("NCHW", "NHWC"), "data_format", "pixel_shuffle", error=ShapeError)
    attrs = {"upscale_factor": upscale_factor, "data_format": data_format}
    return emit_one("pixel_shuffle", {"X": x}, attrs, name=name)


@export("fluid.layers.pixel_shuffle", op="pixel_shuffle")
def pixel_shuffle_1x(x: Variable, upscale_factor: int) -> Variable:
    """Calls :func:`pixel_shuffle` of ``[n, c, h, w]`` under its name of Paddle 1.x.

    Args:
        x: ``[n, c, h, w]``, ``c`` a multiple of ``r * r``.
        upscale_factor: r.

    Returns:
        ``[n, c / r / r, h * r, w * r]``.

    Raises:
        ShapeError: If ``c`` is not such a multiple.
    """
    return pixel_shuffle(x, upscale_factor)


@export("nn.functional.pixel_unshuffle", op="pixel_unshuffle")
def pixel_unshuffle(x: Variable, downscale_factor: int, data_format: str = "NCHW", name: str | None = None) -> Variable:
    """Inverts :func:`pixel_shuffle`.

    Args:
        x: ``[n, c, h * r, w * r]`` (``NCHW``) or ``[n, h * r, w * r, c]`` (``NHWC``).
        downscale_factor: r.
        data_format: Where channels stand.
        name: The layer's name.

    Returns:
        ``[n, c * r * r, h, w]`` in the layout of ``x``.

    Raises:
        ShapeError: If height or width is not a multiple of ``r``.

    Example:
        >>> x = paddle.to_tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
        >>> y = paddle.nn.functional.pixel_unshuffle(x, downscale_factor=2)
        >>> y.shape
        (1, 4, 1, 1)
        >>> static.Executor().run(fetch_list=[y])[0].ravel()
        array([1., 2., 3., 4.], dtype=float32)
    """
    check_variable(x, "x", "pixel_unshuffle")
    check_choice(data_format, ("NCHW", "NHWC"), "data_format", "pixel_unshuffle", error=ShapeError)
    attrs = {"downscale_factor": downscale_factor, "data_format": data_format}
    return emit_one("pixel_unshuffle", {"X": x}, attrs, name=name)


@export("nn.functional.channel_shuffle", op="channel_shuffle")
def channel_shuffle(x: Variable, groups: int, data_format: str = "NCHW", name: str | None = None) -> Variable:
    """Takes channels from each group in turn: channel ``i g + k`` of the output is channel ``k c / g + i`` of ``x``.

    Args:
        x: ``[n, c, h, w]`` (``NCHW``) or ``[n, h, w, c]`` (``NHWC``).
        groups: g; it divides the channels.
        data_format: Where channels stand.
        name: The layer's name.

    Returns:
        A Variable like ``x``.

    Raises:
        ShapeError: If ``groups`` does not divide the channels.

    Example:
        >>> x = paddle.to_tensor([[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]])
        >>> y = paddle.nn.functional.channel_shuffle(x, groups=2)
        >>> static.Executor().run(fetch_list=[y])[0].ravel()
        array([1., 3., 2., 4.], dtype=float32)
    """
    check_variable(x, "x", "channel_shuffle")
    check_choice(data_format, ("NCHW", "NHWC"), "data_format", "channel_shuffle", error=ShapeError)
    return emit_one("channel_shuffle", {"X": x}, {"groups": groups, "data_format": data_format}, name=name)


@export("fluid.layers.shuffle_channel", op="shuffle_channel")
def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """Calls :func:`channel_shuffle` of ``[n, c, h, w]`` under its name of Paddle 1.x.

    Args:
        x: ``[n, c, h, w]``.
        group: The number of groups; it divides ``c``.
        name: Name of the layer.

    Returns:
        A Variable like ``x``.

    Raises:
        ShapeError: If it does not.
    """
    check_variable(x, "x", "shuffle_channel")
    return emit_one("shuffle_channel", {"X": x}, {"group": group}, name=name)


@export("fluid.layers.space_to_depth", op="space_to_depth")
def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Turns pixels into channels in Paddle's order: values pass through an image ``blocksize`` times as large.

    Channel ``(a b + j) c / b^2 + k`` at ``(h, w)`` goes to channel ``k`` at ``(h b + a, w b + j)`` of
    ``[n, c / b^2, h b, w b]``, whose memory is then read as the result.

    Args:
        x: ``[n, c, h, w]`` with channels that ``blocksize ** 2`` divides, and height and width that ``blocksize`` does.
        blocksize: b.
        name: The layer's name.

    Returns:
        ``[n, c * b * b, h / b, w / b]``.

    Raises:
        ShapeError: If a size cannot be divided.
    """
    check_variable(x, "x", "space_to_depth")
    return emit_one("space_to_depth", {"X": x}, {"blocksize": blocksize}, name=name)


@export("nn.functional.temporal_shift", "fluid.layers.temporal_shift")
def temporal_shift(
    x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None, data_format: str = "NCHW"
) -> Variable:
    """Moves some channels of the frames of videos to the next frame, and as many others to the one before.

    Args:
        x: Frames, ``[videos * seg_num, c, h, w]``, or ``[videos * seg_num, h, w, c]``.
        seg_num: Frames of a video.
        shift_ratio: The part of the channels that is moved onward; the next such part is moved back. Ends get zeros.
        name: Name of the last layer.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Raises:
        ShapeError: If ``x`` has another rank or an unknown number of channels.
        ProgramError: If ``shift_ratio`` is not in [0, 0.5].

    Example:
        >>> x = paddle.reshape(paddle.arange(8, dtype="float32"), [2, 4, 1, 1])
        >>> y = paddle.nn.functional.temporal_shift(x, 2)
        >>> static.Executor().run(fetch_list=[y])[0].reshape(2, 4)
        array([[0., 5., 2., 3.],
               [0., 0., 6., 7.]], dtype=float32)
    """
    check_variable(x, "x", "temporal_shift", FLOATS)
    check_choice(data_format, ("NCHW", "NHWC"), "data_format", "temporal_shift")
    check_rank(x, 4, "x", "temporal_shift", layout=data_format)
    frames = check_int(seg_num, "seg_num", "temporal_shift", 1)
    ratio = check_number(shift_ratio, "shift_ratio", "temporal_shift", least=0, most=0.5)
    axis = data_format.index("C")
    count = check_static_dim(x.shape[axis], x, "the number of channels", "temporal_shift")
    # Cut off as Paddle does: 2 * ratio is multiplied before it is cut, so both groups may differ by one channel.
    ends = [0, int(count * ratio), int(count * 2 * ratio), count]
    videos = reshape(unsqueeze(x, 1), [-1, frames, 0, 0, 0])
    # Of each group a slice and a padding by one frame; both have gradients, so this needs no op of its own.
    parts = []
    for shift, first_channel, end in zip((1, -1, 0), ends[:-1], ends[1:], strict=True):
        # A ratio below 1 / channels moves nothing, and slices without channels have no gradient op to run.
        if first_channel == end:
            continue
        runs = {"axes": [axis + 1], "starts": [first_channel], "ends": [end]}
        sides = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        if shift:
            # Without the frame that leaves, and with zeros where one is missing.
            kept = (0, frames - 1) if shift > 0 else (1, frames)
            runs = {name: [*runs[name], value] for name, value in zip(runs, (1, *kept), strict=True)}
            sides[2 if shift > 0 else 3] = 1
        part = emit_one("slice", {"Input": videos}, runs)
        parts.append(pad(part, sides) if shift else part)
    return flatten(concat(parts, axis + 1), 0, 1, name)
