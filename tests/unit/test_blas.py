"""BLAS is held to one thread, whatever kind of library it is, and the flag gives the user's number back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import tstatic as paddle
from tstatic.devices.cpu import blas


class Counted:
    """A library that notes what is set; with a number for the process, or one for each thread."""

    def __init__(self, per_thread: bool) -> None:
        self._local = threading.local()
        self._shared = 4
        self.per_thread = per_thread
        self.library = blas.Library(self.get, self.put, per_thread)

    def get(self) -> int:
        return getattr(self._local, "number", 4) if self.per_thread else self._shared

    def put(self, number: int) -> None:
        if self.per_thread:
            self._local.number = number
        else:
            self._shared = number


@pytest.fixture(params=["process", "thread"])
def counted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Counted:
    made = Counted(request.param == "thread")
    monkeypatch.setattr(blas, "_loaded", lambda: iter([("one", made.library)]))
    monkeypatch.setattr(blas, "_libraries", {})
    monkeypatch.setattr(blas, "_held", ())
    monkeypatch.setattr(blas, "_modules", -1)
    monkeypatch.setattr(blas, "_mine", threading.local())
    return made


def elsewhere(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def held(counted: Counted) -> int:
    blas.hold()
    return counted.get()


def test_one_thread_wherever_the_first_run_is(counted: Counted) -> None:
    assert elsewhere(lambda: held(counted)) == 1
    if not counted.per_thread:
        assert counted.get() == 1
    assert held(counted) == 1
    assert elsewhere(lambda: held(counted)) == 1


def test_a_number_that_somebody_sets_in_between_does_not_last(counted: Counted) -> None:
    blas.hold()
    counted.put(3)
    assert held(counted) == 1


def test_the_flag_gives_the_number_back_and_takes_it_again(counted: Counted) -> None:
    blas.hold()
    paddle.set_flags({"FLAGS_keep_blas_threads": True})
    assert held(counted) == 4
    counted.put(3)
    assert held(counted) == 3
    paddle.set_flags({"FLAGS_keep_blas_threads": False})
    assert held(counted) == 1
    paddle.set_flags({"FLAGS_keep_blas_threads": True})
    assert held(counted) == 3


def test_with_the_flag_from_the_start_nothing_is_set(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    paddle.set_flags({"FLAGS_keep_blas_threads": True})
    monkeypatch.setattr(counted.library, "put", lambda number: pytest.fail("a number was set"))
    assert held(counted) == 4


@pytest.mark.parametrize("call", range(3))
def test_an_interrupt_leaves_nothing_unset(counted: Counted, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Ctrl-C while the number is read or set: the next run holds it as if nothing had been."""
    left = [call]

    def interrupted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: int) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return function(*args)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("get", "put"):
            patch.setattr(counted.library, name, interrupted(getattr(counted.library, name)))
        with pytest.raises(KeyboardInterrupt):
            blas.hold()
    assert held(counted) == 1
    paddle.set_flags({"FLAGS_keep_blas_threads": True})
    assert held(counted) == 4


def test_a_library_that_comes_later_is_held_too(monkeypatch: pytest.MonkeyPatch, counted: Counted) -> None:
    blas.hold()
    late = Counted(False)
    monkeypatch.setattr(blas, "_loaded", lambda: iter([("one", counted.library), ("late", late.library)]))
    monkeypatch.setattr(blas, "_modules", -1)
    assert held(late) == 1
