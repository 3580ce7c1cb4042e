"""What all distributions have in common: parameters as Variables, shapes, noise, and what follows from a density."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tstatic.autodiff.api import gradients
from tstatic.errors import ProgramTypeError, UnsupportedError, shown
from tstatic.ir.build import as_variable
from tstatic.ir.checks import check_int
from tstatic.ir.declare import default_dtype
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import broadcast_shapes, float64, plain
from tstatic.ops.base.mixed import cast_to
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.unary import exp
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.creation import to_tensor, zeros_like
from tstatic.ops.shape.expanding import expand

NAMES = "a distribution is made of several layers, each with a name of its own"
"""Why ``name`` does nothing."""


def parameters(function: str, *given: Any) -> list[Variable]:
    """Returns parameters as Variables of one float type: that of a Variable or of an array, else the default one.

    Args:
        function: The distribution, for messages.
        given: Numbers (a shape of []), lists, arrays or Variables.

    Raises:
        ProgramTypeError: If one is something else.
    """
    arrays = [v if isinstance(v, Variable) else plain(v, f"a parameter of {function}", function) for v in given]
    for value, array in zip(given, arrays, strict=True):
        if not isinstance(array, Variable) and array.dtype.kind not in "biuf":
            raise ProgramTypeError(
                f"a parameter of {function} is not a number",
                expected="a number, a list or an array of numbers, or a Variable",
                received=shown(value),
                fix="pass numbers: 1.0, [0.5, 2.0], an array of floats or a Variable",
                op=function,
            )
    kind = next((a.dtype for a in arrays if isinstance(a, Variable) and a.dtype.is_float), None)
    if kind is None:
        wide = any(isinstance(v, np.ndarray) and v.dtype == np.float64 for v in given)
        kind = float64 if wide else default_dtype()
    return [cast_to(a, kind) if isinstance(a, Variable) else to_tensor(a, kind) for a in arrays]


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Returns the shape in which parameters meet."""
    found: tuple[int, ...] = ()
    for shape in shapes:
        found = broadcast_shapes(found, tuple(shape))
    return found


@export("distribution.Distribution")
class Distribution:
    """The base class of distributions.

    Args:
        batch_shape: The shape of independent distributions.
        event_shape: The shape of one outcome.

    Example:
        >>> normal = paddle.distribution.Normal([0.0, 1.0], [1.0, 2.0])
        >>> isinstance(normal, paddle.distribution.Distribution)
        True
        >>> normal.batch_shape, normal.event_shape, normal.sample([3]).shape
        ((2,), (), (3, 2))
    """

    def __init__(self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = ()) -> None:
        self._batch_shape, self._event_shape = tuple(batch_shape), tuple(event_shape)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of independent distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one outcome."""
        return self._event_shape

    @property
    def mean(self) -> Variable:
        """The mean, of the shapes of batch and event."""
        raise self._lacks("a mean")

    @property
    def variance(self) -> Variable:
        """The variance, of the shapes of batch and event."""
        raise self._lacks("a variance")

    def sample(self, shape: Sequence[int] = ()) -> Variable:
        """Draws ``[*shape, *batch_shape, *event_shape]``; no gradient flows through it."""
        drawn = self.rsample(shape)
        drawn.stop_gradient = True
        return drawn

    def rsample(self, shape: Sequence[int] = ()) -> Variable:
        """Draws as :meth:`sample` does; gradients of the parameters flow through."""
        raise self._lacks("samples with gradients")

    def entropy(self) -> Variable:
        """Returns the entropy in nats, of the batch's shape."""
        raise self._lacks("an entropy")

    def kl_divergence(self, other: Distribution) -> Variable:
        """Returns the Kullback-Leibler divergence from ``other``, of the batch's shape."""
        return kl_divergence(self, other)

    def prob(self, value: Any) -> Variable:
        """Returns the density, or the probability of a discrete outcome, at ``value``."""
        return exp(self.log_prob(value))

    def log_prob(self, value: Any) -> Variable:
        """Returns the logarithm of :meth:`prob`."""
        raise self._lacks("a density")

    def probs(self, value: Any) -> Variable:
        """Does what :meth:`prob` does, under the name that Paddle had before."""
        return self.prob(value)

    def _lacks(self, what: str) -> UnsupportedError:
        name = type(self).__name__
        return UnsupportedError(
            f"{name} has no {what.removeprefix('a ').removeprefix('an ')}",
            expected=f"a distribution that has {what}",
            received=name,
            fix="see docs/numbers.md for what each distribution has",
            op=name,
        )

    def _value(self, value: Any, like: Variable) -> Variable:
        """Returns an outcome as a Variable of the parameters' dtype."""
        return cast_to(value, like.dtype) if isinstance(value, Variable) else as_variable(value, dtype=like.dtype)

    def _spread(self, x: Variable, shape: Sequence[int]) -> Variable:
        """Repeats values for each of a shape of samples."""
        sizes = [check_int(s, "shape", type(self).__name__, least=0) for s in shape]
        return expand(x, [*sizes, *[-1] * len(x.shape)]) if sizes else x

    def _noise(self, type: str, x: Variable, shape: Sequence[int], **attrs: Any) -> Variable:
        """Draws random numbers for each of a shape of samples, each shaped like ``x``, by an op that reads the shape."""
        drawn = emit_one(type, {"X": self._spread(zeros_like(x), shape)}, attrs)
        drawn.stop_gradient = True
        return drawn


@export("distribution.ExponentialFamily")
class ExponentialFamily(Distribution):
    """Distributions of an exponential family: their entropies and divergences follow from the normalizer.

    A subclass gives ``_natural_parameters``, a tuple of Variables, ``_log_normalizer(*natural parameters)``, and
    ``_mean_carrier_measure``, a number or a Variable.

    Args:
        batch_shape: The shape of independent distributions.
        event_shape: The shape of one outcome.

    Example:
        >>> beta = paddle.distribution.Beta(2.0, 3.0)
        >>> isinstance(beta, paddle.distribution.ExponentialFamily)
        True
        >>> static.Executor().run(fetch_list=[beta.entropy()])[0].round(3)
        np.float32(-0.235)
    """

    _mean_carrier_measure: Any = 0.0

    @property
    def _natural_parameters(self) -> tuple[Variable, ...]:
        raise self._lacks("natural parameters")

    def _log_normalizer(self, *natural: Variable) -> Variable:
        raise self._lacks("a normalizer")

    def _gradient(self) -> tuple[list[Variable], Variable, list[Variable]]:
        """Returns natural parameters, the logarithm of the normalizer, and its derivatives by them."""
        natural = [emit_one("assign", {"X": p}) for p in self._natural_parameters]
        for p in natural:
            p.stop_gradient = False
        total = self._log_normalizer(*natural)
        found = gradients(total, natural)
        return natural, total, [g if g is not None else zeros_like(p) for g, p in zip(found, natural, strict=True)]

    def entropy(self) -> Variable:
        natural, entropy, slopes = self._gradient()
        for p, slope in zip(natural, slopes, strict=True):
            entropy = entropy - self._summed(p * slope)
        return entropy - self._mean_carrier_measure

    def _summed(self, x: Variable) -> Variable:
        """Sums over the event."""
        rank = len(self._event_shape)
        return sum(x, list(range(-rank, 0))) if rank else x


# ------------------------------------------------------------------------------------------------------------ divergences
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
