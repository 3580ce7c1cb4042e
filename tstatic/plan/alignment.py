"""Finds the values of a plan that do not begin at a multiple of 16 bytes: Triton compiles another kernel for those."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from tstatic.ir.frozen import FrozenOp
from tstatic.plan.plan import Plan

__all__ = ["ALIGNED", "unaligned"]

ALIGNED = 16
"""Bytes; Triton knows of a pointer whether they divide it."""


def unaligned(plan: Plan, values: Iterable[str]) -> frozenset[str]:
    """Returns those of some values that begin between two multiples of 16 bytes: views, and values within others.

    Arenas and variables begin at such multiples, and so do the copies that kernels read of views with gaps.

    Args:
        plan: The plan.
        values: Their names; those that the plan does not know are left out.
    """
    views = {step.op.outputs[0]: step.op for step in plan.steps if step.how == "view"}
    known: dict[str, tuple[Any, int]] = {}
    return frozenset(
        value
        for value in values
        if value in plan.storage and value not in plan.gapped and _begin(plan, value, views, known)[1] % ALIGNED
    )


def _begin(
    plan: Plan, value: str, views: dict[Any, FrozenOp], known: dict[str, tuple[Any, int]]
) -> tuple[Any, int]:  # fmt: skip
    """Returns an array that lies like a value, whose elements nobody reads or writes, and the value's distance from a multiple."""
    if value in known:
        return known[value]
    slot, op = plan.storage[value], views.get(value)
    made, at = None, 0
    if slot.kind == "view" and op is not None and op.definition.view is not None:
        source = op.inputs[0]
        assert isinstance(source, str)
        like, start = _begin(plan, source, views, known)
        if like is not None:
            view = partial(op.definition.view, **op.definition.pick(op.definition.view, op.attrs))
            made = view(like)
        # A device may have no view with strides that go back: the result has memory of its own.
        if made is not None and made.size and min(made.strides, default=0) >= 0:
            at = start + made.ctypes.data - like.ctypes.data
    elif slot.meta is not None and slot.meta.known:
        made = np.empty(slot.meta.shape, slot.meta.dtype.np)
        at = max(0, slot.offset) if slot.in_arena else 0
    known[value] = made, at
    return known[value]
