"""One thread per replica of a parallel program, and a step that ends for all of them: done, failed, or out of time."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tstatic.comm.group import Group, ReplicaStoppedError
from tstatic.errors import DeviceError, TstaticError

GRACE = 2.0
"""Seconds that the other replicas have to notice that one failed."""


@dataclass(frozen=True, slots=True)
class _Order:
    """One replica's part of a step."""

    task: Callable[[], Any]
    step: _Step
    replica: int


class _Step:
    """What became of each replica's part."""

    def __init__(self, size: int) -> None:
        self.cond = threading.Condition()
        self.results: list[Any] = [None] * size
        self.errors: dict[int, BaseException] = {}
        self.open = set(range(size))

    def finished(self, replica: int, result: Any, error: BaseException | None) -> None:
        with self.cond:
            self.open.discard(replica)
            self.results[replica] = result
            if error is not None:
                self.errors[replica] = error
            self.cond.notify_all()


def _work(orders: queue.SimpleQueue[_Order | None]) -> None:
    while True:
        order = orders.get()
        if order is None:
            return
        result, error = None, None
        try:
            result = order.task()
        except BaseException as raised:
            error = raised
        order.step.finished(order.replica, result, error)
        # Nothing of the last step is kept alive while waiting for the next.
        del order, result, error


class Crew:
    """Threads of ``size`` replicas; the caller only waits, so that it can give up on one that does not come back.

    Args:
        size: Number of replicas.
        group: What the replicas meet in; aborted when one fails.
        standing: Says where a replica stands, for the error about one that does not come back.
    """

    def __init__(self, size: int, group: Group, standing: Callable[[int], str] = lambda replica: "") -> None:
        self.size = size
        self.group = group
        self.standing = standing
        self.lost: dict[int, str] = {}
        self._unsettled: _Step | None = None
        self._orders: list[queue.SimpleQueue[_Order | None]] = [queue.SimpleQueue() for _ in range(size)]
        self.threads = [
            threading.Thread(target=_work, args=(orders,), name=f"tstatic-replica-{i}", daemon=True)
            for i, orders in enumerate(self._orders)
        ]
        for thread in self.threads:
            thread.start()

    def run(self, tasks: Sequence[Callable[[], Any]], timeout: float) -> list[Any]:
        """Runs one task per replica.

        Args:
            tasks: In the order of the replicas.
            timeout: Seconds for all of them together.

        Returns:
            Their results.

        Raises:
            DeviceError: If one did not come back in time, now or in an earlier step.
            BaseException: The first error that a replica raised by itself.
        """
        self._ready(timeout)
        step = _Step(self.size)
        for i, task in enumerate(tasks):
            self._orders[i].put(_Order(task, step, i))
        try:
            late = self._wait(step, timeout)
        except BaseException as error:
            # An interrupt of the caller: nobody may be left inside a collective.
            self.group.abort(error)
            self._settle(step)
            raise
        if step.errors:
            self._settle(step)
            raise self._first(step)
        if late:
            raise self._give_up(step, late, timeout)
        return step.results

    def _ready(self, timeout: float) -> None:
        """Refuses work while a replica is lost; waits for one that was merely slow to notice an earlier error."""
        step = self._unsettled
        if step is not None:
            with step.cond:
                step.cond.wait_for(lambda: not step.open, timeout)
                left = sorted(step.open)
            if left:
                self.lost.update({i: self.standing(i) for i in left})
            else:
                self.group.reset()
            self._unsettled = None
        if self.lost:
            replica, where = next(iter(self.lost.items()))
            raise DeviceError(
                f"replica {replica} never came back from an earlier step, so its place cannot be used",
                expected="replicas that all wait for work",
                received=f"replica {replica} of {self.size} still {where or 'busy'}",
                fix="make a new Executor; find out why the operator blocks",
            )

    def _wait(self, step: _Step, timeout: float) -> list[int]:
        """Waits until all are done, one failed, or the time is over; returns who is late then."""
        deadline = time.monotonic() + timeout
        with step.cond:
            while step.open and not step.errors:
                left = deadline - time.monotonic()
                if left <= 0:
                    return sorted(step.open)
                # In slices: an interrupt reaches the main thread only between waits on some systems.
                step.cond.wait(min(left, 1.0))
            if step.errors:
                self.group.abort(next(iter(step.errors.values())))
        return []

    def _give_up(self, step: _Step, late: Sequence[int], timeout: float) -> DeviceError:
        # The one that waits for others in a collective is not the one to blame.
        stuck = next((i for i in late if not self._meeting(i)), late[0])
        where = self.standing(stuck)
        error = DeviceError(
            f"replica {stuck} of {self.size} did not finish its step within {timeout:g} s",
            expected="a step shorter than FLAGS_step_timeout_s",
            received=f"replica {stuck} still {where or 'busy'}",
            fix="look at that operator; raise FLAGS_step_timeout_s if steps may take longer",
        )
        self.group.abort(error)
        self._settle(step)
        self._unsettled = None
        self.lost[stuck] = where
        return error

    def _meeting(self, replica: int) -> bool:
        """Whether a replica waits for the others inside a collective."""
        frame = sys._current_frames().get(self.threads[replica].ident or 0)
        while frame is not None:
            if frame.f_code is Group.meet.__code__:
                return True
            frame = frame.f_back
        return False

    def _settle(self, step: _Step) -> None:
        """Gives the other replicas time to stop; the next step waits for one that does not."""
        with step.cond:
            step.cond.wait_for(lambda: not step.open, GRACE)
            done = not step.open
        if done:
            self.group.reset()
        else:
            self._unsettled = step

    def _first(self, step: _Step) -> BaseException:
        """The error of the replica that failed by itself, which says which one it was."""
        own = {i: e for i, e in step.errors.items() if not isinstance(e, ReplicaStoppedError)} or step.errors
        replica, error = min(own.items())
        if self.size > 1:
            if isinstance(error, TstaticError):
                error.replica = f"{replica} of {self.size}"
            else:
                error.add_note(f"in replica {replica} of {self.size}")
        return error

    def close(self) -> None:
        """Ends the threads that wait."""
        for orders in self._orders:
            orders.put(None)
