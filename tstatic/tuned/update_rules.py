"""Further optimizer updates over one block of flat arrays: adamax, adagrad, adadelta, rmsprop, lamb (see ``update``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tstatic.tuned._common import Array
from tstatic.tuned.update import Calls, Scalars, recorder


def _average(
    then: Callable[..., None], old: Array, new: Array, s: tuple[Array, Array], out: Array, work: Array
) -> None:
    """``out = decay * old + rest * new``, with ``s`` the pair of decay and rest."""
    decay, rest = s
    then(np.multiply, new, rest, work)
    then(np.multiply, old, decay, out)
    then(np.add, out, work, out)


def adamax(
    param: Array, grad: Array, m: Array, norm: Array, s: Scalars, out_param: Array, out_m: Array, out_norm: Array,
    scratch: Sequence[Array],
) -> Calls:  # fmt: skip
    """``m = b1 m + (1-b1) g; n = max(|g|, b2 n + epsilon); param -= rate m / n``, ``rate = lr / (1 - beta1^t)``."""
    calls, then = recorder()
    step = scratch[0][: param.size]
    _average(then, m, grad, (s["beta1"], s["rest1"]), out_m, step)
    then(np.multiply, norm, s["beta2"], out_norm)
    then(np.add, out_norm, s["epsilon"], out_norm)
    then(np.absolute, grad, step)
    then(partial(np.maximum, out=out_norm), step, out_norm)
    then(np.divide, out_m, out_norm, step)
    then(np.multiply, step, s["rate"], step)
    then(np.subtract, param, step, out_param)
    return calls


def adagrad(
    param: Array, grad: Array, moment: Array, s: Scalars, out_param: Array, out_moment: Array, scratch: Sequence[Array]
) -> Calls:
    """``m += g * g; param -= rate * g / (sqrt(m) + epsilon)``."""
    calls, then = recorder()
    step, work = scratch[0][: param.size], scratch[1][: param.size]
    then(np.multiply, grad, grad, step)
    then(np.add, moment, step, out_moment)
    then(np.sqrt, out_moment, step)
    then(np.add, step, s["epsilon"], step)
    then(np.multiply, grad, s["rate"], work)
    then(np.divide, work, step, step)
    then(np.subtract, param, step, out_param)
    return calls


def adadelta(
    param: Array, grad: Array, square_grad: Array, square_update: Array, s: Scalars, out_param: Array, out_grad: Array,
    out_update: Array, scratch: Sequence[Array],
) -> Calls:  # fmt: skip
    """``E = rho E + (1-rho) g g; u = g sqrt(D + eps) / sqrt(E + eps); D = rho D + (1-rho) u u; param -= rate u``."""
    calls, then = recorder()
    step, work = scratch[0][: param.size], scratch[1][: param.size]
    then(np.multiply, grad, grad, step)
    _average(then, square_grad, step, (s["rho"], s["rest"]), out_grad, work)
    then(np.add, out_grad, s["epsilon"], work)
    then(np.sqrt, work, work)
    then(np.add, square_update, s["epsilon"], step)
    then(np.sqrt, step, step)
    then(np.divide, step, work, step)
    then(np.multiply, step, grad, step)
    then(np.multiply, step, step, work)
    then(np.multiply, work, s["rest"], work)
    then(np.multiply, square_update, s["rho"], out_update)
    then(np.add, out_update, work, out_update)
    then(np.multiply, step, s["rate"], step)
    then(np.subtract, param, step, out_param)
    return calls


def rmsprop(
    param: Array, grad: Array, moment: Array, square: Array, mean: Array | None, s: Scalars, out_param: Array,
    out_moment: Array, out_square: Array, out_mean: Array | None, scratch: Sequence[Array],
) -> Calls:  # fmt: skip
    """``q = rho q + (1-rho) g g; m = momentum m + rate g / sqrt(q + epsilon); param -= m``.

    With ``mean`` (the centred form) ``a = rho a + (1-rho) g`` and the root is ``sqrt(q - a a + epsilon)``.
    """
    calls, then = recorder()
    step, work = scratch[0][: param.size], scratch[1][: param.size]
    pair = s["rho"], s["rest"]
    then(np.multiply, grad, grad, step)
    _average(then, square, step, pair, out_square, work)
    if mean is not None and out_mean is not None:
        _average(then, mean, grad, pair, out_mean, work)
        then(np.multiply, out_mean, out_mean, work)
        then(np.subtract, out_square, work, step)
        then(np.add, step, s["epsilon"], step)
    else:
        then(np.add, out_square, s["epsilon"], step)
    then(np.sqrt, step, step)
    then(np.multiply, grad, s["rate"], work)
    then(np.divide, work, step, step)
    then(np.multiply, moment, s["momentum"], out_moment)
    then(np.add, out_moment, step, out_moment)
    then(np.subtract, param, out_moment, out_param)
    return calls


def lamb_moments(
    param: Array, grad: Array, m: Array, v: Array, s: Scalars, decays: bool, squares: dict[str, float], out_m: Array,
    out_v: Array, scratch: Sequence[Array],
) -> Calls:  # fmt: skip
    """First pass: the moments, and the sums of squares of the parameter and of the direction (see :func:`lamb_step`).

    Args:
        param, grad, m, v: Flat arrays.
        s: ``beta1``, ``rest1``, ``beta2``, ``rest2``, ``correct1`` (``1 - beta1^t``), ``correct2``, ``epsilon``, ``decay``.
        decays: Whether the decay is not 0.
        squares: ``squares_p`` and ``squares_r`` grow by what is found here.
        out_m, out_v: Written.
        scratch: Two blocks.
    """
    calls, then = recorder()
    step, work = scratch[0][: param.size], scratch[1][: param.size]
    _average(then, m, grad, (s["beta1"], s["rest1"]), out_m, work)
    then(np.multiply, grad, grad, step)
    _average(then, v, step, (s["beta2"], s["rest2"]), out_v, work)
    _lamb_direction(then, param, out_m, out_v, s, decays, step, work)
    then(_add_squares, squares, param, step)
    return calls


def _add_squares(squares: dict[str, float], p: Array, r: Array) -> None:
    squares["squares_p"] += float(np.dot(p, p))
    squares["squares_r"] += float(np.dot(r, r))


def _lamb_direction(
    then: Callable[..., None], p: Array, m: Array, v: Array, s: Scalars, decays: bool, step: Array, work: Array
) -> None:
    """``step = (m / c1) / (sqrt(v / c2) + epsilon) + decay * p``."""
    then(np.divide, v, s["correct2"], work)
    then(np.sqrt, work, work)
    then(np.add, work, s["epsilon"], work)
    then(np.divide, m, s["correct1"], step)
    then(np.divide, step, work, step)
    if decays:
        then(np.multiply, p, s["decay"], work)
        then(np.add, step, work, step)


def lamb_step(
    param: Array, m: Array, v: Array, s: Scalars, decays: bool, out_param: Array, scratch: Sequence[Array]
) -> Calls:
    """Second pass: ``param -= rate * direction``, the direction computed anew so that it needs no buffer."""
    calls, then = recorder()
    step, work = scratch[0][: param.size], scratch[1][: param.size]
    _lamb_direction(then, param, m, v, s, decays, step, work)
    then(np.multiply, step, s["rate"], step)
    then(np.subtract, param, step, out_param)
    return calls


def trust_ratio(squares_p: float, squares_r: float) -> float:
    """``|p| / |r|`` when both are above 0, else 1."""
    if squares_p > 0 and squares_r > 0:
        return math.sqrt(squares_p) / math.sqrt(squares_r)
    return 1.0
