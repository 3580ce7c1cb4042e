"""Waves of many lengths added to what stands at each position (Vaswani et al., 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.extras.sequence._offsets import OFFSETS, Array, positions
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_divisible, check_dtype, check_number, check_rank
from tstatic.ir.opdef import LOD, Case, Domain, GradContext, OpDef, OpSpec, export, register
from tstatic.ir.program import Variable
from tstatic.ir.torch_tables import fresh
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.gradients import passed
from tstatic.ops.base.low import in_float32
from tstatic.ops.base.shapes import emit_one

FLOATS = ("float32", "float64")


def _infer(x: Meta, offsets: Meta | None) -> Meta:
    check_dtype(x, FLOATS, "X")
    check_rank(x, 3 if offsets is None else 2, "X", layout="[batch, positions, size], or [rows, size] with a LoD")
    if x.shape[-1] != UNKNOWN:
        check_divisible(
            x.shape[-1], 2, "the size of an encoding", "the number of parts, sine and cosine", "add_position_encoding"
        )
    return x


def _lengths(half: int) -> Array:
    """Returns what positions are divided by in each sine."""
    # Paddle divides by half - 1, not half, so that the last wave is exactly 10000 times the first; one wave alone is 10000 long.
    return 10000.0 ** (np.arange(half) / max(half - 1, 1)) if half > 1 else np.full(half, 10000.0)


def _waves(at: Array, size: int) -> Array:
    """Returns ``[positions, size]``: sines in the first half, cosines in the second one."""
    # In float64 until the sum: a position of 1e5 in float32 is 4e-3 off, which is that much error in the sine.
    angles = at[:, None] / _lengths(size // 2)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _at(x: Any, offsets: Any) -> Array:
    return np.arange(x.shape[1]) if offsets is None else positions(offsets)


@in_float32()
def _ref(x: Array, offsets: Array | None, out: Array, *, alpha: float, beta: float) -> None:
    np.multiply(x, x.dtype.type(alpha), out=out)
    out += (beta * _waves(_at(x, offsets), x.shape[-1])).astype(x.dtype)


def _lower(torch: Any, x: Any, offsets: Any, *, alpha: float, beta: float, tables: Any = fresh) -> Any:
    at = torch.arange(x.shape[1 if offsets is None else 0], device=x.device)
    if offsets is not None:
        # `right`: a row that begins a sequence belongs to it, and empty sequences before it are skipped.
        at = at - offsets[torch.searchsorted(offsets.contiguous(), at, right=True) - 1]
    angles = at[:, None] / tables(torch, _lengths(x.shape[-1] // 2), torch.float64, x.device)
    return x * alpha + (beta * torch.cat([angles.sin(), angles.cos()], 1)).to(x.dtype)


def _grad(ctx: GradContext) -> list[OpSpec]:
    pair = passed(ctx)
    if pair is None:
        return []
    dout, x = pair
    return [OpSpec("scale", {"X": [dout]}, {"Out": [x]}, {"scale": ctx.attrs["alpha"]})]


register(OpDef(
    "add_position_encoding", f"X, X{LOD}? -> Out", lod="X", attrs={"alpha": 1.0, "beta": 1.0}, infer=_infer, ref=_ref,
    lower=_lower,
    grad=_grad,
    domain=Domain(
        cases=(
            Case(((2, 3, 4),), {"alpha": 1.5, "beta": 0.5}), Case(((1, 5, 2),)), Case(((7, 6), (4,)), {"beta": 2.0}),
            Case(((0, 2, 4),)),
        ),
        values={f"X{LOD}": OFFSETS}, floats=FLOATS, ulps=8.0,
    ), onnx="no composition of ONNX's operators is written for it",
))  # fmt: skip


@export("fluid.layers.add_position_encoding", op="add_position_encoding")
def add_position_encoding(input: Variable, alpha: float, beta: float, name: str | None = None) -> Variable:
    """Returns ``alpha * input + beta * waves``: of each position sines and cosines of its number, of many wavelengths.

    Args:
        input: ``[batch, positions, size]``, or ``[rows, size]`` with a LoD; float32 or float64; ``size`` is even.
        alpha, beta: Numbers.
        name: Name of the layer.

    Returns:
        The shape of ``input``.

    Raises:
        ShapeError: If the rank does not fit, or the size is odd.

    Example:
        >>> y = fluid.layers.add_position_encoding(paddle.zeros([1, 2, 4]), alpha=1.0, beta=0.5)
        >>> static.Executor().run(fetch_list=[y])[0].round(4)
        array([[[0.    , 0.    , 0.5   , 0.5   ],
                [0.4207, 0.    , 0.2702, 0.5   ]]], dtype=float32)
    """
    function = "add_position_encoding"
    check_variable(input, "input", function, FLOATS)
    attrs = {"alpha": check_number(alpha, "alpha", function), "beta": check_number(beta, "beta", function)}
    return emit_one(function, {"X": input}, attrs, name=name)
