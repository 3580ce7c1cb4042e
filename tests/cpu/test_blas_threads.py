"""In processes of their own, in which BLAS has several threads: bits do not depend on the thread that runs."""

from __future__ import annotations

import pytest

from tests.helpers.own_process import run_alone
from tstatic.devices.cpu.pool import usable_cpus

pytestmark = [
    pytest.mark.numpy_device,
    pytest.mark.skipif(usable_cpus() < 2, reason="BLAS has one thread on one core"),
]

# With sums of 500 numbers and more than one thread, OpenBLAS gives other bits.
SCRIPT = """
import sys, threading
import numpy as np
import threadpoolctl

def threads_of_blas():
    return {one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"}

assert min(threads_of_blas()) > 1, "this test needs a BLAS with threads"
first, flag = sys.argv[1:]

import tstatic as paddle
from tstatic import static

def elsewhere(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]

x = static.data("x", [96, 500])
def dense(h, size, seed):
    weight = np.random.default_rng(seed).standard_normal((h.shape[1], size)).astype("f4")
    return static.nn.fc(h, size, weight_attr=paddle.nn.initializer.Assign(weight))

y = dense(dense(x, 96, 0), 600, 1)
main, startup = static.default_main_program(), static.default_startup_program()
feed = {"x": np.random.default_rng(2).standard_normal((96, 500)).astype("f4")}

def run(threads=1):
    exe, scope = static.Executor(paddle.CPUPlace()), static.Scope()
    execution = static.ExecutionStrategy()
    execution.num_threads = threads
    with static.scope_guard(scope):
        exe.run(startup)
        compiled = static.CompiledProgram(main).with_data_parallel(places=[paddle.CPUPlace()], exec_strategy=execution)
        return exe.run(compiled, feed=feed, fetch_list=[y])[0].tobytes()

here = lambda function: function()
"""

SAME = """
if first == "held":
    # Another thread that lives has set a number by threadpoolctl, whose calls do nothing in any other thread from then on.
    threadpoolctl.ThreadpoolController().lib_controllers[0].set_num_threads(2)
begin = here if first == "main" else elsewhere
begin(lambda: static.Executor(paddle.CPUPlace()).run(startup, scope=static.Scope()))
# A program without products is enough.
assert threads_of_blas() == {1}, threads_of_blas()
bits = begin(run)
assert threads_of_blas() == elsewhere(threads_of_blas) == {1}, threads_of_blas()
wrong = [n for n in range(12) if elsewhere(lambda: run(1 + n % 3)) != bits or run(1 + n % 3) != bits]
assert not wrong, wrong
with threadpoolctl.threadpool_limits(2, "blas"):
    assert run() == bits
with threadpoolctl.threadpool_limits(1, "blas"):
    assert run() == bits
assert threads_of_blas() == {1}, threads_of_blas()
"""

KEPT = """
before = threads_of_blas()
run()
assert threads_of_blas() == before
paddle.set_flags({"FLAGS_keep_blas_threads": False})
bits = run()
assert threads_of_blas() == {1} and elsewhere(run) == bits
paddle.set_flags({"FLAGS_keep_blas_threads": True})
run()
assert threads_of_blas() == before
"""


def run(code: str, *args: str, **variables: str) -> None:
    done = run_alone(SCRIPT + code, *args, **variables)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("first", ["main", "held"])
def test_bits_do_not_depend_on_the_thread_that_runs_or_that_ran_first(first: str) -> None:
    run(SAME, first, "")


def test_the_flag_keeps_the_users_number_of_threads() -> None:
    run(KEPT, "main", "kept", FLAGS_keep_blas_threads="1")
