"""Estimates the bytes of the host that a plan and its session keep, so that caches can be bounded by bytes."""

from __future__ import annotations

from tstatic.plan.plan import Plan
from tstatic.runtime.session import Session

# Measured with tracemalloc for dense, convolutional, attention and recurrent nets (tests/cpu/test_plan_cache.py). A value has its
# metadata before and after fusion, a place, a lifetime and an array; a step its op, its spans and the calls' tuples.
PLAN_BYTES = 8_000
STEP_BYTES = 600  # measured with the others, above
VALUE_BYTES = 240  # the same


def plan_bytes(plan: Plan) -> int:
    """Returns about how many bytes a plan keeps."""
    return PLAN_BYTES + STEP_BYTES * len(plan.steps) + VALUE_BYTES * len(plan.storage)


def session_bytes(session: Session) -> int:
    """Returns about how many bytes a bound session keeps, beside its arena: calls, arrays of its own, what replicas exchange."""
    exchanged = () if session.communicator is None else session.communicator.buffers
    own = sum(memory.held_bytes for memory in exchanged)
    bound = session.bound
    if bound is None:
        return own
    return own + bound.own_bytes + bound.sections.kept_bytes + sum(one.kept_bytes for one in bound.schedules.values())


__all__ = ["plan_bytes", "session_bytes"]
