"""What a CPU does with float16 of mixed precision: float32 without casts, and rounding where it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.amp.nets import Net, build, mlp, mlp_feed
from tests.amp.test_parallel import spread
from tstatic import static


def losses(net: Net, compiled: Any = None) -> list[float]:
    return [float(np.mean(net.run(mlp_feed(step), compiled))) for step in range(4)]


def plan_of(net: Net, **options: Any) -> Any:
    compiled = static.CompiledProgram(net.main, **options)
    net.run(mlp_feed(0), compiled)
    return compiled.plan


def count(plan: Any, type: str) -> int:
    return sum(step.op.type == type for step in plan.steps)


@pytest.mark.numpy_device("other devices compute in float16", not_on=("torch", "fake"))
@pytest.mark.parametrize("level", ["O1", "OD"])
def test_a_step_on_the_cpu_has_the_operators_of_float32_and_its_losses(level: str) -> None:
    """Guards the time of a float16 step, which was 6 times that of float32: its casts and float16 arithmetic are gone."""
    half = build(mlp, paddle.optimizer.SGD(0.1), level=level, dtype="float16", init_loss_scaling=1.0)
    plan = plan_of(half)
    assert "float16" not in {meta.dtype.name for meta in plan.program.metas.values()}
    strict = plan_of(half, numerics="strict")
    assert count(strict, "cast") > 8
    # What is left copies the gradients of the four parameters.
    assert count(plan, "cast") <= 4
    assert len(plan.steps) < len(strict.steps)


@pytest.mark.numpy_device("other devices compute in float16", not_on=("torch", "fake"))
def test_losses_are_those_of_float32_unless_rounding_is_asked_for() -> None:
    full = build(mlp, paddle.optimizer.SGD(0.1), level="O0", dtype="float16")
    half, rounded = (build(mlp, paddle.optimizer.SGD(0.1), dtype="float16", init_loss_scaling=1.0) for _ in range(2))
    exact = losses(full)
    np.testing.assert_allclose(losses(half), exact, rtol=1e-6)
    assert losses(rounded, static.CompiledProgram(rounded.main, numerics="strict")) != pytest.approx(exact, rel=1e-6)


def test_the_program_keeps_its_casts_and_fetched_values_their_type() -> None:
    x = static.data("x", [None, 4])
    h = static.nn.fc(x, 3, weight_attr=paddle.nn.initializer.Constant(0.1))
    optimizer = static.amp.decorate(paddle.optimizer.SGD(0.1), dtype="float16")
    optimizer.minimize(paddle.mean(h))
    main, exe = static.default_main_program(), static.Executor("cpu")
    exe.run(static.default_startup_program())
    weight = np.array(main.all_parameters()[0].get_value())
    feed = {"x": np.arange(8, dtype="float32").reshape(2, 4) / 3}
    before = str(main)
    assert before.count("cast") > 2
    (found,) = exe.run(main.clone(for_test=True), feed=feed, fetch_list=[h.name])
    assert str(main) == before
    assert (h.dtype, found.dtype) == ("float16", np.float16)
    np.testing.assert_array_equal(found, (feed["x"] @ weight).astype(np.float16))


@pytest.mark.numpy_device("other devices compute in float16", not_on=("torch", "fake"))
def test_replicas_exchange_gradients_that_are_not_rounded() -> None:
    """The cast that ends a gradient is what the exchange knows it by."""
    alone, shared = (build(mlp, paddle.optimizer.SGD(0.1), dtype="float16", init_loss_scaling=64.0) for _ in range(2))
    both = spread(shared)
    np.testing.assert_allclose(losses(shared, both), losses(alone), rtol=1e-5)


def test_variables_of_16_bits_are_rounded_in_any_case() -> None:
    net = build(mlp, paddle.optimizer.SGD(0.1), level="O2", dtype="float16", init_loss_scaling=1.0)
    assert "float16" in {meta.dtype.name for meta in plan_of(net).program.metas.values()}
