"""Convolution along the rows of each sequence, which sees zeros outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.extras.sequence._offsets import OFFSETS, Array, check_sequences, each, lengths_of, positions
from tstatic.ir.attrs import Attr
from tstatic.ir.checks import FLOATS, check_dtype, check_rank, check_same_dtype
from tstatic.ir.opdef import GRAD, LOD, Case, Domain, GradOp, OpDef, register
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.gradients import bilinear_grad
from tstatic.ops.base.host import READS_LENGTHS
from tstatic.ops.base.low import in_float32, torch_wide


def _infer(x: Meta, offsets: Meta, filter: Meta, contextLength: int) -> Meta:
    check_dtype(x, FLOATS, "X")
    check_sequences(x, offsets)
    check_rank(x, 2, "X")
    check_rank(filter, 2, "Filter")
    check_same_dtype((x, filter), ("X", "Filter"))
    if UNKNOWN not in (x.shape[1], filter.shape[0]) and filter.shape[0] != contextLength * x.shape[1]:
        raise ShapeError(
            "the Filter of sequence_conv has another height than its windows have numbers",
            expected=f"{contextLength} x {x.shape[1]} = {contextLength * x.shape[1]} rows",
            received=f"{filter.shape[0]}",
            fix="give the filter contextLength * width rows",
        )
    return x.with_shape((x.shape[0], filter.shape[1]))


def shifted(offsets: Array, start: int, count: int) -> Iterator[tuple[Array, Array]]:
    """Yields for each place of a window the rows that have one there in their sequence, and those rows."""
    # Places that reach beyond the sequence are left out: Paddle's windows see zeros there, never the neighbour's rows.
    at, left = positions(offsets), np.repeat(lengths_of(offsets), lengths_of(offsets))
    for shift in range(start, start + count):
        rows = np.flatnonzero((at + shift >= 0) & (at + shift < left))
        yield rows, rows + shift


def _windows(x: Array, offsets: Array, start: int, count: int) -> Array:
    """Returns the windows of all rows, one under the other."""
    # Windows as a matrix, so that all taps are one product of BLAS; it costs `count` times the input in memory.
    made = np.zeros((len(x), count, x.shape[1]), x.dtype)
    for i, (rows, sources) in enumerate(shifted(offsets, start, count)):
        made[rows, i] = x[sources]
    return made.reshape(len(x), count * x.shape[1])


@in_float32()
def _ref(x: Array, offsets: Array, filter: Array, out: Array, *, contextStart: int, contextLength: int) -> None:
    np.matmul(_windows(x, offsets, contextStart, contextLength), filter, out=out)


@in_float32(2)
def _back(
    x: Array, offsets: Array, filter: Array, dout: Array, dx: Array | None, dfilter: Array | None, *, contextStart: int,
    contextLength: int,
) -> None:  # fmt: skip
    if dfilter is not None:
        np.matmul(_windows(x, offsets, contextStart, contextLength).T, dout, out=dfilter)
    if dx is not None:
        # Back along the windows: a row gets a part from each window that it is in, one tap at a time, without repeats.
        windows = np.matmul(dout, filter.T).reshape(len(x), contextLength, x.shape[1])
        dx.fill(0)
        for i, (rows, sources) in enumerate(shifted(offsets, contextStart, contextLength)):
            dx[sources] += windows[rows, i]


def _lower(torch: Any, x: Any, offsets: Any, filter: Any, *, contextStart: int, contextLength: int) -> Any:
    wide, taps = torch_wide(x), torch_wide(filter).reshape(contextLength, x.shape[1], filter.shape[1])
    parts = [wide.new_zeros((0, filter.shape[1]))]
    for part in each(torch, wide, offsets):
        # Windows may lie wholly before or behind their row; then only one side is padded.
        before, behind = max(0, -contextStart), max(0, contextStart + contextLength - 1)
        padded = torch.nn.functional.pad(part, (0, 0, before, behind))
        first = contextStart + before
        parts.append(sum(padded[first + j : first + j + len(part)] @ taps[j] for j in range(contextLength)))
    return torch.cat(parts).to(x.dtype)


def _lower_back(
    torch: Any, x: Any, offsets: Any, filter: Any, dout: Any, *, contextStart: int, contextLength: int
) -> Any:
    a, w = (torch_wide(t).detach().requires_grad_() for t in (x, filter))
    with torch.enable_grad():
        out = _lower(torch, a, offsets, w, contextStart=contextStart, contextLength=contextLength)
    dx, dw = torch.autograd.grad(out, (a, w), torch_wide(dout), allow_unused=True)
    return dx.to(x.dtype), dw.to(x.dtype)


register(OpDef(
    "sequence_conv", f"X, X{LOD}, Filter -> Out",
    attrs={
        "contextLength": Attr(kind="int", check=lambda n: None if n >= 1 else "a length of at least 1"), "contextStart": 0,
        "contextStride": Attr(1, "int", lambda n: None if n == 1 else "1: windows at every row"),
        "paddingTrainable": Attr(False, "bool", lambda on: "False: zeros outside of a sequence" if on else None),
    },
    infer=_infer, ref=_ref,
    traits=(READS_LENGTHS,), lower=_lower, lod="X", amp="black", uses_blas=True,
    grad=GradOp(
        f"X, X{LOD}, Filter, Out{GRAD} -> X{GRAD}, Filter{GRAD}", ref=_back,
        traits=(READS_LENGTHS,), lower=_lower_back,
        grad=bilinear_grad("sequence_conv", second="Filter", keep=(f"X{LOD}",)),
    ),
    domain=Domain(
        cases=tuple(
            Case(((rows, 2), (n,), (size * 2, 3)), {"contextLength": size, "contextStart": start})
            for rows, n, size, start in ((7, 4, 3, -1), (5, 2, 4, 0), (6, 3, 2, -3), (6, 3, 2, 2), (0, 2, 3, -1), (3, 6, 1, 0))
        ),
        values={f"X{LOD}": OFFSETS}, ulps=32.0,
    ),
))  # fmt: skip
