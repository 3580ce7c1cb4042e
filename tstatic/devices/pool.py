"""Worker threads that share out the pieces of one step; pieces are fixed, so results do not depend on the number of threads."""

from __future__ import annotations

import itertools
import operator
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ForkedProcessError

Call = tuple[Callable[..., Any], tuple[Any, ...]]
Piece = Sequence[Call]


class PieceFailed(Exception):  # noqa: N818
    """A call of a piece raised (see ``__cause__``): which piece, and how many of its calls were done before."""

    def __init__(self, piece: int, done: int) -> None:
        super().__init__(piece, done)
        self.piece = piece
        self.done = done


class Job:
    """Pieces of work, bound once per thread (scratch buffers differ), and who has taken which."""

    __slots__ = ("bound", "count", "error", "tickets")

    def __init__(self, bound: Sequence[Sequence[Piece]]) -> None:
        self.bound = bound
        self.count = len(bound[0])
        self.tickets = itertools.count()
        self.error: tuple[BaseException, int, int] | None = None

    def work(self, thread: int) -> None:
        pieces = self.bound[thread]
        tickets = self.tickets
        index = 0
        running: Iterator[Call] = iter(())
        try:
            while self.error is None:
                index = next(tickets)
                if index >= self.count:
                    return
                running = iter(pieces[index])
                for function, args in running:
                    function(*args)
        except BaseException as error:
            self.error = error, index, len(pieces[index]) - operator.length_hint(running) - 1


class Pool:
    """``threads - 1`` helpers; the caller works too.

    A helper waits on a lock of its own: bare locks, because a semaphore of ``threading`` takes the interpreter's lock five
    times where one does. Waking a helper costs 10 to 100 microseconds, which is why only heavy steps are cut.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.pid = os.getpid()
        self.job: Job | None = None
        self._start = [threading.Lock() for _ in range(threads - 1)]
        self._done = [threading.Lock() for _ in range(threads - 1)]
        for lock in (*self._start, *self._done):
            lock.acquire()
        self._busy = threading.Lock()
        self._stop = False
        for index in range(threads - 1):
            threading.Thread(target=self._loop, args=(index,), name=f"tstatic-worker-{index + 1}", daemon=True).start()

    def _loop(self, index: int) -> None:
        start, done = self._start[index].acquire, self._done[index].release
        with np.errstate(all="ignore"):
            while True:
                start()
                if self._stop:
                    return
                job = self.job
                if job is not None:
                    job.work(index + 1)
                done()

    def run(self, bound: Sequence[Sequence[Piece]]) -> None:
        """Runs all pieces; returns when all are done.

        Args:
            bound: ``bound[thread][piece]`` is a list of calls.

        Raises:
            PieceFailed: From the first error.
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
                for index in range(helpers):
                    self._done[index].acquire()
                self.job = None
            if job.error is not None:
                error, piece, done = job.error
                raise PieceFailed(piece, done) from error

    def close(self) -> None:
        """Ends the helpers."""
        self._stop = True
        for lock in self._start:
            if lock.locked():
                lock.release()


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
