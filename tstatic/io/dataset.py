"""Data sets: samples by number, or one after another."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.errors import UnsupportedError, shown
from tstatic.io.errors import DataError, DataTypeError, DataUseError
from tstatic.ir.export import export
from tstatic.runtime import random
from tstatic.runtime.feed import host_array, is_foreign
from tstatic.runtime.scope import LoDTensor


def _abstract(dataset: object, method: str) -> UnsupportedError:
    name = type(dataset).__name__
    return UnsupportedError(
        f"'{method}' not implement in class {name}",
        expected=f"a class with a method {method}",
        received=name,
        fix=f"define {name}.{method}",
    )


@export("io.Dataset")
class Dataset:
    """Base class of data sets whose samples have numbers: define ``__getitem__`` and ``__len__``.

    Example:
        >>> class Squares(paddle.io.Dataset):
        ...     def __getitem__(self, idx):
        ...         return idx**2
        ...     def __len__(self):
        ...         return 3
        >>> [np.array(batch).tolist() for batch in paddle.io.DataLoader(Squares(), batch_size=2)]
        [[0, 1], [4]]
    """

    def __getitem__(self, idx: int) -> Any:
        raise _abstract(self, "__getitem__")

    def __len__(self) -> int:
        raise _abstract(self, "__len__")


@export("io.IterableDataset")
class IterableDataset(Dataset):
    """Base class of data sets that are read one sample after another: define ``__iter__``.

    Example:
        >>> class Lines(paddle.io.IterableDataset):
        ...     def __iter__(self):
        ...         yield from (1, 2, 3)
        >>> [np.array(batch).tolist() for batch in paddle.io.DataLoader(Lines(), batch_size=2)]
        [[1, 2], [3]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise _abstract(self, "__iter__")

    def __getitem__(self, idx: int) -> Any:
        raise DataError(
            f"'__getitem__' should not be called for IterableDataset {type(self).__name__}",
            expected="iteration",
            received=f"number {idx}",
            fix="use a Dataset for samples by number",
        )

    def __len__(self) -> int:
        raise DataTypeError(
            f"'__len__' should not be called for IterableDataset {type(self).__name__}",
            expected="iteration",
            received="len()",
            fix="define __len__ where the length is known",
        )


def in_order(dataset: object) -> bool:
    """Whether a data set is read one sample after another: an IterableDataset, also of torch or Hugging Face, or an iterable
    without numbered samples.
    """
    kind = type(dataset)
    if isinstance(dataset, Dataset):
        return isinstance(dataset, IterableDataset)
    named = any(base.__name__ == "IterableDataset" for base in kind.__mro__)
    return named or (hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"))


@export("io.TensorDataset")
class TensorDataset(Dataset):
    """Samples are the rows of arrays, one of each.

    Args:
        tensors: Arrays or tensors with equally many rows.

    Raises:
        DataUseError: If they have different numbers of rows (an ``AssertionError``).

    Example:
        >>> x, y = np.arange(6).reshape(3, 2), np.array([0, 1, 0])
        >>> dataset = paddle.io.TensorDataset([x, y])
        >>> row, label = dataset[1]
        >>> row.tolist(), int(label), len(dataset)
        ([2, 3], 1, 3)
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = [t if hasattr(t, "shape") and not isinstance(t, LoDTensor) else _rows(t) for t in tensors]
        rows = [t.shape[0] for t in self.tensors]
        if len(set(rows)) != 1:
            raise _misuse(
                "tensors not have same shape of the 1st dimension",
                "equally many rows in all tensors",
                rows,
                "cut the tensors to one length: tensor[:n]",
            )

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        return tuple(t[idx] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


def _rows(given: Any) -> Any:
    return host_array(given) if is_foreign(given) else np.asarray(given)


def _misuse(what: str, expected: str, received: object, fix: str) -> DataUseError:
    return DataUseError(what, expected=expected, received=received, fix=fix)


_OTHER_KIND = {
    True: "derive the dataset from io.IterableDataset, or join those with numbered samples with ConcatDataset",
    False: "derive the dataset from io.Dataset, or join iterable ones with ChainDataset",
}


def _check_kind(datasets: list[Any], iterable: bool, function: str) -> None:
    if not datasets:
        raise _misuse(
            "input datasets should not be empty",
            f"at least one dataset for {function}",
            "none",
            f"{function}([dataset])",
        )
    for one in datasets:
        if in_order(one) is not iterable:
            kind = "IterableDatasets" if iterable else "datasets with numbered samples"
            raise _misuse(f"{function} only supports {kind}", kind, shown(one), _OTHER_KIND[iterable])


@export("io.ComposeDataset")
class ComposeDataset(Dataset):
    """Joins the fields of the samples that have one number in several data sets.

    Args:
        datasets: Data sets of one length.

    Raises:
        DataUseError: If there are none, or their lengths or kinds differ (an ``AssertionError``).

    Example:
        >>> images = paddle.io.TensorDataset([np.array([5, 6])])
        >>> labels = paddle.io.TensorDataset([np.array([0, 1])])
        >>> [int(field) for field in paddle.io.ComposeDataset([images, labels])[1]]
        [6, 1]
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        _check_kind(self.datasets, False, "ComposeDataset")
        lengths = [len(one) for one in self.datasets]
        if len(set(lengths)) > 1:
            cut = f"io.Subset(dataset, range({min(lengths)})) cuts one"
            raise _misuse("lengths of datasets should be same", "equally long datasets", lengths, cut)

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        samples = (one[idx] for one in self.datasets)
        return tuple(itertools.chain.from_iterable(s if isinstance(s, list | tuple) else (s,) for s in samples))

    def __len__(self) -> int:
        return len(self.datasets[0])


@export("io.ChainDataset")
class ChainDataset(IterableDataset):
    """Reads one iterable data set after another.

    Args:
        datasets: IterableDatasets.

    Raises:
        DataUseError: If there are none, or one is of another kind (an ``AssertionError``).

    Example:
        >>> class Pair(paddle.io.IterableDataset):
        ...     def __iter__(self):
        ...         yield from (1, 2)
        >>> list(paddle.io.ChainDataset([Pair(), Pair()]))
        [1, 2, 1, 2]
    """

    def __init__(self, datasets: Iterable[IterableDataset]) -> None:
        self.datasets = list(datasets)
        _check_kind(self.datasets, True, "ChainDataset")

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)


@export("io.ConcatDataset")
class ConcatDataset(Dataset):
    """Numbers the samples of several data sets one after another; negative numbers count from the end.

    Args:
        datasets: Data sets with numbered samples.

    Raises:
        DataUseError: If there are none, or one is of another kind (an ``AssertionError``).

    Example:
        >>> low = paddle.io.Subset([0, 1, 2], [0, 1, 2])
        >>> high = paddle.io.Subset([8, 9], [0, 1])
        >>> both = paddle.io.ConcatDataset([low, high])
        >>> len(both), both[3], both[-3]
        (5, 8, 2)
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        _check_kind(self.datasets, False, "ConcatDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(one) for one in self.datasets))

    def __getitem__(self, idx: int) -> Any:
        length = len(self)
        if idx < -length:
            raise DataError(
                "absolute value of index should not exceed dataset length",
                expected=f"a number from {-length} to {length - 1}",
                received=idx,
                fix=f"index from 0 to {length - 1}; len(dataset) says how many there are",
            )
        if idx >= length:
            raise IndexError(f"number {idx} of a ConcatDataset of {length} samples")
        idx %= length
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        return self.datasets[which][idx - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


@export("io.Subset")
class Subset(Dataset):
    """Samples of a data set, chosen by number.

    Args:
        dataset: The whole.
        indices: Numbers of the samples in it.

    Example:
        >>> dataset = ["a", "b", "c"]
        >>> part = paddle.io.Subset(dataset, [2, 0])
        >>> part[0], len(part)
        ('c', 2)
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: int) -> Any:
        return self.dataset[self.indices[idx]]

    def __len__(self) -> int:
        return len(self.indices)


@export("io.random_split")
def random_split(dataset: Any, lengths: Sequence[int], generator: Any = None) -> list[Subset]:
    """Divides a data set at random into parts without common samples; ``paddle.seed`` decides how, or a generator.

    Args:
        dataset: The whole.
        lengths: Samples of each part; together the whole.
        generator: A generator of numpy (``np.random.default_rng(7)``) that decides in place of ``paddle.seed``.

    Raises:
        DataError: If they do not add up to the whole (a ``ValueError``).
        DataTypeError: If ``generator`` has no method ``permutation`` (a ``TypeError``).

    Example:
        >>> _ = paddle.seed(3)
        >>> train, test = paddle.io.random_split(range(10), [7, 3])
        >>> sorted([*train.indices, *test.indices]) == list(range(10)), len(test)
        (True, 3)
    """
    if sum(lengths) != len(dataset):
        raise DataError(
            "Sum of input lengths does not equal the length of the input dataset!",
            expected=f"lengths that add up to {len(dataset)}",
            received=f"{list(lengths)}, which add up to {sum(lengths)}",
            fix="give the rest to one of the parts",
            op="random_split",
        )
    draws = random.generator() if generator is None else generator
    if not hasattr(draws, "permutation"):
        raise DataTypeError(
            "random_split got a generator that cannot permute",
            expected="np.random.default_rng(seed), or None",
            received=shown(generator),
            fix="pass a generator of numpy, or leave it out and call paddle.seed",
            op="random_split",
        )
    order = iter(np.asarray(draws.permutation(len(dataset))).tolist())
    return [Subset(dataset, list(itertools.islice(order, length))) for length in lengths]
