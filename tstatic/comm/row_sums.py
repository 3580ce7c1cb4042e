"""Sums gradients of tables over the replicas as the rows that each of them looked up: what is moved grows with those rows only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tstatic.comm.finite_gradients import Watch
from tstatic.comm.group import Communicator
from tstatic.comm.transport import Part, ProcessTransport
from tstatic.devices import HostArray, read
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.opdef import OpDef, register
from tstatic.ir.ref import Attrs, Calls, Ref, Slots
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.update._slots import ROWS
from tstatic.tuned._common import Array
from tstatic.where import show

GATHER_ROWS = "c_gather_rows"
"""Op type of the sum."""

Rows = tuple[HostArray, HostArray]
"""Numbers of rows of a table, ascending, and their values."""


def add_rows_in_order(parts: Sequence[Rows]) -> Rows:
    """Returns the rows that any part has, and their sums, added from the first part to the last.

    These are the bits of a sum of whole gradients, but for the sign of a zero: where a part has no row, the whole gradient has
    zeros. 16-bit floats are added in float32 and rounded once, as there.

    Args:
        parts: Rows, each once in a part, and values ``[rows, width]``; at least one part, all of one dtype.
    """
    if len(parts) == 1:
        return parts[0]
    found, places = np.unique(np.concatenate([rows for rows, _ in parts]), return_inverse=True)
    first = parts[0][1]
    low = first.dtype.itemsize == 2
    total = np.zeros((found.size, *first.shape[1:]), np.float32 if low else first.dtype)
    start = 0
    for rows, values in parts:
        # A part has each row once, so an indexed addition misses none.
        total[places[start : start + rows.size]] += values.astype(total.dtype, copy=False)
        start += rows.size
    return found, total.astype(first.dtype, copy=False)


def _gathered(outer: ProcessTransport, communicator: Communicator, array: HostArray) -> HostArray:
    """Returns the arrays of all processes, stacked; the host must know them, since it decides how large the sum is."""
    device = communicator.device
    out = device.empty((outer.size, *array.shape), array.dtype)
    for function, args in outer.gather([Part(communicator, [device.upload(array)])], 0, [out]):
        function(*args)
    # The host reads it next, and a transport may only have queued it.
    device.synchronize([communicator.stream])
    return read(out)


def _of_processes(
    outer: ProcessTransport, communicator: Communicator, rows: HostArray, values: HostArray
) -> list[Rows]:
    """Returns the rows of all processes, by rank."""
    counts = _gathered(outer, communicator, np.array([rows.size], np.int64)).reshape(-1)
    # Processes exchange arrays of one size: the largest.
    most = int(counts.max())
    padded = [np.zeros((most, *a.shape[1:]), a.dtype) for a in (rows, values)]
    for target, source in zip(padded, (rows, values), strict=True):
        target[: rows.size] = source
    gathered = [_gathered(outer, communicator, a) for a in padded]
    return [(r[:n], v[:n]) for r, v, n in zip(*gathered, counts, strict=True)]


def sum_rows(communicator: Communicator, rows: HostArray, values: HostArray) -> Rows:
    """Returns the sum of the rows of all replicas of all processes: first within each process, as whole gradients are summed."""
    group, outer = communicator.group, communicator.group.outer

    def last(parts: list[Any]) -> None:
        total = add_rows_in_order(parts)
        if outer is not None:
            total = add_rows_in_order(_of_processes(outer, communicator, *total))
        parts[:] = [total] * len(parts)

    if communicator.rank == 0:
        group.calls += 1
        group.moved += rows.nbytes + values.nbytes
    total: Rows = group.rendezvous(communicator.rank, GATHER_ROWS, (rows, values), last)[communicator.rank]
    return total


class _RowsRef(Ref):
    """A reference for results whose size is what all replicas looked up together."""

    attrs = None
    takes = frozenset({"group"})

    def bind_arrays(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        raise AssertionError("the number of rows is known only when the replicas have met")

    def compute(self, ins: Slots, outs: Slots, attrs: Attrs, reserved: Attrs) -> list[Any]:
        communicator: Communicator = reserved["group"]
        device, stream = communicator.device, communicator.stream
        rows, values = (device.to_host(a, stream) for a in ins[:2])
        # Behind the rows stands the number of rows of the table.
        count = int(np.searchsorted(rows, ins[2].shape[0]))
        if attrs["watch"] and communicator.op is not None:
            # Its second input: the first are the numbers of the rows.
            name, findings = list(communicator.op.reads())[1], communicator.group.findings[communicator.rank]
            Watch(device, [values[:count]], [name], show(communicator.op.where), findings).look(stream)
        found: list[Array] = []
        for host in sum_rows(communicator, rows[:count], values[:count]):
            # A copy for each replica: all have the same arrays from the last one to arrive.
            array = device.empty(host.shape, host.dtype)
            device.from_host(array, host, stream)
            found.append(array)
        return found


def _infer(rows: Meta, values: Meta, w: Meta, **_: Any) -> tuple[Meta, Meta]:
    return rows.with_shape((UNKNOWN,)), values.with_shape((UNKNOWN, *values.shape[1:]))


register(
    OpDef(
        GATHER_ROWS,
        f"{ROWS}, Values, W -> Out{ROWS}, Out",
        attrs={"watch": 0},
        infer=_infer,
        ref=_RowsRef(),
        shape_only=("W",),
        dynamic=Dynamic("the rows that all replicas look up"),
        effects=True,
        collective=True,
    )
)
