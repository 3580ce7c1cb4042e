"""Values in Paddle's files: one tensor, or several in a row, each with its levels of sequences, dtype, sizes and bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import CheckpointError
from tstatic.formats.paddle_proto import DTYPE_NUMBERS, TensorDesc, read_message, write_message
from tstatic.ir.types import DTYPES, dtype_of

Array = np.ndarray[Any, Any]
_DTYPES = {number: DTYPES[name] for name, number in DTYPE_NUMBERS.items()}
MAX_DESC = 4096
"""Bytes of a tensor's description: a dtype, and 64 sizes of at most 11 bytes each, with room to spare."""
MAX_LEVELS = 16
"""Levels of sequences: programs have one or two, and a number above tells a file of another format (:func:`is_tensors`)."""


def is_tensors(data: bytes) -> bool:
    """Returns whether bytes begin as Paddle's tensors do: version 0, and few levels, where other formats have a length."""
    return len(data) >= 16 and data[:4] == bytes(4) and int.from_bytes(data[4:12], "little") <= MAX_LEVELS


def encode(arrays: Sequence[Array]) -> bytes:
    """Returns tensors as a file of Paddle (``.pdiparams``: by sorted names)."""
    parts = []
    for array in arrays:
        dtype = dtype_of(array.dtype)
        desc = write_message(TensorDesc(DTYPE_NUMBERS[dtype.name], array.shape))
        # Version 0, no levels, version 0 again: 4, 8 and 4 bytes.
        parts += [bytes(16), len(desc).to_bytes(4, "little"), desc, np.ascontiguousarray(array).tobytes()]
    return b"".join(parts)


def decode(data: bytes, most: int, path: object) -> list[Array]:
    """Returns the tensors of a file, each with memory of its own; levels of sequences are left out.

    Args:
        data: The file.
        most: How many tensors are wanted; a file with more is refused before they are read.
        path: The file, for messages.

    Raises:
        CheckpointError: If it is damaged, or holds another number of tensors.
    """
    done: list[Array] = []
    at = 0
    try:
        while at < len(data):
            if len(done) == most:
                raise ValueError(f"{len(data) - at:,} bytes behind the last of {most:,} tensors")
            array, at = _tensor(data, at)
            done.append(array)
    except ValueError as error:
        raise _damaged(path, f"{most:,} whole tensors of Paddle", f"{error} (tensor {len(done)})") from None
    if len(done) != most:
        raise _damaged(path, f"{most:,} tensors, one for each variable", f"{len(done):,}")
    return done


def _tensor(data: bytes, at: int) -> tuple[Array, int]:
    """Returns the tensor at a position, and where the next one begins."""

    def skip(size: int) -> None:
        nonlocal at
        if size > len(data) - at:
            raise ValueError("an end in the middle of a tensor")
        at += size

    def number(size: int) -> int:
        skip(size)
        return int.from_bytes(data[at - size : at], "little")

    if number(4):
        raise ValueError("a version other than 0")
    levels = number(8)
    if levels > MAX_LEVELS:
        raise ValueError(f"{levels:,} levels of sequences")
    for _ in range(levels):
        skip(number(8))
    if number(4):
        raise ValueError("a version other than 0")
    size = number(4)
    if size > MAX_DESC:
        raise ValueError(f"a description of {size:,} bytes")
    skip(size)
    desc = read_message(TensorDesc, data[at - size : at])
    dtype = _DTYPES.get(desc.data_type)
    # As many axes as numpy has; sizes that fit its 64 bits.
    if dtype is None or len(desc.dims) > 64 or any(not 0 <= length <= 2**62 for length in desc.dims):
        raise ValueError(f"dtype {desc.data_type} and sizes {str(list(desc.dims))[:80]}")
    count = math.prod(desc.dims)
    if count * dtype.itemsize > len(data) - at:
        raise ValueError(f"{len(data) - at:,} bytes for {dtype.name}{str(list(desc.dims))[:80]}")
    # A copy: the scope writes into what it holds.
    array = np.frombuffer(data, dtype.np, count, at).reshape(tuple(desc.dims)).copy()
    return array, at + count * dtype.itemsize


def _damaged(path: object, expected: str, received: str) -> CheckpointError:
    return CheckpointError(
        f"the file of values is damaged, or of another program: {path}",
        expected=expected,
        received=received,
        fix="take an older copy of the file, or load it with the program that it was saved with",
    )
