"""The value of a tensor array: a list of arrays, which loops write and read at positions known only at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

KIND = "lod_tensor_array"
"""The ``type`` of the Variable of a tensor array; its shape and dtype are those of an element."""


class TensorArray(list[Any]):
    """Arrays that belong to the list alone and are never written again; every write makes a new list.

    In the gradient of a tensor array, ``None`` is an element that no gradient reaches.
    """


def holds_tensor_array(values: Sequence[Any]) -> bool:
    """Returns whether one of the values in an op's slots is a tensor array."""
    return any(
        isinstance(v, TensorArray) or (isinstance(v, list) and any(isinstance(one, TensorArray) for one in v))
        for v in values
    )


def copied(value: Any) -> Any:
    """Returns a value that stays as it is when the memory of the given one is used again."""
    return TensorArray(value) if isinstance(value, TensorArray) else np.array(value)


def zeros_like(value: Any) -> Any:
    """Returns the zero gradient of an array or a tensor array."""
    return TensorArray([None] * len(value)) if isinstance(value, TensorArray) else np.zeros_like(value)


def add(a: Any, b: Any) -> Any:
    """Returns the sum of two gradients of one value."""
    if not isinstance(a, TensorArray):
        return a + b
    # One may have grown further; what it alone has is taken as it is.
    length = max(len(a), len(b))
    rows = [[*one, *[None] * (length - len(one))] for one in (a, b)]
    return TensorArray(y if x is None else x if y is None else x + y for x, y in zip(*rows, strict=True))
