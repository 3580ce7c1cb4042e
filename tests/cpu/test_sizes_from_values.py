"""Programs with sizes that depend on values: what of them is planned as ever, what is derived once, and that the bits stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.ir import expr_numpy, formula
from tstatic.runtime import sections

Arrays = dict[str, np.ndarray[Any, Any]]
WIDTH = 8


class Trained:
    """A program that is trained in a scope of its own."""

    def __init__(self, build: Callable[[], static.Variable], optimizer: Callable[[], Any]) -> None:
        self.main, self.startup, self.scope = static.Program(), static.Program(), static.Scope()
        self.main.random_seed = self.startup.random_seed = 7
        with paddle.utils.unique_name.guard(), static.program_guard(self.main, self.startup):
            self.loss = build()
            optimizer().minimize(self.loss)
        self.exe = static.Executor(paddle.CPUPlace())
        self.exe.run(self.startup, scope=self.scope)

    def run(self, feed: Arrays) -> np.ndarray[Any, Any]:
        (loss,) = self.exe.run(self.main, feed=feed, fetch_list=[self.loss], scope=self.scope)
        return np.asarray(loss)

    def plan(self, feed: Arrays) -> Any:
        compiled = static.CompiledProgram(self.main)
        self.exe.run(compiled, feed=feed, fetch_list=[self.loss], scope=self.scope)
        return compiled.plan

    def values(self) -> Arrays:
        return {p.name: np.array(self.scope.find_var(p.name).get_tensor()) for p in self.main.all_parameters()}


def picked(depth: int = 3) -> static.Variable:
    """Layers, the rows where ``m`` is not 0, and layers behind them."""
    x, m = static.data("x", [-1, WIDTH]), static.data("m", [-1], "int64")
    h = static.nn.fc(x, WIDTH, activation="relu")
    h = paddle.gather_nd(h, paddle.nonzero(m))
    for _ in range(depth):
        h = static.nn.fc(h, WIDTH, activation="tanh")
    return paddle.mean(paddle.square(h))


def feed_of(count: int, rows: int = 12) -> Arrays:
    """A feed of which ``count`` rows are picked."""
    rng = np.random.RandomState(count)
    mask = np.zeros(rows, np.int64)
    mask[rng.permutation(rows)[:count]] = 1
    return {"x": rng.standard_normal((rows, WIDTH)).astype(np.float32), "m": mask}


@contextmanager
def counted(module: Any, name: str) -> Iterator[list[int]]:
    """Counts the calls of a function of a module, or of a method of a class."""
    calls = [0]
    real = getattr(module, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return real(*args, **kwargs)

    with mock.patch.object(module, name, counting):
        yield calls


# ------------------------------------------------------------------------------------------------------ what is planned
@pytest.mark.parametrize("optimizer", [lambda: paddle.optimizer.Lamb(1e-2), lambda: paddle.optimizer.Adam(1e-2)])
def test_updates_are_planned_as_ever(optimizer: Callable[[], Any]) -> None:
    """Gradients of parameters have the sizes of the parameters, whatever lies between."""
    plan = Trained(picked, optimizer).plan(feed_of(5))
    assert {step.how for step in plan.steps if step.region == "update"} == {"ref"}
    kinds = {v: plan.storage[v].kind for step in plan.steps for v in step.op.writes() if v.endswith("@GRAD")}
    assert kinds["fc_1.w_0@GRAD"] == kinds["fc_1.b_0@GRAD"] == kinds["fc_0.w_0@GRAD"] == "arena"
    # What lies before the rows were picked, and the way back through it.
    assert {step.how for step in plan.steps if step.op.type == "mul_grad"} == {"ref", "dynamic"}


# --------------------------------------------------------------------------------------------- what is derived once only
def test_a_size_seen_before_is_looked_up() -> None:
    """Neither shapes nor expressions are derived again when a run finds sizes that an earlier one found."""
    net = Trained(picked, lambda: paddle.optimizer.Lamb(1e-2))
    for count in (5, 3, 5, 3):
        net.run(feed_of(count))
    with counted(sections, "infer_op") as shapes, counted(expr_numpy.Code, "bind") as bound:
        for count in (3, 5, 5, 3):
            net.run(feed_of(count))
    assert (shapes, bound) == ([0], [0])


def test_a_new_size_compiles_no_expression() -> None:
    """What depends on operators, ranks and types is derived for the first size, and holds for all others."""
    net = Trained(picked, lambda: paddle.optimizer.Lamb(1e-2))
    net.run(feed_of(5))
    with counted(expr_numpy, "_allocate") as compiled, counted(formula.UpdateFormula, "bind") as formulas:
        for count in (4, 6, 1, 0, 12):
            net.run(feed_of(count))
    assert (compiled, formulas) == ([0], [0])
    assert len(net.exe.compilations) == 2
