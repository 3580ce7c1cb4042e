"""Reading rows by index: gather, gather_nd, index_select."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import ANY_RANK, INTEGERS, check_rank
from tstatic.ir.export import respell
from tstatic.ir.opdef import Case, Domain, GradOp, Index, OpDef, ValueRange, export, register
from tstatic.ir.paddle_form import from_the_front
from tstatic.ir.program import Variable
from tstatic.ir.split import ELEMENTS, WHOLE, Split
from tstatic.ir.types import Meta, normalize_axis
from tstatic.no_effect import no_effect
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.indexing import (
    add_nd,
    add_rows,
    check_coordinates,
    check_positions,
    split_columns,
    take,
    take_nd,
    torch_add,
)
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.shapes import ANY, Array, emit_one
from tstatic.ops.base.torch_out import filled
from tstatic.ops.indexing import _indexing_onnx as _onnx
from tstatic.ops.shape.when_run import by_axis


def _flat(index: Array) -> Array:
    return index.reshape(-1)


def _infer_along(x: Meta, index: Meta, axis: int) -> Meta:
    check_positions(index, "Index")
    check_rank(x, range(1, ANY_RANK), "X")
    at = normalize_axis(axis, x.rank)
    return x.with_shape((*x.shape[:at], *index.shape[:1], *x.shape[at + 1 :]))


def _gather(x: Array, index: Array, out: Array, axis: int) -> None:
    at = normalize_axis(axis, x.ndim)
    flat = _flat(index)
    if index.ndim == 0:
        # A single position removes its axis.
        np.copyto(out, np.take(x, int(flat[0]), axis=at))
    else:
        take(x, flat, at, out)


@in_float32()
def _gather_back(x: Array, index: Array, dout: Array, dx: Array, axis: int) -> None:
    at = normalize_axis(axis, x.ndim)
    flat = _flat(index)
    dx.fill(0)
    # Rows first, as `add_rows` takes them; a single position gets back the axis that it removed.
    rows = np.moveaxis(dout, at, 0) if index.ndim else dout[None]
    add_rows(np.moveaxis(dx, at, 0), flat, rows, fresh=True)


def _lower_gather(torch: Any, x: Any, index: Any, axis: int, out: Any) -> Any:
    at = axis if axis >= 0 else axis + x.dim()
    # index_select keeps the axis of a single position, so the target needs one too.
    place = out if out is None or index.dim() else out.unsqueeze(at)
    found = torch.index_select(x, axis, index.reshape(-1), out=place)
    return found.squeeze(axis) if index.dim() == 0 else found


def _lower_back(torch: Any, x: Any, index: Any, dout: Any, axis: int, out: Any) -> Any:
    at = axis if axis >= 0 else axis + x.dim()
    rows, flat = dout.unsqueeze(at) if index.dim() == 0 else dout, index.reshape(-1)
    if rows.itemsize == 2 and at == 0 and x.dim() == 2 and rows.is_floating_point():
        # One call that adds up in float32 on a GPU.
        return filled(out, torch.ops.aten.embedding_dense_backward(rows, flat, x.shape[0], -1, False))
    # 16-bit rows of other shapes: added in float32, then rounded once.
    if out is None or rows.itemsize == 2:
        return filled(out, torch_add(torch, x.shape, axis, flat, rows))
    return out.zero_().index_add_(at, flat, rows)


# Along any axis of the cases: none is shorter than the first.
_INDEX = ValueRange(0, "X.0", dtype="int64")
# gather_nd takes negative coordinates, as in Paddle; gather does not.
_COORDINATES = Index("Index", lambda x, index, *dout: x.shape[: index.shape[-1]], from_end=True)


def _gather_op(type: str, name: str, cases: tuple[Case, ...], amp: str = "") -> None:
    """Registers an op that reads rows along the axis that the attribute ``name`` says."""
    rows = Index("Index", lambda x, index, *dout, **a: x.shape[normalize_axis(a[name], len(x.shape))])
    register(OpDef(
        type, "X, Index -> Out", attrs={name: 0}, indices=(rows,), infer=lambda x, index, **a: _infer_along(x, index, a[name]),
        ref=lambda x, index, out, **a: _gather(x, index, out, a[name]),
        lower=lambda torch, x, index, *, out=None, **a: _lower_gather(torch, x, index, a[name], out),
        split=Split(ELEMENTS, WHOLE, 0, 0, unless=name),
        grad=GradOp(
            "X, Index, Out@GRAD -> X@GRAD",
            ref=lambda x, index, dout, dx, **a: _gather_back(x, index, dout, dx, axis=a[name]),
            lower=lambda torch, x, index, dout, *, out=None, **a: _lower_back(torch, x, index, dout, a[name], out),
            shape_only=("X",),
            split=lambda x, index, dout, dx, **a: split_columns(x, index, dout, dx, a[name]),
            grad=grad_is_forward_op(type, keep=("Index",)), indices=(rows,),
        ),
        amp=amp, domain=Domain(cases=cases, values={"Index": _INDEX}, others=ANY),
        complex="linear", paddle=from_the_front(name),
        onnx=lambda g, x, index, **a: _onnx.rows(g, x, index, a[name]),
    ))  # fmt: skip


_gather_op(
    "gather", "axis",
    (
        Case(((4, 3), (6,)), {"axis": 0}), Case(((3, 4, 2), (5,)), {"axis": 1}), Case(((2, 3, 3), (4,)), {"axis": -1}),
        Case(((5,), (3, 1)), {"axis": 0}), Case(((3, 9), (8,)), {"axis": 0}), Case(((4, 2), ()), {"axis": 0}),
        Case(((3, 2), (0,)), {"axis": 0}), Case(((2, 0, 3), (4,)), {"axis": 0}),
    ),
    amp="gray",
)  # fmt: skip
_gather_op(
    "index_select", "dim",
    (
        Case(((4, 3), (6,)), {"dim": 0}), Case(((3, 4, 2), (5,)), {"dim": 1}), Case(((2, 3, 3), (4,)), {"dim": -1}),
        Case(((5,), (3,)), {"dim": 0}), Case(((3, 9), (8,)), {"dim": 0}), Case(((3, 2), (0,)), {"dim": 0}),
        Case(((2, 0, 3), (4,)), {"dim": -3}),
    ),
)  # fmt: skip


@export("tensor.gather", "Variable.gather", op="gather")
def gather(x: Variable, index: Variable, axis: Any = None, name: str | None = None) -> Variable:
    """Reads entries along an axis.

    Args:
        x: ``[...]``, any dtype.
        index: ``[n]`` positions from 0; a 0-d index removes the axis.
        axis: Which axis, a number or an integer Variable; the first by default.
        name: Name of the layer.

    Returns:
        The shape of ``x`` with the axis's size replaced by ``n``.

    Raises:
        ShapeError: If the axis is out of range or the index has more dimensions. A position out of range raises
            IndexRangeError when the program runs.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> y = paddle.gather(x, paddle.to_tensor([2, 0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[5., 6.],
               [1., 2.]], dtype=float32)
    """
    inputs = {"X": check_variable(x, "x", "gather"), "Index": check_variable(index, "index", "gather", INTEGERS)}
    return by_axis(
        0 if axis is None else axis,
        len(x.shape),
        lambda at: emit_one("gather", inputs, {"axis": at}, name=name),
        "gather",
    )


@no_effect(overwrite="gradients of rows that are taken several times are always added up")
@export("fluid.layers.gather", op="gather")
def fluid_gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """Reads rows, as :func:`gather` does.

    Args:
        input: ``[...]``, any dtype.
        index: ``[n]`` row numbers from 0.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> y = fluid.layers.gather(x, paddle.to_tensor([2, 0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[5., 6.],
               [1., 2.]], dtype=float32)
    """
    return gather(input, index)


@export("tensor.index_select", "Variable.index_select", op="index_select")
def index_select(x: Variable, index: Variable, axis: int = 0, name: str | None = None) -> Variable:
    """Reads entries along an axis at the positions ``index`` (``[n]``, from 0).

    Args:
        x: ``[...]``, any dtype.
        index: ``[n]`` positions from 0.
        axis: Which axis.
        name: Name of the layer.
    """
    x = check_variable(x, "x", "index_select")
    inputs = {"X": x, "Index": check_variable(index, "index", "index_select", INTEGERS)}
    return emit_one("index_select", inputs, {"dim": axis}, name=name)


# ----------------------------------------------------------------------------------------------------------- gather_nd
def _infer_nd(x: Meta, index: Meta) -> Meta:
    depth = check_coordinates(x, index)
    return x.with_shape((*index.shape[:-1], *x.shape[depth:]))


@in_float32()
def _nd_back(x: Array, index: Array, dout: Array, dx: Array) -> None:
    dx.fill(0)
    add_nd(dx, index, dout, fresh=True)


def _lower_nd(torch: Any, x: Any, index: Any) -> Any:
    if index.shape[-1] == 0:
        # Coordinates of no axes: every one names the whole value.
        return x.expand((*index.shape[:-1], *x.shape)).clone()
    return x[tuple(index.unbind(-1))]


def _lower_nd_back(torch: Any, x: Any, index: Any, dout: Any) -> Any:
    wide = torch_wide(dout)
    dx = torch.zeros(tuple(x.shape), dtype=wide.dtype, device=dout.device)
    if index.shape[-1] == 0:
        # As many gradients of the whole value as there are coordinates.
        return dout.sum_to_size(tuple(x.shape))
    return dx.index_put(tuple(index.unbind(-1)), wide, accumulate=True).to(dout.dtype)


register(OpDef(
    "gather_nd", "X, Index -> Out", infer=_infer_nd, ref=take_nd, lower=_lower_nd,
    grad=GradOp(
        "X, Index, Out@GRAD -> X@GRAD", ref=_nd_back, lower=_lower_nd_back, shape_only=("X",),
        grad=grad_is_forward_op("gather_nd", keep=("Index",)), indices=(_COORDINATES,),
    ),
    indices=(_COORDINATES,),
    domain=Domain(
        cases=(
            Case(((3, 4), (5, 1))), Case(((3, 4, 2), (2, 3, 2))), Case(((3, 3, 3), (6, 3))), Case(((4,), (1, 1))),
            Case(((2, 3), (0, 2))), Case(((2, 0), (3, 1))), Case(((2, 3), (2, 0))),
        ),
        values={"Index": ValueRange(-2, "X.0", dtype="int64")}, others=ANY,
    ),
    complex="linear", onnx=_onnx.gather_nd,
))  # fmt: skip


@export("tensor.gather_nd", "Variable.gather_nd", op="gather_nd")
@respell("fluid.layers.gather_nd", takes="input, index, name=None", op="gather_nd", input="x")
def gather_nd(x: Variable, index: Variable, name: str | None = None) -> Variable:
    """Reads ``x[index[..., 0], index[..., 1], ...]``.

    Args:
        x: ``[...]``, any dtype.
        index: ``[..., k]`` integers: coordinates into the first ``k`` axes; negative ones count from the end.
        name: Name of the layer.

    Returns:
        ``index.shape[:-1] + x.shape[k:]``.

    Raises:
        ShapeError: If there are more coordinates than axes. A coordinate out of range raises IndexRangeError when the
            program runs.
    """
    x = check_variable(x, "x", "gather_nd")
    return emit_one("gather_nd", {"X": x, "Index": check_variable(index, "index", "gather_nd", INTEGERS)}, name=name)
