"""The machine, the versions and the commit of a result; loads nothing but Python's own modules, for bare environments."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def blas() -> str:
    """Returns the libraries of numpy's matrix products, and the processor whose kernels they chose: by it a step varies by half."""
    import numpy as np
    import threadpoolctl

    # A product, so that the library is loaded.
    np.dot(np.ones(2), np.ones(2))
    every = [one for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"]
    # scipy brings another one, once it is loaded.
    found = [one for one in every if "numpy" in Path(one.get("filepath", "")).as_posix()] or every
    text = ", ".join(f"{one['internal_api']} {one['version']} for {one.get('architecture', '?')}" for one in found)
    forced = os.environ.get("OPENBLAS_CORETYPE")
    return f"{text} (OPENBLAS_CORETYPE={forced})" if forced else text


def machine() -> dict[str, Any]:
    """Returns processor, usable cores, memory in MiB, system, load, library of matrix products."""
    model = platform.processor() or platform.machine()
    memory = 0
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
        memory = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    except OSError:
        pass
    load = list(os.getloadavg()) if hasattr(os, "getloadavg") else []
    return {
        "cpu": model,
        "cores": usable_cores(),
        "memory_mib": memory,
        "system": platform.platform(),
        "load": load,
        "blas": blas(),
    }


def usable_cores() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit(folder: Path | None = None) -> str:
    """Returns the commit of the checkout that holds a folder, by default this file's, with a mark when files differ from it."""
    here = folder or Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=here, capture_output=True, text=True
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Returns the versions of Python and of packages, without importing them; those that are not installed are left out."""
    import importlib.metadata

    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def today() -> str:
    """Returns the date, as files are named by."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def now() -> str:
    """Returns the time in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def gpu_query() -> str:
    """Returns what ``nvidia-smi`` says of the GPUs: name, driver, clocks, power."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "nvidia-smi is not there"
    return done.stdout.strip() or "nvidia-smi finds none"
