"""Forms in ONNX of matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tstatic.ir.onnx_graph import Graph, Value
from tstatic.ir.types import UNKNOWN


def _swapped(g: Graph, x: Value, wanted: bool) -> Value:
    # A vector has nothing to swap: `trans_x` does nothing to it, as in torch.
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2] if x.rank > 1 else [0]
    return g.transpose(x, order) if wanted else x


def matmul(g: Graph, x: Value, y: Value, *, trans_x: bool, trans_y: bool) -> Value:
    return g("MatMul", _swapped(g, x, trans_x), _swapped(g, y, trans_y))


def _matrix(g: Graph, x: Value, columns: int) -> Value:
    """Flattens a value to a matrix at an axis."""
    if x.rank == 2:
        return x
    halves = x.shape[:columns], x.shape[columns:]
    sizes = [UNKNOWN if UNKNOWN in half else math.prod(half) for half in halves]
    return g("Flatten", x, axis=columns) if UNKNOWN in sizes else g.reshape(x, sizes)


def mul(g: Graph, x: Value, y: Value, *, x_num_col_dims: int, y_num_col_dims: int) -> Value:
    if y.rank == 2 and x_num_col_dims == x.rank - 1:
        # MatMul keeps the leading axes by itself.
        return g("MatMul", x, y)
    product = g("MatMul", _matrix(g, x, x_num_col_dims), _matrix(g, y, y_num_col_dims))
    target: Sequence[int] = g.outs[0].shape
    if target.count(UNKNOWN) <= 1:
        # More than one open size: the shape is put together when the model runs.
        return g.reshape(product, target)
    return g("Reshape", product, g.join([g.sizes(x, 0, x_num_col_dims), g.sizes(y, y_num_col_dims, y.rank)]))


def dot(g: Graph, x: Value, y: Value) -> Value:
    wide = g.wide(x), g.wide(y)
    return g("ReduceSum", g.mul(*wide), g.ints([-1]), keepdims=0)
