"""Matrix products: matmul_v2 and its stricter forms bmm and mv, mul and dot, and functions of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import ANY_RANK, check_int, check_rank, same_shape
from tstatic.ir.opdef import GRAD, WHOLE, Case, Cost, Domain, GradOp, OpDef, OpSpec, Tile, export, register
from tstatic.ir.paddle_form import PaddleForm, PaddleOp
from tstatic.ir.product import MatrixProduct
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.traits import MultipliesMatrices
from tstatic.ir.types import UNKNOWN, Meta, Shape, numel
from tstatic.ops.base.call_ref import CallRef
from tstatic.ops.base.gradients import bilinear_grad
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.shapes import emit_one, view_of
from tstatic.ops.base.sum import dot_calls, dot_scratch
from tstatic.ops.base.torch_out import both, filled, product
from tstatic.ops.matmul import _matmul_onnx as _onnx
from tstatic.ops.matmul._product import (
    SplitAxis,
    cut,
    gradient_calls,
    gradient_scratch_metas,
    multiply,
    product_calls,
    product_cost,
    product_shape,
    same_dtype,
    split_gradient,
    split_product,
    swap,
    tile_count,
)

# A sum of products whose order BLAS chooses; 8 is the bound for single operations.
ULPS = 16.0


def _matmul_infer(x: Meta, y: Meta, trans_x: bool = False, trans_y: bool = False) -> Meta:
    same_dtype(x, y)
    return x.with_shape(product_shape(x, y, trans_x, trans_y))


def _matmul_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Any, *, trans_x: bool = False, trans_y: bool = False
) -> Calls:
    return product_calls(ins[0], ins[1], outs[0], trans_x, trans_y)


def _matmul_lower(torch: Any, x: Any, y: Any, trans_x: bool = False, trans_y: bool = False, *, out: Any = None) -> Any:
    return product(torch, x.mT if trans_x and x.dim() > 1 else x, y.mT if trans_y and y.dim() > 1 else y, out)


def _matmul_grad_lower(
    torch: Any, x: Any, y: Any, dout: Any, trans_x: bool = False, trans_y: bool = False, *, out: Any = None
) -> Any:
    to_x, to_y = both(out)
    trans_x, trans_y = trans_x and x.dim() > 1, trans_y and y.dim() > 1
    # Vectors get an axis of size 1 as views, in the places for results too.
    if x.dim() == 1:
        given = dout[..., None, :] if y.dim() > 1 else dout[None]
        places = None if out is None else (None if to_x is None else to_x[None], to_y)
        dx, dy = _matmul_grad_lower(torch, x[None], y, given, False, trans_y, out=places)
        return (None if dx is None else dx[0]), dy
    if y.dim() == 1:
        places = None if out is None else (to_x, None if to_y is None else to_y[:, None])
        dx, dy = _matmul_grad_lower(torch, x, y[:, None], dout[..., None], trans_x, False, out=places)
        return dx, (None if dy is None else dy[:, 0])
    dx = dy = None
    if out is None or to_x is not None:
        right = y if trans_y else y.mT
        dx = _onto(torch, x, to_x, *((right.mT, dout.mT) if trans_x else (dout, right)))
    if out is None or to_y is not None:
        flat, left = dout, x if trans_x else x.mT
        if x.dim() > 2 and y.dim() == 2:
            # One product over all rows, so that low-precision sums are rounded once.
            left = left.movedim(-2, 0).flatten(1) if trans_x else x.flatten(0, -2).mT
            flat = dout.flatten(0, -2)
        dy = _onto(torch, y, to_y, *((flat.mT, left.mT) if trans_y else (left, flat)))
    return dx, dy


def _onto(torch: Any, like: Any, out: Any, a: Any, b: Any) -> Any:
    """Multiplies, and adds up over the axes along which ``like`` was broadcast."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if (*batch, a.shape[-2], b.shape[-1]) == tuple(like.shape):
        return product(torch, a, b, out)
    # In float32 before the sum: 16-bit products of a long batch would be rounded at each addition.
    return filled(out, torch_wide(torch.matmul(a, b)).sum_to_size(like.shape).to(like.dtype))


def _matmul_grad_cost(x: Meta, y: Meta, dout: Meta, dx: Meta | None, dy: Meta | None, trans_x: bool = False) -> Cost:
    return product_cost(x, y, dout, trans_x).times((dx is not None) + (dy is not None))


# All pairs of vector, matrix and batch, each transposed or not; broadcast batches; every size 0 and 1.
_MATMUL_CASES = (
    Case(((3, 4), (4, 5))),
    Case(((3, 4), (5, 4)), {"trans_y": True}),
    Case(((4, 3), (4, 5)), {"trans_x": True}),
    Case(((4, 3), (5, 4)), {"trans_x": True, "trans_y": True}),
    Case(((4,), (4,))),
    Case(((4,), (4, 3)), {"trans_x": True}),
    Case(((3, 4), (4,)), {"trans_y": True}),
    Case(((4,), (2, 4, 3))),
    Case(((2, 3, 4), (4,))),
    Case(((2, 3, 4), (4, 5))),
    Case(((2, 4, 3), (5, 4)), {"trans_x": True, "trans_y": True}),
    Case(((2, 3, 4), (2, 4, 5))),
    Case(((3, 4), (2, 5, 4)), {"trans_y": True}),
    Case(((2, 1, 3, 4), (5, 4, 2))),
    Case(((1, 4, 3), (2, 4, 2)), {"trans_x": True}),
    Case(((0, 4), (4, 3))),
    Case(((3, 0), (0, 2))),
    Case(((2, 0, 4), (4, 3))),
    Case(((0, 3, 4), (4, 2))),
    Case(((1, 1), (1, 1))),
    Case(((7, 18), (18, 5))),
)


def _matmul_product(x: Meta, y: Meta, trans_x: bool = False, trans_y: bool = False) -> MatrixProduct | None:
    # Only untransposed, the leading axes and the rows are one axis in memory.
    if x.rank < 2 or y.rank != 2 or (trans_x and x.rank > 2):
        return None
    rows, depth = numel(x.shape[:-1]), x.shape[-1]
    rows, depth = (depth, rows) if trans_x else (rows, depth)
    return MatrixProduct(rows, y.shape[0 if trans_y else 1], depth, trans_x, trans_y)


_MATMUL = CallRef(_matmul_calls)
_MATMUL_GRAD = CallRef(gradient_calls, gradient_scratch_metas)

register(OpDef(
    "matmul_v2", "X, Y -> Out", lod="X", attrs={"trans_x": False, "trans_y": False}, infer=_matmul_infer, ref=_MATMUL,
    lower=_matmul_lower, split=split_product, cost=product_cost, traits=(MultipliesMatrices(_matmul_product),),
    grad=GradOp(
        f"X, Y, Out{GRAD} -> X{GRAD}, Y{GRAD}", ref=_MATMUL_GRAD, lower=_matmul_grad_lower, split=split_gradient,
        cost=_matmul_grad_cost, linear_in=("X", "Y"), grad=bilinear_grad("matmul_v2"),
    ),
    amp="white", uses_blas=True, domain=Domain(cases=_MATMUL_CASES, others=("int64", "complex64"), ulps=ULPS),
    complex="holomorphic", onnx=_onnx.matmul,
))  # fmt: skip


_ANY_RANKS = "use matmul, which takes any ranks"


def _bmm_infer(x: Meta, y: Meta) -> Meta:
    same_dtype(x, y)
    check_rank(x, 3, "X", layout="[b, m, k]", fix=_ANY_RANKS)
    check_rank(y, 3, "Y", layout="[b, k, n]", fix=_ANY_RANKS)
    check_fit(
        same_shape(x.shape[:1], y.shape[:1]), (x, y), ("X", "Y"), "X and Y of bmm hold different numbers of matrices",
        f"{x.shape[0]} matrices in Y", "use matmul, which broadcasts",
    )  # fmt: skip
    return x.with_shape((y.shape[0] if x.shape[0] == UNKNOWN else x.shape[0], *product_shape(x, y)[1:]))


def _mv_infer(x: Meta, vec: Meta) -> Meta:
    same_dtype(x, vec, ("X", "Vec"))
    check_rank(x, 2, "X", layout="[m, k]", fix=_ANY_RANKS)
    check_rank(vec, 1, "Vec", layout="[k]", fix=_ANY_RANKS)
    return x.with_shape(product_shape(x, vec))


# bmm and mv have no attributes: their operands are taken as they are.
_PLAIN = CallRef(_matmul_calls, attrs=())
_PLAIN_GRAD = CallRef(gradient_calls, gradient_scratch_metas, attrs=())


def _plain_grad(second: str, type: str) -> GradOp:
    return GradOp(
        f"X, {second}, Out{GRAD} -> X{GRAD}, {second}{GRAD}",
        ref=_PLAIN_GRAD,
        lower=_matmul_grad_lower,
        split=lambda x, y, dout, dx, dy: split_gradient(x, y, dout, dx, dy),
        cost=_matmul_grad_cost,
        linear_in=("X", second),
        grad=bilinear_grad(type, "X", second),
    )


def _whole_write(op: PaddleOp) -> list[OpSpec]:
    """Paddle multiplies whole numbers in its general product only."""
    names = [name for row in op.inputs.values() for name in row]
    if not op.dtypes[names[0]].is_integer:
        return [op.made()]
    inputs = {"X": names[:1], "Y": names[1:]}
    return [op.made("matmul_v2", inputs=inputs, attrs={"trans_x": False, "trans_y": False})]


register(OpDef(
    "bmm", "X, Y -> Out", infer=_bmm_infer, ref=_PLAIN, lower=lambda torch, x, y, *, out=None: torch.bmm(x, y, out=out),
    split=split_product,
    cost=product_cost, grad=_plain_grad("Y", "bmm"), uses_blas=True, paddle=PaddleForm(write=_whole_write),
    domain=Domain(
        cases=(
            Case(((2, 3, 4), (2, 4, 5))), Case(((1, 3, 4), (1, 4, 1))), Case(((0, 3, 4), (0, 4, 5))),
            Case(((2, 0, 4), (2, 4, 5))), Case(((2, 3, 0), (2, 0, 5))), Case(((1, 1, 1), (1, 1, 1))),
            Case(((3, 7, 18), (3, 18, 5))),
        ),
        others=("int64", "complex64"), ulps=ULPS,
    ),
    complex="holomorphic", onnx=lambda g, x, y: g("MatMul", x, y),
))  # fmt: skip

register(OpDef(
    "mv", "X, Vec -> Out", infer=_mv_infer, ref=_PLAIN, lower=lambda torch, x, vec, *, out=None: torch.mv(x, vec, out=out),
    cost=product_cost,
    grad=_plain_grad("Vec", "mv"), uses_blas=True, paddle=PaddleForm(write=_whole_write),
    domain=Domain(
        cases=(
            Case(((3, 4), (4,))), Case(((1, 4), (4,))), Case(((3, 1), (1,))), Case(((0, 4), (4,))),
            Case(((3, 0), (0,))), Case(((7, 18), (18,))),
        ),
        others=("int64", "complex64"), ulps=ULPS,
    ),
    complex="holomorphic", onnx=lambda g, x, vec: g("MatMul", x, vec),
))  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- functions
@export("tensor.matmul", "Variable.matmul", op="matmul_v2")
def matmul(
    x: Variable, y: Variable, transpose_x: bool = False, transpose_y: bool = False, name: str | None = None
) -> Variable:
    """Returns the matrix product of the last two axes; the axes before them are a batch and broadcast.

    Args:
        x: ``[..., m, k]``, or ``[k]``.
        y: ``[..., k, n]``, or ``[k]``.
        transpose_x: ``x`` is ``[..., k, m]``; without effect on a vector.
        transpose_y: ``y`` is ``[..., n, k]``; without effect on a vector.
        name: Name of the layer.

    Returns:
        ``[..., m, n]``, without ``m`` or ``n`` where the operand was a vector; ``[]`` for two vectors.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = paddle.matmul(x, x, transpose_y=True)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 5., 11.],
               [11., 25.]], dtype=float32)
    """
    ins = {"X": check_variable(x, "x", "matmul"), "Y": check_variable(y, "y", "matmul")}
    return emit_one("matmul_v2", ins, {"trans_x": transpose_x, "trans_y": transpose_y}, name=name)


@export("Variable.__matmul__", op="matmul_v2")
def matmul_operator(x: Variable, y: Variable) -> Variable:
    """Returns ``x @ y``; see :func:`matmul`.

    Args:
        x, y: As in :func:`matmul`, with its errors.
    """
    return matmul(x, y)


@export("tensor.mm", "Variable.mm", op="matmul_v2")
def mm(input: Variable, mat2: Variable, name: str | None = None) -> Variable:
    """Returns the matrix product of ``input`` ``[m, k]`` and ``mat2`` ``[k, n]``.

    Args:
        input, mat2: Matrices of one dtype.
        name: Name of the layer.
    """
    ins = {"X": check_variable(input, "input", "mm"), "Y": check_variable(mat2, "mat2", "mm")}
    return emit_one("matmul_v2", ins, name=name, prefix="mm")


@export("fluid.layers.matmul", op="matmul_v2")
def fluid_matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Returns ``alpha`` times the matrix product; two vectors give shape ``[1]``. See :func:`matmul`.

    A transposed vector is a column as ``x`` and a row as ``y``.

    Args:
        x, y, transpose_x, transpose_y: As in :func:`matmul`, but for vectors.
        alpha: A number that the product is multiplied by.
        name: Name of the layer.

    Raises:
        ShapeError: If the width of ``x`` is not the height of ``y``, or the batches do not broadcast.

    Example:
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> y = fluid.layers.matmul(x, x, transpose_y=True, alpha=10.0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([[ 50., 110.],
               [110., 250.]], dtype=float32)
    """
    # A transposed vector is a column in Paddle 1.x, and does nothing in 2.x.
    if transpose_x and isinstance(x, Variable) and len(x.shape) == 1:
        x, transpose_x = emit_one("unsqueeze2", {"X": x}, {"axes": (1,)}), False
    if transpose_y and isinstance(y, Variable) and len(y.shape) == 1:
        y, transpose_y = emit_one("unsqueeze2", {"X": y}, {"axes": (0,)}), False
    out = matmul(x, y, transpose_x, transpose_y, name)
    if alpha != 1.0:
        out = emit_one("scale", {"X": out}, {"scale": float(alpha)})
    # Paddle 1.x has no shape [].
    return out if out.shape else emit_one("reshape2", {"X": out}, {"shape": (1,)})


@export("tensor.bmm", "Variable.bmm", "fluid.layers.bmm", op="bmm")
def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the products ``[b, m, n]`` of the matrices in ``x`` ``[b, m, k]`` and ``y`` ``[b, k, n]``.

    Args:
        x, y: Batches of as many matrices, of one dtype.
        name: Name of the layer.
    """
    return emit_one("bmm", {"X": check_variable(x, "x", "bmm"), "Y": check_variable(y, "y", "bmm")}, name=name)


@export("tensor.mv", "Variable.mv", op="mv")
def mv(x: Variable, vec: Variable, name: str | None = None) -> Variable:
    """Returns the product ``[m]`` of the matrix ``x`` ``[m, k]`` and the vector ``vec`` ``[k]``.

    Args:
        x, vec: Of one dtype.
        name: Name of the layer.
    """
    return emit_one("mv", {"X": check_variable(x, "x", "mv"), "Vec": check_variable(vec, "vec", "mv")}, name=name)


# ------------------------------------------------------------------------------------------------------------------ mul
def _flat(shape: Shape, columns: int) -> tuple[int, int]:
    """Returns rows and columns of a value that is read as a matrix whose rows begin at axis ``columns``."""
    return numel(shape[:columns]), numel(shape[columns:])


def _mul_product(x: Meta, y: Meta, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> MatrixProduct:
    rows, depth = _flat(x.shape, x_num_col_dims)
    return MatrixProduct(rows, _flat(y.shape, y_num_col_dims)[1], depth)


def _mul_infer(x: Meta, y: Meta, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> Meta:
    same_dtype(x, y)
    for name, meta, columns in (("X", x, x_num_col_dims), ("Y", y, y_num_col_dims)):
        check_rank(meta, range(2, ANY_RANK), name, layout="to be flattened to a matrix")
        check_int(columns, f"{name.lower()}_num_col_dims", least=1, most=meta.rank - 1)
    width, height = _flat(x.shape, x_num_col_dims)[1], _flat(y.shape, y_num_col_dims)[0]
    check_fit(
        width == height or UNKNOWN in (width, height), (x, y), ("X", "Y"),
        f"X, flattened at axis {x_num_col_dims}, has {width} columns, Y, flattened at axis {y_num_col_dims}, has {height} rows",
        "as many columns as rows", "check the sizes and num_col_dims of both",
    )  # fmt: skip
    return x.with_shape((*x.shape[:x_num_col_dims], *y.shape[y_num_col_dims:]))


def _matrices(arrays: Sequence[Any], columns: Sequence[int]) -> list[Any] | None:
    """Returns each array as a matrix view (``None`` stays), or ``None`` if one would need a copy."""
    views = [None if a is None else view_of(a, _flat(a.shape, c)) for a, c in zip(arrays, columns, strict=True)]
    return None if any(v is None and a is not None for v, a in zip(views, arrays, strict=True)) else views


def _mul_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Any, *, x_num_col_dims: int, y_num_col_dims: int
) -> Calls:
    views = _matrices((*ins, *outs), (x_num_col_dims, y_num_col_dims, x_num_col_dims))
    if views is None:
        return [(_mul_copying, (*ins, *outs, x_num_col_dims, y_num_col_dims))]
    return multiply(*views)


def _mul_copying(x: Any, y: Any, out: Any, x_columns: int, y_columns: int) -> None:
    """Multiplies by way of copies: for strides whose axes cannot be merged in place."""
    product = np.matmul(x.reshape(_flat(x.shape, x_columns)), y.reshape(_flat(y.shape, y_columns)))
    np.copyto(out, product.reshape(out.shape))


def _mul_grad_calls(
    ins: Sequence[Any], outs: Sequence[Any], scratch: Any, *, x_num_col_dims: int, y_num_col_dims: int
) -> Calls:
    cols = (x_num_col_dims, y_num_col_dims, x_num_col_dims, x_num_col_dims, y_num_col_dims)
    views = _matrices((*ins, *outs), cols)
    if views is None:
        return [(_mul_grad_copying, (ins, outs, x_num_col_dims, y_num_col_dims))]
    x, y, dout, dx, dy = views
    calls: Calls = []
    if dx is not None:
        calls += multiply(dout, swap(y), dx)
    if dy is not None:
        calls += multiply(swap(x), dout, dy)
    return calls


def _mul_grad_copying(ins: Sequence[Any], outs: Sequence[Any], x_columns: int, y_columns: int) -> None:
    x, y, dout = ins
    dx, dy = outs
    grads = dout.reshape(_flat(dout.shape, x_columns))
    if dx is not None:
        np.copyto(dx, (grads @ y.reshape(_flat(y.shape, y_columns)).T).reshape(dx.shape))
    if dy is not None:
        np.copyto(dy, (x.reshape(_flat(x.shape, x_columns)).T @ grads).reshape(dy.shape))


def _mul_lower(torch: Any, x: Any, y: Any, x_num_col_dims: int = 1, y_num_col_dims: int = 1, *, out: Any = None) -> Any:
    x2, y2 = x.reshape(_flat(x.shape, x_num_col_dims)), y.reshape(_flat(y.shape, y_num_col_dims))
    found = product(torch, x2, y2, None if out is None else out.view(x2.shape[0], y2.shape[1]))
    return found.reshape(*x.shape[:x_num_col_dims], *y.shape[y_num_col_dims:])


def _mul_grad_lower(
    torch: Any, x: Any, y: Any, dout: Any, x_num_col_dims: int = 1, y_num_col_dims: int = 1, *, out: Any = None
) -> Any:
    to_x, to_y = both(out)
    x2, y2 = x.reshape(_flat(x.shape, x_num_col_dims)), y.reshape(_flat(y.shape, y_num_col_dims))
    flat = dout.reshape(x2.shape[0], y2.shape[1])
    dx = dy = None
    if out is None or to_x is not None:
        dx = torch.mm(flat, y2.mT, out=None if to_x is None else to_x.view(x2.shape)).reshape(x.shape)
    if out is None or to_y is not None:
        dy = torch.mm(x2.mT, flat, out=None if to_y is None else to_y.view(y2.shape)).reshape(y.shape)
    return dx, dy


def _mul_cost(x: Meta, y: Meta, out: Meta, x_num_col_dims: int = 1) -> Cost:
    return Cost(2.0 * out.numel * _flat(x.shape, x_num_col_dims)[1], float(x.nbytes + y.nbytes + out.nbytes))


def _mul_split(x: Meta, y: Meta, out: Meta, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> list[Tile] | None:
    if out.numel <= 0:
        return None
    rows, columns = _flat(out.shape, x_num_col_dims)
    one = y.rank - y_num_col_dims == 1
    candidates = [
        # Of several axes the first is cut, and each of its elements is a run of columns: it needs no alignment.
        SplitAxis(columns, x_num_col_dims, WHOLE, y_num_col_dims, 16 if one else 1),
        SplitAxis(rows, 0, 0, WHOLE, 16 if x_num_col_dims == 1 else 1),
    ]
    found = cut(out, _mul_cost(x, y, out, x_num_col_dims).flops, candidates, lambda *slots: slots)
    return found if len(found) > 1 else None


def _mul_grad_split(
    x: Meta, y: Meta, dout: Meta, dx: Meta | None, dy: Meta | None, x_num_col_dims: int = 1, y_num_col_dims: int = 1
) -> list[Tile] | None:
    if dout.numel <= 0:
        return None
    rows, columns = _flat(dout.shape, x_num_col_dims)
    inner = _flat(x.shape, x_num_col_dims)[1]
    flops = 2.0 * rows * columns * inner
    if tile_count(flops * ((dx is not None) + (dy is not None))) == 1:
        return None
    # The summed axes can be cut only when both operands have one of them.
    single = x.rank - x_num_col_dims == 1 and y_num_col_dims == 1
    found: list[Tile] = []
    if dx is not None:
        candidates = [SplitAxis(rows, 0, 0, WHOLE, 16 if x_num_col_dims == 1 else 1)]
        candidates += [SplitAxis(inner, -1, WHOLE, 0)] if single else []
        found += cut(dx, flops, candidates, lambda a, b, out: (None, b, a, out, None))
    if dy is not None:
        one = y.rank - y_num_col_dims == 1
        candidates = [SplitAxis(columns, y_num_col_dims, WHOLE, x_num_col_dims, 16 if one else 1)]
        candidates += [SplitAxis(inner, 0, -1, WHOLE)] if single else []
        found += cut(dy, flops, candidates, lambda a, b, out: (a, None, b, None, out))
    return found if len(found) > 1 else None


def _mul_grad_cost(x: Meta, y: Meta, dout: Meta, dx: Meta | None, dy: Meta | None, x_num_col_dims: int = 1) -> Cost:
    return _mul_cost(x, y, dout, x_num_col_dims).times((dx is not None) + (dy is not None))


_MUL = CallRef(_mul_calls)
_MUL_GRAD = CallRef(_mul_grad_calls)

register(OpDef(
    "mul", "X, Y -> Out", lod="X", attrs={"x_num_col_dims": 1, "y_num_col_dims": 1}, infer=_mul_infer, ref=_MUL,
    lower=_mul_lower, split=_mul_split, cost=_mul_cost, traits=(MultipliesMatrices(_mul_product),),
    grad=GradOp(
        f"X, Y, Out{GRAD} -> X{GRAD}, Y{GRAD}", ref=_MUL_GRAD, lower=_mul_grad_lower, split=_mul_grad_split,
        cost=_mul_grad_cost, linear_in=("X", "Y"), grad=bilinear_grad("mul"),
    ),
    amp="white", uses_blas=True,
    domain=Domain(
        cases=(
            Case(((3, 4), (4, 5))), Case(((3, 2, 2), (4, 5))), Case(((2, 3, 4), (4, 5)), {"x_num_col_dims": 2}),
            Case(((2, 3, 4), (3, 4, 2)), {"y_num_col_dims": 2}), Case(((2, 6), (2, 3, 2, 2)), {"y_num_col_dims": 2}),
            Case(((0, 4), (4, 3))), Case(((3, 0), (0, 2))), Case(((2, 0, 4), (4, 3)), {"x_num_col_dims": 2}),
            Case(((1, 1), (1, 1))), Case(((7, 18), (18, 5))),
        ),
        others=("int64",), ulps=16.0,
    ),
    complex="holomorphic", onnx=_onnx.mul,
))  # fmt: skip


@export("fluid.layers.mul", op="mul")
def mul(
    x: Variable, y: Variable, x_num_col_dims: int = 1, y_num_col_dims: int = 1, name: str | None = None
) -> Variable:
    """Returns the matrix product of ``x`` and ``y``, both flattened to matrices first.

    Args:
        x: ``[a..., k...]`` with ``x_num_col_dims`` axes before the ``k``.
        y: ``[k..., b...]`` with ``y_num_col_dims`` axes before the ``b``.
        x_num_col_dims: How many leading axes of ``x`` are rows.
        y_num_col_dims: How many leading axes of ``y`` are summed.
        name: Name of the layer.

    Returns:
        ``[a..., b...]``.

    Example:
        >>> x = static.data("x", [None, 2, 2])
        >>> w = paddle.ones([4, 3])
        >>> y = fluid.layers.mul(x, w)
        >>> static.Executor().run(feed={"x": np.arange(8, dtype="float32").reshape(2, 2, 2)}, fetch_list=[y])[0]
        array([[ 6.,  6.,  6.],
               [22., 22., 22.]], dtype=float32)
    """
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return emit_one("mul", {"X": check_variable(x, "x", "mul"), "Y": check_variable(y, "y", "mul")}, attrs, name=name)


# ------------------------------------------------------------------------------------------------------------------ dot
def _dot_infer(x: Meta, y: Meta) -> Meta:
    same_dtype(x, y)
    check_fit(
        x.rank in (1, 2) and same_shape(x.shape, y.shape), (x, y), ("X", "Y"),
        "X and Y of dot should be two vectors, or two batches of vectors, of one shape", "equal shapes of rank 1 or 2",
        "use matmul for matrix products",
    )  # fmt: skip
    return x.with_shape(max(a, b) for a, b in zip(x.shape[:-1], y.shape[:-1], strict=True))


def _dot_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
    return dot_calls(ins[0], ins[1], outs[0], scratch)


def _dot_lower(torch: Any, x: Any, y: Any) -> Any:
    # torch's vecdot takes no integers.
    return torch.linalg.vecdot(x, y) if x.is_floating_point() and x.numel() else (x * y).sum(-1)


def _dot_grad_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Any) -> Calls:
    x, y, dout = ins
    pairs = ((y, outs[0]), (x, outs[1]))
    return [(np.multiply, (dout[..., None], other, target)) for other, target in pairs if target is not None]


# A long dot is added up in blocks; see `_sum.DOT`.
_DOT = CallRef(_dot_calls, lambda ins, outs: dot_scratch(ins[0]))
_DOT_GRAD = CallRef(_dot_grad_calls)

register(OpDef(
    "dot", "X, Y -> Out", infer=_dot_infer, ref=_DOT, lower=_dot_lower,
    cost=lambda x, y, out: Cost(2.0 * x.numel, float(x.nbytes + y.nbytes)),
    grad=GradOp(
        f"X, Y, Out{GRAD} -> X{GRAD}, Y{GRAD}", ref=_DOT_GRAD,
        lower=lambda torch, x, y, dout: (dout[..., None] * y, dout[..., None] * x), grad=bilinear_grad("dot"),
    ),
    uses_blas=True,
    domain=Domain(
        cases=(
            Case(((4,), (4,))), Case(((1,), (1,))), Case(((0,), (0,))), Case(((3, 4), (3, 4))), Case(((0, 4), (0, 4))),
            Case(((3, 0), (3, 0))), Case(((2, 1300), (2, 1300))),
        ),
        others=("int64",), ulps=16.0,
    ),
    complex="holomorphic", onnx=_onnx.dot,
))  # fmt: skip


@export("tensor.dot", "Variable.dot", op="dot")
def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the inner product ``[]`` of two vectors ``[k]``, or ``[b]`` of two batches ``[b, k]``.

    Args:
        x, y: Of one shape and dtype.
        name: Name of the layer.
    """
    return emit_one("dot", {"X": check_variable(x, "x", "dot"), "Y": check_variable(y, "y", "dot")}, name=name)
