"""A fork waits for what other threads compute, for no longer than it must, and loses no signal meanwhile."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import tstatic as paddle
from tests.helpers.own_process import run_alone
from tstatic import forks, static
from tstatic.devices.cpu import blas
from tstatic.forks import away, computing
from tstatic.locks import cached_property

LONG = 240.0
"""Seconds that only bound a hang."""

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def fork(work: Callable[[], object] = int) -> int:
    """Forks, and returns how the child ended that called ``work``."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(LONG / 2))
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def thread(work: Callable[[], None]) -> Iterator[threading.Thread]:
    """Runs a thread beside the block."""
    made = threading.Thread(target=work, daemon=True)
    made.start()
    yield made
    made.join(LONG)
    assert not made.is_alive()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    assert condition()


class Busy:
    """A thread that computes until a fork waits for it."""

    def __init__(self, and_then: Callable[[], None] = lambda: None) -> None:
        self.inside = threading.Event()
        self.order: list[str] = []
        self.and_then = and_then

    def __call__(self) -> None:
        with computing():
            self.inside.set()
            until(lambda: forks._forking)
            self.and_then()
            self.order.append("computed")


def test_a_fork_waits_for_the_end_of_what_another_thread_computes() -> None:
    busy = Busy()
    with thread(busy):
        assert busy.inside.wait(LONG)
        assert fork(lambda: computing().__enter__()) == 0
        busy.order.append("forked")
    assert busy.order == ["computed", "forked"]
    assert not forks._forking


@pytest.mark.parametrize("call", ["hold", "let_go"])
def test_a_fork_waits_for_a_thread_that_sets_the_number_of_threads_of_blas(call: str) -> None:
    """The library takes a lock for it, which a child would find taken for ever: it hung in its first step."""
    inside, order = threading.Event(), []
    wait = [call == "hold"]

    def put(number: int) -> None:
        if wait[0]:
            inside.set()
            until(lambda: forks._forking)
        order.append(number)

    library = blas.Library(lambda: 2, put, per_thread=False)
    if call == "let_go":
        library.hold()
        order.clear()
    wait[0] = True
    with thread(getattr(library, call)):
        assert inside.wait(LONG)
        assert fork(lambda: order.index(1 if call == "hold" else 2)) == 0


def test_nothing_new_begins_while_a_fork_waits() -> None:
    """Else a thread that runs short steps would hold up a fork for ever."""
    second = threading.Event()

    def begin() -> None:
        with computing():
            second.set()

    busy = Busy(lambda: (time.sleep(0.05), busy.order.append("second" if second.is_set() else "alone"))[0])
    with thread(busy):
        assert busy.inside.wait(LONG)
        starter = threading.Thread(target=lambda: (until(lambda: forks._forking), begin()))
        starter.start()
        assert fork() == 0
        starter.join(LONG)
    assert busy.order == ["alone", "computed"]
    assert second.is_set()


def test_a_thread_that_forks_in_the_middle_of_its_own_step_does_not_wait_for_itself() -> None:
    with computing(), computing():
        assert fork(lambda: computing().__enter__()) == 0
        assert fork() == 0
    assert not computing().lock._is_owned()


def test_a_fork_does_not_wait_for_a_thread_that_waits_for_others() -> None:
    inside, go = threading.Event(), threading.Event()

    def wait() -> None:
        with computing(), computing():
            away(lambda: (inside.set(), go.wait(LONG)))
            assert computing().lock._is_owned()

    with thread(wait):
        assert inside.wait(LONG)
        assert fork() == 0
        go.set()


def test_a_fork_that_waits_too_long_goes_ahead_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forks, "PATIENCE", 0.05)
    inside, go = threading.Event(), threading.Event()

    def compute() -> None:
        with computing():
            inside.set()
            go.wait(LONG)

    def step_and_fork_again() -> None:
        with computing():
            # The thread that computes is not in this process, and holds up no fork of it.
            held = [one for one in [*forks._all] if one is not computing()]
            assert held
            assert all(one.lock.acquire(blocking=False) for one in held)

    with thread(compute):
        assert inside.wait(LONG)
        assert fork(step_and_fork_again) == 0
        go.set()
    assert "a fork did not wait any longer for the steps of 1 thread" in caplog.text
    assert not forks._forking


class LateError(Exception):
    """What the handler raises."""


def test_a_signal_that_comes_while_a_fork_waits_is_handled_after_it() -> None:
    """Python drops exceptions of what it calls before a fork, and so would lose Ctrl-C."""
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise LateError

    def signalled() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.05)

    before = signal.signal(signal.SIGUSR1, handle)
    busy = Busy(signalled)
    try:
        with thread(busy):
            assert busy.inside.wait(LONG)
            with pytest.raises(LateError):  # noqa: PT012 - it comes after the fork has returned
                fork()
                until(lambda: bool(seen))
        # Not in the middle of the wait, which it would have ended.
        assert busy.order == ["computed"]
        assert seen == [signal.SIGUSR1]
        assert signal.getsignal(signal.SIGUSR1) is handle
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.numpy_device
@pytest.mark.parametrize("first", [True, False], ids=["a first step", "a later step"])
def test_a_step_of_a_thread_that_ctrl_c_left_with_the_lock_of_imports_lets_a_fork_go_on(first: bool) -> None:
    """Python's callback that forgets a module's lock takes this one and can be broken off before it gives it back."""
    script = """
import _imp, os, sys, threading, time
from tstatic import forks
from tstatic.forks import computing

if sys.argv[1] == "False":
    computing()
_imp.acquire_lock()

def fork():
    child = os.fork()
    if not child:
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

forker = threading.Thread(target=fork)
forker.start()
while not forks._forking:
    time.sleep(0.001)
with computing():
    pass
forker.join()
print(_imp.lock_held())
"""
    ended = run_alone(script, str(first), timeout=LONG)
    assert ended.stdout.split() == ["7", "False"], ended.stderr


def test_a_replicas_function_forks_while_the_other_replica_waits_for_it() -> None:
    """The fork waits for no replica that is in a collective: it would wait for the fork in turn."""
    ends: list[int] = []
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4])
        y = main.current_block().create_var(name="y", dtype="float32", shape=[-1, 4])
        static.py_func(lambda a: (ends.append(fork()), np.array(a))[1], x, y)
        loss = paddle.mean(static.nn.fc(x + y, 3))
        paddle.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    compiled = static.CompiledProgram(main).with_data_parallel(loss.name, places=[paddle.CPUPlace()] * 2)
    for _ in range(3):
        exe.run(compiled, feed={"x": np.ones((4, 4), "f4")}, fetch_list=[loss])
    assert ends == [0] * 6


MANY = """
import multiprocessing, os, signal, threading
import numpy as np, threadpoolctl
import tstatic as paddle
from tstatic import static

class Rows(paddle.io.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return np.ones((64, 64), "f4") @ np.ones((64, 64), "f4")

def trained():
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss = paddle.mean(static.nn.fc(static.data("x", [512, 1000]), 64))
        paddle.optimizer.SGD(0.1).minimize(loss)
    exe, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    exe.run(startup, scope=scope)
    return lambda: exe.run(main, feed={"x": np.ones((512, 1000), "f4")}, fetch_list=[loss], scope=scope)

step, stop = trained(), threading.Event()
def work():
    while not stop.is_set():
        step()
threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(6):
    child = os.fork()
    if not child:
        signal.alarm(240)
        trained()()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    child = multiprocessing.get_context("fork").Process(target=lambda: trained()())
    child.start()
    child.join()
    assert child.exitcode == 0
assert len(list(paddle.io.DataLoader(Rows(), batch_size=2, num_workers=2))) == 2
stop.set()
for thread in threads:
    thread.join()
"""


@pytest.mark.numpy_device
def test_forks_beside_two_training_threads_hang_neither_side() -> None:
    """With the user's own BLAS threads, so that nothing but the wait keeps parent and child from hanging."""
    done = run_alone(MANY, FLAGS_keep_blas_threads="1")
    assert done.returncode == 0, done.stderr


def test_a_child_can_compute_a_property_that_a_thread_of_its_parent_was_computing() -> None:
    """functools' property has a lock before Python 3.12, which the child would find taken."""
    inside, go = threading.Event(), threading.Event()

    class Lazy:
        @cached_property
        def value(self) -> int:
            inside.set()
            go.wait(0.0 if os.getpid() != parent else LONG)
            return 3

    parent, lazy = os.getpid(), Lazy()
    with thread(lambda: vars(lazy).setdefault("seen", lazy.value)):
        assert inside.wait(LONG)
        assert fork(lambda: Lazy().value) == 0
        go.set()
    assert lazy.value == 3
    assert isinstance(Lazy.value, cached_property)


def test_no_module_has_a_lock_that_a_child_could_find_taken() -> None:
    """Locks are made by ``tstatic.locks``, which frees them in a child; these belong to objects that a child may not use."""
    own = {"locks.py", "forks.py", "devices/cpu/pool.py", "comm/group.py", "comm/liveness/__init__.py", "io/readers.py"}
    own.add("chips/processes.py")
    made = re.compile(
        r"\b(threading\.(R?Lock|Condition)\(\)|from functools import .*\bcached_property|functools\.cached_property)"
    )
    package = Path(paddle.__file__).parent
    found = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if made.search(file.read_text(encoding="utf-8"))
    }
    assert found <= own, "use tstatic.locks"
