"""A net whose gradients are small integers, merged over runs: sums are exact in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tstatic as paddle
from tests.parallel.golden import strategy
from tstatic import fluid, static
from tstatic.devices import read

Array = np.ndarray[Any, Any]
Kind = static.BuildStrategy.ReduceStrategy
Merge = fluid.optimizer.GradientMergeOptimizer
Rule = Callable[[], Any]
RUNS = 3
"""Runs of a sum."""
CLIP = 3.0


def momentum() -> Any:
    return paddle.optimizer.Momentum(0.5, 0.5)


def clipped() -> Any:
    return paddle.optimizer.Adam(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(CLIP))


def scaled() -> Any:
    return static.amp.decorate(momentum(), init_loss_scaling=8.0, decr_every_n_nan_or_inf=1)


class Job:
    """A net whose numbers are small integers, so that sums are exact in any order.

    Args:
        places: On how many it runs.
        rule: Makes the optimizer.
        kind: The reduce strategy.
        runs: Runs of a sum.
        net: Builds the loss of ``x``.
        fused: Whether several places fuse their updates.
    """

    def __init__(
        self, places: int, rule: Rule = momentum, kind: Any = Kind.AllReduce, runs: int = RUNS, net: Any = None,
        fused: bool = False,
    ) -> None:  # fmt: skip
        self.places, self.kind, self.runs, self.fused = places, kind, runs, fused
        self.main, self.startup = static.Program(), static.Program()
        constant = paddle.nn.initializer.Constant
        with paddle.utils.unique_name.guard(), static.program_guard(self.main, self.startup):
            x = static.data("x", [None, 4])
            if net is None:
                h = static.nn.fc(x, 2, weight_attr=paddle.ParamAttr(name="w", initializer=constant(1.0)))
                self.loss = paddle.sum(h * np.float32(2.0))
            else:
                self.loss = net(x)
            self.test = self.main.clone(for_test=True)
            Merge(rule(), runs, avg=False).minimize(self.loss)
        self.scope, self.exe = static.Scope(), static.Executor("cpu")
        self.exe.run(self.startup, scope=self.scope)
        self.programs: dict[Any, Any] = {}

    def program(self, places: int, kind: Any, main: Any = None) -> Any:
        main = main or self.main
        if self.places == 1:
            return main
        # Each place's loss is a sum: theirs is that of the whole batch.
        how = strategy(
            gradient_scale_strategy=static.BuildStrategy.GradientScaleStrategy.One, reduce_strategy=kind,
            fuse_broadcast_ops=True, fuse_all_optimizer_ops=self.fused,
        )  # fmt: skip
        key = places, kind, main
        if key not in self.programs:
            loss = self.loss.name if main is self.main else None
            self.programs[key] = static.CompiledProgram(main).with_data_parallel(loss, how, places=["cpu"] * places)
        return self.programs[key]

    def step(
        self, number: int, fetch: Sequence[Any] = (), places: int = 0, kind: Any = None, x: Any = None
    ) -> list[Any]:
        """Run number ``number``: its loss, and what else is fetched."""
        program = self.program(places or self.places, kind or self.kind)
        feed = {"x": rows(number) if x is None else x}
        return self.exe.run(
            program, feed=feed, fetch_list=[self.loss, *fetch], scope=self.scope, return_merged=self.places == 1
        )

    @property
    def sums(self) -> list[str]:
        return [v.name for v in self.main.list_vars() if "GradientMerge" in v.name]

    def tensor(self, name: str) -> Any:
        found = self.scope.find_var(name)
        assert found is not None
        return found.get_tensor()

    def values(self) -> dict[str, Array]:
        return {v.name: np.array(self.tensor(v.name)) for v in self.main.list_vars() if v.persistable}

    def part(self, name: str, replica: int) -> Array:
        """What a replica holds, with no look at the others."""
        found = self.scope.replica(replica).find_var(name)
        assert found is not None
        return np.array(read(found.get_tensor()._array))

    @property
    def group(self) -> Any:
        (replicas,) = self.exe._replicas.values()
        return replicas.group


def rows(number: int, count: int = 12) -> Array:
    return np.random.default_rng(number).integers(-4, 5, (count, 4)).astype("float32")
