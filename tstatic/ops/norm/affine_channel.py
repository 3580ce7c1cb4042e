"""A scale and a shift per channel, as of a batch normalisation with fixed statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.attrs import one_of
from tstatic.ir.checks import FLOATS, check_dtype, check_has_shape, check_rank, check_same_dtype
from tstatic.ir.opdef import Attr, Case, Domain, GradOp, OpDef, register
from tstatic.ir.types import Meta
from tstatic.ops._low import in_float32, torch_wide
from tstatic.ops.norm import _norm_onnx as _onnx

Array = np.ndarray[Any, Any]


def _axis(rank: int, data_layout: str) -> int:
    return rank - 1 if data_layout == "NHWC" else 1


def _infer(x: Meta, scale: Meta, bias: Meta, *, data_layout: str) -> Meta:
    check_dtype(x, FLOATS, "X")
    check_rank(x, range(2, 6), "X", layout="[n, c, ...]" if data_layout != "NHWC" else "[n, ..., c]")
    for value, name in ((scale, "Scale"), (bias, "Bias")):
        check_same_dtype((x, value), ("X", name))
        check_has_shape(value, (x.shape[_axis(x.rank, data_layout)],), name, why="a number per channel")
    return x


def _wide(x: Any, value: Any, data_layout: str) -> Any:
    """Returns a vector of channels that broadcasts with ``x``."""
    return value.reshape([-1 if i == _axis(x.ndim, data_layout) else 1 for i in range(x.ndim)])


@in_float32()
def _ref(x: Array, scale: Array, bias: Array, out: Array, *, data_layout: str) -> None:
    np.multiply(x, _wide(x, scale, data_layout), out=out)
    out += _wide(x, bias, data_layout)


@in_float32(3)
def _grad_ref(
    x: Array, scale: Array, bias: Array, dout: Array, dx: Array | None, dscale: Array | None, dbias: Array | None,
    *, data_layout: str,
) -> None:  # fmt: skip
    others = tuple(i for i in range(x.ndim) if i != _axis(x.ndim, data_layout))
    if dscale is not None:
        np.sum(x * dout, axis=others, out=dscale)
    if dbias is not None:
        np.sum(dout, axis=others, out=dbias)
    if dx is not None:
        np.multiply(dout, _wide(x, scale, data_layout), out=dx)


def _lower(torch: Any, x: Any, scale: Any, bias: Any, *, data_layout: str) -> Any:
    return (torch_wide(x) * _wide(x, torch_wide(scale), data_layout) + _wide(x, torch_wide(bias), data_layout)).to(
        x.dtype
    )


def _grad_lower(torch: Any, x: Any, scale: Any, bias: Any, dout: Any, *, data_layout: str) -> Any:
    others = [i for i in range(x.dim()) if i != _axis(x.dim(), data_layout)]
    wide = torch_wide(dout)
    dx = wide * _wide(x, torch_wide(scale), data_layout)
    return dx.to(x.dtype), (torch_wide(x) * wide).sum(others).to(scale.dtype), wide.sum(others).to(bias.dtype)


register(OpDef(
    "affine_channel", "X, Scale, Bias -> Out",
    attrs={"data_layout": Attr("NCHW", "str", one_of("NCHW", "NHWC", "AnyLayout"))}, infer=_infer, ref=_ref, lower=_lower,
    grad=GradOp(
        "X, Scale, Bias, Out@GRAD -> X@GRAD, Scale@GRAD, Bias@GRAD", ref=_grad_ref,
        lower=_grad_lower, shape_only=("Bias",),
    ),
    domain=Domain(
        cases=(
            Case(((2, 3, 2, 2), (3,), (3,))), Case(((2, 2, 1, 3), (3,), (3,)), {"data_layout": "NHWC"}),
            Case(((4, 2), (2,), (2,))), Case(((0, 2, 3, 3), (2,), (2,))),
        ),
        ulps=32.0,
    ), onnx=_onnx.affine,
))  # fmt: skip
