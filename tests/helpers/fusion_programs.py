"""Programs of the table of wrong results, and programs that almost fit a fusion; run by the numpy and the interpreter ring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static

F = paddle.nn.functional


@dataclass(frozen=True)
class Case:
    """A program: shapes of its inputs, and what it computes from them; a loss and all gradients are added."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    compute: Callable[..., Any]
    fused: int
    """How many forward fusions ``fuse_elewise_add_act_ops`` makes at least."""


def _conv(x: Any) -> Any:
    return F.relu(paddle.nn.Conv2D(3, 4, 3)(x))


def _drawn(x: Any, b: Any) -> Any:
    noise = paddle.uniform(x.shape, dtype=x.dtype, min=0.5, max=2.0)
    # Squares: the sum of all values does not cancel, which would show the rounding of 16-bit floats many times larger.
    return F.dropout(paddle.square(x + b), 0.25) * noise + F.dropout(paddle.square(x), 0.5, axis=1)


CASES = (
    Case("(x+y)+1", ((3, 4), (3, 4)), lambda x, y: (x + y) + 1, 1),
    Case("1-(x+y)", ((3, 4), (3, 4)), lambda x, y: 1 - (x + y), 1),
    Case("scale(x+y, bias)", ((3, 4), (3, 4)), lambda x, y: paddle.scale(x + y, 2.0, bias=3.0), 1),
    Case(
        "scale(x+y, bias before)",
        ((3, 4), (3, 4)),
        lambda x, y: paddle.scale(x + y, 2.0, 3.0, bias_after_scale=False),
        1,
    ),
    Case("x+scale(y, bias)", ((3, 4), (3, 4)), lambda x, y: x + paddle.scale(y, 2.0, bias=3.0), 1),
    Case("relu(x+b) interior ones", ((2, 3, 4, 5), (1, 3, 1, 1)), lambda x, b: F.relu(x + b), 1),
    Case("relu(x+b) leading ones", ((2, 3, 4, 5), (1, 1, 4, 1)), lambda x, b: F.relu(x + b), 1),
    Case("relu(x+b) two rows", ((2, 3, 4, 5), (3, 1, 5)), lambda x, b: F.relu(x + b), 1),
    Case("relu(x+b) [5]", ((2, 3, 4, 5), (5,)), lambda x, b: F.relu(x + b), 1),
    Case("relu(x+b) [3,1,1]", ((2, 3, 4, 5), (3, 1, 1)), lambda x, b: F.relu(x + b), 1),
    Case("relu(conv)", ((2, 3, 6, 6),), _conv, 1),
    Case("x+relu(y)", ((3, 4), (3, 4)), lambda x, y: x + F.relu(y), 1),
    Case("x+relu(b)", ((3, 5), (5,)), lambda x, b: x + F.relu(b), 0),
    Case("relu(x)+relu(y)", ((3, 4), (3, 4)), lambda x, y: F.relu(x) + F.relu(y), 1),
    Case("relu(b+x)", ((4,), (3, 4)), lambda b, x: F.relu(b + x), 1),
    Case("relu(x+x)", ((3, 4),), lambda x: F.relu(x + x), 1),
    Case("relu(x)+x", ((3, 4),), lambda x: F.relu(x) + x, 1),
    Case("relu(x+relu(y))", ((3, 4), (3, 4)), lambda x, y: F.relu(x + F.relu(y)), 1),
    Case("tanh(x+y)", ((3, 4), (3, 4)), lambda x, y: paddle.tanh(x + y), 1),
    Case("sigmoid(x+y)", ((3, 4), (3, 4)), lambda x, y: F.sigmoid(x + y), 1),
    Case("gelu(x+y)", ((3, 4), (3, 4)), lambda x, y: F.gelu(x + y), 1),
    Case("gelu tanh(x+y)", ((3, 4), (3, 4)), lambda x, y: F.gelu(x + y, approximate=True), 1),
    Case("silu(x+b)", ((3, 4), (4,)), lambda x, b: F.silu(x + b), 1),
    Case("leaky_relu(x+b)", ((3, 4), (3, 1)), lambda x, b: F.leaky_relu(x + b, 0.2), 1),
    Case("x+tanh(y) axis", ((2, 3, 4), (3,)), lambda x, b: paddle.tanh(static_add(x, b, 1)), 1),
    Case("chain", ((2, 7), (7,)), lambda x, b: paddle.exp(-paddle.square(F.gelu(x + b) * x - b)) + paddle.tanh(x), 1),
    Case("0-d", ((), ()), lambda x, y: F.relu(x + y), 1),
    Case("odd sizes", ((17, 131), (131,)), lambda x, b: F.relu(x + b) * paddle.tanh(x), 1),
    Case("dropout and noise", ((17, 13), (13,)), _drawn, 0),
)


def static_add(x: Any, y: Any, axis: int) -> Any:
    """Paddle 1's add, which places the smaller operand by ``axis``."""
    return paddle.fluid.layers.elementwise_add(x, y, axis=axis)


@dataclass
class Built:
    """A case as a program, with what to feed and fetch."""

    main: Any
    startup: Any
    feed: dict[str, Any]
    fetches: list[str]


def build(case: Case, dtype: str = "float32") -> Built:
    """The case's program with a loss and the gradients of all inputs and parameters."""
    main, startup = static.Program(), static.Program()
    rng = np.random.default_rng(5)
    feed = {}
    with static.program_guard(main, startup):
        inputs = []
        for i, shape in enumerate(case.shapes):
            # Clear of the kinks of relu, also after an addition.
            feed[f"x{i}"] = (rng.integers(-8, 9, shape) / 4 + 0.07 * (i + 1)).astype(np.float32)
            var = static.data(f"x{i}", list(shape), "float32")
            var.stop_gradient = False
            inputs.append(var)
        given = [paddle.cast(v, dtype) for v in inputs] if dtype != "float32" else inputs
        out = case.compute(*given)
        wide = paddle.cast(out, "float32") if dtype != "float32" else out
        weight = static.data("weight", list(wide.shape), "float32")
        feed["weight"] = np.asarray(rng.integers(1, 9, wide.shape) / 8, np.float32)
        loss = paddle.sum(wide * weight)
        pairs = static.append_backward(loss)
        grads = [g.name for _, g in pairs] + [f"{v.name}@GRAD" for v in inputs]
    return Built(main, startup, feed, [out.name, loss.name, *grads])


def run(built: Built, fetches: list[str] | None = None, **switches: Any) -> tuple[list[Any], Any]:
    """Runs a built program under a strategy in a scope of its own; returns the values and the CompiledProgram."""
    strategy = static.BuildStrategy()
    strategy.fuse_bn_add_act_ops = False
    for name, value in switches.items():
        setattr(strategy, name, value)
    compiled = static.CompiledProgram(built.main, build_strategy=strategy)
    executor = static.Executor("cpu")
    scope = static.Scope()
    paddle.seed(7)
    executor.run(built.startup, scope=scope)
    values = executor.run(compiled, feed=built.feed, fetch_list=fetches or built.fetches, scope=scope)
    return values, compiled
