"""Readers give what Paddle 2.6.2 gives, and exceptions of their threads and processes reach the caller."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, reader
from tstatic.io.errors import DataError, DataTypeError


def count(n: int, start: int = 0) -> Callable[[], Iterator[int]]:
    return lambda: iter(range(start, start + n))


def breaks(after: int) -> Callable[[], Iterator[int]]:
    def read() -> Iterator[int]:
        yield from range(after)
        raise KeyError("broken file")

    return read


def ends_early() -> Iterator[int]:
    yield 1
    raise EOFError("no more data")


def test_batch_keeps_a_short_last_list_unless_told() -> None:
    assert list(paddle.batch(count(5), 2)()) == [[0, 1], [2, 3], [4]]
    assert list(paddle.batch(count(5), 2, drop_last=True)()) == [[0, 1], [2, 3]]
    assert list(paddle.batch(count(0), 2)()) == []
    assert paddle.batch is fluid.io.batch is fluid.layers.batch


@pytest.mark.parametrize("size", [0, -3])
def test_batch_wants_a_positive_size(size: int) -> None:
    with pytest.raises(
        ValueError, match=f"^batch_size should be a positive integer value, but got batch_size={size}\n"
    ):
        paddle.batch(count(5), size)


def test_shuffle_draws_from_pythons_random_numbers() -> None:
    shuffled = reader.shuffle(count(5), 3)
    random.seed(1)
    assert list(shuffled()) == [1, 2, 0, 3, 4]
    random.seed(0)
    assert list(reader.shuffle(count(7), 100)()) == [4, 2, 1, 0, 5, 3, 6]
    assert list(reader.shuffle(count(3), 0)()) == [0, 1, 2]


def test_cache_reads_when_it_decorates_and_once() -> None:
    calls = []
    kept = reader.cache(lambda: calls.append(1) or iter([1, 2]))
    assert calls == [1]
    assert [list(kept()), list(kept()), calls] == [[1, 2], [1, 2], [1]]


def test_readers_are_joined() -> None:
    assert list(reader.chain(count(2), count(2, 8))()) == [0, 1, 8, 9]
    assert list(reader.map_readers(lambda a, b: a * b, count(3), count(5, 1))()) == [0, 2, 6]
    pairs = reader.map_readers(lambda i: (i, -i), count(2))
    assert list(reader.compose(pairs, count(2, 5))()) == [(0, 0, 5), (1, -1, 6)]
    assert list(reader.firstn(count(9), 2)()) == [0, 1]
    assert list(reader.firstn(count(1), 5)()) == [0]


def test_compose_compares_lengths() -> None:
    assert list(reader.compose(count(2), count(3), check_alignment=False)()) == [(0, 0), (1, 1)]
    rows = reader.compose(count(2), count(3))()
    assert [next(iter(rows)), next(iter(rows))] == [(0, 0), (1, 1)]
    with pytest.raises(reader.ComposeNotAligned, match=r"^outputs of readers are not aligned\."):
        next(iter(rows))
    assert issubclass(fluid.io.ComposeNotAligned, ValueError)


@pytest.mark.parametrize(
    "make",
    [
        lambda r: paddle.batch(r, 2),
        lambda r: reader.buffered(r, 2),
        lambda r: reader.xmap_readers(lambda x: x, r, 2, 2, order=True),
        lambda r: reader.chain(r, r),
        lambda r: reader.compose(r, r),
    ],
)
def test_every_call_starts_anew(make: Callable[[Any], Any]) -> None:
    made = make(count(4))
    first = list(made())
    assert first
    assert list(made()) == first


@pytest.mark.parametrize("size", [0, 1, 100])
def test_buffered_keeps_order(size: int) -> None:
    assert list(reader.buffered(count(50), size)()) == list(range(50))


def test_a_reader_that_is_given_up_stops_its_thread() -> None:
    before = threading.active_count()
    samples = iter(reader.buffered(count(10**9), 2)())
    assert next(samples) == 0
    assert threading.active_count() == before + 1
    samples.close()  # type: ignore[attr-defined]
    for thread in threading.enumerate():
        if thread.name == "tstatic reader":
            thread.join(5)
    assert threading.active_count() == before


def test_threads_map() -> None:
    assert sorted(reader.xmap_readers(lambda x: x * x, count(20), 3, 4)()) == [x * x for x in range(20)]
    assert list(reader.xmap_readers(lambda x: x * x, count(20), 3, 4, order=True)()) == [x * x for x in range(20)]
    with pytest.raises(DataError, match="at least one thread"):
        reader.xmap_readers(lambda x: x, count(2), 0, 4)


@pytest.mark.parametrize("order", [False, True])
def test_an_exception_of_a_thread_reaches_the_caller(order: bool) -> None:
    with pytest.raises(KeyError, match="broken file"):
        list(reader.buffered(breaks(3), 1)())
    with pytest.raises(KeyError, match="broken file"):
        list(reader.xmap_readers(lambda x: x, breaks(3), 2, 1, order)())
    with pytest.raises(ZeroDivisionError):
        list(reader.xmap_readers(lambda x: 1 // x, count(5), 2, 1, order)())


def test_processes_read() -> None:
    both = reader.multiprocess_reader([count(3), lambda: iter([("a", [1.5])])])
    found = list(both())
    assert [x for x in found if isinstance(x, int)] == [0, 1, 2]
    assert [x for x in found if not isinstance(x, int)] == [("a", [1.5])]


def test_processes_share_large_arrays() -> None:
    def arrays(first: int) -> reader.Reader:
        return lambda: ((np.full((64, 64), first + i, "float32"), first + i) for i in range(100))

    found = list(reader.multiprocess_reader([arrays(0), arrays(1000)])())
    assert sorted(number for _, number in found) == [*range(100), *range(1000, 1100)]
    assert all((array == number).all() and array.shape == (64, 64) for array, number in found)
    # The memory of arrays that nobody holds is used again.
    for array, number in reader.multiprocess_reader([arrays(0)])():
        assert (array == number).all()


def test_a_process_that_fails_is_told_of() -> None:
    with pytest.raises(DataTypeError, match=r"`readers` must be list or tuple\."):
        reader.multiprocess_reader(count(3))
    with pytest.raises(DataError, match="broken file"):
        list(reader.multiprocess_reader([breaks(1)])())
    with pytest.raises(DataError, match="no more data"):
        list(reader.multiprocess_reader([ends_early])())
    with pytest.raises(DataError, match="sample has None"):
        list(reader.multiprocess_reader([lambda: iter([None])])())
    with pytest.raises(DataError, match="exit code 7"):
        list(reader.multiprocess_reader([lambda: iter(lambda: os._exit(7), 0)])())
