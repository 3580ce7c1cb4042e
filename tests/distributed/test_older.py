"""``fluid.incubate.fleet`` of Paddle 1.x."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tstatic import fluid
from tstatic.errors import CallOrderError, ProgramTypeError, StrategyTypeError, UnknownPropertyError, UnsupportedError
from tstatic.fluid.incubate.fleet.base import role_maker
from tstatic.fluid.incubate.fleet.collective import DistributedStrategy, fleet


def _loss() -> Any:
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 8, act="relu")
    return hidden, fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))


FEED = {"x": np.ones((4, 4), "float32"), "y": np.ones((4, 1), "float32")}


def test_a_collective_script_of_1x_runs_on_one_process(tmp_path: Path) -> None:
    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    hidden, loss = _loss()
    strategy = DistributedStrategy()
    strategy.use_amp, strategy.amp_loss_scaling = True, 128
    strategy.forward_recompute, strategy.recompute_checkpoints = True, [hidden]
    strategy.exec_strategy.num_threads = 2
    strategy.fuse_all_optimizer_ops = True
    optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.05), strategy=strategy)
    optimizer.minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fleet.startup_program)
    losses = [exe.run(fleet.main_program, feed=FEED, fetch_list=[loss.name])[0] for _ in range(3)]
    assert losses[0].shape == (1,)
    assert losses[0] > losses[1] > losses[2]
    assert fleet._origin_program is fluid.default_main_program()
    assert fleet.main_program.build_strategy.fuse_all_optimizer_ops
    assert fleet.main_program.exec_strategy.num_threads == 2
    assert optimizer.get_lr() == 0.05
    fleet.save_persistables(exe, str(tmp_path / "a"))
    fleet.save_inference_model(exe, str(tmp_path / "b"), ["x"], [hidden])
    assert (tmp_path / "a" / "fc_0.w_0").exists()
    assert (tmp_path / "b" / "__model__").exists()
    assert (fleet.worker_num(), fleet.worker_index(), fleet.is_first_worker()) == (1, 0, True)
    assert (fleet.server_num(), fleet.is_server(), fleet.worker_endpoints()) == (0, False, ["127.0.0.1:6170"])
    assert fleet.split_files(["a", "b"]) == ["a", "b"]
    total = np.zeros(2)
    fleet.all_reduce_worker(np.array([1.0, 2.0]), total)
    assert total.tolist() == [1.0, 2.0]
    for nothing in (fleet.barrier_worker, fleet.init_worker, fleet.run_worker, fleet.run_server, fleet.stop_worker):
        assert nothing() is None


def test_role_makers_of_1x() -> None:
    for maker in (
        role_maker.UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:6170"]), role_maker.UserDefinedRoleMaker(0, 1, 1),
        role_maker.UserDefinedRoleMaker(current_id=0, role=role_maker.Role.WORKER, worker_num=1), None,
    ):  # fmt: skip
        fleet.init(maker)
        assert fleet.worker_num() == 1
    with pytest.raises(UnsupportedError, match="parameter servers"):
        role_maker.UserDefinedRoleMaker(0, role_maker.Role.WORKER, 1, server_endpoints=["127.0.0.1:36011"])


def test_the_strategy_is_typed_and_what_is_missing_is_refused_by_minimize() -> None:
    strategy = DistributedStrategy()
    assert (strategy.mode, strategy.collective_mode, strategy.amp_loss_scaling) == ("nccl2", None, 2**15)
    assert (strategy.use_amp, strategy.use_local_sgd, strategy.forward_recompute) == (False, False, False)
    with pytest.raises(StrategyTypeError):
        strategy.use_amp = 1
    with pytest.raises(StrategyTypeError):
        strategy.collective_mode = "other"
    with pytest.raises(UnknownPropertyError):
        strategy.unknown = 1
    fleet.init()
    for name, value in (("use_local_sgd", True), ("collective_mode", "local_sgd"), ("use_dist_fc", True)):
        wrong = DistributedStrategy()
        setattr(wrong, name, value)
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            _, loss = _loss()
            before = len(fluid.default_main_program().global_block().ops)
            with pytest.raises(UnsupportedError, match=name):
                fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), wrong).minimize(loss)
            assert len(fluid.default_main_program().global_block().ops) == before
    with pytest.raises(ProgramTypeError, match="strategy"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), fluid.BuildStrategy())


def test_saving_before_minimize_says_so() -> None:
    other = type(fleet)()
    other.init()
    with pytest.raises(CallOrderError, match="minimize"):
        other.save_persistables(None, "x")


def test_parameter_servers_can_be_imported_and_are_refused_when_called() -> None:
    from tstatic.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet as servers
    from tstatic.fluid.transpiler import DistributeTranspiler

    with pytest.raises(UnsupportedError, match="is_sparse=True"):
        servers.init()
    with pytest.raises(UnsupportedError, match=r"fleet\.init"):
        DistributeTranspiler()
