"""Guards hold for the thread that enters them: programs, scope, names and marks."""

from __future__ import annotations

import contextvars
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import tstatic as paddle
from tests.helpers.patience import HANG
from tstatic import static
from tstatic.guards import Guarded
from tstatic.utils import unique_name


def in_threads(count: int, task: Any) -> list[Any]:
    """Runs ``task(number, barrier)`` in so many threads at once."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        try:
            results[number] = task(number, barrier)
        except BaseException as error:
            barrier.abort()
            results[number] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in results:
        if isinstance(one, BaseException):
            raise one
    return results


def test_threads_build_their_own_programs_at_the_same_time() -> None:
    def build(number: int, barrier: threading.Barrier) -> tuple[str, str, int]:
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), unique_name.guard(), static.scope_guard(static.Scope()):
            with static.name_scope(f"net{number}"), static.device_guard("cpu" if number else "gpu:0"):
                h = static.data("x", [None, 4])
                for _ in range(5):
                    barrier.wait(HANG)
                    h = static.nn.fc(h, 4, activation="tanh")
            barrier.wait(HANG)
            static.global_scope().var(f"of{number}")
            names = static.global_scope().local_var_names()
            op = main.global_block().ops[-1]
            assert op.attr("op_namescope") == f"/net{number}/"
            assert op.attr("op_device") == ("cpu" if number else "gpu:0")
        return h.name, ",".join(names), len(main.global_block().ops)

    results = in_threads(3, build)
    assert {(name, count) for name, _, count in results} == {(results[0][0], results[0][2])}
    assert [names for _, names, _ in results] == ["of0", "of1", "of2"]
    assert static.default_main_program().global_block().ops == []
    assert static.global_scope().local_var_names() == []


def test_threads_outside_any_guard_share_the_default_programs_and_names() -> None:
    main = static.default_main_program()
    with static.program_guard(static.Program()), static.name_scope("here"):
        assert in_threads(1, lambda number, barrier: static.default_main_program()) == [main]
    made = in_threads(4, lambda number, barrier: [unique_name.generate("v") for _ in range(200)])
    assert sorted(name for names in made for name in names) == sorted(f"v_{i}" for i in range(800))


def test_replicas_see_the_guards_of_the_thread_that_runs_them() -> None:
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append((static.global_scope(), static.default_main_program()))
        return x

    main, scope = static.Program(), static.Scope()
    with static.program_guard(main), static.scope_guard(scope):
        x = static.data("x", [None, 2])
        out = main.current_block().create_var(name="out", dtype="float32", shape=[-1, 2])
        static.py_func(look, x, out)
        compiled = static.CompiledProgram(main).with_data_parallel(places=[paddle.CPUPlace()] * 2)
        static.Executor("cpu").run(compiled, feed={"x": [[1.0, 2.0], [3.0, 4.0]]}, fetch_list=[out])
    assert seen == [(scope, main)] * 2


def test_a_block_counts_for_the_object_that_it_is_of_alone() -> None:
    guarded = Guarded("mark", "shared")
    one, other = object(), object()
    with guarded.inside("of one", one), guarded.inside("of other", other), guarded.inside("of one, later", one):
        assert [guarded.get(of) for of in (one, other, None)] == ["of one, later", "of other", "shared"]
        with guarded.inside("of none"):
            assert [guarded.get(of) for of in (one, other, None)] == ["of one, later", "of other", "of none"]
    assert [guarded.get(of) for of in (one, other, None)] == ["shared"] * 3


def test_switching_inside_a_block_ends_with_it_and_outside_it_is_for_all() -> None:
    one = Guarded("one", "a")
    assert one.switch("b") == "a"
    with one.inside("c"):
        assert one.switch("d") == "c"
        assert one.get() == "d"
        assert in_threads(1, lambda number, barrier: one.get()) == ["b"]
    assert one.get() == "b"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same thread", "another thread"])
def test_a_generator_that_holds_a_guard_takes_away_its_own_block_alone(elsewhere: bool) -> None:
    one = Guarded("one", "a")

    def hold() -> Iterator[None]:
        with one.inside("held"):
            yield

    generator = hold()
    next(generator)
    with one.inside("inner"):
        if elsewhere:
            box = [generator]
            del generator
            in_threads(1, lambda number, barrier: (box.clear(), gc.collect()))
        else:
            generator.close()  # type: ignore[attr-defined]
        assert one.get() == "inner"
    assert one.get() == ("held" if elsewhere else "a")
    assert contextvars.Context().run(one.get) == "a"
