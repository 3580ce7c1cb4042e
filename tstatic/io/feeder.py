"""Makes feeds of lists of samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.errors import shown
from tstatic.io.errors import DataError, DataTypeError, DataUseError
from tstatic.ir.declare import default_main_program
from tstatic.ir.export import export
from tstatic.ir.program import Program, Variable
from tstatic.ir.types import UNKNOWN
from tstatic.places import CUDAPlace, Place, cpu_places, cuda_places, expected_place, to_place
from tstatic.runtime.scope import LoDTensor, tensor_of
from tstatic.where import show

Feed = dict[str, LoDTensor]


@export("fluid.DataFeeder", "fluid.data_feeder.DataFeeder")
class DataFeeder:
    """Makes feeds of lists of samples, with the dtypes and shapes of the variables.

    Args:
        feed_list: Variables of the program, or their names, in the order of the fields of a sample.
        place: Whose kind decides how many places there are, where a method is not told.
        program: Where names are looked up; the default main program if ``None``.

    Raises:
        DataTypeError: If ``feed_list`` holds something else.
        NotFoundError: If the program has no variable of a name (a ``ValueError``).

    Example:
        >>> x, label = static.data("x", [None, 2]), static.data("label", [None, 1], "int64")
        >>> feeder = fluid.DataFeeder([x, label], fluid.CPUPlace())
        >>> feed = feeder.feed([([1, 2], 0), ([3, 4], 1)])
        >>> np.array(feed["label"])
        array([[0],
               [1]])
    """

    def __init__(self, feed_list: Sequence[Variable | str], place: Any, program: Program | None = None) -> None:
        block = (default_main_program() if program is None else program).global_block()
        self.place = place
        self.variables: list[Variable] = []
        for item in feed_list:
            var = block.var(item) if isinstance(item, str) else item
            if not isinstance(var, Variable):
                raise DataTypeError(
                    "Feed list should contain a list of variable",
                    expected="Variables or their names",
                    received=shown(item),
                    fix="pass what static.data returned",
                    op="DataFeeder",
                )
            self.variables.append(var)

    def feed(self, iterable: Iterable[Sequence[Any]]) -> Feed:
        """Returns the feed of one batch.

        Args:
            iterable: Samples, each with one field per variable. A field of a variable with ``lod_level`` k is a list nested
                k deep.

        Returns:
            ``{name: tensor}``. Values are converted to the variable's dtype (1.7 becomes 1 for int64). Where the rank differs
            and at most one size is unknown, the values are reshaped to the variable's shape.

        Raises:
            DataUseError: If a sample has another number of fields (an ``AssertionError``).
            DataError: If the values do not fit the dtype or shape (a ``ValueError``).
        """
        rows = list(iterable)
        for row in rows:
            if len(row) != len(self.variables):
                raise DataUseError(
                    f"The number of fields in data ({len(row)}) does not match len(feed_list) ({len(self.variables)})",
                    expected=f"one field for each of {', '.join(repr(v.name) for v in self.variables)}",
                    received=f"a sample of {len(row)} fields",
                    fix="give each sample as a tuple of its fields",
                    op="feed",
                )
        return {var.name: field_tensor([row[i] for row in rows], var) for i, var in enumerate(self.variables)}

    def feed_parallel(
        self, iterable: Iterable[Iterable[Sequence[Any]]], num_places: int | None = None
    ) -> Iterator[Feed]:
        """Yields the feed of each place.

        Args:
            iterable: One batch for each place.
            num_places: Number of places; as ``cpu_places()`` or ``cuda_places()`` say if ``None``.

        Raises:
            DataError: If there are not as many batches as places (a ``ValueError``).
        """
        batches, count = list(iterable), self._count(num_places)
        if len(batches) != count:
            raise DataError(
                f"feed_parallel got {len(batches)} batches for {count} places",
                expected="one batch for each place",
                received=f"{len(batches)} batches",
                fix="pass num_places, or as many batches as there are places",
                op="feed_parallel",
            )
        return map(self.feed, batches)

    def decorate_reader(
        self,
        reader: Callable[[], Iterable[Any]],
        multi_devices: bool,
        num_places: int | None = None,
        drop_last: bool = True,
    ) -> Callable[[], Iterator[Any]]:
        """Returns a reader of feeds.

        Args:
            reader: A reader of batches.
            multi_devices: Reads lists with a feed for each place.
            num_places: Number of places, as in :meth:`feed_parallel`.
            drop_last: Leaves out batches at the end that are fewer than the places.

        Raises:
            DataError: While reading, if such batches are left and ``drop_last`` is off (a ``ValueError``).
        """

        def grouped() -> Iterator[list[Feed]]:
            count, batches = self._count(num_places), iter(reader())
            while group := list(itertools.islice(batches, count)):
                if len(group) == count:
                    yield list(self.feed_parallel(group, count))
                elif not drop_last:
                    raise DataError(
                        f"{len(group)} batches are left at the end, which {count} places cannot share",
                        expected=f"a multiple of {count} batches",
                        received=f"{len(group)} more",
                        fix="pass drop_last=True to leave them out",
                        op="decorate_reader",
                    )

        return grouped if multi_devices else lambda: map(self.feed, reader())

    def _count(self, num_places: int | None) -> int:
        if num_places is not None:
            return int(num_places)
        return len(cuda_places() if isinstance(self.place, CUDAPlace) else cpu_places())


def field_tensor(column: list[Any], var: Variable) -> LoDTensor:
    """Returns one field of all samples of a batch, as a tensor that can be fed for ``var``.

    Raises:
        DataError: If the values do not fit the variable's dtype or shape.
    """
    lengths: list[list[int]] = []
    for _ in range(var.lod_level):
        lengths.append([len(item) for item in column])
        column = [part for item in column for part in item]
    try:
        array = np.array(column, dtype=var.dtype.np)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(
            f"the samples for '{var.name}' do not make an array",
            expected=f"values of one shape that convert to {var.dtype.name}",
            received=str(error),
            fix="pad the samples to one shape, or convert them in the reader",
            var=var.name,
            where=show(var.made_at),
        ) from error
    if array.ndim != len(var.shape) and var.shape.count(UNKNOWN) <= 1:
        try:
            array = array.reshape(var.shape)
        except ValueError:
            raise DataError(
                f"Reshape error. What is defined in data layer is {tuple(var.shape)}, but receive {array.shape}",
                expected=f"samples with {list(var.shape[1:])} elements",
                received=f"a batch of shape {list(array.shape)}",
                fix="change the samples, or the shape of the variable",
                var=var.name,
                where=show(var.made_at),
            ) from None
    tensor = tensor_of(array)
    tensor.set_lod([[0, *itertools.accumulate(level)] for level in lengths])
    return tensor


def place_list(places: Any) -> list[Place]:
    """Returns the places of an argument: one, a list, or their spellings; the expected place for ``None``.

    Raises:
        DataUseError: For an empty list.
    """
    if places is None:
        return [expected_place()]
    if isinstance(places, list | tuple) and not places:
        raise DataUseError(
            "places should name at least one place",
            expected="a place, a list of places, or None",
            received=repr(places),
            fix="leave places out for the expected place",
        )
    return [to_place(one) for one in (places if isinstance(places, list | tuple) else [places])]


def feed_names(feed_list: Iterable[Variable | str]) -> list[str]:
    """Returns the names of a feed list.

    Raises:
        DataTypeError: If it holds something else than Variables and names.
    """
    names = [item.name if isinstance(item, Variable) else item for item in feed_list]
    for name in names:
        if not isinstance(name, str):
            raise DataTypeError(
                "Feed list should contain a list of variable",
                expected="Variables or their names",
                received=shown(name),
                fix="pass what static.data returned",
            )
    return names


def named(fields: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns the fields of a batch by name.

    Raises:
        DataUseError: If there is another number of fields.
    """
    if len(fields) != len(names):
        raise DataUseError(
            f"The number of fields in data ({len(fields)}) does not match len(feed_list) ({len(names)})",
            expected=f"one field for each of {', '.join(map(repr, names))}",
            received=f"{len(fields)} fields",
            fix="change feed_list or the samples",
        )
    return dict(zip(names, fields, strict=True))
