"""``dot``: inner products of vectors, and what is composed of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import GRAD, Case, Cost, Domain, GradOp, OpDef, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Calls
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops._call_ref import CallRef
from tstatic.ops._gradients import bilinear_grad
from tstatic.ops.matmul._product import same_dtype
from tstatic.ops.reduce._sum import dot_calls, dot_scratch
from tstatic.ops.shape._shapes import emit_one


def _dot_infer(x: Meta, y: Meta) -> Meta:
    same_dtype(x, y)
    fits = x.rank == y.rank and all(a == b or UNKNOWN in (a, b) for a, b in zip(x.shape, y.shape, strict=True))
    if x.rank not in (1, 2) or not fits:
        raise ShapeError(
            "X and Y of dot should be two vectors, or two batches of vectors, of one shape",
            expected="equal shapes of rank 1 or 2",
            received=f"X of shape {list(x.shape)} and Y of shape {list(y.shape)}",
            fix="use matmul for matrix products",
        )
    return x.with_shape(max(a, b) for a, b in zip(x.shape[:-1], y.shape[:-1], strict=True))


def _dot_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
    return dot_calls(ins[0], ins[1], outs[0], scratch)


def _dot_lower(torch: Any, x: Any, y: Any) -> Any:
    return torch.linalg.vecdot(x, y) if x.is_floating_point() and x.numel() else (x * y).sum(-1)


def _dot_grad_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Any) -> Calls:
    x, y, dout = ins
    pairs = ((y, outs[0]), (x, outs[1]))
    return [(np.multiply, (dout[..., None], other, target)) for other, target in pairs if target is not None]


_DOT = CallRef(_dot_calls, lambda ins, outs: dot_scratch(ins[0]))
_DOT_GRAD = CallRef(_dot_grad_calls)

register(
    OpDef(
        "dot",
        "X, Y -> Out",
        infer=_dot_infer,
        ref=_DOT,
        lower=_dot_lower,
        cost=lambda x, y, out: Cost(2.0 * x.numel, float(x.nbytes + y.nbytes)),
        grad=GradOp(
            f"X, Y, Out{GRAD} -> X{GRAD}, Y{GRAD}",
            ref=_DOT_GRAD,
            lower=lambda torch, x, y, dout: (dout[..., None] * y, dout[..., None] * x),
            grad=bilinear_grad("dot"),
        ),
        uses_blas=True,
        domain=Domain(
            cases=(
                Case(((4,), (4,))),
                Case(((1,), (1,))),
                Case(((0,), (0,))),
                Case(((3, 4), (3, 4))),
                Case(((0, 4), (0, 4))),
                Case(((3, 0), (3, 0))),
                Case(((2, 1300), (2, 1300))),
            ),
            others=("int64",),
            ulps=16.0,
        ),
    )
)


@export("tensor.dot", "Variable.dot", op="dot")
def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Returns the inner product ``[]`` of two vectors ``[k]``, or ``[b]`` of two batches ``[b, k]``."""
    return emit_one("dot", {"X": check_variable(x, "x", "dot"), "Y": check_variable(y, "y", "dot")}, name=name)
