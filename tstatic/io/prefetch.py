"""Runs iterators in threads of their own, a bounded number of items ahead of whoever takes them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from tstatic import records

T = TypeVar("T")

_POLL_S = 0.05
"""How often a thread that waits for room looks whether anybody still wants its items."""


class Channel(Generic[T]):
    """A bounded queue from threads to one taker, which also carries their exceptions and the ends of their iterators.

    Args:
        size: Most items that wait; 0 sets no limit.
    """

    def __init__(self, size: int) -> None:
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(size)
        self._closed = threading.Event()
        self._running = 0

    def _put(self, kind: str, value: Any = None) -> bool:
        """Waits for room and returns ``True``, or returns ``False`` when the channel is closed."""
        while not self._closed.is_set():
            try:
                self._queue.put((kind, value), timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False

    def start(self, make: Callable[[], Iterable[T]]) -> None:
        """Starts a thread that calls ``make`` and puts what the result iterates over."""
        self._running += 1
        threading.Thread(target=self._fill, args=(make,), name="tstatic reader", daemon=True).start()

    def _fill(self, make: Callable[[], Iterable[T]]) -> None:
        try:
            for item in records.each(make(), "load", "a batch is made"):
                if not self._put("item", item):
                    return
        except BaseException as error:  # whatever it is, the taker raises it
            self._put("error", error)
        else:
            self._put("end")

    def __iter__(self) -> Iterator[T]:
        """Yields items until all threads have ended; raises the first exception of any."""
        while self._running:
            kind, value = self._queue.get()
            if kind == "item":
                yield value
            elif kind == "error":
                raise value
            else:
                self._running -= 1

    def qsize(self) -> int:
        """Items that wait."""
        return self._queue.qsize()

    def close(self) -> None:
        """Tells the threads to stop at their next item."""
        self._closed.set()


def ahead(make: Callable[[], Iterable[T]], size: int) -> Iterator[T]:
    """Yields what ``make()`` iterates over, read by a thread that is up to ``size`` items ahead (0: any number).

    An exception of the thread is raised here, after the items that came before it. The thread stops when the generator is
    closed or forgotten.
    """
    channel = Channel[T](size)
    channel.start(make)
    try:
        yield from channel
    finally:
        channel.close()
