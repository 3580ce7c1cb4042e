"""Random numbers shaped like a value: Paddle's in-place draws, whole numbers, and Poisson counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS, check_dtype, check_int
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, export, register
from tstatic.ir.program import Variable
from tstatic.ir.types import Meta
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.scale import cast, scale
from tstatic.ops.elementwise.unary import floor, log, tan
from tstatic.ops.random._random import DRAWN
from tstatic.tuned import draw
from tstatic.tuned.philox import philox_key

Array = np.ndarray[Any, Any]

_FLOATS = ("float32", "float64", "float16", "bfloat16")


# -------------------------------------------------------------------------------------------------------------- poisson
def _counts(u: Array, rate: Array) -> Array:
    """Returns the least count whose cumulative probability exceeds ``u``: the inverse of the distribution."""
    from scipy import special

    found = np.floor(special.pdtrik(u, rate))
    # The inverse is inexact next to whole numbers: one step in either direction mends it.
    found = np.where(np.isfinite(found), np.maximum(found, 0), 0)
    found = np.where(special.pdtr(found, rate) <= u, found + 1, found)
    return np.where((found > 0) & (special.pdtr(found - 1, rate) > u), found - 1, found)


def _poisson_ref(x: Array, out: Array, *, rng: Any) -> None:
    # By inversion: one number a count, so any tile draws what the whole would. Rejection takes an unknown number of them.
    u = np.empty(x.size, np.float64)
    draw.fill_uniform(u, 0.0, 1.0, philox_key(rng, 0), rng.start)
    np.copyto(out, _counts(u.reshape(x.shape), np.asarray(x, np.float64)), casting="unsafe")


def _poisson_lower(torch: Any, x: Any, *, rng: Any) -> Any:
    u = draw.torch_uniform(torch, x.numel(), np.dtype(np.float64), 0.0, 1.0, philox_key(rng, 0), rng.start, x.device)
    return torch.from_numpy(_counts(u.numpy().reshape(x.shape), x.double().numpy())).to(x.dtype)


def _poisson_infer(x: Meta) -> Meta:
    check_dtype(x, FLOATS, "X", "poisson")
    return x


register(OpDef(
    "poisson", "X -> Out", infer=_poisson_infer, ref=_poisson_ref, lower=_poisson_lower, split=DRAWN, random=True,
    domain=Domain(
        "unary", values={"X": ValueRange(0.1, 6.0)}, ulps=0, check_grad="a count has no gradient", cases=(Case(((400,),)),),
    ),
))  # fmt: skip


@export("tensor.poisson", op="poisson")
def poisson(x: Variable, name: str | None = None) -> Variable:
    """Draws a Poisson count for each rate, of the dtype of ``x``.

    Args:
        x: Rates of at least 0, any shape.
        name: Name of the layer.

    Example:
        >>> y = paddle.poisson(paddle.full([20000], 3.0))
        >>> value = static.Executor().run(fetch_list=[y])[0]
        >>> bool(abs(value.mean() - 3) < 0.1 and abs(value.var() - 3) < 0.2)
        True
    """
    return emit_one("poisson", {"X": check_variable(x, "x", "poisson")}, name=name)


# ------------------------------------------------------------------------------------------------------- in-place draws
def _unit(x: Any, function: str) -> Variable:
    """Returns uniform numbers in [0, 1), shaped like ``x``."""
    x = check_variable(x, "x", function, _FLOATS)
    return emit_one("uniform_random_inplace", {"X": x}, {"min": 0.0, "max": 1.0})


@export("tensor.uniform_", "Variable.uniform_", op="uniform_random_inplace")
def uniform_(x: Variable, min: float = -1.0, max: float = 1.0, seed: int = 0, name: str | None = None) -> Variable:
    """Draws uniform numbers in [min, max), shaped like ``x``, as a new Variable.

    Args:
        x: Floats; only their shape and dtype count.
        min, max: The range.
        seed: Replaces the program's seed when it is not 0.
        name: Name of the layer.
    """
    x = check_variable(x, "x", "uniform_", _FLOATS)
    return emit_one("uniform_random_inplace", {"X": x}, {"min": min, "max": max, "seed": seed}, name=name)


@export("tensor.normal_", "Variable.normal_", op="gaussian_inplace")
def normal_(x: Variable, mean: float = 0.0, std: float = 1.0, name: str | None = None) -> Variable:
    """Draws normal numbers, shaped like ``x``, as a new Variable.

    Args:
        x: Floats; only their shape and dtype count.
        mean, std: Of the distribution.
        name: Name of the layer.
    """
    x = check_variable(x, "x", "normal_", _FLOATS)
    return emit_one("gaussian_inplace", {"X": x}, {"mean": mean, "std": std}, name=name)


@export("tensor.exponential_", "Variable.exponential_")
def exponential_(x: Variable, lam: float = 1.0, name: str | None = None) -> Variable:
    """Draws waiting times of rate ``lam``, shaped like ``x``, as a new Variable.

    Args:
        x: Floats; only their shape and dtype count.
        lam: The rate; the mean is its inverse.
        name: Name of the layer.
    """
    # log(1 - u), not log(u): u may be 0, but never 1.
    return scale(log(scale(_unit(x, "exponential_"), -1.0, 1.0)), -1.0 / lam, name=name)


@export("tensor.cauchy_", "Variable.cauchy_")
def cauchy_(x: Variable, loc: float = 0, scale: float = 1, name: str | None = None) -> Variable:
    """Draws numbers of a Cauchy distribution, shaped like ``x``, as a new Variable.

    Args:
        x: Floats; only their shape and dtype count.
        loc: The median.
        scale: Half the distance of the quartiles.
        name: Name of the layer.
    """
    # The inverse of the distribution: the tangent of an angle that is uniform between -pi / 2 and pi / 2.
    angles = emit_one("scale", {"X": _unit(x, "cauchy_")}, {"scale": math.pi, "bias": -math.pi / 2})
    return emit_one("scale", {"X": tan(angles)}, {"scale": float(scale), "bias": float(loc)}, name=name)


@export("tensor.geometric_", "Variable.geometric_")
def geometric_(x: Variable, probs: float, name: str | None = None) -> Variable:
    """Draws ``log(u) / log(1 - probs)`` of uniform ``u``, shaped like ``x``; rounded up, it is a number of trials.

    Args:
        x: Floats; only their shape and dtype count.
        probs: The probability of success, between 0 and 1.
        name: Name of the layer.
    """
    return scale(log(scale(_unit(x, "geometric_"), -1.0, 1.0)), 1.0 / math.log1p(-probs), name=name)


@export("tensor.randint_like")
def randint_like(
    x: Variable, low: int = 0, high: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Draws whole numbers from ``low`` to ``high - 1``, shaped like ``x``; from 0 to ``low - 1`` when ``high`` is ``None``.

    Args:
        x: A Variable of any dtype; only its shape and dtype count.
        low: Smallest number.
        high: One more than the largest.
        dtype: That of ``x`` by default.
        name: Name of the layer.

    Raises:
        ShapeError: If the range is empty.
    """
    x = check_variable(x, "x", "randint_like")
    first, last = (0, low) if high is None else (low, high)
    width = check_int(last, "high", "randint_like", least=check_int(first, "low", "randint_like") + 1) - first
    # In float64: 24 bits would leave out numbers of a range above 2**24.
    drawn = floor(scale(_unit(cast(x, "float64"), "randint_like"), float(width)))
    kind = x.dtype if dtype is None else dtype
    return (
        cast(scale(drawn, bias=float(first)), kind) if name is None else scale(cast(drawn, kind), bias=first, name=name)
    )
