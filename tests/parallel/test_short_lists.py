"""Lists of feeds, and a loader's last batches, that are fewer than the places: tests run on that many, training refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import EOFException, FeedError

PLACES = 4


def compiled(train: bool) -> tuple[Any, static.Executor, list[Any]]:
    x = static.data("x", [-1, 4])
    h = static.nn.fc(x, 2, weight_attr=paddle.nn.initializer.Constant(0.5))
    loss = paddle.mean(h)
    if train:
        paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    program = static.CompiledProgram(static.default_main_program())
    return program.with_data_parallel(loss_name=loss.name, places=[paddle.CPUPlace()] * PLACES), exe, [loss, h]


def batches(count: int) -> list[dict[str, Any]]:
    return [{"x": np.full((3, 4), i + 1, "float32")} for i in range(count)]


def test_a_list_that_is_shorter_than_the_places_runs_on_that_many() -> None:
    """What Paddle 1.8.5 and 2.4.2 print: [2 4 6 8] for four batches, [2 4] for two."""
    program, exe, fetches = compiled(train=False)
    for count in (4, 2, 3, 1, 4):
        means, rows = exe.run(program, feed=batches(count), fetch_list=fetches)
        assert means.tolist() == [2.0 * (i + 1) for i in range(count)]
        assert rows.shape == (3 * count, 2)
    for wrong in ([], batches(5)):
        with pytest.raises(FeedError, match="does not match the device number 4"):
            exe.run(program, feed=wrong, fetch_list=fetches)


def test_training_takes_no_shorter_list_and_its_state_stays() -> None:
    """Paddle refuses it, too: a step of fewer samples would have the weight of a whole one."""
    program, exe, fetches = compiled(train=True)
    exe.run(program, feed=batches(4), fetch_list=fetches)
    weight = static.default_main_program().all_parameters()[0]
    before = weight.get_value()
    with pytest.raises(FeedError, match="does not match the device number 4"):
        exe.run(program, feed=batches(2), fetch_list=fetches)
    np.testing.assert_array_equal(np.array(before), np.array(weight.get_value()))


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_started_loader_gives_its_last_batches_to_fewer_places(drop_last: bool) -> None:
    x = fluid.data("x", [-1, 4])
    loader = fluid.io.DataLoader.from_generator([x], capacity=4, iterable=False, drop_last=drop_last)

    def source() -> Iterator[Any]:
        for batch in batches(6):
            yield [batch["x"]]

    loader.set_batch_generator(source)
    mean = paddle.mean(x)
    program = static.CompiledProgram(static.default_main_program()).with_data_parallel(
        places=[paddle.CPUPlace()] * PLACES
    )
    exe = static.Executor("cpu")
    for _ in range(2):
        loader.start()
        for means in [[1, 2, 3, 4]] if drop_last else [[1, 2, 3, 4], [5, 6]]:
            assert exe.run(program, fetch_list=[mean])[0].tolist() == means
        with pytest.raises(EOFException):
            exe.run(program, fetch_list=[mean])
        loader.reset()
