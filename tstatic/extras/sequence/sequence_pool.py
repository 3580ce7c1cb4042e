"""One row for each sequence: sequence_pool, and its first and last step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.sequence._offsets import (
    OFFSETS,
    Array,
    check_sequences,
    column,
    count_of,
    each,
    fold,
    lengths_of,
    owners,
)
from tstatic.ir.attrs import Attr, one_of
from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_choice, check_number
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradContext, GradOp, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, int32
from tstatic.no_effect import no_effect
from tstatic.ops.base.gradients import passed
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import emit_one

KINDS = ("AVERAGE", "SUM", "SQRT", "MAX", "FIRST", "LAST")
_IS_TEST = "the indices of the largest rows, which only a gradient reads, are made in any case"


def _infer(x: Meta, offsets: Meta, pooltype: str) -> tuple[Meta, Meta | None]:
    check_sequences(x, offsets)
    out = x.with_shape((count_of(offsets), *x.shape[1:]))
    return out, out.with_dtype(int32) if pooltype == "MAX" else None


def _divisor(offsets: Array, pooltype: str) -> Array:
    # 1 keeps an empty sequence from 0 / 0; its row becomes `pad_value` afterwards.
    lengths = np.maximum(lengths_of(offsets), 1)
    return lengths if pooltype == "AVERAGE" else np.sqrt(lengths)


def _ref(x: Array, offsets: Array, out: Array, index: Array | None, *, pooltype: str, pad_value: float) -> None:
    if out.dtype.itemsize == 2:
        # 16-bit sums are wide and rounded once; the index comes from the same wide numbers, so it names the row that was taken.
        _wide_ref(x, offsets, out, index, pooltype=pooltype, pad_value=pad_value)
        return
    if pooltype in ("FIRST", "LAST"):
        filled = lengths_of(offsets) > 0
        rows = offsets[:-1] if pooltype == "FIRST" else offsets[1:] - 1
        out[filled] = x[rows[filled]]
    else:
        filled = fold(np.maximum if pooltype == "MAX" else np.add, x, offsets, out)
    if pooltype in ("AVERAGE", "SQRT"):
        out /= column(_divisor(offsets, pooltype), out.ndim).astype(out.dtype)
    out[~filled] = pad_value
    if index is not None:
        # The first of equal rows; NaN, which equals nothing, is the largest where it stands.
        largest = (x == out[owners(offsets)]) | (x != x)
        rows = np.where(largest, column(np.arange(len(x)), x.ndim), len(x))
        found = np.zeros(out.shape, np.int64)
        # Rows that are not the largest carry len(x), above every index, so the minimum is the first of the largest ones.
        fold(np.minimum, rows, offsets, found)
        np.copyto(index, found, casting="unsafe")


def _wide_ref(x: Array, offsets: Array, out: Array, index: Array | None, **attrs: Any) -> None:
    wide = np.empty(out.shape, np.float32)
    _ref(x.astype(np.float32), offsets, wide, index, **attrs)
    np.copyto(out, wide, casting="unsafe")


def _lower_one(part: Any, pooltype: str) -> Any:
    if pooltype in ("FIRST", "LAST"):
        return part[0 if pooltype == "FIRST" else -1]
    if pooltype == "MAX":
        return part.max(0).values
    return part.sum(0) / {"SUM": 1, "AVERAGE": len(part), "SQRT": len(part) ** 0.5}[pooltype]


def _lower(torch: Any, x: Any, offsets: Any, *, pooltype: str, pad_value: float) -> Any:
    out = torch.full((len(offsets) - 1, *x.shape[1:]), pad_value, dtype=torch_wide(x).dtype)
    index = torch.zeros(out.shape, dtype=torch.int32)
    for i, part in enumerate(each(torch, x, offsets)):
        if len(part):
            out[i] = _lower_one(torch_wide(part), pooltype)
            # MaxIndex counts rows of the whole value.
            index[i] = part.max(0).indices + offsets[i]
    return out.to(x.dtype), index if pooltype == "MAX" else None


@in_float32()
def _back(x: Array, offsets: Array, index: Array | None, dout: Array, dx: Array, *, pooltype: str) -> None:
    filled = lengths_of(offsets) > 0
    if pooltype in ("SUM", "AVERAGE", "SQRT"):
        rows = dout if pooltype == "SUM" else dout / column(_divisor(offsets, pooltype), dout.ndim).astype(dout.dtype)
        # `clip` because numpy buffers `out` with mode "raise"; the indices are right.
        np.take(rows, owners(offsets), axis=0, out=dx, mode="clip")
        return
    dx.fill(0)
    if index is not None:
        # A row is the largest of its own sequence only, so no two gradients meet.
        np.put_along_axis(dx, index[filled].astype(np.int64), dout[filled], 0)
    else:
        dx[(offsets[:-1] if pooltype == "FIRST" else offsets[1:] - 1)[filled]] = dout[filled]


def _lower_back(torch: Any, x: Any, offsets: Any, index: Any, dout: Any, *, pooltype: str) -> Any:
    parts = []
    for i, part in enumerate(each(torch, x, offsets)):
        n, one = len(part), torch_wide(dout)[i : i + 1]
        made = torch.zeros(part.shape, dtype=one.dtype)
        if pooltype in ("SUM", "AVERAGE", "SQRT"):
            made = made + one / {"SUM": 1, "AVERAGE": max(n, 1), "SQRT": max(n, 1) ** 0.5}[pooltype]
        elif n and pooltype == "MAX":
            made.scatter_(0, index[i : i + 1].to(torch.int64) - int(offsets[i]), one)
        elif n:
            made[0 if pooltype == "FIRST" else -1] = one[0]
        parts.append(made)
    return (torch.cat(parts) if parts else torch.zeros(x.shape)).to(x.dtype)


def _second(ctx: GradContext) -> list[OpSpec]:
    names = passed(ctx, f"Out{GRAD}", f"X{GRAD}")
    if names is None:
        return []
    given, wanted = names
    offsets, specs, kind = {f"X{LOD}": ctx.inputs[f"X{LOD}"]}, [], ctx.attrs["pooltype"]
    if kind == "MAX":
        # The sum of what arrives at the largest rows: elsewhere, the gradient of ones is 0.
        dout = ctx.inputs[f"Out{GRAD}"][0]
        ones, marks, chosen = ctx.fresh(dout), ctx.fresh(given), ctx.fresh(given)
        inputs = {**ctx.inputs, f"Out{GRAD}": [ones]}
        specs = [
            OpSpec("fill_any_like", {"X": [dout]}, {"Out": [ones]}, {"value": 1.0}),
            OpSpec("sequence_pool_grad", inputs, {f"X{GRAD}": [marks]}, ctx.attrs),
            OpSpec("elementwise_mul", {"X": [given], "Y": [marks]}, {"Out": [chosen]}),
        ]
        given, kind = chosen, "SUM"
    attrs = {**ctx.attrs, "pooltype": kind, "pad_value": 0.0}
    return [*specs, OpSpec("sequence_pool", {"X": [given], **offsets}, {"Out": [wanted]}, attrs)]


register(OpDef(
    "sequence_pool", f"X, X{LOD} -> Out, MaxIndex~",
    attrs={
        "pooltype": Attr("AVERAGE", "str", one_of(*KINDS)), "pad_value": 0.0, "is_test": Attr.idle(False, _IS_TEST),
    },
    infer=_infer, ref=_ref,
    traits=(READS_LENGTHS,), lower=_lower, lod="X[:-1]", amp="black",
    grad=GradOp(
        f"X, X{LOD}, MaxIndex?, Out{GRAD} -> X{GRAD}", ref=_back,
        traits=(READS_LENGTHS,), lower=_lower_back, shape_only=("X",), grad=_second,
    ),
    domain=Domain(
        cases=tuple(
            Case((shape, (n,)), {"pooltype": kind, "pad_value": 0.5})
            for kind in KINDS
            for shape, n in (((7, 3), 4), ((5,), 8), ((0, 2), 3), ((3, 1, 2), 2))
        ),
        values={"X": ValueRange(distinct=True), f"X{LOD}": OFFSETS},
    ),
))  # fmt: skip


@export("static.nn.sequence_pool", "fluid.layers.sequence_pool", op="sequence_pool")
@no_effect(is_test=_IS_TEST)
def sequence_pool(input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Variable:
    """Makes one row of each sequence.

    Args:
        input: Float rows ``[rows, ...]`` with a LoD; of several levels, the innermost sequences are pooled.
        pool_type: ``"sum"``, ``"average"``, ``"sqrt"`` (the sum over the root of the length), ``"max"``, ``"first"`` or
            ``"last"``.
        pad_value: The row of an empty sequence.

    Returns:
        ``[sequences, ...]``, with the outer levels of the LoD.

    Raises:
        ProgramError: If ``input`` has no LoD, or the type is another one (a ``ValueError``).

    Example:
        >>> x = static.data("x", [None, 1], lod_level=1)
        >>> y = static.nn.sequence_pool(x, "average")
        >>> feed = fluid.create_lod_tensor(np.array([[1], [2], [3], [4], [5]], "float32"), [[2, 3]])
        >>> static.Executor().run(feed={"x": feed}, fetch_list=[y])[0].tolist()
        [[1.5], [4.0]]
    """
    x = check_variable(input, "input", "sequence_pool", FLOATS)
    kind = check_choice(str(pool_type).lower(), [k.lower() for k in KINDS], "pool_type", "sequence_pool")
    attrs = {"pooltype": kind.upper(), "pad_value": check_number(pad_value, "pad_value", "sequence_pool")}
    return emit_one("sequence_pool", {"X": x}, attrs)


@export("static.nn.sequence_first_step", "fluid.layers.sequence_first_step", op="sequence_pool")
def sequence_first_step(input: Variable) -> Variable:
    """Returns the first row of each sequence, zeros for an empty one; as ``sequence_pool(input, "first")``.

    Example:
        >>> x = static.data("x", [None, 1], lod_level=1)
        >>> y = static.nn.sequence_first_step(x)
        >>> feed = fluid.create_lod_tensor(np.array([[1], [2], [3]], "float32"), [[1, 2]])
        >>> static.Executor().run(feed={"x": feed}, fetch_list=[y])[0].tolist()
        [[1.0], [2.0]]
    """
    return sequence_pool(input, "first")


@export("static.nn.sequence_last_step", "fluid.layers.sequence_last_step", op="sequence_pool")
def sequence_last_step(input: Variable) -> Variable:
    """Returns the last row of each sequence, zeros for an empty one; as ``sequence_pool(input, "last")``.

    Example:
        >>> x = static.data("x", [None, 1], lod_level=1)
        >>> y = static.nn.sequence_last_step(x)
        >>> feed = fluid.create_lod_tensor(np.array([[1], [2], [3]], "float32"), [[1, 2]])
        >>> static.Executor().run(feed={"x": feed}, fetch_list=[y])[0].tolist()
        [[1.0], [3.0]]
    """
    return sequence_pool(input, "last")
