"""Holds torch's own settings at the library's values while a plan runs, and puts the user's back; keeps what torch frees."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from typing import Any

from tstatic import flags
from tstatic.devices.cpu.pool import check_process
from tstatic.locks import lock


class Settings:
    """The settings of one process; runs of several threads may overlap, and the last to end puts back what the first found.

    ``FLAGS_allow_tf32`` (off by default) decides for products and convolutions alike: torch allows TF32 in cuDNN's convolutions
    unless it is told otherwise. ``FLAGS_cudnn_deterministic`` is cuDNN's, which strict numerics turn on, too.
    """

    def __init__(self) -> None:
        self._lock = lock()
        # A set and not a count: leaving twice, as after an interrupt on entry, does no harm.
        self._inside: set[object] = set()
        self._before: tuple[Any, ...] = ()
        # The process whose torch has threads.
        self._pid = 0

    def check_process(self) -> None:
        """Checks that torch may compute in this process.

        Raises:
            ForkedProcessError: In a child of a process whose torch had threads: it would wait for them for ever.
        """
        if self._pid and os.getpid() != self._pid:
            check_process(self._pid, "start the child with the 'spawn' method")

    @contextlib.contextmanager
    def during(self, torch: Any, threads: int) -> Iterator[None]:
        """Sets what a run needs, and puts back what was there before, whatever happens inside.

        Raises:
            ForkedProcessError: As :meth:`check_process` says.
        """
        self.check_process()
        if threads > 1:
            # Noted before the threads exist: a fork between the two must not leave a child that believes it may compute.
            self._pid = os.getpid()
        who = object()
        try:
            with self._lock:
                self._inside.add(who)
                if not self._before:
                    self._before = _read(torch)
                precision = "tf32" if flags.flag("FLAGS_allow_tf32") else "ieee"
                deterministic = bool(flags.flag("FLAGS_cudnn_deterministic")) or flags.numerics() == "strict"
                _write(torch, (threads, precision, precision, precision, deterministic))
            yield
        finally:
            with self._lock:
                self._inside.discard(who)
                if not self._inside and self._before:
                    _write(torch, self._before)
                    self._before = ()


# The numbers of malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Bytes that are kept, and from which on a block is mapped by itself and goes back at once. The second is the most that glibc takes
# on machines of 64 bits; the first bounds what a process holds that frees much once.
_KEPT, _OF_ITS_OWN = 512 << 20, 32 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Asks glibc to keep up to 512 MiB that torch frees for what torch allocates next.

    Blocks of results are freed and allocated in every step. By default glibc gives them back to the system in between, which
    has to clear and map their pages again: a tenth of a step of a convolution net. Nothing is asked where the user has set
    glibc's own variables.
    """
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(_TRIM_THRESHOLD, _KEPT)
    mallopt(_MMAP_THRESHOLD, _OF_ITS_OWN)


# Precisions by their own setting: the older `allow_tf32` cannot even be read once a user has set a precision.
def _holders(torch: Any) -> tuple[Any, ...]:
    backends = torch.backends
    return backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn


def _read(torch: Any) -> tuple[Any, ...]:
    precisions = (holder.fp32_precision for holder in _holders(torch))
    return torch.get_num_threads(), *precisions, torch.backends.cudnn.deterministic


def _write(torch: Any, wanted: tuple[Any, ...]) -> None:
    threads, *precisions, deterministic = wanted
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    for holder, precision in zip(_holders(torch), precisions, strict=True):
        if holder.fp32_precision != precision:
            holder.fp32_precision = precision
    if torch.backends.cudnn.deterministic != deterministic:
        torch.backends.cudnn.deterministic = deterministic
