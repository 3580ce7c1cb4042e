"""Both ways through the softmax kernel (with and without subtracting the maximum) against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tstatic.tuned._common import make
from tstatic.tuned.softmax import LARGE, rows_scratch, softmax

Array = np.ndarray[Any, Any]


def run(x: Array, shared: bool = False) -> Array:
    out = x.copy() if shared else np.empty_like(x)
    with np.errstate(all="ignore"):
        softmax(out if shared else x, out, make(rows_scratch(*x.shape, x.dtype)))
    return out


def exact(x: Array) -> Array:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        powers = np.exp(wide - wide.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("length", [3, 24, 25, 128, 1000])
@pytest.mark.parametrize("low", [-1.0, -20.0, -80.0, -500.0])
@pytest.mark.parametrize("high", [0.1, 20.0, LARGE - 0.5, LARGE + 0.5, 300.0])
def test_ranges(length: int, low: float, high: float) -> None:
    """Error at most 8 + log2(n) ulp, plus what rounding the difference to the maximum costs."""
    rng = np.random.default_rng(length)
    x = rng.uniform(low, high, (300, length)).astype(np.float32)
    x[1] = low
    x[2] = high
    x[3, :] = rng.uniform(low, low + 0.1, length)
    right = exact(x)
    unit = np.spacing(np.abs(right).astype(np.float32)).astype(np.float64)
    distance = x.max(1, keepdims=True).astype(np.float64) - x
    bound = (8 + np.log2(length)) * unit + 2.0**-24 * distance * right
    for shared in (False, True):
        found = run(x, shared)
        assert (np.abs(found - right) <= bound).all(), float((np.abs(found - right) / bound).max())


def test_masked_rows() -> None:
    rng = np.random.default_rng(0)
    for hidden in (-np.inf, -1e9, -1e4):
        x = rng.standard_normal((64, 64)).astype(np.float32)
        x[np.triu_indices(64, 1)] = hidden
        np.testing.assert_allclose(run(x), exact(x), rtol=2e-6)
        assert (run(x)[np.triu_indices(64, 1)] == 0).all()


def test_special_values_stay_in_their_row() -> None:
    x = np.zeros((4, 40), np.float32)
    x[0, 3], x[1, 5], x[2] = np.nan, np.inf, -np.inf
    out = run(x)
    assert np.isnan(out[0]).all()
    assert np.isnan(out[1, 5])
    assert np.isnan(out[2]).all()
    np.testing.assert_array_equal(out[3], np.full(40, 1 / 40, np.float32))


def test_a_row_does_not_depend_on_its_neighbours_by_more_than_rounding() -> None:
    rng = np.random.default_rng(1)
    row = rng.standard_normal((1, 50)).astype(np.float32)
    calm = run(np.concatenate([row, np.zeros((9, 50), np.float32)]))[0]
    wild = run(np.concatenate([row, np.full((9, 50), 900.0, np.float32)]))[0]
    np.testing.assert_allclose(calm, wild, rtol=2e-6)
