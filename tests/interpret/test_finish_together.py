"""Partial sums of many kernels, added by one launch: the bits of each kernel's own sums, and only where nobody reads in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static, testing
from tstatic.devices import interpret
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.codegen.update.strip_sums import StripSum, strip_sums
from tstatic.fusion.engine import cache
from tstatic.ir.types import dtype_of
from tstatic.static.compile import pipeline
from tstatic.target import TINY
from tstatic.testing.runner import everything_on


def build(early: bool = False) -> tuple[Any, Any, list[str]]:
    """Two norms and two biases, trained; ``early``: the loss's gradient of the last bias is read before the others are made."""
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 7
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [40, 24], "float32")
        h = x
        for _ in range(2):
            h = paddle.tanh(static.nn.fc(static.nn.layer_norm(h), 24)) + h
        loss = paddle.mean(paddle.square(h))
        pairs = paddle.optimizer.SGD(0.1).backward(loss)
        gradients = [g for _, g in pairs if len(g.shape) == 1]
        fetches = [loss.name]
        if early:
            fetches.append(paddle.exp(gradients[-1]).name)
        paddle.optimizer.SGD(0.1).apply_gradients(pairs)
    return main, startup, fetches


def train(main: Any, startup: Any, fetches: Sequence[str]) -> tuple[list[Any], list[str], list[str]]:
    """Results of three steps, the types of the plan's steps, and their launches."""
    scope = static.Scope()
    feed = {"x": np.random.default_rng(5).normal(size=(40, 24)).astype("float32")}
    with static.scope_guard(scope):
        executor = static.Executor(paddle.CPUPlace())
        executor.run(startup)
        compiled = static.CompiledProgram(main, everything_on())
        got = [v for _ in range(3) for v in executor.run(compiled, feed=feed, fetch_list=list(fetches))]
        got += [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]
    plan = compiled.plan
    launches = [c.function for s in plan.steps if s.how == "kernel" for c in plan.kernels[s.op.outputs].calls.launches]
    return got, [s.op.type for s in plan.steps], launches


@pytest.mark.parametrize("early", [False, True], ids=["update", "early"])
def test_the_bits_are_those_of_each_kernels_own_sums(early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    program = build(early)
    got, steps, launches = train(*program)
    assert "strip_sums" in steps
    assert not any("finish" in name for name in launches)
    monkeypatch.setattr(pipeline, "finish_together", lambda program, metas, planned: (program, metas, planned))
    wanted, alone, more = train(*build(early))
    assert "strip_sums" not in alone
    assert sum("finish" in name for name in more) > steps.count("strip_sums")
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert np.array_equal(a, b)


def test_sums_are_made_before_their_first_reader() -> None:
    _, steps, _ = train(*build())
    assert steps.count("strip_sums") == 1
    assert set(steps[steps.index("strip_sums") + 1 :]) == {"sgd"}


def test_programs_are_as_without_fusion() -> None:
    main, startup, fetches = build()
    feed = {"x": np.random.default_rng(6).normal(size=(40, 24)).astype("float32")}
    testing.assert_equivalent(main, everything_on(), feed, fetches, steps=2, startup=startup)


def test_a_kernel_alone_keeps_its_sums() -> None:
    """One launch for one kernel saves nothing."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = static.data("x", [40, 24], "float32")
        h = static.nn.fc(x, 24, bias_attr=False)
        loss = paddle.mean(paddle.square(static.nn.layer_norm(h)))
        paddle.optimizer.SGD(0.1).minimize(loss)
    _, steps, launches = train(main, startup, [loss.name])
    assert "strip_sums" not in steps
    assert launches.count("finish_two") == 1


def launch(kernel: Kernel, arrays: dict[str, Any]) -> None:
    """Launches a kernel whose table leads to arrays."""
    (call,) = (calls := kernel.plan(TINY)).launches
    given = dict(arrays)
    given |= {n: table.filled(arrays, interpret.DEVICE.span) for n, table in calls.tables.items()}
    for function, args in interpret.bind_launches(cache.load(kernel.text, kernel.name), [call.call], given):
        function(*args)


@pytest.mark.parametrize(
    ("compute", "dtype"), [("float32", "float32"), ("float64", "float64"), ("float32", "bfloat16")]
)
def test_sums_of_all_sizes(compute: str, dtype: str) -> None:
    sizes = [(1, 1), (5, 33), (70, 64), (3, 7)]
    types = dtype_of(compute), dtype_of(dtype)
    members = [StripSum(f"x{i}", f"y{i}", s, k, *types, 16, 32) for i, (s, k) in enumerate(sizes)]
    rng = np.random.default_rng(2)
    arrays = {one.partials: rng.normal(size=(one.strips, one.kept)).astype(compute) for one in members}
    kernel = strip_sums(members, [])
    for one in members:
        # What lies behind a result must stay as it is.
        arrays[one.result] = np.full(one.kept + 32, 77, one.dtype.np)
    launch(kernel, arrays)
    for one in members:
        exact = arrays[one.partials].astype(np.float64).sum(0)
        got = arrays[one.result].astype(np.float64)
        error = np.abs(got[: one.kept] - exact).max()
        assert error <= {"float32": 1e-5, "float64": 1e-13, "bfloat16": 0.08}[dtype], one
        assert (got[one.kept :] == 77).all()
    assert kernel.plan(TINY).launches[0].grid == (sum(-(-k // 32) for _, k in sizes),)
