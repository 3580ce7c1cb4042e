"""Processes that compile kernels, and may crash or hang: each is watched, and one that is gone costs what it worked on alone.

Scripts load this file by its path, where tstatic cannot be imported: it imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["CompilePool", "CompilePoolError", "Worker", "usable_environment"]

_TAIL = 2000
# Importing triton takes 0.2 s on an idle machine with warm disks.
_START_SECONDS = 60.0
# A compiler that waits for nothing in particular is killed after this many times its processor time, by the clock.
_PATIENCE = 5

LOST = "lost"
"""The key of an answer that the process did not give itself, as it is gone."""


SCRIPT = Path(__file__).with_name("aot_worker.py")
"""What a process runs."""


class CompilePoolError(Exception):
    """No process can compile.

    Attributes:
        received: What was seen.
        fix: What to do.
    """

    def __init__(self, what: str, received: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.received, self.fix = what, received, fix


class Worker:
    """A process that compiles; whatever happens in it, the caller lives on.

    Args:
        python: The interpreter.
        folder: For its files.
        environment: Its environment.
        timeout: Seconds of processor time for one job, and five times as many by the clock.
        script: What it runs.

    Attributes:
        triton: The version that it compiles with.

    Raises:
        CompilePoolError: If the interpreter cannot be started, or cannot import triton.
    """

    def __init__(
        self, python: str, folder: Path, environment: Mapping[str, str], timeout: float, script: Path = SCRIPT
    ) -> None:
        self._timeout = timeout
        handle, path = tempfile.mkstemp(prefix="stderr-", dir=folder)
        self._stderr = Path(path)
        # It is started in another folder.
        python = os.path.abspath(python) if os.sep in python else python
        try:
            # -P: the folder of the script holds modules of tstatic, which must not be found under their short names.
            self._process = subprocess.Popen(
                [python, "-P", str(script), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=handle,
                env=dict(environment),
                cwd=folder,
                encoding="utf-8",
                start_new_session=True,  # so that ptxas dies with it
            )
        except OSError as error:
            raise CompilePoolError(
                "the interpreter that should compile kernels cannot be started",
                f"{python}: {error.strerror}",
                "name one that has triton",
            ) from error
        finally:
            os.close(handle)
        self._said = 0
        hello = self._listen(max(timeout, _START_SECONDS))
        if "triton" not in hello:
            said = self._tail()
            self.close()
            raise CompilePoolError(
                "kernels cannot be compiled: this interpreter cannot import triton",
                "\n".join(filter(None, (f"{python}: {hello['error']}", said))),
                "install triton into it, or name another interpreter",
            )
        self.triton = str(hello["triton"])

    def ask(self, line: str) -> dict[str, Any]:
        """Compiles; "error" in the answer says why not. Afterwards the process may be gone: then the answer has :data:`LOST`."""
        assert self._process.stdin is not None
        self._said = self._stderr.stat().st_size
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it died; _listen says how
        answer = self._listen(self._timeout)
        if answer.get("error"):
            answer["error"] = "\n".join(filter(None, (answer["error"], self._tail())))
        return answer

    @property
    def alive(self) -> bool:
        """Whether another job can be given."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Ends the process and what it started; another thread may be in :meth:`ask`."""
        if self._process.returncode is None:  # afterwards its number may be another's
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the process and what it started, and closes the pipes."""
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _listen(self, seconds: float) -> dict[str, Any]:
        """Returns the next answer; kills a silent process when its time is up.

        Processor time counts, as a machine may be busy with other work, or stand still; at last the clock does.
        """
        assert self._process.stdout is not None
        answered, late = threading.Event(), threading.Event()
        before = _processor_seconds(self._process.pid)
        began = time.monotonic()

        def watch() -> None:
            left = seconds
            while not answered.wait(left):
                left = seconds - (_processor_seconds(self._process.pid) - before)
                if left <= 0 or time.monotonic() - began > _PATIENCE * seconds:
                    late.set()
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(self._process.pid, signal.SIGKILL)
                    return

        watcher = threading.Thread(target=watch, name="tstatic-aot-watch", daemon=True)
        watcher.start()
        line = self._process.stdout.readline()
        answered.set()
        watcher.join()
        if late.is_set():
            self._process.wait()
            return {"error": f"the compiler took longer than {seconds:g} s and was killed", LOST: "late"}
        if not line.endswith("\n"):
            code = self._process.wait()
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
            return {"error": f"the compiling process {how}", LOST: "died"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _tail(self) -> str:
        """Returns the last of what was written to stderr since the job was given; a failed pass may print megabytes."""
        with self._stderr.open("rb") as file:
            file.seek(max(self._said, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read().decode(errors="replace").strip()


def _processor_seconds(group: int) -> float:
    """Processor time of the processes of a group and of those that they waited for; the clock's where no /proc tells."""
    total = 0
    try:
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    # The command, in parentheses, may hold anything. Behind it: state, parent, group, ...
                    fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
                    if int(fields[2]) == group:
                        total += sum(map(int, fields[11:15]))
    except OSError:
        return time.monotonic()
    return total / os.sysconf("SC_CLK_TCK")


class CompilePool:
    """Some processes that take jobs from one heap, the largest first.

    A process is started when there is a job for it, takes the largest job that is there by then, and ends when there is none.
    Threads of this process wait for the answers; they do not keep it from ending.

    Args:
        count: Processes at most.
        start: Starts one.
        answered: ``(job, answer, version of triton)``: is told of each answer, in one thread at a time.
        ended: Is called once, when the last process has ended behind :meth:`seal`.

    Attributes:
        started: How many processes were started.
        error: What kept one from starting.
    """

    def __init__(
        self,
        count: int,
        start: Callable[[], Worker],
        answered: Callable[[str, dict[str, Any], str], None],
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.count = count
        self._start, self._answered, self._ended = start, answered, ended
        self._heap: list[tuple[float, int, str]] = []
        self._changed = threading.Condition()
        self._telling = threading.Lock()
        self._put = self._taking = self._threads = 0
        self._closed = self._sealed = False
        self._over = ended is None
        self._workers: set[Worker] = set()
        self.started = 0
        self.error: BaseException | None = None

    def put(self, jobs: Mapping[str, float]) -> None:
        """Adds jobs, each a line of JSON, with their sizes."""
        with self._changed:
            for line, size in jobs.items():
                self._put += 1
                heapq.heappush(self._heap, (-size, self._put, line if line.endswith("\n") else line + "\n"))
            for _ in range(min(self.count - self._taking, len(jobs))):
                self._taking += 1
                self._threads += 1
                threading.Thread(target=self._serve, name="tstatic-compile", daemon=True).start()

    def _next(self) -> str | None:
        with self._changed:
            if self._heap and not self._closed:
                return heapq.heappop(self._heap)[2]
            # Within the lock: whoever adds a job later starts another thread for it.
            self._taking -= 1
            return None

    def _serve(self) -> None:
        worker: Worker | None = None
        try:
            worker = self._replaced(None)
            while (line := self._next()) is not None:
                if not worker.alive:
                    worker = self._replaced(worker)
                answer = worker.ask(line)
                with self._telling:
                    if not self._closed:
                        self._answered(line, answer, worker.triton)
        except BaseException as error:  # told where the answers are waited for
            with self._changed:
                self.error = self.error or error
                self._heap.clear()
                self._taking -= 1
        finally:
            self._leave(worker)
            with self._changed:
                self._threads -= 1
                self._changed.notify_all()
            self._look_for_the_end()

    def seal(self) -> None:
        """Says that no further jobs come, but for those that an answer asks for."""
        with self._changed:
            self._sealed = True
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        with self._changed:
            if self._threads or not self._sealed or self._ended is None:
                return
            ended, self._ended = self._ended, None
        try:
            ended()
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _replaced(self, gone: Worker | None) -> Worker:
        self._leave(gone)
        made = self._start()
        with self._changed:
            self._workers.add(made)
            self.started += 1
            late = self._closed
        if late:
            made.kill()
        return made

    def _leave(self, worker: Worker | None) -> None:
        if worker is not None:
            with self._changed:
                self._workers.discard(worker)
            worker.close()

    def join(self) -> None:
        """Waits until all jobs have an answer; behind :meth:`seal` also until ``ended`` has returned.

        Raises:
            BaseException: What starting a process, or being told, raised.
        """
        with self._changed:
            while self._threads or (self._sealed and not self._over):
                self._changed.wait()
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Ends the processes; jobs without an answer get none."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            workers = list(self._workers)
        for worker in workers:
            worker.kill()


def usable_environment(**changes: str) -> dict[str, str]:
    """Returns this process's environment for processes that compile: they never interpret."""
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | changes
