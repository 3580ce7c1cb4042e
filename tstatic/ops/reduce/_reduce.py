"""What the reductions share: axes, shapes, views, tiles, and the bodies of their functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tstatic.errors import ProgramTypeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_axes
from tstatic.ir.opdef import PARTIAL_SUM, WHOLE, Attr, Case, Tile
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls, keywords
from tstatic.ir.split import SUMS, equal, tiles
from tstatic.ir.types import UNKNOWN, Meta, Shape, normalize_axis
from tstatic.ops.base.call_ref import CallRef
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.shape.when_run import by_axis

REDUCE_ATTRS = {
    "dim": Attr((0,), "ints"),
    "keep_dim": False,
    "reduce_all": False,
    "in_dtype": Attr.idle(None, "the input has a dtype of its own", "dtype"),
    # What to add up in.
    "out_dtype": Attr(None, "dtype"),
    # The 1.x names give a full reduction the shape [1], the 2.x names [].
    "one_d": False,
}

CHOICE_ATTRS = {
    **REDUCE_ATTRS,
    "out_dtype": Attr.idle(None, "nothing is added up: the result is of the input's dtype", "dtype"),
}
"""Of reductions that pick an element."""


def reduced_axes(rank: int, dim: Sequence[int], reduce_all: bool = False) -> tuple[int, ...]:
    """Returns the axes in rising order; no axis means all of them.

    Raises:
        ShapeError: If an axis is out of range or occurs twice.
    """
    if reduce_all or not dim or rank == 0:
        if rank == 0 and not set(dim) <= {0, -1}:
            normalize_axis(next(d for d in dim if d not in (0, -1)), 0)
        return tuple(range(rank))
    return check_axes(dim, rank)


def reduced_shape(shape: Shape, axes: Sequence[int], keep_dim: bool = False, one_d: bool = False) -> Shape:
    """Returns the shape of a reduction over sorted axes."""
    if keep_dim:
        return tuple(1 if i in axes else s for i, s in enumerate(shape))
    kept = tuple(s for i, s in enumerate(shape) if i not in axes)
    return (1,) if one_d and not kept else kept


def spread(array: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
    """Returns a reduced value as a view that broadcasts against ``shape``."""
    return array.reshape(tuple(1 if i in axes else s for i, s in enumerate(shape)), copy=False)


def count_of(shape: Sequence[int], axes: Sequence[int]) -> int:
    """Returns how many elements go into each result."""
    return math.prod(shape[i] for i in axes)


class Over:
    """The attributes of an op that say over which axes it reduces, and what follows from them.

    Args:
        dim: Name of the attribute with the axes, or the axis; ``""`` for an op that reduces over all axes.
        keep: Name of the one that keeps reduced axes with size 1.
        everything: Name of the one that means all axes.
    """

    def __init__(self, dim: str = "dim", keep: str = "keep_dim", everything: str = "reduce_all") -> None:
        self.dim, self.keep, self.everything = dim, keep, everything
        self.names = (dim, everything) if dim else ()

    def axes(self, rank: int, attrs: Mapping[str, Any]) -> tuple[int, ...]:
        """Returns the axes for a value of a rank, in rising order."""
        # Without an attribute of axes the op reduces everything, as `mean` of 1.x does.
        if not self.dim:
            return tuple(range(rank))
        dim = attrs[self.dim]
        return reduced_axes(rank, (dim,) if isinstance(dim, int) else dim, attrs[self.everything])

    def shape(self, shape: Sequence[int], attrs: Mapping[str, Any]) -> Shape:
        """Returns the shape of the result."""
        # Ops without axes are of the 1.x, whose full reductions have the shape [1].
        one_d = attrs.get("one_d", not self.dim)
        return reduced_shape(tuple(shape), self.axes(len(shape), attrs), attrs.get(self.keep, False), one_d)

    def ref(
        self, calls: Callable[..., Calls], scratch_metas: Callable[..., Sequence[Meta]] | None = None, **options: Any
    ) -> CallRef:
        """Makes a reference from ``calls(*inputs, *outputs, axes, scratch, *, attributes)``.

        Args:
            calls: Returns the calls; names the further attributes that it uses.
            scratch_metas: ``(*input metas, *output metas, axes) -> metas`` of the scratch buffers.
            options: Those of :class:`CallRef`.
        """
        further = keywords(calls)

        def bound(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any], **attrs: Any) -> Calls:
            values = {n: attrs[n] for n in further}
            return calls(*ins, *outs, self.axes(ins[0].ndim, attrs), scratch, **values)

        def metas(ins: Sequence[Meta], outs: Sequence[Meta], **attrs: Any) -> Sequence[Meta]:
            return () if scratch_metas is None else scratch_metas(*ins, *outs, self.axes(ins[0].rank, attrs))

        ref = CallRef(bound, metas, attrs=(*self.names, *further), **options)
        ref.functions = (calls,) if scratch_metas is None else (calls, scratch_metas)
        return ref

    def lower(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Makes the form in torch from ``(torch, *tensors, axes, attributes) -> tensor`` that holds the result's elements."""

        def lower(torch: Any, x: Any, **attrs: Any) -> Any:
            return function(torch, x, self.axes(x.dim(), attrs), attrs).reshape(self.shape(x.shape, attrs))

        def writing(torch: Any, x: Any, *, out: Any = None, **attrs: Any) -> Any:
            axes = self.axes(x.dim(), attrs)
            # torch writes a result without the reduced axes, so the given place is seen without them.
            place = None if out is None else out.view([s for i, s in enumerate(x.shape) if i not in axes])
            return function(torch, x, axes, attrs, out=place).reshape(self.shape(x.shape, attrs))

        return writing if "out" in keywords(function) else lower

    def grad_lower(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Makes the gradient in torch from ``(torch, x, *others, axes, attributes)``, the others shaped to broadcast to ``x``."""

        def lower(torch: Any, x: Any, *others: Any, **attrs: Any) -> Any:
            axes = self.axes(x.dim(), attrs)
            shape = [1 if i in axes else s for i, s in enumerate(x.shape)]
            return function(torch, x, *(v.reshape(shape) for v in others), axes, attrs)

        def writing(torch: Any, x: Any, *others: Any, out: Any = None, **attrs: Any) -> Any:
            axes = self.axes(x.dim(), attrs)
            shape = [1 if i in axes else s for i, s in enumerate(x.shape)]
            return function(torch, x, *(v.reshape(shape) for v in others), axes, attrs, out=out)

        return writing if "out" in keywords(function) else lower

    def split(self, summed: bool = False) -> Callable[..., list[Tile] | None]:
        """Makes the op's ``split``: along an axis that is kept; of a sum perhaps along the first that is reduced."""

        def split(x: Meta, out: Meta, **attrs: Any) -> list[Tile] | None:
            axes = self.axes(x.rank, attrs)
            count = min(SUMS.most, -(-x.numel // SUMS.size))
            if count < 2 or out.numel <= 0:
                return None
            long = [i for i in range(x.rank) if x.shape[i] >= count]
            kept = [i for i in long if i not in axes]
            if kept:
                # The outermost: its tiles are runs of memory.
                # 16 columns are a cache line of float32: no two tiles write to the same one.
                parts = equal(x.shape[kept[0]], count, 1 if kept[0] < x.rank - 1 else 16)
                return tiles(parts, kept[0], self.kept_axis(kept[0], axes, attrs)) if len(parts) > 1 else None
            # Nothing kept is long enough: tiles add up parts of the first axis, which are added in order.
            return (
                tiles(equal(x.shape[axes[0]], count), axes[0], PARTIAL_SUM)
                if summed and axes and axes[0] in long
                else None
            )

        return split

    def grad_split(self, x: Meta, dout: Meta, dx: Meta, **attrs: Any) -> list[Tile] | None:
        """Cuts a gradient that is a value broadcast along the axes; the input itself lends its shape."""
        axes = self.axes(x.rank, attrs)
        count = min(SUMS.most, -(-dx.numel // SUMS.size))
        # The first axis with more than one element: a tile is then one run of memory.
        axis = next((i for i, s in enumerate(dx.shape) if s > 1), 0)
        if count < 2 or dx.shape[axis] < 2:
            return None
        return tiles(
            equal(dx.shape[axis], count), WHOLE, WHOLE if axis in axes else self.kept_axis(axis, axes, attrs), axis
        )

    def kept_axis(self, axis: int, axes: Sequence[int], attrs: Mapping[str, Any]) -> int:
        """Returns where an axis stands in the result."""
        return axis if attrs.get(self.keep, False) else axis - sum(a < axis for a in axes)


# One, several and all axes, both ways of counting, kept or not, rank 0, size 1, size 0 beside the axis.
CASES = (
    Case(((3, 4),)),
    Case(((3, 4),), {"dim": (1,)}),
    Case(((3, 4),), {"dim": (-1,), "keep_dim": True}),
    Case(((2, 3, 4),), {"dim": (0, 2)}),
    Case(((2, 3, 4),), {"dim": (1,)}),
    Case(((2, 3, 4),), {"reduce_all": True}),
    Case(((2, 3, 4),), {"reduce_all": True, "one_d": True}),
    Case(((2, 3, 4),), {"reduce_all": True, "keep_dim": True}),
    Case(((2, 3, 2, 3),), {"dim": (1, -1)}),
    Case(((),), {"reduce_all": True}),
    Case(((),), {"dim": (0,), "one_d": True}),
    Case(((1, 3, 1),), {"dim": (0,)}),
    Case(((5,),), {"dim": (0,)}),
    Case(((3, 0),), {"dim": (0,)}),
    Case(((4, 2, 0),), {"dim": (1,), "keep_dim": True}),
    Case(((2, 0, 3),), {"dim": (2,)}),
)
EMPTY_CASES = (
    Case(((0,),)),
    Case(((3, 0),), {"dim": (1,)}),
    Case(((0, 2),), {"reduce_all": True, "one_d": True}),
)
"""Over no elements: for ops with a neutral element."""

# Longer than the blocks in which `_sum` adds up, along the last axis, the first and one between.
LONG_CASES = (
    Case(((2, 1300),), {"dim": (1,)}),
    Case(((300, 3),), {"dim": (0,)}),
    Case(((3, 150, 2),), {"dim": (1,)}),
)


# ----------------------------------------------------------------------------------------------------------- functions
def axis_attr(axis: Any, function: str) -> tuple[int, ...]:
    """Reads ``None``, an int or a list of ints as the attribute ``dim``; an empty tuple means all axes.

    Raises:
        ProgramTypeError: For anything else.
    """
    if axis is None:
        return ()
    items = axis if isinstance(axis, list | tuple) else (axis,)
    # A bool is an int to Python, and `True` as an axis is an error of the caller.
    if any(isinstance(a, bool) or not hasattr(a, "__index__") or isinstance(a, Variable) for a in items):
        raise ProgramTypeError(
            f"The type of 'axis' in {function} must be int, list, tuple or None",
            expected="an int, a list of ints, or None for all axes",
            received=f"{axis!r} of type {type(axis).__name__}",
            fix="pass numbers; of Variables, only one, and not in a list, is supported",
            op=function,
        )
    return tuple(int(a) for a in items)


def reduced(type: str, prefix: str, x: Variable, axis: Any, keepdim: bool, name: str | None, **attrs: Any) -> Variable:
    """Emits a 2.x function on an op of this family; the axis may be a Variable."""
    x = check_variable(x, "x", prefix)

    def along(axis: Any) -> Variable:
        dim = axis_attr(axis, prefix)
        given = {"dim": dim or (0,), "keep_dim": keepdim, "reduce_all": not dim, **attrs}
        return emit_one(type, {"X": x}, given, name=name, prefix=prefix)

    return by_axis(axis, len(x.shape), along, prefix)


def fluid_reduced(type: str, input: Variable, dim: Any, keep_dim: bool, name: str | None) -> Variable:
    """Emits a 1.x function on an op of this family: a full reduction has shape ``[1]``."""
    axes = axis_attr(dim, type)
    attrs = {"dim": axes or (0,), "keep_dim": keep_dim, "reduce_all": not axes, "one_d": True}
    return emit_one(type, {"X": check_variable(input, "input", type)}, attrs, name=name)


def known_count(x: Variable, axes: Sequence[int]) -> int:
    """Returns how many elements go into each result; ``-1`` when a size is unknown."""
    sizes = [x.shape[i] for i in axes]
    return UNKNOWN if UNKNOWN in sizes else math.prod(sizes)
