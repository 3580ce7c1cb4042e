"""Joins samples into batches, and makes tensors of what results."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tstatic.errors import shown
from tstatic.io.errors import DataError, DataTypeError
from tstatic.io.shared import Empty
from tstatic.ir.export import export
from tstatic.runtime.feed import host_array, is_foreign
from tstatic.runtime.scope import LoDTensor, tensor_of


def collate(samples: Sequence[Any], empty: Empty = np.empty) -> Any:
    """Returns a batch with the structure of one sample, as :func:`join` does.

    Args:
        samples: At least one.
        empty: Makes the arrays of the batch, as ``np.empty`` does.
    """
    return join(iter(samples), len(samples), empty)


@export("fluid.io.default_collate_fn", "fluid.reader.default_collate_fn")
def default_collate_fn(batch: Sequence[Any]) -> Any:
    """Returns samples as a batch of their structure: what loaders do that get no ``collate_fn``.

    Args:
        batch: At least one sample: arrays, numbers, or lists, tuples and dicts of them.

    Raises:
        DataError: If samples differ in their structure or shapes.

    Example:
        >>> samples = [(np.array([1, 2]), 3), (np.array([4, 5]), 6)]
        >>> batch = fluid.io.default_collate_fn(samples)
        >>> batch
        [array([[1, 2],
               [4, 5]]), array([3, 6])]
    """
    return collate(batch)


def join(samples: Iterator[Any], count: int, empty: Empty) -> Any:
    """Returns a batch with the structure of one sample.

    Arrays and tensors (also of torch, and whatever has ``__array__`` or ``__dlpack__``) are stacked, numbers become an array
    (int64 or float64), texts a list; lists and dicts are joined field by field. A sample's arrays are copied before the next
    sample is made, so that its memory, still in the cache, is free for that.

    Args:
        samples: At least one.
        count: Their number.
        empty: Makes the arrays of the batch, as ``np.empty`` does.

    Raises:
        DataError: If samples have different shapes or numbers of fields (a ``RuntimeError`` and a ``ValueError``).
        DataTypeError: For other types, and for samples that are nested too deep.
    """
    first = next(samples)
    try:
        batch = _field(first, count, empty)
        for sample in samples:
            batch.add(sample)
        return batch.joined()
    except RecursionError:
        raise DataTypeError(
            "the samples of a batch are nested too deep",
            expected="arrays in lists and dicts of a few levels",
            received=f"{type(first).__name__} in {type(first).__name__}, as deep as Python calls functions",
            fix="give a sample as a flat tuple of arrays, or pass collate_fn",
        ) from None


class _Stack:
    """Arrays as the rows of one."""

    def __init__(self, first: Any, count: int, empty: Empty) -> None:
        array = first if isinstance(first, np.ndarray) else host_array(first)
        self._shape, self._dtype = array.shape, array.dtype
        self._rows = empty((count, *array.shape), array.dtype)
        self._rows[0] = array
        self._next = 1
        self._mixed: list[np.ndarray[Any, Any]] = []

    def add(self, value: Any) -> None:
        array = value if isinstance(value, np.ndarray) else host_array(value)
        if array.shape != self._shape:
            shapes = sorted({self._shape, array.shape})
            raise _unequal("the samples of a batch have different shapes", "equal shapes", shapes)
        if self._mixed or array.dtype != self._dtype:
            # numpy decides on the dtype of all; rows before this one are as they were.
            self._mixed = [*(self._mixed or self._rows[: self._next]), array]
        else:
            self._rows[self._next] = array
            self._next += 1

    def joined(self) -> Any:
        return np.stack(self._mixed) if self._mixed else self._rows


class _List:
    """Numbers, which become an array, or texts."""

    def __init__(self, first: Any) -> None:
        self._values = [first]
        self.add = self._values.append

    def joined(self) -> Any:
        return np.array(self._values) if isinstance(self._values[0], numbers.Number) else self._values


class _Fields:
    """Lists or tuples, field by field."""

    def __init__(self, first: Sequence[Any], count: int, empty: Empty) -> None:
        self._fields = [_field(value, count, empty) for value in first]

    def add(self, value: Sequence[Any]) -> None:
        if len(value) != len(self._fields):
            counts = sorted({len(self._fields), len(value)})
            raise _unequal("fields number not same among samples in a batch", "equally many fields", counts)
        for field, part in zip(self._fields, value, strict=True):
            field.add(part)

    def joined(self) -> Any:
        return [field.joined() for field in self._fields]


class _Mapping:
    """Dicts, field by field."""

    def __init__(self, first: Mapping[Any, Any], count: int, empty: Empty) -> None:
        self._fields = {key: _field(value, count, empty) for key, value in first.items()}

    def add(self, value: Mapping[Any, Any]) -> None:
        if len(value) != len(self._fields) or any(key not in value for key in self._fields):
            raise _unequal(
                "the samples of a batch have different fields", f"the fields {list(self._fields)}", list(value)
            )
        for key, field in self._fields.items():
            field.add(value[key])

    def joined(self) -> Any:
        return {key: field.joined() for key, field in self._fields.items()}


def _field(first: Any, count: int, empty: Empty) -> _Stack | _List | _Fields | _Mapping:
    """Returns what joins values of the kind of ``first``."""
    if isinstance(first, np.ndarray):
        return _Stack(first, count, empty)
    if isinstance(first, numbers.Number | str | bytes):
        return _List(first)
    if isinstance(first, Mapping):
        return _Mapping(first, count, empty)
    if isinstance(first, Sequence):
        return _Fields(first, count, empty)
    if is_foreign(first):
        return _Stack(first, count, empty)
    raise DataTypeError(
        f"batch data can only contain: tensor, numpy.ndarray, dict, list, number, but got {type(first)}",
        expected="arrays, numbers, texts, and lists and dicts of them",
        received=shown(first),
        fix="convert the sample in the data set, or pass collate_fn",
    )


def _unequal(what: str, expected: str, received: object) -> DataError:
    return DataError(what, expected=expected, received=received, fix="pad the samples, or pass collate_fn")


def to_tensors(batch: Any) -> Any:
    """Returns a batch with tensors in place of arrays and numbers; tuples become lists."""
    if isinstance(batch, np.ndarray | numbers.Number):
        array = np.asarray(batch)
        return tensor_of(array) if array.dtype.kind in "biufcV" else batch
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
