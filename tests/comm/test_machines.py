"""Processes on two machines: network namespaces of their own, joined by a cable that can be cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.comm.pool import SLACK, Pool, Trial
from tests.helpers.patience import pace

pytestmark = [pytest.mark.torch, pytest.mark.slow]

HOSTS = ("10.213.77.1", "10.213.77.2")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Machines:
    """Two namespaces; ranks 0 and 1 run on the first, 2 and 3 on the second."""

    def __init__(self) -> None:
        self.names = [f"tstatic-{os.getpid()}-{i}" for i in range(2)]

    def connect(self) -> None:
        ends = [f"ts{os.getpid() % 10**8}{end}" for end in "ab"]
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for name, end, host in zip(self.names, ends, HOSTS, strict=True):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "addr", "add", f"{host}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        self.cable = ends[0]

    def start(self, pool: Pool, case: str, **arguments: Any) -> Trial:
        """Runs a case on all ranks, told who they are as torchrun does."""
        common = {
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": HOSTS[0],
            "MASTER_PORT": "29731",
            "FLAGS_step_timeout_s": f"{2 * pace():g}",
        }
        return pool.trial(
            case,
            4,
            common,
            own=[{"LOCAL_RANK": str(rank % 2)} for rank in range(4)],
            namespaces=[self.names[rank // 2] for rank in range(4)],
            **arguments,
        )

    def cut(self) -> None:
        ip("-n", self.names[0], "link", "set", self.cable, "down")

    def disconnect(self) -> None:
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)


@pytest.fixture
def machines() -> Iterator[Machines]:
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program 'ip'")
    made = Machines()
    try:
        try:
            made.connect()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield made
    finally:
        made.disconnect()


def test_two_machines_find_each_other_and_add_machine_by_machine(machines: Machines, pool: Pool) -> None:
    with machines.start(pool, "train_in_blocks", number=0) as trial:
        assert trial.wait(60.0 * SLACK) == dict.fromkeys(range(4), 0), trial.everything()
        [(levels, one_level, blocks)] = trial.said(0)
        assert levels == "sums go within each process, then over blocks of 2 processes, then over the 2 blocks."
        assert one_level != blocks
        assert len({trial.out(rank) for rank in range(4)}) == 1


def test_a_cut_cable_ends_the_ranks_of_both_machines(machines: Machines, pool: Pool) -> None:
    with machines.start(pool, "train", fault="", at=-1, victims=[], pause=0.01) as trial:
        for rank in range(4):
            assert trial.until(rank, 1, 60.0 * SLACK)[0][0] == "connected"
        time.sleep(0.2)
        machines.cut()
        codes = trial.wait((2 + 2) * SLACK + 10)
        for rank in range(4):
            assert codes[rank] == 1, trial.err(rank)
            _, _, text, victim, kind = trial.said(rank)[-1]
            assert kind == "stopped"
            assert "gave no sign of life" in text
            assert (victim < 2) == (rank >= 2), "each side misses a rank of the other"
