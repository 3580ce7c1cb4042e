"""Gives the results of a run that did not wait for its device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tstatic.ir.checks import check_type
from tstatic.ir.export import notes_signatures
from tstatic.runtime.ahead import Step
from tstatic.runtime.session import Session

_LOOK = 2e-4
"""Seconds between two looks at a step whose result is awaited for a bounded time: a fraction of a short step, and rare enough to
leave the core to others."""


@notes_signatures(undo=False)
class RunFuture:
    """What ``Executor.run(..., block=False)`` returns.

    Args:
        session: What runs the step.
        step: The step.
        finish: Makes what ``run`` returns of what was fetched.

    Example:
        >>> x = static.data("x", [None, 2])
        >>> y = x * 2
        >>> exe = static.Executor()
        >>> later = exe.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[y], block=False)
        >>> later.result()[0]
        array([[2., 2.]], dtype=float32)
    """

    def __init__(self, session: Session, step: Step, finish: Callable[[list[Any]], list[Any]]) -> None:
        self._session: Session | None = session
        self._step = step
        self._finish: Callable[[list[Any]], list[Any]] | None = finish
        self._results: list[Any] = []

    def done(self) -> bool:
        """Returns whether :meth:`result` would return, or raise, at once."""
        step, session = self._step, self._session
        # Steps end in order: once the event of one is reached, those before it are over, too.
        return step.settled or step.ended is None or session is None or session.device.reached(step.ended)

    def result(self, timeout: float | None = None) -> list[Any]:
        """Returns what ``run`` would have returned; the same list each time.

        Args:
            timeout: Seconds to wait at most; ``None`` waits until the step is done.

        Raises:
            TimeoutError: If the step is not done by then; ask again later.
            TstaticError: If the run failed: its state is then as before it, and the runs behind it went on from there.
        """
        check_type(timeout, (float, int, type(None)), "timeout", "RunFuture.result")
        if timeout is not None:
            deadline = time.monotonic() + timeout
            while not self.done():
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"the run is not done after {timeout} s")
                time.sleep(_LOOK)
        session, step = self._session, self._step
        if session is not None and not step.settled:
            try:
                assert session.ahead is not None
                session.ahead.settle_through(step)
            except KeyboardInterrupt:
                # Ctrl-C reaches the caller when it is known of each step what became of it.
                session.settle()
                raise
        step.check()
        if self._finish is not None:
            self._results = self._finish(step.results)
            # A future that is kept does not keep the session's memory.
            self._finish = self._session = None
        return self._results


__all__ = ["RunFuture"]
