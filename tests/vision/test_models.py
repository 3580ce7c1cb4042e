"""Networks have the names, shapes and scores of Paddle's, and train."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.vision import described
from tstatic import static
from tstatic.errors import ProgramError, UnsupportedError

RECORDED: Any = json.loads(Path(described.__file__).with_name("recorded.json").read_text(encoding="utf-8"))
MODELS = paddle.vision.models
INTERPRETED = os.environ.get("TSTATIC_CPU_BACKEND") == "interpret"
RUN = (
    ("resnet18", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_swish", "googlenet")
    if INTERPRETED
    else tuple(described.RUN)
)
"""In the interpreter those that together have every kind of fusion, by the types of its operators, that any of the networks has."""
builds = pytest.mark.skipif(INTERPRETED, reason="launches no kernel")


@builds
@pytest.mark.parametrize("name", described.NETWORKS)
def test_parameters_have_paddles_names_and_shapes(name: str) -> None:
    lines = described.structure(paddle, name)
    if name == "resnet18":
        assert lines == RECORDED["resnet18"]
    assert described.digest(lines) == RECORDED["structure"][name]


@builds
@pytest.mark.parametrize(
    ("name", "total", "count"), [("LeNet", 61_610, 10), ("resnet18", 11_191_242, 102), ("mobilenet_v2", 2_270_794, 262)]
)
def test_numbers_of_parameters(name: str, total: int, count: int) -> None:
    found = described.digest(described.structure(paddle, name))
    assert (found["total"], found["count"]) == (total, count)


@pytest.mark.parametrize("name", RUN)
def test_scores_with_known_weights_are_paddles(name: str) -> None:
    found, wanted = np.array(described.scores(paddle, name)), np.array(RECORDED["scores"][name])
    assert np.abs(wanted).max() > 1e-3
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def test_a_network_trains() -> None:
    x, y = static.data("x", [None, 3, 32, 32]), static.data("y", [None], "int64")
    net = MODELS.mobilenet_v2(scale=0.25, num_classes=4)
    loss = paddle.mean(paddle.nn.functional.cross_entropy(net(x), y))
    paddle.optimizer.Adam(1e-3).minimize(loss)
    static.default_startup_program().random_seed = static.default_main_program().random_seed = 1
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.random.default_rng(0).normal(size=(8, 3, 32, 32)).astype("float32"), "y": np.arange(8) % 4}
    losses = [float(exe.run(feed=feed, fetch_list=[loss])[0]) for _ in range(8)]
    assert losses[-1] < 0.7 * losses[0]


@builds
@pytest.mark.parametrize("name", [n for n in described.NETWORKS if n != "LeNet"])
def test_pretrained_weights_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="downloads nothing"):
        getattr(MODELS, name)(pretrained=True)


@builds
def test_wrong_arguments_are_refused() -> None:
    from tstatic.vision.models.resnet import BasicBlock

    with pytest.raises(ProgramError, match="depth"):
        MODELS.ResNet(BasicBlock, 20)
    with pytest.raises(ProgramError, match="groups"):
        MODELS.ResNet(BasicBlock, 18, groups=32)
    with pytest.raises(ProgramError, match="scale"):
        MODELS.MobileNetV1(scale=0.0)
    with pytest.raises(ProgramError, match="version"):
        MODELS.SqueezeNet("1.2")
    with pytest.raises(TypeError, match="classes"):
        MODELS.resnet18(classes=10)
