"""The sum of a gradient over several runs, in the order of the runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.ir.checks import FLOATS, check_dtype, check_one_element, check_same_shape
from tstatic.ir.opdef import Case, Domain, OpDef, ValueRange, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.types import Meta

Array = np.ndarray[Any, Any]


def _infer(x: Meta, total: Meta, first: Meta, hold: Meta) -> tuple[Meta, Meta]:
    check_dtype(x, FLOATS, "X", "merge_gradient")
    check_same_shape([x, total], ["X", "Sum"], "merge_gradient")
    check_one_element(first, "First", "merge_gradient")
    check_one_element(hold, "Hold", "merge_gradient")
    return x, total


def _ref(x: Array, total: Array, first: Array, hold: Array, out: Array | None, total_out: Array | None) -> None:
    wide = x.astype(total.dtype)  # 16-bit gradients are added in float32, as data parallelism does
    # The first gradient is copied: 0 + x would turn -0 into 0, and an infinity of earlier runs must not stay.
    merged = wide if bool(first.flat[0]) else total + wide
    if total_out is not None:
        np.copyto(total_out, merged)
    if out is not None:
        np.copyto(out, merged, casting="unsafe")


def _lower(torch: Any, x: Any, total: Any, first: Any, hold: Any) -> Any:
    wide = x.to(total.dtype)
    merged = torch.where(first.reshape(()), wide, total + wide)
    return merged.to(x.dtype), merged


register(
    OpDef(
        "merge_gradient",
        # Hold says that the run ends before the last gradient of a sum: data parallelism does not exchange it then.
        "X, Sum, First, Hold -> Out, SumOut",
        paddle=ABSENT,
        infer=_infer,
        ref=_ref,
        lower=_lower,
        shape_only=("Hold",),
        state=(("Sum", "SumOut"),),
        domain=Domain(
            cases=(Case(((3, 4), (3, 4), (1,), (1,))), Case(((), (), (), ())), Case(((0, 2), (0, 2), (1,), (1,)))),
            values={"First": ValueRange(dtype="bool"), "Hold": ValueRange(dtype="bool")},
            floats=("float32", "float64"),
            ulps=1,
        ),
    )
)
