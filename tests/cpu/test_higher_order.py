"""Third derivatives of arithmetic, where gradients of gradients are ordinary ops; what has none says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic.errors import UnsupportedError

X = np.array([0.7, 1.3, -2.0])


def derivatives(function: Callable[[Any], Any], order: int, at: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x = paddle.static.data("x", [len(at)], "float64")
    x.stop_gradient = False
    value = function(x)
    for _ in range(order):
        (value,) = paddle.static.gradients(value, x)
    (found,) = paddle.static.Executor().run(feed={"x": at}, fetch_list=[value])
    return np.asarray(found)


@pytest.mark.parametrize(
    ("function", "third"),
    [
        (lambda x: x * x * x * x, lambda x: 24 * x),
        (lambda x: 1.0 / x, lambda x: -6 / x**4),
        (lambda x: (x - 1.0) / (x * x), lambda x: -6 / x**4 + 24 / x**5),
        (lambda x: x**2.0 * x, lambda x: 6 + 0 * x),
        (lambda x: x**4.0, lambda x: 24 * x),
        (lambda x: paddle.maximum(x, -x) * x * x, lambda x: 6 * np.sign(x)),
        (lambda x: (x + x - 3.0 * x) * x * x, lambda x: -6 + 0 * x),
    ],
    ids=["product", "reciprocal", "quotient", "square", "power", "maximum", "sums"],
)
def test_third_derivative(function: Any, third: Any) -> None:
    assert np.allclose(derivatives(function, 3, X), third(X), rtol=1e-12, atol=1e-12)


def test_power_of_itself() -> None:
    x = np.array([0.7, 1.3])
    log = np.log(x) + 1
    expected = x**x * (log**3 + 3 * log / x - 1 / x**2)
    assert np.allclose(derivatives(lambda v: v**v, 3, x), expected, rtol=1e-11)


@pytest.mark.parametrize(
    ("function", "second"),
    [
        (lambda x: paddle.atan2(x, x * x + 1.0), lambda x: 2 * x * (x**4 - 2 * x**2 - 4) / (x**4 + 3 * x**2 + 1) ** 2),
        (lambda x: paddle.lerp(x, x * x, x * x), lambda x: 12 * x**2 - 6 * x),
    ],
    ids=["atan2", "lerp"],
)
def test_second_derivative_through_every_input(function: Any, second: Any) -> None:
    assert np.allclose(derivatives(function, 2, X), second(X), rtol=1e-10, atol=1e-12)


def test_a_third_derivative_that_is_missing_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="second order"):
        derivatives(lambda x: paddle.atan2(x, x * x), 3, X)
