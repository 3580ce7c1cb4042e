"""Batches in memory that two processes share: one writes them, the other reads them where they are.

The memory has no name, so nothing can be left over; its descriptors are sent with the messages that first use it. The reader's
arrays are views of it. When the last of them is gone, the segment goes back to the writer.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tstatic.io.messages import Wait, forever, receive_file, receive_message, send_message

Bytes = NDArray[np.uint8]
Empty = Callable[[Sequence[int], Any], NDArray[Any]]
"""Makes an array of a shape and dtype, as ``np.empty`` does."""

SMALL = 4096
"""Arrays of fewer bytes are sent in the message: copying them is cheaper than sharing them."""
MOST_SEGMENTS = 64
"""Of one writer; beyond that, as when the reader keeps all batches, arrays are sent in messages."""
_ALIGN = 64


def _file(size: int) -> int:
    """Returns the descriptor of an empty file in memory, or of one on disk that has no name."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("tstatic batch")
    else:
        with tempfile.TemporaryFile() as opened:
            file = os.dup(opened.fileno())
    os.ftruncate(file, size)
    return file


class _Segment:
    """Memory of the writer's; pages that were never written take no room."""

    def __init__(self, size: int) -> None:
        self.file = _file(size)
        self.bytes: Bytes = np.frombuffer(mmap.mmap(self.file, size), np.uint8)
        self.start = _address(self.bytes)


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


class SharedWriter:
    """The writer's side of a pipe.

    Args:
        pipe: A pair of sockets.
        shared: ``False`` sends all arrays in messages.
    """

    def __init__(self, pipe: Connection, shared: bool) -> None:
        self._pipe = pipe
        self._socket = socket.socket(fileno=os.dup(pipe.fileno()))
        self._most = MOST_SEGMENTS if shared else 0
        self._segments: dict[int, _Segment] = {}
        self._free: list[int] = []
        self._made = 0
        self._current: int | None = None
        self._used = 0

    @property
    def shares(self) -> bool:
        """Whether the reader may have segments to give back."""
        return bool(self._segments)

    def begin(self, freed: Sequence[int]) -> None:
        """Starts a message; the reader does not use the segments of ``freed`` any more."""
        self._free += [number for number in freed if number in self._segments]
        self._current = self._free.pop() if self._free else None
        self._used = 0

    def empty(self, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        """Returns an array in the message's segment, or outside if it has no room."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        room = self._room(size) if size >= SMALL and not kind.hasobject else None
        return np.empty(shape, kind) if room is None else room.view(kind).reshape(shape)

    def _room(self, size: int) -> Bytes | None:
        if self._current is None:
            return None
        memory = self._segments[self._current].bytes
        if self._used + size > memory.size:
            return None
        room = memory[self._used : self._used + size]
        self._used += _aligned(size)
        return room

    def send(self, message: Any) -> None:
        """Sends a message; arrays that :meth:`empty` did not put into its segment are copied there.

        Raises:
            Exception: What pickling raises; nothing is sent then.
            OSError: If nobody reads.
        """
        buffers: list[Bytes] = []

        def take(buffer: pickle.PickleBuffer) -> bool:
            """Takes an array out of the message; True leaves it in."""
            raw = buffer.raw()
            if raw.nbytes < SMALL or self._full():
                return True
            buffers.append(np.frombuffer(raw, np.uint8))
            return False

        text = pickle.dumps(message, pickle.HIGHEST_PROTOCOL, buffer_callback=take)
        number, new, gone, parts = self._place(buffers)
        send_message(self._socket, pickle.dumps((number, new, gone, parts, text), pickle.HIGHEST_PROTOCOL))
        if new:
            assert number is not None
            socket.send_fds(self._socket, [b"f"], [self._segments[number].file])
            os.close(self._segments[number].file)

    def receive(self) -> Any:
        """Returns what the reader sends next.

        Raises:
            EOFError, OSError: If the reader is gone.
        """
        return pickle.loads(receive_message(self._socket))

    def close(self) -> None:
        """Closes the pipe; what was sent stays with the reader."""
        self._socket.close()
        self._pipe.close()

    def _full(self) -> bool:
        """Whether there is no segment for this message, and there must not be another one."""
        return self._current is None and len(self._segments) >= self._most

    def _place(self, buffers: list[Bytes]) -> tuple[int | None, int, int | None, list[tuple[int, int]]]:
        """Puts arrays into a segment.

        Returns:
            Its number, its size if the reader does not know it yet, the number of the one it replaces, and begin and end of each.
        """
        if not buffers:
            if self._current is not None:
                self._free.append(self._current)
            return None, 0, None, []
        start = self._segments[self._current].start if self._current is not None else 0
        size = self._segments[self._current].bytes.size if self._current is not None else 0
        inside = [start <= _address(one) < start + size for one in buffers]
        needed = sum(_aligned(one.size) for one, known in zip(buffers, inside, strict=True) if not known)
        new, gone = 0, None
        if self._current is None or self._used + needed > size:
            gone, self._current = self._current, self._made
            self._made += 1
            new = 1 << max(sum(_aligned(one.size) for one in buffers) - 1, mmap.PAGESIZE).bit_length()
            self._segments[self._current] = _Segment(new)
            self._used, inside = 0, [False] * len(buffers)
        segment = self._segments[self._current]
        parts = []
        for one, known in zip(buffers, inside, strict=True):
            begin = _address(one) - segment.start if known else self._used
            if not known:
                room = self._room(one.size)
                assert room is not None
                room[:] = one
            parts.append((begin, begin + one.size))
        if gone is not None:
            del self._segments[gone]
        return self._current, new, gone, parts


class Lease:
    """Memory in use, as an object that arrays hold: when the last of them is gone, its number comes to ``freed``.

    Args:
        memory: The memory.
        number: Its number.
        freed: Takes the number; any thread may let go of the last array.
    """

    def __init__(self, memory: Bytes, number: int, freed: deque[int]) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory, self._number, self._freed = memory, number, freed

    def __del__(self) -> None:
        self._freed.append(self._number)


class SharedReader:
    """The reader's side of a pipe.

    Args:
        pipe: A pair of sockets.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._socket = socket.socket(fileno=os.dup(pipe.fileno()))
        self._known: dict[int, Bytes] = {}
        self._freed: deque[int] = deque()

    def freed(self) -> list[int]:
        """Returns the segments that came free since the last call, for :meth:`SharedWriter.begin`."""
        return [self._freed.popleft() for _ in range(len(self._freed))]

    def send(self, message: Any, wait: Wait = forever) -> None:
        """Sends the writer something; arguments as of :meth:`receive`.

        Raises:
            OSError: If the writer is gone.
        """
        send_message(self._socket, pickle.dumps(message, pickle.HIGHEST_PROTOCOL), wait)

    def receive(self, wait: Wait = forever) -> Any:
        """Returns the next message.

        Args:
            wait: Called whenever the rest of the message is not there yet.

        Raises:
            EOFError, ConnectionError: If the writer is gone.
        """
        number, new, gone, parts, text = pickle.loads(receive_message(self._socket, wait))
        if gone is not None:
            del self._known[gone]
        if new:
            file = receive_file(self._socket, wait)
            try:
                self._known[number] = np.frombuffer(mmap.mmap(file, new), np.uint8)
            finally:
                os.close(file)
        if number is None:
            return pickle.loads(text)
        memory = np.asarray(Lease(self._known[number], number, self._freed))
        return pickle.loads(text, buffers=[memory[a:b] for a, b in parts])

    def close(self) -> None:
        """Closes the pipe; arrays that were received stay."""
        self._socket.close()
        self._pipe.close()
