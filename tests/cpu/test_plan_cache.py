"""The plans of an Executor: as many as fit into FLAGS_plan_cache_bytes, in one arena; what is removed gives its memory back."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tests.cpu.nets import regression, rows
from tests.cpu.test_hot_step import own_calls
from tstatic import devices, static
from tstatic.devices.cpu.buffer import Buffer
from tstatic.errors import FlagValueError
from tstatic.runtime.ahead import RunsAhead
from tstatic.runtime.sections import Sections
from tstatic.runtime.session import Session
from tstatic.static import compile as compiling
from tstatic.static.compile import plan_cache
from tstatic.static.compile.plan_cache import MOST_AGAIN, MOST_FAMILIES, CompileCache

SIZES = int(os.environ.get("TSTATIC_PLAN_SIZES", "500"))
"""Fifteen times the 33 sizes whose plans once pushed each other out."""
BOUNDED = int(os.environ.get("TSTATIC_PLAN_SIZES", "50"))
MOST_CALLS = 60
"""Calls of our functions in a run of a size that was fed before, but not last; ``test_hot_step`` bounds those of repeated ones."""

pytestmark = pytest.mark.numpy_device


def pointwise() -> tuple[Any, Any]:
    """A program of one operator."""
    main = static.Program()
    with static.program_guard(main):
        return main, static.data("x", [None, 2]) * 2.0


def trained() -> tuple[Any, Any, Any]:
    """An Executor that has initialised a small regression with Adam, its program and its loss."""
    main, startup, loss = regression(paddle.optimizer.Adam(0.01))
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    return exe, main, loss


def one_plan_bytes() -> int:
    """About what one plan of :func:`trained` keeps after a few runs."""
    exe, main, loss = trained()
    before = exe.plans.kept_bytes
    for n in (3, 3, 3, 4):
        exe.run(main, feed={"x": rows(n)}, fetch_list=[loss])
    return (exe.plans.kept_bytes - before) // 2


def whole(cache: CompileCache) -> bool:
    """Whether entries, families and bytes of a cache agree."""
    entries = cache._entries
    assert cache._kept_bytes == sum(kept.nbytes for kept in entries.values()) + sum(f.nbytes for f in cache._families)
    for one in cache._families:
        shared = [key for key in one.plans if entries[key].bound.exact is not None]
        assert one.sizes == len(shared), "a family forgets which sizes share its plan"
        assert bool(shared) == (one.any_size is not None)
        assert all(entries[key].bound.sessions is one.any_size.sessions for key in shared)
    assert {key for one in cache._families for key in one.plans} == set(entries)
    assert set(cache._relatives.values()) == set(cache._families)
    assert all(one.plans for one in cache._families)
    bound = [s for kept in entries.values() for s in kept.bound.sessions]
    users = {user for arenas in cache._arenas.values() for part in arenas._parts for user in part.users}
    assert users <= set(bound), "memory of a removed session is kept"
    return True


# --------------------------------------------------------------------------------------------------------------- look-ups
def test_a_size_that_was_fed_before_costs_a_lookup() -> None:
    """Guards against plans that push each other out when sizes are visited in turn: 33 sizes compiled in every step."""
    main, y = pointwise()
    exe = static.Executor(paddle.CPUPlace())
    for n in range(1, SIZES + 1):
        exe.run(main, feed={"x": rows(n, 2)}, fetch_list=[y])
    assert exe.plans.compilations == exe.plans.plans == SIZES

    def step(n: int) -> None:
        exe.run(main, feed={"x": rows(n, 2)}, fetch_list=[y])

    for n in range(1, SIZES + 1):
        step(n)
    assert exe.plans.compilations == SIZES, "a size was compiled again"
    assert exe.plans.hits == SIZES
    step(7)
    called = own_calls(lambda: step(8))
    assert not any("compile.py" in one or "pipeline.py" in one or ":bind" in one for one in called)
    assert len(called) <= MOST_CALLS, called


def test_another_size_of_a_program_is_not_simplified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the family: passes know no sizes, so they run once for a program, and again after an edit."""
    count: list[Any] = []
    right = compiling.pipeline.simplify
    monkeypatch.setattr(compiling.pipeline, "simplify", lambda *args: count.append(args) or right(*args))
    exe, main, loss = trained()
    count.clear()
    for n in (2, 3, 4, 3):
        exe.run(main, feed={"x": rows(n)}, fetch_list=[loss])
    assert len(count) == 1
    exe.run(main, feed={"x": rows(2)}, fetch_list=[])
    assert len(count) == 2, "another fetch list keeps other operators"
    with static.program_guard(main):
        paddle.mean(loss)
    exe.run(main, feed={"x": rows(2)}, fetch_list=[loss])
    assert len(count) == 3


# ------------------------------------------------------------------------------------------------------------------ bytes
@pytest.mark.parametrize("value", [0, -1, -(1 << 40)])
def test_a_bound_that_no_plan_fits_in_is_refused(value: int) -> None:
    with pytest.raises(FlagValueError, match="FLAGS_plan_cache_bytes") as found:
        paddle.set_flags({"FLAGS_plan_cache_bytes": value})
    assert "a number >= 1" in str(found.value)


def dense() -> tuple[Any, Any]:
    x = static.data("x", [None, 3])
    return static.nn.fc(static.nn.fc(x, 8, activation="relu"), 8), lambda n: {"x": rows(n)}


def convolutional() -> tuple[Any, Any]:
    x = static.data("x", [None, 3, 8, 8])
    y = static.nn.batch_norm(static.nn.conv2d(x, 4, 3), act="relu")
    return paddle.nn.functional.max_pool2d(y, 2, 2), lambda n: {"x": np.ones((n, 3, 8, 8), "float32")}


def attention() -> tuple[Any, Any]:
    x = static.data("x", [None, None, 8])
    layer = paddle.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    return layer(x), lambda n: {"x": np.ones((2, n, 8), "float32")}


def recurrent() -> tuple[Any, Any]:
    x = static.data("x", [None, None, 8])
    return paddle.nn.LSTM(8, 8)(x)[0], lambda n: {"x": np.ones((2, n, 8), "float32")}


@pytest.mark.parametrize("net", [dense, convolutional, attention, recurrent])
def test_what_plans_keep_is_estimated_within_a_factor_of_two(net: Any) -> None:
    """Guards the unit of the bound: bytes that tracemalloc measures, not a constant for each plan."""
    y, feed = net()
    loss = paddle.mean(y)
    paddle.optimizer.Adam(0.01).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())

    def round_of(first: int, count: int) -> None:
        for n in range(first, first + count):
            for _ in range(4):
                exe.run(feed=feed(n), fetch_list=[loss])

    round_of(2, 4)
    told, real = 0, 1 << 40
    for first in (10, 20):
        exe.run(feed=feed(2), fetch_list=[loss])
        gc.collect()
        before = exe.plans.kept_bytes
        tracemalloc.start()
        try:
            start = tracemalloc.get_traced_memory()[0]
            round_of(first, 5)
            exe.run(feed=feed(2), fetch_list=[loss])  # the last one is weighed when another one runs
            gc.collect()
            # The smaller of two: tables of the process grow once in a while.
            real = min(real, tracemalloc.get_traced_memory()[0] - start)
        finally:
            tracemalloc.stop()
        told = exe.plans.kept_bytes - before
    assert real / 2 < told < real * 2, f"{told} bytes told, {real} measured"


def test_a_low_bound_keeps_the_memory_bounded() -> None:
    """Guards what a removed plan holds: over thousands of sizes neither objects nor arenas pile up."""
    exe, main, loss = trained()
    each = one_plan_bytes()
    paddle.set_flags({"FLAGS_plan_cache_bytes": 10 * each})
    fresh = static.Executor(paddle.CPUPlace())

    def round_of(first: int, count: int) -> None:
        for n in range(first, first + count):
            exe.run(main, feed={"x": rows(n)}, fetch_list=[loss])
            assert exe.plans.kept_bytes <= 10 * each

    round_of(1, 20)
    gc.collect()
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        round_of(21, BOUNDED)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - start
    finally:
        tracemalloc.stop()
    # Beside plans, the process remembers how shapes broadcast, sums are cut and sizes compiled, up to a number of each.
    assert grown < min(each * BOUNDED / 2 + (1 << 20), 20 << 20), (grown, each)
    assert 3 <= exe.plans.plans <= 60
    assert exe.plans.compilations == BOUNDED + 21
    assert whole(exe._cache)
    held = [
        session
        for session in gc.get_objects()
        if type(session) is Session and session.setting.arenas in exe._cache._arenas.values()
    ]
    entries = exe._cache._entries.values()
    assert len(held) == len({kept.bound.sessions for kept in entries}), "a removed session is still alive"
    sizes = {kept.key for kept in entries if kept.bound.exact is not None}
    for session in held:
        assert session.sections is None or session.sections._fed.keys() <= sizes | {None}, (
            "a removed size is still bound"
        )
    test = main.clone(for_test=True)
    np.testing.assert_array_equal(
        exe.run(test, feed={"x": rows(5)}, fetch_list=[loss.name])[0],
        fresh.run(test, feed={"x": rows(5)}, fetch_list=[loss.name])[0],
    )


def test_plans_take_turns_in_one_arena() -> None:
    """Guards the largest part of a plan's memory: 40 sizes hold what the largest needs, not the sum."""
    main, y = pointwise()
    exe = static.Executor(paddle.CPUPlace())
    for n in [*range(1000, 1040), *range(1000, 1040)]:
        given = rows(n, 2)
        np.testing.assert_array_equal(exe.run(main, feed={"x": given}, fetch_list=[y])[0], given * 2)
    largest = max(kept.bound.compilation.first.plan.arena_bytes for kept in exe._cache._entries.values())
    assert largest <= exe.held_bytes <= 4 * largest
    (arenas,) = exe._cache._arenas.values()
    assert len(arenas._parts) <= 2
    exe.close()
    assert exe.held_bytes == 0


def test_a_removed_plan_gives_back_what_it_holds_though_somebody_refers_to_it() -> None:
    """Guards eviction itself: it frees a session's memory, and does not wait until nothing refers to the session."""
    main, y = pointwise()
    exe = static.Executor(paddle.CPUPlace())
    exe.run(main, feed={"x": rows(3, 2)}, fetch_list=[y])
    (session,) = next(iter(exe._cache._entries.values())).bound.sessions
    assert list(session.memories())
    paddle.set_flags({"FLAGS_plan_cache_bytes": 1})
    exe.run(main, feed={"x": rows(4, 2)}, fetch_list=[y])
    assert exe.plans.plans == 1
    assert not list(session.memories())
    assert session.bound is None


def test_programs_beyond_the_most_are_removed_with_all_their_plans() -> None:
    """Guards scopes and programs, whose bytes no plan knows: an Executor keeps those of a few alive."""
    exe = static.Executor(paddle.CPUPlace())
    main, y = pointwise()
    for _ in range(MOST_FAMILIES + 5):
        for n in (1, 2):
            exe.run(main, feed={"x": rows(n, 2)}, fetch_list=[y], scope=static.Scope())
    assert exe.plans.plans == MOST_FAMILIES
    assert whole(exe._cache)


def test_the_least_recently_used_plan_goes_first() -> None:
    each = one_plan_bytes()
    exe, main, loss = trained()
    paddle.set_flags({"FLAGS_plan_cache_bytes": 8 * each})
    for n in range(1, 30):
        exe.run(main, feed={"x": rows(n)}, fetch_list=[loss])
        exe.run(main, feed={"x": rows(1)}, fetch_list=[loss])  # used again and again, so it stays
    known = {shape[0] for key in exe._cache._entries for name, shape, _ in key.feed_signature[0] if name == "x"}
    assert {1, 29} <= known
    assert exe.plans.again == 0, "what is used again and again was removed meanwhile"
    assert 2 not in known


# ---------------------------------------------------------------------------------------------------------------- warning
def test_a_warning_says_once_when_plans_are_compiled_again(caplog: pytest.LogCaptureFixture) -> None:
    exe, main, loss = trained()
    with caplog.at_level(logging.WARNING, logger="tstatic"):
        for n in range(1, 50):
            exe.run(main, feed={"x": rows(n)}, fetch_list=[loss])
        assert not caplog.records, "sizes that are new draw no warning, however many there are"
        paddle.set_flags({"FLAGS_plan_cache_bytes": 4 * one_plan_bytes()})
        for n in (*range(100, 116), *range(100, 116)):
            exe.run(main, feed={"x": rows(n)}, fetch_list=[loss])
    said = [r.getMessage() for r in caplog.records if "compiled a plan again" in r.getMessage()]
    assert len(said) == 1
    assert said[0].startswith(f"{MOST_AGAIN} of the last ")
    assert "%), the last of them of <Program" in said[0]
    assert "FLAGS_plan_cache_bytes = " in said[0]
    assert exe.plans.again == 16
    assert [one.again for one in exe.compilations[-32:]] == [False] * 16 + [True] * 16
    assert "FLAGS_plan_cache_bytes" in exe.compilations[-1].reason


def test_explanations_say_how_runs_found_their_plans() -> None:
    main, y = pointwise()
    exe = static.Executor(paddle.CPUPlace())
    program = static.CompiledProgram(main)
    for n in (1, 2, 1, 2, 2):
        exe.run(program, feed={"x": rows(n, 2)}, fetch_list=[y])
    found = program.explain([y])
    assert "plans: 3 of 5 runs found their plan; 2 plans kept, " in str(found)
    assert found.to_dict()["plans"]["compilations"] == 2
    assert str(exe.plans).startswith("3 of 5 runs found their plan; 2 plans kept, ")


# ------------------------------------------------------------------------------------------------------- what can go wrong
def test_a_program_that_runs_inside_of_another_leaves_its_arena_alone() -> None:
    """Guards the shared arena, and the plan that is running: a Python function may run programs on the same Executor."""
    exe = static.Executor(paddle.CPUPlace())
    paddle.set_flags({"FLAGS_plan_cache_bytes": 1})  # each compilation removes all others that are not running
    inner, doubled = pointwise()

    def inside(x: Any) -> Any:
        for n in (1, 2, 3):
            given = np.full((n, 2), 7.0, "float32")
            np.testing.assert_array_equal(exe.run(inner, feed={"x": given}, fetch_list=[doubled])[0], given * 2)
        return np.asarray(x)

    x = static.data("x", [None, 2])
    kept = paddle.exp(x)
    passed = static.default_main_program().global_block().create_var(name="passed", dtype="float32", shape=[-1, 2])
    static.py_func(inside, x=kept, out=passed)
    y = passed + kept
    for n in (1, 5, 2, 5):
        given = rows(n, 2)
        np.testing.assert_array_equal(exe.run(feed={"x": given}, fetch_list=[y])[0], np.exp(given) * 2)
    assert whole(exe._cache)
    assert all(map(whole, exe._inner))
    assert len(exe._inner) == 1


@pytest.mark.parametrize("where", ["drop", "forget", "weigh", "record"])
def test_an_interrupt_leaves_the_cache_whole(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exe, main, loss = trained()
    paddle.set_flags(
        {"FLAGS_plan_cache_bytes": 3 * one_plan_bytes(), "FLAGS_plan_any_size": where in ("forget", "record")}
    )
    for n in range(1, 8):
        exe.run(main, feed={"x": rows(n)}, fetch_list=[loss])
    owner, name = {
        "drop": (Session, "drop"),
        "forget": (Sections, "forget"),
        "weigh": (plan_cache, "session_bytes"),
        "record": (plan_cache.Ledger, "add"),
    }[where]
    right = getattr(owner, name)

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(owner, name, right)
        signal.raise_signal(signal.SIGINT)
        return right(*args)

    monkeypatch.setattr(owner, name, interrupted)

    def more() -> None:
        for n in range(20, 30):
            exe.run(main, feed={"x": rows(n)}, fetch_list=[loss])

    with pytest.raises(KeyboardInterrupt):
        more()
    assert whole(exe._cache)
    for n in (1, 20, 21, 40):
        exe.run(main, feed={"x": rows(n)}, fetch_list=[loss])
    assert whole(exe._cache)


def test_threads_that_share_an_executor_get_their_results_while_plans_are_removed() -> None:
    main, y = pointwise()
    exe = static.Executor(paddle.CPUPlace())
    exe.run(main, feed={"x": rows(1, 2)}, fetch_list=[y])
    paddle.set_flags({"FLAGS_plan_cache_bytes": 3 * exe.plans.kept_bytes})
    wrong: list[Any] = []

    def work(seed: int) -> None:
        try:
            for n in np.random.default_rng(seed).integers(1, 25, 60):
                given = rows(int(n), 2, seed)
                np.testing.assert_array_equal(exe.run(main, feed={"x": given}, fetch_list=[y])[0], given * 2)
        except BaseException as error:  # told to the test's own thread
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert exe.plans.compilations > 25, "plans were removed and compiled again meanwhile"
    assert whole(exe._cache)


def test_work_that_an_interrupt_left_on_a_device_ends_before_another_plan_uses_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards the arena on devices whose work runs late: streams of another session may still hold work on it."""
    with devices.use("fake"):
        x = static.data("x", [None, 2])
        y = paddle.exp(paddle.exp(x) * 2.0) + 1.0
        exe = static.Executor(paddle.CPUPlace())
        sizes = (3, 4, 3, 4)
        right = [exe.run(feed={"x": rows(n, 2)}, fetch_list=[y])[0] for n in sizes]
        sessions = [kept.bound.sessions[0] for kept in exe._cache._entries.values()]

        def stop(self: RunsAhead) -> None:
            raise KeyboardInterrupt

        for turn in range(8):
            with monkeypatch.context() as patch:
                patch.setattr(RunsAhead, "settle", stop)
                with pytest.raises(KeyboardInterrupt):
                    exe.run(feed={"x": rows(sizes[turn % 2], 2)}, fetch_list=[y])
            stopped = exe._cache._entries[next(reversed(exe._cache._entries))].bound.sessions[0]
            n = sizes[(turn + 1) % 2]
            np.testing.assert_array_equal(exe.run(feed={"x": rows(n, 2)}, fetch_list=[y])[0], right[(turn + 1) % 2])
            assert not any(stream.items for stream in stopped.streams), "work of the interrupted run is still queued"
        assert len({id(session.arena) for session in sessions}) <= 2


def test_a_larger_plan_on_memory_that_stays_drops_what_is_bound_to_the_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards devices whose pages cannot be released: one arena at a time, and old plans bind to the larger when they return."""
    paddle.set_flags({"FLAGS_plan_any_size": False})
    monkeypatch.setattr(Buffer, "can_release", property(lambda self: False))
    main, y = pointwise()
    exe = static.Executor(paddle.CPUPlace())
    for n in (10, 2000, 10, 4000, 10, 2000, 4000):
        given = rows(n, 2)
        np.testing.assert_array_equal(exe.run(main, feed={"x": given}, fetch_list=[y])[0], given * 2)
        (arenas,) = exe._cache._arenas.values()
        assert len(arenas._parts) == 1
    assert exe.plans.compilations == 3
    assert exe.held_bytes == max(kept.bound.compilation.first.plan.arena_bytes for kept in exe._cache._entries.values())
