"""Connections on which two processes that are about to meet exchange messages."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

_MOST = 64
"""Connections that may wait to say something; of more, the oldest is closed: strangers must not use up descriptors."""
_LINE = 1 << 20
"""Bytes of the longest message; a peer that sends more is not a rank."""


class Link:
    """A connection on which messages are lines of JSON."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.rank = -1
        self._rest = b""

    def send(self, message: Any) -> None:
        # A rank that died, or does not read, is noticed when reading from it.
        with contextlib.suppress(OSError):
            # A rank that does not read must not hold up what the others are told.
            self.link.settimeout(1.0)
            self.link.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Any] | None:
        """Returns the messages that have arrived, or ``None`` if the peer has closed; does not wait.

        Raises:
            ValueError: If the data is not a message.
        """
        self.link.settimeout(0.0)
        try:
            # One read for each readiness: a peer that never stops sending must not keep this one from the others.
            data = self.link.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None  # a peer that died resets the connection
        if not data:
            return None
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > _LINE:
            raise ValueError("too long")
        try:
            found = [json.loads(line) for line in lines]
        except RecursionError:  # brackets without end
            raise ValueError("too deep") from None
        if not all(isinstance(one, dict) for one in found):
            raise ValueError("no message")
        return found


def readable(sockets: Iterable[socket.socket], seconds: float | None = None) -> set[socket.socket]:
    """Returns the sockets that can be read, after at most ``seconds``; ``None`` waits for ever.

    ``select.select`` would fail in a process with more than 1024 open files.

    Raises:
        ValueError: If one of them is closed.
    """
    by_number = {one.fileno(): one for one in sockets}
    poll = select.poll()
    for number in by_number:
        poll.register(number, select.POLLIN)
    return {by_number[number] for number, _ in poll.poll(None if seconds is None else max(0.0, seconds) * 1000.0)}


class Answers:
    """Answers the first message of whoever connects to a port, in a thread, and hangs up.

    Args:
        server: The listening socket.
        answer: Returns the answer to a message; ``None`` hangs up without one. ``ValueError`` does so, too.
    """

    def __init__(self, server: socket.socket, answer: Callable[[dict[str, Any]], Any]) -> None:
        self._server = server
        self._answer = answer
        self._closed = False
        self._pid = os.getpid()
        self._wake, self._waker = socket.socketpair()
        self._thread: threading.Thread | None = None
        _open.add(self)

    def start(self) -> None:
        """Begins to answer; until then, whoever connects waits."""
        self._thread = threading.Thread(target=self._serve, name="tstatic-port", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Frees the port; has no effect in a forked child, which lets go of its copy when it is made."""
        if self._closed or os.getpid() != self._pid:
            return
        # Before the thread is woken: it looks at this and ends.
        self._closed = True
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        if self._thread is not None:
            # The system keeps the port as long as a thread waits for it.
            self._thread.join(2.0)
        self._let_go()

    def _let_go(self) -> None:
        self._closed = True
        for one in (self._server, self._wake, self._waker):
            one.close()

    def _serve(self) -> None:
        waiting: list[Link] = []
        while not self._closed:
            try:
                ready = readable([self._wake, self._server, *(one.link for one in waiting)])
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
        """Answers a connection, unless its message is incomplete; returns whether it can be closed."""
        with contextlib.suppress(ValueError):
            messages = link.receive()
            if messages == []:
                return False
            answer = self._answer(messages[0]) if messages else None
            if answer is not None:
                link.send(answer)
        return True


_open: weakref.WeakSet[Answers] = weakref.WeakSet()


def _let_go_of_all() -> None:
    """Closes the ports in a forked child: its copies would keep them after the parent has ended."""
    for one in list(_open):
        one._let_go()


os.register_at_fork(after_in_child=_let_go_of_all)

__all__ = ["Answers", "Link", "readable"]
