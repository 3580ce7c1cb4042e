"""Keeps a job's port after its ranks have met, and turns away processes of another job that name the same port."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from tstatic.comm.rendezvous.admission import Admission, Claimant
from tstatic.comm.rendezvous.links import Answers
from tstatic.logs import get_logger


class Door:
    """The port of a job that runs; rank 0 has it.

    If nobody kept the port, the ranks that a second job lost to the first could meet at it and train on as if nothing had
    happened.

    Args:
        server: The listening socket.
        admission: The rules of the job, with the processes that have its ranks.
    """

    def __init__(self, server: socket.socket, admission: Admission) -> None:
        self._admission = admission
        self._formed = time.monotonic()
        self._answers = Answers(server, self._answer)
        self._on_double: Callable[[int, str], None] = lambda rank, text: None
        self._failing: Callable[[], bool] = lambda: False

    def watch(self, on_double: Callable[[int, str], None], failing: Callable[[], bool]) -> None:
        """Answers from now on, in a thread; until then, whoever connects waits.

        Args:
            on_double: Called with a rank that two processes claim, either of which may belong to this job, and a text about them.
            failing: Returns whether this job has failed, so that its port is about to be free.
        """
        # Before the thread starts, which calls them.
        self._on_double, self._failing = on_double, failing
        self._answers.start()

    def close(self) -> None:
        """Frees the port."""
        self._answers.close()

    def _answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if not Admission.is_request(message) or "left" in message:
            return None
        rank, newcomer, stranger = message["rank"], Claimant.of(message), self._admission.stranger(message)
        # Ages and not clocks: those of two machines differ.
        older = newcomer.age > time.monotonic() - self._formed
        again = not stranger and newcomer.token == self._admission.holders[rank].token
        if again or (self._failing() and (stranger or not older)):
            # This very process that joins anew, or the next run of this job: the port will be free soon.
            return {"later": True}
        if stranger:
            get_logger("dist").warning("turned away %s: %s", newcomer, stranger)
            return {"refused": stranger}
        text = self._admission.taken(rank, newcomer)
        if older:
            # It was there when this job formed, so some of the ranks that joined may be its companions.
            self._on_double(rank, f"{text}; two jobs started at one port at the same time")
        else:
            get_logger("dist").warning("turned away rank %d, which %s", rank, text)
        return {"refused": f"rank {rank} {text}"}


__all__ = ["Door"]
