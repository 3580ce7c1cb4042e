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
