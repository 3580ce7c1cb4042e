"""Limits the threads that numpy's matrix products use."""

from __future__ import annotations

import os
from functools import lru_cache
from types import TracebackType
from typing import Any

from tstatic.ir.frozen import FrozenOp
from tstatic.locks import lock
from tstatic.logs import warn_once


@lru_cache(maxsize=1)
def _pools() -> Any:
    """Returns the BLAS libraries of this process; ``None`` without threadpoolctl."""
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


class _Limit:
    """A limit that holds while any thread of this process is inside; the last to leave removes it.

    Runs in several threads overlap: if each restored the number that it found, the last might restore another one's limit.
    """

    def __init__(self) -> None:
        self._lock = lock()
        # A set and not a count: leaving twice, as after an interrupt in `__enter__`, does no harm.
        self._inside: set[object] = set()
        self._before: list[tuple[Any, int]] | None = None

    def enter(self, who: object) -> None:
        with self._lock:
            self._inside.add(who)
            if self._before is None:
                # Saved before any change: an interrupt in between must not make the limit permanent.
                self._before = [(library, library.get_num_threads()) for library in _pools().lib_controllers]
                for library, _ in self._before:
                    library.set_num_threads(1)

    def leave(self, who: object) -> None:
        with self._lock:
            self._inside.discard(who)
            if not self._inside and self._before is not None:
                for library, threads in self._before:
                    library.set_num_threads(threads)
                self._before = None

    def after_fork(self) -> None:
        # The limit itself stays: setting it may start threads, which a forked child should not do on its own.
        self._inside.clear()


_limit = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.after_fork)


class OneThread:
    """Limits each matrix product in the block to one thread, so that they do not compete with tstatic's threads for the cores.

    Has no effect without threadpoolctl; the log warns once.
    """

    def __enter__(self) -> None:
        if _pools() is None:
            warn_once(
                "threadpoolctl",
                "threads of matrix products are not limited: they may take every core beside tstatic's own threads; "
                "pip install threadpoolctl, or set OMP_NUM_THREADS=1",
            )
            return
        try:
            _limit.enter(self)
        except BaseException:
            _limit.leave(self)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _limit.leave(self)


def is_used_by(op: FrozenOp) -> bool:
    """Returns whether an op, an op that it fuses, or an op in its body calls BLAS."""
    inner = (*op.body, *(o for block in op.sub_blocks for o in block.ops))
    return op.definition.uses_blas or any(is_used_by(o) for o in inner)
