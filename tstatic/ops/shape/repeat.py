"""Repeating each entry along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import IndexRangeError, ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, normalize_axis
from tstatic.ops._gradients import grad_is_forward_op
from tstatic.ops._low import in_float32
from tstatic.ops.indexing._scatter_add import add_rows
from tstatic.ops.shape._shapes import Array, check_integer, check_rank, emit_one
from tstatic.ops.shape.reshape import ANY, flatten


def _infer(x: Meta, counts: Meta | None, *, Repeats: int, dim: int) -> Meta:
    check_rank(x, 1, None, "X")
    at = normalize_axis(dim, x.rank)
    size = x.shape[at]
    if counts is not None:
        check_integer(counts, "RepeatsTensor")
        check_rank(counts, 1, 1, "RepeatsTensor")
        if UNKNOWN not in (size, counts.shape[0]) and counts.shape[0] not in (size, 1):
            raise ShapeError(
                "repeats must say a number for each entry",
                expected=f"{size} numbers",
                received=list(counts.shape),
                fix=f"give as many numbers as axis {at} has entries",
            )
        new = UNKNOWN
    else:
        if Repeats < 0:
            raise ShapeError(
                "an entry cannot be repeated a negative number of times",
                expected="repeats of at least 0",
                received=Repeats,
                fix="check repeats",
            )
        new = UNKNOWN if size == UNKNOWN else size * Repeats
    return x.with_shape((*x.shape[:at], new, *x.shape[at + 1 :]))


def _counts(counts: Array | None, repeats: int, size: int) -> Array:
    if counts is None:
        return np.full(size, repeats)
    if counts.size and int(counts.min()) < 0:
        raise IndexRangeError(
            "repeats holds a negative number",
            expected="numbers of at least 0",
            received=int(counts.min()),
            fix="check the values fed to repeats",
        )
    return np.broadcast_to(counts, (size,))


def _ref(x: Array, counts: Array | None, out: Array | None, *, Repeats: int, dim: int) -> list[Array] | None:
    at = normalize_axis(dim, x.ndim)
    if out is None:
        return [np.repeat(x, _counts(counts, Repeats, x.shape[at]), axis=at)]
    if out.size:
        # Splitting the axis never needs a copy, whatever the strides are.
        split = out.reshape((*x.shape[: at + 1], Repeats, *x.shape[at + 1 :]), copy=False)
        np.copyto(split, np.expand_dims(x, at + 1))
    return None


def _lower(torch: Any, x: Any, counts: Any, *, Repeats: int, dim: int) -> Any:
    return torch.repeat_interleave(x, Repeats if counts is None else counts, dim)


@in_float32()
def _back(x: Array, counts: Array | None, dout: Array, dx: Array, *, Repeats: int, dim: int) -> None:
    at = normalize_axis(dim, x.ndim)
    dx.fill(0)
    index = np.repeat(np.arange(x.shape[at]), _counts(counts, Repeats, x.shape[at]))
    add_rows(np.moveaxis(dx, at, 0), index, np.moveaxis(dout, at, 0), fresh=True)


def _lower_back(torch: Any, x: Any, counts: Any, dout: Any, *, Repeats: int, dim: int) -> Any:
    size = x.shape[dim]
    times = torch.full((size,), Repeats) if counts is None else counts.expand(size)
    index = torch.repeat_interleave(torch.arange(size, device=dout.device), times.to(dout.device))
    wide = dout.float() if dout.element_size() == 2 else dout
    return torch.zeros(tuple(x.shape), dtype=wide.dtype, device=dout.device).index_add(dim, index, wide).to(dout.dtype)


register(
    OpDef(
        "repeat_interleave",
        "X, RepeatsTensor? -> Out",
        attrs={"Repeats": 1, "dim": Attr(0, "int")},
        infer=_infer,
        ref=_ref,
        lower=_lower,
        grad=GradOp(
            "X, RepeatsTensor?, Out@GRAD -> X@GRAD",
            ref=_back,
            lower=_lower_back,
            shape_only=("X",),
            grad=grad_is_forward_op("repeat_interleave", keep=("RepeatsTensor",)),
        ),
        domain=Domain(
            cases=(
                Case(((3, 2), None), {"Repeats": 2, "dim": 0}),
                Case(((3, 2), None), {"Repeats": 3, "dim": -1}),
                Case(((4,), None), {"Repeats": 1, "dim": 0}),
                Case(((2, 3, 2), None), {"Repeats": 2, "dim": 1}),
                Case(((2, 3), None), {"Repeats": 0, "dim": 1}),
                Case(((0, 3), None), {"Repeats": 2, "dim": 0}),
            ),
            values={"RepeatsTensor": ValueRange(0, 3, dtype="int64")},
            others=ANY,
        ),
    )
)


@export("tensor.repeat_interleave", "Variable.repeat_interleave", op="repeat_interleave")
def repeat_interleave(x: Variable, repeats: Any, axis: int | None = None, name: str | None = None) -> Variable:
    """Repeats each entry along an axis.

    Args:
        x: ``[...]``, any dtype.
        repeats: How often: a number, or an integer Variable of one number for each entry.
        axis: Which axis; without it the flattened value is used.
        name: Name of the layer.

    Raises:
        ShapeError: If a number is negative or the counts do not fit the axis.
    """
    x = check_variable(x, "x", "repeat_interleave")
    if axis is None:
        x, axis = flatten(x), 0
    given = repeats if isinstance(repeats, Variable) else None
    attrs = {"Repeats": 0 if given is not None else repeats, "dim": axis}
    return emit_one("repeat_interleave", {"X": x, "RepeatsTensor": given}, attrs, name=name)
