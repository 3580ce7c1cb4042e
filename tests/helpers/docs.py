"""The facts that pages state: the module `docs/facts.py`, which no package holds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from tests.helpers import source


@contextmanager
def _paths() -> Iterator[None]:
    before = list(sys.path)
    sys.path.insert(0, str(source.ROOT / "docs"))
    try:
        yield
    finally:
        sys.path[:] = before


with _paths():
    facts: ModuleType = importlib.import_module("facts")
