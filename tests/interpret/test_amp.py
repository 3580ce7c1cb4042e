"""Generated kernels run 16-bit programs: they compute in float32 and round where they store; updates can be skipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.amp.nets import build, mlp, mlp_feed
from tstatic import static

SWITCHES = {"fuse_all_optimizer_ops": True, "enable_auto_fusion": True, "build_cinn_pass": True}
RULES: dict[str, Callable[[], Any]] = {
    "sgd": lambda: paddle.optimizer.SGD(0.1), "momentum": lambda: paddle.optimizer.Momentum(0.1),
    "adam": lambda: paddle.optimizer.Adam(0.01), "adamw": lambda: paddle.optimizer.AdamW(0.01),
    "adamax": lambda: paddle.optimizer.Adamax(0.01), "adagrad": lambda: paddle.optimizer.Adagrad(0.01),
    "adadelta": lambda: paddle.optimizer.Adadelta(0.1), "rmsprop": lambda: paddle.optimizer.RMSProp(0.01),
}  # fmt: skip


def compiled(program: Any) -> Any:
    strategy = static.BuildStrategy()
    for name, value in SWITCHES.items():
        setattr(strategy, name, value)
    return static.CompiledProgram(program, build_strategy=strategy)


@pytest.mark.parametrize(("level", "dtype"), [("O1", "bfloat16"), ("O2", "float16"), ("O2", "bfloat16")])
def test_kernels_follow_the_operators_that_they_stand_for(level: str, dtype: str) -> None:
    one, two = (
        build(mlp, paddle.optimizer.AdamW(0.01), level=level, dtype=dtype, init_loss_scaling=64.0) for _ in range(2)
    )
    fused = compiled(two.main)
    for step in range(2):
        wanted, found = (np.float32(net.run(mlp_feed(step), p)) for net, p in ((one, one.main), (two, fused)))
        assert abs(found - wanted) < 2e-2
    kernels = [s.op.type for s in fused.plan.steps if s.how == "kernel"]
    assert len(kernels) > 3
    assert any("adam" in type for type in kernels)


@pytest.mark.parametrize("rule", RULES)
def test_a_step_that_overflows_leaves_all_state_bitwise(rule: str) -> None:
    net = build(mlp, RULES[rule](), level="O2", init_loss_scaling=8.0)
    fused = compiled(net.main)
    net.run(mlp_feed(0), fused)
    assert any(s.how == "kernel" and s.region == "update" for s in fused.plan.steps)
    before = net.state()
    bad = mlp_feed(1)
    bad["x"][0, 0] = np.inf
    net.run(bad, fused)
    after = net.state()
    assert {name for name in before if before[name] != after[name]} <= {"loss_scaling_0", "num_good_steps_0"}
    net.run(mlp_feed(2), fused)
    still = net.state()
    assert all(still[p.name] != after[p.name] for p in net.main.all_parameters())
