"""Runs one thread per replica; a step ends for all together: success, first error, or timeout."""

from __future__ import annotations

import contextvars
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.comm.group import Group, ReplicaStoppedError
from tstatic.errors import DeviceError, TstaticError
from tstatic.shield import shield

GRACE = 2.0
"""Seconds that the other replicas have to stop after one failed: they do so at their next collective, and the user waits for it."""

_SLICE = 1.0
"""Seconds between the caller's checks that the threads live; on some systems an interrupt arrives only then."""


@dataclass(frozen=True, slots=True)
class _Order:
    """One replica's part of a step, with the caller's context (guards of scopes and programs)."""

    task: Callable[[], Any]
    done: queue.SimpleQueue[tuple[int, Any, BaseException | None]]
    replica: int
    context: contextvars.Context | None


class _Step:
    """The outcome of each replica's part, as far as the caller took it from the queue."""

    def __init__(self, size: int) -> None:
        # A queue written in C, not a condition: an interrupt in the caller leaves no lock held. Each step has its own queue.
        self.done: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
        self.results: list[Any] = [None] * size
        self.errors: dict[int, BaseException] = {}
        self.open = set(range(size))

    def take(self, timeout: float) -> bool:
        """Records the next replica that has finished; returns whether one did in time."""
        try:
            replica, result, error = self.done.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return False
        self.open.discard(replica)
        self.results[replica] = result
        if error is not None:
            self.errors[replica] = error
        return True


def _work(orders: queue.SimpleQueue[_Order | None]) -> None:
    while True:
        order = orders.get()
        if order is None:
            return
        result, error = None, None
        try:
            result = order.task() if order.context is None else order.context.run(order.task)
        except BaseException as raised:
            error = raised
        order.done.put((order.replica, result, error))
        # Keeps no object of the last step alive while waiting for the next.
        del order, result, error


def _end(orders: Sequence[queue.SimpleQueue[_Order | None]]) -> None:
    for one in orders:
        one.put(None)


class ReplicaThreads:
    """Threads of ``size`` replicas; the caller only waits, so that it can give up on one that does not return.

    The threads end with :meth:`close`, or when the last reference to this object is gone.

    Args:
        size: Number of replicas.
        group: The group in which the replicas communicate; aborted when one fails.
        current_op: Returns the op that a replica is running, for the error about one that does not return.
        is_computing: Returns whether the device runs queued work of a replica now; some devices cannot tell.
    """

    def __init__(
        self,
        size: int,
        group: Group,
        current_op: Callable[[int], str] = lambda replica: "",
        is_computing: Callable[[int], bool] = lambda replica: False,
    ) -> None:
        self.size = size
        self.group = group
        self.current_op = current_op
        self.is_computing = is_computing
        self.lost: dict[int, str] = {}
        self._drained = True
        self._orders: list[queue.SimpleQueue[_Order | None]] = [queue.SimpleQueue() for _ in range(size)]
        self.threads = [
            threading.Thread(target=_work, args=(orders,), name=f"tstatic-replica-{i}", daemon=True)
            for i, orders in enumerate(self._orders)
        ]
        self._finalizer = weakref.finalize(self, _end, self._orders)
        self._finalizer.atexit = False
        for thread in self.threads:
            thread.start()

    def run(self, tasks: Sequence[Callable[[], Any]], timeout: float) -> list[Any]:
        """Runs one task per replica.

        Args:
            tasks: One per replica, in their order.
            timeout: Seconds for all of them together.

        Returns:
            Their results.

        Raises:
            DeviceError: If one did not return in time, now or in an earlier step.
            BaseException: The first error that a replica raised by itself.
        """
        self._ready(timeout)
        step = _Step(self.size)
        # Until all have answered: an interrupt between two orders leaves it unknown which replicas got one.
        self._drained = False
        try:
            for i, task in enumerate(tasks):
                self._orders[i].put(_Order(task, step.done, i, contextvars.copy_context()))
            late = self._wait(step, timeout)
            self._drained = not step.open
        except BaseException as error:
            # The caller was interrupted: no replica may stay inside a collective.
            with shield:
                self.group.abort(error)
                self._drain(GRACE)
            raise
        if step.errors:
            with shield:
                self._drain(GRACE)
            raise self._first(step)
        if late:
            raise self._give_up(late, timeout)
        return step.results

    def _ready(self, timeout: float) -> None:
        """Refuses work if a replica is lost; waits for one that is slow to stop after an earlier error."""
        if not self._drained and not self.lost:
            left = self._drain(timeout)
            self.lost.update({i: self.current_op(i) for i in left})
        if self.lost:
            replica, where = next(iter(self.lost.items()))
            raise DeviceError(
                f"replica {replica} never came back from an earlier step, so its place cannot be used",
                expected="replicas that all wait for work",
                received=f"replica {replica} of {self.size} still {where or 'busy'}",
                fix="make a new Executor; find out why the operator blocks",
            )

    def _wait(self, step: _Step, timeout: float) -> list[int]:
        """Waits until all are done, one failed, or the time is over; returns the replicas that are late in the last case."""
        deadline = time.monotonic() + timeout
        while step.open and not step.errors:
            left = deadline - time.monotonic()
            if left <= 0:
                return sorted(step.open)
            # A thread that has ended (as Python shuts down) will never answer: do not wait for the deadline.
            if not step.take(min(left, _SLICE)):
                ended = [i for i in step.open if not self.threads[i].is_alive()]
                if ended or sys.is_finalizing():
                    return ended or sorted(step.open)
        if step.errors:
            self.group.abort(next(iter(step.errors.values())))
        return []

    def _give_up(self, late: Sequence[int], timeout: float) -> DeviceError:
        """Stops the replicas, and returns the error that names the one that does not return."""
        # Taken now: after the abort, a replica that was merely slow is at another op, or has returned.
        ops = {i: self.current_op(i) for i in late}
        waited_for = self._find_stuck(late)
        with shield:
            self.group.abort(TimeoutError(f"a step took longer than {timeout:g} s"))
            hanging = self._drain(GRACE)
        # The replicas that only waited for another one, or were slow, have returned meanwhile. On a deferred device, the
        # thread of the one that hangs may have returned, too, and left its queued work to the threads that wait for it.
        computing = [i for i in late if self.is_computing(i)]
        if computing or (hanging and waited_for not in hanging):
            waited_for = self._find_stuck(computing or hanging)
            ops[waited_for] = self.current_op(waited_for)
        self.lost[waited_for] = ops[waited_for]
        return DeviceError(
            f"replica {waited_for} of {self.size} did not finish its step within {timeout:g} s",
            expected="a step shorter than FLAGS_step_timeout_s",
            received=f"replica {waited_for} still {ops[waited_for] or 'busy'}",
            fix="look at that operator; raise FLAGS_step_timeout_s if steps may take longer",
        )

    def stuck_op(self) -> str:
        """Returns the op of the replica for which the others most likely wait, for other processes' errors about this one."""
        return self.current_op(self._find_stuck(range(self.size)))

    def _find_stuck(self, late: Sequence[int]) -> int:
        """Returns the replica among the late ones that the others most likely wait for."""
        # The host threads of all replicas may wait for one replica's queued work, so what the device runs comes first.
        computing = [i for i in late if self.is_computing(i)]
        # A replica that waits for the others in a collective is not the one that is stuck.
        return (computing or [i for i in late if i not in self.group.waiting] or late)[0]

    def _drain(self, timeout: float) -> list[int]:
        """Waits until the replicas have finished all orders; returns those that have not when the time is over.

        Each gets one more order: after an interrupt it is unknown which replicas got the last one.
        """
        last = _Step(self.size)
        for i, orders in enumerate(self._orders):
            orders.put(_Order(int, last.done, i, None))
        deadline = time.monotonic() + timeout
        while last.open and last.take(deadline - time.monotonic()):
            pass
        if not last.open:
            self.group.reset()
            self._drained = True
        return sorted(last.open)

    def _first(self, step: _Step) -> BaseException:
        """Returns the error of the replica that failed by itself, with its number."""
        while step.take(0.0):
            pass
        # Errors of replicas that stopped because of another one count only if there is no other error.
        own = {i: e for i, e in step.errors.items() if not isinstance(e, ReplicaStoppedError)} or step.errors
        replica, error = min(own.items())
        if self.size > 1:
            if isinstance(error, TstaticError):
                error.replica = error.replica or f"{replica} of {self.size}"
            else:
                error.add_note(f"in replica {replica} of {self.size}")
        return error

    def close(self) -> None:
        """Ends the waiting threads."""
        self._finalizer()
