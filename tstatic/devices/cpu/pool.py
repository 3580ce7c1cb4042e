"""Runs the tiles of a step in worker threads; tiles are fixed, so results do not depend on the number of threads."""

from __future__ import annotations

import itertools
import operator
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from tstatic.devices.cpu.blas import hold
from tstatic.devices.step import calls_bytes
from tstatic.errors import DeviceError, ForkedProcessError
from tstatic.ir.recording import Call
from tstatic.locks import lock

Tile = Sequence[Call]


class TileFailed(Exception):  # noqa: N818
    """Raised if a call of a tile raised (``__cause__``); has the tile, and the number of its calls that were done before."""

    def __init__(self, tile: int, done: int) -> None:
        super().__init__(tile, done)
        self.tile = tile
        self.done = done


def check_process(pid: int, fix: str) -> None:
    """Checks that worker threads exist in this process.

    Raises:
        ForkedProcessError: In a forked child of ``pid``, where they stayed.
    """
    if os.getpid() != pid:
        raise ForkedProcessError(
            "an Executor's worker threads do not exist in a forked child process",
            expected=f"the process that made them (pid {pid})",
            received=f"pid {os.getpid()}",
            fix=fix,
        )


class Job:
    """Tiles of work, bound once per thread (scratch buffers differ), and the count of those taken."""

    __slots__ = ("bound", "count", "error", "tickets")

    def __init__(self, bound: Sequence[Sequence[Tile]], count: int) -> None:
        self.bound = bound
        self.count = count
        self.tickets = itertools.count()
        self.error: tuple[BaseException, int, int] | None = None

    def work(self, thread: int) -> None:
        if not self.count:
            return
        tiles = self.bound[thread]
        last = self.count - 1
        tickets = self.tickets
        index = 0
        running: Iterator[Call] = iter(())
        try:
            while self.error is None:
                index = next(tickets)
                if index >= self.count:
                    return  # `next` on a C counter is atomic, so no two threads take the same tile
                running = iter(tiles[index])
                for function, args in running:
                    function(*args)
        except BaseException as error:
            # An interrupt may arrive between two tiles, or after the last.
            index = min(index, last)
            self.error = error, index, max(0, len(tiles[index]) - operator.length_hint(running) - 1)


class Pool:
    """``threads - 1`` helpers; the caller works too.

    Each helper gets jobs through its own queue, and returns them through the pool's: queues written in C, which take the
    interpreter's lock as rarely as bare locks do. A returned job is compared with the awaited one, so a job that an
    exception left in a queue does not count as the end of a later one. Waking a helper costs 10 to 100 microseconds,
    so only heavy steps are cut into tiles.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.pid = os.getpid()
        self._orders: list[queue.SimpleQueue[Job | None]] = [queue.SimpleQueue() for _ in range(threads - 1)]
        self._done: queue.SimpleQueue[Job] = queue.SimpleQueue()
        # Two executors may share the pool of a size; a job has all helpers.
        self._busy = threading.Lock()
        self._must_drain = False
        self._helpers = [
            threading.Thread(
                target=_help, args=(self._orders[i], self._done, i + 1), name=f"tstatic-worker-{i + 1}", daemon=True
            )
            for i in range(threads - 1)
        ]
        for helper in self._helpers:
            helper.start()

    def run(self, bound: Sequence[Sequence[Tile]]) -> None:
        """Runs all tiles; returns when all are done.

        An exception that is not a tile's own (Ctrl-C) is raised after all helpers have stopped.

        Args:
            bound: ``bound[thread][tile]`` is a list of calls.

        Raises:
            TileFailed: If a tile failed; its cause is the first error.
            ForkedProcessError: In a forked child, because the threads stayed in the parent.
            DeviceError: If a helper's thread has ended.
        """
        check_process(self.pid, "start the child with the 'spawn' method, or make a new Executor in it")
        with self._busy:
            if self._must_drain:
                self._drain()
            job = Job(bound, len(bound[0]))
            # Before the first order: an interrupt from here on leaves it unknown which helpers have the job.
            self._must_drain = True
            try:
                # No more helpers than tiles: each that is woken costs the caller time.
                helpers = min(self.threads, job.count) - 1
                for orders in self._orders[:helpers]:
                    orders.put(job)
                # The caller takes tiles as well, instead of waiting for helpers to wake.
                job.work(0)
                self._wait(job, helpers)
                self._must_drain = False
            finally:
                if self._must_drain:
                    # Interrupted: no further tile may begin, and none may write into memory that the caller continues to use.
                    job.error = job.error or (InterruptedError(), 0, 0)
                    self._drain()
            if job.error is not None:
                error, tile, done = job.error
                if not isinstance(error, Exception):
                    raise error
                raise TileFailed(tile, done) from error

    @staticmethod
    def kept_bytes(bound: Sequence[Sequence[Tile]]) -> int:
        """Returns about how many bytes the calls of :meth:`run` keep."""
        return sum(calls_bytes(task) for thread in bound for task in thread)

    def _wait(self, job: Job, helpers: int) -> None:
        """Waits until ``helpers`` helpers have finished a job."""
        while helpers:
            try:
                # With a time-out, because a thread that ended does not answer.
                helpers -= self._done.get(timeout=_SLICE) is job
            except queue.Empty:
                ended = sum(not helper.is_alive() for helper in self._helpers)
                if ended or sys.is_finalizing():
                    raise DeviceError(
                        "a step needs worker threads that have ended",
                        expected="a program that runs its steps before Python ends",
                        received="Python that is ending"
                        if not ended
                        else f"{ended} of {len(self._helpers)} threads ended",
                        fix="run no program in __del__ or at the end of Python; else start the process again",
                    ) from None

    def _drain(self) -> None:
        """Waits until all helpers have finished all their jobs; if this is interrupted, the next caller repeats it."""
        held: BaseException | None = None
        while self._must_drain:
            try:
                # Queues are first in, first out: a helper that returns this job has finished all earlier ones.
                empty = Job((), 0)
                for orders in self._orders:
                    orders.put(empty)
                self._wait(empty, len(self._orders))
                self._must_drain = False
            except DeviceError:
                raise
            except BaseException as error:  # a second Ctrl-C
                held = error
        if held is not None:
            raise held

    def close(self) -> None:
        """Ends the helpers."""
        for orders in self._orders:
            orders.put(None)


_SLICE = 1.0
"""Seconds between checks that the helpers are alive: rare, as each wakes the caller, and soon enough for Python's end."""


def _help(orders: queue.SimpleQueue[Job | None], done: queue.SimpleQueue[Job], number: int) -> None:
    """Runs a helper. It references the queues and not the pool, so that an unused pool can be freed."""
    with np.errstate(all="ignore"):
        while True:
            job = orders.get()
            if job is None:
                return
            hold()  # each thread has a number of its own in some libraries
            job.work(number)
            done.put(job)
            del job


_pools: dict[tuple[int, int], Pool] = {}
_lock = lock()


def usable_cpus() -> int:
    """Returns the number of CPU cores on which this process may run."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def pool_of(threads: int) -> Pool | None:
    """Returns the process-wide pool of that size; ``None`` for one thread."""
    if threads <= 1:
        return None
    # By process: threads do not survive a fork, and the child needs a pool of its own.
    key = (os.getpid(), threads)
    with _lock:
        found = _pools.get(key)
        if found is None:
            found = _pools[key] = Pool(threads)
        return found
