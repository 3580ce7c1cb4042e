"""fleet on one process: who it is, what it trains, saves and loads, and what it refuses when it is called."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import distributed, fluid, static
from tstatic.comm.rendezvous import launch
from tstatic.distributed import fleet
from tstatic.distributed.fleet.role_maker import (
    PaddleCloudRoleMaker,
    Role,
    UserDefinedCollectiveRoleMaker,
    UserDefinedRoleMaker,
)
from tstatic.errors import CallOrderError, LossSizeError, ProgramError, ProgramTypeError, UnsupportedError


def _loss() -> Any:
    return paddle.mean(static.nn.fc(static.data("x", [None, 3]), 2))


def _ops(loss: Any) -> list[str]:
    return [str(op) for op in loss.block.program.global_block().ops]


def test_all_paths_by_which_scripts_import_fleet() -> None:
    for path in (
        "fleet", "fleet.fleet", "fleet.base", "fleet.base.role_maker", "fleet.base.distributed_strategy", "fleet.utils",
        "fleet.utils.fs", "fleet.metrics", "fleet.metrics.metric", "fleet.meta_optimizers", "fleet.meta_optimizers.common",
        "fleet.base.util_factory", "io", "launch",
    ):  # fmt: skip
        importlib.import_module(f"tstatic.distributed.{path}")
    from tstatic.distributed.fleet import fleet as one
    from tstatic.distributed.fleet.base import role_maker
    from tstatic.distributed.fleet.fleet import Fleet
    from tstatic.distributed.fleet.meta_optimizers.common import OP_ROLE_KEY, OP_ROLE_VAR_KEY
    from tstatic.distributed.fleet.utils import HDFSClient, LocalFS

    assert isinstance(one, Fleet)
    assert fleet.init == one.init
    assert fleet.util is one.util
    assert role_maker.PaddleCloudRoleMaker is fleet.PaddleCloudRoleMaker
    assert (OP_ROLE_KEY, OP_ROLE_VAR_KEY) == ("op_role", "op_role_var")
    assert LocalFS().is_exist("/")
    with pytest.raises(UnsupportedError, match="Hadoop"):
        HDFSClient("home", {})


def test_ops_are_those_of_a_training_without_fleet() -> None:
    with paddle.utils.unique_name.guard(), static.program_guard(static.Program(), static.Program()):
        plain = _loss()
        wanted = paddle.optimizer.Adam(0.1).minimize(plain)
    with paddle.utils.unique_name.guard():
        loss = _loss()
        fleet.init(is_collective=True)
        optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(0.1))
        assert type(optimizer) is type(fleet.fleet)
        found = optimizer.minimize(loss)
    assert [op.split("#")[0] for op in _ops(loss)] == [op.split("#")[0] for op in _ops(plain)]
    assert [op.type for op in found[0]] == [op.type for op in wanted[0]]
    assert [(p.name, g.name) for p, g in found[1]] == [(p.name, g.name) for p, g in wanted[1]]
    assert fleet.user_defined_optimizer is fleet.fleet.user_defined_optimizer


def test_the_plain_program_runs_and_a_clone_for_tests_evaluates() -> None:
    fleet.init(is_collective=True)
    loss = _loss()
    test = static.default_main_program().clone(for_test=True)
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1)).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.ones((2, 3), "float32")}
    values = [exe.run(feed=feed, fetch_list=[loss])[0] for _ in range(2)]
    assert values[0].shape == ()
    assert values[1] < values[0]
    assert exe.run(test, feed=feed, fetch_list=[loss.name])[0] < values[1]
    late = static.default_main_program().clone(for_test=True)
    assert exe.run(late, feed=feed, fetch_list=[loss.name])[0] < values[1]


def test_two_optimizers_minimize_each_its_loss() -> None:
    """What ``distributed_optimizer`` returned before went on with the optimizer that was given last."""
    fleet.init(is_collective=True)
    strategy = fleet.DistributedStrategy()
    strategy.amp = True
    first = fleet.distributed_optimizer(paddle.optimizer.Adam(0.1), strategy)
    second = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), fleet.DistributedStrategy())
    ops, _ = first.minimize(_loss())
    assert {op.type for op in ops} == {"adam"}
    assert fleet._get_applied_meta_list() == ["RawProgramOptimizer", "AMPOptimizer"]
    w = paddle.create_parameter([1], "float32")
    ops, _ = second.minimize(paddle.sum(w))
    assert {op.type for op in ops} == {"sgd"}
    assert fleet._get_applied_meta_list() == ["RawProgramOptimizer"]
    assert first.get_loss_scaling().name == "loss_scaling_0"


def test_mixed_precision_of_the_strategy_or_of_the_user() -> None:
    fleet.init(is_collective=True)
    strategy = fleet.DistributedStrategy()
    strategy.amp = True
    strategy.amp_configs = {"init_loss_scaling": 8.0, "custom_black_list": ["relu"]}
    optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy)
    optimizer.minimize(_loss())
    exe = static.Executor()
    exe.run(static.default_startup_program())
    (scale,) = exe.run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[optimizer.get_loss_scaling()])
    assert scale.tolist() == [8.0]
    assert fleet._get_applied_meta_list() == ["RawProgramOptimizer", "AMPOptimizer"]
    assert fleet._final_strategy().amp_configs["init_loss_scaling"] == 8.0
    with static.program_guard(static.Program(), static.Program()):
        decorated = static.amp.decorate(paddle.optimizer.SGD(0.1), level="O2", dtype="bfloat16")
        optimizer = fleet.distributed_optimizer(decorated, fleet.DistributedStrategy())
        optimizer.minimize(_loss())
        exe.run(static.default_startup_program())
        optimizer.amp_init(paddle.CPUPlace())
        assert static.default_main_program().all_parameters()[0].dtype.name == "bfloat16"


def test_optimizers_that_wrap_others_are_taken_as_they_are() -> None:
    fleet.init(is_collective=True)
    for wrapped, types in (
        (paddle.incubate.LookAhead(paddle.optimizer.SGD(0.1), k=2), {"sgd"}),
        (fluid.optimizer.RecomputeOptimizer(paddle.optimizer.SGD(0.1)), {"sgd"}),
        (fluid.optimizer.GradientMergeOptimizer(paddle.optimizer.SGD(0.1), 2), {"merge_gradient", "sgd"}),
    ):
        with static.program_guard(static.Program(), static.Program()):
            loss = _loss()
            if isinstance(wrapped, fluid.optimizer.RecomputeOptimizer):
                wrapped._set_checkpoints([loss])
            strategy = fleet.DistributedStrategy()
            strategy.amp = strategy.recompute = True
            strategy.recompute_configs = {"checkpoints": [loss]}
            fleet.distributed_optimizer(wrapped, strategy).minimize(loss)
            assert types <= {op.type for op in static.default_main_program().global_block().ops}
            said = {v.name: v for v in fleet.explain().verdicts if v.strategy == "DistributedStrategy"}
            assert "wrapped already" in said["amp"].reason
            assert ("by itself" in said["recompute"].reason) == isinstance(wrapped, paddle.incubate.LookAhead)
    strategy = fleet.DistributedStrategy()
    strategy.gradient_merge = True
    with pytest.raises(ProgramTypeError, match="wraps an optimizer"):
        fleet.distributed_optimizer(paddle.incubate.LookAhead(paddle.optimizer.SGD(0.1)), strategy).minimize(_loss())


def test_saving_and_loading(tmp_path: Path) -> None:
    fleet.init(is_collective=True)
    loss = _loss()
    fleet.distributed_optimizer(paddle.optimizer.Momentum(0.1)).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    folder = str(tmp_path / "model")
    fleet.save_persistables(exe, folder, mode=1)
    scope = static.global_scope()
    before = np.array(scope.find_var("fc_0.w_0").get_tensor())
    scope.find_var("fc_0.w_0").get_tensor().set(before * 0)
    fleet.load_model(folder, mode=0)
    np.testing.assert_array_equal(np.array(scope.find_var("fc_0.w_0").get_tensor()), before)
    fleet.save_inference_model(exe, str(tmp_path / "infer"), ["x"], [loss], mode=0)
    program, feeds, fetches = distributed.io.load_inference_model_distributed(str(tmp_path / "infer"), exe)
    assert feeds == ["x"]
    assert exe.run(program, feed={"x": np.ones((1, 3), "float32")}, fetch_list=fetches)[0].shape == ()
    fleet.save(str(tmp_path / "both"), feed=["x"], fetch=[loss])
    fleet.save(str(tmp_path / "all"))
    assert (tmp_path / "both" / "__model__").exists()
    assert (tmp_path / "all" / "fc_0.w_0").exists()
    fleet.shrink()


def test_calls_in_the_wrong_order_say_which_is_missing() -> None:
    other = fleet.Fleet()
    for call in (other.worker_num, other.is_first_worker, other.barrier_worker):
        with pytest.raises(CallOrderError, match=r"needs fleet\.init"):
            call()
    other.init()
    with pytest.raises(CallOrderError, match="needs an optimizer"):
        other.minimize(_loss())
    other.distributed_optimizer(paddle.optimizer.SGD(0.1))
    with pytest.raises(CallOrderError, match="minimized"):
        other.explain()
    other.minimize(_loss())
    with pytest.raises(CallOrderError, match="mixed precision"):
        other.get_loss_scaling()


def test_wrong_arguments_are_typed_errors() -> None:
    with pytest.raises(ProgramTypeError, match="role_maker"):
        fleet.init("worker")
    with pytest.raises(ProgramTypeError, match="strategy"):
        fleet.init(strategy={})
    with pytest.raises(ProgramTypeError, match="is_collective"):
        fleet.init(is_collective="yes")
    fleet.init()
    with pytest.raises(ProgramTypeError, match="optimizer"):
        fleet.distributed_optimizer(3)
    with pytest.raises(ProgramTypeError, match="DistributedStrategy"):
        fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), static.BuildStrategy())
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1))
    with pytest.raises(LossSizeError):
        fleet.minimize(static.nn.fc(static.data("x", [2, 3]), 2))
    with pytest.raises(ProgramTypeError, match="files should be a list"):
        fleet.util.get_file_shard("a")
    with pytest.raises(ProgramError, match="mode"):
        fleet.util.all_reduce(1.0, "mean")


def test_what_belongs_to_servers_or_eager_training_is_refused_when_called() -> None:
    fleet.init()
    for call in (
        lambda: fleet.distributed_model(None), lambda: fleet.distributed_scaler(None), lambda: fleet.save_cache_table(0, 0),
        lambda: fleet.load_inference_model("x"), fleet.get_hybrid_communicate_group, fleet.init_coordinator,
    ):  # fmt: skip
        with pytest.raises(UnsupportedError, match=r"not part of tstatic|lacks"):
            call()
    for nothing in (fleet.init_worker, fleet.stop_worker, fleet.init_server, fleet.run_server, fleet.barrier_worker):
        assert nothing() is None


# ------------------------------------------------------------------------------------------------------------ role makers
def test_role_makers_of_a_single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for maker in (
        PaddleCloudRoleMaker(), PaddleCloudRoleMaker(is_collective=True, init_gloo=False), UserDefinedRoleMaker(),
        UserDefinedRoleMaker(current_id=0, role=Role.WORKER, worker_num=1, worker_endpoints=["127.0.0.1:36011"]),
        UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:36011"]),
    ):  # fmt: skip
        fleet.init(maker)
        assert (fleet.worker_num(), fleet.worker_index(), maker.is_worker(), maker.server_num()) == (1, 0, True, 0)
        assert "role: 1, current_id: 0" in maker.to_string()
    with pytest.raises(UnsupportedError, match="parameter servers"):
        UserDefinedRoleMaker(role=Role.SERVER)
    monkeypatch.setenv("TRAINING_ROLE", "PSERVER")
    with pytest.raises(UnsupportedError, match="is_sparse=True"):
        PaddleCloudRoleMaker()


def test_a_role_maker_of_the_script_says_which_process_this_is() -> None:
    listed = ["127.0.0.1:6170", "127.0.0.1:6171", "10.0.0.1:6170", "10.0.0.1:6171"]
    fleet.init(UserDefinedRoleMaker(is_collective=True, current_id=2, worker_num=4, worker_endpoints=listed))
    assert (fleet.worker_index(), fleet.worker_num(), fleet.local_rank(), fleet.node_num()) == (2, 4, 0, 2)
    assert launch.current().port == 6170
    for wrong in (
        {"current_id": 4, "worker_endpoints": listed}, {"worker_num": 3, "worker_endpoints": listed}, {"worker_num": 2},
    ):  # fmt: skip
        with pytest.raises(ProgramError, match="which of the processes"):
            UserDefinedRoleMaker(True, **wrong)


def test_variables_set_by_hand_are_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "127.0.0.1:6170,127.0.0.1:6171,127.0.0.1:6172"
    for name, value in {
        "PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "3", "PADDLE_TRAINER_ENDPOINTS": listed,
        "PADDLE_CURRENT_ENDPOINT": "127.0.0.1:6171",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    fleet.init(is_collective=True)
    assert (fleet.worker_index(), fleet.worker_num(), fleet.local_rank(), fleet.node_num()) == (1, 3, 1, 1)
    assert fleet.worker_endpoints(to_string=True) == listed
    assert fleet.util.get_file_shard(["a", "b", "c", "d"]) == ["c"]
    env = distributed.ParallelEnv()
    assert (env.rank, env.nranks, env.current_endpoint) == (1, 3, "127.0.0.1:6171")
    with pytest.raises(UnsupportedError, match="is_collective=False"):
        fleet.init()


def test_the_address_of_the_first_process_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PADDLE_TRAINER_ID": "3", "PADDLE_TRAINERS_NUM": "4", "PADDLE_MASTER": "10.0.0.1:6000",
                        "PADDLE_NNODES": "2", "PADDLE_LOCAL_RANK": "1"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    fleet.init(is_collective=True)
    mine = launch.current()
    assert (mine.rank, mine.size, mine.local_rank, mine.local_size, mine.port) == (3, 4, 1, 2, 6000)
    assert fleet.node_num() == 2
    monkeypatch.setenv("PADDLE_MASTER", "nowhere")
    launch._reset_for_tests()
    with pytest.raises(ValueError, match="PADDLE_MASTER is not an address"):
        launch.current()


def test_torchrun_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "6200",
                        "PADDLE_TRAINER_ID": "0"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    fleet.init(is_collective=True)
    assert fleet.worker_endpoints() == ["127.0.0.1:6200", "127.0.0.1:6201"]
    assert fleet.worker_index() == 1


# ------------------------------------------------------------------------------------------------------------------ files
def test_files_of_this_machine(tmp_path: Path) -> None:
    from tstatic.distributed.fleet.utils import LocalFS

    client, root = LocalFS(), str(tmp_path)
    client.mkdirs(f"{root}/a/b")
    client.touch(f"{root}/a/f")
    client.touch(f"{root}/a/f")
    with pytest.raises(FileExistsError):
        client.touch(f"{root}/a/f", exist_ok=False)
    assert client.ls_dir(f"{root}/a") == (["b"], ["f"])
    assert client.ls_dir(f"{root}/none") == ([], [])
    assert client.list_dirs(root) == ["a"]
    assert (client.is_dir(f"{root}/a"), client.is_file(f"{root}/a"), client.is_exist(f"{root}/x")) == (
        True,
        False,
        False,
    )
    (tmp_path / "a" / "f").write_text("text")
    client.mv(f"{root}/a/f", f"{root}/g")
    assert client.cat(f"{root}/g") == "text"
    client.touch(f"{root}/h")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        client.mv(f"{root}/g", f"{root}/h")
    client.mv(f"{root}/g", f"{root}/h", overwrite=True)
    with pytest.raises(FileNotFoundError):
        client.mv(f"{root}/g", f"{root}/i")
    client.upload(f"{root}/h", f"{root}/k")
    client.upload_dir(f"{root}/a", f"{root}/c")
    client.download(f"{root}/k", f"{root}/l")
    assert client.cat(f"{root}/l") == "text"
    assert client.list_dirs(f"{root}/c") == ["b"]
    assert not client.need_upload_download()
    for path in ("a", "h", "none"):
        client.delete(f"{root}/{path}")
    assert not client.is_exist(f"{root}/a")


def test_roles_of_ops() -> None:
    from tstatic.distributed.fleet.meta_optimizers import common

    loss = _loss()
    paddle.optimizer.SGD(0.1).minimize(loss)
    ops = static.default_main_program().global_block().ops
    assert [common.is_optimizer_op(op) for op in ops] == [op.type == "sgd" for op in ops]
    assert [common.is_update_op(op) for op in ops] == [op.type == "sgd" for op in ops]
    assert sum(common.is_loss_grad_op(op) for op in ops) == 1
    assert [common.is_backward_op(op) for op in ops] == [
        op.type.endswith("_grad") or common.is_loss_grad_op(op) for op in ops
    ]


@pytest.mark.parametrize(
    ("environ", "nodes"),
    [
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, 2),
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, 1),
        # Two processes here and one elsewhere: the number of processes per machine says nothing, the addresses do.
        ({"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2", "PADDLE_TRAINER_ENDPOINTS": "a:1,a:2,b:1"}, 2),
        ({"WORLD_SIZE": "3", "PADDLE_TRAINER_ENDPOINTS": "a:1,b:2,c:1"}, 3),
        ({"WORLD_SIZE": "3"}, 1),
    ],
)  # fmt: skip
def test_machines_are_counted_by_processes_of_each_or_by_addresses(
    environ: dict[str, str], nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "6200", **environ}.items():
        monkeypatch.setenv(name, value)
    fleet.init(is_collective=True)
    assert fleet.node_num() == nodes
