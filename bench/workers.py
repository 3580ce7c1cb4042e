"""The driver's side: worker processes, and the turns that they take."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from own_kernels import plain

HERE = Path(__file__).resolve().parent
SETTLE_S = 0.1
"""Pause before a turn: helper threads of the peer before spin for a while after their last work."""
QUIET = 0.1
"""A turn counts as quiet when other processes used at most so many cores: with two threads on two cores, one job next to
them makes a step several times slower, and not for all peers alike."""


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
            env=plain(os.environ) | {name: str(threads) for name in limits} | {"GLOG_minloglevel": "3"},
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


def busy_seconds() -> float | None:
    """CPU seconds that the whole machine has worked so far; ``None`` where the system does not tell."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq, steal = (int(f) for f in fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Turn:
    """One turn of a peer.

    Attributes:
        seconds: Seconds of each timed step.
        cpu: CPU seconds that the worker used.
        others: Cores that everything else on the machine used meanwhile, on average.
    """

    seconds: list[float]
    cpu: float
    others: float

    @property
    def quiet(self) -> bool:
        return self.others <= QUIET


@dataclass
class Peer:
    """One column of the table: which worker it is, and what was measured.

    Attributes:
        name: ``tstatic``, ``torch``, ``torch fused``, ``paddle``, ``bare``, ``null``.
        threads: Number of threads.
        case: What the worker is asked to prepare.
        command: Interpreter, script, arguments.
        missing: Why there is no measurement; empty if there is.
        turns: What was measured.
        values: What the first steps returned (losses): equal nets give equal ones.
        facts, versions: What the worker told.
    """

    name: str
    threads: int
    case: str
    command: tuple[str, str, tuple[str, ...]]
    missing: str = ""
    turns: list[Turn] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.name}@{self.threads}"

    @property
    def quiet_turns(self) -> int:
        return sum(turn.quiet for turn in self.turns)

    def summary(self) -> dict[str, Any]:
        """What goes into the JSON file."""
        if self.missing:
            return {"name": self.name, "threads": self.threads, "missing": self.missing}
        # Turns next to other jobs are left out, unless there is nothing else.
        turns = [turn for turn in self.turns if turn.quiet] or self.turns
        steps = sorted(second for turn in turns for second in turn.seconds)
        return {
            "name": self.name,
            "threads": self.threads,
            "min_s": steps[0],
            "median_s": statistics.median(steps),
            "p90_s": steps[min(len(steps) - 1, int(0.9 * len(steps)))],
            "steps": len(steps),
            "turns": len(self.turns),
            "quiet_turns": self.quiet_turns,
            "turn_medians_s": [statistics.median(turn.seconds) for turn in self.turns],
            "turn_others_cores": [round(turn.others, 2) for turn in self.turns],
            "cpu_s_per_step": sum(turn.cpu for turn in turns) / len(steps),
            "values": self.values[:5],
            **self.facts,
        }


def _turn(worker: Worker, turn_s: float) -> Turn:
    time.sleep(SETTLE_S)
    worker.ask(do="run", least=1, for_s=0)
    before, start = busy_seconds(), time.perf_counter()
    reply = worker.ask(do="run", least=2, for_s=turn_s)
    wall, after = time.perf_counter() - start, busy_seconds()
    others = 0.0 if before is None or after is None else max(0.0, after - before - reply["cpu"]) / wall
    return Turn(reply["seconds"], reply["cpu"], others)


def _prepare(peer: Peer) -> Worker | None:
    worker = Worker(*peer.command, peer.threads)
    try:
        peer.versions = worker.ask(do="facts")
        peer.facts = worker.ask(do="prepare", case=peer.case, threads=peer.threads)
        peer.values = [peer.facts["first_value"], *worker.ask(do="run", least=3, for_s=0)["values"]]
    except WorkerError as error:
        peer.missing = str(error)
        worker.close()
        return None
    return worker


def measure(
    peers: Sequence[Peer], rounds: int, turn_s: float, patience_s: float, say: Callable[[str], None] = lambda text: None
) -> None:
    """Lets the peers take turns: each round, each peer repeats its step for about ``turn_s`` seconds.

    The order is turned by one each round, so that none always follows the same neighbour. Rounds are added, for at most
    ``patience_s`` seconds, until every peer has had ``rounds`` quiet turns. What fails is recorded in ``missing``.
    """
    workers: dict[str, Worker] = {}
    try:
        for peer in peers:
            if not peer.missing:
                say(f"preparing {peer.key}")
                worker = _prepare(peer)
                if worker is not None:
                    workers[peer.key] = worker
        deadline = time.monotonic() + patience_s
        for number in itertools.count():
            present = [p for p in peers if not p.missing]
            extra = number >= rounds
            if extra:
                present = [p for p in present if p.quiet_turns < rounds]
            if not present or (extra and time.monotonic() > deadline):
                break
            start = number % len(present)
            for peer in [*present[start:], *present[:start]]:
                say(f"round {number + 1}{' (waiting for quiet)' if extra else ''}: {peer.key}")
                try:
                    peer.turns.append(_turn(workers[peer.key], turn_s))
                except WorkerError as error:
                    peer.missing = str(error)
    finally:
        for worker in workers.values():
            worker.close()


def import_seconds(python: str, statement: str, times: int, path: str = "") -> list[float]:
    """Wall seconds of ``python -c statement``, each in a fresh process that may keep compiled files, as users' do."""
    found = []
    keep = {k: v for k, v in plain(os.environ).items() if k != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(
            [python, "-c", statement],
            check=True,
            capture_output=True,
            env=keep | ({"PYTHONPATH": path} if path else {}),
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
