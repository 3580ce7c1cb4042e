"""Holds numpy's matrix products to one thread each, so that their bits do not depend on which thread computes them."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from tstatic import flags
from tstatic.forks import taken_by_forks
from tstatic.ir.frozen import FrozenOp
from tstatic.locks import rlock
from tstatic.logs import warn_once

# Of C functions: `openblas_set_num_threads_` and its like take a pointer, as Fortran does.
_SYMBOLS = {
    "openblas": ("openblas_get_num_threads", "openblas_set_num_threads"),
    "mkl": ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    "blis": ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
    "flexiblas": ("flexiblas_get_num_threads", "flexiblas_set_num_threads"),
}
# A BLAS that is built on OpenMP has no number of its own: it takes OpenMP's.
_OPENMP = "omp_get_max_threads", "omp_set_num_threads"
# numpy's and scipy's wheels rename OpenBLAS's functions, so that the two can be loaded side by side; so do builds of 64-bit
# integers.
_AFFIXES = [(prefix, suffix) for prefix in ("", "scipy_") for suffix in ("", "64_", "_64")]


class Library:
    """One BLAS library of this process.

    Its own functions, not threadpoolctl's: from version 3.7 on, those do nothing in a thread while another one that has set a
    number lives.

    Args:
        get: Returns the number of threads.
        put: Sets it.
        per_thread: The number is the calling thread's own, as OpenMP has it.
    """

    def __init__(self, get: Callable[[], int], put: Callable[[int], Any], per_thread: bool) -> None:
        self.get = get
        self.put = put
        self._found: Any = threading.local() if per_thread else SimpleNamespace()

    def hold(self) -> None:
        """Sets one thread, and notes the number that was there at the first time."""
        found = self.get()
        if found != 1:
            if not hasattr(self._found, "number"):
                self._found.number = found
            self._set(1)

    def let_go(self) -> None:
        """Sets the number that :meth:`hold` found."""
        number = getattr(self._found, "number", None)
        if number is not None:
            self._set(number)
            del self._found.number

    def _set(self, number: int) -> None:
        with _lock:
            self.put(number)


_libraries: dict[str, Library] = {}
"""By path."""
_held: tuple[Library, ...] = ()
"""Those that every run holds to one thread; empty under ``FLAGS_keep_blas_threads``."""
# The library that is told a number, and the loader that finds the library, take locks, which a child that is forked meanwhile would
# find taken for ever.
_lock = taken_by_forks(rlock())
_modules = -1
"""Number of modules that were imported when libraries were looked for: scipy brings a BLAS of its own."""
_mine = threading.local()
"""``flags``: the version of the flags that this thread follows."""


def hold() -> None:
    """Makes matrix products of this thread use one thread from now on, or the user's number under ``FLAGS_keep_blas_threads``.

    Where the library has one number for the process, it is set for all threads. Has no effect without threadpoolctl, which finds
    the libraries; the log warns once.
    """
    if len(sys.modules) != _modules or getattr(_mine, "flags", None) != flags.version:
        _follow()
    for library in _held:
        # Asked each time: what the user or another package sets in between must not last.
        if library.get() != 1:
            library.hold()


def _follow() -> None:
    """Looks for libraries, and does what the flag says."""
    global _held, _modules
    keep = flags.flag("FLAGS_keep_blas_threads")
    with _lock:
        modules = len(sys.modules)
        if modules != _modules:
            for path, library in _loaded():
                _libraries.setdefault(path, library)
        _held = () if keep else tuple(_libraries.values())
        for library in _libraries.values():
            (library.let_go if keep else library.hold)()
        # Last: if this is interrupted, it is done again.
        _mine.flags = flags.version
        _modules = modules


def _loaded() -> Iterator[tuple[str, Library]]:
    """Yields the BLAS libraries of this process, with their paths."""
    try:
        import threadpoolctl
    except ImportError:
        warn_once(
            "threadpoolctl",
            "threads of matrix products are not limited: they may take every core beside tstatic's own threads, and results may "
            "depend on them; pip install threadpoolctl, or set OMP_NUM_THREADS=1",
        )
        return
    for one in threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers:
        functions = ctypes.CDLL(one.filepath)
        per_thread = getattr(one, "threading_layer", "") == "openmp" and one.internal_api == "openblas"
        names = _OPENMP if per_thread else _SYMBOLS.get(one.internal_api, ("", ""))
        for prefix, suffix in [("", "")] if per_thread else _AFFIXES:
            get, put = (getattr(functions, f"{prefix}{name}{suffix}", None) for name in names)
            if get is not None and put is not None:
                yield one.filepath, Library(get, put, per_thread)
                break


def is_used_by(op: FrozenOp) -> bool:
    """Returns whether an op, an op that it fuses, or an op in its body calls BLAS."""
    inner = (*op.body, *(o for block in op.sub_blocks for o in block.ops))
    return op.definition.uses_blas or any(is_used_by(o) for o in inner)
