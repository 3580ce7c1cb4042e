"""Group normalisation: each sample's channels in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, check_dtype, check_rank
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, Tile, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops._low import in_float32
from tstatic.ops.conv._sliding import channels, layout_attr
from tstatic.ops.norm._groups import (
    Groups,
    backward,
    backward_pieces,
    backward_scratch,
    forward,
    forward_pieces,
    forward_scratch,
    torch_groups,
    torch_groups_grad,
)
from tstatic.ops.norm._norm import OutputView, check_parameter, check_wide
from tstatic.ops.norm.batch_norm import channel_layout
from tstatic.tuned._common import Array


def _infer(x: Meta, scale: Meta | None, bias: Meta | None, groups: int, data_layout: str) -> tuple[Meta, Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    check_rank(x, (2, 3, 4, 5), "X", layout=data_layout)
    count = x.shape[1] if x.rank == 2 else channels(x.shape, data_layout)
    if count != UNKNOWN and count % groups:
        raise ShapeError(
            "the channels of group_norm cannot be cut into equal groups",
            expected=f"a number of channels that {groups} divides",
            received=f"{count} channels in {list(x.shape)}, groups={groups}",
            fix="change groups, or check data_layout",
        )
    check_parameter(scale, "Scale", count, x)
    check_parameter(bias, "Bias", count, x)
    check_wide(x, Scale=scale, Bias=bias)
    statistics = Meta((x.shape[0], groups), x.dtype.compute)
    return x, statistics, statistics


def _scratch(x: Meta, *rest: Meta | None, groups: int, data_layout: str) -> tuple[Meta, ...]:
    return forward_scratch(x, groups, data_layout)


@in_float32(outputs=3)
def _ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    y: Array,
    mean: Array | None,
    variance: Array | None,
    epsilon: float,
    groups: int,
    data_layout: str,
    scratch: Sequence[Array],
) -> None:
    shape = Groups(x.shape, groups, data_layout)
    own = scratch[3]
    center = OutputView(own[0] if mean is None else mean, shape.rows[:1])
    spread = OutputView(own[1] if variance is None else variance, shape.rows[:1])
    forward(x, scale, bias, y, center.view, spread.view, epsilon, groups, data_layout, scratch)
    center.store()
    spread.store()


def _split(x: Meta, *rest: Meta | None) -> list[Tile] | None:
    return forward_pieces(x, 1)


def _grad_scratch(x: Meta, *rest: Meta | None, groups: int, data_layout: str) -> tuple[Meta, ...]:
    return backward_scratch(x, groups, data_layout)


@in_float32(outputs=3)
def _grad_ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    dy: Array,
    dx: Array | None,
    dscale: Array | None,
    dbias: Array | None,
    epsilon: float,
    groups: int,
    data_layout: str,
    scratch: Sequence[Array],
) -> None:
    inverse = scratch[3][2]
    np.add(variance.reshape(-1), epsilon, inverse)
    np.sqrt(inverse, inverse)
    np.reciprocal(inverse, inverse)
    backward(x, scale, mean.reshape(-1), inverse, dy, dx, dscale, dbias, groups, data_layout, scratch)


def _grad_split(x: Meta, *rest: Meta | None) -> list[Tile] | None:
    return backward_pieces(x, 1)


def _lower(torch: Any, x: Any, scale: Any, bias: Any, epsilon: float, groups: int, data_layout: str) -> Any:
    y, mean, variance = torch_groups(torch, x, scale, bias, epsilon, groups, data_layout)
    return y.to(x.dtype), mean, variance


def _grad_lower(
    torch: Any,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    dy: Any,
    epsilon: float,
    groups: int,
    data_layout: str,
) -> Any:
    return torch_groups_grad(torch, x, scale, bias, dy, epsilon, groups, data_layout)


_CASES = (
    Case(((2, 4, 3, 3), (4,), (4,)), {"groups": 2}),
    Case(((2, 6, 5), (6,), (6,)), {"groups": 3, "epsilon": 1e-3}),
    Case(((2, 3, 2, 4), (4,), (4,)), {"groups": 2, "data_layout": "NHWC"}),
    Case(((3, 4, 2, 2), None, None), {"groups": 4}),
    Case(((2, 4, 2, 3), (4,), None), {"groups": 1}),
    Case(((2, 3, 2, 4), None, (4,)), {"groups": 1, "data_layout": "NHWC"}),
    Case(((0, 4, 3), (4,), (4,)), {"groups": 2}),
    Case(((3, 6), (6,), (6,)), {"groups": 2}),
    Case(((1, 2, 2, 2, 3), (2,), (2,)), {"groups": 1}),
)

register(
    OpDef(
        "group_norm",
        "X, Scale?, Bias? -> Y, Mean~, Variance~",
        attrs={
            "epsilon": Attr(1e-5, "float", lambda e: None if e >= 0 else "a number of at least 0"),
            "groups": Attr(1, "int", lambda g: None if g > 0 else "a number of groups of at least 1"),
            "data_layout": layout_attr("NCHW"),
        },
        infer=_infer,
        ref=plain(_ref, _scratch),
        lower=_lower,
        split=_split,
        grad=GradOp(
            "X, Scale?, Bias?, Mean, Variance, Y@GRAD -> X@GRAD, Scale@GRAD, Bias@GRAD",
            ref=plain(_grad_ref, _grad_scratch),
            lower=_grad_lower,
            split=_grad_split,
            shape_only=("Bias",),
            inplace=(("Y@GRAD", "X@GRAD"),),
        ),
        inplace=(("X", "Y"),),
        amp="gray",
        uses_blas=True,
        domain=Domain(cases=_CASES, ulps=16.0),
    )
)


@export("nn.functional.group_norm", op="group_norm")
def group_norm(
    x: Variable,
    num_groups: int,
    epsilon: float = 1e-05,
    weight: Variable | None = None,
    bias: Variable | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalises groups of channels within each sample, over channels of the group and all places.

    Args:
        x: ``[n, c, ...]`` or, channels last, ``[n, ..., c]``; floats.
        num_groups: Number of groups; it divides the channels.
        epsilon: Added to the variance.
        weight, bias: ``[c]`` or ``None``.
        data_format: ``NCL``, ``NCHW``, ``NCDHW``, ``NLC``, ``NHWC`` or ``NDHWC``.
        name: The layer's name.

    Returns:
        A Variable like ``x``.

    Raises:
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    check_variable(x, "x", "group_norm")
    attrs = {"epsilon": epsilon, "groups": num_groups, "data_layout": channel_layout(data_format, "group_norm")}
    ins = {"X": x, "Scale": weight, "Bias": bias}
    out: Variable = emit("group_norm", ins, attrs, name=name, order=("Mean", "Variance", "Y"))
    return out
