"""Joining values along a new axis, and taking one apart along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Call
from tstatic.ir.split import along
from tstatic.ir.types import UNKNOWN, Meta, normalize_axis
from tstatic.ops._call_ref import copies
from tstatic.ops._gradients import gathered, scattered
from tstatic.ops.shape._joining import common_shape, variables, without
from tstatic.ops.shape._shapes import (
    Array,
    add_op_context,
    check_nonempty_list,
    check_same_dtype,
    copy,
    emit_list,
    emit_one,
)
from tstatic.ops.shape.reshape import ANY


def _place(whole: Array, axis: int, k: int) -> Array:
    """Entry ``k`` along an axis, as a view (0-d too)."""
    return whole[along(axis, slice(k, k + 1))].squeeze(axis)


# --------------------------------------------------------------------------------------------------------------- stack
def _infer_stack(xs: Sequence[Meta], *, axis: int) -> Meta:
    check_nonempty_list(xs, "X")
    check_same_dtype(xs, "X")
    shape = list(common_shape([x.shape for x in xs], None))
    shape.insert(normalize_axis(axis, xs[0].rank + 1), len(xs))
    return xs[0].with_shape(shape)


def _stack_calls(xs: Sequence[Array], y: Array, *, axis: int) -> list[Call]:
    at = normalize_axis(axis, y.ndim)
    return [copy(_place(y, at, k), x) for k, x in enumerate(xs)]


def _stack_grad(ctx: GradContext) -> list[OpSpec]:
    names = ctx.inputs["X"]
    arriving = ctx.out_grads.get(ctx.outputs["Y"][0])
    if arriving is None or not any(n in ctx.in_grads for n in names):
        return []
    attrs = {"axis": ctx.attrs["axis"], "num": len(names)}
    return [OpSpec("unstack", {"X": [arriving]}, {"Y": scattered(ctx, "X")}, attrs)]


register(
    OpDef(
        "stack",
        "X* -> Y",
        attrs={"axis": 0},
        infer=_infer_stack,
        ref=copies(_stack_calls),
        lower=lambda torch, xs, *, axis: torch.stack(list(xs), axis),
        grad=_stack_grad,
        amp="gray",
        domain=Domain(
            cases=(
                Case(([(2, 3), (2, 3)],), {"axis": 0}),
                Case(([(2, 3), (2, 3), (2, 3)],), {"axis": -1}),
                Case(([(), ()],), {"axis": 0}),
                Case(([(0, 2), (0, 2)],), {"axis": 1}),
                Case(([(4,)],), {"axis": 1}),
                Case(([(1, 2, 2), (1, 2, 2)],), {"axis": -3}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


@export("tensor.stack", "fluid.layers.stack", op="stack")
def stack(x: Sequence[Variable], axis: int = 0, name: str | None = None) -> Variable:
    """Joins values of one shape along a new axis.

    Raises:
        ShapeError: If the shapes differ, or the list is empty.

    Example:
        >>> x, y = paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([3.0, 4.0])
        >>> z = paddle.stack([x, y], axis=1)
        >>> static.Executor().run(fetch_list=[z])[0]
        array([[1., 3.],
               [2., 4.]], dtype=float32)
    """
    return emit_one("stack", {"X": variables(x, "x", "stack")}, {"axis": axis}, name=name)


@export("Variable.stack", op="stack")
def variable_stack(x: Variable, axis: int = 0, name: str | None = None) -> Variable:
    """A stack of this value alone."""
    return stack([x], axis, name)


# ------------------------------------------------------------------------------------------------------------- unstack
def _pieces(x: Meta, *, axis: int, num: int) -> tuple[list[Meta]]:
    if not x.rank:
        raise ShapeError(
            "a 0-d value cannot be taken apart",
            expected="at least one dimension",
            received="shape []",
            fix="reshape first",
        )
    at = normalize_axis(axis, x.rank)
    size = x.shape[at]
    if num and size not in (UNKNOWN, num):
        raise ShapeError(
            f"axis {at} does not have as many entries as asked for", expected=num, received=size, fix="leave out num"
        )
    count = num or size
    if count == UNKNOWN:
        raise ShapeError(
            f"the size of axis {at} must be known, or the number of results is not",
            expected="a known size",
            received=list(x.shape),
            fix="give the axis a size in static.data, or pass num",
        )
    return ([without(x, at)] * count,)


def _apart_calls(x: Array, outs: Sequence[Array | None], *, axis: int) -> list[Call]:
    at = normalize_axis(axis, x.ndim)
    return [copy(out, _place(x, at, k)) for k, out in enumerate(outs) if out is not None]


def _lower_apart(torch: Any, x: Any, *, axis: int) -> Any:
    return ([p.contiguous() for p in torch.unbind(x, axis)],)


def _together(slot: str) -> Any:
    def rule(ctx: GradContext) -> list[OpSpec]:
        found = gathered(ctx, "X", slot)
        if found is None:
            return []
        wanted, parts, specs = found
        return [*specs, OpSpec("stack", {"X": parts}, {"Y": [wanted]}, {"axis": ctx.attrs["axis"]})]

    return rule


_CASES = (
    Case(((3, 2),), {"axis": 0, "num": 3}),
    Case(((2, 3),), {"axis": -1, "num": 3}),
    Case(((4,),), {"axis": 0, "num": 4}),
    Case(((2, 0, 3),), {"axis": 2, "num": 3}),
    Case(((1, 2, 2),), {"axis": 0, "num": 1}),
    Case(((2, 3, 1),), {"axis": -2, "num": 3}),
)


# Sizes may be unknown while a program is built, so ops with a list of results say how many there are.
_DOMAIN = Domain(cases=_CASES, others=ANY, ulps=0)


register(
    OpDef(
        "unstack",
        "X -> Y*",
        attrs={"axis": 0, "num": 0},
        infer=_pieces,
        ref=copies(_apart_calls),
        lower=_lower_apart,
        grad=_together("Y"),
        amp="gray",
        domain=_DOMAIN,
    )
)

register(
    OpDef(
        "unbind",
        "X -> Out*",
        attrs={"axis": 0, "num": 0},
        infer=_pieces,
        ref=copies(_apart_calls),
        lower=_lower_apart,
        grad=_together("Out"),
        amp="gray",
        domain=_DOMAIN,
    )
)


@export("tensor.unstack", "Variable.unstack", "fluid.layers.unstack", op="unstack")
def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """The entries along an axis, which is removed, as a list of Variables.

    Args:
        x: ``[...]``, any dtype.
        axis: Which axis.
        num: Its size; needed when that is unknown.

    Raises:
        ShapeError: If the size is unknown and ``num`` is not given, or they differ.
    """
    x = check_variable(x, "x", "unstack")
    count = _count(x, axis, "unstack") if num is None else num
    return emit_list("unstack", {"X": x}, {"axis": axis, "num": count}) if count else []


@export("tensor.unbind", "Variable.unbind", "fluid.layers.unbind", op="unbind")
def unbind(input: Variable, axis: int = 0) -> list[Variable]:
    """The entries along an axis of known size, which is removed, as a list of Variables.

    Raises:
        ShapeError: If the size is unknown.
    """
    x = check_variable(input, "input", "unbind")
    count = _count(x, axis, "unbind")
    return emit_list("unbind", {"X": x}, {"axis": axis, "num": count}) if count else []


def _count(x: Variable, axis: int, function: str) -> int:
    try:
        return len(_pieces(x.meta, axis=axis, num=0)[0])
    except ShapeError as error:
        raise add_op_context(error, function, x.name) from None
