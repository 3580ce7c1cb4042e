"""Trials of steps that Ctrl-C, other signals and forks hit at random: nothing hangs, and the next run is right or refused.

``python -m tests.cpu.soak_signals --trials 500`` prints a line per kind of trial and fails when one promise is broken.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tstatic as paddle
from tests.helpers.patience import pace
from tstatic import static
from tstatic.errors import DeviceError, ForkedProcessError

LIMIT = 20.0 * pace()
"""Seconds after which a trial counts as hung; one takes milliseconds."""

REFUSED = "refused"


class EndedError(Exception):
    """What the handlers of signals other than Ctrl-C raise."""


class Bench:
    """A training whose every state is known: parameters after step ``k`` are compared with a run that nothing disturbed.

    Args:
        places: 1: large operators share a pool of worker threads; more: one thread per place.
    """

    def __init__(self, places: int) -> None:
        self.main, self.startup = static.Program(), static.Program()
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            h = static.data("x", [None, 24])
            for i in range(3):
                # The same values at every start: a seed gives each run of the startup program others.
                weight = np.random.default_rng(i).standard_normal((24, 24)).astype("f4")
                h = static.nn.fc(h, 24, activation="tanh", weight_attr=paddle.nn.initializer.Assign(weight))
            if places == 1:
                # Large enough to be cut into pieces for the worker threads.
                h = paddle.tanh(paddle.expand(paddle.unsqueeze(h, 1), [-1, 4096, 24])).mean(axis=1)
            self.loss = paddle.mean(paddle.square(h))
            paddle.optimizer.Adam(0.01).minimize(self.loss)
        self.scope = static.Scope()
        self.exe = static.Executor(paddle.CPUPlace())
        execution = static.ExecutionStrategy()
        execution.num_threads = 2
        compiled = static.CompiledProgram(self.main)
        self.compiled = compiled.with_data_parallel(
            self.loss.name, exec_strategy=execution, places=[paddle.CPUPlace()] * places
        )
        self.feed = {"x": np.random.default_rng(0).standard_normal((4, 24)).astype("f4")}
        self.known: list[bytes] = []
        self.start()
        for _ in range(6):
            self.known.append(self.state())
            self.step()

    def start(self) -> None:
        self.exe.run(self.startup, scope=self.scope)

    def step(self, exe: static.Executor | None = None) -> float:
        (loss,) = (exe or self.exe).run(self.compiled, feed=self.feed, fetch_list=[self.loss], scope=self.scope)
        return float(np.mean(loss))

    def state(self) -> bytes:
        """All parameters and moments."""
        names = sorted(v.name for v in self.main.list_vars() if v.persistable)
        found = [self.scope.find_var(name) for name in names]
        return b"".join(np.array(var.get_tensor()).tobytes() for var in found if var is not None)

    def verdict(self, run: int) -> str:
        """What is wrong after a step that was broken off, which had been number ``run``; empty if nothing is."""
        try:
            before = self.state()
            self.step()
        except (DeviceError, ForkedProcessError) as error:
            if "half written" not in str(error):
                return f"the next run says: {error}"
            self.start()
            return "" if self.state() == self.known[0] else "the startup program does not heal"
        if before not in self.known[run : run + 2]:
            return f"the state is that of no step around {run}"
        number = self.known.index(before)
        return "" if self.state() == self.known[number + 1] else f"step {number + 1} is wrong after an interrupt"


@contextmanager
def handler(number: int, function: Callable[..., Any]) -> Iterator[None]:
    before = signal.signal(number, function)
    try:
        yield
    finally:
        signal.signal(number, before)


def _raise(*_: object) -> None:
    raise EndedError


def signalled(bench: Bench, rng: random.Random, number: int, span: float) -> str:
    """One step with a signal, or two, at a random moment."""
    bench.start()
    run = rng.randrange(3)
    for _ in range(run):
        bench.step()
    again = rng.random() < 0.3
    delays = [rng.random() * span, rng.random() * 0.002]
    done = threading.Event()

    def send() -> None:
        for delay in delays[: 1 + again]:
            if done.wait(delay):
                return
            os.kill(os.getpid(), number)

    with handler(number, signal.default_int_handler if number == signal.SIGINT else _raise):
        sender = threading.Thread(target=send)
        try:
            try:
                sender.start()
                bench.step()
                done.set()
            finally:
                while sender.is_alive():
                    sender.join()
        except (KeyboardInterrupt, EndedError):
            done.set()
        while True:
            try:
                done.set()
                sender.join()
                break
            except (KeyboardInterrupt, EndedError):
                pass
    return bench.verdict(run)


def forked(bench: Bench, rng: random.Random, span: float) -> str:
    """Forks while another thread steps; the child runs, or is refused in words."""
    bench.start()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            bench.step()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        time.sleep(rng.random() * span * 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is what is tested
            child = os.fork()
        if child == 0:
            code = 3
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(int(LIMIT / 2))
                try:
                    code = 0 if np.isfinite(bench.step(static.Executor(paddle.CPUPlace()))) else 4
                except ForkedProcessError:
                    code = 17
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        stop.set()
        thread.join()
    if code not in (0, 17):
        return f"the child ended with {code}" + (" (hung)" if code == -signal.SIGALRM else "")
    bench.start()
    bench.step()
    return "" if bench.state() == bench.known[1] else "the parent's next step is wrong"


KINDS = ("pool SIGINT", "pool SIGTERM", "pool fork", "parallel SIGINT", "parallel SIGTERM", "parallel fork")


def soak(trials: int, seed: int, report: Callable[[str, str, float], None] | None = None) -> list[str]:
    """Runs trials that go round all kinds; returns what was broken."""
    rng = random.Random(seed)
    benches = {"pool": Bench(1), "parallel": Bench(2)}
    spans = {}
    for name, bench in benches.items():
        start = time.perf_counter()
        for _ in range(3):
            bench.step()
        spans[name] = (time.perf_counter() - start) / 3 * 1.3
    broken = []
    for i in range(trials):
        kind = KINDS[i % len(KINDS)]
        where, how = kind.split()
        # A hang ends the process with the stacks of all threads.
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        start = time.perf_counter()
        if how == "fork":
            wrong = forked(benches[where], rng, spans[where])
        else:
            wrong = signalled(benches[where], rng, getattr(signal, how), spans[where])
        faulthandler.cancel_dump_traceback_later()
        if wrong:
            broken.append(f"trial {i} ({kind}): {wrong}")
        if report is not None:
            report(kind, wrong, time.perf_counter() - start)
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    slowest: Counter[str] = Counter()

    def report(kind: str, wrong: str, seconds: float) -> None:
        counts[kind] += 1
        slowest[kind] = max(slowest[kind], round(seconds, 3))
        if wrong:
            print(f"{kind}: {wrong}", flush=True)

    start = time.time()
    broken = soak(options.trials, options.seed, report)
    print(f"{options.trials} trials in {time.time() - start:.0f} s, {len(broken)} broke a promise")
    print("trials:", dict(counts))
    print("slowest in seconds:", dict(slowest))
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
