"""Loaders over readers: the items of iterable ones, and runs that take batches without a feed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, io, static
from tstatic.io.errors import DataUseError


def samples(n: int = 5) -> Any:
    return lambda: (([i, i], i) for i in range(n))


def inputs() -> tuple[Any, Any]:
    return static.data("x", [None, 2], "float32"), static.data("y", [None, 1], "int64")


def values(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: values(value) for key, value in item.items()}
    return [values(value) for value in item] if isinstance(item, list) else np.array(item).tolist()


def labels(items: Any) -> Any:
    return [[np.array(place["y"]).ravel().tolist() for place in item] for item in items]


def test_items_of_an_iterable_loader_have_a_dict_for_each_place() -> None:
    feed_list = inputs()
    loader = io.DataLoader.from_generator(feed_list, capacity=4)
    assert loader.set_sample_generator(samples(), 2, places=paddle.CPUPlace()) is loader
    assert values(next(iter(loader))) == [{"x": [[0, 0], [1, 1]], "y": [[0], [1]]}]
    assert [labels(loader), labels(loader())] == [[[[0, 1]], [[2, 3]]]] * 2
    loader.set_sample_generator(samples(), 2, drop_last=False, places="cpu")
    assert labels(loader) == [[[0, 1]], [[2, 3]], [[4]]]
    loader.set_sample_list_generator(paddle.batch(samples(), 3), places=["cpu"])
    assert labels(loader) == [[[0, 1, 2]], [[3, 4]]]
    listed = fluid.io.DataLoader.from_generator(feed_list, 4, return_list=True)
    listed.set_batch_generator(lambda: iter([(np.ones((1, 2)), np.ones((1, 1), int))]), "cpu")
    assert values(list(listed)) == [[[[[1, 1]], [[1]]]]]


def test_an_item_is_a_feed() -> None:
    x, y = inputs()
    loader = io.DataLoader.from_generator([x, y]).set_sample_generator(samples(4), 2, places="cpu")
    exe = static.Executor()
    assert [exe.run(feed=item, fetch_list=[y * 2])[0].ravel().tolist() for item in loader] == [[0, 2], [4, 6]]


@pytest.mark.parametrize(("drop_last", "wanted"), [(True, [[[0], [1]]]), (False, [[[0], [1]], [[2]]])])
def test_places_share_batches(drop_last: bool, wanted: Any) -> None:
    loader = io.DataLoader.from_generator(inputs(), drop_last=drop_last)
    loader.set_sample_generator(samples(3), 1, places=static.cpu_places(2))
    assert labels(loader) == wanted


def test_misuse_is_refused() -> None:
    feed_list = inputs()
    loader = io.DataLoader.from_generator(feed_list)
    other = io.DataLoader.from_generator(feed_list, iterable=False)
    for call, text in (
        (lambda: loader.set_sample_generator(samples(), 2), "Places cannot be None when DataLoader is iterable"),
        (lambda: iter(loader), "Data source of DataLoader has not set yet"),
        (loader.start, "start() cannot be called when DataLoader is iterable"),
        (loader.reset, "reset() cannot be called when DataLoader is iterable"),
        (lambda: iter(other), "DataLoader is not iterable"),
        (other.start, "Data source of DataLoader has not set yet"),
        (
            lambda: io.DataLoader.from_generator(iterable=False),
            "feed_list should be set when DataLoader is not iterable",
        ),
    ):
        with pytest.raises(AssertionError) as caught:
            call()
        assert isinstance(caught.value, DataUseError)
        assert caught.value.what == text
    with pytest.raises(ValueError, match="batch_size should be a positive integer value, but got batch_size=0"):
        other.set_sample_generator(samples(), 0)


def epoch(exe: Any, loader: Any, program: Any, fetch: Any) -> list[Any]:
    found = []
    loader.start()
    try:
        while True:
            found.append(exe.run(program, fetch_list=[fetch])[0].ravel().tolist())
    except fluid.core.EOFException:
        loader.reset()
    return found


def test_runs_without_a_feed_take_the_batches() -> None:
    x, y = inputs()
    loader = fluid.io.DataLoader.from_generator([x, y], capacity=8, iterable=False)
    loss = paddle.sum(x) + 1
    exe, main = static.Executor(), static.default_main_program()
    with pytest.raises(DataUseError, match="has not been started"):
        exe.run(main, fetch_list=[loss])
    loader.set_sample_list_generator(paddle.batch(samples(), 2))
    test = main.clone(for_test=True)
    for program in (main, test, static.CompiledProgram(main)):
        assert epoch(exe, loader, program, loss) == [[3], [11], [9]]
    # The user's own values win.
    feed = {"x": np.zeros((1, 2), "float32"), "y": np.zeros((1, 1), "int64")}
    assert exe.run(main, feed=feed, fetch_list=[loss])[0].ravel().tolist() == [1]


def test_a_feed_adds_to_a_loader() -> None:
    x, y = inputs()
    loader = io.DataLoader.from_generator([x], iterable=False)
    loader.set_batch_generator(lambda: iter([(np.full((1, 2), i, "float32"),) for i in (1, 2)]))
    total = paddle.sum(x) + paddle.cast(paddle.sum(y), "float32")
    exe = static.Executor()
    loader.start()
    feed = {"y": np.array([[10]])}
    assert [exe.run(feed=feed, fetch_list=[total])[0].tolist() for _ in range(2)] == [12, 14]


def test_an_epoch_can_be_begun_once_and_given_up() -> None:
    x, y = inputs()
    loader = io.DataLoader.from_generator([x, y], capacity=2, iterable=False)
    loader.set_sample_generator(samples(4), 1)
    exe = static.Executor()
    assert loader.queue.size() == 0
    for _ in range(2):
        loader.start()
        loader.start()
        assert exe.run(fetch_list=[y])[0].tolist() == [[0]]
        assert loader.queue.size() <= 2
        loader.reset()
        loader.reset()


def test_replicas_take_a_batch_each() -> None:
    x, y = inputs()
    loader = io.DataLoader.from_generator([x, y], iterable=False)
    loader.set_sample_generator(samples(4), 1)
    loss = paddle.mean(x)
    compiled = static.CompiledProgram(static.default_main_program())
    compiled = compiled.with_data_parallel(loss.name, places=static.cpu_places(2))
    assert epoch(static.Executor(), loader, compiled, loss) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("iterable", [False, True])
def test_an_exception_of_the_source_is_raised_where_its_batch_is_wanted(iterable: bool) -> None:
    def broken() -> Iterator[Any]:
        yield [([0, 0], 0)]
        raise KeyError("broken file")

    x, y = inputs()
    loader = io.DataLoader.from_generator([x, y], iterable=iterable)
    loader.set_sample_list_generator(broken, "cpu")
    exe = static.Executor()
    if iterable:
        items = iter(loader)
        next(items)
        with pytest.raises(KeyError, match="broken file"):
            next(items)
    else:
        loader.start()
        exe.run(fetch_list=[y])
        with pytest.raises(KeyError, match="broken file"):
            exe.run(fetch_list=[y])


def test_py_reader_names_its_sources_otherwise() -> None:
    x, y = inputs()
    reader = fluid.io.PyReader([x, y], capacity=4, iterable=False)
    exe = static.Executor()
    reader.decorate_sample_generator(samples(3), 2, drop_last=False)
    assert epoch(exe, reader, None, y) == [[0, 1], [2]]
    reader.decorate_sample_list_generator(paddle.batch(samples(3), 3))
    assert epoch(exe, reader, None, y) == [[0, 1, 2]]
    reader.decorate_batch_generator(lambda: iter([(np.ones((1, 2), "float32"), np.ones((1, 1), "int64"))]))
    assert epoch(exe, reader, None, y) == [[1]]


def test_a_loader_is_its_own_iterator() -> None:
    loader = fluid.reader.PyReader(inputs(), capacity=2)
    loader.decorate_sample_generator(samples(4), 2, places="cpu")
    assert labels([next(loader), loader.next()]) == [[[0, 1]], [[2, 3]]]
    with pytest.raises(StopIteration):
        next(loader)
    assert labels([next(loader)]) == [[[0, 1]]]
    assert fluid.io.DataLoader is fluid.reader.DataLoader
    assert issubclass(fluid.io.DataLoader, io.DataLoader)
    assert isinstance(loader, fluid.reader.DataLoaderBase)
