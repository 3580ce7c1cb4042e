"""Programs as users of fleet write them, run unchanged as ``paddle``: a recommender, and a net with amp and gradient merge.

The third kind, a collective script of 1.x, is in ``test_older.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.comm.pool import environment
from tests.helpers.patience import HANG

RECOMMENDER = '''
"""Click-through rates from sparse ids, as in a recommender's training script."""
import os

import numpy as np
import paddle
import paddle.distributed.fleet as fleet
import paddle.distributed.fleet.base.role_maker as role_maker
from paddle.distributed.fleet.utils import LocalFS, HDFSClient
from paddle.distributed.transpiler import DistributeTranspiler

paddle.enable_static()
SLOTS, SIZE = 3, 50


class Model:
    def __init__(self):
        self.ids = [paddle.static.data(f"C{i}", [None, 1], "int64", lod_level=0) for i in range(SLOTS)]
        self.label = paddle.static.data("label", [None, 1], "int64")

    def net(self):
        rows = [
            paddle.reshape(
                paddle.static.nn.embedding(
                    ids, [SIZE, 8], is_sparse=True, is_distributed=False,
                    param_attr=paddle.ParamAttr(name="table", initializer=paddle.nn.initializer.Uniform(-0.1, 0.1)),
                ),
                [-1, 8],
            )
            for ids in self.ids
        ]
        hidden = paddle.static.nn.fc(paddle.concat(rows, axis=1), 16, activation="relu")
        predict = self.predict = paddle.static.nn.fc(hidden, 2, activation="softmax")
        cost = paddle.nn.functional.cross_entropy(predict, self.label, use_softmax=False)
        self.auc, _, self.stats = paddle.static.auc(predict, self.label, num_thresholds=2**12, slide_steps=0)
        self.loss = paddle.mean(cost)
        return self.loss


def main():
    role = role_maker.PaddleCloudRoleMaker()
    fleet.init(role)
    paddle.seed(7)
    model = Model()
    loss = model.net()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    strategy.a_sync_configs = {"k_steps": 0, "use_ps_gpu": 0}
    optimizer = fleet.distributed_optimizer(paddle.optimizer.Adam(0.02, lazy_mode=True), strategy)
    optimizer.minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(paddle.static.default_startup_program())
    fleet.init_worker()
    files = fleet.util.get_file_shard(["part-0", "part-1"])
    rng = np.random.default_rng(0)
    clicks = rng.random(SIZE) > 0.5
    losses = []
    for epoch in range(3):
        for _ in files * 10:
            ids = rng.integers(0, SIZE, (32, SLOTS))
            feed = {f"C{i}": ids[:, i : i + 1] for i in range(SLOTS)}
            feed["label"] = (clicks[ids].sum(1) >= 2).astype("int64")[:, None]
            value, auc = exe.run(paddle.static.default_main_program(), feed=feed, fetch_list=[loss, model.auc])
            losses.append(float(value))
        if fleet.is_first_worker():
            fleet.save_persistables(exe, f"epoch_{epoch}")
            fleet.save_inference_model(exe, f"infer_{epoch}", [one.name for one in model.ids], [model.predict])
    names = [one.name for one in model.stats[2:]]
    pos, neg = (np.array(paddle.static.global_scope().find_var(n).get_tensor()) for n in names)
    whole = fleet.metrics.auc(pos.reshape(1, -1), neg.reshape(1, -1))
    client = LocalFS()
    fleet.barrier_worker()
    fleet.stop_worker()
    print("RESULT", [losses[0], losses[-1], float(np.asarray(auc).reshape(-1)[0]), whole, client.is_exist("epoch_2")])


if __name__ == "__main__":
    main()
'''

COLLECTIVE = '''
"""A classifier in mixed precision whose gradients are merged over runs, as in a collective training script."""
import numpy as np
import paddle
from paddle.distributed import fleet
import paddle.static as static

paddle.enable_static()


def build(main, startup, train):
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        image = static.data("image", [None, 1, 8, 8])
        label = static.data("label", [None, 1], "int64")
        out = static.nn.conv2d(image, 4, 3, act="relu")
        out = static.nn.fc(out, 32, activation="relu")
        out = static.nn.fc(out, 4)
        loss = paddle.mean(paddle.nn.functional.cross_entropy(out, label))
        accuracy = static.accuracy(paddle.nn.functional.softmax(out), label)
        optimizer = None
        if train:
            strategy = fleet.DistributedStrategy()
            strategy.amp = True
            strategy.amp_configs = {"init_loss_scaling": 128.0, "custom_white_list": ["softmax"]}
            strategy.gradient_merge = True
            strategy.gradient_merge_configs = {"k_steps": 2, "avg": True}
            strategy.fuse_grad_size_in_MB = 16
            build_strategy = static.BuildStrategy()
            build_strategy.fuse_elewise_add_act_ops = True
            strategy.build_strategy = build_strategy
            execution = static.ExecutionStrategy()
            execution.num_threads = 2
            strategy.execution_strategy = execution
            optimizer = fleet.distributed_optimizer(paddle.optimizer.Momentum(0.1, 0.9), strategy=strategy)
            optimizer.minimize(loss, startup)
    return loss, accuracy, optimizer


paddle.seed(3)
fleet.init(is_collective=True)
place = paddle.CPUPlace()
main, startup, test = static.Program(), static.Program(), static.Program()
loss, accuracy, optimizer = build(main, startup, True)
test_loss, test_accuracy, _ = build(test, static.Program(), False)
exe = static.Executor(place)
exe.run(startup)
optimizer.amp_init(place, test_program=test)
rng = np.random.default_rng(fleet.worker_index())
patterns = np.random.default_rng(9).standard_normal((4, 1, 8, 8))


def batch(size):
    label = rng.integers(0, 4, size)
    image = patterns[label] + 0.5 * rng.standard_normal((size, 1, 8, 8))
    return {"image": image.astype("float32"), "label": label[:, None]}


losses = [float(exe.run(main, feed=batch(16), fetch_list=[loss])[0]) for _ in range(40)]
found = exe.run(test, feed=batch(200), fetch_list=[test_loss, test_accuracy])
scale = exe.run(main, feed=batch(16), fetch_list=[optimizer.get_loss_scaling()])[0]
print("RESULT", [losses[0], losses[-1], float(np.asarray(found[1]).reshape(-1)[0]), float(scale[0]), fleet.worker_num()])
'''


def _result(script: str, tmp_path: Path) -> list[float]:
    path = tmp_path / "train.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "tstatic.as_paddle", str(path)], cwd=tmp_path, env=environment(), capture_output=True,
        text=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("RESULT ")]
    return list(json.loads(line.removeprefix("RESULT ").replace("True", "true")))


def test_a_recommender_with_fleet_learns_on_one_process(tmp_path: Path) -> None:
    first, last, auc, whole, saved = _result(RECOMMENDER, tmp_path)
    assert saved
    assert last < 0.7 * first
    assert auc > 0.7
    np.testing.assert_allclose(auc, whole, rtol=1e-6)
    assert (tmp_path / "epoch_0" / "table").exists()


@pytest.mark.slow
def test_a_net_with_amp_and_gradient_merge_learns(tmp_path: Path) -> None:
    first, last, accuracy, scale, workers = _result(COLLECTIVE, tmp_path)
    assert last < 0.5 * first
    assert accuracy > 0.9
    assert (scale, workers) == (128.0, 1)
