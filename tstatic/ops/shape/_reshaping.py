"""The shape rules of reshape, and the gradient that all ops which only change the shape have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.ir.opdef import GradContext, OpSpec
from tstatic.ir.ref import Call
from tstatic.ir.types import UNKNOWN, Meta, Shape, numel
from tstatic.ops.shape._shapes import Array, check_sizes, copy_reshaped


def resolve(old: Shape, wanted: Sequence[int]) -> Shape:
    """The shape that ``reshape`` gives: 0 copies the input's size at that position, one -1 is computed.

    Args:
        old: The input's shape, with unknown sizes.
        wanted: What was asked for.

    Raises:
        ShapeError: For a second -1, another negative size, a 0 without a size to copy, or counts that differ.
    """
    guesses = [i for i, s in enumerate(wanted) if s == UNKNOWN]
    if len(guesses) > 1 or any(s < UNKNOWN for s in wanted):
        raise ShapeError(
            "only one size of a new shape may be -1" if len(guesses) > 1 else "a new shape has a negative size",
            expected="sizes of at least 0, and at most one -1",
            received=list(wanted),
            fix="give all other sizes as numbers; 0 copies the size of the input",
        )
    check_sizes(wanted)
    new = _copied(old, wanted)
    copied = [i for i, s in enumerate(wanted) if s == 0]
    count = numel(old)
    if guesses:
        new[guesses[0]] = _guess(old, new, copied, guesses[0])
    elif count >= 0 and UNKNOWN not in new and _product(new) != count:
        raise _mismatch(old, wanted, count, _product(new))
    return tuple(new)


def _copied(old: Shape, wanted: Sequence[int]) -> list[int]:
    new = []
    for i, size in enumerate(wanted):
        if size == 0 and i < len(old):
            size = old[i]
        elif size == 0:
            raise ShapeError(
                f"position {i} of the new shape is 0, but the input has no such dimension to copy",
                expected=f"0 at positions below {len(old)} only",
                received=f"shape {list(wanted)} for an input of shape {list(old)}",
                fix="replace the 0 by a number, or by -1 when the value is empty",
            )
        new.append(size)
    return new


def _guess(old: Shape, new: Sequence[int], copied: Sequence[int], at: int) -> int:
    """Returns the size that replaces -1; ``UNKNOWN`` if it depends on sizes that are not known yet."""
    rest = _product([s for i, s in enumerate(new) if i != at and not (i in copied and s == UNKNOWN)])
    open_old = {i for i, s in enumerate(old) if s == UNKNOWN}
    open_new = {i for i in copied if new[i] == UNKNOWN}
    if open_old != open_new:
        return UNKNOWN
    # Unknown sizes stand on both sides and cancel.
    count = _product([s for s in old if s != UNKNOWN])
    if rest == 0:
        if open_old or count:
            return UNKNOWN if open_old else _fail(old, new, count)
        raise ShapeError(
            "-1 in a new shape cannot be computed beside a size of 0",
            expected="a number in the place of -1",
            received=f"shape {list(new)} for an input of shape {list(old)}",
            fix="give every size of an empty value",
        )
    if count % rest:
        raise _mismatch(old, new, count, rest)
    return count // rest


def _fail(old: Shape, new: Sequence[int], count: int) -> int:
    raise _mismatch(old, new, count, 0)


def _mismatch(old: Shape, wanted: Sequence[int], have: int, need: int) -> ShapeError:
    divides = UNKNOWN in wanted
    elements = f"{need} elements{' without -1' if divides else ''}"
    return ShapeError(
        "the new shape does not hold as many elements as the input",
        expected=f"sizes whose product divides {have}" if divides else f"a shape of {have} elements",
        received=f"shape {list(wanted)} ({elements}) for an input of shape {list(old)}",
        fix="check the sizes, or use -1 for one of them",
    )


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for s in sizes:
        total *= s
    return total


def with_shape(x: Meta, shape: Shape) -> tuple[Meta, Meta]:
    """Metadata of ``Out`` and of ``XShape``, which has no element and the input's shape behind a 0."""
    return x.with_shape(shape), x.with_shape((0, *x.shape))


def plain_copy(x: Array, out: Array, xshape: Any) -> list[Call]:
    """Copies the elements in their order: the reference of an op ``X -> Out, XShape~`` whose output is not a view."""
    return [copy_reshaped(out, x)]


def reshape_back(ctx: GradContext) -> list[OpSpec]:
    """Gradient of an op that keeps the order of elements: ``reshape2`` to the input's shape.

    When the input has several unknown sizes no list of numbers says that shape; ``reshape2_grad`` then reads it from
    the input itself.
    """
    x, out = ctx.inputs["X"][0], ctx.outputs["Out"][0]
    wanted, arriving = ctx.in_grads.get(x), ctx.out_grads.get(out)
    if wanted is None or arriving is None:
        return []
    return [reshape_to(ctx, x, arriving, wanted)]


def reshape_to(ctx: GradContext, x: str, arriving: str, wanted: str) -> OpSpec:
    """The op that gives a gradient the shape of ``x``."""
    shape = ctx.meta(x).shape
    if shape.count(UNKNOWN) <= 1 and 0 not in shape:
        return OpSpec("reshape2", {"X": [arriving]}, {"Out": [wanted]}, {"shape": shape})
    return OpSpec("reshape2_grad", {"X": [x], "Out@GRAD": [arriving]}, {"X@GRAD": [wanted]})
