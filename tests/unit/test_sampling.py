"""Draws from given probabilities: frequencies, edges, what is refused; tiles of random fills."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy  # its statistics are loaded when they are used: every worker collects this file

from tstatic.errors import FeedError, ProgramError, ShapeError
from tstatic.ir.evaluate import call_ref, evaluate, meta_of
from tstatic.ir.opdef import op_def
from tstatic.ir.rng import RngKey
from tstatic.tuned.philox import CHUNK

Array = np.ndarray[Any, Any]


def op(type: str, x: Array, key: RngKey | None = None, **attrs: Any) -> Array:
    with np.errstate(all="ignore"):
        absent = [None] * (len(op_def(type).inputs) - 1)
        return evaluate(op_def(type), [x, *absent], attrs, rng=key or RngKey(17))[0]  # type: ignore[no-any-return]


WEIGHTS = np.array([0.0, 1.0, 3.0, 0.0, 4.0, 2.0, 0.0])


def test_multinomial_with_replacement() -> None:
    drawn = op("multinomial", WEIGHTS.astype(np.float32), num_samples=40000, replacement=True)
    counts = np.bincount(drawn, minlength=7)
    assert not counts[WEIGHTS == 0].any()
    assert scipy.stats.chisquare(counts[WEIGHTS > 0], 40000 * WEIGHTS[WEIGHTS > 0] / 10).pvalue > 1e-5


@pytest.mark.slow
def test_multinomial_without_replacement() -> None:
    firsts, pairs = [], []
    rows = np.tile(WEIGHTS, (20000, 1))
    drawn = op("multinomial", rows, num_samples=4)
    assert (np.sort(drawn, axis=1) == [1, 2, 4, 5]).all()
    firsts = np.bincount(drawn[:, 0], minlength=7)[WEIGHTS > 0]
    assert scipy.stats.chisquare(firsts, 20000 * WEIGHTS[WEIGHTS > 0] / 10).pvalue > 1e-5
    # Given that 4 came first, the others follow with their own weights.
    pairs = np.bincount(drawn[drawn[:, 0] == 4, 1], minlength=7)[[1, 2, 5]]
    assert scipy.stats.chisquare(pairs, pairs.sum() * np.array([1, 3, 2]) / 6).pvalue > 1e-5


def test_rows_are_independent() -> None:
    drawn = op("multinomial", np.ones((2000, 50)), num_samples=1)
    assert len(set(drawn[:, 0].tolist())) > 40


@pytest.mark.parametrize(
    ("row", "attrs"),
    [
        ([0.0, 0.0], {}),
        ([1.0, -1.0], {}),
        ([1.0, np.nan], {}),
        ([1.0, np.inf], {}),
        ([1.0, 0.0], {"num_samples": 2}),
    ],
)
def test_multinomial_refuses_weights(row: list[float], attrs: dict[str, Any]) -> None:
    with pytest.raises(FeedError, match="multinomial"):
        op("multinomial", np.array([[1.0, 1.0], row]), **attrs)


def test_multinomial_refuses_shapes_and_counts() -> None:
    with pytest.raises(ProgramError, match=r"(?s)an int from 1 to 3.*fewer samples"):
        op("multinomial", np.ones(3), num_samples=4)
    with pytest.raises(ProgramError, match=r"(?s)an int from 1 to 3.*larger 'num_samples'"):
        op("multinomial", np.ones(3), num_samples=0)
    with pytest.raises(ShapeError):
        op("multinomial", np.ones((2, 2, 2)))


def test_bernoulli() -> None:
    x = np.full(50000, 0.25, np.float16)
    found = op("bernoulli", x)
    assert found.dtype == np.float16
    assert abs(float(found.astype(np.float64).mean()) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 50000)
    with pytest.raises(FeedError, match="bernoulli"):
        op("bernoulli", np.array([0.5, 1.5]))


def test_sampling_id() -> None:
    rows = np.tile(WEIGHTS / 10, (30000, 1)).astype(np.float32)
    found = op("sampling_id", rows, dtype="int64")
    counts = np.bincount(found, minlength=7)
    assert scipy.stats.chisquare(counts[WEIGHTS > 0], 3000 * WEIGHTS[WEIGHTS > 0]).pvalue > 1e-5
    # Only numbers below 0.1 are drawn, so only the first category with weight comes.
    assert set(op("sampling_id", rows, max=0.1, dtype="int64").tolist()) == {1}


def test_pieces_continue_the_stream() -> None:
    """What the executor hands to tiles gives the numbers of the whole."""
    for type, attrs in (
        ("uniform_random", {"shape": (5, CHUNK)}),
        ("gaussian_random", {"shape": (3 * CHUNK, 3)}),
        ("truncated_gaussian_random", {"shape": (9, 1, CHUNK + 1)}),
        ("randint", {"shape": (3 * CHUNK,), "high": 99}),
    ):
        definition = op_def(type)
        done = definition.complete(attrs)
        whole = evaluate(definition, [], attrs, rng=RngKey(4))[0]
        assert definition.split is not None
        tiles = definition.split(meta_of(whole), **definition.pick(definition.split, done))
        assert len(tiles) > 1
        cut = np.empty_like(whole)
        for (part,) in tiles:
            call_ref(definition, [], [cut[part]], done, rng=RngKey(4).part(part, whole.shape))
        assert np.array_equal(cut, whole)
