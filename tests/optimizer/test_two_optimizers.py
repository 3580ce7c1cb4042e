"""Programs with two optimizers train as two programs do: schedules, state, averages and wrappers belong to one optimizer each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.optimizer import two_in_one
from tests.optimizer.compare import recorded
from tests.optimizer.twins import SIDES, Setup, Training, assert_alike, batch
from tstatic import fluid, static

STEPS = ("AB", "A", "B", "B", "AB", "A", "AB")
"""Both optimizers by an ordinary fetch list, or the one that the fetch list chooses."""


ROWS = re.compile(r"^\| ([a-z ]+) \| `([^`]+)` \| `([^`]+)` \| .+ \|$", re.MULTILINE)
DIFFERENCES = Path(__file__).resolve().parent.parent.parent / "docs" / "paddle_differences.md"


@pytest.mark.parametrize("name", two_in_one.PROGRAMS)
def test_programs_run_as_in_paddle_but_for_the_rows_of_the_page(name: str) -> None:
    rows = {found[0]: found[1:] for found in ROWS.findall(DIFFERENCES.read_text(encoding="utf-8"))}
    mine, theirs = two_in_one.answer(paddle, name), recorded("2.6.2")["two in one"][name]
    text = (mine if isinstance(mine, str) else str(mine)), (theirs if isinstance(theirs, str) else str(theirs))
    assert rows.keys() <= two_in_one.PROGRAMS.keys()
    if name in rows:
        assert text[::-1] == rows[name], "the page has other numbers"
        assert mine != theirs, "a row of the page that is none any more"
    else:
        assert mine == theirs


def adam(side: str, **settings: Any) -> Any:
    return paddle.optimizer.Adam({"A": 0.05, "B": 0.02}[side], name=side, **settings)


def sgd(side: str, **settings: Any) -> Any:
    return paddle.optimizer.SGD({"A": 0.05, "B": 0.02}[side], name=side, **settings)


def test_each_has_its_schedule() -> None:
    schedules: dict[int, Any] = {}

    def scheduled(side: str) -> Any:
        if side == "A":
            rate: Any = paddle.optimizer.lr.StepDecay(0.1, 1, 0.5)
        else:
            rate = paddle.optimizer.lr.NoamDecay(4, 3)
        rule = paddle.optimizer.Momentum(rate, name=side)
        schedules[id(rule)] = rate
        return rule

    def between(rules: Any, step: int) -> None:
        for rule in rules.values():
            schedules[id(rule)].last_epoch = step
            schedules[id(rule)].last_lr = schedules[id(rule)].get_lr()

    both = assert_alike(Setup(scheduled, between=between), STEPS)
    assert both.state("A")["learning_rate"] != both.state("B")["learning_rate"]


def test_each_has_its_rate_that_set_lr_changes() -> None:
    def between(rules: Any, step: int) -> None:
        for side, rule in rules.items():
            if step > 1:
                rule.set_lr({"A": 0.25, "B": 0.125}[side] / step)

    assert_alike(Setup(adam, between=between), STEPS)


@pytest.mark.parametrize("kind", ["value", "norm", "global norm", "set_gradient_clip"])
def test_each_has_its_clip(kind: str) -> None:
    clips = {
        "value": lambda limit: paddle.nn.ClipGradByValue(limit), "norm": lambda limit: paddle.nn.ClipGradByNorm(limit),
        "global norm": lambda limit: paddle.nn.ClipGradByGlobalNorm(limit),
    }  # fmt: skip

    def clipped(side: str) -> Any:
        limit = {"A": 0.1, "B": 0.3}[side]
        if kind != "set_gradient_clip":
            return sgd(side, grad_clip=clips[kind](limit))
        clip = fluid.clip.GradientClipByGlobalNorm(limit, group_name=side)
        parameters = [p for p in static.default_main_program().all_parameters() if p.name.startswith(f"{side}_")]
        fluid.clip.set_gradient_clip(clip, parameters)
        return sgd(side)

    assert_alike(Setup(clipped), STEPS)


@pytest.mark.parametrize("kind", ["added", "decoupled", "lamb"])
def test_each_has_its_decay(kind: str) -> None:
    def decayed(side: str) -> Any:
        amount = {"A": 0.1, "B": 0.3}[side]
        if kind == "added":
            return paddle.optimizer.Momentum(0.05, weight_decay=paddle.regularizer.L1Decay(amount), name=side)
        if kind == "lamb":
            return paddle.optimizer.Lamb(0.05, lamb_weight_decay=amount, name=side)
        return paddle.optimizer.AdamW(0.05, weight_decay=amount, name=side)

    assert_alike(Setup(decayed), STEPS)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_each_has_its_mixed_precision(level: str) -> None:
    """Scales of losses, their counters, float32 copies, and the steps that are left out: only those of a side that overflows."""

    def mixed(side: str) -> Any:
        return static.amp.decorate(
            adam(side), init_loss_scaling={"A": 8.0, "B": 64.0}[side], use_dynamic_loss_scaling=True,
            incr_every_n_steps=2, decr_every_n_nan_or_inf=1, level=level, dtype="float16",
        )  # fmt: skip

    def feed(step: int) -> dict[str, Any]:
        made = batch(step)
        if step == 3:  # the gradient of B alone overflows
            made["yB"][:] = 1e30
        if step == 4:
            made["yA"][:] = 1e30
        return made

    def start(training: Training) -> None:
        for rule in training.rules.values():
            rule.amp_init(paddle.CPUPlace())

    both = assert_alike(Setup(mixed, norm=True, feed=feed, start=start), STEPS)
    scales = [both.state(side)["loss_scaling"].item() for side in SIDES]
    assert scales[0] != scales[1]


@pytest.mark.parametrize("kind", ["ema", "model average"])
def test_each_has_its_averages(kind: str) -> None:
    def averages() -> Any:
        if kind == "model average":
            return paddle.incubate.ModelAverage(0.5, min_average_window=2, max_average_window=4)
        ema = static.ExponentialMovingAverage(0.8)
        ema.update()
        return ema

    setup = Setup(adam, norm=True, averages=averages)
    both = assert_alike(setup, STEPS)
    apart = {side: Training(setup, side) for side in SIDES}
    for number, sides in enumerate(STEPS):
        for side in sides:
            apart[side].step(number, side)
    with static.scope_guard(both.scope), both.average.apply(both.exe):
        found = {side: both.state(side) for side in SIDES}
    for side in SIDES:
        with static.scope_guard(apart[side].scope), apart[side].average.apply(apart[side].exe):
            wanted = apart[side].state(side)
        assert any(not np.array_equal(both.state(side)[n], v) for n, v in wanted.items())
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[side][name], value, name)


def test_each_has_its_slow_weights() -> None:
    def ahead(side: str) -> Any:
        return paddle.incubate.LookAhead(sgd(side), alpha=0.5, k={"A": 2, "B": 3}[side], name=side)

    assert_alike(Setup(ahead), STEPS)


@pytest.mark.parametrize("kind", ["plain", "mixed precision"])
def test_each_has_its_merged_gradients(kind: str) -> None:
    def merged(side: str) -> Any:
        rule = adam(side)
        if kind == "mixed precision":
            rule = static.amp.decorate(rule, init_loss_scaling=8.0, use_dynamic_loss_scaling=True, incr_every_n_steps=1)
        return fluid.optimizer.GradientMergeOptimizer(rule, k_steps={"A": 2, "B": 3}[side])

    assert_alike(Setup(merged, norm=True), STEPS)


@pytest.mark.parametrize("kind", ["plain", "mixed precision", "recompute", "slow weights"])
def test_shared_parameters_follow_the_optimizer_that_runs(kind: str) -> None:
    """A layer under two losses, trained in turn: the second backward pass reads it as the forward pass did."""

    def rule(side: str) -> Any:
        if kind == "mixed precision":
            return static.amp.decorate(adam(side), init_loss_scaling=8.0, use_dynamic_loss_scaling=True)
        if kind == "slow weights":
            return paddle.incubate.LookAhead(sgd(side), k=2, name=side)
        if kind == "recompute":
            made = fluid.optimizer.RecomputeOptimizer(adam(side))
            made._set_checkpoints([v for v in static.default_main_program().list_vars() if "trunk" in v.name])
            return made
        return adam(side)

    assert_alike(Setup(rule, shared=True), "ABBABA")


def test_saved_and_resumed(tmp_path: Path) -> None:
    """Counters, rates and moments of both go on where they were."""
    setup = Setup(
        lambda side: static.amp.decorate(
            paddle.optimizer.Adam(paddle.optimizer.lr.StepDecay(0.05, 3) if side == "A" else 0.02, name=side),
            init_loss_scaling=8.0, use_dynamic_loss_scaling=True, incr_every_n_steps=2,
        )
    )  # fmt: skip
    whole = assert_alike(setup, STEPS)
    first, second = Training(setup, SIDES), Training(setup, SIDES)
    for number, sides in enumerate(STEPS[:4]):
        first.step(number, sides)
    with static.scope_guard(first.scope):
        static.save(first.main, str(tmp_path / "model"))
    with static.scope_guard(second.scope):
        static.load(second.main, str(tmp_path / "model"), second.exe)
    for number, sides in enumerate(STEPS[4:], 4):
        second.step(number, sides)
    for side in SIDES:
        for name, value in whole.state(side).items():
            np.testing.assert_array_equal(second.state(side)[name], value, name)


@pytest.mark.parametrize("kind", ["all reduce", "reduce"])
def test_data_parallel(kind: str) -> None:
    def wrap(program: Any, loss: Any) -> Any:
        strategy = static.BuildStrategy()
        if kind == "reduce":
            strategy.reduce_strategy = static.BuildStrategy.ReduceStrategy.Reduce
        return fluid.CompiledProgram(program, strategy).with_data_parallel(
            loss_name=loss.name, places=[paddle.CPUPlace()] * 2
        )

    assert_alike(Setup(adam, wrap=wrap), STEPS)


@pytest.mark.parametrize("kind", ["plain", "mixed precision"])
def test_data_parallel_names_either_loss(kind: str) -> None:
    """The second one was refused: only the first loss of a program was known."""

    def rule(side: str) -> Any:
        return static.amp.decorate(adam(side), init_loss_scaling=8.0) if kind == "mixed precision" else adam(side)

    both = Training(Setup(rule), SIDES)
    for side in SIDES:
        fluid.CompiledProgram(both.main).with_data_parallel(loss_name=both.losses[side].name)
    with pytest.raises(ValueError, match="is not the loss that the backward part starts from"):
        fluid.CompiledProgram(both.main).with_data_parallel(loss_name="A_w0")


def test_fused() -> None:
    def wrap(program: Any, loss: Any) -> Any:
        strategy = static.BuildStrategy()
        for name in ("fuse_all_optimizer_ops", "fuse_elewise_add_act_ops", "fuse_gemm_epilogue"):
            setattr(strategy, name, True)
        return static.CompiledProgram(program, strategy)

    assert_alike(Setup(adam, wrap=wrap), STEPS)


def test_clones_keep_both_rates() -> None:
    """A copy made before ``set_lr``, or before a scheduler moves, runs with the rates of now."""
    both = Training(Setup(sgd), SIDES)
    copy = both.main.clone()
    both.rules["A"].set_lr(0.5)
    both.rules["B"].set_lr(0.25)
    with static.scope_guard(both.scope):
        both.exe.run(copy, feed=batch(0))
    assert [both.state(side)["learning_rate"].item() for side in SIDES] == [0.5, 0.25]


def test_the_files_of_a_program_name_both_rates() -> None:
    both = Training(Setup(lambda side: paddle.optimizer.SGD(paddle.optimizer.lr.StepDecay(0.1, 1), name=side)), SIDES)
    found = [
        static.Program.parse_from_text(str(both.main)),
        static.Program.parse_from_string(both.main.desc.serialize_to_string()),
    ]
    assert [list(p.learning_rates) for p in found] == [["learning_rate_0", "learning_rate_1"]] * 2
