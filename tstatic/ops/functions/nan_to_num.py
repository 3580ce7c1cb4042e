"""Numbers in the place of NaN and infinities."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from tstatic.ir.build import check_variable
from tstatic.ir.checks import FLOATS
from tstatic.ir.opdef import export
from tstatic.ir.program import Variable
from tstatic.ops.base.shapes import emit_one
from tstatic.ops.elementwise.logic import isinf, isnan, logical_and, where
from tstatic.ops.shape.number_of import number_of


@export("tensor.nan_to_num", "Variable.nan_to_num", inplace=True)
def nan_to_num(
    x: Variable, nan: Any = 0.0, posinf: Any = None, neginf: Any = None, name: str | None = None
) -> Variable:
    """Replaces NaN and infinities by numbers.

    Args:
        x: Floats of any shape.
        nan: Replaces NaN; a number, or a Variable with one element.
        posinf, neginf: Replace the infinities, likewise; by default the largest and the smallest number of the dtype.
        name: Name of the layer.

    Example:
        >>> x = paddle.to_tensor([1.0, float("nan"), float("inf")])
        >>> y = paddle.nan_to_num(x, nan=-1.0, posinf=9.0)
        >>> static.Executor().run(fetch_list=[y])[0]
        array([ 1., -1.,  9.], dtype=float32)
    """
    x = check_variable(x, "x", "nan_to_num", FLOATS)
    # ml_dtypes knows the limits of bfloat16 too.
    largest = float(ml_dtypes.finfo(x.dtype.np).max)
    high, low = largest if posinf is None else posinf, -largest if neginf is None else neginf

    def constant(value: Any) -> Variable:
        if isinstance(value, Variable):
            number = number_of(value, "nan, posinf and neginf", "nan_to_num", x.dtype.name, (1,) * len(x.shape))
            return emit_one("elementwise_add", {"X": emit_one("fill_any_like", {"X": x}, {"value": 0.0}), "Y": number})
        return emit_one("fill_any_like", {"X": x}, {"value": value})

    endless = isinf(x)
    zero = constant(0.0)
    found = where(isnan(x), constant(nan), x)
    found = where(logical_and(endless, x > zero), constant(high), found)
    result: Variable = where(logical_and(endless, x < zero), constant(low), found, name=name)
    return result
