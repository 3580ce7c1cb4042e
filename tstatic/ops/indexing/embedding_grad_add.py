"""The gradient of an embedding lookup, added to another gradient of the same table: in its place, the rows looked up alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.checks import FLOATS, INTEGERS, check_dtype, check_has_shape, check_rank, check_same_dtype, check_size
from tstatic.ir.opdef import Attr, Case, Cost, Domain, Index, OpDef, ValueRange, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.traits import ManyCalls
from tstatic.ir.types import Meta
from tstatic.ops.base.indexing import add_rows, torch_groups
from tstatic.ops.base.low import torch_wide, up
from tstatic.tuned._common import Array


def _infer(x: Meta, ids: Meta, dout: Meta) -> Meta:
    check_rank(x, 2, "X", layout="[rows, size of an embedding]")
    check_dtype(x, FLOATS, "X")
    check_dtype(ids, INTEGERS, "Ids")
    check_same_dtype((x, dout), ("X", "Out@GRAD"))
    lead = ids.shape
    if dout.rank == ids.rank:
        # The older lookup reads indices whose last axis has a size of 1.
        check_size(ids, -1, 1, "Ids")
        lead = ids.shape[:-1]
    check_has_shape(dout, (*lead, x.shape[1]), "Out@GRAD", why="a row of X for each index")
    return x


def _ref(x: Array, ids: Array, dout: Array, out: Array, padding_idx: int) -> None:
    if out is not x:
        np.copyto(out, x)
    index, gradients = ids.reshape(-1), dout.reshape(ids.size, out.shape[1])
    if 0 <= padding_idx < out.shape[0]:
        kept = np.flatnonzero(index != padding_idx)
        index, gradients = index[kept], gradients[kept]
    if not gradients.size:
        return
    # The sum of each row first, rounded as the gradient of the whole table is: the same bits as adding that one.
    found, places = np.unique(index, return_inverse=True)
    gradients = up(gradients)
    sums = np.zeros((found.size, out.shape[1]), gradients.dtype)
    add_rows(sums, places, gradients, fresh=True, of=out.shape[0])
    out[found] = (up(out[found]) + up(sums.astype(out.dtype))).astype(out.dtype)


def _lower(torch: Any, x: Any, ids: Any, dout: Any, padding_idx: int, *, out: Any = None) -> Any:
    table = x.clone() if out is None else out
    if table.data_ptr() != x.data_ptr():
        table.copy_(x)
    index = ids.reshape(-1).long()
    rows = dout.reshape(index.shape[0], x.shape[1])
    if 0 <= padding_idx < x.shape[0]:
        # Adding zeros keeps the shape, where leaving rows out would have the host wait for their number.
        rows = rows.masked_fill((index == padding_idx)[:, None], 0)
    if rows.itemsize == 2:
        index, rows = _row_sums(torch, index, rows, x.shape[0])
    # Sorted on a GPU, unlike index_add_: the same order of additions in every run.
    return table.index_put_((index,), rows, accumulate=True)


def _row_sums(torch: Any, index: Any, rows: Any, count: int) -> tuple[Any, Any]:
    """Returns indices, each once, with the sums of their rows, made in float32 and rounded once.

    There are as many as rows, of which the last ones are zeros for some row of the table or other.
    """
    index, order, number = torch_groups(torch, index)
    sums = torch.zeros(rows.shape, dtype=torch_wide(rows).dtype, device=rows.device)
    sums.index_put_((number,), torch_wide(rows[order]), accumulate=True)
    # Zeros for one row alone would be added one after the other.
    spread = torch.arange(index.shape[0], device=index.device) % max(1, count)
    return spread.scatter(0, number, index), sums.to(rows.dtype)


def _cost(x: Meta, ids: Meta, dout: Meta, out: Meta) -> Cost:
    return Cost(float(dout.numel), float(ids.nbytes + 3 * dout.nbytes))


register(OpDef(
    "embedding_grad_add", "X, Ids, Out@GRAD -> Out", attrs={"padding_idx": Attr(-1, "int")}, infer=_infer, ref=_ref,
    lower=_lower, cost=_cost, inplace=(("X", "Out"),), amp="gray", paddle=ABSENT,
    onnx="it is part of a backward pass",
    traits=(ManyCalls("rows of 16 bits are summed in float32 first, which takes a sort; float32 is one call and a copy"),),
    indices=(
        Index("Ids", lambda x, ids, dout: x.shape[0], name="Ids of an embedding lookup",
              fix="check the ids that are fed, or make the table larger"),
    ),
    domain=Domain(
        cases=(
            Case(((7, 5), (3, 4), (3, 4, 5))), Case(((4, 3), (6, 1), (6, 3)), {"padding_idx": 2}), Case(((4, 3), (), (3,))),
            Case(((4, 3), (0,), (0, 3))), Case(((3, 20), (40,), (40, 20))), Case(((3, 0), (2, 2), (2, 2, 0))),
            Case(((5, 1), (2, 3, 2), (2, 3, 2, 1)), {"padding_idx": 0}),
        ),
        values={"Ids": ValueRange(0, "X.0", dtype="int64")},
        ulps=16.0,
    ),
))  # fmt: skip
