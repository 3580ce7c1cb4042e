"""How many threads numpy's matrix products take."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Any

from tstatic.logs import warn_once


@lru_cache(maxsize=1)
def _pools() -> Any:
    """The BLAS libraries of this process; ``None`` without threadpoolctl."""
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


def one_thread() -> contextlib.AbstractContextManager[Any]:
    """Keeps each matrix product to one thread, so that they do not fight tstatic's own threads for the cores.

    Without threadpoolctl nothing is limited, which the log says once.
    """
    pools = _pools()
    if pools is None:
        warn_once(
            "threadpoolctl",
            "threads of matrix products are not limited: they may take every core beside tstatic's own threads; "
            "pip install threadpoolctl, or set OMP_NUM_THREADS=1",
        )
        return contextlib.nullcontext()
    limited: contextlib.AbstractContextManager[Any] = pools.limit(limits=1)
    return limited
