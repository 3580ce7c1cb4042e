"""The distinct elements of a value, sorted or in runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import check_length
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, OpSpec, ValueRange, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, DType, Meta, int64, normalize_axis
from tstatic.ops.base.shapes import Array, emit_one
from tstatic.ops.indexing import _indexing_onnx as _onnx


def _axis(axis: Sequence[int], rank: int) -> int | None:
    if not len(axis):
        return None
    check_length(axis, 1, "axis", "unique", why="or None to compare elements")
    return normalize_axis(axis[0], rank)


def _infer(x: Meta, *, axis: Sequence[int], dtype: DType) -> tuple[Meta, Meta, Meta, Meta]:
    at = _axis(axis, x.rank)
    out = x.with_shape((UNKNOWN,) if at is None else (*x.shape[:at], UNKNOWN, *x.shape[at + 1 :]))
    some = Meta((UNKNOWN,), dtype)
    return out, some, Meta((x.numel if at is None else x.shape[at],), dtype), some


def _keys(x: Array, at: int | None) -> tuple[Array, Array]:
    """Returns the value along one leading axis, and a number per entry: equal for equal entries, in their order."""
    rows = x.reshape(-1) if at is None else np.moveaxis(x, at, 0)
    # numpy's sort of bfloat16 leaves the elements around a NaN unsorted; float32 holds each value exactly.
    wide = rows.astype(np.float32) if x.dtype.name == "bfloat16" else rows
    flat = wide.reshape(wide.shape[0], -1) if wide.size else np.zeros((wide.shape[0], 1))
    number = np.zeros(flat.shape[0], np.int64)
    # The first column decides last: each pass sorts by one column, keeping what the earlier ones settled.
    order = np.lexsort(flat.T[::-1]) if flat.shape[1] != 1 else np.argsort(flat[:, 0], kind="stable")
    ordered = flat[order]
    # NaN differs from itself, so each NaN is an element of its own, as in torch.
    number[order] = np.concatenate([[0], np.cumsum((ordered[1:] != ordered[:-1]).any(axis=1))]) if len(order) else []
    return rows, number


def _ref(
    x: Array, out: Any, indices: Any, inverse: Any, counts: Any, *, axis: Sequence[int], dtype: DType
) -> list[Array]:
    at = _axis(axis, x.ndim)
    rows, number = _keys(x, at)
    size = int(number.max()) + 1 if number.size else 0
    first = np.empty(size, np.int64)
    # Written backwards, so that the first occurrence stays.
    first[number[::-1]] = np.arange(number.size)[::-1]
    found = rows[first]
    return [
        found if at is None else np.moveaxis(found, 0, at),
        first.astype(dtype.np),
        number.astype(dtype.np),
        np.bincount(number, minlength=size).astype(dtype.np),
    ]


def _lower(torch: Any, x: Any, *, axis: Sequence[int], dtype: DType) -> Any:
    kind = getattr(torch, dtype.name)
    at = _axis(axis, x.dim())
    found, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True, dim=at)
    flat = inverse.reshape(-1)
    order = torch.arange(flat.numel(), device=x.device)
    first = torch.full((counts.numel(),), flat.numel(), dtype=torch.int64, device=x.device)
    first = first.scatter_reduce(0, flat, order, "amin")
    return found, first.to(kind), flat.to(kind), counts.to(kind)


_ATTRS = {
    **{
        n: Attr.idle(False, "the output slots say what is returned")
        for n in ("return_index", "return_inverse", "return_counts")
    },
    "axis": Attr((), "ints"),
    "dtype": Attr(int64, "dtype", lambda d: None if d.name in ("int32", "int64") else "int32 or int64"),
    "is_sorted": Attr.idle(True, "the elements are always in order"),
}
# Elements and slices, with repeats, without elements, 0-d.
_CASES = (
    Case(((9,),)),
    Case(((3, 4),)),
    Case(((6, 1),), {"axis": (0,)}),
    Case(((2, 7),), {"axis": (-1,), "dtype": "int32"}),
    Case(((0,),)),
    Case(((),)),
    Case(((2, 2, 3),), {"axis": (1,)}),
)


def _write(op: PaddleOp) -> list[OpSpec]:
    """Paddle's kernel writes all results, asked for or not."""
    assert op.fresh is not None
    counts = Meta((-1,), op.attrs["dtype"])
    outputs = {
        **op.outputs,
        **{slot: [op.fresh(counts)] for slot in ("Indices", "Index", "Counts") if slot not in op.outputs},
    }
    flags = dict.fromkeys(("return_index", "return_inverse", "return_counts"), True)
    return [op.made(outputs=outputs, attrs={**op.attrs, **flags})]


register(OpDef(
    "unique", "X -> Out, Indices?, Index?, Counts?", attrs=_ATTRS, infer=_infer, ref=_ref, lower=_lower,
    dynamic=Dynamic("the different elements"),
    paddle=PaddleForm(write=_write),
    domain=Domain(
        cases=_CASES, values={"X": ValueRange(0, 3, dtype="int64")}, floats=("float32",), others=("int32",), ulps=0,
    ), onnx=_onnx.unique,
))  # fmt: skip


def _results(
    type: str, x: Any, wanted: dict[str, bool], attrs: dict[str, Any], axis: int | None, name: str | None
) -> Any:
    drop = [slot for slot, asked in wanted.items() if not asked]
    attrs["axis"] = () if axis is None else (axis,)
    return emit(type, {"X": check_variable(x, "x", type)}, attrs, name=name, drop=drop)


@export("tensor.unique", "Variable.unique", op="unique")
def unique(
    x: Variable,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: Any = "int64",
    name: str | None = None,
) -> Any:
    """Returns the distinct elements in order (each NaN counts as one of its own).

    Args:
        x: ``[...]``.
        return_index: Also give where each one stands first.
        return_inverse: Also give, for each element of ``x``, its number among the distinct ones.
        return_counts: Also give how often each one stands.
        axis: Compare slices along this axis; without it the flattened value's elements.
        dtype: Of the indices and counts: int64 or int32.
        name: Name of the layer.

    Returns:
        The distinct elements (their number is known when the program runs), or a tuple with what was asked for.

    Raises:
        ShapeError: If the axis is out of range.

    Example:
        >>> x = paddle.to_tensor([3, 1, 3, 2])
        >>> values, counts = paddle.unique(x, return_counts=True)
        >>> static.Executor().run(fetch_list=[values, counts])
        [array([1, 2, 3]), array([1, 1, 2])]
    """
    attrs = {
        "return_index": return_index,
        "return_inverse": return_inverse,
        "return_counts": return_counts,
        "dtype": dtype,
    }
    wanted = {"Indices": return_index, "Index": return_inverse, "Counts": return_counts}
    return _results("unique", x, wanted, attrs, axis, name)


@export("fluid.layers.unique", op="unique")
def fluid_unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """Returns the distinct elements of a vector as they appear first, and each element's number among them.

    Args:
        x: A vector ``[n]``; of more dimensions the flattened value.
        dtype: Of the numbers: int32 or int64.

    Raises:
        ProgramError: For another ``dtype``.
    """
    return fluid_unique_with_counts(x, dtype)[:2]


@export("fluid.layers.unique_with_counts", op="unique")
def fluid_unique_with_counts(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable, Variable]:
    """Returns what :func:`fluid_unique` does, and how often each distinct element occurs.

    Args:
        x: A vector ``[n]``; of more dimensions the flattened value.
        dtype: Of the numbers and counts: int32 or int64.

    Raises:
        ProgramError: For another ``dtype``.
    """
    found, places, numbers, counts = unique(x, True, True, True, dtype=dtype)
    # The op sorts; by the place where each element stands first, they are in order of appearance again.
    order = emit("argsort", {"X": places}, {"axis": 0})[1]
    # The inverse permutation: where each sorted element stands in the order of appearance.
    rank = emit("argsort", {"X": order}, {"axis": 0})[1]
    index = emit_one(
        "cast", {"X": emit_one("gather", {"X": rank, "Index": numbers})}, {"in_dtype": rank.dtype, "out_dtype": dtype}
    )
    return emit_one("gather", {"X": found, "Index": order}), index, emit_one("gather", {"X": counts, "Index": order})


# -------------------------------------------------------------------------------------------------- unique_consecutive
def _infer_runs(x: Meta, *, axis: Sequence[int], dtype: DType) -> tuple[Meta, Meta, Meta]:
    out, _, inverse, counts = _infer(x, axis=axis, dtype=dtype)
    return out, inverse, counts


def _ref_runs(x: Array, out: Any, inverse: Any, counts: Any, *, axis: Sequence[int], dtype: DType) -> list[Array]:
    at = _axis(axis, x.ndim)
    rows = x.reshape(-1) if at is None else np.moveaxis(x, at, 0)
    size = rows.shape[0]
    new = np.ones(size, bool)
    if size > 1:
        # Slices of 0 elements are all equal.
        new[1:] = (rows[1:] != rows[:-1]).reshape(size - 1, -1).any(axis=1) if rows.size else False
    starts = np.flatnonzero(new)
    found = rows[starts]
    return [
        found if at is None else np.moveaxis(found, 0, at),
        (np.cumsum(new) - 1).astype(dtype.np),
        np.diff(starts, append=size).astype(dtype.np),
    ]


def _lower_runs(torch: Any, x: Any, *, axis: Sequence[int], dtype: DType) -> Any:
    kind = getattr(torch, dtype.name)
    found, inverse, counts = torch.unique_consecutive(
        x, return_inverse=True, return_counts=True, dim=_axis(axis, x.dim())
    )
    return found, inverse.reshape(-1).to(kind), counts.to(kind)


register(OpDef(
    "unique_consecutive", "X -> Out, Index?, Counts?",
    attrs={n: _ATTRS[n] for n in ("return_inverse", "return_counts", "axis", "dtype")}, infer=_infer_runs,
    ref=_ref_runs, lower=_lower_runs, dynamic=Dynamic("the runs of equal elements"),
    domain=Domain(
        cases=_CASES, values={"X": ValueRange(0, 1, dtype="int64")}, floats=("float32",), others=("int32",), ulps=0,
    ), onnx="ONNX has no runs of equal elements",
))  # fmt: skip


@export("tensor.unique_consecutive", "Variable.unique_consecutive", op="unique_consecutive")
def unique_consecutive(
    x: Variable,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: Any = "int64",
    name: str | None = None,
) -> Any:
    """Returns the first element of each run of equal elements.

    Args:
        x: ``[...]``.
        return_inverse: Also give the number of each element's run.
        return_counts: Also give the runs' lengths.
        axis: Compare slices along this axis; without it the flattened value's elements.
        dtype: Of the numbers and lengths: int64 or int32.
        name: Name of the layer.

    Returns:
        The elements (their number is known when the program runs), or a tuple with what was asked for.

    Raises:
        ShapeError: If the axis is out of range.
    """
    attrs = {"return_inverse": return_inverse, "return_counts": return_counts, "dtype": dtype}
    return _results("unique_consecutive", x, {"Index": return_inverse, "Counts": return_counts}, attrs, axis, name)
