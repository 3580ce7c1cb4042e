"""Coordinate grids from vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.ir.opdef import Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Call
from tstatic.ir.types import Meta
from tstatic.ops._call_ref import copies
from tstatic.ops.shape._joining import variables
from tstatic.ops.shape._shapes import (
    Array,
    check_nonempty_list,
    check_rank,
    check_same_dtype,
    check_sizes,
    copy,
    emit_list,
)
from tstatic.ops.shape.reshape import ANY


def _infer(xs: Sequence[Meta]) -> tuple[list[Meta]]:
    check_nonempty_list(xs, "X")
    check_same_dtype(xs, "X")
    for x in xs:
        check_rank(x, 0, 1, "X")
    shape = tuple(x.shape[0] if x.rank else 1 for x in xs)
    check_sizes(shape)
    return ([x.with_shape(shape) for x in xs],)


def _calls(xs: Sequence[Array], outs: Sequence[Array | None]) -> list[Call]:
    rank = len(xs)
    return [
        copy(out, x.reshape((-1, *[1] * (rank - 1 - i)), copy=False) if x.ndim else x)
        for i, (x, out) in enumerate(zip(xs, outs, strict=True))
        if out is not None
    ]


def _grad(ctx: GradContext) -> list[OpSpec]:
    names = ctx.inputs["X"]
    specs = []
    for i, (x, out) in enumerate(zip(names, ctx.outputs["Out"], strict=True)):
        if x not in ctx.in_grads or out not in ctx.out_grads:
            continue
        axes = tuple(a for a in range(len(names)) if a != i or not ctx.meta(x).rank)
        inputs, outputs = {"X": [ctx.out_grads[out]]}, {"Out": [ctx.in_grads[x]]}
        if axes:
            specs.append(OpSpec("reduce_sum", inputs, outputs, {"dim": axes, "reduce_all": len(axes) == len(names)}))
        else:
            specs.append(OpSpec("assign", inputs, outputs))
    return specs


register(
    OpDef(
        "meshgrid",
        "X* -> Out*",
        infer=_infer,
        ref=copies(_calls),
        lower=lambda torch, xs: ([t.contiguous() for t in torch.meshgrid(*xs, indexing="ij")],),
        grad=_grad,
        domain=Domain(
            cases=(
                Case(([(2,), (3,)],)),
                Case(([(2,), (3,), (4,)],)),
                Case(([(5,)],)),
                Case(([(0,), (2,)],)),
                Case(([(), (3,)],)),
                Case(([(1,), (1,)],)),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


@export("tensor.meshgrid", op="meshgrid")
def meshgrid(*args: Any, **kwargs: Any) -> list[Variable]:
    """Grids of the coordinates ``x``, ``y``, ...: entry ``[i, j, ...]`` of grid ``k`` is element ``(i, j, ...)[k]`` of vector k.

    Args:
        *args: Vectors (0-d values count as vectors of one), or one list of them.
        **kwargs: ``name``, the name of the layer.

    Returns:
        As many Variables as vectors, each of shape ``[len(x), len(y), ...]``.
    """
    given = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
    return emit_list("meshgrid", {"X": variables(list(given), "args", "meshgrid")}, name=kwargs.get("name"))
