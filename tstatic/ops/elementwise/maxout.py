"""The maximum over groups of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_divisible, check_dtype
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.shape_checks import check_fit
from tstatic.ir.split import BATCHES, Split
from tstatic.ir.types import Meta, bool_, int64, normalize_axis
from tstatic.ops.base.low import in_float32, torch_wide
from tstatic.ops.base.norm import OutputView
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise import _elementwise_onnx as _onnx
from tstatic.tuned._common import Array


def _infer(x: Meta, groups: int, axis: int) -> Meta:
    check_dtype(x, FLOATS, "X")
    at = normalize_axis(axis, x.rank)
    check_fit(
        at > 0, [x], ["X"], "the channels of maxout stand along the batch", "an axis after the first", "check axis"
    )
    sizes = [*x.shape]
    sizes[at] = check_divisible(x.shape[at], groups, "the number of channels", "groups", "maxout")
    return x.with_shape(sizes)


def _grouped(shape: Sequence[int], groups: int, axis: int) -> tuple[tuple[int, ...], int]:
    """Returns the shape with an axis for the members of a group, and where it stands."""
    place = normalize_axis(axis, len(shape))
    return (*shape[:place], shape[place] // groups, groups, *shape[place + 1 :]), place + 1


@in_float32()
def _ref(x: Array, out: Array, groups: int, axis: int) -> None:
    shape, competing = _grouped(x.shape, groups, axis)
    np.maximum.reduce(x.reshape(shape), axis=competing, out=out)


def _grad_scratch(x: Meta, out: Meta, dout: Meta, dx: Meta) -> tuple[Meta, ...]:
    # argmax writes to int64 only.
    return Meta(dout.shape, int64), Meta(dout.shape, bool_)


@in_float32()
def _grad_ref(x: Array, out: Array, dout: Array, dx: Array, groups: int, axis: int, scratch: Sequence[Array]) -> None:
    shape, competing = _grouped(x.shape, groups, axis)
    chosen, here = scratch
    if dout.size == 0:
        return
    # argmax takes the first of equal channels, which gets the whole gradient.
    np.argmax(x.reshape(shape), axis=competing, out=chosen)
    target = OutputView(dx, shape)
    target.view.fill(0)
    lead: tuple[Any, ...] = (slice(None),) * competing
    for k in range(groups):
        # A pass for each member of a group: groups are small, and the scratch has the shape of the output only.
        np.equal(chosen, k, out=here)
        np.copyto(target.view[(*lead, k)], dout, where=here)
    target.store()


def _lower(torch: Any, x: Any, groups: int, axis: int) -> Any:
    shape, competing = _grouped(tuple(x.shape), groups, axis)
    return x.reshape(shape).amax(competing)


def _grad_lower(torch: Any, x: Any, out: Any, dout: Any, groups: int, axis: int) -> Any:
    shape, competing = _grouped(tuple(x.shape), groups, axis)
    wide = torch_wide(x).reshape(shape)
    if x.numel() == 0:
        return torch.zeros_like(x)
    # Not amax's own gradient, which shares it evenly among equal channels.
    index = wide.argmax(competing, keepdim=True)
    return (
        torch.zeros_like(wide)
        .scatter(competing, index, torch_wide(dout).unsqueeze(competing))
        .reshape(x.shape)
        .to(x.dtype)
    )


register(OpDef(
    "maxout", "X -> Out", lod="X",
    attrs={"groups": Attr(kind="int", check=lambda g: None if g > 0 else "at least one group"), "axis": 1},
    infer=_infer, ref=_ref, lower=_lower, split=Split(BATCHES, 0),
    grad=GradOp("X, Out, Out@GRAD -> X@GRAD", ref=plain(_grad_ref, _grad_scratch), lower=_grad_lower, split=Split(BATCHES, 0)),
    amp="gray",
    domain=Domain(
        cases=(
            Case(((2, 6, 2, 3),), {"groups": 3}), Case(((2, 3, 2, 4),), {"groups": 2, "axis": -1}),
            Case(((2, 2, 3, 4),), {"groups": 4, "axis": 3}), Case(((0, 4, 2, 2),), {"groups": 2}),
            Case(((2, 3, 2, 2),), {"groups": 1}), Case(((3, 5),), {"groups": 5}),
        ),
        values={"X": ValueRange(-2.0, 2.0, distinct=True)}, ulps=0.0,
    ), onnx=_onnx.maxout,
))  # fmt: skip


@export("nn.functional.maxout", op="maxout")
def maxout(x: Variable, groups: int, axis: int = 1, name: str | None = None) -> Variable:
    """Returns ``out[n, i] = max over k of x[n, i * groups + k]`` along the channels.

    Args:
        x: ``[n, c, ...]``, or channels elsewhere after the first axis; floats.
        groups: Channels that compete for one of the output; it divides the channels.
        axis: Where channels stand.
        name: The layer's name.

    Returns:
        ``x`` with ``c / groups`` channels.

    Raises:
        ShapeError: If ``groups`` does not divide the channels.

    Example:
        >>> x = paddle.to_tensor([[[[1.0]], [[5.0]], [[3.0]], [[2.0]]]])
        >>> y = paddle.nn.functional.maxout(x, groups=2)
        >>> static.Executor().run(fetch_list=[y])[0].ravel()
        array([5., 3.], dtype=float32)
    """
    check_variable(x, "x", "maxout")
    return emit_one("maxout", {"X": x}, {"groups": groups, "axis": axis}, name=name)


@export("fluid.layers.maxout", op="maxout")
def maxout_1x(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """Returns what :func:`maxout` returns, with the order of arguments of Paddle 1.x.

    Args:
        x: ``[n, c, h, w]``.
        groups: How many channels compete for one of the output; it divides ``c``.
        name: Name of the layer.
        axis: The axis of the channels.

    Returns:
        ``x`` with ``c / groups`` channels.

    Raises:
        ShapeError: If ``groups`` does not divide the channels.
    """
    return maxout(x, groups, axis, name)
