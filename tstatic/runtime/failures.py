"""Says whose work failed in a run: the op behind a call, or behind queued work for which a call waited."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import Any, NoReturn

from tstatic.comm.group import ReplicaStoppedError
from tstatic.devices.base import QueuedWorkError
from tstatic.devices.step import Schedule
from tstatic.errors import DeviceError
from tstatic.ir.frozen import FrozenOp
from tstatic.runtime.binding import Binding, Setting
from tstatic.runtime.checks import StoppedBeforeError
from tstatic.runtime.out_of_memory import of_op
from tstatic.runtime.recorded import RegionName
from tstatic.runtime.sub_block import annotate
from tstatic.where import show

Position = tuple[Schedule, Iterator[Any]]
"""The calls that run now, and an iterator of those that are left."""


def number_of(at: Position) -> int:
    """Returns the number of the call that runs: the iterator's remaining length tells it, where a counter would cost each call."""
    schedule, running = at
    return len(schedule.calls) - length_hint(running) - 1


def raise_failure(setting: Setting, bound: Binding, region: RegionName, error: BaseException, op: FrozenOp) -> NoReturn:
    """Raises the error of a call, or of the queued work for which it waited, with its op; the device drops what is left.

    Raises:
        ReplicaStoppedError: If it is another replica's.
        StoppedBeforeError: If an update was queued behind the work that failed; no state was written.
        DeviceError: If the failure may have left parameters half written.
    """
    # First: work that is left would run at the next wait, on memory that another session may have by then.
    setting.device.discard(setting.streams)
    bound.recorded.drop()
    if isinstance(error, QueuedWorkError):
        # A wait may run into another replica's failed work; that replica tells of it, with its own op.
        if error.stream is not None and error.stream not in setting.streams:
            raise ReplicaStoppedError("this replica stopped because another one failed") from error
        op = error.op or op
        error = error.__cause__ or error
    error = of_op(error, op)
    annotate(error, op)
    # What a collective computes by itself is not a step, and comes before the update.
    early = not any(step.op is op for step in setting.plan.steps if step.region == "update")
    # The update was queued behind what failed, so it has not run: no parameter is half written.
    if region != "main" and bound.undecided and early:
        raise StoppedBeforeError(error)
    if region != "main":
        kind, text = setting.device.describe(error)
        raise DeviceError(
            "a step failed while it wrote parameters",
            expected="an update that cannot fail",
            received=f"{kind}: {text}",
            fix="load the last good checkpoint before going on",
            op=op.type,
            where=show(op.where),
        ) from error
    raise error


def running_op(setting: Setting, at: Position | None) -> str:
    """Returns the op that is running now, with the user's line; empty where none is. Another thread may ask."""
    # Asked before the calls: on a device whose work runs late, the host's call may only be waiting for it.
    late = setting.device.running(setting.streams)
    if late is not None:
        return f"in operator '{late.type}' at {show(late.where)}"
    if at is None:
        return ""
    number = number_of(at)
    ops = at[0].ops(number)[:3] if 0 <= number < len(at[0].calls) else []
    return " or ".join(dict.fromkeys(f"in operator '{op.type}' at {show(op.where)}" for op in ops))
