"""Gradient merge: equal to data parallelism bit for bit, and to one large batch within rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tstatic as paddle
from tstatic import fluid, static
from tstatic.errors import ProgramError, ProgramTypeError

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda clip: paddle.optimizer.SGD(0.1, grad_clip=clip),
    "momentum": lambda clip: paddle.optimizer.Momentum(0.1, 0.9, weight_decay=0.01, grad_clip=clip),
    "adam": lambda clip: paddle.optimizer.Adam(0.01, grad_clip=clip),
    "adamw": lambda clip: paddle.optimizer.AdamW(0.01, grad_clip=clip),
    "adamax": lambda clip: paddle.optimizer.Adamax(0.01, grad_clip=clip),
    "lamb": lambda clip: paddle.optimizer.Lamb(0.01, grad_clip=clip),
    "rmsprop": lambda clip: paddle.optimizer.RMSProp(0.01, grad_clip=clip),
}


class Net:
    """A small net with the same first parameters each time, and batches for it."""

    def __init__(self, optimizer: str, clip: bool, wrap: Callable[[Any], Any], fused: bool = False) -> None:
        paddle.seed(3)
        self.main, self.startup = static.Program(), static.Program()
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            x, y = static.data("x", [None, 5]), static.data("y", [None, 1])
            hidden = static.nn.fc(x, 6, activation="tanh")
            self.loss = paddle.mean(paddle.square(static.nn.fc(hidden, 1) - y))
            norm = paddle.nn.ClipGradByGlobalNorm(0.2) if clip else None
            self.optimizer = wrap(OPTIMIZERS[optimizer](norm))
            self.optimizer.minimize(self.loss)
        self.build = static.BuildStrategy()
        self.build.fuse_all_optimizer_ops = fused
        self.scope = static.Scope()
        self.exe = static.Executor()
        self.exe.run(self.startup, scope=self.scope)

    def run(self, feed: dict[str, Any], program: Any = None) -> Any:
        program = static.CompiledProgram(self.main, self.build) if program is None else program
        return self.exe.run(program, feed=feed, fetch_list=[self.loss], scope=self.scope)[0]

    def values(self) -> dict[str, Any]:
        """All state but the sums, the count and the learning rate."""
        names = [v.name for v in self.main.list_vars() if v.persistable]
        kept = [n for n in names if "GradientMerge" not in n and "gradient_merge_step" not in n]
        return {n: np.array(self.scope.find_var(n).get_tensor()) for n in kept}


def batches(k: int, steps: int, rows: int = 3) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    size = k * rows
    return [
        {"x": rng.standard_normal((size, 5)).astype("float32"), "y": rng.standard_normal((size, 1)).astype("float32")}
        for _ in range(steps)
    ]


def parts(feed: dict[str, Any], k: int) -> list[dict[str, Any]]:
    return [{n: np.split(a, k)[i] for n, a in feed.items()} for i in range(k)]


def merged(k: int, optimizer: str, clip: bool, amp: str, steps: int, fused: bool = False, avg: bool = True) -> Net:
    net = Net(optimizer, clip, lambda rule: fluid.optimizer.GradientMergeOptimizer(_amp(rule, amp), k, avg), fused)
    for feed in batches(k, steps):
        for part in parts(feed, k):
            net.run(part)
    return net


def together(k: int, optimizer: str, clip: bool, amp: str, steps: int) -> Net:
    net = Net(optimizer, clip, lambda rule: _amp(rule, amp))
    program = static.CompiledProgram(net.main).with_data_parallel(net.loss.name, places=[paddle.CPUPlace()] * k)
    for feed in batches(k, steps):
        net.run(feed, program)
    return net


def _amp(rule: Any, dtype: str) -> Any:
    return static.amp.decorate(rule, dtype=dtype) if dtype else rule


@pytest.mark.numpy_device("bits: how torch adds depends on the size of a batch", not_on=("torch",))
@settings(max_examples=12)
@given(
    k=st.integers(1, 4), optimizer=st.sampled_from(sorted(OPTIMIZERS)), clip=st.booleans(), fused=st.booleans(),
    amp=st.sampled_from(["", "", "bfloat16", "float16"]),
)  # fmt: skip
def test_it_equals_data_parallelism_over_as_many_places_bit_for_bit(
    k: int, optimizer: str, clip: bool, fused: bool, amp: str
) -> None:
    # By default places exchange gradients in the 16 bits in which they were computed, which rounds their sum.
    paddle.set_flags({"FLAGS_numerics": "strict" if amp else "default"})
    found = merged(k, optimizer, clip, amp, steps=3, fused=fused).values()
    wanted = together(k, optimizer, clip, amp, steps=3).values()
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name].tobytes() == wanted[name].tobytes(), name


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("k", [2, 3])
def test_it_equals_one_large_batch_within_rounding(k: int, optimizer: str) -> None:
    net = Net(optimizer, True, lambda rule: rule)
    for feed in batches(k, 4):
        net.run(feed)
    found = merged(k, optimizer, True, "", 4).values()
    for name, wanted in net.values().items():
        # The table of tolerances: float32 has rtol 1.3e-6 and atol 1e-5.
        np.testing.assert_allclose(found[name], wanted, rtol=1.3e-6, atol=1e-5, err_msg=name)


def test_the_sum_is_the_mean_times_the_number_of_runs() -> None:
    mean, total = merged(2, "sgd", False, "", 1), merged(2, "sgd", False, "", 1, avg=False)
    start = Net("sgd", False, lambda rule: rule).values()
    for name, before in start.items():
        if "learning_rate" not in name:
            np.testing.assert_allclose(
                total.values()[name] - before, 2 * (mean.values()[name] - before), rtol=1e-4, atol=1e-6
            )


def test_runs_between_two_updates_leave_all_state_but_the_sums() -> None:
    net = Net("adam", True, lambda rule: fluid.optimizer.GradientMergeOptimizer(_amp(rule, "float16"), 3))
    start = {name: array.tobytes() for name, array in net.values().items()}
    feeds = parts(batches(3, 1)[0], 3)
    for part in feeds[:2]:
        net.run(part)
        assert {name: array.tobytes() for name, array in net.values().items()} == start
    net.run(feeds[2])
    assert {name: array.tobytes() for name, array in net.values().items()} != start


def test_an_overflow_in_one_run_leaves_out_the_update_and_is_forgotten() -> None:
    def wrap(rule: Any) -> Any:
        return fluid.optimizer.GradientMergeOptimizer(
            static.amp.decorate(rule, init_loss_scaling=8.0, decr_every_n_nan_or_inf=1), 2
        )

    net = Net("momentum", False, wrap)
    scale = net.optimizer.get_loss_scaling().name
    start = net.values()
    good, bad = parts(batches(2, 1)[0], 2)
    bad = {"x": bad["x"], "y": bad["y"] * np.float32(np.inf)}
    for part in (bad, good):
        net.run(part)
    for name, array in net.values().items():
        if name == scale:
            assert array.tolist() == [4.0]
        elif "steps" not in name:
            assert array.tobytes() == start[name].tobytes(), name
    for part in (good, good):
        net.run(part)
    assert net.values()["fc_0.w_0"].tobytes() != start["fc_0.w_0"].tobytes()
    assert np.isfinite(net.values()["fc_0.w_0"]).all()


def test_a_saved_training_goes_on_in_the_middle_of_a_sum(tmp_path: Any) -> None:
    def wrap(rule: Any) -> Any:
        return fluid.optimizer.GradientMergeOptimizer(rule, 2)

    feeds = [part for feed in batches(2, 2) for part in parts(feed, 2)]
    net = Net("adam", False, wrap)
    for i, part in enumerate(feeds):
        if i == 1:
            with static.scope_guard(net.scope):
                static.save(net.main, str(tmp_path / "m"))
        net.run(part)
    other = Net("adam", False, wrap)
    with static.scope_guard(other.scope):
        static.load(other.main, str(tmp_path / "m"))
    for part in feeds[1:]:
        other.run(part)
    for name, wanted in net.values().items():
        assert other.values()[name].tobytes() == wanted.tobytes(), name


@pytest.mark.parametrize("numerics", ["default", "strict"])
def test_places_of_one_process_exchange_sums_that_are_complete_or_each_run(numerics: str) -> None:
    paddle.set_flags({"FLAGS_numerics": numerics})
    net = Net("sgd", False, lambda rule: fluid.optimizer.GradientMergeOptimizer(rule, 2))
    program = static.CompiledProgram(net.main).with_data_parallel(net.loss.name, places=[paddle.CPUPlace()] * 2)
    calls = []
    for feed in batches(2, 4):
        net.run(feed, program)
        calls.append(next(iter(net.exe._replicas.values())).group.calls)
    assert np.diff([0, *calls]).tolist() == ([0, 1, 0, 1] if numerics == "default" else [1, 1, 1, 1])
    whole = Net("sgd", False, lambda rule: rule)
    rows = batches(2, 4)
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        whole.run({n: np.concatenate([first[n], second[n]]) for n in first})
    for name, wanted in whole.values().items():
        np.testing.assert_allclose(net.values()[name], wanted, rtol=1.3e-6, atol=1e-5, err_msg=name)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ProgramTypeError, match="wraps an optimizer"):
        fluid.optimizer.GradientMergeOptimizer(3)
    with pytest.raises(ProgramError, match="k_steps"):
        fluid.optimizer.GradientMergeOptimizer(paddle.optimizer.SGD(0.1), 0)
    with pytest.raises(ProgramTypeError, match="avg"):
        fluid.optimizer.GradientMergeOptimizer(paddle.optimizer.SGD(0.1), 2, "yes")
    assert fluid.optimizer.GradientMergeOptimizer(paddle.optimizer.SGD(0.5)).get_lr() == 0.5
