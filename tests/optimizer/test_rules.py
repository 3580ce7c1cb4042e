"""Rules that Paddle has in ``fluid`` and ``incubate`` only: recorded trajectories over ten steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.optimizer import described
from tests.optimizer.compare import assert_follows, recorded
from tstatic import static
from tstatic.errors import ProgramError


@pytest.mark.parametrize("name", described.FLUID_RULES)
def test_rules_of_fluid_follow_paddle(name: str) -> None:
    cls, kwargs = described.FLUID_RULES[name]
    rule = getattr(paddle.fluid.optimizer, cls)(**kwargs)
    found = described.trajectory(described.Fluid(paddle.fluid), rule.minimize)
    assert_follows(found, recorded("1.8.5")["rules"][name])


@pytest.mark.parametrize("name", described.INCUBATE_RULES)
def test_rules_of_incubate_follow_paddle(name: str) -> None:
    cls, kwargs = described.INCUBATE_RULES[name]
    rule = getattr(paddle.incubate.optimizer, f"{cls}Optimizer")(**kwargs)
    found = described.trajectory(described.Static(paddle), rule.minimize)
    assert_follows(found, recorded("2.6.2")["rules"][name])


@pytest.mark.parametrize("fused", [False, True])
def test_a_ratio_of_the_learning_rate_scales_the_step_and_the_decay_of_adamw(fused: bool) -> None:
    """As a group of parameters with a rate of its own does in torch."""
    torch = pytest.importorskip("torch")
    names, start = ("slow", "fast"), np.array([1.0, -2.0, 3.0], np.float32)
    with static.program_guard(static.Program(), static.Program()), static.scope_guard(static.Scope()):
        x, begin = static.data("x", [3]), paddle.nn.initializer.Assign(start)
        ours = [static.create_parameter([3], "float32", name=n, default_initializer=begin) for n in names]
        rule = paddle.optimizer.AdamW(0.1, weight_decay=0.5, lr_ratio=lambda p: 0.25 if p.name == "slow" else 1.0)
        rule.minimize(paddle.sum(paddle.square(ours[0] * x) + paddle.square(ours[1] * x)))
        strategy = static.BuildStrategy()
        strategy.fuse_all_optimizer_ops = fused
        exe, compiled = static.Executor(), static.CompiledProgram(static.default_main_program(), strategy)
        exe.run(static.default_startup_program())
        theirs = [torch.nn.Parameter(torch.from_numpy(start.copy())) for _ in names]
        groups = [{"params": [p], "lr": rate} for p, rate in zip(theirs, (0.025, 0.1), strict=True)]
        other = torch.optim.AdamW(groups, weight_decay=0.5)
        for step in range(4):
            feed = np.array([step - 1.0, 0.5, 2.0], np.float32)
            found = exe.run(compiled, feed={"x": feed}, fetch_list=ours)
            other.zero_grad()
            sum(((p * torch.from_numpy(feed)) ** 2).sum() for p in theirs).backward()
            other.step()
            for name, mine, wanted in zip(names, found, theirs, strict=True):
                np.testing.assert_allclose(mine, wanted.detach(), rtol=1e-5, atol=1e-6, err_msg=f"{name}, step {step}")


def _noisy(places: int, sigma: float = 2.0) -> Any:
    main, startup = static.Program(), static.Program()
    main.random_seed = 5
    with static.program_guard(main, startup), static.scope_guard(static.Scope()), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 3])
        start = paddle.nn.initializer.Constant(1.0)
        w = static.create_parameter([3], "float32", name="w", default_initializer=start)
        loss = paddle.mean(x * w)
        paddle.fluid.optimizer.Dpsgd(0.5, clip=100.0, batch_size=4.0, sigma=sigma / 100.0).minimize(loss)
        exe = static.Executor(paddle.CPUPlace())
        exe.run(startup)
        run: Any = static.CompiledProgram(main)
        if places > 1:
            run = run.with_data_parallel(loss.name, places=static.cpu_places(places))
        feed = {"x": np.zeros((4, 3), np.float32)}
        return [np.ravel(exe.run(run, feed=feed, fetch_list=[w])[0])[: 3 * places] for _ in range(300)]


def test_noise_of_dpsgd_is_one_number_per_parameter_and_step() -> None:
    values = np.array([1.0, *(v[0] for v in _noisy(1))])
    steps = np.diff(values) / 0.5 * 4.0
    assert abs(steps.std() - 2.0) < 0.25
    assert abs(steps.mean()) < 0.4
    assert all(len(set(v.tolist())) == 1 for v in _noisy(1)[:3])


def test_noise_of_dpsgd_is_the_same_on_all_places() -> None:
    ends = _noisy(2)[-1].reshape(-1, 3)
    assert (ends == ends[0]).all()


def test_an_op_without_the_noise_that_it_needs_is_refused() -> None:
    w = paddle.create_parameter([3], "float32", name="w")
    block = static.default_main_program().global_block()
    slots = {"Param": w, "Grad": paddle.ones([3]), "LearningRate": paddle.ones([1])}
    with pytest.raises(ProgramError, match=r"sigma=0\.5 needs the slot 'Noise'"):
        block.append_op("dpsgd", slots, {"ParamOut": w}, {"sigma": 0.5})


@pytest.mark.parametrize(
    ("rule", "kwargs"),
    [
        ("Ftrl", {"learning_rate": 0.1, "l1": -1.0}), ("Ftrl", {"learning_rate": 0.1, "lr_power": 0.5}),
        ("DecayedAdagrad", {"learning_rate": 0.1, "decay": 1.0}), ("Dpsgd", {"clip": 0.0}), ("Dpsgd", {"sigma": -1.0}),
        ("LarsMomentum", {"learning_rate": 0.1, "momentum": 0.9, "epsilon": -1.0}),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(rule: str, kwargs: dict[str, Any]) -> None:
    wrong = list(kwargs)[-1]
    with pytest.raises(ProgramError, match=wrong):
        getattr(paddle.fluid.optimizer, rule)(**kwargs)


def test_lars_keeps_float32_copies() -> None:
    start = paddle.nn.initializer.Constant(1.0)
    w = paddle.create_parameter([4], "bfloat16", name="w", default_initializer=start)
    loss = paddle.sum(w.astype("float32") * paddle.to_tensor([1.0, 2.0, 3.0, 4.0]))
    paddle.fluid.optimizer.LarsMomentum(1.0, 0.9, lars_coeff=0.002, multi_precision=True).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    for _ in range(3):
        low, master = exe.run(fetch_list=[w, "w_fp32_master_0"])
    # One step is too small for bfloat16, which has 8 bits; the copy adds them up.
    assert master[0] < 1.0 - 1e-3
    np.testing.assert_array_equal(low.astype(np.float32), master.astype(low.dtype).astype(np.float32))
