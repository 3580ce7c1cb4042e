"""Reading one entry per position along an axis: take_along_axis and index_sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.checks import ANY_RANK, INTEGERS, check_dtype, check_index, check_rank
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, Tile, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.split import ELEMENTS, free_axis, tiles
from tstatic.ir.types import UNKNOWN, Meta, broadcast_shapes, normalize_axis
from tstatic.ops._gradients import grad_is_forward_op
from tstatic.ops._low import in_float32
from tstatic.ops.indexing._indexing import add_flat, positions
from tstatic.ops.shape._shapes import ANY, Array, add_op_context, emit_one
from tstatic.ops.shape.expanding import broadcast_tensors, expand


def infer_along(x: Meta, index: Meta, axis: int, slot: str) -> int:
    """Checks an index of the rank of ``x``, whose sizes may be smaller; returns the positive axis."""
    check_dtype(index, INTEGERS, "Index")
    check_rank(x, range(1, ANY_RANK), slot)
    at = normalize_axis(axis, x.rank, "Axis")
    fits = index.rank == x.rank and all(
        d == at or UNKNOWN in (a, b) or b <= a for d, (a, b) in enumerate(zip(x.shape, index.shape, strict=True))
    )
    if not fits:
        raise ShapeError(
            "Index must have the rank of the value and no larger size beside the axis",
            expected=f"sizes of at most {list(x.shape)} except along axis {at}",
            received=list(index.shape),
            fix="expand or slice the index",
        )
    return at


def _take(x: Array, index: Array, out: Array, axis: int) -> None:
    at = normalize_axis(axis, x.ndim)
    check_index(index, x.shape[at])
    if out.size:
        part = x[tuple(slice(None) if d == at else slice(0, n) for d, n in enumerate(index.shape))]
        np.copyto(out, np.take_along_axis(part, index, at))


@in_float32()
def _back(x: Array, index: Array, dout: Array, dx: Array, axis: int) -> None:
    at = normalize_axis(axis, x.ndim)
    check_index(index, x.shape[at])
    dx.fill(0)
    add_flat(dx, positions(dx.shape, index, at), dout, fresh=True)


def _lower_back(torch: Any, x: Any, index: Any, dout: Any, axis: int) -> Any:
    wide = dout.float() if dout.element_size() == 2 else dout
    zeros = torch.zeros(tuple(x.shape), dtype=wide.dtype, device=dout.device)
    return zeros.scatter_add(axis, index.to(torch.int64), wide).to(dout.dtype)


def _split(x: Meta, index: Meta, out: Meta, axis: int) -> list[Tile] | None:
    free = free_axis(index.shape, (normalize_axis(axis, x.rank),), ELEMENTS.count(index.numel))
    if free is None or x.shape[free] != index.shape[free]:
        return None
    return tiles(ELEMENTS.parts(index.shape[free], index.numel), free, free, free)


register(
    OpDef(
        "take_along_axis",
        "Input, Index -> Result",
        attrs={"Axis": 0},
        infer=lambda x, index, *, Axis: x.with_shape(index.shape if infer_along(x, index, Axis, "Input") >= 0 else ()),
        ref=lambda x, index, out, *, Axis: _take(x, index, out, Axis),
        lower=lambda torch, x, index, *, Axis: torch.gather(x, Axis, index.to(torch.int64)),
        split=lambda x, index, out, *, Axis: _split(x, index, out, Axis),
        grad=GradOp(
            "Input, Index, Result@GRAD -> Input@GRAD",
            ref=lambda x, index, dout, dx, *, Axis: _back(x, index, dout, dx, axis=Axis),
            lower=lambda torch, x, index, dout, *, Axis: _lower_back(torch, x, index, dout, Axis),
            shape_only=("Input",),
            grad=grad_is_forward_op("take_along_axis", "Input", "Result", ("Index",)),
        ),
        domain=Domain(
            cases=(
                Case(((3, 4), (5, 4)), {"Axis": 0}),
                Case(((4, 4), (4, 2)), {"Axis": 1}),
                Case(((2, 3, 2), (1, 3, 2)), {"Axis": -1}),
                Case(((5,), (7,)), {"Axis": 0}),
                Case(((3, 4), (0, 4)), {"Axis": 0}),
                Case(((2, 0), (3, 0)), {"Axis": -2}),
            ),
            values={"Index": ValueRange(0, "Input.0", dtype="int64")},
            others=ANY,
        ),
    )
)


def broadcast_index(x: Variable, index: Variable, axis: int, function: str) -> tuple[Variable, Variable, int]:
    """Expands value and index so that they agree beside the axis; two unknown sizes are taken to be equal.

    Raises:
        ShapeError: If they do not broadcast.
    """
    try:
        if len(x.shape) != len(index.shape):
            raise ShapeError(
                "`indices` and `arr` must have the same number of dimensions",
                expected=f"{len(x.shape)} dimensions",
                received=f"indices of shape {list(index.shape)}",
                fix="reshape the indices",
            )
        at = normalize_axis(axis, len(x.shape))
        for d, (a, b) in enumerate(zip(x.shape, index.shape, strict=True)):
            if d != at:
                broadcast_shapes((a,), (b,))
    except ShapeError as error:
        raise add_op_context(error, function, x.name) from None
    return _expanded(x, index, at), _expanded(index, x, at), at


def _expanded(x: Variable, like: Variable, axis: int) -> Variable:
    """``x`` with the sizes of 1 beside the axis repeated as often as ``like`` has them."""
    shape = [a if d == axis or a != 1 else b for d, (a, b) in enumerate(zip(x.shape, like.shape, strict=True))]
    if tuple(shape) == x.shape:
        return x
    if UNKNOWN not in [s for s, a in zip(shape, x.shape, strict=True) if s != a]:
        return expand(x, [UNKNOWN if s == a else s for s, a in zip(shape, x.shape, strict=True)])
    one = emit_one("slice", {"Input": like}, {"axes": [axis], "starts": [0], "ends": [1], "infer_flags": [1]})
    return broadcast_tensors([x, one])[0]


@export("tensor.take_along_axis", "Variable.take_along_axis", op="take_along_axis")
def take_along_axis(arr: Variable, indices: Variable, axis: int, broadcast: bool = True) -> Variable:
    """Reads ``arr[..., indices[..., i, ...], ...]`` along an axis.

    Args:
        arr: ``[...]``, any dtype.
        indices: Integers from 0, of the rank of ``arr``.
        axis: Which axis.
        broadcast: Expand both beside the axis; otherwise the indices may be smaller than the value.

    Returns:
        A Variable of the (expanded) shape of ``indices``.

    Raises:
        ShapeError: If the shapes do not fit. A position out of range raises IndexRangeError when the program runs.
    """
    arr = check_variable(arr, "arr", "take_along_axis")
    indices = check_variable(indices, "indices", "take_along_axis", INTEGERS)
    if broadcast:
        arr, indices, axis = broadcast_index(arr, indices, axis, "take_along_axis")
    return emit_one("take_along_axis", {"Input": arr, "Index": indices}, {"Axis": axis})


# -------------------------------------------------------------------------------------------------------- index_sample
def _infer_sample(x: Meta, index: Meta) -> Meta:
    check_dtype(index, INTEGERS, "Index")
    check_rank(x, 2, "X")
    check_rank(index, 2, "Index")
    if UNKNOWN not in (x.shape[0], index.shape[0]) and x.shape[0] != index.shape[0]:
        raise ShapeError(
            "X and Index must have the same number of rows",
            expected=f"{x.shape[0]} rows",
            received=list(index.shape),
            fix="give each row of X its own indices",
        )
    return x.with_shape((index.shape[0] if x.shape[0] == UNKNOWN else x.shape[0], index.shape[1]))


register(
    OpDef(
        "index_sample",
        "X, Index -> Out",
        infer=_infer_sample,
        ref=lambda x, index, out: _take(x, index, out, 1),
        lower=lambda torch, x, index: torch.gather(x, 1, index.to(torch.int64)),
        split=lambda x, index, out: _split(x, index, out, 1),
        grad=GradOp(
            "X, Index, Out@GRAD -> X@GRAD",
            ref=lambda x, index, dout, dx: _back(x, index, dout, dx, axis=1),
            lower=lambda torch, x, index, dout: _lower_back(torch, x, index, dout, 1),
            shape_only=("X",),
            grad=grad_is_forward_op("index_sample", keep=("Index",)),
        ),
        domain=Domain(
            cases=(
                Case(((3, 4), (3, 2))),
                Case(((2, 3), (2, 6))),
                Case(((1, 5), (1, 1))),
                Case(((0, 3), (0, 2))),
                Case(((3, 3), (3, 0))),
                Case(((4, 4), (4, 4))),
            ),
            values={"Index": ValueRange(0, "X.1", dtype="int64")},
            others=ANY,
        ),
    )
)


@export("tensor.index_sample", "Variable.index_sample", op="index_sample")
def index_sample(x: Variable, index: Variable) -> Variable:
    """Reads ``x[i, index[i, j]]``: each row of ``x`` (``[n, m]``) at the positions of its row of ``index`` (``[n, k]``)."""
    x = check_variable(x, "x", "index_sample")
    return emit_one("index_sample", {"X": x, "Index": check_variable(index, "index", "index_sample", INTEGERS)})
