"""Samplers: in which order the samples of a data set are taken, and how they are grouped into batches."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np

from tstatic.errors import UnsupportedError, shown
from tstatic.io.arguments import iterable, sized, wrong_type
from tstatic.io.dataset import in_order
from tstatic.io.errors import DataError, DataTypeError, DataUseError
from tstatic.ir.export import export
from tstatic.runtime import random


@export("io.Sampler")
class Sampler:
    """Base class of samplers: define ``__iter__``, which gives numbers of samples.

    Args:
        data_source: What is sampled.

    Example:
        >>> class Backwards(paddle.io.Sampler):
        ...     def __iter__(self):
        ...         return iter(range(len(self.data_source))[::-1])
        >>> list(Backwards("abc"))
        [2, 1, 0]
    """

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[Any]:
        name = type(self).__name__
        raise UnsupportedError(
            f"'__iter__' not implement in class {name}",
            expected="a class with a method __iter__",
            received=name,
            fix=f"define {name}.__iter__",
        )


@export("io.SequenceSampler")
class SequenceSampler(Sampler):
    """Takes the samples in order.

    Args:
        data_source: What has the samples.

    Raises:
        DataTypeError: If ``data_source`` has no length (a ``TypeError``).

    Example:
        >>> dataset = "abc"
        >>> sampler = paddle.io.SequenceSampler(dataset)
        >>> list(sampler), len(sampler)
        ([0, 1, 2], 3)
    """

    def __init__(self, data_source: Sized) -> None:
        super().__init__(sized(data_source, "data_source", "SequenceSampler"))

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


@export("io.RandomSampler")
class RandomSampler(Sampler):
    """Takes the samples in a random order, which ``np.random.seed`` decides.

    Args:
        data_source: What has the samples.
        replacement: Draws each number independently, so that it can come again.
        num_samples: How many to draw, with replacement; the length of the data set if ``None``.
        generator: An iterator over the numbers to take instead.

    Raises:
        DataTypeError: If ``replacement`` is not a bool, ``data_source`` has no length or ``generator`` cannot be iterated over.
        DataError: If ``num_samples`` is not positive, or given without ``replacement`` (a ``ValueError``).

    Example:
        >>> np.random.seed(0)
        >>> sampler = paddle.io.RandomSampler(range(5))
        >>> list(sampler)
        [2, 0, 1, 3, 4]
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        super().__init__(sized(data_source, "data_source", "RandomSampler"))
        if generator is not None:
            iterable(generator, "generator", "RandomSampler", "an iterator over numbers")
        if not isinstance(replacement, bool):
            raise DataTypeError(
                f"expect boolean value for replacement, but got replacement={replacement}",
                expected="True or False",
                received=shown(replacement),
                fix="pass replacement=True or leave it out",
            )
        if num_samples is not None and not replacement:
            raise DataError(
                "num_samples should not be specified while replacement is False",
                expected="num_samples with replacement=True alone",
                received=f"num_samples={num_samples}",
                fix="pass replacement=True, or leave num_samples out",
            )
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if type(self.num_samples) is not int or self.num_samples <= 0:
            raise DataError(
                f"num_samples should be a positive integer, but got num_samples={self.num_samples}",
                expected="an int >= 1",
                received=shown(self.num_samples),
                fix="pass another number, or a data set that is not empty",
            )

    @property
    def num_samples(self) -> int:
        """How many numbers an iteration gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        if self.generator is not None:
            return itertools.islice(self.generator, self.num_samples)
        size = self.num_samples
        drawn: list[int] = np.random.choice(len(self.data_source), size, replace=self.replacement).tolist()
        return iter(drawn)

    def __len__(self) -> int:
        return self.num_samples


@export("io.WeightedRandomSampler")
class WeightedRandomSampler(Sampler):
    """Draws numbers with given weights, by ``np.random``.

    Args:
        weights: Shape ``[n]``, or ``[rows, n]``: each row is drawn from on its own. They need not add up to 1.
        num_samples: How many to draw from each row.
        replacement: Draws each number independently, so that it can come again.

    Raises:
        DataTypeError: If ``weights`` are not numbers (a ``TypeError``).
        DataError: If ``num_samples`` or ``replacement`` is not of its kind (a ``ValueError``).
        DataUseError: While drawing, if weights are negative, infinite or too few (an ``AssertionError``).

    Example:
        >>> np.random.seed(0)
        >>> sampler = paddle.io.WeightedRandomSampler([0.1, 0.0, 0.9], 4)
        >>> list(sampler)
        [2, 2, 2, 2]
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True) -> None:
        super().__init__()
        for name, fits in (
            ("num_samples should be a positive integer", type(num_samples) is int and num_samples > 0),
            ("replacement should be a boolean value", isinstance(replacement, bool)),
        ):
            if not fits:
                raise DataError(
                    name, expected="num_samples >= 1, replacement a bool", received=(num_samples, replacement),
                    fix="WeightedRandomSampler(weights, num_samples=100, replacement=True), for example",
                )  # fmt: skip
        try:
            self.weights = np.asarray(weights)
        except (TypeError, ValueError) as error:  # lists of different lengths, for one
            raise wrong_type(weights, "weights", "WeightedRandomSampler", "an array or list of numbers") from error
        if self.weights.dtype.kind not in "biuf":
            raise wrong_type(weights, "weights", "WeightedRandomSampler", "an array or list of numbers")
        self.num_samples = num_samples
        self.replacement = replacement

    def __iter__(self) -> Iterator[int]:
        rows = self._rows()
        drawn: list[int] = []
        for row in rows / rows.sum(axis=1, keepdims=True):
            drawn += np.random.choice(len(row), self.num_samples, self.replacement, row).tolist()
        return iter(drawn)

    def _rows(self) -> np.ndarray[Any, Any]:
        """Returns the weights, checked, as a matrix."""
        given = self.weights
        rows = given.reshape(-1, given.shape[-1]) if given.ndim in (1, 2) and given.size else given
        what = ""
        if given.ndim not in (1, 2) or not given.size:
            what = "weights should be a 1-D or 2-D array"
        elif not (np.isfinite(rows).all() and (rows >= 0).all()):
            what = "weights should be finite and positive"
        elif ((rows > 0).sum(axis=1) < (1 if self.replacement else self.num_samples)).any():
            what = "weights positive value number should not less than num_samples when replacement=False"
            if self.replacement:
                what = "weights should have positive values"
        if what:
            raise DataUseError(
                what, expected="a list of weights >= 0", received=f"an array of shape {list(given.shape)}",
                fix="pass one weight of at least 0 for each sample, more than 0 for as many as are drawn: [0.1, 0.9]",
            )  # fmt: skip
        return rows

    def __len__(self) -> int:
        return int(self.num_samples * len(self._rows()))


@export("io.SubsetRandomSampler")
class SubsetRandomSampler(Sampler):
    """Takes given samples in a random order, which ``paddle.seed`` decides.

    Args:
        indices: Their numbers.

    Raises:
        DataTypeError: If ``indices`` is not a list or array (a ``TypeError``).
        DataError: If there are none (a ``ValueError``).

    Example:
        >>> _ = paddle.seed(1)
        >>> sampler = paddle.io.SubsetRandomSampler([3, 5, 8])
        >>> sorted(sampler), len(sampler)
        ([3, 5, 8], 3)
    """

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__()
        if not hasattr(indices, "__len__") or not hasattr(indices, "__getitem__"):
            raise wrong_type(indices, "indices", "SubsetRandomSampler", "a list of numbers")
        if len(indices) == 0:
            raise DataError(
                "The length of `indices` in SubsetRandomSampler should be greater than 0.",
                expected="at least one number",
                received="none",
                fix="pass the numbers of the samples",
            )
        self.indices = indices

    def __iter__(self) -> Iterator[int]:
        return (self.indices[i] for i in random.generator().permutation(len(self.indices)).tolist())

    def __len__(self) -> int:
        return len(self.indices)


@export("io.BatchSampler")
class BatchSampler(Sampler):
    """Groups numbers of samples into lists.

    Args:
        dataset: What has the samples; give this or ``sampler``.
        sampler: What decides the order.
        shuffle: Takes the samples of ``dataset`` in a random order, as RandomSampler does.
        batch_size: Numbers in a list.
        drop_last: Leaves out a last list that is shorter.

    Raises:
        DataUseError: If arguments are of the wrong kind, or exclude each other (an ``AssertionError``).

    Example:
        >>> dataset = range(5)
        >>> sampler = paddle.io.BatchSampler(dataset, batch_size=2)
        >>> list(sampler), len(sampler)
        ([[0, 1], [2, 3], [4]], 3)
    """

    def __init__(
        self,
        dataset: Any = None,
        sampler: Sampler | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        super().__init__(dataset)
        wrong = ""
        if dataset is None and sampler is None:
            wrong = "either dataset or sampler should be set"
        elif dataset is not None and sampler is not None:
            wrong = "should not set both dataset and sampler"
        elif sampler is not None and not isinstance(sampler, Sampler):
            wrong = f"sampler should be a paddle.io.Sampler, but got {type(sampler)}"
        elif sampler is not None and shuffle:
            wrong = "shuffle should be False when sampler is set"
        elif in_order(dataset):
            wrong = "dataset should not be a paddle.io.IterableDataset"
        elif not isinstance(shuffle, bool):
            wrong = f"shuffle should be a boolean value, but got {type(shuffle)}"
        elif (
            isinstance(batch_size, bool)
            or not isinstance(batch_size, int | np.integer)
            or not 0 < batch_size <= sys.maxsize
        ):
            wrong = f"batch_size should be a positive integer, but got {batch_size}"
        elif not isinstance(drop_last, bool):
            wrong = f"drop_last should be a boolean value, but got {type(drop_last)}"
        if wrong:
            raise DataUseError(
                wrong,
                expected="BatchSampler(dataset, shuffle=..., batch_size=...) or BatchSampler(sampler=..., batch_size=...)",
                received=f"shuffle={shuffle!r}, batch_size={batch_size!r}, drop_last={drop_last!r}",
                fix="BatchSampler(dataset, shuffle=True, batch_size=32), or BatchSampler(sampler=sampler, batch_size=32)",
            )
        self.sampler: Any = (
            sampler if sampler is not None else (RandomSampler(dataset) if shuffle else SequenceSampler(dataset))
        )
        self.batch_size = int(batch_size)
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while group := list(itertools.islice(numbers, self.batch_size)):
            if len(group) == self.batch_size or not self.drop_last:
                yield group

    def __len__(self) -> int:
        extra = 0 if self.drop_last else self.batch_size - 1
        return (len(sized(self.sampler, "sampler", "BatchSampler")) + extra) // self.batch_size


class _Listed(Sampler):
    """Numbers of samples as they are listed, or in a random order for each epoch."""

    def __init__(self, numbers: Sequence[int], shuffle: bool) -> None:
        super().__init__(None)
        self._numbers, self._shuffle = list(numbers), shuffle

    def __iter__(self) -> Iterator[int]:
        numbers = list(self._numbers)
        if self._shuffle:
            np.random.shuffle(numbers)
        return iter(numbers)

    def __len__(self) -> int:
        return len(self._numbers)


@export("fluid.io.BatchSampler")
class FluidBatchSampler(BatchSampler):
    """Groups numbers of samples into lists, as :class:`BatchSampler`; 1.x takes the numbers themselves, too.

    Args:
        dataset: What has the samples; give this, ``indices`` or ``sampler``.
        indices: The numbers of samples.
        shuffle: Takes the samples in a random order.
        batch_size: Numbers in a list.
        drop_last: Leaves out a last list that is shorter.
        sampler: What decides the order.

    Raises:
        DataUseError: If arguments are of the wrong kind, or exclude each other (an ``AssertionError``).

    Example:
        >>> numbers = [3, 1, 2]
        >>> sampler = fluid.io.BatchSampler(indices=numbers, batch_size=2)
        >>> list(sampler), len(sampler)
        ([[3, 1], [2]], 2)
    """

    def __init__(
        self,
        dataset: Any = None,
        indices: Sequence[int] | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
        sampler: Sampler | None = None,
    ) -> None:
        if indices is None:
            super().__init__(dataset, sampler, shuffle, batch_size, drop_last)
            return
        if dataset is not None or sampler is not None or not isinstance(indices, list | tuple):
            raise DataUseError(
                "indices stand in the place of a dataset or a sampler",
                expected="BatchSampler(indices=[0, 2, 1], batch_size=2)",
                received=f"indices={shown(indices)}, dataset={shown(dataset)}, sampler={shown(sampler)}",
                fix="pass one of them, and indices as a list",
            )
        super().__init__(None, _Listed(indices, shuffle), False, batch_size, drop_last)
