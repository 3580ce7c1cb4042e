"""Trials of several ranks: started by a warm nursery, watched from outside, and never left behind."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.helpers import child
from tests.helpers.patience import pace

ROOT = Path(__file__).parents[2]

PORTS = range(20_000, 32_768, 64)
"""The first ports of those that processes take: Linux gives none of them by itself, to servers or connections."""

SLACK = 3.0 * pace()
"""Deadlines are so many times what is promised: the machine may be busy."""


def environment(**more: str) -> dict[str, str]:
    """The environment of a rank: one thread each, and this checkout, behind what the tests themselves were given."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FLAGS_", "PYTEST_", "SLURM_", "PADDLE_"))}
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": child.python_path()} | more


@cache
def _ports() -> Iterator[int]:
    """Ports that no other process that runs tests takes, again and again."""
    folder = Path(tempfile.gettempdir(), "tstatic-test-ports")
    folder.mkdir(exist_ok=True)
    for first in PORTS:
        held = os.open(folder / str(first), os.O_CREAT | os.O_RDWR)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process has ended
            return itertools.cycle(range(first, first + PORTS.step))
        os.close(held)
    raise RuntimeError(f"all of {PORTS} are taken: more than {len(PORTS)} processes run tests")


def free_port() -> int:
    """Returns a port at which nobody listens, and which no other process that runs tests takes."""
    for port in itertools.islice(_ports(), PORTS.step):
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise RuntimeError("somebody listens at all ports of this process")


class Trial:
    """Some ranks that run one case."""

    def __init__(self, pool: Pool, pids: Sequence[int], folder: Path) -> None:
        self.pids = list(pids)
        self.folder = folder
        self.codes: dict[int, int] = {}
        self._pool = pool

    def send(self, rank: int, number: int) -> None:
        os.kill(self.pids[rank], number)

    def wait(self, timeout: float, ranks: Sequence[int] | None = None) -> dict[int, int]:
        """Exit codes by rank.

        Raises:
            TimeoutError: If some of the ranks, by default all, have not ended by then.
        """
        wanted = set(range(len(self.pids)) if ranks is None else ranks)
        deadline = time.monotonic() + timeout
        while not wanted <= set(self.ended()):
            if time.monotonic() > deadline:
                left = sorted(wanted - set(self.codes))
                raise TimeoutError(f"ranks {left} run on after {timeout:g} s{self.everything()}")
            time.sleep(0.01)
        return self.codes

    def ended(self) -> dict[int, int]:
        """Exit codes, by rank, of those that have ended."""
        left = [pid for rank, pid in enumerate(self.pids) if rank not in self.codes]
        if left:
            for pid, code in self._pool.ask({"poll": left}).items():
                self.codes[self.pids.index(int(pid))] = code
        return self.codes

    def everything(self) -> str:
        """What all ranks printed, for messages."""
        return "".join(f"\n-- rank {r}:\n{self.out(r)}{self.err(r)}" for r in range(len(self.pids)))

    def out(self, rank: int) -> str:
        return (self.folder / f"out.{rank}").read_text()

    def err(self, rank: int) -> str:
        return (self.folder / f"err.{rank}").read_text()

    def said(self, rank: int) -> list[Any]:
        """The JSON lines that a rank printed."""
        return [json.loads(line) for line in self.out(rank).splitlines()]

    def until(self, rank: int, lines: int, timeout: float) -> list[Any]:
        """Waits until a rank has printed so many lines.

        Raises:
            ChildProcessError: If it ended before.
            TimeoutError: If it has not printed them by then.
        """
        deadline = time.monotonic() + timeout
        path = self.folder / f"out.{rank}"
        while True:
            over = rank in self.ended()
            if path.exists() and path.read_text().count("\n") >= lines:
                return self.said(rank)
            if over:
                raise ChildProcessError(f"rank {rank} ended with {self.codes[rank]}{self.everything()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {rank} says nothing{self.everything()}")
            time.sleep(0.005)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        for rank, pid in enumerate(self.pids):
            if rank not in self.codes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.wait(30.0)


class Pool:
    """A nursery and its trials."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tstatic-ranks-")
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.comm.nursery"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._count = 0
        assert self._read() == "ready"

    def _read(self) -> Any:
        assert self._nursery.stdout is not None
        line = self._nursery.stdout.readline()
        if not line:
            raise RuntimeError(f"the nursery ended with code {self._nursery.wait()}")
        return json.loads(line)

    def ask(self, order: dict[str, Any]) -> Any:
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(json.dumps(order) + "\n")
        self._nursery.stdin.flush()
        return self._read()

    def trial(
        self,
        case: str,
        size: int,
        environ: dict[str, str] | None = None,
        whole_exit: bool = False,
        own: Sequence[dict[str, str]] = (),
        namespaces: Sequence[str] = (),
        **arguments: Any,
    ) -> Trial:
        """Starts ranks that run a function of one of the modules of cases.

        Args:
            case: Its name.
            size: How many ranks.
            environ: Variables that all ranks get.
            whole_exit: Whether ranks end as Python does, with the tearing down of modules.
            own: Variables that each rank gets besides.
            namespaces: The network namespace in which each rank runs; none: this process's.
            **arguments: What the function gets.
        """
        self._count += 1
        folder = Path(self._folder.name) / str(self._count)
        folder.mkdir()
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        pids = self.ask(
            {
                "size": size,
                "case": case,
                "arguments": arguments,
                "whole_exit": whole_exit,
                "own": list(own),
                "namespaces": list(namespaces),
                "folder": str(folder),
                "environ": meeting | (environ or {}),
            }
        )
        return Trial(self, pids, folder)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.close()
        self._nursery.wait(30.0)
        self._nursery.stdout.close()
        self._folder.cleanup()
