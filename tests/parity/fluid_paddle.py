"""Paddle 1.8.5 under the names that `runner.py` uses of a Paddle 2.

Runs on Python 3.7 in `.venv-fluid`; the calls themselves are of `paddle.fluid`, which is passed on as it is.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from paddle import fluid

CPUPlace = fluid.CPUPlace
ParamAttr = fluid.ParamAttr
utils = SimpleNamespace(unique_name=fluid.unique_name)
static = SimpleNamespace(
    Executor=fluid.Executor,
    Program=fluid.Program,
    Scope=fluid.core.Scope,
    Variable=fluid.framework.Variable,
    data=fluid.data,
    default_main_program=fluid.default_main_program,
    default_startup_program=fluid.default_startup_program,
    global_scope=fluid.global_scope,
    gradients=fluid.gradients,
    program_guard=fluid.program_guard,
    scope_guard=fluid.scope_guard,
)


def enable_static() -> None:
    """Does nothing: Paddle 1.8 starts in static mode."""


def seed(number: int) -> None:
    """Does nothing: the random numbers of Paddle 1.8 belong to its programs."""
    del number


def sum(x: Any) -> Any:
    """Returns the sum of all elements."""
    return fluid.layers.reduce_sum(x)
