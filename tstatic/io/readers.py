"""Readers and what decorates them: a reader is a function without arguments that returns an iterator of samples.

What a decorator returns is a reader too, so every call of it starts anew.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from tstatic.errors import reason, shown
from tstatic.io.errors import ComposeNotAligned, DataError, DataTypeError
from tstatic.io.prefetch import Channel, ahead
from tstatic.io.shared import SharedReader, SharedWriter
from tstatic.io.watch import LOOK_S, Watch
from tstatic.io.workers import leave_signals, start_forked
from tstatic.ir.export import export
from tstatic.no_effect import no_effect

Reader = Callable[[], Iterable[Any]]

_ABSENT = object()


@export("fluid.io.batch", "fluid.layers.batch")
def batch(reader: Reader, batch_size: int, drop_last: bool = False) -> Reader:
    """Groups a reader's samples into lists.

    Args:
        reader: The reader of samples.
        batch_size: Samples in a list.
        drop_last: Leaves out a last list that is shorter.

    Raises:
        DataError: If ``batch_size`` is not positive (a ``ValueError``).

    Example:
        >>> reader = lambda: iter(range(5))
        >>> batches = paddle.batch(reader, 2)
        >>> list(batches())
        [[0, 1], [2, 3], [4]]
    """
    size = int(batch_size)
    if size <= 0:
        raise DataError(
            f"batch_size should be a positive integer value, but got batch_size={size}",
            expected="an int >= 1",
            received=repr(batch_size),
            fix="pass the number of samples of a batch",
            op="batch",
        )

    def batches() -> Iterator[list[Any]]:
        rows = iter(reader())
        while group := list(itertools.islice(rows, size)):
            if len(group) == size or not drop_last:
                yield group

    return batches


@export("reader.cache", "fluid.io.cache")
def cache(reader: Reader) -> Reader:
    """Reads all samples now and keeps them in memory.

    Example:
        >>> files = iter([1, 2, 3])
        >>> kept = paddle.reader.cache(lambda: files)
        >>> list(kept()), list(kept())
        ([1, 2, 3], [1, 2, 3])
    """
    samples = tuple(reader())
    return lambda: iter(samples)


@export("reader.map_readers", "fluid.io.map_readers")
def map_readers(func: Callable[..., Any], *readers: Reader) -> Reader:
    """Reads ``func`` of one sample of each reader, until the first of them ends.

    Args:
        func: Takes as many arguments as there are readers.
        *readers: Readers of its arguments.

    Example:
        >>> left, right = lambda: iter([1, 2]), lambda: iter([10, 20])
        >>> sums = paddle.reader.map_readers(lambda a, b: a + b, left, right)
        >>> list(sums())
        [11, 22]
    """
    return lambda: map(func, *(reader() for reader in readers))


@export("reader.shuffle", "fluid.io.shuffle")
def shuffle(reader: Reader, buf_size: int) -> Reader:
    """Shuffles samples within buffers, with Python's global random numbers (``random.seed``).

    Args:
        reader: The reader of samples.
        buf_size: Samples of a buffer, which is read in full, shuffled and passed on; the rest is the last one.

    Example:
        >>> import random
        >>> random.seed(1)
        >>> shuffled = paddle.reader.shuffle(lambda: iter(range(5)), 3)
        >>> list(shuffled())
        [1, 2, 0, 3, 4]
    """

    def shuffled() -> Iterator[Any]:
        samples = iter(reader())
        while buffer := list(itertools.islice(samples, max(buf_size, 1))):
            random.shuffle(buffer)
            yield from buffer

    return shuffled


@export("reader.chain", "fluid.io.chain")
def chain(*readers: Reader) -> Reader:
    """Reads one reader after another.

    Example:
        >>> low, high = lambda: iter([1, 2]), lambda: iter([8, 9])
        >>> both = paddle.reader.chain(low, high)
        >>> list(both())
        [1, 2, 8, 9]
    """
    return lambda: itertools.chain(*(reader() for reader in readers))


@export("reader.compose", "fluid.io.compose")
def compose(*readers: Reader, check_alignment: bool = True) -> Reader:
    """Joins one sample of each reader into a flat tuple: ``(1, 2)`` and ``3`` become ``(1, 2, 3)``.

    Args:
        *readers: Readers of tuples or single values.
        check_alignment: ``False`` ends with the first reader that ends.

    Raises:
        ComposeNotAligned: While reading, if not all readers end together (a ``ValueError``).

    Example:
        >>> images, labels = lambda: iter([(1, 2), (3, 4)]), lambda: iter([0, 1])
        >>> samples = paddle.reader.compose(images, labels)
        >>> list(samples())
        [(1, 2, 0), (3, 4, 1)]
    """

    def composed() -> Iterator[tuple[Any, ...]]:
        sources = [reader() for reader in readers]
        rows = itertools.zip_longest(*sources, fillvalue=_ABSENT) if check_alignment else zip(*sources, strict=False)
        for number, row in enumerate(rows):
            ended = [i for i, value in enumerate(row) if value is _ABSENT]
            if ended:
                raise ComposeNotAligned(
                    "outputs of readers are not aligned.",
                    expected="equally many samples in all readers",
                    received=f"reader {ended[0]} ends after {number} samples, others do not",
                    fix="pass check_alignment=False to stop there",
                    op="compose",
                )
            yield tuple(itertools.chain.from_iterable(v if isinstance(v, tuple) else (v,) for v in row))

    return composed


@export("reader.buffered", "fluid.io.buffered")
def buffered(reader: Reader, size: int) -> Reader:
    """Reads ahead in a thread; its exceptions are raised where the samples are taken.

    Args:
        reader: The reader of samples.
        size: Most samples that wait; 0 sets no limit.

    Example:
        >>> reader = lambda: iter(range(4))
        >>> quick = paddle.reader.buffered(reader, 2)
        >>> list(quick())
        [0, 1, 2, 3]
    """
    return lambda: ahead(reader, size)


@export("reader.firstn", "fluid.io.firstn")
def firstn(reader: Reader, n: int) -> Reader:
    """Reads at most ``n`` samples.

    Args:
        reader: The reader of samples.
        n: Their number.

    Example:
        >>> reader = lambda: iter(range(100))
        >>> few = paddle.reader.firstn(reader, 3)
        >>> list(few())
        [0, 1, 2]
    """
    return lambda: itertools.islice(reader(), n)


@export("reader.xmap_readers", "fluid.io.xmap_readers")
def xmap_readers(
    mapper: Callable[[Any], Any], reader: Reader, process_num: int, buffer_size: int, order: bool = False
) -> Reader:
    """Maps samples in several threads; an exception of the mapper or the reader is raised where the samples are taken.

    Args:
        mapper: Takes a sample.
        reader: The reader of samples.
        process_num: Number of threads.
        buffer_size: Most mapped samples that wait.
        order: Keeps the reader's order.

    Raises:
        DataError: If ``process_num`` is not positive (a ``ValueError``).

    Example:
        >>> reader = lambda: iter(range(4))
        >>> squares = paddle.reader.xmap_readers(lambda x: x * x, reader, 2, 8, order=True)
        >>> list(squares())
        [0, 1, 4, 9]
    """
    if process_num < 1:
        raise DataError(
            "xmap_readers needs at least one thread",
            expected="process_num >= 1",
            received=process_num,
            fix="pass the number of threads",
            op="xmap_readers",
        )

    def unordered() -> Iterator[tuple[int, Any]]:
        samples = enumerate(reader())
        lock = threading.Lock()
        channel = Channel[tuple[int, Any]](buffer_size)

        def mapped() -> Iterator[tuple[int, Any]]:
            while True:
                with lock:
                    number, sample = next(samples, (-1, _ABSENT))
                if sample is _ABSENT:
                    return
                yield number, mapper(sample)

        for _ in range(process_num):
            channel.start(mapped)
        try:
            yield from channel
        finally:
            channel.close()

    def ordered() -> Iterator[Any]:
        early: dict[int, Any] = {}
        wanted = 0
        for number, value in unordered():
            early[number] = value
            while wanted in early:
                yield early.pop(wanted)
                wanted += 1

    return ordered if order else lambda: (value for _, value in unordered())


@export("reader.multiprocess_reader", "fluid.io.multiprocess_reader")
@no_effect(
    use_pipe="large arrays are shared, the rest is sent", queue_size="a pipe holds as much as the system gives it"
)
def multiprocess_reader(readers: Sequence[Reader], use_pipe: bool = True, queue_size: int = 1000) -> Reader:
    """Runs each reader in a process of its own; samples come in the order in which they are ready.

    Args:
        readers: Readers of samples that can be pickled.

    Raises:
        DataTypeError: If ``readers`` is not a list or tuple with at least one reader.
        DataError: While reading, if a process fails or dies, or a sample is ``None``.

    Example:
        >>> readers = [lambda: iter([1, 2]), lambda: iter([3])]
        >>> both = paddle.reader.multiprocess_reader(readers)
        >>> sorted(both())
        [1, 2, 3]
    """
    if not isinstance(readers, list | tuple) or not readers:
        raise DataTypeError(
            "`readers` must be list or tuple.",
            expected="a list or tuple of at least one reader",
            received=shown(readers),
            fix="pass [reader]",
            op="multiprocess_reader",
        )

    def read() -> Iterator[Any]:
        fork = multiprocessing.get_context("fork")  # a reader is a closure, which no other process can be sent
        pipes: dict[Any, _Source] = {}
        try:
            for reader in readers:
                receiver, sender = fork.Pipe()
                process = fork.Process(target=_send_all, args=(reader, sender, receiver), daemon=True)
                start_forked(process)
                sender.close()
                pipes[receiver] = _Source(process, SharedReader(receiver), Watch(process))
            while pipes:
                handles = [one.watch.handle for one in pipes.values() if one.watch.handle is not None]
                ready = wait([*pipes, *handles], LOOK_S)
                for pipe, source in list(pipes.items()):
                    # What a process that ended has left in its pipe still counts.
                    if pipe in ready or not source.process.is_alive():
                        yield from _receive(pipe, pipes)
        finally:
            for source in pipes.values():
                source.close()

    return read


@dataclass(frozen=True)
class _Source:
    """A process that reads."""

    process: Any
    shared: SharedReader
    watch: Watch

    def close(self) -> None:
        """Ends the process."""
        self.shared.close()
        self.process.terminate()
        self.process.join()
        self.watch.close()


def _send_all(reader: Reader, pipe: Connection, other_end: Connection) -> None:
    """Sends a reader's samples as ``("sample", x)``, then ``("end", "")`` or ``("error", text)``."""
    leave_signals()
    other_end.close()
    writer = SharedWriter(pipe, shared=True)

    def send(kind: str, value: Any) -> None:
        try:
            freed: list[int] = []
            while writer.shares and pipe.poll():
                freed += pipe.recv()
            writer.begin(freed)
            writer.send((kind, value))
        except (EOFError, ConnectionError) as error:
            raise BrokenPipeError from error

    try:
        for sample in reader():
            if sample is None:
                raise ValueError("sample has None")
            send("sample", sample)
        send("end", "")
    except BrokenPipeError:
        return  # nobody wants the rest
    except Exception as error:
        send("error", reason(error))


def _receive(pipe: Any, pipes: dict[Any, _Source]) -> Iterator[Any]:
    """Yields the sample that waits in a pipe, or takes an ended pipe out of ``pipes``."""
    process, shared = pipes[pipe].process, pipes[pipe].shared
    try:
        kind, value = shared.receive(pipes[pipe].watch.until(None))
    except (EOFError, ConnectionError):
        process.join()
        kind, value = "error", f"its process ended with exit code {process.exitcode}"
    if kind == "sample":
        if freed := shared.freed():
            # Few and small: they never fill the way back while the process waits to send. One that has ended needs none.
            with suppress(ConnectionError):
                pipe.send(freed)
        yield value
    elif kind == "end":
        process.join()
        pipes.pop(pipe).close()
    else:
        raise DataError(
            "a process of multiprocess_reader failed",
            expected="readers that read to their end",
            received=value,
            fix="call the reader in this process to see its traceback",
            op="multiprocess_reader",
        )


__all__ = [
    "ComposeNotAligned", "Reader", "batch", "buffered", "cache", "chain", "compose", "firstn", "map_readers",
    "multiprocess_reader", "shuffle", "xmap_readers",
]  # fmt: skip
