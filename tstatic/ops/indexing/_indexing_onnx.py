"""Forms in ONNX of the ops that read and write at positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.types import UNKNOWN, bool_, int32, int64, normalize_axis


def place(g: Graph, index: Value) -> Value:
    """Returns positions in a type that ONNX reads."""
    return index if index.dtype in (int32, int64) else g.cast(index, int64)


def rows(g: Graph, x: Value, index: Value, axis: int) -> Value:
    flat = index if index.rank < 2 else g("Reshape", index, g.ints([-1]))
    return g("Gather", x, place(g, flat), axis=axis)


def gather_nd(g: Graph, x: Value, index: Value) -> Value:
    return g("GatherND", x, g.cast(index, int64))


def scatter_nd_add(g: Graph, x: Value, index: Value, updates: Value) -> Value:
    return g("ScatterND", x, g.cast(index, int64), updates, reduction="add")


def take_along(g: Graph, x: Value, index: Value, axis: int) -> Value:
    """Beside the axis the index may be smaller than the value; ONNX wants equal sizes there."""
    at = normalize_axis(axis, x.rank)
    for i, (own, wanted) in enumerate(zip(x.shape, index.shape, strict=True)):
        if i != at and own != wanted and wanted != UNKNOWN:
            x = Value(g.slice(x, i, 0, wanted).name, x.dtype, x.shape)
    return g("GatherElements", x, place(g, index), axis=at)


def put_along(g: Graph, x: Value, index: Value, value: Value, *, Axis: int, Reduce: str, Include_self: bool) -> Value:
    word = (
        "none"
        if Reduce == "assign"
        else "mul"
        if Reduce == "multiply"
        else Reduce.removeprefix("a")
        if Reduce != "add"
        else Reduce
    )
    known = word in ("none", "add", "mul", "max", "min")
    if not known or (not Include_self and Reduce != "assign"):
        raise g.refuse(f"for reduce='{Reduce}'" + ("" if Include_self else " without the old values"))
    # ScatterElements does not broadcast: one value for each position.
    spread = g("Expand", value, g.sizes(index))
    return g("ScatterElements", x, place(g, index), spread, axis=normalize_axis(Axis, x.rank), reduction=word)


def embedding(column: bool) -> Callable[..., Value]:
    """Makes the lookup of rows; with ``column`` the last axis of the positions has a size of 1 and goes."""

    def form(g: Graph, ids: Value, w: Value, *, padding_idx: int) -> Value:
        rows = g.squeeze(ids, [ids.rank - 1]) if column else ids
        found = g("Gather", w, place(g, rows), axis=0)
        if padding_idx < 0:
            return found
        kept = g("Not", g.equal(rows, padding_idx), dtype=bool_)
        return g.where(g.unsqueeze(kept, [rows.rank]), found, g.const(np.zeros((), w.dtype.np)))

    return form


def one_hot(g: Graph, x: Value, given: Value | None, depth: int, column: bool) -> Value:
    # Not OneHot, which counts negative numbers from the end.
    rows = g.squeeze(x, [x.rank - 1]) if column else x
    rank = rows.rank
    count = g.const(depth, int64) if given is None else g.squeeze(g.cast(given, int64), range(given.rank))
    classes = g("Range", g.const(0, int64), count, g.const(1, int64)) if given is not None else g.ints(range(depth))
    return g.equal(g.unsqueeze(g.cast(rows, int64), [rank]), classes)


def scatter(g: Graph, x: Value, ids: Value, updates: Value, *, overwrite: bool) -> Value:
    flat = g("Reshape", g.cast(ids, int64), g.ints([-1, 1]))
    rows = updates if updates.rank == x.rank else g.unsqueeze(updates, [0])
    if overwrite:
        return g("ScatterND", x, flat, rows)
    # Rows that are written count from 0.
    cleared = g("ScatterND", x, flat, g.where(g.equal(rows, rows), g.number(0, rows), g.number(0, rows)))
    return g("ScatterND", cleared, flat, rows, reduction="add")


def index_add(g: Graph, x: Value, index: Value, value: Value, *, axis: int) -> Value:
    at = normalize_axis(axis, x.rank)
    order = [at, *(i for i in range(x.rank) if i != at)]
    inverse = [order.index(i) for i in range(x.rank)]
    flat = g("Reshape", g.cast(index, int64), g.ints([-1, 1]))
    made = g("ScatterND", g.transpose(x, order), flat, g.transpose(value, order), reduction="add")
    return g.transpose(made, inverse)


def masked_select(g: Graph, x: Value, mask: Value) -> Value:
    # Both in the shape that they broadcast to.
    wide = g("Expand", x, g.sizes(mask))
    chosen = g("Expand", mask, g("Shape", wide, dtype=int64))
    flat, keep = (g("Reshape", v, g.ints([-1])) for v in (wide, chosen))
    return g("Compress", flat, keep, axis=0)


def where_index(g: Graph, x: Value) -> Value:
    return g("Transpose", g("NonZero", x, dtype=int64), perm=[1, 0])


def unique(g: Graph, x: Value, *, axis: Any) -> tuple[Value, ...]:
    at = normalize_axis(axis[0], x.rank) if len(axis) else None
    found = g("Unique", x, axis=at, sorted=1, count=4)
    return (found[0], *(Value(v.name, int64) for v in found[1:]))
