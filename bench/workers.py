"""The driver's side: worker processes, and the turns that they take."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SETTLE_S = 0.1
"""Pause before a turn: helper threads of the peer before spin for a while after their last work."""


class WorkerError(RuntimeError):
    """A worker could not do what it was asked."""


class Worker:
    """One peer in a process of its own, with a fixed number of threads."""

    def __init__(self, python: str, script: str, arguments: Sequence[str], threads: int) -> None:
        limits = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "FLAGS_paddle_num_threads")
        self._process = subprocess.Popen(
            [python, str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if not os.environ.get("TSTATIC_BENCH_STDERR") else None,
            text=True,
            env=os.environ | {name: str(threads) for name in limits} | {"GLOG_minloglevel": "3"},
        )

    def ask(self, **message: Any) -> dict[str, Any]:
        """Sends a message and waits for the reply.

        Raises:
            WorkerError: If the worker reports an error or has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            tail = self._process.stderr.read()[-400:].strip() if self._process.stderr else ""
            last = tail.splitlines()[-1] if tail else f"exit code {self._process.poll()}"
            raise WorkerError(f"the worker ended: {last}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply

    def close(self) -> None:
        """Ends the process."""
        if self._process.poll() is None:
            try:
                assert self._process.stdin is not None
                self._process.stdin.close()
                self._process.wait(10)
            except (subprocess.TimeoutExpired, OSError):
                self._process.kill()
                self._process.wait()


@dataclass
class Peer:
    """One column of the table: which worker it is, and what was measured.

    Attributes:
        name: ``tstatic``, ``torch``, ``torch fused``, ``paddle``, ``bare``, ``null``.
        threads: Number of threads.
        case: What the worker is asked to prepare.
        command: Interpreter, script, arguments.
        missing: Why there is no measurement; empty if there is.
        seconds: Seconds of each timed step, by round.
        facts: What ``prepare`` told.
        cpu: CPU seconds used during the timed steps.
    """

    name: str
    threads: int
    case: str
    command: tuple[str, str, tuple[str, ...]]
    missing: str = ""
    seconds: list[list[float]] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    cpu: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.name}@{self.threads}"

    @property
    def steps(self) -> list[float]:
        return [s for part in self.seconds for s in part]

    def summary(self) -> dict[str, Any]:
        """What goes into the JSON file."""
        if self.missing:
            return {"name": self.name, "threads": self.threads, "missing": self.missing}
        steps = sorted(self.steps)
        return {
            "name": self.name,
            "threads": self.threads,
            "min_s": steps[0],
            "median_s": statistics.median(steps),
            "p90_s": steps[min(len(steps) - 1, int(0.9 * len(steps)))],
            "rounds_median_s": [statistics.median(part) for part in self.seconds],
            "cpu_s_per_step": self.cpu / len(steps),
            "steps": len(steps),
            "values": self.values[:5],
            **self.facts,
        }


def measure(peers: Sequence[Peer], rounds: int, turn_s: float, say: Any = None) -> None:
    """Lets the peers take turns: each round, each peer runs its steps for about ``turn_s`` seconds.

    The order is turned by one each round, so that none always follows the same neighbour. What fails is recorded in
    ``missing`` and left out.
    """
    workers: dict[str, Worker] = {}
    try:
        for peer in peers:
            if peer.missing:
                continue
            if say:
                say(f"preparing {peer.key}")
            try:
                worker = workers[peer.key] = Worker(*peer.command, peer.threads)
                peer.versions = worker.ask(do="facts")
                peer.facts = worker.ask(do="prepare", case=peer.case, threads=peer.threads)
                warm = worker.ask(do="run", steps=3)
                peer.values = [peer.facts["first_value"], *warm["values"]]
                peer.facts["steps_a_turn"] = max(3, min(2000, int(turn_s / max(min(warm["seconds"]), 1e-6))))
            except WorkerError as error:
                peer.missing = str(error)
        for turn in range(rounds):
            order = [*peers[turn % len(peers) :], *peers[: turn % len(peers)]]
            for peer in order:
                if peer.missing:
                    continue
                if say:
                    say(f"round {turn + 1} of {rounds}: {peer.key}")
                time.sleep(SETTLE_S)
                try:
                    workers[peer.key].ask(do="run", steps=1)
                    reply = workers[peer.key].ask(do="run", steps=peer.facts["steps_a_turn"])
                except WorkerError as error:
                    peer.missing = str(error)
                    continue
                peer.seconds.append(reply["seconds"])
                peer.cpu += reply["cpu"]
    finally:
        for worker in workers.values():
            worker.close()


def import_seconds(python: str, statement: str, times: int, path: str = "") -> list[float]:
    """Wall seconds of ``python -c statement``, each in a fresh process."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(
            [python, "-c", statement],
            check=True,
            capture_output=True,
            env=os.environ | ({"PYTHONPATH": path} if path else {}),
        )
        found.append(time.perf_counter() - start)
    return found


def paddle_python() -> tuple[str, str]:
    """The interpreter of the environment that Paddle lives in, or the reason why there is none."""
    named = os.environ.get("TSTATIC_PADDLE_PYTHON", "")
    found = named or str(HERE.parent / ".venv-paddle" / "bin" / "python")
    if not Path(found).exists():
        return "", f"no {found}" if named else "no environment with Paddle; make one with `python bench/paddle_env.py`"
    return found, ""


def torch_missing() -> str:
    """Why torch cannot be measured, or the empty string."""
    done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True)
    return "" if done.returncode == 0 else f"torch is not installed for {sys.executable}"
