"""Batches that both sides add up; the recorder runs this file on Python 3.7, too."""

import numpy as np


def batches():
    """Three batches of probabilities and labels; some probabilities are exactly a half."""
    rng = np.random.RandomState(3)
    for size in (7, 1, 12):
        preds = rng.randint(0, 21, (size, 1)) / 20.0
        yield preds.astype("float32"), rng.randint(0, 2, (size, 1)).astype("int64")


def scores(shape):
    """Scores without ties and labels, in one of the shapes that Accuracy takes."""
    rng = np.random.RandomState(5)
    rows = (4, 2) if shape == "sequence" else (6,)
    values = rng.permutation(int(np.prod(rows)) * 5).reshape((*rows, 5)).astype("float32")
    labels = rng.randint(0, 5, rows).astype("int64")
    if shape == "one-hot":
        return values, np.eye(5, dtype="int64")[labels]
    return values, labels if shape == "flat" else labels[..., None]


def of_2(paddle):
    """The metrics of ``paddle.metric``: a number after each batch, and over all."""
    metric = paddle.metric
    found = {}
    for make in (metric.Precision, metric.Recall, metric.Auc, lambda: metric.Auc(num_thresholds=7)):
        one = make()
        rows = []
        for preds, labels in batches():
            one.update(np.concatenate([1 - preds, preds], 1) if isinstance(one, metric.Auc) else preds, labels)
            rows.append(float(one.accumulate()))
        found[f"{one.name()} {len(found)}"] = rows
    for topk in ((1,), (2,), (1, 3)):
        one = metric.Accuracy(topk=topk)
        rows = []
        for number in range(3):
            correct = (np.random.RandomState(number).rand(5, max(topk)) > 0.7).astype("float32")
            rows.append(one.update(correct))
            rows.append(one.accumulate())
        found[" ".join(one.name())] = rows
    return found


def of_1(fluid):
    """The metrics of ``fluid.metrics``."""
    metrics = fluid.metrics
    found = {}
    for one in (metrics.Precision(), metrics.Recall(), metrics.Auc("auc"), metrics.Auc("few", num_thresholds=7)):
        rows = []
        for preds, labels in batches():
            one.update(np.concatenate([1 - preds, preds], 1) if isinstance(one, metrics.Auc) else preds, labels)
            rows.append(float(one.eval()))
        one.reset()
        found[str(one)] = rows
    both = metrics.CompositeMetric()
    both.add_metric(metrics.Precision())
    both.add_metric(metrics.Recall())
    for preds, labels in batches():
        both.update(preds, labels)
    found["both"] = both.eval()
    accuracy = metrics.Accuracy()
    accuracy.update(0.25, 4)
    accuracy.update(np.array([0.75], "float32"), 12)
    found["accuracy"] = np.array(accuracy.eval()).tolist()
    chunks = metrics.ChunkEvaluator()
    chunks.update(10, 8, 5)
    chunks.update(np.array([3]), np.array([4]), np.array([2]))
    found["chunks"] = [float(v) for v in chunks.eval()]
    chunks.reset()
    found["no chunks"] = [float(v) for v in chunks.eval()]
    distance = metrics.EditDistance("distance")
    distance.update(np.array([[0.0], [2.0], [3.0]]), 3)
    distance.update(np.array([[0.0]]), np.array([1]))
    found["distance"] = [float(np.array(v).ravel()[0]) for v in distance.eval()]
    average = fluid.average.WeightedAverage()
    average.add(np.array([[1.0, 2.0]]), 1)
    average.add(np.array([[3.0, 6.0]]), 3)
    found["average"] = average.eval().tolist()
    return found
