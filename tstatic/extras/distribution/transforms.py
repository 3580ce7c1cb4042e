"""Kinds of invertible functions, with the logarithm of the volume that they stretch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tstatic.errors import ShapeError
from tstatic.extras.distribution.base import parameters
from tstatic.extras.distribution.transform import Transform, checked, sum_last
from tstatic.ir.checks import check_axis, check_int, check_length
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ops.elementwise.activation import sigmoid, softplus, tanh
from tstatic.ops.elementwise.unary import abs, atanh, exp, log, log1p
from tstatic.ops.norm.softmax import softmax
from tstatic.ops.reduce.cumsum import cumprod, cumsum
from tstatic.ops.reduce.reduction import sum
from tstatic.ops.shape.creation import ones_like, zeros_like
from tstatic.ops.shape.joining import concat, stack, unstack
from tstatic.ops.shape.reshape import reshape


@export("distribution.AbsTransform")
class AbsTransform(Transform):
    """``y = |x|``; the inverse is a pair, the negative and the positive value.

    Example:
        >>> transform = paddle.distribution.AbsTransform()
        >>> y = transform(paddle.to_tensor([-1.0, 2.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 2.], dtype=float32)
    """

    def _forward(self, x: Variable) -> Variable:
        return abs(x)

    def inverse(self, y: Variable) -> tuple[Variable, Variable]:  # type: ignore[override]
        """Returns both values whose absolute value is ``y``: ``-y`` and ``y``."""
        return -checked(y, "y", self), y

    def inverse_log_det_jacobian(self, y: Variable) -> tuple[Variable, Variable]:  # type: ignore[override]
        """Returns the logarithm of the volume for both inverses: 0."""
        zero = zeros_like(checked(y, "y", self))
        return zero, zero


@export("distribution.AffineTransform")
class AffineTransform(Transform):
    """``y = loc + scale * x``.

    Args:
        loc, scale: Numbers or Variables; ``scale`` is not 0.

    Example:
        >>> move = paddle.distribution.AffineTransform(1.0, -2.0)
        >>> x = paddle.to_tensor([3.0])
        >>> static.Executor().run(fetch_list=[move.forward(x), move.inverse(x), move.forward_log_det_jacobian(x)])
        [array([-5.], dtype=float32), array([-1.], dtype=float32), array([0.6931], dtype=float32)]
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        self._loc, self._scale = parameters("AffineTransform", loc, scale)

    @property
    def loc(self) -> Variable:
        """What is added."""
        return self._loc

    @property
    def scale(self) -> Variable:
        """The factor."""
        return self._scale

    def _forward(self, x: Variable) -> Variable:
        return self._loc + self._scale * x

    def _inverse(self, y: Variable) -> Variable:
        return (y - self._loc) / self._scale

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return log(abs(self._scale)) + zeros_like(x)


@export("distribution.ExpTransform")
class ExpTransform(Transform):
    """``y = exp(x)``.

    Example:
        >>> transform = paddle.distribution.ExpTransform()
        >>> y = transform(paddle.to_tensor([0.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1.], dtype=float32)
    """

    def _forward(self, x: Variable) -> Variable:
        return exp(x)

    def _inverse(self, y: Variable) -> Variable:
        return log(y)

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return x * 1.0


@export("distribution.PowerTransform")
class PowerTransform(Transform):
    """``y = x ** power`` of positive values.

    Args:
        power: A number or a Variable; not 0.

    Example:
        >>> transform = paddle.distribution.PowerTransform(2.0)
        >>> y = transform(paddle.to_tensor([3.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([9.], dtype=float32)
    """

    def __init__(self, power: Any) -> None:
        (self._power,) = parameters("PowerTransform", power)

    @property
    def power(self) -> Variable:
        """The exponent."""
        return self._power

    def _forward(self, x: Variable) -> Variable:
        found: Variable = x**self._power
        return found

    def _inverse(self, y: Variable) -> Variable:
        found: Variable = y ** (1.0 / self._power)
        return found

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return log(abs(self._power * x ** (self._power - 1.0)))


@export("distribution.SigmoidTransform")
class SigmoidTransform(Transform):
    """``y = 1 / (1 + exp(-x))``.

    Example:
        >>> transform = paddle.distribution.SigmoidTransform()
        >>> y = transform(paddle.to_tensor([0.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.5], dtype=float32)
    """

    def _forward(self, x: Variable) -> Variable:
        return sigmoid(x)

    def _inverse(self, y: Variable) -> Variable:
        return log(y) - log1p(-y)

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return -softplus(-x) - softplus(x)


@export("distribution.TanhTransform")
class TanhTransform(Transform):
    """``y = tanh(x)``.

    Example:
        >>> transform = paddle.distribution.TanhTransform()
        >>> y = transform(paddle.to_tensor([0.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.], dtype=float32)
    """

    def _forward(self, x: Variable) -> Variable:
        return tanh(x)

    def _inverse(self, y: Variable) -> Variable:
        return atanh(y)

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        # log(1 - tanh(x)^2), without the cancellation far from 0.
        return (math.log(2.0) - x - softplus(x * -2.0)) * 2.0


@export("distribution.SoftmaxTransform")
class SoftmaxTransform(Transform):
    """The softmax along the last axis; its inverse is the logarithm, so it has no density.

    Example:
        >>> transform = paddle.distribution.SoftmaxTransform()
        >>> y = transform(paddle.to_tensor([0.0, 0.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.5, 0.5], dtype=float32)
    """

    _rank_in = _rank_out = 1

    def _forward(self, x: Variable) -> Variable:
        return softmax(x)

    def _inverse(self, y: Variable) -> Variable:
        return log(y)


@export("distribution.StickBreakingTransform")
class StickBreakingTransform(Transform):
    """Maps ``k`` numbers along the last axis to ``k + 1`` shares: each number says which part of the rest is broken off.

    Example:
        >>> transform = paddle.distribution.StickBreakingTransform()
        >>> y = transform(paddle.to_tensor([0.0, 0.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([0.3333, 0.3333, 0.3333], dtype=float32)
    """

    _rank_in = _rank_out = 1

    def _offset(self, x: Variable) -> Variable:
        # k, k - 1, ..., 1: numbers of 0 give equal shares.
        count = cumsum(ones_like(x), -1)
        return sum(ones_like(x), -1, keepdim=True) - count + 1.0

    def _forward(self, x: Variable) -> Variable:
        z = sigmoid(x - log(self._offset(x)))
        first = ones_like(x[..., :1])
        rest = cumprod(1.0 - z, -1)
        return concat([z, first], -1) * concat([first, rest], -1)

    def _inverse(self, y: Variable) -> Variable:
        shares = y[..., :-1]
        rest = 1.0 - cumsum(shares, -1)
        return log(shares) - log(rest) + log(self._offset(shares))

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        y, moved = self._forward(x), x - log(self._offset(x))
        return sum(-softplus(moved) + log(y[..., :-1]), -1)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] - 1)


@export("distribution.ReshapeTransform")
class ReshapeTransform(Transform):
    """Gives the last axes another shape.

    Args:
        in_event_shape: The sizes of the last axes.
        out_event_shape: Their new sizes, of as many elements.

    Raises:
        ShapeError: If the shapes have different numbers of elements.

    Example:
        >>> transform = paddle.distribution.ReshapeTransform((4,), (2, 2))
        >>> y = transform(paddle.zeros([3, 4]))
        >>> y.shape
        (3, 2, 2)
    """

    def __init__(self, in_event_shape: Sequence[int], out_event_shape: Sequence[int]) -> None:
        self._in, self._out = tuple(in_event_shape), tuple(out_event_shape)
        if math.prod(self._in) != math.prod(self._out):
            raise ShapeError(
                "a ReshapeTransform keeps the number of elements",
                expected=f"{math.prod(self._in)} elements, as {list(self._in)} has",
                received=list(self._out),
                fix="pass an out_event_shape whose sizes multiply to the same number, as (4,) and (2, 2) do",
                op="ReshapeTransform",
            )
        self._rank_in, self._rank_out = len(self._in), len(self._out)

    @property
    def in_event_shape(self) -> tuple[int, ...]:
        """The sizes of the last axes."""
        return self._in

    @property
    def out_event_shape(self) -> tuple[int, ...]:
        """Their new sizes."""
        return self._out

    def _lead(self, x: Variable, rank: int) -> list[int]:
        return list(x.shape[: len(x.shape) - rank])

    def _forward(self, x: Variable) -> Variable:
        return reshape(x, [*self._lead(x, self._rank_in), *self._out])

    def _inverse(self, y: Variable) -> Variable:
        return reshape(y, [*self._lead(y, self._rank_out), *self._in])

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return sum_last(zeros_like(x), self._rank_in)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*tuple(shape)[: len(shape) - self._rank_in], *self._out)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*tuple(shape)[: len(shape) - self._rank_out], *self._in)


@export("distribution.IndependentTransform")
class IndependentTransform(Transform):
    """A transform whose volume counts further axes as one value.

    Args:
        base: The transform.
        reinterpreted_batch_rank: How many further axes.

    Example:
        >>> both = paddle.distribution.IndependentTransform(paddle.distribution.ExpTransform(), 1)
        >>> volume = both.forward_log_det_jacobian(paddle.to_tensor([1.0, 2.0]))
        >>> static.Executor().run(fetch_list=[volume])[0]
        array(3., dtype=float32)
    """

    def __init__(self, base: Transform, reinterpreted_batch_rank: int) -> None:
        self._base = base
        self._count = check_int(reinterpreted_batch_rank, "reinterpreted_batch_rank", "IndependentTransform", least=1)
        self._rank_in, self._rank_out = base._rank_in + self._count, base._rank_out + self._count

    def _forward(self, x: Variable) -> Variable:
        return self._base.forward(x)

    def _inverse(self, y: Variable) -> Variable:
        return self._base.inverse(y)

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return sum_last(self._base.forward_log_det_jacobian(x), self._count)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._base.forward_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._base.inverse_shape(shape)


@export("distribution.StackTransform")
class StackTransform(Transform):
    """A transform for each place along an axis.

    Args:
        transforms: As many as there are places.
        axis: Which axis.

    Raises:
        ShapeError: When it is called with another number of places.

    Example:
        >>> parts = [paddle.distribution.ExpTransform(), paddle.distribution.AffineTransform(0.0, 2.0)]
        >>> transform = paddle.distribution.StackTransform(parts)
        >>> y = transform(paddle.to_tensor([0.0, 3.0]))
        >>> static.Executor().run(fetch_list=[y])[0]
        array([1., 6.], dtype=float32)
    """

    def __init__(self, transforms: Sequence[Transform], axis: int = 0) -> None:
        self._transforms, self._axis = list(transforms), check_int(axis, "axis", "StackTransform")

    @property
    def transforms(self) -> list[Transform]:
        """The transforms."""
        return self._transforms

    @property
    def axis(self) -> int:
        """The axis."""
        return self._axis

    def _each(self, name: str, x: Variable) -> Variable:
        axis = check_axis(self._axis, x, "axis", "StackTransform")
        parts = unstack(x, axis)
        check_length(parts, len(self._transforms), "x", "StackTransform", why="one place for each transform")
        return stack([getattr(t, name)(part) for t, part in zip(self._transforms, parts, strict=True)], axis)

    def _forward(self, x: Variable) -> Variable:
        return self._each("forward", x)

    def _inverse(self, y: Variable) -> Variable:
        return self._each("inverse", y)

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return self._each("forward_log_det_jacobian", x)
