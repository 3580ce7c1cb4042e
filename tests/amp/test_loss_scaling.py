"""Loss scaling inside the step: how the scale moves, and that a step which overflows changes nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.amp.nets import build, mlp, mlp_feed, resnet, resnet_feeds
from tstatic import static
from tstatic.ir.program import OpRole

RULE = paddle.optimizer
RULES: dict[str, Any] = {
    "sgd": lambda: RULE.SGD(0.1),
    "momentum": lambda: RULE.Momentum(0.1, 0.9, weight_decay=0.01),
    "adam": lambda: RULE.Adam(0.01),
    "adamw": lambda: RULE.AdamW(0.01),
    "adamax": lambda: RULE.Adamax(0.01),
    "adagrad": lambda: RULE.Adagrad(0.01),
    "adadelta": lambda: RULE.Adadelta(0.1),
    "rmsprop": lambda: RULE.RMSProp(0.01, momentum=0.9, centered=True),
    "lamb": lambda: RULE.Lamb(0.01),
}
SCALING = {"loss_scaling_0", "num_good_steps_0", "num_bad_steps_0"}


def bad_feed(seed: int) -> dict[str, Any]:
    feed = mlp_feed(seed)
    feed["x"][1, 2] = np.inf
    return feed


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_the_scale_moves_as_in_paddle(level: str) -> None:
    net = build(mlp, RULE.Adam(0.01), level=level, init_loss_scaling=8.0, incr_every_n_steps=2)
    scales = []
    for step in range(8):
        net.run(bad_feed(step) if step == 3 else mlp_feed(step))
        scales.append(float(net.value("loss_scaling_0")[0]))
    assert scales == [8, 16, 16, 8, 8, 16, 16, 32]


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("rule", RULES)
def test_a_step_that_overflows_leaves_all_state_bitwise(rule: str, level: str) -> None:
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    optimizer = RULES[rule]()
    optimizer._grad_clip = clip
    net = build(mlp, optimizer, level=level, init_loss_scaling=64.0)
    net.run(mlp_feed(0))
    before = net.state()
    net.run(bad_feed(1))
    after = net.state()
    assert {name for name in before if before[name] != after[name]} <= SCALING
    assert float(net.value("loss_scaling_0")[0]) == 32.0
    net.run(mlp_feed(2))
    assert all(np.isfinite(net.value(v.name)).all() for v in net.main.list_vars() if v.persistable)
    still = net.state()
    assert {p.name for p in net.main.all_parameters() if still[p.name] == after[p.name]} == set()


def test_a_gradient_that_overflows_by_the_scale_alone_is_a_step_left_out() -> None:
    net = build(mlp, RULE.Momentum(0.1), level="O2", init_loss_scaling=2.0**40)
    before = net.state()
    net.run(mlp_feed(0))
    after = net.state()
    assert {name for name in before if before[name] != after[name]} == {"loss_scaling_0"}


def test_running_statistics_of_a_step_that_overflows_are_taken_back() -> None:
    net = build(resnet, RULE.Momentum(0.1), dtype="float16", init_loss_scaling=8.0)
    good, bad = resnet_feeds(2)
    bad["x"][0, 0, 0, 0] = np.nan
    net.run(good)
    before = net.state()
    net.run(bad)
    after = net.state()
    assert {name for name in before if before[name] != after[name]} <= SCALING
    statistics = [v.name for v in net.main.list_vars() if v.name.endswith((".w_1", ".w_2"))]
    assert len(statistics) == 10
    net.run(good)
    assert all(net.state()[name] != after[name] for name in statistics)


def test_a_constant_scale_skips_and_does_not_move() -> None:
    net = build(mlp, RULE.Adam(0.01), init_loss_scaling=32.0, use_dynamic_loss_scaling=False)
    types = [op.type for op in net.main.global_block().ops]
    assert "check_finite_and_unscale" in types
    assert "update_loss_scaling" not in types
    before = net.state()
    net.run(bad_feed(0))
    assert net.state() == before
    net.run(mlp_feed(1))
    assert net.state() != before


def test_bfloat16_is_not_scaled() -> None:
    net = build(mlp, RULE.Adam(0.01), dtype="bfloat16", use_dynamic_loss_scaling=True)
    types = [op.type for op in net.main.global_block().ops]
    assert not {"check_finite_and_unscale", "update_loss_scaling"} & set(types)
    assert float(net.value("loss_scaling_0")[0]) == 1.0
    assert net.optimizer.get_scaled_loss() is net.loss


def test_the_order_of_ops_is_paddle_s() -> None:
    net = build(mlp, RULE.Adam(0.01), level="O1")
    ops = net.main.global_block().ops
    scaled = net.optimizer.get_scaled_loss().name
    (product,) = [op for op in ops if scaled in op.output_arg_names]
    assert product.type == "elementwise_mul"
    assert product.input_arg_names == [net.loss.name, "loss_scaling_0"]
    after = [op.type for op in ops if op.role & OpRole.Optimize]
    assert after == ["check_finite_and_unscale", "update_loss_scaling", *["adam"] * 6]
    updates = [op for op in ops if op.type == "adam"]
    (found,) = ops[[op.type for op in ops].index("check_finite_and_unscale")].output("FoundInfinite")
    assert [op.input("SkipUpdate") for op in updates] == [[found]] * 6
    assert net.main.global_block().var("loss_scaling_0").shape == (1,)


def test_scaled_and_unscaled_training_agree() -> None:
    feeds = [mlp_feed(i) for i in range(10)]
    plain = build(mlp, RULE.Adam(0.01)).losses(iter(feeds))
    scaled = build(mlp, RULE.Adam(0.01), level="O0", init_loss_scaling=1024.0).losses(iter(feeds))
    np.testing.assert_allclose(scaled, plain, rtol=1e-6)


def test_the_scale_can_be_fetched_and_is_asked_for_too_early() -> None:
    optimizer = static.amp.decorate(RULE.SGD(0.1))
    assert optimizer.get_scaled_loss() is None
    with pytest.raises(AssertionError, match=r"Please call minimize\(\) before calling get_loss_scaling\(\)"):
        optimizer.get_loss_scaling()
    with pytest.raises(AssertionError, match="amp_init"):
        optimizer.amp_init(paddle.CPUPlace())
    net = build(mlp, RULE.SGD(0.1), init_loss_scaling=4.0)
    assert net.run(mlp_feed(), fetch=net.optimizer.get_loss_scaling()).tolist() == [4.0]
    assert net.optimizer.get_lr() == 0.1
