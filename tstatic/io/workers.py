"""Worker processes that make the batches of a DataLoader, in its sampler's order."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tstatic.io.errors import DataError
from tstatic.io.prefetch import ahead
from tstatic.io.shared import Empty, SharedReader, SharedWriter
from tstatic.io.watch import Watch
from tstatic.ir.export import export
from tstatic.locks import lock, rlock

Fetch = Callable[[Any], Any]
"""Makes the batch of a task, such as a list of numbers; ``END`` if no samples are left."""
END = object()
_STOP_S = 2.0
"""How long a worker may take to end before it is killed."""


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


_forking = rlock()


def start_forked(process: Any) -> None:
    """Starts a process of the "fork" method without Python 3.12's warning that there are threads, of BLAS for example.

    What the child runs takes no lock that a thread could have held: Python's own, tstatic's (``tstatic.locks``) and those of
    BLAS are free in it.
    """
    with _forking, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .*is multi-threaded", DeprecationWarning)
        process.start()


def leave_signals() -> None:
    """Gives up the handlers that this worker process inherited: its parent ends it, by SIGTERM, also after Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Workers:
    """Processes that fetch batches; those of a pool may serve several epochs.

    They are forked, unless ``multiprocessing.set_start_method`` was called: then its method is used.

    Args:
        make_fetch: Called in the worker at the start of an epoch, with a function that makes the arrays of batches.
        dataset: What ``get_worker_info`` shows.
        count: Number of processes.
        seed: The first worker's; the others count on from it.
        init: Called in each worker with its number.
        waiting: Tasks that each worker is given ahead.
        timeout: Seconds to wait for a batch; 0 waits for ever.
        shared: Passes arrays in shared memory, not through pipes.
    """

    def __init__(
        self,
        make_fetch: Callable[[Empty], Fetch],
        dataset: Any,
        count: int,
        seed: int,
        init: Callable[[int], Any] | None,
        waiting: int,
        timeout: float,
        shared: bool,
    ) -> None:
        self._waiting, self._timeout, self._epoch = waiting, timeout, 0
        self._pid = os.getpid()
        self._lock = lock()
        self._readers: list[SharedReader] = []
        self._processes: list[Any] = []
        self._watches: list[Watch] = []
        # By default a fork: data sets need not be picklable, and scripts need no guard around their main part.
        method = multiprocessing.get_start_method(allow_none=True) or "fork"
        context: Any = multiprocessing.get_context(method)
        for number in range(count):
            ours, theirs = context.Pipe()
            # A copy of an earlier worker's pipe would keep that worker alive when this process dies.
            inherited = [*self._readers, ours] if method == "fork" else []
            info = WorkerInfo(number, count, dataset, seed + number)
            process = context.Process(
                target=_work, args=(theirs, inherited, info, make_fetch, init, shared), daemon=True
            )
            try:
                start_forked(process)
            except OSError as error:
                ours.close()
                theirs.close()
                self.close()
                raise DataError(
                    f"DataLoader worker {number} of {count} could not be started",
                    expected=f"a system that lets this process start {count} more",
                    received=f"{type(error).__name__}: {error}",
                    fix="pass a smaller num_workers, or raise the limits of processes, open files and memory",
                ) from error
            theirs.close()
            self._readers.append(SharedReader(ours))
            self._processes.append(process)
            self._watches.append(Watch(process))

    def epoch(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """Yields the batches of the tasks in order; ends early if no worker has samples left, or a later epoch begins."""
        with self._lock:
            self._epoch = epoch = self._epoch + 1
        given = iter(tasks)
        turn = deque(range(len(self._readers)))
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
        while turn and len(asked) < self._waiting * len(self._readers):
            task = next(given, END)
            if task is END:
                turn.clear()
                return
            self._send(turn[0], (self._epoch, task, self._readers[turn[0]].freed()))
            asked.append(turn[0])
            turn.rotate(-1)

    def _deadline(self) -> float | None:
        return time.monotonic() + self._timeout if self._timeout else None

    def _send(self, worker: int, message: Any) -> None:
        try:
            self._readers[worker].send(message, self._watches[worker].until(self._deadline()))
        except TimeoutError:
            raise self._late(worker) from None
        except (EOFError, OSError):
            raise self._dead(worker) from None

    def _receive(self, worker: int) -> tuple[str, Any]:
        """Returns the next answer of a worker that belongs to this epoch."""
        wait = self._watches[worker].until(self._deadline())
        while True:
            try:
                epoch, kind, value = self._readers[worker].receive(wait)
            except TimeoutError:
                raise self._late(worker) from None
            except (EOFError, ConnectionError):
                raise self._dead(worker) from None
            if epoch == self._epoch:
                return kind, value

    def _late(self, worker: int) -> DataError:
        return DataError(
            f"DataLoader worker {worker} did not give a batch in {self._timeout} s",
            expected="a batch within the timeout",
            received=f"no whole batch from process {self._processes[worker].pid}, which is running or stopped",
            fix="pass a longer timeout, or 0",
        )

    def _dead(self, worker: int) -> DataError:
        process = self._processes[worker]
        process.join(_STOP_S)
        code = process.exitcode
        if code is None:
            how, received = "closed its pipe, and runs on", "no exit code"
        else:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            received = f"exit code {code}"
        return DataError(
            f"DataLoader worker {worker} (pid {process.pid}) {how}",
            expected="a worker that runs until the loader stops it",
            received=received,
            fix="try num_workers=0 to see what the data set does; SIGKILL often means that memory ran out",
        )

    def close(self) -> None:
        """Stops the processes; a forked copy of this object leaves them alone."""
        if os.getpid() != self._pid:
            return
        for reader, process in zip(self._readers, self._processes, strict=True):
            reader.close()
            process.terminate()
        for process in self._processes:
            process.join(_STOP_S)
            process.kill()  # does nothing to a process that has ended
            process.join()
        for watch in self._watches:
            watch.close()

    def __del__(self) -> None:
        self.close()


def _work(
    pipe: Connection,
    inherited: list[Any],
    info: WorkerInfo,
    make_fetch: Callable[[Empty], Fetch],
    init: Any,
    shared: bool,
) -> None:
    """Answers tasks ``(epoch, task, freed)`` with ``(epoch, "batch" | "end" | "error", value)`` until the pipe closes."""
    global _info
    for other in inherited:
        other.close()
    leave_signals()
    _info = info
    theirs = sys.modules.get("torch.utils.data._utils.worker")
    if theirs is not None:
        # A torch data set asks torch which worker it is in.
        theirs._worker_info = theirs.WorkerInfo(  # type: ignore[attr-defined]
            id=info.id, num_workers=info.num_workers, seed=info.seed, dataset=info.dataset
        )
    np.random.seed(info.seed % 2**32)
    random.seed(info.seed)
    failed = _attempt(init, info.id) if init is not None else None
    current, fetch = 0, None
    writer = SharedWriter(pipe, shared)
    # A thread takes the tasks, so that neither side waits for the other to read.
    for epoch, task, freed in ahead(lambda: _tasks(writer), 0):
        writer.begin(freed)
        answer = failed if failed is not None and failed[0] == "error" else None
        if answer is None and (epoch != current or fetch is None):
            kind, value = _attempt(make_fetch, writer.empty)
            if kind == "error":
                answer = kind, value
            else:
                current, fetch = epoch, value
        if answer is None:
            kind, value = _attempt(fetch, task)
            answer = ("end", None) if value is END else (kind, value)
        try:
            try:
                writer.send((epoch, *answer))
            except OSError:
                raise
            except Exception as error:
                writer.send((epoch, "error", _sendable(error)))
        except OSError:
            return  # the loader is gone


def _tasks(writer: SharedWriter) -> Iterator[Any]:
    """Yields what the loader sends; ends the process, whatever it is doing, when the loader is gone."""
    while True:
        try:
            yield writer.receive()
        except (EOFError, OSError):
            os._exit(0)


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
