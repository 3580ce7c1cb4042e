"""Data sets and samplers give what Paddle 2.6.2 gives; what it refuses in static mode follows ``paddle.seed``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import io
from tstatic.io.errors import DataError, DataTypeError, DataUseError


class Squares(io.Dataset):
    """Numbered samples."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __getitem__(self, idx: int) -> Any:
        return idx * idx

    def __len__(self) -> int:
        return self.n


class Letters(io.IterableDataset):
    """Samples one after another."""

    def __iter__(self) -> Iterator[Any]:
        yield from "ab"


def test_base_classes_say_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="'__getitem__' not implement in class Dataset"):
        io.Dataset()[0]
    with pytest.raises(NotImplementedError, match="'__len__' not implement in class Dataset"):
        len(io.Dataset())
    with pytest.raises(NotImplementedError, match="'__iter__' not implement in class IterableDataset"):
        iter(io.IterableDataset())
    with pytest.raises(RuntimeError, match="'__getitem__' should not be called for IterableDataset"):
        Letters()[0]
    with pytest.raises(RuntimeError, match="'__len__' should not be called for IterableDataset"):
        len(Letters())
    with pytest.raises(NotImplementedError, match="'__iter__' not implement in class Sampler"):
        iter(io.Sampler())


def test_data_sets_are_composed() -> None:
    rows = io.TensorDataset([np.arange(6).reshape(3, 2), [7, 8, 9]])
    assert [v.tolist() for v in rows[-1]] == [[4, 5], 9]
    assert len(rows) == 3
    both = io.ComposeDataset([Squares(3), rows])
    assert [np.asarray(v).tolist() for v in both[2]] == [4, [4, 5], 9]
    assert len(both) == 3
    assert list(io.ChainDataset([Letters(), Letters()])) == list("abab")
    joined = io.ConcatDataset([Squares(2), Squares(3)])
    assert [joined[i] for i in range(-5, 5)] == [0, 1, 0, 1, 4] * 2
    assert [s for s in joined] == [0, 1, 0, 1, 4]  # noqa: C416 - by __getitem__ alone
    part = io.Subset(Squares(9), [5, 2])
    assert ([part[0], part[1]], len(part)) == ([25, 4], 2)


def test_data_sets_that_do_not_fit_are_refused() -> None:
    for make in (
        lambda: io.TensorDataset([np.zeros(2), np.zeros(3)]),
        lambda: io.ComposeDataset([]),
        lambda: io.ComposeDataset([Squares(2), Squares(3)]),
        lambda: io.ComposeDataset([Letters()]),
        lambda: io.ChainDataset([Squares(2)]),
        lambda: io.ConcatDataset([Letters()]),
        lambda: io.ConcatDataset([]),
    ):
        with pytest.raises(AssertionError):
            make()
    with pytest.raises(ValueError, match="absolute value of index should not exceed dataset length"):
        io.ConcatDataset([Squares(2)])[-3]
    with pytest.raises(IndexError):
        io.ConcatDataset([Squares(2)])[2]


def test_random_split_follows_the_seed() -> None:
    def split() -> list[Any]:
        return [part.indices for part in io.random_split(Squares(6), [4, 2])]

    paddle.seed(5)
    first, second = split(), split()
    paddle.seed(5)
    assert [split(), split()] == [first, second]
    assert first != second
    assert sorted(first[0] + first[1]) == list(range(6))
    with pytest.raises(ValueError, match="Sum of input lengths does not equal the length of the input dataset!"):
        io.random_split(Squares(6), [4, 1])


def test_samplers_follow_numpys_seed() -> None:
    np.random.seed(0)
    assert list(io.RandomSampler(Squares(5))) == [2, 0, 1, 3, 4]
    np.random.seed(0)
    assert list(io.RandomSampler(Squares(5), replacement=True, num_samples=7)) == [4, 0, 3, 3, 3, 1, 3]
    np.random.seed(0)
    assert list(io.WeightedRandomSampler([0.1, 0.3, 0.0, 0.6], 5)) == [3, 3, 3, 3, 3]
    np.random.seed(0)
    assert list(io.WeightedRandomSampler([0.1, 0.3, 0.2, 0.6], 3, replacement=False)) == [3, 1, 2]
    assert list(io.RandomSampler(Squares(5), generator=iter([4, 4]))) == [4, 4]
    assert list(io.SequenceSampler(Squares(3))) == [0, 1, 2]
    rows = io.WeightedRandomSampler([[0, 1], [1, 0]], 2)
    assert (list(rows), len(rows)) == ([1, 1, 0, 0], 4)


def test_a_subset_follows_paddles_seed() -> None:
    sampler = io.SubsetRandomSampler(range(10, 20))
    paddle.seed(1)
    first = list(sampler)
    paddle.seed(1)
    assert list(sampler) == first
    assert list(sampler) != first
    assert (sorted(first), len(sampler)) == (list(range(10, 20)), 10)


def test_batches_of_numbers() -> None:
    assert list(io.BatchSampler(Squares(5), batch_size=2)) == [[0, 1], [2, 3], [4]]
    dropped = io.BatchSampler(Squares(5), batch_size=2, drop_last=True)
    assert (list(dropped), len(dropped)) == ([[0, 1], [2, 3]], 2)
    np.random.seed(0)
    assert list(io.BatchSampler(Squares(5), shuffle=True, batch_size=3)) == [[2, 0, 1], [3, 4]]
    given = io.BatchSampler(sampler=io.SequenceSampler(Squares(4)), batch_size=3)
    assert (list(given), len(given)) == ([[0, 1, 2], [3]], 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "either dataset or sampler should be set"),
        ({"dataset": "ab", "sampler": io.SequenceSampler("ab")}, "should not set both dataset and sampler"),
        ({"sampler": [1]}, "sampler should be a paddle.io.Sampler, but got <class 'list'>"),
        ({"sampler": io.SequenceSampler("ab"), "shuffle": True}, "shuffle should be False when sampler is set"),
        ({"dataset": Letters()}, "dataset should not be a paddle.io.IterableDataset"),
        ({"dataset": "ab", "batch_size": 0}, "batch_size should be a positive integer, but got 0"),
        ({"dataset": "ab", "drop_last": 1}, "drop_last should be a boolean value, but got <class 'int'>"),
    ],
)
def test_bad_batch_samplers(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(DataUseError) as caught:
        io.BatchSampler(**arguments)
    assert caught.value.what == text


def test_bad_samplers() -> None:
    for make, error, text in (
        (lambda: io.RandomSampler("ab", replacement=1), DataTypeError, "expect boolean value for replacement"),
        (lambda: io.RandomSampler("ab", num_samples=1), DataError, "num_samples should not be specified"),
        (lambda: io.RandomSampler([]), DataError, "num_samples should be a positive integer, but got num_samples=0"),
        (lambda: io.WeightedRandomSampler([1], 0), DataError, "num_samples should be a positive integer"),
        (lambda: list(io.WeightedRandomSampler([-1, 2], 1)), DataUseError, "positive"),
        (lambda: list(io.WeightedRandomSampler([0, 0], 1)), DataUseError, "weights should have positive values"),
        (lambda: list(io.WeightedRandomSampler([0, 1], 2, False)), DataUseError, "not less than num_samples"),
        (lambda: io.SubsetRandomSampler([]), DataError, "greater than 0"),
    ):
        with pytest.raises(error, match=text):
            make()


def test_a_generator_decides_how_a_data_set_is_divided() -> None:
    def parts(generator: Any) -> list[list[int]]:
        return [list(part.indices) for part in io.random_split(range(8), [5, 3], generator)]

    paddle.seed(1)
    first = parts(np.random.default_rng(7))
    assert parts(np.random.default_rng(7)) == first
    assert parts(np.random.default_rng(8)) != first
    assert sorted(first[0] + first[1]) == list(range(8))
    paddle.seed(1)
    assert parts(None) == (paddle.seed(1), parts(None))[1]
    with pytest.raises(TypeError, match="cannot permute"):
        io.random_split(range(8), [5, 3], "seven")


def test_a_distributed_sampler_is_a_batch_sampler() -> None:
    sampler = io.DistributedBatchSampler(range(6), 2, num_replicas=2, rank=1)
    assert isinstance(sampler, io.BatchSampler)
    assert isinstance(sampler, io.Sampler)
    assert [list(batch) for batch in sampler] == [[2, 3], [5]]
