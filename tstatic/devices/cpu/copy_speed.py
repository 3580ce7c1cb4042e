"""Measures how fast this machine's memory is read and written."""

from __future__ import annotations

import functools
from time import perf_counter

import numpy as np

from tstatic.devices.cpu.pool import pool_of

_BYTES = 1 << 26
"""Larger than the caches of most machines, which would answer instead of memory."""
_TIMES = 4  # the first touches the pages; of the others the best, as what disturbs only ever takes longer


@functools.cache
def copy_speed(threads: int) -> float:
    """Returns bytes per second that a copy of large arrays reads and writes: the best of some, measured once in a process.

    Takes about a tenth of a second.

    Args:
        threads: How many share the work.
    """
    source, target = np.ones(_BYTES, np.uint8), np.zeros(_BYTES, np.uint8)
    # Eight parts: a few cores already take all that a memory gives.
    parts = [[(np.copyto, (t, s))] for t, s in zip(np.split(target, 8), np.split(source, 8), strict=True)]
    pool = pool_of(threads)
    best = float("inf")
    for _ in range(_TIMES):
        start = perf_counter()
        if pool is None:
            np.copyto(target, source)
        else:
            pool.run([parts] * threads)
        best = min(best, perf_counter() - start)
    # Read and written: each byte crosses to memory twice.
    return 2 * _BYTES / best
