"""Sums as products with ones: every pattern of axes, odd strides, and the error of long sums."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tstatic.ir.evaluate import allocate, meta_of
from tstatic.ops.base.sum import dot_calls, dot_scratch, sum_calls, sum_scratch

Array = np.ndarray[Any, Any]
SHAPES = [
    (), (5,), (1100,), (3, 4), (300, 4), (4, 1100), (2, 300, 5), (130, 2, 520), (2, 3, 4, 5), (1, 3, 1, 5), (64, 7, 33),
    (0, 3), (3, 0), (129, 1, 3), (70000,), (140, 3, 140, 2), (2, 1, 2, 1, 2),
]  # fmt: skip


def total(x: Array, axes: tuple[int, ...], out: Array) -> Array:
    with np.errstate(all="ignore"):
        for function, args in sum_calls(x, axes, out, allocate(sum_scratch(meta_of(x), axes))):
            function(*args)
    return out


def layouts(x: Array) -> list[Array]:
    flip = (slice(None, None, -1),) * x.ndim
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype) if x.ndim else x
    if x.ndim:
        wide[..., ::2] = x
    return [x, np.asfortranarray(x), np.array(x[flip], order="C")[flip], wide[..., ::2] if x.ndim else x]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_choice_of_axes(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for count in range(len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), count):
            for dtype, rtol in (("float32", 4e-6), ("float64", 1e-12), ("int64", 0)):
                x = (rng.random(shape) * 10 + 1).astype(dtype)
                expected = x.astype(np.float64).sum(axes)
                for view in layouts(x):
                    out = total(view, axes, np.full(expected.shape, 7, dtype))
                    np.testing.assert_allclose(out, expected, rtol=rtol)


def test_axes_of_zero_stride_and_odd_results() -> None:
    x = np.broadcast_to(np.arange(6.0, dtype=np.float32).reshape(2, 1, 3), (2, 400, 3))
    np.testing.assert_allclose(total(x, (1,), np.empty((2, 3), np.float32)), x.sum(1), rtol=1e-6)
    out = np.empty((4, 6), np.float32)[::2, ::2]
    np.testing.assert_allclose(total(x, (1,), out), x.sum(1), rtol=1e-6)
    y = np.ones((2, 3, 4, 5), np.float32)
    out = np.empty((5, 2, 4), np.float32).transpose(1, 2, 0)
    np.testing.assert_array_equal(total(y, (1,), out), np.full((2, 4, 5), 3))


@pytest.mark.parametrize("count", [100, 1000, 4096, 100_000, 3_000_000])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7])
def test_error_of_a_long_sum_of_equal_numbers(count: int, value: float) -> None:
    """Equal numbers are the worst case of blocked sums: each rounding goes the same way. Allowed: 2 + log2(n) ulp."""
    x = np.full((count,), value, np.float32)
    exact = float(x[0].astype(np.float64)) * count
    unit = float(np.spacing(np.float32(exact)))
    assert abs(float(total(x, (0,), np.empty((), np.float32))) - exact) <= (2 + np.log2(count)) * unit
    if count <= 100_000:
        rows = np.full((count, 3), value, np.float32)
        found = total(rows, (0,), np.empty((3,), np.float32)).astype(np.float64)
        assert (abs(found - exact) <= (2 + np.log2(count)) * unit).all()


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_reach_the_sum(special: float) -> None:
    x = np.ones((700, 3), np.float32)
    x[650, 1] = special
    np.testing.assert_array_equal(total(x, (0,), np.empty((3,), np.float32)), [700, special, 700])


@pytest.mark.parametrize("shape", [(3,), (0,), (4, 600), (2, 1024), (1_000_000,), (3, 0)])
def test_dots(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.random(shape).astype(np.float32) for _ in range(2))
    exact = (x.astype(np.float64) * y).sum(-1)
    for a, b in zip(layouts(x), layouts(y), strict=True):
        out = np.empty(shape[:-1], np.float32)
        for function, args in dot_calls(a, b, out, allocate(dot_scratch(meta_of(a)))):
            function(*args)
        bound = (4 + np.log2(max(shape[-1], 1))) * np.spacing(np.abs(exact).astype(np.float32))
        assert (abs(out - exact) <= bound).all()
