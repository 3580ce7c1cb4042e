"""Records what Paddle's fleet answers on one process: ``.venv-paddle/bin/python -m tests.distributed.record``."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.helpers import recorder

STEPS = 4


def batch(step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    return {"x": rng.standard_normal((4, 3)).astype("float32"), "y": rng.standard_normal((4, 1)).astype("float32")}


def net(paddle: Any, static: Any) -> Any:
    """A net whose parameters begin with fixed values."""
    x, y = static.data("x", [None, 3]), static.data("y", [None, 1])

    def attr(value: float) -> Any:
        return paddle.ParamAttr(initializer=paddle.nn.initializer.Constant(value))

    hidden = static.nn.fc(x, 4, weight_attr=attr(0.3), bias_attr=attr(0.1), activation="tanh")
    return paddle.mean(paddle.square(static.nn.fc(hidden, 1, weight_attr=attr(-0.2), bias_attr=attr(0.0)) - y))


APPLIED: dict[str, tuple[str, dict[str, Any]]] = {
    "gradient merge": ("Momentum", {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}}),
    "sum of gradients": ("SGD", {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2, "avg": False}}),
    "lamb": ("Adam", {"lamb": True, "lamb_configs": {"exclude_from_weight_decay": ["b_0"]}}),
    "lars": ("Momentum", {"lars": True}),
    "lamb of SGD": ("SGD", {"lamb": True}),
    "recompute": ("SGD", {"recompute": True, "recompute_configs": {"checkpoints": ["fc_0.tmp_2"]}}),
}
"""Trainings: the optimizer and what the strategy sets."""


def applied(paddle: Any, static: Any, fleet: Any, name: str) -> dict[str, Any]:
    """The losses of one of ``APPLIED``, and the names of what was applied."""
    optimizer, fields = APPLIED[name]
    strategy = fleet.DistributedStrategy()
    for field, value in fields.items():
        setattr(strategy, field, value)
    with paddle.utils.unique_name.guard():
        found = losses(paddle, static, fleet, getattr(paddle.optimizer, optimizer)(0.1), strategy)
    return {"losses": found, "meta": fleet._get_applied_meta_list()}


def losses(paddle: Any, static: Any, fleet: Any, optimizer: Any, strategy: Any = None) -> list[float]:
    """The losses of a training with fleet, in fresh programs."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        loss = net(paddle, static)
        fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        return [float(np.asarray(exe.run(main, feed=batch(i), fetch_list=[loss])[0])) for i in range(STEPS)]


def metrics(fleet: Any) -> dict[str, float]:
    m = fleet.metrics
    return {
        "sum": float(m.sum(np.array([1.0, 2.0]))[1]),
        "max": float(m.max(np.array([1.0, 2.0]))[1]),
        "acc": float(m.acc(np.array([3.0]), np.array([4.0]))),
        "mae": float(m.mae(np.array([3.0]), np.array([4.0]))),
        "mse": float(m.mse(np.array([3.0]), np.array([4.0]))),
        "rmse": float(m.rmse(np.array([3.0]), np.array([4.0]))),
        "auc": float(m.auc(np.array([[1.0, 2.0, 5.0]]), np.array([[4.0, 2.0, 1.0]]))),
        "auc of one class": float(m.auc(np.array([[1.0, 2.0, 5.0]]), np.array([[0.0, 0.0, 0.0]]))),
    }


def identities(fleet: Any) -> dict[str, Any]:
    return {
        "worker_num": fleet.worker_num(), "worker_index": fleet.worker_index(), "is_first_worker": fleet.is_first_worker(),
        "is_worker": fleet.is_worker(), "is_server": fleet.is_server(), "server_num": fleet.server_num(),
        "node_num": fleet.node_num(), "worker_endpoints": fleet.worker_endpoints(),
        "joined": fleet.worker_endpoints(to_string=True), "rank": fleet.rank(), "nranks": fleet.nranks(),
    }  # fmt: skip


def collectives(paddle: Any, static: Any, distributed: Any) -> dict[str, Any]:
    """What each collective answers in a program of one process, or the error's name."""
    found: dict[str, Any] = {}
    for name in ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "scatter", "alltoall"):
        main = static.Program()
        with static.program_guard(main, static.Program()):
            x = static.data("x", [2], "float32")
            y = x * 2.0
            out: list[Any] = []
            try:
                getattr(distributed, name)(
                    *{
                        "all_reduce": (y,), "broadcast": (y, 0), "reduce": (y, 0), "all_gather": (out, y),
                        "reduce_scatter": (y, [x + 1.0]), "scatter": (y, [x + 1.0], 0), "alltoall": ([x + 1.0], out),
                    }[name]
                )  # fmt: skip
                fetched = static.Executor().run(
                    main, feed={"x": np.array([1, 2], "float32")}, fetch_list=[out[0] if out else y]
                )
                found[name] = np.asarray(fetched[0]).reshape(-1).tolist()
            except Exception as error:
                found[name] = type(error).__name__
    return found


def everything(paddle: Any) -> dict[str, Any]:
    """What one process answers, for Paddle and for tstatic."""
    import importlib

    root = paddle.__name__
    fleet = importlib.import_module(f"{root}.distributed.fleet")
    distributed = importlib.import_module(f"{root}.distributed")
    static = importlib.import_module(f"{root}.static")
    found: dict[str, Any] = {}
    fleet.init(is_collective=True)
    found["collective"] = identities(fleet)
    fleet.init()
    found["not collective"] = identities(fleet)
    fleet.init(is_collective=True)
    found["metrics"] = metrics(fleet)
    found["shards"] = fleet.util.get_file_shard(["a", "b", "c"])
    found["sgd"] = losses(paddle, static, fleet, paddle.optimizer.SGD(0.1))
    found["momentum"] = losses(paddle, static, fleet, paddle.optimizer.Momentum(0.1, 0.9))
    found["adam"] = losses(paddle, static, fleet, paddle.optimizer.Adam(0.05))
    found["applied"] = {name: applied(paddle, static, fleet, name) for name in APPLIED}
    found["strategy"] = strategies(fleet, paddle, static)
    found["collectives"] = collectives(paddle, static, distributed)
    found["ReduceOp"] = [getattr(distributed.ReduceOp, n) for n in ("SUM", "MAX", "MIN", "PROD", "AVG")]
    env = distributed.ParallelEnv()
    found["ParallelEnv"] = [
        env.rank,
        env.local_rank,
        env.world_size,
        env.nranks,
        env.current_endpoint,
        env.trainer_endpoints,
    ]
    return found


def _mended(module: Any) -> None:
    """Lets Paddle 2.6 read its strategy with a protobuf of today, whose fields have no label."""

    def read(message: Any) -> dict[str, Any]:
        values = {f.name: getattr(message, f.name) for f in message.DESCRIPTOR.fields}
        return {name: list(v) if hasattr(v, "extend") else v for name, v in values.items()}

    def write(message: Any, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, list):
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)

    module.get_msg_dict, module.assign_configs_value = read, write


def strategies(fleet: Any, paddle: Any, static: Any) -> dict[str, Any]:
    """Fields and their defaults, and what minimize applies."""
    strategy = fleet.DistributedStrategy()
    plain = {}
    for name in dir(strategy):
        value = getattr(strategy, name)
        if not name.startswith("_") and isinstance(value, bool | int | float | list | dict | str):
            plain[name] = {k: v for k, v in value.items() if isinstance(v, bool | int | float | str)} if (
                isinstance(value, dict)) else value  # fmt: skip
    return json.loads(json.dumps(plain, default=str))


if __name__ == "__main__":
    import paddle
    from paddle.distributed.fleet.base import distributed_strategy

    _mended(distributed_strategy)
    paddle.enable_static()
    recorder.write(__file__, everything(paddle), indent=1)
