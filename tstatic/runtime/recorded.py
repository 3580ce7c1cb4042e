"""Binds the calls of a session once more while a profiler records, so that the calls of other runs need not ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Literal

from tstatic.devices.base import Device, Event, RegionLog
from tstatic.devices.step import Schedule, Stream
from tstatic.ir.frozen import FrozenOp
from tstatic.ir.types import Meta, dtype_of
from tstatic.plan.plan import Plan, StepRegion
from tstatic.records import OpFacts, Record, Recorder

RegionName = StepRegion | Literal["whole"]
"""A region of a plan, or ``whole``: both in one, where the host does not wait in between."""


class RecordedCalls:
    """The calls of a session's regions that record; bound when a region first runs while a recorder records.

    Args:
        plan: The session's plan.
        device: Its device.
        threads: Threads that share its work.
        streams: Its streams: for copies, for collectives, and those of the other steps.
        place: Number of the replica.
        arrays: Value -> array.

    Attributes:
        recorder: Gets the records; ``None`` while nothing is recorded.
    """

    def __init__(
        self, plan: Plan, device: Device, threads: int, streams: Sequence[Stream], place: int, arrays: Mapping[str, Any]
    ) -> None:
        self.recorder: Recorder | None = None
        self._arrays = arrays
        self._plan, self._device, self._threads = plan, device, threads
        # Behind the streams of the computation stand those of the collectives' further rings.
        several = device.compute_streams
        rest = [f"compute {i}" if i < several else f"collectives {i - several + 1}" for i in range(len(streams) - 2)]
        names = ["copies", "collectives", *rest]
        prefix = f"{device.name}, place {place}: " if place else f"{device.name}: "
        # Equal streams (those of a device that has only one) get the name of the last.
        self._streams = {stream: prefix + name for stream, name in zip(streams, names, strict=True)}
        self._prefix, self._first = prefix, streams[0]
        self._regions: dict[RegionName, Schedule] = {}
        self._logs: list[RegionLog] = []
        self._number = self._began = 0
        self._facts: dict[bool, dict[int, OpFacts]] = {}
        self._open: dict[bool, list[FrozenOp]] = {}

    def _start(self, recorder: Recorder) -> None:
        device, threads = self._device, self._threads
        self.recorder, self._regions, self._logs, self._facts = recorder, {}, [], {}
        # A function: measuring the speed of memory takes a tenth of a second, which only a report needs.
        recorder.machines.setdefault(device.name, lambda: device.machine(threads))
        device.start_recording(recorder)
        recorder.at_end(self._finish)

    def _finish(self) -> None:
        for log in self._logs:
            log.collect()
        self.recorder, self._regions, self._logs, self._facts = None, {}, [], {}

    def region(self, recorder: Recorder, name: RegionName, schedule: Schedule) -> Schedule:
        """Returns the calls of a region that runs next.

        Args:
            recorder: Gets the records.
            name: Its name; ``main`` begins a run.
            schedule: Its calls as they run otherwise.
        """
        # By identity: each recording has a recorder of its own, and calls that were bound for another one write to that.
        if self.recorder is not recorder:
            self._start(recorder)
        if name == "main":
            self._number, self._began = recorder.number(), perf_counter_ns()
        if not recorder.ops or not schedule.calls:
            return schedule
        if name not in self._regions:
            start = perf_counter_ns()
            self._regions[name] = self._timed(recorder, name == "update", schedule)
            recorder.add("bind", "calls that record", start)
        return self._regions[name]

    def _timed(self, recorder: Recorder, update: bool, schedule: Schedule) -> Schedule:
        log = self._device.region_log(recorder, update, lambda: self._facts_of(recorder, update), self._streams)
        self._logs.append(log)
        made = schedule.timed(log)
        made.calls = [(log.begin, ()), *made.calls, (self._end, (log,))]
        # The marks have an op as well, so that the number of any call that fails finds one.
        made.op_of_call = [made.op_of_call[0], *made.op_of_call, made.op_of_call[-1]]
        return made

    def _end(self, log: RegionLog) -> None:
        log.end(self._number)

    def end_run(self, began: Event, ended: Event) -> None:
        """Ends a run that succeeded.

        Args:
            began, ended: The run's first and last event on a device whose work runs late.
        """
        recorder = self.recorder
        if recorder is None or not self._device.deferred:
            return
        for log in self._logs:
            log.collect()
        start = round(began.time * 1e9) if self._device.virtual_clock else self._began
        end = start + round(self._device.elapsed(began, ended) * 1e9)
        name, queue = self._device.name, f"{self._prefix}whole runs"
        recorder.add_record(Record("device", "run", start, end, 0, run=self._number, queue=queue, device=name))

    def drop(self) -> None:
        """Forgets the run that failed."""
        for log in self._logs:
            log.drop()

    # ------------------------------------------------------------------------------------------------------------- facts
    def _facts_of(self, recorder: Recorder, update: bool) -> dict[int, OpFacts]:
        """Returns what is known of the ops of a region: anew after each run for those whose sizes a run decides."""
        known = self._facts.get(update)
        if known is None:
            start = perf_counter_ns()
            ops = [step.op for step in self._plan.steps if (step.region == "update") is update]
            known = self._facts[update] = {id(op): self._of(op, recorder.shapes) for op in ops}
            self._open[update] = [op for op in ops if not self._is_known(op)]
            recorder.add("bind", "bytes of operators", start)
        elif self._open[update]:
            found = {id(op): self._of(op, recorder.shapes) for op in self._open[update]}
            known = self._facts[update] = known | found
        return known

    def _is_known(self, op: FrozenOp) -> bool:
        metas = (self._plan.storage[v].meta for v in (*op.reads(), *op.writes()) if v in self._plan.storage)
        return all(meta is not None and meta.known for meta in metas)

    def _of(self, op: FrozenOp, shapes: bool) -> OpFacts:
        read = [self._arrays[v] for v in dict.fromkeys(op.contents()) if v in self._arrays]
        made = [self._arrays[v] for v in dict.fromkeys(op.writes()) if v in self._arrays]
        metas: tuple[Meta, ...] = ()
        if shapes:
            found = [self._arrays[v] for v in op.reads() if hasattr(self._arrays.get(v), "dtype")]
            metas = tuple(Meta(array.shape, dtype_of(array.dtype)) for array in found)
        generated = self._plan.kernels.get(op.outputs) if self._device.generated else None
        return OpFacts(_nbytes([*read, *made]), metas, generated.kernel.name if generated is not None else "")


def _nbytes(value: Any) -> int:
    """Returns the bytes of arrays, and of lists of them."""
    if isinstance(value, list):
        return sum(map(_nbytes, value))
    return getattr(value, "nbytes", 0)
