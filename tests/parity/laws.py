"""Gradients of functions that draw random numbers, given what they drew: both sides draw other numbers, but follow one law.

Only numpy is imported: the file runs in Paddle's environments too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

CLOSE = 1e-4
"""Largest distance from the law, relative to the largest gradient; values are float32."""

SELU = -1.7580993408473766
"""What alpha dropout puts in place of an element: minus the product of the two constants of SELU."""


def _kept(x: Any, out: Any, weight: Any) -> list[Any]:
    """``out = x * mask``: dropout, and a leaky ReLU whose slopes are drawn."""
    return [weight * out / x]


def _alpha(x: Any, out: Any, weight: Any, p: float) -> list[Any]:
    """``out = a * (x if kept else SELU) + b``, of which ``a`` and ``b`` keep mean and deviation."""
    a = ((1 - p) * (1 + p * SELU**2)) ** -0.5
    kept = np.abs(out - (a * x - a * p * SELU)) < 1e-5
    return [weight * a * kept]


def _softmax(_: Any, out: Any, weight: Any, temperature: float) -> list[Any]:
    """``out = softmax((x + noise) / temperature)`` along the last axis."""
    return [out * (weight - (weight * out).sum(-1, keepdims=True)) / temperature]


def _normal(mean: Any, deviation: Any, out: Any, weight: Any) -> list[Any]:
    """``out = mean + deviation * noise``."""
    return [weight, weight * (out - mean) / deviation]


LAWS = {"kept": _kept, "alpha": _alpha, "softmax": _softmax, "normal": _normal}


def follows(given: list[Any], inputs: list[Any], out: Any, weight: Any, gradients: list[Any]) -> list[bool]:
    """Returns for each gradient whether it is what the law says of the result that was drawn.

    Args:
        given: The law's name and its numbers.
        inputs: The arrays that were fed, in order.
        out: The result.
        weight: What the result was weighed with before it was summed.
        gradients: Those of the sum by the inputs; ``None`` where there is none.
    """
    wide = [np.asarray(a, np.float64) for a in (*inputs, out, weight)]
    expected = LAWS[given[0]](*wide, *given[1:])
    found = []
    for gradient, law in zip(gradients, expected):  # noqa: B905 - Python 3.7
        far = np.inf if gradient is None else np.abs(np.asarray(gradient, np.float64) - law).max()
        found.append(bool(far <= CLOSE * np.abs(law).max()))
    return found
