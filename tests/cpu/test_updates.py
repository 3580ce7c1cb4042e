"""Optimizer ops inside a running program: large parameters are cut, and their shared numbers still move once a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.ops._update import UPDATE_PIECE


@pytest.mark.parametrize(
    "make", [paddle.optimizer.Adam, paddle.optimizer.AdamW, paddle.optimizer.Momentum, paddle.optimizer.Lamb]
)
def test_steps_of_a_large_parameter(make: Any) -> None:
    """Rows of one large parameter move as a small parameter of the same gradient does."""
    rows = 2 * UPDATE_PIECE // 100
    x = static.data("x", [100])
    large = static.create_parameter(
        [rows, 100], "float32", name="large", default_initializer=paddle.nn.initializer.Constant(0.5)
    )
    small = static.create_parameter(
        [1, 100], "float32", name="small", default_initializer=paddle.nn.initializer.Constant(0.5)
    )
    loss = paddle.sum(large * x) + paddle.sum(small * x)
    options = {"lamb_weight_decay": 0.0} if make is paddle.optimizer.Lamb else {}
    make(0.1, **options).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    powers = [v.name for v in static.default_main_program().list_vars() if "large_beta1_pow" in v.name]
    assert bool(powers) is (make is not paddle.optimizer.Momentum)
    rng = np.random.default_rng(0)
    for step in range(1, 4):
        feed = {"x": rng.normal(size=100).astype(np.float32)}
        found = exe.run(feed=feed, fetch_list=[large, small, *powers])
        assert np.allclose(found[0], np.broadcast_to(found[1], (rows, 100)), rtol=2e-6, atol=1e-7)
        assert not np.array_equal(found[1], np.full((1, 100), 0.5))
        for power in found[2:]:
            # The accumulator starts at beta1 and is multiplied once a step.
            assert float(np.reshape(power, ())) == pytest.approx(0.9 ** (step + 1), rel=1e-6)
