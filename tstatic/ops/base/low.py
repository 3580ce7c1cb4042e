"""Low-precision floats: computed in float32 and rounded once, whole or as cache-sized flat parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tstatic.tuned._common import BLOCK

_LOW = ("float16", "bfloat16")


def is_low(array: Any) -> bool:
    """Returns whether an array holds float16 or bfloat16."""
    # A dtype's name is made anew each time.
    return isinstance(array, np.ndarray) and array.itemsize == 2 and array.dtype.name in _LOW


def up(array: Any) -> Any:
    """Returns a float32 copy of a low-precision array (lists too); anything else as it is."""
    if isinstance(array, list | tuple):
        return [up(a) for a in array]
    return array.astype(np.float32) if is_low(array) else array


def torch_wide(tensor: Any) -> Any:
    """Returns a float16 or bfloat16 torch tensor as float32; anything else (``None`` too) as it is."""
    low = tensor is not None and tensor.itemsize == 2 and tensor.is_floating_point()
    return tensor.float() if low else tensor


def torch_sign(torch: Any, tensor: Any) -> Any:
    """Returns -1, 0, 1, or NaN where the tensor is NaN, whose sign is 0 in torch."""
    return torch.where(tensor == tensor, torch.sign(tensor), tensor)


def torch_wide_on_host(tensor: Any) -> Any:
    """Does what :func:`torch_wide` does in the memory of the host, where torch rounds each step of a recurrence to 16 bits."""
    return torch_wide(tensor) if tensor is not None and tensor.device.type == "cpu" else tensor


def in_float32(outputs: int = 1) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Wraps a ``ref`` whose last ``outputs`` positional arguments are outputs.

    Low-precision inputs are widened, outputs computed in float32 and rounded once.
    """

    def decorate(ref: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(ref)
        def run(*arrays: Any, **attrs: Any) -> None:
            # Some slots are lists of arrays.
            flat = [a for group in arrays for a in (group if isinstance(group, list | tuple) else (group,))]
            if not any(map(is_low, flat)):
                ref(*arrays, **attrs)
                return
            rounded: list[tuple[Any, Any]] = []

            def widen_out(a: Any) -> Any:
                if isinstance(a, list | tuple):
                    return [widen_out(one) for one in a]
                if not is_low(a):
                    return a
                wide = np.empty(a.shape, np.float32)
                # The caller's array is written once, from the finished result: no intermediate value is rounded.
                rounded.append((a, wide))
                return wide

            ins, outs = arrays[: len(arrays) - outputs], arrays[len(arrays) - outputs :]
            ref(*map(up, ins), *map(widen_out, outs), **attrs)
            for narrow, wide in rounded:
                np.copyto(narrow, wide, casting="unsafe")

        return run

    return decorate


# ----------------------------------------------------------------------------------------------------------- flat parts
Array = np.ndarray[Any, Any]


def flat_parts(x: Array) -> Iterator[tuple[slice, Array]]:
    """Yields positions in C order and the elements there: views where the array allows it, else small float copies."""
    wide = np.float32 if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x.dtype
    # `flat` walks any strides in C order, and copies a block at a time instead of the whole array.
    flat = x.reshape(-1) if x.flags.c_contiguous else x.flat
    for at in range(0, x.size, BLOCK):
        part = slice(at, min(at + BLOCK, x.size))
        yield part, np.asarray(flat[part], wide)


def square_sum(values: Array) -> float:
    """Returns the sum of squares of a block, added as BLAS does in the block's type; in float64 where squares leave its range."""
    total = float(np.dot(values, values))
    # In float32, squares below 1e-38 lose digits: 1e-9 of this bound in a block.
    if 1e-24 < total < np.inf:
        return total
    wide = values.astype(np.float64)
    return float(np.dot(wide, wide))


def store(out: Array, part: slice, values: Array) -> None:
    """Writes flat values to positions in C order, rounded to the array's type."""
    if out.flags.c_contiguous:
        np.copyto(out.reshape(-1)[part], values, casting="unsafe")
    else:
        out.flat[part] = values.astype(out.dtype)
