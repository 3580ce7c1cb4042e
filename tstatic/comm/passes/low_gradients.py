"""Sends gradients in 16 bits: those that were computed so before they are cast for the update, and all where a strategy asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tstatic.comm.passes.buckets import Gradient
from tstatic.comm.passes.distribution import Distribution
from tstatic.ir.frozen import FrozenOp, FrozenProgram
from tstatic.ir.opdef import op_def
from tstatic.ir.operator import OpRole
from tstatic.ir.types import Meta, float16, float32

SENT = "@SENT"
"""Suffix of the name of a gradient that was rounded for the exchange."""
WIDE = "@WIDE"
"""Suffix of the name of what is read of it afterwards."""


def send_low(
    program: FrozenProgram, gradients: Sequence[Gradient], how: Distribution
) -> tuple[FrozenProgram, list[Gradient]]:
    """Makes 16-bit values of gradients what the replicas exchange.

    Where the op that completes a float32 gradient casts it from 16 bits, as mixed precision does for an update in float32, what it
    casts is exchanged, and the cast comes behind the exchange: half of the bytes, and one rounding more, of the sum. Casts stand
    behind the whole backward part, or the part would wait for the exchange in front of them.

    Args:
        program: The program of one replica.
        gradients: In the order in which the backward part completes them.
        how: Its ``low`` allows that; with ``half`` the other float32 gradients are rounded to float16 for the exchange, and their
            sums are cast back.

    Returns:
        The program, and the gradients whose values are to be exchanged, in the same order.
    """
    end = max((g.made for g in gradients), default=-1) + 1
    metas, names = dict(program.metas), dict(program.names)
    removed: set[int] = set()
    behind: dict[int, list[FrozenOp]] = {}
    before: dict[int, list[FrozenOp]] = {}
    renamed: dict[str, tuple[str, int]] = {}
    sent: dict[str, str] = {}
    # What else reads the 16-bit value, the user who fetches it included, must go on to see this replica's own.
    only = _read_once(program)
    for g in gradients:
        op = program.ops[g.made]
        # Not in front of other gradients: the stream of the computation would wait there for a sum that is on its way.
        at = min(g.read, end)
        if how.low and _widens(op, metas) and op.reads()[0] in only:
            removed.add(g.made)
            before.setdefault(at, []).append(op)
            sent[g.value] = op.reads()[0]
        elif how.half and metas[g.value].dtype is float32:
            low, wide = f"{g.value}{SENT}", f"{g.value}{WIDE}"
            metas[low], metas[wide] = metas[g.value].with_dtype(float16), metas[g.value]
            names[low] = names[wide] = names.get(g.value, g.value)
            behind.setdefault(g.made, []).append(_cast(g.value, low, metas, op))
            before.setdefault(at, []).append(_cast(low, wide, metas, op))
            renamed[g.value] = wide, at
            sent[g.value] = low
    if not sent:
        return program, list(gradients)
    ops: list[FrozenOp] = []
    for number, op in enumerate(program.ops):
        ops += before.get(number, ())
        if number not in removed:
            late = {v: renamed[v][0] for v in op.reads() if v in renamed and renamed[v][1] <= number}
            ops += [op.with_inputs(late) if late else op, *behind.get(number, ())]
    ops += before.get(len(program.ops), ())
    fetches = tuple((name, renamed[v][0] if v in renamed else v) for name, v in program.fetches)
    writes = {var: renamed[v][0] if v in renamed else v for var, v in program.writes.items()}
    program = program.edit(ops=tuple(ops), metas=metas, names=names, fetches=fetches, writes=writes)
    return program, _moved(program, [replace(g, value=sent.get(g.value, g.value)) for g in gradients])


def _widens(op: FrozenOp, metas: Mapping[str, Meta]) -> bool:
    """Returns whether an op casts 16 bits to float32."""
    return op.type == "cast" and metas[op.reads()[0]].dtype.is_low and metas[op.writes()[0]].dtype is float32


def _read_once(program: FrozenProgram) -> set[str]:
    """Returns the values that one op reads and nothing else: what replaces them there is seen nowhere else."""
    count: dict[str, int] = {}
    kept = program.roots()
    for op in program.ops:
        for v in op.reads():
            count[v] = count.get(v, 0) + 1
    return {v for v, n in count.items() if n == 1 and v not in kept}


def _cast(value: str, result: str, metas: Mapping[str, Meta], near: FrozenOp) -> FrozenOp:
    definition = op_def("cast")
    attrs = definition.complete({"in_dtype": metas[value].dtype, "out_dtype": metas[result].dtype})
    return FrozenOp(
        definition, (value,), (result,), attrs, OpRole.Backward, (), near.where, near.position, scope=near.scope
    )


def _moved(program: FrozenProgram, gradients: Sequence[Gradient]) -> list[Gradient]:
    """Returns the gradients with the places in the program at which they are made and first read now."""
    made: dict[str, int] = {}
    read: dict[str, int] = {}
    for number, op in enumerate(program.ops):
        made.update(dict.fromkeys(op.writes(), number))
        for v in op.reads():
            read.setdefault(v, number)
    return [replace(g, made=made[g.value], read=read.get(g.value, len(program.ops))) for g in gradients]


__all__ = ["send_low"]
