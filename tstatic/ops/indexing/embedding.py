"""Rows of a table by index: the embedding lookup, under its names of Paddle 2.x and 1.x."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import DTypeError, IndexRangeError, ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, check_dtype
from tstatic.ir.opdef import (
    GRAD,
    WHOLE,
    Attr,
    Case,
    Cost,
    Domain,
    GradContext,
    GradOp,
    OpDef,
    OpSpec,
    ValueRange,
    export,
    register,
)
from tstatic.ir.program import Variable
from tstatic.ir.split import IMAGES, Split
from tstatic.ir.types import UNKNOWN, Meta, float32
from tstatic.ops._low import in_float32
from tstatic.ops.indexing._scatter_add import add_rows
from tstatic.tuned._common import Array

SPARSE = Attr.idle(False, "values and gradients are the same; optimizers with lazy_mode read it")
DISTRIBUTED = Attr.idle(False, "a table lies in one place")


def check_rows(ids: Array, count: int) -> None:
    """Checks that each index is a row of the table.

    Raises:
        IndexRangeError: If one is not; the message names the first.
    """
    if ids.size == 0:
        return
    low, high = int(ids.min()), int(ids.max())
    if low >= 0 and high < count:
        return
    flat = ids.reshape(-1)
    wrong = np.flatnonzero((flat < 0) | (flat >= count))
    place = tuple(int(i) for i in np.unravel_index(wrong[0], ids.shape))
    raise IndexRangeError(
        "an index of the embedding lookup is out of range",
        expected=f"indices from 0 to {count - 1}, the rows of the table",
        received=f"{int(flat[wrong[0]])} at {list(place)} ({wrong.size} in all)",
        fix="check the ids that are fed, or make the table larger",
    )


def _infer(ids: Meta, w: Meta) -> Meta:
    if not ids.dtype.is_integer:
        raise DTypeError(
            "the indices of an embedding lookup must be integers",
            expected="int64 or int32",
            received=ids.dtype.name,
            fix="convert them with paddle.cast(ids, 'int64')",
        )
    check_dtype(w, FLOATS, "W")
    if w.rank != 2:
        raise ShapeError(
            "the table of an embedding lookup must have two dimensions",
            expected="[rows, size of an embedding]",
            received=list(w.shape),
            fix="reshape the table",
        )
    return Meta((*ids.shape, w.shape[1]), w.dtype)


def _infer_column(ids: Meta, w: Meta) -> Meta:
    if ids.rank < 1 or ids.shape[-1] not in (1, UNKNOWN):
        raise ShapeError(
            "The last dimension of the 'Ids' tensor must be 1",
            expected="[..., 1]",
            received=list(ids.shape),
            fix="use paddle.nn.functional.embedding for ids without that axis, or unsqueeze them",
        )
    return _infer(ids.with_shape(ids.shape[:-1]), w)


def _ref(ids: Array, w: Array, out: Array, padding_idx: int) -> None:
    check_rows(ids, w.shape[0])
    flat = ids.reshape(-1)
    shape = (flat.size, w.shape[1])
    try:
        rows = out.reshape(shape, copy=False)
    except ValueError:
        rows = np.empty(shape, out.dtype)
    if rows.size:
        # The indices are checked; any mode but "raise" writes straight to the target.
        np.take(w, flat, axis=0, out=rows, mode="clip")
        if padding_idx >= 0:
            rows[flat == padding_idx] = 0
    if not np.shares_memory(rows, out):
        np.copyto(out, rows.reshape(out.shape))


# Not cut: every tile would sort the indices again, and a table cut by columns is slow to fill.
@in_float32()
def _grad_ref(ids: Array, w: Array, dout: Array, dw: Array, padding_idx: int) -> None:
    dw.fill(0)
    flat = ids.reshape(-1)
    add_rows(dw, flat, dout.reshape(flat.size, dw.shape[1]), fresh=True)
    if 0 <= padding_idx < dw.shape[0]:
        dw[padding_idx] = 0


def _cost(ids: Meta, w: Meta, out: Meta) -> Cost:
    return Cost(0.0, float(ids.nbytes + 2 * out.nbytes))


def _grad_cost(ids: Meta, w: Meta, dout: Meta, dw: Meta) -> Cost:
    return Cost(float(dout.numel), float(ids.nbytes + 3 * dout.nbytes + dw.nbytes))


def _lower(torch: Any, ids: Any, w: Any, padding_idx: int) -> Any:
    out = torch.nn.functional.embedding(ids.long(), w)
    # Paddle gives zeros for the padding index, torch the table's row.
    return out.masked_fill((ids == padding_idx)[..., None], 0) if padding_idx >= 0 else out


def _lower_column(torch: Any, ids: Any, w: Any, padding_idx: int) -> Any:
    return _lower(torch, ids[..., 0], w, padding_idx)


def _grad_lower(torch: Any, ids: Any, w: Any, dout: Any, padding_idx: int) -> Any:
    flat = ids.flatten().long()
    rows = dout.reshape(flat.shape[0], w.shape[1])
    wide = rows.float() if rows.itemsize == 2 else rows
    table = torch.zeros(w.shape, dtype=wide.dtype, device=wide.device).index_add(0, flat, wide)
    if 0 <= padding_idx < w.shape[0]:
        table[padding_idx] = 0
    return table.to(w.dtype)


def _again(type: str) -> Any:
    """Gradient of the backward op, which is linear in the incoming gradient: the lookup itself."""

    def rule(ctx: GradContext) -> list[OpSpec]:
        dout = ctx.inputs["Out" + GRAD][0]
        ddw = ctx.out_grads.get(ctx.outputs["W" + GRAD][0])
        if dout not in ctx.in_grads or ddw is None:
            return []
        ins = {"Ids": ctx.inputs["Ids"], "W": [ddw]}
        return [OpSpec(type, ins, {"Out": [ctx.in_grads[dout]]}, ctx.attrs)]

    return rule


def _definition(type: str, infer: Any, lower: Any, cases: tuple[Case, ...]) -> OpDef:
    return OpDef(
        type,
        "Ids, W -> Out",
        attrs={"padding_idx": Attr(-1, "int"), "is_sparse": SPARSE, "is_distributed": DISTRIBUTED},
        infer=infer,
        ref=_ref,
        lower=lower,
        split=Split(IMAGES, 0, WHOLE, 0),
        cost=_cost,
        grad=GradOp(
            "Ids, W, Out@GRAD -> W@GRAD",
            ref=_grad_ref,
            lower=_grad_lower,
            cost=_grad_cost,
            shape_only=("W",),
            grad=_again(type),
        ),
        effects=True,
        amp="black",
        domain=Domain(cases=cases, values={"Ids": ValueRange(0, "W.0", dtype="int64")}, ulps=2.0),
    )


register(
    _definition(
        "lookup_table_v2",
        _infer,
        _lower,
        (
            Case(((3, 4), (7, 5)), {}),
            Case(((6,), (4, 3)), {"padding_idx": 2}),
            Case(((), (4, 3)), {}),
            Case(((0,), (4, 3)), {}),
            Case(((2, 3, 2), (5, 1)), {"padding_idx": 0}),
            Case(((40,), (3, 20)), {"is_sparse": True}),
            Case(((2, 2), (3, 0)), {}),
        ),
    )
)
register(
    _definition(
        "lookup_table",
        _infer_column,
        _lower_column,
        (
            Case(((3, 1), (7, 5)), {}),
            Case(((2, 3, 1), (4, 3)), {"padding_idx": 2}),
            Case(((1,), (4, 3)), {}),
            Case(((0, 1), (4, 3)), {}),
            Case(((30, 1), (3, 20)), {"is_sparse": True}),
            Case(((5, 1), (2, 1)), {"padding_idx": 1}),
        ),
    )
)


# ---------------------------------------------------------------------------------------------------------- touched rows
def _rows_infer(ids: Meta, w: Meta) -> Meta:
    return Meta(w.shape[:1], float32)


def _rows_ref(ids: Array, w: Array, out: Array, padding_idx: int) -> None:
    out[...] = np.bincount(ids.reshape(-1), minlength=out.size)
    if 0 <= padding_idx < out.size:
        out[padding_idx] = 0


def _rows_lower(torch: Any, ids: Any, w: Any, padding_idx: int) -> Any:
    counts = torch.bincount(ids.flatten().long(), minlength=w.shape[0]).float()
    if 0 <= padding_idx < w.shape[0]:
        counts[padding_idx] = 0
    return counts


register(
    OpDef(
        "embedding_rows",
        "Ids, W -> Out",
        attrs={"padding_idx": Attr(-1, "int")},
        infer=_rows_infer,
        ref=_rows_ref,
        lower=_rows_lower,
        shape_only=("W",),
        domain=Domain(
            cases=(Case(((3, 4), (7, 5))), Case(((6, 1), (4, 3)), {"padding_idx": 2}), Case(((0,), (4, 3)))),
            values={"Ids": ValueRange(0, "W.0", dtype="int64")},
        ),
    )
)


def padding_row(padding_idx: int | None, rows: int, function: str) -> int:
    """The attribute for a ``padding_idx`` argument: -1 for none, counted from the end if negative.

    Raises:
        ShapeError: If the table has no such row.
    """
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise ShapeError(
            f"padding_idx of {function} must be within [-{rows}, {rows})",
            expected=f"None, or a row from {-rows} to {rows - 1}",
            received=padding_idx,
            fix="choose a row of the table",
            op=function,
        )
    return padding_idx if padding_idx >= 0 else rows + padding_idx


@export("nn.functional.embedding", op="lookup_table_v2")
def embedding(
    x: Variable, weight: Variable, padding_idx: int | None = None, sparse: bool = False, name: str | None = None
) -> Variable:
    """Rows of a table by index.

    Args:
        x: Integers of any shape, each a row of ``weight``.
        weight: ``[rows, size]``, floats.
        padding_idx: This row reads as zeros and gets no gradient; counted from the end if negative.
        sparse: Updates with ``lazy_mode`` leave rows alone that the batch does not name; other updates are the same.
        name: The layer's name.

    Returns:
        ``[*x.shape, size]``.

    Raises:
        ShapeError: If ``padding_idx`` is not a row, or the table has not two dimensions.
        DTypeError: If ``x`` does not hold integers.
        IndexRangeError: At run time, for an index that is not a row.

    Example:
        >>> table = paddle.to_tensor([[0.0, 0.0], [1.0, 10.0], [2.0, 20.0]])
        >>> y = paddle.nn.functional.embedding(paddle.to_tensor([2, 1]), table)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 2., 20.],
               [ 1., 10.]], dtype=float32)
    """
    check_variable(x, "x", "embedding")
    check_variable(weight, "weight", "embedding")
    attrs = {
        "padding_idx": padding_row(padding_idx, weight.shape[0] if weight.shape else 0, "embedding"),
        "is_sparse": bool(sparse),
    }
    out: Variable = emit("lookup_table_v2", {"Ids": x, "W": weight}, attrs, name=name, prefix="embedding")
    return out
