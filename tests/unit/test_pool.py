"""Worker threads: a step that is broken off leaves nothing behind for the next one."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading
import time
from typing import Any

import pytest

from tests.helpers.patience import HANG
from tstatic.devices.cpu.pool import Job, Pool


class Recorder:
    """Tiles that note who ran; what they wait for is in the hands of the test."""

    def __init__(self, threads: int = 1) -> None:
        self.done: list[str] = []
        self.together = threading.Barrier(threads)
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)

    def tile(self, name: str, wait: bool) -> None:
        if wait:
            # Each thread has one of the tiles.
            self.together.wait(HANG)
        self.entered.release()
        if wait and threading.current_thread() is not threading.main_thread():
            self.gate.wait(HANG)
        self.done.append(name)

    def bound(self, tag: str, tiles: int, threads: int, wait: bool = False) -> Any:
        return [[[(self.tile, (f"{tag}{k}", wait))] for k in range(tiles)] for _ in range(threads)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("threads", [2, 3])
def test_an_interrupt_waits_for_the_helpers_and_the_next_job_is_whole(threads: int, number: signal.Signals) -> None:
    class EndedError(BaseException):
        pass

    def end(*_: object) -> None:
        raise EndedError

    pool, record = Pool(threads), Recorder(threads)
    before = signal.signal(number, end)

    def interrupt() -> None:
        for _ in range(threads):
            record.entered.acquire(timeout=HANG)
        os.kill(os.getpid(), number)
        time.sleep(0.05)
        record.gate.set()

    try:
        other = threading.Thread(target=interrupt)
        other.start()
        with pytest.raises(EndedError):
            pool.run(record.bound("a", threads, threads, wait=True))
        other.join()
        # Nobody works any more: what was begun is done.
        assert len(record.done) >= threads - 1
        for tag in "bcd":
            record.done.clear()
            pool.run(record.bound(tag, 4, threads))
            assert sorted(record.done) == [f"{tag}{k}" for k in range(4)]
    finally:
        signal.signal(number, before)
        pool.close()


def test_a_second_interrupt_while_helpers_are_waited_for_changes_nothing() -> None:
    pool, record = Pool(2), Recorder(2)

    def interrupt() -> None:
        for _ in range(2):
            record.entered.acquire(timeout=HANG)
        for _ in range(5):
            _thread.interrupt_main()
            time.sleep(0.01)
        record.gate.set()

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        pool.run(record.bound("a", 2, 2, wait=True))
    other.join()
    assert sorted(record.done) == ["a0", "a1"]
    record.done.clear()
    pool.run(record.bound("b", 3, 2))
    assert sorted(record.done) == ["b0", "b1", "b2"]
    pool.close()


def test_a_drain_that_was_interrupted_is_finished_by_the_next_job() -> None:
    pool, record = Pool(3), Recorder()
    # As an exception between two bytecodes leaves it: an order given that nobody waits for.
    old = Recorder()
    pool._orders[1].put(Job(old.bound("old", 2, 3), 2))
    pool._must_drain = True
    pool.run(record.bound("a", 6, 3))
    assert sorted(old.done) == ["old0", "old1"]
    assert sorted(record.done) == [f"a{k}" for k in range(6)]
    assert pool._done.empty()
    pool.close()


def test_a_helper_outlives_any_exception_of_a_piece() -> None:
    pool = Pool(2)

    def fail() -> None:
        if threading.current_thread() is not threading.main_thread():
            raise SystemExit
        time.sleep(0.01)

    for _ in range(20):
        with contextlib.suppress(SystemExit):
            pool.run([[[(fail, ())]] * 4] * 2)
    record = Recorder()
    pool.run(record.bound("a", 4, 2))
    assert len(record.done) == 4
    pool.close()
