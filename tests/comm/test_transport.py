"""What moves values between processes: its results on arrays of a device, and how often a step takes them to the host."""

from __future__ import annotations

import pytest

from tests.comm.pool import SLACK, Pool

pytestmark = pytest.mark.torch


def test_each_sum_of_a_step_takes_all_gradients_to_the_host_and_back(pool: Pool) -> None:
    """A record: the host waits for the device and for the other process, then once more in the commit."""
    nets = [(width, places) for width in (8, 1024) for places in (1, 2)]
    with pool.trial("recorded_steps", 2, widths=[8, 1024], places=[1, 2]) as trial:
        assert trial.wait(30.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
        said = trial.said(0)
        assert said == trial.said(1)
    for (width, _), plain, (calls, host_bytes, waits, values) in zip(nets, said[::2], said[1::2], strict=True):
        gradients = 4 * (64 * width + width + width * 4 + 4)
        assert (calls, host_bytes, waits) == ({"sum": 1, "agree": 1}, 2 * gradients, 3)
        # Gloo reads the memory of CPU places where it is.
        assert plain == [calls, 0, 2, values]


def test_rows_of_a_table_are_summed_on_a_device_as_on_the_cpu(pool: Pool) -> None:
    """The CPU's memory is the host's: there the processes send the rows that they find, on a device as many as there may be."""
    with pool.trial("recorded_rows", 2, places=[1, 2]) as trial:
        assert trial.wait(30.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
        said = trial.said(0)
        assert [one[-1] for one in said] == [one[-1] for one in trial.said(1)]
    for (calls, *plain, values), (fakes, host_bytes, waits, late) in zip(said[::2], said[1::2], strict=True):
        assert late == values
        # Of two steps, each: how many rows, which, and their values; the other gradients; the commit.
        assert calls == {"gather": 6, "sum": 2, "agree": 2}
        assert plain == [0, 10]
        assert fakes == {"gather": 4, "sum": 2, "agree": 2}
        # Gloo takes what it moves to the host: there is no other wait but the commit.
        assert waits == 14
        assert host_bytes > 0


@pytest.mark.parametrize("backend", ["cpu", "fake"])
def test_every_kind_on_arrays_of_a_device_between_all_and_between_some_processes(pool: Pool, backend: str) -> None:
    with pool.trial("recorded_kinds", 2, backend=backend) as trial:
        assert trial.wait(30.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
        for rank in range(2):
            own, both = [rank + 1.0, 10.0 * (rank + 1)], [3.0, 30.0]
            at = 8 if backend == "fake" else 0  # bytes of an array of two, where they are not the host's
            waits = 1 + (backend == "fake")
            told = [
                ["sum", both, {"sum": 1}, 2 * at, waits],
                ["sum", both if rank else own, {"sum": 1}, at + at * rank, waits],
                ["scatter", both, {"scatter": 1}, 3 * at, waits],
                ["gather", [[1.0, 10.0], [2.0, 20.0]], {"gather": 1}, 3 * at, waits],
                ["send", [2.0, 20.0], {"send": 1}, at + at * (not rank), waits],
                [
                    "exchange",
                    [[5.0, 0.0], [5.0, 1.0]] if rank else [[1.0, 10.0], [2.0, 20.0]],
                    {"exchange": 1},
                    4 * at,
                    waits,
                ],
                [[{"rank": 0, "said": ""}, {"rank": 1, "said": "x"}], {"agree": 1}, 0, 1],
            ]
            assert trial.said(rank) == told * 2
