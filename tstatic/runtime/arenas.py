"""Memory that the plans of one place take turns in: an arena and scratch, each as large as the largest plan needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakSet

from tstatic.devices import Device
from tstatic.devices.base import Memory
from tstatic.devices.step import Stream, Workspace
from tstatic.errors import OutOfMemoryError
from tstatic.ir.types import Meta, uint8

GROWTH = 2
"""A larger arena has at least so many times the bytes of the one before, so that ever larger batches make few of them."""

PURPOSE = "an arena of temporaries"


class User(Protocol):
    """A session, as far as its memory is concerned."""

    streams: list[Stream]

    def settle(self) -> None:
        """Waits for the runs that it left in flight."""

    def drop(self) -> None:
        """Frees everything bound to the memory."""

    def memories(self) -> Iterator[Memory | Workspace]:
        """Yields the memory that it is bound to."""


@dataclass(eq=False, slots=True)
class _Part:
    """One block of memory, and the sessions that are bound to it."""

    memory: Memory
    nbytes: int
    users: WeakSet[User] = field(default_factory=WeakSet)


class Arenas:
    """The temporaries of sessions that never run at the same time.

    Nothing in them outlives a run, so one session's may lie where those of the last one lay. A plan that needs more gets a larger
    block, which later plans share. Where pages can be released while addresses stay, sessions remain bound to the smaller block,
    whose pages go; elsewhere they are dropped and bind to the larger one when they run again.

    Args:
        device: The device of the memory.

    Attributes:
        unfinished: The session whose run began last, until all its work is done.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._parts: list[_Part] = []
        self._workspaces: list[Workspace] = []
        self.unfinished: User | None = None

    def take(self, user: User, nbytes: int) -> Memory:
        """Returns memory of at least ``nbytes`` bytes, for the session to bind to until it leaves.

        Raises:
            OutOfMemoryError: If the device has no more; nothing changed.
        """
        # First: a session that binds anew must not keep its old block alive, nor be dropped by `_grow` while it binds.
        self.leave(user)
        part = self._parts[-1] if self._parts else None
        if part is None or part.nbytes < nbytes:
            part = self._grow(nbytes)
        part.users.add(user)
        return part.memory

    def widen(self, user: User, nbytes: int, own: Memory, kept: int) -> Memory | None:
        """Returns memory of at least ``nbytes`` bytes for what a session binds while it runs, beside what it is bound to.

        Args:
            user: The session, which stays bound to all that it has.
            nbytes: Bytes that it needs.
            own: What :meth:`take` returned to it.
            kept: How many of its first bytes hold values of this run.

        Returns:
            The memory; ``None`` if a larger block would end what other sessions are bound to.

        Raises:
            OutOfMemoryError: If the device has no more; nothing changed.
        """
        part = self._parts[-1]
        if part.nbytes < nbytes:
            if not all(one.memory.can_release for one in self._parts):
                return None
            part = self._grow(nbytes, own, kept)
        part.users.add(user)
        return part.memory

    def _grow(self, nbytes: int, own: Memory | None = None, kept: int = 0) -> _Part:
        """Allocates a larger block; what is bound to smaller ones first gives its memory back, but ``kept`` bytes of ``own``."""
        sizes = [nbytes]
        for part in list(self._parts):
            if part.memory.can_release:
                part.memory.release(kept if part.memory is own else 0)
                # More than is needed, as pages that nothing touches take no memory.
                sizes = [max(nbytes, GROWTH * part.nbytes), nbytes]
                continue
            # A copy: `drop` ends in `leave`, which takes the user out of the set.
            for user in list(part.users):
                user.drop()
        made = _Part(*self._allocate(sizes))
        self._parts.append(made)
        return made

    def _allocate(self, sizes: Sequence[int]) -> tuple[Memory, int]:
        """Returns memory of the first size that can be had, and the size."""
        # A size with room to grow is a wish: where it cannot be had, the run still gets what it needs.
        for nbytes in sizes[:-1]:
            try:
                return self._device.allocate(nbytes, purpose=PURPOSE), nbytes
            except OutOfMemoryError:
                continue
        return self._device.allocate(sizes[-1], purpose=PURPOSE), sizes[-1]

    def workspaces(self, threads: int, nbytes: int) -> list[Workspace]:
        """Returns the scratch memory of ``threads`` threads, of at least ``nbytes`` bytes each."""
        known = self._workspaces
        need = known[0].need if known else 0
        if len(known) < threads or need < nbytes:
            need = need if need >= nbytes else max(nbytes, GROWTH * need)
            # Sessions stay bound to the old buffers; only the pages go, until such a session runs again.
            for old in known:
                old.release()
            self._workspaces = [Workspace() for _ in range(threads)]
            for one in self._workspaces:
                one.reserve(need)
                one.allocate()
        return self._workspaces[:threads]

    def fill(self, memory: Memory, nbytes: int, byte: int, streams: Sequence[Stream]) -> None:
        """Fills a session's memory, so that what an operator leaves unwritten is none of an earlier run's results.

        Args:
            memory: What :meth:`take` returned.
            nbytes: How much of it the session uses.
            byte: What is written everywhere.
            streams: The session's streams: the first one fills, and the others wait for it.
        """
        device = self._device
        for workspace in self._workspaces:
            workspace.fill(byte)
        if nbytes:
            device.fill(device.view(memory, 0, Meta((nbytes,), uint8)), byte, streams[0])
            if device.deferred:
                # Steps that read no feed do not wait for the first stream by themselves.
                filled = device.event()
                device.record(filled, streams[0])
                for stream in streams[1:]:
                    device.wait(filled, stream)

    def enter(self, user: User) -> None:
        """Begins a run: work that an interrupted run of another session left in its streams ends first."""
        if self.unfinished is not None and self.unfinished is not user:
            self.unfinished.settle()
        # What is unfinished still was interrupted.
        other = self.unfinished
        if other is not None and other is not user:
            # Discarded before they are awaited, or the wait would run work that nobody wants any more.
            self._device.discard(other.streams)
            self._device.synchronize(other.streams)
        self.unfinished = user

    def leave(self, user: User) -> None:
        """Ends the use of a session's memory; what no session is bound to is freed."""
        for part in [part for part in self._parts if user in part.users]:
            part.users.discard(user)
            if not part.users:
                self._parts.remove(part)
                self._device.free(part.memory)
        # Scratch is needed with an arena only, so it goes with the last one.
        if not self._parts:
            self._workspaces = []


def held_bytes(sessions: Iterable[User]) -> int:
    """Returns the bytes of arenas and scratch that sessions hold now; what several share counts once."""
    held = {id(memory): memory.held_bytes for session in sessions for memory in session.memories()}
    return sum(held.values())


__all__ = ["Arenas", "held_bytes"]
