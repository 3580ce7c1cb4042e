"""Jobs that share a port, ranks that end before they meet, and addresses that nobody has; in processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.comm.pool import SLACK, Pool, environment, free_port
from tests.helpers.soak import SOAK

pytestmark = pytest.mark.torch

LONG = {"FLAGS_rendezvous_timeout_s": "100", "FLAGS_failure_grace_s": "0.5"}
"""Whoever waits for the time-out of the meeting exceeds what these tests wait for."""


def test_two_jobs_at_one_port_never_train_as_one(pool: Pool, tmp_path: Path) -> None:
    """Ranks 0 and 3 of one job and 1 and 2 of another must not train together, nor what is left of both."""
    port = {"MASTER_PORT": str(free_port())}
    sign = tmp_path / "go"
    with (
        pool.trial("waits", 4, LONG | port, late=[1, 2], sign=str(sign)) as first,
        pool.trial("waits", 4, LONG | port, late=[0, 3], sign=str(sign)) as second,
    ):
        mixed = [(first, 0), (second, 1), (second, 2), (first, 3)]
        for job, rank in mixed:
            assert job.until(rank, 1, 30.0 * SLACK)[0][2] == 4.0  # nothing tells them apart yet
        sign.touch()
        codes = [*first.wait(30.0 * SLACK).values(), *second.wait(30.0 * SLACK).values()]
        assert 0 not in codes
        for job, rank in mixed:
            assert "two jobs started at one port at the same time" in job.err(rank)
            assert "choose another MASTER_PORT" in job.err(rank)
        late = {rank: job.err(rank) for job, rank in [(second, 0), (first, 1), (first, 2), (second, 3)]}
        assert any(f"was not admitted at port {port['MASTER_PORT']}" in text for text in late.values())
        holders = {rank: job.pids[rank] for job, rank in mixed}
        told = [rank for rank, text in late.items() if f"process {holders[rank]} on " in text]
        assert told, late


def test_a_job_that_trains_outlives_another_that_names_its_port(pool: Pool, tmp_path: Path) -> None:
    port = {"MASTER_PORT": str(free_port())}
    with pool.trial("train", 2, LONG | port, fault="", at=-1, victims=[], pause=0.01) as first:
        for rank in range(2):
            first.until(rank, 1, 30.0 * SLACK)
        with pool.trial("train", 2, LONG | port, fault="", at=-1, victims=[]) as second:
            assert second.wait(30.0 * SLACK) == {0: 1, 1: 1}
            for rank in range(2):
                assert f"rank {rank} of 2 was not admitted at port {port['MASTER_PORT']}" in second.err(rank)
                assert f"process {first.pids[rank]} on " in second.err(rank)
                assert f"process {second.pids[rank]} on " in second.err(rank)
        assert first.ended() == {}


def test_the_next_job_finds_the_port_free(pool: Pool) -> None:
    port = {"MASTER_PORT": str(free_port())}
    for _ in range(2):
        with pool.trial("again", 2, LONG | port, times=3) as trial:
            assert trial.wait(30.0 * SLACK) == {0: 0, 1: 0}, trial.everything()
            assert trial.said(0) == [0.5] * 3


def test_jobs_of_launchers_meet_by_their_names(pool: Pool) -> None:
    port = {"MASTER_PORT": str(free_port())}
    own = [{"TORCHELASTIC_RUN_ID": name} for name in ("a", "b", "a")]
    with pool.trial("train", 3, LONG | port, own=own, fault="", at=-1, victims=[]) as trial:
        assert trial.wait(30.0 * SLACK, [1])[1] == 1
        assert "the port belongs to job 'torchrun a', and this rank belongs to job 'torchrun b'" in trial.err(1)


@pytest.mark.parametrize("name", ["no-such-host.invalid", "x" * 300])
def test_an_unknown_address_is_told_with_its_name(pool: Pool, name: str) -> None:
    with pool.trial("joined", 2, LONG | {"MASTER_ADDR": name}) as trial:
        assert trial.wait(30.0 * SLACK) == {0: 1, 1: 1}
        for rank in range(2):
            assert f"RankFailedError: the address '{name}' of rank 0 is unknown" in trial.err(rank)


SOAKED = [
    (2, "killed", "rank 2 of 3 was killed by SIGKILL before it met the others"),
    (0, "killed", "rank 0 of 3 was killed by SIGKILL before it met the others"),
    (0, "code", "rank 0 of 3 ended with exit code 3 before it met"),
]
"""Processes that import torch take seconds of the processor: these follow under ``TSTATIC_SOAK=1``."""


@pytest.mark.parametrize(
    ("victim", "how", "told"),
    [(1, "ended", "rank 1 of 2 ended its program before it met the others"), *(SOAKED if SOAK else [])],
)
def test_a_launcher_names_a_rank_that_ended_before_the_meeting(
    tmp_path: Path, victim: int, how: str, told: str
) -> None:
    """Its launcher knows at once what the others would learn at the time-out of the meeting."""
    size = 3 if "of 3" in told else 2
    command = [sys.executable, "-m", "tstatic.distributed.launch", "--nproc_per_node", str(size)]
    (tmp_path / "script.py").write_text("from tests.comm.port_cases import _main\n_main()\n")
    flags = LONG | {"FLAGS_failure_grace_s": "60"}
    done = subprocess.run(
        [*command, "script.py", str(victim), how], cwd=tmp_path, env=environment(**flags), capture_output=True, text=True,
        timeout=60.0 * SLACK, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    for rank in set(range(size)) - {victim}:
        assert told in (tmp_path / "log" / f"workerlog.{rank}").read_text(), rank


@pytest.mark.skipif(not SOAK, reason="TSTATIC_SOAK=1 starts torchrun twice, which takes 20 s of the processor")
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_of_torchrun_that_ends_before_the_meeting_is_named(tmp_path: Path, victim: int) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
    started = subprocess.Popen(
        [*command, "tests.comm.port_cases", str(victim), "ended", "torch"], cwd=tmp_path, env=environment(**LONG),
        text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    with started:
        try:
            err = started.communicate(timeout=60.0 * SLACK)[1]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
    assert f"rank {victim} of 2 ended its program before it met the others" in err
