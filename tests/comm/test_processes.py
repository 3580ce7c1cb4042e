"""Collectives between processes: their values, what is refused, and what is warned of."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from tests.comm.pool import SLACK, Pool
from tstatic.comm import processes
from tstatic.comm.processes import digest

pytestmark = pytest.mark.torch

DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"]
COUNTS = [1, 7, 1000, 8193, 100001]


@pytest.mark.parametrize("size", [2, 4])
def test_strict_sums_are_numpys_in_the_order_of_the_ranks_bit_for_bit(pool: Pool, size: int) -> None:
    with pool.trial("sums", size, dtypes=DTYPES, counts=COUNTS, strict=True) as trial:
        assert set(trial.wait(30.0 * SLACK).values()) == {0}
        for rank in range(size):
            *rows, totals = trial.said(rank)
            assert len(rows) == len(DTYPES) * len(COUNTS)
            assert [row for row in rows if not row[2]] == []
            assert [row[4] for row in rows] == [dtype for dtype in DTYPES for _ in COUNTS]
            assert totals[0] == len(DTYPES) + 1
            assert totals[1] == sum(np.dtype(d).itemsize if d != "bfloat16" else 2 for d in DTYPES) * sum(COUNTS)


@pytest.mark.parametrize("size", [2, 3])
def test_sums_are_numpys_within_rounding_for_any_number_of_processes(pool: Pool, size: int) -> None:
    with pool.trial("sums", size, dtypes=DTYPES, counts=COUNTS, strict=False) as trial:
        assert set(trial.wait(30.0 * SLACK).values()) == {0}
        assert [row for row in trial.said(size - 1)[:-1] if not row[3]] == []


def test_gathering_and_broadcasting_any_shape_dtype_and_layout(pool: Pool) -> None:
    with pool.trial("gathers", 2) as trial:
        assert trial.wait(30.0 * SLACK) == {0: 0, 1: 0}
        for rank in range(2):
            stacked, odd, total, sent = trial.said(rank)
            assert stacked == [[[0, 1, 2], [3, 4, 5]], [[10, 11, 12], [13, 14, 15]]]
            assert odd == [[0.0, 1.0], [2, 0, 2]]
            assert total == [[[3.0] * 3] * 2, 3.0]
            assert sent == [[[1.0, 1.0], [1.0, 1.0]], [1.0, 1.0, 1.0]]


def test_replicas_of_several_processes_add_within_a_process_first_bit_for_bit(pool: Pool) -> None:
    with pool.trial("hierarchical", 2, fail=False) as trial:
        assert trial.wait(30.0 * SLACK) == {0: 0, 1: 0}, trial.err(0)
        rows = [[float(n)] * 3 for n in range(4)]
        for rank in range(2):
            assert trial.said(rank) == [[[True, True], [rows, rows]]]


def test_a_replica_that_raises_ends_the_step_of_every_process(pool: Pool) -> None:
    with pool.trial("hierarchical", 2, fail=True) as trial:
        assert trial.wait(10.0 * SLACK) == {0: 1, 1: 1}
        assert trial.said(1) == [["error", "a replica's planted fault"]]
        (said,) = trial.said(0)
        assert said[1].startswith("rank 1 of 2 raised ValueError: a replica's planted fault, at ")


@pytest.mark.parametrize("what", ["program", "strategy"])
def test_ranks_that_differ_are_refused_and_every_rank_says_which(pool: Pool, what: str) -> None:
    with pool.trial("same", 3, what=what, odd=1) as trial:
        assert set(trial.wait(30.0 * SLACK).values()) == {1}
        for rank in range(3):
            assert f"rank 1 of 3 has another {what} than rank 0" in trial.err(rank)


@pytest.mark.parametrize("late", [0.0, 0.3])
def test_another_version_of_tstatic_is_refused_at_the_start(pool: Pool, late: float) -> None:
    """A rank that has heard what ends it says what it has to say first, or the others would report its death."""
    with pool.trial("another_version", 2, late=late) as trial:
        assert set(trial.wait(30.0 * SLACK).values()) == {1}
        for rank in range(2):
            assert "rank 1 of 2 has another tstatic version than rank 0" in trial.err(rank)
            assert "0.0.0" in trial.err(rank)
            assert "died" not in trial.err(rank)


def test_ranks_at_different_collectives_are_told_apart_at_once(pool: Pool) -> None:
    with pool.trial("other_meeting", 3) as trial:
        assert set(trial.wait(10.0 * SLACK).values()) == {1}
        for rank in range(3):
            assert "is in all_reduce of 1 arrays, 400 bytes while others are in mean" in trial.err(rank)


def test_ranks_with_different_collectives_behind_them_do_not_agree(pool: Pool) -> None:
    with pool.trial("other_history", 2) as trial:
        assert set(trial.wait(10.0 * SLACK).values()) == {1}
        assert "rank 1 of 2 has another history of collectives than rank 0" in trial.err(0)


@pytest.mark.parametrize(("alike", "steps", "count"), [(True, 40, 1), (True, 2, 0), (False, 5, 0)])
def test_equal_feeds_in_three_steps_are_warned_of_once(pool: Pool, alike: bool, steps: int, count: int) -> None:
    with pool.trial("feeds", 2, alike=alike, steps=steps) as trial:
        assert trial.wait(30.0 * SLACK) == {0: 0, 1: 0}
        assert sum("bitwise equal data" in trial.err(rank) for rank in range(2)) == count
        assert trial.said(0) == [not count]


@pytest.mark.parametrize("how", ["startup", "one rank"])
def test_parameters_that_differ_since_somebody_wrote_them_are_refused(pool: Pool, how: str) -> None:
    with pool.trial("written_between", 3, how=how) as trial:
        assert set(trial.wait(30.0 * SLACK).values()) == {0}, trial.err(0)
        for rank in range(3):
            (_, text, unchanged), done = trial.said(rank)
            assert "another value of 'fc_" in text
            assert "which was written between steps, than rank" in text
            assert "paddle.seed(n) before the startup program" in text
            if how == "one rank":
                assert "rank 1 of 3 has" in text
            assert unchanged
            assert done == trial.said(0)[1]


@pytest.mark.parametrize("how", ["same startup", "elsewhere", "nothing"])
def test_what_is_written_alike_or_concerns_no_parameter_is_nobodys_business(pool: Pool, how: str) -> None:
    with pool.trial("written_between", 2, how=how) as trial:
        assert set(trial.wait(30.0 * SLACK).values()) == {0}, trial.err(0)
        assert [trial.said(rank)[0] for rank in range(2)] == [trial.said(0)[0]] * 2
        assert trial.said(0)[0][0] == "done"


def test_a_forked_child_is_refused_and_hides_no_death(pool: Pool) -> None:
    with pool.trial("forked", 2) as trial:
        assert trial.wait(10.0 * SLACK)[0] == 1
        assert "ForkedProcessError" in trial.said(1)
        assert "rank 1 of 2 died" in trial.err(0)


def test_a_rank_that_catches_the_error_is_told_again(pool: Pool) -> None:
    with pool.trial("stubborn", 2) as trial:
        for rank in range(2):
            trial.until(rank, 1, 10.0 * SLACK)
        trial.send(1, signal.SIGKILL)
        assert trial.wait(10.0 * SLACK) == {0: 0, 1: -9}
        connected, *said = trial.said(0)
        assert connected == "connected"
        assert len(said) == 3
        assert all(line.startswith("rank 1 of 2 died") for line in said)


def test_a_program_with_python_functions_trains_in_several_processes(pool: Pool) -> None:
    with pool.trial("calls_functions", 2) as trial:
        assert trial.wait(20.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
        assert trial.said(0)[0][0] == "trained"
        assert trial.said(0) == trial.said(1)


def test_missing_ranks_are_named(pool: Pool) -> None:
    with pool.trial("alone", 1, {"FLAGS_rendezvous_timeout_s": "0.4"}) as trial:
        assert trial.wait(10.0 * SLACK) == {0: 1}
        assert "only 1 of 3 ranks have started" in trial.err(0)
        assert "nothing from rank 1, 2" in trial.err(0)


def test_a_rank_that_ends_before_it_met_the_others_is_named_in_seconds(pool: Pool) -> None:
    with pool.trial("early_end", 3, {"FLAGS_rendezvous_timeout_s": "60"}, code=3) as trial:
        assert trial.wait(8.0 * SLACK) == {0: 1, 1: 3, 2: 1}
        for rank in (0, 2):
            assert "rank 1 of 3 ended its program before it met the others" in trial.err(rank)


def test_digests_differ_in_name_dtype_shape_and_bits() -> None:
    one = {"x": np.zeros((2, 3), np.float32)}
    others = [
        {"y": one["x"]},
        {"x": one["x"].astype(np.int32)},
        {"x": one["x"].reshape(3, 2)},
        {"x": -one["x"]},
        {},
    ]
    assert digest(one) == digest({"x": np.zeros((3, 2), np.float32).T})
    assert len({digest(one), *map(digest, others)}) == 6


def test_a_single_process_has_no_group() -> None:
    assert processes.world() is None


@pytest.mark.numpy_device("bits: torch adds the rows of a table in another order", not_on=("torch",))
@pytest.mark.torch
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_processes_exchange_the_rows_of_tables(pool: Pool, optimizer: str) -> None:
    """Two processes of two places each, with batches of different sizes."""
    with pool.trial("tables_as_rows", 2, optimizer=optimizer) as trial:
        assert set(trial.wait(60.0 * SLACK).values()) == {0}, trial.err(0)
        said = [trial.said(rank) for rank in range(2)]
    assert said[0] == said[1]
    ((alike, bits),) = said[0]
    assert alike
    assert "table" in bits
