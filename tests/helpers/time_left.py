"""A line a minute in a run of the tests: how many are done, and about how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tstatic.progress import duration

EVERY = 60.0
"""Seconds between two lines."""


class TimeLeft:
    """Counts tests that have ended, and says so now and then; with several workers, in the process that tells them what to run.

    Args:
        write: Prints a line.
        clock: Seconds, for tests.
    """

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._begin = self._said = clock()
        self._done = 0
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtestloop(self) -> None:
        """Begins to count the time: what collects the tests says nothing of how long they take."""
        self._begin = self._said = self._clock()

    def pytest_runtest_logfinish(self) -> None:
        """Counts a test, and says what is left if the last line is old enough."""
        self._done += 1
        now = self._clock()
        total = self._session.testscollected if self._session is not None else 0
        if now - self._said >= EVERY and total > self._done:
            self._said = now
            left = (now - self._begin) / self._done * (total - self._done)
            self._write(
                f"{self._done:,} of {total:,} tests in {duration(now - self._begin)}; about {duration(left)} left"
            )


def register(config: pytest.Config) -> None:
    """Shows the lines in a run that has a terminal reporter and runs or hands out tests itself."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return

    def write(line: str) -> None:
        reporter.ensure_newline()
        reporter.write_line(line)

    config.pluginmanager.register(TimeLeft(write), "time left")
