"""Continuous distributions: normal, uniform, Laplace, Cauchy, beta and Dirichlet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tstatic.extras.distribution.base import NAMES, Distribution, ExponentialFamily, broadcast, parameters, register_kl
from tstatic.ir.checks import check_rank
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.no_effect import no_effect
from tstatic.ops.elementwise.arithmetic import divide
from tstatic.ops.elementwise.logic import logical_and, where
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.elementwise.special import digamma, lgamma
from tstatic.ops.elementwise.unary import abs, atan, exp, expm1, log, log1p, sign, square, tan
from tstatic.ops.random.gamma import standard_gamma
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.creation import full_like, zeros_like
from tstatic.ops.shape.joining import stack

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_LOG_PI = math.log(math.pi)


class _LocScale(Distribution):
    """Distributions of a place and a width."""

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = parameters(type(self).__name__, loc, scale)
        super().__init__(broadcast(self.loc.shape, self.scale.shape))

    @property
    def _both(self) -> Variable:
        """Zeros of the shape in which the parameters meet."""
        return zeros_like(self.loc + self.scale)

    @property
    def mean(self) -> Variable:
        return self.loc + self._both

    @property
    def stddev(self) -> Variable:
        """The standard deviation."""
        return self.variance**0.5

    def _standard(self, value: Any) -> Variable:
        return (self._value(value, self.loc) - self.loc) / self.scale


@export("distribution.Normal")
@no_effect(name=NAMES)
class Normal(_LocScale):
    """The normal distribution.

    Args:
        loc: The mean.
        scale: The standard deviation.

    Example:
        >>> normal = paddle.distribution.Normal(0.0, 2.0)
        >>> fetched = [normal.entropy(), normal.log_prob(paddle.to_tensor([0.0, 2.0]))]
        >>> static.Executor().run(fetch_list=fetched)
        [array(2.1121, dtype=float32), array([-1.6121, -2.1121], dtype=float32)]
    """

    def __init__(self, loc: Any, scale: Any, name: str | None = None) -> None:
        super().__init__(loc, scale)

    @property
    def variance(self) -> Variable:
        return square(self.scale + self._both)

    def sample(self, shape: Sequence[int] = (), seed: int = 0) -> Variable:
        """Draws ``[*shape, *batch_shape]``; no gradient flows through it.

        Args:
            shape: The shape of samples.
            seed: Replaces the program's seed when it is not 0.
        """
        drawn = self.rsample(shape, seed)
        drawn.stop_gradient = True
        return drawn

    def rsample(self, shape: Sequence[int] = (), seed: int = 0) -> Variable:
        """Draws as :meth:`sample` does; gradients of the parameters flow through."""
        return self.loc + self.scale * self._noise("gaussian_inplace", self._both, shape, seed=seed)

    def entropy(self) -> Variable:
        return log(self.scale) + (0.5 + _HALF_LOG_2PI) + self._both

    def log_prob(self, value: Any) -> Variable:
        return square(self._standard(value)) * -0.5 - log(self.scale) - _HALF_LOG_2PI


@export("distribution.Uniform")
@no_effect(name=NAMES)
class Uniform(Distribution):
    """The uniform distribution on ``[low, high)``.

    Args:
        low, high: The ends.

    Example:
        >>> uniform = paddle.distribution.Uniform([0.0, 1.0], [2.0, 5.0])
        >>> fetched = [uniform.prob(paddle.to_tensor([1.5, 0.0])), uniform.mean]
        >>> static.Executor().run(fetch_list=fetched)
        [array([0.5, 0. ], dtype=float32), array([1., 3.], dtype=float32)]
    """

    def __init__(self, low: Any, high: Any, name: str | None = None) -> None:
        self.low, self.high = parameters("Uniform", low, high)
        super().__init__(broadcast(self.low.shape, self.high.shape))

    @property
    def mean(self) -> Variable:
        return (self.low + self.high) * 0.5

    @property
    def variance(self) -> Variable:
        return square(self.high - self.low) / 12.0

    def sample(self, shape: Sequence[int] = (), seed: int = 0) -> Variable:
        """Draws ``[*shape, *batch_shape]``; no gradient flows through it.

        Args:
            shape: The shape of samples.
            seed: Replaces the program's seed when it is not 0.
        """
        drawn = self.rsample(shape, seed)
        drawn.stop_gradient = True
        return drawn

    def rsample(self, shape: Sequence[int] = (), seed: int = 0) -> Variable:
        """Draws as :meth:`sample` does; gradients of the ends flow through."""
        width = self.high - self.low
        return self.low + width * self._noise("uniform_random_inplace", width, shape, min=0.0, max=1.0, seed=seed)

    def entropy(self) -> Variable:
        return log(self.high - self.low)

    def log_prob(self, value: Any) -> Variable:
        return log(self.prob(value))

    def prob(self, value: Any) -> Variable:
        x = self._value(value, self.low)
        inside = cast(self.low <= x, x.dtype) * cast(x < self.high, x.dtype)
        return inside / (self.high - self.low)


@export("distribution.Laplace")
class Laplace(_LocScale):
    """The Laplace distribution: exponential on both sides.

    Args:
        loc: The mean.
        scale: The mean distance from it.

    Example:
        >>> laplace = paddle.distribution.Laplace(0.0, 1.0)
        >>> fetched = [laplace.entropy(), laplace.cdf(1.0), laplace.icdf(0.5)]
        >>> static.Executor().run(fetch_list=fetched)
        [array(1.6931, dtype=float32), array(0.8161, dtype=float32), array(0., dtype=float32)]
    """

    @property
    def variance(self) -> Variable:
        return square(self.scale + self._both) * 2.0

    def rsample(self, shape: Sequence[int] = ()) -> Variable:
        u = self._noise("uniform_random_inplace", self._both, shape, min=-1.0, max=1.0)
        return self.loc - self.scale * sign(u) * log1p(abs(u) * -(1 - 1e-7))

    def entropy(self) -> Variable:
        return log(self.scale * 2.0) + 1.0 + self._both

    def log_prob(self, value: Any) -> Variable:
        return -abs(self._standard(value)) - log(self.scale * 2.0)

    def cdf(self, value: Any) -> Variable:
        """Returns the probability of an outcome up to ``value``."""
        z = self._standard(value)
        return 0.5 - sign(z) * expm1(-abs(z)) * 0.5

    def icdf(self, value: Any) -> Variable:
        """Returns the outcome up to which the probability is ``value``."""
        middle = self._value(value, self.loc) - 0.5
        return self.loc - self.scale * sign(middle) * log1p(abs(middle) * -2.0)


@export("distribution.Cauchy")
@no_effect(name=NAMES)
class Cauchy(_LocScale):
    """The Cauchy distribution, which has neither mean nor variance.

    Args:
        loc: The median.
        scale: Half the distance of the quartiles.

    Example:
        >>> cauchy = paddle.distribution.Cauchy(0.0, 1.0)
        >>> fetched = [cauchy.entropy(), cauchy.cdf(1.0)]
        >>> static.Executor().run(fetch_list=fetched)
        [array(2.531, dtype=float32), array(0.75, dtype=float32)]
    """

    def __init__(self, loc: Any, scale: Any, name: str | None = None) -> None:
        super().__init__(loc, scale)

    @property
    def mean(self) -> Variable:
        raise self._lacks("a mean")

    @property
    def stddev(self) -> Variable:
        """A Cauchy distribution has none."""
        raise self._lacks("a standard deviation")

    @no_effect(name=NAMES)
    def sample(self, shape: Sequence[int] = (), name: str | None = None) -> Variable:
        """Draws ``[*shape, *batch_shape]``; no gradient flows through it."""
        return super().sample(shape)

    @no_effect(name=NAMES)
    def rsample(self, shape: Sequence[int] = (), name: str | None = None) -> Variable:
        """Draws as :meth:`sample` does; gradients of the parameters flow through."""
        u = self._noise("uniform_random_inplace", self._both, shape, min=-0.5, max=0.5)
        return self.loc + self.scale * tan(u * math.pi)

    def entropy(self) -> Variable:
        return log(self.scale * (4.0 * math.pi)) + self._both

    def log_prob(self, value: Any) -> Variable:
        return -log1p(square(self._standard(value))) - log(self.scale) - _LOG_PI

    def cdf(self, value: Any) -> Variable:
        """Returns the probability of an outcome up to ``value``."""
        return atan(self._standard(value)) / math.pi + 0.5


# -------------------------------------------------------------------------------------------------------- beta, Dirichlet
def log_beta(*terms: Variable) -> Variable:
    """Returns the logarithm of the beta function of two Variables, or of the last axis of one."""
    if len(terms) == 1:
        return sum(lgamma(terms[0]), -1) - lgamma(sum(terms[0], -1))
    a, b = terms
    return lgamma(a) + lgamma(b) - lgamma(a + b)


@export("distribution.Beta")
class Beta(ExponentialFamily):
    """The beta distribution on [0, 1].

    Args:
        alpha, beta: The weights of 1 and of 0, above 0.

    Example:
        >>> beta = paddle.distribution.Beta(2.0, 3.0)
        >>> fetched = [beta.mean, beta.variance, beta.prob(0.5)]
        >>> static.Executor().run(fetch_list=fetched)
        [array(0.4, dtype=float32), array(0.04, dtype=float32), array(1.5, dtype=float32)]
    """

    def __init__(self, alpha: Any, beta: Any) -> None:
        a, b = parameters("Beta", alpha, beta)
        both = zeros_like(a + b)
        self.alpha, self.beta = a + both, b + both
        super().__init__(both.shape)

    @property
    def mean(self) -> Variable:
        return self.alpha / (self.alpha + self.beta)

    @property
    def variance(self) -> Variable:
        total = self.alpha + self.beta
        return self.alpha * self.beta / (square(total) * (total + 1.0))

    def sample(self, shape: Sequence[int] = ()) -> Variable:
        """Draws ``[*shape, *batch_shape]``; no gradient flows through it."""
        parts = standard_gamma(self._spread(stack([self.alpha, self.beta], -1), shape))
        return parts[..., 0] / sum(parts, -1)

    def log_prob(self, value: Any) -> Variable:
        x = self._value(value, self.alpha)
        return (self.alpha - 1.0) * log(x) + (self.beta - 1.0) * log1p(-x) - log_beta(self.alpha, self.beta)

    def entropy(self) -> Variable:
        a, b = self.alpha, self.beta
        total = (a + b - 2.0) * digamma(a + b)
        return log_beta(a, b) - (a - 1.0) * digamma(a) - (b - 1.0) * digamma(b) + total

    @property
    def _natural_parameters(self) -> tuple[Variable, ...]:
        return self.alpha, self.beta

    def _log_normalizer(self, *natural: Variable) -> Variable:
        return log_beta(*natural)


@export("distribution.Dirichlet")
class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution of shares that sum to 1.

    Args:
        concentration: The weight of each share, above 0, ``[..., k]``.

    Example:
        >>> shares = paddle.distribution.Dirichlet(paddle.to_tensor([1.0, 1.0, 2.0]))
        >>> fetched = [shares.mean, shares.entropy()]
        >>> static.Executor().run(fetch_list=fetched)
        [array([0.25, 0.25, 0.5 ], dtype=float32), array(-0.9584, dtype=float32)]
    """

    def __init__(self, concentration: Any) -> None:
        (self.concentration,) = parameters("Dirichlet", concentration)
        check_rank(self.concentration, range(1, 100), "concentration", "Dirichlet", layout="[..., k]")
        super().__init__(self.concentration.shape[:-1], self.concentration.shape[-1:])

    @property
    def mean(self) -> Variable:
        return self.concentration / sum(self.concentration, -1, keepdim=True)

    @property
    def variance(self) -> Variable:
        total = sum(self.concentration, -1, keepdim=True)
        return self.concentration * (total - self.concentration) / (square(total) * (total + 1.0))

    def sample(self, shape: Sequence[int] = ()) -> Variable:
        """Draws ``[*shape, *batch_shape, k]``; no gradient flows through it."""
        parts = standard_gamma(self._spread(self.concentration, shape))
        return divide(parts, sum(parts, -1, keepdim=True))

    def log_prob(self, value: Any) -> Variable:
        x = self._value(value, self.concentration)
        return sum((self.concentration - 1.0) * log(x), -1) - log_beta(self.concentration)

    def entropy(self) -> Variable:
        a = self.concentration
        total = sum(a, -1)
        rest = sum((a - 1.0) * digamma(a), -1)
        # The sum less the number of parts, which may be unknown.
        return log_beta(a) + sum(a - 1.0, -1) * digamma(total) - rest

    @property
    def _natural_parameters(self) -> tuple[Variable, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural: Variable) -> Variable:
        return log_beta(*natural)


# ------------------------------------------------------------------------------------------------------------ divergences
@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Variable:
    ratio = square(p.scale / q.scale)
    return 0.5 * (ratio + square((p.loc - q.loc) / q.scale) - 1.0 - log(ratio))


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Variable:
    found: Variable = log((q.high - q.low) / (p.high - p.low))
    return where(
        logical_and(q.low <= p.low + found * 0.0, p.high <= q.high + found * 0.0), found, full_like(found, math.inf)
    )


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Variable:
    apart = abs(p.loc - q.loc)
    return log(q.scale / p.scale) + (p.scale * exp(-apart / p.scale) + apart) / q.scale - 1.0


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Variable:
    return log((square(p.scale + q.scale) + square(p.loc - q.loc)) / (4.0 * p.scale * q.scale))


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Variable:
    total = p.alpha + p.beta
    first = log_beta(q.alpha, q.beta) - log_beta(p.alpha, p.beta)
    change = (p.alpha - q.alpha) * digamma(p.alpha) + (p.beta - q.beta) * digamma(p.beta)
    return first + change + (q.alpha + q.beta - total) * digamma(total)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Variable:
    a, b = p.concentration, q.concentration
    change = sum((a - b) * (digamma(a) - digamma(sum(a, -1, keepdim=True))), -1)
    return log_beta(b) - log_beta(a) + change
