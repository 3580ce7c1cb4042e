"""Frames of a signal, which may overlap, and their sum: each is the other's adjoint."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.attrs import Attr
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import ANY_RANK, check_choice, check_int, check_rank
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.low import in_float32
from tstatic.tuned._common import Array

_AXES = "axis 0 (frames are [count, length, ...]) or -1 (frames are [..., length, count])"
_CASES = tuple(
    (shape, {"frame_length": length, "hop_length": hop, "axis": axis})
    for shape, length, hop, axis in (
        ((8,), 4, 2, -1), ((7,), 3, 1, 0), ((2, 9), 4, 3, -1), ((9, 2), 2, 3, 0), ((2, 3, 5), 5, 1, -1), ((6, 1, 2), 3, 2, 0),
    )
)  # fmt: skip


def frame_count(size: int, length: int, hop: int) -> int:
    """Returns how many frames of a length a signal has."""
    return UNKNOWN if size == UNKNOWN else 1 + (size - length) // hop


def _check(length: int, hop: int, axis: int) -> None:
    check_int(length, "frame_length", least=1)
    check_int(hop, "hop_length", least=1)
    check_choice(axis, (0, -1), "axis")


def _frame_infer(x: Meta, frame_length: int, hop_length: int, axis: int) -> Meta:
    _check(frame_length, hop_length, axis)
    check_rank(x, range(1, ANY_RANK), "X", layout="[..., time] or [time, ...]")
    size = x.shape[axis]
    if size != UNKNOWN and size < frame_length:
        raise ShapeError(
            "a frame is longer than the signal",
            expected=f"a frame_length up to {size}",
            received=frame_length,
            fix="pad the signal, or take shorter frames",
        )
    count = frame_count(size, frame_length, hop_length)
    shape = (*x.shape[:-1], frame_length, count) if axis else (count, frame_length, *x.shape[1:])
    return x.with_shape(shape)


def _summed_infer(x: Meta, hop_length: int, axis: int) -> Meta:
    _check(1, hop_length, axis)
    check_rank(x, range(2, ANY_RANK), "X", layout=_AXES)
    length, count = (x.shape[-2], x.shape[-1]) if axis else (x.shape[1], x.shape[0])
    size = UNKNOWN if UNKNOWN in (length, count) else length + (count - 1) * hop_length
    return x.with_shape((*x.shape[:-2], size) if axis else (size, *x.shape[2:]))


def _frames_of(signal: Array, length: int, hop: int) -> Array:
    """Returns the frames ``[..., length, count]`` of a signal ``[..., time]`` as a view."""
    return np.lib.stride_tricks.sliding_window_view(signal, length, -1)[..., ::hop, :].swapaxes(-1, -2)


def _frame(x: Array, out: Array, *, frame_length: int, hop_length: int, axis: int) -> None:
    if axis:
        np.copyto(out, _frames_of(x, frame_length, hop_length))
    else:
        # [time, ...] -> [..., time] -> [..., length, count] -> [count, length, ...]
        np.copyto(out, np.moveaxis(_frames_of(np.moveaxis(x, 0, -1), frame_length, hop_length), (-1, -2), (0, 1)))


@in_float32()
def _sum(x: Array, out: Array, *, hop_length: int, axis: int) -> None:
    frames, signal = (x, out) if axis else (np.moveaxis(x, (0, 1), (-1, -2)), np.moveaxis(out, 0, -1))
    signal[...] = 0
    for i in range(frames.shape[-1]):
        place = signal[..., i * hop_length : i * hop_length + frames.shape[-2]]
        np.add(place, frames[..., i], out=place)


def _frame_lower(torch: Any, x: Any, *, frame_length: int, hop_length: int, axis: int) -> Any:
    if axis:
        return x.unfold(-1, frame_length, hop_length).mT.clone()
    return x.unfold(0, frame_length, hop_length).movedim(-1, 1).clone()


def _sum_lower(torch: Any, x: Any, *, hop_length: int, axis: int) -> Any:
    frames = x if axis else x.movedim((0, 1), (-1, -2))
    length, count = frames.shape[-2:]
    wide = frames.float() if frames.itemsize == 2 and frames.is_floating_point() else frames
    at = torch.arange(length, device=x.device)[:, None] + hop_length * torch.arange(count, device=x.device)
    signal = wide.new_zeros((*frames.shape[:-2], length + (count - 1) * hop_length))
    signal = signal.index_add(-1, at.reshape(-1), wide.reshape(*frames.shape[:-2], -1))
    return (signal if axis else signal.movedim(-1, 0)).to(x.dtype)


def _frame_grad(x: Array, dout: Array, dx: Array, *, hop_length: int, axis: int) -> None:
    _sum(dout, dx, hop_length=hop_length, axis=axis)


def _frame_grad_lower(torch: Any, x: Any, dout: Any, *, hop_length: int, axis: int) -> Any:
    covered = _sum_lower(torch, dout, hop_length=hop_length, axis=axis)
    dx = dout.new_zeros(x.shape)
    dx.narrow(axis, 0, covered.shape[axis]).copy_(covered)
    return dx


def _sum_grad(x: Array, dout: Array, dx: Array, *, hop_length: int, axis: int) -> None:
    # The length is that of the run: it may be unknown while the program is built.
    _frame(dout, dx, frame_length=dx.shape[-2 if axis else 1], hop_length=hop_length, axis=axis)


def _sum_grad_lower(torch: Any, x: Any, dout: Any, *, hop_length: int, axis: int) -> Any:
    return _frame_lower(torch, dout, frame_length=x.shape[-2 if axis else 1], hop_length=hop_length, axis=axis)


register(OpDef(
    "frame", "X -> Out", attrs={"frame_length": Attr(kind="int"), "hop_length": Attr(kind="int"), "axis": -1}, infer=_frame_infer,
    ref=_frame, lower=_frame_lower, complex="linear",
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", ref=_frame_grad, lower=_frame_grad_lower, shape_only=("X",), grad=grad_is_forward_op("frame"),
    ),
    domain=Domain(cases=tuple(Case((shape,), attrs) for shape, attrs in _CASES), others=("int64", "complex64"), ulps=0),
    onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip
register(OpDef(
    "overlap_add", "X -> Out", attrs={"hop_length": Attr(kind="int"), "axis": -1}, infer=_summed_infer, ref=_sum,
    lower=_sum_lower, complex="linear",
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", ref=_sum_grad, lower=_sum_grad_lower, shape_only=("X",),
        grad=grad_is_forward_op("overlap_add"),
    ),
    domain=Domain(
        cases=tuple(
            Case((shape,), {"hop_length": hop, "axis": axis})
            for shape, hop, axis in (((4, 3), 2, -1), ((3, 4), 1, 0), ((2, 3, 4), 3, -1), ((2, 3, 2), 4, 0), ((5, 1), 1, -1))
        ),
        others=("int64", "complex64"), ulps=4,
    ),
    onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("signal.frame", op="frame")
def frame(x: Variable, frame_length: int, hop_length: int, axis: int = -1, name: str | None = None) -> Variable:
    """Cuts a signal into frames that overlap.

    Args:
        x: ``[..., samples]``, or ``[samples, ...]`` with ``axis=0``.
        frame_length: Samples of a frame; at most as many as the signal has.
        hop_length: Samples from the start of a frame to that of the next one.
        axis: -1 or 0: where the samples are.
        name: Name of the layer.

    Returns:
        ``[..., frame_length, frames]``, or ``[frames, frame_length, ...]`` with ``axis=0``.

    Raises:
        ProgramError: If a number is out of range.

    Example:
        >>> y = paddle.signal.frame(paddle.arange(6), frame_length=4, hop_length=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[0, 2],
               [1, 3],
               [2, 4],
               [3, 5]])
    """
    attrs = {
        "frame_length": check_int(frame_length, "frame_length", "frame", 1),
        "hop_length": check_int(hop_length, "hop_length", "frame", 1),
        "axis": check_choice(axis, (-1, 0), "axis", "frame"),
    }
    return emit("frame", {"X": check_variable(x, "x", "frame")}, attrs, name=name)  # type: ignore[no-any-return]


@export("signal.overlap_add", op="overlap_add")
def overlap_add(x: Variable, hop_length: int, axis: int = -1, name: str | None = None) -> Variable:
    """Adds frames that overlap to one signal; the reverse of :func:`frame` where frames do not overlap.

    Args:
        x: ``[..., frame_length, frames]``, or ``[frames, frame_length, ...]`` with ``axis=0``.
        hop_length: Samples from the start of a frame to that of the next one.
        axis: -1 or 0: where the frames are.
        name: Name of the layer.

    Returns:
        ``[..., samples]`` or ``[samples, ...]``, with ``(frames - 1) * hop_length + frame_length`` samples.

    Raises:
        ProgramError: If a number is out of range.

    Example:
        >>> y = paddle.signal.overlap_add(paddle.ones([4, 2]), hop_length=2)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 1., 2., 2., 1., 1.], dtype=float32)
    """
    attrs = {
        "hop_length": check_int(hop_length, "hop_length", "overlap_add", 1),
        "axis": check_choice(axis, (-1, 0), "axis", "overlap_add"),
    }
    return emit("overlap_add", {"X": check_variable(x, "x", "overlap_add")}, attrs, name=name)  # type: ignore[no-any-return]
