"""The metrics and averages of ``fluid``: they add up fetched values, on the host."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from tstatic.errors import FeedError, ProgramError, UnsupportedError, shown
from tstatic.ir.checks import check_type
from tstatic.ir.opdef import export
from tstatic.metric import counting
from tstatic.metric.counting import Array, as_array, hits
from tstatic.no_effect import no_effect
from tstatic.runtime.fetched import converting


def _number(value: Any, arg: str, metric: str) -> float:
    """Returns a number, or the only element of an array.

    Raises:
        FeedError: If it is something else; a ValueError, as in Paddle.
    """
    found = np.asarray(value) if isinstance(value, int | float | np.generic) or hasattr(value, "__array__") else None
    if found is None or found.size != 1 or found.dtype.kind not in "iuf":
        raise FeedError(
            f"The '{arg}' must be a number(int, float).",
            expected="a number, or an array of one element",
            received=shown(value),
            fix=f"pass the size of the batch as '{arg}'",
            op=metric,
        )
    number: float = found.item()
    return number


def _value(value: Any, arg: str, metric: str) -> Any:
    """Returns a number or an array.

    Raises:
        FeedError: If it is something else; a ValueError, as in Paddle.
    """
    if isinstance(value, int | float | np.generic):
        return value
    if not hasattr(value, "__array__"):
        raise FeedError(
            f"The '{arg}' must be a number(int, float) or a numpy ndarray.",
            expected="what exe.run returned",
            received=shown(value),
            fix="fetch it first",
            op=metric,
        )
    return converting(np.asarray(value))


def _nothing(text: str, metric: str, fix: str) -> ProgramError:
    return ProgramError(text, expected="at least one update", received="none", fix=fix, op=f"{metric}.eval")


@export("fluid.metrics.MetricBase")
class MetricBase:
    """Base class of the 1.x metrics: ``update`` adds a batch, ``eval`` sums up, ``reset`` sets all numbers to 0.

    Args:
        name: Name of the metric; that of its class by default.

    Example:
        >>> class Largest(fluid.metrics.MetricBase):
        ...     value = 0.0
        ...     def update(self, preds, labels): self.value = max(self.value, float(preds.max()))
        ...     def eval(self): return self.value
        >>> largest = Largest("largest"); largest.update(np.array([1.0, 3.0]), None); largest.eval()
        3.0
        >>> largest.reset(); largest.get_config()
        {'name': 'largest', 'states': {'value': 0.0}}
    """

    def __init__(self, name: str | None) -> None:
        self._name = str(name) if name is not None else type(self).__name__

    def __str__(self) -> str:
        return self._name

    def reset(self) -> None:
        """Sets numbers and arrays of the metric to 0, and what else it keeps to ``None``."""
        for attr, value in self._states().items():
            zero = np.zeros_like(value) if isinstance(value, np.ndarray | np.generic) else None
            setattr(self, attr, type(value)(0) if isinstance(value, int | float) else zero)

    def get_config(self) -> dict[str, Any]:
        """Returns the name and a copy of what the metric keeps."""
        return {"name": self._name, "states": copy.deepcopy(self._states())}

    def _states(self) -> dict[str, Any]:
        return {attr: value for attr, value in vars(self).items() if not attr.startswith("_")}

    @no_effect(preds="a metric has its own", labels="a metric has its own")
    def update(self, preds: Any, labels: Any) -> None:
        """Adds a batch.

        Args:
            preds, labels: What was fetched; a metric may name its own.

        Raises:
            UnsupportedError: Always; a metric has its own.
        """
        self._refuse("update")

    def eval(self) -> Any:
        """Returns the metric over all batches.

        Raises:
            UnsupportedError: Always; a metric has its own.
        """
        self._refuse("eval")

    def _refuse(self, method: str) -> None:
        raise UnsupportedError(
            "Should not use it directly, please extend it.",
            expected=f"a class derived from MetricBase with its own {method}",
            received=f"{type(self).__name__}.{method}",
            fix=f"define {method} in the class",
        )


@export("fluid.metrics.CompositeMetric")
class CompositeMetric(MetricBase):
    """Several metrics that take the same predictions and labels.

    Args:
        name: Name of the metric.

    Example:
        >>> both = fluid.metrics.CompositeMetric()
        >>> both.add_metric(fluid.metrics.Precision()); both.add_metric(fluid.metrics.Recall())
        >>> both.update(np.array([[0.1], [0.7], [0.8]]), np.array([[0], [1], [0]]))
        >>> both.eval()
        [0.5, 1.0]
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[MetricBase] = []

    def add_metric(self, metric: MetricBase) -> None:
        """Adds a metric.

        Raises:
            ProgramTypeError: If it is none.
        """
        self._metrics.append(check_type(metric, MetricBase, "metric", "CompositeMetric.add_metric"))

    def update(self, preds: Any, labels: Any) -> None:
        """Adds a batch to each metric.

        Args:
            preds, labels: What the metrics take.
        """
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self) -> list[Any]:
        """Returns the values of the metrics, in order."""
        return [metric.eval() for metric in self._metrics]

    def reset(self) -> None:
        """Resets each metric."""
        for metric in self._metrics:
            metric.reset()


@export("fluid.metrics.Precision")
class Precision(MetricBase):
    """Share of positive samples among those predicted positive, for two classes.

    Args:
        name: Name of the metric.

    Example:
        >>> precision = fluid.metrics.Precision()
        >>> precision.update(preds=np.array([[0.1], [0.7], [0.8]]), labels=np.array([[0], [1], [0]]))
        >>> precision.eval()
        0.5
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = self.fp = 0

    def update(self, preds: Any, labels: Any) -> None:
        """Adds a batch.

        Args:
            preds: Probabilities of the positive class, one per sample; above 0.5 a sample is predicted positive.
            labels: 0 or 1 for each.

        Raises:
            FeedError: If they are not arrays, or differ in number.
        """
        guess, truth = _rounded(preds, labels, "Precision")
        self.tp += int((guess & truth).sum())
        self.fp += int((guess & ~truth).sum())

    def eval(self) -> float:
        """Returns the precision over all batches; 0 where nothing was predicted positive."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else 0.0


@export("fluid.metrics.Recall")
class Recall(MetricBase):
    """Share of samples predicted positive among those that are, for two classes.

    Args:
        name: Name of the metric.

    Example:
        >>> recall = fluid.metrics.Recall()
        >>> recall.update(preds=np.array([[0.1], [0.7], [0.2]]), labels=np.array([[0], [1], [1]]))
        >>> recall.eval()
        0.5
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = self.fn = 0

    def update(self, preds: Any, labels: Any) -> None:
        """Adds a batch; arguments and errors as of :meth:`Precision.update`."""
        guess, truth = _rounded(preds, labels, "Recall")
        self.tp += int((guess & truth).sum())
        self.fn += int((~guess & truth).sum())

    def eval(self) -> float:
        """Returns the recall over all batches; 0 where nothing is positive."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else 0.0


def _rounded(preds: Any, labels: Any, metric: str) -> tuple[Array, Array]:
    # Half to even, so that 0.5 is negative here, and positive in paddle.metric.
    return hits(np.rint(as_array(preds, "preds", metric)), as_array(labels, "labels", metric), metric)


@export("fluid.metrics.Accuracy")
class Accuracy(MetricBase):
    """Mean of the accuracies of batches, weighted by their sizes.

    Args:
        name: Name of the metric.

    Example:
        >>> accuracy = fluid.metrics.Accuracy()
        >>> accuracy.update(value=0.5, weight=10); accuracy.update(value=1.0, weight=30)
        >>> accuracy.eval()
        0.875
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.value: Any = 0.0
        self.weight = 0.0

    def update(self, value: Any, weight: Any) -> None:
        """Adds a batch.

        Args:
            value: Its accuracy: a number, or a fetched array.
            weight: Its size, at least 0.

        Raises:
            FeedError: If one is not a number, or ``weight`` is negative.
        """
        size = _number(weight, "weight", "Accuracy.update")
        if size < 0:
            raise FeedError(
                "The 'weight' can not be negative",
                expected="the size of the batch",
                received=shown(weight),
                fix="pass the number of samples",
                op="Accuracy.update",
            )
        self.value = self.value + _value(value, "value", "Accuracy.update") * size
        self.weight += size

    def eval(self) -> Any:
        """Returns the mean.

        Raises:
            ProgramError: Without a batch.
        """
        if self.weight == 0:
            fix = "call update(value=..., weight=...) with what layers.accuracy gave"
            raise _nothing("There is no data in Accuracy Metrics.", "Accuracy", fix)
        return self.value / self.weight


@export("fluid.metrics.ChunkEvaluator")
class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks, from the counts of ``layers.chunk_eval``.

    Args:
        name: Name of the metric.

    Example:
        >>> chunks = fluid.metrics.ChunkEvaluator()
        >>> chunks.update(num_infer_chunks=10, num_label_chunks=8, num_correct_chunks=4)
        >>> [round(value, 4) for value in chunks.eval()]
        [0.4, 0.5, 0.4444]
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks: Any = 0
        self.num_label_chunks: Any = 0
        self.num_correct_chunks: Any = 0

    def update(self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any) -> None:  # type: ignore[override]
        """Adds a batch.

        Args:
            num_infer_chunks, num_label_chunks, num_correct_chunks: How many chunks it predicts, has, and predicts rightly.

        Raises:
            FeedError: If one is not a number or array.
        """
        found = [
            _number(_value(value, name, "ChunkEvaluator.update"), name, "ChunkEvaluator.update")
            for name, value in (
                ("num_infer_chunks", num_infer_chunks),
                ("num_label_chunks", num_label_chunks),
                ("num_correct_chunks", num_correct_chunks),
            )
        ]
        self.num_infer_chunks += found[0]
        self.num_label_chunks += found[1]
        self.num_correct_chunks += found[2]

    def eval(self) -> tuple[float, float, float]:
        """Returns precision, recall and F1; 0 where they have no meaning."""
        right = self.num_correct_chunks
        precision = right / self.num_infer_chunks if self.num_infer_chunks else 0.0
        recall = right / self.num_label_chunks if self.num_label_chunks else 0.0
        return precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0


@export("fluid.metrics.EditDistance")
class EditDistance(MetricBase):
    """Mean edit distance, and the share of sequences with an error.

    Args:
        name: Name of the metric.

    Example:
        >>> distance = fluid.metrics.EditDistance("distance")
        >>> distance.update(distances=np.array([[0.0], [3.0]]), seq_num=2)
        >>> distance.eval()
        (1.5, 0.5)
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.total_distance = 0.0
        self.seq_num: Any = 0
        self.instance_error: Any = 0

    def update(self, distances: Any, seq_num: Any) -> None:
        """Adds a batch.

        Args:
            distances: Distance of each sequence, an array.
            seq_num: Number of sequences.

        Raises:
            FeedError: If ``distances`` is not an array, or ``seq_num`` not a number.
        """
        found, count = (
            as_array(distances, "distances", "EditDistance"),
            _number(seq_num, "seq_num", "EditDistance.update"),
        )
        wrong, total = count - int((found == 0).sum()), float(found.sum())
        self.seq_num += count
        self.instance_error += wrong
        self.total_distance += total

    def eval(self) -> tuple[float, float]:
        """Returns the mean distance, and the share of sequences with an error.

        Raises:
            ProgramError: Without a batch.
        """
        if self.seq_num == 0:
            fix = "call update with what layers.edit_distance gave"
            raise _nothing("There is no data in EditDistance Metric.", "EditDistance", fix)
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


@export("fluid.metrics.Auc")
class Auc(MetricBase):
    """Area under a curve for two classes; see :class:`paddle.metric.Auc`.

    Args:
        name: Name of the metric.
        curve: ``"ROC"``, or ``"PR"`` for precision over recall.
        num_thresholds: Number of bins of probability less one.

    Example:
        >>> auc = fluid.metrics.Auc("auc")
        >>> auc.update(preds=np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]]), labels=np.array([[0], [0], [1]]))
        >>> auc.eval()
        1.0
    """

    def __init__(self, name: str | None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        super().__init__(name)
        self._counts = counting.Auc(curve, num_thresholds)

    def update(self, preds: Any, labels: Any) -> None:
        """Adds a batch; arguments and errors as of :meth:`paddle.metric.Auc.update`."""
        self._counts.update(preds, labels)

    def eval(self) -> float:
        """Returns the area over all batches; 0 while a class has no sample."""
        return self._counts.accumulate()

    def reset(self) -> None:
        """Forgets all batches."""
        self._counts.reset()


@export("fluid.average.WeightedAverage")
class WeightedAverage:
    """A weighted mean of numbers or arrays.

    Example:
        >>> average = fluid.average.WeightedAverage()
        >>> average.add(value=2.0, weight=1); average.add(value=4.0, weight=3)
        >>> average.eval()
        3.5
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets all values."""
        self.numerator: Any = None
        self.denominator: Any = None

    def add(self, value: Any, weight: Any) -> None:
        """Adds a value.

        Args:
            value: A number or array.
            weight: A number.

        Raises:
            FeedError: If one is something else.
        """
        part = _value(value, "value", "WeightedAverage.add")
        size = _number(weight, "weight", "WeightedAverage.add")
        self.numerator = part * size if self.numerator is None else self.numerator + part * size
        self.denominator = size if self.denominator is None else self.denominator + size

    def eval(self) -> Any:
        """Returns the mean.

        Raises:
            ProgramError: Without a value.
        """
        if self.denominator is None:
            text = "There is no data to be averaged in WeightedAverage."
            raise _nothing(text, "WeightedAverage", "call add(value, weight) first")
        return self.numerator / self.denominator
