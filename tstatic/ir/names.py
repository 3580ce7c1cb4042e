"""Unique names: ``fc_0``, ``fc_1``, ``fc_0.tmp_0``, one counter per key, and guards that start afresh."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class UniqueNameGenerator:
    """Counts per key; ``prefix`` stands before every name."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.ids: dict[str, int] = {}

    def __call__(self, key: str) -> str:
        count = self.ids.get(key, 0)
        self.ids[key] = count + 1
        return f"{self.prefix}{key}_{count}"


_generator = UniqueNameGenerator()


def generate(key: str) -> str:
    """Returns ``key_N`` with the next number of that key."""
    return _generator(key)


generate_with_ignorable_key = generate


def switch(new_generator: UniqueNameGenerator | None = None) -> UniqueNameGenerator:
    """Replaces the generator (a fresh one by default) and returns the old one."""
    global _generator
    old = _generator
    _generator = UniqueNameGenerator() if new_generator is None else new_generator
    return old


@contextlib.contextmanager
def guard(new_generator: UniqueNameGenerator | str | bytes | None = None) -> Iterator[None]:
    """Counts afresh inside the ``with`` block; a text becomes the prefix of every name."""
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    old = switch(new_generator)
    try:
        yield
    finally:
        switch(old)
