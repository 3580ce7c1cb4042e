"""The metrics of ``paddle.metric``: they add up what batches give, on the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import FeedError, ProgramError, shown
from tstatic.ir.build import check_variable
from tstatic.ir.checks import check_choice, check_int, check_not_empty
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.no_effect import no_effect
from tstatic.ops.elementwise.logic import equal
from tstatic.ops.elementwise.scale import cast
from tstatic.ops.loss.metric import area
from tstatic.ops.reduce.ordering import argmax, topk
from tstatic.ops.shape.reshape import reshape

Array = np.ndarray[Any, Any]


def as_array(value: Any, arg: str, metric: str) -> Array:
    """Returns fetched values as an array.

    Raises:
        FeedError: If it is not an array or a fetched tensor; a ValueError, as in Paddle.
    """
    if isinstance(value, Variable) or not hasattr(value, "__array__"):
        raise FeedError(
            f"The '{arg}' must be a numpy ndarray or Tensor.",
            expected="what exe.run returned",
            received=shown(value),
            fix=f"fetch it first: {arg}, = exe.run(program, feed=..., fetch_list=[{arg}])",
            op=f"{metric}.update",
        )
    return np.asarray(value)


def probabilities(preds: Array, bins: int, metric: str) -> Array:
    """Returns the bin of each sample by the last column of ``[N, 2]`` or ``[N, 1]``.

    Raises:
        FeedError: For another rank, or numbers outside of 0 to 1.
    """
    if preds.ndim != 2 or preds.shape[1] not in (1, 2):
        raise FeedError(
            "the predictions have a shape that says nothing about two classes",
            expected="[N, 2], or [N, 1] with the probability of the positive class",
            received=list(preds.shape),
            fix="fetch the output of softmax over two classes, or of sigmoid",
            op=f"{metric}.update",
        )
    last = preds[:, -1].astype(np.float64)
    if last.size and not (last.min() >= 0 and last.max() <= 1):
        raise FeedError(
            "a prediction is not a probability",
            expected="numbers from 0 to 1 in the last column",
            received=f"{last.min()} to {last.max()}",
            fix="apply softmax or sigmoid to the predictions first",
            op=f"{metric}.update",
        )
    return (last * bins).astype(np.int64)


def hits(preds: Array, labels: Array, metric: str) -> tuple[Array, Array]:
    """Returns which samples are predicted positive, and which are positive.

    Raises:
        FeedError: If there are not as many predictions as labels.
    """
    if preds.size != labels.size:
        raise FeedError(
            "predictions and labels do not fit together",
            expected=f"{labels.size} predictions, one per label",
            received=f"{list(preds.shape)} predictions, {list(labels.shape)} labels",
            fix="fetch one probability per sample, shape [N, 1] or [N]",
            op=f"{metric}.update",
        )
    return np.floor(preds.ravel() + 0.5) == 1, labels.ravel() == 1


@export("metric.Metric")
class Metric(ABC):
    """Base class of metrics: ``compute`` is part of the program, ``update`` takes what was fetched, ``accumulate`` sums up.

    Example:
        >>> class Mean(paddle.metric.Metric):
        ...     def reset(self): self.sum = self.count = 0
        ...     def update(self, values): self.sum += values.sum(); self.count += values.size
        ...     def accumulate(self): return self.sum / self.count
        ...     def name(self): return "mean"
        >>> mean = Mean(); mean.reset(); mean.update(np.array([1.0, 3.0])); float(mean.accumulate())
        2.0
    """

    @abstractmethod
    def reset(self) -> None:
        """Forgets all batches."""

    @no_effect(args="a metric has its own")
    @abstractmethod
    def update(self, *args: Any) -> Any:
        """Adds a batch: the values of what :meth:`compute` returned."""

    @abstractmethod
    def accumulate(self) -> Any:
        """Returns the metric over all batches since :meth:`reset`."""

    @abstractmethod
    def name(self) -> Any:
        """Returns the name of the metric, or a list of them."""

    def compute(self, *args: Any) -> Any:
        """Returns the Variables to fetch for :meth:`update`; its arguments by default."""
        return args


@export("metric.Accuracy")
class Accuracy(Metric):
    """Share of samples whose label is among the k most likely classes.

    Args:
        topk: One or several k; each counts.
        name: Name of the metric; with a k above 1 the names are ``<name>_top1``, ``<name>_top5``, ...

    Raises:
        ProgramError: If ``topk`` is empty, or holds a number below 1.

    Example:
        >>> scores, label = static.data("scores", [None, 3]), static.data("label", [None, 1], "int64")
        >>> accuracy = paddle.metric.Accuracy(topk=(1, 2))
        >>> correct = accuracy.compute(scores, label)
        >>> feed = {"scores": np.array([[5, 4, 0], [5, 4, 0]], "float32"), "label": np.array([[0], [1]])}
        >>> accuracy.update(static.Executor().run(feed=feed, fetch_list=[correct])[0])
        [0.5, 1.0]
        >>> accuracy.name(), accuracy.accumulate()
        (['acc_top1', 'acc_top2'], [0.5, 1.0])
    """

    def __init__(self, topk: Sequence[int] = (1,), name: str | None = None) -> None:
        check_not_empty(list(topk), "topk", "Accuracy", error=ProgramError)
        self.topk = tuple(check_int(k, "topk", "Accuracy", least=1, error=ProgramError) for k in topk)
        self.maxk = max(self.topk)
        self._name = [name or "acc"] if self.maxk == 1 else [f"{name or 'acc'}_top{k}" for k in self.topk]
        self.reset()

    @no_effect(args="the base class takes any number")
    def compute(self, pred: Variable, label: Variable, *args: Any) -> Variable:
        """Returns a float32 Variable ``[N, ..., max(topk)]``: 1 where a likely class, most likely first, is the label.

        Args:
            pred: Scores ``[N, ..., classes]``.
            label: Class numbers ``[N, ..., 1]`` or ``[N]``, or one-hot rows ``[N, ..., classes]``.
        """
        check_variable(pred, "pred", "Accuracy.compute")
        check_variable(label, "label", "Accuracy.compute")
        likely = topk(pred, self.maxk, axis=-1)[1]
        if len(label.shape) == 1 or (len(label.shape) == 2 and label.shape[-1] == 1):
            label = reshape(label, [-1, 1])
        elif label.shape[-1] != 1:
            label = argmax(label, axis=-1, keepdim=True)
        return cast(equal(likely, cast(label, likely.dtype)), "float32")

    def update(self, correct: Any) -> Any:
        """Adds a batch; returns its accuracy, a list for several k.

        Args:
            correct: The value of what :meth:`compute` returned, ``[N, ..., max(topk)]``.

        Raises:
            FeedError: If it is not an array, or has fewer columns.
        """
        found = as_array(correct, "correct", "Accuracy")
        if not found.ndim or found.shape[-1] < self.maxk:
            raise FeedError(
                "Accuracy.update was given something else than compute returned",
                expected=f"[N, {self.maxk}] values",
                received=list(found.shape),
                fix="fetch accuracy.compute(pred, label) and pass that",
                op="Accuracy.update",
            )
        samples = int(np.prod(found.shape[:-1]))
        right = [float(found[..., :k].sum()) for k in self.topk]
        for i, number in enumerate(right):
            self.total[i] += number
            self.count[i] += samples
        rates = [number / samples if samples else 0.0 for number in right]
        return rates[0] if len(rates) == 1 else rates

    def reset(self) -> None:
        """Forgets all batches."""
        self.total = [0.0] * len(self.topk)
        self.count = [0] * len(self.topk)

    def accumulate(self) -> Any:
        """Returns the accuracy over all batches, a list for several k; 0 without any."""
        rates = [total / count if count else 0.0 for total, count in zip(self.total, self.count, strict=True)]
        return rates[0] if len(rates) == 1 else rates

    def name(self) -> list[str]:
        """Returns the names, one per k."""
        return self._name


class _Share(Metric):
    """A share of samples: of those predicted positive, or of those that are."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.reset()

    def name(self) -> str:
        """Returns the name."""
        return self._name


@export("metric.Precision")
class Precision(_Share):
    """Share of positive samples among those predicted positive, for two classes.

    Args:
        name: Name of the metric.

    Example:
        >>> precision = paddle.metric.Precision()
        >>> precision.update(np.array([0.1, 0.7, 0.9, 0.2]), np.array([0, 1, 0, 1]))
        >>> precision.accumulate()
        0.5
    """

    def __init__(self, name: str = "precision") -> None:
        super().__init__(name)

    def update(self, preds: Any, labels: Any) -> None:
        """Adds a batch.

        Args:
            preds: Probabilities of the positive class, ``[N, 1]`` or ``[N]``; from 0.5 on a sample is predicted positive.
            labels: 0 or 1 for each.

        Raises:
            FeedError: If they are not arrays, or differ in number.
        """
        guess, truth = hits(as_array(preds, "preds", "Precision"), as_array(labels, "labels", "Precision"), "Precision")
        self.tp += int((guess & truth).sum())
        self.fp += int((guess & ~truth).sum())

    def reset(self) -> None:
        """Forgets all batches."""
        self.tp = self.fp = 0

    def accumulate(self) -> float:
        """Returns the precision over all batches; 0 where nothing was predicted positive."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else 0.0


@export("metric.Recall")
class Recall(_Share):
    """Share of samples predicted positive among those that are, for two classes.

    Args:
        name: Name of the metric.

    Example:
        >>> recall = paddle.metric.Recall()
        >>> recall.update(np.array([0.1, 0.7, 0.9, 0.2]), np.array([0, 1, 1, 1]))
        >>> round(recall.accumulate(), 4)
        0.6667
    """

    def __init__(self, name: str = "recall") -> None:
        super().__init__(name)

    def update(self, preds: Any, labels: Any) -> None:
        """Adds a batch; arguments and errors as of :meth:`Precision.update`.

        As in Paddle, a probability of exactly 0.5 counts as negative here.
        """
        # To even, so 0.5 becomes 0.
        rounded = np.rint(as_array(preds, "preds", "Recall"))
        guess, truth = hits(rounded, as_array(labels, "labels", "Recall"), "Recall")
        self.tp += int((guess & truth).sum())
        self.fn += int((~guess & truth).sum())

    def reset(self) -> None:
        """Forgets all batches."""
        self.tp = self.fn = 0

    def accumulate(self) -> float:
        """Returns the recall over all batches; 0 where nothing is positive."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else 0.0


@export("metric.Auc")
class Auc(Metric):
    """Area under a curve for two classes, from counts of the samples per bin of probability.

    Args:
        curve: ``"ROC"``, or ``"PR"`` for precision over recall.
        num_thresholds: Number of bins less one.
        name: Name of the metric.

    Raises:
        ProgramError: For another curve, or less than one threshold.

    Example:
        >>> auc = paddle.metric.Auc()
        >>> auc.update(np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]]), np.array([[0], [0], [1]]))
        >>> auc.accumulate()
        1.0
    """

    def __init__(self, curve: str = "ROC", num_thresholds: int = 4095, name: str = "auc") -> None:
        self._curve = check_choice(curve, ("ROC", "PR"), "curve", "Auc")
        self._num_thresholds = check_int(num_thresholds, "num_thresholds", "Auc", least=1, error=ProgramError)
        self._name = name
        self.reset()

    def update(self, preds: Any, labels: Any) -> None:
        """Adds a batch.

        Args:
            preds: Probabilities ``[N, 2]``, or of the positive class ``[N, 1]``.
            labels: 0 or 1 for each sample, ``[N, 1]`` or ``[N]``.

        Raises:
            FeedError: If they are not arrays, differ in number, or are not probabilities.
        """
        given, truth = as_array(preds, "preds", "Auc"), as_array(labels, "labels", "Auc").ravel() != 0
        index = probabilities(given, self._num_thresholds, "Auc")
        if index.size != truth.size:
            hits(index, truth, "Auc")  # it raises
        bins = self._num_thresholds + 1
        self._stat_pos += np.bincount(index[truth], minlength=bins)
        self._stat_neg += np.bincount(index[~truth], minlength=bins)

    def reset(self) -> None:
        """Forgets all batches."""
        self._stat_pos, self._stat_neg = (np.zeros(self._num_thresholds + 1) for _ in range(2))

    def accumulate(self) -> float:
        """Returns the area over all batches; 0 while a class has no sample."""
        return area(self._stat_pos, self._stat_neg, self._curve)

    def name(self) -> str:
        """Returns the name."""
        return self._name
