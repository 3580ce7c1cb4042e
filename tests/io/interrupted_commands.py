"""Ctrl-C at random moments of a process that reads through a shell command: ``python -m tests.io.interrupted_commands COUNT SEED``.

Each try is a fork that reads a data set until it is interrupted. Afterwards nothing that a command started may still run. Prints
how many tries there were, and how many commands had been started.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tstatic
from tests.io.test_file_dataset import inputs, made, running

LINE = "2 7 8 1 0 3 .5 1.5 .25"
PATIENCE = 30.0
"""Seconds that ended processes have to be gone; only a hang takes so long."""


def endless(pids: Path, path: str) -> None:
    """Reads a command that never ends, and has a child that would stay."""
    dataset = made("QueueDataset", [path], inputs(), pipe_command=f"echo $$ >> {pids}; sleep 300 & yes '{LINE}'")
    for _ in dataset.batches():
        pass


def again_and_again(pids: Path, path: str) -> None:
    """Starts commands and closes them, one after another."""
    dataset = made(
        "QueueDataset", [path], inputs(), batch_size=1, pipe_command=f"echo $$ >> {pids}; head -1; sleep 300"
    )
    while True:
        batches = dataset.batches()
        next(batches)
        batches.close()


def preloading(pids: Path, path: str) -> None:
    """Waits for a thread that reads."""
    memory = made("InMemoryDataset", [path], inputs())
    memory.set_pipe_command(f"echo $$ >> {pids}; cat; sleep 300 | cat")
    memory.preload_into_memory()
    memory.wait_preload_done()


WAYS: tuple[Callable[[Path, str], None], ...] = (endless, again_and_again, preloading)


def left(pids: Path) -> list[str]:
    """What still runs of the commands."""
    groups = pids.read_text().split() if pids.exists() else []
    return [line for group in groups for line in running(int(group))]


def main(count: int, seed: str) -> dict[str, int]:
    """Interrupts ``count`` processes; returns what was seen."""
    tstatic.enable_static()
    draw, started = random.Random(seed), 0
    for number in range(count):
        # Removed by hand: a block would be left by the interrupted fork, too.
        folder = tempfile.mkdtemp()
        pids, path = Path(folder, "pids"), Path(folder, "a.txt")
        path.write_text((LINE + "\n") * 3)
        child = os.fork()
        if not child:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            WAYS[number % len(WAYS)](pids, str(path))
            os._exit(7)
        # From the first command on, which is where a run spends its time.
        deadline = time.monotonic() + PATIENCE
        while not pids.exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(draw.random() * draw.choice((0.001, 0.01, 0.1)))
        os.kill(child, signal.SIGINT)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (130, -signal.SIGINT), f"try {number} of seed {seed}: exit code {code}"
        while (found := left(pids)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not found, f"try {number} of seed {seed}: still running: {found}"
        started += len(pids.read_text().split())
        shutil.rmtree(folder)
    return {"tries": count, "commands": started}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), sys.argv[2])))
