"""Invertible functions, chains of them, and the distributions of what they make of draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.errors import ProgramTypeError, ShapeError, UnsupportedError, shown
from tstatic.extras.distribution.base import Distribution, parameters
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.creation import zeros_like


@export("distribution.Transform")
class Transform:
    """The base class of invertible functions.

    A transform is called with a value, a distribution (which becomes a transformed one) or another transform (which runs first).
    A subclass gives ``_forward``, ``_inverse`` and ``_forward_log_det_jacobian``.

    Example:
        >>> double = paddle.distribution.AffineTransform(1.0, 2.0)
        >>> isinstance(double, paddle.distribution.Transform)
        True
        >>> static.Executor().run(fetch_list=[double(paddle.to_tensor([1.0, 2.0]))])[0]
        array([3., 5.], dtype=float32)
    """

    _rank_in = 0
    """How many axes, from the last on, are one value."""
    _rank_out = 0

    def __call__(self, input: Any) -> Any:
        if isinstance(input, Distribution):
            return TransformedDistribution(input, [self])
        if isinstance(input, Transform):
            return ChainTransform([input, self])
        return self.forward(input)

    def forward(self, x: Variable) -> Variable:
        """Returns the function of ``x``."""
        return self._forward(checked(x, "x", self))

    def inverse(self, y: Variable) -> Variable:
        """Returns the value of which the function is ``y``."""
        return self._inverse(checked(y, "y", self))

    def forward_log_det_jacobian(self, x: Variable) -> Variable:
        """Returns the logarithm of the volume that the function stretches a small one around ``x`` to."""
        return self._forward_log_det_jacobian(checked(x, "x", self))

    def inverse_log_det_jacobian(self, y: Variable) -> Variable:
        """Returns that of the inverse around ``y``."""
        return -self._forward_log_det_jacobian(self._inverse(checked(y, "y", self)))

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape of the function of a value of a shape."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape of the inverse of a value of a shape."""
        return tuple(shape)

    def _forward(self, x: Variable) -> Variable:
        raise NotImplementedError

    def _inverse(self, y: Variable) -> Variable:
        raise NotImplementedError

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        raise self._lacks()

    def _lacks(self) -> UnsupportedError:
        name = type(self).__name__
        return UnsupportedError(
            f"{name} has no density: it is not one to one, or changes the number of values",
            expected="a transform that can be undone",
            received=name,
            fix="use another transform, such as ExpTransform",
            op=name,
        )


def checked(x: Any, arg: str, transform: Transform) -> Variable:
    """Returns the argument of a transform.

    Raises:
        ProgramTypeError: If it is not a Variable.
    """
    if not isinstance(x, Variable):
        raise ProgramTypeError(
            f"'{arg}' of {type(transform).__name__} must be a Variable",
            expected="a Variable, a distribution or a transform",
            received=shown(x),
            fix="make it one: paddle.to_tensor(...)",
            op=type(transform).__name__,
        )
    return x


def sum_last(x: Variable, count: int) -> Variable:
    """Sums over the last axes."""
    return sum(x, list(range(-count, 0))) if count else x


@export("distribution.ChainTransform")
class ChainTransform(Transform):
    """Transforms one after the other.

    Args:
        transforms: The first one runs first.

    Example:
        >>> parts = [paddle.distribution.AffineTransform(0.0, 2.0), paddle.distribution.ExpTransform()]
        >>> transform = paddle.distribution.ChainTransform(parts)
        >>> y = transform(paddle.to_tensor([0.5]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([2.7183], dtype=float32)
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = list(transforms)
        rank = 0
        for one in reversed(self.transforms):
            rank = max(one._rank_in, rank - one._rank_out + one._rank_in)
        self._rank_in = rank
        for one in self.transforms:
            rank += one._rank_out - one._rank_in
        self._rank_out = rank

    def _forward(self, x: Variable) -> Variable:
        for one in self.transforms:
            x = one.forward(x)
        return x

    def _inverse(self, y: Variable) -> Variable:
        for one in reversed(self.transforms):
            y = one.inverse(y)
        return y

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        total: Variable | None = None
        rank = self._rank_in
        for one in self.transforms:
            part = sum_last(one.forward_log_det_jacobian(x), rank - one._rank_in)
            total = part if total is None else total + part
            x = one.forward(x)
            rank += one._rank_out - one._rank_in
        return zeros_like(x) if total is None else total

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for one in self.transforms:
            shape = one.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for one in reversed(self.transforms):
            shape = one.inverse_shape(shape)
        return tuple(shape)


@export("distribution.TransformedDistribution")
class TransformedDistribution(Distribution):
    """The distribution of a function of what another distribution draws.

    Args:
        base: The distribution that is drawn from.
        transforms: Transforms, of which the first runs first.

    Raises:
        ProgramTypeError: If they are something else.

    Example:
        >>> base = paddle.distribution.Normal(0.0, 1.0)
        >>> made = paddle.distribution.TransformedDistribution(base, [paddle.distribution.ExpTransform()])
        >>> static.Executor().run(fetch_list=[made.log_prob(paddle.to_tensor(1.0))])[0]
        array(-0.9189, dtype=float32)
    """

    def __init__(self, base: Distribution, transforms: Sequence[Transform]) -> None:
        for value, kind in ((base, Distribution), *((t, Transform) for t in transforms)):
            if not isinstance(value, kind):
                raise ProgramTypeError(
                    "a TransformedDistribution is made of a distribution and transforms",
                    expected=f"a {kind.__name__}",
                    received=shown(value),
                    fix="pass TransformedDistribution(base, [transform, ...])",
                    op="TransformedDistribution",
                )
        self.base, self.transforms = base, list(transforms)
        self._chain = ChainTransform(self.transforms)
        base_shape = (*base.batch_shape, *base.event_shape)
        if len(base_shape) < self._chain._rank_in:
            raise ShapeError(
                "the transforms want more axes than the distribution has",
                expected=f"at least {self._chain._rank_in} axes",
                received=list(base_shape),
                fix="make the distribution of larger parameters",
                op="TransformedDistribution",
            )
        shape = self._chain.forward_shape(base_shape)
        rank = max(self._chain._rank_out, len(base.event_shape) + self._chain._rank_out - self._chain._rank_in)
        super().__init__(shape[: len(shape) - rank], shape[len(shape) - rank :])

    def sample(self, shape: Sequence[int] = ()) -> Variable:
        """Draws ``[*shape, *batch_shape, *event_shape]``; no gradient flows through it."""
        drawn = self._chain.forward(self.base.sample(shape))
        drawn.stop_gradient = True
        return drawn

    def rsample(self, shape: Sequence[int] = ()) -> Variable:
        return self._chain.forward(self.base.rsample(shape))

    def log_prob(self, value: Any) -> Variable:
        y = value if isinstance(value, Variable) else parameters("log_prob", value)[0]
        total: Variable | None = None
        rank = len(self._event_shape)
        for one in reversed(self.transforms):
            x = one.inverse(y)
            rank += one._rank_in - one._rank_out
            part = sum_last(one.forward_log_det_jacobian(x), rank - one._rank_in)
            total = part if total is None else total + part
            y = x
        found = sum_last(self.base.log_prob(y), rank - len(self.base.event_shape))
        return found if total is None else found - total
