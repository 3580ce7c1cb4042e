"""Kullback-Leibler divergences: a table of pairs of distributions, which users may extend."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from tstatic.distribution.base import Distribution, ExponentialFamily
from tstatic.distribution.continuous import Beta, Cauchy, Dirichlet, Laplace, Normal, Uniform, log_beta
from tstatic.distribution.discrete import Bernoulli, Categorical, Geometric, _logs
from tstatic.distribution.transformed import LogNormal
from tstatic.errors import ProgramTypeError, UnsupportedError, shown
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ops.elementwise.logic import logical_and, where
from tstatic.ops.elementwise.special import digamma
from tstatic.ops.elementwise.unary import abs, exp, log, log1p, square
from tstatic.ops.norm.softmax import log_softmax, softmax
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.creation import full_like

F = TypeVar("F", bound=Callable[..., Any])
_RULES: dict[tuple[type, type], Callable[[Any, Any], Variable]] = {}


@export("distribution.register_kl")
def register_kl(cls_p: type, cls_q: type) -> Callable[[F], F]:
    """Makes the decorated function the divergence of two classes of distributions and of their subclasses.

    Args:
        cls_p, cls_q: Subclasses of :class:`Distribution`.

    Returns:
        A decorator of ``function(p, q) -> Variable``.

    Raises:
        ProgramTypeError: If one is something else.

    Example:
        >>> class Mine(paddle.distribution.Normal):
        ...     pass
        >>> @paddle.distribution.register_kl(Mine, Mine)
        ... def _(p, q):
        ...     return p.loc - q.loc
        >>> d = paddle.distribution.kl_divergence(Mine(3.0, 1.0), Mine(1.0, 1.0))
        >>> static.Executor().run(fetch_list=[d])[0]
        array(2., dtype=float32)
    """
    for one in (cls_p, cls_q):
        if not (isinstance(one, type) and issubclass(one, Distribution)):
            raise ProgramTypeError(
                "register_kl is for classes of distributions",
                expected="subclasses of paddle.distribution.Distribution",
                received=shown(one),
                fix="pass the class, not one of its instances",
                op="register_kl",
            )

    def register(function: F) -> F:
        _RULES[cls_p, cls_q] = function
        return function

    return register


@export("distribution.kl_divergence")
def kl_divergence(p: Distribution, q: Distribution) -> Variable:
    """Returns the Kullback-Leibler divergence of ``p`` from ``q``: the mean of ``log(p(x) / q(x))`` under ``p``.

    Args:
        p, q: Distributions whose batches broadcast.

    Returns:
        Of the batch's shape; as in Paddle ``[..., 1]`` for categorical distributions.

    Raises:
        UnsupportedError: If there is no rule for the pair.

    Example:
        >>> p, q = paddle.distribution.Normal(0.0, 1.0), paddle.distribution.Normal(1.0, 1.0)
        >>> static.Executor().run(fetch_list=[paddle.distribution.kl_divergence(p, q)])[0]
        array(0.5, dtype=float32)
    """
    # The rule of the nearest classes: earlier ones in the order of resolution count first.
    for one in type(p).__mro__:
        for other in type(q).__mro__:
            if (one, other) in _RULES:
                return _RULES[one, other](p, q)
    raise UnsupportedError(
        f"there is no rule for the divergence of {type(p).__name__} from {type(q).__name__}",
        expected="a pair that has a rule",
        received=f"{type(p).__name__}, {type(q).__name__}",
        fix=f"write one: @paddle.distribution.register_kl({type(p).__name__}, {type(q).__name__})",
        op="kl_divergence",
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Variable:
    ratio = square(p.scale / q.scale)
    return 0.5 * (ratio + square((p.loc - q.loc) / q.scale) - 1.0 - log(ratio))


@register_kl(LogNormal, LogNormal)
def _log_normal(p: LogNormal, q: LogNormal) -> Variable:
    # A function of both that can be undone changes nothing.
    return _normal(p.base, q.base)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Variable:
    found: Variable = log((q.high - q.low) / (p.high - p.low))
    return where(
        logical_and(q.low <= p.low + found * 0.0, p.high <= q.high + found * 0.0), found, full_like(found, math.inf)
    )


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Variable:
    (yes, no), (q_yes, q_no) = _logs(p._p), _logs(q._p)
    return p._p * (yes - q_yes) + (1.0 - p._p) * (no - q_no)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Variable:
    return sum(softmax(p.logits) * (log_softmax(p.logits) - log_softmax(q.logits)), -1, keepdim=True)


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


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Variable:
    apart = abs(p.loc - q.loc)
    return log(q.scale / p.scale) + (p.scale * exp(-apart / p.scale) + apart) / q.scale - 1.0


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Variable:
    return log((square(p.scale + q.scale) + square(p.loc - q.loc)) / (4.0 * p.scale * q.scale))


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Variable:
    return log(p._p / q._p) + (1.0 / p._p - 1.0) * (log1p(-p._p) - log1p(-q._p))


@register_kl(ExponentialFamily, ExponentialFamily)
def _family(p: ExponentialFamily, q: ExponentialFamily) -> Variable:
    """Returns the Bregman divergence of the normalizer, which divergences within one family are."""
    if type(p) is not type(q):
        raise UnsupportedError(
            "divergences follow from the normalizer within one family only",
            expected="two distributions of one class",
            received=f"{type(p).__name__}, {type(q).__name__}",
            fix="write a rule: @paddle.distribution.register_kl(...)",
            op="kl_divergence",
        )
    natural, total, slopes = p._gradient()
    other = q._natural_parameters
    found = q._log_normalizer(*other) - total
    for mine, theirs, slope in zip(natural, other, slopes, strict=True):
        found = found - p._summed((theirs - mine) * slope)
    return found
