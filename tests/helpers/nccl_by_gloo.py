"""NCCL between real processes on the memory of the CPU: gloo moves the values, and a call that hangs is ended by an abort."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed

from tests.helpers.gpu import Library
from tstatic.comm.transport.nccl import ID_BYTES, TYPES, NcclError
from tstatic.ir.types import dtype_of

DTYPES = {number: dtype_of(name).np for name, number in TYPES.items()}


class GlooNccl:
    """The library of one process: :class:`tstatic.comm.transport.nccl.Library`.

    Args:
        folder: Where the processes find each other.
        cuda: What stands in for ``torch.cuda``: a group that ends while it captures is part of the graph.
    """

    version = "0.0.0"
    where = __file__

    def __init__(self, folder: Path, cuda: Library) -> None:
        self._folder = folder
        self._cuda = cuda
        self._groups: dict[int, Any] = {}
        self._aborted: set[int] = set()
        self._queued: list[Callable[[], None]] | None = None

    def unique_id(self) -> bytes:
        return str(time.time_ns()).encode().rjust(ID_BYTES, b"0")

    def init_rank(self, size: int, unique_id: bytes, rank: int, device: int) -> int:
        store = torch.distributed.FileStore(str(self._folder / unique_id.decode().lstrip("0")), size)
        self._groups[len(self._groups) + 1] = torch.distributed.ProcessGroupGloo(store, rank, size, timedelta(days=1))
        return len(self._groups)

    def init_all(self, devices: Sequence[int]) -> list[int]:
        raise NotImplementedError

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        self._queued = []
        try:
            yield
            works = self._queued
            graph = self._cuda.capturing
            if graph is None:
                _each(works)
            else:
                graph.work.append(lambda: _each(works))
        finally:
            self._queued = None

    def _add(self, comm: int, work: Callable[[Any], Any]) -> None:
        """Starts some work of gloo and waits for it, unless the communicator is aborted meanwhile."""

        def run() -> None:
            started = work(self._groups[comm])
            while not _is_over(started):
                if comm in self._aborted:
                    raise NcclError("ncclGroupEnd", 3, "internal error", "the communicator was aborted")
                time.sleep(0.0005)
            if comm in self._aborted:
                raise NcclError("ncclGroupEnd", 3, "internal error", "the communicator was aborted")

        if self._queued is None:
            run()
        else:
            self._queued.append(run)

    def _sum(self, send: int, receive: int, count: int, dtype: int, comm: int, mine: Callable[[Any, int], Any]) -> None:
        """Sums in the widest type; ``mine`` returns what this rank, by its number, gets of the sum."""
        group = self._groups[comm]

        def start(one: Any) -> Any:
            given = _memory(send, count, dtype)
            wide = torch.from_numpy(given.astype(np.int64 if given.dtype.kind in "iu" else np.float64))

            def store() -> None:
                got = mine(wide.numpy(), group.rank())
                if got is not None:
                    _memory(receive, got.size, dtype)[...] = got

            return _Then(one.allreduce([wide]), store)

        self._add(comm, start)

    def all_reduce(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        self._sum(send, receive, count, dtype, comm, lambda total, rank: total)

    def reduce(self, send: int, receive: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        self._sum(send, receive, count, dtype, comm, lambda total, rank: total if rank == root else None)

    def reduce_scatter(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        size = self._groups[comm].size()
        self._sum(
            send, receive, count * size, dtype, comm, lambda total, rank: total[rank * count : (rank + 1) * count]
        )

    def broadcast(self, send: int, receive: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        options = torch.distributed.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        memory = _bytes(send if self._groups[comm].rank() == root else receive, count, dtype)
        self._add(comm, lambda one: one.broadcast([memory], options))

    def all_gather(self, send: int, receive: int, count: int, dtype: int, comm: int, stream: int) -> None:
        size, step = self._groups[comm].size(), count * DTYPES[dtype].itemsize
        rows = [_bytes(receive + rank * step, count, dtype) for rank in range(size)]
        self._add(comm, lambda one: one.allgather([rows], [_bytes(send, count, dtype).clone()]))

    def send(self, send: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        # Behind nothing: the other end may come later in its own group.
        memory = _bytes(send, count, dtype).clone()
        group = self._groups[comm]
        if group.rank() != peer:
            self._started = [*getattr(self, "_started", [])[-64:], group.send([memory], peer, 0)]
        else:
            self._own = memory

    def receive(self, receive: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        memory = _bytes(receive, count, dtype)
        if self._groups[comm].rank() == peer:
            memory.copy_(self._own)
        else:
            self._add(comm, lambda one: _Waited(one.recv([memory], peer, 0)))

    def async_error(self, comm: int) -> str:
        return ""

    def abort(self, comms: Sequence[int]) -> None:
        # Their groups stay: gloo ends the process if one goes while it is at work.
        self._aborted |= {*comms}

    destroy = async_error


def _each(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()


def _is_over(work: Any) -> bool:
    """Returns whether work has ended; what a dead process broke off never does, as with NCCL."""
    if not work.is_completed():
        return False
    try:
        work.wait()
    except RuntimeError:
        return False
    return True


class _Waited:
    """Work that is completed only by a wait."""

    def __init__(self, work: Any) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._wait, args=(work,), daemon=True)
        self._thread.start()

    def _wait(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            self._error = error

    def is_completed(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        if self._error is not None:
            raise self._error


class _Then:
    """Work, and what follows it."""

    def __init__(self, work: Any, then: Callable[[], None]) -> None:
        self._work, self._then, self._done = work, then, False

    def is_completed(self) -> bool:
        if not self._done and _is_over(self._work):
            self._then()
            self._done = True
        return self._done

    def wait(self) -> None:
        """It is waited for already."""


def _memory(address: int, count: int, dtype: int) -> Any:
    kind = DTYPES[dtype]
    memory: Any = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(memory, kind)


def _bytes(address: int, count: int, dtype: int) -> Any:
    return torch.from_numpy(_memory(address, count, dtype).view(np.uint8))


__all__ = ["GlooNccl"]
