"""Messages of bytes over a socket, each after its length; whoever waits for one decides how long."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable

Wait = Callable[[socket.socket, int], None]
"""Returns when a socket can be read (``select.POLLIN``) or written (``select.POLLOUT``), or raises."""
_LENGTH = struct.Struct("!Q")


def forever(link: socket.socket, event: int) -> None:
    """Waits without a limit, as a ``Wait``."""
    poll = select.poll()
    poll.register(link, event)
    poll.poll()


def send_message(link: socket.socket, data: bytes | memoryview, wait: Wait = forever) -> None:
    """Sends a message.

    Args:
        link: A connected socket.
        data: The message.
        wait: Called whenever the socket takes no more for now; what it raises leaves the message incomplete.

    Raises:
        OSError: If nobody reads.
    """
    for part in (memoryview(_LENGTH.pack(len(data))), memoryview(data)):
        done = 0
        while done < len(part):
            try:
                done += link.send(part[done:], socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0))
            except (BlockingIOError, InterruptedError):
                wait(link, select.POLLOUT)


def receive_message(link: socket.socket, wait: Wait = forever) -> bytearray:
    """Returns the next message.

    Args:
        link: A connected socket.
        wait: Called whenever the socket has nothing more for now, also in the middle of a message.

    Raises:
        EOFError: If the peer has closed.
        OSError: If the connection broke.
    """
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size, wait))
    return _exactly(link, length, wait)


def receive_file(link: socket.socket, wait: Wait = forever) -> int:
    """Returns the descriptor of a file that the peer passes, with one byte.

    Raises:
        EOFError: If the peer has closed.
        OSError: If the connection broke.
    """
    while True:
        try:
            _, files, _, _ = socket.recv_fds(link, 1, 1, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            wait(link, select.POLLIN)
            continue
        if not files:
            raise EOFError
        return files[0]


def _exactly(link: socket.socket, count: int, wait: Wait) -> bytearray:
    data = bytearray(count)
    room = memoryview(data)
    done = 0
    while done < count:
        try:
            got = link.recv_into(room[done:], 0, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            wait(link, select.POLLIN)
            continue
        if not got:
            raise EOFError
        done += got
    return data


__all__ = ["Wait", "forever", "receive_file", "receive_message", "send_message"]
