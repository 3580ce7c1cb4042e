"""Decides which sums of gradients over several runs a replica keeps to itself until they are complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tstatic.comm.passes.buckets import Gradient
from tstatic.comm.passes.distribution import Distribution
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram

_HOLD = "Hold"
"""Slot of an op that adds to a sum over runs: a truth value that holds in all of them but the last."""
_SKIP = "SkipUpdate"
"""Slot of updates: a truth value by which a run leaves their state as it is."""

Holds = frozenset[str]
"""Truth values; what is said of one is said of the runs in which it is true."""
_NONE: Holds = frozenset()


def hold_of(op: FrozenOp) -> str | None:
    """Returns the truth value by which a run adds to a gradient that a later run completes; ``None``: each run completes it."""
    if not any(slot.name == _HOLD for slot in op.definition.inputs):
        return None
    found = op.input(_HOLD)
    return found if isinstance(found, str) else None


# ----------------------------------------------------------------------------------------------------- runs in between
@dataclass
class Between:
    """What is known of the runs that do not complete a sum.

    Attributes:
        loose: Value -> in which of these runs it depends on an incomplete sum.
        kept: Value -> the variable whose old value it is, and in which of these runs.
        implied: Value -> in which of these runs it is true.
    """

    loose: dict[str, Holds] = field(default_factory=dict)
    kept: dict[str, tuple[str, Holds]] = field(default_factory=dict)
    implied: dict[str, Holds] = field(default_factory=dict)

    def loose_in(self, values: Iterable[str]) -> Holds:
        """Returns in which runs one of the values depends on an incomplete sum."""
        return _NONE.union(*(self.loose.get(v, _NONE) for v in values))

    def kept_in(self, var: str, value: str) -> Holds:
        """Returns in which runs the new value of a variable is the old one."""
        of, holds = self.kept.get(value, ("", _NONE))
        return holds if of == var else _NONE


def between(program: FrozenProgram, sources: Mapping[str, Holds], own: Iterable[str] = ()) -> Between:
    """Follows incomplete sums through a program.

    Args:
        program: The program of a replica.
        sources: Value that is not complete -> the truth values of the runs in which it is not.
        own: Values that are not followed, since each replica has its own.
    """
    holds, left_out = _NONE.union(*sources.values()), frozenset(own)
    found = Between(
        dict(sources),
        {value: (var, holds) for var, value in program.reads.items()},
        {hold: frozenset([hold]) for hold in holds},
    )
    for op in program.ops:
        loose = found.loose_in(op.reads())
        implied, kept = _NONE, ("", _NONE)
        stays: dict[str, tuple[str, Holds]] = {}
        if op.type == "assign":
            (source,) = op.reads()
            implied, kept = found.implied.get(source, _NONE), found.kept.get(source, kept)
        elif op.type == "logical_or":
            implied = _NONE.union(*(found.implied.get(v, _NONE) for v in op.reads()))
        elif op.type == "where":
            var, runs = found.kept.get(_one(op.input("X")), kept)
            kept = var, runs & found.implied.get(_one(op.input("Condition")), _NONE)
        elif any(slot.name == _SKIP for slot in op.definition.inputs):
            skipped = found.implied.get(_one(op.input(_SKIP)), _NONE)
            for old_slot, new_slot in op.definition.state:
                for old, new in zip(_row(op.input(old_slot)), _row(op.output(new_slot)), strict=False):
                    var, runs = found.kept.get(old, kept)
                    stays[new] = var, runs & skipped
        for value in op.writes():
            if value in left_out or value in sources:
                continue
            var, runs = stays.get(value, kept)
            for known, holding in ((found.loose, loose - runs), (found.implied, implied)):
                if holding:
                    known[value] = holding
            if runs:
                found.kept[value] = var, runs
    return found


def _one(entry: Entry) -> str:
    return entry if isinstance(entry, str) else ""


def _row(entry: Entry) -> Sequence[str]:
    return () if entry is None else (entry,) if isinstance(entry, str) else entry


# -------------------------------------------------------------------------------------------------------------- decision
@dataclass(frozen=True)
class RunSums:
    """How the gradients are exchanged that are summed over several runs.

    Attributes:
        late: The truth values of sums that are exchanged when they are complete; of others the gradient of each run is.
        count: Number of gradients that are summed over runs.
        parts: Variables of sums of which each replica has its own part: the value is the sum of the parts.
        reason: Why the gradients of each run are exchanged; empty if they are not.
    """

    late: Holds = _NONE
    count: int = 0
    parts: tuple[str, ...] = ()
    reason: str = ""


def run_sums(program: FrozenProgram, gradients: Sequence[Gradient], how: Distribution) -> RunSums:
    """Decides when sums over runs are exchanged.

    Between the replicas of a process all state is equal, but for these sums, and a sum that is not complete differs. So a sum is
    exchanged late only if nothing that a run leaves behind or returns depends on it before. What the processes of a job fetch may
    differ, and their exchanges must not, so with several of them fetches do not count.

    Args:
        program: The program of a replica, without collectives.
        gradients: Those of each run, as the backward part completes them.
        how: The distribution.
    """
    merges = [(op, hold) for op in program.ops if (hold := hold_of(op)) is not None]
    holds = frozenset(hold for _, hold in merges)
    if how.replicas == 1 or not merges:
        return RunSums(holds, len(merges))
    if not how.apart:
        return RunSums(_NONE, len(merges), (), "strict numerics add what the places computed in each run")
    why: dict[str, str] = {}
    of_param = {g.param: g.value for g in gradients}
    sources: dict[str, Holds] = {}
    own: dict[str, tuple[str, str]] = {}
    uses = Counter(v for op in program.ops for v in op.reads())
    fetched = {value for _, value in program.fetches}
    variable = {value: var for var, value in program.writes.items()}
    for op, hold in merges:
        ((old_slot, new_slot),) = op.definition.state
        old, new = _one(op.input(old_slot)), _one(op.output(new_slot))
        param, var = op.role_var[0], variable.get(new, "")
        alone = program.reads.get(var) == old and uses[old] == 1 and not uses[new] and old not in fetched
        if param in of_param and alone:
            incomplete = of_param[param]
            sources[incomplete] = sources.get(incomplete, _NONE) | {hold}
            own[new] = var, hold
        else:
            why[hold] = f"the sum of the gradient of '{param}' has other uses"
    known = between(program, sources, own)
    for var, value in program.writes.items():
        for hold in known.loose.get(value, _NONE):
            why.setdefault(hold, f"'{var}' is computed from them in each run")
    for op in program.ops:
        if op.definition.effects or op.definition.objects or op.sub_blocks:
            for hold in known.loose_in(op.reads()):
                why.setdefault(hold, f"'{op.type}' uses them in each run")
    for name, value in program.fetches if how.world == how.replicas else ():
        _, mine = own.get(value, ("", ""))
        for hold in known.loose.get(value, _NONE) | frozenset([mine] if mine else ()):
            why.setdefault(hold, f"'{name}' is fetched")
    late = holds - why.keys()
    return RunSums(
        late, len(merges), tuple(var for var, hold in own.values() if hold in late), next(iter(why.values()), "")
    )


def hoisted(program: FrozenProgram, late: Holds) -> FrozenProgram:
    """Moves sums over runs to where their gradients are made, so that the backward part goes on beside their exchange.

    Args:
        program: The program of a replica.
        late: The truth values of the sums that are exchanged when they are complete.
    """
    maker = {value: i for i, op in enumerate(program.ops) for value in op.writes()}
    moved = {i for i, op in enumerate(program.ops) if hold_of(op) in late}
    # What counts the runs is behind the backward part, too, and follows from the state alone.
    open_ = [v for i in moved for slot in ("First", _HOLD) for v in _row(program.ops[i].input(slot))]
    while open_:
        made = maker.get(open_.pop())
        if made is not None and made not in moved:
            definition = program.ops[made].definition
            if definition.effects or definition.random or definition.objects or program.ops[made].sub_blocks:
                return program  # the order of these is the user's
            moved.add(made)
            open_ += program.ops[made].reads()
    at = {i: i for i in range(len(program.ops))}
    for i in sorted(moved):
        at[i] = max((at[maker[v]] for v in program.ops[i].reads() if v in maker), default=-1)
    order = sorted(at, key=lambda i: (at[i], i in moved, i))
    return program.edit(ops=tuple(program.ops[i] for i in order))


__all__ = ["Between", "Holds", "RunSums", "between", "hoisted", "hold_of", "run_sums"]
