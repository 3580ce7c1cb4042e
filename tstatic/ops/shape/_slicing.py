"""Runs along axes: what ``slice``, ``strided_slice`` and ``crop_tensor`` select, and the gradient they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import IndexRangeError, ShapeError
from tstatic.ir.opdef import Domain, GradOp, OpDef
from tstatic.ir.ref import Call, keywords
from tstatic.ir.types import UNKNOWN, Meta, Shape, normalize_axis
from tstatic.ops._call_ref import copies
from tstatic.ops._gradients import grad_is_forward_op
from tstatic.ops.shape._shapes import Array, clear, copy

Runs = dict[int, tuple[int, int, int]]
"""Axis -> (start, stop, step), as ``slice`` was asked for."""

END = 2**63 - 1
"""The end of every axis. Paddle writes 2**31 - 1, which is a place inside of an axis of more elements."""


def runs_of(axes: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int], rank: int) -> Runs:
    """Pairs axes with their bounds.

    Raises:
        ShapeError: If the lists differ in length, an axis is out of range or a step is 0.
    """
    steps = steps if len(steps) else [1] * len(axes)
    if not len(axes) == len(starts) == len(ends) == len(steps):
        raise ShapeError(
            "axes, starts, ends and strides must have the same length",
            expected=f"{len(axes)} entries each",
            received=f"{len(starts)} starts, {len(ends)} ends, {len(steps)} strides",
            fix="give each axis one start and one end",
        )
    runs: Runs = {}
    for axis, start, stop, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise ShapeError(
                "a stride of 0 selects nothing",
                expected="a stride other than 0",
                received=list(steps),
                fix="use a positive stride, or a negative one to go backwards",
            )
        runs[normalize_axis(axis, rank)] = (start, stop, step)
    return runs


def bounded(size: int, start: int, stop: int, step: int) -> slice:
    """A Python slice of an axis of known size.

    Bounds count from the end when negative and are cut to the axis. With a negative step a stop of -1 means "past the
    first element", as in Paddle's ``strided_slice``.
    """
    if step > 0:
        low = min(max(start + size if start < 0 else start, 0), size)
        high = min(max(stop + size if stop < 0 else stop, 0), size)
        return slice(low, max(low, high), step)
    low = min(max(start + size if start < 0 else start, -1), size - 1)
    high = -1 if stop == -1 else max(stop + size if stop < 0 else stop, 0)
    if low <= high:
        return slice(0, 0, 1)
    return slice(low, None if high < 0 else high, step)


def length(size: int, start: int, stop: int, step: int) -> int:
    """How many elements a run selects; -1 when that depends on an unknown size."""
    if size == UNKNOWN:
        same_side = (start < 0) == (stop < 0)
        if step > 0 and same_side and stop <= start:
            return 0
        return UNKNOWN
    return len(range(*bounded(size, start, stop, step).indices(size)))


def selected(shape: Shape, runs: Runs, gone: Sequence[int], op: str) -> Shape:
    """The shape after a selection; axes in ``gone`` hold one element and are removed.

    Raises:
        IndexRangeError: If an axis that is to be removed does not hold exactly one element (an index out of range).
    """
    new = []
    for axis, size in enumerate(shape):
        kept = length(size, *runs[axis]) if axis in runs else size
        if axis not in gone:
            new.append(kept)
        elif kept not in (1, UNKNOWN):
            raise IndexRangeError(
                f"index {runs[axis][0] if axis in runs else 0} is out of range for axis {axis} of size {size}",
                expected=f"an index from {-size} to {size - 1}",
                received=runs[axis][0] if axis in runs else 0,
                fix="check the index, or the size of the value that is sliced",
                op=op,
            )
    return tuple(new)


def window(array: Array, runs: Runs, gone: Sequence[int] = ()) -> Array:
    """The selection as a view."""
    index = tuple(bounded(s, *runs[i]) if i in runs else slice(None) for i, s in enumerate(array.shape))
    part = array[index] if index else array
    return part.squeeze(tuple(gone)) if len(gone) else part


def positive(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes without their signs."""
    return tuple(normalize_axis(a, rank) for a in axes)


def embed(target: Array, place: Array, value: Array) -> list[Call]:
    """Zeros everywhere, then ``value`` in its place (a view of ``target``)."""
    if place.size == target.size:
        return [copy(place, value)]
    return [clear(target), copy(place, value)]


Find = Callable[..., tuple[Runs, Sequence[int]]]
"""``(shape, bounds given at run time, **attributes) -> (runs, axes that go)``."""


def selection(
    type: str,
    x: str,
    tensors: Sequence[str],
    attrs: Mapping[str, Any],
    find: Find,
    infer: Callable[..., Meta],
    domain: Domain,
) -> OpDef:
    """The definition of an op that selects a run along each axis.

    Args:
        type: Op type.
        x: The slot that is selected from.
        tensors: Slots (with their marks) that hold bounds given at run time.
        attrs: Attributes.
        find: Says what is selected; a bound of a ``*`` slot is a list of arrays.
        infer: ``(x, *tensors, **attributes) -> Meta``.
        domain: Where tests may sample.
    """
    count = len(tensors)

    def view(array: Array, *given: Any, **values: Any) -> Array:
        runs, gone = find(array.shape, given, **values)
        selected(array.shape, runs, gone, type)
        return window(array, runs, gone)

    def calls(array: Array, *rest: Any, **values: Any) -> list[Call]:
        if any(_is_given(t) for t in rest[:count]):
            return [(late, (array, rest, values))]
        return [copy(rest[count], view(array, *rest[:count], **values))]

    def late(array: Array, rest: Sequence[Any], values: Mapping[str, Any]) -> None:
        # The bounds are values: they are not there yet when calls are made.
        np.copyto(rest[count], view(array, *rest[:count], **values))

    def fresh(array: Array, *rest: Any, **values: Any) -> list[Any]:
        return [np.array(view(array, *rest[:count], **values), order="C", copy=True)]

    def lower(torch: Any, tensor: Any, *given: Any, **values: Any) -> Any:
        runs, gone = find(tuple(tensor.shape), _to_numpy(given), **values)
        for axis, run in runs.items():
            places = range(*bounded(tensor.shape[axis], *run).indices(tensor.shape[axis]))
            tensor = tensor.index_select(axis, torch.tensor(list(places), dtype=torch.int64, device=tensor.device))
        return tensor.squeeze(tuple(gone)) if len(gone) else tensor

    def back_calls(like: Array, *rest: Any, **values: Any) -> list[Call]:
        dout, dx = rest[count], rest[count + 1]
        if any(_is_given(t) for t in rest[:count]):
            return [(back_late, (rest, values))]
        return embed(dx, view(dx, *rest[:count], **values), dout)

    def back_late(rest: Sequence[Any], values: Mapping[str, Any]) -> None:
        dout, dx = rest[count], rest[count + 1]
        for function, args in embed(dx, view(dx, *rest[:count], **values), dout):
            function(*args)

    def back_lower(torch: Any, like: Any, *rest: Any, **values: Any) -> Any:
        # Positions of the selected elements: negative strides, which torch's slices lack, need no case of their own.
        places = view(np.arange(like.numel()).reshape(tuple(like.shape)), *_to_numpy(rest[:count]), **values)
        dout = rest[count]
        dx = torch.zeros(like.numel(), dtype=dout.dtype, device=dout.device)
        dx[torch.as_tensor(places.reshape(-1).copy(), device=dout.device)] = dout.reshape(-1)
        return dx.reshape(like.shape)

    names = keywords(find)
    slots = ", ".join((x, *tensors))
    plain = [t.rstrip("*?") for t in tensors]
    return OpDef(
        type,
        f"{slots} -> Out",
        attrs=attrs,
        infer=infer,
        ref=copies(calls, fresh, attrs=names),
        lower=lambda torch, *given, **values: lower(torch, *given, **{n: values[n] for n in names}),
        view=lambda array, **values: view(array, *[None] * count, **{n: values[n] for n in names}),
        grad=GradOp(
            f"{slots}, Out@GRAD -> {x}@GRAD",
            ref=copies(back_calls, attrs=names),
            lower=lambda torch, *given, **values: back_lower(torch, *given, **{n: values[n] for n in names}),
            shape_only=(x,),
            grad=grad_is_forward_op(type, x, "Out", plain),
        ),
        amp="gray",
        domain=domain,
    )


def _is_given(tensor: Any) -> bool:
    return tensor is not None and not (isinstance(tensor, list | tuple) and len(tensor) == 0)


def _to_numpy(given: Sequence[Any]) -> list[Any]:
    return [
        [t.cpu().numpy() for t in g] if isinstance(g, list | tuple) else None if g is None else g.cpu().numpy()
        for g in given
    ]
