"""Programs with two optimizers that both sides run: what each leaves in two weights, or the error that it raises.

Paddle 2.6.2 runs this file as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Answer = list[list[float]] | str


class Two:
    """Two losses; that of ``a`` has the slope 0.5, that of ``b`` 1.

    Args:
        paddle: The module under test.
        first, second: The optimizers; SGD with a rate of 0.5 by default.
        layers: Both losses read both weights, one after the other.
    """

    def __init__(self, paddle: Any, first: Any = None, second: Any = None, layers: bool = False) -> None:
        self.paddle = paddle
        one = paddle.nn.initializer.Constant(1.0)
        x = paddle.static.data("x", [1, 2])
        a, b = (
            paddle.create_parameter([2, 2], "float32", attr=paddle.ParamAttr(name=n, initializer=one)) for n in "ab"
        )
        if layers:
            h = paddle.matmul(paddle.matmul(x, a), b)
            self.losses = [paddle.mean(h), paddle.mean(h * 2)]
        else:
            self.losses = [paddle.mean(paddle.matmul(x, a)), paddle.mean(paddle.matmul(x, b) * 2)]
        rules = first or paddle.optimizer.SGD(0.5), second or paddle.optimizer.SGD(0.5)
        self.results = [rule.minimize(loss) for rule, loss in zip(rules, self.losses, strict=True)]
        self.exe: Any = None

    def start(self) -> None:
        self.exe = self.paddle.static.Executor(self.paddle.CPUPlace())
        self.exe.run(self.paddle.static.default_startup_program())

    def run(self, *chosen: int, fetch: Sequence[Any] | None = None) -> list[float]:
        """Runs with the results of some ``minimize`` calls in the fetch list; returns an element of each weight."""
        if self.exe is None:
            self.start()
        fetches = [*([self.losses[0]] if fetch is None else fetch), *(self.results[i] for i in chosen)]
        self.exe.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=fetches)
        return self.weights()

    def weights(self) -> list[float]:
        scope = self.paddle.static.global_scope()
        return [float(np.array(scope.find_var(n).get_tensor()).ravel()[0]) for n in "ab"]


def both(paddle: Any) -> Answer:
    return [Two(paddle).run()]


def one_chosen(paddle: Any) -> Answer:
    two = Two(paddle)
    return [two.run(0), two.run(1), two.run(0, 1), two.run()]


def results_alone(paddle: Any) -> Answer:
    two = Two(paddle)
    return [two.run(0, fetch=[]), two.run(0, 1, fetch=[])]


def a_chosen_one_and_gradients(paddle: Any) -> Answer:
    two = Two(paddle)
    return [two.run(0, fetch=[[grad for _, grad in two.results[1][1]]])]


def operators_chosen(paddle: Any) -> Answer:
    two = Two(paddle)
    return [two.run(fetch=[two.losses[0], two.results[0][0]])]


def a_chosen_one_of_a_compiled_program(paddle: Any) -> Answer:
    two = Two(paddle)
    two.start()
    compiled = paddle.static.CompiledProgram(paddle.static.default_main_program())
    feed = {"x": np.ones((1, 2), "float32")}
    two.exe.run(compiled, feed=feed, fetch_list=[two.losses[0], two.results[0]])
    return [two.weights()]


def a_chosen_one_of_a_clone(paddle: Any) -> Answer:
    two = Two(paddle)
    two.start()
    clone = paddle.static.default_main_program().clone()
    two.exe.run(clone, feed={"x": np.ones((1, 2), "float32")}, fetch_list=[two.losses[0], two.results[0]])
    return [two.weights()]


def moments_chosen(paddle: Any) -> Answer:
    two = Two(paddle, paddle.optimizer.Adam(0.5), paddle.optimizer.Adam(0.25))
    return [two.run(0), two.run(1), two.run()]


def layers_in_turn(paddle: Any) -> Answer:
    two = Two(paddle, paddle.optimizer.SGD(0.25), paddle.optimizer.SGD(0.125), layers=True)
    return [two.run(0), two.run(1), two.run(0)]


def layers_at_once(paddle: Any) -> Answer:
    return [Two(paddle, paddle.optimizer.SGD(0.25), paddle.optimizer.SGD(0.125), layers=True).run()]


def schedules(paddle: Any) -> Answer:
    first, second = (paddle.optimizer.lr.StepDecay(rate, 1, 0.5) for rate in (0.5, 0.25))
    two = Two(paddle, paddle.optimizer.SGD(first), paddle.optimizer.SGD(second))
    found = []
    for _ in range(3):
        found.append(two.run())
        first.step()
        second.step()
    return found


def set_rates(paddle: Any) -> Answer:
    rules = paddle.optimizer.SGD(0.5), paddle.optimizer.SGD(0.5)
    two = Two(paddle, *rules)
    two.start()
    rules[0].set_lr(0.25)
    rules[1].set_lr(0.125)
    return [two.run()]


def schedule_chosen(paddle: Any) -> Answer:
    schedule = paddle.optimizer.lr.StepDecay(0.5, 1, 0.5)
    two = Two(paddle, paddle.optimizer.SGD(schedule))
    found = []
    for _ in range(3):
        found.append(two.run(0))
        schedule.step()
    return found


def clip_by_value_chosen(paddle: Any) -> Answer:
    return [Two(paddle, paddle.optimizer.SGD(0.5, grad_clip=paddle.nn.ClipGradByValue(0.25))).run(0)]


def clip_by_global_norm_chosen(paddle: Any) -> Answer:
    return [Two(paddle, paddle.optimizer.SGD(0.5, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5))).run(0)]


def decay_chosen(paddle: Any) -> Answer:
    return [Two(paddle, paddle.optimizer.SGD(0.5, weight_decay=0.5)).run(0)]


def average_chosen(paddle: Any) -> Answer:
    two = Two(paddle)
    average = paddle.static.ExponentialMovingAverage(0.5)
    average.update()
    found = [two.run(0), two.run()]
    with average.apply(two.exe):
        return [*found, two.weights()]


def slow_weights_chosen(paddle: Any) -> Answer:
    two = Two(paddle, paddle.incubate.LookAhead(paddle.optimizer.SGD(0.5), alpha=0.5, k=2))
    return [two.run(0) for _ in range(4)]


def merged_chosen(paddle: Any) -> Answer:
    merge = paddle.incubate.optimizer.GradientMergeOptimizer
    two = Two(paddle, merge(paddle.optimizer.SGD(0.5), 2), merge(paddle.optimizer.SGD(0.5), 2))
    return [two.run(0) for _ in range(4)]


def mixed_precision_chosen(paddle: Any) -> Answer:
    rules = [
        paddle.static.amp.decorate(
            paddle.optimizer.SGD(0.5), init_loss_scaling=4.0, use_dynamic_loss_scaling=True, incr_every_n_steps=1
        )
        for _ in "ab"
    ]
    two = Two(paddle, *rules)
    found = [two.run(0), two.run(0)]
    scope = paddle.static.global_scope()
    names = [rule.get_loss_scaling().name for rule in rules]
    return [*found, [float(np.array(scope.find_var(n).get_tensor()).ravel()[0]) for n in names]]


PROGRAMS: dict[str, Callable[[Any], Answer]] = {
    f.__name__.replace("_", " "): f
    for f in (
        both, one_chosen, results_alone, a_chosen_one_and_gradients, operators_chosen, a_chosen_one_of_a_compiled_program,
        a_chosen_one_of_a_clone, moments_chosen, layers_in_turn, layers_at_once, schedules, set_rates, schedule_chosen,
        clip_by_value_chosen, clip_by_global_norm_chosen, decay_chosen, average_chosen, slow_weights_chosen, merged_chosen,
        mixed_precision_chosen,
    )
}  # fmt: skip


def answer(paddle: Any, name: str) -> Answer:
    """Runs a program in a world of its own."""
    static = paddle.static
    program = static.program_guard(static.Program(), static.Program())
    with program, static.scope_guard(static.Scope()), paddle.utils.unique_name.guard():
        try:
            found = PROGRAMS[name](paddle)
        except Exception as error:
            return type(error).__name__
    assert not isinstance(found, str)
    return [[round(value, 4) for value in row] for row in found]


def answers(paddle: Any) -> dict[str, Answer]:
    """Runs all programs."""
    return {name: answer(paddle, name) for name in PROGRAMS}
