"""Waits for the pipe of another process, and notices when that process ends."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from typing import Any

from tstatic.io.messages import Wait

LOOK_S = 0.5
"""How often a wait looks whether the process lives, where the system does not tell at once."""


class Watch:
    """Waits for the pipe of a process for as long as that process lives.

    The pipe alone does not tell: a process that this one started holds it open, too, when this one has died.

    Args:
        process: The process, of ``multiprocessing``.

    Attributes:
        handle: A file that can be read when the process has ended, or ``None`` where the system has no such files.
    """

    def __init__(self, process: Any) -> None:
        self._process = process
        self.handle: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # an old kernel, or a process that has ended already
                self.handle = os.pidfd_open(process.pid)

    def until(self, deadline: float | None) -> Wait:
        """Returns what waits for a socket.

        Args:
            deadline: A time of ``time.monotonic``; ``None`` waits for as long as the process lives.

        Raises:
            EOFError: If the process has ended, and the pipe has nothing more.
            TimeoutError: If the deadline has passed.
        """

        def wait(link: socket.socket, event: int) -> None:
            poll = select.poll()
            poll.register(link, event)
            if self.handle is not None:
                poll.register(self.handle, select.POLLIN)
            while True:
                left = LOOK_S if deadline is None else min(LOOK_S, deadline - time.monotonic())
                if any(number == link.fileno() for number, _ in poll.poll(max(0.0, left) * 1000.0)):
                    return
                if not self._process.is_alive():
                    # It may have written the last bytes just before it ended.
                    if any(number == link.fileno() for number, _ in poll.poll(0)):
                        return
                    raise EOFError
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError

        return wait

    def close(self) -> None:
        """Lets go of the process."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


__all__ = ["LOOK_S", "Watch"]
