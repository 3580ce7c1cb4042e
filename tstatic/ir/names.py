"""Unique names: ``fc_0``, ``fc_1``, ``fc_0.tmp_0``, one counter per key, and guards that start afresh."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from tstatic.errors import ProgramTypeError, shown
from tstatic.guards import Guarded
from tstatic.locks import rlock
from tstatic.no_effect import no_effect
from tstatic.undo import HERE

_counting = rlock()
"""Held while a number is taken or given back, so that threads that share a generator never get one name twice."""


class UniqueNameGenerator:
    """Counts per key; ``prefix`` stands before every name.

    Example:
        >>> generator = fluid.unique_name.UniqueNameGenerator("net_")
        >>> with fluid.unique_name.guard(generator):
        ...     name = fluid.unique_name.generate("fc")
        >>> name
        'net_fc_0'
    """

    def __init__(self, prefix: str | None = None) -> None:
        self.prefix = prefix or ""
        self.ids: dict[str, int] = {}

    def __call__(self, key: str) -> str:
        journal = HERE.journal
        with _counting:
            # A key that cannot be hashed raises here, before a number is taken.
            try:
                number = self.ids.get(key, 0)
            except TypeError:
                raise ProgramTypeError(
                    "a name is generated from a text",
                    expected="a str",
                    received=shown(key),
                    fix="pass a name's beginning",
                ) from None
            if journal is not None:
                journal.append((self._give_back, key, number))
            self.ids[key] = number + 1
        return f"{self.prefix}{key}_{number}"

    def _give_back(self, key: str, number: int) -> None:
        """Counts a number again that a refused call took, unless another thread has taken one since."""
        with _counting:
            if self.ids.get(key) == number + 1:
                self.ids[key] = number


NAME_SCOPE = Guarded("name_scope", "")
"""What ``name_scope`` puts before the ops of a program."""
DEVICE = Guarded("device_guard", "")
"""What ``device_guard`` says about the ops of a program."""

_generator = Guarded("unique names", UniqueNameGenerator())


class FreeNames(UniqueNameGenerator):
    """Counts on with the generator in force, and leaves out what is taken: names that a file brings along.

    Args:
        taken: Those names.
    """

    def __init__(self, taken: Collection[str]) -> None:
        current = _generator.get()
        super().__init__(current.prefix)
        # The same dict: names that are made later count on from these.
        self.ids = current.ids
        self.taken = taken

    def __call__(self, key: str) -> str:
        while (name := super().__call__(key)) in self.taken:
            continue
        return name


def generate(key: str) -> str:
    """Returns ``key_N`` with the next number of that key.

    Example:
        >>> a = fluid.unique_name.generate("fc")
        >>> b = fluid.unique_name.generate("fc")
        >>> a, b
        ('fc_0', 'fc_1')
    """
    return _generator.get()(key)


# Paddle ignores the key in eager mode only.
generate_with_ignorable_key = generate


@no_effect(new_para_name_checker="it checks the names of eager layers' parameters, which there are not")
def switch(
    new_generator: UniqueNameGenerator | None = None, new_para_name_checker: object = None
) -> UniqueNameGenerator:
    """Replaces the generator and returns the old one.

    Args:
        new_generator: A fresh one by default.
    """
    return _generator.switch(UniqueNameGenerator() if new_generator is None else new_generator)


@contextlib.contextmanager
def guard(new_generator: UniqueNameGenerator | str | bytes | None = None) -> Iterator[None]:
    """Counts afresh inside the ``with`` block, for this thread; a text becomes the prefix of every name.

    Example:
        >>> with fluid.unique_name.guard():
        ...     first = fluid.unique_name.generate("fc")
        >>> with fluid.unique_name.guard():
        ...     again = fluid.unique_name.generate("fc")
        >>> first, again
        ('fc_0', 'fc_0')
    """
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    with _generator.inside(UniqueNameGenerator() if new_generator is None else new_generator):
        yield
