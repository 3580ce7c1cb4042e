"""Connections on which two processes that are about to meet exchange messages."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from collections.abc import Iterable
from typing import Any

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


__all__ = ["Link", "readable"]
