"""Worker threads that share out the pieces of one step; pieces are fixed, so results do not depend on the number of threads."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ForkedProcessError

Call = tuple[Callable[..., Any], tuple[Any, ...]]
Piece = Sequence[Call]


class Job:
    """Pieces of one step, bound once per thread (scratch buffers differ), and who has taken which."""

    __slots__ = ("bound", "count", "error", "tickets")

    def __init__(self, bound: Sequence[Sequence[Piece]]) -> None:
        self.bound = bound
        self.count = len(bound[0])
        self.tickets = itertools.count()
        self.error: BaseException | None = None

    def work(self, thread: int) -> None:
        pieces = self.bound[thread]
        tickets = self.tickets
        try:
            while self.error is None:
                index = next(tickets)
                if index >= self.count:
                    return
                for function, args in pieces[index]:
                    function(*args)
        except BaseException as error:
            self.error = error


class Pool:
    """``threads - 1`` helpers; the caller works too.

    A helper waits on a lock of its own; waking one costs about 10 microseconds, which is why only heavy steps are cut.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.pid = os.getpid()
        self.job: Job | None = None
        self._start = [threading.Semaphore(0) for _ in range(threads - 1)]
        self._done = threading.Semaphore(0)
        self._busy = threading.Lock()
        self._stop = False
        for index in range(threads - 1):
            threading.Thread(target=self._loop, args=(index,), name=f"tstatic-worker-{index + 1}", daemon=True).start()

    def _loop(self, index: int) -> None:
        with np.errstate(all="ignore"):
            while True:
                self._start[index].acquire()
                if self._stop:
                    return
                job = self.job
                if job is not None:
                    job.work(index + 1)
                self._done.release()

    def run(self, bound: Sequence[Sequence[Piece]]) -> None:
        """Runs all pieces; returns when all are done; raises the first error.

        Args:
            bound: ``bound[thread][piece]`` is a list of calls.

        Raises:
            ForkedProcessError: In a forked child: its threads stayed in the parent.
        """
        if os.getpid() != self.pid:
            raise ForkedProcessError(
                "an Executor's worker threads do not exist in a forked child process",
                expected=f"the process that made them (pid {self.pid})",
                received=f"pid {os.getpid()}",
                fix="start the child with the 'spawn' method, or make a new Executor in it",
            )
        with self._busy:
            job = Job(bound)
            self.job = job
            helpers = min(self.threads, job.count) - 1
            for index in range(helpers):
                self._start[index].release()
            try:
                job.work(0)
            finally:
                for _ in range(helpers):
                    self._done.acquire()
                self.job = None
            if job.error is not None:
                raise job.error

    def close(self) -> None:
        """Ends the helpers."""
        self._stop = True
        for semaphore in self._start:
            semaphore.release()


_pools: dict[tuple[int, int], Pool] = {}
_lock = threading.Lock()


def usable_cpus() -> int:
    """CPU cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def pool_of(threads: int) -> Pool | None:
    """The process-wide pool of that size; ``None`` for one thread."""
    if threads <= 1:
        return None
    key = (os.getpid(), threads)
    with _lock:
        found = _pools.get(key)
        if found is None:
            found = _pools[key] = Pool(threads)
        return found
