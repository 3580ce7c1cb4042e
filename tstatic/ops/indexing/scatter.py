"""Writing and adding rows by index: scatter, scatter_nd, scatter_nd_add, index_add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import (
    ANY_RANK,
    INTEGERS,
    check_dtype,
    check_has_shape,
    check_rank,
    check_same_dtype,
)
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, Index, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, normalize_axis
from tstatic.ops.base.gradients import grad_is_linear_op
from tstatic.ops.base.indexing import (
    add_nd,
    add_rows,
    check_coordinates,
    check_positions,
    stays,
    torch_last,
    torch_stays,
)
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import Array, as_list, emit_one
from tstatic.ops.indexing import _indexing_onnx as _onnx
from tstatic.ops.shape.fill import filled, has_variable


# ------------------------------------------------------------------------------------------------------------- scatter
def _infer(x: Meta, ids: Meta, updates: Meta) -> Meta:
    check_positions(ids, "Ids")
    check_rank(x, range(1, ANY_RANK), "X")
    check_same_dtype((x, updates), ("X", "Updates"))
    # A single position may come with a single row that lacks the axis of positions.
    rows = ids.shape[0] if ids.rank else 1
    given = updates if ids.rank or updates.rank == x.rank else updates.with_shape((1, *updates.shape))
    check_has_shape(given, (rows, *x.shape[1:]), "Updates", why="a row of X for each position")
    return x


def _rows(ids: Array, updates: Array, x_rank: int) -> tuple[Array, Array]:
    return ids.reshape(-1), updates if updates.ndim == x_rank else updates[None]


def _overwrite(x: Array, ids: Array, updates: Array, out: Array) -> None:
    flat, rows = _rows(ids, updates, out.ndim)
    if out is not x:
        np.copyto(out, x)
    # Of several rows for one index the last one stays.
    out[flat] = rows


@in_float32()
def _add(x: Array, ids: Array, updates: Array, out: Array) -> None:
    flat, rows = _rows(ids, updates, out.ndim)
    if out is not x:
        np.copyto(out, x)
    # Paddle's overwrite=False: rows that are named begin at 0, so the old value takes no part in the sum.
    out[flat] = 0
    add_rows(out, flat, rows)


def _ref(x: Array, ids: Array, updates: Array, out: Array, *, overwrite: bool) -> None:
    (_overwrite if overwrite else _add)(x, ids, updates, out)


def _back(
    ids: Array, updates: Array, dout: Array, dx: Array | None, dupdates: Array | None, *, overwrite: bool
) -> None:
    flat = ids.reshape(-1)
    if dx is not None:
        np.copyto(dx, dout)
        # Rows that were written pass nothing to the old value, in either mode.
        dx[flat] = 0
    if dupdates is not None:
        rows = dout[flat]
        if overwrite:
            # Of several rows for one position only the last is in the result.
            rows[~stays(flat, dout.shape[0])] = 0
        np.copyto(dupdates, rows.reshape(dupdates.shape))


def _lower(torch: Any, x: Any, ids: Any, updates: Any, *, overwrite: bool) -> Any:
    flat = ids.reshape(-1).to(torch.int64)
    rows = updates if updates.dim() == x.dim() else updates.unsqueeze(0)
    wide = (-1, *[1] * (x.dim() - 1))
    if overwrite:
        # Not index_copy: on a GPU the order of equal positions would differ from run to run.
        last = torch_last(torch, flat, x.shape[0])
        if rows.shape[0] == 0:
            return x.clone()
        return torch.where((last >= 0).reshape(wide), rows[last.clamp(min=0)], x)
    kept = torch.ones(x.shape[0], dtype=torch.bool, device=x.device).index_fill(0, flat, False)
    # In float32 at least: several 16-bit rows of one position are rounded once.
    exact = torch_wide(x)
    start = torch.where(kept.reshape(wide), exact, torch.zeros_like(exact))
    return start.index_add(0, flat, rows.to(exact.dtype)).to(x.dtype)


def _lower_back(torch: Any, ids: Any, updates: Any, dout: Any, *, overwrite: bool) -> Any:
    flat = ids.reshape(-1).to(torch.int64)
    rows = dout[flat]
    if overwrite:
        kept = torch_stays(torch, flat, dout.shape[0])
        rows = torch.where(kept.reshape((-1, *[1] * (dout.dim() - 1))), rows, torch.zeros_like(rows))
    # As in the reference: rows that were written pass nothing to the old value.
    return dout.index_fill(0, flat, 0.0), rows.reshape(updates.shape)


register(OpDef(
    "scatter", "X, Ids, Updates -> Out", attrs={"overwrite": True}, infer=_infer, ref=_ref, lower=_lower,
    grad=GradOp(
        "Ids, Updates, Out@GRAD -> X@GRAD, Updates@GRAD", ref=_back, lower=_lower_back,
        infer=lambda ids, updates, dout: (dout, updates), shape_only=("Updates",),
        grad=grad_is_linear_op("scatter", "Out", ("X", "Updates"), ("Ids",)),
        indices=(Index("Ids", lambda ids, updates, dout: dout.shape[0]),),
    ),
    inplace=(("X", "Out"),), amp="float32", indices=(Index("Ids", lambda x, *rest: x.shape[0]),),
    domain=Domain(
        cases=(
            Case(((5, 3), (2,), (2, 3)), {"overwrite": True}), Case(((5, 3), (2,), (2, 3)), {"overwrite": False}),
            Case(((3,), (6,), (6,)), {"overwrite": True}), Case(((3,), (6,), (6,)), {"overwrite": False}),
            Case(((4, 2, 2), (3, 1), (3, 2, 2)), {"overwrite": False}),
            Case(((2, 3), (0,), (0, 3)), {"overwrite": True}), Case(((2, 0), (2,), (2, 0)), {"overwrite": True}),
        ),
        values={"Ids": ValueRange(0, "X.0", dtype="int64")}, others=("int64", "int32"),
    ),
    complex="linear", onnx=_onnx.scatter,
))  # fmt: skip


@export("tensor.scatter", "Variable.scatter", op="scatter")
def scatter(
    x: Variable, index: Variable, updates: Variable, overwrite: bool = True, name: str | None = None
) -> Variable:
    """Replaces rows of ``x``.

    Args:
        x: ``[m, ...]``.
        index: ``[n]`` row numbers.
        updates: ``[n, ...]`` new rows, of the dtype of ``x``.
        overwrite: Of several rows for one index the last one stays; if ``False`` their sum (the old row is dropped).
        name: Name of the layer.

    Raises:
        ShapeError: If the shapes do not fit. A row number out of range raises IndexRangeError when the program runs.

    Example:
        >>> x = paddle.zeros([3, 2])
        >>> y = paddle.scatter(x, paddle.to_tensor([2, 0]), paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[3., 4.],
               [0., 0.],
               [1., 2.]], dtype=float32)
    """
    inputs = {
        "X": check_variable(x, "x", "scatter"),
        "Ids": check_variable(index, "index", "scatter", INTEGERS),
        "Updates": check_variable(updates, "updates", "scatter"),
    }
    return emit_one("scatter", inputs, {"overwrite": overwrite}, name=name)


@export("tensor.scatter_", "Variable.scatter_", op="scatter")
def scatter_(
    x: Variable, index: Variable, updates: Variable, overwrite: bool = True, name: str | None = None
) -> Variable:
    """Does the same as :func:`scatter`: a program's values are never changed in place.

    Args:
        x, index, updates, overwrite, name: As in :func:`scatter`.
    """
    return scatter(x, index, updates, overwrite, name)


@export("fluid.layers.scatter", op="scatter")
def fluid_scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True
) -> Variable:
    """Calls :func:`scatter` under its older signature.

    Args:
        input: The ``x`` of :func:`scatter`.
        index, updates, name, overwrite: As there.
    """
    return scatter(input, index, updates, overwrite, name)


# ------------------------------------------------------------------------------------------------------ scatter_nd_add
def _infer_nd(x: Meta, index: Meta, updates: Meta) -> Meta:
    depth = check_coordinates(x, index)
    check_same_dtype((x, updates), ("X", "Updates"))
    check_has_shape(updates, (*index.shape[:-1], *x.shape[depth:]), "Updates", why="a part of X for each position")
    return x


@in_float32()
def _ref_nd(x: Array, index: Array, updates: Array, out: Array) -> None:
    if out is not x:
        np.copyto(out, x)
    add_nd(out, index, updates)


def _lower_nd(torch: Any, x: Any, index: Any, updates: Any) -> Any:
    if index.shape[-1] == 0:
        # Coordinates of no axes name the whole value.
        return x + updates.sum_to_size(tuple(x.shape))
    exact = torch_wide(x)
    return exact.index_put(tuple(index.unbind(-1)), updates.to(exact.dtype), accumulate=True).to(x.dtype)


def _grad_of_add(read: str, updates: str, attrs: Callable[[GradContext], Mapping[str, Any]] = lambda ctx: {}) -> Any:
    """Returns the gradient rule of an op that adds ``updates`` to X at indices: X gets all of it, they what is there."""

    def rule(ctx: GradContext) -> list[OpSpec]:
        arriving = ctx.out_grads.get(ctx.outputs["Out"][0])
        if arriving is None:
            return []
        dx, dupdates = ctx.in_grads.get(ctx.inputs["X"][0]), ctx.in_grads.get(ctx.inputs[updates][0])
        specs = [] if dx is None else [OpSpec("assign", {"X": [arriving]}, {"Out": [dx]})]
        if dupdates is not None:
            inputs = {"X": [arriving], "Index": ctx.inputs["Index"]}
            # What was added at a place has the gradient of that place: a reading by the same index.
            specs.append(OpSpec(read, inputs, {"Out": [dupdates]}, attrs(ctx)))
        return specs

    return rule


register(OpDef(
    "scatter_nd_add", "X, Index, Updates -> Out", infer=_infer_nd, ref=_ref_nd, lower=_lower_nd,
    grad=_grad_of_add("gather_nd", "Updates"), inplace=(("X", "Out"),),
    indices=(Index("Index", lambda x, index, updates: x.shape[: index.shape[-1]], from_end=True),),
    domain=Domain(
        cases=(
            Case(((4, 3), (6, 1), (6, 3))), Case(((3, 4), (2, 3, 2), (2, 3))), Case(((3,), (5, 1), (5,))),
            Case(((2, 3, 2), (4, 2), (4, 2))), Case(((2, 3), (0, 1), (0, 3))), Case(((2, 0), (3, 1), (3, 0))),
        ),
        values={"Index": ValueRange(-2, "X.0", dtype="int64")}, others=("int64", "int32"),
    ),
    complex="linear", onnx=_onnx.scatter_nd_add,
))  # fmt: skip


@export("tensor.scatter_nd_add", "Variable.scatter_nd_add", op="scatter_nd_add")
def scatter_nd_add(x: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """Adds ``updates[i]`` to ``x[index[i, 0], index[i, 1], ...]``; equal indices add up; returns a new Variable.

    Args:
        x: ``[...]``.
        index: ``[..., k]`` integers: coordinates into the first ``k`` axes; negative ones count from the end.
        updates: ``index.shape[:-1] + x.shape[k:]``, of the dtype of ``x``.
        name: Name of the layer.

    Raises:
        ShapeError: If the shapes do not fit. A coordinate out of range raises IndexRangeError when the program runs.
    """
    inputs = {
        "X": check_variable(x, "x", "scatter_nd_add"),
        "Index": check_variable(index, "index", "scatter_nd_add", INTEGERS),
        "Updates": check_variable(updates, "updates", "scatter_nd_add"),
    }
    return emit_one("scatter_nd_add", inputs, name=name)


@export("fluid.layers.scatter_nd_add", op="scatter_nd_add")
def fluid_scatter_nd_add(ref: Variable, index: Variable, updates: Variable, name: str | None = None) -> Variable:
    """Calls :func:`scatter_nd_add` under its older signature.

    Args:
        ref: The ``x`` of :func:`scatter_nd_add`.
        index, updates, name: As there.
    """
    return scatter_nd_add(ref, index, updates, name)


@export("tensor.scatter_nd", "fluid.layers.scatter_nd", op="scatter_nd_add")
def scatter_nd(index: Variable, updates: Variable, shape: Any, name: str | None = None) -> Variable:
    """Adds ``updates`` by index to zeros of ``shape``, as :func:`scatter_nd_add` does.

    Args:
        index: ``[..., k]`` integers: coordinates into the first ``k`` axes.
        updates: ``index.shape[:-1] + shape[k:]``.
        shape: The result's sizes; ints and integer Variables, or one Variable that holds them.
        name: Name of the layer.
    """
    updates = check_variable(updates, "updates", "scatter_nd")
    if has_variable(shape):
        zeros = filled(shape, updates.dtype, 0.0, "scatter_nd")
    else:
        zeros = emit_one("fill_constant", {}, {"shape": as_list(shape), "dtype": updates.dtype, "value": 0.0})
    return scatter_nd_add(zeros, index, updates, name)


# ------------------------------------------------------------------------------------------------------------ index_add
def _infer_add(x: Meta, index: Meta, value: Meta, *, axis: int) -> Meta:
    check_dtype(index, INTEGERS, "Index")
    check_rank(index, 1, "Index")
    check_rank(x, range(1, ANY_RANK), "X")
    check_same_dtype((x, value), ("X", "AddValue"))
    at = normalize_axis(axis, x.rank)
    wanted = (*x.shape[:at], index.shape[0], *x.shape[at + 1 :])
    check_has_shape(value, wanted, "AddValue", why="a slice of X for each position")
    return x


@in_float32()
def _ref_add(x: Array, index: Array, value: Array, out: Array, *, axis: int) -> None:
    if out is not x:
        np.copyto(out, x)
    # A view with the axis in front: rows are slices along it, added in the order of the index.
    add_rows(np.moveaxis(out, axis, 0), index, np.moveaxis(value, axis, 0))


def _lower_add(torch: Any, x: Any, index: Any, value: Any, *, axis: int) -> Any:
    wide = torch_wide(x)
    return wide.index_add(axis, index, value.to(wide.dtype)).to(x.dtype)


register(OpDef(
    "index_add", "X, Index, AddValue -> Out", attrs={"axis": Attr(0, "int")}, infer=_infer_add, ref=_ref_add,
    lower=_lower_add, grad=_grad_of_add("index_select", "AddValue", lambda ctx: {"dim": ctx.attrs["axis"]}),
    inplace=(("X", "Out"),), indices=(Index("Index", lambda x, index, value, *, axis: x.shape[axis]),),
    domain=Domain(
        cases=(
            Case(((4, 3), (6,), (6, 3)), {"axis": 0}), Case(((3, 4), (5,), (3, 5)), {"axis": 1}),
            Case(((2, 3, 3), (2,), (2, 3, 2)), {"axis": -1}), Case(((3,), (7,), (7,)), {"axis": 0}),
            Case(((2, 3), (0,), (0, 3)), {"axis": 0}), Case(((2, 0), (3,), (3, 0)), {"axis": -2}),
        ),
        values={"Index": ValueRange(0, "X.0", dtype="int64")}, others=("int64", "int32"),
    ),
    complex="linear", onnx=_onnx.index_add,
))  # fmt: skip


@export("tensor.index_add", "Variable.index_add", op="index_add", inplace=True)
def index_add(x: Variable, index: Variable, axis: int, value: Variable, name: str | None = None) -> Variable:
    """Adds slice ``i`` of ``value`` to slice ``index[i]`` of ``x`` along an axis; equal indices add up.

    Args:
        x: ``[...]``.
        index: ``[n]`` positions from 0.
        axis: Which axis.
        value: The shape of ``x`` with the axis's size replaced by ``n``.
        name: Name of the layer.

    Raises:
        ShapeError: If the shapes do not fit. A position out of range raises IndexRangeError when the program runs.
    """
    inputs = {
        "X": check_variable(x, "x", "index_add"),
        "Index": check_variable(index, "index", "index_add", INTEGERS),
        "AddValue": check_variable(value, "value", "index_add"),
    }
    return emit_one("index_add", inputs, {"axis": axis}, name=name)
