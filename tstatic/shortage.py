"""Says what memory could not be had: how much was wanted, how much there is, and for what."""

from __future__ import annotations

import contextlib
import math
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any

from tstatic.display import size
from tstatic.errors import OutOfMemoryError, TstaticError

_SMALLER = "use a smaller batch or smaller shapes"
_NUMPY = ("array is too big", "Maximum allowed dimension")
"""How numpy begins to say, in a ``ValueError``, that an array has more bytes than can be addressed."""
_TORCH = ("can't allocate memory", "out of memory")
_FREE = re.compile(r"of which ([0-9.]+) (bytes|[KMGT]iB) is free", re.IGNORECASE)
"""How torch says how much a GPU has left."""
_TRIED = re.compile(r"tried to allocate ([0-9.]+) (bytes|[KMGT]iB)", re.IGNORECASE)
"""How torch says how much it wanted: on the host in bytes, on a GPU in larger units."""


def free_main_memory() -> int:
    """Returns the bytes that this process can still have: of the machine, of its group (cgroup), of its own limit (ulimit -v)."""
    found = [_of_machine()]
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages = int(Path("/proc/self/statm").read_bytes().split()[0])
            found.append(limit - pages * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_bytes())  # "max": no limit
        found.append(most - int((group / "memory.current").read_bytes()))
    return max(0, min(found))


def _of_machine() -> int:
    """Returns what the kernel says that programs can still have, caches that it would drop included."""
    try:
        # Bytes: a codec would be imported, for which a process that is out of memory may have no room.
        with open("/proc/meminfo", "rb") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith(b"MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def is_shortage(error: BaseException) -> bool:
    """Returns whether an exception of Python, numpy or torch says that memory could not be had."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    if isinstance(error, TstaticError):
        return False
    text = str(error)
    if isinstance(error, ValueError):
        return text.startswith(_NUMPY)
    return isinstance(error, RuntimeError) and any(one in text for one in _TORCH)


def _bytes(found: re.Match[str]) -> int:
    return int(float(found[1]) * 1024 ** ("bytes", "KiB", "MiB", "GiB", "TiB").index(found[2]))


def out_of_memory(
    what: str, wanted: int | None = None, cause: BaseException | None = None, *, fix: str = _SMALLER, **more: Any
) -> OutOfMemoryError:
    """Returns the error about memory that could not be had.

    Args:
        what: What needs it, as the subject of a sentence.
        wanted: How many bytes; by default those that the exception of numpy or torch names.
        cause: The exception.
        fix: What the user can do.
        **more: ``op``, ``var`` and ``where``, as of :class:`tstatic.errors.TstaticError`.
    """
    if wanted is None and cause is not None:
        shape, dtype = getattr(cause, "shape", None), getattr(cause, "dtype", None)
        if shape is not None and dtype is not None:
            wanted = math.prod(shape) * int(dtype.itemsize)
        elif (tried := _TRIED.search(str(cause))) is not None:
            wanted = _bytes(tried)
    left = None if cause is None else _FREE.search(str(cause))
    there = free_main_memory() if left is None else _bytes(left)
    received = "more bytes than can be addressed" if wanted is None else f"{size(wanted)} ({wanted} bytes)"
    if wanted is None and isinstance(cause, MemoryError):
        received = str(cause) or "an allocation that failed"
    error = OutOfMemoryError(
        f"{what} needs memory that cannot be had",
        expected=f"no more than the {size(there)} that are free",
        received=received,
        fix=fix,
        **more,
    )
    error.wanted_bytes, error.available_bytes = wanted, there
    return error


__all__ = ["free_main_memory", "is_shortage", "out_of_memory"]
