"""What ranks do that meet at a port which others use, too, or that never come there."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from tests.comm.cases import say
from tstatic import distributed
from tstatic.comm.processes import world


def waits(late: list[int], sign: str) -> None:
    """Adds up with the others until the sign comes; late ranks join only then."""
    rank = distributed.get_rank()
    while rank in late and not Path(sign).exists():
        time.sleep(0.01)
    peers = world()
    assert peers is not None
    total = np.ones(1, np.float32)
    peers.all_reduce([total])
    say(rank, os.getpid(), float(total[0]))
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline and rank not in late:
        peers.agree("step")
        time.sleep(0.01)


def again(times: int) -> None:
    """Leaves the group and joins it again, at the same port."""
    for _ in range(times):
        say(distributed.mean(float(distributed.get_rank())))
        distributed.destroy_process_group()


def ends_early(victim: int, how: str) -> None:
    """One rank ends before the others meet."""
    if distributed.get_rank() == victim:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raised":
            raise ValueError("no data")
        sys.exit({"ended": 0, "code": 3}[how])
    distributed.init_parallel_env()


def _main() -> None:
    if "torch" in sys.argv:
        import torch  # noqa: F401 - a process that has it can reach torchrun when it ends
    ends_early(int(sys.argv[1]), sys.argv[2])


if __name__ == "__main__":
    _main()
