"""Parts of tensor arrays: runs of elements, which are arrays again, and single elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from tstatic.errors import IndexRangeError, ShapeError
from tstatic.ir.build import as_variable, check_variable, emit
from tstatic.ir.checks import INTEGERS, check_one_element
from tstatic.ir.opdef import GradOp, OpDef, register
from tstatic.ir.paddle_form import ABSENT
from tstatic.ir.program import Variable
from tstatic.ir.tensor_array import KIND, TensorArray
from tstatic.ir.types import Meta, int64
from tstatic.ops.control.tensor_array import WRITTEN, array_read

END = 2**31 - 1
"""The end of every array, whatever its length."""


def _sliced(array: Any, start: Any, end: Any, out: Any = None, place: Any = None) -> list[Any]:
    bounds = [int(np.asarray(bound).reshape(())) for bound in (start, end)]
    # A range applies Python's rules for negative bounds and those beyond the end.
    run = range(len(array))[slice(*bounds)]
    if not run:
        raise IndexRangeError(
            "a slice of a tensor array holds no element",
            expected=f"a start before the end, among {len(array)} elements",
            received=f"[{bounds[0]}:{bounds[1]}]",
            fix="see array_length(array)",
            op="slice_array",
        )
    return [TensorArray(array[run.start : run.stop]), np.array([run.start, len(array)])]


def _sliced_grad(place: Any, dout: Any, *outs: Any) -> list[Any]:
    start, length = (int(n) for n in place)
    # None is a gradient of 0: nothing arrives for the elements outside.
    rows: list[Any] = [None] * length
    rows[start : start + len(dout)] = dout
    return [TensorArray(rows)]


register(OpDef(
    "slice_array", "X, Start, End -> Out, Place~", infer=lambda array, start, end: (array, Meta((2,), int64)), ref=_sliced,
    dynamic=WRITTEN, paddle=ABSENT,
    grad=GradOp("Place, Out@GRAD -> X@GRAD", ref=_sliced_grad, infer=lambda place, dout: (dout,), dynamic=WRITTEN),
    complex="linear",
    onnx="ONNX has no arrays of tensors that grow",
))  # fmt: skip


def _bound(value: Any, function: str) -> Variable:
    if isinstance(value, list | tuple):
        if len(value) != 1:
            raise ShapeError(
                "a tensor array is sliced along its only axis",
                expected="one start and one end",
                received=f"{len(value)} bounds",
                fix="pass starts=[first], ends=[behind the last]",
                op=function,
            )
        (value,) = value
    if isinstance(value, Variable):
        check_one_element(check_variable(value, "starts and ends", function, INTEGERS), "a bound", function)
    return as_variable(value, dtype=int64)


def slice_array(array: Variable, start: Any, end: Any, function: str = "slice") -> Variable:
    """Returns the elements from ``start`` to before ``end`` as a tensor array; bounds beyond the array mean its ends.

    Args:
        array: A tensor array.
        start, end: Ints, integer Variables of one element, or lists of one of these; negative ones count from the end.
        function: For messages.

    Raises:
        ShapeError: If a bound has several elements.
        IndexRangeError: In a run, if no element lies between the bounds.
    """
    bounds = {"Start": _bound(start, function), "End": _bound(end, function)}
    out: Variable = emit("slice_array", {"X": array, **bounds}, prefix="slice")
    out.type = KIND
    out.stop_gradient = array.stop_gradient
    # Offsets of the elements' sequences are arrays of the same length, cut alike.
    levels = [slice_array(array.block._var_recursive(name), start, end, function) for name in array.lod]
    out.lod, out.lod_level = tuple(one.name for one in levels), len(levels)
    return out


def item_of_array(array: Variable, item: Any) -> Variable:
    """Returns ``array[item]``: an element for a position, a tensor array for a slice without a step.

    Raises:
        IndexRangeError: If the item is something else; in a run, if the array has no such element.
    """
    if isinstance(item, slice) and item.step in (None, 1):
        return slice_array(
            array, 0 if item.start is None else item.start, END if item.stop is None else item.stop, "[]"
        )
    if isinstance(item, Variable):
        return array_read(array, item)
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        raise IndexRangeError(
            f"a tensor array cannot be indexed with {item!r}",
            expected="a position: an int or an integer Variable of one element; or a slice without a step",
            received=f"{item!r} of type {type(item).__name__}",
            fix=f"read elements with paddle.tensor.array_read({array.name}, i)",
            op="getitem",
            var=array.name,
        )
    at = int(item)
    if at < 0:
        # The element before the last ones: of the part that begins with it, the first.
        array, at = slice_array(array, at, END if at == -1 else at + 1, "[]"), 0
    return array_read(array, as_variable([at], dtype=int64))
