"""Processes on two machines: network namespaces of their own, joined by a cable that can be cut."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.comm.pool import ROOT, SLACK, environment

pytestmark = [pytest.mark.torch, pytest.mark.slow]

HOSTS = ("10.213.77.1", "10.213.77.2")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Machines:
    """Two namespaces; ranks 0 and 1 run on the first, 2 and 3 on the second."""

    def __init__(self) -> None:
        self.names = [f"tstatic-{os.getpid()}-{i}" for i in range(2)]
        self.ranks: list[subprocess.Popen[str]] = []

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

    def start(self, case: str, **arguments: Any) -> None:
        """Runs a case on all ranks, told who they are as torchrun does."""
        common = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": HOSTS[0], "MASTER_PORT": "29731"}
        command = [sys.executable, "-m", "tests.comm.cases", case, json.dumps(arguments)]
        for rank in range(4):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank % 2), "FLAGS_step_timeout_s": "4"}
            self.ranks.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", self.names[rank // 2], *command],
                    cwd=ROOT,
                    env=environment(**common, **own),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def cut(self) -> None:
        ip("-n", self.names[0], "link", "set", self.cable, "down")

    def ended(self, timeout: float) -> list[tuple[int, str, str]]:
        """Exit code, stdout and stderr of each rank."""
        deadline = time.monotonic() + timeout
        found = []
        for rank in self.ranks:
            out, err = rank.communicate(timeout=max(0.1, deadline - time.monotonic()))
            found.append((rank.returncode, out, err))
        return found

    def disconnect(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
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


def test_two_machines_find_each_other_and_add_machine_by_machine(machines: Machines) -> None:
    machines.start("train_in_blocks", number=0)
    found = machines.ended(60.0 * SLACK)
    assert [code for code, _, _ in found] == [0] * 4, found[0][2]
    levels, one_level, blocks = json.loads(found[0][1])
    assert levels == "sums go within each process, then over blocks of 2 processes, then over the 2 blocks."
    assert one_level != blocks
    assert len({out for _, out, _ in found}) == 1


def test_a_cut_cable_ends_the_ranks_of_both_machines(machines: Machines) -> None:
    machines.start("train", fault="", at=-1, victims=[], pause=0.01)
    for rank in machines.ranks:
        assert rank.stdout is not None
        assert json.loads(rank.stdout.readline())[0] == "connected"
    time.sleep(0.5)
    machines.cut()
    for rank, (code, out, err) in enumerate(machines.ended((4 + 2) * SLACK + 10)):
        assert code == 1, err
        _, _, text, victim, kind = json.loads(out.splitlines()[-1])
        assert kind == "stopped"
        assert "gave no sign of life" in text
        assert (victim < 2) == (rank >= 2), "each side misses a rank of the other"
