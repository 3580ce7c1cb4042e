"""A small program with a depthwise convolution of relu, built and trained in one way for several tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tstatic as paddle
from tests.cpu.nets import state
from tstatic import static


def net(layout: str = "NCHW", groups: int = 4, twice: bool = False) -> tuple[Any, Any, Any]:
    """conv, relu, depthwise conv, mean of squares."""
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 3, 6, 5] if layout == "NCHW" else [None, 6, 5, 3])
        h = static.nn.conv2d(x, 4, 3, padding=1, bias_attr=False, data_format=layout)
        t = paddle.nn.functional.relu(h)
        y = static.nn.conv2d(t, 4, 3, padding=1, groups=groups, bias_attr=False, data_format=layout)
        loss = paddle.mean(paddle.square(y)) + (paddle.mean(t) if twice else 0.0)
        paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return main, startup, loss


def trained(program: tuple[Any, Any, Any], on: bool, layout: str, fetches: Sequence[str] = ()) -> tuple[Any, Any, Any]:
    main, startup, loss = program
    build = static.BuildStrategy()
    build.fuse_relu_depthwise_conv = on
    compiled = static.CompiledProgram(main, build_strategy=build)
    shape = (2, 3, 6, 5) if layout == "NCHW" else (2, 6, 5, 3)
    wanted = [loss.name, *fetches]
    with static.scope_guard(static.Scope()):
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        rng = np.random.default_rng(0)
        losses = [
            exe.run(compiled, feed={"x": rng.standard_normal(shape).astype("float32")}, fetch_list=wanted)[0]
            for _ in range(3)
        ]
        told = compiled.explain(fetch_list=wanted, feed_shapes={"x": shape})
        return losses, state(static.global_scope(), main), told
