"""Every public function on label sequences has an example, and it prints what it says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.test_docstrings import own_doc
from tests.api.test_examples import faults, namespace  # noqa: F401 - a fixture
from tstatic.ir.export import PUBLIC_API

PLACES = tuple(f"tstatic.{place}" for place in ("extras.structured.", "ops.shape.sequence_mask"))
NAMES = sorted({e.function: n for n, e in PUBLIC_API.items() if e.function.__module__.startswith(PLACES)}.values())


@pytest.mark.parametrize("name", NAMES)
def test_example_prints_what_it_says(name: str, namespace: dict[str, Any]) -> None:  # noqa: F811
    assert faults(own_doc(PUBLIC_API[name].function), namespace) == []


def test_there_are_names() -> None:
    assert len(NAMES) >= 14
