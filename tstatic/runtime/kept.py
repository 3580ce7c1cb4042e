"""Estimates the bytes of the host that a plan and its session keep, so that caches can be bounded by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tstatic.devices.cpu.pool import Pool
from tstatic.ir.recording import CALL_BYTES, Call
from tstatic.plan.plan import Plan
from tstatic.runtime.session import Session

# Measured with tracemalloc for dense, convolutional, attention and recurrent nets (tests/cpu/test_plan_cache.py). A value has its
# metadata before and after fusion, a place, a lifetime and an array; a step its op, its spans and the calls' tuples.
PLAN_BYTES = 8_000
STEP_BYTES = 600
VALUE_BYTES = 240


def plan_bytes(plan: Plan) -> int:
    """Returns about how many bytes a plan keeps."""
    return PLAN_BYTES + STEP_BYTES * len(plan.steps) + VALUE_BYTES * len(plan.storage)


def session_bytes(session: Session) -> int:
    """Returns about how many bytes a bound session keeps, beside its arena: calls, arrays of its own, what replicas exchange."""
    exchanged = () if session.communicator is None else session.communicator.buffers
    own = session.own_bytes + sum(memory.held_bytes for memory in exchanged)
    if session.sections is not None:
        own += session.sections.kept_bytes
    return own + sum(map(_calls_bytes, session.calls.values()))


def _calls_bytes(calls: Sequence[Call]) -> int:
    return sum(CALL_BYTES + _function_bytes(function, args) for function, args in calls)


def _function_bytes(function: Any, args: tuple[Any, ...]) -> int:
    """Returns the bytes of what a call refers to: the calls that it makes itself, in this thread or in several."""
    owner = getattr(function, "__self__", function)
    if isinstance(owner, Pool):
        return sum(_calls_bytes(task) for thread in args[0] for task in thread)
    known = getattr(owner, "kept_bytes", None)
    return known() if known is not None else 0


__all__ = ["plan_bytes", "session_bytes"]
