"""Decides which process may take a rank of a job, so that two jobs that name one port cannot become one."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tstatic.errors import RankFailedError

# Said by every rank, so that a port scanner, or another library's rendezvous, is not taken for one.
PROTOCOL = "tstatic"
OTHER_PORT = "choose another MASTER_PORT for one of the jobs, and start each rank once"


def _age() -> float:
    """Returns the seconds since this process started."""
    try:
        # The command's name may contain spaces and parentheses, so count fields from the last one.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return max(0.0, time.monotonic() - _imported)


_imported = time.monotonic()
_token: tuple[int, str] = (0, "")


@dataclass(frozen=True, slots=True)
class Claimant:
    """A process that asks for a rank.

    Attributes:
        host: Name of its machine.
        pid: Its process id there.
        token: A random text, different for any two processes.
        age: Seconds since it started; ages of processes on several machines can be compared, their clocks cannot.
    """

    host: str
    pid: int
    token: str
    age: float

    @classmethod
    def here(cls) -> Claimant:
        """Returns this process."""
        global _token
        if _token[0] != os.getpid():  # a forked child is another process
            _token = os.getpid(), uuid.uuid4().hex
        return cls(socket.gethostname(), os.getpid(), _token[1], _age())

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Claimant:
        """Reads the claimant that a message of :meth:`Admission.request` describes.

        Raises:
            ValueError: If the message lacks a part.
        """
        try:
            return cls(
                # Cut off: whoever connects may send anything, and errors show it.
                str(message["host"])[:255],
                int(message["pid"]),
                str(message["token"])[:64],
                float(message["age"]),
            )
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError("no claimant") from error

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Admission:
    """The rules by which rank 0 admits processes to its job, and a process introduces itself.

    Args:
        rank: This process's rank.
        size: Number of ranks.
        job: The launcher's name of this job; empty if the launcher gives none, or none started this process.
        run: A text that differs between restarts of a job.
        me: This process.

    Attributes:
        holders: The process that has each rank.
    """

    def __init__(self, rank: int, size: int, job: str, run: str, me: Claimant | None = None) -> None:
        self.rank, self.size, self.job, self.run = rank, size, job, run
        self.me = me or Claimant.here()
        self.holders: dict[int, Claimant] = {rank: self.me}

    def request(self) -> dict[str, Any]:
        """Returns the message with which this process asks for its rank."""
        me = self.me
        return {
            "protocol": PROTOCOL, "run": self.run, "size": self.size, "job": self.job, "rank": self.rank,
            "host": me.host, "pid": me.pid, "token": me.token, "age": me.age,
        }  # fmt: skip

    @staticmethod
    def is_request(message: Mapping[str, Any]) -> bool:
        """Returns whether a message comes from a rank at all."""
        rank = message.get("rank")
        return message.get("protocol") == PROTOCOL and type(rank) is int and rank >= 0

    def stranger(self, message: Mapping[str, Any]) -> str:
        """Returns why the sender belongs to another job than this one; empty if it may belong to this one."""
        job = str(message.get("job", ""))[:255]
        # Only names that both have tell two jobs apart: some launchers give none.
        if job and self.job and job != self.job:
            return f"the port belongs to job '{self.job}', and this rank belongs to job '{job}'"
        if message.get("size") != self.size or message["rank"] >= self.size:
            return f"the job at the port has {self.size} processes, this rank's has {message.get('size')}"
        if message.get("run") != self.run:
            return f"the job at the port is at restart {self.run}, this rank at restart {message.get('run')}"
        return ""

    def taken(self, rank: int, newcomer: Claimant) -> str:
        """Returns a sentence that names both processes that have a rank."""
        return f"is started twice: {self.holders[rank]} has it, and {newcomer} asks for it"


def refused(request: Admission, port: int, why: str) -> RankFailedError:
    """Returns the error of a process to which the job at a port gave no rank."""
    return RankFailedError(
        f"rank {request.rank} of {request.size} was not admitted at port {port}: {why}",
        expected="one job at a port, whose ranks are started once each",
        received=f"this is {request.me}",
        fix=OTHER_PORT,
    )


__all__ = ["OTHER_PORT", "PROTOCOL", "Admission", "Claimant", "refused"]
