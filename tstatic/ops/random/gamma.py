"""Draws of gamma distributions, which beta and Dirichlet distributions are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.checks import check_dtype
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.random._random import DRAWN
from tstatic.tuned import draw
from tstatic.tuned._common import Array
from tstatic.tuned.philox import philox_key


def _inverse(u: Array, shape: Array, like: Any) -> Array:
    """Returns where the cumulative distribution is ``u``; never 0, so that shares of a sum exist."""
    from scipy import special

    return np.asarray(np.maximum(special.gammaincinv(shape, u), np.finfo(like).tiny))


def _ref(x: Array, out: Array, *, rng: Any) -> None:
    # By inversion, one number a draw, so that tiles draw what the whole would; rejection takes an unknown number of them.
    u = np.empty(x.size, np.float64)
    draw.fill_uniform(u, 0.0, 1.0, philox_key(rng, 0), rng.start)
    np.copyto(out, _inverse(u.reshape(x.shape), np.asarray(x, np.float64), x.dtype), casting="unsafe")


def _lower(torch: Any, x: Any, *, rng: Any) -> Any:
    u = draw.torch_uniform(torch, x.numel(), np.dtype(np.float64), 0.0, 1.0, philox_key(rng, 0), rng.start, x.device)
    found = _inverse(u.numpy().reshape(x.shape), x.double().numpy(), x.numpy().dtype)
    return torch.from_numpy(found).to(x.dtype)


def _infer(x: Meta) -> Meta:
    check_dtype(x, ("float32", "float64"), "X", "standard_gamma")
    return x


register(OpDef(
    "standard_gamma", "X -> Out", infer=_infer, ref=_ref, lower=_lower, split=DRAWN, random=True, paddle=ABSENT,
    domain=Domain("unary", values={"X": ValueRange(0.3, 6.0)}, floats=("float32", "float64"), ulps=1, cases=(Case(((400,),)),),
    ),
))  # fmt: skip


def standard_gamma(x: Variable) -> Variable:
    """Draws a gamma variate of scale 1 for each shape parameter; no gradient flows through it.

    Args:
        x: Positive shape parameters, float32 or float64 of any shape.
    """
    drawn = emit_one("standard_gamma", {"X": x})
    drawn.stop_gradient = True
    return drawn
