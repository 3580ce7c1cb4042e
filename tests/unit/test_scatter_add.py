"""Adding rows by index: every way it takes gives the sum that ``np.add.at`` gives in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tstatic.ops.base.indexing import add_rows

# (indices, width, rows of the table): small, narrow, wide, rare and frequent indices, one index only.
SIZES = [(5, 3, 4), (600, 8, 8), (5000, 1, 50), (5000, 2, 40000), (5000, 9, 40000), (3000, 20, 7), (700, 200, 3),
         (900, 150, 5000), (400, 300, 1)]  # fmt: skip


def draw(count: int, width: int, table: int, skewed: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count + width + table)
    index = rng.integers(0, table, count)
    if skewed:
        index = np.minimum((rng.pareto(1.0, count) * 3).astype(int), table - 1)
    return index, rng.standard_normal((count, width))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_add_rows(size: tuple[int, int, int], skewed: bool, dtype: str) -> None:
    index, rows = draw(*size, skewed)
    rows = rows.astype(dtype)
    start = np.ones((size[2], size[1]), dtype)
    expected, scale = start.astype(np.float64), np.ones_like(start, np.float64)
    np.add.at(expected, index, rows)
    np.add.at(scale, index, np.abs(rows))
    bound = scale * np.finfo(dtype).eps * (4 + np.log2(size[0] + 1)) * 4
    out = start.copy()
    add_rows(out, index, rows)
    assert (np.abs(out - expected) <= bound).all()
    fresh = np.zeros_like(start)
    add_rows(fresh, index, rows, fresh=True)
    assert (np.abs(fresh + 1.0 - expected) <= bound).all()
    repeated = np.zeros_like(start)
    add_rows(repeated, index, rows, fresh=True)
    assert fresh.tobytes() == repeated.tobytes()


def test_add_rows_to_views_and_of_views() -> None:
    index, rows = draw(900, 150, 50, True)
    whole = np.zeros((100, 300))
    out = whole[::2, ::2]
    add_rows(out, index, rows[:, ::-1], fresh=True)
    expected = np.zeros((50, 150))
    np.add.at(expected, index, rows[:, ::-1])
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
    assert not whole[1::2].any()
    assert not whole[:, 1::2].any()


def test_add_rows_of_more_axes_and_of_none() -> None:
    rng = np.random.default_rng(0)
    out, rows, index = np.zeros((4, 2, 3)), rng.standard_normal((3000, 2, 3)), rng.integers(0, 4, 3000)
    add_rows(out, index, rows)
    expected = np.zeros_like(out)
    np.add.at(expected, index, rows)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    add_rows(out, np.zeros(0, int), np.zeros((0, 2, 3)))
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    counts = np.zeros(4, np.int64)
    add_rows(counts, index, np.ones(3000, np.int64))
    assert counts.sum() == 3000


def test_a_sum_of_negative_zeros_into_zeros_is_zero() -> None:
    for count, width in ((3, 2), (800, 200)):
        out = np.zeros((count, width), np.float32)
        add_rows(out, np.arange(count), np.full((count, width), -0.0, np.float32), fresh=True)
        assert not np.signbit(out).any()
