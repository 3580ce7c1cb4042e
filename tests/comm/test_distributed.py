"""``tstatic.distributed`` in a single process, and over several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.comm.pool import Pool
from tstatic import distributed
from tstatic.comm.rendezvous import launch
from tstatic.errors import FeedError


def test_a_single_process_is_rank_0_of_1_and_waits_for_nobody() -> None:
    distributed.init_parallel_env()
    distributed.barrier()
    assert (distributed.get_rank(), distributed.get_world_size()) == (0, 1)


def test_a_single_process_keeps_everything() -> None:
    whole = np.arange(6).reshape(3, 2)
    assert distributed.local(whole).tolist() == whole.tolist()
    assert np.shares_memory(distributed.local(whole), whole)


def test_the_mean_over_one_process_is_what_it_passed() -> None:
    assert distributed.mean(3) == 3.0
    assert isinstance(distributed.mean(np.float32(0.1)), float)
    given = np.float32([0.1, 0.2])
    found = distributed.mean(given)
    assert found.tolist() == given.tolist()
    assert found.dtype == np.float32
    assert distributed.mean(np.array([1, 2])).dtype == np.float64


@given(rows=st.integers(1, 50), size=st.integers(1, 9))
def test_parts_follow_one_another_and_differ_by_one_row_at_most(rows: int, size: int) -> None:
    before, parts = launch._current, []
    try:
        for rank in range(size):
            launch._current = launch.ProcessInfo(rank, size, rank, "h", 1, "a test")
            if rows < size:
                with pytest.raises(FeedError, match="cannot be split"):
                    distributed.local(list(range(rows)))
                return
            parts.append(distributed.local(list(range(rows))))
    finally:
        launch._current = before
    assert [row for part in parts for row in part] == list(range(rows))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [len(p) for p in parts] == sorted(len(p) for p in parts)


@pytest.mark.parametrize("value", [np.float32(1), np.array(1), 3, iter([1])])
def test_what_has_no_rows_has_no_local_part(value: object) -> None:
    with pytest.raises(FeedError, match="rows"):
        distributed.local(value)  # type: ignore[call-overload]


@pytest.mark.torch
def test_two_processes_split_data_and_join_numbers(pool: Pool) -> None:
    with pool.trial("joined", 2) as trial:
        assert trial.wait(60.0) == {0: 0, 1: 0}
        for rank, part in enumerate(([0, 1, 2], [3, 4, 5, 6])):
            who, local, means, kinds = trial.said(rank)
            assert who == [rank, 2]
            assert local == [part, list("abcdefg")[part[0] : part[-1] + 1]]
            assert means == [1.5, [0.5, 1.0], 0.5]
            assert kinds == ["float", "float16"]
