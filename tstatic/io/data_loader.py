"""Batches of a data set, as tensors that can be fed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tstatic import records
from tstatic.io.arguments import function_or_none, seconds, sized, truth, whole, wrong_type
from tstatic.io.arguments import iterable as iterable_of
from tstatic.io.collate import collate, join, leaves, to_tensors
from tstatic.io.dataset import in_order
from tstatic.io.errors import DataError, DataTypeError, DataUseError
from tstatic.io.feeder import feed_names, named, place_list
from tstatic.io.generator_loader import from_generator
from tstatic.io.prefetch import ahead
from tstatic.io.recycled import Recycled
from tstatic.io.sampler import BatchSampler, SequenceSampler
from tstatic.io.shared import Empty
from tstatic.io.workers import END, Fetch, Workers
from tstatic.ir.export import export, respell
from tstatic.ir.program import Variable
from tstatic.runtime import random

_NAME = "DataLoader"
MOST_WORKERS = 4096
"""How many processes a loader starts at most: more than systems have cores, and fewer than they can count."""
_AHEAD = 2
"""Batches that the thread of ``use_buffer_reader`` keeps ready."""


@dataclass(frozen=True)
class Fetcher:
    """How batches are made of samples; it can be sent to other processes if the data set and ``collate_fn`` can.

    Attributes:
        dataset: What has the samples.
        collate_fn: Makes a batch of a list of samples, or ``None``.
        batch_size: Samples of a batch of an IterableDataset; ``None`` for single samples.
        drop_last: Leaves out a last such batch that is smaller.
        grouped: Whether a task is a list of numbers, not one.
    """

    dataset: Any
    collate_fn: Callable[[list[Any]], Any] | None
    batch_size: int | None
    drop_last: bool
    grouped: bool

    def __call__(self, empty: Empty) -> Fetch:
        """Returns a function that makes the batch of a task; ``empty`` makes its arrays."""
        dataset = self.dataset
        combine = self.collate_fn or partial(collate, empty=empty)
        if not in_order(dataset):
            if not self.grouped:
                return lambda number: self._single(dataset[number])
            whole = getattr(dataset, "__getitems__", None)  # of torch and Hugging Face: samples of many numbers at once
            if whole is not None:
                return lambda numbers: combine(whole(numbers))
            if self.collate_fn is None:
                return lambda numbers: join((dataset[number] for number in numbers), len(numbers), empty)
            return lambda numbers: combine([dataset[number] for number in numbers])
        samples = iter(dataset)
        size = self.batch_size

        def fetch(_: None) -> Any:
            rows = list(itertools.islice(samples, size or 1))
            if not rows or (size is not None and len(rows) < size and self.drop_last):
                return END
            return self._single(rows[0]) if size is None else combine(rows)

        return fetch

    def _single(self, sample: Any) -> Any:
        return sample if self.collate_fn is None else self.collate_fn(sample)


@export("io.DataLoader")
@respell(
    "fluid.io.DataLoader",
    "fluid.reader.DataLoader",
    takes="dataset, feed_list=None, places=None, return_list=None, batch_sampler=None, batch_size=1, shuffle=False, "
    "drop_last=False, collate_fn=None, num_workers=0, use_buffer_reader=True, use_shared_memory=True, timeout=0, "
    "worker_init_fn=None, prefetch_factor=2, persistent_workers=False",
)
class DataLoader:
    """Batches of a data set: each iteration is an epoch.

    A batch has the structure of a sample, with a tensor in place of each array or number: a list for a tuple, a dict for a
    dict. With several places an item is a list with a batch for each; batches at the end that are fewer are left out.

    Args:
        dataset: A Dataset, an IterableDataset, or anything with ``__getitem__`` and ``__len__``.
        feed_list: Variables, in the order of the fields of a sample; needed with ``return_list=False``.
        places: One or several places; the expected place if ``None``.
        return_list: ``False`` gives lists with a dict ``{name: tensor}`` for each place, which can be fed as they are;
            ``None`` does so where there is a ``feed_list``.
        batch_sampler: What gives the lists of numbers; in place of the next three.
        batch_size: Samples in a batch; ``None`` gives single samples.
        shuffle: Takes the samples in a random order, which ``np.random.seed`` decides.
        drop_last: Leaves out a last batch that is smaller.
        collate_fn: Makes a batch of a list of samples; by default arrays are stacked and numbers become arrays.
        num_workers: Processes that make the batches, in order; 0 makes them in this one.
        use_buffer_reader: Makes the next batches in a thread while one is used; workers do so in any case.
        prefetch_factor: Batches that each worker makes ahead.
        use_shared_memory: Workers write arrays where this process reads them; ``False`` sends them through pipes.
        timeout: Seconds to wait for a worker's batch; 0 waits for ever.
        worker_init_fn: Called in each worker with its number.
        persistent_workers: Keeps the workers from epoch to epoch; an epoch that is begun ends an earlier one.

    Raises:
        DataTypeError: If an argument is of the wrong type (a ``TypeError``).
        DataUseError: If arguments exclude each other or are out of range (an ``AssertionError``).
        DataError: If an IterableDataset is to be shuffled, or has a ``batch_sampler`` (a ``ValueError``).

    Example:
        >>> x, y = static.data("x", [None, 2], "float64"), static.data("y", [None], "int64")
        >>> dataset = [(np.array([i, i + 0.5]), i) for i in range(3)]
        >>> loader = paddle.io.DataLoader(dataset, feed_list=[x, y], batch_size=2, return_list=False)
        >>> exe = static.Executor()
        >>> [exe.run(feed=data, fetch_list=[y * 2])[0].tolist() for data in loader]
        [[0, 2], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        feed_list: Sequence[Variable | str] | None = None,
        places: Any = None,
        return_list: bool | None = True,
        batch_sampler: Any = None,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        prefetch_factor: int = 2,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        persistent_workers: bool = False,
    ) -> None:
        iterable = in_order(dataset)
        if not iterable and not hasattr(dataset, "__getitem__"):
            raise wrong_type(dataset, "dataset", _NAME, "a data set, or something else with samples")
        if feed_list is not None:
            feed_names(iterable_of(feed_list, "feed_list", _NAME, "a list of Variables or names"))
        num_workers = whole(num_workers, "num_workers", _NAME)
        prefetch_factor = whole(prefetch_factor, "prefetch_factor", _NAME)
        batch_size = None if batch_size is None else whole(batch_size, "batch_size", _NAME)
        if return_list is None:
            return_list = feed_list is None
        return_list, shuffle = truth(return_list, "return_list", _NAME), truth(shuffle, "shuffle", _NAME)
        drop_last = truth(drop_last, "drop_last", _NAME)
        if batch_sampler is not None:
            iterable_of(
                batch_sampler, "batch_sampler", _NAME, "a BatchSampler, or something else that gives lists of numbers"
            )
        timeout = seconds(timeout, "timeout", _NAME)
        for wrong, what, received in (
            (not return_list and feed_list is None, "feed_list should be set when return_list=False", "feed_list=None"),
            (num_workers < 0, "num_workers should be a non-negative value", f"num_workers={num_workers}"),
            (num_workers > MOST_WORKERS, f"num_workers should be at most {MOST_WORKERS}", f"num_workers={num_workers}"),
            (prefetch_factor <= 0, "prefetch_factor should be a positive value", f"prefetch_factor={prefetch_factor}"),
            (
                batch_sampler is not None and not iterable and (batch_size != 1 or shuffle or drop_last),
                "batch_size/shuffle/drop_last should not be set when batch_sampler is given",
                f"batch_size={batch_size}, shuffle={shuffle}, drop_last={drop_last}",
            ),
            (
                batch_sampler is None and batch_size is not None and batch_size <= 0,
                "batch_size should be None or a positive value when batch_sampler is not given",
                f"batch_size={batch_size}",
            ),
        ):
            if wrong:
                raise DataUseError(
                    what,
                    expected="arguments that fit together",
                    received=received,
                    fix="leave batch_size, shuffle and drop_last out beside a batch_sampler; else pass batch_size=32, for example",
                    op="DataLoader",
                )
        if iterable and (shuffle or batch_sampler is not None):
            raise DataError(
                f"IterableDataset not support shuffle, but got shuffle={shuffle}"
                if shuffle
                else "IterableDataset expect unspecified batch_sampler",
                expected="shuffle=False and no batch_sampler",
                received=f"shuffle={shuffle}, batch_sampler={batch_sampler!r}",
                fix="shuffle in the data set's __iter__, or use a Dataset",
                op="DataLoader",
            )
        self.dataset = dataset
        self.feed_list = feed_list
        self.places = place_list(places)
        self.return_list = return_list
        self.batch_size = None if batch_sampler is not None else batch_size
        self.drop_last = drop_last
        self.collate_fn = function_or_none(collate_fn, "collate_fn", _NAME)
        self.num_workers = num_workers
        self.use_buffer_reader = truth(use_buffer_reader, "use_buffer_reader", _NAME)
        self.prefetch_factor = prefetch_factor
        self.use_shared_memory = truth(use_shared_memory, "use_shared_memory", _NAME)
        self.timeout = timeout
        self.worker_init_fn = function_or_none(worker_init_fn, "worker_init_fn", _NAME)
        self.batch_sampler = batch_sampler
        if batch_sampler is None and batch_size is not None and not iterable:
            self.batch_sampler = BatchSampler(dataset, None, shuffle, batch_size, drop_last)
        self._persistent_workers = truth(persistent_workers, "persistent_workers", _NAME)
        self._kept: Workers | None = None
        self._recycled = Recycled()

    from_generator = staticmethod(from_generator)

    def __len__(self) -> int:
        """Batches of an epoch.

        Raises:
            DataTypeError: For an IterableDataset (a ``ValueError`` and a ``TypeError``).
        """
        if in_order(self.dataset):
            # Being a TypeError too, it lets ``list(loader)`` go on without a length.
            raise DataTypeError(
                "length of IterableDataset not supported",
                expected="a Dataset",
                received=type(self.dataset).__name__,
                fix="count the batches while iterating",
            )
        given, arg = (self.dataset, "dataset") if self.batch_sampler is None else (self.batch_sampler, "batch_sampler")
        return len(sized(given, arg, _NAME))

    def __call__(self) -> Iterator[Any]:
        """Returns an iterator over an epoch, as ``iter`` does."""
        return iter(self)

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers:
            batches = self._from_workers()
        else:
            batches = ahead(self._batches, _AHEAD) if self.use_buffer_reader else self._batches()
        return records.each(self._items(batches), "data", "DataLoader")

    def _items(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Groups batches by places, and makes them what the user gets."""
        names = None if self.return_list else feed_names(self.feed_list or ())
        count = len(self.places)
        while len(group := list(itertools.islice(batches, count))) == count:
            if names is not None:
                yield [named([to_tensors(field) for field in leaves(batch)], names) for batch in group]
            else:
                made = [to_tensors(batch) for batch in group]
                yield made[0] if count == 1 else made

    # ---------------------------------------------------------------------------------------------------------- batches
    def _tasks(self) -> Iterable[Any]:
        """What a Fetch takes for each batch: numbers of samples; nothing for an IterableDataset."""
        if in_order(self.dataset):
            return itertools.repeat(None)
        if self.batch_sampler is None:
            return SequenceSampler(self.dataset)
        return (sized(numbers, "batch_sampler", _NAME, "lists of numbers") for numbers in self.batch_sampler)

    def _fetcher(self) -> Fetcher:
        return Fetcher(self.dataset, self.collate_fn, self.batch_size, self.drop_last, self.batch_sampler is not None)

    def _batches(self) -> Iterator[Any]:
        fetch = self._fetcher()(self._recycled.empty)
        for task in self._tasks():
            batch = fetch(task)
            if batch is END:
                return
            yield batch

    def _from_workers(self) -> Iterator[Any]:
        workers = self._kept
        if workers is None:
            seed = int(random.generator().integers(2**31))
            workers = Workers(
                self._fetcher(),
                self.dataset,
                self.num_workers,
                seed,
                self.worker_init_fn,
                self.prefetch_factor,
                self.timeout,
                self.use_shared_memory,
            )
        self._kept = workers if self._persistent_workers else None
        try:
            yield from workers.epoch(self._tasks())
        except GeneratorExit:
            raise
        except BaseException:  # a KeyboardInterrupt, too, may leave half a message in a pipe
            self._kept = None
            raise
        finally:
            if self._kept is not workers:
                workers.close()
