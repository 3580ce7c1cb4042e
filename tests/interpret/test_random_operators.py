"""Every operator that draws element by element runs as a kernel by itself, with the bits of its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from tests.helpers.drawn import PLAIN
from tests.helpers.soak import SOAK
from tests.interpret.kernels import by_kernel_and_reference
from tstatic.ir.opdef import OPS
from tstatic.ir.rng import RngKey
from tstatic.ir.types import dtype_of

TIMES = 8 if SOAK else 1

KEYS = st.builds(
    RngKey,
    seed=st.integers(0, 2**64 - 1),
    place=st.integers(0, 2**10),
    position=st.integers(0, 2**32 - 1),
    run=st.integers(0, 2**31 - 1),
)
DTYPES = st.sampled_from(["float32", "float64", "float16", "bfloat16"])
SHAPES = st.lists(st.integers(1, 9), min_size=0, max_size=3).map(tuple)
MOMENTS = st.sampled_from([(0.0, 1.0), (0.0, 0.02), (-3.0, 1.0), (1e-3, 1e4), (0.25, 0.0)])
SEEDS = st.sampled_from([0, 11, -5])


@seed(5)
@settings(max_examples=25 * TIMES, **PLAIN)
@given(key=KEYS, dtype=DTYPES, shape=SHAPES, moments=MOMENTS, own=SEEDS, form=st.sampled_from(["", "like", "batch"]))
def test_normal_numbers(
    key: RngKey, dtype: str, shape: tuple[int, ...], moments: tuple[float, float], own: int, form: str
) -> None:
    attrs: dict[str, Any] = {"mean": moments[0], "std": moments[1], "seed": own}
    kind = dtype_of(dtype)
    if form == "like":
        by_kernel_and_reference(OPS["gaussian_inplace"], {"X": np.zeros(shape, kind.np)}, attrs, key, 1)
    elif form == "batch":
        attrs |= {"shape": (7, -1), "dtype": kind, "input_dim_idx": 0, "output_dim_idx": 1}
        given = {"Input": np.zeros((5, 2), np.float32)}
        by_kernel_and_reference(OPS["gaussian_random_batch_size_like"], given, attrs, key, 1)
    else:
        by_kernel_and_reference(OPS["gaussian_random"], {}, {**attrs, "shape": shape, "dtype": kind}, key, 1)


@seed(6)
@settings(max_examples=25 * TIMES, **PLAIN)
@given(
    key=KEYS,
    dtype=DTYPES,
    shape=SHAPES,
    moments=MOMENTS,
    limits=st.sampled_from([(-2.0, 2.0), (0.5, 6.0), (-1e-3, 1e-3), (-9.0, -7.0), (-40.0, -39.0), (7.0, 37.5), (-50.0, 50.0)]),
    own=SEEDS,
)
def test_truncated_normal_numbers(
    key: RngKey, dtype: str, shape: tuple[int, ...], moments: tuple[float, float], limits: tuple[float, float], own: int
) -> None:
    """Limits far out as well, where probabilities are 0 or 1, or have few bits."""
    attrs = {"mean": moments[0], "std": moments[1], "a": limits[0], "b": limits[1], "seed": own}
    by_kernel_and_reference(
        OPS["truncated_gaussian_random"], {}, {**attrs, "shape": shape, "dtype": dtype_of(dtype)}, key, 1
    )


@seed(7)
@settings(max_examples=25 * TIMES, **PLAIN)
@given(
    key=KEYS,
    shape=SHAPES,
    limits=st.sampled_from(
        [(0, 1), (-5, 12), (0, 2**31 - 1), (-(2**31), 2**31), (0, 2**32), (0, 2**32 + 1), (3, 2**63), (-(2**63), 2**63 - 1),
         (-(2**63), 2**63)]
    ),
    own=SEEDS,
)  # fmt: skip
def test_whole_numbers(key: RngKey, shape: tuple[int, ...], limits: tuple[int, int], own: int) -> None:
    low, high = limits
    for dtype in ("int32", "int64") if -(2**31) <= low and high <= 2**31 else ("int64",):
        attrs = {"low": low, "high": high, "seed": own, "shape": shape, "dtype": dtype_of(dtype)}
        by_kernel_and_reference(OPS["randint"], {}, attrs, key, 1)


@seed(8)
@settings(max_examples=10 * TIMES, **PLAIN)
@given(key=KEYS, dtype=DTYPES, shape=SHAPES, own=SEEDS)
def test_coin_flips(key: RngKey, dtype: str, shape: tuple[int, ...], own: int) -> None:
    chances = np.random.default_rng(1).choice([0.0, 0.25, 0.5, 0.75, 1.0, -0.0, 0.3], shape).astype(dtype_of(dtype).np)
    by_kernel_and_reference(OPS["bernoulli"], {"X": np.asarray(chances)}, {"seed": own}, key, 1)


@seed(9)
@settings(max_examples=10 * TIMES, **PLAIN)
@given(
    key=KEYS,
    dtype=DTYPES,
    diagonal=st.sampled_from([(4, 5), (1, -7), (1, 3), (3, -1), (2, 0), (20, 0), (5, 2)]),
    value=st.sampled_from([1.0, 0.1, -3.0]),
)
def test_uniform_numbers_with_a_diagonal(key: RngKey, dtype: str, diagonal: tuple[int, int], value: float) -> None:
    attrs = {"shape": (4, 5), "dtype": dtype_of(dtype), "diag_num": diagonal[0], "diag_step": diagonal[1], "diag_val": value}
    by_kernel_and_reference(OPS["uniform_random"], {}, attrs, key, 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_normal_numbers(dtype: str) -> None:
    """So many that rare cases are among them: quarters of a turn, the ends of the fractions of the logarithm."""
    attrs = {"shape": (20001,), "dtype": dtype_of(dtype)}
    for name in ("gaussian_random", "truncated_gaussian_random"):
        by_kernel_and_reference(OPS[name], {}, attrs, RngKey(3, position=2, run=1), 1)
