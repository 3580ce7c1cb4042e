"""Progress: nothing for two seconds, one line on a terminal with the time left, few lines elsewhere."""

from __future__ import annotations

import io

import pytest

from tstatic.progress import Progress, duration, tracked


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_terminal_has_one_line_with_the_time_left_which_goes_away() -> None:
    stream, clock = Terminal(), Clock()
    with Progress("compiling", 40, stream, clock) as progress:
        clock.now = 1.9
        progress.advance("early")
        assert stream.getvalue() == ""
        clock.now = 10.0
        progress.advance("softmax\x1b[2J", 9)
        assert stream.getvalue() == "\rcompiling 10/40, 30 s left (softmax?[2J)"
        progress.advance("too soon")
        clock.now = 11.0
        progress.advance("b")
        last = stream.getvalue().rpartition("\r")[2]
        assert last.rstrip() == "compiling 12/40, 26 s left (b)"
        assert len(last) == len("compiling 10/40, 30 s left (softmax?[2J)"), "the longer line is overwritten"
    assert stream.getvalue().endswith("\r")
    assert "\n" not in stream.getvalue()


def test_a_file_has_a_line_a_minute() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress("comparing", 200, stream, clock) as progress:
        for at in range(125):
            clock.now = at
            progress.advance()
    assert stream.getvalue().splitlines() == [
        "comparing 61/200, 2 min 17 s left", "comparing 121/200, 1 min 18 s left", "comparing: 125 of 200 in 2 min 4 s",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [("TSTATIC_PROGRESS", "0"), ("RANK", "1"), ("PADDLE_TRAINER_ID", "3")])
def test_other_ranks_and_those_who_do_not_want_it_see_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    stream, clock = Terminal(), Clock()
    with Progress("compiling", 4, stream, clock) as progress:
        clock.now = 100.0
        progress.advance()
    assert stream.getvalue() == ""
    assert progress.done == 1


def test_durations_have_units() -> None:
    assert [duration(s) for s in (0.42, 12.3, 200, 7500)] == ["0.4 s", "12 s", "3 min 20 s", "2 h 5 min"]


def test_tracked_items_come_through() -> None:
    assert list(tracked("reading", [1, 2], 2)) == [1, 2]
