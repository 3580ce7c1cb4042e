"""Every public name of ``paddle.io`` and ``paddle.reader`` has an example, and it prints what it says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api import surface
from tests.api.test_docstrings import own_doc
from tests.api.test_examples import faults, namespace  # noqa: F401 - a fixture
from tstatic.ir.export import PUBLIC_API

NAMES = sorted(n for n, e in PUBLIC_API.items() if getattr(e.function, "__module__", "").startswith("tstatic.io."))


def test_there_are_names_and_they_are_walked() -> None:
    assert len(NAMES) > 10
    assert {"tstatic.io", "tstatic.reader"} <= set(surface.ROOTS)


@pytest.mark.parametrize("name", NAMES)
def test_example_prints_what_it_says(name: str, namespace: dict[str, Any]) -> None:  # noqa: F811
    assert faults(own_doc(PUBLIC_API[name].function), namespace) == []
