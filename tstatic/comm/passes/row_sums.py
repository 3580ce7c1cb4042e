"""Sums gradients of tables over the replicas as the rows that each of them looked up: what is moved grows with those rows only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tstatic.comm.group import Communicator, Gather
from tstatic.comm.passes.finite_gradients import Watch
from tstatic.comm.transport import Part, ProcessTransport, rows_of
from tstatic.devices import HostArray, read
from tstatic.ir.dynamic import Dynamic
from tstatic.ir.frozen import FrozenProgram
from tstatic.ir.opdef import OpDef, register
from tstatic.ir.recording import Call
from tstatic.ir.ref import Attrs, Calls, Ref, Slots, plain
from tstatic.ir.types import UNKNOWN, Meta
from tstatic.ops.base.indexing import torch_groups
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


def _merge(
    rows: Sequence[HostArray], values: Sequence[HostArray], found: HostArray, sums: HostArray, count: int, each: int
) -> None:
    parts = [(r[:n], v[:n]) for r, v in zip(rows, values, strict=True) for n in [int(np.searchsorted(r, count))]]
    # First within each process, as whole gradients are summed.
    own, total = add_rows_in_order([add_rows_in_order(parts[i : i + each]) for i in range(0, len(parts), each)])
    found[: own.size], found[own.size :] = own, count
    sums[: own.size], sums[own.size :] = total, 0


def _merge_in_torch(
    torch: Any, rows: Sequence[Any], values: Sequence[Any], *, out: Sequence[Any], count: int, each: int
) -> None:
    """Adds as :func:`add_rows_in_order` does, with the same bits; the host learns nothing of the rows."""
    found, sums = out
    every = torch.cat(list(rows))
    ordered, order, number = torch_groups(torch, every)
    # One place more than there can be rows: for the number that names none.
    number = number.clamp(max=found.shape[0])
    named = torch.full((found.shape[0] + 1,), count, dtype=found.dtype, device=found.device).scatter_(
        0, number, ordered
    )
    places = torch.empty_like(number).scatter_(0, order, number).split([one.shape[0] for one in rows])
    first = values[0]
    wide = torch.float32 if first.dtype in (torch.float16, torch.bfloat16) else first.dtype
    room = (found.shape[0] + 1, *first.shape[1:])

    total: Any = None
    for start in range(0, len(values), each):
        own = torch.zeros(room, dtype=wide, device=found.device)
        for at, part in zip(places[start : start + each], values[start : start + each], strict=True):
            # A part has each row once, so that nothing is added twice to one place but zeros to the last.
            own.index_add_(0, at, part.to(wide))
        if each < len(values):
            # Rounded as the sum of a process is, before the processes' sums are added.
            own = own.to(first.dtype).to(wide)
        total = own if total is None else total.add_(own)
    found.copy_(named[:-1])
    sums.copy_(total[:-1])


MERGE = OpDef(
    "c_merge_rows", f"{ROWS}*, Values* -> Out{ROWS}, Out", attrs={"count": 0, "each": 1}, ref=plain(_merge),
    lower=_merge_in_torch,
)  # fmt: skip
"""The sum of the rows of all replicas, by rank: ``each`` of a process first. Numbers from ``count`` on name no row."""


def _pad(x: HostArray, out: HostArray, value: int) -> None:
    out[: x.shape[0]], out[x.shape[0] :] = x, value


def _pad_in_torch(torch: Any, x: Any, *, out: Any, value: int) -> None:
    out[: x.shape[0]].copy_(x)
    out[x.shape[0] :].fill_(value)


PAD = OpDef("c_pad_rows", "X -> Out", attrs={"value": 0}, ref=plain(_pad), lower=_pad_in_torch)
"""Its operand, and behind it a number, up to the size of the result."""


class _RowsRef(Ref):
    """A reference for results whose size is what all replicas looked up together, or may have looked up at most."""

    attrs = None
    takes = frozenset({"group"})
    only_queues = True

    def bind_arrays(self, ins: Slots, outs: Slots, attrs: Attrs, scratch: Slots, reserved: Attrs) -> Calls:
        """Returns calls that gather and add as many rows as any replica may have; the host does not learn how many there are."""
        group: Communicator = reserved["group"]
        rows, values, count = ins[0], ins[1], ins[2].shape[0]
        calls: list[Call] = []
        if attrs["watch"] > 0:
            calls.append((_watch(group, values).look, (group.stream,)))
        gathered = []
        for array, nothing in ((rows, count), (values, 0)):
            shape = (attrs["most"], *array.shape[1:])
            # A copy, since the size is that of all; the others read it, wherever the plan puts the operand.
            padded, every = group.buffer(shape, array.dtype), group.buffer((group.world, *shape), array.dtype)
            calls += group.bind_definition(PAD, [array], [padded], {"value": nothing})
            calls.append((Gather(group, padded, every, GATHER_ROWS), ()))
            gathered.append(rows_of(group.device, every))
        return calls + group.bind_definition(MERGE, gathered, outs, {"count": count, "each": group.size})

    def compute(self, ins: Slots, outs: Slots, attrs: Attrs, reserved: Attrs) -> list[Any]:
        communicator: Communicator = reserved["group"]
        device, stream = communicator.device, communicator.stream
        rows, values = (device.to_host(a, stream) for a in ins[:2])
        # Behind the rows stands the number of rows of the table.
        count = int(np.searchsorted(rows, ins[2].shape[0]))
        if attrs["watch"]:
            _watch(communicator, values[:count]).look(stream)
        found: list[Array] = []
        for host in sum_rows(communicator, rows[:count], values[:count]):
            # A copy for each replica: all have the same arrays from the last one to arrive.
            array = device.empty(host.shape, host.dtype)
            device.from_host(array, host, stream)
            found.append(array)
        return found


def _watch(communicator: Communicator, values: Array) -> Watch:
    """Returns what looks for NaN and infinity in the values of a replica's rows."""
    assert communicator.op is not None
    # Its second input: the first are the numbers of the rows.
    name, findings = list(communicator.op.reads())[1], communicator.group.findings[communicator.rank]
    return Watch(communicator.device, [values], [name], show(communicator.op.where), findings)


def _infer(rows: Meta, values: Meta, w: Meta, *, most: int, world: int) -> tuple[Meta, Meta]:
    # No more than the table has, each once.
    count = min(most * world, w.shape[0]) if most else UNKNOWN
    return rows.with_shape((count,)), values.with_shape((count, *values.shape[1:]))


def row_counts(program: FrozenProgram, metas: Mapping[str, Meta]) -> tuple[int, ...]:
    """Returns for each table whose rows are summed how many a replica may have looked up.

    Args:
        program: The replica's program.
        metas: The metadata of its values.

    Returns:
        The counts, in the order of the sums; empty if one is not known before a run.
    """
    found = [metas[str(op.inputs[0])].shape[0] for op in program.ops if op.type == GATHER_ROWS]
    return () if UNKNOWN in found else tuple(found)


def padded(program: FrozenProgram, most: Sequence[int], world: int) -> FrozenProgram:
    """Gives the sums of rows a size that no run decides.

    Args:
        program: A replica's program.
        most: What :func:`row_counts` says, the largest of all replicas.
        world: Number of replicas.
    """
    left = iter(most)
    ops = [
        replace(op, attrs={**op.attrs, "most": max(1, next(left)), "world": world}) if op.type == GATHER_ROWS else op
        for op in program.ops
    ]
    return program.edit(ops=tuple(ops))


register(
    OpDef(
        GATHER_ROWS,
        f"{ROWS}, Values, W -> Out{ROWS}, Out",
        attrs={"watch": 0, "most": 0, "world": 0},
        infer=_infer,
        ref=_RowsRef(),
        shape_only=("W",),
        dynamic=Dynamic("the rows that all replicas look up"),
        effects=True,
        collective=True,
    )
)
