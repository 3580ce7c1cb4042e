"""Rows pooled by segment, or by the node that edges lead to: sum, mean, maximum and minimum; messages along edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import IndexRangeError
from tstatic.ir.attrs import Attr, one_of
from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    ANY_RANK,
    FLOATS,
    INDICES,
    check_choice,
    check_dtype,
    check_int,
    check_rank,
    same_shape,
)
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Case, Domain, GradOp, Index, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.arithmetic import add, divide, multiply, subtract
from tstatic.ops.indexing.gather import gather
from tstatic.ops.reduce.cumsum import cumsum
from tstatic.ops.shape.creation import ones_like
from tstatic.tuned._common import Array

KINDS = ("SUM", "MEAN", "MAX", "MIN")
_UFUNCS = {"SUM": np.add, "MEAN": np.add, "MAX": np.maximum, "MIN": np.minimum}
_TYPES = (*FLOATS, "int32", "int64")


# ------------------------------------------------------------------------------------------------------------ the pooling
def _spread(values: Array, like: Array) -> Array:
    """Returns one number per row as a view that broadcasts against rows."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def _pool(rows: Array, at: Array, out: Array, kind: str) -> None:
    """Pools rows by where they belong; a place that no row belongs to is 0."""
    out[...] = 0
    if rows.size == 0:
        return
    order = np.argsort(at, kind="stable")
    places, starts, counts = np.unique(at[order], return_index=True, return_counts=True)
    found = _UFUNCS[kind].reduceat(rows[order], starts, axis=0, dtype=out.dtype)
    if kind == "MEAN":
        # Whole numbers lose the fraction of their mean.
        found = (
            np.trunc(found / _spread(counts, found)) if out.dtype.kind in "iu" else found / _spread(counts, found)
        ).astype(out.dtype)
    out[places] = found


@in_float32()
def _unpool(x: Array, at: Array, source: Array | None, out: Array, dout: Array, dx: Array, *, kind: str) -> None:
    """Gives each row what arrives at the place it belongs to: its share of a mean; rows that are the maximum share alike.

    ``source`` says which row of ``x`` each message is; ``None`` for the rows themselves.
    """
    messages = dout[at]
    if kind == "MEAN":
        messages = messages / _spread(np.bincount(at, minlength=len(dout))[at], messages)
    if kind in ("MAX", "MIN"):
        rows = x if source is None else x[source]
        chosen = rows == out[at]
        ties = np.zeros(out.shape, dout.dtype)
        np.add.at(ties, at, chosen)
        messages = np.where(chosen, messages / np.maximum(ties, 1)[at], 0)
    if source is None:
        np.copyto(dx, messages, casting="unsafe")
    else:
        _pool(messages.astype(dx.dtype, copy=False), source, dx, "SUM")


def _torch_pool(torch: Any, rows: Any, at: Any, size: int, kind: str) -> Any:
    wide = torch_wide(rows)
    out = wide.new_zeros((size, *rows.shape[1:]))
    if rows.numel() == 0:
        return out.to(rows.dtype)
    if kind == "MEAN" and not rows.is_floating_point():
        wide, out = wide.double(), out.double()  # torch's mean of integers rounds down, and not towards 0
    index = at.long().reshape(-1, *[1] * (rows.dim() - 1)).expand(rows.shape)
    name = {"SUM": "sum", "MEAN": "mean", "MAX": "amax", "MIN": "amin"}[kind]
    return out.scatter_reduce(0, index, wide, name, include_self=False).to(rows.dtype)


def _torch_unpool(torch: Any, x: Any, at: Any, source: Any, out: Any, dout: Any, kind: str) -> Any:
    wide, at = torch_wide(dout), at.long()
    messages = wide[at]
    per_row = (-1, *[1] * (dout.dim() - 1))
    if kind == "MEAN":
        count = wide.new_zeros(dout.shape[0]).index_add(0, at, wide.new_ones(len(at)))
        messages = messages / count[at].reshape(per_row)
    rows = x if source is None else x[source.long()]
    if kind in ("MAX", "MIN"):
        chosen = rows == out[at]
        ties = wide.new_zeros(out.shape).index_add(0, at, chosen.to(wide.dtype))
        messages = torch.where(chosen, messages / ties.clamp(min=1)[at], 0.0)
    if source is None:
        return messages.to(x.dtype)
    return wide.new_zeros(x.shape).index_add(0, source.long(), messages).to(x.dtype)


# ---------------------------------------------------------------------------------------------------------- segment_pool
def _segment_infer(x: Meta, ids: Meta) -> Meta:
    check_dtype(x, _TYPES, "X")
    check_rank(x, range(1, ANY_RANK), "X", layout="[rows, ...]")
    check_dtype(ids, INDICES, "SegmentIds")
    check_rank(ids, 1, "SegmentIds", layout="[rows]")
    check_fit(
        same_shape(x.shape[:1], ids.shape), (x, ids), ("X", "SegmentIds"), "each row needs the number of its segment",
        f"{x.shape[0]} numbers", "give as many numbers as rows",
    )  # fmt: skip
    return x.with_shape((UNKNOWN, *x.shape[1:]))


def _segment_ref(x: Array, ids: Array, out: Any, *, pooltype: str) -> list[Array]:
    if ids.size and (ids[0] < 0 or np.any(np.diff(ids) < 0)):
        raise IndexRangeError(
            "the numbers of segments must rise",
            expected="numbers of at least 0 in rising order",
            received=np.array2string(ids, threshold=8),
            fix="sort rows and numbers by number: paddle.argsort(segment_ids)",
        )
    made = np.empty((int(ids[-1]) + 1 if ids.size else 0, *x.shape[1:]), x.dtype)
    in_float32()(lambda rows, result: _pool(rows, ids, result, pooltype))(x, made)
    return [made]


def _segment_grad(x: Array, ids: Array, out: Array, dout: Array, dx: Array, *, pooltype: str) -> None:
    _unpool(x, ids, None, out, dout, dx, kind=pooltype)


register(OpDef(
    "segment_pool", "X, SegmentIds -> Out", attrs={"pooltype": Attr("SUM", "str", one_of(*KINDS))}, infer=_segment_infer,
    ref=_segment_ref, dynamic=Dynamic("the greatest number of a segment", free=("X",)),
    lower=lambda torch, x, ids, *, pooltype: _torch_pool(torch, x, ids, int(ids[-1]) + 1 if ids.numel() else 0, pooltype),
    grad=GradOp(
        "X, SegmentIds, Out, Out@GRAD -> X@GRAD", ref=_segment_grad,
        lower=lambda torch, x, ids, out, dout, *, pooltype: _torch_unpool(torch, x, ids, None, out, dout, pooltype),
    ),
    domain=Domain(
        cases=tuple(
            Case((shape, shape[:1]), {"pooltype": kind}) for kind in KINDS for shape in ((5, 3), (4,), (6, 2, 2))
        ),
        values={"X": ValueRange(distinct=True), "SegmentIds": ValueRange(dtype="int64", offsets="X.0")}, ulps=16,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


# ------------------------------------------------------------------------------------------------------- graph_send_recv
def _edges(source: Meta, target: Meta) -> None:
    for meta, arg in ((source, "Src_index"), (target, "Dst_index")):
        check_dtype(meta, INDICES, arg)
        check_rank(meta, 1, arg, layout="[edges]")
    check_fit(
        same_shape(source.shape, target.shape), (source, target), ("Src_index", "Dst_index"),
        "each edge leads from one node to one", f"{source.shape[0]} nodes", "give as many targets as sources",
    )  # fmt: skip


def _send_infer(x: Meta, source: Meta, target: Meta, out_size: int) -> Meta:
    check_dtype(x, _TYPES, "X")
    check_rank(x, range(1, ANY_RANK), "X", layout="[nodes, ...]")
    _edges(source, target)
    check_int(out_size, "out_size", least=0)
    return x.with_shape((out_size or x.shape[0], *x.shape[1:]))


@in_float32()
def _send(x: Array, source: Array, target: Array, out: Array, *, reduce_op: str) -> None:
    _pool(x[source], target, out, reduce_op)


def _send_grad(x: Array, source: Array, target: Array, out: Array, dout: Array, dx: Array, *, reduce_op: str) -> None:
    _unpool(x, target, source, out, dout, dx, kind=reduce_op)


_EDGES = (
    Index("Src_index", lambda x, *rest: x.shape[0]),
    Index("Dst_index", lambda x, *rest, out_size: out_size or x.shape[0]),
)

register(OpDef(
    "graph_send_recv", "X, Src_index, Dst_index -> Out",
    attrs={"reduce_op": Attr("SUM", "str", one_of(*KINDS)), "out_size": 0}, infer=_send_infer, ref=_send, effects=True,
    indices=_EDGES,
    lower=lambda torch, x, source, target, *, reduce_op, out_size: _torch_pool(
        torch, x[source.long()], target, out_size or x.shape[0], reduce_op
    ),
    grad=GradOp(
        "X, Src_index, Dst_index, Out, Out@GRAD -> X@GRAD", ref=_send_grad, indices=_EDGES,
        lower=lambda torch, x, source, target, out, dout, *, reduce_op: _torch_unpool(
            torch, x, target, source, out, dout, reduce_op
        ),
    ),
    domain=Domain(
        cases=(
            *(Case((shape, (6,), (6,)), {"reduce_op": kind, "out_size": size})
              for kind in KINDS for shape, size in (((4, 3), 0), ((3,), 5), ((5, 2, 2), 0))),
            Case(((3, 2), (0,), (0,))),
        ),
        values={
            "X": ValueRange(distinct=True), "Src_index": ValueRange(0, "X.0", dtype="int64"),
            "Dst_index": ValueRange(0, "X.0", dtype="int64"),
        },
        ulps=16,
    ),
))  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- functions
def _segments(function: str, kind: str, data: Any, segment_ids: Any, name: str | None) -> Variable:
    ins = {
        "X": check_variable(data, "data", function, _TYPES),
        "SegmentIds": check_variable(segment_ids, "segment_ids", function, INDICES),
    }
    return emit_one("segment_pool", ins, {"pooltype": kind}, name=name, prefix=function)


@export("geometric.segment_sum", "incubate.segment_sum", op="segment_pool")
def segment_sum(data: Variable, segment_ids: Variable, name: str | None = None) -> Variable:
    """Returns the sum of the rows of each segment; a segment without rows gives 0.

    Args:
        data: ``[rows, ...]``.
        segment_ids: The number of each row's segment, int32 or int64 ``[rows]``, in rising order from 0.
        name: Name of the layer.

    Returns:
        ``[segments, ...]``: the last number and one more; known when the program runs.

    Raises:
        IndexRangeError: When the program runs, if the numbers do not rise.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> y = paddle.geometric.segment_sum(x, paddle.to_tensor([0, 0, 1]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[4., 6.],
               [5., 6.]], dtype=float32)
    """
    return _segments("segment_sum", "SUM", data, segment_ids, name)


@export("geometric.segment_mean", "incubate.segment_mean", op="segment_pool")
def segment_mean(data: Variable, segment_ids: Variable, name: str | None = None) -> Variable:
    """Returns the mean of the rows of each segment; arguments and errors as of :func:`segment_sum`."""
    return _segments("segment_mean", "MEAN", data, segment_ids, name)


@export("geometric.segment_max", "incubate.segment_max", op="segment_pool")
def segment_max(data: Variable, segment_ids: Variable, name: str | None = None) -> Variable:
    """Returns the maximum of the rows of each segment; arguments and errors as of :func:`segment_sum`."""
    return _segments("segment_max", "MAX", data, segment_ids, name)


@export("geometric.segment_min", "incubate.segment_min", op="segment_pool")
def segment_min(data: Variable, segment_ids: Variable, name: str | None = None) -> Variable:
    """Returns the minimum of the rows of each segment; arguments and errors as of :func:`segment_sum`."""
    return _segments("segment_min", "MIN", data, segment_ids, name)


def _out_size(out_size: Any, function: str) -> int:
    if isinstance(out_size, Variable):
        check_variable(out_size, "out_size", function, ("never",))
    return 0 if out_size is None else max(check_int(out_size, "out_size", function), 0)


@export("geometric.send_u_recv", op="graph_send_recv")
def send_u_recv(
    x: Variable,
    src_index: Variable,
    dst_index: Variable,
    reduce_op: str = "sum",
    out_size: int | None = None,
    name: str | None = None,
) -> Variable:
    """Sends the row of each edge's first node to its last one, and pools what arrives there; 0 where nothing does.

    Args:
        x: Rows of nodes ``[nodes, ...]``.
        src_index, dst_index: First and last node of each edge, int32 or int64 ``[edges]``.
        reduce_op: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``.
        out_size: How many nodes receive; as many as ``x`` has by default, or for a number below 1.
        name: Name of the layer.

    Returns:
        ``[out_size, ...]``.

    Raises:
        IndexRangeError: When the program runs, for a node that does not exist.

    Example:
        >>> x = paddle.to_tensor([[1.0], [2.0], [4.0]])
        >>> y = paddle.geometric.send_u_recv(x, paddle.to_tensor([0, 1, 2]), paddle.to_tensor([1, 2, 1]))
        >>> static.Executor().run(fetch_list=[y])[0].ravel()
        array([0., 5., 2.], dtype=float32)
    """
    check_choice(reduce_op, ("sum", "mean", "max", "min"), "reduce_op", "send_u_recv")
    ins = {
        "X": check_variable(x, "x", "send_u_recv", _TYPES),
        "Src_index": check_variable(src_index, "src_index", "send_u_recv", INDICES),
        "Dst_index": check_variable(dst_index, "dst_index", "send_u_recv", INDICES),
    }
    attrs = {"reduce_op": reduce_op.upper(), "out_size": _out_size(out_size, "send_u_recv")}
    return emit_one("graph_send_recv", ins, attrs, name=name)


_MESSAGES = {"add": add, "sub": subtract, "mul": multiply, "div": divide}


@export("geometric.send_uv")
def send_uv(
    x: Variable, y: Variable, src_index: Variable, dst_index: Variable, message_op: str = "add", name: str | None = None
) -> Variable:
    """Returns for each edge its first node's row of ``x`` and its last node's row of ``y``, put together.

    Args:
        x, y: Rows of nodes ``[nodes, ...]``; what is behind the rows broadcasts.
        src_index, dst_index: First and last node of each edge, int32 or int64 ``[edges]``.
        message_op: ``"add"``, ``"sub"``, ``"mul"`` or ``"div"``.
        name: Name of the layer.

    Returns:
        ``[edges, ...]``.

    Example:
        >>> x = paddle.to_tensor([[1.0], [2.0]])
        >>> edges = paddle.to_tensor([0, 1]), paddle.to_tensor([1, 1])
        >>> y = paddle.geometric.send_uv(x, x, *edges, message_op="mul")
        >>> static.Executor().run(fetch_list=[y])[0].ravel()
        array([2., 4.], dtype=float32)
    """
    check_choice(message_op, tuple(_MESSAGES), "message_op", "send_uv")
    return _MESSAGES[message_op](gather(x, src_index), gather(y, dst_index), name=name)


@export("geometric.send_ue_recv")
def send_ue_recv(
    x: Variable,
    y: Variable,
    src_index: Variable,
    dst_index: Variable,
    message_op: str = "add",
    reduce_op: str = "sum",
    out_size: int | None = None,
    name: str | None = None,
) -> Variable:
    """Sends the row of each edge's first node, put together with the edge's own, to its last node, and pools what arrives.

    Args:
        x: Rows of nodes ``[nodes, ...]``.
        y: Rows of edges ``[edges, ...]``; what is behind the rows broadcasts.
        src_index, dst_index: First and last node of each edge, int32 or int64 ``[edges]``.
        message_op: ``"add"``, ``"sub"``, ``"mul"`` or ``"div"``.
        reduce_op: ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``.
        out_size: How many nodes receive; as many as ``x`` has by default.
        name: Name of the layer.

    Returns:
        ``[out_size, ...]``.

    Raises:
        ShapeError: If ``out_size`` is not given and the number of nodes is not known.
    """
    check_choice(message_op, tuple(_MESSAGES), "message_op", "send_ue_recv")
    messages = _MESSAGES[message_op](gather(x, src_index), y)
    nodes = _out_size(out_size, "send_ue_recv") or x.shape[0]
    check_int(nodes, "out_size", "send_ue_recv", least=1, fix="pass out_size: the number of nodes is not known")
    # Message i is row i.
    rows = subtract(cumsum(ones_like(dst_index), 0), ones_like(dst_index))
    return send_u_recv(messages, rows, dst_index, reduce_op, nodes, name)


@export("incubate.graph_send_recv", op="graph_send_recv")
def graph_send_recv(
    x: Variable,
    src_index: Variable,
    dst_index: Variable,
    pool_type: str = "sum",
    out_size: int | None = None,
    name: str | None = None,
) -> Variable:
    """Does what :func:`send_u_recv` does, under the name that Paddle had before.

    Args:
        x, src_index, dst_index, out_size, name: As of ``send_u_recv``.
        pool_type: As its ``reduce_op``.
    """
    return send_u_recv(x, src_index, dst_index, pool_type, out_size, name)
