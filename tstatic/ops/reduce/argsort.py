"""Sorting along an axis: argsort and sort."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta, int64, normalize_axis
from tstatic.ops.reduce._ordering import grad_is_gather, order, put, split_rows, torch_put
from tstatic.ops.shape._shapes import Array


def _infer(x: Meta, *, axis: int) -> tuple[Meta, Meta]:
    normalize_axis(axis, x.rank)
    return x, x.with_dtype(int64)


def _ref(x: Array, out: Array | None, indices: Array | None, *, axis: int, descending: bool) -> None:
    if x.ndim == 0:
        if out is not None:
            np.copyto(out, x)
        if indices is not None:
            indices.fill(0)
        return
    at = normalize_axis(axis, x.ndim)
    found = order(x, at, descending=descending)
    if indices is not None:
        np.copyto(indices, found)
    if out is not None:
        np.copyto(out, np.take_along_axis(x, found, at))


def _lower(torch: Any, x: Any, *, axis: int, descending: bool) -> Any:
    found = torch.sort(x, dim=axis, descending=descending, stable=True)
    return found.values, found.indices


def _back(x: Array, indices: Array, dout: Array, dx: Array, *, axis: int) -> None:
    if dx.ndim == 0:
        np.copyto(dx, dout)
    else:
        put(dx, indices, dout, normalize_axis(axis, dx.ndim))


register(
    OpDef(
        "argsort",
        "X -> Out, Indices",
        attrs={"axis": -1, "descending": False},
        infer=_infer,
        ref=_ref,
        lower=_lower,
        split=lambda x, out, indices, *, axis: split_rows(3, x, axis),
        grad=GradOp(
            "X, Indices, Out@GRAD -> X@GRAD",
            ref=_back,
            lower=lambda torch, x, indices, dout, *, axis: torch_put(torch, x, indices, dout, axis),
            split=lambda x, indices, dout, dx, *, axis: split_rows(4, x, axis),
            shape_only=("X",),
            grad=grad_is_gather,
        ),
        domain=Domain(
            cases=(
                Case(((3, 4),), {"axis": -1}),
                Case(((4, 3),), {"axis": 0, "descending": True}),
                Case(((2, 5, 3),), {"axis": 1}),
                Case(((2, 5, 3),), {"axis": -2, "descending": True}),
                Case(((7,),), {"axis": 0}),
                Case(((0, 3),), {"axis": 0}),
                Case(((2, 0),), {"axis": 0, "descending": True}),
                Case(((1,),), {"axis": -1}),
            ),
            values={"X": ValueRange(distinct=True)},
            others=("int64", "int32"),
            ulps=0,
        ),
    )
)


@export("tensor.argsort", "Variable.argsort", op="argsort")
def argsort(x: Variable, axis: int = -1, descending: bool = False, name: str | None = None) -> Variable:
    """Indices (int64) that sort along an axis; equal elements keep their order and NaN counts as the largest."""
    attrs = {"axis": axis, "descending": descending}
    found: Variable = emit("argsort", {"X": check_variable(x, "x", "argsort")}, attrs, name=name)[1]
    return found


@export("tensor.sort", "Variable.sort", op="argsort")
def sort(x: Variable, axis: int = -1, descending: bool = False, name: str | None = None) -> Variable:
    """The elements in order along an axis."""
    attrs = {"axis": axis, "descending": descending}
    found: Variable = emit("argsort", {"X": check_variable(x, "x", "sort")}, attrs, name=name, prefix="sort")[0]
    return found


@export("fluid.layers.argsort", op="argsort")
def fluid_argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """The sorted elements and the indices that sort them."""
    x = check_variable(input, "input", "argsort")
    found: tuple[Variable, Variable] = emit("argsort", {"X": x}, {"axis": axis, "descending": descending}, name=name)
    return found
