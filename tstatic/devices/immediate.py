"""Schedules steps on devices whose calls end when their work is done: chains of tiles, divided among threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tstatic.devices.base import Device
from tstatic.devices.cpu import blas
from tstatic.devices.cpu.pool import pool_of, usable_cpus
from tstatic.devices.cpu.tile_chain import chain_steps, find_failed_op
from tstatic.devices.region_log import RegionLog
from tstatic.devices.step import BoundStep, ReadyStep, Region, Schedule, of_calls
from tstatic.ir.frozen import FrozenOp

IN_CACHE = 1 << 18
"""Bytes that the nearer caches of a core hold, however small it is: what one thread has just written is still there."""


def _pays_to_chain(work: BoundStep, threads: int) -> bool:
    """Returns whether a step's tiles may run beside each other, or find less in the cache step by step than tile by tile."""
    return len(work.tile_binders) > 1 and (threads > 1 or work.read_bytes > IN_CACHE)


class ChainedSchedule(Schedule):
    """Calls that end when their work is done; one of a pool does the work of several ops, tile by tile.

    Args:
        device: The device, which times them.
        stream: The stream in which they run.
    """

    def __init__(self, device: Device, stream: Any) -> None:
        super().__init__()
        self._device, self._stream = device, stream

    def ops(self, number: int) -> list[FrozenOp]:
        owner = self.op_of_call[number]
        return [owner] if isinstance(owner, FrozenOp) else [op for ends in owner for _, op in ends]

    def failed(self, error: Exception, number: int) -> tuple[BaseException, FrozenOp]:
        return find_failed_op(error, self.op_of_call[number])

    def timed(self, log: RegionLog) -> Schedule:
        made = ChainedSchedule(self._device, self._stream)
        for _, group in itertools.groupby(zip(self.op_of_call, self.calls, strict=True), key=lambda one: id(one[0])):
            rows = list(group)
            owner = rows[0][0]
            if isinstance(owner, FrozenOp):
                made.add(self._device.timed(owner, [call for _, call in rows], self._stream, log), owner)
            else:
                for _, one in rows:
                    made.add(log.pooled(one, owner), owner)
        return made


class ImmediateDevice(Device):
    """A device whose calls end when their work is done."""

    def worker_threads(self, wanted: int) -> int:
        return max(1, min(wanted, usable_cpus()))

    def before_runs(self, ops: Sequence[FrozenOp]) -> Callable[[], None] | None:
        return blas.hold if any(map(blas.is_used_by, ops)) else None

    def schedule(self, steps: Sequence[ReadyStep], region: Region) -> Schedule:
        made = ChainedSchedule(self, region.streams[0] if region.streams else None)
        works = []
        pays = False
        for step in steps:
            if step.op is None or step.work is None:
                continue
            pays = pays or _pays_to_chain(step.work, region.threads)
            # Steps of their own: nobody knows what memory they access, so a chain ends there and its tiles cannot overtake a check.
            if step.before:
                works.append((of_calls(list(step.before)), step.op))
            works.append((step.work, step.op))
            if step.after:
                works.append((of_calls(list(step.after)), step.op))
        if not pays:
            for work, op in works:
                made.add(work.calls(region.workspaces[0]), op)
        else:
            pool = pool_of(region.threads)
            for chain in chain_steps(works, region.threads, region.ordered or region.searched):
                calls, owners = chain.bind_workspaces(region.workspaces, pool)
                made.calls += calls
                made.op_of_call += owners
        if region.behind and works:
            made.add(region.behind, works[-1][1])
        return made
