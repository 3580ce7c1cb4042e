"""Each row with the rows that follow it in its sequence, weighted column by column."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.extras.sequence._offsets import Array, check_sequences, each
from tstatic.extras.sequence.sequence_conv import shifted
from tstatic.ir.checks import FLOATS, check_dtype, check_rank, check_same_dtype
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradOp, OpDef, ValueRange, register
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.gradients import bilinear_grad
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.low import in_float32, torch_wide


def _infer(x: Meta, offsets: Meta | None, filter: Meta) -> Meta:
    check_dtype(x, FLOATS, "X")
    if offsets is None:
        check_rank(x, 3, "X", layout="[batch, steps, width] where it has no LoD")
    else:
        check_sequences(x, offsets)
        check_rank(x, 2, "X")
    check_rank(filter, 2, "Filter")
    check_same_dtype((x, filter), ("X", "Filter"))
    if UNKNOWN not in (x.shape[-1], filter.shape[1]) and filter.shape[1] != x.shape[-1]:
        raise ShapeError(
            "the Filter of row_conv has another width than its input",
            expected=f"{x.shape[-1]} columns",
            received=f"{filter.shape[1]}",
            fix="give the filter as many columns as the input has",
        )
    return x


def _as_rows(x: Array, offsets: Array | None) -> tuple[Array, Array]:
    """Returns rows and offsets; a batch has sequences of one length."""
    if offsets is not None:
        return x, offsets
    # As sequences of equal length, so that one code serves both layouts and no window leaves its sample.
    return x.reshape(-1, x.shape[-1]), np.arange(len(x) + 1) * x.shape[1]


@in_float32()
def _ref(x: Array, offsets: Array | None, filter: Array, out: Array) -> None:
    rows, divided = _as_rows(x, offsets)
    made = np.zeros(rows.shape, rows.dtype)
    for weight, (here, sources) in zip(filter, shifted(divided, 0, len(filter)), strict=True):
        # Over the taps, not the rows: a filter has a few taps, and each is one operation on all rows that have that neighbour.
        made[here] += rows[sources] * weight
    np.copyto(out, made.reshape(out.shape))


@in_float32(2)
def _back(x: Array, offsets: Array | None, filter: Array, dout: Array, dx: Array | None, dfilter: Array | None) -> None:
    rows, divided = _as_rows(x, offsets)
    arrived = dout.reshape(rows.shape)
    made = np.zeros(rows.shape, rows.dtype)
    for i, (here, sources) in enumerate(shifted(divided, 0, len(filter))):
        if dfilter is not None:
            np.sum(rows[sources] * arrived[here], axis=0, out=dfilter[i])
        # `sources` has no row twice for one tap, so `+=` through an index loses nothing.
        made[sources] += arrived[here] * filter[i]
    if dx is not None:
        np.copyto(dx, made.reshape(dx.shape))


def _lower(torch: Any, x: Any, offsets: Any, filter: Any) -> Any:
    wide, weights = torch_wide(x), torch_wide(filter)
    # An empty part, since `cat` of no sequences fails.
    made = [wide[:0]] if offsets is not None else []
    for part in each(torch, wide, offsets) if offsets is not None else wide:
        padded = torch.nn.functional.pad(part, (0, 0, 0, len(filter) - 1))
        made.append(sum(padded[j : j + len(part)] * weights[j] for j in range(len(filter))))
    return (torch.cat(made) if offsets is not None else torch.stack(made)).to(x.dtype)


def _lower_back(torch: Any, x: Any, offsets: Any, filter: Any, dout: Any) -> Any:
    a, w = (torch_wide(t).detach().requires_grad_() for t in (x, filter))
    with torch.enable_grad():
        out = _lower(torch, a, offsets, w)
    dx, dw = torch.autograd.grad(out, (a, w), torch_wide(dout))
    return dx.to(x.dtype), dw.to(x.dtype)


register(OpDef(
    "row_conv", f"X, X{LOD}?, Filter -> Out", infer=_infer, ref=_ref,
    traits=(READS_LENGTHS,), lower=_lower, lod="X",
    grad=GradOp(
        f"X, X{LOD}?, Filter, Out{GRAD} -> X{GRAD}, Filter{GRAD}", ref=_back,
        traits=(READS_LENGTHS,), lower=_lower_back,
        grad=bilinear_grad("row_conv", second="Filter", keep=(f"X{LOD}",)),
    ),
    domain=Domain(
        cases=(
            Case(((7, 2), (4,), (3, 2))), Case(((5, 3), (2,), (1, 3))), Case(((2, 4, 3), None, (2, 3))),
            Case(((1, 2, 1), None, (4, 1))), Case(((6, 2), (5,), (9, 2))),
        ),
        values={f"X{LOD}": ValueRange(dtype="int64", offsets="X.0")}, ulps=32.0,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip
