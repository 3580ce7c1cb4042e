"""How long tests wait: a time-out bounds a hang, and what is promised in seconds is stretched by how busy the machine is."""

from __future__ import annotations

import os
import time
from functools import cache

HANG = 900.0
"""Seconds after which something hangs. What takes seconds on a quiet machine takes minutes beside twenty other processes."""

SPIN = 0.05
"""Seconds of processor time that `pace` takes."""


@cache
def pace() -> float:
    """Returns how many times as long as on a quiet machine something takes here and now; at least 1.

    The load of the last minute divided by the number of cores, or what a short computation takes by the clock for each second of
    processor time, whichever is more: the first lags behind, the second sees one moment. It is asked once in a process, and twice
    that much is allowed, since the load may rise while the tests run.
    """
    clock, used = time.perf_counter(), time.thread_time()
    while time.thread_time() - used < SPIN:
        pass
    seen = (time.perf_counter() - clock) / SPIN
    load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return max(1.0, 2.0 * seen if seen > 1.5 else 1.0, 2.0 * load if load > 1.5 else 1.0)
