"""Adding slices along an axis by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import ANY_RANK, INTEGERS, check_dtype, check_index, check_rank, check_same_dtype
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, normalize_axis
from tstatic.ops._low import in_float32
from tstatic.ops.indexing._scatter_add import add_rows
from tstatic.ops.shape._shapes import Array, emit_one
from tstatic.ops.shape.joining import common_shape


def _infer(x: Meta, index: Meta, value: Meta, *, axis: int) -> Meta:
    check_dtype(index, INTEGERS, "Index")
    check_rank(index, 1, "Index")
    check_rank(x, range(1, ANY_RANK), "X")
    check_same_dtype((x, value), ("X", "AddValue"))
    at = normalize_axis(axis, x.rank)
    common_shape([value.shape, (*x.shape[:at], index.shape[0], *x.shape[at + 1 :])], None)
    return x


@in_float32()
def _ref(x: Array, index: Array, value: Array, out: Array, *, axis: int) -> None:
    check_index(index, out.shape[axis])
    if out is not x:
        np.copyto(out, x)
    add_rows(np.moveaxis(out, axis, 0), index, np.moveaxis(value, axis, 0))


def _lower(torch: Any, x: Any, index: Any, value: Any, *, axis: int) -> Any:
    wide = x.float() if x.element_size() == 2 and x.is_floating_point() else x
    return wide.index_add(axis, index, value.to(wide.dtype)).to(x.dtype)


def _grad(ctx: GradContext) -> list[OpSpec]:
    arriving = ctx.out_grads.get(ctx.outputs["Out"][0])
    if arriving is None:
        return []
    specs = []
    dx, dvalue = ctx.in_grads.get(ctx.inputs["X"][0]), ctx.in_grads.get(ctx.inputs["AddValue"][0])
    if dx is not None:
        specs.append(OpSpec("assign", {"X": [arriving]}, {"Out": [dx]}))
    if dvalue is not None:
        inputs = {"X": [arriving], "Index": ctx.inputs["Index"]}
        specs.append(OpSpec("index_select", inputs, {"Out": [dvalue]}, {"dim": ctx.attrs["axis"]}))
    return specs


register(
    OpDef(
        "index_add",
        "X, Index, AddValue -> Out",
        attrs={"axis": Attr(0, "int")},
        infer=_infer,
        ref=_ref,
        lower=_lower,
        grad=_grad,
        inplace=(("X", "Out"),),
        domain=Domain(
            cases=(
                Case(((4, 3), (6,), (6, 3)), {"axis": 0}),
                Case(((3, 4), (5,), (3, 5)), {"axis": 1}),
                Case(((2, 3, 3), (2,), (2, 3, 2)), {"axis": -1}),
                Case(((3,), (7,), (7,)), {"axis": 0}),
                Case(((2, 3), (0,), (0, 3)), {"axis": 0}),
                Case(((2, 0), (3,), (3, 0)), {"axis": -2}),
            ),
            values={"Index": ValueRange(0, "X.0", dtype="int64")},
            others=("int64", "int32"),
        ),
    )
)


@export("tensor.index_add", "Variable.index_add", op="index_add")
def index_add(x: Variable, index: Variable, axis: int, value: Variable, name: str | None = None) -> Variable:
    """``x`` with slice ``i`` of ``value`` added to its slice ``index[i]`` along an axis; equal indices add up.

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
