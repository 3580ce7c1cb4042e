"""Numbers the ops of each training, and prunes a program to the updates of a run: those in its fetch list, or all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tstatic.errors import FeedTypeError
from tstatic.ir.edit import prune, sub_blocks
from tstatic.ir.operator import OpRole
from tstatic.ir.program import Operator, Program
from tstatic.where import show

_Key = tuple[int, int, str, tuple[str, ...]]
"""What identifies an op in the copies of its program, too: its block, position, type and outputs."""

_TRAINING = OpRole.Backward | OpRole.Optimize | OpRole.LRSched


@contextlib.contextmanager
def numbered(program: Program, updates: tuple[int, ...] | None = None) -> Iterator[None]:
    """Gives the ops of a training that are built inside its number, by which a run that chooses it knows them.

    Args:
        program: The program that they are built in.
        updates: The numbers; by default a new one, or those of the block of this function around it.
    """
    old = program._updates
    if updates is None:
        # Above all numbers that the program's ops have: its copies keep them.
        updates = old or (1 + max((n for block in program.blocks for op in block.ops for n in op.updates), default=0),)
    program._updates = updates
    try:
        yield
    finally:
        program._updates = old


def _key(op: Operator) -> _Key:
    """Returns what identifies an op that ``minimize`` returned.

    Raises:
        FeedTypeError: If it is not part of an optimizer.
    """
    if not op.role & OpRole.Optimize:
        raise FeedTypeError(
            "The operator in fetch_list is not an optimize_op",
            expected="an operator that minimize returned, a Variable or its name",
            received=f"operator '{op.type}'",
            fix="fetch the operator's result",
            op="fetch",
            where=show(op.where),
        )
    return op.block.idx, op.position, op.type, tuple(op.output_arg_names)


class _Choice:
    """Decides which ops of a training a run keeps.

    Args:
        program: The program.
        chosen: The ops in the fetch list; all updates if empty.
    """

    def __init__(self, program: Program, chosen: Sequence[Operator]) -> None:
        self.program = program
        self.chosen = frozenset(map(_key, chosen))
        found = [op for block in program.blocks for op in block.ops if self.picks(op)]
        missing = self.chosen.difference(map(_key, found))
        if missing:
            _, _, type, outputs = min(missing)
            raise FeedTypeError(
                "fetch_list holds the result of a minimize that is not part of this program",
                expected="what minimize returned for a loss of this program, or of the program that it is a clone of",
                received=f"operator '{type}', which writes {', '.join(outputs) or 'nothing'}",
                fix="run the program that was minimized, or leave the result out",
                op="fetch",
            )
        self.numbers = frozenset(n for op in found for n in op.updates)
        # Operators that one parameter's update brings with it, such as those of its slow weights, go with that update.
        self.params = {op.role_var[0] for op in found if op.role_var}

    def picks(self, op: Operator) -> bool:
        """Returns whether the fetch list names an op."""
        return bool(self.chosen and op.role & OpRole.Optimize and _key(op) in self.chosen)

    def keeps(self, op: Operator) -> bool | None:
        """Returns whether an op of the program stays; ``None`` if what reads its results decides."""
        owned = [inner for index in sub_blocks(op) for inner in self.program.blocks[index].ops]
        # A branch or loop stays if one of the updates in it runs.
        if owned and any(self.trains(inner) for inner in owned):
            return any(self.runs(inner) for inner in owned) or None
        return self.runs(op) if self.trains(op) else None

    def trains(self, op: Operator) -> bool:
        """Returns whether an op is an update, or keeps state that belongs to one: averages, counters, scales of losses."""
        if not op.role & _TRAINING or not (op.updates or op.role & OpRole.Optimize):
            return False
        return any((v := op.block._find_var_recursive(n)) is not None and v.persistable for n in op.output_arg_names)

    def runs(self, op: Operator) -> bool | None:
        """Returns whether this run has such an op."""
        if not self.chosen or self.picks(op):
            return True
        # A parameter that was not chosen stays as it is.
        if op.definition.update and op.output("ParamOut"):
            return False
        # Built outside of any `minimize`: what reads its results decides.
        if not op.updates:
            return None
        own = op.role_var[0] if op.role_var and op.role & OpRole.Optimize else None
        return not self.numbers.isdisjoint(op.updates) and (own is None or own in self.params)


def with_updates(
    program: Program, feeds: Sequence[str], fetches: Sequence[str], chosen: Sequence[Operator] = ()
) -> Program:
    """Returns a copy with only what the fetches and the updates need.

    An optimizer that is left out does not move its state either: moments, counters, the scale of its loss, averages.

    Args:
        program: The program; it is not changed.
        feeds: Names that are fed.
        fetches: Names that are fetched.
        chosen: The updates to make: ops of the program, or of one that it is a copy of; all if empty.

    Raises:
        FeedTypeError: If the program has no such update, or an op is not part of an optimizer.
    """
    return prune(program, feeds, list(fetches), _Choice(program, chosen).keeps)


__all__ = ["numbered", "with_updates"]
