"""Computes what fusions save and what rejected matches would save, and names the operators behind fused ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tstatic.fusion.codegen.kernel import Kernel
from tstatic.fusion.engine import Applied, Log, OpInfo, Rejection
from tstatic.fusion.engine.reasons import UNNAMED
from tstatic.fusion.engine.view import View
from tstatic.ir.frozen import Entry, FrozenOp, FrozenProgram
from tstatic.ir.types import Meta
from tstatic.target import DEFAULT_TARGET
from tstatic.where import show


@dataclass(frozen=True, slots=True)
class Saving:
    """What a fusion saves, or what a rejected one would save at most; below 0 where it costs more.

    Attributes:
        nbytes, launches: Bytes read and written, and launches, of a step.
        memory: Of a rewriting for the sake of memory: bytes that are alive at the peak.
    """

    nbytes: int = 0
    launches: int = 0
    memory: int = 0


def bytes_of(op: FrozenOp, metas: Mapping[str, Meta]) -> int:
    """Returns the bytes that an op by itself reads and writes."""
    return sum(metas[v].nbytes for v in (*op.contents(), *op.writes()) if v in metas and metas[v].known)


class Savings:
    """What the fusions of a program save.

    An op that several kernels compute (again) counts once, in the first of them, and not at all if it also stays by itself: all
    savings together are what the step saves.

    Args:
        before: The ops that do work in the plan of the program before its fusions.
        fused: The program with its fused ops.
        metas: Metadata of all values.
        kernels: The kernels of its fused ops, by the ops' outputs.
        applied: The fusions made, in order; :meth:`of` takes these.
    """

    def __init__(
        self,
        before: Iterable[FrozenOp],
        fused: FrozenProgram,
        metas: Mapping[str, Meta],
        kernels: Mapping[tuple[Entry, ...], Kernel],
        applied: Sequence[Applied],
    ) -> None:
        self._metas = metas
        # Rewritings first: from then on their ops are the makers of what kernels replace.
        makers = {v: op for op in before for v in op.writes()}
        self._of_rewriting = {id(a): self._rewrite(a, makers) for a in applied if a.rewritten}
        self._of_value: dict[str, Saving] = {}
        self._of_kernels: list[Saving] = []
        launches = {kernel.name: len(kernel.plan(DEFAULT_TARGET).launches) for kernel in kernels.values()}
        # A view that stays needs no copy any more if a kernel has the copy, too.
        stay = [op for op in fused.ops if not op.body and op.definition.view is None]
        counted = {id(makers[v]) for op in stay for v in op.writes() if v in makers}
        for op in fused.ops:
            kernel = kernels.get(op.outputs)
            if kernel is None:
                continue
            replaced = {id(makers[v]): makers[v] for one in op.body for v in one.writes() if v in makers}
            own = [one for key, one in replaced.items() if key not in counted]
            counted.update(replaced)
            total = _sum(own, metas)
            saving = Saving(total.nbytes - kernel.nbytes, total.launches - launches[kernel.name])
            self._of_kernels.append(saving)
            self._of_value |= dict.fromkeys(op.writes(), saving)

    def _rewrite(self, record: Applied, makers: dict[str, FrozenOp]) -> Saving:
        """Returns what a rewriting saves; from then on its own ops make the values."""
        gone = {id(op): op for m in record.members for v in m.outputs if (op := makers.pop(v, None)) is not None}
        works = [op for op in record.rewritten if op.definition.view is None]
        makers.update((v, op) for op in works for v in op.writes())
        apart, made = _sum(gone.values(), self._metas), _sum(works, self._metas)
        return Saving(apart.nbytes - made.nbytes, apart.launches - made.launches, record.memory)

    def of(self, record: Applied) -> Saving:
        """Returns what a fusion saves; nothing for one whose kernel a later one has."""
        if record.rewritten:
            return self._of_rewriting[id(record)]
        # Any of its values: the kernel writes all of them.
        return Saving() if record.kernel is None else self._of_value[next(iter(record.written))]

    @property
    def total(self) -> Saving:
        """What all of them save."""
        every = [*self._of_kernels, *self._of_rewriting.values()]
        return Saving(
            sum(one.nbytes for one in every), sum(one.launches for one in every), sum(one.memory for one in every)
        )


def _sum(ops: Iterable[FrozenOp], metas: Mapping[str, Meta]) -> Saving:
    """Returns the bytes and launches of ops, each by itself."""
    own = [bytes_of(op, metas) for op in ops]
    return Saving(sum(own), len(own))


class Operators:
    """The operators of a program before its fusions, which the records of a log are about.

    Args:
        frozen: The program before the fusions.
        metas: Metadata of all its values.
        log: What the fusions did.
    """

    def __init__(self, frozen: FrozenProgram, metas: Mapping[str, Meta], log: Log) -> None:
        self.view = View(frozen, metas)
        self._known_readers: dict[str, list[int]] = {}
        # A fused op may have the type of the ops that it replaced, so only all that it writes tells them apart.
        self._made = {(a.op, a.written): (number, a) for number, a in enumerate(log.applied)}
        # Later fusions absorb earlier ones, so the last one that has an op is the one whose kernel computes it.
        self._kernel = {i: n for n, a in enumerate(log.applied) for i in self.indices(a.members)}

    def plain(self, member: OpInfo, before: int | None = None) -> tuple[OpInfo, ...]:
        """Returns the user's operators behind one of a record; a fused one has several.

        Args:
            member: An op of a record.
            before: Number of that record among the fusions made: only earlier ones can have made the op.
        """
        number, record = self._made.get((member.type, frozenset(member.outputs)), (-1, None))
        if record is None or (before is not None and number >= before):
            return (member,)
        return tuple(one for m in record.members for one in self.plain(m, number))

    def indices(self, members: Iterable[OpInfo]) -> set[int]:
        """Returns where the operators behind a record's members stand in the program."""
        outputs = (v for m in members for one in self.plain(m) for v in one.outputs)
        return {self.view.maker[v] for v in outputs if v in self.view.maker}

    def possible(self, rejected: Rejection) -> Saving:
        """Returns what a rejected match would save at most: reads and writes of what its members pass on or share.

        Nothing where no change would allow it, or where another fusion made one kernel of its members.
        """
        sets = [self.indices([m]) for m in rejected.members]
        inside = set[int]().union(*sets)
        kernels = {self._kernel.get(i) for i in inside}
        if rejected.change.startswith("nothing") or (len(kernels) == 1 and None not in kernels):
            return Saving()
        total = 0
        for value in {v for i in inside for v in (*self.view.ops[i].contents(), *self.view.ops[i].writes())}:
            meta = self.view.metas.get(value)
            if meta is None or not meta.known:
                continue
            readers = self._readers(value)
            reading = sum(bool(one.intersection(readers)) for one in sets)
            maker = next((one for one in sets if self.view.maker.get(value) in one), None)
            # Made outside: one kernel reads it once, where each member read it.
            if maker is None:
                total += max(0, reading - 1) * meta.nbytes
                continue
            # What the maker's own operators read stays inside its kernel already.
            reading -= bool(maker.intersection(readers))
            total += reading * meta.nbytes
            # What is stored for others costs its write in any case.
            stored = value in self.view.fetched or value in self.view.kept or not inside.issuperset(readers)
            if reading and not stored:
                total += meta.nbytes
        # One kernel in place of several.
        return Saving(total, max(0, len(sets) - 1))

    def _readers(self, value: str) -> list[int]:
        """Returns the operators that read a value's elements; kept, because thousands of matches may ask about one value."""
        if value not in self._known_readers:
            ops = self.view.ops
            self._known_readers[value] = [i for i in self.view.readers.get(value, ()) if value in ops[i].contents()]
        return self._known_readers[value]

    def with_culprit(self, rejected: Rejection) -> Rejection:
        """Returns a rejection whose cure names the operator that prevents it, where the search did not."""
        if UNNAMED not in rejected.change + rejected.reason:
            return rejected
        index = self.view.between(self.indices(rejected.members))
        named = "what other fusions joined in between" if index is None else self._label(self.view.ops[index])
        return replace(
            rejected,
            reason=rejected.reason.replace(UNNAMED, named),
            change=rejected.change.replace(UNNAMED, named),
        )

    def _label(self, op: FrozenOp) -> str:
        names = self.view.program.names
        return f"{op.type} -> {', '.join(names.get(v, v) for v in list(op.writes())[:1])}"


def named_members(operators: Operators, members: Sequence[OpInfo], most: int = 4) -> str:
    """Returns the operators of a record as text; those behind a fused one stand in brackets."""
    parts = []
    for member in members[:most]:
        types = _counted([one.type for one in operators.plain(member)], most)
        parts.append(f"[{types}]" if " " in types else types)
    return _counted(parts + ["..."] * (len(members) > most), most + 1)


def _counted(types: Sequence[str], most: int) -> str:
    """Returns ``3 x relu + exp``: neighbours of one type together, and at most so many of them."""
    runs = [(kind, len(list(row))) for kind, row in itertools.groupby(types)]
    shown = [kind if n == 1 else f"{n} x {kind}" for kind, n in runs[:most]]
    return " + ".join(shown + ["..."] * (len(runs) > most))


def members_as_data(members: Sequence[OpInfo]) -> list[dict[str, Any]]:
    """Returns ops as plain data."""
    return [{"type": m.type, "outputs": list(m.outputs), "where": show(m.where)} for m in members]
