"""What may be fed, and what of it stays: arrays without trailing axes, and persistable variables, as in Paddle 2.6.2."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.errors import FeedError, ShapeError


def doubled(declared: list[int], fed: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of twice an input that is declared and fed with these shapes."""
    y = static.data("x", declared) * 2
    (found,) = static.Executor().run(feed={"x": np.ones(fed, "float32")}, fetch_list=[y])
    return found.shape  # type: ignore[no-any-return]


@pytest.mark.parametrize(("declared", "fed"), [([-1, 1], (32,)), ([-1, 4, 1], (2, 4)), ([-1, 4, 1], (2,))])
def test_an_array_that_lacks_trailing_axes_keeps_the_shape_that_is_fed(
    declared: list[int], fed: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Guards labels of shape [n] for [-1, 1]: Paddle compares the axes that are there."""
    assert doubled(declared, fed) == fed
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert f"declared with shape {declared} and fed with shape {list(fed)}" in caplog.text


@pytest.mark.parametrize(
    ("declared", "fed"), [([-1, 4, 1], (2, 5)), ([-1, 4], (2, 4, 1)), ([-1, 4], ()), ([3, -1], (2,))]
)
def test_axes_that_are_fed_are_compared(declared: list[int], fed: tuple[int, ...]) -> None:
    with pytest.raises(FeedError, match=f"should have dimensions = {len(declared)}"):
        doubled(declared, fed)


def test_the_note_about_missing_axes_comes_once_for_each_input(caplog: pytest.LogCaptureFixture) -> None:
    y = static.data("x", [-1, 1]) * 2
    exe = static.Executor()
    for size in (3, 4, 3):
        exe.run(feed={"x": np.ones(size, "float32")}, fetch_list=[y])
    assert len(caplog.records) == 1


def test_a_model_trains_on_labels_without_their_last_axis() -> None:
    """Such labels broadcast against predictions of shape [n, 1], as in Paddle."""
    x, label = static.data("x", [-1, 2]), static.data("label", [-1, 1])
    out = static.nn.fc(x, 1, weight_attr=paddle.nn.initializer.Constant(0.5))
    loss = paddle.mean(paddle.nn.functional.square_error_cost(out, label))
    paddle.optimizer.SGD(0.5).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.array([[1, 1], [2, 2]], "float32"), "label": np.array([1, 3], "float32")}
    (found,) = exe.run(feed=feed, fetch_list=[loss])
    assert found == np.mean((np.array([[1.0], [2.0]]) - np.array([1.0, 3.0])) ** 2)


def test_an_operator_that_needs_the_missing_axis_says_so() -> None:
    y = static.nn.fc(static.data("x", [-1, 4]), 2)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    with pytest.raises(ShapeError, match="number of dimensions"):
        exe.run(feed={"x": np.ones(4, "float32")}, fetch_list=[y])


# ------------------------------------------------------------------------------------------------ persistable variables
def scope_value(name: str) -> Any:
    found = static.global_scope().find_var(name)
    return None if found is None else np.array(found.get_tensor())


def test_a_fed_persistable_variable_is_in_the_scope_afterwards() -> None:
    """Guards scripts that feed a state once and go on without it."""
    block = static.default_main_program().global_block()
    state = block.create_var(name="state", shape=[2], dtype="float32", persistable=True)
    y = state * 2
    exe = static.Executor()
    given = np.array([1, 2], "float32")
    assert exe.run(feed={"state": given}, fetch_list=[y])[0].tolist() == [2, 4]
    given[:] = 9  # the scope has a copy
    assert scope_value("state").tolist() == [1, 2]
    assert exe.run(fetch_list=[y])[0].tolist() == [2, 4]
    for value in (3, 4):
        exe.run(feed={"state": np.full(2, value, "float32")}, fetch_list=[y])
        assert exe.run(fetch_list=[y])[0].tolist() == [2 * value] * 2


def test_a_fed_persistable_variable_that_nothing_reads_is_in_the_scope_afterwards() -> None:
    block = static.default_main_program().global_block()
    block.create_var(name="unread", shape=[-1], dtype="float32", persistable=True)
    y = static.data("x", [1]) * 2
    exe = static.Executor()
    for size in (2, 3, 3):
        value = np.arange(size, dtype="float32") + size
        exe.run(feed={"x": np.ones(1, "float32"), "unread": value}, fetch_list=[y])
        assert scope_value("unread").tolist() == value.tolist()


def test_a_fed_parameter_is_updated_from_what_was_fed() -> None:
    w = static.create_parameter([2], "float32", name="w", default_initializer=paddle.nn.initializer.Constant(0.0))
    paddle.optimizer.SGD(0.5).minimize(paddle.sum(w))
    exe = static.Executor()
    exe.run(static.default_startup_program())
    exe.run(feed={"w": np.array([3, 4], "float32")})
    assert scope_value("w").tolist() == [2.5, 3.5]


def test_a_run_that_fails_keeps_nothing_that_was_fed() -> None:
    block = static.default_main_program().global_block()
    state = block.create_var(name="state", shape=[2], dtype="float32", persistable=True)
    y = paddle.gather(state, static.data("index", [-1], "int64"))
    exe = static.Executor()
    exe.run(feed={"state": np.ones(2, "float32"), "index": np.array([0])}, fetch_list=[y])
    with pytest.raises(IndexError):
        exe.run(feed={"state": np.zeros(2, "float32"), "index": np.array([7])}, fetch_list=[y])
    assert scope_value("state").tolist() == [1, 1]
