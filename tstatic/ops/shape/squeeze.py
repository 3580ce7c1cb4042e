"""Removing and inserting axes of size 1."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN, Shape, normalize_axis
from tstatic.ops._call_ref import copies
from tstatic.ops.shape._reshaping import plain_copy, with_shape
from tstatic.ops.shape._shapes import as_list, axes_of, emit_one, view_of
from tstatic.ops.shape.reshape import ANY, reshape


def _squeezed(shape: Shape, axes: Sequence[int]) -> tuple[int, ...]:
    """The axes that go: of the named ones those of size 1 (an unknown size counts as 1), or all known to be 1."""
    if not len(axes):
        return tuple(i for i, s in enumerate(shape) if s == 1)
    return tuple(i for i in axes_of(axes, len(shape)) if shape[i] in (1, UNKNOWN))


def _squeeze_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    gone = _squeezed(shape, axes)
    return tuple(s for i, s in enumerate(shape) if i not in gone)


def _unsqueezed(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Positions of the new sizes in the result; axes are inserted one after the other, as Paddle does."""
    new: list[int] = []
    for axis in axes:
        at = normalize_axis(axis, rank + len(new) + 1)
        new = [p + (p >= at) for p in new] + [at]
    return tuple(sorted(new))


def _unsqueeze_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    new = _unsqueezed(len(shape), axes)
    rest = iter(shape)
    return tuple(1 if i in new else next(rest) for i in range(len(shape) + len(new)))


def _squeeze_grad(ctx: GradContext) -> list[OpSpec]:
    shape = ctx.meta(ctx.inputs["X"][0]).shape
    axes = _squeezed(shape, ctx.attrs["axes"])
    if any(shape[a] == UNKNOWN for a in axes):
        # An axis of unknown size is still there if its size turns out not to be 1: only the input says the shape.
        wanted, arriving = ctx.in_grads.get(ctx.inputs["X"][0]), ctx.out_grads.get(ctx.outputs["Out"][0])
        if wanted is None or arriving is None:
            return []
        ins = {"X": ctx.inputs["X"], "Out@GRAD": [arriving]}
        return [OpSpec("reshape2_grad", ins, {"X@GRAD": [wanted]})]
    return _one_op(ctx, "unsqueeze2", axes)


def _unsqueeze_grad(ctx: GradContext) -> list[OpSpec]:
    return _one_op(ctx, "squeeze2", _unsqueezed(ctx.meta(ctx.inputs["X"][0]).rank, ctx.attrs["axes"]))


def _one_op(ctx: GradContext, type: str, axes: Sequence[int]) -> list[OpSpec]:
    wanted, arriving = ctx.in_grads.get(ctx.inputs["X"][0]), ctx.out_grads.get(ctx.outputs["Out"][0])
    if wanted is None or arriving is None:
        return []
    if not len(axes):
        # squeeze2 without axes would remove every size of 1.
        return [OpSpec("assign", {"X": [arriving]}, {"Out": [wanted]})]
    return [OpSpec(type, {"X": [arriving]}, {"Out": [wanted]}, {"axes": tuple(axes)})]


register(
    OpDef(
        "squeeze2",
        "X -> Out, XShape~",
        attrs={"axes": Attr((), "ints")},
        infer=lambda x, *, axes: with_shape(x, _squeeze_shape(x.shape, axes)),
        ref=copies(plain_copy),
        lower=lambda torch, x, *, axes: (torch.reshape(x, _squeeze_shape(tuple(x.shape), axes)), None),
        view=lambda x, *, axes: view_of(x, _squeeze_shape(x.shape, axes)),
        grad=_squeeze_grad,
        amp="gray",
        domain=Domain(
            cases=(
                Case(((1, 3, 1, 4),), {"axes": (0, 2)}),
                Case(((1, 3, 1, 4),), {"axes": (-2,)}),
                Case(((3, 4),), {"axes": ()}),
                Case(((1,),), {"axes": (0,)}),
                Case(((1, 0, 2),), {"axes": (0,)}),
                Case(((1, 1, 1),), {"axes": (0, 1, 2)}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)

register(
    OpDef(
        "unsqueeze2",
        "X -> Out, XShape~",
        attrs={"axes": Attr(kind="ints")},
        infer=lambda x, *, axes: with_shape(x, _unsqueeze_shape(x.shape, axes)),
        ref=copies(plain_copy),
        lower=lambda torch, x, *, axes: (torch.reshape(x, _unsqueeze_shape(tuple(x.shape), axes)), None),
        view=lambda x, *, axes: view_of(x, _unsqueeze_shape(x.shape, axes)),
        grad=_unsqueeze_grad,
        amp="gray",
        domain=Domain(
            cases=(
                Case(((3, 4),), {"axes": (0,)}),
                Case(((3, 4),), {"axes": (0, -1)}),
                Case(((3, 4),), {"axes": (1, 1)}),
                Case(((),), {"axes": (0, 0)}),
                Case(((0, 2),), {"axes": (-2,)}),
                Case(((2,),), {"axes": (1, 0)}),
            ),
            others=ANY,
            ulps=0,
        ),
    )
)


@export("tensor.squeeze", "Variable.squeeze", op="squeeze2")
def squeeze(x: Variable, axis: int | Sequence[int] | None = None, name: str | None = None) -> Variable:
    """Removes axes of size 1.

    Args:
        x: ``[...]``, any dtype.
        axis: Which ones; a named axis of another size stays. Without it all sizes known to be 1 go (an unknown size
            stays, whatever it turns out to be).
        name: Name of the layer.

    Example:
        >>> x = paddle.ones([1, 3, 1])
        >>> paddle.squeeze(x).shape
        (3,)
        >>> paddle.squeeze(x, axis=0).shape
        (3, 1)
    """
    x = check_variable(x, "x", "squeeze")
    axes = [] if axis is None else as_list(axis)
    if not axes and UNKNOWN in x.shape:
        axes = [i for i, s in enumerate(x.shape) if s == 1]
        if not axes:
            return reshape(x, [0] * len(x.shape), name)
    return emit_one("squeeze2", {"X": x}, {"axes": axes}, name=name, prefix="squeeze")


@export("fluid.layers.squeeze", op="squeeze2")
def fluid_squeeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Variable:
    """:func:`squeeze` under its older signature.

    Example:
        >>> x = paddle.ones([1, 3, 1])
        >>> fluid.layers.squeeze(x, axes=[]).shape
        (3,)
        >>> fluid.layers.squeeze(x, axes=[0]).shape
        (3, 1)
    """
    return squeeze(input, axes, name)


@export("tensor.unsqueeze", "Variable.unsqueeze", op="unsqueeze2")
def unsqueeze(x: Variable, axis: int | Sequence[int], name: str | None = None) -> Variable:
    """Inserts axes of size 1, one after the other; a negative axis counts from the end of the shape reached so far.

    Raises:
        ShapeError: If an axis is out of range.

    Example:
        >>> x = paddle.ones([2, 3])
        >>> paddle.unsqueeze(x, 0).shape
        (1, 2, 3)
        >>> paddle.unsqueeze(x, [1, -1]).shape
        (2, 1, 3, 1)
    """
    return emit_one("unsqueeze2", {"X": check_variable(x, "x", "unsqueeze")}, {"axes": as_list(axis)}, name=name)


@export("fluid.layers.unsqueeze", op="unsqueeze2")
def fluid_unsqueeze(input: Variable, axes: int | Sequence[int], name: str | None = None) -> Variable:
    """:func:`unsqueeze` under its older signature."""
    return unsqueeze(input, axes, name)


@export("tensor.squeeze_", "Variable.squeeze_", op="squeeze2")
def squeeze_(x: Variable, axis: int | Sequence[int] | None = None, name: str | None = None) -> Variable:
    """Same as :func:`squeeze`: a program's values are never changed in place."""
    return squeeze(x, axis, name)


@export("tensor.unsqueeze_", "Variable.unsqueeze_", op="unsqueeze2")
def unsqueeze_(x: Variable, axis: int | Sequence[int], name: str | None = None) -> Variable:
    """Same as :func:`unsqueeze`: a program's values are never changed in place."""
    return unsqueeze(x, axis, name)
