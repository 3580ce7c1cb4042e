"""Faults of devices that launch steps as a graph, to plant: each is one thing left out, done too early, or done twice."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers import device_faults
from tstatic.devices import cuda, fake, queued
from tstatic.devices.base import QueuedWorkError
from tstatic.devices.cpu.device import CpuDevice
from tstatic.devices.cuda import graphs as cuda_graphs
from tstatic.devices.graphs import LateGraph
from tstatic.devices.step import Stream
from tstatic.runtime import ahead, binding, fetch, session

Plant = Callable[[pytest.MonkeyPatch], None]


def no_join(patch: pytest.MonkeyPatch) -> None:
    """The first stream does not wait for the others at the end of a graph that is captured."""
    right = LateGraph._join
    patch.setattr(LateGraph, "_join", lambda self: None if self._ran else right(self))


def no_fork(patch: pytest.MonkeyPatch) -> None:
    """The others do not wait for the first stream at the start of a graph that is captured."""
    right = LateGraph._fork
    patch.setattr(LateGraph, "_fork", lambda self: None if self._ran else right(self))


def missing_wait(patch: pytest.MonkeyPatch) -> None:
    """Within a graph a step does not wait for one in another stream whose result it reads."""
    device_faults.missing_wait(patch)


def early_event(patch: pytest.MonkeyPatch) -> None:
    """An event is recorded before the calls that it stands for."""
    device_faults.early_event(patch)


def waits_first(patch: pytest.MonkeyPatch) -> None:
    """At the end of a captured graph the first stream waits for the others' events of the run before."""
    right = LateGraph._join

    def join(self: LateGraph) -> None:
        if not self._ran:
            right(self)
            return
        for event, one in zip(self._joined, self._others, strict=True):
            self._device.wait(event, self._first)
            self._device.record(event, one)

    patch.setattr(LateGraph, "_join", join)


def captured_at_once(patch: pytest.MonkeyPatch) -> None:
    """The first run captures, before libraries have made what they make in a first call."""
    right = LateGraph.__init__

    def made(self: LateGraph, *args: Any, **named: Any) -> None:
        right(self, *args, **named)
        self._ran = True

    patch.setattr(LateGraph, "__init__", made)


def captured_each_time(patch: pytest.MonkeyPatch) -> None:
    """Each run captures anew."""
    right = LateGraph.replay

    def replay(self: LateGraph) -> None:
        self._made = None
        right(self)

    patch.setattr(LateGraph, "replay", replay)


def called_and_launched(patch: pytest.MonkeyPatch) -> None:
    """The run that captures makes the calls, too."""
    right = LateGraph._capture

    def capture(self: LateGraph) -> None:
        self._call()
        right(self)

    patch.setattr(LateGraph, "_capture", capture)


def not_launched(patch: pytest.MonkeyPatch) -> None:
    """The run that captures does no work: what is captured does not run."""
    right = LateGraph._capture

    def capture(self: LateGraph) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._device, "launch_graph", lambda made, stream: None)
            right(self)

    patch.setattr(LateGraph, "_capture", capture)


def frozen(name: str) -> Plant:
    """What is in one variable when a graph is captured is written there by each launch, as a copy within the graph would."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        made, replay, capture = LateGraph.__init__, LateGraph.replay, LateGraph._capture

        def noted(
            self: Any, device: Any, calls: Any, ops: Any, streams: Any, mode: Any, arrays: Any, *more: Any
        ) -> None:
            made(self, device, calls, ops, streams, mode, arrays, *more)
            self.frozen = [array for value, array in (arrays or {}).items() if name in value]

        def captured(self: Any) -> None:
            self.copies = [self._device.to_host(one, self._first) for one in self.frozen]
            capture(self)

        def replayed(self: Any) -> None:
            if self._made is not None:
                for array, value in zip(self.frozen, self.copies, strict=True):
                    self._device.from_host(array, value, self._first)
            replay(self)

        patch.setattr(LateGraph, "__init__", noted)
        patch.setattr(LateGraph, "_capture", captured)
        patch.setattr(LateGraph, "replay", replayed)

    plant.__doc__ = f"The graph writes what '{name}' held when it was captured."
    return plant


frozen_rate, frozen_feed = frozen("learning_rate"), frozen("x")


def frozen_seed(patch: pytest.MonkeyPatch) -> None:
    """The graph writes the seed and the number of the run in which it was captured: the second one."""
    right = session.kernel_numbers
    for module in (session, ahead):
        patch.setattr(module, "kernel_numbers", lambda seed, run, place: right(seed, min(run, 1), place))


def early_fetch(patch: pytest.MonkeyPatch) -> None:
    """What is fetched is read before the host waited for its copy."""
    send, take = fetch.StagedFetches.send, fetch.StagedFetches.take

    def sent(self: Any, slot: int = 0) -> None:
        send(self, slot)
        self.early = [[(array.copy(), call) for array, call in part] for part in self._slots]

    def taken(self: Any, places: Any, slot: int = 0) -> None:
        self._slots = self.early
        take(self, places, slot)

    patch.setattr(fetch.StagedFetches, "send", sent)
    patch.setattr(fetch.StagedFetches, "take", taken)


def host_captured(patch: pytest.MonkeyPatch) -> None:
    """A step that needs the host does not end the graph."""
    patch.setattr(queued.QueuedDevice, "splits", lambda self, op, sized=True: "")
    patch.setattr(cuda.CudaDevice, "splits", lambda self, op, sized=True: "")
    bound = queued.QueuedDevice.schedule

    def schedule(self: Any, steps: Any, region: Any) -> Any:
        for step in steps:
            if step.work is not None and step.work.on_host:
                patch.setattr(step.work, "on_host", "")
        return bound(self, steps, region)

    patch.setattr(queued.QueuedDevice, "schedule", schedule)


def moved_memory(patch: pytest.MonkeyPatch) -> None:
    """A graph is launched although a variable has other memory since it was captured."""
    device_faults.stale_pointer(patch)


def words_kept(patch: pytest.MonkeyPatch) -> None:
    """A check adds to its word what it found: a bad position of one run refuses all later ones."""
    right = CpuDevice.limit

    def limit(self: CpuDevice, source: Any, limits: Any, kept: Any, safe: Any, wrong: Any, stream: Stream) -> Any:
        before = wrong.copy()
        before[...] = 0
        ((run, _),) = right(self, source, limits, kept, safe, wrong, stream)

        def adds() -> None:
            run()
            wrong[...] += before
            before[...] = wrong

        return [(adds, ())]

    patch.setattr(CpuDevice, "limit", limit)


def update_unasked(patch: pytest.MonkeyPatch) -> None:
    """The update does not wait for the words of the checks."""
    right = binding.Binding._scheduled

    def scheduled(self: binding.Binding, steps: Any, searched: bool = False, behind: Any = ()) -> Any:
        return right(self, [one for one in steps if one.op is not None or one.reads != one.writes], searched, behind)

    patch.setattr(binding.Binding, "_scheduled", scheduled)


def counted_run(patch: pytest.MonkeyPatch) -> None:
    """A run that changed nothing counts: the next one draws other numbers."""
    right = ahead.RunsAhead._settle_oldest

    def settle(self: Any) -> None:
        step, runner = self.steps[0], self._session
        right(self)
        if step.error is not None:
            epoch, count = runner.scope.runs.get(runner.uid, (step.epoch, 0))
            runner.scope.runs[runner.uid] = (epoch, count + 1)

    patch.setattr(ahead.RunsAhead, "_settle_oldest", settle)


def stale_slot(patch: pytest.MonkeyPatch) -> None:
    """The host writes the next feed before the copy of this one has run."""
    device_faults.pinned_overwritten(patch)


def one_pool(patch: pytest.MonkeyPatch) -> None:
    """The graphs of all threads share one memory."""
    shared: dict[str, Any] = {"pool": None}
    pool = property(lambda self: shared["pool"], lambda self, pool: shared.update(pool=pool))
    patch.setattr(cuda_graphs.CudaStream, "__init__", lambda self, queue: setattr(self, "queue", queue))
    patch.setattr(cuda_graphs.CudaStream, "pool", pool, raising=False)


# ------------------------------------------------------------------------------------------ captures that fail, and then
def breaking(patch: pytest.MonkeyPatch, number: int) -> None:
    """Lets the call of a number fail in each capture on the fake device, which goes on by calls then."""
    put, counted = fake.FakeDevice._put, threading.local()

    def failing(self: fake.FakeDevice, *args: Any, **named: Any) -> None:
        if self._capture is not None:
            counted.calls = getattr(counted, "calls", 0) + 1
            if counted.calls == number:
                raise QueuedWorkError(None) from ArithmeticError("planted")
        put(self, *args, **named)

    patch.setattr(fake.FakeDevice, "must_capture", False)
    patch.setattr(fake.FakeDevice, "_put", failing)


def capture_left_on(patch: pytest.MonkeyPatch) -> None:
    """A capture in which a call failed is not ended."""
    breaking(patch, 4)
    patch.setattr(fake.FakeDevice, "abandon_capture", lambda self, token: None)


def broken_run_skipped(patch: pytest.MonkeyPatch) -> None:
    """The run whose capture failed does nothing."""
    breaking(patch, 4)
    right = LateGraph._capture

    def capture(self: LateGraph) -> None:
        call, inside = self._call, [0]

        def once() -> None:
            inside[0] += 1
            if inside[0] == 1:
                call()

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self, "_call", once)
            with contextlib.suppress(QueuedWorkError):
                right(self)

    patch.setattr(LateGraph, "_capture", capture)


def broken_run_twice(patch: pytest.MonkeyPatch) -> None:
    """The run whose capture failed makes the calls twice."""
    breaking(patch, 4)
    right = LateGraph._capture

    def capture(self: LateGraph) -> None:
        right(self)
        if self.refused:
            self._call()

    patch.setattr(LateGraph, "_capture", capture)
