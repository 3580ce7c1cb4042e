"""Broadcasting to a shape: expand, expand_as, broadcast_to, broadcast_tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Call, Calls
from tstatic.ir.types import UNKNOWN, Meta, Shape, broadcast_shapes
from tstatic.ops._call_ref import CallRef, copies
from tstatic.ops.reduce._sum import sum_calls, sum_scratch
from tstatic.ops.shape._joining import variables
from tstatic.ops.shape._shapes import (
    Array,
    add_op_context,
    check_sizes,
    copy,
    emit_list,
    emit_one,
    sizes_given,
    sizes_of,
    tensor_rank,
)
from tstatic.ops.shape.reshape import ANY


# ----------------------------------------------------------------------------------------------------------- expand_v2
def _target(old: Shape, shape: Sequence[int]) -> Shape:
    """The shape to expand to; -1 keeps a size.

    Raises:
        ShapeError: If it does not fit the input.
    """
    check_sizes(shape)
    lead = len(shape) - len(old)
    if lead < 0:
        raise ShapeError(
            "a value cannot be expanded to fewer dimensions than it has",
            expected=f"at least {len(old)} sizes",
            received=list(shape),
            fix="give one size for each dimension; -1 keeps a size",
        )
    new = []
    for size, have in zip(shape, (None,) * lead + tuple(old), strict=True):
        wrong = size == UNKNOWN if have is None else size not in (UNKNOWN, have) and have not in (1, UNKNOWN)
        if wrong:
            raise ShapeError(
                "a value can only be expanded along new dimensions and those of size 1",
                expected=f"a shape that ends in {list(old)}, where a 1 may become any size",
                received=list(shape),
                fix="check the shape; -1 keeps a size",
            )
        new.append(have if size == UNKNOWN and have is not None else size)
    return tuple(new)


def _infer(x: Meta, given: Meta | None, each: list[Meta] | None, *, shape: Sequence[int]) -> Meta:
    rank = tensor_rank(given, each, "shape")
    if rank is None:
        return x.with_shape(_target(x.shape, shape))
    known = shape if len(shape) == rank else (UNKNOWN,) * rank
    # Where some sizes are Variables, -1 may be one of them, but a size above 1 cannot change.
    had = (1,) * (rank - x.rank) + x.shape[max(x.rank - rank, 0) :]
    return x.with_shape(h if s < 0 and h > 1 else max(s, UNKNOWN) for s, h in zip(known, had, strict=True))


def _calls(x: Array, given: Any, each: Any, out: Array) -> list[Call]:
    return [copy(out, x)]


def _fresh(x: Array, given: Any, each: Any, out: None, *, shape: Sequence[int]) -> list[Any]:
    return [np.array(np.broadcast_to(x, _target(x.shape, sizes_of(shape, given, each))))]


def _lower(torch: Any, x: Any, given: Any, each: Any, *, shape: Sequence[int]) -> Any:
    sizes = [int(t) for t in each] if each else given.tolist() if given is not None else list(shape)
    return x.expand(sizes).contiguous()


def _summed(old: Shape, new: Shape) -> tuple[int, ...]:
    lead = len(new) - len(old)
    return tuple(i for i, s in enumerate(new) if i < lead or (old[i - lead] == 1 and s != 1))


def _back_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
    _, dout = ins
    return sum_calls(dout, _summed(outs[0].shape, dout.shape), outs[0], scratch)


def _back_scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta]) -> tuple[Meta, ...]:
    _, dout = ins
    return sum_scratch(dout, _summed(outs[0].shape, dout.shape))


_BACK = CallRef(_back_calls, _back_scratch_metas, unread=(0,))


def _expand_like(ctx: GradContext) -> list[OpSpec]:
    wanted = ctx.in_grads.get(ctx.inputs["Out@GRAD"][0])
    arriving = ctx.out_grads.get(ctx.outputs["X@GRAD"][0])
    if wanted is None or arriving is None:
        return []
    return [OpSpec("expand_as_v2", {"X": [arriving], "Y": ctx.inputs["Out@GRAD"]}, {"Out": [wanted]})]


_GRAD = GradOp(
    "X, Out@GRAD -> X@GRAD",
    ref=_BACK,
    lower=lambda torch, x, dout: dout.sum_to_size(tuple(x.shape)),
    shape_only=("X",),
    # The new shape may be known at run time only, so the gradient's gradient follows the incoming gradient's.
    grad=_expand_like,
)

_NONE = (None, None)
register(
    OpDef(
        "expand_v2",
        "X, Shape?, expand_shapes_tensor*? -> Out",
        attrs={"shape": Attr((), "ints")},
        infer=_infer,
        ref=copies(_calls, _fresh),
        lower=_lower,
        grad=_GRAD,
        amp="gray",
        uses_blas=True,
        domain=Domain(
            cases=(
                Case(((3, 1), *_NONE), {"shape": (3, 4)}),
                Case(((3, 1), *_NONE), {"shape": (2, -1, 4)}),
                Case(((4,), *_NONE), {"shape": (2, 3, 4)}),
                Case(((), *_NONE), {"shape": (2, 3)}),
                Case(((1, 3), *_NONE), {"shape": (0, 3)}),
                Case(((2, 0), *_NONE), {"shape": (2, -1)}),
                Case(((1, 5, 1), *_NONE), {"shape": (2, 5, 3)}),
            ),
            others=ANY,
        ),
    )
)


@export("tensor.expand", "Variable.expand", op="expand_v2")
def expand(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """Repeats a value along new leading dimensions and those of size 1.

    Args:
        x: ``[...]``, any dtype.
        shape: The new sizes; -1 keeps one. A list of ints and Variables, or one Variable.
        name: Name of the layer.

    Raises:
        ShapeError: If a size other than 1 would change.
    """
    check_variable(x, "x", "expand")
    if isinstance(shape, list | tuple) and any(isinstance(s, Variable) for s in shape):
        # A -1 that keeps a size of 1 is written as 1, since -1 also marks the sizes that are Variables.
        lead = len(shape) - len(x.shape)
        shape = [
            1 if i >= lead and not isinstance(s, Variable) and s == UNKNOWN and x.shape[i - lead] == 1 else s
            for i, s in enumerate(shape)
        ]
    attr, given, each = sizes_given(shape)
    inputs = {"X": check_variable(x, "x", "expand"), "Shape": given, "expand_shapes_tensor": each}
    return emit_one("expand_v2", inputs, {"shape": attr}, name=name, prefix="expand")


@export("tensor.broadcast_to", "Variable.broadcast_to", op="expand_v2")
def broadcast_to(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """Same as :func:`expand`."""
    return expand(x, shape, name)


# -------------------------------------------------------------------------------------------------------- expand_as_v2
def _infer_as(x: Meta, y: Meta | None, *, target_shape: Sequence[int]) -> Meta:
    shape = y.shape if y is not None else tuple(target_shape)
    lead = len(shape) - x.rank
    # An unknown size of the target does not mean that the input's size stays.
    new = _target(x.shape, [s if s != UNKNOWN else 1 if i < lead else -1 for i, s in enumerate(shape)])
    return x.with_shape(
        UNKNOWN if s == UNKNOWN and (i < lead or x.shape[i - lead] in (1, UNKNOWN)) else n
        for i, (s, n) in enumerate(zip(shape, new, strict=True))
    )


def _as_calls(x: Array, y: Any, out: Array) -> list[Call]:
    return [copy(out, x)]


def _as_lower(torch: Any, x: Any, y: Any, *, target_shape: Sequence[int]) -> Any:
    return x.expand(tuple(y.shape) if y is not None else list(target_shape)).contiguous()


register(
    OpDef(
        "expand_as_v2",
        "X, Y? -> Out",
        attrs={"target_shape": Attr((), "ints")},
        infer=_infer_as,
        ref=copies(_as_calls),
        lower=_as_lower,
        grad=_GRAD,
        shape_only=("Y",),
        amp="gray",
        uses_blas=True,
        domain=Domain(
            cases=(
                Case(((3, 1), (3, 4))),
                Case(((4,), (2, 3, 4))),
                Case(((), (3,))),
                Case(((1, 3), (0, 3))),
                Case(((2, 1), None), {"target_shape": (3, 2, 2)}),
                Case(((1,), (1,))),
            ),
            others=ANY,
        ),
    )
)


@export("tensor.expand_as", "Variable.expand_as", op="expand_as_v2")
def expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Expands ``x`` to the shape of ``y``.

    Raises:
        ShapeError: If a size other than 1 would change.
    """
    y = check_variable(y, "y", "expand_as")
    inputs = {"X": check_variable(x, "x", "expand_as"), "Y": y}
    return emit_one("expand_as_v2", inputs, {"target_shape": y.shape}, name=name, prefix="expand_as")


# --------------------------------------------------------------------------------------------------- broadcast_tensors
def _infer_all(xs: Sequence[Meta]) -> tuple[list[Meta]]:
    shape: Shape = ()
    for x in xs:
        shape = broadcast_shapes(shape, x.shape)
    return ([x.with_shape(shape) for x in xs],)


def _all_calls(xs: Sequence[Array], outs: Sequence[Array | None]) -> list[Call]:
    return [copy(out, x) for x, out in zip(xs, outs, strict=True) if out is not None]


def _all_grad(ctx: GradContext) -> list[OpSpec]:
    return [
        OpSpec("expand_v2_grad", {"X": [x], "Out@GRAD": [ctx.out_grads[out]]}, {"X@GRAD": [ctx.in_grads[x]]})
        for x, out in zip(ctx.inputs["X"], ctx.outputs["Out"], strict=True)
        if x in ctx.in_grads and out in ctx.out_grads
    ]


register(
    OpDef(
        "broadcast_tensors",
        "X* -> Out*",
        infer=_infer_all,
        ref=copies(_all_calls),
        lower=lambda torch, xs: ([t.contiguous() for t in torch.broadcast_tensors(*xs)],),
        grad=_all_grad,
        domain=Domain(
            cases=(
                Case(([(3, 1), (1, 4)],)),
                Case(([(4,), (2, 3, 4), ()],)),
                Case(([(2, 3)],)),
                Case(([(0, 1), (1, 3)],)),
                Case(([(), ()],)),
                Case(([(2, 1, 2), (3, 1)],)),
            ),
            others=ANY,
        ),
    )
)


@export("tensor.broadcast_tensors", op="broadcast_tensors")
def broadcast_tensors(input: Sequence[Variable], name: str | None = None) -> list[Variable]:
    """Expands all values to the shape that they broadcast to.

    Raises:
        ShapeError: If they do not broadcast.
    """
    return emit_list("broadcast_tensors", {"X": variables(input, "input", "broadcast_tensors")}, name=name)


@export("tensor.broadcast_shape")
def broadcast_shape(x_shape: Sequence[int], y_shape: Sequence[int]) -> list[int]:
    """The shape that two shapes broadcast to, -1 where it is unknown; builds nothing.

    Raises:
        ShapeError: If they do not broadcast.
    """
    try:
        return list(broadcast_shapes(tuple(x_shape), tuple(y_shape)))
    except ShapeError as error:
        raise add_op_context(error, "broadcast_shape") from None
