"""Keeps a job's port after its ranks have met, and turns away processes of another job that name the same port."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable

from tstatic.comm.admission import Admission, Member
from tstatic.comm.links import Link, readable
from tstatic.logs import get_logger

_MOST = 64
"""Connections that may wait to introduce themselves; of more, the oldest is closed."""
_open: weakref.WeakSet[Door] = weakref.WeakSet()


class Door:
    """The port of a job that runs; rank 0 has it.

    If nobody kept the port, the ranks that a second job lost to the first could meet at it and train on as if nothing had
    happened.

    Args:
        server: The listening socket.
        admission: The rules of the job, with the processes that have its ranks.
    """

    def __init__(self, server: socket.socket, admission: Admission) -> None:
        self._server = server
        self._admission = admission
        self._formed = time.monotonic()
        self._closed = False
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._wake, self._waker = socket.socketpair()
        self._on_double: Callable[[int, str], None] = lambda rank, text: None
        self._failing: Callable[[], bool] = lambda: False
        _open.add(self)

    def watch(self, on_double: Callable[[int, str], None], failing: Callable[[], bool]) -> None:
        """Answers from now on, in a thread; until then, whoever connects waits.

        Args:
            on_double: Called with a rank that two processes claim, either of which may belong to this job, and a text about them.
            failing: Returns whether this job has failed, so that its port is about to be free.
        """
        self._on_double, self._failing = on_double, failing
        self._thread = threading.Thread(target=self._serve, name="tstatic-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Frees the port; has no effect in a forked child, which lets go of its copy when it is made."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        if self._thread is not None:
            # The system keeps the port as long as a thread waits for it.
            self._thread.join(2.0)
        for one in (self._server, self._wake, self._waker):
            one.close()

    def _forget(self) -> None:
        """Lets go of the sockets in a forked child: its copy would keep the port after the parent has ended."""
        self._closed = True
        for one in (self._server, self._wake, self._waker):
            one.close()

    def _serve(self) -> None:
        waiting: list[Link] = []
        while not self._closed:
            sockets = [self._wake, self._server, *(one.link for one in waiting)]
            try:
                ready = readable(sockets)
            except (OSError, ValueError):  # closed meanwhile
                break
            for one in [one for one in waiting if one.link in ready]:
                if self._answered(one):
                    one.link.close()
                    waiting.remove(one)
            if self._server in ready and not self._closed:
                with contextlib.suppress(OSError):
                    waiting.append(Link(self._server.accept()[0]))
            for one in waiting[:-_MOST]:
                one.link.close()
                waiting.remove(one)
        for one in waiting:
            one.link.close()

    def _answered(self, link: Link) -> bool:
        """Answers a connection, unless its request is incomplete; returns whether it can be closed."""
        try:
            messages = link.receive()
            if messages == []:
                return False
            if not messages or not Admission.is_request(messages[0]) or "left" in messages[0]:
                return True
            link.send(self._answer(messages[0]["rank"], Member.of(messages[0]), self._admission.stranger(messages[0])))
        except ValueError:
            pass
        return True

    def _answer(self, rank: int, newcomer: Member, stranger: str) -> dict[str, object]:
        holders = self._admission.holders
        if self._failing() or newcomer.token == holders.get(rank, newcomer).token and not stranger:
            # The next run of this job, or this very process that joins anew: the port will be free soon.
            return {"later": True}
        if stranger:
            get_logger("dist").warning("turned away %s: %s", newcomer, stranger)
            return {"refused": stranger}
        text = self._admission.taken(rank, newcomer)
        if newcomer.age > time.monotonic() - self._formed:
            # It was there when this job formed, so some of the ranks that joined may be its companions.
            self._on_double(rank, f"{text}; two jobs started at one port at the same time")
        else:
            get_logger("dist").warning("turned away rank %d, which %s", rank, text)
        return {"refused": f"rank {rank} {text}"}


def _forget_all() -> None:
    for door in list(_open):
        door._forget()


os.register_at_fork(after_in_child=_forget_all)

__all__ = ["Door"]
