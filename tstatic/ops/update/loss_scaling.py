"""Loss scaling of mixed precision: unscale gradients and look for infinities, then move the scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.ir.checks import FLOATS, INTEGERS, check_dtype, check_one_element
from tstatic.ir.opdef import Attr, Case, Domain, OpDef, ValueRange, register
from tstatic.ir.ref import plain
from tstatic.ir.types import Meta, dtype_of
from tstatic.ops.base.low import flat_parts, store
from tstatic.tuned._common import BLOCK

Array = np.ndarray[Any, Any]


def _check_floats(op: str, xs: Sequence[Meta]) -> None:
    for x in xs:
        check_dtype(x, FLOATS, "X", op, fix="leave out this variable: only gradients are scaled, and they are floats")


# --------------------------------------------------------------------------------------------- check_finite_and_unscale
def _check_infer(xs: list[Meta], scale: Meta) -> tuple[list[Meta], Meta]:
    _check_floats("check_finite_and_unscale", xs)
    check_one_element(scale, "Scale", "check_finite_and_unscale")
    return list(xs), Meta((1,), dtype_of("bool"))


def _check_ref(xs: list[Array], scale: Array, outs: list[Array] | None, found: Array | None, *, scratch: Any) -> None:
    # A scale of 0, or one whose inverse overflows the values' type, leaves no gradient that an update could use.
    inverse = np.divide(1.0, float(scale.flat[0]))
    flags, work = scratch
    bad = not np.isfinite(inverse)
    for i, x in enumerate(xs):
        for part, values in flat_parts(x):
            size = part.stop - part.start
            # In the values' type the factor may overflow where the inverse does not.
            factor = values.dtype.type(inverse)
            bad = bad or not (np.isfinite(factor) and np.isfinite(values, flags[:size]).all())
            if outs is not None and outs[i] is not None:
                scaled = work[: size * values.itemsize].view(values.dtype)
                store(outs[i], part, np.multiply(values, factor, scaled))
    if found is not None:
        found.fill(bad)


def _check_lower(torch: Any, xs: list[Any], scale: Any) -> Any:
    inverse = 1.0 / scale.double().reshape(())
    outs, bad = [], ~torch.isfinite(inverse).reshape(1)
    for x in xs:
        wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        factor = inverse.to(wide)
        outs.append((x.to(wide) * factor).to(x.dtype))
        bad = bad | ~(torch.isfinite(factor) & torch.isfinite(x).all()).reshape(1)
    return outs, bad


def _check_scratch(xs: Sequence[Meta], scale: Meta, outs: Sequence[Meta], found: Meta) -> tuple[Meta, ...]:
    # Bytes: the work is viewed as float32 or float64, and the latter takes 8 for each element.
    return Meta((BLOCK,), dtype_of("bool")), Meta((8 * BLOCK,), dtype_of("uint8"))


register(
    OpDef(
        "check_finite_and_unscale",
        "X*, Scale -> Out*, FoundInfinite",
        infer=_check_infer,
        ref=plain(_check_ref, _check_scratch),
        lower=_check_lower,
        domain=Domain(
            cases=(
                Case(([(3, 4), (5,)], (1,))),
                Case(([()], ())),
                Case(([(0, 3), (2, 1, 3)], (1,))),
            ),
            values={"Scale": ValueRange(0.5, 8.0)},
            ulps=1,
        ),
        onnx="it is part of training in 16 bits",
    )
)


# -------------------------------------------------------------------------------------------------- update_loss_scaling
def _update_infer(xs: list[Meta], found: Meta, scale: Meta, good: Meta, bad: Meta) -> tuple[Any, ...]:
    op, counters = "update_loss_scaling", {"InGoodSteps": good, "InBadSteps": bad}
    _check_floats(op, xs)
    for name, meta in {"FoundInfinite": found, "PrevLossScaling": scale, **counters}.items():
        check_one_element(meta, name, op)
    for name, meta in counters.items():
        check_dtype(meta, INTEGERS, name, op, fix="count steps in an int32 Variable")
    return list(xs), scale, good, bad


def next_scale(
    found: bool,
    scale: float,
    good: int,
    bad: int,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
) -> tuple[float, int, int]:
    """Returns the scale and the counts of good and bad steps after a step; the scale never falls below 1 nor rises to infinity."""
    if found:
        bad += 1
        if bad >= decr_every_n_nan_or_inf:
            return max(scale * decr_ratio, 1.0), 0, 0
        return scale, 0, bad
    good += 1
    if good >= incr_every_n_steps:
        # The scale is kept in float32, whose largest number this is.
        grown = scale * incr_ratio
        return (grown if math.isfinite(grown) and grown <= 3.4028234663852886e38 else scale), 0, 0
    return scale, good, 0


def _update_ref(
    xs: list[Array],
    found: Array,
    scale: Array,
    good: Array,
    bad: Array,
    outs: list[Array] | None,
    out_scale: Array | None,
    out_good: Array | None,
    out_bad: Array | None,
    *,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
    stop_update: bool,
) -> None:
    overflow = bool(found.flat[0])
    for x, out in zip(xs, outs or (), strict=False):
        # Not a product with 0: that keeps NaN.
        if overflow:
            out.fill(0)
        else:
            np.copyto(out, x)
    new = (float(scale.flat[0]), int(good.flat[0]), int(bad.flat[0]))
    if not stop_update:
        new = next_scale(overflow, *new, incr_every_n_steps, decr_every_n_nan_or_inf, incr_ratio, decr_ratio)
    for value, target in zip(new, (out_scale, out_good, out_bad), strict=True):
        if target is not None:
            target.fill(value)


def _update_lower(
    torch: Any, xs: list[Any], found: Any, scale: Any, good: Any, bad: Any, *, incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int, incr_ratio: float, decr_ratio: float, stop_update: bool,
) -> Any:  # fmt: skip
    outs = [torch.where(found.reshape(()), torch.zeros_like(x), x) for x in xs]
    if stop_update:
        return outs, scale.clone(), good.clone(), bad.clone()
    overflow = found.reshape(scale.shape)
    more_bad, more_good = torch.where(overflow, bad + 1, 0), torch.where(overflow, 0, good + 1)
    shrink, grow = more_bad >= decr_every_n_nan_or_inf, more_good >= incr_every_n_steps
    small, large = torch.clamp(scale * decr_ratio, min=1.0), scale * incr_ratio
    new = torch.where(shrink, small, torch.where(grow & torch.isfinite(large), large, scale))
    zero = torch.zeros_like(good)
    counts = [torch.where(stop, zero, n).to(good.dtype) for stop, n in ((grow, more_good), (shrink, more_bad))]
    return outs, new, counts[0], counts[1]


def _at_least_one(value: int) -> str | None:
    return None if value >= 1 else "a number of steps of at least 1"


register(
    OpDef(
        "update_loss_scaling",
        "X*, FoundInfinite, PrevLossScaling, InGoodSteps, InBadSteps -> Out*, LossScaling, OutGoodSteps, OutBadSteps",
        attrs={
            "incr_every_n_steps": Attr(1000, "int", _at_least_one),
            "decr_every_n_nan_or_inf": Attr(2, "int", _at_least_one),
            "incr_ratio": 2.0,
            "decr_ratio": 0.5,
            "stop_update": False,
        },
        infer=_update_infer,
        ref=_update_ref,
        lower=_update_lower,
        state=(("PrevLossScaling", "LossScaling"), ("InGoodSteps", "OutGoodSteps"), ("InBadSteps", "OutBadSteps")),
        domain=Domain(
            cases=(
                Case(([(3, 4), (5,)], (1,), (1,), (1,), (1,)), {"incr_every_n_steps": 3, "decr_every_n_nan_or_inf": 2}),
                Case(([()], (), (), (), ()), {"incr_every_n_steps": 1, "decr_every_n_nan_or_inf": 1}),
                Case(([(0, 3)], (1,), (1,), (1,), (1,)), {"stop_update": True}),
                Case(([(2,)], (1,), (1,), (1,), (1,))),
            ),
            values={
                "FoundInfinite": ValueRange(dtype="bool"),
                "PrevLossScaling": ValueRange(0.5, 1e5),
                "InGoodSteps": ValueRange(0, 4, dtype="int32"),
                "InBadSteps": ValueRange(0, 3, dtype="int32"),
            },
            floats=("float32", "float64", "bfloat16"),
            ulps=1,
        ),
    )
)
