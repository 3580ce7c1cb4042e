"""What minimize returned, in the fetch list, chooses the updates of a run, and nothing else moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import fluid, static, testing
from tstatic.errors import FeedTypeError
from tstatic.ir.operator import OpRole

FEED = {"x": np.ones((2, 2), "float32"), "y": np.ones((2, 2), "float32")}


class Nets:
    """Two nets with inputs of their own, each with an optimizer."""

    def __init__(self, first: Any = None, second: Any = None) -> None:
        one = paddle.nn.initializer.Constant(1.0)
        self.losses, self.results = [], []
        self.rules = first or paddle.optimizer.Adam(0.5), second or paddle.optimizer.Momentum(0.5)
        for name, data, rule in zip("ab", "xy", self.rules, strict=True):
            h = static.nn.fc(static.data(data, [None, 2]), 2, weight_attr=paddle.ParamAttr(name=name, initializer=one),
                             bias_attr=paddle.ParamAttr(name=f"{name}_bias", initializer=one))  # fmt: skip
            self.losses.append(paddle.mean(h))
            self.results.append(rule.minimize(self.losses[-1]))
        self.exe = static.Executor("cpu")
        self.exe.run(static.default_startup_program())

    def run(self, fetch_list: Any, feed: Any = FEED, **more: Any) -> set[str]:
        """Runs once; returns the variables that have other values now."""
        before = values()
        self.fetched = self.exe.run(feed=feed, fetch_list=fetch_list, **more)
        after = values()
        return {n for n in after if not np.array_equal(before[n], after[n])}


def values() -> dict[str, Any]:
    scope = static.global_scope()
    return {
        v.name: np.array(scope.find_var(v.name).get_tensor())
        for v in static.default_main_program().list_vars()
        if v.persistable and scope.find_var(v.name) is not None
    }


def of(name: str, found: set[str]) -> set[str]:
    return {n for n in found if n == name or n.startswith(f"{name}_")}


def test_every_form_of_a_fetch_list_chooses() -> None:
    nets = Nets()
    (l1, l2), (t1, t2) = nets.losses, nets.results
    everything = nets.run([l1])
    assert of("a", everything)
    assert of("b", everything)
    for chosen in ([l1, t1], [t1], [t1[0]], [l1, [t1]], t1, t1[0], (l1, t1), [*t1[0]]):
        found = nets.run(chosen)
        assert found == of("a", everything), chosen
    assert nets.run([t2]) == of("b", everything)
    assert nets.run([t1, l2, t2]) == everything
    assert len(nets.fetched) == 1
    assert nets.run([]) == nets.run(None) == everything


def test_only_the_chosen_net_is_fed() -> None:
    nets = Nets()
    assert of("a", nets.run([nets.losses[0], nets.results[0]], {"x": FEED["x"]}))
    assert of("b", nets.run([nets.results[1]], {"y": FEED["y"]}))


def test_gradients_of_both_losses_can_be_fetched() -> None:
    """Those of the optimizer that does not run are what a run of both gives: not clipped, as in Paddle."""
    nets = Nets(second=paddle.optimizer.SGD(0.5, grad_clip=paddle.nn.ClipGradByValue(0.25)))
    grads = [grad for _, grad in nets.results[1][1]]
    found = nets.run([nets.results[0], grads])
    assert not of("b", found)
    assert [np.unique(g).tolist() for g in nets.fetched] == [[0.5], [0.5]]


def test_single_operators_choose_single_parameters() -> None:
    found = []
    for single in (False, True):
        with static.program_guard(static.Program(), static.Program()), paddle.utils.unique_name.guard():
            nets = Nets(paddle.optimizer.Adamax(0.5))
            update = next(op for op in nets.results[0][0] if op.output("ParamOut") == ["a_bias"])
            found.append(nets.run([update] if single else [nets.results[0]]))
    whole, part = found
    assert len(part) == 4  # the power, which an operator of its own moves, is one of them
    assert part == of("a_bias", whole) < whole


def test_a_fetched_parameter_is_that_after_the_chosen_update() -> None:
    nets = Nets(paddle.optimizer.SGD(0.5))
    nets.run(["a", nets.results[0]])
    assert np.unique(nets.fetched[0]).tolist() == [0.75]
    nets.run(["a", nets.results[1]])
    assert np.unique(nets.fetched[0]).tolist() == [0.75]


def test_plans_are_kept_for_each_choice() -> None:
    """A run never replays the plan of another choice, and repeats its own without compiling."""
    nets = Nets()
    loss, (t1, t2) = nets.losses[0], nets.results
    for _ in range(2):
        for fetches in ([loss], [loss, t1], [loss, t2], [loss, t1, t2], [loss, t1[0][0]]):
            nets.exe.run(feed=FEED, fetch_list=fetches)
    assert len(nets.exe.compilations) == 6  # the startup program's is one
    assert "adam" in str(nets.exe.compilations[2].changes)


@pytest.mark.parametrize("how", ["copy", "text", "bytes", "file without numbers"])
def test_copies_and_files_of_the_program_know_the_updates(how: str) -> None:
    nets = Nets(paddle.incubate.LookAhead(paddle.optimizer.SGD(0.5), k=1, alpha=0.5))
    main = static.default_main_program()
    program = {
        "copy": main.clone,
        "text": lambda: static.Program.parse_from_text(str(main)),
        "bytes": lambda: static.Program.parse_from_string(main.desc.serialize_to_string()),
        "file without numbers": main.clone,
    }[how]()
    if how == "file without numbers":  # as older versions and Paddle wrote them
        for op in program.global_block().ops:
            op.updates = ()
    before = values()
    for _ in range(2):
        nets.exe.run(program, feed=FEED, fetch_list=[nets.losses[0], nets.results[0]])
    after = values()
    # Without numbers nobody knows that the slow weights belong to the update; the update itself is known.
    assert np.unique(before["a"] - after["a"]).tolist() == [0.5 if how == "file without numbers" else 0.375]
    np.testing.assert_array_equal(before["b"], after["b"])


def test_results_of_another_program_are_refused() -> None:
    """They were ignored, so that all optimizers ran."""
    with static.program_guard(static.Program(), static.Program()):
        w = static.create_parameter([1], "float32", name="other")
        others = paddle.optimizer.SGD(0.5).minimize(paddle.sum(w))
    nets = Nets()
    before = values()
    with pytest.raises(FeedTypeError, match="is not part of this program") as caught:
        nets.run([nets.losses[0], others])
    assert "'sgd', which writes other" in str(caught.value)
    test = static.default_main_program().clone(for_test=True)
    with pytest.raises(FeedTypeError, match="is not part of this program"):
        nets.exe.run(test, feed=FEED, fetch_list=[nets.losses[0], nets.results[0]])
    assert all(np.array_equal(before[n], value) for n, value in values().items())


def test_other_operators_are_refused() -> None:
    """As in Paddle."""
    nets = Nets()
    op = next(op for op in static.default_main_program().global_block().ops if not op.role & OpRole.Optimize)
    with pytest.raises(FeedTypeError, match="The operator in fetch_list is not an optimize_op"):
        nets.run([op])


def test_reports_are_of_the_chosen_updates() -> None:
    nets = Nets()
    compiled = static.CompiledProgram(static.default_main_program())
    shapes = {"x": (2, 2), "y": (2, 2)}
    whole, part = (compiled.memory_report(shapes, fetch_list=f) for f in ([nets.losses[0]], [nets.results[0]]))
    assert part.to_dict()["by_category"]["parameters"] < whole.to_dict()["by_category"]["parameters"]
    texts = [compiled.explain(f, shapes).to_text(verbose=True) for f in ([nets.losses[0]], [nets.results[0]])]
    launches = [int(text.partition("launches a step: ")[2].split()[0]) for text in texts]
    assert launches[1] < launches[0]


def test_equivalence_of_the_chosen_updates() -> None:
    nets = Nets()
    assert testing.assert_equivalent(
        static.default_main_program(), fetch_list=[nets.losses[0], nets.results[0]], examples=1
    )


def test_batches_of_a_data_set_choose(tmp_path: Path) -> None:
    nets = Nets()
    dataset = paddle.distributed.QueueDataset()
    block = static.default_main_program().global_block()
    dataset.init(use_var=[block.var("x"), block.var("y")])
    np.savetxt(tmp_path / "part.txt", [[2, 1, 2, 2, 3, 4]], fmt="%d")
    dataset.set_filelist([str(tmp_path / "part.txt")])
    before = values()
    nets.exe.train_from_dataset(dataset=dataset, fetch_list=[nets.losses[0], nets.results[0]])
    changed = {n for n, value in values().items() if not np.array_equal(before[n], value)}
    assert "a" in changed
    assert not of("b", changed)


# ----------------------------------------------------------------------------------------------------------- use_prune
def merged() -> Any:
    return fluid.optimizer.GradientMergeOptimizer(paddle.optimizer.SGD(0.5), 2)


def test_pruning_keeps_the_state_of_all_updates() -> None:
    """Counters that no fetched value needs were left out: merged gradients were never applied, averages never corrected."""
    nets = Nets(merged(), merged())
    ema = static.ExponentialMovingAverage(0.5)
    ema.update()
    nets.exe.run(static.default_startup_program())
    counted = [n for n in values() if n.startswith(("gradient_merge_step", "@EMA_STEP_COUNTER@"))]
    assert len(counted) == 4
    found = nets.run([nets.losses[0]], use_prune=True)
    assert {n for n in counted if values()[n] != 0} <= found
    assert of("a", nets.run([nets.losses[0]], use_prune=True)) >= {"a", "a_bias"}


def test_the_counter_of_the_older_decays_moves_with_those_that_read_it() -> None:
    """Programs share one counter, as in Paddle: a run that chooses no optimizer with such a rate leaves it."""
    rate = fluid.layers.exponential_decay(0.5, 1, 0.5)
    nets = Nets(paddle.optimizer.SGD(rate), paddle.optimizer.SGD(0.5))
    assert "@LR_DECAY_COUNTER@" not in nets.run([nets.results[1]])
    assert "@LR_DECAY_COUNTER@" in nets.run([nets.results[0]])
    assert "@LR_DECAY_COUNTER@" in nets.run([nets.losses[0]])


def test_an_optimizer_in_a_branch_runs_with_its_branch() -> None:
    w, v = (
        static.create_parameter([1], "float32", name=n, default_initializer=paddle.nn.initializer.Constant(1.0))
        for n in "wv"
    )
    flag = static.data("flag", [1], "bool")
    made: list[Any] = []

    def branch() -> Any:
        loss = paddle.sum(w * 1.0)
        made.append(paddle.optimizer.SGD(0.5).minimize(loss))
        return loss

    static.nn.cond(flag, branch, lambda: paddle.sum(w * 0.0))
    other = paddle.optimizer.SGD(0.5).minimize(paddle.sum(v * 1.0))
    exe = static.Executor("cpu")
    exe.run(static.default_startup_program())
    feed = {"flag": np.array([True])}
    exe.run(feed=feed, fetch_list=[other])
    assert [float(values()[n][0]) for n in "wv"] == [1.0, 0.5]
    exe.run(feed=feed, fetch_list=[made[0]])
    assert [float(values()[n][0]) for n in "wv"] == [0.5, 0.5]
    exe.run(feed=feed, use_prune=True)
    assert [float(values()[n][0]) for n in "wv"] == [0.0, 0.0]
