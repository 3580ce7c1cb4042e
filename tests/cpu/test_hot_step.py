"""The hot step: what a later run of a traced net costs, in calls of our own functions."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tstatic as paddle
from tstatic import static

pytestmark = pytest.mark.numpy_device

PACKAGE = os.path.dirname(paddle.__file__) + os.sep

# Of these, one per parameter is its update; one stands at the door of ``run`` (``ir/export.py:running``), where a call that is
# refused is taken back, and one makes a shortage of memory an error with its operator (``runtime/out_of_memory.py:run``).
MOST_CALLS = 50
MOST_OF_COMPILED = 55
"""The same of a CompiledProgram: its settings, the key of its strategy and its history are five more."""
MOST_TO_FIND = 16
"""Of these, calls that find the plan and check the feed."""


def own_calls(step: Any) -> list[str]:
    """Calls of functions of the package while ``step`` runs once, and of what stands in its functions (generators)."""
    found: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found.append(f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_code.co_name}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(before)
    return found


def trained(make: Any, compiled: bool = False) -> Any:
    """One step of two dense layers, ready to be run again; as a CompiledProgram if asked."""
    x = static.data("x", [4, 8])
    loss = paddle.mean(static.nn.fc(static.nn.fc(x, 16, activation="relu"), 1))
    make(0.01).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(static.default_startup_program())
    feed = {"x": np.ones((4, 8), np.float32)}
    main: Any = static.default_main_program()
    if compiled:
        main = static.CompiledProgram(main)

    def step() -> Any:
        return exe.run(main, feed=feed, fetch_list=[loss])

    for _ in range(3):
        step()
    return step


def test_a_later_run_makes_few_calls() -> None:
    found = own_calls(trained(paddle.optimizer.Adam))
    assert len(found) <= MOST_CALLS, "\n".join(found)
    assert found.index("runtime/session.py:run") <= MOST_TO_FIND, "\n".join(found)


@pytest.mark.parametrize(
    "make",
    [
        paddle.optimizer.SGD, paddle.optimizer.Momentum, paddle.optimizer.Adam, paddle.optimizer.AdamW,
        paddle.optimizer.Adamax, paddle.optimizer.Adagrad, paddle.optimizer.RMSProp,
    ],
)  # fmt: skip
def test_an_update_is_bound_once(make: Any) -> None:
    """A step works out neither names nor views nor buffers of a parameter's update."""
    found = [call for call in own_calls(trained(make)) if call.startswith("ops/")]
    parameters = len(static.default_main_program().all_parameters())
    assert len(found) <= 3 * parameters, found


def test_printing_a_program_makes_few_calls() -> None:
    trained(paddle.optimizer.Adam)
    main = static.default_main_program()
    str(main)  # fills what is kept per class and name
    lines = len(main.global_block().ops) + len(main.global_block().vars)
    # A data-parallel compile prints the program, for the digest that processes compare. 30 calls a line took a half longer.
    assert len(own_calls(lambda: str(main))) <= 14 * lines


def test_a_later_run_of_a_compiled_program_makes_few_calls_more() -> None:
    found = own_calls(trained(paddle.optimizer.SGD, compiled=True))
    assert len(found) <= MOST_OF_COMPILED, "\n".join(found)
