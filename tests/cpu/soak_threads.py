"""Schedules of threads that run, fork, load and are interrupted: nothing hangs, and every result has the bits of a quiet process.

``python -m tests.cpu.soak_threads --trials 500`` prints what was broken, and fails if anything was. Each schedule is a process:
a fork of one that has imported the package and used nothing of it, so that BLAS still has several threads. Schedules that Python
itself ends, by leaving its lock of imports held after Ctrl-C, are counted apart.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

import tstatic as paddle
from tests.helpers import import_lock
from tstatic import static

LOST = "Python's own import lock was left held"
"""What a schedule says that Ctrl-C ended in a callback of Python's: every import would wait for ever."""

LIMIT = 240
"""Seconds after which a schedule counts as hung; one takes less than a second."""

# OpenBLAS uses several threads, and with sums this long gives other bits then; the pool gets pieces of the activation.
ROWS, INNER, COLUMNS = 96, 500, 96


class Rows(paddle.io.Dataset):  # type: ignore[misc]
    """Numbers that a worker computes by a product; whole ones, so that no order of sums changes them."""

    def __getitem__(self, index: int) -> Any:
        return np.full((32, 64), index, np.float32) @ np.ones((64, 32), np.float32)

    def __len__(self) -> int:
        return 4


def _weight(seed: int, *shape: int) -> Any:
    return paddle.nn.initializer.Assign(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


def _watch() -> None:
    """Makes a forked child that hangs print its stacks and end."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(LIMIT // 2)


class World:
    """Programs whose results are known."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.main, self.startup = static.Program(), static.Program()
        with static.program_guard(self.main, self.startup), paddle.utils.unique_name.guard():
            x = static.data("x", [None, INNER])
            h = static.nn.fc(x, COLUMNS, weight_attr=_weight(0, INNER, COLUMNS), activation="tanh")
            h = paddle.tanh(paddle.expand(paddle.unsqueeze(h, 1), [-1, 12, COLUMNS])).mean(axis=1)
            self.out = static.nn.fc(h, 64, weight_attr=_weight(1, COLUMNS, 64))
            self.loss = paddle.mean(paddle.square(self.out))
            self.test = self.main.clone(for_test=True)
            paddle.optimizer.SGD(0.1).minimize(self.loss)
        self.feed = {"x": np.random.default_rng(2).standard_normal((ROWS, INNER)).astype("f4")}
        self.start()

    def start(self) -> None:
        """Makes what belongs to this process."""
        self.executor = static.Executor(paddle.CPUPlace())
        self.scope = static.Scope()
        self.once = threading.Lock()
        self.ready = False
        self.predictor: Any = None

    def shared(self) -> None:
        """Fills what all threads share; whichever comes first does it."""
        with self.once:
            if not self.ready:
                self.executor.run(self.startup, scope=self.scope)
                self.predictor = paddle.inference.create_predictor(paddle.inference.Config(self.folder + "/m"))
                self.ready = True

    # ----------------------------------------------------------------------------------------------------------- events
    def train(self, places: int, threads: int) -> bytes:
        """Two steps from the start, with a scope and an Executor of their own: losses and weights."""
        scope, exe = static.Scope(), static.Executor(paddle.CPUPlace())
        exe.run(self.startup, scope=scope)
        execution = static.ExecutionStrategy()
        execution.num_threads = threads
        compiled = static.CompiledProgram(self.main).with_data_parallel(
            self.loss.name, exec_strategy=execution, places=[paddle.CPUPlace()] * places
        )
        found = [exe.run(compiled, feed=self.feed, fetch_list=[self.loss], scope=scope)[0] for _ in range(2)]
        found += [np.array(scope.find_var(p.name).get_tensor()) for p in self.main.all_parameters()]
        return b"".join(np.asarray(one).tobytes() for one in found)

    def infer(self) -> bytes:
        """Runs the Executor that all threads share."""
        self.shared()
        (found,) = self.executor.run(self.test, feed=self.feed, fetch_list=[self.out.name], scope=self.scope)
        return bytes(found.tobytes())

    def predict(self) -> bytes:
        """Runs a clone of the predictor that all threads share."""
        self.shared()
        return bytes(self.predictor.clone().run([self.feed["x"]])[0].tobytes())

    def load(self) -> bytes:
        """Reads a loader with a process."""
        batches = paddle.io.DataLoader(Rows(), batch_size=2, num_workers=1)
        return b"".join(np.asarray(batch).tobytes() for batch in batches)

    def fork(self) -> bytes:
        """Trains in a forked child, with an Executor of its own."""
        read, write = os.pipe()
        child = os.fork()
        if not child:
            _watch()
            try:
                os.write(write, self.train(1, 2))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            found = pipe.read()
        os.waitpid(child, 0)
        return found

    def process(self) -> bytes:
        """Trains in a process of ``multiprocessing``."""
        context = multiprocessing.get_context("fork")
        mine, other = context.Pipe()
        child = context.Process(target=lambda: (_watch(), other.send(self.train(1, 1))))
        child.start()
        other.close()
        try:
            return bytes(mine.recv()) if mine.poll(LIMIT) else b"hung"
        except EOFError:
            return b"ended"
        finally:
            child.kill()
            child.join()

    def products(self) -> bytes:
        """What a user's own thread does beside.

        After the first use: before it, a fork in the middle of such a product hangs, as it does without this library.
        """
        self.shared()
        a = np.ones((300, 300), np.float32)
        for _ in range(3):
            a = a @ a / 300
        return a.tobytes()

    def events(self) -> dict[str, tuple[str, Callable[[], bytes]]]:
        """Name -> what its result must be equal to, and the call."""
        return {
            "train": ("train", lambda: self.train(1, 1)),
            "train by 2 threads": ("train", lambda: self.train(1, 2)),
            "train by 3 threads": ("train", lambda: self.train(1, 3)),
            "train on 2 places": ("replicas", lambda: self.train(2, 2)),
            "infer": ("infer", self.infer),
            "predict": ("infer", self.predict),
            "load": ("load", self.load),
            "fork": ("train", self.fork),
            "process": ("train", self.process),
            "products": ("products", self.products),
        }


def known(folder: str) -> dict[str, bytes]:
    """Returns what is right: one thread, and a BLAS that was told so from outside."""
    with threadpoolctl.threadpool_limits(1, "blas"):
        world = World(folder)
        world.executor.run(world.startup, scope=world.scope)
        with static.scope_guard(world.scope):
            x = world.test.global_block().var("x")
            out = world.test.global_block().var(world.out.name)
            static.save_inference_model(folder + "/m", [x], [out], world.executor, program=world.test)
        found = {"train": world.train(1, 1), "replicas": world.train(2, 1), "infer": world.infer()}
        return {**found, "load": world.load(), "products": world.products()}


def _interrupted(call: Callable[[], bytes], delay: float) -> None:
    """Calls in the main thread, which Ctrl-C hits after a while."""

    def send() -> None:
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    with contextlib.suppress(KeyboardInterrupt):
        sender.start()
        call()
        # Until it arrives, or is lost: Python drops what is raised in a weak reference's callback.
        sender.join()
        time.sleep(0.01)
    sender.join()


def schedule(seed: int, built: World, right: dict[str, bytes], wrong: list[str]) -> None:
    """Runs one schedule in this process; adds what was wrong, at once."""
    rng = random.Random(seed)
    warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is what is tested
    world = built if seed % 3 else World(built.folder)  # built here, its threads load modules at the same time
    world.start()
    events = world.events()

    def work(names: list[str]) -> None:
        for name in names:
            wanted, call = events[name]
            try:
                found = call()
            except BaseException as error:
                wrong.append(f"{name}: {type(error).__name__}: {error}")
                return
            if found != right[wanted]:
                wrong.append(f"{name}: other bits ({len(found)} bytes of {len(right[wanted])})")

    threads = [
        threading.Thread(target=work, args=(rng.choices(list(events), k=rng.randrange(1, 4)),))
        for _ in range(rng.randrange(1, 4))
    ]
    if rng.random() < 0.5:
        work([rng.choice(list(events))])  # the first use is the main thread's; else, most likely, another one's
    for thread in threads:
        thread.start()
    for name in rng.choices(["interrupt", *events], k=rng.randrange(1, 4)):
        if name == "interrupt":
            _interrupted(
                events[rng.choice(["train by 2 threads", "train on 2 places", "infer"])][1], rng.random() * 0.1
            )
        else:
            work([name])
    for thread in threads:
        thread.join()
    work(["infer"])


def trial(seed: int, built: World, right: dict[str, bytes]) -> str:
    """Runs a schedule in a forked process; returns what was wrong with it."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        # A group of its own: what it started ends with it.
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        wrong: list[str] = []
        own = os.getpid()

        def note(dropped: Any) -> None:
            if os.getpid() == own and import_lock.is_left_held(dropped):
                os.write(write, "; ".join([*wrong, LOST]).encode())
                os._exit(0)
            sys.__unraisablehook__(dropped)

        sys.unraisablehook = note
        try:
            schedule(seed, built, right, wrong)
            os.write(write, "; ".join(wrong).encode() or b"fine")
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "" if text == "fine" else text or "it hung, or ended"


def soak(trials: int, seed: int) -> tuple[list[str], int]:
    """Runs schedules; returns what was broken, and how many schedules Python itself ended."""
    broken, lost = [], 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "right.npz"
        child = os.fork()
        if not child:
            code = 1
            try:
                right = known(folder)
                np.savez(file, **{name: np.frombuffer(one, np.uint8) for name, one in right.items()})
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0, "a quiet process cannot run the programs"
        right = {name: one.tobytes() for name, one in np.load(file).items()}
        built = World(folder)
        for i in range(trials):
            wrong = trial(seed + i, built, right)
            if wrong == LOST:
                lost += 1
                print(f"seed {seed + i}: {LOST}", flush=True)
            elif wrong:
                broken.append(f"seed {seed + i}: {wrong}")
                print(broken[-1], flush=True)
    return broken, lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    blas = [one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"]
    print(f"threads of BLAS before the first use: {blas}")
    start = time.time()
    broken, lost = soak(options.trials, options.seed)
    print(
        f"{options.trials} schedules in {time.time() - start:.0f} s, {len(broken)} broke a promise, Python ended {lost}"
    )
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
