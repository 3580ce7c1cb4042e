"""Gradients of reductions where the generic domains do not go: signs, ties, zeros, infinities."""

from __future__ import annotations

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.run_function import compare, normal, run_function

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_norm_gradients_of_either_sign() -> None:
    """The op's domain has numbers of one sign, so that magnitudes do not tie."""
    for p in (1.0, 1.5, 2.0, 3.0, np.inf, -np.inf):
        compare(lambda x: paddle.norm(x, p, 1), lambda x: torch.linalg.vector_norm(x, p, 1), {"x": normal(4, 5)})  # noqa: B023
    ties = {"x": np.array([[1.0, -2.0, 2.0], [0.0, 0.0, 0.0], [-1.0, 1.0, 0.5]])}
    for p in (2.0, 3.0):
        compare(lambda x: paddle.norm(x, p, 1), lambda x: torch.linalg.vector_norm(x, p, 1), ties)  # noqa: B023
    _, dx = run_function(lambda x: paddle.norm(x, np.inf, 1), ties, grads=True)
    signs = np.array([[0, -0.5, 0.5], [0, 0, 0], [-0.5, 0.5, 0]]) * np.cos(np.arange(3.0))[:, None]
    np.testing.assert_allclose(dx, signs, atol=1e-12)


def test_prod_gradient_with_zeros() -> None:
    x = np.array([[1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [0.0, 0.0, 3.0]])
    compare(lambda x: paddle.prod(x, 1), lambda x: x.prod(1), {"x": x})
    compare(paddle.prod, lambda x: x.prod(), {"x": x})


def test_logsumexp_at_infinities() -> None:
    x = np.array([[1.0, np.inf], [-np.inf, -np.inf], [-np.inf, 2.0], [np.nan, 1.0]])
    expected = torch.logsumexp(torch.from_numpy(x), 1).numpy()
    np.testing.assert_array_equal(run_function(lambda x: paddle.logsumexp(x, 1), {"x": x})[0], expected)


@pytest.mark.parametrize("size", [3e19, 1e-30])
def test_a_norm_is_found_where_squares_leave_the_range_of_float32(size: float) -> None:
    """Four values of 3e19 came out as 0: their squares add up to infinity."""
    x = np.full(4, size, "float32")
    (found,) = run_function(lambda x: paddle.nn.clip_by_norm(x, size), {"x": x})
    np.testing.assert_allclose(found, x / 2, rtol=1e-6)
