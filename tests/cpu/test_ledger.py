"""The ledger of compilations: what changed in the key, from what to what, how long it took, and the limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.errors import ProgramError


def feed(rows: int) -> dict[str, Any]:
    return {"x": np.ones((rows, 3), "float32")}


@pytest.fixture
def y() -> Any:
    return paddle.exp(static.data("x", [None, 3]) * 2.0 + 1.0)


def test_each_compilation_says_what_changed_and_what_it_cost(y: Any) -> None:
    exe = static.Executor("cpu")
    main = static.default_main_program()
    exe.run(feed=feed(2), fetch_list=[y])
    exe.run(feed=feed(2), fetch_list=[y])
    assert [(r.number, r.reason, r.changes) for r in exe.compilations] == [(1, "first run", ())]
    exe.run(feed=feed(4), fetch_list=[y])
    build = static.BuildStrategy()
    build.enable_auto_fusion = True
    exe.run(static.CompiledProgram(main, build), feed=feed(4), fetch_list=[y])
    exe.run(feed=feed(4), fetch_list=[])
    paddle.set_flags({"FLAGS_check_nan_inf": True})
    exe.run(feed=feed(4), fetch_list=[y])
    paddle.set_flags({"FLAGS_check_nan_inf": False})
    exe.run(feed=feed(4), fetch_list=[y], scope=static.Scope())
    changes = [[str(c) for c in r.changes] for r in exe.compilations[1:]]
    assert changes[0] == ["feed 'x': (2, 3) float32 -> (4, 3) float32"]
    assert "build_strategy.enable_auto_fusion: False -> True" in changes[1]
    assert changes[2] == [f"fetch list: {y.name} -> nothing else"]
    assert changes[3] == ["FLAGS_check_nan_inf: False -> True"]
    assert changes[4] == ["scope: one scope -> another scope"]
    assert [r.number for r in exe.compilations] == [1, 2, 3, 4, 5, 6]
    assert all(r.seconds > 0 for r in exe.compilations)


def test_explanations_have_the_ledger_of_their_program(y: Any) -> None:
    compiled = static.CompiledProgram(static.default_main_program())
    assert "compiled" not in str(compiled.explain([y]))
    exe = static.Executor("cpu")
    for rows in (1, 5):
        exe.run(compiled, feed=feed(rows), fetch_list=[y])
    found = compiled.explain([y])
    assert [r.number for r in compiled.compilations] == [1, 2]
    assert "compiled 2 times in " in str(found)
    assert "(x: (1, 3) float32 -> (5, 3) float32)" in str(found)
    assert "    feed 'x': (1, 3) float32 -> (5, 3) float32" in found.to_text(verbose=True).splitlines()
    assert found.to_dict()["compilations"][1]["changes"] == (
        {"part": "feed 'x'", "old": "(1, 3) float32", "new": "(5, 3) float32"},
    )


def test_the_limit_raises_with_the_reasons_and_leaves_the_executor_usable(y: Any) -> None:
    exe = static.Executor("cpu")
    paddle.set_flags({"FLAGS_max_recompiles": 2})
    for rows in (1, 2, 3):
        exe.run(feed=feed(rows), fetch_list=[y])
    with pytest.raises(ProgramError, match="FLAGS_max_recompiles = 2") as found:
        exe.run(feed=feed(4), fetch_list=[y])
    assert "x: (2, 3) float32 -> (3, 3) float32" in str(found.value)
    assert "x: (3, 3) float32 -> (4, 3) float32" in str(found.value)
    assert len(exe.compilations) == 3
    exe.run(feed=feed(3), fetch_list=[y])
    # Other programs have a count of their own.
    with static.program_guard(static.Program(), static.Program()):
        z = static.data("x", [None, 3]) + 1.0
        exe.run(z.block.program, feed=feed(4), fetch_list=[z])
