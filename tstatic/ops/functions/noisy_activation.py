"""Activations that draw random numbers: `gumbel_softmax`, `alpha_dropout`, `rrelu`."""

from __future__ import annotations

import numpy as np

from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_axis, check_number, check_static_dim
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.activation_piecewise import leaky_relu
from tstatic.ops.elementwise.logic import where
from tstatic.ops.elementwise.scale import cast, clip, detach
from tstatic.ops.elementwise.scale import scale as scaled
from tstatic.ops.elementwise.unary import log
from tstatic.ops.functions.operators import eq
from tstatic.ops.norm.softmax import softmax
from tstatic.ops.reduce.ordering import argmax
from tstatic.ops.shape.reshape import reshape
from tstatic.ops.shape.sequence import arange

_FLOATS = ("float32", "float64")


def _drawn_like(x: Variable, low: float, high: float) -> Variable:
    return emit_one("uniform_random_inplace", {"X": x}, {"min": low, "max": high})


@export("nn.functional.gumbel_softmax")
def gumbel_softmax(
    x: Variable, temperature: float = 1.0, hard: bool = False, axis: int = -1, name: str | None = None
) -> Variable:
    """Returns ``softmax((x + noise) / temperature)`` with Gumbel noise: a draw of a category that has a gradient.

    Args:
        x: Logarithms of chances that need not sum to 1; float32 or float64 of any shape.
        temperature: Near 0 the result is nearly one-hot; positive.
        hard: Return 1 at the largest element and 0 elsewhere, with the gradient of the softmax. Needs a known number of categories.
        axis: The axis of the categories.
        name: Name of the last layer.

    Raises:
        ProgramError: If ``temperature`` is not positive.

    Example:
        >>> x = paddle.log(paddle.full([10000, 2], 0.5))
        >>> y = paddle.nn.functional.gumbel_softmax(x, hard=True)
        >>> value = static.Executor().run(fetch_list=[y])[0]
        >>> np.unique(value), bool(abs(value[:, 0].mean() - 0.5) < 0.05)
        (array([0., 1.], dtype=float32), True)
    """
    check_variable(x, "x", "gumbel_softmax", _FLOATS)
    check_number(temperature, "temperature", "gumbel_softmax", above=0.0)
    at = check_axis(axis, x, "axis", "gumbel_softmax")
    # Neither logarithm is taken of 0.
    tiny = float(np.finfo(np.float32).tiny)
    exponential = clip(-log(_drawn_like(x, tiny, 1.0)), min=tiny)
    soft = softmax(scaled(x - log(exponential), 1.0 / temperature), at, name=None if hard else name)
    if not hard:
        return soft
    classes = check_static_dim(x.shape[at], x, "the number of categories", "gumbel_softmax")
    places = reshape(arange(classes), [classes if i == at else 1 for i in range(len(x.shape))])
    hot = cast(eq(argmax(soft, at, keepdim=True), places), x.dtype)
    # The difference is 0, and passes the gradient on.
    return emit_one("elementwise_add", {"X": soft - detach(soft), "Y": hot}, name=name)


@export("nn.functional.alpha_dropout")
def alpha_dropout(x: Variable, p: float = 0.5, training: bool = True, name: str | None = None) -> Variable:
    """Replaces elements by the lower limit of SELU with chance ``p``, and scales so that mean 0 and variance 1 stay.

    Args:
        x: Floats of any shape.
        p: Chance of an element to be replaced.
        training: ``False`` for inference, which returns ``x`` itself.
        name: Name of the last layer.

    Raises:
        ProgramError: If ``p`` is not in [0, 1].

    Example:
        >>> x = paddle.randn([20000])
        >>> y = paddle.nn.functional.alpha_dropout(x, p=0.25)
        >>> value = static.Executor().run(fetch_list=[y])[0]
        >>> bool(abs(value.mean()) < 0.05 and abs(value.var() - 1) < 0.05)
        True
    """
    check_variable(x, "x", "alpha_dropout", _FLOATS)
    check_number(p, "p", "alpha_dropout", least=0, most=1)
    if not training:
        return x
    if p == 1:
        return scaled(x, 0.0, name=name)
    # The value of SELU at minus infinity.
    limit = -1.6732632423543772848170429916717 * 1.0507009873554804934193349852946
    slope = ((1 - p) * (1 + p * limit**2)) ** -0.5
    kept = _drawn_like(x, 0.0, 1.0) >= p
    return scaled(where(kept, x, limit), slope, -slope * limit * p, name=name)


@export("nn.functional.rrelu")
def rrelu(
    x: Variable, lower: float = 1.0 / 8.0, upper: float = 1.0 / 3.0, training: bool = True, name: str | None = None
) -> Variable:
    """Returns ``x`` where it is not negative, elsewhere ``slope * x`` with a slope drawn from ``[lower, upper]`` for each element.

    Args:
        x: Floats of any shape.
        lower, upper: The range of slopes, in [0, 1].
        training: ``False`` for inference, where the slope is ``(lower + upper) / 2``.
        name: Name of the last layer.

    Raises:
        ProgramError: If the range is not in [0, 1], or is empty.

    Example:
        >>> x = paddle.full([1000], -8.0)
        >>> y = paddle.nn.functional.rrelu(x, 0.25, 0.5)
        >>> value = static.Executor().run(fetch_list=[y])[0]
        >>> bool(value.min() >= -4 and value.max() <= -2 and value.std() > 0.1)
        True
    """
    check_variable(x, "x", "rrelu", _FLOATS)
    low = check_number(lower, "lower", "rrelu", least=0, most=1)
    high = check_number(upper, "upper", "rrelu", least=low, most=1)
    if not training:
        return leaky_relu(x, (low + high) / 2, name)
    result: Variable = where(x < 0, x * _drawn_like(x, low, high), x, name)
    return result
