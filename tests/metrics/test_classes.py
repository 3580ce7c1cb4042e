"""Metrics that add up batches: the numbers of Paddle 2.6.2 and 1.8.5, and of counting by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.metrics import described
from tstatic import fluid, static
from tstatic.errors import FeedError, ProgramError, ProgramTypeError, UnsupportedError

RECORDED = json.loads(Path(described.__file__).with_name("recorded.json").read_text(encoding="utf-8"))


def _close(mine: Any, theirs: Any) -> None:
    assert mine.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_allclose(np.array(mine[name], float), np.array(theirs[name], float), rtol=1e-6, err_msg=name)


def test_metrics_of_paddle() -> None:
    _close(described.of_2(paddle), RECORDED["2.6.2"])


def test_metrics_of_fluid() -> None:
    _close(described.of_1(fluid), RECORDED["1.8.5"])


@pytest.mark.parametrize("shape", ["column", "flat", "one-hot", "sequence"])
def test_accuracy_computes_what_paddle_does(shape: str) -> None:
    scores, labels = described.scores(shape)
    x, y = static.data("x", scores.shape), static.data("y", labels.shape, "int64")
    metric = paddle.metric.Accuracy(topk=(1, 3))
    correct = metric.compute(x, y)
    found = static.Executor().run(feed={"x": scores, "y": labels}, fetch_list=[correct])[0]
    order = np.argsort(-scores, axis=-1)[..., :3]
    truth = labels.argmax(-1)[..., None] if shape == "one-hot" else labels.reshape(*scores.shape[:-1], 1)
    assert found.dtype == np.float32
    assert np.array_equal(found, order == truth)
    assert metric.update(found) == [float((order == truth)[..., :k].sum() / truth.size) for k in (1, 3)]
    assert metric.name() == ["acc_top1", "acc_top3"]


def test_precision_recall_curve_is_that_of_the_operator() -> None:
    rng = np.random.default_rng(0)
    preds, labels = rng.random((50, 1)).astype("float32"), rng.integers(0, 2, (50, 1))
    x, y = static.data("x", [50, 1]), static.data("y", [50, 1], "int64")
    out = static.auc(x, y, curve="PR", slide_steps=0)[0]
    exe = static.Executor()
    exe.run(static.default_startup_program())
    wanted = exe.run(feed={"x": preds, "y": labels}, fetch_list=[out])[0]
    metric = paddle.metric.Auc("PR")
    metric.update(preds, labels)
    assert metric.accumulate() == pytest.approx(float(wanted))


METRICS = paddle.metric.Accuracy, paddle.metric.Precision, paddle.metric.Recall, paddle.metric.Auc


@pytest.mark.parametrize("cls", METRICS)
def test_metrics_without_a_batch_are_0_and_reset_forgets(cls: Any) -> None:
    metric = cls()
    assert metric.accumulate() == 0.0
    args = [np.ones((4, 1), np.float32), np.array([[1], [0], [1], [1]])][: 1 if cls is METRICS[0] else 2]
    metric.update(*args)
    metric.reset()
    assert metric.accumulate() == 0.0


def test_what_fluid_metrics_refuse() -> None:
    metrics = fluid.metrics
    for empty in (metrics.Accuracy(), metrics.EditDistance("d"), fluid.average.WeightedAverage()):
        with pytest.raises(ValueError, match="There is no data"):
            empty.eval()
    with pytest.raises(FeedError, match="can not be negative"):
        metrics.Accuracy().update(0.5, -1)
    with pytest.raises(FeedError, match="'value' must be a number"):
        metrics.Accuracy().update("0.5", 1)
    with pytest.raises(FeedError, match="'weight' must be a number"):
        fluid.average.WeightedAverage().add(1.0, [1, 2])
    with pytest.raises(FeedError, match="'preds' must be a numpy"):
        metrics.Precision().update([0.5], np.array([1]))
    with pytest.raises(ProgramTypeError, match="metric"):
        metrics.CompositeMetric().add_metric(0.5)
    with pytest.raises(UnsupportedError, match="please extend it"):
        metrics.MetricBase(None).eval()


def test_what_metrics_refuse() -> None:
    with pytest.raises(ProgramError, match="topk"):
        paddle.metric.Accuracy(topk=(0,))
    with pytest.raises(ProgramError, match="topk"):
        paddle.metric.Accuracy(topk=())
    with pytest.raises(FeedError, match="something else than compute returned"):
        paddle.metric.Accuracy(topk=(3,)).update(np.ones((4, 2)))
    with pytest.raises(FeedError, match="do not fit together"):
        paddle.metric.Recall().update(np.ones(3), np.ones(4))
    with pytest.raises(FeedError, match="do not fit together"):
        paddle.metric.Auc().update(np.ones((3, 1)), np.ones(4))
    with pytest.raises(FeedError, match="not a probability"):
        paddle.metric.Auc().update(np.full((3, 1), 1.5), np.ones(3))
    with pytest.raises(FeedError, match="two classes"):
        paddle.metric.Auc().update(np.ones((3, 4)), np.ones(3))
    with pytest.raises(ProgramError, match="curve"):
        paddle.metric.Auc("roc")
    metric = paddle.metric.Precision()
    with pytest.raises(FeedError, match="'preds' must be a numpy ndarray or Tensor"):
        metric.update(static.data("x", [3]), np.ones(3))
    assert (metric.tp, metric.fp) == (0, 0)
