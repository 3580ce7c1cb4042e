"""The log topic ``compile`` says where the time of a plan's first step went, and nothing where nobody asks."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static
from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.engine import cache
from tstatic.runtime import timeline


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "tstatic.first_step"]


def test_the_first_step_of_each_plan_has_one(caplog: pytest.LogCaptureFixture) -> None:
    y = paddle.tanh(static.data("x", [None, 3]) * 2.0)
    exe = static.Executor(paddle.CPUPlace())

    def run(rows: int) -> list[str]:
        caplog.clear()
        exe.run(feed={"x": np.ones((rows, 3), "float32")}, fetch_list=[y])
        return lines(caplog)

    assert run(2) == [], "nobody asks"
    with static.program_guard(static.Program(), static.Program()), caplog.at_level(logging.DEBUG, "tstatic.first_step"):
        y = paddle.tanh(static.data("x", [None, 3]) * 2.0)
        head, *parts = run(2)
        assert "the first step of <Program" in head
        assert [one.split(": ", 1)[1] for one in parts] == [
            "plan", "upload", "bind operators and kernels", "first launch, and the wait for its results",
        ]  # fmt: skip
        begun = [float(one.split()[1]) for one in parts]
        assert begun == sorted(begun)
        assert run(2) == [], "the second step is no first one"


def test_kernels_that_are_compiled_beside_it_have_a_line(caplog: pytest.LogCaptureFixture) -> None:
    class Batch:
        began, ended, waited, jobs = 1.0, 3.5, 0.25, (1,)

        def __str__(self) -> str:
            return "2 of 2 kernels compiled in 2 processes"

    assert timeline.start() is None
    with caplog.at_level(logging.DEBUG, "tstatic.first_step"):
        line = timeline.start()
        assert line is not None
        timeline.kernels(Batch())
        timeline.kernels(None)
        line.tell("program")
    assert any(
        "for   2.500 s: kernels beside it: 2 of 2 kernels compiled in 2 processes; 0.250 s were waited" in one
        for one in lines(caplog)
    )


def test_kernels_with_the_same_functions_load_one_module() -> None:
    """Guards the first step of nets with many dropouts: each would load a module of its own."""

    def module(code: str, sizes: int, name: str) -> tuple[str, str]:
        return cache.shared(cast(Kernel, SimpleNamespace(code=code, text=f"{code}SIZES = {sizes}\n", name=name)))

    first = module("# the same functions\n", 1, "dropout_1")
    assert module("# the same functions\n", 2, "dropout_2") == first
    assert module("# other functions\n", 1, "dropout_3") != first
