"""Repeating a value along its axes: tile, and the older expand and expand_as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable
from tstatic.ir.opdef import Attr, Case, Domain, GradContext, GradOp, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import Call, Calls
from tstatic.ir.types import UNKNOWN, Meta, Shape
from tstatic.ops._call_ref import CallRef, copies
from tstatic.ops._gradients import grad_is_forward_op
from tstatic.ops.reduce._sum import sum_calls, sum_scratch
from tstatic.ops.shape._shapes import Array, check_sizes, clear, copy, emit_one, sizes_given, sizes_of, tensor_rank
from tstatic.ops.shape.reshape import ANY


def _aligned(old: Shape, times: Sequence[int]) -> tuple[Shape, Shape]:
    """Shape and repetitions with leading ones, of equal length."""
    rank = max(len(old), len(times))
    return (1,) * (rank - len(old)) + tuple(old), (1,) * (rank - len(times)) + tuple(times)


def _tiled(old: Shape, times: Sequence[int]) -> Shape:
    if any(n < 0 for n in times):
        raise ShapeError(
            "a value cannot be repeated a negative number of times",
            expected="repetitions of at least 0",
            received=list(times),
            fix="check repeat_times",
        )
    new = tuple(0 if n == 0 else UNKNOWN if s == UNKNOWN else s * n for s, n in zip(*_aligned(old, times), strict=True))
    check_sizes(new)
    return new


def _pairs(old: Shape, new: Shape) -> Shape:
    """The result's shape with each axis as (repetitions, size)."""
    sizes = (1,) * (len(new) - len(old)) + tuple(old)
    return tuple(v for s, n in zip(sizes, new, strict=True) for v in (n // s if s else 1, s))


def _infer(x: Meta, given: Meta | None, each: list[Meta] | None, times: Sequence[int]) -> Meta:
    rank = tensor_rank(given, each, "repeat_times")
    if rank is None:
        return x.with_shape(_tiled(x.shape, times))
    if len(times) != rank:
        return x.with_shape((UNKNOWN,) * max(rank, x.rank))
    sizes = zip(*_aligned(x.shape, times), strict=True)
    return x.with_shape(UNKNOWN if UNKNOWN in (s, n) else s * n for s, n in sizes)


def _calls(x: Array, given: Any, each: Any, out: Array) -> list[Call]:
    if out.size == 0:
        return []
    pairs = _pairs(x.shape, out.shape)
    ones = tuple(1 if i % 2 == 0 else s for i, s in enumerate(pairs))
    # Splitting an axis never needs a copy, whatever the strides are.
    return [copy(out.reshape(pairs, copy=False), x.reshape(ones, copy=False))]


def _lower(torch: Any, x: Any, given: Any, each: Any, times: Sequence[int]) -> Any:
    counts = [int(t) for t in each] if each else given.tolist() if given is not None else list(times)
    return torch.tile(x, tuple(counts)) if counts else x.clone()


def _back_axes(pairs: Shape) -> tuple[int, ...]:
    return tuple(i for i in range(0, len(pairs), 2) if pairs[i] != 1)


def _back_calls(ins: Sequence[Any], outs: Sequence[Any], scratch: Sequence[Any]) -> Calls:
    dout, dx = ins[1], outs[0]
    if dout.size == 0:
        return [clear(dx)]
    pairs = _pairs(dx.shape, dout.shape)
    return sum_calls(dout.reshape(pairs, copy=False), _back_axes(pairs), dx, scratch)


def _back_scratch_metas(ins: Sequence[Meta], outs: Sequence[Meta]) -> tuple[Meta, ...]:
    dout, dx = ins[1], outs[0]
    if dout.numel == 0:
        return ()
    pairs = _pairs(dx.shape, dout.shape)
    return sum_scratch(dout.with_shape(pairs), _back_axes(pairs))


_BACK = CallRef(_back_calls, _back_scratch_metas, unread=(0,))


def _lower_back(torch: Any, x: Any, dout: Any) -> Any:
    if dout.numel() == 0:
        return torch.zeros(tuple(x.shape), dtype=dout.dtype, device=dout.device)
    pairs = _pairs(tuple(x.shape), tuple(dout.shape))
    axes = _back_axes(pairs)
    folded = dout.reshape(pairs)
    return (folded.sum(axes) if axes else folded).reshape(tuple(x.shape))


def _grad(again_rule: Any) -> GradOp:
    return GradOp(
        "X, Out@GRAD -> X@GRAD",
        ref=_BACK,
        lower=_lower_back,
        shape_only=("X",),
        grad=again_rule,
    )


def _fresh(x: Array, given: Any, each: Any, times: Sequence[int]) -> list[Any]:
    return [np.array(np.tile(x, sizes_of(times, given, each)))]


_NONE = (None, None)
register(
    OpDef(
        "tile",
        "X, RepeatTimes?, repeat_times_tensor*? -> Out",
        attrs={"repeat_times": Attr((), "ints")},
        infer=lambda x, given, each, *, repeat_times: _infer(x, given, each, repeat_times),
        ref=copies(_calls, lambda x, given, each, out, *, repeat_times: _fresh(x, given, each, repeat_times)),
        lower=lambda torch, x, given, each, *, repeat_times: _lower(torch, x, given, each, repeat_times),
        grad=_grad(grad_is_forward_op("tile")),
        amp="gray",
        uses_blas=True,
        domain=Domain(
            cases=(
                Case(((3, 2), *_NONE), {"repeat_times": (2, 3)}),
                Case(((3, 2), *_NONE), {"repeat_times": (2,)}),
                Case(((4,), *_NONE), {"repeat_times": (2, 1, 3)}),
                Case(((), *_NONE), {"repeat_times": (3,)}),
                Case(((2, 0), *_NONE), {"repeat_times": (2, 2)}),
                Case(((2, 3), *_NONE), {"repeat_times": (0, 1)}),
                Case(((2, 1, 2), *_NONE), {"repeat_times": (1, 1, 1)}),
                Case(((2,), *_NONE), {"repeat_times": ()}),
            ),
            others=ANY,
        ),
    )
)


@export("tensor.tile", "Variable.tile", op="tile")
def tile(x: Variable, repeat_times: Any, name: str | None = None) -> Variable:
    """Repeats a value as a whole along each axis.

    Args:
        x: ``[...]``, any dtype.
        repeat_times: How often along each axis, the last ones if there are fewer; more of them add leading axes. A
            list of ints and Variables, or one Variable.
        name: Name of the layer.

    Raises:
        ShapeError: If a number is negative.
    """
    attr, given, each = sizes_given(repeat_times)
    inputs = {"X": check_variable(x, "x", "tile"), "RepeatTimes": given, "repeat_times_tensor": each}
    return emit_one("tile", inputs, {"repeat_times": attr}, name=name)


# ------------------------------------------------------------------------------------------------------ older spellings
def _need_all(x: Meta, times: Sequence[int]) -> None:
    if len(times) != x.rank:
        raise ShapeError(
            "expand_times must have one entry for each dimension",
            expected=f"{x.rank} numbers",
            received=list(times),
            fix="give one number for each dimension",
        )


def _infer_expand(x: Meta, given: Meta | None, each: list[Meta] | None, *, expand_times: Sequence[int]) -> Meta:
    if given is None and not each:
        _need_all(x, expand_times)
    return _infer(x, given, each, expand_times)


register(
    OpDef(
        "expand",
        "X, ExpandTimes?, expand_times_tensor*? -> Out",
        attrs={"expand_times": Attr((), "ints")},
        infer=_infer_expand,
        ref=copies(_calls, lambda x, given, each, out, *, expand_times: _fresh(x, given, each, expand_times)),
        lower=lambda torch, x, given, each, *, expand_times: _lower(torch, x, given, each, expand_times),
        grad=_grad(grad_is_forward_op("expand")),
        uses_blas=True,
        domain=Domain(
            cases=(
                Case(((3, 2), *_NONE), {"expand_times": (2, 3)}),
                Case(((4,), *_NONE), {"expand_times": (3,)}),
                Case(((1, 3), *_NONE), {"expand_times": (4, 1)}),
                Case(((), *_NONE), {"expand_times": ()}),
                Case(((2, 0), *_NONE), {"expand_times": (2, 2)}),
                Case(((2, 1, 3), *_NONE), {"expand_times": (1, 2, 2)}),
            ),
            others=ANY,
        ),
    )
)


@export("fluid.layers.expand", op="expand")
def fluid_expand(x: Variable, expand_times: Any, name: str | None = None) -> Variable:
    """Repeats a value as a whole, ``expand_times[i]`` times along axis ``i``."""
    attr, given, each = sizes_given(expand_times)
    inputs = {"X": check_variable(x, "x", "expand"), "ExpandTimes": given, "expand_times_tensor": each}
    return emit_one("expand", inputs, {"expand_times": attr}, name=name)


def _infer_as(x: Meta, target: Meta) -> Meta:
    fits = x.rank == target.rank and all(
        UNKNOWN in (a, b) or (b % a == 0 if a else b == 0) for a, b in zip(x.shape, target.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            "the target's sizes must be multiples of the value's",
            expected=f"multiples of {list(x.shape)}",
            received=list(target.shape),
            fix="use paddle.expand_as to broadcast",
        )
    return x.with_shape(target.shape)


def _as_grad(ctx: GradContext) -> list[OpSpec]:
    wanted = ctx.in_grads.get(ctx.inputs["Out@GRAD"][0])
    arriving = ctx.out_grads.get(ctx.outputs["X@GRAD"][0])
    if wanted is None or arriving is None:
        return []
    return [OpSpec("expand_as", {"X": [arriving], "target_tensor": ctx.inputs["Out@GRAD"]}, {"Out": [wanted]})]


def _lower_as(torch: Any, x: Any, target: Any) -> Any:
    return torch.tile(x, tuple(b // a if a else 1 for a, b in zip(x.shape, target.shape, strict=True)))


register(
    OpDef(
        "expand_as",
        "X, target_tensor -> Out",
        infer=_infer_as,
        ref=copies(lambda x, target, out: _calls(x, None, None, out)),
        lower=_lower_as,
        grad=_grad(_as_grad),
        shape_only=("target_tensor",),
        uses_blas=True,
        domain=Domain(
            cases=(
                Case(((3, 2), (6, 2))),
                Case(((1, 4), (3, 4))),
                Case(((2,), (6,))),
                Case(((), ())),
                Case(((0, 2), (0, 4))),
                Case(((2, 1, 2), (2, 3, 4))),
            ),
            others=ANY,
        ),
    )
)


@export("fluid.layers.expand_as", op="expand_as")
def fluid_expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """Repeats a value as a whole until it has the target's shape."""
    target = check_variable(target_tensor, "target_tensor", "expand_as")
    return emit_one("expand_as", {"X": check_variable(x, "x", "expand_as"), "target_tensor": target}, name=name)
