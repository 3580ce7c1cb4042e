"""Diagonals and triangles of matrices, and the identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import ANY_RANK, check_int, check_rank, check_sizes, check_two_axes
from tstatic.ir.export import respell
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.recording import Call
from tstatic.ir.split import ELEMENTS, FREE, Split
from tstatic.ir.types import UNKNOWN, DType, Meta, Shape, float32, int64
from tstatic.ops.base.call_ref import copies
from tstatic.ops.base.gradients import grad_is_forward_op, grad_is_op
from tstatic.ops.base.shapes import ANY, Array, as_list, clear, copy, emit_one
from tstatic.ops.shape import _shape_onnx as _onnx
from tstatic.ops.shape.expanding import expand
from tstatic.ops.shape.number_of import number_of
from tstatic.ops.shape.reshape import flatten, reshape
from tstatic.ops.shape.sequence import arange
from tstatic.ops.shape.slicing import embed


# ------------------------------------------------------------------------------------------------------------ diagonal
def _diagonal_size(rows: int, columns: int, offset: int) -> int:
    if UNKNOWN in (rows, columns):
        return UNKNOWN
    # Above the main diagonal the columns run out first, below it the rows.
    return max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))


def _infer_diagonal(x: Meta, *, offset: int, axis1: int, axis2: int) -> Meta:
    check_rank(x, range(2, ANY_RANK), "Input")
    a, b = check_two_axes((axis1, axis2), x)
    rest = [s for i, s in enumerate(x.shape) if i not in (a, b)]
    return x.with_shape((*rest, _diagonal_size(x.shape[a], x.shape[b], offset)))


def _view(x: Array, *, offset: int, axis1: int, axis2: int) -> Array:
    return x.diagonal(offset, axis1, axis2)


def _writable(x: Array, offset: int, axis1: int, axis2: int) -> Array:
    """Returns the diagonal as a view that may be written to, which ``ndarray.diagonal`` is not."""
    a, b = check_two_axes((axis1, axis2), x.ndim)
    size = _diagonal_size(x.shape[a], x.shape[b], offset)
    start = tuple(
        slice(max(-offset, 0), None) if i == a else slice(max(offset, 0), None) if i == b else slice(None)
        for i in range(x.ndim)
    )
    # One step along a diagonal is a step along both of its axes, so its stride is the sum of theirs.
    rest = [i for i in range(x.ndim) if i not in (a, b)]
    shape = (*(x.shape[i] for i in rest), size)
    strides = (*(x.strides[i] for i in rest), x.strides[a] + x.strides[b])
    # An empty diagonal may begin outside of the value.
    corner = x if size == 0 else x[start]
    return np.lib.stride_tricks.as_strided(corner, shape, strides)


def _diagonal_calls(x: Array, out: Array, *, offset: int, axis1: int, axis2: int) -> list[Call]:
    return [copy(out, _view(x, offset=offset, axis1=axis1, axis2=axis2))]


def _diagonal_back(x: Array, dout: Array, dx: Array, *, offset: int, axis1: int, axis2: int) -> list[Call]:
    return embed(dx, _writable(dx, offset, axis1, axis2), dout)


def _lower_diagonal_back(torch: Any, x: Any, dout: Any, *, offset: int, axis1: int, axis2: int) -> Any:
    dx = torch.zeros(tuple(x.shape), dtype=dout.dtype, device=dout.device)
    torch.diagonal(dx, offset, axis1, axis2).copy_(dout)
    return dx


register(OpDef(
    "diagonal", "Input -> Out", attrs={"offset": 0, "axis1": 0, "axis2": 1}, infer=_infer_diagonal,
    ref=copies(_diagonal_calls),
    lower=lambda torch, x, *, offset, axis1, axis2: torch.diagonal(x, offset, axis1, axis2).contiguous(), view=_view,
    grad=GradOp(
        "Input, Out@GRAD -> Input@GRAD", ref=copies(_diagonal_back), lower=_lower_diagonal_back, shape_only=("Input",),
        grad=grad_is_forward_op("diagonal", "Input", "Out"),
    ),
    domain=Domain(
        cases=(
            Case(((4, 4),), {}), Case(((3, 5),), {"offset": 2}), Case(((5, 3),), {"offset": -1}),
            Case(((2, 3, 4),), {"axis1": -1, "axis2": 0}), Case(((2, 3),), {"offset": 7}), Case(((0, 3),), {}),
            Case(((2, 1, 3, 2),), {"offset": 1, "axis1": 1, "axis2": 2}),
        ),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=lambda g, x, **a: _onnx.moved(g, x, lambda n: _view(n, **a)),
))  # fmt: skip


FARTHEST = 2**31 - 1
"""An offset beyond which numpy does not count: such a diagonal has no elements."""


def _within(offset: Any, function: str) -> int:
    return max(-FARTHEST, min(FARTHEST, check_int(offset, "offset", function)))


@export("tensor.diagonal", "Variable.diagonal", op="diagonal")
def diagonal(x: Variable, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None) -> Variable:
    """Returns the diagonals of the planes of two axes, as a new last axis; ``offset`` counts towards ``axis2``.

    Args:
        x: ``[...]`` of at least two dimensions.
        offset: Which diagonal; positive ones lie above the main one, towards ``axis2``.
        axis1, axis2: The two axes of the planes.
        name: Name of the layer.

    Raises:
        ShapeError: If there are not two different axes.
    """
    attrs = {"offset": _within(offset, "diagonal"), "axis1": axis1, "axis2": axis2}
    return emit_one("diagonal", {"Input": check_variable(x, "x", "diagonal")}, attrs, name=name)


# ----------------------------------------------------------------------------------------------------------- diag_embed
def _planes(rank: int, dim1: int, dim2: int) -> tuple[int, int]:
    return check_two_axes((dim1, dim2), rank + 1)


def _infer_embed(x: Meta, *, offset: int, dim1: int, dim2: int) -> Meta:
    check_rank(x, range(1, ANY_RANK), "Input")
    a, b = _planes(x.rank, dim1, dim2)
    # A diagonal beside the main one needs a larger square to hold all elements.
    side = UNKNOWN if x.shape[-1] == UNKNOWN else x.shape[-1] + abs(offset)
    rest = iter(x.shape[:-1])
    return x.with_shape([side if i in (a, b) else next(rest) for i in range(x.rank + 1)])


def _embed_calls(x: Array, out: Array, *, offset: int, dim1: int, dim2: int) -> list[Call]:
    return [clear(out), copy(_writable(out, offset, dim1, dim2), x)]


def _embed_grad(ctx: GradContext) -> Mapping[str, Any]:
    return {"offset": ctx.attrs["offset"], "axis1": ctx.attrs["dim1"], "axis2": ctx.attrs["dim2"]}


register(OpDef(
    "diag_embed", "Input -> Out", attrs={"offset": 0, "dim1": -2, "dim2": -1}, infer=_infer_embed, ref=copies(_embed_calls),
    lower=lambda torch, x, *, offset, dim1, dim2: torch.diag_embed(x, offset, dim1, dim2),
    grad=grad_is_op("diagonal", _embed_grad, x="Input"),
    domain=Domain(
        cases=(
            Case(((4,),), {}), Case(((2, 3),), {"offset": 1}), Case(((2, 3),), {"offset": -2, "dim1": 0, "dim2": 2}),
            Case(((2, 2, 3),), {"dim1": -1, "dim2": 1}), Case(((0,),), {"offset": 1}), Case(((3, 0),), {}),
        ),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=lambda g, x, **a: _onnx.embedded(g, x, lambda n: _writable(n, *a.values())),
))  # fmt: skip


@export(
    "tensor.diag_embed", "Variable.diag_embed", "nn.functional.diag_embed", "fluid.layers.diag_embed", op="diag_embed"
)
def diag_embed(input: Variable, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Variable:
    """Puts the rows of the last axis on the diagonals of square matrices of zeros.

    Args:
        input: ``[..., n]``.
        offset: Which diagonal; positive ones lie above the main one.
        dim1, dim2: The two axes of the matrices in the result, each of size ``n + abs(offset)``.

    Raises:
        ShapeError: If there are not two different axes.
    """
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return emit_one("diag_embed", {"Input": check_variable(input, "input", "diag_embed")}, attrs)


@export("tensor.diagflat", "Variable.diagflat", op="diag_v2")
def diagflat(x: Variable, offset: int = 0, name: str | None = None) -> Variable:
    """Puts the elements of ``x``, flattened, on a diagonal of a square matrix of zeros.

    Args:
        x: ``[...]``.
        offset: Which diagonal; positive ones lie above the main one.
        name: Name of the layer.
    """
    x = check_variable(x, "x", "diagflat")
    return diag(flatten(x) if x.shape else reshape(x, [1]), offset, 0, name)


@export("tensor.trace", "Variable.trace")
def trace(x: Variable, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None) -> Variable:
    """Returns the sums of the diagonals of the planes of two axes.

    Args:
        x: Numbers of at least two dimensions.
        offset, axis1, axis2: As in :func:`diagonal`, with its errors.
        name: Name of the layer.
    """
    line = diagonal(x, offset, axis1, axis2)
    # Sums of integers are int64 by default; those of a diagonal keep the dtype, as in Paddle.
    return emit_one("reduce_sum", {"X": line}, {"dim": [-1], "out_dtype": line.dtype}, name=name, prefix="trace")


# ------------------------------------------------------------------------------------------------------------- diag_v2
def _infer_diag(x: Meta, *, offset: int) -> Meta:
    check_rank(x, (0, 1, 2), "X")
    if x.rank == 2:
        return x.with_shape((_diagonal_size(x.shape[0], x.shape[1], offset),))
    size = x.shape[0] if x.rank else 1
    side = UNKNOWN if size == UNKNOWN else size + abs(offset)
    return x.with_shape((side, side))


def _diag_calls(x: Array, out: Array, *, offset: int, padding_value: float) -> list[Call]:
    if x.ndim == 2:
        return [copy(out, x.diagonal(offset))]
    # Padding everywhere, then the diagonal over it: two calls instead of a mask of the matrix.
    return [copy(out, out.dtype.type(padding_value)), copy(_writable(out, offset, 0, 1), x)]


def _lower_diag(torch: Any, x: Any, *, offset: int, padding_value: float) -> Any:
    if x.dim() == 2:
        return torch.diagonal(x, offset).contiguous()
    side = x.numel() + abs(offset)
    out = torch.full((side, side), padding_value, device=x.device).to(x.dtype)
    torch.diagonal(out, offset).copy_(x)
    return out


def _diag_onnx(g: Any, x: Any, *, offset: int, padding_value: float) -> Any:
    if x.rank == 2:
        return _onnx.moved(g, x, lambda n: n.diagonal(offset))
    return _onnx.embedded(g, x, lambda n: _writable(n, offset, 0, 1), padding_value)


def _diag_back(x: Array, dout: Array, dx: Array, *, offset: int) -> list[Call]:
    if dx.ndim == 2:
        return embed(dx, _writable(dx, offset, 0, 1), dout)
    # A 0-d X was put on a diagonal of one element.
    return [copy(dx, dout.diagonal(offset) if dx.ndim else dout.diagonal(offset).reshape(()))]


def _lower_diag_back(torch: Any, x: Any, dout: Any, *, offset: int) -> Any:
    if x.dim() == 2:
        return _lower_diagonal_back(torch, x, dout, offset=offset, axis1=0, axis2=1)
    return torch.diagonal(dout, offset).reshape(x.shape)


register(OpDef(
    "diag_v2", "X -> Out", attrs={"offset": 0, "padding_value": 0.0}, infer=_infer_diag, ref=copies(_diag_calls),
    lower=_lower_diag,
    grad=GradOp(
        "X, Out@GRAD -> X@GRAD", ref=copies(_diag_back), lower=_lower_diag_back, shape_only=("X",),
        grad=grad_is_forward_op("diag_v2", changed={"padding_value": 0.0}),
    ),
    domain=Domain(
        cases=(
            Case(((4,),), {}), Case(((3,),), {"offset": -2, "padding_value": 1.5}), Case(((3, 5),), {"offset": 1}),
            Case(((4, 3),), {"offset": -2}), Case(((0,),), {"offset": 2}), Case(((2, 2),), {"offset": 5}),
            Case(((1,),), {"offset": 1}),
        ),
        others=("int64", "int32"), ulps=0,
    ),
    complex="linear", onnx=_diag_onnx,
))  # fmt: skip


@export("tensor.diag", "Variable.diag", op="diag_v2")
def diag(x: Variable, offset: int = 0, padding_value: float = 0, name: str | None = None) -> Variable:
    """Puts the vector ``x`` on a diagonal of a square matrix of ``padding_value``, or takes the diagonal of a matrix.

    Args:
        x: ``[n]`` or ``[n, m]``.
        offset: Which diagonal; positive ones lie above the main one.
        padding_value: What stands beside the diagonal.
        name: Name of the layer.

    Raises:
        ShapeError: If ``x`` has more than two dimensions.
    """
    attrs = {"offset": offset, "padding_value": padding_value}
    return emit_one("diag_v2", {"X": check_variable(x, "x", "diag")}, attrs, name=name)


@export("fluid.layers.diag", op="diag_v2")
def fluid_diag(diagonal: Variable) -> Variable:
    """Puts a vector on the diagonal of a square matrix."""
    return diag(diagonal)


# ----------------------------------------------------------------------------------------------------------------- eye
def _eye_shape(num_rows: int, num_columns: int) -> Shape:
    rows = check_int(num_rows, "num_rows", least=0)
    shape = rows, rows if num_columns == UNKNOWN else check_int(num_columns, "num_columns", least=0)
    check_sizes(shape)
    return shape


def _eye_calls(out: Array) -> list[Call]:
    return [clear(out), copy(_writable(out, 0, 0, 1), True)]


def _eye_lower(torch: Any, *, num_rows: int, num_columns: int, dtype: DType, device: Any = None) -> Any:
    return torch.eye(*_eye_shape(num_rows, num_columns), dtype=getattr(torch, dtype.name), device=device)


register(OpDef(
    "eye", "-> Out", attrs={"num_rows": Attr(kind="int"), "num_columns": -1, "dtype": Attr(float32, "dtype")},
    infer=lambda *, num_rows, num_columns, dtype: Meta(_eye_shape(num_rows, num_columns), dtype),
    ref=copies(_eye_calls), lower=_eye_lower,
    domain=Domain(
        cases=tuple(
            Case((), {"num_rows": n, "num_columns": m, "dtype": d})
            for n, m, d in ((3, -1, "float32"), (2, 4, "float64"), (4, 2, "int64"), (0, 3, "float32"),
                            (1, 1, "bool"), (5, -1, "bfloat16"), (3, 0, "float16"))
        ),
        floats=("float32",), ulps=0,
    ), onnx=lambda g: g.const(np.eye(*g.outs[0].shape), g.outs[0].dtype),
))  # fmt: skip


@export("tensor.eye", op="eye")
def eye(
    num_rows: int | Variable, num_columns: int | Variable | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Makes the identity matrix, of ``num_columns`` columns (as many as rows by default); float32 by default.

    Args:
        num_rows: At least 0; an int, or an integer Variable with one element, which leaves the size unknown.
        num_columns: The same; as many as rows by default.
        dtype: float32 by default.
        name: Name of the result.

    Raises:
        ShapeError: If a size is negative.
    """
    return _eye(num_rows, num_columns, "float32" if dtype is None else dtype, name)


def _eye(num_rows: Any, num_columns: Any, dtype: Any, name: str | None) -> Variable:
    if isinstance(num_rows, Variable) or isinstance(num_columns, Variable):
        columns = num_rows if num_columns is None else num_columns
        # Sizes known at run time only: ones where the numbers of row and column agree.
        numbers = [
            arange(number_of(n, a, "eye", "int64")) for n, a in ((num_rows, "num_rows"), (columns, "num_columns"))
        ]
        rows = emit_one("unsqueeze2", {"X": numbers[0]}, {"axes": (1,)})
        same = emit_one("equal", {"X": rows, "Y": numbers[1]})
        return emit_one("cast", {"X": same}, {"in_dtype": same.dtype, "out_dtype": dtype}, name=name)
    # Only as the attribute of a raw operator does -1 mean as many as rows.
    columns = num_rows if num_columns is None else check_int(num_columns, "num_columns", "eye", least=0)
    attrs = {"num_rows": num_rows, "num_columns": columns}
    return emit_one("eye", {}, {**attrs, "dtype": dtype}, name=name)


@export("fluid.layers.eye", op="eye")
def fluid_eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Sequence[int] | None = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Makes the identity matrix, repeated along leading axes of sizes ``batch_shape``.

    Args:
        num_rows: At least 0.
        num_columns: At least 0; as many as rows if ``None``.
        batch_shape: An int or a list of ints; ``None`` for one matrix.
        dtype: Element type.
        name: Name of the layer.

    Raises:
        ShapeError: If ``num_rows`` is negative.
    """
    out = _eye(num_rows, num_columns, dtype, name)
    return out if batch_shape is None else expand(out, [*as_list(batch_shape), *out.shape])


# ------------------------------------------------------------------------------------------------------------ triangles
@lru_cache(maxsize=16)
def _mask(rows: int, columns: int, diagonal: int, lower: bool) -> Array:
    """Returns where the elements that stay are; cached, since attention makes the same causal mask in every layer."""
    # The upper triangle is what the lower one below it leaves out, hence one diagonal less.
    mask = np.tri(rows, columns, diagonal if lower else diagonal - 1, dtype=bool)
    mask = mask if lower else ~mask
    # Shared by all who call with these sizes, so nobody may write to it.
    mask.setflags(write=False)
    return mask


def _calls(x: Array, out: Array, *, diagonal: int, lower: bool) -> list[Call]:
    mask = _mask(x.shape[-2], x.shape[-1], diagonal, lower)
    # Not a product with the mask: NaN times 0 is NaN.
    return [clear(out), (np.copyto, (out, x, "same_kind", mask))]


def _infer(x: Meta) -> Meta:
    check_rank(x, range(2, ANY_RANK), "X")
    return x


def _lower(torch: Any, x: Any, *, diagonal: int, lower: bool) -> Any:
    return torch.tril(x, diagonal) if lower else torch.triu(x, diagonal)


register(OpDef(
    "tril_triu", "X -> Out", attrs={"diagonal": 0, "lower": True}, infer=_infer, ref=copies(_calls), lower=_lower,
    split=Split(ELEMENTS, FREE, taken=lambda x: (-2, -1)), grad=grad_is_op("tril_triu", lambda ctx: ctx.attrs),
    domain=Domain(
        cases=(
            Case(((4, 4),), {"lower": True}), Case(((4, 4),), {"lower": False}),
            Case(((3, 5),), {"lower": True, "diagonal": 1}), Case(((2, 5, 3),), {"lower": False, "diagonal": -2}),
            Case(((0, 3),), {"lower": True}), Case(((2, 3, 1, 4),), {"lower": False, "diagonal": 2}),
            Case(((2, 2),), {"lower": True, "diagonal": -9}),
        ),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=lambda g, x, *, diagonal, lower: g("Trilu", x, g.const(diagonal, int64), upper=int(not lower)),
))  # fmt: skip


@export("tensor.tril", "Variable.tril", op="tril_triu", inplace=True)
@respell("fluid.layers.tril", takes="input, diagonal=0, name=None", op="tril_triu", input="x")
def tril(x: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """Keeps the lower triangle of the last two axes, zeros above; ``diagonal`` moves the border up.

    Args:
        x: ``[..., rows, columns]``.
        diagonal: The last diagonal that is kept; positive ones lie above the main one.
        name: Name of the layer.

    Raises:
        ShapeError: If ``x`` has fewer than two dimensions.
    """
    attrs = {"diagonal": diagonal, "lower": True}
    return emit_one("tril_triu", {"X": check_variable(x, "x", "tril")}, attrs, name=name, prefix="tril")


@export("tensor.triu", "Variable.triu", op="tril_triu", inplace=True)
@respell("fluid.layers.triu", takes="input, diagonal=0, name=None", op="tril_triu", input="x")
def triu(x: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """Keeps the upper triangle of the last two axes, zeros below; ``diagonal`` moves the border up.

    Args:
        x: ``[..., rows, columns]``.
        diagonal: The first diagonal that is kept; positive ones lie above the main one.
        name: Name of the layer.

    Raises:
        ShapeError: If ``x`` has fewer than two dimensions.
    """
    attrs = {"diagonal": diagonal, "lower": False}
    return emit_one("tril_triu", {"X": check_variable(x, "x", "triu")}, attrs, name=name, prefix="triu")
