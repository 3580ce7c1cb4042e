"""A sample of the soak of threads, forks and interrupts, and that it sees what it is there to see."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.helpers.own_process import run_alone
from tstatic.devices.cpu.pool import usable_cpus

pytestmark = [
    pytest.mark.numpy_device,
    pytest.mark.skipif(usable_cpus() < 2, reason="BLAS has one thread on one core"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
]


def soak(*args: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Runs schedules in a process whose BLAS has several threads."""
    return run_alone(f"import sys; from tests.cpu import soak_threads\n{before}\nsys.exit(soak_threads.main())", *args)


def test_results_have_the_same_bits_and_nothing_hangs_whatever_threads_do() -> None:
    done = soak("--trials", "15", "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "before the first use: [1" not in done.stdout


def test_the_soak_sees_products_of_several_threads() -> None:
    done = soak(
        "--trials", "1", "--seed", "7", before="from tstatic.devices.cpu import blas; blas._loaded = lambda: iter(())"
    )
    assert done.returncode == 1
    assert "other bits" in done.stdout, done.stdout + done.stderr


LEAVING = """
import importlib._bootstrap as bootstrap
def interrupted(call, delay):
    lock = bootstrap._get_module_lock("nowhere")
    def trace(frame, kind, argument):
        # At {line} the callback that removes the lock.
        code = frame.f_code
        if code.co_name == "cb" and kind == "line" and frame.f_lineno == code.co_firstlineno + {line}:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace
    sys.settrace(trace)
    del lock
    sys.settrace(None)
soak_threads._interrupted = interrupted
"""
"""Interrupts Python's own callback, where a schedule would interrupt a run; ``line`` counts from its ``def``."""


@pytest.mark.parametrize(("line", "lost"), [(2, True), (6, False)], ids=["between the lock and try", "within try"])
def test_a_lock_that_python_left_held_is_told_apart(line: int, lost: bool) -> None:
    """The schedule hung until its limit, as if the package had a lock that a signal leaves held."""
    done = soak("--trials", "1", "--seed", "63", before=LEAVING.format(line=line))
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("seed 63: Python's own import lock was left held" in done.stdout) is lost, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(f"0 broke a promise, Python ended {int(lost)}")
    assert lost or "KeyboardInterrupt" in done.stderr  # what is not that is printed as ever
