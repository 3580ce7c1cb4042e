"""The k largest or smallest entries, or the k-th, along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import check_variable, emit
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, Tile, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, int64, normalize_axis
from tstatic.ops.reduce._ordering import check_k, first, grad_is_gather, put, split_rows, torch_put, with_size
from tstatic.ops.shape._shapes import Array, check_integer, cut_together


# ------------------------------------------------------------------------------------------------------------ top_k_v2
def _infer(x: Meta, given: Meta | None, *, k: int, axis: int) -> tuple[Meta, Meta]:
    if given is not None:
        check_integer(given, "K")
        out = with_size(x, normalize_axis(axis, x.rank), UNKNOWN)
    else:
        out = with_size(x, check_k(k, x, axis), k)
    return out, out.with_dtype(int64)


def _ref(
    x: Array, given: Array | None, out: Array | None, indices: Array | None, *, k: int, axis: int, largest: bool
) -> list[Array] | None:
    line = x if x.ndim else x.reshape(1)
    at = normalize_axis(axis, line.ndim)
    if given is not None:
        k = int(given.reshape(-1)[0])
        check_k(k, Meta(line.shape, int64), at)
    found = first(line, at, k, largest=largest)
    values = np.take_along_axis(line, found, at)
    if given is not None:
        return [values.reshape(()) if not x.ndim else values, found.reshape(()) if not x.ndim else found]
    if indices is not None:
        np.copyto(indices, found.reshape(indices.shape))
    if out is not None:
        np.copyto(out, values.reshape(out.shape))
    return None


def _lower(torch: Any, x: Any, given: Any, *, k: int, axis: int, largest: bool) -> Any:
    # A stable sort: torch.topk leaves open which of equal elements it names.
    found = torch.sort(x, dim=axis, descending=largest, stable=True)
    count = int(given) if given is not None else k
    if x.dim() == 0:
        return found.values, found.indices
    return found.values.narrow(axis, 0, count).contiguous(), found.indices.narrow(axis, 0, count).contiguous()


def _back(x: Array, indices: Array, dout: Array, dx: Array, *, axis: int) -> None:
    if dx.ndim == 0:
        np.copyto(dx, dout)
    else:
        put(dx, indices, dout, normalize_axis(axis, dx.ndim))


def _split(x: Meta, given: Meta | None, out: Meta, indices: Meta, *, axis: int) -> list[Tile] | None:
    tiles = split_rows(3, x, axis) if given is None else None
    return None if tiles is None else [(p[0], None, p[0], p[0]) for p in tiles]


register(
    OpDef(
        "top_k_v2",
        "X, K? -> Out, Indices",
        attrs={"k": 1, "axis": -1, "largest": True, "sorted": Attr.idle(True, "the entries are always in order")},
        infer=_infer,
        ref=_ref,
        lower=_lower,
        split=_split,
        grad=GradOp(
            "X, Indices, Out@GRAD -> X@GRAD",
            ref=_back,
            lower=lambda torch, x, indices, dout, *, axis: torch_put(torch, x, indices, dout, axis),
            split=lambda x, indices, dout, dx, *, axis: cut_together(4, x.shape, (normalize_axis(axis, x.rank),)),
            shape_only=("X",),
            grad=grad_is_gather,
        ),
        domain=Domain(
            cases=(
                Case(((3, 6), None), {"k": 2}),
                Case(((5, 3), None), {"k": 3, "axis": 0, "largest": False}),
                Case(((2, 4, 3), None), {"k": 1, "axis": 1}),
                Case(((2, 4, 3), None), {"k": 4, "axis": -2, "largest": False}),
                Case(((1,), None), {"k": 1, "axis": 0}),
                Case(((0, 3), None), {"k": 2}),
                Case(((2, 600), None), {"k": 5}),
            ),
            values={"X": ValueRange(distinct=True)},
            others=("int64", "int32"),
            ulps=0,
        ),
    )
)


@export("tensor.topk", "Variable.topk", op="top_k_v2")
def topk(
    x: Variable, k: Any, axis: int | None = None, largest: bool = True, sorted: bool = True, name: str | None = None
) -> tuple[Variable, Variable]:
    """The ``k`` largest (or smallest) entries along an axis, in order, and where they stand.

    Args:
        x: ``[...]``.
        k: How many; an int or a Variable of one integer.
        axis: Which axis; the last by default.
        largest: The largest ones; NaN counts as the largest of all. Of equal entries the first comes first.
        sorted: Accepted; the entries are always in order.
        name: Name of the layer.

    Returns:
        Values, and indices (int64).

    Raises:
        ShapeError: If the axis has fewer than ``k`` entries.
    """
    given = k if isinstance(k, Variable) else None
    attrs = {
        "k": 1 if given is not None else k,
        "axis": -1 if axis is None else axis,
        "largest": largest,
        "sorted": sorted,
    }
    found: tuple[Variable, Variable] = emit(
        "top_k_v2", {"X": check_variable(x, "x", "topk"), "K": given}, attrs, name=name
    )
    return found


@export("fluid.layers.topk", op="top_k_v2")
def fluid_topk(input: Variable, k: Any, name: str | None = None) -> tuple[Variable, Variable]:
    """The ``k`` largest entries of each row, in order, and where they stand.

    Example:
        >>> x = paddle.to_tensor([[1.0, 5.0, 2.0], [7.0, 0.0, 3.0]])
        >>> values, indices = fluid.layers.topk(x, k=2)
        >>> static.Executor().run(fetch_list=[values, indices])
        [array([[5., 2.],
               [7., 3.]], dtype=float32), array([[1, 2],
               [0, 2]])]
    """
    return topk(input, k, name=name)


# ------------------------------------------------------------------------------------------------------------ kthvalue
def _infer_kth(x: Meta, *, k: int, axis: int, keepdim: bool) -> tuple[Meta, Meta]:
    out = with_size(x, check_k(k, x, axis), 1 if keepdim else None)
    return out, out.with_dtype(int64)


def _ref_kth(x: Array, out: Array | None, indices: Array | None, *, k: int, axis: int, keepdim: bool) -> None:
    line = x if x.ndim else x.reshape(1)
    at = normalize_axis(axis, line.ndim)
    found = first(line, at, k, largest=False)
    found = found[tuple(slice(k - 1, k) if i == at else slice(None) for i in range(line.ndim))]
    if indices is not None:
        np.copyto(indices, found.reshape(indices.shape))
    if out is not None:
        np.copyto(out, np.take_along_axis(line, found, at).reshape(out.shape))


def _lower_kth(torch: Any, x: Any, *, k: int, axis: int, keepdim: bool) -> Any:
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
    found = torch.sort(x, dim=axis, stable=True)
    pair = found.values.narrow(axis, k - 1, 1), found.indices.narrow(axis, k - 1, 1)
    return tuple(t.contiguous() if keepdim else t.squeeze(axis).contiguous() for t in pair)


def _back_kth(x: Array, indices: Array, dout: Array, dx: Array, *, axis: int, keepdim: bool) -> None:
    if dx.ndim == 0:
        np.copyto(dx, dout)
        return
    at = normalize_axis(axis, dx.ndim)
    where, given = (indices, dout) if keepdim else (np.expand_dims(indices, at), np.expand_dims(dout, at))
    put(dx, where, given, at)


def _lower_kth_back(torch: Any, x: Any, indices: Any, dout: Any, *, axis: int, keepdim: bool) -> Any:
    if x.dim() == 0:
        return dout.clone()
    where, given = (indices, dout) if keepdim else (indices.unsqueeze(axis), dout.unsqueeze(axis))
    return torch_put(torch, x, where, given, axis)


register(
    OpDef(
        "kthvalue",
        "X -> Out, Indices",
        attrs={"k": 1, "axis": -1, "keepdim": False},
        infer=_infer_kth,
        ref=_ref_kth,
        lower=_lower_kth,
        grad=GradOp(
            "X, Indices, Out@GRAD -> X@GRAD",
            ref=_back_kth,
            lower=_lower_kth_back,
            shape_only=("X",),
        ),
        domain=Domain(
            cases=(
                Case(((3, 6),), {"k": 2}),
                Case(((5, 3),), {"k": 3, "axis": 0, "keepdim": True}),
                Case(((2, 4, 3),), {"k": 1, "axis": 1}),
                Case(((2, 4, 3),), {"k": 4, "axis": -2}),
                Case(((1,),), {"k": 1, "axis": 0}),
                Case(((0, 3),), {"k": 2}),
                Case(((4,),), {"k": 4, "keepdim": True}),
            ),
            values={"X": ValueRange(distinct=True)},
            others=("int64", "int32"),
            ulps=0,
        ),
    )
)


@export("tensor.kthvalue", "Variable.kthvalue", op="kthvalue")
def kthvalue(
    x: Variable, k: int, axis: int | None = None, keepdim: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """The ``k``-th smallest entry (from 1) along an axis, the last by default, and where it stands.

    Raises:
        ShapeError: If the axis has fewer than ``k`` entries.
    """
    attrs = {"k": k, "axis": -1 if axis is None else axis, "keepdim": keepdim}
    found: tuple[Variable, Variable] = emit("kthvalue", {"X": check_variable(x, "x", "kthvalue")}, attrs, name=name)
    return found
