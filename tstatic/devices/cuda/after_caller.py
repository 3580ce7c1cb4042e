"""Orders a run on a GPU between what the caller queued in torch's current stream before it and what comes there behind it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

from tstatic.devices.base import StreamSet


class Caller(Protocol):
    """A GPU, as far as the caller's stream is concerned."""

    def current(self) -> Any:
        """Returns torch's current stream."""

    def check_process(self) -> None:
        """Refuses to work in a forked child."""

    def check_not_capturing(self) -> None:
        """Refuses a run inside of a capture of the caller's own."""


class AfterTheCaller:
    """The block of a run: behind what the caller's stream has to do, and what the caller does next behind the run.

    Args:
        device: The device.
        sets: The streams of the sessions that run.
        queues: torch's names of them, each once.
        settings: The block of torch's settings; ``None`` where nothing is asked of torch but to launch a graph.
    """

    def __init__(
        self,
        device: Caller,
        sets: Sequence[StreamSet],
        queues: Sequence[Any],
        settings: contextlib.AbstractContextManager[None] | None,
    ) -> None:
        self._device, self._sets, self._queues, self._settings = device, sets, queues, settings

    def __enter__(self) -> None:
        device = self._device
        # A forked child has no GPU: whoever enters torch's settings is told so there.
        device.check_process()
        device.check_not_capturing()
        for one in self._sets:
            # Another thread may run a session of the same set, whose streams must not get into a graph that this one captures.
            one.turn.__enter__()
        if self._settings is not None:
            self._settings.__enter__()
        current = device.current()
        for queue in self._queues:
            queue.wait_stream(current)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            current = self._device.current()
            for queue in self._queues:
                current.wait_stream(queue)
        finally:
            if self._settings is not None:
                self._settings.__exit__(kind, error, trace)
            for one in reversed(self._sets):
                one.turn.__exit__(kind, error, trace)


__all__ = ["AfterTheCaller"]
