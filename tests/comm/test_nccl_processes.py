"""Processes of one GPU each, by what stands in for NCCL: trainings, what is chosen, and how a failure ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.comm.pool import SLACK, Pool
from tests.helpers.patience import pace
from tests.parallel.test_late_devices import Net
from tstatic.places import CPUPlace

pytestmark = pytest.mark.torch

LONG = 60.0 * SLACK


@pytest.mark.parametrize("kind", ["clip", "merge", "sync_batch_norm", "table"])
def test_processes_learn_as_places_do_and_wait_for_the_device_alone(kind: str, pool: Pool, tmp_path: Path) -> None:
    arguments = {"folder": str(tmp_path), "kind": kind, "steps": 3, "collectives": "auto", "one_gpu": False}
    with pool.trial("nccl_training", 2, **arguments) as trial:
        assert trial.wait(LONG) == {0: 0, 1: 0}, trial.everything()
        first, second = trial.said(0), trial.said(1)
    assert first[0] == second[0] == "nccl, since each process has a GPU of its own"
    assert first[2] == second[2]
    # It asks whether the step has ended, and then, when it has, for its errors.
    assert first[3] == second[3] == {"waits": 1}
    plain = Net(kind, CPUPlace(), 2)
    told = [plain.step() for _ in range(4)]
    np.testing.assert_allclose([first[1], second[1]], np.reshape(told, (4, 2)).T, rtol=1e-4)


@pytest.mark.parametrize(
    ("collectives", "one_gpu", "said"),
    [
        ("auto", True, "gloo, since two processes use one GPU"),
        ("gloo", False, "gloo, since FLAGS_collectives=gloo"),
        ("nccl", False, "nccl, since FLAGS_collectives=nccl"),
    ],
)
def test_what_moves_values_between_processes_is_chosen_and_said(
    collectives: str, one_gpu: bool, said: str, pool: Pool, tmp_path: Path
) -> None:
    arguments = {"folder": str(tmp_path), "kind": "plain", "steps": 1, "collectives": collectives, "one_gpu": one_gpu}
    with pool.trial("nccl_training", 2, **arguments) as trial:
        assert trial.wait(LONG) == {0: 0, 1: 0}, trial.everything()
        first, second = trial.said(0), trial.said(1)
    assert first[0].startswith(said)
    assert first[2] == second[2]


def test_collectives_are_part_of_graphs_where_the_flag_asks_for_it(pool: Pool, tmp_path: Path) -> None:
    found = []
    for in_graph in (False, True):
        arguments = {"folder": str(tmp_path), "kind": "clip", "steps": 4, "collectives": "auto", "one_gpu": False}
        with pool.trial("nccl_training", 2, in_graph=in_graph, **arguments) as trial:
            assert trial.wait(LONG) == {0: 0, 1: 0}, trial.everything()
            found.append(trial.said(0))
            assert trial.said(1)[2] == found[-1][2]
    apart, within = found
    assert apart[1:4] == within[1:4], "losses, parameters, waits"
    # Before the update the hosts learn that all have come so far.
    assert within[4] == 2 < apart[4]
    # Explain knows where the program ran, and does not count its update as a graph of its own.
    assert within[5] == [1, []]
    assert apart[5][0] > 1
    assert "c_allreduce_sum" in apart[5][1]


def test_sums_over_runs_are_left_out_in_the_same_runs_whatever_else_runs(pool: Pool, tmp_path: Path) -> None:
    """Plans for several sizes count the runs of a sum together; what the host knows of the count, a write makes it forget."""
    found = {}
    for collectives in ("nccl", "gloo"):
        arguments = {
            "folder": str(tmp_path),
            "kind": "merge",
            "rows": [4, 4, 4, 2, 4, 2, 2, 2, 4],
            "collectives": collectives,
        }
        with pool.trial("nccl_sizes", 2, **arguments) as trial:
            assert trial.wait(LONG) == {0: 0, 1: 0}, trial.everything()
            ((name, found[collectives]),) = trial.said(0)
            assert name == collectives
            assert trial.said(1) == trial.said(0)
    assert found["nccl"] == found["gloo"]


@pytest.mark.parametrize("rows", [[4, 4, 2, 4], [3, 4, 4, 4]])
def test_rows_of_a_table_are_summed_where_processes_look_up_different_numbers(
    rows: list[int], pool: Pool, tmp_path: Path
) -> None:
    """Gloo's processes exchange the rows that they find; on GPUs as many as any of them may have."""
    found = {}
    for collectives in ("nccl", "gloo"):
        arguments = {
            "folder": str(tmp_path),
            "kind": "table",
            "rows": rows,
            "others": [4, 1, 4, 4],
            "collectives": collectives,
        }
        with pool.trial("nccl_sizes", 2, **arguments) as trial:
            assert trial.wait(LONG) == {0: 0, 1: 0}, trial.everything()
            ((name, found[collectives]),) = trial.said(0)
            assert name == collectives
            assert trial.said(1) == trial.said(0)
    assert found["nccl"] == found["gloo"]


def test_nccl_that_is_asked_for_where_two_processes_use_one_gpu_is_refused(pool: Pool, tmp_path: Path) -> None:
    arguments = {"folder": str(tmp_path), "kind": "plain", "steps": 1, "collectives": "nccl", "one_gpu": True}
    with pool.trial("nccl_training", 2, **arguments) as trial:
        assert trial.wait(LONG) == {0: 1, 1: 1}, trial.everything()
        assert "NCCL cannot connect these places: two processes use one GPU" in trial.err(0)


FAULTS = {
    "exits": "rank 2 of 3 died",
    "raises": "rank 2 of 3 raised ValueError: planted",
    "sleeps": "rank 2 of 3 did not come to",
    "leaves": "rank 2 of 3 ended its program",
    "refuses": "rank 2 of 3 raised IndexRangeError",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_rank_that_fails_is_named_and_nobody_hangs(kind: str, pool: Pool, tmp_path: Path) -> None:
    second = f"{2 * pace():g}"
    environ = {"FLAGS_step_timeout_s": second if kind == "sleeps" else "60"}
    with pool.trial("nccl_suffers", 3, environ, folder=str(tmp_path), kind=kind) as trial:
        codes = trial.wait(LONG, [0, 1])
        assert codes[0] != 0, trial.everything()
        assert codes[1] != 0, trial.everything()
        for rank in (0, 1):
            errors = [line for line in trial.said(rank) if line[0] == "error"]
            assert len(errors) == 1, trial.everything()
            told = errors[0]
            assert FAULTS[kind] in told[3], told
            if kind == "sleeps":
                assert told[1] < (2 * pace() + 2) * SLACK
