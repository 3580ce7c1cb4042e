"""The memory of batches is used again, and never while anybody has the batch."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.io.test_data_loader import Calls
from tstatic import io
from tstatic.io import recycled
from tstatic.io.recycled import LARGE, MOST_FREE, Recycled


def address(array: np.ndarray) -> int:  # type: ignore[type-arg]
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_when_it_is_free() -> None:
    pool = Recycled()
    first = pool.empty((LARGE // 4,), "float32")
    place, part = address(first), first[3:5]
    del first
    second = pool.empty((LARGE // 4,), "float32")
    assert address(second) != place
    del part
    again = pool.empty((2, LARGE // 16), "float64")
    assert address(again) == place
    assert (again.shape, again.dtype, again.flags.writeable) == ((2, LARGE // 16), np.float64, True)


def test_blocks_are_large_enough_and_not_too_large() -> None:
    pool = Recycled()
    places = {size: address(pool.empty((size * LARGE,), "uint8")) for size in (1, 3)}
    assert address(pool.empty((2 * LARGE,), "uint8")) == places[3]
    larger = pool.empty((5 * LARGE,), "uint8")
    larger[:] = 1
    assert address(larger) not in places.values()
    many = [pool.empty((LARGE * (10 + size**2),), "uint8") for size in range(3 * MOST_FREE)]
    del many
    for size in range(40, 50):
        pool.empty((LARGE * size**2,), "uint8")
    assert len(pool._blocks) <= MOST_FREE + 2
    assert pool.empty((3,), "uint8").base is None
    assert pool.empty((LARGE,), object).dtype == object


def test_batches_that_are_kept_stay() -> None:
    data = Calls(lambda i: np.full(LARGE, i, "uint8"), 12)
    for buffered in (False, True):
        kept = [np.asarray(batch.array) for batch in io.DataLoader(data, batch_size=2, use_buffer_reader=buffered)]
        assert [batch[:, -1].tolist() for batch in kept] == [[i, i + 1] for i in range(0, 12, 2)]
        places = {address(batch.array) for batch in io.DataLoader(data, batch_size=2, use_buffer_reader=buffered)}
        assert len(places) <= 5


def test_a_loader_uses_its_memory_in_each_epoch() -> None:
    loader = io.DataLoader(Calls(lambda i: np.full(LARGE, i, "uint8"), 8), batch_size=2, use_buffer_reader=False)
    first, second = ({address(batch.array) for batch in loader} for _ in range(2))
    assert first == second
    assert len(first) <= 3


def test_much_memory_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recycled, "MOST_BYTES", 3 * LARGE)
    pool = Recycled()
    kept = [pool.empty((LARGE,), "uint8") for _ in range(5)]
    assert [array.base is None for array in kept] == [False] * 3 + [True] * 2
    del kept
    assert pool.empty((LARGE,), "uint8").base is not None


def test_threads_get_memory_of_their_own() -> None:
    pool = Recycled()
    wrong: list[int] = []

    def work(value: int) -> None:
        for _ in range(300):
            array = pool.empty((LARGE,), "uint8")
            array[::4096] = value
            wrong.extend(array[::4096][array[::4096] != value].tolist())

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
