"""Collectives between the replicas of one process: threads that wait for each other, and sums in a fixed order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tstatic.errors import RankFailedError

Array = np.ndarray[Any, Any]

ALIGNED = 64
"""The planner aligns values to multiples of this many bytes, so no other value fits into a smaller gap."""

_ALONE = 1 << 15
"""Elements up to which the last replica to arrive adds all: to share the work takes another rendezvous."""


_SLICE = 1.0
"""Seconds between a waiting replica's own checks whether the others arrived or stopped."""


class ReplicaStoppedError(RankFailedError):
    """Another replica failed, so this one stops at its next collective."""


class Outer(Protocol):
    """A group of processes, used by one replica on behalf of all of its process."""

    rank: int
    size: int

    def all_reduce(self, arrays: Sequence[Array], block: int = 0) -> None:
        """Sums arrays over the processes, in place; first within blocks of ``block`` neighbours, unless it is 0."""

    def all_gather(self, array: Array) -> Array:
        """Stacks the processes' arrays along a new first axis, in the order of their ranks."""

    def agree(self, label: str) -> None:
        """Returns when all processes have arrived."""


class _Round:
    """One exchange: the payload of each replica, and whether all have arrived."""

    __slots__ = ("done", "error", "label", "payloads")

    def __init__(self, size: int) -> None:
        self.payloads: list[Any] = [None] * size
        self.label = ""
        self.done = False
        self.error: BaseException | None = None


class Group:
    """The replicas of one process; each calls the same collectives in the same order from its own thread.

    Sums are taken in the order of the replicas, element by element, so the bits do not depend on which one arrives first.

    Args:
        size: Number of replicas.
        outer: The group of processes, if there are several.

    Attributes:
        across: Whether the other processes run this step, too; not for a program that does not exchange values.
        calls, moved: Number of collectives so far, and the bytes that one replica sent in them.
        waiting: Replicas that wait for the others inside a collective.
    """

    def __init__(self, size: int, outer: Outer | None = None) -> None:
        self.size = size
        self.outer = outer
        # The caller's thread takes the lock directly: an interrupt inside a condition's methods may leave it held.
        self._lock = threading.Lock()
        self._cond = threading.Condition(self._lock)
        self._round = _Round(size)
        self._count = 0
        self._error: BaseException | None = None
        self.across = outer is not None
        self.calls = 0
        self.moved = 0
        self.waiting: set[int] = set()

    @property
    def world(self) -> int:
        """Number of replicas of all processes."""
        return self.size * (self.outer.size if self.outer is not None else 1)

    def communicator(self, rank: int) -> Communicator:
        """Returns the handle of one replica."""
        return Communicator(self, rank)

    def abort(self, error: BaseException) -> None:
        """Makes every replica that waits, now or later, raise :class:`ReplicaStoppedError`; the first error is kept."""
        with self._lock:
            if self._error is None:
                self._error = error
            self._cond.notify_all()

    @property
    def aborted(self) -> bool:
        return self._error is not None

    def reset(self) -> None:
        """Makes the group usable again; no replica may be inside a collective."""
        with self._lock:
            self._error = None
            self._round = _Round(self.size)
            self._count = 0

    def rendezvous(
        self, rank: int, label: str, payload: Any = None, last: Callable[[list[Any]], None] | None = None
    ) -> Any:
        """All-gathers ``payload``: waits for all replicas and returns theirs in order.

        Args:
            rank: The caller's rank.
            label: Purpose of the exchange; the same for all.
            payload: The caller's payload.
            last: Called by the last replica to arrive, before any continues.

        Raises:
            ReplicaStoppedError: If another replica failed.
            RankFailedError: If the replicas are at different collectives.
        """
        with self._cond:
            self._check()
            mine = self._round
            if self._count and mine.label != label:
                error = RankFailedError(
                    f"replica {rank} is at another collective than the others",
                    expected=mine.label,
                    received=label,
                    fix="all replicas run one program; make sure that no operator decides by place what runs",
                )
                self._error = error
                self._cond.notify_all()
                raise error
            mine.label = label
            mine.payloads[rank] = payload
            self._count += 1
            if self._count < self.size:
                self.waiting.add(rank)
                try:
                    while not mine.done:
                        self._cond.wait(_SLICE)
                        if not mine.done:
                            self._check()
                finally:
                    self.waiting.discard(rank)
                if mine.error is not None:
                    raise ReplicaStoppedError(
                        f"replica {rank} stopped: another one failed in '{label}'"
                    ) from mine.error
                return mine.payloads
            self._round = _Round(self.size)
            self._count = 0
            if last is None:
                mine.done = True
                self._cond.notify_all()
                return mine.payloads
        # The others wait for `done`; the lock is free meanwhile so that an abort can take it.
        try:
            last(mine.payloads)
        except BaseException as error:
            mine.error = error
            raise
        finally:
            with self._cond:
                mine.done = True
                self._cond.notify_all()
        return mine.payloads

    def _check(self) -> None:
        if self._error is not None:
            raise ReplicaStoppedError("this replica stopped because another one failed") from self._error


def add_in_order(parts: Sequence[Array], targets: Sequence[Array]) -> None:
    """Writes ``parts[0] + parts[1] + ...``, left to right, to all targets; adds 16-bit floats in float32 and rounds once."""
    first = parts[0]
    if first.dtype.itemsize == 2 and first.dtype.kind in "fV":
        total = first.astype(np.float32)
        for part in parts[1:]:
            np.add(total, part, out=total, dtype=np.float32, casting="unsafe")
    else:
        total = first if any(t is first for t in targets) else first.copy()
        for part in parts[1:]:
            np.add(total, part, out=total)
    for target in targets:
        if target is not total:
            np.copyto(target, total, casting="unsafe")


class Communicator:
    """One replica's handle of a group; a collective's ``ref`` receives it as ``group``."""

    def __init__(self, group: Group, rank: int) -> None:
        self.group = group
        self.rank = rank

    @property
    def size(self) -> int:
        """Number of replicas of this process."""
        return self.group.size

    @property
    def world(self) -> int:
        """Number of replicas of all processes."""
        return self.group.world

    def _sum(self, label: str, flats: Sequence[Array], to: Callable[[int], Sequence[int]], block: int) -> None:
        """Sums array ``i`` over the replicas, then over the processes, into the arrays of the replicas ``to(i)``."""
        group = self.group
        if self.rank == 0:
            group.calls += 1
            group.moved += sum(a.nbytes for a in flats)

        def chunk(brought: Sequence[Sequence[Array]], part: int, parts: int) -> None:
            for i, own in enumerate(brought[0]):
                low, high = own.size * part // parts, own.size * (part + 1) // parts
                if high > low:
                    rows = [arrays[i][low:high] for arrays in brought]
                    add_in_order(rows, [rows[r] for r in to(i)])

        def everything(brought: Sequence[Sequence[Array]]) -> None:
            chunk(brought, 0, 1)
            across(brought)

        def across(brought: Sequence[Sequence[Array]]) -> None:
            if group.outer is None:
                return
            owned = [brought[to(i)[0]][i] for i in range(len(flats))]
            group.outer.all_reduce(owned, block)
            for i, total in enumerate(owned):
                for r in to(i)[1:]:
                    np.copyto(brought[r][i], total)

        if sum(a.size for a in flats) <= _ALONE or group.size == 1:
            group.rendezvous(self.rank, label, flats, everything)
            return
        brought = group.rendezvous(self.rank, label, flats)
        chunk(brought, self.rank, group.size)
        group.rendezvous(self.rank, f"{label}, end", flats, across)

    def all_reduce(self, arrays: Sequence[Array], label: str = "all_reduce", block: int = 0) -> None:
        """Sums arrays over all replicas, in place; ``block`` is what :meth:`Outer.all_reduce` takes."""
        everyone = range(self.size)
        self._sum(label, flat_views(arrays), lambda i: everyone, block)

    def reduce(self, arrays: Sequence[Array], roots: Sequence[int], label: str = "reduce", block: int = 0) -> None:
        """Sums array ``i`` over all replicas into that of replica ``roots[i]``; the others keep their values."""
        self._sum(label, [_flat(a) for a in arrays], lambda i: (roots[i],), block)

    def broadcast(self, arrays: Sequence[Array], roots: Sequence[int], label: str = "broadcast") -> None:
        """Writes replica ``roots[i]``'s array ``i`` into those of all replicas of the process."""
        group = self.group
        if self.rank == 0:
            group.calls += 1
            group.moved += sum(a.nbytes for a in arrays)
        brought = group.rendezvous(self.rank, label, list(arrays))
        for i, root in enumerate(roots):
            if root != self.rank:
                np.copyto(arrays[i], brought[root][i])
        group.rendezvous(self.rank, f"{label}, end")

    def all_gather(self, array: Array, out: Array, label: str = "all_gather") -> None:
        """Writes all replicas' arrays, in the order of their ranks, into ``out`` of shape ``[world, *array.shape]``."""
        group = self.group
        if self.rank == 0:
            group.calls += 1
            group.moved += array.nbytes

        def across(brought: list[Any]) -> None:
            local = np.stack([one for one, _ in brought])
            whole = local if group.outer is None else group.outer.all_gather(local).reshape(-1, *array.shape)
            for _, target in brought:
                np.copyto(target, whole)

        group.rendezvous(self.rank, label, (array, out), across)

    def commit(self) -> None:
        """Returns when every replica of every process has reached the point after which state is written.

        Raises:
            ReplicaStoppedError: If one will not arrive; then state must not be written.
        """
        outer = self.group.outer if self.group.across else None
        self.group.rendezvous(self.rank, "commit", None, None if outer is None else lambda _: outer.agree("commit"))


def _flat(array: Array) -> Array:
    flat = array.reshape(-1)
    assert flat.size == 0 or np.may_share_memory(flat, array), "a collective works in place"
    return flat


def flat_views(arrays: Sequence[Array]) -> list[Array]:
    """Returns few one-dimensional views that cover the arrays: adjacent arrays of one buffer, up to alignment, share a view."""
    flats = [_flat(a) for a in arrays if a.size]
    done: list[Array] = []
    for flat in flats:
        before = done[-1] if done else None
        if before is not None and before.dtype == flat.dtype and before.base is not None and before.base is flat.base:
            gap = flat.ctypes.data - before.ctypes.data
            if before.nbytes <= gap < before.nbytes + ALIGNED and gap % flat.itemsize == 0:
                whole = np.ndarray((gap // flat.itemsize + flat.size,), flat.dtype, before.base, _offset(before))
                done[-1] = whole
                continue
        done.append(flat)
    return done


def _offset(array: Array) -> int:
    base = array.base
    assert isinstance(base, np.ndarray)
    return int(array.ctypes.data - base.ctypes.data)
