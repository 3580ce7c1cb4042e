"""Small programs with batch norm, built and trained in one way for several tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tstatic as paddle
from tests.cpu.nets import state
from tstatic import static

SHAPES = {"NCHW": (3, 4, 5, 6), "NHWC": (3, 5, 6, 4)}


def act_of(name: str) -> Callable[[Any], Any]:
    found: Callable[[Any], Any] = getattr(paddle.nn.functional, name)
    return found


def residual(act: str = "relu", layout: str = "NCHW", train: bool = True, **norm: Any) -> tuple[Any, Any, Any]:
    """conv, batch norm, act, conv, batch norm, + residual, act, mean of squares; returns (main, startup, loss)."""
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [None, *SHAPES[layout][1:]])
        h = static.nn.conv2d(x, 5, 3, padding=1, bias_attr=False, data_format=layout)
        h = static.nn.batch_norm(h, act=act, data_layout=layout, **norm)
        g = static.nn.conv2d(h, 5, 3, padding=1, bias_attr=False, data_format=layout)
        g = static.nn.batch_norm(g, data_layout=layout, **norm)
        loss = paddle.mean(paddle.square(act_of(act)(g + h)))
        if train:
            paddle.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return main, startup, loss


def strategy(on: bool) -> Any:
    made = static.BuildStrategy()
    made.fuse_bn_act_ops = made.fuse_bn_add_act_ops = on
    return made


def feed(step: int = 0, layout: str = "NCHW") -> dict[str, Any]:
    return {"x": np.random.default_rng(step).standard_normal(SHAPES[layout]).astype("float32")}


def trained(
    program: tuple[Any, Any, Any], on: bool, fetches: list[str], steps: int = 3, layout: str = "NCHW"
) -> tuple[list[Any], dict[str, Any], Any]:
    """Results of every step, the state afterwards, and what explain says."""
    main, startup, loss = program
    compiled = static.CompiledProgram(main, build_strategy=strategy(on))
    with static.scope_guard(static.Scope()):
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        wanted = [loss.name, *fetches]
        results = [exe.run(compiled, feed=feed(i, layout), fetch_list=wanted) for i in range(steps)]
        told = compiled.explain(fetch_list=wanted, feed_shapes={"x": SHAPES[layout]})
        return results, state(static.global_scope(), main), told


def gradients_of(main: Any) -> list[str]:
    """Names of the parameters' gradients."""
    made = {n for op in main.global_block().ops for names in op.outputs.values() for n in names}
    return [f"{p.name}@GRAD" for p in main.all_parameters() if f"{p.name}@GRAD" in made]
