"""The distributions of ``fluid.layers``: numbers become tensors of shape ``[1]``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import ProgramTypeError, shown
from tstatic.ir.checks import check_int
from tstatic.ir.export import notes_signatures
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ir.types import UNKNOWN
from tstatic.ops.elementwise.logic import greater_than, less_than
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.elementwise.unary import exp, log
from tstatic.ops.random.distributions import gaussian_random, uniform_random
from tstatic.ops.reduce.extrema import max as largest
from tstatic.ops.reduce.reduction import sum as total
from tstatic.ops.shape.creation import assign, zeros_like
from tstatic.ops.shape.diagonal import eye
from tstatic.ops.shape.reshape import reshape
from tstatic.ops.shape.sequence import shape as shape_of

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def _parameter(value: Any, name: str, kind: str) -> Variable:
    """Returns a parameter as a Variable; a number gets the shape ``[1]``."""
    if isinstance(value, Variable):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | list | tuple | np.ndarray):
        raise ProgramTypeError(
            f"'{name}' of {kind} is not a parameter of a distribution", expected="a float, a list, an array or a Variable",
            received=shown(value), fix=f"pass for example {name}=1.0", op=kind, var=name,
        )  # fmt: skip
    return assign(np.atleast_1d(np.asarray(value, "float32")))


class _Older:
    """Distributions over numbers with two parameters."""

    def __init__(self, first: Any, second: Any, names: tuple[str, str]) -> None:
        kind = type(self).__name__
        self._plain = isinstance(first, int | float) and isinstance(second, int | float)
        self._first, self._second = (
            _parameter(value, name, kind) for value, name in zip((first, second), names, strict=True)
        )

    def _shape(self, shape: Sequence[int]) -> list[int]:
        sizes = [check_int(size, "shape", "sample", 1) for size in shape]
        return [*sizes, *(self._first + self._second).shape]

    def _drawn(self, draw: Variable, shape: Sequence[int]) -> Variable:
        return reshape(draw, list(shape)) if self._plain else draw


@export("fluid.layers.Normal")
@notes_signatures()
class Normal(_Older):
    """The normal distribution of 1.x; see :class:`distribution.Normal`.

    Args:
        loc: The mean: a number, a list, an array or a Variable.
        scale: The standard deviation; the same kinds.

    Example:
        >>> normal = fluid.layers.Normal(0.0, 3.0)
        >>> y = normal.entropy()
        >>> static.Executor().run(fetch_list=[y])[0]
        array([2.5176], dtype=float32)
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        super().__init__(loc, scale, ("loc", "scale"))
        self.loc, self.scale = self._first, self._second

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Draws numbers.

        Args:
            shape: A list of sizes; the parameters' shape follows, unless both are numbers.
            seed: Replaces the program's seed when it is not 0.
        """
        drawn = gaussian_random(self._shape(shape), seed=check_int(seed, "seed", "sample"))
        return self._drawn(drawn * self.scale + self.loc, shape)

    def entropy(self) -> Variable:
        """Returns the entropy in nats, of the parameters' shape."""
        return log(self.scale + zeros_like(self.loc + self.scale)) + (0.5 + _HALF_LOG_2PI)

    def log_prob(self, value: Variable) -> Variable:
        """Returns the logarithm of the density at ``value``."""
        centred = value - self.loc
        variance = self.scale * self.scale
        return centred * centred * -1.0 / (variance * 2.0) - log(self.scale) - _HALF_LOG_2PI

    def kl_divergence(self, other: Normal) -> Variable:
        """Returns the divergence of this distribution from ``other``, another normal one."""
        ratio = self.scale / other.scale
        ratio = ratio * ratio
        shift = (self.loc - other.loc) / other.scale
        return (ratio * 0.5 + shift * shift * 0.5) - 0.5 - log(ratio) * 0.5


@export("fluid.layers.Uniform")
@notes_signatures()
class Uniform(_Older):
    """The uniform distribution of 1.x over ``[low, high)``; see :class:`distribution.Uniform`.

    Args:
        low: The lower end: a number, a list, an array or a Variable.
        high: The upper end; the same kinds.

    Example:
        >>> uniform = fluid.layers.Uniform(0.0, 3.0)
        >>> y = uniform.entropy()
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1.0986], dtype=float32)
    """

    def __init__(self, low: Any, high: Any) -> None:
        super().__init__(low, high, ("low", "high"))
        self.low, self.high = self._first, self._second

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Draws numbers.

        Args:
            shape: A list of sizes; the parameters' shape follows, unless both are numbers.
            seed: Replaces the program's seed when it is not 0.
        """
        drawn = uniform_random(self._shape(shape), min=0.0, max=1.0, seed=check_int(seed, "seed", "sample"))
        return self._drawn(drawn * (self.high - self.low) + self.low, shape)

    def entropy(self) -> Variable:
        """Returns the entropy in nats, of the parameters' shape."""
        return log(self.high - self.low)

    def log_prob(self, value: Variable) -> Variable:
        """Returns the logarithm of the density at ``value``; minus infinity outside."""
        inside = cast(greater_than(value, self.low), value.dtype) * cast(less_than(value, self.high), value.dtype)
        return log(inside) - log(self.high - self.low)


@export("fluid.layers.Categorical")
@notes_signatures()
class Categorical:
    """The distribution over numbers of classes of 1.x, from logits; see :class:`distribution.Categorical`.

    Args:
        logits: ``[..., classes]``, a list, an array or a Variable.

    Example:
        >>> classes = fluid.layers.Categorical(paddle.to_tensor([0.6, 0.4]))
        >>> y = classes.entropy()
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.6882], dtype=float32)
    """

    def __init__(self, logits: Any) -> None:
        self.logits = _parameter(logits, "logits", "Categorical")

    def _parts(self) -> tuple[Variable, Variable, Variable]:
        """Returns the logits less their largest, the sum of their powers, and the probabilities."""
        shifted = self.logits - largest(self.logits, -1, keepdim=True)
        powers = exp(shifted)
        norm = total(powers, -1, keepdim=True)
        return shifted, norm, powers / norm

    def entropy(self) -> Variable:
        """Returns the entropy in nats, ``[..., 1]``."""
        shifted, norm, chances = self._parts()
        return total(chances * (shifted - log(norm)), -1, keepdim=True) * -1.0

    def kl_divergence(self, other: Categorical) -> Variable:
        """Returns the divergence of this distribution from ``other``, ``[..., 1]``."""
        (a, norm, chances), (b, other_norm, _) = self._parts(), other._parts()
        return total(chances * (a - log(norm) - b + log(other_norm)), -1, keepdim=True)


@export("fluid.layers.MultivariateNormalDiag")
@notes_signatures()
class MultivariateNormalDiag:
    """A normal distribution over vectors whose covariance is a diagonal matrix.

    Args:
        loc: The mean, ``[size]``: a list, an array or a Variable.
        scale: The diagonal matrix ``[size, size]``, of variances; the same kinds.

    Example:
        >>> normal = fluid.layers.MultivariateNormalDiag([0.3, 0.5], [[0.4, 0.0], [0.0, 0.5]])
        >>> y = normal.entropy()
        >>> static.Executor().run(fetch_list=[y])[0]
        array([2.0332], dtype=float32)
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc = _parameter(loc, "loc", "MultivariateNormalDiag")
        self.scale = _parameter(scale, "scale", "MultivariateNormalDiag")

    def _size(self) -> Any:
        """Returns the number of variables; an int64 Variable of shape ``[1]`` where it is unknown while the program is built."""
        size = self.scale.shape[0]
        return shape_of(self.scale)[:1] if size == UNKNOWN else size

    def _besides(self) -> Variable:
        """Returns a matrix with 0 on the diagonal and 1 elsewhere."""
        size = self._size()
        if isinstance(size, Variable):
            return 1.0 - eye(size, dtype=self.scale.dtype)
        return assign((1.0 - np.eye(size)).astype(self.scale.dtype.name))

    def _log_det(self) -> Variable:
        """Returns the logarithm of the determinant, ``[1]``."""
        return total(total(log(self.scale + self._besides()), 1), 0, keepdim=True)

    def _inverse(self) -> Variable:
        """Returns the diagonal matrix of the reciprocals."""
        besides = self._besides()
        return (1.0 - besides) / (self.scale + besides) + self.scale * besides

    def entropy(self) -> Variable:
        """Returns the entropy in nats, ``[1]``."""
        size = self._size()
        size = cast(size, self.scale.dtype) if isinstance(size, Variable) else size
        return (self._log_det() + size * (1.0 + 2 * _HALF_LOG_2PI)) * 0.5

    def kl_divergence(self, other: MultivariateNormalDiag) -> Variable:
        """Returns the divergence of this distribution from ``other``, ``[1]``."""
        inverse = other._inverse()
        shift = other.loc - self.loc
        quadratic = inverse * self.scale + inverse * shift * reshape(shift, [-1, 1])
        terms = total(total(quadratic, 1), 0, keepdim=True)
        size = self._size()
        size = cast(size, self.scale.dtype) if isinstance(size, Variable) else size
        return (terms - size + other._log_det() - self._log_det()) * 0.5
