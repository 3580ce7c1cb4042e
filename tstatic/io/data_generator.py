"""Programs that print MultiSlot text, for the ``pipe_command`` of data sets of files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tstatic.errors import UnsupportedError
from tstatic.io.errors import DataError
from tstatic.ir.export import export

Sample = Sequence[tuple[str, Sequence[Any]]]
"""Names of slots, each with its values."""
_BATCH = 32


class DataGenerator:
    """What turns lines of a file into samples: define ``generate_sample`` and, if whole batches matter, ``generate_batch``."""

    def __init__(self) -> None:
        self.batch_size_ = _BATCH

    def set_batch(self, batch_size: int) -> None:
        """Sets how many samples ``generate_batch`` gets at once (32 by default)."""
        self.batch_size_ = batch_size

    def generate_sample(self, line: str | None) -> Callable[[], Iterable[Sample | None]]:
        """Returns a function that yields the samples of a line, ``[(slot, [value, ...]), ...]``; to be defined.

        Args:
            line: The line with its end; ``None`` in ``run_from_memory``. ``None`` for a sample leaves it out.
        """
        raise UnsupportedError(
            "Please rewrite this function to return a list or tuple: [(name, [feasign, ...]), ...] or "
            "((name, [feasign, ...]), ...)",
            expected="a class with a method generate_sample(line), which returns such a function of samples",
            received=type(self).__name__,
            fix="define generate_sample",
        )

    def generate_batch(self, samples: list[Sample]) -> Callable[[], Iterable[Sample]]:
        """Returns a function that yields the samples of a batch: by default those given."""
        return lambda: iter(samples)

    def run_from_stdin(self) -> None:
        """Prints what becomes of the lines of standard input."""
        self._print(sample for line in sys.stdin for sample in self.generate_sample(line)())

    def run_from_memory(self) -> None:
        """Prints what ``generate_sample(None)`` yields."""
        self._print(self.generate_sample(None)())

    def _print(self, samples: Iterable[Sample | None]) -> None:
        for batch in self._batches(samples):
            for sample in self.generate_batch(batch)():
                sys.stdout.write(self._gen_str(sample))

    def _batches(self, samples: Iterable[Sample | None]) -> Iterator[list[Sample]]:
        batch: list[Sample] = []
        for sample in samples:
            if sample is not None:
                batch.append(sample)
            if len(batch) == self.batch_size_:
                yield batch
                batch = []
        if batch:
            yield batch

    def _gen_str(self, line: Sample) -> str:
        """Returns a sample as a line of text."""
        raise NotImplementedError


def _line(sample: Sample) -> str:
    return " ".join(f"{len(values)} {' '.join(map(str, values))}" for _, values in sample) + "\n"


@export("distributed.fleet.MultiSlotStringDataGenerator", "fluid.incubate.data_generator.MultiSlotStringDataGenerator")
class MultiSlotStringDataGenerator(DataGenerator):
    """Prints samples whose values are texts already; it checks nothing but the form of a sample.

    Example:
        >>> from tstatic.distributed.fleet import MultiSlotStringDataGenerator
        >>> class Clicks(MultiSlotStringDataGenerator):
        ...     def generate_sample(self, line):
        ...         return lambda: iter([[("ids", ["7", "8"]), ("click", ["1"])]])
        >>> Clicks().run_from_memory()
        2 7 8 1 1
    """

    def _gen_str(self, line: Sample) -> str:
        if not isinstance(line, list | tuple):
            raise _bad("the output of process() must be in list or tuple type", "[(slot, [text, ...]), ...]", line)
        return _line(line)


@export("distributed.fleet.MultiSlotDataGenerator", "fluid.incubate.data_generator.MultiSlotDataGenerator")
class MultiSlotDataGenerator(DataGenerator):
    """Prints samples whose values are numbers, and checks that all have the same slots.

    Example:
        >>> from tstatic.distributed.fleet import MultiSlotDataGenerator
        >>> class Clicks(MultiSlotDataGenerator):
        ...     def generate_sample(self, line):
        ...         return lambda: iter([[("ids", [7, 8]), ("price", [0.5])]])
        >>> Clicks().run_from_memory()
        2 7 8 1 0.5
    """

    def __init__(self) -> None:
        super().__init__()
        self._slots: list[str] | None = None

    def _gen_str(self, line: Sample) -> str:
        if not isinstance(line, list | tuple):
            raise _bad("the output of process() must be in list or tuple type", "[(slot, [number, ...]), ...]", line)
        for item in line:
            if not isinstance(item, list | tuple) or len(item) != 2:
                raise _bad("a slot of a sample is not a pair", "(name, [number, ...])", item)
            name, values = item
            if not isinstance(name, str):
                raise _bad(f"name{type(name)} must be in str type", "a str", name)
            if not isinstance(values, list):
                raise _bad(f"elements{type(values)} must be in list type", f"a list of the numbers of '{name}'", values)
            if not values:
                raise _bad(
                    "the elements of each field can not be empty, you need padding it in process().",
                    f"at least one number for '{name}'",
                    "none",
                )
            for value in values:
                if not isinstance(value, int | float | np.integer | np.floating):
                    raise _bad(f"the type of element{type(value)} must be in int or float", "a number", value)
        names = [name for name, _ in line]
        if self._slots is None:
            self._slots = names
        if len(names) != len(self._slots):
            raise _bad("the complete field set of two given line are inconsistent.", self._slots, names)
        for wanted, name in zip(self._slots, names, strict=True):
            if name != wanted:
                what = f"the field name of two given line are not match: require<{wanted}>, get<{name}>."
                raise _bad(what, self._slots, names)
        return _line(line)


def _bad(what: str, expected: object, received: object) -> DataError:
    return DataError(what, expected=expected, received=repr(received), fix="change what generate_sample yields")
