"""Processes that share tests: each takes the next that nobody has; one watches, tells what ends a process, and starts the next.

Needs the standard library alone, on both sides.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packfile import Json, Lines

LOST = 70
"""Exit code of a worker whose device was lost in a test, which it told itself."""
START_S = 180.0
"""What a worker may take before its first test and behind one, however little patience there is with a test."""
GRACE_S = 10.0
"""What a test may take beyond the end of the time."""
TRACE_S = 3.0
"""What a worker may take to say where it hangs."""
PROGRESS_S = 30.0
FATAL, THREAD = "Fatal Python error", "Current thread"


class Claims:
    """What is to be done by one of several processes: who makes the file does it.

    Args:
        folder: Common to the processes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, kind: str, name: str = "") -> bool:
        """Returns whether it is this process's to do: nobody has taken it before."""
        path = self.folder / f"{kind}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:32]}"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def count(self, kind: str) -> int:
        """Returns how many of a kind were taken."""
        return sum(1 for _ in self.folder.glob(f"{kind}-*"))

    def done(self, number: int) -> Path:
        """The file by which a worker says that it has no more to do."""
        return self.folder / f"finished-{number}"


@dataclass
class _Worker:
    """A process, and the test that it has in hand.

    Attributes:
        number: Counts the processes.
        process: The process.
        said: What it wrote to its standard error.
        since: When it last began or ended a test (``time.monotonic``).
        test: The last test that it began; none is ``""``.
        told: Whether that test's line is there.
        patience: Seconds that it may take.
    """

    number: int
    process: subprocess.Popen[bytes]
    said: Path
    since: float = field(default_factory=time.monotonic)
    test: str = ""
    told: bool = False
    patience: float = 0.0


class Supervisor:
    """Starts workers, and watches them until no test is left or the time is up.

    Each adds lines to one file, with its number as ``worker``: ``begin`` before a test, ``test`` behind it. A test whose worker
    dies, or takes longer than the patience, gets its ``test`` line here, and another worker goes on behind it. A ``begin`` line may
    state a ``patience`` of its own.

    Args:
        command: Starts a worker, given its number.
        lines: The file of results.
        claims: Shared by the workers.
        count: How many run at once; what one alone prints is shown, that of several is not.
        end: When no test is begun any more (``time.time``).
        patience: Seconds that a test may take.
        environment: Of the workers.
        say: Prints a line.
        unit: What a worker does one after the other: the ``what`` of the lines behind each.
        start: Seconds that a worker may take before its first test and behind one.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        lines: Lines,
        claims: Claims,
        *,
        count: int,
        end: float,
        patience: float,
        environment: Mapping[str, str],
        say: Callable[[str], None] = print,
        unit: str = "test",
        start: float = START_S,
    ) -> None:
        self.command = command
        self.lines = lines
        self.claims = claims
        self.count = count
        self.end = end
        self.patience = patience
        self.environment = dict(environment)
        self.say = say
        self.unit = unit
        self.start = start
        self.codes: list[int] = []
        """Exit codes of workers that ended by themselves."""
        self.started = 0
        self._running: dict[int, _Worker] = {}
        self._seen = 0
        self._counts = {"passed": 0, "failed": 0, "skipped": 0}
        self._told_errors = False

    def run(self) -> None:
        """Returns when all workers have ended."""
        spoke = time.monotonic()
        try:
            for _ in range(self.count):
                self._start()
            while self._running:
                time.sleep(0.05)
                # In this order: what a process wrote before it ended is read.
                codes = {n: worker.process.poll() for n, worker in self._running.items()}
                self._read()
                for number, code in codes.items():
                    if code is not None:
                        self._ended(self._running.pop(number), code)
                    else:
                        self._hangs(self._running[number])
                if time.monotonic() - spoke > PROGRESS_S:
                    spoke = time.monotonic()
                    self.say(", ".join(f"{n} {what}" for what, n in self._counts.items()) + " so far")
                if time.time() > self.end + GRACE_S and self._running:
                    self._stop()
        finally:
            for worker in self._running.values():
                _kill(worker.process)

    def _start(self) -> None:
        number = self.started
        self.started += 1
        said = self.claims.folder / f"said-{number}"
        shown = None if self.count == 1 else subprocess.DEVNULL
        with said.open("wb") as file:
            process = subprocess.Popen(
                self.command(number), stdin=subprocess.DEVNULL, stdout=shown, stderr=file,
                env=self.environment,
            )  # fmt: skip
        self._running[number] = _Worker(number, process, said)

    def _read(self) -> None:
        """Takes note of new lines; one that is still being written is left for the next time."""
        with self.lines.path.open("rb") as file:
            file.seek(self._seen)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]
        self._seen += len(text)
        for line in text.splitlines():
            # A process that is ended may leave half of one.
            with contextlib.suppress(ValueError):
                self._note(json.loads(line))

    def _note(self, line: Json) -> None:
        self._told_errors |= line["what"] == "error"
        if line["what"] == self.unit:
            self._counts[line["outcome"]] += 1
        worker = self._running.get(line.get("worker", -1))
        if worker is not None and line["what"] in ("begin", self.unit):
            worker.test, worker.told, worker.since = line["name"], line["what"] == self.unit, time.monotonic()
            worker.patience = line.get("patience", self.patience)

    # ------------------------------------------------------------------------------------------------ what ends a worker
    def _ended(self, worker: _Worker, code: int) -> None:
        if code == LOST:
            self._go_on()
        elif code >= 0 and self.claims.done(worker.number).exists():
            self.codes.append(code)
            if code not in (0, 1) and not self._told_errors and (said := _said(worker).strip()):
                self._error(worker, said[-1500:])
        else:
            how = f"the process ended with code {code}" if code >= 0 else f"{_signal(-code)} ended the process"
            self._died(worker, how)

    def _hangs(self, worker: _Worker) -> None:
        """Ends a worker that is at one test for too long."""
        patience = worker.patience if worker.test and not worker.told else max(self.patience, self.start)
        if time.monotonic() - worker.since <= patience:
            return
        _kill(worker.process, ask=True)
        self._read()
        del self._running[worker.number]
        self._died(worker, f"it did not end within {patience:g} s")

    def _died(self, worker: _Worker, how: str) -> None:
        """Tells of the test in hand, and has another worker go on; one that began no test would fare no better."""
        trace = fatal(_said(worker))
        where = next((text.strip() for text in trace.splitlines() if text.strip().startswith("File ")), "")
        error = f"{how}: {where}" if where else how
        why = f"{how}\n{trace}"
        if self.claims.done(worker.number).exists():
            self._error(worker, f"behind its last test, {worker.test or 'none'}, {why}")
        elif not worker.test:
            self._error(worker, f"before its first test {why}")
        else:
            if worker.told:
                error, why = f"when it was over, {error}", f"when it was over, {why}"
            self.lines.add(
                self.unit, name=worker.test, outcome="failed", seconds=time.monotonic() - worker.since, launched=0,
                worker=worker.number, error=error, why=why,
            )  # fmt: skip
            self.say(f"{worker.test}: {error}")
            self._go_on()

    def _error(self, worker: _Worker, text: str) -> None:
        """Adds a line, if no worker's says the same."""
        if self.claims.take("error", text):
            self.lines.add("error", stage="worker", worker=worker.number, error=text)

    def _go_on(self) -> None:
        if time.time() <= self.end:
            self._start()
        else:
            self.stopped("the time was up when a process had ended")

    def _stop(self) -> None:
        """Ends what still runs when the time has been up for a while."""
        names = [worker.test for worker in self._running.values() if worker.test and not worker.told]
        for worker in self._running.values():
            _kill(worker.process)
        self._running.clear()
        self.stopped(f"the time was up in {', '.join(names)}" if names else "the time was up before all was done")

    def stopped(self, why: str) -> None:
        """Says once that the time was up."""
        if self.claims.take("stopped"):
            self.lines.add("stopped", why=why)


def _kill(process: subprocess.Popen[bytes], ask: bool = False) -> None:
    """Ends a process; if asked, it says first where it is (``faulthandler``)."""
    if ask:
        process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TRACE_S)
    process.kill()
    process.wait()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _said(worker: _Worker) -> str:
    return worker.said.read_text(errors="replace")


def fatal(said: str, most: int = 3000) -> str:
    """Returns the last fatal error in what a process wrote, and the frames of the thread that had it, innermost first."""
    at = said.rfind(FATAL)
    if at < 0:
        return said.strip()[-most // 2 :]
    text = said[at:]
    # Other threads may come first, and be longer than what is kept.
    head, thread = text.partition("\n")[0], text.find(THREAD)
    return f"{head}\n{text[thread:]}"[:most] if thread >= 0 else text[:most]
