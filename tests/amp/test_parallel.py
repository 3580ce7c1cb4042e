"""Loss scaling over replicas: gradients are summed before they are checked, so all replicas skip the same steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.amp.nets import Net, build, mlp, mlp_feed
from tstatic import static


def spread(net: Net, **switches: Any) -> Any:
    strategy = static.BuildStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    return static.CompiledProgram(net.main).with_data_parallel(
        net.loss.name, build_strategy=strategy, places=[paddle.CPUPlace()] * 2
    )


REDUCE = static.BuildStrategy.ReduceStrategy


@pytest.mark.parametrize("strategy", [REDUCE.AllReduce, REDUCE.Reduce], ids=["all-reduce", "reduce"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_an_overflow_on_one_replica_is_skipped_on_both(level: str, strategy: Any) -> None:
    net = build(mlp, paddle.optimizer.Adam(0.01), level=level, init_loss_scaling=8.0, incr_every_n_steps=2)
    both = spread(net, reduce_strategy=strategy)
    net.run(mlp_feed(0), both)
    before = net.state()
    bad = mlp_feed(1)
    bad["x"][6, 0] = np.inf  # the second replica's half
    losses = net.run(bad, both)
    assert np.isfinite(losses[0])
    assert not np.isfinite(losses[1])
    after = net.state()
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {"loss_scaling_0", "num_good_steps_0"}
    assert float(net.value("loss_scaling_0")[0]) == 4.0
    net.run(mlp_feed(2), both)
    assert all(np.isfinite(net.value(v.name).astype("float32")).all() for v in net.main.list_vars() if v.persistable)
    assert net.state()["fc_0.w_0"] != after["fc_0.w_0"]


def test_two_replicas_learn_what_one_learns() -> None:
    alone, shared = (build(mlp, paddle.optimizer.SGD(0.1), dtype="float16", init_loss_scaling=64.0) for _ in range(2))
    both = spread(shared)
    for step in range(4):
        one = float(alone.run(mlp_feed(step)))
        two = float(np.mean(shared.run(mlp_feed(step), both)))
        assert abs(one - two) < 2e-3
    np.testing.assert_allclose(shared.value("fc_0.w_0"), alone.value("fc_0.w_0"), atol=1e-3)
