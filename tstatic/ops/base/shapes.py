"""What the shape and indexing families share: emitting ops, sizes given as Variables, and copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import ShapeError
from tstatic.ir.build import as_variable, emit
from tstatic.ir.program import Variable
from tstatic.ir.recording import Call
from tstatic.ir.types import UNKNOWN, Meta

Array = np.ndarray[Any, Any]

ANY = ("int64", "bool", "int32", "complex64")
"""Dtypes that tests try beside floats where values are only moved."""


# ------------------------------------------------------------------------------------------------------------- building
def emit_one(type: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any] | None = None, **options: Any) -> Variable:
    """Emits an op with one result, as ``emit`` does."""
    result: Variable = emit(type, inputs, attrs, **options)
    return result


def written(value: Variable, out: Variable | None) -> Variable:
    """Returns ``value``, or ``out`` after appending the op that writes the value to it."""
    return value if out is None else emit_one("assign", {"X": value}, outputs={"Out": out})


def emit_list(
    type: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any] | None = None, **options: Any
) -> list[Variable]:
    """Emits an op whose results are a list, as ``emit`` does."""
    result: list[Variable] = list(emit(type, inputs, attrs, **options))
    return result


def as_list(value: Any) -> list[Any]:
    """Returns a list as it is, and anything else as a list of one."""
    if isinstance(value, list | tuple | range):
        return list(value)
    # `tolist` gives Python numbers, which attributes are saved as.
    return value.tolist() if isinstance(value, np.ndarray) and value.ndim else [value]


def sizes_given(value: Any) -> tuple[list[Any], Variable | None, list[Variable] | None]:
    """Reads a list of sizes that may hold Variables, or is one.

    Returns:
        The attribute (-1 in the position of a Variable), the single Variable, or a list of one Variable per entry.
    """
    if isinstance(value, Variable):
        return [], value, None
    items = as_list(value)
    if not any(isinstance(v, Variable) for v in items):
        return items, None, None
    tensors = [size_variable(v) for v in items]
    return [-1 if isinstance(v, Variable) else v for v in items], None, tensors


def size_variable(value: Any) -> Variable:
    """Returns a Variable that holds one size: int32, as Paddle has it, or int64 where the number needs it."""
    if isinstance(value, Variable):
        return value
    return as_variable(value, dtype="int32" if -(2**31) <= value < 2**31 else "int64")


def sizes_of(attr: Sequence[int], tensor: Array | None, tensors: Sequence[Array] | None) -> list[int]:
    """Returns the sizes at run time: a list of Variables before one Variable before the attribute."""
    if tensors:
        # Each may be [1] or 0-d: Paddle takes both.
        return [int(t.reshape(-1)[0]) for t in tensors]
    if tensor is not None:
        return [int(v) for v in tensor.reshape(-1)]
    return list(attr)


def tensor_rank(tensor: Meta | None, tensors: Sequence[Meta] | None, what: str) -> int | None:
    """Returns how many sizes run-time inputs give; ``None`` when there are none.

    Raises:
        ShapeError: If the length of the Variable is unknown, so that the result would have no rank.
    """
    if tensors:
        return len(tensors)
    if tensor is None:
        return None
    if tensor.rank != 1 or tensor.shape[0] == UNKNOWN:
        raise ShapeError(
            f"the Variable given as {what} must have a known length, or the result has no rank",
            expected=f"{what} of shape [number of dimensions]",
            received=list(tensor.shape),
            fix=f"give the Variable a known length, or pass a list of Variables as {what}",
        )
    return tensor.shape[0]


def spread_axes(full: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the axes that were broadcast from ``shape`` to ``full``: a gradient adds them up again."""
    # An axis of size 1 that stays 1 is not summed: the sum over it would be a call for nothing.
    lead = len(full) - len(shape)
    return tuple(i for i, size in enumerate(full) if i < lead or (shape[i - lead] == 1 and size != 1))


# --------------------------------------------------------------------------------------------------------------- copies
def copy(target: Array, source: Any) -> Call:
    """Returns the call that copies ``source`` (broadcast) into ``target``."""
    return np.copyto, (target, source)


def clear(target: Array) -> Call:
    """Returns the call that fills with zeros; ``False`` because numpy casts it to every dtype, which it refuses for 0."""
    return np.copyto, (target, False)


def copy_reshaped(target: Array, source: Array) -> Call:
    """Returns the call that copies the elements of ``source``, in C order, into a ``target`` of another shape."""
    # Reshaping a contiguous side is a view; only where neither is, elements go through a buffer.
    if target.flags.c_contiguous:
        return np.copyto, (target.reshape(source.shape), source)
    if source.flags.c_contiguous:
        return np.copyto, (target, source.reshape(target.shape))
    return _copy_through_buffer, (target, source)


def _copy_through_buffer(target: Array, source: Array) -> None:
    np.copyto(target, source.reshape(target.shape))


def view_of(array: Array, shape: Sequence[int]) -> Array | None:
    """Returns the same memory in another shape, or ``None`` when strides forbid it."""
    if array.shape == tuple(shape):
        return array
    try:
        return array.reshape(shape, copy=False)
    except ValueError:
        return None
