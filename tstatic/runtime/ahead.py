"""Queues runs whose update needs no word of the host, and learns later what became of each.

A run of such a plan asks nothing between its feeds and its results, so the host may queue the next one at once: at most
:data:`MOST` are in flight. Each has a slot of the rings of pinned memory that its feeds, learning rates and results pass through.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from tstatic import records
from tstatic.comm.group import Communicator, ReplicaStoppedError
from tstatic.devices import Device
from tstatic.devices.base import Event, QueuedWorkError
from tstatic.forks import away
from tstatic.ir.rng import kernel_numbers
from tstatic.logs import get_logger
from tstatic.plan.plan import Plan
from tstatic.runtime import random
from tstatic.runtime.arenas import User
from tstatic.runtime.binding import Binding, Setting
from tstatic.runtime.checks import StoppedBeforeError
from tstatic.runtime.commit import Commit, Pending
from tstatic.runtime.failures import raise_failure
from tstatic.runtime.fetch import room
from tstatic.runtime.in_flight import InFlight
from tstatic.runtime.interrupt import Writing
from tstatic.runtime.learning_rate import LateRates, Rates
from tstatic.runtime.recorded import RegionName
from tstatic.runtime.scope import Scope
from tstatic.shield import shield

MOST = 3
"""The most steps in flight: one runs, one waits behind it, so that the device never idles, and one is being queued. More would only
make errors later and pin more memory."""


_log = get_logger("steps")


class Runner(User, Protocol):
    """A session, as far as its runs are concerned."""

    plan: Plan
    scope: Scope
    device: Device
    seed: int
    uid: int
    communicator: Communicator | None
    setting: Setting
    bound: Binding | None
    commit: Commit
    writing: Writing
    settings: Callable[[bool], contextlib.AbstractContextManager[None]]
    runs: int

    def execute(self, bound: Binding, region: RegionName) -> None:
        """Makes the calls of a region."""

    def stale(self) -> bool:
        """Returns whether the plan has to be bound anew."""

    def bind_plan(self) -> None:
        """Binds the plan to memory and arrays."""


class Step:
    """A run that was queued.

    Attributes:
        before: How many runs came before, where replicas share the count; ``None``: the scope knows.
        ended: Reached when its work is done; ``None`` if the run was over when its call returned.
        rated: Whether it wrote learning rates.
        on_device: Whether its results are the device's.
        settled: Whether it is known what became of it.
        results: What each replica fetched, once it is settled; there is one.
        error: Why it changed nothing, or failed; then there are no results.
        told: Whether somebody was given the error.
    """

    __slots__ = (
        "before",
        "ended",
        "epoch",
        "error",
        "fetch",
        "iterations",
        "on_device",
        "pending",
        "rated",
        "results",
        "settled",
        "slot",
        "told",
        "words",
    )

    def __init__(self, slot: int = 0, ended: Event | None = None, epoch: int = 0, iterations: int = 1) -> None:
        self.slot = slot
        self.before: int | None = None
        self.ended = ended
        self.epoch = epoch
        self.iterations = iterations
        # Of the first slot each run's own work makes the words, so that only steps that others follow need one of their own.
        self.words = 0
        self.rated = self.on_device = False
        self.pending: Pending = []
        self.fetch: list[Any] = []
        self.settled = False
        self.results: list[Any] = []
        self.error: BaseException | None = None
        self.told = False

    def __del__(self) -> None:
        if self.error is not None and not self.told:
            _log.warning(
                "nobody asked for the result of a run, which failed: %s: %s", type(self.error).__name__, self.error
            )

    def check(self) -> None:
        """Raises the error of a settled step, if it has one."""
        if self.error is not None:
            self.told = True
            raise self.error

    def end(self, results: list[Any] | None = None, error: BaseException | None = None) -> Step:
        """Notes what became of the run."""
        self.results, self.error, self.settled = results or [], error, True
        self.pending, self.fetch = [], []
        return self


def done(run: Callable[..., list[Any]], *args: Any) -> Step:
    """Runs at once; returns a settled step, which has the error if the run raised one. Ctrl-C goes to the caller."""
    try:
        return Step().end(run(*args))
    except Exception as error:
        return Step().end(error=error)


class RunsAhead:
    """The steps of one session that are in flight, oldest first.

    Args:
        session: The session.

    Attributes:
        steps: They.
        ended: The last event of the run that was queued last.
    """

    def __init__(self, session: Runner) -> None:
        self.ended = session.setting.ended
        self._session = session
        # Replicas wait for each other while they queue a step, and none leaves one in flight.
        self._in_flight = session.scope.in_flight if session.communicator is None else InFlight()
        self._ended = [session.device.event() for _ in range(MOST)]
        self._rates: LateRates | None = None
        self.steps: deque[Step] = deque()

    # ------------------------------------------------------------------------------------------------------------- queue
    def waits_because(self, bound: Binding) -> str:
        """Returns why a run cannot stay in flight when its call returns; empty if it can."""
        if not bound.undecided:
            return "the host decides on the update, or does work of its own"
        if self._session.communicator is not None:
            return "the replicas' threads meet in each step"
        if bound.whole is not None and not bound.whole.unbroken:
            # Blocks of torch's memory are freed behind a run, too: only work of one graph begins behind all that reads them.
            return "the host has a part in the step"
        if bound.keys or bound.runners:
            return "an operator of the host draws numbers"
        if bound.checks is not None and not bound.checks.only_lasting:
            return "positions that the program computes are checked, and the message of an error names them"
        if bound.open_feeds or bound.fetched is None:
            return "what it fetches is not known in size, or is too large to be pinned"
        return "a profiler records" if records.recorder is not None else ""

    def run(
        self, bound: Binding, feeds: Mapping[str, Any], iterations: int, rates: Rates, on_device: bool
    ) -> list[Any]:
        """Queues all work of a run, and behind it the copies of the results, and waits once.

        Raises:
            TstaticError: If it was refused.
        """
        session = self._session
        # What one iteration refuses, all do that see the same feeds; else each is waited for before the next one.
        together = iterations > 1 and not self.waits_because(bound) and session.runs > 0
        step: Step | None = None
        for left in reversed(range(1 if together else iterations)):
            times = iterations if together else 1
            step = self.queue(bound, feeds, rates, times, not left, on_device=on_device)
            rates = ()
            self.settle()
            step.check()
            if left and session.stale():
                session.bind_plan()
                assert session.bound is not None
                bound = session.bound
        assert step is not None
        return step.results[0]  # type: ignore[no-any-return]

    def queue(
        self,
        bound: Binding,
        feeds: Mapping[str, Any],
        rates: Rates = (),
        iterations: int = 1,
        last: bool = True,
        counts: bool = False,
        on_device: bool = False,
    ) -> Step:
        """Queues a run: what it is fed, its work, and the copies of what it fetches. The caller is in the block of ``settings``.

        Args:
            bound: What the plan is bound to.
            feeds: What is fed.
            rates: Learning rates that it writes first.
            iterations: How often the work is queued, with no word of the host in between.
            last: Whether the values are fetched.
            counts: Whether another run may be queued before this one is settled: then the device counts the runs.
            on_device: Whether fetched values stay on the device, as arrays of the caller's own.

        Raises:
            TstaticError: If the run cannot be queued; it changed nothing.
        """
        session = self._session
        with self._in_flight.lock:
            epoch = random.epoch()
            if self.steps and self.steps[-1].epoch != epoch:
                # `paddle.seed` restarts the count, which the device holds while steps are in flight.
                self.settle()
            while len(self.steps) >= MOST:
                self._settle_oldest()
            # The lowest that is free: pinned memory is made for as many as are ever in flight.
            slot = min({*range(MOST)} - {one.slot for one in self.steps}) if self.steps else 0
            step = Step(slot, self._ended[slot], epoch, iterations)
            try:
                self._send(bound, step, feeds, rates)
                self._work(bound, step, iterations, last, counts, on_device)
            except BaseException:
                # What is in flight before it is not concerned; behind that the streams are cleared.
                self.settle()
                if not step.settled:
                    session.setting.arenas.unfinished = session
                    self._take_back(step)
                raise
            if counts and any(fresh is not None for _, _, fresh in step.pending):
                # The next run reads it.
                self.settle()
            return step

    def _send(self, bound: Binding, step: Step, feeds: Mapping[str, Any], rates: Rates) -> None:
        """Queues the copies of what the run is given."""
        session = self._session
        assert bound.staged is not None
        if session.communicator is not None:
            # Before the replicas meet: the first that learns of its results counts the step for all.
            step.before = self._count_before(step)
        bound.staged.send(feeds, step.slot)
        if (bound.keys or bound.staged_numbers is not None) and not self.steps:
            # With steps in flight the host does not know how many of them will count: the device does.
            seed, count = random.current(session.seed), self._count_before(step)
            for key in bound.keys:
                key.seed, key.run = seed, count
            if bound.staged_numbers is not None:
                numbers = kernel_numbers(seed, count, session.setting.place)
                bound.staged_numbers.send({"numbers": numbers}, step.slot)
        if rates:
            self._write(rates, step.slot)
            step.rated = True

    def _count_before(self, step: Step) -> int:
        """Returns how many runs of the program are known to have come before a step."""
        if step.before is not None:
            return step.before
        session = self._session
        begun, count = session.scope.runs.get(session.uid, (step.epoch, 0))
        # `paddle.seed` restarts the count of programs without a seed of their own: they draw the same numbers again.
        return count if begun == step.epoch or session.seed else 0

    def _write(self, rates: Rates, slot: int) -> None:
        session = self._session
        if self._rates is None or not self._rates.fit(rates):
            self.settle()
            if self._rates is not None:
                self._rates.free()
            names = [name for name, _ in rates]
            self._rates = LateRates(session.device, session.scope, session.streams[0], names, MOST)
        self._rates.write(rates, slot)

    @contextlib.contextmanager
    def written(self, rates: Rates) -> Iterator[None]:
        """Writes learning rates before the work of a block that waits for it; if it raises, takes them back."""
        self._write(rates, 0)
        try:
            yield
        except BaseException:
            assert self._rates is not None
            # What is left in the streams would come before.
            self._session.device.discard(self._session.streams)
            self._rates.take_back(0)
            self._session.device.synchronize(self._session.streams[:1])
            raise

    def _work(self, bound: Binding, step: Step, iterations: int, last: bool, counts: bool, on_device: bool) -> None:
        """Queues what the run does, and behind it the copies of its results."""
        session, device, stream = self._session, self._session.device, self._session.streams[0]
        apart = records.recorder is not None or bound.whole is None
        values = [value for _, value in session.plan.program.fetches] if last else []
        if bound.foreseen is not None and session.communicator is not None:
            session.communicator.known.update(bound.foreseen.holds(session.scope.writes, stream))
        if apart:
            session.execute(bound, "main")
        # Before state is written, as all that may fail.
        step.fetch = [(room(device, bound.arrays[value], on_device), value) for value in values]
        step.on_device = on_device
        # New storage changes the scope's layout, so that the next run has another binding: once is enough for this one.
        if bound.pending is None:
            bound.pending = session.commit.pending(session.plan.commits, bound)
        step.pending = bound.pending
        stopped: StoppedBeforeError | None = None
        if session.communicator is not None:
            # All replicas of the process queue their updates, or none does.
            away(session.communicator.rendezvous)
        with session.writing:
            # A parallel step changes all replicas alike.
            if session.plan.program.writes and session.communicator is None:
                session.scope.bump_version()
            try:
                for i in range(iterations):
                    if i and apart:
                        session.execute(bound, "main")
                    session.execute(bound, "update" if apart else "whole")
                    session.commit.queue(step.pending, bound)
                    if bound.numbers is not None and (counts or iterations > 1):
                        device.count_unless(bound.bad, device.slice(bound.numbers, 1, (1,)), stream)
                if bound.foreseen is not None:
                    bound.foreseen.send(session.scope.writes, stream)
                if bound.checks is not None and counts:
                    step.words = step.slot + 1
                    bound.checks.send(step.words, stream)
                if on_device:
                    for place, value in step.fetch:
                        device.copy(place, bound.arrays[value], stream)
                elif values and bound.fetched is not None:
                    bound.fetched.send(step.slot)
                assert step.ended is not None
                device.record(step.ended, stream)
                self.ended = step.ended
                # Within the block that holds signals back: what is queued will be done, and must be counted.
                self.steps.append(step)
                self._in_flight.owner = self
                session.setting.arenas.unfinished = session
            except StoppedBeforeError as error:
                # What is to be written was not reached: it is whole.
                stopped = error
        if stopped is not None:
            raise stopped.error

    # ------------------------------------------------------------------------------------------------------------ settle
    def settle(self) -> None:
        """Waits for all steps, and notes what became of each."""
        with self._in_flight.lock:
            while self.steps:
                self._settle_oldest()

    @property
    def seconds(self) -> float | None:
        """The time of the last run between its first and its last event; ``None`` while steps are in flight."""
        setting = self._session.setting
        return None if self.steps else setting.device.elapsed(setting.began, self.ended)

    def free(self) -> None:
        """Waits for all steps, and frees memory of its own."""
        self.settle()
        if self._rates is not None:
            self._rates.free()
            self._rates = None

    def settle_through(self, step: Step) -> None:
        """Waits for a step and all before it."""
        with self._in_flight.lock:
            while self.steps and not step.settled:
                self._settle_oldest()

    def _settle_oldest(self) -> None:
        session, device = self._session, self._session.device
        step, bound = self.steps[0], session.bound
        assert step.ended is not None
        assert bound is not None
        # Ctrl-C arrives behind it: what is known of a step and what the scope says of it move together.
        with shield:
            try:
                if session.communicator is None:
                    device.finish(step.ended)
                else:
                    away(session.communicator.finish, step.ended)
                error = self._refusal(bound, step)
                if error is None and session.communicator is not None and session.communicator.broken_off:
                    raise ReplicaStoppedError("this replica stopped because its collectives were broken off")
            except QueuedWorkError as raised:
                self._fail(bound, raised)
                return
            except BaseException as raised:
                error = raised
                if session.communicator is not None:
                    # Collectives that are broken off end, and what is queued behind them runs on what they left.
                    session.writing.tear(f"a step that {type(raised).__name__} broke off")
            self.steps.popleft()
            if bound.staged is not None:
                bound.staged.forget(step.slot)
            if error is not None:
                if bound.foreseen is not None:
                    bound.foreseen.forget()
                self._take_back(step)
                step.end(error=error)
            else:
                session.commit.publish(step.pending)
                session.scope.runs[session.uid] = step.epoch, self._count_before(step) + step.iterations
                step.end([self._fetched(bound, step)])
            self._left()

    def _take_back(self, step: Step) -> None:
        """Undoes what a step wrote as learning rates, since it was not made."""
        if step.rated and self._rates is not None:
            with self._session.settings(False):
                self._rates.take_back(step.slot, self.steps[0].slot if self.steps else None)
                if not self.steps:
                    # The next run drops what it finds in the streams.
                    self._session.device.synchronize(self._session.streams[:1])

    def _left(self) -> None:
        """Notes that nothing is in flight any more, if that is so."""
        if not self.steps and self._in_flight.owner is self:
            self._in_flight.owner = None
            self._session.setting.arenas.unfinished = None

    def _fetched(self, bound: Binding, step: Step) -> list[Any]:
        places = [place for place, _ in step.fetch]
        if step.on_device:
            return places
        if bound.fetched is not None and places:
            bound.fetched.take(places, step.slot)
        else:
            for place, value in step.fetch:
                np.copyto(place, self._session.device.to_host(bound.arrays[value], self._session.streams[0]))
        return places

    def _refusal(self, bound: Binding, step: Step) -> BaseException | None:
        """Returns the error of the first bad position of a step."""
        checks, session = bound.checks, self._session
        if checks is not None and checks.refused_elsewhere:
            return ReplicaStoppedError("this replica stopped because another one refused what it was fed")
        if checks is None or not checks.refuses(step.words):
            return None
        if len(self.steps) > 1:
            # The feeds of the steps behind it lie where its own lay. They end first, and then its own are sent once more.
            last = self.steps[-1].ended
            assert last is not None
            session.device.finish(last)
            with session.settings(False):
                assert bound.staged is not None
                bound.staged.resend(step.slot)
                session.device.synchronize(session.streams[:1])
        return checks.error(self._count_before(step), step.words)

    def _fail(self, bound: Binding, raised: QueuedWorkError) -> None:
        """Notes that work failed: neither this step nor those behind it are done, and what they wrote may be half written."""
        session = self._session
        error: BaseException
        try:
            raise_failure(session.setting, bound, "update", raised, session.plan.steps[-1].op)
        except StoppedBeforeError as stopped:
            error = stopped.error
        except ReplicaStoppedError as failed:
            # What all replicas wait for before they update did not come.
            error = failed
        except Exception as failed:
            error = failed
            session.writing.tear(f"a step that {type(failed).__name__} broke off")
        if bound.foreseen is not None:
            bound.foreseen.forget()
        while self.steps:
            self.steps.popleft().end(error=error)
        if self._in_flight.owner is self:
            self._in_flight.owner = None


__all__ = ["MOST", "RunsAhead", "Step", "done"]
