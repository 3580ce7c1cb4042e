"""Selecting by truth: masked_select, nonzero, masked_fill."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.build import as_variable, check_variable
from tstatic.ir.checks import check_dtype, check_same_dtype
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Meta, broadcast_shapes, int64
from tstatic.ops.base.gradients import grad_is_forward_op
from tstatic.ops.base.shapes import ANY, Array, emit_one, spread_axes
from tstatic.ops.indexing import _indexing_onnx as _onnx


# ------------------------------------------------------------------------------------------------------- masked_select
def _infer(x: Meta, mask: Meta) -> Meta:
    check_dtype(mask, ("bool",), "Mask")
    broadcast_shapes(x.shape, mask.shape)
    return x.with_shape((UNKNOWN,))


def _ref(x: Array, mask: Array, y: Array | None) -> list[Array]:
    if x.shape != mask.shape:
        x, mask = np.broadcast_arrays(x, mask)
    return [x[mask].reshape(-1)]


def _back(x: Array, mask: Array, dy: Array, dx: Array) -> None:
    if mask.shape == dx.shape:
        dx.fill(0)
        dx[mask] = dy
        return
    shape = np.broadcast_shapes(dx.shape, mask.shape)
    # A value that was broadcast gets a sum; in 16 bits that is made in float32 and rounded once.
    wide = np.zeros(shape, dy.dtype if dy.dtype.itemsize > 2 else np.float32)
    wide[np.broadcast_to(mask, shape)] = dy
    np.copyto(dx, wide.sum(axis=spread_axes(shape, dx.shape)).reshape(dx.shape), casting="unsafe")


def _lower_back(torch: Any, x: Any, mask: Any, dy: Any) -> Any:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    wide = torch.zeros(shape, dtype=dy.dtype, device=dy.device).masked_scatter(mask.expand(shape), dy)
    return wide.sum_to_size(tuple(x.shape))


register(OpDef(
    "masked_select", "X, Mask -> Y", infer=_infer, ref=_ref, lower=lambda torch, x, mask: torch.masked_select(x, mask),
    grad=GradOp(
        "X, Mask, Y@GRAD -> X@GRAD", ref=_back, lower=_lower_back, shape_only=("X",),
        grad=grad_is_forward_op("masked_select", "X", "Y", ("Mask",)),
    ),
    dynamic=Dynamic("the elements where the mask is true", free=("X",)),
    domain=Domain(
        cases=(
            Case(((3, 4), (3, 4))), Case(((7,), (7,))), Case(((2, 3, 2), (3, 1))), Case(((3, 1), (3, 4))),
            Case(((0, 3), (0, 3))), Case(((), ())),
        ),
        values={"Mask": ValueRange(dtype="bool")}, others=ANY,
    ),
    complex="linear", onnx=_onnx.masked_select,
))  # fmt: skip


@export("tensor.masked_select", "Variable.masked_select", op="masked_select")
def masked_select(x: Variable, mask: Variable, name: str | None = None) -> Variable:
    """Returns the elements of ``x`` where ``mask`` (bool; shapes broadcast) is true, as a vector of unknown length.

    Args:
        x: ``[...]``, any dtype.
        mask: bool, of a shape that broadcasts with that of ``x``.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([[1.0, -2.0], [-3.0, 4.0]])
        >>> y = paddle.masked_select(x, x > 0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 4.], dtype=float32)
    """
    x = check_variable(x, "x", "masked_select")
    inputs = {"X": x, "Mask": check_variable(mask, "mask", "masked_select", ("bool",))}
    return emit_one("masked_select", inputs, name=name)


# --------------------------------------------------------------------------------------------------------- where_index
register(OpDef(
    "where_index", "Condition -> Out", infer=lambda x: Meta((UNKNOWN, x.rank), int64),
    # argwhere drops the axis of coordinates of a 0-d value.
    ref=lambda x, out: [np.stack(np.nonzero(x), 1) if x.ndim else np.empty((int(bool(x)), 0), np.int64)],
    lower=lambda torch, x: torch.nonzero(x), dynamic=Dynamic("the elements that are not zero"),
    domain=Domain(
        cases=(Case(((3, 4),)), Case(((7,),)), Case(((2, 2, 3),)), Case(((0, 3),)), Case(((),)), Case(((1, 1),))),
        others=ANY, ulps=0,
    ),
    complex="linear", onnx=_onnx.where_index,
))  # fmt: skip


@export("tensor.nonzero", "Variable.nonzero", op="where_index")
def nonzero(x: Variable, as_tuple: bool = False) -> Any:
    """Returns the coordinates of the elements that are not zero.

    Args:
        x: ``[...]``, any dtype.
        as_tuple: Give one ``[n, 1]`` Variable for each axis instead.

    Returns:
        ``[n, rank]``, int64, in the order of the elements; ``n`` is known when the program runs.
    """
    x = check_variable(x, "x", "nonzero")
    found = emit_one("where_index", {"Condition": x})
    if not as_tuple:
        return found
    rank = len(x.shape)
    # As in Paddle: of a vector, [n, 1] itself, not a column of it.
    if rank == 1:
        return (found,)
    columns = [{"axes": [1], "starts": [i], "ends": [i + 1], "infer_flags": [1]} for i in range(rank)]
    return tuple(emit_one("slice", {"Input": found}, attrs) for attrs in columns)


@export("fluid.layers.where", op="where_index")
def fluid_where(condition: Variable) -> Variable:
    """Returns the coordinates of the true elements, as :func:`nonzero` gives them."""
    return emit_one("where_index", {"Condition": check_variable(condition, "condition", "where")})


# --------------------------------------------------------------------------------------------------------- masked_fill
@export("tensor.masked_fill", "Variable.masked_fill", op="where")
def masked_fill(x: Variable, mask: Variable, value: Any, name: str | None = None) -> Variable:
    """Replaces ``x`` by ``value`` (a number or a Variable of one element) where ``mask`` (bool) is true; shapes broadcast.

    Args:
        x: ``[...]``, any dtype.
        mask: bool, of a shape that broadcasts with that of ``x``.
        value: A number, or a Variable of one element of the dtype of ``x``.
        name: Name of the layer.

    Raises:
        DTypeError: If the mask is not bool.
        ShapeError: If the shapes do not broadcast.
    """
    x = check_variable(x, "x", "masked_fill")
    mask = check_variable(mask, "mask", "masked_fill", ("bool",))
    # A number takes x's dtype; a Variable keeps its own, which the check compares.
    filler = as_variable(value, like=x)
    check_same_dtype((x, filler), ("x", "value"), "masked_fill")
    return emit_one("where", {"Condition": mask, "X": filler, "Y": x}, name=name)


@export("tensor.masked_fill_", "Variable.masked_fill_", op="where")
def masked_fill_(x: Variable, mask: Variable, value: Any, name: str | None = None) -> Variable:
    """Does the same as :func:`masked_fill`: a program's values are never changed in place.

    Args:
        x, mask, value, name: As in :func:`masked_fill`.
    """
    return masked_fill(x, mask, value, name)
