"""The examples in the docstrings of mixed precision print what they say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.surface import walk
from tests.api.test_examples import faults, namespace, own_doc

__all__ = ["namespace"]
FUNCTIONS = {
    value: path
    for path, value in walk()
    if path.startswith("tstatic.static.amp.") or (path.startswith("tstatic.fluid.") and "mixed_precision" in path)
    if callable(value)
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=FUNCTIONS.get)
def test_example_prints_what_it_says(function: Any, namespace: dict[str, Any]) -> None:
    assert faults(own_doc(function), namespace) == []


def test_all_are_found() -> None:
    assert len(FUNCTIONS) == 13
