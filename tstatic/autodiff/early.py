"""Places backward ops before the updates of an earlier ``minimize``, so that they read the values of the forward pass."""

from __future__ import annotations

from collections.abc import Sequence

from tstatic.ir.operator import OpRole
from tstatic.ir.program import Operator


def before_updates(ops: Sequence[Operator], path: Sequence[int]) -> tuple[list[Operator], int] | None:
    """Moves the ops that a loss depends on before the first op of an optimizer.

    Args:
        ops: The ops of a block.
        path: Positions of those that the loss depends on.

    Returns:
        All ops in their new order, and the position behind the moved ones. ``None`` if there is no optimizer, or one of them
        cannot move: it reads or writes what an op that it would pass writes, or writes what such an op reads.
    """
    # Counters of steps have the role of a schedule, too, and stand before everything.
    first = next(
        (i for i, op in enumerate(ops) if op.role & (OpRole.Optimize | OpRole.LRSched) == OpRole.Optimize), None
    )
    if first is None or not path:
        return None
    late = {i for i in path if i >= first}
    read: set[str] = set()
    written: set[str] = set()
    for i in range(first, max(path) + 1):
        names = ops[i].output_arg_names
        if i not in late:
            read.update(ops[i].input_arg_names)
            written.update(names)
        elif not written.isdisjoint((*ops[i].input_arg_names, *names)) or not read.isdisjoint(names):
            return None
    moved = [*ops[:first], *(ops[i] for i in sorted(late))]
    return [*moved, *(op for i, op in enumerate(ops) if i >= first and i not in late)], len(moved)


__all__ = ["before_updates"]
