"""Masks that are causal by what they hold, and those that only look like it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tstatic.fusion.attention.causal import Found, triangle
from tstatic.ir.types import dtype_of


def mask(rows: int, columns: int, diagonal: int, value: float = -1e9) -> Any:
    return np.triu(np.full((rows, columns), value, np.float32), diagonal + 1)


@pytest.mark.parametrize(
    ("rows", "columns", "diagonal"), [(5, 5, 0), (3, 5, 2), (5, 5, 1), (5, 3, 0), (1, 4, 2), (3, 5, 0)]
)
def test_the_diagonal_is_found(rows: int, columns: int, diagonal: int) -> None:
    assert triangle(mask(rows, columns, diagonal), rows, columns) == Found(diagonal, -1e9, infinite=False)
    wide = np.broadcast_to(mask(rows, columns, diagonal, -np.inf), (2, 3, rows, columns))
    assert triangle(wide, rows, columns) == Found(diagonal, -np.inf, infinite=True)


def changed(row: int, column: int, value: float) -> Any:
    other = mask(5, 5, 0)
    other[row, column] = value
    return other


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(mask(5, 5, -1), id="the first row sees nothing"),
        pytest.param(mask(5, 5, 4), id="all is seen"),
        pytest.param(np.zeros((5, 5)), id="zeros"),
        pytest.param(mask(5, 5, 0).T, id="transposed"),
        pytest.param(mask(5, 5, 0)[None, :, :4], id="other sizes"),
        pytest.param(mask(5, 5, 0)[0], id="one row"),
        pytest.param(np.stack([mask(5, 5, 0), mask(5, 5, 1)]), id="two diagonals"),
        pytest.param(changed(2, 3, 0.0), id="one key more"),
        pytest.param(changed(2, 1, -1e9), id="one key less"),
        pytest.param(changed(2, 2, 1e-6), id="a number on the diagonal"),
        pytest.param(changed(2, 1, np.nan), id="NaN below"),
        pytest.param(changed(2, 3, np.nan), id="NaN above"),
        pytest.param(changed(2, 3, 1e9), id="a positive number above"),
        pytest.param(-changed(0, 0, 0.0), id="the other sign"),
    ],
)
def test_others_are_not_causal(other: Any) -> None:
    assert triangle(other, 5, 5) is None


@pytest.mark.parametrize(
    ("dtype", "value", "hides"),
    [
        ("float32", -1e9, True), ("float32", -np.inf, True), ("float32", -3e38, True), ("float32", -9.9e8, False),
        ("float32", -1e4, False), ("float64", -1e9, True), ("bfloat16", -1e9, True), ("bfloat16", -9.9e8, False),
        ("float16", -np.inf, True), ("float16", -65504.0, False), ("float16", -6e4, False),
    ],
)  # fmt: skip
def test_how_far_is_far_enough(dtype: str, value: float, hides: bool) -> None:
    """A number counts as the mask's type holds it: -1e9 is -998244352 in bfloat16, and -inf in float16."""
    kind = dtype_of(dtype)
    held = mask(4, 4, 0, value).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else kind.np)
    found = triangle(held, 4, 4)
    assert found is not None
    assert found.hides(kind) is hides


def test_the_highest_number_decides() -> None:
    found = triangle(changed(1, 3, -1e4), 5, 5)
    assert found == Found(0, -1e4, infinite=False)
    some = mask(5, 5, 0, -np.inf)
    some[1, 3] = -1e9
    assert triangle(some, 5, 5) == Found(0, -1e9, infinite=False)
