"""Distributions made of others: the log-normal and Gumbel distributions, and independent dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramTypeError, shown
from tstatic.extras.distribution.base import Distribution, kl_divergence, parameters, register_kl
from tstatic.extras.distribution.continuous import Normal, Uniform
from tstatic.extras.distribution.transform import Transform, TransformedDistribution, sum_last
from tstatic.extras.distribution.transforms import AffineTransform, ExpTransform
from tstatic.ir.checks import check_int
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ops.elementwise.unary import exp, expm1, log, square
from tstatic.ops.shape.creation import full_like, ones_like, zeros_like

_EULER = 0.57721566490153286


@export("distribution.LogNormal")
class LogNormal(TransformedDistribution):
    """The distribution whose logarithm is normal.

    Args:
        loc, scale: Mean and standard deviation of the logarithm.

    Example:
        >>> made = paddle.distribution.LogNormal(0.0, 1.0)
        >>> fetched = [made.mean, made.entropy()]
        >>> static.Executor().run(fetch_list=fetched)
        [array(1.6487, dtype=float32), array(1.4189, dtype=float32)]
    """

    base: Normal

    def __init__(self, loc: Any, scale: Any) -> None:
        normal = Normal(loc, scale)
        super().__init__(normal, [ExpTransform()])
        self.loc, self.scale = normal.loc, normal.scale

    @property
    def mean(self) -> Variable:
        return exp(self.base.mean + self.base.variance * 0.5)

    @property
    def variance(self) -> Variable:
        return expm1(self.base.variance) * exp(self.base.mean * 2.0 + self.base.variance)

    def entropy(self) -> Variable:
        return self.base.entropy() + self.base.mean


@export("distribution.Gumbel")
class Gumbel(TransformedDistribution):
    """The Gumbel distribution, of the largest of many values.

    Args:
        loc: The most likely value.
        scale: The width.

    Example:
        >>> made = paddle.distribution.Gumbel(0.0, 1.0)
        >>> fetched = [made.mean, made.cdf(paddle.to_tensor(0.0))]
        >>> static.Executor().run(fetch_list=fetched)
        [array(0.5772, dtype=float32), array(0.3679, dtype=float32)]
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = parameters("Gumbel", loc, scale)
        both = zeros_like(self.loc + self.scale)
        # The end below 1 keeps the logarithm of a logarithm finite.
        ends = full_like(both, float(np.finfo(np.float32).tiny)), full_like(both, 1.0 - float(np.finfo(np.float32).eps))
        turned = AffineTransform(zeros_like(both), -ones_like(both))
        logs = [_Inverse(ExpTransform()), turned, _Inverse(ExpTransform()), AffineTransform(self.loc, -self.scale)]
        super().__init__(Uniform(*ends), logs)
        self._both = both

    @property
    def mean(self) -> Variable:
        return self.loc + self.scale * _EULER

    @property
    def variance(self) -> Variable:
        return square(self.scale + self._both) * (math.pi**2 / 6.0)

    @property
    def stddev(self) -> Variable:
        """The standard deviation."""
        return (self.scale + self._both) * (math.pi / math.sqrt(6.0))

    def log_prob(self, value: Any) -> Variable:
        z = (self._value(value, self.loc) - self.loc) / self.scale
        return -(z + exp(-z)) - log(self.scale)

    def cdf(self, value: Any) -> Variable:
        """Returns the probability of an outcome up to ``value``."""
        return exp(-exp((self.loc - self._value(value, self.loc)) / self.scale))

    def entropy(self) -> Variable:
        return log(self.scale) + (1.0 + _EULER) + self._both


class _Inverse(Transform):
    """A transform the other way round."""

    def __init__(self, base: Transform) -> None:
        self._base = base

    def _forward(self, x: Variable) -> Variable:
        return self._base.inverse(x)

    def _inverse(self, y: Variable) -> Variable:
        return self._base.forward(y)

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return self._base.inverse_log_det_jacobian(x)


@export("distribution.Independent")
class Independent(Distribution):
    """A distribution of which the last axes of the batch are one outcome.

    Args:
        base: The distribution.
        reinterpreted_batch_rank: How many axes.

    Raises:
        ProgramTypeError: If ``base`` is not a distribution.
        ProgramError: If its batch has fewer axes.

    Example:
        >>> normal = paddle.distribution.Normal([0.0, 1.0], [1.0, 1.0])
        >>> both = paddle.distribution.Independent(normal, 1)
        >>> both.batch_shape, both.event_shape
        ((), (2,))
        >>> static.Executor().run(fetch_list=[both.log_prob(paddle.to_tensor([0.0, 1.0]))])[0]
        array(-1.8379, dtype=float32)
    """

    def __init__(self, base: Distribution, reinterpreted_batch_rank: int) -> None:
        if not isinstance(base, Distribution):
            raise ProgramTypeError(
                "Independent is made of a distribution",
                expected="a Distribution",
                received=shown(base),
                fix="pass Independent(base, rank)",
                op="Independent",
            )
        most = len(base.batch_shape)
        self._base = base
        self._count = check_int(reinterpreted_batch_rank, "reinterpreted_batch_rank", "Independent", least=1, most=most)
        kept = most - self._count
        super().__init__(base.batch_shape[:kept], (*base.batch_shape[kept:], *base.event_shape))

    @property
    def mean(self) -> Variable:
        return self._base.mean

    @property
    def variance(self) -> Variable:
        return self._base.variance

    def sample(self, shape: Sequence[int] = ()) -> Variable:
        """Draws ``[*shape, *batch_shape, *event_shape]``; no gradient flows through it."""
        return self._base.sample(shape)

    def rsample(self, shape: Sequence[int] = ()) -> Variable:
        return self._base.rsample(shape)

    def log_prob(self, value: Any) -> Variable:
        return sum_last(self._base.log_prob(value), self._count)

    def entropy(self) -> Variable:
        return sum_last(self._base.entropy(), self._count)


@register_kl(LogNormal, LogNormal)
def _log_normal(p: LogNormal, q: LogNormal) -> Variable:
    # A function of both that can be undone changes nothing.
    return kl_divergence(p.base, q.base)
