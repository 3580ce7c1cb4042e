"""DataLoader gives Paddle's batches; its worker processes keep order, and their failures are told of."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, io, static
from tstatic.io.errors import DataError, DataUseError


class Numbers(io.IterableDataset):
    """Shares 9 numbers among the workers."""

    def __iter__(self) -> Iterator[int]:
        info = io.get_worker_info()
        yield from range(9) if info is None else range(info.id, 9, info.num_workers)


class Calls(io.Dataset):
    """Samples by a function of their number."""

    def __init__(self, function: Any, n: int = 8) -> None:
        self.function, self.n = function, n

    def __getitem__(self, idx: int) -> Any:
        return self.function(idx)

    def __len__(self) -> int:
        return self.n


def values(batch: Any) -> Any:
    if isinstance(batch, fluid.LoDTensor):
        return np.array(batch).tolist()
    if isinstance(batch, dict):
        return {key: values(value) for key, value in batch.items()}
    return [values(value) for value in batch] if isinstance(batch, list) else batch


def batches(*args: Any, **kwargs: Any) -> Any:
    return values(list(io.DataLoader(*args, **kwargs)))


def test_items_have_the_structure_of_a_sample() -> None:
    for sample, wanted in (
        (lambda i: i, [0, 1]),
        (lambda i: (np.full(2, i, "float32"), i), [[[0, 0], [1, 1]], [0, 1]]),
        (lambda i: {"a": i, "b": [i, str(i)]}, {"a": [0, 1], "b": [[0, 1], ["0", "1"]]}),
        (str, ["0", "1"]),
    ):
        assert batches(Calls(sample, 2), batch_size=2) == [wanted]
    found = next(iter(io.DataLoader(Calls(lambda i: (i, i / 2, np.float32(i))), batch_size=2)))
    assert [np.array(t).dtype for t in found] == [np.int64, np.float64, np.float32]
    assert issubclass(fluid.io.DataLoader, io.DataLoader)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("buffered", [False, True])
def test_batches_come_in_order(workers: int, buffered: bool) -> None:
    common: dict[str, Any] = {"num_workers": workers, "use_buffer_reader": buffered}
    data = list(range(7))
    assert batches(data, batch_size=3, **common) == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches(data, batch_size=3, drop_last=True, **common) == [[0, 1, 2], [3, 4, 5]]
    assert batches([np.arange(2)] * 2, batch_size=None, **common) == [[0, 1]] * 2
    sampler = io.BatchSampler(sampler=io.SequenceSampler(data), batch_size=5)
    assert batches(data, batch_sampler=sampler, **common) == [[0, 1, 2, 3, 4], [5, 6]]
    np.random.seed(0)
    assert batches(data[:5], batch_size=5, shuffle=True, **common) == [[2, 0, 1, 3, 4]]
    assert batches(data[:2], batch_size=2, collate_fn=lambda rows: {"n": len(rows)}, **common) == [{"n": 2}]


def test_a_loader_feeds_a_program() -> None:
    x, y = static.data("x", [None, 2], "float32"), static.data("y", [None], "int64")
    data = Calls(lambda i: (np.full(2, i, "float32"), i), 3)
    loader = io.DataLoader(data, feed_list=[x, y], batch_size=2, return_list=False)
    exe = static.Executor()
    found = [exe.run(feed=item, fetch_list=[x + 1, y])[1].tolist() for item in loader]
    assert found == [[0, 1], [2]]
    assert [[sorted(place) for place in item] for item in loader()] == [[["x", "y"]]] * 2
    named = io.DataLoader(data, ["x", "y"], "cpu", batch_size=2)
    assert [exe.run(feed={"x": a, "y": b}, fetch_list=[y])[0].tolist() for a, b in named] == [[0, 1], [2]]


def test_several_places_share_the_batches() -> None:
    places = [paddle.CPUPlace()] * 2
    assert batches(range(5), places=places, batch_size=1) == [[[0], [1]], [[2], [3]]]
    found = batches([(i,) for i in range(4)], ["x"], places, return_list=False, batch_size=1)
    assert found == [[{"x": [0]}, {"x": [1]}], [{"x": [2]}, {"x": [3]}]]


def test_lengths() -> None:
    assert len(io.DataLoader(range(7), batch_size=3)) == 3
    assert len(io.DataLoader(range(7), batch_size=3, drop_last=True)) == 2
    assert len(io.DataLoader(range(7), batch_size=None)) == 7
    loader = io.DataLoader(Numbers(), batch_size=4)
    with pytest.raises(ValueError, match="length of IterableDataset not supported"):
        len(loader)
    assert values(list(loader)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert batches(Numbers(), batch_size=4, drop_last=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches(Numbers(), batch_size=None)[:2] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"return_list": False}, "feed_list should be set when return_list=False"),
        ({"num_workers": -1}, "num_workers should be a non-negative value"),
        ({"prefetch_factor": 0}, "prefetch_factor should be a positive value"),
        ({"timeout": -1}, "timeout should be a non-negative value"),
        ({"timeout": float("nan")}, "timeout should be a non-negative value"),
        ({"timeout": float("inf")}, "timeout should be a non-negative value"),
        (
            {"batch_sampler": [[0]], "batch_size": 2},
            "batch_size/shuffle/drop_last should not be set when batch_sampler is given",
        ),
        ({"batch_size": 0}, "batch_size should be None or a positive value when batch_sampler is not given"),
    ],
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(AssertionError) as caught:
        io.DataLoader([1, 2], **arguments)
    assert isinstance(caught.value, DataUseError)
    assert caught.value.what == text


def test_an_iterable_data_set_decides_its_order() -> None:
    with pytest.raises(ValueError, match="IterableDataset not support shuffle, but got shuffle=True"):
        io.DataLoader(Numbers(), shuffle=True)
    with pytest.raises(ValueError, match="IterableDataset expect unspecified batch_sampler"):
        io.DataLoader(Numbers(), batch_sampler=[[0]])


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_do_not_fit_together(workers: int) -> None:
    for sample, error, text in (
        (lambda i: np.zeros(i), DataError, "different shapes"),
        (lambda i: [0] * i, RuntimeError, "fields number not same among samples in a batch"),
        (lambda i: {i: 0}, RuntimeError, "different fields"),
        (lambda i: object(), TypeError, "batch data can only contain"),
    ):
        with pytest.raises(error, match=text):
            batches(Calls(sample), batch_size=2, num_workers=workers)
    with pytest.raises(AssertionError, match="does not match len"):
        batches([(1, 2)], ["x"], return_list=False, num_workers=workers)


# -------------------------------------------------------------------------------------------------------------- workers
def test_workers_share_an_iterable_data_set_in_turn() -> None:
    assert io.get_worker_info() is None
    assert batches(Numbers(), batch_size=2, num_workers=2) == [[0, 2], [1, 3], [4, 6], [5, 7], [8]]
    everything = Calls(lambda i: (io.get_worker_info().id, io.get_worker_info().num_workers), 4)
    assert batches(everything, batch_size=1, num_workers=2) == [[[0], [2]], [[1], [2]], [[0], [2]], [[1], [2]]]


def test_workers_are_seeded() -> None:
    draws = Calls(lambda i: (np.random.randint(1 << 30), random.random(), io.get_worker_info().seed), 4)
    paddle.seed(3)
    first, second = (batches(draws, num_workers=2) for _ in range(2))
    paddle.seed(3)
    assert batches(draws, num_workers=2) == first
    assert first != second
    assert first[1][2][0] == first[0][2][0] + 1


def test_workers_that_stay() -> None:
    loader = io.DataLoader(Calls(lambda i: os.getpid(), 4), num_workers=2, persistent_workers=True)
    first = values(list(loader))
    assert values(list(loader)) == first
    assert len({pid for (pid,) in first}) == 2
    numbers = io.DataLoader(Numbers(), batch_size=8, num_workers=1, persistent_workers=True)
    assert values(next(iter(numbers))) == list(range(8))
    assert values(list(numbers)) == [list(range(8)), [8]]
    others = values(list(io.DataLoader(Calls(lambda i: os.getpid(), 2), num_workers=1)))
    assert others[0] != first[0]


def test_each_worker_is_initialised() -> None:
    def init(number: int) -> None:
        os.environ["NUMBER"] = str(number)

    data = Calls(lambda i: os.environ["NUMBER"], 3)
    assert batches(data, num_workers=2, worker_init_fn=init) == [["0"], ["1"], ["0"]]
    with pytest.raises(ZeroDivisionError):
        batches(data, num_workers=1, worker_init_fn=lambda number: number // 0)


def fifth(failure: Any) -> Calls:
    return Calls(lambda i: failure() if i == 5 else i)


def broken_line() -> None:
    raise KeyError("five")


class Unsendable(Exception):
    """Takes two arguments, so that it cannot be rebuilt from its text."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} {b}")


def test_an_exception_of_a_worker_is_raised_with_its_traceback() -> None:
    with pytest.raises(KeyError, match="five") as caught:
        batches(fifth(broken_line), num_workers=2)
    (note,) = caught.value.__notes__
    assert note.startswith("In DataLoader worker 1:\nTraceback")
    assert "in broken_line" in note

    def fail() -> None:
        raise Unsendable(1, 2)

    with pytest.raises(DataError, match="worker 1 raised Unsendable"):
        batches(fifth(fail), num_workers=2)


def test_a_worker_that_dies_is_named() -> None:
    loader = io.DataLoader(fifth(lambda: os.kill(os.getpid(), signal.SIGKILL)), num_workers=2)
    with pytest.raises(DataError, match=r"DataLoader worker 1 \(pid \d+\) was killed by SIGKILL"):
        list(loader)
    with pytest.raises(DataError, match="ended with exit code 3"):
        batches(fifth(lambda: os._exit(3)), num_workers=1)


def test_a_worker_that_takes_too_long_is_named() -> None:
    with pytest.raises(DataError, match=r"worker 0 did not give a batch in 0.2 s"):
        batches(Calls(lambda i: signal.pause()), num_workers=1, timeout=0.2)
