"""Weights as a direction and a length: Paddle's steps, and the first outputs of a plain weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.optimizer import described
from tests.optimizer.compare import assert_follows, recorded
from tstatic import fluid, static
from tstatic.errors import ProgramTypeError, TstaticError


def _sgd(loss: Any) -> None:
    paddle.optimizer.SGD(0.3).minimize(loss)


@pytest.mark.parametrize("name", described.WEIGHT_NORM)
def test_steps_are_paddles(name: str) -> None:
    dim = described.WEIGHT_NORM[name]
    new = described.normalised(described.Static(paddle), static.WeightNormParamAttr, _sgd, dim)
    assert_follows(new, recorded("2.6.2" if dim is None else "1.8.5")["weight norm"][name])
    old = described.normalised(described.Fluid(fluid), fluid.WeightNormParamAttr, _sgd, dim)
    assert_follows(old, recorded("1.8.5")["weight norm"][name])


@pytest.mark.parametrize("dim", [None, 0, 1, -1, 3])
def test_the_first_outputs_are_those_of_a_plain_weight(dim: int | None) -> None:
    x = static.data("x", [2, 3, 6, 6])
    static.default_startup_program().random_seed = 3
    start = paddle.nn.initializer.Normal(std=0.5)
    plain = static.nn.conv2d(x, 4, 3, param_attr=paddle.ParamAttr(name="w", initializer=start), bias_attr=False)
    attr = static.WeightNormParamAttr(dim=dim, name="n", initializer=start)
    mine = static.nn.conv2d(x, 4, 3, param_attr=attr, bias_attr=False)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    find = static.global_scope().find_var
    find("n_v").get_tensor().set(np.array(find("w").get_tensor()), paddle.CPUPlace())
    weight = np.array(find("n_v").get_tensor())
    axes = tuple(a for a in range(4) if dim is None or a != dim % 4)
    find("n_g").get_tensor().set(np.sqrt((weight**2).sum(axes, keepdims=True)), paddle.CPUPlace())
    feed = {"x": np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype("float32")}
    found, wanted = exe.run(feed=feed, fetch_list=[mine, plain])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_settings_reach_both_parameters() -> None:
    attr = static.WeightNormParamAttr(0, "w", learning_rate=0.5, trainable=False, need_clip=False)
    static.nn.fc(static.data("x", [None, 3]), 2, weight_attr=attr, bias_attr=False)
    parameters = static.default_main_program().all_parameters()
    assert [(p.name, p.shape) for p in parameters] == [("w_v", (3, 2)), ("w_g", (3, 1))]
    assert {(p.trainable, p.need_clip, p.do_model_average) for p in parameters} == {(False, False, False)}
    assert {p.optimize_attr["learning_rate"] for p in parameters} == {0.5}


def test_wrong_axes_are_refused() -> None:
    with pytest.raises(ProgramTypeError, match="dim"):
        static.WeightNormParamAttr(dim="rows")
    with pytest.raises(TstaticError, match="dim"):
        static.nn.fc(static.data("x", [None, 3]), 2, weight_attr=static.WeightNormParamAttr(dim=2))
