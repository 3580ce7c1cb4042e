"""Finds the values whose memory may differ from run to run: results that a device's library allocates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from tstatic.fusion.codegen.kernel import Launches
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.plan.flat_buffers import gradient_buffers

BlockUse = Callable[[FrozenOp], Literal["", "finds", "makes"]]
"""An op -> whether it finds its inputs wherever they lie in each run, and whether it also brings memory for its results along."""

_TOGETHER = "an update reads it together with other gradients, which lie side by side"
_TABLE = "a kernel reads its address from a table"
_STATE = "it replaces a variable, whose memory is the scope's"


class BlockValues(NamedTuple):
    """Values by how they deal with foreign blocks.

    Attributes:
        may_move: Those that all readers find wherever they lie.
        made: Those of them that ops allocate themselves.
        copied: Those that ops allocate, and that are copied to a place of their own -> why.
    """

    may_move: set[str]
    made: set[str]
    copied: dict[str, str]


def block_values(
    program: FrozenProgram,
    ops: Sequence[FrozenOp],
    launches: Mapping[tuple[Entry, ...], Launches],
    direct: Collection[str],
    block_use: BlockUse,
) -> BlockValues:
    """Returns which values may lie in foreign blocks.

    Args:
        program: The program.
        ops: Its ops, in their order.
        launches: Outputs of fused ops -> the launches of their kernels.
        direct: Values that are written to the memory of a variable.
        block_use: Says how an op deals with blocks.
    """
    # What an update over many tensors reads lies together, in the arena.
    placed = {grad: _TOGETHER for grads in gradient_buffers(program) for grad in grads}
    for one in launches.values():
        placed.update((str(v), _TABLE) for table in one.tables.values() for v in table.values)
    allocated: set[str] = set()
    for op in reversed(ops):
        use = block_use(op)
        # Readers of a view read what it is a view of.
        viewed = next((placed[v] for v in op.writes() if v in placed), "") if op.definition.view is not None else ""
        if not use or viewed:
            why = viewed or f"`{op.type}` reads it where it lay when the step was bound"
            for value in op.reads():
                placed.setdefault(value, why)
        if use == "makes":
            allocated.update(op.writes())
    placed.update((v, _STATE) for v in allocated if v in direct)
    copied = {v: placed[v] for v in allocated if v in placed}
    return BlockValues({v for op in ops for v in op.writes()} - placed.keys(), allocated - placed.keys(), copied)


__all__ = ["BlockUse", "BlockValues", "block_values"]
