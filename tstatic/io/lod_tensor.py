"""Tensors of sequences made from lengths: ``fluid.create_lod_tensor`` and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.errors import FeedError, FeedTypeError, shown
from tstatic.ir.export import export
from tstatic.ir.types import plain
from tstatic.no_effect import PLACE, no_effect
from tstatic.runtime.scope import LoDTensor, tensor_of


@no_effect(place=PLACE)
@export("fluid.create_lod_tensor")
def create_lod_tensor(data: Any, recursive_seq_lens: Sequence[Sequence[int]], place: Any = None) -> LoDTensor:
    """Makes a tensor of sequences.

    Args:
        data: An array or tensor of all rows, one sequence under the other; or a list with a list of numbers for each
            sequence, which become an int64 column.
        recursive_seq_lens: The lengths of the sequences, ``[[2, 3]]``; of nested ones a list for each level, from the outermost
            inwards: ``[[2, 1], [3, 1, 2]]`` is a first sequence of two with 3 and 1 rows, and a second of one with 2 rows.

    Returns:
        A ``LoDTensor`` that can be fed for a variable with ``lod_level=len(recursive_seq_lens)``.

    Raises:
        FeedError: If the lengths do not add up to the number of rows (a ``ValueError``).
        FeedTypeError: If ``data`` is something else.

    Example:
        >>> tensor = fluid.create_lod_tensor(np.zeros((5, 2), "float32"), [[2, 3]], fluid.CPUPlace())
        >>> tensor.lod(), tensor.recursive_sequence_lengths()
        ([[0, 2, 5]], [[2, 3]])
        >>> fluid.create_lod_tensor([[1, 2], [3, 4, 5]], [[2, 3]], fluid.CPUPlace()).shape()
        [5, 1]
    """
    if isinstance(data, LoDTensor | np.ndarray):
        made = tensor_of(np.array(plain(data, "data", "create_lod_tensor")))
    elif isinstance(data, list | tuple):
        given = [len(sequence) for sequence in data]
        lengths = list(recursive_seq_lens[-1]) if len(recursive_seq_lens) else []
        if given != lengths:
            raise _refused("data and recursive_seq_lens do not match", f"sequences of {lengths} numbers", f"of {given}")
        flat = np.array([number for sequence in data for number in sequence], np.int64)
        made = tensor_of(flat.reshape(len(flat), 1))
    else:
        raise FeedTypeError(
            "data should be either a LoDTensor, a Numpy array or a list",
            expected="an array of all rows, or a list of lists",
            received=shown(data),
            fix="pass np.concatenate(sequences)",
            op="create_lod_tensor",
        )
    made.set_recursive_sequence_lengths(recursive_seq_lens)
    if not made.has_valid_recursive_sequence_lengths():
        rows = made.shape()[0] if made.shape() else 0
        raise _refused(
            "the provided lod info is invalid",
            f"lengths of which each level adds up to the number of sequences in the next one, the last to {rows} rows",
            f"{recursive_seq_lens} for shape {made.shape()}",
        )
    return made


@no_effect(place=PLACE)
@export("fluid.create_random_int_lodtensor")
def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]], base_shape: Sequence[int], place: Any, low: int, high: int
) -> LoDTensor:
    """Makes a tensor of sequences of random whole numbers (of numpy's global generator).

    Args:
        recursive_seq_lens: Lengths, as in :func:`create_lod_tensor`.
        base_shape: Shape of a row.
        low, high: Bounds of the numbers, both included.

    Returns:
        A ``LoDTensor`` of int64, ``[sum of the last lengths, *base_shape]``.

    Raises:
        FeedError: If the lengths of two levels do not fit.

    Example:
        >>> lengths = [[2, 3]]
        >>> tensor = fluid.create_random_int_lodtensor(lengths, [1], fluid.CPUPlace(), 0, 9)
        >>> tensor.shape(), tensor.lod()
        ([5, 1], [[0, 2, 5]])
    """
    rows = sum(recursive_seq_lens[-1]) if len(recursive_seq_lens) else 0
    data = np.random.randint(low, high + 1, (rows, *base_shape), np.int64)
    return create_lod_tensor(data, recursive_seq_lens, place)


def _refused(what: str, expected: str, received: str) -> FeedError:
    fix = "give the length of every sequence; [[2, 3]] for 5 rows"
    return FeedError(what, expected=expected, received=received, fix=fix, op="create_lod_tensor")
