"""Reordering axes and the elements along them: transpose, flip, roll and rot90."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_axes, check_axis, check_length, check_rank, check_two_axes
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, Tile, export, register
from tstatic.ir.program import Variable
from tstatic.ir.recording import Call
from tstatic.ir.split import ELEMENTS, FREE, Split, free_axis, tiles
from tstatic.ir.types import Meta, normalize_axis
from tstatic.ops.base.call_ref import copies
from tstatic.ops.base.gradients import grad_is_op
from tstatic.ops.base.shapes import ANY, Array, as_list, copy, emit_one
from tstatic.ops.shape import _shape_onnx as _onnx
from tstatic.ops.shape.fill import has_variable
from tstatic.ops.shape.number_of import number_of
from tstatic.ops.shape.reshape import with_shape
from tstatic.ops.shape.sequence import arange
from tstatic.ops.shape.when_run import elements_of


def _order(axis: Sequence[int], rank: int) -> tuple[int, ...]:
    order = tuple(normalize_axis(a, rank, "perm entry") for a in axis)
    if sorted(order) != list(range(rank)):
        raise ShapeError(
            "perm must name each dimension of the input once",
            expected=f"a permutation of {list(range(rank))}",
            received=list(axis),
            fix=f"pass {rank} different axes",
        )
    return order


def _infer(x: Meta, *, axis: Sequence[int]) -> tuple[Meta, Meta]:
    return with_shape(x, tuple(x.shape[a] for a in _order(axis, x.rank)))


def _calls(x: Array, out: Array, xshape: Any, *, axis: Sequence[int]) -> list[Call]:
    return [copy(out, x.transpose(_order(axis, x.ndim)))]


def _split(x: Meta, out: Meta, xshape: Any, *, axis: Sequence[int]) -> list[Tile] | None:
    # The first axis of the result that is long enough: its parts are runs of memory.
    at = free_axis(out.shape, (), ELEMENTS.count(out.numel))
    if at is None:
        return None
    return tiles(ELEMENTS.parts(out.shape[at], out.numel), _order(axis, x.rank)[at], at, None)


def _inverse(ctx: GradContext) -> Mapping[str, Any]:
    order = _order(ctx.attrs["axis"], ctx.meta(ctx.inputs["X"][0]).rank)
    # Sorting a permutation's entries gives its inverse.
    return {"axis": tuple(int(a) for a in np.argsort(order))}


def _copied(view: Any, out: Any) -> Any:
    # One copy either way: a permuted view is the input's own memory.
    return view.contiguous() if out is None else out[0].copy_(view)


register(OpDef(
    "transpose2", "X -> Out, XShape~", attrs={"axis": Attr(kind="ints")}, infer=_infer, ref=copies(_calls),
    lower=lambda torch, x, *, axis, out=None: (_copied(x.permute(_order(axis, x.dim())), out), None),
    view=lambda x, *, axis: x.transpose(_order(axis, x.ndim)), split=_split, grad=grad_is_op("transpose2", _inverse),
    amp="gray",
    domain=Domain(
        cases=(
            Case(((2, 3, 4),), {"axis": (2, 0, 1)}), Case(((2, 3, 4, 5),), {"axis": (0, 2, 1, 3)}),
            Case(((3, 4),), {"axis": (-1, -2)}), Case(((5,),), {"axis": (0,)}), Case(((),), {"axis": ()}),
            Case(((2, 0, 3),), {"axis": (1, 2, 0)}), Case(((1, 6, 1, 2),), {"axis": (3, 2, 1, 0)}),
        ),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=lambda g, x, *, axis: g.transpose(x, _order(axis, x.rank)),
))  # fmt: skip


@export("tensor.transpose", "Variable.transpose", "fluid.layers.transpose", op="transpose2")
def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Reorders the axes: axis ``i`` of the result is axis ``perm[i]`` of ``x``.

    Args:
        x: ``[...]``, any dtype.
        perm: Each axis of ``x`` once; negative ones count from the end.
        name: Name of the layer.

    Raises:
        ShapeError: If ``perm`` is not a permutation of the axes.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        >>> y = paddle.transpose(x, [1, 0])
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[1., 4.],
               [2., 5.],
               [3., 6.]], dtype=float32)
    """
    x = check_variable(x, "x", "transpose")
    return emit_one("transpose2", {"X": x}, {"axis": as_list(perm)}, name=name, prefix="transpose")


@export("tensor.transpose_", "Variable.transpose_", op="transpose2")
def transpose_(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Does the same as :func:`transpose`: a program's values are never changed in place.

    Args:
        x, perm, name: As in :func:`transpose`.
    """
    return transpose(x, perm, name)


@export("tensor.moveaxis", "Variable.moveaxis", op="transpose2")
def moveaxis(
    x: Variable, source: int | Sequence[int], destination: int | Sequence[int], name: str | None = None
) -> Variable:
    """Moves the axes ``source`` to the positions ``destination``; the others keep their order.

    Args:
        x: ``[...]``, any dtype.
        source: An axis, or a list of different ones.
        destination: As many axes of the result.
        name: Name of the layer.

    Raises:
        ShapeError: If an axis is out of range or named twice, or the two lists differ in length.
    """
    x = check_variable(x, "x", "moveaxis")
    rank = len(x.shape)
    start = [check_axis(a, x, "source", "moveaxis") for a in as_list(source)]
    goal = [check_axis(a, x, "destination", "moveaxis") for a in as_list(destination)]
    check_axes(start, x, "source", "moveaxis")
    check_axes(goal, x, "destination", "moveaxis")
    check_length(goal, len(start), "destination", "moveaxis", why="one for each axis of source")
    perm = [a for a in range(rank) if a not in start]
    # In rising order of the goals, so that no later insertion moves an earlier one.
    for to, axis in sorted(zip(goal, start, strict=True)):
        perm.insert(to, axis)
    return emit_one("transpose2", {"X": x}, {"axis": perm}, name=name, prefix="moveaxis")


@export("tensor.swapaxes", "Variable.swapaxes", op="transpose2")
def swapaxes(x: Variable, axis0: int, axis1: int, name: str | None = None) -> Variable:
    """Exchanges two axes.

    Args:
        x: ``[...]``, any dtype.
        axis0, axis1: The axes; negative ones count from the end.
        name: Name of the layer.
    """
    x = check_variable(x, "x", "swapaxes")
    rank = len(x.shape)
    perm = list(range(rank))
    a, b = check_axis(axis0, x, "axis", "swapaxes"), check_axis(axis1, x, "axis", "swapaxes")
    if rank:
        perm[a], perm[b] = perm[b], perm[a]
    return emit_one("transpose2", {"X": x}, {"axis": perm}, name=name, prefix="transpose")


@export("tensor.t", "Variable.t", op="transpose2", inplace=True)
def t(input: Variable, name: str | None = None) -> Variable:
    """Transposes a matrix; a value of fewer than two dimensions stays as it is.

    Raises:
        ShapeError: If the value has more than two dimensions.
    """
    x = check_variable(input, "input", "t")
    check_rank(x, range(3), "input", "t", fix="use paddle.transpose(x, perm)")
    return emit_one("transpose2", {"X": x}, {"axis": list(range(len(x.shape)))[::-1]}, name=name, prefix="t")


# ---------------------------------------------------------------------------------------------------------------- flip
def _reversed(x: Array, axis: Sequence[int]) -> Array:
    axes = check_axes(axis, x.ndim)
    return x[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(x.ndim))]


def _infer_flip(x: Meta, *, axis: Sequence[int]) -> Meta:
    check_axes(axis, x.rank)
    return x


def _flip_calls(x: Array, out: Array, *, axis: Sequence[int]) -> list[Call]:
    return [copy(out, _reversed(x, axis))]


register(OpDef(
    "flip", "X -> Out", attrs={"axis": Attr(kind="ints")}, infer=_infer_flip, ref=copies(_flip_calls),
    lower=lambda torch, x, *, axis: torch.flip(x, list(axis)), view=lambda x, *, axis: _reversed(x, axis),
    split=Split(ELEMENTS, FREE, taken=lambda x, axis: check_axes(axis, x.rank)),
    grad=grad_is_op("flip", lambda ctx: ctx.attrs),
    domain=Domain(
        cases=(
            Case(((3, 4),), {"axis": (0,)}), Case(((2, 3, 4),), {"axis": (0, -1)}), Case(((5,),), {"axis": (-1,)}),
            Case(((0, 3),), {"axis": (0,)}), Case(((2, 3),), {"axis": ()}), Case(((1, 4, 2),), {"axis": (0, 1, 2)}),
        ),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=_onnx.flip,
))  # fmt: skip


@export("tensor.flip", "Variable.flip", op="flip")
def flip(x: Variable, axis: int | Sequence[int], name: str | None = None) -> Variable:
    """Reverses the order of elements along the given axes.

    Args:
        x: ``[...]``, any dtype.
        axis: An axis, or a list of different ones.
        name: Name of the layer.

    Raises:
        ShapeError: If an axis is out of range or named twice.
    """
    return emit_one("flip", {"X": check_variable(x, "x", "flip")}, {"axis": as_list(axis)}, name=name)


@export("tensor.reverse", "Variable.reverse", "fluid.layers.reverse", op="flip")
def reverse(x: Variable, axis: int | Sequence[int], name: str | None = None) -> Variable:
    """Calls :func:`flip` under another name.

    Args:
        x, axis, name: As in :func:`flip`.
    """
    return flip(x, axis, name)


@export("tensor.rot90", "Variable.rot90", op="flip")
def rot90(x: Variable, k: int = 1, axes: Sequence[int] = (0, 1), name: str | None = None) -> Variable:
    """Rotates by ``k`` times 90 degrees in the plane of two axes, from the first towards the second.

    Args:
        x: ``[...]`` of at least two dimensions, any dtype.
        k: How many quarter turns; negative ones turn back.
        axes: The two axes of the plane.
        name: Name of the layer.

    Raises:
        ShapeError: If there are not two different axes.
    """
    x = check_variable(x, "x", "rot90")
    first, second = check_two_axes(as_list(axes), x, "axes", "rot90")
    # Each turn is at most one flip and one exchange of axes; k counts backwards if negative.
    turns = k % 4
    if turns == 0:
        return emit_one("assign", {"X": x}, name=name)
    if turns == 2:
        return flip(x, [first, second], name)
    if turns == 1:
        return swapaxes(flip(x, second), first, second, name)
    return flip(swapaxes(x, first, second), second, name)


# ---------------------------------------------------------------------------------------------------------------- roll
def _shifts(rank: int, shifts: Sequence[int], axis: Sequence[int]) -> dict[int, int]:
    """Axis -> how far; several shifts of one axis add up."""
    check_length(shifts, len(axis), "shifts", why="one for each axis")
    total: dict[int, int] = {}
    for at, by in zip(axis, shifts, strict=True):
        at = normalize_axis(at, rank)
        total[at] = total.get(at, 0) + by
    return total


def _infer_roll(x: Meta, *, shifts: Sequence[int], axis: Sequence[int]) -> Meta:
    if len(axis):
        _shifts(x.rank, shifts, axis)
    return x


def _parts(size: int, by: int) -> list[tuple[slice, slice]]:
    """Returns (to, from) of the one or two runs that a roll moves."""
    # Shifts may be larger than the axis, or negative.
    by = by % size if size else 0
    if by == 0:
        return [(slice(None), slice(None))]
    return [(slice(by, None), slice(0, size - by)), (slice(0, by), slice(size - by, None))]


def _roll_calls(x: Array, out: Array, *, shifts: Sequence[int], axis: Sequence[int]) -> list[Call]:
    if not len(axis):
        if not (x.flags.c_contiguous and out.flags.c_contiguous):
            return [(_roll_flat, (x, out, sum(shifts)))]
        # Without axes the elements are rolled in C order, which needs flat views.
        x, out, axis, shifts = x.reshape(-1), out.reshape(-1), (0,), (sum(shifts),)
    by = _shifts(x.ndim, shifts, axis)
    # Along each axis one or two runs move; the parts of the array are all their combinations.
    runs = [_parts(size, by[i]) if i in by else [(slice(None), slice(None))] for i, size in enumerate(x.shape)]
    return [
        copy(out[tuple(to for to, _ in run)], x[tuple(source for _, source in run)]) for run in itertools.product(*runs)
    ]


def _roll_flat(x: Array, out: Array, by: int) -> None:
    np.copyto(out, np.roll(x, by))


def _roll_lower(torch: Any, x: Any, *, shifts: Sequence[int], axis: Sequence[int]) -> Any:
    return torch.roll(x, list(shifts), list(axis)) if len(axis) else torch.roll(x, sum(shifts))


def _back(ctx: GradContext) -> Mapping[str, Any]:
    return {"shifts": tuple(-s for s in ctx.attrs["shifts"]), "axis": ctx.attrs["axis"]}


register(OpDef(
    "roll", "X -> Out", attrs={"shifts": Attr(kind="ints"), "axis": Attr((), "ints")}, infer=_infer_roll,
    ref=copies(_roll_calls), lower=_roll_lower,
    split=Split(ELEMENTS, FREE, taken=lambda x, axis: axis if len(axis) else range(x.rank)),
    grad=grad_is_op("roll", _back),
    domain=Domain(
        cases=(
            Case(((3, 4),), {"shifts": (1,), "axis": (0,)}), Case(((3, 4),), {"shifts": (1, -6), "axis": (0, -1)}),
            Case(((3, 4),), {"shifts": (5,), "axis": ()}), Case(((0, 3),), {"shifts": (2,), "axis": (0,)}),
            Case(((4,),), {"shifts": (1, 1), "axis": (0, 0)}), Case(((),), {"shifts": (1,), "axis": ()}),
            Case(((2, 1, 3),), {"shifts": (0,), "axis": (2,)}),
        ),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=_onnx.roll,
))  # fmt: skip


@export("tensor.roll", "Variable.roll", op="roll")
def roll(
    x: Variable,
    shifts: int | Variable | Sequence[int | Variable],
    axis: int | Sequence[int] | None = None,
    name: str | None = None,
) -> Variable:
    """Moves elements by ``shifts`` positions; those pushed out at one end re-enter at the other.

    Args:
        x: ``[...]``, any dtype.
        shifts: How far, one number for each axis; numbers, Variables of one integer, or one Variable with all of them.
        axis: Along which axes; without it the flattened value is rolled and gets its shape back.
        name: Name of the layer.

    Raises:
        ShapeError: If an axis is out of range, or the lists differ in length.
    """
    x = check_variable(x, "x", "roll")
    if has_variable(shifts):
        return _roll_when_run(x, elements_of(shifts, "roll", "shifts"), axis, name)
    attrs = {"shifts": as_list(shifts), "axis": [] if axis is None else as_list(axis)}
    return emit_one("roll", {"X": x}, attrs, name=name)


def _roll_when_run(x: Variable, shifts: Sequence[Any], axis: Any, name: str | None) -> Variable:
    """Rolls by distances that are known when the program runs: reads each axis at its positions, moved."""
    flat = axis is None
    out = emit_one("reshape2", {"X": x}, {"shape": (-1,)}) if flat else x
    axes = [0] if flat else [check_axis(at, x, "axis", "roll") for at in as_list(axis)]
    check_length(shifts, (len(axes),), "shifts", "roll", why="one for each axis")
    for at, shift in zip(axes, shifts, strict=True):
        bounds = {"axes": (0,), "starts": (at,), "ends": (at + 1,)}
        size = emit_one("slice", {"Input": emit_one("shape", {"Input": out})}, bounds)
        size = number_of(size, "shifts", "roll", "int64")
        # Position i shows what was `shift` before it; the remainder below has the sign of the size, so it is never negative.
        moved = arange(size) - number_of(shift, "shifts", "roll", "int64")
        out = emit_one(
            "gather", {"X": out, "Index": emit_one("elementwise_mod", {"X": moved, "Y": size})}, {"axis": at}
        )
    # Only the sizes of x are read for the shape.
    out = emit_one("reshape2", {"X": out, "Shape": emit_one("shape", {"Input": x})}, {"shape": x.shape}, name=name)
    return out
