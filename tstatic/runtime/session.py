"""Binds a plan to arrays, a scope and a device, and runs it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import numpy as np

from tstatic import flags, records
from tstatic.comm.group import Communicator
from tstatic.devices import HOST, Device, read
from tstatic.devices.base import Memory, QueuedWorkError
from tstatic.devices.step import Workspace
from tstatic.forks import away, computing
from tstatic.ir.rng import kernel_numbers
from tstatic.ir.tensor_array import TensorArray
from tstatic.plan.plan import Plan
from tstatic.plan.report import Seen
from tstatic.runtime import random
from tstatic.runtime.ahead import RunsAhead, Step, done
from tstatic.runtime.arenas import Arenas, held_bytes
from tstatic.runtime.binding import Binding, Setting
from tstatic.runtime.commit import Commit
from tstatic.runtime.failures import Position, number_of, raise_failure, running_op
from tstatic.runtime.fetch import copied, room
from tstatic.runtime.interrupt import Writing, check_whole
from tstatic.runtime.learning_rate import Rates
from tstatic.runtime.out_of_memory import explained
from tstatic.runtime.recorded import RegionName
from tstatic.runtime.scope import Scope
from tstatic.runtime.sections import Sections
from tstatic.runtime.storage import NO_BLOCKS


class Session:
    """Binds a plan once, then replays it.

    Args:
        plan: The plan to run.
        scope: The scope of the persistable variables.
        device: The device that runs the plan.
        threads: Size of the thread pool; results do not depend on it.
        seed: The program's own ``random_seed``.
        uid: Identity of the program, for the run count.
        check_numerics: Raise on the first NaN or infinity.
        communicator: Runs this replica's collectives with the other replicas.
        place: Number of the replica; its random numbers depend on it.
        arenas: Memory that it shares with sessions that run when it does not; its own if ``None``.
    """

    def __init__(
        self, plan: Plan, scope: Scope, device: Device = HOST, threads: int = 1, seed: int = 0, uid: int = 0,
        check_numerics: bool = False, communicator: Communicator | None = None, place: int = 0,
        arenas: Arenas | None = None,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.scope = scope
        self.device = device
        self.seed = seed
        self.uid = uid
        self.communicator = communicator
        self.stream_set = device.streams(place)
        copies, collectives, *others = self.stream_set.streams
        self.streams = [copies, collectives if communicator is None else communicator.stream, *others]
        threads = device.worker_threads(threads)
        self.setting = Setting(
            plan, scope, device, threads, check_numerics, communicator, place,
            Arenas(device) if arenas is None else arenas, self.streams, device.event(), device.event(),
        )  # fmt: skip
        self.bound: Binding | None = None
        self.commit = Commit(self.setting)
        self.feed_sizes: Hashable = None
        self.on_growth: Callable[[Hashable, int], None] | None = None
        self._at: Position | None = None
        self.runs = 0
        self.settings = device.settings(threads, [self.stream_set])
        self._before = device.before_runs([step.op for step in plan.steps])
        # A startup program (no feeds, writes state) usually runs once; its arena is not kept.
        self._transient = not plan.program.feeds and bool(plan.program.writes)
        # Marks what is written as torn until it is complete, so that an interrupted update is noticed by the next read.
        # Of several replicas one may fail when another one has written.
        self.writing = Writing(scope, plan.program.writes, "a step", communicator is None)
        self.ahead = RunsAhead(self) if device.deferred else None

    @explained
    @records.spanning("compile", "bind the plan")
    def bind_plan(self) -> None:
        """Allocates the arena and binds every step to its arrays.

        Raises:
            FeedError: If a persistable variable that the program reads has no value in the scope.
        """
        self.settle()
        # Unbound before memory goes: whatever fails or breaks in below, the next run binds anew.
        before, self.bound = self.bound, None
        if self.communicator is not None:
            self.communicator.free()
        if before is not None:
            before.sections.forget()
            before.forget_graphs()
        self.bound = Binding(self.setting, self)

    @property
    def arena(self) -> Memory | None:
        """The memory of temporaries; ``None`` while the plan is not bound."""
        return None if self.bound is None else self.bound.arena

    @property
    def sections(self) -> Sections | None:
        """The steps whose sizes a run finds; ``None`` while the plan is not bound."""
        return None if self.bound is None else self.bound.sections

    @property
    def device_seconds(self) -> float | None:
        """The time of the last run between the first and the last event on the device; ``None`` if calls wait for their work."""
        return None if self.ahead is None else self.ahead.seconds

    # -------------------------------------------------------------------------------------------------------------- run
    def stale(self) -> bool:
        """Returns whether the plan is not bound, or the scope's storage changed since."""
        return self.bound is None or self.bound.layout != self.scope.layout

    def run(
        self, feeds: Mapping[str, Any], iterations: int = 1, rates: Rates = (), on_device: bool = False
    ) -> list[Any]:
        """Runs the plan ``iterations`` times on one feed, returns copies of fetched values; an error undoes its iteration alone.

        Args:
            feeds: What is fed.
            iterations: How often it runs.
            rates: Learning rates that it writes first, on a device whose work runs late.
            on_device: Whether fetched values stay on the device, as arrays of the caller's own.
        """
        if self.scope.in_flight.owner is not None:
            self.scope.in_flight.settle()
        if self.stale():
            self.bind_plan()
        bound = self.bound
        assert bound is not None
        with self.settings(bound.whole is not None and iterations == 1 and self._only_launches(bound)):
            return self.replay(feeds, iterations, rates, on_device)

    def queue(self, feeds: Mapping[str, Any], rates: Rates = (), on_device: bool = False) -> Step:
        """Queues a run, and does not wait for it where the host has no part in it; returns what becomes of it."""
        in_flight, ahead = self.scope.in_flight, self.ahead
        with in_flight.lock:
            if ahead is None or in_flight.owner is not ahead or self.stale():
                in_flight.settle()
            if self.stale():
                self.bind_plan()
            bound = self.bound
            if ahead is None or bound is None or ahead.waits_because(bound):
                return done(lambda: [self.run(feeds, 1, rates, on_device)])
            during = NO_BLOCKS if bound.blocks.are_idle else bound.blocks.during()
            with self.settings(self._only_launches(bound)), computing(), np.errstate(all="ignore"), during:
                self._begin(bound)
                step = ahead.queue(bound, feeds, rates, counts=True, on_device=on_device)
            self.runs += 1
            return step

    def settle(self) -> None:
        """Waits for the runs that it left in flight."""
        if self.ahead is not None:
            self.ahead.settle()

    def _only_launches(self, bound: Binding) -> bool:
        """Returns whether a run is the launch of one graph."""
        return bound.whole is not None and bound.whole.is_launch and records.recorder is None

    def _begin(self, bound: Binding) -> None:
        """Makes ready for a run: memory, and the streams of a device whose work runs late."""
        setting, device = self.setting, self.device
        # Before anything is touched: half-written values must not even be read.
        check_whole(self.scope, self.plan.program.reads, "this run")
        bound.arena.touch()
        for workspace in bound.workspaces:
            workspace.touch()
        if device.deferred:
            # The others' unfinished work first: it may still write to the memory that both use. Then what an interrupted run left
            # here.
            setting.arenas.enter(self)
            if self.ahead is None or not self.ahead.steps:
                device.discard(self.streams)
            device.record(setting.began, self.streams[0])
        if flags.memory_is_filled or flags.filling.get() is not None:
            setting.arenas.fill(bound.arena, self.plan.arena_bytes, flags.fill_byte() or 0, self.streams)
        if self._before is not None:
            self._before()

    @explained
    def replay(
        self, feeds: Mapping[str, Any], iterations: int, rates: Rates = (), on_device: bool = False
    ) -> list[Any]:
        """Runs as :meth:`run` does, for a caller that has bound the plan and is in the block of ``settings``."""
        results: list[Any] = []
        bound, setting = self.bound, self.setting
        assert bound is not None
        self._begin(bound)
        sent = False
        late_rates = NO_BLOCKS if not rates or bound.undecided or self.ahead is None else self.ahead.written(rates)
        during = NO_BLOCKS if bound.blocks.are_idle else bound.blocks.during()
        with computing(), np.errstate(all="ignore"), during, late_rates:
            if bound.undecided and self.ahead is not None:
                results = self.ahead.run(bound, feeds, iterations, rates, on_device)
                iterations = 0
            for i in range(iterations):
                if not sent:
                    if bound.staged is not None:
                        bound.staged.send(feeds)
                    for name, slot in bound.feeds if bound.staged is None else ():
                        self.device.from_host(slot, feeds[name])
                    for name in bound.open_feeds:
                        # A copy: the CPU takes the array itself, which stays the caller's.
                        bound.arrays[name] = copied(self.device, feeds[name], self.streams[0])
                    sent = True
                results = self._step(bound, i == iterations - 1, on_device)
                if i < iterations - 1 and self.stale():
                    # A state variable got new storage (a first value, or another size).
                    self.bind_plan()
                    bound, sent = self.bound, False
                    assert bound is not None
        self.runs += 1
        # Only here, behind the last wait: after an error the next session has to look.
        setting.arenas.unfinished = None
        if bound.recorded.recorder is not None:
            bound.recorded.end_run(setting.began, setting.ended if self.ahead is None else self.ahead.ended)
        if self._transient:
            self.drop()
        return results

    def _step(self, bound: Binding, last: bool, on_device: bool) -> list[Any]:
        epoch = random.epoch()
        begun, count = self.scope.runs.get(self.uid, (epoch, 0))
        # `paddle.seed` restarts the count of programs without a seed of their own: they draw the same numbers again.
        if begun != epoch and not self.seed:
            count = 0
        if bound.keys or bound.numbers is not None:
            seed = random.current(self.seed)
            for key in bound.keys:
                key.seed, key.run = seed, count
            if bound.numbers is not None:
                # Kernels read them from memory, so that launches are the same in every step.
                numbers = kernel_numbers(seed, count, self.setting.place)
                if bound.staged_numbers is not None:
                    bound.staged_numbers.send({"numbers": numbers})
                else:
                    self.device.from_host(bound.numbers, numbers, self.streams[0])
        for runner in bound.runners:
            runner.restart()
        self.execute(bound, "main")
        if bound.checks is not None and (bad := bound.checks.error(count)) is not None:
            raise bad
        fetched: list[Any] = []
        late: list[tuple[int, str]] = []
        commit, arrays = self.commit, bound.arrays
        if last:
            for i, (_, value) in enumerate(self.plan.program.fetches):
                if self.plan.storage[value].kind == "state" or value in commit.late:
                    late.append((i, value))
                    # Allocated now: an allocation that fails must do so before state is written.
                    fetched.append(room(self.device, arrays[value], on_device))
                elif on_device and not isinstance(arrays[value], TensorArray):
                    fetched.append(copied(self.device, arrays[value], self.streams[0]))
                else:
                    fetched.append(self._to_host(arrays[value]))
        # New storage is allocated before the point of no return, too (docs/design/0002).
        pending = commit.pending(commit.early, bound) if commit.early else []
        if self.communicator is not None:
            # All replicas of all processes pass, or none writes state: after it, only updates and copies are left.
            away(self.communicator.commit)
        if bound.schedules["update"].calls or pending:
            with self.writing:
                # Before the writes, so that replicas copy anew even if these break off. A parallel step changes all replicas alike.
                if self.communicator is None:
                    self.scope.bump_version()
                self.execute(bound, "update")
                try:
                    if commit.behind:
                        pending += commit.pending(commit.behind, bound)
                    if pending or self.device.deferred:
                        commit.write(pending, bound)
                except QueuedWorkError as raised:
                    raise_failure(self.setting, bound, "update", raised, self.plan.steps[-1].op)
                # Within the block that holds signals back: values and count move together.
                self.scope.runs[self.uid] = (epoch, count + 1)
        else:
            self.scope.runs[self.uid] = (epoch, count + 1)
        for i, value in late:
            array = arrays[value]
            if on_device:
                self.device.copy(fetched[i], array, self.streams[0])
                continue
            np.copyto(fetched[i], self.device.to_host(array, self.streams[0]) if self.device.deferred else read(array))
        return fetched

    def _to_host(self, value: Any) -> Any:
        """Returns a fetched value: a copy of an array, or a list of copies of a tensor array's elements."""
        if isinstance(value, TensorArray):
            # Ops with objects run on the host's arrays, and are done: such plans wait before they fetch.
            return [np.array(read(one)) for one in value]
        return self.device.to_host(value, self.streams[0])

    def execute(self, bound: Binding, region: RegionName) -> None:
        schedule = bound.whole if region == "whole" and bound.whole is not None else bound.schedules[region]
        if records.recorder is not None:
            schedule = bound.recorded.region(records.recorder, region, schedule)
        running = iter(schedule.calls)
        at = self._at = schedule, running
        try:
            for function, args in running:
                function(*args)
            return
        except Exception as raised:
            error, op = schedule.failed(raised, number_of(at))
        # Outside the except block, so that the error keeps its own cause and context. Steps before this one end first: what is left
        # in the streams behind them is dropped.
        self.settle()
        raise_failure(self.setting, bound, region, error, op)

    def current_op(self) -> str:
        """Returns the op that is running now, with the user's line; empty between runs."""
        bound = self.bound
        return running_op(self.setting, None if bound is None else bound.sections.at or self._at)

    def is_computing(self) -> bool:
        """Returns whether the device runs queued work of this session now; ``False`` if the device cannot tell."""
        return self.device.running(self.streams) is not None

    # ------------------------------------------------------------------------------------------------------------ memory
    def release(self) -> None:
        """Gives the memory of temporaries back to the system; the plan stays bound if the system allows it."""
        if self.arena is not None and not self.arena.can_release:
            self.drop()
        for memory in self.memories():
            memory.release()

    def drop(self) -> None:
        """Frees the arena and everything bound to it; the next run binds anew."""
        if self.ahead is not None:
            self.ahead.free()
        # Unbound first, as in `bind_plan`; and before `leave`, which may give the memory to others.
        bound, self.bound, self._at = self.bound, None, None
        if bound is not None:
            bound.sections.forget()
        self.setting.arenas.leave(self)
        if self.communicator is not None:
            self.communicator.free()
        if bound is not None:
            bound.free()

    def memories(self) -> Iterator[Memory | Workspace]:
        """Yields the memory that it is bound to, which it may share with other sessions."""
        yield from () if self.bound is None else self.bound.memories()

    @property
    def seen(self) -> Seen | None:
        """What runs showed of the memory beside the arena; ``None`` while the plan is not bound."""
        return None if self.bound is None else self.bound.seen

    @property
    def held_bytes(self) -> int:
        """Bytes of arena and scratch memory that are allocated now, shared ones included."""
        return held_bytes([self])
