"""The line that a run of the tests prints once a minute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.helpers.time_left import TimeLeft


def test_a_line_a_minute_says_how_many_tests_are_done_and_how_long_the_rest_takes() -> None:
    lines: list[str] = []
    now = [0.0]
    plugin = TimeLeft(lines.append, lambda: now[0])
    plugin.pytest_sessionstart(cast(Any, SimpleNamespace(testscollected=2000)))
    now[0] = 100.0  # collecting them took so long, which says nothing of how long they take
    plugin.pytest_runtestloop()
    for done in range(1, 2001):
        now[0] = 100.0 + done * 0.1
        plugin.pytest_runtest_logfinish()
    assert lines == [
        "600 of 2,000 tests in 1 min 0 s; about 2 min 20 s left",
        "1,200 of 2,000 tests in 2 min 0 s; about 1 min 20 s left",
        "1,800 of 2,000 tests in 3 min 0 s; about 20 s left",
    ]
