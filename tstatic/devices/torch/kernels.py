"""Takes from torch's profiler which kernels a GPU ran, when, and for which op."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from tstatic.ir.frozen import FrozenOp
from tstatic.ir.recording import Call
from tstatic.records import Record, Recorder

PREFIX = "tstatic:"
"""Begins the names of the ranges that tell which op launches a kernel."""


class SeenEvent(Protocol):
    """What is read of an event of torch's profiler."""

    def name(self) -> str: ...
    def device_type(self) -> Any: ...
    def device_resource_id(self) -> int: ...
    def start_thread_id(self) -> int: ...
    def correlation_id(self) -> int: ...
    def start_ns(self) -> int: ...
    def duration_ns(self) -> int: ...


def sees_gpus(torch: Any) -> bool:
    """Returns whether torch's profiler sees the kernels of this machine's GPUs."""
    import torch.profiler as of  # heavy, and optional

    return of.ProfilerActivity.CUDA in of.supported_activities()


class TorchKernels:
    """A recording of torch's profiler beside one of ours.

    Args:
        torch: The library.
        recorder: Gets the records of kernels.
        device: Name of the device.
    """

    def __init__(self, torch: Any, recorder: Recorder, device: str) -> None:
        import torch.profiler as of  # heavy, and optional

        self.recorder = recorder
        self._torch = torch
        self._device = device
        self._ops: list[FrozenOp] = []
        # torch's times are those of the system's clock.
        self._offset = time.perf_counter_ns() - time.time_ns()
        self._profile = of.profile(activities=[of.ProfilerActivity.CPU, of.ProfilerActivity.CUDA])
        self._profile.start()
        recorder.at_end(self._finish)

    def ranged(self, op: FrozenOp, calls: Sequence[Call]) -> list[Call]:
        """Returns the calls within a range that torch's profiler records."""
        span = self._torch.autograd.profiler.record_function(f"{PREFIX}{len(self._ops)}")
        self._ops.append(op)
        return [(span.__enter__, ()), *calls, (span.__exit__, (None, None, None))]

    def _finish(self) -> None:
        self._profile.stop()
        found = self._profile.profiler.kineto_results.events()
        for record in kernels_of(found, self._ops, self._device, self._offset):
            self.recorder.add_record(record)


def kernels_of(events: Iterable[SeenEvent], ops: Sequence[FrozenOp], device: str, offset: int = 0) -> Iterator[Record]:
    """Returns the records of kernels and copies.

    A kernel has the number of the call of CUDA that launched it; that call lies, in its thread, within the range of an op.

    Args:
        events: Those that torch's profiler recorded.
        ops: The op of each range, by the number behind :data:`PREFIX`.
        device: Name of the device.
        offset: Added to times, for our clock.
    """
    ranges: dict[int, list[tuple[int, int, int]]] = {}
    launched: dict[int, tuple[int, int]] = {}
    kernels: list[SeenEvent] = []
    for event in events:
        name, start = event.name(), event.start_ns()
        if "CPU" not in str(event.device_type()):
            # A range is repeated among the GPU's events, where only kernels and copies count.
            if not name.startswith(PREFIX):
                kernels.append(event)
        elif name.startswith(PREFIX):
            row = ranges.setdefault(event.start_thread_id(), [])
            row.append((start, start + event.duration_ns(), int(name[len(PREFIX) :])))
        elif name.startswith("cu"):
            launched[event.correlation_id()] = event.start_thread_id(), start
    for row in ranges.values():
        row.sort()
    for number, event in enumerate(sorted(kernels, key=lambda one: one.start_ns())):
        thread, when = launched.get(event.correlation_id(), (0, 0))
        row = ranges.get(thread, [])
        # Larger than any end: the last range that began at or before the call.
        at = bisect_right(row, (when, 1 << 63, 0)) - 1
        op = ops[row[at][2]] if at >= 0 and when <= row[at][1] else None
        start = event.start_ns() + offset
        queue = f"{device}: kernels of stream {event.device_resource_id()}"
        yield Record(
            "kernel", event.name(), start, start + event.duration_ns(), 0, op, number, kernel=event.name(), queue=queue,
            device=device,
        )  # fmt: skip
