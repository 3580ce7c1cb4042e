"""Numbers that Paddle refuses are refused: sizes and thresholds below 0; and what stops gradients is not trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import errors, fluid, static


@pytest.mark.parametrize(
    "call",
    [
        lambda x: paddle.eye(3, num_columns=-1),
        lambda x: paddle.eye(-1),
        lambda x: fluid.layers.eye(3, num_columns=-1),
        lambda x: paddle.nn.functional.softshrink(x, -1),
        lambda x: paddle.nn.Softshrink(-1.0)(x),
        lambda x: fluid.layers.softshrink(x, alpha=-1),
    ],
)
def test_a_negative_number_is_refused(call: Callable[[Any], Any]) -> None:
    x = static.data("x", [2])
    before = str(static.default_main_program())
    with pytest.raises(errors.TstaticError, match="-1"):
        call(x)
    assert str(static.default_main_program()) == before


def test_edges_are_accepted() -> None:
    x = static.data("x", [2])
    found = static.Executor().run(
        feed={"x": np.array([-0.5, 2], "float32")},
        fetch_list=[paddle.eye(2, num_columns=0), paddle.eye(2), paddle.nn.functional.softshrink(x, 0)],
    )
    assert [one.tolist() for one in found] == [[[], []], [[1, 0], [0, 1]], [-0.5, 2]]


@pytest.mark.parametrize("how", ["LayerHelper", "Block"])
def test_a_parameter_that_stops_gradients_is_not_updated(how: str) -> None:
    helper = fluid.layer_helper.LayerHelper("mine")
    one = paddle.nn.initializer.Constant(1.0)
    if how == "LayerHelper":
        fixed = helper.create_parameter(None, [2], "float32", default_initializer=one, stop_gradient=True)
    else:
        block = static.default_main_program().global_block()
        fixed = block.create_parameter(name="fixed", shape=[2], dtype="float32", stop_gradient=True, initializer=one)
        helper.set_variable_initializer(fixed, one)
    free = helper.create_parameter(None, [2], "float32", default_initializer=one)
    _, pairs = paddle.optimizer.SGD(0.1).minimize(paddle.sum(fixed * free))
    exe = static.Executor()
    exe.run(static.default_startup_program())
    exe.run(fetch_list=[])
    assert fixed.stop_gradient
    assert [p.name for p, _ in pairs] == [free.name]
    values = [fluid.executor._fetch_var(p.name).tolist() for p in (fixed, free)]
    np.testing.assert_allclose(values, [[1, 1], [0.9, 0.9]])
