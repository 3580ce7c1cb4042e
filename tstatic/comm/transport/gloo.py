"""Wraps gloo of torch.distributed in calls that can be polled and abandoned; of comm only this module and ``nccl`` import torch."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import stat
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np

from tstatic.comm.rendezvous import ProcessInfo, unreachable
from tstatic.errors import DTypeError, RankFailedError, needed_for

Array = np.ndarray[Any, Any]
T = TypeVar("T")

_FOREVER = timedelta(days=30)
"""Time-out of gloo itself, which never applies: this package has its own, whose errors name the rank."""
_REST = timedelta(milliseconds=5)
"""Longest blocking wait for work, before the caller polls and looks for failed ranks between polls."""
_NATIVE = frozenset(["float32", "float64", "int8", "uint8", "int32", "int64"])
"""Dtypes that gloo can sum."""

_PACKED = 1 << 16
"""Bytes up to which arrays are sent together: below, a call costs more than its bytes."""


def pack(arrays: Sequence[Array], strict: bool) -> tuple[list[tuple[Array, list[Array]]], Callable[[], None]]:
    """Returns flat contiguous arrays to sum, each with those whose values it has, and a function that copies sums back.

    Small arrays of a dtype are packed together.
    """
    large: list[tuple[Array, Array]] = []
    small: dict[np.dtype[Any], list[Array]] = {}
    for array in arrays:
        low = array.dtype.itemsize == 2 and array.dtype.kind in "fV"
        work = np.dtype(np.float32) if low and not strict else array.dtype
        if not low and work.name not in _NATIVE:
            raise DTypeError(
                f"arrays of {array.dtype} cannot be added over processes",
                expected="floats, int8, uint8, int32 or int64",
                received=str(array.dtype),
                fix="cast to int64 or float32 first",
            )
        if array.nbytes <= _PACKED and len(arrays) > 1:
            small.setdefault(work, []).append(array)
        else:
            fits = work == array.dtype and array.flags.c_contiguous and array.flags.aligned
            large.append((array, array.reshape(-1) if fits else array.astype(work).reshape(-1)))
    packed = [np.concatenate([a.reshape(-1).astype(work) for a in group]) for work, group in small.items()]

    def back() -> None:
        for array, flat in large:
            if not np.may_share_memory(array, flat):
                np.copyto(array, flat.reshape(array.shape), casting="unsafe")
        for flat, group in zip(packed, small.values(), strict=True):
            start = 0
            for array in group:
                np.copyto(array, flat[start : start + array.size].reshape(array.shape), casting="unsafe")
                start += array.size

    return [(flat, [array]) for array, flat in large] + list(zip(packed, small.values(), strict=True)), back


def _torch() -> Any:
    with needed_for("a run of several processes"):
        import torch.distributed

    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        raise RankFailedError(
            "this torch cannot connect processes",
            expected="torch built with distributed and gloo",
            received=f"torch {torch.__version__} without them",
            fix="install torch from its own wheels",
        )
    return torch


def check_torch() -> None:
    """Imports torch.

    Raises:
        MissingPackageError: If it is not installed.
        RankFailedError: If it cannot connect processes.
    """
    _torch()


class Store:
    """The table in which gloo's ranks look up each other's addresses.

    Args:
        launch: This process.
        port: The port of rank 0's table; ``None`` for rank 0 itself, which chooses a port.
        deadline: A time of ``time.monotonic``.
        agent: Whether torchrun's agent keeps the table, at the launch's own port.
        patient: Whether the caller can wait in a thread, which a process that ends cannot start any more.

    Raises:
        RankFailedError: If the table cannot be reached before the deadline.
    """

    def __init__(
        self, launch: ProcessInfo, port: int | None, deadline: float, agent: bool = False, patient: bool = True
    ) -> None:
        distributed = _torch().distributed
        # At least a second: a rank that comes late fails at what is wrong, not at a time-out of nothing.
        left = max(1.0, deadline - time.monotonic())
        mine = port is None and not agent
        at = launch.port if agent else port or 0

        def connect() -> Any:
            return distributed.TCPStore(
                launch.address, at, None, mine, timedelta(seconds=left), wait_for_workers=False, multi_tenant=not mine
            )

        try:
            # torch's own time-out ends half a second earlier, and says more than ours.
            table = connect() if mine or not patient else bounded(connect, left + 0.5)
        except Exception as error:
            why = str(error).strip().splitlines()[0]
            raise unreachable(launch, "torchrun" if agent else "rank 0", (launch.address, at), why) from error
        self.port: int = table.port
        # A launcher that restarts the ranks may keep the table.
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.table = distributed.PrefixStore(f"tstatic/{again}", table)

    def leave(self, name: str, text: str, deadline: float) -> None:
        """Writes a text for the other ranks."""
        bounded(lambda: self.table.set(name, text), max(1.0, deadline - time.monotonic()))

    def find(self, names: Sequence[str], deadline: float) -> tuple[str, str]:
        """Returns the first of the names that a rank has written, and its text; both empty if none does before the deadline."""

        def look() -> tuple[str, str]:
            while True:
                for name in names:
                    if self.table.check([name]):
                        return name, str(self.table.get(name).decode())
                if time.monotonic() >= deadline:
                    return "", ""
                time.sleep(0.02)  # each look is a request to the store

        # Half a second more than `look` itself takes: it ends by its own answer unless the store hangs.
        return bounded(look, max(1.0, deadline - time.monotonic() + 0.5))

    def under(self, name: str) -> Any:
        """Returns a separate part of the table, for some of the ranks."""
        return _torch().distributed.PrefixStore(name, self.table)


def bounded(call: Callable[[], T], seconds: float, name: str = "tstatic-store") -> T:
    """Runs a call into torch or NCCL, which may block for ever, in a thread.

    Args:
        call: The call.
        seconds: Time that it may take.
        name: Name of the thread.

    Raises:
        TimeoutError: If the call has not returned in time; its thread continues until the process ends.
    """
    done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((call(), None))
        except BaseException as error:
            done.put((None, error))

    # A daemon: Python must be able to end while torch hangs.
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        value, error = done.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(
            f"no answer within {seconds:.3g} s: another program holds that port, or the store hangs"
        ) from None
    # It has answered, and holds what the call used until it has ended: nothing may be destroyed there, behind the caller's back.
    thread.join()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


class Gloo:
    """Collectives of arrays; each call starts work and returns a function that tells whether the work has ended.

    Args:
        table: The table in which its ranks find each other; nothing else may use it.
        rank: This process's rank in the group.
        size: Number of ranks.
        host: Address at which the others reach this machine.
    """

    def __init__(self, table: Any, rank: int, size: int, host: str) -> None:
        self._torch = _torch()
        distributed = self._torch.distributed
        options = distributed.ProcessGroupGloo._Options()
        named = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
        make = distributed.ProcessGroupGloo.create_device
        options._devices = [make(interface=named) if named else make(hostname=host)]
        options._threads = 2
        options._timeout = _FOREVER
        before = _sockets()
        self._group: Any = distributed.ProcessGroupGloo(table, rank, size, options)
        # Its connections: shutting them down is the only way to stop running work.
        self._mine = {fd: node for fd, node in _sockets().items() if before.get(fd) != node}
        self.size = size
        self._works: list[Any] = []

    def _started(self, work: Any) -> Callable[[], bool]:
        # Kept while they run: `stop` must know what gloo may still write to. Dropped then: works hold their arrays.
        self._works = [w for w in self._works if not w.is_completed()]
        self._works.append(work)

        rested = False

        def ended() -> bool:
            nonlocal rested
            if not rested and not work.is_completed():
                rested = True
                # Most work ends within a millisecond: a blocking wait notices that sooner than polling does.
                with contextlib.suppress(RuntimeError):
                    work.wait(_REST)
            if not work.is_completed():
                return False
            work.wait()  # raises the work's error, if any
            return True

        return ended

    def _tensor(self, array: Array) -> Any:
        return self._torch.from_numpy(array)

    def add(self, array: Array) -> Callable[[], bool]:
        """Sums a contiguous array over the ranks, in place."""
        return self._started(self._group.allreduce([self._tensor(array)]))

    def gather(self, array: Array, out: Sequence[Array]) -> Callable[[], bool]:
        """Writes each rank's bytes into one array of ``out``; all are contiguous and of equal size."""
        tensors = [self._tensor(_bytes(one)) for one in out]
        return self._started(self._group.allgather([tensors], [self._tensor(_bytes(array))]))

    def exchange(self, array: Array, out: Array, sizes: Sequence[int], own: int) -> Callable[[], bool]:
        """Sends part ``r`` of a flat array, of ``sizes[r]`` elements, to rank ``r``; gets ``own`` from each into ``out``."""
        item = array.itemsize
        parts, mine = [size * item for size in sizes], [own * item] * self.size
        return self._started(
            self._group.alltoall_base(self._tensor(_bytes(out)), self._tensor(_bytes(array)), mine, parts)
        )

    def broadcast(self, array: Array, root: int) -> Callable[[], bool]:
        """Writes the root's bytes into each rank's contiguous array."""
        options = self._torch.distributed.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        return self._started(self._group.broadcast([self._tensor(_bytes(array))], options))

    def stop(self) -> bool:
        """Stops running work, so that it writes to no array any more; returns whether that worked."""
        nodes = _sockets()
        for fd, node in self._mine.items():
            # The number may belong to another file by now: the inode tells.
            if nodes.get(fd) == node:
                # Of a duplicate: closing it leaves gloo's own descriptor alone, whose number another file could get.
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as link:
                    if not link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        link.shutdown(socket.SHUT_RDWR)
        # A connection that is shut down ends its work in no time; a thread that hangs all the same is given up.
        deadline = time.monotonic() + 2.0
        while any(not work.is_completed() for work in self._works):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)  # nothing tells when gloo's work has ended
        return True

    def close(self) -> None:
        """Ends gloo's threads while Python still runs: they hold arrays, which only a running Python can free."""
        self._works.clear()
        self._group = None


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _sockets() -> dict[int, int]:
    """Returns this process's sockets: file descriptor -> inode."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            status = os.stat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found[int(name)] = status.st_ino
    return found


__all__ = ["Gloo", "Store", "pack"]
