"""Runs scripts one after the other, each in a process of its own with a share of the time; one that hangs is ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from packfile import Lines

HERE = Path(__file__).resolve().parent
GRACE_S = 20.0
"""What a part may take beyond its limit before it is ended."""
PATIENCE_S = 60.0
"""Without a new line for so long a part whose file is watched is ended."""
TRIES = 6
"""How often a part is begun anew after it died, or was ended."""
INTERPRETING = ("TRITON_INTERPRET", "TSTATIC_CPU_BACKEND")
"""Variables by which kernels would be interpreted."""


class Parts:
    """Scripts that share one budget of seconds.

    Args:
        results: The folder of results.
        name: Of the file in it that gets a line for each part.
        budget: Seconds for everything.
        dry_run: Has the scripts do without a GPU.
    """

    def __init__(self, results: Path, name: str, budget: float, dry_run: bool) -> None:
        self.results = results
        self.begun = time.time()
        self.end = self.begun + budget
        self.dry_run = dry_run
        self.lines = Lines(results, name, self.begun)

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.end - time.time()

    def part(
        self,
        name: str,
        limit: float,
        script: str,
        *arguments: str,
        more: Mapping[str, str] | None = None,
        last: Sequence[str] = (),
        watched: str = "",
    ) -> int | None:
        """Runs a script; returns its exit code, or ``None`` where it was not begun or had to be ended.

        Args:
            name: Of the part.
            limit: Seconds; the script knows them, too.
            script: File of this folder.
            arguments: What it is given behind the folder of results.
            more: Further environment.
            last: Arguments behind all others.
            watched: File of results that must grow at least every ``PATIENCE_S`` seconds.
        """
        if limit <= 0:
            self.lines.add("part", part=name, why="no time was left for it")
            print(f"{name}: no time is left for it", flush=True)
            return None
        print(f"== {name}, at most {limit:.0f} s", flush=True)
        command = [sys.executable, str(HERE / script), str(self.results), *arguments]
        command += ["--dry-run"] * self.dry_run + list(last)
        started = time.time()
        environment = {k: v for k, v in os.environ.items() if k not in INTERPRETING} | dict(more or {})
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        why = ""
        try:
            while process.poll() is None and not why:
                time.sleep(0.05)
                why = self._hangs(started, limit, watched)
            code = process.poll()
        finally:
            _end(process)
        seconds = time.time() - started
        if code is None:
            print(f"{name}: ended: {why}", flush=True)
            self.lines.add("part", part=name, code=None, seconds=seconds, why=f"it was ended: {why}")
        else:
            self.lines.add("part", part=name, code=code, seconds=seconds)
        return code

    def repeated(
        self,
        name: str,
        until: float,
        script: str,
        *arguments: str,
        more: Mapping[str, str] | None = None,
        watched: str = "",
    ) -> int | None:
        """Runs a script that goes on where it stood, again when it died or hung; returns the last code.

        Args:
            name: Of the part.
            until: When its time is up (``time.time``).
            script: File of this folder, which leaves out what its file of results has.
            arguments: What it is given behind the folder of results and its limit.
            more: Further environment.
            watched: As in :meth:`part`.
        """
        code: int | None = None
        for _ in range(TRIES):
            limit = until - time.time()
            code = self.part(name, limit, script, "--limit", f"{limit:.0f}", *arguments, more=more, watched=watched)
            if code in (0, 2) or limit <= 0:
                break
        return code

    def _hangs(self, started: float, limit: float, watched: str) -> str:
        """Why a script has to be ended; empty where it need not be."""
        if time.time() >= started + limit + GRACE_S:
            return f"it did not stop within {limit + GRACE_S:.0f} s"
        path = self.results / watched
        if watched and time.time() - max(started, path.stat().st_mtime if path.exists() else 0) > PATIENCE_S:
            return f"it added no line to {watched} for {PATIENCE_S:g} s"
        return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and those that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 9)
    process.wait()


def last_record(name: str, results: Path) -> Path | None:
    """The file of that name in the newest folder of results but this run's own; ``None`` where there is none."""
    found = [path for path in (HERE.parent / "results").glob(f"gpu-*/{name}") if path.parent != results]
    return max(found, key=lambda path: path.parent.name, default=None)
