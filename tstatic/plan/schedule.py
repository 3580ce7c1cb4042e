"""Orders the steps: main steps first, then the update region, the only one that writes state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram


@dataclass(frozen=True, slots=True)
class Schedule:
    """Ops in the order of execution.

    Attributes:
        main: Ops that write only scratch.
        update: Ops that write persistable variables in place; nothing that can fail comes after the first of them.
        direct: Value -> persistable variable whose storage the value is written to.
        commits: (variable, value) pairs that are copied at the end.
    """

    main: tuple[FrozenOp, ...]
    update: tuple[FrozenOp, ...]
    direct: dict[str, str]
    commits: tuple[tuple[str, str], ...]


def _delayable(op: FrozenOp, program: FrozenProgram, owner: dict[str, str]) -> bool:
    """Returns whether all results of an op replace state that it read."""
    if op.body:
        # Only members whose results leave the fused op matter: the others write no memory.
        made = set(op.writes())
        return all(_delayable(one, program, owner) for one in op.body if made.intersection(one.writes()))
    # Only an update may write state in place; a loop's body would do so several times.
    if not op.definition.update or op.sub_blocks:
        return False
    pairs = {o: i for i, o in op.definition.state}
    for slot, entry in zip(op.definition.outputs, op.outputs, strict=True):
        if entry is None:
            continue
        if slot.name not in pairs:
            return False
        source = op.input(pairs[slot.name])
        for value, old in zip(
            (entry,) if isinstance(entry, str) else entry,
            (source,) if isinstance(source, str) else source or (),
            strict=True,
        ):
            var = owner.get(value)
            # The result must replace the very state that it was computed from, directly or through a collective.
            if var is None or (program.reads.get(var) != old and owner.get(old) != var):
                return False
    return True


def _shared(op: FrozenOp) -> set[str]:
    """Returns the values that several members of a fused op read: as they run together, none may overwrite another's input."""
    if len(op.body) < 2:
        return set()
    count = Counter(value for one in op.body for value in set(one.reads()))
    return {value for value, readers in count.items() if readers > 1}


def _row(entry: Entry) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else entry or ()


def _owners(program: FrozenProgram) -> dict[str, str]:
    """Returns value -> the variable whose storage it may use: last values, and the values that collectives turn into them."""
    owner = {value: var for var, value in program.writes.items()}
    # Backwards: what a collective turns into a variable's value may itself come from a collective.
    for op in reversed(program.ops):
        if not op.definition.collective:
            continue
        for source_slot, result_slot in op.definition.state:
            for source, result in zip(_row(op.input(source_slot)), _row(op.output(result_slot)), strict=False):
                var = owner.get(result)
                if var is not None and program.reads.get(var) != source:
                    owner[source] = var
    return owner


def schedule(program: FrozenProgram) -> Schedule:
    """Sorts ops into the main and the update region, each in program order."""
    owner = _owners(program)
    delayed = [_delayable(op, program, owner) for op in program.ops]
    # An op whose results a main op reads cannot be delayed. Moving it may force others to move, so repeat until stable.
    changed = True
    while changed:
        changed = False
        read_by_main = {v for op, late in zip(program.ops, delayed, strict=True) if not late for v in op.reads()}
        for i, op in enumerate(program.ops):
            if delayed[i] and any(v in read_by_main for v in op.writes()):
                delayed[i] = False
                changed = True
    # Nothing that may fail follows the first write of state: after an error the scope is as before the run.
    main = tuple(op for op, late in zip(program.ops, delayed, strict=True) if not late)
    update = tuple(op for op, late in zip(program.ops, delayed, strict=True) if late)
    direct: dict[str, str] = {}
    # A later update that still reads the old value of a variable forbids writing that variable in place.
    last_reader: dict[str, int] = {}
    for i, op in enumerate(update):
        for value in op.reads():
            last_reader[value] = i
    for i, op in enumerate(update):
        shared = _shared(op)
        for value in op.writes():
            var = owner[value]
            if last_reader.get(program.reads[var], -1) <= i and program.reads[var] not in shared:
                direct[value] = var
    # What cannot be written in place is copied at the end, when nothing reads the old value any more.
    commits = tuple((var, value) for var, value in program.writes.items() if value not in direct)
    return Schedule(main, update, direct, commits)
