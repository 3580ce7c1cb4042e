"""Values are written at one point: an exception at any moment of a load leaves all of the old values or all of the new."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.interrupts import Break, interrupts
from tstatic import fluid, static
from tstatic.errors import DTypeError, FeedTypeError, ShapeError
from tstatic.runtime import random as seeds
from tstatic.runtime.assign import assign

OLD, NEW = 1.0, 2.0


def _program(count: int) -> Any:
    main = static.Program()
    for i in range(count):
        main.global_block().create_var(name=f"v{i}", shape=[4], dtype="float32", persistable=True)
    return main


def _fill(program: Any, value: float, scope: Any = None) -> None:
    scope = scope or static.global_scope()
    for var in program.list_vars():
        scope.var(var.name).get_tensor().set(np.full(4, value, "float32"))


def _found(program: Any, scope: Any = None) -> set[float]:
    scope = scope or static.global_scope()
    return {float(x) for var in program.list_vars() for x in np.array(scope.find_var(var.name).get_tensor())}


def _broken_at(opcode: int, work: Callable[[], Any]) -> bool:
    """Runs ``work`` and raises before its ``opcode``-th bytecode instruction; whether there were so many."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        if "tstatic" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == opcode:
                sys.settrace(None)
                raise Break
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Break:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_exception_before_any_instruction_leaves_all_or_nothing() -> None:
    outcomes = set()
    for opcode in range(1, 5000):
        scope = static.Scope()
        for name, value in (("same", np.full(4, OLD)), ("reshaped", np.full(2, OLD)), ("also", np.full(4, OLD))):
            scope.var(name).get_tensor().set(value)
        bound = scope.array("same")
        layout = scope.layout
        new = {name: np.full(4, NEW) for name in ("same", "reshaped", "fresh", "also")}
        broken = _broken_at(opcode, lambda scope=scope, new=new: assign(scope, new, {7: (1, 5)}))
        values = {name: None if scope.array(name) is None else float(scope.array(name)[0]) for name in new}
        done = values["same"] == NEW
        assert values == (dict.fromkeys(new, NEW) if done else dict.fromkeys(new, OLD) | {"fresh": None})
        assert scope.runs == ({7: (1, 5)} if done else {})
        assert scope.array("same") is bound, "what plans are bound to stays"
        assert not done or scope.layout > layout, "plans look for the new storage"
        assert scope.lock.acquire(blocking=False)
        outcomes.add(done)
        if not broken:
            break
    assert outcomes == {False, True}
    assert opcode > 100


DATA = [b""]
WAYS: dict[str, Callable[[Any, Path, Any], Any]] = {
    "static.load": lambda main, folder, state: static.load(main, str(folder / "m")),
    "load_vars": lambda main, folder, state: fluid.io.load_persistables(None, str(folder), main, "all"),
    "set_program_state": lambda main, folder, state: static.set_program_state(main, state),
    "set_state_dict": lambda main, folder, state: main.set_state_dict(state),
    "deserialize_persistables": lambda main, folder, state: static.deserialize_persistables(main, DATA[0], None),
}


# A handler may raise in a callback of the garbage collector, where Python can only print what it raised.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", WAYS)
def test_a_signal_at_any_moment_of_a_load_leaves_all_or_nothing(tmp_path: Path, way: str) -> None:
    main = _program(150)
    _fill(main, NEW)
    static.save(main, str(tmp_path / "m"))
    fluid.io.save_persistables(None, str(tmp_path), main, "all")
    DATA[0] = (tmp_path / "all").read_bytes()
    state = {var.name: np.full(4, NEW, "float32") for var in main.list_vars()}

    def check() -> None:
        assert len(_found(main)) == 1
        _fill(main, OLD)

    WAYS[way](main, tmp_path, state)  # imports what is imported late
    interrupts(lambda: WAYS[way](main, tmp_path, state), check, 25)
    WAYS[way](main, tmp_path, state)
    assert _found(main) == {NEW}


@pytest.mark.parametrize("way", ["set_program_state", "set_state_dict"])
def test_values_that_are_views_of_each_other_are_exchanged(way: str) -> None:
    main = _program(2)
    _fill(main, OLD)
    scope = static.global_scope()
    scope.var("v1").get_tensor().set(np.full(4, NEW, "float32"))
    WAYS[way](main, Path(), {"v0": scope.array("v1"), "v1": scope.array("v0")})
    assert scope.array("v0").tolist() == [NEW] * 4
    assert scope.array("v1").tolist() == [OLD] * 4


class _Raises:
    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("not today")


@pytest.mark.parametrize("way", ["set_program_state", "set_state_dict"])
def test_a_value_that_cannot_be_read_leaves_all_values(way: str) -> None:
    main = _program(2)
    _fill(main, OLD)
    for bad in (_Raises(), [[1.0], [2.0, 3.0]], object(), "text"):
        with pytest.raises((FeedTypeError, DTypeError, ShapeError), match="v1"):
            WAYS[way](main, Path(), {"v0": np.full(4, NEW, "float32"), "v1": bad})
        assert _found(main) == {OLD}


def test_values_of_a_parent_scope_are_written_there_and_new_ones_here() -> None:
    main = _program(2)
    parent = static.Scope()
    parent.var("v0").get_tensor().set(np.full(4, OLD, "float32"))
    kid = parent.new_scope()
    main.set_state_dict({f"v{i}": np.full(4, NEW, "float32") for i in range(2)}, kid)
    assert parent.array("v0").tolist() == [NEW] * 4
    assert parent.find_var("v1") is None
    assert kid.array("v1").tolist() == [NEW] * 4


def test_the_run_count_comes_with_the_values(tmp_path: Path) -> None:
    main = _program(1)
    _fill(main, OLD)
    static.global_scope().runs[main.uid] = (seeds.epoch(), 11)
    static.save(main, str(tmp_path / "m"))
    static.global_scope().runs.clear()
    static.load(main, str(tmp_path / "m"))
    assert static.global_scope().runs[main.uid] == (seeds.epoch(), 11)
