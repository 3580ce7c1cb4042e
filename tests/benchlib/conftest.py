"""What the tests of the benchmark share: peers that a test registers are gone after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tstatic.benchlib.peers import PEERS


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Takes off peers that a test registers."""
    before = dict(PEERS)
    yield
    PEERS.clear()
    PEERS.update(before)
