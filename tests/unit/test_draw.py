"""Distributions: formulas, statistics, layouts, and the same numbers from torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy  # its statistics are loaded when they are used: every worker collects this file
from scipy import special

from tstatic.ir.rng import RngKey
from tstatic.tuned import draw
from tstatic.tuned.normal import normal_pairs, normal_quantile, work_space
from tstatic.tuned.philox import CHUNK, HALF_ROUNDS, fill_bits, philox_key, random_bits

KEY = philox_key(RngKey(seed=31, position=5, run=2))
Array = np.ndarray[Any, Any]
Fill = Callable[..., None]
N = 200_000


def filled(fill: Fill, *args: Any, shape: Any = N, dtype: Any = np.float32, start: int = 0, key: Any = KEY) -> Array:
    out = np.empty(shape, dtype)
    fill(out, *args, key, start)
    return out


def test_uniform_formula() -> None:
    bits = random_bits(1000, KEY)
    expected = (bits >> 8).astype(np.float64) * 2.0**-24
    assert np.array_equal(draw.uniform01(bits), expected.astype(np.float32))
    assert np.array_equal(filled(draw.fill_uniform, 0.0, 1.0, shape=1000), expected.astype(np.float32))
    second = random_bits(1000, KEY.second())
    wide = [(int(b) * 2**21 + (int(s) >> 11)) / 2**53 for b, s in zip(bits, second, strict=True)]
    assert draw.uniform01(bits, np.float64, second).tolist() == wide
    assert filled(draw.fill_uniform, 0.0, 1.0, shape=1000, dtype=np.float64).tolist() == wide


def test_normal_formula() -> None:
    u = filled(draw.fill_uniform, 0.0, 1.0, shape=1000, dtype=np.float64)
    r = np.sqrt(-2 * np.log(u[0::2] + 2.0**-53))
    expected = np.stack([r * np.cos(2 * np.pi * u[1::2]), r * np.sin(2 * np.pi * u[1::2])], -1).reshape(-1)
    found = filled(draw.fill_normal, 0.0, 1.0, shape=1000, dtype=np.float64)
    assert np.allclose(found, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_numbers_are_exact_to_four_units(dtype: Any) -> None:
    """Of 200,000 pairs; the ends of all ranges are among them: quarters of a turn, powers of two, least and largest integers."""
    digits = 24 if dtype == np.float32 else 53
    pairs = np.random.default_rng(2).integers(0, 2**digits, (N, 2))
    edges = [0, 1, 2, 2**digits - 1, 2**digits - 2, *(2**k + d for k in range(2, digits) for d in (-1, 0, 1))]
    edges += [q * 2 ** (digits - 3) + d for q in range(1, 8) for d in (-1, 0, 1)]
    pairs[: len(edges), 0], pairs[len(edges) : 2 * len(edges), 0] = edges, 2**digits - 1
    pairs[: len(edges), 1], pairs[len(edges) : 2 * len(edges), 1] = edges[::-1], edges
    found = pairs.astype(dtype).reshape(-1)
    normal_pairs(found, work_space(np.empty(8 * 2**14, dtype)))
    # In 64 bits of fraction; of the angle what is less than a quarter of a turn, which is exact, so that zeros of the sine are.
    wide, quarter = np.longdouble, 2 ** (digits - 2)
    length = np.sqrt(-2 * np.log((pairs[:, 0].astype(wide) + 1) / wide(2) ** digits))
    turns = (pairs[:, 1] + quarter // 2) // quarter
    angle = (pairs[:, 1] - turns * quarter).astype(wide) / quarter * (4 * np.arctan(wide(1)) / 2)
    cosine, sine = np.cos(angle), np.sin(angle)
    lanes = (cosine, -sine, -cosine, sine), (sine, cosine, -sine, -cosine)
    exact = np.stack([length * np.choose(turns % 4, waves) for waves in lanes], 1).reshape(-1)
    error = np.abs(found - exact) / np.spacing(np.abs(exact).astype(dtype))
    assert error.max() < 4


def test_largest_float32_normal_is_finite() -> None:
    # u1 = 2^-24 is the smallest there is.
    assert math.sqrt(-2 * math.log(2.0**-24)) == pytest.approx(5.768, abs=1e-3)


# Kolmogorov-Smirnov distance that a sample of this size exceeds once in 10^5 times.
KS = 2.47 / math.sqrt(N)
DISTRIBUTIONS: list[tuple[Fill, tuple[Any, ...], Callable[[], Any]]] = [
    (draw.fill_uniform, (-1.0, 3.0), lambda: scipy.stats.uniform(-1, 4)),
    (draw.fill_normal, (0.5, 2.0), lambda: scipy.stats.norm(0.5, 2)),
    (draw.fill_truncated_normal, (1.0, 0.5, -2.0, 2.0), lambda: scipy.stats.truncnorm(-2, 2, 1, 0.5)),
    (draw.fill_truncated_normal, (0.0, 1.0, 1.0, 8.0), lambda: scipy.stats.truncnorm(1, 8)),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("fill", "args", "made"), DISTRIBUTIONS)
def test_statistics(fill: Fill, args: Any, made: Callable[[], Any], dtype: Any) -> None:
    law = made()
    x = filled(fill, *args, dtype=dtype).astype(np.float64)
    assert scipy.stats.kstest(x, law.cdf).statistic < KS
    assert abs(x.mean() - law.mean()) < 5 * law.std() / math.sqrt(N)
    fourth = law.stats("k") + 3
    assert abs(x.var() - law.var()) < 5 * law.var() * math.sqrt((float(fourth) - 1) / N)
    # Pairs of a block are independent.
    for step in (1, 2, 3):
        assert abs(np.corrcoef(x[:-step], x[step:])[0, 1]) < 5 / math.sqrt(N)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("fill", "args"), [(d[0], d[1]) for d in DISTRIBUTIONS])
def test_low_precision_is_rounded_once(fill: Fill, args: Any, dtype: Any) -> None:
    wide, low = filled(fill, *args, shape=5000), filled(fill, *args, shape=5000, dtype=dtype)
    rounded = wide.astype(dtype)
    if fill is draw.fill_uniform:
        # 3.0 itself lies outside of the range.
        rounded = np.where(rounded == 3, np.nextafter(np.asarray(3, dtype), np.asarray(0, dtype)), rounded)
    assert np.count_nonzero(low != rounded) <= (0 if fill is not draw.fill_truncated_normal else 5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (1.0, 2.0), (-3.0, -2.9), (0.1, 0.1)])
def test_uniform_stays_below_its_upper_end(low: float, high: float, dtype: Any) -> None:
    x = filled(draw.fill_uniform, low, high, dtype=dtype).astype(np.float64)
    first, last = float(np.asarray(low, dtype)), float(np.asarray(high, dtype))
    assert x.min() >= min(first, low) - 1e-30
    assert x.max() < last or low == high


LAYOUTS: dict[str, Callable[[Any], Array]] = {
    "strided": lambda dtype: np.empty((70, 1003), dtype)[:, ::2],
    "transposed": lambda dtype: np.empty((1003, 70), dtype).T,
    "backwards": lambda dtype: np.empty((70, 502), dtype)[::-1, ::-1],
    "nothing": lambda dtype: np.empty((0, 3), dtype),
    "one": lambda dtype: np.empty((), dtype),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("fill", "args"), [*((d[0], d[1]) for d in DISTRIBUTIONS), (draw.fill_keep, (0.3,))])
@pytest.mark.parametrize("start", [0, 3, 13])
def test_layouts(layout: str, fill: Fill, args: Any, start: int) -> None:
    dtype = np.uint8 if fill is draw.fill_keep else np.float32
    out = LAYOUTS[layout](dtype)
    fill(out, *args, KEY, start)
    assert np.array_equal(out, filled(fill, *args, shape=out.shape, dtype=dtype, start=start))


@pytest.mark.parametrize("start", [1, 2, 3, 4, 7, 1000, CHUNK - 1])
@pytest.mark.parametrize(("fill", "args"), [(d[0], d[1]) for d in DISTRIBUTIONS[:3]])
def test_start(fill: Fill, args: Any, start: int) -> None:
    whole = filled(fill, *args, shape=CHUNK + 2000)
    assert np.array_equal(filled(fill, *args, shape=CHUNK + 2000 - start, start=start), whole[start:])


# ----------------------------------------------------------------------------------------------------------- integers
@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3, 4), (0, 2**31), (5, 5 + 2**32), (-(2**40), 2**41), (-(2**63), 2**63 - 1)]
)
def test_integers(low: int, high: int) -> None:
    x = filled(draw.fill_integers, low, high, dtype=np.int64)
    assert low <= int(x.min())
    assert int(x.max()) < high
    u = np.array([int(v) - low for v in x], np.float64) / (high - low)
    # Whole numbers lie half a step below the middle of their cells.
    middle, spread = 0.5 - 0.5 / (high - low), math.sqrt((1 - 1 / (high - low) ** 2) / 12)
    assert abs(u.mean() - middle) <= 5 * spread / math.sqrt(N)


def test_integers_formula() -> None:
    bits, second = random_bits(500, KEY).tolist(), random_bits(500, KEY.second()).tolist()
    assert filled(draw.fill_integers, -7, 93, shape=500, dtype=np.int32).tolist() == [(b * 100 >> 32) - 7 for b in bits]
    span = 3**39
    expected = [((b << 32) + s) * span >> 64 for b, s in zip(bits, second, strict=True)]
    assert filled(draw.fill_integers, 0, span, shape=500, dtype=np.int64).tolist() == expected


def test_integers_are_even() -> None:
    counts = np.bincount(filled(draw.fill_integers, 0, 7, dtype=np.int64), minlength=7)
    assert scipy.stats.chisquare(counts).pvalue > 1e-5


@pytest.mark.parametrize("n", [0, 1, 2, 5, 1000, CHUNK + 3])
def test_permutation(n: int) -> None:
    order = np.empty(n, np.int64)
    draw.fill_permutation(order, KEY)
    assert np.array_equal(np.sort(order), np.arange(n))
    bits = random_bits(n, KEY)
    assert np.array_equal(order, np.argsort(bits, kind="stable"))


def test_permutations_of_three_are_equally_frequent() -> None:
    counts: dict[tuple[int, ...], int] = {}
    order = np.empty(3, np.int64)
    for run in range(3000):
        draw.fill_permutation(order, philox_key(RngKey(4, run=run)))
        counts[tuple(order.tolist())] = counts.get(tuple(order.tolist()), 0) + 1
    assert len(counts) == 6
    assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-5


# ---------------------------------------------------------------------------------------------------------- coin flips
LEAST = 2.0**-7
DROPS = [
    0.0,
    1e-9,
    1e-3,
    np.nextafter(LEAST, 0),
    LEAST,
    0.1,
    0.3,
    0.5,
    1 - LEAST,
    np.nextafter(1 - LEAST, 1),
    0.999,
    1.0,
]
"""Chances on both sides of the limits of 16 bits."""


@pytest.mark.parametrize("drop", DROPS)
def test_keep(drop: float) -> None:
    kept = filled(draw.fill_keep, drop, dtype=np.uint8)
    assert set(np.unique(kept)) <= {0, 1}
    assert abs(kept.mean() - (1 - drop)) <= 5 * math.sqrt(drop * (1 - drop) / N)


@pytest.mark.parametrize("drop", DROPS)
def test_keep_formula(drop: float) -> None:
    kept = filled(draw.fill_keep, drop, shape=1003, dtype=np.uint8)
    if LEAST <= drop <= 1 - LEAST:
        words = np.empty(502, np.uint32)
        fill_bits(words, 0, KEY, HALF_ROUNDS)
        # The low half of a word first.
        halves = [half for word in words.tolist() for half in (word % 2**16, word >> 16)]
        assert kept.tolist() == [h >= round(drop * 2**16) for h in halves[:1003]]
    else:
        assert kept.tolist() == [b >= math.floor(drop * 2**32) for b in random_bits(1003, KEY).tolist()]


def test_which_bits_keep() -> None:
    assert draw.keep_rule(0.0) == (32, 0)
    assert draw.keep_rule(1.0) == (32, 2**32)
    assert draw.keep_rule(LEAST) == (16, 512)
    assert draw.keep_rule(1 - LEAST) == (16, 65024)
    assert draw.keep_rule(float(np.nextafter(LEAST, 0))) == (32, 2**25 - 1)
    assert draw.keep_rule(0.1) == (16, 6554)
    # No chance, neither that to be dropped nor that to be kept, is moved by more than this part of itself.
    for p in np.concatenate([np.geomspace(1e-6, 0.5, 4000), 1 - np.geomspace(1e-6, 0.5, 4000)]).tolist():
        bits, threshold = draw.keep_rule(p)
        moved = abs(threshold / 2.0**bits - p)
        assert moved <= 2.0**-10 * min(p, 1 - p), p


@pytest.mark.parametrize("start", [1, 2, 3, 4, 5, 7, 8, 13, 1000, CHUNK - 1, CHUNK + 4])
@pytest.mark.parametrize("drop", [0.003, 0.3])
def test_any_cut_keeps_the_same(drop: float, start: int) -> None:
    whole = filled(draw.fill_keep, drop, shape=CHUNK + 2000, dtype=np.uint8)
    assert np.array_equal(
        filled(draw.fill_keep, drop, shape=1501, dtype=np.uint8, start=start), whole[start : start + 1501]
    )
    # Behind the block where the counter's second word begins to count.
    far = 8 * 2**32 - 40
    whole = filled(draw.fill_keep, drop, shape=100, dtype=np.uint8, start=far)
    begin = start % 64
    assert np.array_equal(
        filled(draw.fill_keep, drop, shape=36, dtype=np.uint8, start=far + begin), whole[begin : begin + 36]
    )


def test_bernoulli() -> None:
    p = np.linspace(0, 1, 11, dtype=np.float64).repeat(20000)
    out = np.empty(p.size, np.float64)
    draw.fill_bernoulli(out, p, KEY)
    rate = out.reshape(11, -1).mean(1)
    assert rate[0] == 0
    assert rate[-1] == 1
    assert np.abs(rate - p[::20000]).max() < 5 * 0.5 / math.sqrt(20000)


# ------------------------------------------------------------------------------------------------------------ quantile
def test_normal_quantile() -> None:
    p = np.concatenate([np.linspace(0, 1, 20001)[1:-1], 10.0 ** -np.arange(1, 300), 1 - 10.0 ** -np.arange(1, 15)])
    expected = special.ndtri(p)
    found = normal_quantile(p)
    assert np.allclose(found, expected, rtol=5e-15, atol=1e-16)
    with np.errstate(all="ignore"):
        assert normal_quantile(np.array([0.0, 1.0])).tolist() == [-np.inf, np.inf]
    assert draw.normal_distribution(-1.5) == pytest.approx(float(special.ndtr(-1.5)), rel=1e-15)


# --------------------------------------------------------------------------------------------------------------- torch
@pytest.mark.torch
@pytest.mark.parametrize("start", [0, 1, 6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_draws_the_same(dtype: Any, start: int) -> None:
    torch = pytest.importorskip("torch")
    wide = dtype == np.float64
    u = draw.torch_uniform(torch, 3001, np.dtype(dtype), -1.0, 2.5, KEY, start).numpy()
    assert np.array_equal(u, filled(draw.fill_uniform, -1.0, 2.5, shape=3001, dtype=dtype, start=start))
    z = draw.torch_normal(torch, 3001, wide, 0.0, 1.0, KEY, start).numpy()
    mine = filled(draw.fill_normal, 0.0, 1.0, shape=3001, dtype=dtype, start=start)
    assert (np.abs(z - mine) <= 16 * np.spacing(np.abs(mine))).all()
    t = draw.torch_truncated_normal(torch, 3001, wide, 0.0, 1.0, -2.0, 2.0, KEY, start).numpy()
    mine = filled(
        draw.fill_truncated_normal, 0.0, 1.0, -2.0, 2.0, shape=3001, dtype=np.float64 if wide else dtype, start=start
    )
    assert np.allclose(t, mine, rtol=1e-12 if wide else 1e-6, atol=1e-15)
    for low, high in ((0, 10), (-5, 2**40), (-(2**63), 2**63 - 1)):
        k = draw.torch_whole_numbers(torch, 3001, low, high, KEY, start).numpy()
        assert np.array_equal(k, filled(draw.fill_integers, low, high, shape=3001, dtype=np.int64, start=start))
