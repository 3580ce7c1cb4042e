"""Further optimizer updates over blocks of flat arrays: adamax, adagrad, adadelta, rmsprop, lamb (see ``update``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tstatic.ops.kernels._common import BLOCK, Array


def _blocks(count: int) -> Iterator[slice]:
    return (slice(i, min(i + BLOCK, count)) for i in range(0, count, BLOCK))


def _scalars(like: Array, *values: float) -> tuple[Array, ...]:
    return tuple(np.asarray(v, like.dtype) for v in values)


def _average(old: Array, new: Array, decay: Array, rest: Array, out: Array, work: Array) -> None:
    """``out = decay * old + rest * new``."""
    np.multiply(new, rest, work)
    np.multiply(old, decay, out)
    np.add(out, work, out)


def adamax(
    param: Array, grad: Array, m: Array, norm: Array, lr_t: float, beta1: float, beta2: float, epsilon: float,
    out_param: Array, out_m: Array, out_norm: Array, scratch: Sequence[Array],
) -> None:  # fmt: skip
    """``m = b1 m + (1-b1) g; n = max(|g|, b2 n + epsilon); param -= lr_t m / n``, ``lr_t = lr / (1 - beta1^t)``."""
    rate, b1, rest, b2, eps = _scalars(param, lr_t, beta1, 1 - beta1, beta2, epsilon)
    for b in _blocks(param.size):
        step, g, first, largest = scratch[0][: b.stop - b.start], grad[b], out_m[b], out_norm[b]
        _average(m[b], g, b1, rest, first, step)
        np.multiply(norm[b], b2, largest)
        np.add(largest, eps, largest)
        np.absolute(g, step)
        np.maximum(step, largest, out=largest)
        np.divide(first, largest, step)
        np.multiply(step, rate, step)
        np.subtract(param[b], step, out_param[b])


def adagrad(
    param: Array, grad: Array, moment: Array, lr: float, epsilon: float, out_param: Array, out_moment: Array,
    scratch: Sequence[Array],
) -> None:  # fmt: skip
    """``s += g * g; param -= lr * g / (sqrt(s) + epsilon)``."""
    rate, eps = _scalars(param, lr, epsilon)
    for b in _blocks(param.size):
        step, work, g, s = scratch[0][: b.stop - b.start], scratch[1][: b.stop - b.start], grad[b], out_moment[b]
        np.multiply(g, g, step)
        np.add(moment[b], step, s)
        np.sqrt(s, step)
        np.add(step, eps, step)
        np.multiply(g, rate, work)
        np.divide(work, step, step)
        np.subtract(param[b], step, out_param[b])


def adadelta(
    param: Array, grad: Array, square_grad: Array, square_update: Array, lr: float, rho: float, epsilon: float,
    out_param: Array, out_grad: Array, out_update: Array, scratch: Sequence[Array],
) -> None:  # fmt: skip
    """``E = rho E + (1-rho) g g; u = g sqrt(D + eps) / sqrt(E + eps); D = rho D + (1-rho) u u; param -= lr u``."""
    rate, keep, rest, eps = _scalars(param, lr, rho, 1 - rho, epsilon)
    for b in _blocks(param.size):
        size = b.stop - b.start
        step, work, g, e, d = scratch[0][:size], scratch[1][:size], grad[b], out_grad[b], out_update[b]
        np.multiply(g, g, step)
        _average(square_grad[b], step, keep, rest, e, work)
        np.add(e, eps, work)
        np.sqrt(work, work)
        np.add(square_update[b], eps, step)
        np.sqrt(step, step)
        np.divide(step, work, step)
        np.multiply(step, g, step)
        np.multiply(step, step, work)
        np.multiply(work, rest, work)
        np.multiply(square_update[b], keep, d)
        np.add(d, work, d)
        np.multiply(step, rate, step)
        np.subtract(param[b], step, out_param[b])


def rmsprop(
    param: Array, grad: Array, moment: Array, square: Array, mean: Array | None, lr: float, decay: float,
    momentum: float, epsilon: float, out_param: Array, out_moment: Array, out_square: Array, out_mean: Array | None,
    scratch: Sequence[Array],
) -> None:  # fmt: skip
    """``s = rho s + (1-rho) g g; m = momentum m + lr g / sqrt(s + epsilon); param -= m``.

    With ``mean`` (the centred form) ``a = rho a + (1-rho) g`` and the root is ``sqrt(s - a a + epsilon)``.
    """
    rate, keep, rest, mu, eps = _scalars(param, lr, decay, 1 - decay, momentum, epsilon)
    for b in _blocks(param.size):
        size = b.stop - b.start
        step, work, g, m, s = scratch[0][:size], scratch[1][:size], grad[b], out_moment[b], out_square[b]
        np.multiply(g, g, step)
        _average(square[b], step, keep, rest, s, work)
        if mean is not None and out_mean is not None:
            a = out_mean[b]
            _average(mean[b], g, keep, rest, a, work)
            np.multiply(a, a, work)
            np.subtract(s, work, step)
            np.add(step, eps, step)
        else:
            np.add(s, eps, step)
        np.sqrt(step, step)
        np.multiply(g, rate, work)
        np.divide(work, step, step)
        np.multiply(moment[b], mu, m)
        np.add(m, step, m)
        np.subtract(param[b], m, out_param[b])


def lamb_moments(
    param: Array, grad: Array, m: Array, v: Array, scalars: LambScalars, out_m: Array, out_v: Array,
    scratch: Sequence[Array],
) -> tuple[float, float]:  # fmt: skip
    """First pass: the moments, and the sums of squares of the parameter and of the direction (see ``lamb_step``)."""
    b1, rest1, b2, rest2 = _scalars(param, scalars.beta1, 1 - scalars.beta1, scalars.beta2, 1 - scalars.beta2)
    total_p = total_r = 0.0
    for b in _blocks(param.size):
        size = b.stop - b.start
        step, work, g = scratch[0][:size], scratch[1][:size], grad[b]
        _average(m[b], g, b1, rest1, out_m[b], work)
        np.multiply(g, g, step)
        _average(v[b], step, b2, rest2, out_v[b], work)
        _lamb_direction(param[b], out_m[b], out_v[b], scalars, step, work)
        total_p += float(np.dot(param[b], param[b]))
        total_r += float(np.dot(step, step))
    return total_p, total_r


class LambScalars:
    """Numbers of one Lamb update.

    Attributes:
        beta1, beta2, epsilon, weight_decay: As given.
        correct1, correct2: ``1 - beta1^t`` and ``1 - beta2^t``.
    """

    __slots__ = ("beta1", "beta2", "correct1", "correct2", "epsilon", "weight_decay")

    def __init__(
        self, beta1: float, beta2: float, epsilon: float, weight_decay: float, pow1: float, pow2: float
    ) -> None:
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.weight_decay = weight_decay
        self.correct1 = 1 - pow1
        self.correct2 = 1 - pow2


def _lamb_direction(p: Array, m: Array, v: Array, s: LambScalars, step: Array, work: Array) -> None:
    """``step = (m / c1) / (sqrt(v / c2) + epsilon) + weight_decay * p``."""
    c1, c2, eps, decay = _scalars(p, s.correct1, s.correct2, s.epsilon, s.weight_decay)
    np.divide(v, c2, work)
    np.sqrt(work, work)
    np.add(work, eps, work)
    np.divide(m, c1, step)
    np.divide(step, work, step)
    if s.weight_decay:
        np.multiply(p, decay, work)
        np.add(step, work, step)


def lamb_step(
    param: Array, m: Array, v: Array, lr: float, ratio: float, scalars: LambScalars, out_param: Array,
    scratch: Sequence[Array],
) -> None:  # fmt: skip
    """Second pass: ``param -= lr * ratio * direction``, the direction computed anew so that it needs no buffer."""
    (rate,) = _scalars(param, lr * ratio)
    for b in _blocks(param.size):
        size = b.stop - b.start
        step, work = scratch[0][:size], scratch[1][:size]
        _lamb_direction(param[b], m[b], v[b], scalars, step, work)
        np.multiply(step, rate, step)
        np.subtract(param[b], step, out_param[b])


def trust_ratio(squares_p: float, squares_r: float) -> float:
    """``|p| / |r|`` when both are above 0, else 1."""
    if squares_p > 0 and squares_r > 0:
        return math.sqrt(squares_p) / math.sqrt(squares_r)
    return 1.0
