"""A replica that fails, sleeps or blocks: everybody gets the error in time, and nothing is half done."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.patience import HANG, pace
from tests.parallel.golden import ROWS, Net, Training, strategy
from tstatic import static
from tstatic.comm.group import Group
from tstatic.runtime import replica_threads

SLACK = 3.0 * pace()
"""Deadlines of the requirement are multiplied by this: the machine that tests may be busy."""


BY_THREAD = pytest.mark.numpy_device("work that runs late runs in any thread that waits", not_on=("fake",))


class Fault:
    """What a function of the user does in one replica, when it is armed."""

    def __init__(self) -> None:
        self.replica = -1
        self.action: Any = None
        self.release = threading.Event()

    def __call__(self, x: Any) -> Any:
        here = threading.current_thread().name
        if here == f"tstatic-replica-{self.replica}" and self.action is not None:
            self.action()
        return np.array(x)


def faulty(fault: Fault, at: int) -> Net:
    """Four layers; the function follows layer ``at``, the loss (4), a layer's gradient (5) or all collectives (6)."""
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        h = static.data("X", [None, 3], "float32")
        for i in range(4):
            h = static.nn.fc(h, 3, weight_attr=paddle.ParamAttr(name=f"w{i}"), bias_attr=False)
            if at == i:
                h = through(main, h, fault, None)
            if at == 5 and i == 1:
                h = through(main, h, lambda x: np.array(x), lambda x, y, dy: fault(dy))
        loss = paddle.mean(paddle.square(h))
        if at == 4:
            loss = through(main, loss, fault, None)
        paddle.optimizer.SGD(0.1).minimize(loss)
        if at == 6:
            through(main, loss, fault, None)
    return Net(main, startup, loss)


def through(main: static.Program, x: Any, function: Any, backward: Any) -> Any:
    out = main.current_block().create_var(name=f"{x.name}.out", dtype="float32", shape=x.shape)
    static.py_func(function, x, out, backward or (lambda x, y, dy: np.array(dy)))
    return out


def weights(training: Training) -> list[np.ndarray[Any, Any]]:
    return [training.value(f"w{i}", replica) for i in range(4) for replica in range(3)]


@BY_THREAD
@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("replica", range(3))
def test_an_error_ends_all_replicas_names_one_and_changes_nothing(replica: int, at: int) -> None:
    fault = Fault()
    training = Training(faulty(fault, at), 3)
    feed = {"X": ROWS[:9]}
    training.step(feed)
    before = weights(training)

    def fail() -> None:
        raise ArithmeticError("deliberate")

    fault.replica, fault.action = replica, fail
    start = time.monotonic()
    with pytest.raises(Exception, match="deliberate") as caught:
        training.step(feed)
    assert time.monotonic() - start < 2 * SLACK
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert f"replica {replica} of 3" in text
    assert "py_func" in text
    assert "test_faults.py:" in text
    for a, b in zip(before, weights(training), strict=True):
        np.testing.assert_array_equal(a, b)
    fault.action = None
    loss, *_ = training.step(feed)
    assert np.isfinite(loss).all()
    np.testing.assert_array_equal(training.value("w0", 2), training.value("w0", 0))


@BY_THREAD
@pytest.mark.parametrize("at", [0, 3, 5, 6])
def test_a_replica_that_sleeps_is_given_up_and_its_place_refused(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert replica_threads.GRACE <= 2.0, "what users wait for besides the time-out"
    grace = 0.3 * pace()
    monkeypatch.setattr(replica_threads, "GRACE", grace)
    fault = Fault()
    training = Training(faulty(fault, at), 3)
    feed = {"X": ROWS[:9]}
    training.step(feed)
    before = weights(training)
    fault.replica, fault.action = 1, lambda: fault.release.wait(HANG) and None
    paddle.set_flags({"FLAGS_step_timeout_s": 0.5 * pace()})
    try:
        start = time.monotonic()
        with pytest.raises(paddle.errors.DeviceError, match="replica 1 of 3 did not finish") as caught:
            training.step(feed)
        assert time.monotonic() - start < (0.5 * pace() + grace) * SLACK
        assert "py_func" in str(caught.value)
        assert "test_faults.py:" in str(caught.value)
        with pytest.raises(paddle.errors.DeviceError, match="never came back"):
            training.step(feed)
    finally:
        paddle.set_flags({"FLAGS_step_timeout_s": 60.0})
        fault.release.set()
    time.sleep(0.05)
    for a, b in zip(before, weights(training), strict=True):
        np.testing.assert_array_equal(a, b)
    fault.action = None
    training.exe = static.Executor(paddle.CPUPlace())
    loss, *_ = training.step(feed)
    assert np.isfinite(loss).all()


def test_a_replica_that_hangs_is_named_and_not_one_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_threads, "GRACE", 0.4 * pace())
    group, release = Group(3), threading.Event()
    threads = replica_threads.ReplicaThreads(3, group, lambda replica: f"in task {replica}")
    slow, hanging, waiting = partial(time.sleep, 0.15), partial(release.wait, HANG), group.communicator(2).commit
    try:
        with pytest.raises(paddle.errors.DeviceError, match="replica 1 of 3 did not finish") as caught:
            threads.run([slow, hanging, waiting], 0.05)
        assert "replica 1 still in task 1" in str(caught.value)
        start = time.monotonic()
        with pytest.raises(paddle.errors.DeviceError, match="replica 1 never came back"):
            threads.run([slow, hanging, waiting], 30.0)
        assert time.monotonic() - start < SLACK, "the loss is known, so nothing is waited for"
    finally:
        release.set()
        threads.close()


def test_other_processes_learn_the_operator_of_the_replica_that_is_waited_for() -> None:
    group, release = Group(2), threading.Event()
    threads = replica_threads.ReplicaThreads(2, group, lambda replica: f"in task {replica}")
    tasks = [group.communicator(0).commit, lambda: release.wait(HANG) and group.communicator(1).commit()]
    run = threading.Thread(target=threads.run, args=(tasks, 60.0))
    run.start()
    try:
        while not group.waiting:
            time.sleep(0.001)
        assert threads.stuck_op() == "in task 1"
    finally:
        release.set()
        run.join()
        threads.close()


def test_a_nan_is_an_error_as_the_flags_say() -> None:
    fault = Fault()
    training = Training(faulty(fault, 4), 3)
    feed = {"X": ROWS[:9].copy()}
    feed["X"][8] = np.nan
    scope_before = weights(training)
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    try:
        with pytest.raises(paddle.errors.NumericsError, match="replica 2 of 3"):
            training.step(feed)
    finally:
        paddle.set_flags({"FLAGS_check_nan_inf": False})
    for a, b in zip(scope_before, weights(training), strict=True):
        np.testing.assert_array_equal(a, b)
    paddle.set_flags({"FLAGS_check_rank_gradients": 1})  # as it is by default where nothing runs late
    with pytest.raises(paddle.errors.RankNumericsError, match="place 2 of 3"):
        training.step(feed)
    paddle.set_flags({"FLAGS_check_rank_gradients": 0})
    (loss,) = training.step(feed)
    assert np.isnan(loss[2])


def test_threads_may_share_an_executor() -> None:
    training = Training(faulty(Fault(), 0), 2)
    errors: list[BaseException] = []

    def many() -> None:
        try:
            for _ in range(20):
                training.step({"X": ROWS[:4]})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    alone = Training(faulty(Fault(), 0), 2)
    for _ in range(80):
        alone.step({"X": ROWS[:4]})


def test_reduce_has_the_same_guarantees() -> None:
    fault = Fault()
    build = strategy(reduce_strategy=static.BuildStrategy.ReduceStrategy.Reduce)
    training = Training(faulty(fault, 5), 3, build)
    feed = {"X": ROWS[:9]}
    training.step(feed)
    before = weights(training)

    def fail() -> None:
        raise ArithmeticError("deliberate")

    fault.replica, fault.action = 1, fail
    with pytest.raises(Exception, match="deliberate"):
        training.step(feed)
    for a, b in zip(before, weights(training), strict=True):
        np.testing.assert_array_equal(a, b)
    fault.action = None
    training.step(feed)
