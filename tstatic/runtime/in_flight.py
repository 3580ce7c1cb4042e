"""Remembers which session has left steps in flight on a scope, so that whoever reads or writes its values waits for them."""

from __future__ import annotations

from typing import Protocol

from tstatic.locks import rlock


class Owner(Protocol):
    """What has queued steps and not waited for them."""

    def settle(self) -> None:
        """Waits for all of them, and notes what became of each."""


class InFlight:
    """The steps in flight on a tree of scopes: they are those of one session, since a run of another one waits for them.

    Attributes:
        owner: Who queued them; ``None`` while there are none.
        lock: Held by whoever queues or settles steps.
    """

    __slots__ = ("lock", "owner")

    def __init__(self) -> None:
        self.owner: Owner | None = None
        self.lock = rlock()

    def settle(self) -> None:
        """Waits until no step is in flight; errors of the steps stay with whoever asks for their results."""
        if self.owner is None:
            return
        with self.lock:
            # Another thread may have settled them meanwhile.
            if self.owner is not None:
                self.owner.settle()


__all__ = ["InFlight"]
