"""Programs whose gradients are identities, sums or recomputed; run by the numpy and the interpreter ring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tstatic as paddle
from tstatic import static
from tstatic.fusion import FUSIONS

F = paddle.nn.functional
SHAPE = (6, 8)


def residual(x: Any, y: Any) -> Any:
    """Two residual branches: two gradients are identities, and they are summed."""
    h = x + F.gelu(paddle.tanh(x) + y)
    return h + F.relu(h * y)


def both_overwrite(x: Any, y: Any) -> Any:
    """What arrives at the add is read by two gradients that may overwrite it."""
    return paddle.tanh(F.relu(x * 2.0) + paddle.tanh(y * 3.0))


def chained(x: Any, y: Any) -> Any:
    """Handed on four times, to one reader each."""
    return ((x + y) + paddle.tanh(x)) + (paddle.exp(y) + F.sigmoid(x))


def to_itself(x: Any, y: Any) -> Any:
    """Both operands are one value: its two gradients, both identities, are summed."""
    s = x * y
    return F.silu(s + s)


def mixed(x: Any, y: Any) -> Any:
    """One add of equal shapes and one with a row, whose gradient is a sum."""
    return F.gelu(x + paddle.mean(y, 0)) + y


COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    f.__name__: f for f in (residual, both_overwrite, chained, to_itself, mixed)
}


def learned(x: Any, y: Any) -> Any:
    """Two parameters that are added: both gradients are one value."""
    p, q = (
        static.create_parameter(
            list(SHAPE), "float32", name=n, default_initializer=paddle.nn.initializer.Normal(0.0, 1.0)
        )
        for n in ("p", "q")
    )
    return F.relu((p + q) * x + y)


@dataclass(frozen=True)
class Built:
    """A program, with what to feed and fetch."""

    main: Any
    startup: Any
    feed: dict[str, Any]
    fetches: list[str]


def build(
    compute: Callable[[Any, Any], Any], optimizer: Callable[[], Any] | None = None, direct: bool = False
) -> Built:
    """A loss and the gradients of both inputs, read by other ops, or with ``direct`` fetched themselves; or updates."""
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 3
    rng = np.random.default_rng(5)
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x, y = (static.data(n, list(SHAPE), "float32") for n in "xy")
        x.stop_gradient = y.stop_gradient = False
        loss = paddle.mean(paddle.square(compute(x, y)))
        if optimizer is not None:
            optimizer().minimize(loss)
            fetches = [loss.name]
        else:
            grads = static.gradients([loss], [x, y])
            fetches = [loss.name, *((g if direct else g * 0.5).name for g in grads)]
    # Clear of the kinks of relu.
    feed = {n: (rng.integers(-8, 9, SHAPE) / 4 + 0.07).astype(np.float32) for n in "xy"}
    return Built(main, startup, feed, fetches)


def strategy(*switches: str) -> Any:
    """Only these switches; ``"all"`` for every fusion's."""
    made = static.BuildStrategy()
    for fusion in FUSIONS:
        setattr(made, fusion.switch, "all" in switches or fusion.switch in switches)
    return made


def run(
    built: Built, steps: int, *switches: str, fetches: list[str] | None = None
) -> tuple[list[Any], dict[str, Any], Any]:
    """Fetched values of the last step, the parameters after it, and the CompiledProgram."""
    compiled = static.CompiledProgram(built.main, build_strategy=strategy(*switches))
    scope = static.Scope()
    executor = static.Executor("cpu")
    executor.run(built.startup, scope=scope)
    values: list[Any] = []
    for _ in range(steps):
        values = executor.run(compiled, feed=built.feed, fetch_list=fetches or built.fetches, scope=scope)
    state = {p.name: np.array(scope.array(p.name)) for p in built.main.all_parameters()}
    return values, state, compiled
