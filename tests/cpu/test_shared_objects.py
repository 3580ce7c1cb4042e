"""Which objects threads may share, and what a fork leaves of them: the rows of the table in docs/executor.md."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import errors, static

LONG = 240.0
STEPS = 15

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def counter(rate: Any = 1.0) -> tuple[Any, Any, Any]:
    """A program whose two parameters fall by the learning rate in each step; its startup program and its loss."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        zero = paddle.nn.initializer.Constant(0.0)
        made = [static.create_parameter([1], "float32", name=name, default_initializer=zero) for name in "ab"]
        loss = paddle.sum(made[0] + made[1])
        paddle.optimizer.SGD(rate).minimize(loss)
    return main, startup, loss


def values(scope: Any) -> list[float]:
    return [float(np.array(scope.find_var(name).get_tensor())[0]) for name in "ab"]


def together(*works: Callable[[], object]) -> list[Any]:
    """Runs each function in a thread; returns what they returned, or raises what one raised."""
    found: list[Any] = [None] * len(works)
    failed: list[BaseException] = []

    def run(i: int) -> None:
        try:
            found[i] = works[i]()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(LONG)
        assert not one.is_alive()
    for error in failed:
        raise error
    return found


def in_child(work: Callable[[], object]) -> None:
    """Calls a function in a forked child; fails if it raises there."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(int(LONG / 2))
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_runs_of_two_executors_on_one_scope_wait_for_each_other() -> None:
    main, startup, loss = counter()
    scope = static.Scope()
    static.Executor("cpu").run(startup, scope=scope)

    def train() -> None:
        exe = static.Executor("cpu")
        for _ in range(STEPS):
            exe.run(main, fetch_list=[loss], scope=scope)

    together(train, train, train)
    assert values(scope) == [-3.0 * STEPS] * 2


@pytest.mark.parametrize("places", [1, 2])
def test_threads_with_executors_and_scopes_of_their_own_share_a_compiled_program(places: int) -> None:
    main, startup, loss = counter()
    compiled = static.CompiledProgram(main)
    if places > 1:
        compiled = compiled.with_data_parallel(loss.name, places=[paddle.CPUPlace()] * places)

    def train() -> list[float]:
        exe, scope = static.Executor("cpu"), static.Scope()
        exe.run(startup, scope=scope)
        for _ in range(STEPS):
            exe.run(compiled, fetch_list=[loss], scope=scope)
        return values(scope)

    assert together(train, train, train) == [[-float(STEPS)] * 2] * 3
    assert "compiled" in str(compiled.explain())


def test_what_is_saved_while_another_thread_trains_is_the_state_of_one_step(tmp_path: Path) -> None:
    main, startup, loss = counter()
    scope, exe, done = static.global_scope(), static.Executor("cpu"), threading.Event()
    exe.run(startup)

    def train() -> None:
        while not done.is_set():
            exe.run(main, fetch_list=[loss], scope=scope)

    def save() -> list[dict[str, Any]]:
        try:
            for i in range(5):
                static.save(main, str(tmp_path / f"m{i}"))
        finally:
            done.set()
        return [static.load_program_state(str(tmp_path / f"m{i}")) for i in range(5)]

    for state in together(train, save)[1]:
        assert state["a"] == state["b"]


def test_a_scheduler_may_be_stepped_in_another_thread() -> None:
    scheduler = paddle.optimizer.lr.PiecewiseDecay([5, 10], [1.0, 2.0, 4.0])
    main, startup, _ = counter(scheduler)
    exe = static.Executor("cpu")
    exe.run(startup)

    def run() -> list[float]:
        return [float(exe.run(main, fetch_list=[*main.learning_rates])[0].item()) for _ in range(STEPS)]

    rates, _ = together(run, lambda: [scheduler.step() for _ in range(STEPS)])
    assert rates == sorted(rates)
    assert set(rates) <= {1.0, 2.0, 4.0}


def test_a_flag_that_one_thread_sets_holds_for_all() -> None:
    together(lambda: paddle.set_flags({"FLAGS_max_recompiles": 7}))
    assert paddle.get_flags("FLAGS_max_recompiles") == {"FLAGS_max_recompiles": 7}


@forks
@pytest.mark.numpy_device("torch's threads stay behind in the parent", not_on=("torch",))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_in_a_forked_child_all_but_executors_goes_on(tmp_path: Path) -> None:
    scheduler = paddle.optimizer.lr.StepDecay(1.0, 1)
    main, startup, loss = counter(scheduler)
    compiled, scope, old = static.CompiledProgram(main), static.global_scope(), static.Executor("cpu")
    old.run(startup)
    old.run(compiled, fetch_list=[loss])
    manager = static.CheckpointManager(str(tmp_path / "kept"), main)
    metric = paddle.metric.Accuracy()
    data = paddle.io.TensorDataset([np.arange(4.0, dtype=np.float32)])
    loader = paddle.io.DataLoader(data, batch_size=2, num_workers=1)

    def child() -> None:
        with pytest.raises(errors.ForkedProcessError):
            old.run(compiled, fetch_list=[loss])
        exe = static.Executor("cpu")
        exe.run(compiled, fetch_list=[loss])
        assert values(scope) == [-2.0, -2.0]
        scheduler.step()
        manager.save(1)
        metric.reset()
        assert len(list(loader)) == 2
        paddle.set_flags({"FLAGS_max_recompiles": 9})
        assert compiled.explain()

    in_child(child)
    # The child has copies: nothing of it is seen here, but its files.
    assert values(scope) == [-1.0, -1.0]
    assert paddle.get_flags("FLAGS_max_recompiles") == {"FLAGS_max_recompiles": 0}
    assert scheduler.last_epoch == 0
    assert any((tmp_path / "kept").iterdir())
    old.run(compiled, fetch_list=[loss])


@forks
@pytest.mark.numpy_device("torch's threads stay behind in the parent", not_on=("torch",))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_clones_its_parents_predictor(tmp_path: Path) -> None:
    x = static.data("x", [None, 2])
    static.save_inference_model(str(tmp_path / "m"), [x], [x * 3], static.Executor("cpu"))
    predictor = paddle.inference.create_predictor(paddle.inference.Config(str(tmp_path / "m")))
    feed = [np.ones((1, 2), np.float32)]
    predictor.run(feed)
    # A thread that ran it when the fork came is not there in the child.
    predictor._running.acquire()

    def child() -> None:
        with pytest.raises(errors.ForkedProcessError):
            predictor.run(feed)
        assert predictor.clone().run(feed)[0].tolist() == [[3.0, 3.0]]

    in_child(child)
    with pytest.raises(errors.ProgramError, match="another thread runs this predictor"):
        predictor.run(feed)
    predictor._running.release()
    assert predictor.run(feed)[0].tolist() == [[3.0, 3.0]]
