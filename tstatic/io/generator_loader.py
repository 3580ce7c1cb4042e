"""Loaders of Paddle 1.x: batches from a reader, iterated over or taken by the program's own runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tstatic import records
from tstatic.errors import EOFException
from tstatic.io.errors import DataUseError
from tstatic.io.feeder import DataFeeder, feed_names, named, place_list
from tstatic.io.prefetch import Channel, ahead
from tstatic.io.readers import Reader, batch
from tstatic.ir.declare import default_main_program
from tstatic.ir.export import export
from tstatic.ir.program import Variable
from tstatic.no_effect import no_effect
from tstatic.places import Place
from tstatic.runtime.scope import LoDTensor, tensor_of

_CAPACITY = 2
_NO_BUFFER = "a thread reads ahead in any case"
_NO_PROCESS = "batches are made in a thread; multiprocess_reader uses processes"

Fields = list[LoDTensor]


class Queue:
    """The batches of a loader that wait."""

    def __init__(self, loader: GeneratorLoader) -> None:
        self._loader = loader

    def size(self) -> int:
        """Number of batches that are ready; 0 before ``start``."""
        channel = self._loader._channel
        return 0 if channel is None else channel.qsize()


@export("fluid.reader.GeneratorLoader", "fluid.reader.DataLoaderBase")
@no_effect(use_double_buffer=_NO_BUFFER)
class GeneratorLoader:
    """Batches from a source that one of the ``set_..._generator`` methods sets; see :meth:`DataLoader.from_generator`.

    Args:
        feed_list: Variables, in the order of the fields of a sample.
        capacity: Batches that are made ahead; 2 if ``None``.
        iterable: Whether batches are iterated over, not taken by the program's runs.
        return_list: Gives lists of tensors in place of dicts.
        drop_last: With several places, leaves out batches at the end that are fewer.

    Attributes:
        queue: Has ``size()``: the number of batches that wait.
        iterable: Whether batches are iterated over, not taken by the program's runs.

    Example:
        >>> x = static.data("x", [None, 1])
        >>> loader = fluid.reader.GeneratorLoader([x], 4, iterable=True, return_list=True)
        >>> _ = loader.set_sample_generator(lambda: iter([(1,), (2,)]), batch_size=2, places="cpu")
        >>> np.array(next(loader)[0][0]).tolist()
        [[1.0], [2.0]]
    """

    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        drop_last: bool = True,
    ) -> None:
        self.iterable = iterable
        self.queue = Queue(self)
        self._feed_list = list(feed_list or ())
        self._names = feed_names(self._feed_list)
        self._capacity = capacity or _CAPACITY
        self._return_list = return_list
        self._drop_last = drop_last
        self._places: list[Place] = []
        self._source: Callable[[], Iterator[Fields]] | None = None
        self._channel: Channel[Fields] | None = None
        self._batches: Iterator[Fields] = iter(())
        self._epoch: Iterator[Any] | None = None
        if not iterable:
            if not self._names:
                raise _misuse(
                    "feed_list should be set when DataLoader is not iterable", "the variables to read", "none"
                )
            default_main_program().readers.append(self)

    # ---------------------------------------------------------------------------------------------------------- sources
    def set_sample_generator(
        self, reader: Reader, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> GeneratorLoader:
        """Sets a reader of samples as the source; returns self.

        Args:
            reader: Gives a tuple of fields for each sample, which are converted as :meth:`DataFeeder.feed` does.
            batch_size: Samples in a batch.
            drop_last: Leaves out a last batch that is smaller.
            places: One or several places; needed by an iterable loader.
        """
        return self.set_sample_list_generator(batch(reader, batch_size, drop_last), places)

    def set_sample_list_generator(self, reader: Reader, places: Any = None) -> GeneratorLoader:
        """Sets a reader of lists of samples, such as ``paddle.batch`` makes, as the source; returns self.

        Args:
            reader: Gives lists of tuples, which are converted as :meth:`DataFeeder.feed` does.
            places: One or several places; needed by an iterable loader.
        """
        feeder = DataFeeder(self._feed_list, None)
        return self._set(lambda: (list(feeder.feed(rows).values()) for rows in reader()), places)

    def set_batch_generator(self, reader: Reader, places: Any = None) -> GeneratorLoader:
        """Sets a reader of batches as the source; returns self.

        Args:
            reader: Gives a tuple of arrays or tensors for each batch.
            places: One or several places; needed by an iterable loader.
        """
        return self._set(lambda: ([_tensor(field) for field in fields] for fields in reader()), places)

    def _set(self, source: Callable[[], Iterator[Fields]], places: Any) -> GeneratorLoader:
        if self.iterable and places is None:
            raise _misuse("Places cannot be None when DataLoader is iterable", "one or several places", "None")
        self._places = [] if places is None else place_list(places)
        self._source = source
        return self

    def _checked_source(self) -> Callable[[], Iterator[Fields]]:
        if self._source is None:
            raise _misuse("Data source of DataLoader has not set yet", "set_..._generator called before", "no source")
        return self._source

    # -------------------------------------------------------------------------------------------------------- iteration
    def __call__(self) -> Iterator[Any]:
        """Returns an iterator over an epoch, as ``iter`` does."""
        return iter(self)

    def __iter__(self) -> Iterator[Any]:
        if not self.iterable:
            raise _misuse("DataLoader is not iterable", "iterable=True", "iterable=False")
        return records.each(self._items(self._checked_source()), "data", "DataLoader")

    def __next__(self) -> Any:
        """Returns the next item of an epoch of its own, which it begins anew after the end.

        Raises:
            StopIteration: At the end.
        """
        if self._epoch is None:
            self._epoch = iter(self)
        try:
            return next(self._epoch)
        except BaseException:
            self._epoch = None
            raise

    next = __next__

    def _items(self, source: Callable[[], Iterator[Fields]]) -> Iterator[list[Any]]:
        batches, count = ahead(source, self._capacity), len(self._places)
        while group := list(itertools.islice(batches, count)):
            if len(group) == count or not self._drop_last:
                yield group if self._return_list else [named(fields, self._names) for fields in group]

    # ---------------------------------------------------------------------------------------------- runs without a feed
    def start(self) -> None:
        """Begins an epoch, whose batches the program's runs take; does nothing if one is going on.

        Raises:
            DataUseError: If the loader is iterable or has no source (an ``AssertionError``).
        """
        self._check_not_iterable("start")
        source = self._checked_source()
        if self._channel is None:
            self._channel = Channel(self._capacity)
            self._channel.start(source)
            self._batches = records.each(self._channel, "data", "DataLoader")

    def reset(self) -> None:
        """Ends an epoch, also in the middle, so that ``start`` can begin the next one.

        Raises:
            DataUseError: If the loader is iterable (an ``AssertionError``).
        """
        self._check_not_iterable("reset")
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _check_not_iterable(self, method: str) -> None:
        if self.iterable:
            raise _misuse(f"{method}() cannot be called when DataLoader is iterable", "iterable=False", "iterable=True")

    def take(self, places: int, feed: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Returns the next batches, one for each of ``places``, for the Executor; ``None`` if ``feed`` has what this loader reads.

        With ``drop_last=False`` the last batches may be fewer than the places.

        Raises:
            EOFException: If no batches are left, or, with ``drop_last``, fewer than places.
            DataUseError: Before ``start``.
        """
        if any(name in feed for name in self._names):
            return None
        if self._channel is None:
            raise _misuse(
                "the program's DataLoader has not been started",
                "loader.start() before exe.run without a feed",
                "no start()",
            )
        group = list(itertools.islice(self._batches, places))
        if not group or (self._drop_last and len(group) < places):
            raise EOFException("There is no next data.")
        return [{name: t if t.lod() else t.array for name, t in named(row, self._names).items()} for row in group]


def _tensor(field: Any) -> LoDTensor:
    return field if isinstance(field, LoDTensor) else tensor_of(np.array(field))


def _misuse(what: str, expected: str, received: str) -> DataUseError:
    return DataUseError(what, expected=expected, received=received, fix="change how the loader is made or used")


@no_effect(use_double_buffer=_NO_BUFFER, use_multiprocess=_NO_PROCESS)
def from_generator(
    feed_list: Sequence[Variable] | None = None,
    capacity: int | None = None,
    use_double_buffer: bool = True,
    iterable: bool = True,
    return_list: bool = False,
    use_multiprocess: bool = False,
    drop_last: bool = True,
) -> GeneratorLoader:
    """Returns a loader whose batches come from a reader.

    An iterable one gives lists with ``{name: tensor}`` for each place, which can be fed as they are. Another belongs to the
    default main program and its clones: after ``start()`` each run without a feed takes the next batch, until
    ``fluid.core.EOFException``; then ``reset()``.

    Args:
        feed_list: Variables, in the order of the fields of a sample.
        capacity: Batches that are made ahead; 2 if ``None``.
        iterable: Whether batches are iterated over.
        return_list: Gives lists of tensors in place of dicts.
        drop_last: With several places, leaves out batches at the end that are fewer.

    Example:
        >>> x = static.data("x", [None, 1])
        >>> loader = paddle.io.DataLoader.from_generator([x], capacity=4)
        >>> _ = loader.set_sample_generator(lambda: iter([(1,), (2,), (3,)]), 2, drop_last=False, places="cpu")
        >>> exe = static.Executor()
        >>> [exe.run(feed=data, fetch_list=[x * 2])[0].tolist() for data in loader]
        [[[2.0], [4.0]], [[6.0]]]
    """
    return GeneratorLoader(feed_list, capacity, use_double_buffer, iterable, return_list, drop_last)


@export("fluid.io.PyReader", "fluid.reader.PyReader")
class PyReader(GeneratorLoader):
    """The loader of :meth:`DataLoader.from_generator`, with the names of Paddle 1.x for its sources.

    Args:
        feed_list: Variables, in the order of the fields of a sample.
        capacity: Batches that are made ahead; 2 if ``None``.
        iterable: Whether batches are iterated over, not taken by the program's runs.
        return_list: Gives lists of tensors in place of dicts.

    Example:
        >>> x = static.data("x", [None, 1])
        >>> reader = fluid.io.PyReader([x], capacity=4, iterable=False)
        >>> reader.decorate_batch_generator(lambda: iter([[np.ones((2, 1), "float32")]]))
        >>> reader.start()
        >>> static.Executor().run(fetch_list=[x * 2])[0].tolist()
        [[2.0], [2.0]]
    """

    @no_effect(use_double_buffer=_NO_BUFFER)
    def __init__(
        self,
        feed_list: Sequence[Variable] | None = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        super().__init__(feed_list, capacity, use_double_buffer, iterable, return_list)

    def decorate_sample_generator(
        self, sample_generator: Reader, batch_size: int, drop_last: bool = True, places: Any = None
    ) -> None:
        """Sets ``sample_generator``, a reader of samples, as the source, as :meth:`set_sample_generator` does."""
        self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: Reader, places: Any = None) -> None:
        """Sets a reader of lists of samples as the source, as :meth:`set_sample_list_generator` does."""
        self.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Reader, places: Any = None) -> None:
        """Sets a reader of batches as the source, as :meth:`set_batch_generator` does."""
        self.set_batch_generator(reader, places)
