"""Worker processes that make the batches of a DataLoader, in its sampler's order."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tstatic.io.errors import DataError
from tstatic.io.prefetch import ahead
from tstatic.ir.export import export
from tstatic.locks import lock

Fetch = Callable[[Any], Any]
"""Makes the batch of a task, such as a list of numbers; ``END`` if no samples are left."""
END = object()


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker process knows of itself.

    Attributes:
        id: Its number, from 0.
        num_workers: Number of workers.
        dataset: Its copy of the data set.
        seed: With which it seeded ``np.random`` and ``random``.
    """

    id: int
    num_workers: int
    dataset: Any
    seed: int


_info: WorkerInfo | None = None


@export("io.get_worker_info")
def get_worker_info() -> WorkerInfo | None:
    """Returns what a worker process of a DataLoader knows of itself; ``None`` in other processes.

    Returns:
        An object with ``id``, ``num_workers``, ``dataset`` and ``seed``.

    Example:
        >>> class Numbers(paddle.io.IterableDataset):
        ...     def __iter__(self):
        ...         info = paddle.io.get_worker_info()
        ...         yield from range(0 if info is None else info.id, 4, 2)
        >>> loader = paddle.io.DataLoader(Numbers(), batch_size=2, num_workers=2)
        >>> [np.array(batch).tolist() for batch in loader]
        [[0, 2], [1, 3]]
    """
    return _info


class Workers:
    """Processes that fetch batches; those of a pool may serve several epochs.

    Args:
        make_fetch: Called in the worker at the start of an epoch.
        dataset: What ``get_worker_info`` shows.
        count: Number of processes.
        seed: The first worker's; the others count on from it.
        init: Called in each worker with its number.
        waiting: Tasks that each worker is given ahead.
        timeout: Seconds to wait for a batch; 0 waits for ever.
    """

    def __init__(
        self,
        make_fetch: Callable[[], Fetch],
        dataset: Any,
        count: int,
        seed: int,
        init: Callable[[int], Any] | None,
        waiting: int,
        timeout: float,
    ) -> None:
        self._waiting, self._timeout, self._epoch = waiting, timeout, 0
        self._pid = os.getpid()
        self._lock = lock()
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        fork = multiprocessing.get_context("fork")  # data sets need not be picklable
        for number in range(count):
            ours, theirs = fork.Pipe()
            # A copy of an earlier worker's pipe would keep that worker alive when this process dies.
            inherited = [*self._pipes, ours]
            info = WorkerInfo(number, count, dataset, seed + number)
            process = fork.Process(target=_work, args=(theirs, inherited, info, make_fetch, init), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def epoch(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """Yields the batches of the tasks in order; ends early if no worker has samples left, or a later epoch begins."""
        with self._lock:
            self._epoch = epoch = self._epoch + 1
        given = iter(tasks)
        turn = deque(range(len(self._pipes)))
        asked: deque[int] = deque()
        while True:
            with self._lock:
                if epoch != self._epoch:
                    return
                self._ask(given, turn, asked)
                if not asked:
                    return
                worker = asked.popleft()
                kind, value = self._receive(worker)
            if kind == "batch":
                yield value
            elif kind == "error":
                raise value
            elif worker in turn:
                turn.remove(worker)

    def _ask(self, given: Iterator[Any], turn: deque[int], asked: deque[int]) -> None:
        """Gives the workers tasks in turn, as many as they may have ahead; nobody has a turn after the last task."""
        while turn and len(asked) < self._waiting * len(self._pipes):
            task = next(given, END)
            if task is END:
                turn.clear()
                return
            self._send(turn[0], (self._epoch, task))
            asked.append(turn[0])
            turn.rotate(-1)

    def _send(self, worker: int, message: Any) -> None:
        try:
            self._pipes[worker].send(message)
        except OSError:
            raise self._dead(worker) from None

    def _receive(self, worker: int) -> tuple[str, Any]:
        """Returns the next answer of a worker that belongs to this epoch."""
        while True:
            try:
                if self._timeout and not self._pipes[worker].poll(self._timeout):
                    raise DataError(
                        f"DataLoader worker {worker} did not give a batch in {self._timeout} s",
                        expected="a batch within the timeout",
                        received="nothing",
                        fix="pass a longer timeout, or 0",
                    )
                epoch, kind, value = pickle.loads(self._pipes[worker].recv_bytes())
            except (EOFError, ConnectionError):
                raise self._dead(worker) from None
            if epoch == self._epoch:
                return kind, value

    def _dead(self, worker: int) -> DataError:
        process = self._processes[worker]
        process.join()
        code = process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return DataError(
            f"DataLoader worker {worker} (pid {process.pid}) {how}",
            expected="a worker that runs until the loader stops it",
            received=f"exit code {code}",
            fix="try num_workers=0 to see what the data set does; SIGKILL often means that memory ran out",
        )

    def close(self) -> None:
        """Stops the processes; a forked copy of this object leaves them alone."""
        if os.getpid() != self._pid:
            return
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()
            process.terminate()
        for process in self._processes:
            process.join()

    def __del__(self) -> None:
        self.close()


def _work(pipe: Connection, inherited: list[Any], info: WorkerInfo, make_fetch: Callable[[], Fetch], init: Any) -> None:
    """Answers tasks ``(epoch, task)`` with ``(epoch, "batch" | "end" | "error", value)`` until the pipe closes."""
    global _info
    for other in inherited:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader's process ends the workers
    _info = info
    np.random.seed(info.seed % 2**32)
    random.seed(info.seed)
    failed = _attempt(init, info.id) if init is not None else None
    current, fetch = 0, None
    # A thread takes the tasks, so that neither side waits for the other to read.
    tasks = ahead(lambda: iter(pipe.recv, None), 0)
    try:
        for epoch, task in tasks:
            answer = failed if failed is not None and failed[0] == "error" else None
            if answer is None and (epoch != current or fetch is None):
                kind, value = _attempt(make_fetch)
                if kind == "error":
                    answer = kind, value
                else:
                    current, fetch = epoch, value
            if answer is None:
                kind, value = _attempt(fetch, task)
                answer = ("end", None) if value is END else (kind, value)
            try:
                message = pickle.dumps((epoch, *answer), pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                message = pickle.dumps((epoch, "error", _sendable(error)))
            pipe.send_bytes(message)
    except (EOFError, OSError):
        return  # the loader is gone


def _attempt(function: Any, *args: Any) -> tuple[str, Any]:
    try:
        return "batch", function(*args)
    except Exception as error:
        return "error", _sendable(error)


def _sendable(error: Exception) -> Exception:
    """Returns the exception with this worker's traceback as a note, or a DataError in its place if it cannot be sent."""
    assert _info is not None
    text = "".join(traceback.format_exception(error))
    note = f"In DataLoader worker {_info.id}:\n{text}"
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = DataError(f"DataLoader worker {_info.id} raised {type(error).__name__}", received=text)
    copy.__traceback__ = None
    copy.add_note(note)
    return copy
