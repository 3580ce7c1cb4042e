"""Averages of parameters and LookAhead against Paddle, and what a training around them needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.optimizer import described
from tests.optimizer.compare import assert_follows, recorded
from tstatic import fluid, static
from tstatic.errors import ProgramError, TstaticError

API = described.Static(paddle)


def _sgd(loss: Any) -> None:
    paddle.optimizer.SGD(0.3).minimize(loss)


def _counter() -> Any:
    return fluid.layers.autoincreased_step_counter("@COUNTER@", begin=0)


@pytest.mark.parametrize("how", described.EMA)
def test_ema_follows_paddle(how: str) -> None:
    found = described.averaged(API, _sgd, lambda: described.ema_of(static, how, _counter))
    assert_follows(found[-1:], recorded("1.8.5")["ema"][how])
    if how == "plain":
        assert_follows(found, recorded("2.6.2")["ema"][how])


@pytest.mark.parametrize("case", range(len(described.WINDOWS)))
def test_windows_follow_paddle(case: int) -> None:
    rate, least, most = described.WINDOWS[case]
    old = described.averaged(API, _sgd, lambda: fluid.optimizer.ModelAverage(rate, least, most))
    assert_follows(old, recorded("1.8.5")["windows"][case])
    kwargs = {"min_average_window": least, "max_average_window": most}
    new = described.averaged(API, _sgd, lambda: paddle.incubate.ModelAverage(rate, **kwargs))
    assert_follows(new, recorded("2.6.2")["windows"][case])


@pytest.mark.parametrize("case", range(len(described.LOOKAHEAD)))
def test_lookahead_follows_paddle(case: int) -> None:
    alpha, k = described.LOOKAHEAD[case]
    rule = paddle.incubate.LookAhead(paddle.optimizer.SGD(0.3), alpha=alpha, k=k)
    assert_follows(described.trajectory(API, rule.minimize), recorded("2.6.2")["lookahead"][case])


# ------------------------------------------------------------------------------------------------------- around a training
class Net:
    """A training with all averages at once."""

    def __init__(self, rule: Any = None, norm: bool = False) -> None:
        self.main, self.startup, self.scope = static.Program(), static.Program(), static.Scope()
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            x, y = static.data("x", [None, 3]), static.data("y", [None, 2])
            hidden = static.nn.fc(x, 4, weight_attr="w0", bias_attr="b0")
            if norm:
                hidden = static.nn.batch_norm(hidden, moving_mean_name="mean", moving_variance_name="variance")
            self.out = static.nn.fc(paddle.tanh(hidden), 2, weight_attr="w1", bias_attr="b1")
            self.loss = paddle.mean(paddle.square(self.out - y))
            self.test = self.main.clone(for_test=True)
            (rule or paddle.optimizer.Adam(0.05)).minimize(self.loss)
            self.ema = static.ExponentialMovingAverage(0.8)
            self.ema.update()
            self.window = paddle.incubate.ModelAverage(1.0, min_average_window=3, max_average_window=3)
        self.main.random_seed = self.startup.random_seed = 3
        self.exe = static.Executor(paddle.CPUPlace())
        with static.scope_guard(self.scope):
            self.exe.run(self.startup)

    def train(self, steps: int, program: Any = None) -> list[float]:
        with static.scope_guard(self.scope):
            run = self.main if program is None else program
            feeds = (described.feed(step) for step in range(steps))
            return [float(np.mean(self.exe.run(run, feed=f, fetch_list=[self.loss])[0])) for f in feeds]

    def evaluate(self, average: Any, program: Any = None) -> Any:
        with static.scope_guard(self.scope), average.apply(self.exe):
            run = self.test if program is None else program
            return self.exe.run(run, feed=described.feed(0), fetch_list=[self.out])[0]

    def state(self) -> dict[str, Any]:
        names = [v.name for v in self.main.list_vars() if v.persistable]
        return {n: np.array(self.scope.find_var(n).get_tensor()) for n in names}


def test_evaluation_inside_of_a_training_changes_no_step() -> None:
    alone, between = Net(), Net()
    wanted = alone.train(6)
    found = []
    for step in range(6):
        with static.scope_guard(between.scope):
            found += [float(between.exe.run(between.main, feed=described.feed(step), fetch_list=[between.loss])[0])]
        between.evaluate(between.ema)
        between.evaluate(between.window)
    assert found == wanted
    ends, mine = alone.state(), between.state()
    assert all(np.array_equal(ends[n], mine[n]) for n in ends)


def test_the_mean_of_a_window_is_that_of_the_values() -> None:
    net = Net()
    values = []
    for _ in range(4):
        net.train(1)
        values.append(net.state()["w0"])
    with static.scope_guard(net.scope), net.window.apply(net.exe):
        np.testing.assert_allclose(net.state()["w0"], np.mean(values, axis=0), rtol=1e-6, atol=1e-7)


def test_before_the_first_step_ema_is_zero_as_in_paddle_and_a_window_leaves_the_parameters() -> None:
    net = Net(norm=True)
    before = net.state()
    for average, wanted in ((net.ema, lambda value: np.zeros_like(value)), (net.window, lambda value: value)):
        with static.scope_guard(net.scope), average.apply(net.exe):
            inside = net.state()
        for name in ("w0", "b0", "w1", "b1", "mean", "variance"):
            np.testing.assert_array_equal(inside[name], wanted(before[name]), err_msg=name)
    after = net.state()
    assert all(np.array_equal(after[n], before[n]) for n in ("w0", "b0", "w1", "b1", "mean", "variance"))


def test_averages_take_in_running_statistics_unless_told_otherwise() -> None:
    net = Net(norm=True)
    net.train(3)
    kept = net.state()
    assert {"mean_ema_0", "variance_ema_0"} <= kept.keys()
    with static.scope_guard(net.scope), net.ema.apply(net.exe):
        np.testing.assert_allclose(net.state()["mean"], kept["mean_ema_0"] / (1 - 0.8**3), rtol=1e-5)
    main = static.Program()
    with static.program_guard(main, static.Program()), paddle.utils.unique_name.guard():
        x = static.data("x", [None, 3])
        hidden = static.nn.fc(x, 4, weight_attr=paddle.ParamAttr(name="out", do_model_average=False), bias_attr="in")
        static.nn.batch_norm(hidden, moving_mean_name="mean", do_model_average_for_mean_and_var=False)
        paddle.incubate.ModelAverage(0.1)
    averaged = {v.name.removesuffix("_sum_1_0") for v in main.list_vars() if v.name.endswith("_sum_1_0")}
    assert averaged == {"in", "batch_norm_0.w_0", "batch_norm_0.b_0"}


@pytest.mark.parametrize("shared", [False, True], ids=["all reduce", "reduce"])
def test_averages_on_several_places_are_those_of_one(shared: bool) -> None:
    one, two = Net(paddle.optimizer.SGD(0.3)), Net(paddle.optimizer.SGD(0.3))
    strategy = static.BuildStrategy()
    if shared:
        strategy.reduce_strategy = static.BuildStrategy.ReduceStrategy.Reduce
    places = static.cpu_places(2)
    compiled = static.CompiledProgram(two.main, strategy).with_data_parallel(two.loss.name, places=places)
    one.train(5)
    two.train(5, compiled)
    mine, others = one.state(), two.state()
    for name in mine:
        np.testing.assert_allclose(others[name], mine[name], rtol=1e-5, atol=1e-6, err_msg=name)
    test = static.CompiledProgram(two.test, strategy).with_data_parallel(places=places)
    for wanted, found in zip(
        (one.evaluate(one.ema), one.evaluate(one.window)),
        (two.evaluate(two.ema, test), two.evaluate(two.window, test)),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    one.train(2)
    two.train(2, compiled)
    np.testing.assert_allclose(two.state()["w0"], one.state()["w0"], rtol=1e-5, atol=1e-6)


def test_averages_are_saved_and_loaded(tmp_path: Path) -> None:
    whole, first, second = Net(), Net(), Net()
    whole.train(5)
    with static.scope_guard(first.scope):
        first.train(3)
        static.save(first.main, str(tmp_path / "half"))
    with static.scope_guard(second.scope):
        static.load(second.main, str(tmp_path / "half"), second.exe)
        for step in (3, 4):
            second.exe.run(second.main, feed=described.feed(step), fetch_list=[second.loss])
    assert np.array_equal(second.evaluate(second.ema), whole.evaluate(whole.ema))
    assert np.array_equal(second.evaluate(second.window), whole.evaluate(whole.window))


def test_parameters_come_back_after_an_error_and_with_restore() -> None:
    net = Net()
    net.train(2)
    before = net.state()["w0"]
    with static.scope_guard(net.scope):
        with pytest.raises(ZeroDivisionError), net.ema.apply(net.exe):
            _ = 1 / 0
        assert np.array_equal(net.state()["w0"], before)
        with net.window.apply(net.exe, need_restore=False):
            pass
        assert not np.array_equal(net.state()["w0"], before)
        net.window.restore(net.exe)
        assert np.array_equal(net.state()["w0"], before)


def test_apply_inside_of_apply_and_restore_without_apply_are_refused() -> None:
    net = Net()
    net.train(2)
    before = net.state()
    with static.scope_guard(net.scope):
        with pytest.raises(TstaticError, match="backup"):
            net.ema.restore(net.exe)
        with net.ema.apply(net.exe):
            with pytest.raises(ProgramError, match="already"), net.ema.apply(net.exe):
                pass
            assert not np.array_equal(net.state()["w0"], before["w0"])
    after = net.state()
    assert all(np.array_equal(after[n], before[n]) for n in before)


def test_averages_of_a_program_without_parameters_are_refused() -> None:
    for make in (static.ExponentialMovingAverage, lambda: paddle.incubate.ModelAverage(0.1)):
        with pytest.raises(ProgramError, match="found no parameters"):
            make()


@pytest.mark.parametrize("master", [False, True])
def test_averages_of_16_bit_parameters_are_float32(master: bool) -> None:
    start = paddle.nn.initializer.Constant(1.0)
    w = paddle.create_parameter([4], "bfloat16", name="w", default_initializer=start)
    loss = paddle.sum(w.astype("float32"))
    paddle.incubate.LookAhead(paddle.optimizer.SGD(0.001, multi_precision=master), k=2).minimize(loss)
    ema = static.ExponentialMovingAverage(0.5)
    ema.update()
    window = paddle.incubate.ModelAverage(1.0, min_average_window=100)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    for _ in range(4):
        average, total = exe.run(fetch_list=["w_ema_0", "w_sum_1_0"])
    assert average.dtype == total.dtype == np.float32
    if master:
        # 1 - 0.001, -0.0015, -0.0025, -0.0025: too little for the 8 bits of the parameter.
        np.testing.assert_allclose(total, 4 - 0.0010 - 0.0015 - 0.0025 - 0.0025, rtol=1e-6)
    get = static.global_scope().find_var
    with window.apply(exe):
        assert float(np.array(get("w").get_tensor()).astype(np.float32)[0]) == 1.0
        if master:
            np.testing.assert_allclose(np.array(get("w_fp32_master_0").get_tensor()), total / 4, rtol=1e-6)


@pytest.mark.numpy_device("bits: what stays alone runs in torch, which rounds at other places", not_on=("torch",))
@pytest.mark.parametrize("rule", ["Adam", "AdamW", "SGD"])
def test_averages_leave_updates_fused_with_the_same_bits(rule: str) -> None:
    plain, fused = (Net(getattr(paddle.optimizer, rule)(0.05)) for _ in range(2))
    strategy = static.BuildStrategy()
    strategy.fuse_all_optimizer_ops = True
    compiled = static.CompiledProgram(fused.main, strategy)
    plain.train(4)
    fused.train(4, compiled)
    mine, others = plain.state(), fused.state()
    assert all(np.array_equal(mine[n], others[n]) for n in mine)
    with static.scope_guard(fused.scope):
        found = compiled.explain([fused.loss], {"x": (6, 3), "y": (6, 2)})
    assert "switches on, and fusions made: fuse_all_optimizer_ops (1)\n" in str(found)


def test_wrappers_pass_on_what_an_optimizer_has() -> None:
    rule = paddle.incubate.LookAhead(paddle.optimizer.SGD(0.1), k=2)
    w = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
    rule.minimize(paddle.sum(w))
    exe = static.Executor()
    exe.run(static.default_startup_program())
    rule.set_lr(0.5)
    assert rule.get_lr() == 0.5
    assert exe.run(fetch_list=[w])[0].item() == 0.5
