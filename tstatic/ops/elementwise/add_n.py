"""Sums of several values of one shape: the ``sum`` op that gradient accumulation uses too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramError
from tstatic.ir import expr
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_not_empty, check_same_dtype, check_same_shape
from tstatic.ir.export import respell
from tstatic.ir.opdef import Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Attrs, Calls, ExpressionRef, Expressions, Metas, Slots
from tstatic.ir.split import ELEMENTS, FIRST, Split
from tstatic.ir.traits import Pairwise
from tstatic.ir.types import UNKNOWN, Meta, float32
from tstatic.ops.base.low import torch_wide
from tstatic.ops.base.shapes import emit_one, written
from tstatic.ops.base.torch_out import filled
from tstatic.ops.elementwise import _elementwise_onnx as _onnx


def _infer(xs: Sequence[Meta]) -> Meta:
    check_not_empty(xs, "X", "sum", error=ProgramError)
    check_same_dtype(xs, "X", "sum")
    check_same_shape(xs, "X", "sum")
    shape = list(xs[0].shape)
    for x in xs[1:]:
        shape = [b if a == UNKNOWN else a for a, b in zip(shape, x.shape, strict=True)]
    return xs[0].with_shape(shape)


MOST_TERMS = 64
"""Inputs of the longest sum that is an expression.

An expression is one level deeper with each input, and whoever reads it walks it by recursion: the gradients of a weight that
10,000 steps share would be 10,000 levels. No kernel reads so many arrays either (``fusion/patterns/auto.py`` takes 16).
"""


class FoldRef(ExpressionRef):
    """Adds the inputs up from left to right; low-precision floats in float32, rounded once."""

    elementwise = True

    def __init__(self) -> None:
        self.nodes = {0: expr.parse("a + b")}

    def scratch(self, ins: Slots, outs: Slots, attrs: Attrs) -> Metas:
        # One buffer for the sum and one for the term that is being converted.
        return (Meta(outs[0].shape, float32),) * 2 if outs[0].dtype.is_low else ()

    def bind_arrays(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        xs, out = list(ins[0]), outs[0]
        if out.dtype.itemsize == 2 and out.dtype.kind in "fV":
            total, wide = scratch
            calls: Calls = [(np.copyto, (total, xs[0], "unsafe"))]
            for x in xs[1:]:
                calls += [(np.copyto, (wide, x, "unsafe")), (np.add, (total, wide, total))]
            return [*calls, (np.copyto, (out, total, "unsafe"))]
        if len(xs) == 1:
            return [(np.copyto, (out, xs[0]))]
        # The order is part of the definition: kernels and every device add from left to right.
        return [(np.add, (xs[0], xs[1], out)), *((np.add, (out, x, out)) for x in xs[2:])]

    def expressions(self, ins: Slots, attrs: Attrs) -> Expressions | None:
        xs = ins[0]
        if len(xs) > MOST_TERMS or any(x is None or x.shape != xs[0].shape for x in xs):
            return None
        names = [f"x{i}" for i in range(len(xs))]
        node = expr.parse(names[0])
        for name in names[1:]:
            node = expr.make("add", node, expr.parse(name))
        return Expressions({0: node}, names, [x.shape for x in xs], {})


def _lower(torch: Any, xs: Sequence[Any], *, out: Any = None) -> Any:
    if len(xs) == 1:
        return xs[0].clone() if out is None else out.copy_(xs[0])
    # Two terms round once in any type, so 16 bits need no wider sum.
    if len(xs) == 2:
        return torch.add(xs[0], xs[1], out=out)
    wide = torch_wide(xs[0])
    # The result may stand in the memory of one that is still to be added.
    alone = wide is xs[0] and out is not None and all(x.data_ptr() != out.data_ptr() for x in xs[2:])
    total = torch.add(wide, xs[1], out=out if alone else None)
    for x in xs[2:]:
        total = total.add_(x)
    return total if alone else filled(out, total.to(xs[0].dtype))


def _grad(ctx: GradContext) -> list[OpSpec]:
    arriving = ctx.out_grads.get(ctx.outputs["Out"][0])
    # A value that stands there twice gets what arrives twice: ops that write one gradient are added up.
    wanted = [ctx.in_grads[n] for n in ctx.inputs["X"] if n in ctx.in_grads]
    return [] if arriving is None else [OpSpec("assign", {"X": [arriving]}, {"Out": [w]}) for w in wanted]


register(OpDef(
    "sum", "X* -> Out", lod="X", infer=_infer, ref=FoldRef(), lower=_lower, grad=_grad, split=Split(ELEMENTS, FIRST), amp="black",
    traits=(Pairwise("elementwise_add"),),
    domain=Domain(
        cases=tuple(Case(([s] * n,)) for s, n in (((3, 4), 2), ((5,), 1), ((), 3), ((0,), 2), ((2, 1, 3), 5), ((33,), 4))),
        others=("int64", "int32", "complex64"), ulps=2,
    ),
    complex="linear", onnx=_onnx.total,
))  # fmt: skip


@export("tensor.add_n", op="sum")
def add_n(inputs: Variable | Sequence[Variable], name: str | None = None) -> Variable:
    """Returns the sum of Variables of one shape and dtype.

    Args:
        inputs: Variables, or a single one.
        name: Name of the layer.

    Raises:
        ProgramTypeError: If one of them is not a Variable.
        ShapeError, DTypeError: If they differ.

    Example:
        >>> x, y = paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([10.0, 20.0])
        >>> z = paddle.add_n([x, y, y])
        >>> static.Executor().run(fetch_list=[z])[0]
        array([21., 42.], dtype=float32)
    """
    items = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    check_not_empty(items, "inputs", "add_n", error=ProgramError)
    for i, item in enumerate(items):
        check_variable(item, f"inputs[{i}]", "add_n")
    return emit_one("sum", {"X": items}, name=name)


@export("fluid.layers.sum", op="sum")
@respell("fluid.layers.sums", takes="input, out=None", op="sum", input="x")
def fluid_sum(x: Variable | Sequence[Variable], out: Variable | None = None) -> Variable:
    """Returns the sum of Variables of one shape and dtype, or writes it to ``out``.

    Args:
        x: A Variable, or a list of Variables of one shape and dtype.
        out: A Variable of that shape and dtype; it is returned. ``None`` makes a new one.

    Raises:
        ProgramError: If the list is empty.
        ShapeError: If shapes differ.
        DTypeError: If dtypes differ.

    Example:
        >>> x, y = paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([10.0, 20.0])
        >>> z = fluid.layers.sum([x, y, y])
        >>> static.Executor().run(fetch_list=[z])[0]
        array([21., 42.], dtype=float32)
    """
    return written(add_n(x), out)
