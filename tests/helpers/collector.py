"""Keeps full collections of a long run of tests short: what an expensive one left alive is left out of the next ones."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping

import pytest

EXPENSIVE = 0.02
"""Seconds of a full collection behind which what is alive is set aside: about 100,000 objects take that."""

MIDDLE_ONES = 100
"""Collections of the middle generation between full ones, ten by default."""


class Collector:
    """Sets aside what lives long: modules, tests, and what these keep (registered operators, trees of sources).

    Not within a file of tests: what its fixtures hold may have to be found by a later collection. Otherwise every collection of a
    worker that has run for a while would look at a million objects that live to the end, for half a second.
    """

    def __init__(self) -> None:
        self._begin = 0.0
        self._due = False
        # Behind these a full one comes as soon as a quarter as much is new as the last one left, and that is little.
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, MIDDLE_ONES)
        gc.callbacks.append(self._watch)

    def _watch(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] == 2:
            if phase == "start":
                self._begin = time.perf_counter()
            else:
                self._due |= time.perf_counter() - self._begin > EXPENSIVE

    def pytest_collection_finish(self) -> None:
        """Sets the collected tests aside."""
        gc.freeze()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Sets aside what is alive behind a file of tests in which a collection was expensive."""
        if self._due and nextitem is not None and nextitem.path != item.path:
            self._due = False
            gc.freeze()

    def pytest_sessionfinish(self) -> None:
        """Sets everything aside: pytest ends with five full collections."""
        gc.callbacks.remove(self._watch)
        gc.freeze()


def register(config: pytest.Config) -> None:
    """Adds it to a run of pytest."""
    config.pluginmanager.register(Collector(), "collector")
