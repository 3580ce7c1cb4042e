"""``mul``: the product of two values that are read as matrices, as ``fc`` uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import GRAD, WHOLE, Case, Cost, Domain, GradOp, OpDef, Tile, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import UNKNOWN, Meta, Shape, numel
from tstatic.ops._call_ref import CallRef
from tstatic.ops._gradients import bilinear_grad
from tstatic.ops.matmul._product import SplitAxis, cut, multiply, pieces_of, same_dtype, swap
from tstatic.ops.shape._shapes import emit_one, view_of


def _flat(shape: Shape, columns: int) -> tuple[int, int]:
    """Rows and columns of a value that is read as a matrix whose rows begin at axis ``columns``."""
    return numel(shape[:columns]), numel(shape[columns:])


def _mul_infer(x: Meta, y: Meta, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> Meta:
    same_dtype(x, y)
    for name, meta, columns in (("X", x, x_num_col_dims), ("Y", y, y_num_col_dims)):
        if not 0 < columns < meta.rank:
            raise ShapeError(
                f"{name} of rank {meta.rank} cannot be flattened to a matrix at axis {columns}",
                expected=f"{name.lower()}_num_col_dims from 1 to the rank of {name} less 1",
                received=f"{name} of shape {list(meta.shape)}, {name.lower()}_num_col_dims {columns}",
                fix=f"reshape {name}, or choose another {name.lower()}_num_col_dims",
            )
    width, height = _flat(x.shape, x_num_col_dims)[1], _flat(y.shape, y_num_col_dims)[0]
    if width != height and UNKNOWN not in (width, height):
        raise ShapeError(
            "the flattened X has another width than the flattened Y has height",
            expected=f"a height of {width} in Y",
            received=f"X of shape {list(x.shape)} cut at {x_num_col_dims}, Y of shape {list(y.shape)} cut at {y_num_col_dims}",
            fix="check the sizes and num_col_dims of both",
        )
    return x.with_shape((*x.shape[:x_num_col_dims], *y.shape[y_num_col_dims:]))


def _matrices(arrays: Sequence[Any], columns: Sequence[int]) -> list[Any] | None:
    """Each array as a matrix view (``None`` stays), or ``None`` if one would need a copy."""
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
    """For strides whose axes cannot be merged in place."""
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


def _mul_lower(torch: Any, x: Any, y: Any, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> Any:
    product = x.reshape(_flat(x.shape, x_num_col_dims)) @ y.reshape(_flat(y.shape, y_num_col_dims))
    return product.reshape(*x.shape[:x_num_col_dims], *y.shape[y_num_col_dims:])


def _mul_grad_lower(torch: Any, x: Any, y: Any, dout: Any, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> Any:
    x2, y2 = x.reshape(_flat(x.shape, x_num_col_dims)), y.reshape(_flat(y.shape, y_num_col_dims))
    flat = dout.reshape(x2.shape[0], y2.shape[1])
    return (flat @ y2.mT).reshape(x.shape), (x2.mT @ flat).reshape(y.shape)


def _mul_cost(x: Meta, y: Meta, out: Meta, x_num_col_dims: int = 1) -> Cost:
    return Cost(2.0 * out.numel * _flat(x.shape, x_num_col_dims)[1], float(x.nbytes + y.nbytes + out.nbytes))


def _mul_split(x: Meta, y: Meta, out: Meta, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> list[Tile] | None:
    if out.numel <= 0:
        return None
    rows, columns = _flat(out.shape, x_num_col_dims)
    one = y.rank - y_num_col_dims == 1
    candidates = [
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
    if pieces_of(flops * ((dx is not None) + (dy is not None))) == 1:
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
    one = _mul_cost(x, y, dout, x_num_col_dims)
    wanted = (dx is not None) + (dy is not None)
    return Cost(one.flops * wanted, one.bytes * wanted)


_MUL = CallRef(_mul_calls)
_MUL_GRAD = CallRef(_mul_grad_calls)

register(
    OpDef(
        "mul",
        "X, Y -> Out",
        attrs={"x_num_col_dims": 1, "y_num_col_dims": 1},
        infer=_mul_infer,
        ref=_MUL,
        lower=_mul_lower,
        split=_mul_split,
        cost=_mul_cost,
        grad=GradOp(
            f"X, Y, Out{GRAD} -> X{GRAD}, Y{GRAD}",
            ref=_MUL_GRAD,
            lower=_mul_grad_lower,
            split=_mul_grad_split,
            cost=_mul_grad_cost,
            linear_in=("X", "Y"),
            grad=bilinear_grad("mul"),
        ),
        amp="white",
        uses_blas=True,
        domain=Domain(
            cases=(
                Case(((3, 4), (4, 5))),
                Case(((3, 2, 2), (4, 5))),
                Case(((2, 3, 4), (4, 5)), {"x_num_col_dims": 2}),
                Case(((2, 3, 4), (3, 4, 2)), {"y_num_col_dims": 2}),
                Case(((2, 6), (2, 3, 2, 2)), {"y_num_col_dims": 2}),
                Case(((0, 4), (4, 3))),
                Case(((3, 0), (0, 2))),
                Case(((2, 0, 4), (4, 3)), {"x_num_col_dims": 2}),
                Case(((1, 1), (1, 1))),
                Case(((7, 18), (18, 5))),
            ),
            others=("int64",),
            ulps=16.0,
        ),
    )
)


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
