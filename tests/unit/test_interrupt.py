"""State that is written is whole or refused, whatever comes in between."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.helpers.patience import HANG
from tstatic.errors import DeviceError, ForkedProcessError
from tstatic.runtime.interrupt import Writing, check_whole
from tstatic.runtime.scope import Scope
from tstatic.shield import shield


class LateError(Exception):
    """What a handler raises."""


def late(number: int, frame: object) -> None:
    raise LateError(number)


@pytest.fixture
def handlers() -> Iterator[None]:
    numbers = (signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.signal(n, late) for n in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def scope_with(*names: str) -> Scope:
    scope = Scope()
    for name in names:
        scope.var(name).get_tensor().set(np.zeros(2, "f4"))
    return scope


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_of_any_number_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    reached = False
    with pytest.raises((LateError, KeyboardInterrupt)), shield:  # noqa: PT012 - the end of the block raises
        os.kill(os.getpid(), number)
        for _ in range(1000):
            pass
        reached = True
    assert reached
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("handlers")
def test_of_two_signals_that_waited_both_are_handled() -> None:
    seen: list[int] = []

    def note(number: int, frame: object) -> None:
        seen.append(number)
        raise LateError(number)

    for number in (signal.SIGALRM, signal.SIGUSR1):
        signal.signal(number, note)
    with pytest.raises(LateError), shield, shield:  # noqa: PT012
        os.kill(os.getpid(), signal.SIGALRM)
        os.kill(os.getpid(), signal.SIGUSR1)
    assert sorted(seen) == sorted([signal.SIGALRM, signal.SIGUSR1])
    assert signal.getsignal(signal.SIGUSR1) is note


def test_a_handler_set_inside_the_block_stays() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    try:
        with shield:
            signal.signal(signal.SIGUSR2, late)
        assert signal.getsignal(signal.SIGUSR2) is late
        with shield:
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_what_an_exception_broke_off_is_refused_until_all_of_it_is_written_again() -> None:
    scope = scope_with("w", "m", "other")
    with pytest.raises(LateError), Writing(scope, ["w", "m"], "a step"):
        raise LateError
    with pytest.raises(DeviceError, match=r"half written: 'w' and 1 more(.|\n)*LateError broke off(.|\n)*static.load"):
        check_whole(scope, ["other", "w", "m"], "this run")
    check_whole(scope, ["other"], "this run")
    scope.var("w").get_tensor().set(np.ones(2, "f4"))
    with pytest.raises(DeviceError, match="half written: 'm'"):
        check_whole(scope, ["w", "m"], "this run")
    # A block that writes all of it, such as the startup program's step, heals, too.
    with Writing(scope, ["m"], "a step"):
        pass
    check_whole(scope, ["w", "m"], "this run")


def test_children_share_what_is_torn_and_new_storage_or_removal_heals() -> None:
    scope = scope_with("w", "v", "gone")
    kid = scope.new_scope()
    with pytest.raises(LateError), Writing(kid, ["w", "v", "gone"], "a step"):
        raise LateError
    with pytest.raises(DeviceError, match="'w' and 2 more"):
        check_whole(scope, ["w", "v", "gone"], "static.save")
    scope.publish("w", np.ones(3, "f4"))
    scope._layout_changed()
    kid.var("v").get_tensor().set(np.ones(2, "f4"))
    scope.erase("gone")
    check_whole(kid, ["w", "v", "gone"], "this run")


def test_an_exception_that_keeps_the_end_of_the_block_from_running_is_noticed_later() -> None:
    scope = scope_with("w")
    Writing(scope, ["w"], "a step").__enter__()
    shield.__exit__()
    with pytest.raises(DeviceError, match="a step that was broken off"):
        check_whole(scope, ["w"], "this run")


def test_a_fork_in_the_middle_of_another_threads_update_leaves_the_child_without_it() -> None:
    scope = scope_with("w", "other")
    inside, go = threading.Event(), threading.Event()

    def update() -> None:
        with Writing(scope, ["w"], "a step"):
            inside.set()
            go.wait(HANG)

    thread = threading.Thread(target=update)
    thread.start()
    inside.wait(HANG)
    child = _forked()
    if child == 0:
        code = 1
        try:
            check_whole(scope, ["other"], "this run")
            check_whole(scope, ["w"], "this run")
        except ForkedProcessError:
            code = 0
        finally:
            os._exit(code)
    go.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    check_whole(scope, ["w", "other"], "this run")


def _forked() -> int:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on: a fork beside threads is what is tested
        return os.fork()
