"""DistributedStrategy: typed fields, merged dicts, what acts, what is said and what is refused."""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

import tstatic as paddle
from tstatic import static
from tstatic.comm.passes.distribution import Exchange
from tstatic.distributed import fleet
from tstatic.distributed.fleet.applied import settings_of
from tstatic.distributed.fleet.strategy import FIELDS
from tstatic.errors import (
    StrategyTypeError,
    StrategyValueError,
    UnknownConfigError,
    UnknownFieldError,
    UnsupportedError,
)


def _loss() -> Any:
    return paddle.mean(static.nn.fc(static.data("x", [None, 3]), 2))


def _minimized(strategy: Any, optimizer: Any = None) -> Any:
    fleet.init(is_collective=True)
    rule = paddle.optimizer.SGD(0.1) if optimizer is None else optimizer
    return fleet.distributed_optimizer(rule, strategy).minimize(_loss())


def test_an_unknown_field_is_a_type_error_that_suggests_a_near_one() -> None:
    with pytest.raises(TypeError, match="foo is not a attribute of DistributedStrategy"):
        fleet.DistributedStrategy().foo = True
    with pytest.raises(UnknownFieldError, match="gradient_merge"):
        fleet.DistributedStrategy().gradient_merg = True
    with pytest.raises(AttributeError, match="no attribute 'foo'"):
        print(fleet.DistributedStrategy().foo)


@pytest.mark.parametrize(
    ("name", "value"),
    [("amp", "yes"), ("amp", 1), ("nccl_comm_num", 2.5), ("fuse_grad_size_in_MB", True), ("amp_configs", [1]),
     ("build_strategy", {}), ("sync_param_name", "x")],
)  # fmt: skip
def test_a_value_of_another_type_is_a_warning_and_is_not_set(
    name: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = fleet.DistributedStrategy()
    before = getattr(strategy, name)
    with caplog.at_level(logging.WARNING, "tstatic.dist"):
        setattr(strategy, name, value)
    assert f"DistributedStrategy.{name} should have value of" in caplog.text
    assert getattr(strategy, name) == before


def test_dicts_are_merged_and_unknown_keys_refused() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.amp_configs = {"init_loss_scaling": 8}
    strategy.amp_configs = {"custom_white_list": ["tanh"]}
    assert strategy.amp_configs["init_loss_scaling"] == 8
    assert strategy.amp_configs["custom_white_list"] == ["tanh"]
    with pytest.raises(AssertionError, match="key:foo not in amp_configs"):
        strategy.amp_configs = {"foo": 1}
    with pytest.raises(UnknownConfigError):
        strategy.gradient_merge_configs = {"k_step": 2}
    with pytest.raises(StrategyTypeError, match="incr_ratio"):
        strategy.amp_configs = {"incr_ratio": "2"}
    assert strategy.gradient_merge_configs == {"k_steps": 1, "avg": True}
    strategy.amp_configs["incr_ratio"] = 9.0  # a copy was read
    assert strategy.amp_configs["incr_ratio"] == 2.0


def test_build_and_execution_strategies_are_set_whole() -> None:
    strategy, build = fleet.DistributedStrategy(), static.BuildStrategy()
    build.fuse_all_optimizer_ops = True
    strategy.build_strategy = build
    build.fuse_all_optimizer_ops = False
    assert strategy.build_strategy.fuse_all_optimizer_ops
    strategy.build_strategy.fuse_all_optimizer_ops = False
    assert strategy.build_strategy.fuse_all_optimizer_ops
    execution = static.ExecutionStrategy()
    execution.num_iteration_per_run = 3
    strategy.execution_strategy = execution
    assert strategy.execution_strategy.num_iteration_per_run == 3


def test_copies_and_pickles_are_equal_and_independent() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.recompute_configs = {"checkpoints": [static.data("x", [1])]}
    strategy.lars = True
    for other in (copy.copy(strategy), copy.deepcopy(strategy), pickle.loads(pickle.dumps(strategy))):
        assert other == strategy
        other.lars = False
        assert other != strategy
    assert "lars=True" in repr(strategy)
    assert fleet.DistributedStrategy() == fleet.DistributedStrategy()


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, True) for name, field in FIELDS.items() if field.outcome.status == "refused" and name != "hybrid_configs"]
    + [("hybrid_configs", {key: 2}) for key in ("mp_degree", "pp_degree", "sharding_degree", "sep_degree")],
)  # fmt: skip
def test_what_is_not_part_of_tstatic_is_refused_by_minimize_and_changes_nothing(name: str, value: Any) -> None:
    strategy = fleet.DistributedStrategy()
    setattr(strategy, name, value)
    fleet.init(is_collective=True)
    loss = _loss()
    before = str(loss.block.program), str(static.default_startup_program())
    with pytest.raises(UnsupportedError, match=name.split("_configs")[0]):
        fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy).minimize(loss)
    assert (str(loss.block.program), str(static.default_startup_program())) == before
    assert loss.block.program.distributed is None


def test_fields_that_are_accepted_without_effect_change_no_op() -> None:
    def ops(**fields: Any) -> list[str]:
        with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
            strategy = fleet.DistributedStrategy()
            for name, value in fields.items():
                setattr(strategy, name, value)
            _minimized(strategy)
            return [op.type for op in static.default_main_program().global_block().ops]

    idle = {n: True for n, f in FIELDS.items() if f.outcome.status == "no effect" and isinstance(f.default, bool)}
    assert len(idle) > 10
    # What says how gradients travel changes no op of the program either: the passes of a run insert the collectives.
    travel = {"nccl_comm_num": 3, "last_comm_group_size_MB": 2.0, "fp16_allreduce": True, "sync_nccl_allreduce": True}
    assert ops(**idle, **travel, _calc_comm_same_stream=True, conv_workspace_size_limit=1) == ops()


def test_how_gradients_travel_reaches_the_run() -> None:
    strategy = fleet.DistributedStrategy()
    assert settings_of(strategy, 2).exchange == Exchange(32.0, 1.0)
    assert settings_of(strategy, 2).build.nccl_comm_num == 1
    strategy.fuse_grad_size_in_MB, strategy.last_comm_group_size_MB = 8, 0.5
    strategy.fp16_allreduce = strategy._calc_comm_same_stream = strategy.sync_nccl_allreduce = True
    strategy.nccl_comm_num = 2
    settings = settings_of(strategy, 2)
    assert settings.exchange == Exchange(8.0, 0.5, same_stream=True, waits=True, half=True)
    assert settings.build.nccl_comm_num == 2


def test_only_a_script_that_asks_for_it_makes_the_host_wait_behind_each_collective() -> None:
    """Paddle's default is True, which scripts do not know of; the examples of its pages set it."""
    strategy = fleet.DistributedStrategy()
    assert strategy.sync_nccl_allreduce
    assert not settings_of(strategy, 2).exchange.waits
    asked = fleet.DistributedStrategy()
    asked.sync_nccl_allreduce = True
    for one in (asked, copy.copy(asked), copy.deepcopy(asked), pickle.loads(pickle.dumps(asked))):
        assert settings_of(one, 2).exchange.waits
        assert one == asked
        assert one != strategy
    asked.sync_nccl_allreduce = False
    assert not settings_of(asked, 2).exchange.waits


def test_every_field_is_explained_with_the_program() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.lars = strategy.lamb = strategy.recompute = True
    _minimized(strategy)
    said = {v.name: v for v in fleet.explain().verdicts if v.strategy == "DistributedStrategy"}
    assert said.keys() == FIELDS.keys()
    assert all(v.reason.endswith(".") for v in said.values())
    assert said["lars"].status == said["lamb"].status == said["recompute"].status == "no effect"
    assert "replaces a Momentum optimizer, and this is SGD" in said["lars"].reason
    assert "checkpoints'] is empty" in said["recompute"].reason
    assert said["gradient_merge"].status == "active"


def test_settings_of_both_strategies_reach_the_run() -> None:
    strategy, build, execution = fleet.DistributedStrategy(), static.BuildStrategy(), static.ExecutionStrategy()
    build.fuse_all_optimizer_ops = True
    execution.num_iteration_per_run = 3
    strategy.build_strategy, strategy.execution_strategy = build, execution
    strategy.sync_batch_norm, strategy.fuse_all_reduce_ops = True, False
    strategy.gradient_scale_configs = {"scale_strategy": "sum"}
    _minimized(strategy)
    settings = static.default_main_program().distributed
    assert settings.build.fuse_all_optimizer_ops
    assert settings.build.sync_batch_norm
    assert not settings.build.fuse_all_reduce_ops
    assert settings.build.gradient_scale_strategy is static.BuildStrategy.GradientScaleStrategy.One
    assert settings.iterations == 3
    assert settings.exchange.megabytes == 32.0
    exe = static.Executor()
    exe.run(static.default_startup_program())
    params = static.default_main_program().all_parameters()
    (before,) = exe.run(feed={"x": [[0.0, 0.0, 0.0]]}, fetch_list=[params[1]])
    assert before.tolist() == pytest.approx([-0.15, -0.15])  # three steps of 0.1 * 0.5 in one run


@pytest.mark.parametrize(("size", "inner", "acts"), [(4, 2, True), (2, 2, False), (4, 1, False), (2, 4, False)])
def test_blocks_of_processes_sum_first_where_there_are_more(size: int, inner: int, acts: bool) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.use_hierarchical_allreduce = True
    strategy.hierarchical_allreduce_inter_nranks = inner
    build = settings_of(strategy, size).build
    assert build.use_hierarchical_allreduce == acts
    assert build.hierarchical_allreduce_inter_nranks == (inner if acts else 0)


def test_an_unknown_scale_of_gradients_is_refused() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.gradient_scale_configs = {"scale_strategy": "mean"}
    with pytest.raises(StrategyValueError, match="mean"):
        _minimized(strategy)


def test_the_page_names_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
    assert [name for name in FIELDS if f"`{name}`" not in page] == []


def test_text_files_of_paddle_are_declined() -> None:
    with pytest.raises(UnsupportedError, match="save_to_prototxt"):
        fleet.DistributedStrategy().save_to_prototxt("x")
    with pytest.raises(UnsupportedError, match="load_from_prototxt"):
        fleet.DistributedStrategy().load_from_prototxt("x")
