"""ParallelExecutor and with_data_parallel: places, feeds, fetches, shared variables, and what they refuse."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.parallel.golden import ROWS, Training, net, strategy
from tstatic import fluid, static
from tstatic.runtime.shards import bounds


@pytest.fixture(autouse=True)
def two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")


def started(built: Any) -> static.Scope:
    scope = static.Scope()
    static.Executor(paddle.CPUPlace()).run(built.startup, scope=scope)
    return scope


def test_both_names_are_one_class() -> None:
    assert static.ParallelExecutor is fluid.ParallelExecutor


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("rows", [8, 9, 13, 64])
def test_parts_differ_by_one_row_at_most_and_the_last_ones_have_more(rows: int, count: int) -> None:
    parts = bounds(rows, count)
    sizes = [b - a for a, b in parts]
    assert parts[0][0] == 0
    assert parts[-1][1] == rows
    assert [a for a, _ in parts[1:]] == [b for _, b in parts[:-1]]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes)


def test_it_trains_as_the_compiled_program_does(monkeypatch: pytest.MonkeyPatch) -> None:
    built = net()
    scope = started(built)
    run = static.ParallelExecutor(False, built.loss.name, built.main, scope=scope)
    assert run.device_count == 2
    loss, w = run.run([built.loss.name, "w"], {"X": ROWS[:4]})
    np.testing.assert_allclose(loss, [0.19125, 1.67625], atol=1e-6)
    assert w.shape == (6, 2)
    monkeypatch.setenv("CPU_NUM", "4")
    assert static.ParallelExecutor(False, built.loss.name, built.main, scope=scope).device_count == 4


def test_it_can_be_made_before_the_startup_program_ran() -> None:
    built = net()
    scope = static.Scope()
    run = static.ParallelExecutor(False, built.loss.name, built.main, scope=scope)
    assert scope.local_var_names() == []
    static.Executor(paddle.CPUPlace()).run(built.startup, scope=scope)
    assert run.run([built.loss], {"X": ROWS[:4]})[0].shape == (2,)


def test_the_old_name_of_feed_works() -> None:
    built = net()
    run = static.ParallelExecutor(False, built.loss.name, built.main, scope=started(built))
    assert run.run([built.loss], feed_dict={"X": ROWS[:4]})[0].shape == (2,)


@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize("test_first", [False, True])
def test_a_test_program_sees_the_trained_parameters_on_every_place(test_first: bool, reduce: bool) -> None:
    built = net()
    main, startup = static.Program(), static.Program()
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        x = static.data("X", [None, 3], "float32")
        out = static.nn.fc(x, 2, weight_attr=paddle.ParamAttr(name="w"), bias_attr=paddle.ParamAttr(name="b"))
    build = strategy(reduce_strategy=static.BuildStrategy.ReduceStrategy(int(reduce)))
    scope = started(built)
    train = static.ParallelExecutor(False, built.loss.name, built.main, build_strategy=build, scope=scope)
    test = static.ParallelExecutor(False, main_program=main, share_vars_from=train)

    def check() -> None:
        (got,) = test.run([out.name], {"X": ROWS[:4]})
        w, b = (np.array(scope.find_var(n).get_tensor()) for n in ("w", "b"))  # type: ignore[union-attr]
        np.testing.assert_allclose(got, ROWS[:4] @ w + b, rtol=1e-6)

    if test_first:
        check()
    for _ in range(3):
        train.run([built.loss], {"X": ROWS[:4]})
        check()


def test_what_the_user_writes_reaches_every_place() -> None:
    training = Training(net())
    training.step({"X": ROWS[:4]})
    training.scope.find_var("w").get_tensor().set(np.zeros((3, 2), np.float32), None)  # type: ignore[union-attr]
    training.scope.find_var("b").get_tensor().set(np.ones(2, np.float32), None)  # type: ignore[union-attr]
    loss, *_ = training.step({"X": ROWS[:4]})
    np.testing.assert_array_equal(loss, [1, 1])


def test_a_scheduler_reaches_every_place() -> None:
    scheduler = paddle.optimizer.lr.StepDecay(0.1, step_size=1, gamma=0.5)
    training = Training(net(paddle.optimizer.SGD(scheduler)))
    for _ in range(3):
        training.step({"X": ROWS[:4]})
        scheduler.step()
        np.testing.assert_array_equal(training.value("w", 1), training.value("w", 0))
    rates = [0.1, 0.05, 0.025]
    w = np.full((3, 2), 0.5)
    b = np.zeros(2)
    for rate in rates:
        h = ROWS[:4] @ w + b
        w, b = w - rate * ROWS[:4].T @ h / 4, b - rate * h.sum(0) / 4
    np.testing.assert_allclose(training.value("w"), w, rtol=1e-5)


def test_fetches_are_joined_or_listed_by_place() -> None:
    training = Training(net())
    feed = {"X": ROWS[:5]}
    loss, h = training.step(feed, ["fc_0.tmp_1"])
    assert loss.shape == (2,)
    assert h.shape == (5, 2)
    loss, h = training.step(feed, ["fc_0.tmp_1"], return_merged=False)
    assert [x.shape for x in h] == [(2, 2), (3, 2)]
    assert [x.shape for x in loss] == [(), ()]
    tensors = training.step(feed, return_numpy=False)
    assert isinstance(tensors[0], fluid.LoDTensor)
    with pytest.raises(ValueError, match="return_merged=False"):
        training.exe.run(
            training.compiled, feed=[{"X": ROWS[:1]}, {"X": ROWS[1:4]}], scope=training.scope,
            fetch_list=[_transposed(training)],
        )  # fmt: skip


def _transposed(training: Training) -> Any:
    with static.program_guard(training.net.main):
        return paddle.transpose(training.net.main.global_block().var("fc_0.tmp_1"), [1, 0])


@pytest.mark.parametrize(
    ("feed", "text"),
    [
        (ROWS, "takes a dict or a list"),
        ([{"X": ROWS[:1]}], "does not match the device number 2"),
        ([{"X": ROWS[:1]}] * 3, "does not match the device number 2"),
        ({"X": ROWS[:1]}, "fewer rows than there are devices"),
        ({"X": ROWS[:4, :2]}, "X"),
        ({}, "is not fed"),
    ],
)
def test_feeds_that_do_not_fit_are_value_errors(feed: Any, text: str) -> None:
    built = net()
    scope = started(built)
    run = static.ParallelExecutor(False, built.loss.name, built.main, scope=scope)
    before = np.array(scope.find_var("w").get_tensor())  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=text):
        run.run([built.loss], feed)
    np.testing.assert_array_equal(before, np.array(scope.find_var("w").get_tensor()))  # type: ignore[union-attr]
    assert run.run([built.loss], {"X": ROWS[:4]})[0].shape == (2,)


def pair() -> tuple[Any, Any]:
    """Fetches the rows of two inputs, and the program that runs on two places."""
    x, y = static.data("x", [None, 2]), static.data("y", [None, 2])
    # Scalars and state are given to every place; a first size that is declared is no number of samples.
    scale = static.data("scale", [], "float32")
    fixed = static.data("fixed", [2], "float32")
    fetch = [paddle.scale(v, 1.0) for v in (x, y, scale)] + [paddle.sum(fixed)]
    main = static.default_main_program()
    return fetch, static.CompiledProgram(main).with_data_parallel(places=[paddle.CPUPlace()] * 2)


def test_inputs_with_different_numbers_of_rows_are_refused_on_several_places() -> None:
    fetch, compiled = pair()
    exe = static.Executor(paddle.CPUPlace())
    rest = {"scale": np.float32(3), "fixed": np.ones(4, "float32")}
    for rows in ((4, 2), (2, 4), (0, 2)):
        feed = {n: np.ones((k, 2), "float32") for n, k in zip("xy", rows, strict=True)}
        with pytest.raises(
            paddle.errors.FeedError, match="'x' and 'y' are fed with different numbers of rows"
        ) as caught:
            exe.run(compiled, feed={**feed, **rest}, fetch_list=fetch)
        assert "test_parallel_executor.py" in str(caught.value)
        # Given for each place, they are the user's choice.
        listed = [{**feed, **rest, "fixed": np.ones(2, "float32")}] * 2
        x, y, _, _ = exe.run(compiled, feed=listed, fetch_list=fetch)
        assert (len(x), len(y)) == (2 * rows[0], 2 * rows[1])
    feed = {n: np.ones((4, 2), "float32") for n in "xy"}
    assert len(exe.run(compiled, feed={**feed, **rest}, fetch_list=fetch)[0]) == 4


def test_sequences_are_counted_and_not_cut_within() -> None:
    fetch, compiled = pair()
    exe = static.Executor(paddle.CPUPlace())
    rest = {"scale": np.float32(3), "fixed": np.ones(4, "float32")}
    words = fluid.LoDTensor()
    words.set(np.arange(10, dtype="float32").reshape(5, 2))
    words.set_lod([[0, 4, 5]])
    feed = {"x": words, "y": np.ones((2, 2), "float32")}
    x, y = exe.run(compiled, feed={**feed, **rest}, fetch_list=fetch, return_merged=False)[:2]
    assert ([len(v) for v in x], [len(v) for v in y]) == ([4, 1], [1, 1])
    words.set_lod([[0, 1, 2], [0, 3, 5]])
    assert [len(v) for v in exe.run(compiled, feed={**feed, **rest}, fetch_list=fetch, return_merged=False)[0]] == [
        3,
        2,
    ]
    words.set_lod([[0, 1, 2, 3], [0, 1, 2, 5]])
    with pytest.raises(paddle.errors.FeedError, match="different numbers"):
        exe.run(compiled, feed={**feed, **rest}, fetch_list=fetch)
    words.set_lod([[4, 1]])
    with pytest.raises(paddle.errors.FeedError, match="does not divide its rows"):
        exe.run(compiled, feed={**feed, **rest}, fetch_list=fetch)


def test_a_list_of_something_else_than_dicts_is_a_type_error() -> None:
    built = net()
    run = static.ParallelExecutor(False, built.loss.name, built.main, scope=started(built))
    with pytest.raises(TypeError, match="Each element of feed list should be a dict"):
        run.run([built.loss], [ROWS[:1], ROWS[1:2]])
    with pytest.raises(TypeError):
        Training(net()).step(ROWS)


def test_arguments_that_do_not_fit_are_named() -> None:
    built = net()
    with pytest.raises(TypeError, match=r"share_vars_from.* must be ParallelExecutor"):
        static.ParallelExecutor(False, built.loss.name, built.main, share_vars_from=built.main)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Scope"):
        static.ParallelExecutor(False, built.loss.name, built.main, scope=built.main)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="loss name of CompiledProgram is None"):
        static.ParallelExecutor(False, main_program=built.main)
    with pytest.raises(ValueError, match="not the loss that the backward part starts from"):
        static.ParallelExecutor(False, "w", built.main)
    with pytest.raises(TypeError, match="loss_name"):
        static.ParallelExecutor(False, built.loss, built.main)
    with pytest.raises(TypeError, match="BuildStrategy"):
        static.ParallelExecutor(False, built.loss.name, built.main, build_strategy={})  # type: ignore[arg-type]
    compiled = static.CompiledProgram(built.main)
    other = static.CompiledProgram(built.main)
    with pytest.raises(ValueError, match="not data parallel"):
        compiled.with_data_parallel(built.loss.name, share_vars_from=other)
    compiled.with_data_parallel(built.loss.name)
    with pytest.raises(ValueError, match="Already compiled"):
        compiled.with_data_parallel(built.loss.name)


@pytest.mark.parametrize("places", [[], ["cpu", "gpu:0"]])
def test_places_that_do_not_fit_are_refused_at_the_first_run(places: Any) -> None:
    built = net()
    compiled = static.CompiledProgram(built.main).with_data_parallel(built.loss.name, places=places)
    exe = static.Executor(paddle.CPUPlace())
    with pytest.raises((ValueError, paddle.errors.DeviceError)):
        exe.run(compiled, feed={"X": ROWS[:4]}, fetch_list=[built.loss], scope=started(built))


def test_trainers_that_nobody_started_are_refused_after_a_run_without_them_too() -> None:
    training = Training(net())
    training.step({"X": ROWS[:4]})
    more = static.CompiledProgram(training.net.main)
    more.with_data_parallel(training.net.loss.name, strategy(num_trainers=2), places=[paddle.CPUPlace()] * 2)
    with pytest.raises(ValueError, match="the trainer numbers is not equal to endpoint numbers"):
        training.exe.run(more, feed={"X": ROWS[:4]}, fetch_list=[training.net.loss], scope=training.scope)
    with pytest.raises(ValueError, match="the trainer numbers is not equal to endpoint numbers"):
        more.explain()
    training.step({"X": ROWS[:4]})


def test_what_it_is_can_be_printed_wherever_it_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    built = net()
    monkeypatch.setenv("CPU_NUM", "two")
    assert "Place(cpu)" in repr(static.ParallelExecutor(False, built.loss.name, built.main))
    monkeypatch.setenv("CPU_NUM", "2")
    executor = static.ParallelExecutor(False, built.loss.name, built.main)
    assert executor.device_count == 2
    assert "2 x Place(cpu)" in repr(executor)


def test_the_number_of_threads_is_readable_and_changes_no_bit() -> None:
    built = net()
    assert static.CompiledProgram(built.main).with_data_parallel(built.loss.name).exec_strategy.num_threads == 8
    results = []
    for threads in (1, 2, 4, 8):
        execution = static.ExecutionStrategy()
        execution.num_threads = threads
        training = Training(net(), execution=execution)
        assert training.compiled.exec_strategy.num_threads == threads
        losses = [training.step({"X": ROWS[:7]})[0] for _ in range(3)]
        results.append([*losses, training.value("w")])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_iterations_per_run_equal_as_many_runs() -> None:
    execution = static.ExecutionStrategy()
    execution.num_iteration_per_run = 3
    at_once, one_by_one = Training(net(), execution=execution), Training(net())
    (loss,) = at_once.step({"X": ROWS[:4]})
    for _ in range(3):
        (last,) = one_by_one.step({"X": ROWS[:4]})
    np.testing.assert_array_equal(loss, last)
    np.testing.assert_array_equal(at_once.value("w", 1), one_by_one.value("w", 1))


def test_iterations_read_the_feed_anew_when_a_state_variable_gets_another_size() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [-1, 2])
        total = static.create_global_var([1, 2], 0.0, "float32", persistable=True)
        kept = main.global_block().create_var(name="kept", shape=[-1, 2], dtype="float32", persistable=True)
        paddle.assign(x * 2, output=kept)
        y = total + paddle.sum(x, axis=0, keepdim=True)
        paddle.assign(y, output=total)
    execution = static.ExecutionStrategy()
    execution.num_iteration_per_run = 3
    exe, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    exe.run(startup, scope=scope)
    compiled = static.CompiledProgram(main).with_data_parallel(exec_strategy=execution, places=static.cpu_places(1))
    found = []
    for n in (3, 2, 3):
        (value,) = exe.run(compiled, feed={"x": np.ones((n, 2), "f4")}, fetch_list=[y], scope=scope)
        found.append(value.tolist())
        kept_value = np.array(scope.find_var("kept").get_tensor())  # type: ignore[union-attr]
        assert kept_value.tolist() == [[2.0, 2.0]] * n
    assert found == [[[9.0, 9.0]], [[15.0, 15.0]], [[24.0, 24.0]]]


@pytest.mark.slow
@pytest.mark.parametrize("close", [False, True], ids=["dropped", "closed"])
def test_an_executor_that_is_dropped_or_closed_leaves_no_thread_and_no_memory(close: bool) -> None:
    built = net()
    scope = started(built)
    compiled = static.CompiledProgram(built.main).with_data_parallel(built.loss.name, places=["cpu", "cpu"])

    def once() -> None:
        before = {*threading.enumerate()}
        exe = static.Executor(paddle.CPUPlace())
        exe.run(compiled, feed={"X": ROWS[:4]}, fetch_list=[built.loss], scope=scope)
        made = [t for t in threading.enumerate() if t not in before]
        if close:
            exe.close()
        else:
            del exe
        for thread in made:
            thread.join(20.0)
        assert not [t.name for t in made if t.is_alive()]

    once()
    gc.collect()
    tracemalloc.start()
    try:
        once()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(8):
            once()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 8 * 5_000


def test_temporaries_are_dropped_on_demand_and_by_count() -> None:
    built = net()
    scope = started(built)
    execution = static.ExecutionStrategy()
    execution.num_iteration_per_drop_scope = 2
    run = static.ParallelExecutor(False, built.loss.name, built.main, exec_strategy=execution, scope=scope)
    with pytest.raises(ValueError, match="before the first run"):
        run.drop_local_exe_scopes()

    def held() -> int:
        return sum(s.held_bytes for s in run._compiled._history.sessions)

    first = run.run([built.loss], {"X": ROWS[:4]})
    assert held() > 0
    run.drop_local_exe_scopes()
    assert held() == 0
    assert run._need_create_local_exe_scopes()
    run.run([built.loss], {"X": ROWS[:4]})
    assert not run._need_create_local_exe_scopes()
    assert held() == 0, "the second run was the one that drops"
    assert first[0].shape == (2,)


def test_a_dry_run_changes_nothing() -> None:
    execution = static.ExecutionStrategy()
    execution._dry_run = True
    training = Training(net(), execution=execution)
    before = training.value("w")
    assert training.step({"X": ROWS[:4]}) == [None]
    np.testing.assert_array_equal(before, training.value("w"))


def test_random_numbers_differ_by_place_and_repeat_with_the_seed() -> None:
    def masks() -> Any:
        paddle.seed(5)
        main, startup = static.Program(), static.Program()
        with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
            x = static.data("x", [None, 64], "float32")
            y = paddle.nn.functional.dropout(x, 0.5)
        compiled = static.CompiledProgram(main).with_data_parallel(places=["cpu", "cpu"])
        exe, scope = static.Executor(paddle.CPUPlace()), static.Scope()
        feed = {"x": np.ones((2, 64), np.float32)}
        return [exe.run(compiled, feed=feed, fetch_list=[y], scope=scope)[0] for _ in range(2)]

    first, second = masks()
    assert (first[0] != first[1]).any()
    assert (first != second).any()
    np.testing.assert_array_equal(masks(), [first, second])


def test_a_loaded_state_reaches_every_place(tmp_path: Any) -> None:
    training = Training(net())
    with static.scope_guard(training.scope):
        static.save(training.net.main, str(tmp_path / "model"))
        start = training.value("w")
        training.step({"X": ROWS[:4]})
        assert (training.value("w", 1) != start).any()
        static.load(training.net.main, str(tmp_path / "model"), training.exe)
    training.step({"X": np.zeros((4, 3), np.float32)})
    np.testing.assert_array_equal(training.value("w", 1), start)
    np.testing.assert_array_equal(training.value("w", 0), start)


def test_a_variable_that_is_kept_can_be_fed_one_row_for_all_places_or_one_each() -> None:
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None, 1])
        kept = main.global_block().create_var(name="kept", shape=[1], dtype="float32", persistable=True)
        y = x * kept
    compiled = static.CompiledProgram(main).with_data_parallel()
    exe, ones = static.Executor(paddle.CPUPlace()), np.ones((4, 1), np.float32)
    for fed, wanted in (([3.0], [3.0, 3.0, 3.0, 3.0]), ([3.0, 5.0], [3.0, 3.0, 5.0, 5.0])):
        feed = {"x": ones, "kept": np.array(fed, np.float32)}
        assert exe.run(compiled, feed=feed, fetch_list=[y])[0].reshape(-1).tolist() == wanted
