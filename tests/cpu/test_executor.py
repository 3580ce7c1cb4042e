"""The Executor: caching, state, fetches, threads, errors that leave everything as it was."""

from __future__ import annotations

import logging
import operator
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.nets import regression, rows, state
from tests.helpers.patience import HANG, pace
from tstatic import fluid, places, static
from tstatic.devices.cpu import blas
from tstatic.errors import (
    DeviceError,
    FeedError,
    FeedTypeError,
    ForkedProcessError,
    NotFoundError,
    NumericsError,
    ProgramError,
    TstaticError,
)
from tstatic.logs import get_logger, warn_once
from tstatic.places import NullPlace
from tstatic.runtime.binding import Binding
from tstatic.runtime.scope import LoDTensor
from tstatic.runtime.session import Session


def trained(optimizer: Any = None) -> tuple[Any, Any, Any, Any]:
    main, startup, loss = regression(optimizer or paddle.optimizer.Adam(0.05))
    exe = static.Executor(paddle.CPUPlace())
    paddle.seed(3)
    exe.run(startup)
    return exe, main, startup, loss


def test_training_lowers_the_loss() -> None:
    exe, main, _, loss = trained()
    losses = [float(exe.run(main, feed={"x": rows(16)}, fetch_list=[loss])[0]) for _ in range(60)]
    assert losses[-1] < 0.05 * losses[0]


def test_fetches_are_the_users_own() -> None:
    exe, main, _, _loss = trained()
    name = main.all_parameters()[0].name
    (w,) = exe.run(main, feed={"x": rows(4)}, fetch_list=[name])
    kept = w.copy()
    w[...] = 7
    (again,) = exe.run(main, feed={"x": rows(4)}, fetch_list=[name])
    assert not np.array_equal(again, w)
    assert np.array_equal(kept, kept)
    assert np.array_equal(again, np.array(static.global_scope().find_var(name).get_tensor()))


def test_every_variable_can_be_fetched_whatever_the_passes_do() -> None:
    exe, main, _, _loss = trained()
    names = [n for n, v in main.global_block().vars.items() if v.type == "dense_tensor"]
    values = exe.run(main, feed={"x": rows(4)}, fetch_list=names)
    assert all(isinstance(v, np.ndarray) for v in values)
    for name, value in zip(names, values, strict=True):
        shape = main.global_block().var(name).shape
        assert len(shape) == value.ndim, name
        assert all(want in (-1, got) for want, got in zip(shape, value.shape, strict=True)), name


def test_a_parameter_is_fetched_after_its_update_and_what_is_computed_from_it_before() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        w = static.create_parameter([2], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        shown = paddle.reshape(w, [2, 1])
        loss = paddle.sum(w)
        paddle.optimizer.SGD(0.5).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(startup)
    before, after = exe.run(main, fetch_list=[shown, w])
    assert np.array_equal(before, [[1.0], [1.0]])
    assert np.array_equal(after, [0.5, 0.5])


def test_fetch_lists_may_nest_repeat_and_be_single() -> None:
    exe, main, _, loss = trained(paddle.optimizer.SGD(0.0))
    feed = {"x": rows(4)}
    a, b, c = exe.run(main, feed=feed, fetch_list=[loss, [loss.name, (loss,)]])
    assert a == b == c
    assert exe.run(main, feed=feed, fetch_list=loss)[0] == a
    assert exe.run(main, feed=feed) == []
    (tensor,) = exe.run(main, feed=feed, fetch_list=[loss], return_numpy=False)
    assert isinstance(tensor, LoDTensor)
    assert np.array(tensor) == a


@pytest.mark.numpy_device(
    "the bits of torch's sums and products depend on where arrays lie and on threads", not_on=("torch",)
)
def test_threads_do_not_change_a_bit() -> None:
    results = []
    for threads in (1, 2, 4, 8):
        with static.scope_guard(static.Scope()):
            main, startup, loss = regression(paddle.optimizer.Adam(0.05), width=700)
            paddle.seed(3)
            exe = static.Executor("cpu")
            exe.run(startup)
            execution = static.ExecutionStrategy()
            execution.num_threads = threads
            compiled = static.CompiledProgram(main, exec_strategy=execution)
            x = rows(300)
            losses = [exe.run(compiled, feed={"x": x}, fetch_list=[loss])[0] for _ in range(3)]
            results.append((losses, state(static.global_scope(), main)))
    first, values = results[0]
    for other, others in results[1:]:
        assert first == other
        assert all(np.array_equal(values[n], others[n]) for n in values)


def test_a_miss_says_what_differed(caplog: pytest.LogCaptureFixture) -> None:
    exe, main, _, loss = trained(paddle.optimizer.SGD(0.0))
    with caplog.at_level(logging.INFO, logger="tstatic.compile"):
        exe.run(main, feed={"x": rows(4)}, fetch_list=[loss])
        exe.run(main, feed={"x": rows(5)}, fetch_list=[loss])
        exe.run(main, feed={"x": rows(5)}, fetch_list=[])
        strategy = static.BuildStrategy()
        strategy.enable_inplace = False
        exe.run(static.CompiledProgram(main, strategy), feed={"x": rows(5)}, fetch_list=[])
        main.random_seed = 5
        exe.run(main, feed={"x": rows(5)}, fetch_list=[])
    said = [r.getMessage() for r in caplog.records if r.name == "tstatic.compile"]
    assert "first run" in said[0]
    assert "feed signature" in said[1]
    assert "fetch list" in said[2]
    assert "strategy" in said[3]
    assert "version" in said[4]
    assert all(" ms" in s for s in said)
    count = len(caplog.records)
    exe.run(main, feed={"x": rows(5)}, fetch_list=[])
    assert len(caplog.records) == count


def test_a_scope_whose_values_change_size_gets_a_plan_for_them(caplog: pytest.LogCaptureFixture) -> None:
    main = static.Program()
    with static.program_guard(main):
        table = main.global_block().create_var(name="table", shape=[-1, 3], dtype="float32", persistable=True)
        y = paddle.scale(table, 2.0)
    exe = static.Executor("cpu")
    with caplog.at_level(logging.INFO, logger="tstatic.compile"):
        for n in (2, 4):
            static.global_scope().var("table").get_tensor().set(rows(n))
            np.testing.assert_array_equal(exe.run(main, fetch_list=[y])[0], rows(n) * 2)
    assert [r.getMessage().rpartition(": ")[2] for r in caplog.records] == [
        "first run",
        "the scope's values changed size, or the plan was no longer kept",
    ]


def test_a_compiled_program_whose_plan_the_cache_had_already_knows_it() -> None:
    exe, main, _, loss = trained(paddle.optimizer.SGD(0.0))
    first, second = static.CompiledProgram(main), static.CompiledProgram(main)
    for compiled in (first, second):
        exe.run(compiled, feed={"x": rows(4)}, fetch_list=[loss])
    assert second.plan is first.plan
    assert first.program.global_block().ops


@pytest.mark.parametrize(
    ("wrong", "cls"),
    [
        (np.ones((4, 3), "f8"), FeedTypeError),
        (np.ones((4, 2), "f4"), FeedError),
        (np.ones((4, 3, 1), "f4"), FeedError),
        (np.ma.masked_array(np.ones((4, 3), "f4"), np.ones((4, 3), bool)), FeedTypeError),
        (np.full((4, 3), "a", object), FeedTypeError),
        ("text", FeedTypeError),
    ],
    ids=["dtype", "size", "rank", "mask", "objects", "text"],
)
def test_a_feed_is_checked_in_every_run_also_after_a_good_one(wrong: Any, cls: type[Exception]) -> None:
    exe, main, _, loss = trained(paddle.optimizer.SGD(0.0))
    for _ in range(2):
        (good,) = exe.run(main, feed={"x": rows(4)}, fetch_list=[loss])
    with pytest.raises(cls):
        exe.run(main, feed={"x": wrong}, fetch_list=[loss])
    np.testing.assert_array_equal(exe.run(main, feed={"x": rows(4)}, fetch_list=[loss])[0], good)


def test_a_declaration_that_changes_after_a_run_is_seen_by_the_next() -> None:
    main = static.Program()
    with static.program_guard(main):
        x = static.data("x", [None, 2])
        y = paddle.scale(x, 2.0)
    exe = static.Executor("cpu")
    exe.run(main, feed={"x": np.ones((3, 2), "f4")}, fetch_list=[y])
    x.shape = (4, 2)
    with pytest.raises(FeedError, match="x"):
        exe.run(main, feed={"x": np.ones((3, 2), "f4")}, fetch_list=[y])


def test_a_name_that_is_no_variable_is_mentioned_whether_the_feed_was_read_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exe, main, _, loss = trained(paddle.optimizer.SGD(0.0))
    exe.run(main, feed={"x": rows(4)}, fetch_list=[loss])
    exe.run(main, feed={"x": rows(4), "other": rows(4)}, fetch_list=[loss])
    assert "'other', which is not a variable" in caplog.text


def test_a_program_edited_after_its_first_run_is_never_stale() -> None:
    main = static.Program()
    with static.program_guard(main):
        x = static.data("x", [2])
        y = paddle.scale(x, 2.0)
    exe = static.Executor("cpu")
    feed = {"x": np.ones(2, "float32")}
    assert exe.run(main, feed=feed, fetch_list=[y])[0].tolist() == [2, 2]
    main.global_block().ops[0]._set_attr("scale", 3.0)
    assert exe.run(main, feed=feed, fetch_list=[y])[0].tolist() == [3, 3]
    with static.program_guard(main):
        z = paddle.scale(y, 10.0)
    assert exe.run(main, feed=feed, fetch_list=[z])[0].tolist() == [30, 30]


def test_new_storage_in_the_scope_is_used() -> None:
    exe, main, _, loss = trained(paddle.optimizer.SGD(0.0))
    feed = {"x": rows(4)}
    exe.run(main, feed=feed, fetch_list=[loss])
    scope = static.global_scope()
    for p in main.all_parameters():
        scope.find_var(p.name).get_tensor().set(np.zeros(p.shape, "float32"), paddle.CPUPlace())
    assert exe.run(main, feed=feed, fetch_list=[loss])[0] == 0
    for p in main.all_parameters():
        scope.erase([p.name])
        scope.var(p.name).get_tensor().set(np.ones(p.shape, "float32"), paddle.CPUPlace())
    assert exe.run(main, feed=feed, fetch_list=[loss])[0] > 0


@pytest.mark.parametrize("places", [None, ["cpu", "cpu"]], ids=["one", "two"])
def test_one_executor_keeps_the_values_of_two_scopes_apart(places: Any) -> None:
    main, startup, loss = regression(paddle.optimizer.Momentum(0.05))
    feed = {"x": rows(4)}

    def history(turns: str) -> dict[str, list[float]]:
        """Losses per scope, which begin alike, when they are trained in this order by one executor."""
        exe, scopes = static.Executor("cpu"), {name: static.Scope() for name in "ab"}
        compiled = static.CompiledProgram(main).with_data_parallel(loss.name, places=places) if places else main
        losses: dict[str, list[float]] = {name: [] for name in scopes}
        for scope in scopes.values():
            paddle.seed(3)
            exe.run(startup, scope=scope)
        for name in turns:
            (value,) = exe.run(compiled, feed=feed, fetch_list=[loss], scope=scopes[name])
            losses[name].append(float(np.mean(value)))
        return losses

    alone = history("aaa")["a"]
    assert alone[0] > alone[1] > alone[2]
    assert history("aababb") == {"a": alone, "b": alone}


def _failing(kind: str) -> Any:
    def boom(x: Any) -> Any:
        if kind == "raise":
            raise ValueError("boom in user code")
        raise KeyboardInterrupt

    return boom


@pytest.mark.parametrize("kind", ["raise", "interrupt"])
def test_an_error_leaves_all_state_bit_for_bit_as_it_was(kind: str) -> None:
    armed = {"on": False}
    boom = _failing(kind)

    def spy(x: Any) -> Any:
        if armed["on"]:
            boom(x)
        return np.array(x)

    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 3])
        h = paddle.nn.functional.dropout(static.nn.fc(x, 8), 0.5)
        h = static.nn.batch_norm(h)
        counter = static.create_global_var([1], 0.0, "float32", persistable=True, name="counter")
        paddle.increment(counter)
        out = main.current_block().create_var(name="spied", shape=h.shape, dtype="float32")
        static.py_func(spy, h, out)
        loss = paddle.mean(paddle.square(out + h))
        paddle.optimizer.Adam(0.1).minimize(loss)
    exe = static.Executor("cpu")
    exe.run(startup)
    feed = {"x": rows(6)}
    exe.run(main, feed=feed, fetch_list=[loss])
    scope = static.global_scope()
    before = state(scope, main)
    runs = dict(scope.runs)
    armed["on"] = True
    with pytest.raises((ValueError, KeyboardInterrupt)) as caught:
        exe.run(main, feed=feed, fetch_list=[loss])
    if kind == "raise":
        assert "boom in user code" in str(caught.value)
        assert "test_executor.py" in "".join(getattr(caught.value, "__notes__", []))
    after = state(scope, main)
    assert all(np.array_equal(before[n], after[n]) for n in before)
    assert runs == scope.runs
    armed["on"] = False
    exe.run(main, feed=feed, fetch_list=[loss])
    assert not np.array_equal(before["counter"], state(scope, main)["counter"])


def test_run_count_makes_dropout_new_each_run_and_the_same_from_the_start() -> None:
    def masks() -> list[Any]:
        with static.scope_guard(static.Scope()):
            main, startup = static.Program(), static.Program()
            with static.program_guard(main, startup):
                x = static.data("x", [100])
                y = paddle.nn.functional.dropout(x, 0.5)
            exe = static.Executor("cpu")
            paddle.seed(11)
            return [exe.run(main, feed={"x": np.ones(100, "float32")}, fetch_list=[y])[0] for _ in range(3)]

    first, second = masks(), masks()
    assert not np.array_equal(first[0], first[1])
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_program_seed_makes_runs_reproducible_but_not_frozen() -> None:
    def values() -> list[Any]:
        with static.scope_guard(static.Scope()):
            main = static.Program()
            main.random_seed = 5
            with static.program_guard(main):
                y = paddle.rand([6])
            exe = static.Executor("cpu")
            return [exe.run(main, fetch_list=[y])[0] for _ in range(2)]

    (a, b), (c, d) = values(), values()
    assert np.array_equal(a, c)
    assert np.array_equal(b, d)
    assert not np.array_equal(a, b)


def test_equal_programs_started_after_the_same_seed_get_the_same_weights() -> None:
    found = []
    for _ in range(2):
        main, startup, _ = regression()
        paddle.seed(9)
        static.Executor("cpu").run(startup)
        found.append(state(static.global_scope(), main))
    assert all(np.array_equal(found[0][n], found[1][n]) for n in found[0])


def test_use_prune_runs_only_what_is_fetched_and_the_optimizer() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 2])
        unused = static.data("unused", [None, 2])
        y = paddle.scale(x, 2.0)
        paddle.scale(unused, 3.0)
    exe = static.Executor("cpu")
    assert exe.run(main, feed={"x": rows(2, 2)}, fetch_list=[y], use_prune=True)[0].shape == (2, 2)


def test_an_uninitialised_parameter_is_named_with_the_cause() -> None:
    main, _, loss = regression()
    with pytest.raises(FeedError, match="startup_program") as caught:
        static.Executor("cpu").run(main, feed={"x": rows(2)}, fetch_list=[loss])
    assert "fc_0.w_0" in str(caught.value)
    assert "nets.py" in str(caught.value)


def test_fetching_an_unknown_name_suggests_a_near_one() -> None:
    exe, main, _, loss = trained()
    with pytest.raises(NotFoundError, match="did you mean"):
        exe.run(main, feed={"x": rows(2)}, fetch_list=[loss.name[:-1] + "9"])


def test_check_nan_inf_names_the_first_op() -> None:
    main = static.Program()
    with static.program_guard(main):
        x = static.data("x", [2])
        y = paddle.log(x)
        z = paddle.scale(y, 2.0)
    exe = static.Executor("cpu")
    feed = {"x": np.array([1.0, -1.0], "float32")}
    assert np.isnan(exe.run(main, feed=feed, fetch_list=[z])[0][1])
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    try:
        with pytest.raises(NumericsError, match="log") as caught:
            exe.run(main, feed=feed, fetch_list=[z])
    finally:
        paddle.set_flags({"FLAGS_check_nan_inf": False})
    assert "test_executor.py" in str(caught.value)


def test_the_null_device_plans_and_runs_nothing() -> None:
    main, startup, loss = regression(paddle.optimizer.SGD(0.1))
    static.Executor("cpu").run(startup)
    before = state(static.global_scope(), main)
    (value,) = static.Executor(NullPlace()).run(main, feed={"x": rows(4)}, fetch_list=[loss])
    assert value.shape == ()
    after = state(static.global_scope(), main)
    assert all(np.array_equal(before[n], after[n]) for n in before)


def test_a_closed_executor_says_so() -> None:
    exe = static.Executor("cpu")
    exe.close()
    exe.close()
    with pytest.raises(ProgramError, match="closed Executor"):
        exe.run(static.Program())


def test_threads_share_an_executor() -> None:
    exe, main, _, loss = trained(paddle.optimizer.SGD(0.0))
    feed = {"x": rows(8)}
    expected = exe.run(main, feed=feed, fetch_list=[loss])[0]
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(50):
            value = exe.run(main, feed=feed, fetch_list=[loss])[0]
            if value != expected:
                wrong.append(value)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork_the_executor_says_at_once_why_not() -> None:
    exe, main, _, loss = trained()
    exe.run(main, feed={"x": rows(2)}, fetch_list=[loss])
    child = os.fork()
    if child == 0:
        try:
            exe.run(main, feed={"x": rows(2)}, fetch_list=[loss])
        except ForkedProcessError:
            os._exit(17)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 17


@pytest.mark.numpy_device
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_in_the_middle_of_a_step_of_another_thread_runs_and_saves(tmp_path: Path) -> None:
    inside, go = threading.Event(), threading.Event()

    def wait(x: Any) -> Any:
        inside.set()
        go.wait(30.0)
        return np.array(x)

    exe, main, _, loss = trained()
    blocked, startup = static.Program(), static.Program()
    with static.program_guard(blocked, startup):
        x = static.data("x", [2, 3])
        y = blocked.current_block().create_var(name="y", dtype="float32", shape=[2, 3])
        static.py_func(wait, x, y)
    stuck = threading.Thread(target=exe.run, args=(blocked, {"x": rows(2)}, [y]))
    stuck.start()
    assert inside.wait(HANG)
    child = os.fork()
    if child == 0:
        signal.alarm(int(20 * pace()))  # ends a child that hangs
        try:
            static.Executor(paddle.CPUPlace()).run(main, feed={"x": rows(2)}, fetch_list=[loss])
            static.save(main, str(tmp_path / "m"))
            get_logger()
            warn_once("in a child", "said in a child", level=logging.DEBUG)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    go.set()
    stuck.join()
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
def test_a_signal_in_the_update_comes_through_when_the_step_is_done(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    class LateError(Exception):
        pass

    def late(*_: object) -> None:
        raise LateError

    feed = {"x": rows(4)}
    exe, main, startup, loss = trained()
    for _ in range(3):
        exe.run(main, feed=feed, fetch_list=[loss])
    wanted = state(static.global_scope(), main)
    paddle.seed(3)
    exe.run(startup)
    exe.run(main, feed=feed, fetch_list=[loss])
    execute = Session.execute

    def signalled(self: Session, bound: Binding, region: str) -> None:
        if region != "main":
            os.kill(os.getpid(), number)
        execute(self, bound, region)

    before = signal.signal(number, late)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Session, "execute", signalled)
            with pytest.raises(LateError):
                exe.run(main, feed=feed, fetch_list=[loss])
        assert signal.getsignal(number) is late
    finally:
        signal.signal(number, before)
    exe.run(main, feed=feed, fetch_list=[loss])
    found = state(static.global_scope(), main)
    assert all(np.array_equal(found[name], value) for name, value in wanted.items())


@pytest.mark.parametrize("cure", ["startup", "load", "set_program_state"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_an_update_that_is_broken_off_is_refused_until_the_state_is_whole_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[BaseException], cure: str
) -> None:
    feed = {"x": rows(4)}
    exe, main, startup, loss = trained()
    static.save(main, str(tmp_path / "m"))
    before = state(static.global_scope(), main)
    execute = Session.execute

    def broken_off(self: Session, bound: Binding, region: str) -> None:
        execute(self, bound, region)
        if region != "main":
            raise kind

    with monkeypatch.context() as patch:
        patch.setattr(Session, "execute", broken_off)
        with pytest.raises(kind):
            exe.run(main, feed=feed, fetch_list=[loss])
    clone = main.clone(for_test=True)
    for other, program in ((exe, main), (static.Executor("cpu"), clone)):
        with pytest.raises(DeviceError, match=rf"half written(.|\n)*{kind.__name__} broke off(.|\n)*startup program"):
            other.run(program, feed=feed, fetch_list=[loss.name])
    # What does not read it runs.
    with static.program_guard(static.Program(), static.Program()):
        exe.run(static.default_main_program(), feed={"x": rows(2)}, fetch_list=[static.data("x", [None, 3]) + 1.0])
    if cure == "startup":
        paddle.seed(3)
        exe.run(startup)
    elif cure == "load":
        static.load(main, str(tmp_path / "m"))
    else:
        static.set_program_state(main, before)
    exe.run(main, feed=feed, fetch_list=[loss])


def test_what_a_handler_raises_while_a_fed_array_is_read_is_not_blamed_on_the_feed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exe, main, _, loss = trained()

    def interrupted(value: Any, var: Any) -> Any:
        raise TimeoutError("of a signal's handler")

    monkeypatch.setattr("tstatic.runtime.feed._convert", interrupted)
    with pytest.raises(TimeoutError, match="handler"):
        exe.run(main, feed={"x": rows(4)}, fetch_list=[loss])


def test_moving_state_into_flat_buffers_loses_no_value_when_it_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = {"x": rows(4)}
    exe, main, _, loss = trained()
    (wanted,) = exe.run(main.clone(for_test=True), feed=feed, fetch_list=[loss.name])
    before = state(static.global_scope(), main)
    move, left = LoDTensor._move_to, [2]

    def broken_off(self: LoDTensor, flat: Any, offset: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        move(self, flat, offset)

    with monkeypatch.context() as patch:
        patch.setattr(LoDTensor, "_move_to", broken_off)
        with pytest.raises(KeyboardInterrupt):
            exe.run(main, feed=feed, fetch_list=[loss])
    found = state(static.global_scope(), main)
    assert all(np.array_equal(found[name], value) for name, value in before.items())
    # Programs that were bound to the old storage follow.
    scope = static.global_scope()
    for p in main.all_parameters():
        scope.find_var(p.name).get_tensor().set(np.zeros(p.shape, "f4"))
    (zero,) = exe.run(main.clone(for_test=True), feed=feed, fetch_list=[loss.name])
    assert float(zero) == 0.0 != float(wanted)


@pytest.mark.numpy_device
@pytest.mark.parametrize("inside", ["main", "branch"])
def test_only_programs_with_products_look_at_the_threads_of_blas(inside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(blas, "hold", lambda: asked.append(None))
    x = static.data("x", [4, 4])
    relu = paddle.nn.functional.relu(x)
    product = paddle.matmul(x, x) if inside == "main" else None
    if product is None:
        product = static.nn.cond(paddle.max(x) > 0, lambda: paddle.matmul(x, x), lambda: x)
    exe = static.Executor("cpu")
    exe.run(feed={"x": rows(4, 4)}, fetch_list=[relu])
    assert asked == []
    exe.run(feed={"x": rows(4, 4)}, fetch_list=[product])
    assert len(asked) == 1


def test_scheduler_values_reach_the_program_and_an_error_takes_them_back() -> None:
    scheduler = paddle.optimizer.lr.StepDecay(0.5, step_size=1, gamma=0.5)
    main, startup, loss = regression(paddle.optimizer.SGD(scheduler))
    exe = static.Executor("cpu")
    exe.run(startup)
    seen = []
    for _ in range(3):
        seen.append(float(exe.run(main, feed={"x": rows(4)}, fetch_list=["learning_rate_0"])[0]))
        scheduler.step()
    assert seen == [0.5, 0.25, 0.125]
    with pytest.raises(TstaticError):
        exe.run(main, feed={"x": rows(4, 5)}, fetch_list=[loss])
    assert float(np.array(static.global_scope().find_var("learning_rate_0").get_tensor())) == 0.125


def test_iterations_per_run_equal_as_many_runs() -> None:
    results = []
    for k in (1, 3):
        with static.scope_guard(static.Scope()):
            main, startup, loss = regression(paddle.optimizer.Momentum(0.05))
            paddle.seed(2)
            exe = static.Executor("cpu")
            exe.run(startup)
            execution = static.ExecutionStrategy()
            execution.num_iteration_per_run = k
            compiled = static.CompiledProgram(main, exec_strategy=execution)
            for _ in range(3 // k):
                value = exe.run(compiled, feed={"x": rows(4)}, fetch_list=[loss])
            results.append((value, state(static.global_scope(), main)))
    assert results[0][0] == results[1][0]
    assert all(np.array_equal(results[0][1][n], results[1][1][n]) for n in results[0][1])


def test_an_attribute_written_after_a_run_is_seen_by_the_next() -> None:
    x = static.data("x", [2])
    y = paddle.scale(x, 2.0)
    z = paddle.reshape(x, [1, 2])
    exe, main = static.Executor("cpu"), static.default_main_program()
    feed = {"x": np.ones(2, "float32")}
    scale, reshape = main.global_block().ops

    def change_all() -> None:
        scale.attrs = {"scale": 7.0}

    for change, want in (
        (lambda: None, 2), (lambda: scale.attrs.__setitem__("scale", 3.0), 3), (lambda: scale.attrs.update(scale=4.0), 4),
        (lambda: scale._set_attr("scale", 5.0), 5), (lambda: operator.ior(scale.attrs, {"scale": 6}), 6), (change_all, 7),
    ):  # fmt: skip
        change()
        assert exe.run(main, feed=feed, fetch_list=[y])[0].tolist() == [want, want]
    reshape.attrs["shape"] = [2, 1]
    assert exe.run(main, feed=feed, fetch_list=[z])[0].shape == (2, 1)
    assert reshape.attrs["shape"] == (2, 1), "a list could change without a word"
    copied = main.clone().global_block().ops[0]
    copied.attrs["scale"] = 9.0
    assert (scale.attrs["scale"], dict(scale.attrs.copy())["scale"]) == (7.0, 7.0)
    scale.inputs = {"X": (z.name,)}
    scale._rename_input(z.name, "x")
    assert exe.run(main, feed=feed, fetch_list=[y])[0].tolist() == [7, 7]


def test_a_write_to_an_operator_that_cannot_be_followed_is_refused() -> None:
    x = static.data("x", [2])
    paddle.scale(x, 2.0)
    (op,) = static.default_main_program().global_block().ops
    before = str(static.default_main_program())
    writes = [
        lambda: op.attrs.__setitem__("scale", "two"), lambda: op.attrs.__setitem__("scalee", 2.0),
        lambda: op.attrs.__delitem__("scale"), lambda: op.attrs.pop("scale"), op.attrs.clear, op.attrs.popitem,
        lambda: op.inputs.__setitem__("X", ("y",)), lambda: op.outputs.update(Out=("y",)), op.inputs.clear,
        lambda: op.attrs.setdefault("nothing", 1),
    ]  # fmt: skip
    for write in writes:
        with pytest.raises(TstaticError) as caught:
            write()
        assert caught.value.fix
        assert "test_executor.py" in str(caught.value)
    assert str(static.default_main_program()) == before


def test_state_takes_no_masked_arrays() -> None:
    w = static.create_parameter([2], "float32", name="w")
    main, exe = static.default_main_program(), static.Executor("cpu")
    exe.run(static.default_startup_program())
    before = state(static.global_scope(), main)
    masked = np.ma.masked_array(np.ones(2, "float32"), [True, False])
    for write in (
        lambda: w.set_value(masked), lambda: static.set_program_state(main, {"w": masked}),
        lambda: main.set_state_dict({"w": masked}), lambda: LoDTensor().set(masked),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="mask would be lost"):
            write()
    after = state(static.global_scope(), main)
    assert all(np.array_equal(before[n], after[n]) for n in before)


def test_feeds_of_fluid_layers_data_are_not_compared_with_the_declaration() -> None:
    x = fluid.layers.data("x", [4])
    y = fluid.layers.data("y", [4], dtype="float32")
    exe = static.Executor("cpu")
    fetch = [paddle.sum(x), paddle.scale(y, 2.0)]
    feed = {"x": np.ones((32, 1, 4), "float32"), "y": np.ones((2, 3), "float64")}
    total, doubled = exe.run(feed=feed, fetch_list=fetch)
    assert (total, doubled.shape, doubled.dtype) == (128, (2, 3), np.float64)
    checked = paddle.scale(static.data("checked", [None, 4]), 2.0)
    with pytest.raises(FeedError, match="should have dimensions = 2"):
        exe.run(feed={**feed, "checked": np.ones((32, 1, 4), "float32")}, fetch_list=[checked])


def test_a_parameter_of_a_block_is_filled_by_its_initializer_there() -> None:
    block = static.default_main_program().global_block()
    constant = paddle.nn.initializer.Constant(3.0)
    w = block.create_parameter(name="w", shape=[2], dtype="float32", initializer=constant)
    block.create_parameter(name="w", shape=[2], dtype="float32", initializer=constant)
    assert [op.type for op in block.ops] == ["fill_constant"]
    assert static.Executor("cpu").run(fetch_list=[w])[0].tolist() == [3, 3]


def test_cpu_num_is_mentioned_only_where_it_decides(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("CPU_NUM", raising=False)
    x = static.data("x", [None, 2])
    y = paddle.scale(x, 2.0)
    main, exe, feed = (
        static.default_main_program(),
        static.Executor(paddle.CPUPlace()),
        {"x": np.ones((2, 2), "float32")},
    )
    two = static.CompiledProgram(main).with_data_parallel(places=[paddle.CPUPlace()] * 2)
    for program in (main, static.CompiledProgram(main), two):
        exe.run(program, feed=feed, fetch_list=[y])
    assert two.exec_strategy.num_threads == 8
    assert static.CompiledProgram(main).exec_strategy.num_threads == 4
    assert "CPU_NUM" not in caplog.text
    assert "CPU_NUM" not in os.environ
    exe.run(static.CompiledProgram(main).with_data_parallel(), feed=feed, fetch_list=[y])
    assert caplog.text.count("CPU_NUM is not set") == (1 if places.cpu_count() != 1 else 0)


def test_disable_static_warns_and_the_program_goes_on() -> None:
    with pytest.warns(UserWarning, match="only static mode") as caught:
        paddle.disable_static()
    assert caught[0].filename == __file__
    assert not paddle.in_dynamic_mode()
    x = static.data("x", [2])
    with pytest.raises(TstaticError, match="has no value while the program is built"):
        x.numpy()
    with pytest.raises(TstaticError, match="eager"):
        x.backward()


def test_an_optional_variable_may_be_asked_for_by_its_truth_with_one_warning_a_line() -> None:
    x, flag = static.data("x", [2]), static.data("flag", [1], "bool")
    with pytest.warns(UserWarning, match="'is not None'") as caught:
        assert all(bool(var) for var in (x, x + 1.0))
    assert [(w.filename, w.lineno > 0) for w in caught] == [(__file__, True)]
    with pytest.raises(TstaticError, match="no truth value"):
        bool(flag)
    with pytest.raises(TstaticError, match="no truth value"):
        bool(x > x)


def test_a_kept_variable_takes_the_shape_of_its_new_value() -> None:
    x = static.data("x", [None, None])
    kept = (
        static.default_main_program()
        .global_block()
        .create_var(name="kept", shape=[-1, -1], dtype="float32", persistable=True)
    )
    paddle.assign(x * 2.0, output=kept)
    exe = static.Executor(paddle.CPUPlace())
    for shape in ((2, 3), (3, 2), (6, 1)):
        given = np.arange(6, dtype=np.float32).reshape(shape)
        exe.run(feed={"x": given}, fetch_list=[])
        np.testing.assert_array_equal(np.array(static.global_scope().find_var("kept").get_tensor()), given * 2)  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize(
    "formula",
    [lambda x: -x, lambda x: x - 1, lambda x: 1 - x, lambda x: x + 300, lambda x: x * -3, lambda x: x * 70000 - 5],
    ids=["-x", "x - 1", "1 - x", "x + 300", "x * -3", "x * 70000 - 5"],
)
def test_sums_and_products_of_integers_and_numbers_wrap_around(formula: Any, dtype: str) -> None:
    values = np.array([0, 1, 5, 100], dtype)
    main = static.Program()
    with static.program_guard(main, static.Program()):
        y = formula(static.data("x", [4], dtype))
    (found,) = static.Executor("cpu").run(main, feed={"x": values}, fetch_list=[y])
    # int64 holds all of these exactly; a conversion to fewer bits keeps the lowest ones.
    wanted = np.array([formula(int(v)) for v in values], np.int64).astype(dtype)
    assert found.dtype == np.dtype(dtype)
    assert found.tolist() == wanted.tolist()
