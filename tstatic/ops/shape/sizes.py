"""The shape, the number of elements and the rank of a value, as values."""

from __future__ import annotations

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import as_variable, check_variable
from tstatic.ir.opdef import Case, Domain, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Call
from tstatic.ir.types import Meta, int32, int64
from tstatic.ops._call_ref import copies
from tstatic.ops.shape._shapes import Array, copy, emit_one
from tstatic.ops.shape.reshape import ANY

MOST = 2**31 - 1
_SHAPES = ((3, 4), (), (0, 3), (5,), (1, 2, 3), (2, 0))


def _infer_shape(x: Meta) -> Meta:
    if any(s > MOST for s in x.shape):
        raise ShapeError(
            "a size does not fit the int32 values that shape gives",
            expected=f"sizes of at most {MOST}",
            received=list(x.shape),
            fix="use paddle.numel, which gives an int64, or divide the value into smaller ones",
        )
    return Meta((x.rank,), int32)


def _shape_calls(x: Array, out: Array) -> list[Call]:
    return [copy(out, np.array(x.shape, out.dtype))]


register(
    OpDef(
        "shape",
        "Input -> Out",
        infer=_infer_shape,
        ref=copies(_shape_calls),
        lower=lambda torch, x: torch.tensor(tuple(x.shape), dtype=torch.int32, device=x.device),
        shape_only=("Input",),
        domain=Domain(cases=tuple(Case((s,)) for s in _SHAPES), others=ANY, ulps=0),
    )
)


@export("tensor.shape", "fluid.layers.shape", op="shape")
def shape(input: Variable) -> Variable:
    """The shape when the program runs: ``[rank]``, int32.

    Raises:
        ShapeError: If a size is above ``2**31 - 1``.

    Example:
        >>> x = static.data("x", [None, 3])
        >>> size = paddle.shape(x)
        >>> static.Executor().run(feed={"x": np.zeros((5, 3), "float32")}, fetch_list=[size])[0]
        array([5, 3], dtype=int32)
    """
    return emit_one("shape", {"Input": check_variable(input, "input", "shape")})


def _size_calls(x: Array, out: Array) -> list[Call]:
    return [copy(out, x.size)]


register(
    OpDef(
        "size",
        "Input -> Out",
        infer=lambda x: Meta((), int64),
        ref=copies(_size_calls),
        lower=lambda torch, x: torch.tensor(x.numel(), device=x.device),
        shape_only=("Input",),
        domain=Domain(cases=tuple(Case((s,)) for s in _SHAPES), others=ANY, ulps=0),
    )
)


@export("tensor.numel", "Variable.numel", "Variable.size", op="size")
def numel(x: Variable, name: str | None = None) -> Variable:
    """The number of elements when the program runs: a 0-d int64."""
    return emit_one("size", {"Input": check_variable(x, "x", "numel")}, name=name, prefix="numel")


@export("fluid.layers.size", op="size")
def fluid_size(input: Variable) -> Variable:
    """The number of elements when the program runs, as :func:`numel`."""
    return numel(input)


@export("tensor.rank", "Variable.rank", "fluid.layers.rank")
def rank(input: Variable) -> Variable:
    """The number of dimensions, as a 0-d int32."""
    return as_variable(len(check_variable(input, "input", "rank").shape), dtype="int32")
