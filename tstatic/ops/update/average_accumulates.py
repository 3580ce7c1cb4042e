"""The update of sums over a window of steps, whose mean is an average of a parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.checks import FLOATS, check_dtype, check_has_shape, check_one_element
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, register
from tstatic.ir.traits import Numbers
from tstatic.ir.types import Meta

Array = np.ndarray[Any, Any]
OP = "average_accumulates"
ROLL = 16384
"""After so many updates the first sum is added to the second: small and large numbers lose less when they are added apart."""


def _infer(param: Meta, *rest: Meta) -> tuple[Meta, ...]:
    sums, counts = rest[:3], rest[3:]
    check_dtype(param, FLOATS, "param", OP)
    for i, one in enumerate(sums, 1):
        check_has_shape(one, param.shape, f"in_sum_{i}", OP, why="that of the parameter", fix="make sums of its shape")
        check_dtype(one, (param.dtype.name,), f"in_sum_{i}", OP, fix="make sums of the parameter's dtype")
    for name, one in zip(("in_num_accumulates", "in_old_num_accumulates", "in_num_updates"), counts, strict=True):
        check_one_element(one, name, OP)
        check_dtype(one, ("int64",), name, OP, fix="count steps in an int64 Variable")
    return (*sums, *counts)


def _counted(
    number: int, old: int, updates: int, average_window: float, max_average_window: int, min_average_window: int
) -> tuple[int, int, int, bool, bool]:
    """Returns the new counts, whether the first sum moves to the second, and whether the window ends."""
    updates, number = updates + 1, number + 1
    # As in Paddle the length is a product in float32, cut to an integer.
    length = int(np.float32(updates) * np.float32(average_window))
    ends = number >= min_average_window and number >= min(max_average_window, length)
    return (
        (0, number, updates, updates % ROLL == 0, True) if ends else (number, old, updates, updates % ROLL == 0, False)
    )


def _ref(
    param: Array, one: Array, two: Array, three: Array, number: Array, old: Array, updates: Array,
    out_one: Array, out_two: Array, out_three: Array, out_number: Array, out_old: Array, out_updates: Array, *,
    average_window: float, max_average_window: int, min_average_window: int,
) -> None:  # fmt: skip
    window = average_window, max_average_window, min_average_window
    *counts, rolls, ends = _counted(int(number.item()), int(old.item()), int(updates.item()), *window)
    np.add(one, param, out_one)
    _keep(two, out_two)
    if rolls:
        np.add(out_two, out_one, out_two)
        out_one.fill(0)
    if ends:
        # The finished window, from which averages are taken while the next one begins.
        np.add(out_one, out_two, out_three)
        out_one.fill(0)
        out_two.fill(0)
    else:
        _keep(three, out_three)
    for value, out in zip(counts, (out_number, out_old, out_updates), strict=True):
        out.fill(value)


def _keep(old: Array, new: Array) -> None:
    if old is not new and not (old.ctypes.data == new.ctypes.data and old.strides == new.strides):
        np.copyto(new, old)


def _lower(
    torch: Any, param: Any, one: Any, two: Any, three: Any, number: Any, old: Any, updates: Any, *,
    average_window: float, max_average_window: int, min_average_window: int,
) -> Any:  # fmt: skip
    updates, number = updates + 1, number + 1
    enough = torch.clamp((updates.float() * average_window).long(), max=max_average_window)
    ends = (number >= min_average_window) & (number >= enough)
    rolls = (updates % ROLL == 0).reshape(())
    one = one + param
    two, one = torch.where(rolls, two + one, two), torch.where(rolls, 0, one)
    whole = ends.reshape(())
    sums = torch.where(whole, 0, one), torch.where(whole, 0, two), torch.where(whole, one + two, three)
    return (*sums, torch.where(ends, 0, number), torch.where(ends, number, old), updates)


def _at_least_one(value: int) -> str | None:
    return None if value >= 1 else "a number of steps of at least 1"


STATE: Sequence[tuple[str, str]] = tuple(
    (f"in_{name}", f"out_{name}")
    for name in ("sum_1", "sum_2", "sum_3", "num_accumulates", "old_num_accumulates", "num_updates")
)

register(
    OpDef(
        OP,
        "param, in_sum_1, in_sum_2, in_sum_3, in_num_accumulates, in_old_num_accumulates, in_num_updates "
        "-> out_sum_1, out_sum_2, out_sum_3, out_num_accumulates, out_old_num_accumulates, out_num_updates",
        attrs={
            "average_window": 0.0,
            "max_average_window": Attr(kind="int", check=_at_least_one),
            "min_average_window": Attr(10000, "int"),
        },
        infer=_infer,
        ref=_ref,
        lower=_lower,
        state=tuple(STATE),
        inplace=tuple(STATE),
        traits=(Numbers(("in_num_accumulates", "in_old_num_accumulates", "in_num_updates")),),
        update=True,
        domain=Domain(
            cases=tuple(
                Case((s, s, s, s, (1,), (1,), (1,)), {"average_window": 0.15, "max_average_window": most, "min_average_window": 2})
                for s, most in (((3, 4), 1), ((), 3), ((0, 3), 9), ((129,), 2))
            ),
            values={
                "in_num_accumulates": ValueRange(0, 4, dtype="int64"),
                "in_old_num_accumulates": ValueRange(0, 4, dtype="int64"),
                # On both sides of the step at which the first sum moves.
                "in_num_updates": ValueRange(ROLL - 3, ROLL, dtype="int64"),
            },
            ulps=2,
        ),
    )
)  # fmt: skip
