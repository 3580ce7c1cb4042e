"""A wrapper changes the rule that it wraps while ``minimize`` runs only: what the rule builds afterwards has nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tstatic as paddle
from tstatic import fluid, static
from tstatic.comm.rendezvous import launch
from tstatic.distributed import fleet


@pytest.fixture(autouse=True)
def _own_fleet() -> Iterator[None]:
    before = dict(vars(fleet.fleet))
    yield
    vars(fleet.fleet).update(before)
    launch._reset_for_tests()


def _recomputing(rule: Any) -> Any:
    made = fluid.optimizer.RecomputeOptimizer(rule)
    made._set_checkpoints(["fc_0.tmp_2"])
    return made


def _by_fleet(**settings: Any) -> Callable[[Any], Any]:
    def wrap(rule: Any) -> Any:
        fleet.init(is_collective=True)
        strategy = fleet.DistributedStrategy()
        for name, value in settings.items():
            setattr(strategy, name, value)
        return fleet.distributed_optimizer(rule, strategy)

    return wrap


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "recompute": _recomputing,
    "fleet recompute": _by_fleet(recompute=True, recompute_configs={"checkpoints": ["fc_0.tmp_2"]}),
    "mixed precision": lambda rule: static.amp.decorate(rule, init_loss_scaling=8.0),
    "gradient merge": lambda rule: fluid.optimizer.GradientMergeOptimizer(rule, k_steps=2),
    "merged mixed precision": lambda rule: fluid.optimizer.GradientMergeOptimizer(static.amp.decorate(rule), k_steps=2),
    "lookahead": paddle.incubate.LookAhead,
}


def _built(optimizer: Any) -> list[Any]:
    """The operators of a net that is minimized, with the values that they read."""
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        hidden = static.nn.fc(static.data("x", [4, 8]), 8, activation="tanh")
        optimizer.minimize(paddle.mean(static.nn.fc(hidden, 8)))
    return [(op.type, dict(op.inputs)) for op in main.global_block().ops]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_rule_builds_the_same_alone_after_a_wrapper_has_used_it(wrapper: str) -> None:
    plain = _built(paddle.optimizer.Momentum(0.1, 0.9))
    rule = paddle.optimizer.Momentum(0.1, 0.9)
    assert _built(WRAPPERS[wrapper](rule)) != plain, "the wrapper does something"
    assert _built(rule) == plain
