"""What processes are told when they start: who they are, as Paddle's variables; and how their end is awaited."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tstatic import flags

_FOREIGN = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID",
    "SLURM_NTASKS", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM",
)  # fmt: skip
"""Variables by which another launcher says who this process is; its children are somebody else."""

_PAUSE = 0.02


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Returns ports of this machine that nobody listens at."""
    held = []
    try:
        for _ in range(count):
            held.append(socket.create_server((host, 0)))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


def environment(
    endpoints: Sequence[str], rank: int, local_rank: int, job: str, nodes: int = 1, device: str | None = None
) -> dict[str, str]:
    """Returns the variables of one process.

    Args:
        endpoints: The addresses of all processes, as ``host:port``.
        rank: Its number; ``local_rank``: its number on its machine.
        local_rank: Its number on its machine.
        job: A text that no other start has, by which its processes know each other.
        nodes: Number of machines.
        device: Number of its GPU.
    """
    made = {
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(len(endpoints)),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_RANK_IN_NODE": str(local_rank),
        "PADDLE_LOCAL_RANK": str(local_rank),
        "PADDLE_GLOBAL_RANK": str(rank),
        "PADDLE_GLOBAL_SIZE": str(len(endpoints)),
        "PADDLE_MASTER": endpoints[0],
        "PADDLE_NNODES": str(nodes),
        "PADDLE_JOB_ID": job,
    }
    return made if device is None else made | {"FLAGS_selected_gpus": device}


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns variables without those of another launcher."""
    return {k: v for k, v in environ.items() if k not in _FOREIGN and not k.startswith("TORCHELASTIC_")}


class Child(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int | None: ...

    def code(self) -> int | None:
        """Returns the exit code; ``None`` while it runs."""


def first_failure(
    children: Sequence[Child], ended: Callable[[Sequence[int | None]], None] = lambda codes: None
) -> int | None:
    """Waits until all have ended well, or one has not: then ends the others; returns the number of the first to fail.

    The others get ``FLAGS_failure_grace_s`` and two seconds more to say which rank failed, as they do by themselves.

    Args:
        children: The processes.
        ended: Called again and again with their exit codes, ``None`` of those that run.
    """
    while True:
        codes = [child.code() for child in children]
        ended(codes)
        failed = next((i for i, code in enumerate(codes) if code), None)
        if failed is not None:
            stop(children, float(flags.flag("FLAGS_failure_grace_s")) + 2.0, ended)
            return failed
        if all(code == 0 for code in codes):
            return None
        time.sleep(_PAUSE)


def stop(
    children: Sequence[Child], grace: float, ended: Callable[[Sequence[int | None]], None] = lambda codes: None
) -> None:
    """Waits for processes to end, then ends them, at last by force.

    Args:
        children: The processes.
        grace: Seconds to wait first.
        ended: As of :func:`first_failure`.
    """
    for number, seconds in ((0, grace), (signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
        left = [child for child in children if child.code() is None]
        for child in left:
            if number and child.pid is not None:
                os.kill(child.pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(child.code() is None for child in left):
            ended([child.code() for child in children])
            time.sleep(_PAUSE)


__all__ = ["Child", "environment", "first_failure", "free_ports", "stop", "without_launcher"]
