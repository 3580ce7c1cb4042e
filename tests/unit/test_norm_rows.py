"""Batch normalisation of rows: repeated parameter rows, blocks and odd strides against the formula in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tstatic.tuned import _common
from tstatic.tuned.norm_rows import batch_norm_rows, batch_norm_rows_grad, batch_norm_rows_scratch

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def scratch(rows: int, channels: int) -> list[Array]:
    needs = batch_norm_rows_scratch(rows, channels, np.dtype(np.float64))
    return [np.full(shape, np.nan, dtype) for shape, dtype in needs]


def laid_out(array: Array, layout: str) -> Array:
    if layout == "strided":
        wide = np.zeros((array.shape[0], 2 * array.shape[1]))
        wide[:, ::2] = array
        return wide[:, ::2]
    return np.asfortranarray(array) if layout == "fortran" else array.copy()


@pytest.mark.parametrize("layout", ["plain", "strided", "fortran"])
@pytest.mark.parametrize("shape", [(1000, 3), (517, 64), (40, 600), (1, 5), (3, 1)])
@pytest.mark.parametrize("affine", [True, False])
def test_rows(shape: tuple[int, int], layout: str, affine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_common, "BLOCK", 1 << 11)  # several blocks
    rows, channels = shape
    x, dy = laid_out(RNG.normal(3.0, 2.0, shape), layout), laid_out(RNG.normal(size=shape), layout)
    scale, bias = (RNG.normal(size=channels) for _ in range(2)) if affine else (None, None)
    y, mean, variance, inverse = np.empty_like(x), *np.empty((3, channels))
    batch_norm_rows(x, scale, bias, y, mean, variance, inverse, 1e-3, scratch(rows, channels))
    factor = 1 if scale is None else scale
    hat = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3)
    np.testing.assert_allclose(mean, x.mean(0))
    np.testing.assert_allclose(variance, x.var(0), atol=1e-12)
    np.testing.assert_allclose(y, hat * factor + (0 if bias is None else bias), atol=1e-11)

    dscale, dbias = np.empty((2, channels))
    for fixed in (False, True):
        expected = dy * factor * inverse
        if not fixed:
            expected = factor * inverse * (dy - dy.mean(0) - hat * (dy * hat).mean(0))
        dx = dy.copy()  # written over its own gradient
        batch_norm_rows_grad(x, scale, mean, inverse, dx, dx, dscale, dbias, scratch(rows, channels), fixed)
        np.testing.assert_allclose(dx, expected, atol=1e-11)
        np.testing.assert_allclose(dscale, (dy * hat).sum(0), atol=1e-10)
        np.testing.assert_allclose(dbias, dy.sum(0), atol=1e-10)
        batch_norm_rows_grad(x, scale, mean, inverse, dy, dx, None, None, scratch(rows, channels), fixed)
        np.testing.assert_allclose(dx, expected, atol=1e-11)


def test_blocks_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    x = RNG.normal(size=(999, 7))
    found = []
    for block in (1 << 6, 1 << 15):
        monkeypatch.setattr(_common, "BLOCK", block)
        y, mean, variance, inverse = np.empty_like(x), *np.empty((3, 7))
        batch_norm_rows(x, None, None, y, mean, variance, inverse, 1e-5, scratch(999, 7))
        found.append(y)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-13)
