"""Instance normalisation: each channel of each sample by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import UnsupportedError
from tstatic.ir.build import check_variable, emit
from tstatic.ir.checks import FLOATS, check_dtype, check_rank
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, Tile, export, register
from tstatic.ir.program import Variable
from tstatic.ir.ref import plain
from tstatic.ir.types import Meta, numel
from tstatic.no_effect import no_effect
from tstatic.ops._low import in_float32
from tstatic.ops.norm._groups import (
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


def _infer(x: Meta, scale: Meta | None, bias: Meta | None) -> tuple[Meta, Meta, Meta]:
    check_dtype(x, FLOATS, "X")
    check_rank(x, (2, 3, 4, 5), "X", layout="NCHW")
    check_parameter(scale, "Scale", x.shape[1], x)
    check_parameter(bias, "Bias", x.shape[1], x)
    check_wide(x, Scale=scale, Bias=bias)
    statistics = Meta((numel(x.shape[:2]),), x.dtype.compute)
    return x, statistics, statistics


def _scratch(x: Meta, *rest: Meta | None) -> tuple[Meta, ...]:
    return forward_scratch(x, max(1, x.shape[1]), "NCHW")


@in_float32(outputs=3)
def _ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    y: Array,
    saved_mean: Array | None,
    saved_inverse: Array | None,
    epsilon: float,
    scratch: Sequence[Array],
) -> None:
    own = scratch[3]
    center = OutputView(own[0] if saved_mean is None else saved_mean, own[0].shape)
    spread = OutputView(own[1] if saved_inverse is None else saved_inverse, own[1].shape)
    forward(x, scale, bias, y, center.view, spread.view, epsilon, max(1, x.shape[1]), "NCHW", scratch)
    # SavedVariance holds 1 / sqrt(variance + epsilon), as in batch_norm.
    np.add(spread.view, epsilon, spread.view)
    np.sqrt(spread.view, spread.view)
    np.reciprocal(spread.view, spread.view)
    center.store()
    spread.store()


def _split(x: Meta, *rest: Meta | None) -> list[Tile] | None:
    return forward_pieces(x, x.shape[1])


def _grad_scratch(x: Meta, *rest: Meta | None) -> tuple[Meta, ...]:
    return backward_scratch(x, max(1, x.shape[1]), "NCHW")


@in_float32(outputs=3)
def _grad_ref(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    saved_mean: Array,
    saved_inverse: Array,
    dy: Array,
    dx: Array | None,
    dscale: Array | None,
    dbias: Array | None,
    scratch: Sequence[Array],
) -> None:
    groups = max(1, x.shape[1])
    backward(x, scale, saved_mean, saved_inverse, dy, dx, dscale, dbias, groups, "NCHW", scratch)


def _grad_split(x: Meta, *rest: Meta | None) -> list[Tile] | None:
    return backward_pieces(x, x.shape[1])


def _lower(torch: Any, x: Any, scale: Any, bias: Any, epsilon: float) -> Any:
    y, mean, variance = torch_groups(torch, x, scale, bias, epsilon, max(1, x.shape[1]), "NCHW")
    return y.to(x.dtype), mean.flatten(), torch.rsqrt(variance + epsilon).flatten()


def _grad_lower(
    torch: Any, x: Any, scale: Any, bias: Any, saved_mean: Any, saved_inverse: Any, dy: Any, epsilon: float
) -> Any:
    return torch_groups_grad(torch, x, scale, bias, dy, epsilon, max(1, x.shape[1]), "NCHW")


_CASES = (
    Case(((2, 3, 4, 3), (3,), (3,)), {}),
    Case(((2, 4, 5), (4,), (4,)), {"epsilon": 1e-3}),
    Case(((3, 2, 2, 2, 2), (2,), (2,)), {}),
    Case(((3, 4, 2, 2), None, None), {}),
    Case(((2, 4, 2, 3), (4,), None), {}),
    Case(((0, 4, 3), (4,), (4,)), {}),
    Case(((1, 1, 17), (1,), (1,)), {}),
)

register(
    OpDef(
        "instance_norm",
        "X, Scale?, Bias? -> Y, SavedMean~, SavedVariance~",
        attrs={"epsilon": Attr(1e-5, "float", lambda e: None if e >= 0 else "a number of at least 0")},
        infer=_infer,
        ref=plain(_ref, _scratch),
        lower=_lower,
        split=_split,
        grad=GradOp(
            "X, Scale?, Bias?, SavedMean, SavedVariance, Y@GRAD -> X@GRAD, Scale@GRAD, Bias@GRAD",
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


OWN = "each channel of each sample is normalised by its own statistics"


@no_effect(
    running_mean=OWN, running_var=OWN, momentum=OWN, data_format="channels stand second in each layout that is taken"
)
@export("nn.functional.instance_norm", op="instance_norm")
def instance_norm(
    x: Variable,
    running_mean: Variable | None = None,
    running_var: Variable | None = None,
    weight: Variable | None = None,
    bias: Variable | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.9,
    eps: float = 1e-05,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalises each channel of each sample over its places.

    Args:
        x: ``[n, c, ...]``, floats.
        weight, bias: ``[c]`` or ``None``.
        use_input_stats: Must be true.
        eps: Added to the variance.
        data_format: ``NC``, ``NCL``, ``NCHW`` or ``NCDHW``.
        name: The layer's name.

    Returns:
        A Variable like ``x``.

    Raises:
        UnsupportedError: For running statistics, or channels last.
        ProgramTypeError, ShapeError, DTypeError: Where an argument does not fit.
    """
    check_variable(x, "x", "instance_norm")
    last = channel_layout(data_format, "instance_norm") == "NHWC"
    if last or not use_input_stats:
        raise UnsupportedError(
            "instance_norm normalises by the input's own statistics, channels first",
            expected="use_input_stats=True and a data_format with channels second",
            received=f"use_input_stats={use_input_stats}, data_format={data_format!r}",
            fix="transpose x to NCHW first" if last else "use batch_norm with use_global_stats=True",
            op="instance_norm",
        )
    ins = {"X": x, "Scale": weight, "Bias": bias}
    order = ("SavedMean", "SavedVariance", "Y")
    out: Variable = emit("instance_norm", ins, {"epsilon": eps}, name=name, order=order)
    return out
