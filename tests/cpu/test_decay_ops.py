"""The 1.x learning-rate decays: values of ten runs against the closed forms, and a run that steps by them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.nets import rows
from tstatic import fluid, static
from tstatic.errors import ProgramError, ProgramTypeError
from tstatic.ir.operator import OpRole

layers: Any = fluid.layers
Closed = Callable[[int], float]


def _cycle(t: int) -> float:
    return (0.5 - 0.01) * (1 - t / (4 * max(1, math.ceil(t / 4)))) ** 2 + 0.01


# A decay, and its closed form of t = 0, 1, ...
DECAYS: dict[str, tuple[Callable[[], Any], Closed]] = {
    "noam": (
        lambda: layers.noam_decay(64, 4, 2.0),
        lambda t: 2.0 * 64**-0.5 * min((t + 1) ** -0.5, (t + 1) * 4**-1.5),
    ),
    "exponential": (lambda: layers.exponential_decay(0.5, 3, 0.7), lambda t: 0.5 * 0.7 ** (t / 3)),
    "exponential in steps": (lambda: layers.exponential_decay(0.5, 3, 0.7, True), lambda t: 0.5 * 0.7 ** (t // 3)),
    "natural": (lambda: layers.natural_exp_decay(0.5, 3, 0.7), lambda t: 0.5 * math.exp(-0.7 * t / 3)),
    "natural in steps": (
        lambda: layers.natural_exp_decay(0.5, 3, 0.7, True),
        lambda t: 0.5 * math.exp(-0.7 * (t // 3)),
    ),
    "inverse time": (lambda: layers.inverse_time_decay(0.5, 3, 0.7), lambda t: 0.5 / (1 + 0.7 * t / 3)),
    "inverse time in steps": (
        lambda: layers.inverse_time_decay(0.5, 3, 0.7, staircase=True),
        lambda t: 0.5 / (1 + 0.7 * (t // 3)),
    ),
    "polynomial": (
        lambda: layers.polynomial_decay(0.5, 6, 0.01, power=1.5),
        lambda t: (0.5 - 0.01) * (1 - min(t, 6) / 6) ** 1.5 + 0.01,
    ),
    "polynomial, again": (lambda: layers.polynomial_decay(0.5, 4, 0.01, 2.0, cycle=True), _cycle),
    "piecewise": (
        lambda: layers.piecewise_decay([2, 5], [1.0, 0.5, 0.1]),
        lambda t: 1.0 if t < 2 else 0.5 if t < 5 else 0.1,
    ),
    "constant": (lambda: layers.piecewise_decay([], [0.3]), lambda t: 0.3),
    "cosine": (lambda: layers.cosine_decay(0.5, 3, 4), lambda t: 0.5 * 0.5 * (math.cos((t // 3) * math.pi / 4) + 1)),
    "warm-up": (
        lambda: layers.linear_lr_warmup(0.5, 4, 0.1, 0.9),
        lambda t: 0.1 + (0.9 - 0.1) * t / 4 if t < 4 else 0.5,
    ),
    "warm-up of a decay": (
        lambda: layers.linear_lr_warmup(layers.exponential_decay(0.5, 3, 0.7), 4, 0.0, 0.5),
        lambda t: 0.5 * t / 4 if t < 4 else 0.5 * 0.7 ** (t / 3),
    ),
}


@pytest.mark.parametrize(("make", "closed"), DECAYS.values(), ids=DECAYS.keys())
def test_ten_runs(make: Callable[[], Any], closed: Closed) -> None:
    rate = make()
    assert tuple(rate.shape) == (1,)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    seen = [float(exe.run(fetch_list=[rate])[0][0]) for _ in range(10)]
    np.testing.assert_allclose(seen, [closed(t) for t in range(10)], rtol=2e-6)


@pytest.mark.parametrize(("make", "closed"), DECAYS.values(), ids=DECAYS.keys())
def test_an_optimizer_steps_by_it(make: Callable[[], Any], closed: Closed) -> None:
    x = static.data("x", [2, 3])
    w = static.create_parameter([3], "float64", name="w", default_initializer=paddle.nn.initializer.Constant(0.0))
    loss = paddle.sum(w * paddle.cast(x, "float64"))
    fluid.optimizer.SGD(learning_rate=make()).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    feed = {"x": rows(2)}
    gradient = feed["x"].astype("float64").sum(0)
    before = np.zeros(3)
    for t in range(10):
        (after,) = exe.run(feed=feed, fetch_list=[w])
        np.testing.assert_allclose(before - after, closed(t) * gradient, rtol=1e-5, atol=1e-9)
        before = after


def test_the_counter_is_one_variable_and_its_ops_are_marked() -> None:
    y = paddle.scale(static.data("x", [1]), 2.0)
    a, b = layers.exponential_decay(0.5, 3, 0.7), layers.cosine_decay(0.5, 3, 4)
    program = static.default_main_program()
    ops = program.global_block().ops
    assert ops[0].type == "increment"
    assert [op.type for op in ops].count("increment") == 1
    counter = program.global_block().var("@LR_DECAY_COUNTER@")
    assert counter.persistable
    assert counter.dtype is paddle.int64
    assert all(op.role == OpRole.LRSched for op in ops if y.name not in op.output_arg_names)
    # A test program has neither the ops nor the counter.
    assert [op.type for op in program.clone(for_test=True).global_block().ops] == ["scale"]
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    for _ in range(3):
        exe.run(feed={"x": np.ones(1, "float32")}, fetch_list=[a, b])
    assert np.array(static.global_scope().find_var(counter.name).get_tensor()) == [2]


def test_a_failed_run_does_not_count() -> None:
    rate = layers.exponential_decay(0.5, 1, 0.5)
    index = static.data("index", [1], "int64")
    row = paddle.gather(static.create_parameter([3, 2], "float32"), index)
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    good, bad = {"index": np.array([1])}, {"index": np.array([7])}
    assert exe.run(feed=good, fetch_list=[rate, row])[0] == [0.5]
    with pytest.raises(Exception, match="index"):
        exe.run(feed=bad, fetch_list=[rate, row])
    assert exe.run(feed=good, fetch_list=[rate, row])[0] == [0.25]


def test_step_counters() -> None:
    first = layers.autoincreased_step_counter()
    other = layers.autoincreased_step_counter("other", begin=5, step=3)
    assert layers.autoincreased_step_counter() is first
    raw = fluid.layers.learning_rate_scheduler._decay_step_counter(2)  # type: ignore[attr-defined]
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    seen = [[float(v[0]) for v in exe.run(fetch_list=[first, other, raw])] for _ in range(2)]
    assert seen == [[1, 5, 2], [2, 8, 3]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: layers.noam_decay(0, 4), ProgramError),
        (lambda: layers.noam_decay(64, -1), ProgramError),
        (lambda: layers.exponential_decay("0.5", 3, 0.7), ProgramTypeError),
        (lambda: layers.exponential_decay(0.5, 0, 0.7), ProgramError),
        (lambda: layers.exponential_decay(0.5, 3, 0.0), ProgramError),
        (lambda: layers.natural_exp_decay(math.nan, 3, 0.7), ProgramError),
        (lambda: layers.inverse_time_decay(True, 3, 0.7), ProgramTypeError),
        (lambda: layers.polynomial_decay(0.5, None), ProgramTypeError),
        (lambda: layers.piecewise_decay([1, 2], [0.1, 0.2]), ProgramError),
        (lambda: layers.piecewise_decay([2, 1], [0.1, 0.2, 0.3]), ProgramError),
        (lambda: layers.cosine_decay(0.5, 3, math.inf), ProgramError),
        (lambda: layers.linear_lr_warmup([0.5], 3, 0.0, 0.1), ProgramTypeError),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert "test_decay_ops.py" in text
    assert "expected" in text
    assert not static.default_main_program().global_block().ops
