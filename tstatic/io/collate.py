"""Joins samples into batches, and makes tensors of what results."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import shown
from tstatic.io.errors import DataError, DataTypeError
from tstatic.io.shared import Empty
from tstatic.runtime.feed import host_array, is_foreign
from tstatic.runtime.scope import LoDTensor, tensor_of


def collate(samples: Sequence[Any], empty: Empty = np.empty) -> Any:
    """Returns a batch with the structure of one sample.

    Arrays and tensors (also of torch, and whatever has ``__array__`` or ``__dlpack__``) are stacked, numbers become an array
    (int64 or float64), texts a list; lists and dicts are joined field by field.

    Args:
        samples: At least one.
        empty: Makes the arrays of the batch, as ``np.empty`` does.

    Raises:
        DataError: If samples have different shapes or numbers of fields (a ``RuntimeError`` and a ``ValueError``).
        DataTypeError: For other types.
    """
    first = samples[0]
    if isinstance(first, np.ndarray):
        return _stacked(samples, empty)
    if isinstance(first, numbers.Number):
        return np.array(samples)
    if isinstance(first, str | bytes):
        return list(samples)
    if isinstance(first, Mapping):
        keys = [key for key in first if any(key not in s for s in samples)]
        if keys or any(len(s) != len(first) for s in samples):
            raise _unequal(
                "the samples of a batch have different fields", f"the fields {list(first)}", [*map(list, samples)]
            )
        return {key: collate([s[key] for s in samples], empty) for key in first}
    if isinstance(first, Sequence):
        counts = sorted({len(s) for s in samples})
        if len(counts) > 1:
            raise _unequal("fields number not same among samples in a batch", "equally many fields", counts)
        return [collate(fields, empty) for fields in zip(*samples, strict=True)]
    if is_foreign(first):
        return _stacked([host_array(s) for s in samples], empty)
    raise DataTypeError(
        f"batch data can only contain: tensor, numpy.ndarray, dict, list, number, but got {type(first)}",
        expected="arrays, numbers, texts, and lists and dicts of them",
        received=shown(first),
        fix="convert the sample in the data set, or pass collate_fn",
    )


def _stacked(samples: Sequence[Any], empty: Empty) -> np.ndarray[Any, Any]:
    """Returns arrays as the rows of one; others are made arrays first."""
    arrays = [s if isinstance(s, np.ndarray) else host_array(s) for s in samples]
    first = arrays[0]
    shape, dtype = first.shape, first.dtype
    for array in arrays:
        if array.shape != shape:
            raise _unequal(
                "the samples of a batch have different shapes", "equal shapes", sorted({a.shape for a in arrays})
            )
        if array.dtype != dtype:
            return np.stack(arrays)
    rows = empty((len(arrays), *shape), dtype)
    for row, array in enumerate(arrays):
        rows[row] = array
    return rows


def _unequal(what: str, expected: str, received: object) -> DataError:
    return DataError(what, expected=expected, received=received, fix="pad the samples, or pass collate_fn")


def to_tensors(batch: Any) -> Any:
    """Returns a batch with tensors in place of arrays and numbers; tuples become lists."""
    if isinstance(batch, np.ndarray | numbers.Number):
        array = np.asarray(batch)
        return tensor_of(array) if array.dtype.kind in "biufV" else batch
    if isinstance(batch, Mapping):
        return {key: to_tensors(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [to_tensors(value) for value in batch]
    if is_foreign(batch) and not isinstance(batch, LoDTensor):
        return tensor_of(host_array(batch))
    return batch


def leaves(batch: Any) -> Iterator[Any]:
    """Yields the fields of a batch in order, whatever they are nested in."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        for value in batch:
            yield from leaves(value)
    else:
        yield batch
