"""The example of a script with fleet, as users write it: it runs alone, under a launcher and in spawned processes."""

from __future__ import annotations

import json
import os
import sys

import numpy as np

import tstatic as paddle
from tstatic import distributed, static
from tstatic.distributed import fleet


def broken() -> None:
    if distributed.get_rank() == 1:
        raise ValueError("planted")


def train() -> None:
    fleet.init(is_collective=True)
    paddle.seed(1 + fleet.worker_index())
    x, y = static.data("x", [None, 4]), static.data("y", [None, 1])
    loss = paddle.mean(paddle.square(static.nn.fc(x, 1) - y))
    s = fleet.DistributedStrategy()
    s.gradient_merge = True
    s.gradient_merge_configs = {"k_steps": 2}
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), s).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    rng = np.random.default_rng(fleet.worker_index())
    for _ in range(4):
        rows = rng.standard_normal((4, 4)).astype("float32")
        exe.run(feed={"x": rows, "y": rows.sum(1, keepdims=True)}, fetch_list=[loss])
    distributed.barrier()
    values = [np.asarray(static.global_scope().find_var(n).get_tensor()) for n in ("fc_0.w_0", "fc_0.b_0")]
    said = {
        "rank": fleet.worker_index(), "size": fleet.worker_num(), "arguments": sys.argv[1:],
        "parameters": [v.ravel().tolist() for v in values],
        "environ": {k: v for k, v in os.environ.items() if k.startswith("PADDLE_")},
    }  # fmt: skip
    os.write(1, (json.dumps(said) + "\n").encode())


if __name__ == "__main__":
    if "spawn" in sys.argv:
        distributed.spawn(train, nprocs=2)
        try:
            distributed.spawn(broken, nprocs=2)
        except RuntimeError as error:
            print("caught:", str(error).splitlines()[0])
    elif "fail" in sys.argv:
        broken()
    else:
        train()
