"""Reordering axes: transpose and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, Tile, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Call
from tstatic.ir.split import ELEMENTS, free_axis, tiles
from tstatic.ir.types import Meta, normalize_axis
from tstatic.ops._call_ref import copies
from tstatic.ops._gradients import grad_is_op
from tstatic.ops.shape._reshaping import with_shape
from tstatic.ops.shape._shapes import Array, add_op_context, as_list, copy, emit_one
from tstatic.ops.shape.reshape import ANY


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
    return {"axis": tuple(int(a) for a in np.argsort(order))}


register(
    OpDef(
        "transpose2",
        "X -> Out, XShape~",
        attrs={"axis": Attr(kind="ints")},
        infer=_infer,
        ref=copies(_calls),
        lower=lambda torch, x, *, axis: (x.permute(_order(axis, x.dim())).contiguous(), None),
        view=lambda x, *, axis: x.transpose(_order(axis, x.ndim)),
        split=_split,
        grad=grad_is_op("transpose2", _inverse),
        amp="gray",
        domain=Domain(
            cases=(
                Case(((2, 3, 4),), {"axis": (2, 0, 1)}),
                Case(((2, 3, 4, 5),), {"axis": (0, 2, 1, 3)}),
                Case(((3, 4),), {"axis": (-1, -2)}),
                Case(((5,),), {"axis": (0,)}),
                Case(((),), {"axis": ()}),
                Case(((2, 0, 3),), {"axis": (1, 2, 0)}),
                Case(((1, 6, 1, 2),), {"axis": (3, 2, 1, 0)}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


@export("tensor.transpose", "Variable.transpose", "fluid.layers.transpose", op="transpose2")
def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Reorders the axes: axis ``i`` of the result is axis ``perm[i]`` of ``x``.

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
    """Same as :func:`transpose`: a program's values are never changed in place."""
    return transpose(x, perm, name)


@export("tensor.moveaxis", "Variable.moveaxis", op="transpose2")
def moveaxis(
    x: Variable, source: int | Sequence[int], destination: int | Sequence[int], name: str | None = None
) -> Variable:
    """Moves the axes ``source`` to the positions ``destination``; the others keep their order.

    Raises:
        ShapeError: If an axis is out of range or named twice, or the two lists differ in length.
    """
    x = check_variable(x, "x", "moveaxis")
    rank = len(x.shape)
    try:
        start = [normalize_axis(a, rank, "source") for a in as_list(source)]
        goal = [normalize_axis(a, rank, "destination") for a in as_list(destination)]
        if len(start) != len(goal) or len(set(start)) != len(start) or len(set(goal)) != len(goal):
            raise ShapeError(
                "source and destination must name as many different axes each",
                expected="two lists of equal length without repetition",
                received=f"source {as_list(source)} and destination {as_list(destination)}",
                fix="give each moved axis one destination",
            )
    except ShapeError as error:
        raise add_op_context(error, "moveaxis", x.name) from None
    perm = [a for a in range(rank) if a not in start]
    for to, axis in sorted(zip(goal, start, strict=True)):
        perm.insert(to, axis)
    return emit_one("transpose2", {"X": x}, {"axis": perm}, name=name, prefix="moveaxis")


@export("tensor.swapaxes", "Variable.swapaxes", op="transpose2")
def swapaxes(x: Variable, axis0: int, axis1: int, name: str | None = None) -> Variable:
    """Exchanges two axes."""
    x = check_variable(x, "x", "swapaxes")
    rank = len(x.shape)
    perm = list(range(rank))
    try:
        a, b = normalize_axis(axis0, rank), normalize_axis(axis1, rank)
    except ShapeError as error:
        raise add_op_context(error, "swapaxes", x.name) from None
    if rank:
        perm[a], perm[b] = perm[b], perm[a]
    return emit_one("transpose2", {"X": x}, {"axis": perm}, name=name, prefix="transpose")


@export("tensor.t", "Variable.t", op="transpose2")
def t(input: Variable, name: str | None = None) -> Variable:
    """The transposed matrix; a value of fewer than two dimensions stays as it is.

    Raises:
        ShapeError: If the value has more than two dimensions.
    """
    x = check_variable(input, "input", "t")
    if len(x.shape) > 2:
        raise add_op_context(
            ShapeError(
                "t() is for values of at most two dimensions",
                expected="0, 1 or 2 dimensions",
                received=f"shape {list(x.shape)}",
                fix="use paddle.transpose(x, perm)",
            ),
            "t",
            x.name,
        )
    return emit_one("transpose2", {"X": x}, {"axis": list(range(len(x.shape)))[::-1]}, name=name, prefix="t")
