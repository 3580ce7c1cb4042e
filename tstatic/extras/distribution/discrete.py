"""Discrete distributions: Bernoulli, categorical, geometric and multinomial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.extras.distribution.base import NAMES, Distribution, ExponentialFamily, parameters, register_kl
from tstatic.ir.checks import ANY_RANK, check_int, check_number, check_rank
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.no_effect import no_effect
from tstatic.ops.elementwise.logic import where
from tstatic.ops.elementwise.scale import cast, clip
from tstatic.ops.elementwise.special import lgamma
from tstatic.ops.elementwise.unary import exp, floor, log, log1p
from tstatic.ops.indexing.along_axis import take_along_axis
from tstatic.ops.indexing.embedding import one_hot
from tstatic.ops.norm.softmax import log_softmax, softmax
from tstatic.ops.random.sampling import multinomial
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.creation import ones_like, to_tensor, zeros_like
from tstatic.ops.shape.reshape import reshape, unsqueeze
from tstatic.ops.shape.sequence import arange
from tstatic.ops.shape.transpose import transpose


def _logs(p: Variable) -> tuple[Variable, Variable]:
    """Returns the logarithms of probabilities and of the rest to 1; both are finite."""
    eps = float(np.finfo(p.dtype.np).eps)
    inside = clip(p, eps, 1.0 - eps)
    return log(inside), log1p(-inside)


@export("distribution.Bernoulli")
@no_effect(name=NAMES)
class Bernoulli(ExponentialFamily):
    """The Bernoulli distribution: 1 with a probability, else 0.

    Args:
        probs: The probability of 1.

    Example:
        >>> coin = paddle.distribution.Bernoulli(0.25)
        >>> fetched = [coin.mean, coin.variance, coin.log_prob(1.0), coin.cdf(0.0)]
        >>> static.Executor().run(fetch_list=fetched)
        [array(0.25, dtype=float32), array(0.1875, dtype=float32), array(-1.3863, dtype=float32), array(0.75, dtype=float32)]
    """

    def __init__(self, probs: Any, name: str | None = None) -> None:
        (given,) = parameters("Bernoulli", probs)
        # In Paddle an attribute has the name of the method.
        self.probs = given  # type: ignore[assignment]
        super().__init__(given.shape)

    @property
    def _p(self) -> Variable:
        found: Variable = self.probs  # type: ignore[assignment]
        return found

    @property
    def mean(self) -> Variable:
        return self._p * 1.0

    @property
    def variance(self) -> Variable:
        return self._p * (1.0 - self._p)

    def sample(self, shape: Sequence[int] = ()) -> Variable:
        """Draws 0 and 1, ``[*shape, *batch_shape]``; no gradient flows through it."""
        u = self._noise("uniform_random_inplace", self._p, shape, min=0.0, max=1.0)
        drawn = cast(u < self._p, self._p.dtype)
        drawn.stop_gradient = True
        return drawn

    def rsample(self, shape: Sequence[int] = (), temperature: float = 1.0) -> Variable:
        """Draws numbers whose sigmoid is near 0 or 1, through which gradients of the probability flow.

        Args:
            shape: The shape of samples.
            temperature: The smaller, the nearer; above 0.
        """
        check_number(temperature, "temperature", "rsample", above=0)
        eps = float(np.finfo(self._p.dtype.np).eps)
        u = self._noise("uniform_random_inplace", self._p, shape, min=eps, max=1.0 - eps)
        yes, no = _logs(self._p)
        return (log(u) - log1p(-u) + yes - no) / float(temperature)

    def log_prob(self, value: Any) -> Variable:
        x = self._value(value, self._p)
        yes, no = _logs(self._p)
        return x * yes + (1.0 - x) * no

    def cdf(self, value: Any) -> Variable:
        """Returns the probability of an outcome up to ``value``."""
        x = self._value(value, self._p)
        rest = 1.0 - self._p + zeros_like(x)
        return where(x < 0.0, zeros_like(rest), where(x < 1.0, rest, ones_like(rest)))

    def entropy(self) -> Variable:
        yes, no = _logs(self._p)
        return -(self._p * yes + (1.0 - self._p) * no)

    @property
    def _natural_parameters(self) -> tuple[Variable, ...]:
        yes, no = _logs(self._p)
        return (yes - no,)

    def _log_normalizer(self, *natural: Variable) -> Variable:
        return log1p(exp(natural[0]))


@export("distribution.Categorical")
@no_effect(name=NAMES)
class Categorical(Distribution):
    """The distribution of one of several categories.

    As in Paddle, ``probs`` and ``log_prob`` read ``logits`` as weights (each over their sum), and samples, entropies and
    divergences read them as logarithms of weights (their softmax).

    Args:
        logits: ``[..., categories]``.

    Example:
        >>> choice = paddle.distribution.Categorical(paddle.to_tensor([1.0, 1.0, 2.0]))
        >>> fetched = [choice.probs(paddle.to_tensor([2, 0])), choice.entropy()]
        >>> static.Executor().run(fetch_list=fetched)
        [array([0.5 , 0.25], dtype=float32), array(0.9753, dtype=float32)]
    """

    def __init__(self, logits: Any, name: str | None = None) -> None:
        (self.logits,) = parameters("Categorical", logits)
        check_rank(self.logits, range(1, ANY_RANK), "logits", "Categorical", layout="[..., categories]")
        super().__init__(self.logits.shape[:-1])

    def sample(self, shape: Sequence[int] = ()) -> Variable:
        """Draws int64 categories, ``[*shape, *batch_shape]``; no gradient flows through it."""
        return draw_categories(softmax(self.logits), shape)

    def probs(self, value: Any) -> Variable:
        """Returns the probability of categories.

        Args:
            value: int64, ``[...]`` for one distribution; for several ``[*batch_shape, n]``, or ``[n]`` for all alike.
        """
        return self._picked(self.logits / sum(self.logits, -1, keepdim=True), value)

    def prob(self, value: Any) -> Variable:
        """Does what :meth:`probs` does."""
        return self.probs(value)

    def log_prob(self, value: Any) -> Variable:
        return log(self.probs(value))

    def entropy(self) -> Variable:
        return -sum(softmax(self.logits) * log_softmax(self.logits), -1)

    def _picked(self, table: Variable, value: Any) -> Variable:
        at = value if isinstance(value, Variable) else to_tensor(value, "int64")
        rank = len(table.shape)
        if rank == 1:
            flat = take_along_axis(table, reshape(at, [-1]), 0)
            return reshape(flat, list(at.shape) if -1 not in at.shape else [-1])
        if len(at.shape) == 1:
            at = reshape(at, [1] * (rank - 1) + [-1])
        return take_along_axis(table, at, -1)


def draw_categories(probabilities: Variable, shape: Sequence[int]) -> Variable:
    """Draws categories with putting back, ``[*shape, *batch]`` of probabilities ``[*batch, categories]``."""
    sizes = [check_int(s, "shape", "sample", least=1) for s in shape]
    batch = list(probabilities.shape[:-1])
    rows = reshape(probabilities, [-1, probabilities.shape[-1]])
    drawn = transpose(multinomial(rows, math.prod(sizes), True), [1, 0])
    if -1 in batch[1:]:
        return reshape(drawn, [*sizes, -1])
    return reshape(drawn, [*sizes, *batch])


@export("distribution.Geometric")
class Geometric(Distribution):
    """The geometric distribution: how many trials fail before the first success.

    Args:
        probs: The probability of success, above 0.

    Example:
        >>> trials = paddle.distribution.Geometric(0.5)
        >>> fetched = [trials.mean, trials.pmf(2), trials.cdf(1)]
        >>> static.Executor().run(fetch_list=fetched)
        [array(1., dtype=float32), array(0.125, dtype=float32), array(0.75, dtype=float32)]
    """

    def __init__(self, probs: Any) -> None:
        (given,) = parameters("Geometric", probs)
        self.probs = given  # type: ignore[assignment]
        super().__init__(given.shape)

    @property
    def _p(self) -> Variable:
        found: Variable = self.probs  # type: ignore[assignment]
        return found

    @property
    def mean(self) -> Variable:
        return 1.0 / self._p - 1.0

    @property
    def variance(self) -> Variable:
        return (1.0 / self._p - 1.0) / self._p

    @property
    def stddev(self) -> Variable:
        """The standard deviation."""
        return self.variance**0.5

    def pmf(self, k: Any) -> Variable:
        """Returns the probability of ``k`` failures."""
        return exp(self.log_pmf(k))

    def log_pmf(self, k: Any) -> Variable:
        """Returns the logarithm of :meth:`pmf`."""
        return self._value(k, self._p) * log1p(-self._p) + log(self._p)

    def log_prob(self, value: Any) -> Variable:
        return self.log_pmf(value)

    def rsample(self, shape: Sequence[int] = ()) -> Variable:
        tiny = float(np.finfo(np.float32).tiny)
        u = self._noise("uniform_random_inplace", self._p, shape, min=tiny, max=1.0)
        return floor(log(u) / log1p(-self._p))

    def entropy(self) -> Variable:
        rest = 1.0 - self._p
        return -(rest * log(rest) + self._p * log(self._p)) / self._p

    def cdf(self, k: Any) -> Variable:
        """Returns the probability of up to ``k`` failures."""
        return 1.0 - exp((self._value(k, self._p) + 1.0) * log1p(-self._p))


@export("distribution.Multinomial")
class Multinomial(Distribution):
    """How often each category comes up in a number of draws.

    Args:
        total_count: The number of draws, at least 1.
        probs: The weights of the categories, ``[..., categories]``.

    Example:
        >>> counts = paddle.distribution.Multinomial(4, paddle.to_tensor([0.25, 0.75]))
        >>> fetched = [counts.mean, counts.variance, counts.prob(paddle.to_tensor([1.0, 3.0]))]
        >>> static.Executor().run(fetch_list=fetched)
        [array([1., 3.], dtype=float32), array([0.75, 0.75], dtype=float32), array(0.4219, dtype=float32)]
    """

    def __init__(self, total_count: int, probs: Any) -> None:
        self.total_count = check_int(total_count, "total_count", "Multinomial", least=1)
        (given,) = parameters("Multinomial", probs)
        check_rank(given, range(1, ANY_RANK), "probs", "Multinomial", layout="[..., categories]")
        self.probs = given / sum(given, -1, keepdim=True)  # type: ignore[method-assign]
        super().__init__(given.shape[:-1], given.shape[-1:])

    @property
    def _p(self) -> Variable:
        found: Variable = self.probs  # type: ignore[assignment]
        return found

    @property
    def mean(self) -> Variable:
        return self._p * float(self.total_count)

    @property
    def variance(self) -> Variable:
        return self._p * (1.0 - self._p) * float(self.total_count)

    def sample(self, shape: Sequence[int] = ()) -> Variable:
        """Draws counts, ``[*shape, *batch_shape, categories]``; no gradient flows through it."""
        drawn = draw_categories(self._p, [self.total_count, *shape])
        return cast(sum(one_hot(drawn, self._p.shape[-1]), 0), self._p.dtype)

    def log_prob(self, value: Any) -> Variable:
        x = self._value(value, self._p)
        # A category that cannot come up has no say where it does not.
        terms = where(x == 0.0, zeros_like(x + self._p), x * log(self._p))
        return lgamma(sum(x, -1) + 1.0) - sum(lgamma(x + 1.0), -1) + sum(terms, -1)

    def entropy(self) -> Variable:
        n, (yes, no) = float(self.total_count), _logs(self._p)
        counts = arange(1, self.total_count + 1, dtype=self._p.dtype)
        rest = n - counts
        ways = math.lgamma(n + 1) - lgamma(counts + 1.0) - lgamma(rest + 1.0)
        # Of each category the probabilities of its counts, which are binomial.
        chances = exp(ways + unsqueeze(yes, -1) * counts + unsqueeze(no, -1) * rest)
        single = -sum(self._p * yes, -1)
        return single * n - math.lgamma(n + 1) + sum(chances * lgamma(counts + 1.0), [-2, -1])


# ------------------------------------------------------------------------------------------------------------ divergences
@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Variable:
    (yes, no), (q_yes, q_no) = _logs(p._p), _logs(q._p)
    return p._p * (yes - q_yes) + (1.0 - p._p) * (no - q_no)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Variable:
    return sum(softmax(p.logits) * (log_softmax(p.logits) - log_softmax(q.logits)), -1, keepdim=True)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Variable:
    return log(p._p / q._p) + (1.0 / p._p - 1.0) * (log1p(-p._p) - log1p(-q._p))
