"""Accuracy and areas under curves against counting by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tstatic.errors import FeedError, ShapeError
from tstatic.ir.evaluate import evaluate
from tstatic.ir.opdef import op_def
from tstatic.ops.loss.metric import area

Array = np.ndarray[Any, Any]


def test_accuracy() -> None:
    indices, label = np.array([[1, 4], [2, 0], [3, 3], [0, 1]]), np.array([[4], [1], [3], [1]])
    for shape in (label, label[:, 0]):
        rate, hits, rows = evaluate(op_def("accuracy"), [None, indices, shape])
        assert (rate.item(), hits.item(), rows.item()) == (0.75, 3, 4)
        assert (rate.shape, hits.dtype) == ((), np.int32)
    assert evaluate(op_def("accuracy"), [None, indices, label], {"one_d": True})[0].shape == (1,)
    with np.errstate(all="ignore"):
        assert np.isnan(evaluate(op_def("accuracy"), [None, indices[:0], label[:0]])[0])


@pytest.mark.parametrize("label", [np.zeros((3, 1), np.int64), np.zeros((4, 2), np.int64), np.zeros(4)])
def test_accuracy_refuses(label: Array) -> None:
    with pytest.raises((ShapeError, TypeError)):
        evaluate(op_def("accuracy"), [None, np.zeros((4, 2), np.int64), label])


def pairs(p: Array, y: Array) -> float:
    """Chance that a positive sample is rated above a negative one; ties count half."""
    a, b = p[y == 1][:, None], p[y == 0][None, :]
    return float(((a > b) + 0.5 * (a == b)).mean())


def table(bins: int, steps: int = 0) -> Array:
    return np.zeros((1, bins) if not steps else ((steps + 1) * bins + 1,), np.int64)


def draws(seed: int, n: int = 60) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    # On the grid of the bins, so that counting in bins loses nothing.
    p = np.clip(rng.normal(0.35 + 0.3 * y, 0.2), 0, 1)
    return (np.round(p * 100) / 100).astype(np.float64), y


def test_auc_counts_pairs_over_all_batches() -> None:
    pos, neg = table(101), table(101)
    seen: list[tuple[Array, Array]] = []
    for batch in range(3):
        p, y = draws(batch)
        seen.append((p, y))
        # The bins are cut off downwards, so the grid's points are moved to the middle.
        predict = np.stack([1 - p, np.minimum(p + 0.001, 1)], 1)
        value, pos, neg = evaluate(
            op_def("auc"), [predict, y[:, None], pos, neg], {"num_thresholds": 100, "slide_steps": 0}
        )
        expected = pairs(np.concatenate([s[0] for s in seen]), np.concatenate([s[1] for s in seen]))
        assert value.item() == pytest.approx(expected, abs=1e-12)
    assert pos.sum() + neg.sum() == 180


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_auc_of_the_last_batches(steps: int) -> None:
    pos, neg = table(101, steps), table(101, steps)
    seen: list[tuple[Array, Array]] = []
    for batch in range(7):
        p, y = draws(batch)
        seen = [*seen, (p, y)][-steps:]
        value, pos, neg = evaluate(
            op_def("auc"),
            [np.minimum(p + 0.001, 1)[:, None], y[:, None], pos, neg],
            {"num_thresholds": 100, "slide_steps": steps},
        )
        expected = pairs(np.concatenate([s[0] for s in seen]), np.concatenate([s[1] for s in seen]))
        assert value.item() == pytest.approx(expected, abs=1e-12)


def test_area_edges() -> None:
    none, some = np.zeros(5, np.int64), np.array([0, 1, 0, 2, 0])
    assert area(none, some, "ROC") == area(some, none, "ROC") == area(none, none, "PR") == 0
    assert area(some, none, "PR") == 1
    assert area(np.array([0, 0, 0, 3]), np.array([3, 0, 0, 0]), "ROC") == 1
    # One negative above both positives: precision falls to 0, then rises to 2/3.
    assert area(np.array([2, 0]), np.array([0, 1]), "PR") == pytest.approx((0 + 2 / 3) / 2)


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan])
def test_auc_refuses_what_is_no_probability(bad: float) -> None:
    predict = np.array([[0.5], [bad]])
    pos, neg = table(8), table(8)
    with pytest.raises(FeedError, match="probability"):
        evaluate(
            op_def("auc"), [predict, np.zeros((2, 1), np.int64), pos, neg], {"num_thresholds": 7, "slide_steps": 0}
        )
    assert not pos.any()


def test_auc_refuses_counters_of_another_size() -> None:
    with pytest.raises(ShapeError, match="StatPos"):
        evaluate(
            op_def("auc"),
            [np.zeros((2, 1)), np.zeros((2, 1), np.int64), table(9), table(8)],
            {"num_thresholds": 7, "slide_steps": 0},
        )
