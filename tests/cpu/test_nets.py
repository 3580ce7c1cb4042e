"""``fluid.layers.data`` and ``fluid.nets``, and a small classifier built from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.layer_check import check_layer, sample
from tstatic import fluid, static

torch = pytest.importorskip("torch")
F = torch.nn.functional


def test_fluid_data_prepends_the_batch_axis() -> None:
    assert fluid.layers.data("a", [3, 4]).shape == (-1, 3, 4)
    assert fluid.layers.data("b", [3], append_batch_size=False).shape == (3,)
    assert fluid.layers.data("c", [None, 3]).shape == (-1, 3)
    assert fluid.layers.data("d", [-1, 3]).shape == (-1, 3)
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    assert (label.shape, label.dtype.name, label.stop_gradient, label.is_data) == ((-1, 1), "int64", True, True)
    assert not fluid.layers.data("e", [1], stop_gradient=False).stop_gradient


def test_simple_img_conv_pool() -> None:
    run = check_layer(
        lambda x: fluid.nets.simple_img_conv_pool(x, 4, 3, pool_size=2, pool_stride=2, act="relu", conv_padding=1),
        lambda p, x: F.max_pool2d(F.relu(F.conv2d(x, p["conv2d_0.w_0"], p["conv2d_0.b_0"], padding=1)), 2),
        {"x": sample(2, 1, 6, 6)},
        result="pool2d_0.tmp_0",
    )
    assert run.ops() == ["conv2d", "elementwise_add", "relu", "pool2d"]


def test_img_conv_group() -> None:
    def reference(p: Any, x: Any) -> Any:
        x = F.conv2d(x, p["conv2d_0.w_0"], p["conv2d_0.b_0"], padding=1)
        x = F.relu(F.batch_norm(x, None, None, p["batch_norm_0.w_0"], p["batch_norm_0.b_0"], True))
        x = F.relu(F.conv2d(x, p["conv2d_1.w_0"], p["conv2d_1.b_0"], padding=1))
        return F.avg_pool2d(x, 2, 1)

    run = check_layer(
        lambda x: fluid.nets.img_conv_group(
            x, [4, 3], pool_size=2, conv_act="relu", conv_with_batchnorm=[True, False], pool_type="avg"
        ),
        reference,
        {"x": sample(2, 2, 5, 5)},
    )
    assert run.ops() == [
        "conv2d",
        "elementwise_add",
        "batch_norm",
        "relu",
        "conv2d",
        "elementwise_add",
        "relu",
        "pool2d",
    ]


def test_img_conv_group_drops_after_a_norm() -> None:
    x = fluid.layers.data("x", [2, 5, 5])
    fluid.nets.img_conv_group(x, [4, 3], 2, conv_with_batchnorm=True, conv_batchnorm_drop_rate=[0.3, 0.0])
    ops = static.default_main_program().global_block().ops
    assert [op.type for op in ops].count("dropout") == 1
    assert next(op.attr("dropout_prob") for op in ops if op.type == "dropout") == 0.3


def test_a_small_classifier_learns() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, (64, 1))
    images = draw.normal(0, 0.3, (64, 1, 8, 8)).astype("float32")
    for image, label in zip(images, labels[:, 0], strict=True):
        image[0, 2 * label : 2 * label + 3] += 1.0
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    main.random_seed = startup.random_seed = 5
    with static.program_guard(main, startup):
        x = fluid.layers.data("x", [1, 8, 8])
        y = fluid.layers.data("y", [1], dtype="int64")
        hidden = fluid.nets.simple_img_conv_pool(x, 4, 3, 2, 2, act="relu")
        scores = fluid.layers.fc(fluid.layers.batch_norm(hidden), 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(scores, y))
        paddle.optimizer.Adam(0.02).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup, scope=scope)
    losses = [
        float(exe.run(main, feed={"x": images, "y": labels}, fetch_list=[loss], scope=scope)[0]) for _ in range(30)
    ]
    assert losses[0] > 0.7
    assert losses[-1] < 0.1
