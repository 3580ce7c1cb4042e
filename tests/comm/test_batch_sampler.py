"""Each process's batches: together the whole data set, equally many for all."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstatic.io import DistributedBatchSampler


def _all(rows: int, size: int, ranks: int, **more: bool) -> list[list[list[int]]]:
    return [list(DistributedBatchSampler(range(rows), size, ranks, rank, **more)) for rank in range(ranks)]


def test_ranks_take_turns_batch_by_batch_and_share_the_rest() -> None:
    assert _all(10, 2, 2) == [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]]


def test_rows_are_repeated_from_the_start_until_all_have_equally_many() -> None:
    assert _all(5, 2, 2) == [[[0, 1], [4]], [[2, 3], [0]]]
    assert _all(1, 4, 3) == [[[0]], [[0]], [[0]]]


def test_drop_last_leaves_out_batches_that_are_not_full() -> None:
    assert _all(10, 2, 2, drop_last=True) == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


@given(
    rows=st.integers(0, 60),
    size=st.integers(1, 9),
    ranks=st.integers(1, 5),
    shuffle=st.booleans(),
    drop=st.booleans(),
)
def test_all_ranks_have_equally_many_rows_and_together_all_of_them(
    rows: int, size: int, ranks: int, shuffle: bool, drop: bool
) -> None:
    samplers = [DistributedBatchSampler(range(rows), size, ranks, r, shuffle, drop) for r in range(ranks)]
    got = [list(one) for one in samplers]
    assert {len(one) for one in samplers} == {len(got[0])}
    assert len({tuple(map(len, one)) for one in got}) == 1
    assert all(len(batch) == size for one in got for batch in (one if drop else one[:-1]))
    seen = [row for one in got for batch in one for row in batch]
    if not drop:
        assert set(seen) == set(range(rows))
        assert len(seen) == -(-rows // ranks) * ranks
    assert set(np.bincount(seen, minlength=1)) <= {0, 1, 2} or rows < ranks


def test_a_shuffled_order_is_drawn_from_the_epoch_and_equal_on_all_ranks() -> None:
    first, second = (DistributedBatchSampler(range(40), 4, 2, r, shuffle=True) for r in range(2))
    epochs = [(list(first), list(second)) for _ in range(2)]
    assert epochs[0] != epochs[1]
    for one, two in epochs:
        assert sorted(row for batch in one + two for row in batch) == list(range(40))
    first.set_epoch(0)
    assert list(first) == epochs[0][0]
    order = np.arange(40)
    np.random.RandomState(0).shuffle(order)
    assert epochs[0][0][0] == order[:4].tolist()


def test_rank_and_number_of_processes_come_from_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    for name, value in environ.items():
        monkeypatch.setitem(os.environ, name, value)
    assert list(DistributedBatchSampler("abcdef", 2)) == [[2, 3], [5]]


def test_anything_with_a_length_is_a_data_set() -> None:
    for data in ([1, 2, 3], np.zeros((3, 2)), {"a": 1, "b": 2, "c": 3}):
        assert list(DistributedBatchSampler(data, 2)) == [[0, 1], [2]]


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 0},
        {"batch_size": 2.0},
        {"batch_size": True},
        {"batch_size": 2, "num_replicas": 0},
        {"batch_size": 2, "num_replicas": 2, "rank": 2},
        {"batch_size": 2, "rank": -1},
        {"batch_size": 2, "shuffle": 1},
        {"batch_size": 2, "drop_last": None},
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, object]) -> None:
    name = [*arguments][-1]
    with pytest.raises(ValueError, match=name):
        DistributedBatchSampler(range(4), **arguments)  # type: ignore[arg-type]
